"""What a round cost, and what it bought (section 0x02C).

A long accepted path is no gain if the round that found it took longer than the
ordinary steps it replaced. So every round carries six cost terms and one count.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

from . import checks
from .errors import SpecbookError

COST_TERMS = (
    "proposal",
    "retrieval",
    "packing",
    "target_verify",
    "selection",
    "temporary_state",
)
"""The six terms of C_round, in the article's order."""


@dataclass(frozen=True)
class RoundLedger:
    """The six cost terms of one round (or of several, added up), in seconds, and
    the number of target-valid tokens that were published for them.

    Any unit will do as long as it is the same throughout; Fractions stay exact.
    """

    proposal: Any = 0
    retrieval: Any = 0
    packing: Any = 0
    target_verify: Any = 0
    selection: Any = 0
    temporary_state: Any = 0
    committed_tokens: int = 0

    def __post_init__(self) -> None:
        for term in COST_TERMS:
            checks.real(getattr(self, term), term, least=0)
        checks.integer(self.committed_tokens, "committed_tokens", least=0)

    @property
    def round_cost(self) -> Any:
        """C_round, the sum of the six terms."""
        return sum(getattr(self, term) for term in COST_TERMS)

    @property
    def time_per_committed_token(self) -> Any:
        """C_round / N_commit. Of an added-up ledger this is sum over sum."""
        if self.committed_tokens == 0:
            raise SpecbookError("no token was committed, so no time per token exists")
        return _ratio(self.round_cost, self.committed_tokens)

    def speedup(self, target_step_cost: Any) -> Any:
        """How many times faster than ordinary steps of `target_step_cost` each."""
        checks.real(target_step_cost, "target_step_cost", least=0)
        if self.round_cost == 0:
            raise SpecbookError("the round cost is 0, so no speedup exists")
        return _ratio(target_step_cost * self.committed_tokens, self.round_cost)

    def break_even_tokens(self, target_step_cost: Any) -> Any:
        """Tokens that the round must commit, on average, before it pays."""
        checks.real(target_step_cost, "target_step_cost", least=0)
        if target_step_cost == 0:
            raise SpecbookError("target_step_cost must be above 0, got 0")
        return _ratio(self.round_cost, target_step_cost)

    def __add__(self, other: RoundLedger) -> RoundLedger:
        if not isinstance(other, RoundLedger):
            return NotImplemented
        return RoundLedger(
            *(getattr(self, f.name) + getattr(other, f.name) for f in fields(self))
        )

    @classmethod
    def total(cls, ledgers: Iterable[RoundLedger]) -> RoundLedger:
        """The ledgers added up; of none, an empty ledger."""
        ledgers = checks.entries(ledgers, "ledgers", "RoundLedgers")
        for index, item in enumerate(ledgers):
            if not isinstance(item, RoundLedger):
                raise SpecbookError(f"ledgers[{index}] is not a RoundLedger: {item!r}")
        return sum(ledgers, start=cls())

    def as_dict(self) -> dict[str, Any]:
        """The seven entries by name, in order."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


def _ratio(above: Any, below: Any) -> Any:
    try:
        return above / below
    except OverflowError:
        raise SpecbookError("the ratio is too large for float64") from None


class Stopwatch:
    """Bills stretches of one round to the cost terms, then closes the ledger.

    Stretches may nest: while an inner one runs, the outer one's time stands still, so
    the terms never count a moment twice. Raises `SpecbookError` for a `clock` that is
    no function, or whose reading is no finite number.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        if not callable(clock) or isinstance(clock, type):
            raise SpecbookError(f"clock must be a function, got {clock!r}")
        self._clock = clock
        self._spent = dict.fromkeys(COST_TERMS, 0.0)
        self._open: list[str] = []
        self._since = 0.0

    @contextmanager
    def bill(self, term: str) -> Iterator[None]:
        """Adds the time spent inside to `term`, also when the inside raises."""
        checks.one_of(term, "cost term", COST_TERMS)
        self._charge()
        self._open.append(term)
        try:
            yield
        finally:
            self._charge()
            self._open.pop()

    def _charge(self) -> None:
        now = checks.real(self._clock(), "the clock's reading")
        if self._open:
            self._spent[self._open[-1]] += now - self._since
        self._since = now

    def close(self, committed_tokens: int) -> RoundLedger:
        """The ledger of the round, which is now over."""
        return RoundLedger(**self._spent, committed_tokens=committed_tokens)
