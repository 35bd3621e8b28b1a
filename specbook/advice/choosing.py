"""The fastest configuration that may run, and how sure it is that it is the fastest.

Plain decoding always takes part, so an advice is never slower than plain decoding by
its own numbers. Being ahead is not being sure: where prompts are drawn again, the one
ahead may lose, and every configuration that cannot be told from it is named
(sections 0x0D, 0x10).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import checks
from ..errors import SpecbookError
from .constraints import Constraints, Refusal, refusals
from .estimate import Estimate
from .needs import Needs, needs_of


@dataclass(frozen=True)
class Refused:
    """A configuration that may not run, and all reasons."""

    estimate: Estimate
    why: tuple[Refusal, ...]

    @property
    def constraints(self) -> tuple[str, ...]:
        """The names of the constraints that refuse it."""
        return tuple(one.constraint for one in self.why)


@dataclass(frozen=True)
class Advice:
    """`ranking`: all that may run, fastest first. `refused`: the others. `wins`: the
    share of worlds in which the advised one is the fastest, `source_wins` one of its
    source; None without worlds. `ties`: those that cannot be told from it, 95 % of the
    worlds."""

    constraints: Constraints
    ranking: tuple[Estimate, ...]
    refused: tuple[Refused, ...]
    wins: float | None
    source_wins: float | None
    ties: tuple[Estimate, ...]

    @property
    def best(self) -> Estimate:
        """The advised one."""
        return self.ranking[0]

    @property
    def runner_up(self) -> Estimate | None:
        """The next, None where it is alone."""
        return self.ranking[1] if len(self.ranking) > 1 else None

    @property
    def plain(self) -> Estimate:
        """Plain decoding."""
        return next(e for e in self.ranking if e.configuration.family == "plain")

    @property
    def speedup(self) -> Any:
        """Over plain decoding; 1 where that is advised."""
        return self.plain.per_token / self.best.per_token

    @property
    def speedup_interval(self) -> tuple[float, float] | None:
        """95 % of the speed over plain decoding, None without worlds."""
        if self.best.worlds is None or self.plain.worlds is None or self.wins is None:
            return None
        low, high = np.quantile(self.plain.worlds / self.best.worlds, (0.025, 0.975))
        return float(low), float(high)


def advise(
    estimates: Sequence[Estimate],
    constraints: Constraints | None = None,
    *,
    needs: Callable[[Any], Needs] = needs_of,
) -> Advice:
    """The fastest of `estimates` that `constraints` let run; of equals the one that
    needs less memory, then plain decoding, then the first.

    Raises `SpecbookError` unless plain decoding is estimated once, for one
    configuration twice, and where nothing reaches the speed that is asked for: the
    message then says which constraint keeps out what.
    """
    allowed = Constraints() if constraints is None else constraints
    checks.function(needs, "needs")
    listed = checks.entries(estimates, "estimates", "Estimates")
    seen: set[Any] = set()
    ranking: list[Estimate] = []
    refused: list[Refused] = []
    for one in listed:
        why = refusals(one, allowed, needs=needs)
        if one.configuration in seen:
            raise SpecbookError(f"{one.name} is estimated twice")
        seen.add(one.configuration)
        if why:
            refused.append(Refused(one, tuple(why)))
        else:
            ranking.append(one)
    ranking.sort(
        key=lambda e: (e.per_token, e.extra_bytes, e.configuration.family != "plain")
    )
    plains = sum(one.configuration.family == "plain" for one in ranking)
    if not plains:
        raise SpecbookError(
            "plain decoding is not among the estimates: without it nothing says "
            "whether any speculation pays"
        )
    if plains > 1:
        raise SpecbookError(f"plain decoding is estimated {plains} times")
    made = Advice(allowed, tuple(ranking), tuple(refused), *_sureness(ranking))
    if made.speedup < allowed.speedup:
        raise SpecbookError(_nothing(made))
    return made


def _sureness(
    ranking: Sequence[Estimate],
) -> tuple[float | None, float | None, tuple[Estimate, ...]]:
    lengths = {None if e.worlds is None else len(e.worlds) for e in ranking}
    if None in lengths or len(lengths) != 1:
        # Without spread only equals cannot be told apart.
        best = ranking[0].per_token
        return None, None, tuple(e for e in ranking[1:] if e.per_token == best)
    table = np.stack([np.asarray(e.worlds) for e in ranking])
    first = table.argmin(axis=0)
    source = ranking[0].configuration.source
    same = np.array([e.configuration.source == source for e in ranking])
    near = [
        e
        for e, row in zip(ranking[1:], table[1:], strict=True)
        if np.quantile(row / table[0], 0.025) <= 1
    ]
    return float((first == 0).mean()), float(same[first].mean()), tuple(near)


def _nothing(made: Advice) -> str:
    told = [
        f"nothing that may run is {float(made.constraints.speedup):.2f} times as fast "
        f"as plain decoding; the fastest, {made.best.name}, is "
        f"{float(made.speedup):.2f} times as fast"
    ]
    plain = made.plain.per_token
    for one in made.refused:
        if plain / one.estimate.per_token >= made.constraints.speedup:
            told.append(
                f"{one.estimate.name} would be, and is kept out by "
                f"{', '.join(one.constraints)}"
            )
    return "; ".join(told)
