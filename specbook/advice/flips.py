"""What would change the answer: the nearest constraint and the nearest parameter.

Time a token is a quotient of sums, so the factor on one part at which another
configuration draws level has a closed form. It is told in both directions: what would
have to become of the advised one, and what of its rivals (section 0x10).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .. import checks
from ..errors import SpecbookError
from .choosing import Advice, advise
from .constraints import Constraints
from .estimate import Estimate, megabytes
from .needs import Needs, needs_of

PARTS = ("tokens", "draft", "verify")


@dataclass(frozen=True)
class Flip:
    """A change after which `to` is the answer. `part`: a constraint, or one of `PARTS`;
    `of`: the configuration whose part changes, None for a constraint; `value`: the
    constraint's new value, or the factor at which the two are level."""

    part: str
    value: Any
    to: Estimate
    of: Estimate | None = None

    @property
    def distance(self) -> float:
        """How far a factor lies from 1: the larger of it and its inverse, infinite at
        0. 0 for a constraint, which is a decision and no quantity."""
        if self.of is None:
            return 0.0
        factor = float(self.value)
        return max(factor, 1 / factor) if factor else math.inf

    def __str__(self) -> str:
        if self.of is None:
            value = self.value
            if self.part == "extra_bytes":
                value = megabytes(value)
            return f"with {self.part.replace('_', ' ')} {value}: {self.to.name}"
        what = {
            "tokens": "committed tokens a round",
            "draft": "drafting time",
            "verify": "verification time",
        }[self.part]
        return f"{what} of {self.of.name} times {float(self.value):.3g}: {self.to.name}"


def constraint_flips(
    estimates: Sequence[Estimate],
    constraints: Constraints,
    *,
    needs: Callable[[Any], Needs] = needs_of,
) -> list[Flip]:
    """Every single constraint whose change gives another answer: each yes or no turned
    round, and of the memory the largest smaller limit and the smallest larger one."""
    checks.instance(constraints, "constraints", Constraints)
    estimates = checks.entries(estimates, "estimates", "Estimates")
    constraints = replace(constraints, speedup=0)
    now = advise(estimates, constraints, needs=needs).best

    def answer(**change: Any) -> Estimate:
        changed = replace(constraints, **change)
        return advise(estimates, changed, needs=needs).best

    found = []
    for name in ("exact", "datastore", "fixed_rows"):
        value = not getattr(constraints, name)
        other = answer(**{name: value})
        if other.configuration != now.configuration:
            found.append(Flip(name, value, other))
    limit = constraints.extra_bytes
    if now.extra_bytes:
        # The answer stays as long as its own memory is allowed.
        below = now.extra_bytes - 1
        found.append(Flip("extra_bytes", below, answer(extra_bytes=below)))
    if limit is not None:
        for size in sorted({e.extra_bytes for e in estimates if e.extra_bytes > limit}):
            other = answer(extra_bytes=size)
            if other.configuration != now.configuration:
                found.append(Flip("extra_bytes", size, other))
                break
    return found


def parameter_flips(advice: Advice) -> list[Flip]:
    """For the advised configuration and for each rival that may run, the factor on each
    of `PARTS` at which the two are level, the nearest first. A part that no factor can
    bring level is left out, and so are a round of fewer than one token and other tokens
    of plain decoding, whose rounds commit one."""
    if not isinstance(advice, Advice):
        raise SpecbookError(f"not an Advice: {advice!r}")
    found: list[Flip] = []
    best = advice.best
    nearest = advice.runner_up
    if nearest is not None:
        # The advised one loses to the next first, whatever part of it is worse.
        found += _level(best, nearest.per_token, nearest)
    for rival in advice.ranking[1:]:
        found += _level(rival, best.per_token, rival)
    return sorted(found, key=lambda flip: flip.distance)


def _level(one: Estimate, per_token: Any, to: Estimate) -> Iterator[Flip]:
    """The factors on the parts of `one` that bring it to `per_token`."""
    factor = one.per_token / per_token
    if one.tokens * factor >= 1 and one.configuration.family != "plain":
        yield Flip("tokens", factor, to, one)
    for part in ("draft", "verify"):
        spent = getattr(one, part)
        left = one.tokens * per_token - (one.cost - spent)
        if spent > 0 and left >= 0:
            yield Flip(part, left / spent, to, one)


def nearest_flips(
    estimates: Sequence[Estimate],
    advice: Advice,
    *,
    needs: Callable[[Any], Needs] = needs_of,
) -> list[Flip]:
    """What to tell: the constraints, then the nearest parameter of all, then the
    nearest that leads to another source."""
    if not isinstance(advice, Advice):
        raise SpecbookError(f"not an Advice: {advice!r}")
    found = constraint_flips(estimates, advice.constraints, needs=needs)
    factors = parameter_flips(advice)
    source = advice.best.configuration.source
    others = [flip for flip in factors if flip.to.configuration.source != source]
    for chosen in (factors[:1], others[:1]):
        found += [flip for flip in chosen if flip not in found]
    return found
