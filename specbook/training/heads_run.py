"""`specbook train heads`, from corpus and target to draft heads that a source loads.

Data, heads, training, measurement, and an artifact that is read back and compared
before it gets its name. Under `accelerate launch` every process runs this; the first
one makes the data, measures and writes, and the others wait for it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from .. import checks
from ..errors import ArtifactError, SpecbookError
from ..models.checkpoint import checked_source, load_transformers_model
from ..models.heads import build, storage
from ..models.heads.base import Heads
from ..models.target import check_config
from . import artifact, heads, least_squares, resuming, run, states, teacher
from .cut import likely_ids
from .decoding import TaughtSequence
from .heads_agreement import heads_agreement
from .settings import HeadsSettings, Recipe

Progress = Callable[[str], None]


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
    for value, kind, name in (
        (out, (str, os.PathLike), "out"),
        (settings, HeadsSettings, "settings"),
        (recipe, (Recipe, type(None)), "recipe"),
    ):
        if not isinstance(value, kind):
            raise SpecbookError(f"{name} cannot be {value!r}")
    final = Path(out).expanduser().absolute()
    artifact.check_free(final)
    checks.text(command, "command")
    checks.boolean(resume, "resume")
    checkpoint = resuming.beside(final, resume)
    checks.integer(rows, "rows", least=1)
    checks.integer(source_rows, "source_rows", least=0)
    source = checked_source(target)
    told = run.target_config(source)
    check_config(told)
    config = settings.config(int(told.hidden_size))
    if settings.vocabulary is not None:
        most = int(told.vocab_size)
        checks.integer(settings.vocabulary, "vocabulary", least=1, most=most)
    artifact.check_writable(final.parent)
    world = heads.processes()
    say = progress if progress is not None and world.is_main_process else _quiet
    with world.main_process_first():
        data = teacher.make(
            target, recipe, rows=rows, source_rows=source_rows, progress=say
        )
    sequences = data.sequences()
    validation = data.validation_sequences()
    device = world.device
    vocabulary = None
    if settings.vocabulary is not None:
        vocabulary = likely_ids(sequences, settings.vocabulary)
    frozen = _teacher(source, settings.dtype, vocabulary, device)
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
    if settings.begins == "least_squares" and not (resume and checkpoint.exists()):
        least_squares.start(model, frozen, sequences, say)
    say(f"training {parameters:,} parameters on {data.counts['rows']:,} teacher rows")
    curve = heads.train(
        model,
        frozen,
        sequences,
        settings,
        data_key=bound,
        checkpoint=checkpoint,
        resume=resume,
        validate=lambda trained: validation_numbers(trained, frozen, validation),
        progress=say,
    )
    if not world.is_main_process:
        return {}
    # What is shipped is what is measured: weights rounded as they go to disk.
    _round(model, settings.stored)
    say("measuring the heads")
    exact = _teacher(source, "float32", vocabulary, device)
    if settings.states == "stored":
        exact = replace(exact, stored=_stored(exact, held_out, data, say))
    facts = {
        "kind": storage.KIND,
        "name": final.name,
        "command": command,
        "licence": "Apache-2.0",
        "target": data.target,
        "settings": settings.described(),
        "parameters": parameters,
        "dtype": settings.stored,
        "data": {
            **data.described(),
            "states": frozen.stored.described() if frozen.stored else None,
        },
        "loss_curve": curve,
        "measured": measure(model, exact, validation),
        "machine": {
            "processes": world.num_processes,
            "threads": torch.get_num_threads(),
            "device": device.type,
        },
        "versions": {**run.versions(), "accelerate": metadata.version("accelerate")},
    }
    manifest = _publish(model.cpu(), vocabulary, final, facts, settings)
    checkpoint.unlink(missing_ok=True)
    say(f"written: {final}")
    return manifest


def _publish(
    model: Heads,
    vocabulary: list[int] | None,
    final: Path,
    facts: Mapping[str, Any],
    settings: HeadsSettings,
) -> dict[str, Any]:
    final.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{final.name}-", dir=final.parent))

    def check(folder: Path) -> None:
        """The folder holds what was measured, bit for bit."""
        stored = storage.read(folder)
        same = storage.digest(stored.heads) == storage.digest(model)
        ids = None if stored.vocabulary is None else list(stored.vocabulary)
        if not same or ids != vocabulary:
            raise ArtifactError(f"{folder} holds other heads than were measured")

    try:
        made = work / final.name
        made.mkdir()
        storage.write(made, model, dtype=settings.stored, vocabulary=vocabulary)
        return artifact.publish(made, final, facts, check)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _teacher(
    source: str, dtype: str, vocabulary: list[int] | None, device: torch.device
) -> heads.Teacher:
    model = load_transformers_model(source, dtype=dtype).to(device)
    ids = None if vocabulary is None else torch.tensor(vocabulary, device=device)
    return heads.Teacher(model.requires_grad_(False), ids)


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


@torch.no_grad()
def _round(model: Heads, dtype: str) -> None:
    """Every number to the nearest that `dtype` has."""
    for parameter in model.parameters():
        parameter.copy_(parameter.to(getattr(torch, dtype)))


def _quiet(line: str) -> None:
    pass
