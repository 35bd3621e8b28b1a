"""Training a small draft model by distillation.

A run is a function of its settings and its data: the order of the sequences comes from
the seed and the number of the epoch, the learning rate and the sampled columns of the
head from the number of the step, and nothing else is random. So a checkpoint needs
weights, moments and a step number, and a run that was interrupted ends with the same
bits as one that was not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..errors import SpecbookError
from . import resuming, shards, stepping
from .decoding import TaughtSequence
from .distil import distillation_loss
from .settings import Settings

_POOL = 32
"""Batches whose sequences are sorted by length together."""

_CHECKPOINT = "specbook draft training 2"

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Batch:
    """`ids` [B, T], padded on the right; `taught`: boolean [B, T], true where there is
    a teacher row; `top_ids`, `top_logps` [R, k]: those rows, in reading order."""

    ids: torch.Tensor
    taught: torch.Tensor
    top_ids: torch.Tensor
    top_logps: torch.Tensor


def collate(sequences: Sequence[TaughtSequence]) -> Batch:
    """A batch of whole sequences. The last token of each is only predicted, never
    read; padding and untaught tokens carry no loss."""
    longest = max(len(s.tokens) for s in sequences) - 1
    ids = torch.zeros((len(sequences), longest), dtype=torch.long)
    taught = torch.zeros(ids.shape, dtype=torch.bool)
    for i, sequence in enumerate(sequences):
        read = len(sequence.tokens) - 1
        ids[i, :read] = torch.from_numpy(sequence.tokens[:-1])
        taught[i, sequence.first_row : read] = True
    return Batch(
        ids,
        taught,
        torch.from_numpy(np.concatenate([s.top_ids for s in sequences])),
        torch.from_numpy(np.concatenate([s.top_logps for s in sequences])),
    )


def epoch_order(
    lengths: Sequence[int], rows_per_step: int, seed: int, epoch: int
) -> list[list[int]]:
    """Batches of sequence numbers of one epoch, every sequence once.

    Sequences are shuffled, and sorted by length within pools, so that little is
    padding; a batch holds at most `rows_per_step` tokens, padding counted, or one
    sequence. Depends on nothing but the arguments.
    """
    generator = np.random.default_rng([seed, epoch])
    order = generator.permutation(len(lengths))
    pool = max(1, _POOL * rows_per_step // max(1, int(np.mean(lengths))))
    found: list[list[int]] = []
    for start in range(0, len(order), pool):
        batch: list[int] = []
        for index in sorted(order[start : start + pool], key=lambda i: -lengths[i]):
            longest = lengths[batch[0]] if batch else lengths[index]
            if batch and longest * (len(batch) + 1) > rows_per_step:
                found.append(batch)
                batch = []
            batch.append(int(index))
        found.append(batch)
    return [found[i] for i in generator.permutation(len(found))]


def batch_order(
    lengths: Sequence[int], rows_per_step: int, seed: int, skip: int = 0
) -> Iterator[tuple[int, list[int]]]:
    """(epoch, sequence numbers of a batch) for ever, without the first `skip`."""
    epoch = 0
    while True:
        order = epoch_order(lengths, rows_per_step, seed, epoch)
        for batch in order[skip:]:
            yield epoch, batch
        skip = max(0, skip - len(order))
        epoch += 1


def _batches(
    sequences: Sequence[TaughtSequence], settings: Settings, skip: int
) -> Iterator[tuple[int, Batch]]:
    lengths = [len(s.tokens) - 1 for s in sequences]
    order = batch_order(lengths, settings.rows_per_step, settings.seed, skip)
    for epoch, batch in order:
        yield epoch, collate([sequences[i] for i in batch])


def batch_loss(
    model: Any,
    batch: Batch,
    dtype: torch.dtype,
    others: int | None = None,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """Mean distillation loss over the taught rows of `batch`. `others`, `generator`:
    see `distillation_loss`."""
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16)
    with autocast:
        hidden = model.model(input_ids=batch.ids, use_cache=False).last_hidden_state
    return distillation_loss(
        hidden[batch.taught],
        model.get_output_embeddings().weight,
        batch.top_ids,
        batch.top_logps,
        dtype=dtype,
        others=others,
        generator=generator,
    )


def train(
    model: Any,
    sequences: Sequence[TaughtSequence],
    settings: Settings,
    *,
    data_key: str,
    checkpoint: Path | None = None,
    resume: bool = False,
    stop_after: int | None = None,
    validate: Callable[[Any], dict[str, float]] | None = None,
    progress: Progress | None = None,
) -> list[dict[str, float]]:
    """Train `model` in place for `settings.steps` steps; returns the loss curve.

    `model`: a LlamaForCausalLM with tied embeddings, float32. `data_key` names the
    data: a checkpoint of other data or settings is refused. `checkpoint`: a file that
    is written every `checkpoint_every` steps and at the end; one that exists is an
    error without `resume`. `stop_after`: leave after so many steps in all, with a
    checkpoint. `validate` gives numbers for the curve at each checkpoint. The curve
    has one entry for each checkpoint: "step", "epoch", "loss" (mean since the last).
    """
    if not sequences:
        raise SpecbookError("there is nothing to train on")
    optimizer = _optimizer(model, settings)
    key = shards.digest([data_key, json.dumps(settings.described(), sort_keys=True)])
    dtype = torch.bfloat16 if settings.dtype == "bfloat16" else torch.float32

    def learn(step: int, batch: Batch) -> tuple[float, int]:
        # Of its own for each step, so that a resumed run draws what the whole one did.
        seed = resuming.step_seed(settings.seed, step)
        generator = torch.Generator().manual_seed(seed)
        loss = batch_loss(model, batch, dtype, settings.others, generator)
        loss.backward()
        return loss.item(), len(batch.top_ids)

    return stepping.take(
        model,
        optimizer,
        settings,
        lambda begin: _batches(sequences, settings, begin),
        learn,
        stepping.Checkpoint(_CHECKPOINT, key, checkpoint, resume),
        stop_after=stop_after,
        validate=None if validate is None else lambda: validate(model),
        progress=progress,
    )


def _optimizer(model: Any, settings: Settings) -> torch.optim.AdamW:
    embedding = model.get_input_embeddings().weight
    if model.get_output_embeddings().weight is not embedding:
        raise SpecbookError("the draft's head must be tied to its embeddings")
    matrices = [p for p in model.parameters() if p.dim() >= 2 and p is not embedding]
    norms = [p for p in model.parameters() if p.dim() < 2]
    plain = {"lr": settings.learning_rate, "weight_decay": 0.0}
    return torch.optim.AdamW(
        [
            {**plain, "params": matrices, "weight_decay": settings.weight_decay},
            {**plain, "params": norms},
            {**plain, "params": [embedding], "lr": settings.embedding_rate},
        ],
        betas=(0.9, 0.98),
    )
