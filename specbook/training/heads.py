"""Training draft heads on a frozen target, with checkpoints, by one or many processes.

A batch is a packed stream of whole sequences. The target reads it segment by segment
(`packed`), or has read every sequence once for all passes (`states`). Its states serve
one step, and the rows of every head are those of the boundary rule (`rows`) whose label
the teacher gave a law for. True tokens go in (teacher forcing), or at a share of the
positions what the heads say themselves; the target then reads that too, and its law
behind it is what is taught. That costs a second forward of the target.

What a row is taught is the stored law at its label's place (`loss="teacher"`) or the
label alone ("label"). The law is the default for every kind. In a sampled answer the
label is one draw from that law, so both losses have the same mean gradient and the
law's has less noise; in a source file the label is what the author wrote, but what
decides about a draft is what the target says there.

A run is a function of its settings and data, as in `draft`, by one process or several
(`together`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .. import checks
from ..errors import SpecbookError
from ..models.heads.base import Heads
from ..models.target import check_model, checked_ids, context_limit
from . import resuming, together
from .decoding import TaughtSequence
from .losses import (
    forced_tokens,
    head_weights,
    own_tokens,
    state_loss,
    stored_loss,
)
from .packed import path_states, segment_causal_states
from .rows import eligible
from .settings import HeadsSettings
from .states import StoredStates
from .together import Progress, processes

_CHECKPOINT = "specbook heads training 1"


@dataclass(frozen=True)
class Stream:
    """Whole sequences, one behind the other. `tokens`, `segments` int64 [n]; `law`
    int64 [n]: the row of `top_ids`, `top_logps` [T, k] that is the law of each token,
    -1 where there is none."""

    tokens: torch.Tensor
    segments: torch.Tensor
    law: torch.Tensor
    top_ids: torch.Tensor
    top_logps: torch.Tensor


def taught_sequences(sequences: Any) -> list[TaughtSequence]:
    """`sequences` as a list. Raises `SpecbookError` for anything else among them."""
    found = checks.entries(sequences, "sequences", "taught sequences")
    for place, one in enumerate(found):
        if not isinstance(one, TaughtSequence):
            raise SpecbookError(f"sequences[{place}] is no TaughtSequence: {one!r}")
    return found


def pack(sequences: Sequence[TaughtSequence]) -> Stream:
    """`sequences`, at least one, as one stream."""
    sequences = taught_sequences(sequences)
    if not sequences:
        raise SpecbookError("sequences is empty: there is nothing to pack")
    for place, s in enumerate(sequences):
        _check_columns(s, f"sequences[{place}]")
    lengths = torch.tensor([len(s.tokens) for s in sequences])
    taught = [np.arange(len(s.tokens)) > s.first_row for s in sequences]
    flags = torch.from_numpy(np.concatenate(taught))
    law = torch.where(flags, flags.cumsum(0) - 1, -1)
    return Stream(
        torch.from_numpy(np.concatenate([s.tokens for s in sequences])),
        torch.arange(len(sequences)).repeat_interleave(lengths),
        law,
        torch.from_numpy(np.concatenate([s.top_ids for s in sequences])),
        torch.from_numpy(np.concatenate([s.top_logps for s in sequences])),
    )


def _check_columns(sequence: TaughtSequence, name: str) -> None:
    """Raise `SpecbookError` for columns of other types or shapes than a taught sequence
    has. A row before the first token would be taken for the last one of the stream."""
    for part, kind, axes in (
        ("tokens", np.int64, 1),
        ("top_ids", np.int64, 2),
        ("top_logps", np.floating, 2),
    ):
        found = getattr(sequence, part)
        if (
            not isinstance(found, np.ndarray)
            or not np.issubdtype(found.dtype, kind)
            or found.ndim != axes
        ):
            raise SpecbookError(
                f"{name}: {part} must be an array of {axes} axes of {kind.__name__} "
                f"numbers, got {found!r}"
            )
    last = len(sequence.tokens) - 1
    checks.integer(sequence.first_row, f"{name}: first_row", least=0, most=max(0, last))
    checks.integer(sequence.prompt_length, f"{name}: prompt_length", least=0)
    if len(sequence.top_ids) != last - sequence.first_row:
        raise SpecbookError(
            f"{name} has {len(sequence.tokens)} tokens and {len(sequence.top_ids)} "
            f"laws from token {sequence.first_row + 1} on"
        )
    if sequence.top_ids.shape != sequence.top_logps.shape:
        raise SpecbookError(
            f"{name}: laws of {sequence.top_ids.shape} ids and "
            f"{sequence.top_logps.shape} log-probabilities"
        )
    if len(sequence.tokens) and int(sequence.tokens.min()) < 0:
        raise SpecbookError(
            f"{name}: tokens has the negative id {sequence.tokens.min()}"
        )


def row_mask(stream: Stream, heads: int) -> torch.Tensor:
    """Boolean [n, heads]: whether position t (that of the pending token) is a row of
    head i, in column i - 1: the boundary rule, and a law for its label."""
    checks.instance(stream, "stream", Stream)
    n = len(stream.tokens)
    found = eligible(stream.segments.tolist(), [True] * n, heads)
    for head in range(1, heads + 1):
        has_law = torch.zeros(n, dtype=torch.bool)
        has_law[: max(n - head, 0)] = stream.law[head:] >= 0
        found[:, head - 1] &= has_law
    return found


def count_rows(sequences: Sequence[TaughtSequence], heads: int) -> list[int]:
    """How many rows each head has in `sequences`: what `row_mask` would sum to."""
    checks.integer(heads, "heads", least=1)
    sequences = taught_sequences(sequences)
    # Labels of head i stand at i + 1 and later, and behind the first taught row.
    return [
        sum(max(0, len(s.tokens) - max(i + 1, s.first_row + 1)) for s in sequences)
        for i in range(1, heads + 1)
    ]


@dataclass(frozen=True)
class Teacher:
    """The frozen target: a transformers causal LM. `vocabulary` int64 [C]: the ids
    that heads are to predict, ascending, on the model's device; None for all. `stored`:
    where the states of all documents are read; None computes them. Raises
    `SpecbookError` for another vocabulary."""

    model: Any
    vocabulary: torch.Tensor | None = None
    stored: StoredStates | None = None

    def __post_init__(self) -> None:
        check_model(self.model)
        checks.instance(self.stored, "stored", (StoredStates, type(None)))
        ids = self.vocabulary
        if ids is None:
            return
        size = len(self.model.get_output_embeddings().weight)
        # An id twice would be counted twice by every softmax.
        if (
            not isinstance(ids, torch.Tensor)
            or ids.dtype != torch.int64
            or ids.dim() != 1
            or not len(ids)
            or not bool((ids.diff() > 0).all())
            or not 0 <= int(ids[0]) <= int(ids[-1]) < size
        ):
            raise SpecbookError(
                f"vocabulary must be int64 ids of 0 .. {size - 1}, ascending and none "
                f"twice, got {ids!r}"
            )

    def states(self, stream: Stream) -> torch.Tensor:
        """What the LM head reads at every token of `stream`, float32 [n, d]."""
        if self.stored is not None:
            _, lengths = stream.segments.unique_consecutive(return_counts=True)
            parts = stream.tokens.split(lengths.tolist())
            found = torch.cat([self.stored.read(part.tolist()) for part in parts])
            return found.to(self.head().device, torch.float32)
        seen = segment_causal_states(
            self.model, stream.tokens.tolist(), stream.segments.tolist()
        )
        # A copy: tensors of inference mode cannot be kept for a gradient.
        return seen.to(torch.float32, copy=True)

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        """Embeddings of `ids`, float32, without a gradient."""
        weight = self.model.get_input_embeddings().weight.detach()
        return weight[checked_ids(ids, len(weight)).to(weight.device)].float()

    def head(self) -> torch.Tensor:
        """The LM head's rows [V or C, d] that heads are read with."""
        weight = self.model.get_output_embeddings().weight.detach()
        return weight if self.vocabulary is None else weight[self.vocabulary]

    def ids(self, local: torch.Tensor) -> torch.Tensor:
        """The ids of rows of `head`."""
        return local if self.vocabulary is None else self.vocabulary[local]

    def local(self, ids: torch.Tensor) -> torch.Tensor:
        """The rows of `head` for `ids`; -1 for an id that is cut away."""
        if self.vocabulary is None:
            return ids
        place = self.vocabulary.new_full((int(self.model.config.vocab_size),), -1)
        place[self.vocabulary] = torch.arange(len(self.vocabulary)).to(place)
        return place[ids]


