"""The answer over a range of drafting costs and gains: where each choice would win.

One machine and one drafter give one point. What another drafter would be worth, quicker
or better, follows from the same numbers: drafting times a factor, and the tokens that a
round brings beyond its first times another (sections 0x02C, 0x10).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from .. import checks
from .choosing import advise
from .constraints import Constraints
from .estimate import Estimate


def sources(
    estimates: Sequence[Estimate],
    drafting: Sequence[Any],
    gains: Sequence[Any],
    constraints: Constraints | None = None,
) -> list[list[str]]:
    """The advised source for every factor of `gains` (rows) and of `drafting`
    (columns). A factor changes every source that runs a model to draft; copies stay as
    they are. Raises `SpecbookError` for a factor that is negative."""
    listed = checks.entries(estimates, "estimates", "Estimates")
    factors = [
        [
            checks.real(factor, f"{name}[{i}]", least=0)
            for i, factor in enumerate(checks.entries(row, name, "factors"))
        ]
        for row, name in ((drafting, "drafting"), (gains, "gains"))
    ]
    return [
        [
            advise(
                [changed(one, draft, gain) for one in listed], constraints
            ).best.configuration.source
            for draft in factors[0]
        ]
        for gain in factors[1]
    ]


def changed(one: Estimate, draft: Any, gain: Any) -> Estimate:
    """`one` with its drafting times `draft`, and with `gain` times the tokens that a
    round has beyond the first; unchanged where no model drafts."""
    checks.instance(one, "one", Estimate)
    if one.configuration.family in ("plain", "copying"):
        return one
    checks.real(gain, "gain", least=0)
    # Not as a factor on all tokens: one that is rounded may leave less than a token.
    return replace(one.changed(draft=draft), tokens=1 + gain * (one.tokens - 1))
