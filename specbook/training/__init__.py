"""Training draft models and heads by distillation from a frozen target.

Modules, from data to artifact: `settings` (every choice, checked before anything is
loaded), `asks` (what the target is asked), `decoding` (batched sampling), `shards`
(teacher rows on disk), `teacher` (making them), `distil` (the loss), `student` (the
small model), `projection` and `copying` (what its weights begin with), `draft` (the
training loop), `stepping` and `resuming` (steps and checkpoints of any such loop),
`agreement` (what it is worth), `artifact` (what is shipped, and its manifest) and `run`
(the command that does all of it).

For draft heads: `packed` (states of a packed stream), `states` (stored once), `rows`
(the boundary rule) and `naive_rows` (rows that break it), `losses`, `least_squares`
(what heads may begin with), `cut` (a vocabulary for them), `heads` (the loop),
`heads_agreement` and `heads_run`. For Kangaroo's adapter: `kangaroo` (the loop),
`kangaroo_start`, `kangaroo_agreement` and `kangaroo_run`. For both: `together` (steps
of one process or several) and `making` (from a target to an artifact). For the book:
`recorded` (answers as lessons), `exposure`, `recipes` and `integration`.
"""