def stream_features(
    heads: Heads,
    teacher: Teacher,
    stream: Stream,
    mask: torch.Tensor,
    hidden: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Positions t int64 [R] that are a row of any head in `mask`; what the heads start
    from there, [R, d]; and what they say when they are given the true tokens: features
    [R, K, d]. `hidden` [n, d]: the stream's states, where they are known already."""
    positions = mask.any(dim=1).nonzero()[:, 0]
    hidden = teacher.states(stream) if hidden is None else hidden
    device = hidden.device
    base = heads.base(hidden, stream.segments.to(device))[(positions - 1).to(device)]
    given = forced_tokens(stream.tokens, positions, heads.config.heads)
    return positions, base, heads(base, teacher.embed(given))


def batch_loss(
    heads: Heads,
    teacher: Teacher,
    sequences: Sequence[TaughtSequence],
    settings: HeadsSettings,
    *,
    total: Sequence[int] | None = None,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """sum_i lambda_i / `total[i - 1]` times the sum of head i's losses over its rows.

    `total`: rows of each head that the loss is a mean over, by default those of
    `sequences`; with several processes those of the whole batch. A kept token that is
    outside the cut vocabulary belongs to the rest, so a row of which nothing is left
    adds 0, and counts. `generator`: of the sampled columns (see `distil`).
    """
    _check_parts(heads, teacher, settings)
    count = heads.config.heads
    lambdas = head_weights(count, settings.decay)
    stream = pack(sequences)
    whole = checked_total(count_rows(sequences, count) if total is None else total)
    if len(whole) != count:
        raise SpecbookError(f"total has {len(whole)} numbers for {count} heads")
    mask = row_mask(stream, count)
    hidden = teacher.states(stream)
    positions, base, features = stream_features(heads, teacher, stream, mask, hidden)
    own = torch.zeros(len(positions), dtype=torch.bool)
    if settings.self_share:
        own = torch.rand(len(positions), generator=generator) < settings.self_share
        # The heads' own tokens are all read, those behind the document's end, too: they
        # must have places in the target's context.
        limit = context_limit(teacher.model.config)
        if limit is not None:
            own &= _places(stream.segments)[positions] + count <= limit
    rows = mask[positions]
    # The first head is given the pending token, which is never its own.
    forced = rows & ~own[:, None]
    forced[:, 0] = rows[:, 0]
    columns = _text_rows(stream, positions, features, forced, settings.loss)
    if bool(own.any()) and count > 1:
        places = own.nonzero()[:, 0].to(base.device)
        more = _own_rows(heads, teacher, stream, positions[own], base[places])
        columns[1:] = [
            _joined(column, more, rows[own, head], head)
            for head, column in enumerate(columns[1:], start=1)
        ]
    columns = [(said, teacher.local(ids), logps) for said, ids, logps in columns]
    dtype = torch.bfloat16 if settings.dtype == "bfloat16" else torch.float32
    loss = features.sum() * 0  # so that a stream without rows has a gradient too
    if settings.state_weight:
        parts = _state_rows(hidden, positions, features, forced)
        counts = zip(lambdas, parts[0], whole, strict=True)
        shares = [scale * len(rows) / max(n, 1) for scale, rows, n in counts]
        loss = loss + settings.state_weight * state_loss(*parts, shares)
    options = {"dtype": dtype, "others": settings.others, "generator": generator}
    for term in taught_losses(columns, teacher, lambdas, whole, **options):
        loss = loss + term
    return loss


def checked_total(total: Any) -> list[int]:
    """The rows that a loss is a mean over, one number for each mean."""
    found = checks.entries(total, "total", "numbers of rows")
    return [checks.integer(n, f"total[{i}]", least=0) for i, n in enumerate(found)]


def _check_parts(heads: Any, teacher: Any, settings: Any) -> None:
    """Raise `SpecbookError` for what is none of a training's parts."""
    checks.instance(heads, "heads", Heads)
    checks.instance(teacher, "teacher", Teacher)
    checks.instance(settings, "settings", HeadsSettings)


def _places(segments: torch.Tensor) -> torch.Tensor:
    """The place of each token in its document, int64 [n]."""
    _, lengths = segments.unique_consecutive(return_counts=True)
    first = (lengths.cumsum(0) - lengths).repeat_interleave(lengths)
    return torch.arange(len(segments)) - first


def taught_losses(
    columns: Sequence[Rows],
    teacher: Teacher,
    weights: Sequence[float],
    total: Sequence[int],
    **options: Any,
) -> Iterator[torch.Tensor]:
    """The terms whose sum is `stored_loss` of `columns`, each divided by its `total`.

    `columns`: for each head features, kept ids as rows of `teacher.head`, and
    log-probabilities; -1 stands for an id that the cut vocabulary has not. Its mass
    goes to the rest, and a row of which nothing is kept adds nothing. `weights`: one a
    head; `options`: those of `distil.distillation_loss`.
    """
    weight = teacher.head()
    for kept, group in _groups(columns, teacher.vocabulary is not None):
        scales = [
            scale * len(part[0]) / max(n, 1)
            for scale, part, n in zip(weights, group, total, strict=True)
        ]
        if kept == 0 or not any(len(part[0]) for part in group):
            continue
        yield stored_loss(
            [part[0] for part in group],
            weight,
            [part[1] for part in group],
            [part[2] for part in group],
            scales,
            **options,
        )


Rows = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Features [R, d], ids and log-probabilities [R, k]."""


def _text_rows(
    stream: Stream,
    positions: torch.Tensor,
    features: torch.Tensor,
    rows: torch.Tensor,
    loss: str,
) -> list[Rows]:
    """For each head its rows in `rows` [R, K]: features, and what the text teaches."""
    device = features.device
    found = []
    for head, column in enumerate(rows.T):
        chosen = column.nonzero()[:, 0]
        ids, logps = _taught(stream, positions[chosen] + head + 1, loss)
        said = features[chosen.to(device), head]
        found.append((said, ids.to(device), logps.to(device)))
    return found


def _state_rows(
    hidden: torch.Tensor,
    positions: torch.Tensor,
    features: torch.Tensor,
    rows: torch.Tensor,
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """For each head its features at its rows in `rows` [R, K], and the target's states
    that stand for them: those of the token before the label."""
    device = features.device
    said, truth = [], []
    for head, column in enumerate(rows.T):
        chosen = column.nonzero()[:, 0]
        said.append(features[chosen.to(device), head])
        truth.append(hidden[(positions[chosen] + head).to(device)])
    return said, truth


def _joined(column: Rows, more: Rows, rows: torch.Tensor, head: int) -> Rows:
    """The rows of one head, and those of `more` that it has."""
    chosen = rows.nonzero()[:, 0].to(more[0].device)
    said, ids, logps = (part[chosen, head] for part in more)
    return (
        torch.cat([column[0], said]),
        torch.cat([column[1], ids]),
        torch.cat([column[2], logps]),
    )


def _own_rows(
    heads: Heads,
    teacher: Teacher,
    stream: Stream,
    positions: torch.Tensor,
    base: torch.Tensor,
) -> Rows:
    """Features [R, K, d] of heads that are given their own most probable tokens at
    `positions` [R], and the target's law behind these, ids and log-probabilities
    [R, K, k]. Of the first head, which is given no such token, they mean nothing."""
    count = heads.config.heads
    weight = teacher.head().float()

    def choose(features: torch.Tensor) -> torch.Tensor:
        # Head and choice in one, so that few rows of logits are in memory.
        best = [(part @ weight.T).argmax(dim=-1) for part in features.split(256)]
        return teacher.ids(torch.cat(best))

    pending = stream.tokens[positions].to(base.device)
    embed = teacher.embed
    given = own_tokens(heads, base, pending, embed, lambda features: features, choose)
    states = path_states(
        teacher.model,
        stream.tokens.tolist(),
        stream.segments.tolist(),
        positions,
        given[:, 1:].cpu(),
    )
    k = stream.top_ids.shape[1]
    ids = given.new_zeros((len(given), count, k))
    logps = base.new_zeros(ids.shape)
    whole = teacher.model.get_output_embeddings().weight.detach()
    for row, part in enumerate(states):
        law = torch.log_softmax((part @ whole.T).float(), dim=-1).topk(k, dim=-1)
        ids[row, 1:], logps[row, 1:] = law.indices, law.values
    return heads(base, teacher.embed(given)), ids, logps


def _taught(
    stream: Stream, labels: torch.Tensor, loss: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and log-probabilities [R, k] for rows whose labels stand at `labels`."""
    if loss == "label":
        return stream.tokens[labels][:, None], torch.zeros((len(labels), 1))
    law = stream.law[labels]
    return stream.top_ids[law], stream.top_logps[law]


def _groups(columns: Sequence[Rows], is_cut: bool) -> Iterator[tuple[int, list[Rows]]]:
    """The rows of all heads by how many of their kept tokens the vocabulary has, those
    tokens first: a loss takes rows of one width."""
    width = columns[0][1].shape[1]
    if not is_cut:
        yield width, list(columns)
        return
    sorted_columns = []
    for features, ids, logps in columns:
        order = (ids < 0).to(torch.int8).argsort(dim=1, stable=True)
        sorted_columns.append(
            (features, ids.gather(1, order), logps.gather(1, order), (ids >= 0).sum(1))
        )
    for kept in range(width + 1):
        yield (
            kept,
            [
                (features[n == kept], ids[n == kept, :kept], logps[n == kept, :kept])
                for features, ids, logps, n in sorted_columns
            ],
        )


def train(
    heads: Heads,
    teacher: Teacher,
    sequences: Sequence[TaughtSequence],
    settings: HeadsSettings,
    *,
    data_key: str,
    checkpoint: Path | None = None,
    resume: bool = False,
    stop_after: int | None = None,
    validate: Callable[[Heads], dict[str, float]] | None = None,
    progress: Progress | None = None,
) -> resuming.Curve:
    """Train `heads` in place for `settings.steps` steps; returns the loss curve.

    `heads`: float32. Other arguments, curve and errors as `draft.train`. Processes of
    one `accelerate launch` share the work; all of them must see the checkpoint's file,
    which the first writes, and that one alone calls `validate` and `progress`. How
    many there are is part of a checkpoint's key: sums are rounded in another order.
    """
    _check_parts(heads, teacher, settings)
    count = heads.config.heads
    checks.text(data_key, "data_key")
    if (settings.kind, settings.heads) != (heads.config.kind, count):
        raise SpecbookError(
            f"these are {count} {heads.config.kind} heads, the settings are of "
            f"{settings.heads} {settings.kind} heads"
        )
    sequences = taught_sequences(sequences)
    if not any(count_rows(sequences, count)):
        raise SpecbookError("there is nothing to train on: no head has a row")
    return together.train(
        heads,
        sequences,
        settings,
        loss_of(heads, teacher, settings),
        lambda whole: count_rows(whole, count),
        form=_CHECKPOINT,
        told=[data_key],
        world=processes(),
        vocabulary=teacher.vocabulary,
        checkpoint=checkpoint,
        resume=resume,
        stop_after=stop_after,
        validate=validate,
        progress=progress,
    )


def loss_of(heads: Heads, teacher: Teacher, settings: HeadsSettings) -> together.Loss:
    """`batch_loss` as the steps of a training ask for it."""

    def loss(
        whole: Sequence[TaughtSequence], total: list[int], generator: torch.Generator
    ) -> torch.Tensor:
        return batch_loss(
            heads, teacher, whole, settings, total=total, generator=generator
        )

    return loss
