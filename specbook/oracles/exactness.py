"""The check behind every claim that a rule is exact: two laws, or two texts, are equal.

Neither looks at how an output came about. What they are given is enumerated (with
`chance.law`, or through the engine with `lab.decoded_law`) or decoded, and set beside
plain decoding of the target. So they also find the mistakes that nobody thought of;
the price is that they say where an output differs and never why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .. import checks
from ..errors import LawError, SpecbookError

ROUNDING = 1e-9
"""How far two float64 laws may lie apart. Fractions must be equal."""


def check_law(
    found: Mapping[Any, Any], wanted: Mapping[Any, Any], what: str = "output"
) -> None:
    """Raises `LawError` unless `found` is the law `wanted`, both {result: probability}.

    It names the result whose probabilities differ most, and the total variation.
    Fractions are compared exactly, floats within `ROUNDING`.
    """
    for name, given in (("found", found), ("wanted", wanted)):
        if not isinstance(given, Mapping) or not given:
            raise SpecbookError(f"{name} maps results to probabilities, got {given!r}")
        for result, mass in given.items():
            checks.real(mass, f"{name}[{result!r}]", least=0, error=LawError)
    off = {key: found.get(key, 0) - wanted.get(key, 0) for key in {**wanted, **found}}
    worst = max(off, key=lambda key: abs(off[key]))
    exact = not any(isinstance(gap, float) for gap in off.values())
    if abs(off[worst]) > (0 if exact else ROUNDING):
        total = sum(map(abs, off.values())) / 2
        raise LawError(
            f"{what} {worst} has probability {_told(found.get(worst, 0))}, plain "
            f"decoding gives it {_told(wanted.get(worst, 0))}; total variation "
            f"{_told(total)}"
        )


def check_tokens(
    found: Iterable[int], wanted: Iterable[int], what: str = "output"
) -> None:
    """Raises `LawError` at the first place where the tokens `found` are not those that
    plain greedy decoding gives, or where one of the two texts ends too early."""
    ours = checks.token_ids(found, "found")
    plain = checks.token_ids(wanted, "wanted")
    for place, (one, other) in enumerate(zip(ours, plain, strict=False)):
        if one != other:
            raise LawError(
                f"token {place} of the {what} is {one}, plain decoding says {other}"
            )
    if len(ours) != len(plain):
        raise LawError(
            f"the {what} has {len(ours)} tokens, plain decoding ends after {len(plain)}"
        )


def _told(mass: Any) -> str:
    return f"{mass:.4g}" if isinstance(mass, float) else str(mass)
