"""A switch: the source falls silent where its drafts do not pay (section 0x02C).

A draft that is refused costs its drafting and its rows, and buys nothing. So a round is
booked: with n candidates it cost t(1 + n) and the drafting, and for the tokens that it
committed plain decoding would have taken t(1) each. While the last few drafted rounds
together saved time, the source drafts on. When they did not, it is silent for some
rounds, which are then ordinary steps, and tries again with a single round; after each
failure the silence is twice as long. One round that pays wakes it up.

So a request of R rounds in which drafting never pays drafts in `window` +
log2(1 + R / `pause`) + R / `LONGEST` of them at most (a silence grows to
`LONGEST` and no further), and is plain decoding in all others: it cannot fall far
behind. It can fall behind by that much, and where every round loses it does.
Which rounds draft follows from what was published before, never from the candidates of
the round itself, so no rule's law is touched.

Contract: that of the source within. What stands in a round is that source's own
proposal or nothing, so the switch is no source of its own and has no line in the
registry.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from .. import checks
from ..contract import SourceContract
from ..errors import SpecbookError
from ..policy import SamplingPolicy
from ..proposal import Proposal
from .draft_length import COST, DraftLength, checked_cost

WINDOW = 3
"""Drafted rounds that are judged together."""

PAUSE = 8
"""Rounds of the first silence."""

LONGEST = 128
"""Rounds of the longest."""


class Switch:
    """A source that may fall silent. See the module.

    `part`: the source within. `cost`: pairs (rows, time of a verification), as
    `row_cost.measure_row_cost` gives them. `drafting`: the time that a level of a draft
    takes, in the same unit. `window`, `pause`: as `WINDOW` and `PAUSE`. Raises
    `SpecbookError` for what is no source, and for bad numbers.
    """

    def __init__(
        self,
        part: Any,
        *,
        cost: Sequence[tuple[int, float]] = COST,
        drafting: float = 0.0,
        window: int = WINDOW,
        pause: int = PAUSE,
    ) -> None:
        contract = getattr(part, "contract", None)
        if isinstance(part, type) or not isinstance(contract, SourceContract):
            raise SpecbookError(f"part is no draft source: {part!r}")
        self.part = part
        self.contract = contract
        self.cost = checked_cost(cost)
        self.drafting = checks.float64(drafting, "drafting", least=0)
        self.window = checks.integer(window, "window", least=1)
        self.pause = checks.integer(pause, "pause", least=1, most=LONGEST)

    def __getattr__(self, name: str) -> Any:
        # What a source may have beside its contract, this one has if its part has.
        if name in ("check_target", "target_for") and "part" in vars(self):
            return getattr(self.part, name)
        raise AttributeError(name)

    def identity(self) -> str:
        """The options and the source within, for the round manifest."""
        return (
            f"switch window={self.window} pause={self.pause} cost={self.cost} "
            f"drafting={self.drafting} of {self.part.identity()}"
        )

    def start(
        self,
        prefix: Iterable[int],
        *,
        request: str = "request-0",
        vocab_size: int | None = None,
        policy: SamplingPolicy | None = None,
        manifest_hash: str = "",
    ) -> SwitchSession:
        """A session for one request whose prompt is `prefix` (token ids)."""
        within = self.part.start(
            prefix, request=request, vocab_size=vocab_size, policy=policy
        )
        return SwitchSession(self, within, request, manifest_hash)


class SwitchSession:
    """One request: the source's own session, and the book of its rounds.

    `silent`: how many rounds are still to pass without a draft."""

    def __init__(
        self, source: Switch, within: Any, request: str, manifest_hash: str
    ) -> None:
        self.within = within
        self.silent = 0
        self._source = source
        self._clock = DraftLength(source.cost)
        self._request = request
        self._manifest_hash = manifest_hash
        self._commits = 0
        self._saved: deque[float] = deque(maxlen=source.window)
        self._trial = False
        self._pause = source.pause
        self._drafted: tuple[int, int] | None = None

    def __getattr__(self, name: str) -> Any:
        if name in ("observe", "join") and "within" in vars(self):
            return getattr(self.within, name)
        raise AttributeError(name)

    def propose(
        self,
        *,
        max_depth: int,
        max_nodes: int,
        chance: Any = None,
        manifest_hash: str | None = None,
    ) -> Proposal:
        """The proposal of the source within, or none in a silent round."""
        checks.integer(max_depth, "max_depth", least=0)
        checks.integer(max_nodes, "max_nodes", least=0)
        manifest_hash = self._manifest_hash if manifest_hash is None else manifest_hash
        self._drafted = None
        if self.silent:
            about = self._source.contract.proposed(
                self._request, self._commits, manifest_hash
            )
            return Proposal(nodes=(), **about)
        made: Proposal = self.within.propose(
            max_depth=max_depth,
            max_nodes=max_nodes,
            chance=chance,
            manifest_hash=manifest_hash,
        )
        if made.nodes:
            deepest = max(node.depth for node in made.nodes)
            self._drafted = (len(made.nodes), deepest)
        return made

    def commit(self, tokens: Iterable[int]) -> None:
        """The tokens that the round published, in order: they are booked, and told to
        the source within, in a silent round too."""
        published = checks.token_ids(tokens)
        self.within.commit(published)
        self._commits += 1
        if self.silent:
            self.silent -= 1
            self._trial = not self.silent
        elif self._drafted is not None and published:
            self._book(len(published), *self._drafted)

    def _book(self, tokens: int, nodes: int, depth: int) -> None:
        one, rows = self._clock.time(1), self._clock.time(1 + nodes)
        saved = tokens * one - rows - depth * self._source.drafting
        self._saved.append(saved)
        if self._trial and saved > 0:
            # It pays again: what was booked before the silence is no longer true.
            self._trial, self._pause = False, self._source.pause
            self._saved.clear()
        elif self._trial or (
            len(self._saved) == self._source.window and sum(self._saved) < 0
        ):
            self.silent = self._pause
            self._pause = min(2 * self._pause, LONGEST)
            self._saved.clear()
