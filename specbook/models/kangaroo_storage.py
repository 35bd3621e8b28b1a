"""Kangaroo's adapter on disk: its own numbers, its shape, and nothing of the target.

An artifact is a folder of `adapter.safetensors`, `adapter.json` (the boundary that its
rows come from, width, attention heads and, if there is one, the cut vocabulary) and the
manifest that binds both to a target, as that of draft heads does (`heads.storage`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .. import checks
from ..errors import ArtifactError, SpecbookError
from . import stored
from .heads import storage
from .kangaroo import Adapter

KIND = "kangaroo adapter"
WEIGHTS = "adapter.safetensors"
CONFIG = "adapter.json"
_FIELDS = ("boundary", "width", "attention_heads", "vocabulary")


@dataclass(frozen=True)
class StoredAdapter:
    """What an artifact holds. `adapter`: float32 and in eval mode. `boundary`: how many
    layers of the target are below it. `vocabulary`: the ids that it was trained to
    predict, ascending, or None for all. `sha256`: of all files together."""

    adapter: Adapter
    boundary: int
    vocabulary: tuple[int, ...] | None
    manifest: Mapping[str, Any]
    sha256: str


def write(
    folder: str | os.PathLike[str],
    adapter: Adapter,
    *,
    boundary: int,
    dtype: str = "bfloat16",
    vocabulary: Sequence[int] | None = None,
) -> None:
    """Write weights and shape into `folder`, which exists. The manifest is
    `training.artifact.publish`'s, with `KIND` as its kind.

    Raises `SpecbookError` for a number that `dtype` cannot hold, and `ArtifactError`
    where nothing can be written.
    """
    checks.instance(folder, "folder", (str, os.PathLike))
    checks.instance(adapter, "adapter", Adapter)
    checks.one_of(dtype, "dtype", storage.DTYPES)
    told = {
        "boundary": checks.integer(boundary, "boundary", least=1),
        "width": adapter.width,
        "attention_heads": adapter.heads,
        "vocabulary": None
        if vocabulary is None
        else storage.checked_vocabulary(vocabulary),
    }
    root = Path(folder)
    stored.write(root, adapter, dtype, weights=WEIGHTS, config=CONFIG, told=told)


def read(folder: str | os.PathLike[str]) -> StoredAdapter:
    """The adapter in `folder`. Raises `ArtifactError` naming what is wrong with it."""
    manifest = stored.manifest_of(folder, KIND, (WEIGHTS, CONFIG))
    root = Path(folder)
    try:
        told = json.loads((root / CONFIG).read_text(encoding="utf-8"))
        if sorted(told) != sorted(_FIELDS):
            raise SpecbookError(f"its fields are {sorted(told)}, not {sorted(_FIELDS)}")
        ids = told["vocabulary"]
        vocabulary = None if ids is None else tuple(storage.checked_vocabulary(ids))
        boundary = checks.integer(told["boundary"], "boundary", least=1)
        shape = (told["width"], told["attention_heads"])
        # Shapes alone first: a config may ask for more memory than there is.
        with torch.device("meta"):
            wanted = Adapter(*shape).state_dict()
    except (ValueError, KeyError, TypeError, RuntimeError) as problem:
        raise ArtifactError(f"{root / CONFIG} is no config: {problem}") from problem
    tensors = stored.tensors(root / WEIGHTS, wanted)
    with torch.random.fork_rng(devices=[]):
        adapter = Adapter(*shape)
    adapter.load_state_dict(tensors)
    return StoredAdapter(
        adapter.eval(), boundary, vocabulary, manifest, stored.sha256(manifest)
    )


def check_target(found: StoredAdapter, identity: Mapping[str, str]) -> None:
    """Raise `ArtifactError` when the adapter was not trained for the target whose
    `identity()` is given: the rows of another checkpoint are not those that it learned
    to read."""
    checks.instance(found, "found", StoredAdapter)
    checks.instance(identity, "identity", Mapping)
    storage.check_target(found.manifest, identity)


def digest(adapter: Adapter) -> str:
    """The sha256 of an adapter in memory: its heads and every number."""
    checks.instance(adapter, "adapter", Adapter)
    return stored.digest(adapter, str(adapter.heads))
