"""Acceptance by position, as engines write it.

Two conventions are in use and look alike. Here, and in every calibration profile, a
rate is *conditional*: how often the draft at a depth is accepted, given that the path
got there. Engines that simulate acceptance take *unconditional* rates: how often the
first i drafts are all accepted, which cannot rise. The second is the running product
of the first.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np

from .. import checks
from ..errors import LawError, SpecbookError
from ..topologies.observed import Observed


def chain_rates(observed: Observed, length: int | None = None) -> list[Fraction]:
    """Unconditional rates of a chain, position by position, as exact quotients of the
    counts.

    A chain offers the first slot only, so its conditional rate at a depth is that
    slot's selections over its trials. Where the counts are of a tree (`of_a_tree`), the
    trials at a depth are of all paths that got there, through any slots, and a chain's
    are taken to be alike. `length`: so many positions; by default as many as were
    counted. Raises `SpecbookError` for more than those.
    """
    if not isinstance(observed, Observed):
        raise SpecbookError(f"observed must be Observed, got {observed!r}")
    if not observed.every_depth:
        raise SpecbookError("pooled counts do not know positions")
    tried = observed.tried[:, :, 0].sum(axis=0)
    selected = observed.selected[:, :, 0].sum(axis=0)
    if length is None:
        length = len(tried)
    checks.integer(length, "length", least=1)
    if length > len(tried):
        raise SpecbookError(
            f"{length} positions are asked for, and {len(tried)} were counted"
        )
    found = [Fraction(int(s), int(n)) for s, n in zip(selected, tried, strict=True)]
    return unconditional(found[:length])


def of_a_tree(observed: Observed) -> bool:
    """Whether more than one slot was ever tried, so that a path may have got to a depth
    through others than the first slots."""
    checks.instance(observed, "observed", Observed)
    return bool(observed.tried[:, :, 1:].any())


def unconditional(rates: Iterable[Any]) -> list[Any]:
    """Running products of conditional rates: Fractions for Fractions. Raises
    `LawError` for what is no rate."""
    found, left = [], Fraction(1)
    for rate in _rates(rates):
        left = left * rate
        found.append(left)
    return found


def conditional(rates: Iterable[Any]) -> list[Any]:
    """The other way, from what an engine reports: each rate over the one before. Where
    nothing gets to, the rate is 0. Raises `LawError` for rates that rise: they were
    conditional already."""
    checked = check_unconditional(rates)
    found, before = [], checked[0] * 0 + 1
    for rate in checked:
        found.append(rate / before if before else rate)
        before = rate
    return found


def acceptance_rows(rates: Iterable[Any]) -> list[list[Any]]:
    """Unconditional rates as `topologies` reads acceptance: a row [0, p] for each
    depth, a chain's only slot."""
    return [[rate * 0, rate] for rate in conditional(rates)]


def check_unconditional(rates: Iterable[Any], name: str = "rates") -> list[Any]:
    """`rates` as a list of unconditional rates: from 0 to 1, none above the one before
    it. Raises `LawError` with the place."""
    found = _rates(rates, name)
    if not found:
        raise LawError(f"{name} is empty")
    for place in range(1, len(found)):
        if found[place] > found[place - 1]:
            raise LawError(
                f"{name}[{place}] = {float(found[place])!r} is above the one before "
                "it: more drafts are never accepted more often. Conditional rates are "
                "converted by specbook.export.rates.unconditional"
            )
    return found


def floats(rates: Iterable[Any]) -> list[float]:
    """Unconditional rates as JSON takes them. Rounding keeps their order."""
    return [float(rate) for rate in check_unconditional(rates)]


def _rates(rates: Iterable[Any], name: str = "rates") -> list[Any]:
    found = []
    for place, entry in enumerate(checks.entries(rates, name, "rates", LawError)):
        rate = checks.real(entry, f"{name}[{place}]", least=0, most=1, error=LawError)
        # numpy's numbers divide by 0 with a warning and are no JSON.
        found.append(
            Fraction(int(rate.numerator), int(rate.denominator))
            if isinstance(rate, (int, Fraction, np.integer))
            else float(rate)
        )
    return found
