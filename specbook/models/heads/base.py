"""One interface for all architectures of draft heads, in training and at runtime.

The convention is the article's (section 0x06B). x_t is the pending token: decided, its
state not computed. h_{t-1} is the target's hidden state of the last committed row, as
the LM head reads it. Head i, from 1, gives features from which the frozen LM head
predicts x_{t+i}; it may look at h_{t-1} and at the embeddings of x_t .. x_{t+i-1}.

An architecture is three functions on rows, and nothing else:

    start(base, pending)             the state after the pending token
    step(state, rows, embeddings)    the states of candidates below some of its rows
    features(state)                  what the LM head reads to predict their children

A tree calls them level by level, each row on its own path; training calls them for many
positions at once, with the true tokens in place of candidates. The code is the same, so
the two cannot differ. What is read once a round (`base`: prefix attention, augmenting
block) has two forms, and a test holds them equal.

The target's embedding and LM head are frozen and passed in where they are needed: heads
hold neither, so that no artifact repeats them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from ...errors import SpecbookError
from .config import HeadsConfig
from .parts import Mix, PrefixCache, PrefixLayers


@dataclass(frozen=True)
class State:
    """Rows of one level of a tree. `depth`: candidates since the pending token.
    `parts`: what the architecture remembers of each row, tensors [R, ...]."""

    depth: int
    parts: tuple[torch.Tensor, ...]

    def __len__(self) -> int:
        return len(self.parts[0])


class Heads(nn.Module):
    """A set of K draft heads over hidden width d. See the module for the interface."""

    independent = False
    """Whether the heads look at no candidate: then all rows of a level are alike."""

    def __init__(self, config: HeadsConfig) -> None:
        super().__init__()
        self.config = config
        self.prefix = PrefixLayers(
            config.prefix_layers, config.width, config.attention_heads, config.inner
        )

    # ------------------------------------------------------------- once a round

    def base(
        self, hidden: torch.Tensor, segments: torch.Tensor | None = None
    ) -> torch.Tensor:
        """What heads start from, at every row of a packed stream: [n, d].

        `hidden` [n, d]: the target's states. `segments` [n]: no row sees another
        segment, and a segment that comes back is another. Row t - 1 belongs to the
        pending token t. Raises `SpecbookError` for rows of another width.
        """
        width = self.config.width
        if hidden.dim() != 2 or hidden.shape[1] != width:
            raise SpecbookError(
                f"hidden must be [n, {width}], got {list(hidden.shape)}"
            )
        if segments is not None and segments.shape != hidden.shape[:1]:
            raise SpecbookError(
                f"{len(hidden)} hidden rows and segments {list(segments.shape)}: a "
                "packed stream has one of each a position"
            )
        return self.prefix(hidden, segments)

    def cache(self) -> PrefixCache:
        """The same for one request, row by row as they are committed."""
        return PrefixCache(self.prefix)

    # ---------------------------------------------------------------- a level

    def start(self, base: torch.Tensor, pending: torch.Tensor) -> State:
        """The state of R positions after their pending tokens: `base` [R, d] of the
        last committed row, `pending` [R, d] the embeddings of x_t."""
        raise NotImplementedError

    def step(self, state: State, rows: torch.Tensor, embeddings: torch.Tensor) -> State:
        """The states of C candidates: candidate c is a token with the embedding
        `embeddings[c]` below row `rows[c]` of `state` (int64 [C])."""
        raise NotImplementedError

    def features(self, state: State) -> torch.Tensor:
        """Rows [R, d] for the LM head: the law of the children of every row."""
        raise NotImplementedError

    def linear(self, state: State) -> tuple[Mix, torch.Tensor, torch.Tensor] | None:
        """The linear way of the head that `state` asks: the module, the rows [R, d]
        that it adds to, and its inputs [R, parts d]. None where there is none."""
        return None

    # --------------------------------------------------------- many positions

    def forward(self, base: torch.Tensor, embeddings: torch.Tensor) -> torch.Tensor:
        """Features [R, K, d] of all heads at R positions, along one path each.

        `base` [R, d]; `embeddings` [R, K, d]: of x_t and of the K - 1 tokens after it,
        true ones (teacher forcing) or the heads' own.
        """
        width, count = self.config.width, self.config.heads
        if base.dim() != 2 or base.shape[1] != width:
            raise SpecbookError(f"base must be [R, {width}], got {list(base.shape)}")
        if embeddings.shape != (len(base), count, width):
            raise SpecbookError(
                f"embeddings must be [{len(base)}, {count}, {width}], got "
                f"{list(embeddings.shape)}"
            )
        rows = torch.arange(len(base), device=base.device)
        state = self.start(base, embeddings[:, 0])
        found = [self.features(state)]
        for depth in range(1, count):
            state = self.step(state, rows, embeddings[:, depth])
            found.append(self.features(state))
        return torch.stack(found, dim=1)

    def _depth(self, state: State) -> int:
        """The state's depth, which is the number from 0 of the head that it asks."""
        if not 0 <= state.depth < self.config.heads:
            raise SpecbookError(
                f"{self.config.heads} heads predict no candidate of depth "
                f"{state.depth + 1}"
            )
        return state.depth
