"""Independent heads with a low-rank Markov correction: the 2026 form of dependence.

Block drafters of 2026 predict all positions at once and then put back what independence
loses with a correction that knows the previous token only, of low rank r. Here it is
added to the features, before the frozen LM head:

    features of head i  =  f_i(h_{t-1}) + B A E(x_{t+i-1}),   A [r, d], B [d, r].

Seen at the logits that is a bigram bias of rank r between two matrices that exist
already, so it costs 2 r d numbers for all heads together: the cheapest dependence there
is.
"""

from __future__ import annotations

import torch
from torch import nn

from .base import State
from .config import HeadsConfig
from .medusa import Medusa
from .parts import unit


class Markov(Medusa):
    """Medusa's heads, and one correction that they share."""

    independent = False

    def __init__(self, config: HeadsConfig) -> None:
        super().__init__(config)
        self.inward = nn.Linear(config.width, config.rank, bias=False)
        self.outward = nn.Linear(config.rank, config.width, bias=False)
        nn.init.zeros_(self.outward.weight)

    def start(self, base: torch.Tensor, pending: torch.Tensor) -> State:
        """As `Heads.start`."""
        return State(0, (base, pending))

    def step(self, state: State, rows: torch.Tensor, embeddings: torch.Tensor) -> State:
        """As `Heads.step`. Only the last token is remembered."""
        return State(state.depth + 1, (state.parts[0][rows], embeddings))

    def features(self, state: State) -> torch.Tensor:
        """As `Heads.features`."""
        return super().features(state) + self.outward(self.inward(unit(state.parts[1])))
