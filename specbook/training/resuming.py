"""Checkpoints of a training run: weights, AdamW's moments, the step and the curve.

What is random in our runs comes from the seed and the step alone, so this is all that a
run needs to go on with the same bits. A file is bound to its settings and its data by a
key, and to its own bytes by a hash: a flipped bit of a weight leaves a file that loads.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import nn

from ..errors import ArtifactError, SpecbookError
from . import shards

Curve = list[dict[str, float]]
_MOMENTS = ("exp_avg", "exp_avg_sq", "step")


def beside(final: Path, resume: bool) -> Path:
    """Where the checkpoint of the run that makes `final` lies. Raises `ArtifactError`
    when there is one and the run is not to `resume`."""
    path = final.with_name(f".{final.name}.checkpoint.safetensors")
    if path.exists() and not resume:
        raise ArtifactError(
            f"{path} is there from an unfinished run: go on with it (--resume) or "
            "remove it"
        )
    return path


def begin(
    path: Path | None,
    model: nn.Module,
    optimizer: torch.optim.AdamW,
    *,
    form: str,
    key: str,
    resume: bool,
) -> tuple[int, Curve]:
    """The step to begin with and the curve so far: 0 and nothing, or what `path` holds,
    read into `model` and `optimizer`. Raises as `load`, and `SpecbookError` for a file
    that is there without `resume`."""
    if path is None or not path.exists():
        return 0, []
    if not resume:
        raise SpecbookError(
            f"{path} is there from an earlier run: go on with it (resume) or remove it"
        )
    return load(path, model, optimizer, form=form, key=key)


def save(
    path: Path,
    model: nn.Module,
    optimizer: torch.optim.AdamW,
    *,
    form: str,
    key: str,
    step: int,
    curve: Curve,
) -> None:
    """Write a checkpoint, whole or not at all. `form` names the kind of run, `key` its
    settings and data."""
    tensors = {}
    for name, parameter in model.named_parameters():
        state = optimizer.state[parameter]
        tensors[f"weight/{name}"] = parameter.detach()
        for part in _MOMENTS:
            tensors[f"{part}/{name}"] = state[part]
    tensors = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
    noted: dict[str, Any] = {"format": form, "key": key, "step": step, "curve": curve}
    noted["sha256"] = _digest(noted, tensors)
    content = to_bytes(tensors, metadata={"specbook": json.dumps(noted)})
    shards.write_bytes(path, content)


def load(
    path: Path, model: nn.Module, optimizer: torch.optim.AdamW, *, form: str, key: str
) -> tuple[int, Curve]:
    """Step and curve of a checkpoint, whose numbers go into `model` and `optimizer`.

    Raises `ArtifactError` for a file that is damaged, of another form, of other
    settings or data, or of another model; then nothing was changed.
    """
    try:
        with safe_open(path, framework="pt") as stored:
            state = json.loads((stored.metadata() or {}).get("specbook", "null"))
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}
    except (OSError, ValueError, SafetensorError) as problem:
        raise ArtifactError(f"{path} cannot be read: {problem}") from problem
    if not isinstance(state, dict) or state.get("format") != form:
        raise ArtifactError(f"{path} is not a checkpoint of {form!r}")
    if state.get("sha256") != _digest(state, tensors):
        raise ArtifactError(f"{path} is damaged: its sha256 differs; remove it")
    if state.get("key") != key:
        raise ArtifactError(
            f"{path} belongs to a run with other settings or other data: go on with "
            "those, or remove it"
        )
    parameters = dict(model.named_parameters())
    wanted = {
        f"{part}/{name}": torch.Size() if part == "step" else parameter.shape
        for part in ("weight", *_MOMENTS)
        for name, parameter in parameters.items()
    }
    if {name: tensor.shape for name, tensor in tensors.items()} != wanted:
        raise ArtifactError(f"{path} holds other tensors than this model has")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(tensors[f"weight/{name}"])
            moments = {part: tensors[f"{part}/{name}"].clone() for part in _MOMENTS}
            for part in ("exp_avg", "exp_avg_sq"):
                moments[part] = moments[part].to(parameter.device)
            optimizer.state[parameter] = moments
    return int(state["step"]), list(state["curve"])


def step_seed(seed: int, *numbers: int) -> int:
    """A seed for one step (and one process), which a resumed run draws again."""
    mixed = np.random.SeedSequence([seed, *numbers])
    return int(mixed.generate_state(1, np.uint64)[0])


def _digest(noted: dict[str, Any], tensors: dict[str, torch.Tensor]) -> str:
    """One sha256 over what is noted and over names, types, shapes and bytes of the
    tensors."""
    told = {name: value for name, value in noted.items() if name != "sha256"}
    found = hashlib.sha256(json.dumps(told, sort_keys=True).encode("utf-8"))
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        found.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
