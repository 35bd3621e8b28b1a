"""The steps of a training run: rates, gradients, the curve, and checkpoints between.

What is trained, and how a batch becomes gradients, is the caller's. A run that is
deterministic but for its seed and step goes on from a checkpoint with the same bits
(see `resuming`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from ..errors import SpecbookError
from . import resuming

Progress = Callable[[str], None]


class Steps(Protocol):
    """What a run's settings say about its steps."""

    @property
    def steps(self) -> int: ...

    @property
    def checkpoint_every(self) -> int: ...

    @property
    def clip(self) -> float: ...

    def rate(self, step: int) -> float:
        """What the learning rates are multiplied with at `step` (from 0)."""
        ...


@dataclass(frozen=True)
class Checkpoint:
    """Where a run is kept: `form` and `key` as in `resuming`. `path` None keeps
    nothing; `writes` is False for all processes but the first."""

    form: str
    key: str
    path: Path | None = None
    resume: bool = False
    writes: bool = True


def take(
    model: nn.Module,
    optimizer: torch.optim.AdamW,
    settings: Steps,
    batches: Callable[[int], Iterator[tuple[int, Any]]],
    learn: Callable[[int, Any], tuple[float, int]],
    checkpoint: Checkpoint,
    *,
    stop_after: int | None = None,
    validate: Callable[[], dict[str, float]] | None = None,
    progress: Progress | None = None,
    ready: Callable[[], None] | None = None,
) -> resuming.Curve:
    """Train `model` in place up to `settings.steps` steps, or `stop_after`; returns the
    curve.

    `batches(begin)`: (epoch, batch) from step `begin` on. `learn(step, batch)` leaves
    the gradients in the parameters and returns loss and rows. The curve has one entry
    for each checkpoint: "step", "epoch", "loss" (mean since the last), and what
    `validate` gives. `ready` is called when the checkpoint has been read. Raises
    `SpecbookError` for a loss or a gradient that is not finite, before its step is
    taken, and as `resuming.begin`.
    """
    say = progress or (lambda line: None)
    last = settings.steps if stop_after is None else min(stop_after, settings.steps)
    bound = {"form": checkpoint.form, "key": checkpoint.key}
    path = checkpoint.path
    begin, curve = resuming.begin(
        path, model, optimizer, resume=checkpoint.resume, **bound
    )
    if begin:
        say(f"resumed at step {begin} of {settings.steps}")
    if ready is not None:
        ready()
    base = [group["lr"] for group in optimizer.param_groups]
    model.train()
    losses: list[float] = []
    taught = 0
    clock = time.monotonic()
    for step, (epoch, batch) in zip(range(begin, last), batches(begin), strict=False):
        for group, rate in zip(optimizer.param_groups, base, strict=True):
            group["lr"] = rate * settings.rate(step)
        loss, rows = learn(step, batch)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
        # Before the step: a checkpoint of weights that are no numbers is of no use.
        for name, value in (("loss", loss), ("norm of the gradient", float(norm))):
            if not math.isfinite(value):
                raise SpecbookError(f"the {name} is {value} at step {step}")
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss)
        taught += rows
        if (step + 1) % settings.checkpoint_every and step + 1 != last:
            continue
        seconds = time.monotonic() - clock
        entry = {"step": step + 1, "epoch": epoch, "loss": sum(losses) / len(losses)}
        model.eval()
        entry.update(validate() if validate is not None else {})
        model.train()
        curve.append(entry)
        if path is not None and checkpoint.writes:
            resuming.save(path, model, optimizer, step=step + 1, curve=curve, **bound)
        left = (settings.steps - step - 1) * seconds / len(losses)
        told = ", ".join(f"{k} {v:.4g}" for k, v in entry.items() if k != "step")
        say(
            f"step {step + 1} of {settings.steps}: {told}; "
            f"{taught / seconds:.0f} rows a second, {left / 60:.0f} minutes left"
        )
        losses, taught = [], 0
        clock = time.monotonic()
    model.eval()
    return curve
