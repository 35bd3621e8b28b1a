"""Training Kangaroo's adapter on a frozen target (section 0x05B).

The target's first l layers read a packed stream, document by document, and the adapter
reads their rows. What it says behind token t is to be what the target says there, whose
law is stored with the token that follows (`teacher`). So a row is every token with a
law behind it, and gradients reach the adapter alone: the layers below it and the LM
head above it are the target's.

The loss is the soft cross-entropy of the article less the entropy of the target's laws,
which has the same gradients: T^2 KL(p^(T) || q^(T)), mean over the rows. Laws are
stored as their most probable tokens and the rest (`distil`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .. import checks
from ..errors import SpecbookError
from ..models.kangaroo import Adapter
from ..models.layered import Layered
from . import resuming, together
from .decoding import TaughtSequence
from .heads import (
    Stream,
    Teacher,
    checked_total,
    pack,
    taught_losses,
    taught_sequences,
)
from .packed import trunk_states
from .settings import KangarooSettings
from .states import StoredStates
from .together import Progress, processes

_CHECKPOINT = "specbook kangaroo training 1"


@dataclass(frozen=True)
class Trunk:
    """What is the target's of a draft: its first `boundary` layers and, by `teacher`,
    its LM head. `stored`: where the rows of all documents at that boundary are read;
    None computes them. Raises `SpecbookError` for a boundary below which, or above
    which, there is no layer, and for a model that cannot be run layer by layer."""

    teacher: Teacher
    boundary: int
    stored: StoredStates | None = None

    def __post_init__(self) -> None:
        checks.instance(self.teacher, "teacher", Teacher)
        checks.instance(self.stored, "stored", (StoredStates, type(None)))
        layers = Layered(self.teacher.model).count
        checks.integer(self.boundary, "boundary", least=1, most=layers - 1)

    def rows(self, stream: Stream) -> torch.Tensor:
        """What the adapter reads at every token of `stream`, float32 [n, d]."""
        if self.stored is not None:
            parts = stream.tokens.split(lengths_of(stream))
            found = torch.cat([self.stored.read(part.tolist()) for part in parts])
            return found.to(self.teacher.head().device, torch.float32)
        seen = trunk_states(
            self.teacher.model,
            self.boundary,
            stream.tokens.tolist(),
            stream.segments.tolist(),
        )
        # A copy: tensors of inference mode cannot be kept for a gradient.
        return seen.to(torch.float32, copy=True)


def lengths_of(stream: Stream) -> list[int]:
    """How many tokens each document of `stream` has."""
    _, lengths = stream.segments.unique_consecutive(return_counts=True)
    found: list[int] = lengths.tolist()
    return found


def untrained(trunk: Trunk, settings: KangarooSettings) -> Adapter:
    """An adapter for `trunk`, float32: what does not begin at zero is drawn from the
    seed, and its last norm begins as the target's. No generator of the caller moves."""
    checks.instance(trunk, "trunk", Trunk)
    checks.instance(settings, "settings", KangarooSettings)
    weight = Layered(trunk.teacher.model).norm_weight.detach()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        adapter = Adapter(len(weight), settings.attention_heads)
    with torch.no_grad():
        adapter.norm2.copy_(weight)
    return adapter.to(weight.device)


def stream_features(adapter: Adapter, trunk: Trunk, stream: Stream) -> torch.Tensor:
    """What the adapter says at every token of `stream`, [n, d]: each document is a text
    of its own, from position 0."""
    parts = trunk.rows(stream).split(lengths_of(stream))
    return torch.cat([adapter(part) for part in parts])


def taught_labels(stream: Stream) -> torch.Tensor:
    """The tokens that have a law, int64 [R]: each is the label of the row before it."""
    return (stream.law >= 0).nonzero()[:, 0]


def count_rows(sequences: Sequence[TaughtSequence]) -> list[int]:
    """How many rows `sequences` have, as a list of one number."""
    return [sum(len(s.top_ids) for s in taught_sequences(sequences))]


def _check_parts(adapter: Any, trunk: Any, settings: Any) -> None:
    """Raise `SpecbookError` for what is none of a training's parts."""
    checks.instance(adapter, "adapter", Adapter)
    checks.instance(trunk, "trunk", Trunk)
    checks.instance(settings, "settings", KangarooSettings)


def batch_loss(
    adapter: Adapter,
    trunk: Trunk,
    sequences: Sequence[TaughtSequence],
    settings: KangarooSettings,
    *,
    total: Sequence[int] | None = None,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """The sum of the losses of all rows of `sequences`, divided by `total` (one number;
    by default these rows; with several processes those of the whole batch).

    A kept token outside the cut vocabulary belongs to the rest, and a row of which
    nothing is left adds 0, and counts. `generator`: of the sampled columns.
    """
    _check_parts(adapter, trunk, settings)
    whole = checked_total(count_rows(sequences) if total is None else total)
    if len(whole) != 1:
        raise SpecbookError(f"total has {len(whole)} numbers for one mean")
    stream = pack(sequences)
    labels = taught_labels(stream)
    features = stream_features(adapter, trunk, stream)
    device = features.device
    said = features[(labels - 1).to(device)]
    law = stream.law[labels]
    ids = trunk.teacher.local(stream.top_ids[law].to(device))
    loss = said.sum() * 0  # so that a stream without rows has a gradient too
    for term in taught_losses(
        [(said, ids, stream.top_logps[law].to(device))],
        trunk.teacher,
        [1.0],
        whole,
        dtype=torch.bfloat16 if settings.dtype == "bfloat16" else torch.float32,
        others=settings.others,
        generator=generator,
        temperature=settings.temperature,
    ):
        loss = loss + term
    return loss


def loss_of(
    adapter: Adapter, trunk: Trunk, settings: KangarooSettings
) -> together.Loss:
    """`batch_loss` as the steps of a training ask for it."""

    def loss(
        whole: Sequence[TaughtSequence], total: list[int], generator: torch.Generator
    ) -> torch.Tensor:
        return batch_loss(
            adapter, trunk, whole, settings, total=total, generator=generator
        )

    return loss


def train(
    adapter: Adapter,
    trunk: Trunk,
    sequences: Sequence[TaughtSequence],
    settings: KangarooSettings,
    *,
    data_key: str,
    checkpoint: Path | None = None,
    resume: bool = False,
    stop_after: int | None = None,
    validate: Callable[[Adapter], dict[str, float]] | None = None,
    progress: Progress | None = None,
) -> resuming.Curve:
    """Train `adapter`, float32, in place for `settings.steps` steps; returns the loss
    curve. Other arguments, several processes and errors as `heads.train`."""
    _check_parts(adapter, trunk, settings)
    checks.text(data_key, "data_key")
    made = (adapter.heads, adapter.width, trunk.boundary)
    width = trunk.teacher.head().shape[1]
    if made != (settings.attention_heads, width, settings.boundary):
        raise SpecbookError(
            f"an adapter of {made[0]} heads and width {made[1]} at boundary {made[2]} "
            f"is none of {settings.attention_heads} heads at boundary "
            f"{settings.boundary} for a target of width {width}"
        )
    sequences = taught_sequences(sequences)
    if not any(count_rows(sequences)):
        raise SpecbookError("there is nothing to train on: no token has a law")
    return together.train(
        adapter,
        sequences,
        settings,
        loss_of(adapter, trunk, settings),
        count_rows,
        form=_CHECKPOINT,
        told=[data_key],
        world=processes(),
        vocabulary=trunk.teacher.vocabulary,
        checkpoint=checkpoint,
        resume=resume,
        stop_after=stop_after,
        validate=validate,
        progress=progress,
    )
