"""Tiny targets whose layers can be left out; a skipped path computed another way."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from specbook.models.lean import LeanTarget
from specbook.models.skip_layers import SkipVector
from specbook.models.target import ModelTarget, TransformersTarget
from specbook.models.tiny import tiny_model
from specbook.tree import CandidateTree

FAMILIES = ("llama", "qwen2", "qwen3", "gpt2")
KINDS = (*FAMILIES, "lean")
LAYERS = 3


def model_of(family: str, seed: int = 1, layers: int = LAYERS, **changes: Any) -> Any:
    name = "n_layer" if family == "gpt2" else "num_hidden_layers"
    return tiny_model(family, seed, **{name: layers}, **changes)


def target_of(kind: str, dtype: torch.dtype = torch.float32) -> ModelTarget:
    """A target without its self-test: other tests are about that."""
    if kind == "lean":
        return LeanTarget(model_of("llama").to(dtype), self_test=False)
    return TransformersTarget(model_of(kind).to(dtype), self_test=False)


def plain_model(kind: str) -> Any:
    return model_of("llama" if kind == "lean" else kind)


def chain(tokens: Sequence[int], prefix_len: int) -> CandidateTree:
    return CandidateTree.from_rows(tokens, range(-1, len(tokens) - 1), prefix_len)


def silenced(model: Any, vector: SkipVector) -> Any:
    """A copy of `model` whose skipped sublayers add nothing: their last matrix is zero.
    It computes what the skipped path leaves out, and throws it away."""
    model = copy.deepcopy(model)
    gpt2 = hasattr(model, "transformer")
    layers = model.transformer.h if gpt2 else model.model.layers
    with torch.no_grad():
        for layer, attention, mlp in zip(
            layers, vector.attention, vector.mlp, strict=True
        ):
            out = layer.attn.c_proj if gpt2 else layer.self_attn.o_proj
            down = layer.mlp.c_proj if gpt2 else layer.mlp.down_proj
            for part, skipped in ((out, attention), (down, mlp)):
                if skipped:
                    for parameter in part.parameters():
                        parameter.zero_()
    return model


@torch.inference_mode()
def expected(
    model: Any, vector: SkipVector, committed: Sequence[int], rest: Sequence[int]
) -> np.ndarray:
    """Logits [V] after `rest` on the skipped path, which reads the full path's keys and
    values of `committed`: one plain forward of each, with transformers' own cache."""
    full = model(torch.tensor([list(committed)]), use_cache=True)
    cache = getattr(full, "cache", None) or full.past_key_values
    argument = "cache" if getattr(full, "cache", None) else "past_key_values"
    ids = torch.tensor([list(rest)])
    logits = silenced(model, vector)(ids, **{argument: cache}).logits
    return logits[0, -1].numpy()
