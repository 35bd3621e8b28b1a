"""A skip vector on disk: what the search found, how it got there, and for which target.

An artifact is a folder of `skip.json` (the vector and what it was chosen by),
`history.json` (every vector that was tried) and the manifest that binds both to a
target (see `training.artifact`). No weights: they are the target's own, so the vector
belongs to that checkpoint and to no other.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import checks
from ..errors import ArtifactError
from ..training import artifact
from .skip_layers import SkipVector

KIND = "skip vector"
VECTOR, HISTORY = "skip.json", "history.json"


@dataclass(frozen=True)
class StoredSkip:
    """What an artifact holds. `choice`: what the search says of the vector. `history`:
    an entry for each trial, in order, of which `vector` is the text form of one.
    `sha256`: of both files together."""

    vector: SkipVector
    choice: Mapping[str, Any]
    history: Sequence[Mapping[str, Any]]
    manifest: Mapping[str, Any]
    sha256: str


def write(
    folder: str | os.PathLike[str],
    vector: SkipVector,
    choice: Mapping[str, Any],
    history: Sequence[Mapping[str, Any]],
) -> None:
    """Write both files into `folder`, which exists. The manifest is
    `training.artifact.publish`'s, with `KIND` as its kind. Raises `ArtifactError` where
    nothing can be written, and for a history that does not hold the vector."""
    checks.instance(folder, "folder", (str, os.PathLike))
    checks.instance(vector, "vector", SkipVector)
    checks.instance(choice, "choice", Mapping)
    for place, entry in enumerate(checks.entries(history, "history", "trials")):
        checks.instance(entry, f"history[{place}]", Mapping)
    if str(vector) not in [entry.get("vector") for entry in history]:
        raise ArtifactError(f"the history has no trial of the vector {vector}")
    root = Path(folder)
    told = {"vector": vector.to_json(), **choice}
    try:
        for name, content in ((VECTOR, told), (HISTORY, list(history))):
            text = json.dumps(content, indent=1, allow_nan=False)
            (root / name).write_text(text + "\n", encoding="utf-8")
    except (OSError, ValueError, TypeError) as problem:
        raise ArtifactError(f"{root} cannot be written to: {problem}") from problem


def read(folder: str | os.PathLike[str]) -> StoredSkip:
    """The vector in `folder`. Raises `ArtifactError` naming what is wrong with it."""
    manifest = artifact.load_manifest(folder)
    root = Path(folder)
    if manifest["kind"] != KIND:
        raise ArtifactError(f"{root} holds a {manifest['kind']}, not a {KIND}")
    if sorted(manifest["files"]) != sorted((VECTOR, HISTORY)):
        raise ArtifactError(
            f"{root} holds {sorted(manifest['files'])}; a skip vector is {VECTOR} and "
            f"{HISTORY}"
        )
    try:
        choice = json.loads((root / VECTOR).read_text(encoding="utf-8"))
        checks.instance(choice, "its content", dict)
        vector = SkipVector.from_json(choice.pop("vector"))
    except (ValueError, KeyError, RecursionError) as problem:
        raise ArtifactError(f"{root / VECTOR} holds no vector: {problem}") from problem
    try:
        history = json.loads((root / HISTORY).read_text(encoding="utf-8"))
        tried = [SkipVector.from_text(entry["vector"]) for entry in history]
    except (ValueError, KeyError, TypeError, RecursionError) as problem:
        raise ArtifactError(f"{root / HISTORY} is no history: {problem}") from problem
    if vector not in tried:
        raise ArtifactError(f"{root / HISTORY} has no trial of the vector {vector}")
    lines = [f"{name} {sha}" for name, sha in sorted(manifest["files"].items())]
    digest = hashlib.sha256("\n".join(lines).encode("utf-8")).hexdigest()
    return StoredSkip(vector, choice, history, manifest, digest)


def check_target(manifest: Mapping[str, Any], identity: Mapping[str, str]) -> None:
    """Raise `ArtifactError` when a vector was not searched for the target whose
    `identity()` is given: which layers another checkpoint can spare is not known."""
    checks.instance(manifest, "manifest", Mapping)
    checks.instance(identity, "identity", Mapping)
    searched = manifest.get("target")
    if not isinstance(searched, dict):
        raise ArtifactError("the manifest does not say what target it was made for")
    for field in ("checkpoint", "tokenizer"):
        if searched.get(field) != identity.get(field):
            raise ArtifactError(
                f"{manifest.get('name')!r} was searched for the {field} "
                f"{searched.get(field)}, the target has {identity.get(field)}"
            )
