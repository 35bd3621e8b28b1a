"""A draft model's side of one request: its tokens, its state, the tree it has open.

A draft model is a target too (`models.protocol`): its session computes the candidates
of a round level by level, and afterwards follows the tokens that were published,
wherever their rows lie. Rows on their path are kept, all others dropped. What has no
row is told to the session and computed at the start of the next round: a draft model
never computes its last candidates, and the correction or bonus token is not its own.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import checks
from ...policy import SamplingPolicy
from ...proposal import PREFIX_FRONTIER, Proposal
from ...tree import CandidateTree


class OwnTree:
    """The state of the draft model `model` (a `Target`) for one request.

    `prefix`: the prompt's ids. A prompt longer than the model's context, or an output
    that outgrows it, leaves no `room`: nothing can be drafted, and nothing is raised in
    mid-sentence. Raises ValueError for a prompt that is none.
    """

    def __init__(self, model: Any, prefix: Sequence[int]) -> None:
        self._vocab_size = model.vocab_size
        limit = model.context_limit
        self._limit = sys.maxsize if limit is None else limit
        self._session: Any = None if len(prefix) > self._limit else model.start(prefix)
        self._rows: Any = None
        self.tree: CandidateTree | None = None
        """The rows that are computed in this round; None between rounds."""

    def room(self) -> int:
        """Levels of candidates that the model can still predict. The last level has no
        rows of its own, so its tokens may sit past the model's last position."""
        if self._session is None:
            return 0
        return max(0, self._limit + 1 - len(self._session.tokens))

    def begin(self, guess: Proposal | None = None) -> None:
        """One forward over what is pending, and over the candidates of `guess`."""
        self.tree = CandidateTree.from_proposals(guess or (), len(self._session.tokens))
        self._rows = self._session.verify(self.tree)

    def rows(self, candidates: Sequence[tuple[int, int]]) -> list[int]:
        """The row of every candidate (token, parent row), all of them different; one
        forward over those that have none yet, and no forward if all have."""
        assert self.tree is not None
        old = self.tree
        found = [old.child_with_token(parent, token) for token, parent in candidates]
        new = [c for c, row in zip(candidates, found, strict=True) if row is None]
        if new:
            self.tree = CandidateTree.from_rows(
                (*old.token_ids, *(token for token, _ in new)),
                (*old.parents, *(parent for _, parent in new)),
                old.prefix_len,
            )
            self._rows = self._session.grow(self.tree)
        numbers = iter(range(len(old), len(self.tree)))
        return [next(numbers) if row is None else row for row in found]

    def law(self, row: int, policy: SamplingPolicy) -> np.ndarray:
        """The model's law [V] of the children of `row`; -1 is the frontier."""
        return self._rows.law(row, policy)

    def commit(self, published: Sequence[int]) -> None:
        """Follow `published`, what the round came to, through the open tree."""
        tokens = checks.token_ids(published, vocab_size=self._vocab_size)
        if self._session is None or not tokens:
            return
        path: list[int] = []
        row: int | None = PREFIX_FRONTIER
        # The last token becomes pending, as it does for every target.
        for token in tokens[:-1] if self.tree is not None else ():
            assert self.tree is not None and row is not None
            row = self.tree.child_with_token(row, token)
            if row is None:
                break
            path.append(row)
        if self.tree is not None:
            self._session.commit(path, tokens[len(path)])
            tokens = tokens[len(path) + 1 :]
        if tokens:
            self._session.extend(tokens)
        self._rows = self.tree = None
