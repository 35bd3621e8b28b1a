"""`specbook train kangaroo`, from corpus and target to an adapter that a source loads.

The teacher data are those of draft heads, and what is done alike is in `making`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState

from .. import checks
from ..errors import ArtifactError
from ..models import kangaroo_storage as storage
from ..models.kangaroo import Adapter
from ..models.layered import Layered
from . import artifact, kangaroo, kangaroo_start, making, states, teacher
from .decoding import TaughtSequence
from .kangaroo_agreement import kangaroo_agreement
from .settings import KangarooSettings, Recipe
from .together import Progress


def train_kangaroo(
    out: str | os.PathLike[str],
    target: str | None = None,
    *,
    rows: int,
    source_rows: int = 0,
    settings: KangarooSettings,
    recipe: Recipe | None = None,
    resume: bool = False,
    command: str = "",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Train an adapter for `target` and write it to the folder `out`; returns the
    manifest. Arguments, checkpoint and errors: as `heads_run.train_heads`."""
    order = making.order(
        out,
        target,
        settings=settings,
        kind=KangarooSettings,
        rows=rows,
        source_rows=source_rows,
        recipe=recipe,
        resume=resume,
        command=command,
    )
    # Refused now: a family of other layers, a boundary beyond them, heads that do not
    # fit. The teacher data take hours.
    layered = Layered(_shapes(order.config))
    checks.integer(settings.boundary, "boundary", most=layered.count - 1)
    with torch.device("meta"):
        Adapter(len(layered.norm_weight), settings.attention_heads)
    artifact.check_writable(order.final.parent)
    world = kangaroo.processes()
    say = making.progress_of(world, progress)
    with world.main_process_first():
        data = teacher.make(
            target, recipe, rows=rows, source_rows=source_rows, progress=say
        )
    sequences = data.sequences()
    validation = data.validation_sequences()
    held_out = [s for part in validation.values() for s in part]
    vocabulary = making.vocabulary_of(sequences, settings.vocabulary)

    def trunk_of(
        dtype: str, documents: Sequence[TaughtSequence], among: PartialState | None
    ) -> kangaroo.Trunk:
        """The frozen part, with the rows of `documents` stored if that is asked for."""
        frozen = making.frozen_teacher(order.source, dtype, vocabulary, world.device)
        trunk = kangaroo.Trunk(frozen, settings.boundary)
        if settings.states == "computed":
            return trunk
        return replace(trunk, stored=_stored(trunk, documents, data, among, say))

    # Those that do not grow with the rows come first, and so stay where they are.
    trunk = trunk_of(settings.dtype, [*held_out, *sequences], world)
    model = kangaroo.untrained(trunk, settings)
    if settings.start == "least_squares" and not (resume and order.checkpoint.exists()):
        kangaroo_start.start(model, trunk, sequences, say)
    parameters = sum(p.numel() for p in model.parameters())
    say(f"training {parameters:,} parameters on {data.counts['rows']:,} teacher rows")
    curve = kangaroo.train(
        model,
        trunk,
        sequences,
        settings,
        data_key=data.digest + (trunk.stored.sha256 if trunk.stored else ""),
        checkpoint=order.checkpoint,
        resume=resume,
        validate=lambda trained: validation_numbers(trained, trunk, validation),
        progress=say,
    )
    if not world.is_main_process:
        return {}
    making.round_to(model, settings.stored)
    say("measuring the adapter")
    told = making.facts(
        storage.KIND,
        order,
        model,
        settings,
        data,
        world,
        command=command,
        states=trunk.stored.described() if trunk.stored else None,
        curve=curve,
        measured=measure(model, trunk_of("float32", held_out, None), validation),
    )
    manifest = _publish(model.cpu(), vocabulary, order, told, settings)
    say(f"written: {order.final}")
    return manifest


def _shapes(config: Any) -> Any:
    """The model of `config` without its numbers."""
    from transformers import AutoModelForCausalLM

    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


def _publish(
    model: Adapter,
    vocabulary: list[int] | None,
    order: making.Order,
    told: Mapping[str, Any],
    settings: KangarooSettings,
) -> dict[str, Any]:
    boundary = settings.boundary

    def write(folder: Path) -> None:
        storage.write(
            folder,
            model,
            boundary=boundary,
            dtype=settings.stored,
            vocabulary=vocabulary,
        )

    def check(folder: Path) -> None:
        stored = storage.read(folder)
        same = storage.digest(stored.adapter) == storage.digest(model)
        ids = None if stored.vocabulary is None else list(stored.vocabulary)
        if not same or (ids, stored.boundary) != (vocabulary, boundary):
            raise ArtifactError(f"{folder} holds another adapter than was measured")

    return making.publish(order, told, write, check)


def _stored(
    trunk: kangaroo.Trunk,
    sequences: Sequence[TaughtSequence],
    data: teacher.TeacherData,
    among: PartialState | None,
    say: Progress,
) -> states.StoredStates:
    """The rows of `sequences` at the boundary, in the cache; what is missing there is
    computed. `among`: the processes that all call this, the first of which computes."""

    def found() -> states.StoredStates:
        return states.store(
            trunk.teacher.model,
            [s.tokens.tolist() for s in sequences],
            folder=data.folder,
            key=data.key,
            boundary=trunk.boundary,
            progress=say,
        )

    if among is None:
        return found()
    with among.main_process_first():
        return found()


def validation_numbers(
    model: Adapter,
    trunk: kangaroo.Trunk,
    validation: Mapping[str, Sequence[TaughtSequence]],
) -> dict[str, float]:
    """Agreement at depth 1 for each validation set that has rows, for the loss curve;
    shallow rows as in training."""
    found = {}
    for name, sequences in validation.items():
        top1 = kangaroo_agreement(model, trunk, sequences, depths=1)["top1"][0]
        if top1 is not None:
            found[f"{name}@1"] = top1
    return found


def measure(
    model: Adapter,
    exact: kangaroo.Trunk,
    validation: Mapping[str, Sequence[TaughtSequence]],
) -> dict[str, Any]:
    """`kangaroo_agreement` on each validation set; `exact`: the target in float32."""
    return {
        name: kangaroo_agreement(model, exact, sequences)
        for name, sequences in validation.items()
    }
