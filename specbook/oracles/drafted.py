"""A question about one position: the target's law, the drafts' laws, the sampling.

Every oracle takes the same four arguments and reads them here: p [V], q [V] (for
`independent` a list of rows, one a draft), the number of drafts k, and the name of the
sampling relation. The drafts themselves come from `drafts.samplers`, the code that
drafts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from .. import checks
from ..chance import Chance, law
from ..drafts import samplers
from ..drafts.samplers import MOST_DRAWS, SAMPLERS, Draw
from ..errors import LawError, SpecbookError
from ..proposal import SamplingRelation

RELATIONS: Mapping[str, SamplingRelation] = {
    "iid": SamplingRelation.IID,
    "independent": SamplingRelation.INDEPENDENT,
    "without_replacement": SamplingRelation.WITHOUT_REPLACEMENT,
    "top_k": SamplingRelation.BEAM,
    "greedy_draft": SamplingRelation.GREEDY_PLUS_ONE,
    "hub": SamplingRelation.HUB,
}
"""What each name of a sampling is, as a proposal states it."""

MAX_VECTORS = 1 << 17
"""More vectors of drafts than this are not listed one by one."""


@dataclass(frozen=True)
class Position:
    """A checked question. `rows` holds one law [V], or for `independent` k of them; all
    laws are object arrays of Fractions, or all are float64."""

    p: np.ndarray
    rows: tuple[np.ndarray, ...]
    k: int
    sampling: str

    @property
    def q(self) -> np.ndarray:
        """The one law that the drafts come from."""
        (q,) = self.rows
        return q

    @property
    def exact(self) -> bool:
        """Whether the laws are Fractions."""
        return self.p.dtype == object

    @property
    def relation(self) -> SamplingRelation:
        """The sampling, as a proposal states it."""
        return RELATIONS[self.sampling]

    def draw(self, chance: Chance) -> list[Draw]:
        """The drafts, in the order of drawing."""
        if self.sampling == "independent":
            return samplers.independent(self.rows, chance)
        return SAMPLERS[self.relation](self.q, self.k, chance)

    def as_fractions(self) -> Position:
        """The same question in Fractions. A float is read as the decimal that Python
        prints for it (0.1 is 1/10), and a row is divided by its exact sum."""
        return self if self.exact else self._with(_read)

    def summing_to_one(self) -> Position:
        """Float rows divided by their sums, which may miss 1 by the tolerance of
        `checks.law`; exact rows as they are."""
        return self if self.exact else self._with(lambda row: row / row.sum())

    def _with(self, change: Any) -> Position:
        return replace(self, p=change(self.p), rows=tuple(map(change, self.rows)))


def ask(p: Any, q: Any, k: Any, sampling: Any) -> Position:
    """The question about target law `p` and `k` drafts of `q`, checked.

    One float row makes all of them float. Raises `LawError` for what is no law or of
    another size than p, `SpecbookError` for a wrong k or sampling.
    """
    checks.one_of(sampling, "sampling", list(RELATIONS))
    k = checks.integer(k, "k", least=1, most=MOST_DRAWS)
    p = checks.law(p, "p")
    if sampling == "independent":
        laws = list(q) if isinstance(q, np.ndarray) and q.ndim else q
        laws = checks.entries(laws, "q", "rows, one for each draft", LawError)
        rows = [checks.law(row, f"q[{i}]", size=len(p)) for i, row in enumerate(laws)]
        if len(rows) != k:
            raise SpecbookError(
                f"independent drafts need a row of q each: k is {k}, q has {len(rows)}"
            )
    else:
        rows = [checks.law(q, "q", size=len(p))]
    if sampling == "hub" and k != 2:
        raise SpecbookError(f"a hub pair has two candidates, k is {k}")
    if any(row.dtype != object for row in (p, *rows)):
        # Where one side rounds, the other's exactness is of no use.
        p, *rows = (row.astype(np.float64) for row in (p, *rows))
    return Position(p, tuple(rows), k, str(sampling))


def count_of_vectors(asked: Position) -> int:
    """How many ordered vectors of drafts can come, at most; for draws that are
    independent or without replacement, exactly."""
    supports = [int(np.count_nonzero(row)) for row in asked.rows]
    first, others = supports[0], len(asked.p) - supports[0]
    drawn = min(asked.k, first)
    more = min(asked.k - drawn, others)  # from the uniform fallback
    counts = {
        "iid": first**asked.k,
        "independent": math.prod(supports),
        "without_replacement": math.perm(first, drawn) * math.perm(others, more),
        "top_k": 1,
        "greedy_draft": first,
        "hub": 2 * first,
    }
    return counts[asked.sampling]


def check_reach(asked: Position) -> None:
    """Raises `SpecbookError` for more than `MAX_VECTORS` vectors of drafts."""
    count = count_of_vectors(asked)
    if count > MAX_VECTORS:
        # Of a number that no page holds, its size is enough.
        told = str(count) if count < 10**15 else f"about 2^{count.bit_length()}"
        raise SpecbookError(
            f"{asked.k} drafts make {told} vectors, more than {MAX_VECTORS}; "
            "optimal_acceptance does not list them"
        )


def vectors(asked: Position) -> tuple[dict[tuple[int, ...], int], int]:
    """Every ordered vector of drafts that can come, as a whole number of parts, and
    how many parts there are, as few as can be: the probability of X is
    `parts[X] / scale`, exactly.

    `asked`: a question in Fractions. Raises `SpecbookError` for more than
    `MAX_VECTORS` vectors.
    """
    check_reach(asked)
    if asked.sampling not in ("iid", "independent"):
        listed: dict[Any, Any] = law(
            lambda chance: tuple(draw.token for draw in asked.draw(chance)),
            max_branches=MAX_VECTORS + 1,
        )
        return in_parts(listed)
    # Q(X) is a product (section 0x08C): nothing to walk through.
    rows = asked.rows if asked.sampling == "independent" else asked.rows * asked.k
    found: dict[tuple[int, ...], int] = {(): 1}
    scale = 1
    for row in rows:
        parts, whole = in_parts(dict(enumerate(row.tolist())))
        drawn = [(x, part) for x, part in parts.items() if part]
        found = {(*X, x): mass * part for X, mass in found.items() for x, part in drawn}
        scale *= whole
    spare = math.gcd(scale, *found.values())
    return {X: mass // spare for X, mass in found.items()}, scale // spare


def in_parts(masses: Mapping[Any, Fraction]) -> tuple[dict[Any, int], int]:
    """Fractions as whole numbers over their least common denominator, and that."""
    scale = math.lcm(*(mass.denominator for mass in masses.values()))
    parts = {
        key: mass.numerator * (scale // mass.denominator)
        for key, mass in masses.items()
    }
    return parts, scale


def _read(row: np.ndarray) -> np.ndarray:
    decimals = np.array([Fraction(repr(x)) for x in row.tolist()], dtype=object)
    return decimals / decimals.sum()
