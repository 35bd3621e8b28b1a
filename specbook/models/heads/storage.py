"""Draft heads on disk: their own numbers, their shape, and nothing of the target.

An artifact is a folder of `heads.safetensors`, `heads.json` (the config and, if there
is one, the cut vocabulary) and the manifest that binds both to a target (see
`training.artifact`). Reading one checks every file against the manifest, and every name
and shape against the config; `check_target` the manifest against a target.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ... import checks
from ...errors import ArtifactError, SpecbookError
from ...training import artifact
from .. import stored
from . import build, config_from_json
from .base import Heads

KIND = "draft heads"
WEIGHTS = "heads.safetensors"
CONFIG = "heads.json"
DTYPES = ("float16", "bfloat16", "float32", "float64")


@dataclass(frozen=True)
class StoredHeads:
    """What an artifact holds. `heads`: float32 and in eval mode. `vocabulary`: the ids
    that they were trained to predict, ascending, or None for all. `sha256`: of all
    files together."""

    heads: Heads
    vocabulary: tuple[int, ...] | None
    manifest: Mapping[str, Any]
    sha256: str


def write(
    folder: str | os.PathLike[str],
    heads: Heads,
    *,
    dtype: str = "bfloat16",
    vocabulary: Sequence[int] | None = None,
) -> None:
    """Write weights and config into `folder`, which exists. The manifest is
    `training.artifact.publish`'s, with `KIND` as its kind.

    Raises `SpecbookError` for a number that `dtype` cannot hold, and `ArtifactError`
    where nothing can be written.
    """
    if not isinstance(heads, Heads):
        raise SpecbookError(f"not draft heads: {type(heads).__name__}")
    checks.one_of(dtype, "dtype", DTYPES)
    ids = None if vocabulary is None else checked_vocabulary(vocabulary)
    told = {"config": heads.config.to_json(), "vocabulary": ids}
    stored.write(Path(folder), heads, dtype, weights=WEIGHTS, told=told, config=CONFIG)


def read(folder: str | os.PathLike[str]) -> StoredHeads:
    """The heads in `folder`. Raises `ArtifactError` naming what is wrong with it."""
    manifest = stored.manifest_of(folder, KIND, (WEIGHTS, CONFIG))
    root = Path(folder)
    try:
        told = json.loads((root / CONFIG).read_text(encoding="utf-8"))
        config = config_from_json(told["config"])
        ids = told["vocabulary"]
        vocabulary = None if ids is None else tuple(checked_vocabulary(ids))
    except (ValueError, KeyError, TypeError, RecursionError) as problem:
        raise ArtifactError(f"{root / CONFIG} is no config: {problem}") from problem
    try:
        # Shapes alone first: a config may ask for more memory than there is.
        with torch.device("meta"):
            wanted = build(config).state_dict()
    except (RuntimeError, TypeError) as problem:
        raise ArtifactError(f"{root / CONFIG} is no config: {problem}") from problem
    tensors = stored.tensors(root / WEIGHTS, wanted)
    heads = build(config)
    heads.load_state_dict(tensors)
    return StoredHeads(heads.eval(), vocabulary, manifest, stored.sha256(manifest))


def check_target(manifest: Mapping[str, Any], identity: Mapping[str, str]) -> None:
    """Raise `ArtifactError` when heads were not trained for the target whose
    `identity()` is given. The hidden states of another checkpoint are not those that
    they learned to read, whatever its tokenizer."""
    artifact.check_target(manifest, identity)
    trained = manifest["target"].get("checkpoint")
    if trained != identity.get("checkpoint"):
        raise ArtifactError(
            f"{manifest.get('name')!r} was trained for the checkpoint {trained}, the "
            f"target is {identity.get('checkpoint')}"
        )


def digest(heads: Heads) -> str:
    """The sha256 of heads in memory: their config and every number."""
    return stored.digest(heads, json.dumps(heads.config.to_json()))


def checked_vocabulary(ids: Any, vocab_size: int | None = None) -> list[int]:
    """`ids` as a cut vocabulary: at least one id, none twice, ascending."""
    found = sorted(checks.token_ids(ids, "vocabulary", vocab_size=vocab_size))
    if not found:
        raise SpecbookError("vocabulary is empty: a head must be able to say something")
    for one, other in zip(found, found[1:], strict=False):
        if one == other:
            raise SpecbookError(f"vocabulary has token {one} twice")
    return found
