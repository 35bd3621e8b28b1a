"""Training on a frozen target by one process or several: the steps of each.

Of a batch of whole sequences each process takes every so-manieth, and every row weighs
what it would weigh in one process, however unevenly the rows fall: the caller divides a
sum of losses by the rows of the whole batch, which each process can count, and
gradients are added up. A run is a function of its settings, its data and the number of
processes, for sums are rounded in another order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import torch
from accelerate import PartialState
from accelerate.utils import parse_flag_from_env, reduce
from torch import nn

from .. import checks
from . import draft, resuming, shards, stepping
from .decoding import TaughtSequence

Progress = Callable[[str], None]

Loss = Callable[[Sequence[TaughtSequence], list[int], torch.Generator], torch.Tensor]
"""The loss of some sequences of a batch: `(sequences, total, generator)`, where `total`
are the rows of the whole batch that it is a mean over."""


class RunSettings(stepping.Steps, Protocol):
    """What a run's settings say beside its steps."""

    @property
    def rows_per_step(self) -> int: ...

    @property
    def learning_rate(self) -> float: ...

    @property
    def weight_decay(self) -> float: ...

    @property
    def seed(self) -> int: ...

    def described(self) -> dict[str, Any]:
        """As plain JSON."""
        ...


def processes() -> PartialState:
    """This process among those of an `accelerate launch`; alone without one."""
    on_cpu = parse_flag_from_env("ACCELERATE_USE_CPU") or not torch.cuda.is_available()
    # Teacher data may take hours to make, while the others wait for the first process.
    return PartialState(cpu=on_cpu, timeout=timedelta(days=7))


def train(
    model: nn.Module,
    sequences: Sequence[TaughtSequence],
    settings: RunSettings,
    loss: Loss,
    count: Callable[[Sequence[TaughtSequence]], list[int]],
    *,
    form: str,
    told: Sequence[str],
    world: PartialState,
    vocabulary: torch.Tensor | None = None,
    checkpoint: Path | None = None,
    resume: bool = False,
    stop_after: int | None = None,
    validate: Callable[[Any], dict[str, float]] | None = None,
    progress: Progress | None = None,
) -> resuming.Curve:
    """Train `model` in place for `settings.steps` steps; returns the loss curve.

    `count(sequences)`: the rows that `loss` is a mean over, one number for each mean.
    `form` names the kind of run, `told` its data; with the settings, the processes and
    the cut `vocabulary` they bind a checkpoint. Other arguments, curve and errors as
    `draft.train`. All processes must see the checkpoint's file, which the first writes,
    and that one alone calls `validate` and `progress`.
    """
    if stop_after is not None:
        checks.integer(stop_after, "stop_after", least=0)
    checks.boolean(resume, "resume")
    checks.instance(checkpoint, "checkpoint", (Path, type(None)))
    for told_to, name in ((validate, "validate"), (progress, "progress")):
        if told_to is not None:
            checks.function(told_to, name)
    bound = [*told, json.dumps(settings.described(), sort_keys=True)]
    ids = vocabulary
    bound += [str(world.num_processes), str(None if ids is None else ids.tolist())]
    lengths = [len(s.tokens) for s in sequences]
    is_first = world.is_main_process

    def learn(step: int, batch: list[int]) -> tuple[float, int]:
        whole = [sequences[i] for i in batch]
        total = count(whole)
        found = backward(model, loss, whole, total, settings.seed, step, world)
        return found, sum(total)

    curve = stepping.take(
        model,
        _optimizer(model, settings),
        settings,
        lambda begin: draft.batch_order(
            lengths, settings.rows_per_step, settings.seed, begin
        ),
        learn,
        stepping.Checkpoint(form, shards.digest(bound), checkpoint, resume, is_first),
        stop_after=stop_after,
        validate=(lambda: validate(model)) if validate and is_first else None,
        progress=progress if is_first else None,
        # The first process writes the file that all have read.
        ready=world.wait_for_everyone,
    )
    world.wait_for_everyone()
    return curve


def backward(
    model: nn.Module,
    loss: Loss,
    whole: Sequence[TaughtSequence],
    total: list[int],
    seed: int,
    step: int,
    world: PartialState,
) -> float:
    """Gradients of the loss over the batch `whole`, in every process; that loss."""
    mine = whole[world.process_index :: world.num_processes]
    found = torch.zeros((), device=next(model.parameters()).device)
    if mine:
        # The generator is of its own for each step: a resumed run draws the same.
        drawn = resuming.step_seed(seed, step, world.process_index)
        value = loss(mine, total, torch.Generator().manual_seed(drawn))
        value.backward()
        found = value.detach()
    parameters = list(model.parameters())
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    if world.num_processes > 1:
        _add_up(parameters)
        found = reduce(found, "sum")
    return float(found)


def _add_up(parameters: Sequence[nn.Parameter]) -> None:
    """Sum the gradients over all processes, in one message."""
    grads = [p.grad for p in parameters if p.grad is not None]
    flat = reduce(torch.cat([grad.reshape(-1) for grad in grads]), "sum")
    parts = flat.split([grad.numel() for grad in grads])
    for grad, part in zip(grads, parts, strict=True):
        grad.copy_(part.view_as(grad))


def _optimizer(model: nn.Module, settings: RunSettings) -> torch.optim.AdamW:
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    return torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": settings.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ],
        lr=settings.learning_rate,
        betas=(0.9, 0.98),
    )
