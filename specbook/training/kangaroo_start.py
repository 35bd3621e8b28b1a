"""A start for Kangaroo's adapter: the best linear guess of the target's last state.

Every head of the adapter looks at its own row and hands it on unchanged, so what is
left is one matrix, from a row to what must be added to it; its least squares have a
closed form, from one pass of the whole target over a few texts. Without it the second
norm alone reads shallow rows as if they were the last, and hundreds of steps go into
unlearning that.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from accelerate.utils import reduce

from .. import checks
from ..errors import SpecbookError
from ..models.kangaroo import Adapter
from .decoding import TaughtSequence
from .heads import pack, taught_sequences
from .kangaroo import Trunk, processes
from .together import Progress

TOKENS = 32_768
"""Of the texts that are read, at most: their whole states cost a forward each."""

SHARPNESS = 1.0
"""Queries and keys are so many times the normed row. A row's score with itself is then
the root of the head's width, times that squared: far above that with any other."""

SIZE = 10.0
"""Root mean square of the state that is to come out, before the norm that undoes it:
what is added must outweigh the row that it is added to."""

RIDGE = 1e-3
"""Added to the mean square of every input, which is about 1."""


@torch.no_grad()
def start(
    adapter: Adapter,
    trunk: Trunk,
    sequences: Sequence[TaughtSequence],
    progress: Progress | None = None,
) -> None:
    """Set the attention of `adapter`, untrained, to the least squares over the first
    sequences, `TOKENS` tokens at most, but one of them. No draws. Raises
    `SpecbookError` where there is none."""
    checks.instance(adapter, "adapter", Adapter)
    checks.instance(trunk, "trunk", Trunk)
    if progress is not None:
        checks.function(progress, "progress")
    say = progress or (lambda line: None)
    world = processes()
    chosen: list[TaughtSequence] = []
    tokens = 0
    for one in taught_sequences(sequences):
        tokens += len(one.tokens)
        if chosen and tokens > TOKENS:
            break
        chosen.append(one)
    if not chosen:
        raise SpecbookError("there is no text to start from")
    width, device = adapter.width, adapter.norm1.device
    eye = torch.eye(width, device=device)
    adapter.query_key_value.weight.copy_(
        torch.cat([SHARPNESS * eye, SHARPNESS * eye, eye])
    )
    inputs = torch.zeros((width, width), dtype=torch.float64, device=device)
    outputs, rows = inputs.clone(), inputs.new_zeros(())
    for number, one in enumerate(chosen):
        if number % world.num_processes != world.process_index:
            continue
        stream = pack([one])
        shallow = trunk.rows(stream)
        # The norm's weight comes last, and is the adapter's too.
        wanted = SIZE * trunk.teacher.states(stream) / adapter.norm2
        query, key, value = adapter.project(shallow, 0)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        read = seen.transpose(0, 1).reshape(shallow.shape)
        inputs += (read.T @ read).double()
        outputs += (read.T @ (wanted - shallow)).double()
        rows += len(shallow)
        if number % 20 == 0:
            say(f"least squares: {number} of {len(chosen)} texts")
    if world.num_processes > 1:
        inputs, outputs, rows = (reduce(x, "sum") for x in (inputs, outputs, rows))
    held = RIDGE * rows * torch.eye(width).to(inputs)
    adapter.output.weight.copy_(torch.linalg.solve(inputs + held, outputs).T)
