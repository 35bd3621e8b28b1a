"""Training draft models and heads by distillation from a frozen target.

Modules, from data to artifact: `settings` (every choice, checked before anything is
loaded), `asks` (what the target is asked), `decoding` (batched sampling), `shards`
(teacher rows on disk), `teacher` (making them), `distil` (the loss), `student` (the
small model), `projection` and `copying` (what its weights begin with), `draft` (the
training loop), `stepping` and `resuming` (steps and checkpoints of any such loop),
`agreement` (what it is worth), `artifact` (what is shipped, and its manifest) and `run`
(the command that does all of it).

For draft heads: `packed` (states of a packed stream), `rows` (the boundary rule),
`losses`, `heads` (the loop), `heads_agreement` and `heads_run`.
"""
