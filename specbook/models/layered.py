"""A causal LM of transformers, run layer by layer.

transformers runs a model as a whole. Self-speculation stops below the top and goes on
later (section 0x05B), so the few lines between the embedding and the LM head are
written here once more, on the model's own modules: nothing is copied, nothing of the
model is changed. Only families whose forward is these few lines are taken; any other
is refused by its name.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch

from .. import checks
from ..errors import SpecbookError
from .cache import TreeCache, cache_argument
from .target import UnsupportedTargetError, check_model

FAMILIES = {
    "LlamaForCausalLM": "llama",
    "Qwen2ForCausalLM": "llama",
    "Qwen3ForCausalLM": "llama",
    "GPT2LMHeadModel": "gpt2",
}
"""The classes that can be run layer by layer, and how they are built."""

_PARTS = {
    "llama": ("input_layernorm", "self_attn", "post_attention_layernorm", "mlp"),
    "gpt2": ("ln_1", "attn", "ln_2", "mlp"),
}
"""What the two sublayers of a layer are called, each behind its norm."""

_STATIC_ROPE = ("default", "linear", "llama3", "yarn")


def obstacle(model: Any) -> str | None:
    """Why `model` (of transformers) cannot be run layer by layer, or None."""
    name = type(model).__name__
    if name not in FAMILIES:
        return f"{name} is not one of {', '.join(FAMILIES)}"
    if getattr(model.config, "add_cross_attention", False):
        return f"{name} has cross-attention"
    rope = (getattr(model.config, "rope_parameters", None) or {}).get(
        "rope_type", "default"
    )
    if rope not in _STATIC_ROPE:
        return f"its rotary frequencies ({rope}) change with the length"
    return None


class Layered:
    """The layers of a model, to be run a few at a time. Rows are [1, n, d].

    Raises `UnsupportedTargetError`, by name, for a family that is not supported.
    """

    def __init__(self, model: Any) -> None:
        check_model(model)
        if why := obstacle(model):
            raise UnsupportedTargetError(f"it cannot be run layer by layer: {why}")
        self._rotary: Any = None
        self._places: Any = None
        family = FAMILIES[type(model).__name__]
        if family == "gpt2":
            trunk = model.transformer
            self._tokens, self._places = trunk.wte, trunk.wpe
            self._layers, self._norm = trunk.h, trunk.ln_f
        else:
            trunk = model.model
            self._tokens, self._rotary = trunk.embed_tokens, trunk.rotary_emb
            self._layers, self._norm = trunk.layers, trunk.norm
        self._head = model.get_output_embeddings()
        argument = cache_argument(self._layers[0].forward)
        if argument is None:
            raise UnsupportedTargetError(
                f"it cannot be run layer by layer: a {type(self._layers[0]).__name__} "
                "takes no cache"
            )
        self._argument = argument
        self._names = _PARTS[family]
        # Which sublayers run: (attention, feed-forward) of each layer.
        self._kept = [(True, True)] * len(self._layers)

    def only(self, attention: Sequence[bool], mlp: Sequence[bool]) -> Layered:
        """The same layers with some sublayers alone: those where the entry of their
        layer is true. Nothing is copied; of the layer's two norms the one before a
        sublayer that is left out is left out with it. Raises `SpecbookError` unless
        there is an entry for each layer."""
        attention, mlp = (
            [checks.boolean(kept, name) for kept in checks.entries(part, name, "flags")]
            for part, name in ((attention, "attention"), (mlp, "mlp"))
        )
        if not len(attention) == len(mlp) == self.count:
            raise SpecbookError(
                f"{len(attention)} attentions and {len(mlp)} feed-forward networks "
                f"for {self.count} layers"
            )
        part = copy.copy(self)
        part._kept = list(zip(attention, mlp, strict=True))
        return part

    @property
    def count(self) -> int:
        """How many layers there are."""
        return len(self._layers)

    @property
    def norm_weight(self) -> torch.Tensor:
        """The weight [d] of the final norm."""
        weight: torch.Tensor = self._norm.weight
        return weight

    def embed(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Rows at boundary 0 of ids [1, n] at `positions` [1, n]."""
        rows: torch.Tensor = self._tokens(ids)
        return rows if self._places is None else rows + self._places(positions)

    def run(
        self,
        rows: torch.Tensor,
        first: int,
        last: int,
        positions: torch.Tensor,
        mask: torch.Tensor,
        cache: TreeCache,
    ) -> torch.Tensor:
        """Rows at boundary `last` from those at boundary `first`. Their keys and values
        are appended to `cache`, for the layers whose attention runs. `mask`: additive
        [1, 1, n, cached + n]."""
        arguments: dict[str, Any] = {
            "attention_mask": mask,
            "position_ids": positions,
            **cache.arguments(self._argument),
        }
        if self._rotary is not None:
            arguments["position_embeddings"] = self._rotary(
                rows, position_ids=positions
            )
        for number in range(first, last):
            layer, (attention, mlp) = self._layers[number], self._kept[number]
            if attention and mlp:
                rows = layer(rows, **arguments)
                continue
            # What a layer does, from its own modules: x + sublayer(norm(x)).
            before_attention, attend, before_mlp, feed = (
                getattr(layer, name) for name in self._names
            )
            if attention:
                rows = rows + attend(before_attention(rows), **arguments)[0]
            if mlp:
                rows = rows + feed(before_mlp(rows))
        return rows

    def final(self, rows: torch.Tensor) -> torch.Tensor:
        """The rows as the LM head reads them, from those above the last layer."""
        normed: torch.Tensor = self._norm(rows)
        return normed

    def head(self, normed: torch.Tensor) -> torch.Tensor:
        """Logits [..., V]."""
        logits: torch.Tensor = self._head(normed)
        return logits
