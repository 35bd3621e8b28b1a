"""Training draft models and heads by distillation from a frozen target.

Modules, from data to artifact: `asks` (what the target is asked), `decoding` (batched
sampling), `shards` (teacher rows on disk), `teacher` (making them), `distil` (the
loss), `student` (the small model), `draft` (the training loop), `agreement` (what it
is worth) and `artifact` (what is shipped, and its manifest).
"""
