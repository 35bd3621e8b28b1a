"""What the sources that copy have in common: a chain of copied tokens, cut to a length.

Such a source differs from another only in where it finds what it copies. Its session
looks up a match and a copy; the rest is here: how much of the copy is drafted (all of
it, or the part that pays by the request's own history, see `draft_length`), the
proposal that says so, and what is learnt when the target has spoken.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

from .. import checks
from ..contract import SourceContract
from ..proposal import Proposal, ProposalNode
from .draft_length import COST, PRIOR, DraftLength, checked_cost, checked_prior

LENGTHS = ("fixed", "adaptive")


class CopySource:
    """A source without a model. It keeps no state between requests.

    `length`: "fixed" drafts the whole copy; "adaptive" drafts the part of it that pays
    by the request's own history, see `draft_length`, whose tables are `cost` and
    `prior`. Raises `ValueError` for bad options.
    """

    contract: ClassVar[SourceContract]
    TUNED: ClassVar[Mapping[str, Any]]

    def __init__(
        self,
        *,
        length: str = "fixed",
        cost: Sequence[tuple[int, float]] = COST,
        prior: Sequence[tuple[float, float]] = PRIOR,
    ) -> None:
        self.length = checks.one_of(length, "length", LENGTHS)
        self.cost = checked_cost(cost)
        self.prior = checked_prior(prior)

    @classmethod
    def tuned(cls, **changes: Any) -> Self:
        """The source with its tuned options, except for `changes`."""
        known = list(inspect.signature(cls).parameters)
        for option in changes:
            checks.one_of(option, "option of the lookup", known)
        return cls(**{**cls.TUNED, **changes})

    def length_identity(self) -> str:
        """The options of the draft length, for the round manifest."""
        text = f"length={self.length}"
        if self.length == "adaptive":
            text += f" cost={self.cost} prior={self.prior}"
        return text


class CopySession(ABC):
    """One request: its agreement history, if the length is adaptive.

    A subclass finds the copy (`_look_up`) and takes note of a token (`_append`).
    """

    def __init__(
        self,
        source: CopySource,
        request: str,
        vocab_size: int | None,
        manifest_hash: str,
    ) -> None:
        self._contract = source.contract
        self._request = request
        self._vocab_size = vocab_size
        self._manifest_hash = manifest_hash
        self._control = (
            DraftLength(source.cost, source.prior)
            if source.length == "adaptive"
            else None
        )
        self._commits = 0
        self._looked_up: tuple[int, list[int]] = (0, [])

    @abstractmethod
    def _look_up(self, most: int | None = None) -> tuple[int, list[int]]:
        """The length of the match and the whole copy; (0, []) on a miss. What lies
        behind the first `most` tokens of the copy may be left out."""

    @abstractmethod
    def _append(self, token: int) -> None:
        """One more token of the prefix."""

    def lookup(self) -> list[int]:
        """The whole copy, before the draft length is chosen."""
        return list(self._look_up()[1])

    def propose(
        self,
        *,
        max_depth: int,
        max_nodes: int,
        chance: Any = None,
        manifest_hash: str | None = None,
    ) -> Proposal:
        """A chain of at most min(`max_depth`, `max_nodes`) copied tokens; none on a
        miss. `chance` is not asked: a lookup is deterministic."""
        checks.integer(max_depth, "max_depth", least=0)
        checks.integer(max_nodes, "max_nodes", least=0)
        # A round publishes one token more than it is deep, so no more of the copy can
        # be drafted or learnt from; and a loop could be copied for ever.
        match, copied = self._looked_up = self._look_up(max_depth + 1)
        count = min(len(copied), max_depth, max_nodes)
        if self._control is not None and count:
            count = self._control.choose(match, count)
        contract = self._contract
        nodes = tuple(
            ProposalNode(
                token_id=token,
                parent=index - 1,
                depth=index + 1,
                score=match,
                source=contract.name,
                state_owner=contract.name,
                origin_request=self._request,
            )
            for index, token in enumerate(copied[:count])
        )
        about = contract.proposed(
            self._request,
            self._commits,
            self._manifest_hash if manifest_hash is None else manifest_hash,
        )
        return Proposal(nodes=nodes, **about)

    def commit(self, tokens: Iterable[int]) -> None:
        """The tokens that the round published, in order."""
        tokens = checks.token_ids(tokens, vocab_size=self._vocab_size)
        match, copied = self._looked_up
        if self._control is not None:
            self._control.learn(match, copied, tokens)
        self._looked_up = (0, [])
        for token in tokens:
            self._append(token)
        self._commits += 1
