"""Clover: a recurrent draft state with previous-token attention (section 0x06C).

A state of fixed width goes down the path. At each token it asks one key, made from that
token's embedding e:

    Q = W_Q Norm(s),  K = W_K e,  V = W_V e,   s' = s + gate(Q, K) V.

The article leaves the gate open, and with reason: softmax over one key is 1 whatever Q
and K are. The official code of Clover-2 takes the cosine of Q and K, head by head. Ours
is that cosine plus one learned number a head, which starts at 1: at the start the gate
is the softmax's 1 and the token is simply added, and training may go over to the cosine
alone. From a gate around 0 the state would learn little of the token at first.

The predictor (one network over s' and e) and the gate's matrices are shared by all
depths, so the input does not widen with depth. The augmenting block is decoder layers
on the committed rows, read once a round.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from .base import Heads, State
from .config import HeadsConfig
from .parts import Mix, Network, unit


class Clover(Heads):
    """A recurrent cell and one predictor for K depths."""

    def __init__(self, config: HeadsConfig) -> None:
        super().__init__(config)
        width = config.width
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        nn.init.zeros_(self.value.weight)
        self.offset = nn.Parameter(torch.ones(config.attention_heads))
        self.predictor = Network(2, width, config.layers, config.bent)

    def start(self, base: torch.Tensor, pending: torch.Tensor) -> State:
        """As `Heads.start`."""
        return State(0, self._cell(base, pending))

    def step(self, state: State, rows: torch.Tensor, embeddings: torch.Tensor) -> State:
        """As `Heads.step`."""
        return State(state.depth + 1, self._cell(state.parts[0][rows], embeddings))

    def features(self, state: State) -> torch.Tensor:
        """As `Heads.features`."""
        _, carried, inputs = self.linear(state)
        return self.predictor(carried, inputs)

    def linear(self, state: State) -> tuple[Mix, torch.Tensor, torch.Tensor]:
        """As `Heads.linear`: one way for all depths."""
        self._depth(state)
        carried, token = state.parts
        return self.predictor.mix, carried, torch.cat([unit(carried), token], dim=-1)

    def _cell(
        self, carried: torch.Tensor, embeddings: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The state after one more token, and the token for the predictor."""
        token = unit(embeddings)
        split = (len(token), self.config.attention_heads, -1)
        query = self.query(unit(carried)).view(split)
        key = self.key(token).view(split)
        gate = F.cosine_similarity(query, key, dim=-1) + self.offset
        added = gate[..., None] * self.value(token).view(split)
        return carried + added.reshape(carried.shape), token
