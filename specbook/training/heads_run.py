"""`specbook train heads`, from corpus and target to draft heads that a source loads.

Data, heads, training, measurement and artifact; what is not of heads is in `making`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import ArtifactError
from ..models.heads import build, storage
from ..models.heads.base import Heads
from . import artifact, heads, least_squares, making, states, teacher
from .decoding import TaughtSequence
from .heads_agreement import heads_agreement
from .settings import HeadsSettings, Recipe
from .together import Progress


def train_heads(
    out: str | os.PathLike[str],
    target: str | None = None,
    *,
    rows: int,
    source_rows: int = 0,
    settings: HeadsSettings,
    recipe: Recipe | None = None,
    resume: bool = False,
    command: str = "",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Train draft heads for `target` and write them to the folder `out`; returns the
    manifest.

    `rows`: teacher rows to make, the same that `run.train_draft` is taught with;
    `source_rows`: more of them, on package sources alone.
    Checkpoint, `resume` and what is refused before the work: as there. The first
    process of several returns the manifest, any other an empty one.
    """
    order = making.order(
        out,
        target,
        settings=settings,
        kind=HeadsSettings,
        rows=rows,
        source_rows=source_rows,
        recipe=recipe,
        resume=resume,
        command=command,
    )
    config = settings.config(int(order.config.hidden_size))
    artifact.check_writable(order.final.parent)
    world = heads.processes()
    say = making.progress_of(world, progress)
    with world.main_process_first():
        data = teacher.make(
            target, recipe, rows=rows, source_rows=source_rows, progress=say
        )
    sequences = data.sequences()
    validation = data.validation_sequences()
    device = world.device
    vocabulary = making.vocabulary_of(sequences, settings.vocabulary)
    frozen = making.frozen_teacher(order.source, settings.dtype, vocabulary, device)
    bound = data.digest
    held_out = [s for part in validation.values() for s in part]
    if settings.states == "stored":
        # Those that do not grow with the rows come first, and so stay where they are.
        with world.main_process_first():
            kept = _stored(frozen, [*held_out, *sequences], data, say)
        frozen = replace(frozen, stored=kept)
        bound += kept.sha256
    model = build(config, settings.seed).to(device)
    parameters = sum(p.numel() for p in model.parameters())
    if settings.begins == "least_squares" and not (
        resume and order.checkpoint.exists()
    ):
        least_squares.start(model, frozen, sequences, say)
    say(f"training {parameters:,} parameters on {data.counts['rows']:,} teacher rows")
    curve = heads.train(
        model,
        frozen,
        sequences,
        settings,
        data_key=bound,
        checkpoint=order.checkpoint,
        resume=resume,
        validate=lambda trained: validation_numbers(trained, frozen, validation),
        progress=say,
    )
    if not world.is_main_process:
        return {}
    making.round_to(model, settings.stored)
    say("measuring the heads")
    exact = making.frozen_teacher(order.source, "float32", vocabulary, device)
    if settings.states == "stored":
        exact = replace(exact, stored=_stored(exact, held_out, data, say))
    told = making.facts(
        storage.KIND,
        order,
        model,
        settings,
        data,
        world,
        command=command,
        states=frozen.stored.described() if frozen.stored else None,
        curve=curve,
        measured=measure(model, exact, validation),
    )
    manifest = _publish(model.cpu(), vocabulary, order, told, settings)
    say(f"written: {order.final}")
    return manifest


def _publish(
    model: Heads,
    vocabulary: list[int] | None,
    order: making.Order,
    told: Mapping[str, Any],
    settings: HeadsSettings,
) -> dict[str, Any]:
    def write(folder: Path) -> None:
        storage.write(folder, model, dtype=settings.stored, vocabulary=vocabulary)

    def check(folder: Path) -> None:
        stored = storage.read(folder)
        same = storage.digest(stored.heads) == storage.digest(model)
        ids = None if stored.vocabulary is None else list(stored.vocabulary)
        if not same or ids != vocabulary:
            raise ArtifactError(f"{folder} holds other heads than were measured")

    return making.publish(order, told, write, check)


def _stored(
    frozen: heads.Teacher,
    sequences: Sequence[TaughtSequence],
    data: teacher.TeacherData,
    say: Progress,
) -> states.StoredStates:
    """The states of `sequences` in the cache; what is missing there is computed."""
    documents = [s.tokens.tolist() for s in sequences]
    return states.store(
        frozen.model, documents, folder=data.folder, key=data.key, progress=say
    )


def validation_numbers(
    model: Heads,
    frozen: heads.Teacher,
    validation: Mapping[str, Sequence[TaughtSequence]],
) -> dict[str, float]:
    """Agreement at depth 1 and at the last depth for each validation set that has such
    rows, for the loss curve; hidden states of `frozen`, as in training."""
    found = {}
    for name, sequences in validation.items():
        top1 = heads_agreement(model, frozen, sequences)["top1"]
        for depth in sorted({1, len(top1)}):
            if top1[depth - 1] is not None:
                found[f"{name}@{depth}"] = top1[depth - 1]
    return found


def measure(
    model: Heads,
    exact: heads.Teacher,
    validation: Mapping[str, Sequence[TaughtSequence]],
) -> dict[str, Any]:
    """`heads_agreement` on each validation set; `exact`: the target in float32."""
    return {
        name: heads_agreement(model, exact, sequences)
        for name, sequences in validation.items()
    }
