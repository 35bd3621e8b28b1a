"""From a target to an artifact: what every training on a frozen target does alike.

What can be refused is refused before the work; teacher data are made or found; what
is written is read back and compared before it gets its name. Under `accelerate launch`
every process runs this; the first one makes the data, measures and writes, and the
others wait for it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from torch import nn

from .. import checks
from ..errors import SpecbookError
from ..models.checkpoint import checked_source, load_transformers_model
from ..models.target import check_config
from . import artifact, resuming, run, teacher
from .cut import likely_ids
from .decoding import TaughtSequence
from .heads import Teacher
from .settings import Recipe
from .together import Progress


@dataclass(frozen=True)
class Order:
    """What is to be made, after all checks. `final`: the folder; `checkpoint`: the file
    of an unfinished run; `source` of the target, and its config."""

    final: Path
    checkpoint: Path
    source: str
    config: Any


def order(
    out: str | os.PathLike[str],
    target: str | None,
    *,
    settings: Any,
    kind: type,
    rows: int,
    source_rows: int,
    recipe: Recipe | None,
    resume: bool,
    command: str,
) -> Order:
    """The checked arguments of a command. `kind` of `settings`, whose cut vocabulary
    must fit the target's. Raises `SpecbookError` for what cannot be."""
    for value, kinds, name in (
        (out, (str, os.PathLike), "out"),
        (settings, kind, "settings"),
        (recipe, (Recipe, type(None)), "recipe"),
    ):
        if not isinstance(value, kinds):
            raise SpecbookError(f"{name} cannot be {value!r}")
    final = Path(out).expanduser().absolute()
    artifact.check_free(final)
    checks.text(command, "command")
    checks.boolean(resume, "resume")
    checkpoint = resuming.beside(final, resume)
    checks.integer(rows, "rows", least=1)
    checks.integer(source_rows, "source_rows", least=0)
    source = checked_source(target)
    config = run.target_config(source)
    check_config(config)
    if settings.vocabulary is not None:
        most = int(config.vocab_size)
        checks.integer(settings.vocabulary, "vocabulary", least=1, most=most)
    return Order(final, checkpoint, source, config)


def progress_of(world: PartialState, progress: Progress | None) -> Progress:
    """Who is told: nobody, unless this is the first process."""
    return progress if progress is not None and world.is_main_process else _quiet


def _quiet(line: str) -> None:
    pass


def vocabulary_of(
    sequences: Sequence[TaughtSequence], count: int | None
) -> list[int] | None:
    """The `count` ids that are to be predicted; None for all."""
    return None if count is None else likely_ids(sequences, count)


def frozen_teacher(
    source: str, dtype: str, vocabulary: list[int] | None, device: torch.device
) -> Teacher:
    """The target that teaches, frozen, on `device`."""
    model = load_transformers_model(source, dtype=dtype).to(device)
    ids = None if vocabulary is None else torch.tensor(vocabulary, device=device)
    return Teacher(model.requires_grad_(False), ids)


@torch.no_grad()
def round_to(model: nn.Module, dtype: str) -> None:
    """Every number to the nearest that `dtype` has: what is shipped is measured."""
    for parameter in model.parameters():
        parameter.copy_(parameter.to(getattr(torch, dtype)))


def facts(
    kind: str,
    order: Order,
    model: nn.Module,
    settings: Any,
    data: teacher.TeacherData,
    world: PartialState,
    *,
    command: str,
    states: Mapping[str, Any] | None,
    curve: resuming.Curve,
    measured: Mapping[str, Any],
) -> dict[str, Any]:
    """The manifest's own fields. `states`: what is told of stored states, if any."""
    return {
        "kind": kind,
        "name": order.final.name,
        "command": command,
        "licence": "Apache-2.0",
        "target": data.target,
        "settings": settings.described(),
        "parameters": sum(p.numel() for p in model.parameters()),
        "dtype": settings.stored,
        "data": {**data.described(), "states": states},
        "loss_curve": curve,
        "measured": measured,
        "machine": {
            "processes": world.num_processes,
            "threads": torch.get_num_threads(),
            "device": world.device.type,
        },
        "versions": {**run.versions(), "accelerate": metadata.version("accelerate")},
    }


def publish(
    order: Order,
    told: Mapping[str, Any],
    write: Callable[[Path], None],
    check: Callable[[Path], None],
) -> dict[str, Any]:
    """The artifact, under its name; its manifest. `write(folder)` makes the files, and
    `check(folder)` raises for one that does not hold what was measured, bit for bit.
    The checkpoint goes."""
    final = order.final
    final.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{final.name}-", dir=final.parent))
    try:
        made = work / final.name
        made.mkdir()
        write(made)
        manifest = artifact.publish(made, final, told, check)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    order.checkpoint.unlink(missing_ok=True)
    return manifest
