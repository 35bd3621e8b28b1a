"""Draft heads on disk: their own numbers, their shape, and nothing of the target.

An artifact is a folder of `heads.safetensors`, `heads.json` (the config and, if there
is one, the cut vocabulary) and the manifest that binds both to a target (see
`training.artifact`). Reading one checks every file against the manifest, and every name
and shape against the config; `check_target` the manifest against a target.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from ... import checks
from ...errors import ArtifactError, SpecbookError
from ...training import artifact
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
    kept = {}
    for name, tensor in heads.state_dict().items():
        stored = tensor.detach().to("cpu", getattr(torch, dtype)).contiguous()
        if not bool(torch.isfinite(stored).all()):
            raise SpecbookError(f"{name} has a number that {dtype} cannot hold")
        kept[name] = stored
    ids = None if vocabulary is None else checked_vocabulary(vocabulary)
    told = {"config": heads.config.to_json(), "vocabulary": ids}
    root = Path(folder)
    try:
        # Not `save_file`: that leaves a file that only its owner may read.
        (root / WEIGHTS).write_bytes(save(kept))
        (root / CONFIG).write_text(json.dumps(told) + "\n", encoding="utf-8")
    except OSError as problem:
        raise ArtifactError(f"{root} cannot be written to: {problem}") from problem


def read(folder: str | os.PathLike[str]) -> StoredHeads:
    """The heads in `folder`. Raises `ArtifactError` naming what is wrong with it."""
    manifest = artifact.load_manifest(folder)
    root = Path(folder)
    if manifest["kind"] != KIND:
        raise ArtifactError(f"{root} holds a {manifest['kind']}, not {KIND}")
    if sorted(manifest["files"]) != sorted((WEIGHTS, CONFIG)):
        raise ArtifactError(
            f"{root} holds {sorted(manifest['files'])}; draft heads are {WEIGHTS} and "
            f"{CONFIG}"
        )
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
    try:
        stored = load_file(root / WEIGHTS)
    except (OSError, SafetensorError) as problem:
        raise ArtifactError(f"{root / WEIGHTS} cannot be read: {problem}") from problem
    for name in sorted({*wanted, *stored}):
        shapes = [tuple(t[name].shape) if name in t else None for t in (wanted, stored)]
        if shapes[0] != shapes[1]:
            raise ArtifactError(
                f"{root / WEIGHTS}: {name} is {shapes[1]}, its config needs {shapes[0]}"
            )
    heads = build(config)
    heads.load_state_dict({name: t.float() for name, t in stored.items()})
    lines = [f"{name} {sha}" for name, sha in sorted(manifest["files"].items())]
    digest = hashlib.sha256("\n".join(lines).encode("utf-8")).hexdigest()
    return StoredHeads(heads.eval(), vocabulary, manifest, digest)


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
    found = hashlib.sha256(json.dumps(heads.config.to_json()).encode("utf-8"))
    for name, tensor in sorted(heads.state_dict().items()):
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        found.update(flat.view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def checked_vocabulary(ids: Any, vocab_size: int | None = None) -> list[int]:
    """`ids` as a cut vocabulary: at least one id, none twice, ascending."""
    found = sorted(checks.token_ids(ids, "vocabulary", vocab_size=vocab_size))
    if not found:
        raise SpecbookError("vocabulary is empty: a head must be able to say something")
    for one, other in zip(found, found[1:], strict=False):
        if one == other:
            raise SpecbookError(f"vocabulary has token {one} twice")
    return found
