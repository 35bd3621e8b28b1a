"""Medusa: independent heads (section 0x06A).

Head i is its own residual blocks on h_{t-1} and the target's frozen LM head. It sees
neither the pending token nor a candidate, so the heads can be computed together and the
laws of a level are one law.
"""

from __future__ import annotations

import torch
from torch import nn

from .base import Heads, State
from .config import HeadsConfig
from .parts import ResidualBlock


class Medusa(Heads):
    """K independent heads of `layers` residual blocks each."""

    independent = True

    def __init__(self, config: HeadsConfig) -> None:
        super().__init__(config)
        self.networks = nn.ModuleList(
            nn.Sequential(*(ResidualBlock(config.width) for _ in range(config.layers)))
            for _ in range(config.heads)
        )

    def start(self, base: torch.Tensor, pending: torch.Tensor) -> State:
        """As `Heads.start`. The pending token is not looked at."""
        return State(0, (base,))

    def step(self, state: State, rows: torch.Tensor, embeddings: torch.Tensor) -> State:
        """As `Heads.step`. The candidates are not looked at."""
        return State(state.depth + 1, (state.parts[0][rows],))

    def features(self, state: State) -> torch.Tensor:
        """As `Heads.features`."""
        return self.networks[self._depth(state)](state.parts[0])
