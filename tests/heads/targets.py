"""A table that stands for a tiny model: its laws, its states, its embedding and head,
each computed once by a plain forward in float64, so that rounds can be enumerated."""

from __future__ import annotations

import functools
from typing import Any

import torch

from specbook.models.table import TableSession, TableTarget
from specbook.models.tiny import tiny_llama


class _Session(TableSession):
    def committed_hidden(self) -> Any:
        rows = super().committed_hidden()
        width = self.target.hidden_width  # type: ignore[attr-defined]
        return torch.tensor(rows, dtype=torch.float64).reshape(len(rows), width)


class ModelTable(TableTarget):
    """`TableTarget` of a tiny Llama: a `HiddenTarget`. `head_calls` counts the rows of
    each run of the LM head that a draft asked for."""

    def __init__(self, vocab_size: int = 4, width: int = 12, seed: int = 0) -> None:
        self.model = tiny_llama(
            seed,
            vocab_size=vocab_size,
            hidden_size=width,
            num_layers=2,
            num_heads=2,
            num_kv_heads=1,
        ).double()
        self.hidden_width = width
        self.head_calls: list[int] = []
        self._states = functools.cache(self._read)
        super().__init__(
            lambda prefix: self.plain_law(self._states(prefix)),
            vocab_size=vocab_size,
            hidden=lambda prefix: self._states(prefix).tolist(),
        )

    @torch.inference_mode()
    def _read(self, prefix: tuple[int, ...]) -> torch.Tensor:
        return self.model.model(input_ids=torch.tensor([list(prefix)]))[0][0, -1]

    def plain_law(self, state: torch.Tensor) -> Any:
        with torch.inference_mode():
            return torch.softmax(self.model.lm_head(state), -1).numpy()

    def embed_tokens(self, ids: torch.Tensor) -> torch.Tensor:
        return self.model.model.embed_tokens.weight.detach()[ids]

    def read_out(self, features: torch.Tensor) -> torch.Tensor:
        self.head_calls.append(len(features))
        return self.model.lm_head(features)

    def cut_head(self, ids: torch.Tensor) -> Any:
        return lambda features: features @ self.model.lm_head.weight[ids].T

    def start(self, prompt_ids: Any) -> TableSession:
        return _Session(self, list(prompt_ids))
