"""A tiny model as a table: each prefix is computed once, so rounds can be enumerated.

`chance.law` runs a whole decoding for every branch. A model that computes a prefix anew
each time is too slow for that; this one remembers its states, and gives them to draft
heads as any `HiddenTarget` does.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from ..errors import TargetError
from .table import TableSession, TableTarget
from .target import check_model


class _Session(TableSession):
    def committed_hidden(self) -> Any:
        rows = super().committed_hidden()
        target: Any = self.target
        return torch.tensor(rows, dtype=target.dtype).reshape(-1, target.hidden_width)


class ModelTable(TableTarget):
    """`model`: a tiny Llama-like causal LM of transformers (`models.tiny`), whose laws
    are the plain softmax of its logits. Laws and states are those of a plain forward
    over the prefix, in the model's own dtype. Raises `TargetError` for another model.
    """

    def __init__(self, model: Any) -> None:
        check_model(model)
        if not hasattr(model, "model") or not hasattr(model, "lm_head"):
            raise TargetError(
                f"a Llama-like model is needed, got a {type(model).__name__}"
            )
        self.model = model
        self.dtype = model.lm_head.weight.dtype
        self.hidden_width = int(model.config.hidden_size)
        self._state = functools.cache(self._read)
        super().__init__(
            self._law,
            vocab_size=int(model.config.vocab_size),
            hidden=lambda prefix: self._state(prefix).tolist(),
        )

    def _law(self, prefix: tuple[int, ...]) -> Any:
        return torch.softmax(self.read_out(self._state(prefix)), -1).numpy()

    @torch.no_grad()
    def _read(self, prefix: tuple[int, ...]) -> torch.Tensor:
        state: torch.Tensor = self.model.model(input_ids=torch.tensor([list(prefix)]))[
            0
        ]
        return state[0, -1]

    def embed_tokens(self, ids: torch.Tensor) -> torch.Tensor:
        """As `HiddenTarget`."""
        weight: torch.Tensor = self.model.get_input_embeddings().weight.detach()
        return weight[ids]

    def read_out(self, features: torch.Tensor) -> torch.Tensor:
        """As `HiddenTarget`."""
        return features @ self.model.lm_head.weight.detach().T

    def cut_head(self, ids: torch.Tensor) -> Any:
        """As `HiddenTarget`."""
        return lambda features: self.read_out(features)[:, ids]

    def start(self, prompt_ids: Any) -> TableSession:
        """As `Target`; the session gives hidden states as a tensor."""
        checked = super().start(prompt_ids)
        return _Session(self, list(checked.tokens))
