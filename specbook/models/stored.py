"""A trained module on disk: its own numbers, and what is told of it beside them.

Draft heads and adapters are stored alike: one file of safetensors, one of JSON, and the
manifest that binds both (see `training.artifact`). What the JSON says is theirs.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import nn

from ..errors import ArtifactError, SpecbookError
from ..training import artifact


def write(
    root: Path,
    module: nn.Module,
    dtype: str,
    *,
    weights: str,
    config: str,
    told: Mapping[str, Any],
) -> None:
    """Write the numbers of `module` in `dtype` to the file `weights` and `told` to the
    file `config` of the folder `root`, which exists.

    Raises `SpecbookError` for a number that `dtype` cannot hold, and `ArtifactError`
    where nothing can be written.
    """
    kept = {}
    for name, tensor in module.state_dict().items():
        stored = tensor.detach().to("cpu", getattr(torch, dtype)).contiguous()
        if not bool(torch.isfinite(stored).all()):
            raise SpecbookError(f"{name} has a number that {dtype} cannot hold")
        kept[name] = stored
    try:
        # Not `save_file`: that leaves a file that only its owner may read.
        (root / weights).write_bytes(save(kept))
        (root / config).write_text(json.dumps(told) + "\n", encoding="utf-8")
    except OSError as problem:
        raise ArtifactError(f"{root} cannot be written to: {problem}") from problem


def manifest_of(
    folder: str | os.PathLike[str], kind: str, files: Sequence[str]
) -> dict[str, Any]:
    """The manifest of `folder`, whose files were checked against it. Raises
    `ArtifactError` for an artifact of another kind or of other files."""
    manifest = artifact.load_manifest(folder)
    if manifest["kind"] != kind:
        raise ArtifactError(f"{folder} holds a {manifest['kind']}, not {kind}")
    if sorted(manifest["files"]) != sorted(files):
        raise ArtifactError(
            f"{folder} holds {sorted(manifest['files'])}; an artifact of this kind is "
            f"{' and '.join(files)}"
        )
    return manifest


def tensors(path: Path, wanted: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors of the file `path`, in float32. Raises `ArtifactError` for one that
    cannot be read, and for other names or shapes than those of `wanted`."""
    try:
        found = load_file(path)
    except (OSError, SafetensorError) as problem:
        raise ArtifactError(f"{path} cannot be read: {problem}") from problem
    for name in sorted({*wanted, *found}):
        shapes = [tuple(t[name].shape) if name in t else None for t in (wanted, found)]
        if shapes[0] != shapes[1]:
            raise ArtifactError(
                f"{path}: {name} is {shapes[1]}, its config needs {shapes[0]}"
            )
    return {name: tensor.float() for name, tensor in found.items()}


def sha256(manifest: Mapping[str, Any]) -> str:
    """Of all files of an artifact together."""
    lines = [f"{name} {sha}" for name, sha in sorted(manifest["files"].items())]
    return hashlib.sha256("\n".join(lines).encode("utf-8")).hexdigest()


def digest(module: nn.Module, told: str) -> str:
    """The sha256 of a module in memory: what is `told` of it, and every number."""
    found = hashlib.sha256(told.encode("utf-8"))
    for name, tensor in sorted(module.state_dict().items()):
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        found.update(flat.view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
