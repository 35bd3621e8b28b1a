"""The package's table of a tiny model, which counts what drafts ask of the head."""

from __future__ import annotations

from typing import Any

import torch

from specbook.models import model_table
from specbook.models.tiny import tiny_llama


class ModelTable(model_table.ModelTable):
    """Of a tiny Llama in float64. `head_calls` counts the rows of each run of the LM
    head that a draft asked for; the target's own laws are not among them."""

    def __init__(self, vocab_size: int = 4, width: int = 12, seed: int = 0) -> None:
        self.head_calls: list[int] = []
        super().__init__(
            tiny_llama(
                seed,
                vocab_size=vocab_size,
                hidden_size=width,
                num_layers=2,
                num_heads=2,
                num_kv_heads=1,
            ).double()
        )

    def _law(self, prefix: tuple[int, ...]) -> Any:
        before = len(self.head_calls)
        found = super()._law(prefix)
        del self.head_calls[before:]
        return found

    def read_out(self, features: torch.Tensor) -> torch.Tensor:
        self.head_calls.append(len(features))
        return super().read_out(features)
