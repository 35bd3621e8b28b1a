"""Which forward serves a checkpoint: our lean one where it applies, else the generic.

Both prove themselves against plain forwards before they are handed out.
"""

from __future__ import annotations

import os

import torch

from .. import checks
from ..errors import ArtifactError
from . import lean, selftest
from .checkpoint import (
    ATTENTIONS,
    checked_device,
    checked_dtype,
    checked_source,
    read_model,
)
from .target import (
    ModelTarget,
    TransformersTarget,
    UnsupportedTargetError,
    files_identity,
)

FORWARDS = ("auto", "lean", "transformers")


def load_target(
    name_or_path: str | os.PathLike[str] | None = None,
    *,
    dtype: str | torch.dtype = "float32",
    attn_implementation: str = "sdpa",
    forward: str = "auto",
    device: str = "cpu",
) -> ModelTarget:
    """A causal language model, ready to verify trees.

    `name_or_path`: a folder or a hub id; None means the environment variable
    `SPECBOOK_TARGET`, or else the default target, which is fetched if need be.
    `dtype`: float32, bfloat16, float16 or float64. `attn_implementation`: "sdpa" or
    "eager", for the generic forward. `forward`: "lean" is our own forward for
    Llama-like checkpoints on the CPU, "transformers" the generic one, "auto" the lean
    one where it applies (with "sdpa") and passes its self-test. Remote code is never
    run, and only safetensors are read.

    Raises `UnsupportedTargetError` for a model that cannot verify trees exactly,
    `SelfTestError` when its rows are not those of plain forwards, `ArtifactError`
    for weights that are missing, left over or mismatched, `FetchError` when the
    default target, or a hub id, cannot be got.
    """
    checks.one_of(forward, "forward", FORWARDS)
    checks.one_of(attn_implementation, "attn_implementation", ATTENTIONS)
    chosen = checked_dtype(dtype)
    device = checked_device(device)
    source = checked_source(name_or_path)

    before = files_identity(source, None)
    target = _load(source, chosen, attn_implementation, forward, device)
    bound = (target._checkpoint_identity, target._tokenizer_identity)
    if before is not None and before != bound:
        raise ArtifactError(f"the files of {source} changed while they were loaded")
    return target


def _load(
    source: str,
    chosen: torch.dtype,
    attn_implementation: str,
    forward: str,
    device: str,
) -> ModelTarget:
    model = read_model(source, chosen, attn_implementation, device)
    if forward == "transformers":
        return TransformersTarget(model, source=source)
    obstacle = lean.obstacle(model)
    if attn_implementation != "sdpa":
        obstacle = f"attention {attn_implementation} was asked for, it has its own"
    if forward == "lean" and obstacle:
        raise UnsupportedTargetError(f"no lean forward for {source}: {obstacle}")
    if obstacle:
        return TransformersTarget(model, source=source)
    try:
        # Takes the weights over, so that they are not in memory twice.
        return lean.LeanTarget(model, source=source, take=True)
    except selftest.SelfTestError:
        if forward == "lean":
            raise
    # Its weights are gone, so the generic target needs them read once more.
    model = read_model(source, chosen, attn_implementation, device)
    return TransformersTarget(model, source=source)
