"""Hydra: dependent heads by concatenation (section 0x06B).

Head i reads h_{t-1} and the embeddings of x_t .. x_{t+i-1} side by side, so its first
matrix is (i + 1) d wide and it cannot run before the tokens above it are chosen.
"""

from __future__ import annotations

import torch
from torch import nn

from .base import Heads, State
from .config import HeadsConfig
from .parts import Mix, Network, unit


class Hydra(Heads):
    """K heads, each with its own network over the concatenation."""

    def __init__(self, config: HeadsConfig) -> None:
        super().__init__(config)
        self.networks = nn.ModuleList(
            Network(head + 1, config.width, config.layers, config.bent)
            for head in range(1, config.heads + 1)
        )

    def start(self, base: torch.Tensor, pending: torch.Tensor) -> State:
        """As `Heads.start`. A row remembers its base and its head's whole input."""
        return State(0, (base, torch.cat([unit(base), unit(pending)], dim=-1)))

    def step(self, state: State, rows: torch.Tensor, embeddings: torch.Tensor) -> State:
        """As `Heads.step`."""
        base, inputs = state.parts
        longer = torch.cat([inputs[rows], unit(embeddings)], dim=-1)
        return State(state.depth + 1, (base[rows], longer))

    def features(self, state: State) -> torch.Tensor:
        """As `Heads.features`."""
        return self._network(state)(*state.parts)

    def linear(self, state: State) -> tuple[Mix, torch.Tensor, torch.Tensor]:
        """As `Heads.linear`."""
        base, inputs = state.parts
        return self._network(state).mix, base, inputs

    def _network(self, state: State) -> Network:
        network = self.networks[self._depth(state)]
        assert isinstance(network, Network)
        return network
