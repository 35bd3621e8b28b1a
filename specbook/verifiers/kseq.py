"""K-SEQ: each of k drafts is tested once against p / rho, the rest of p is corrected.

Contract: k independent drafts of one q at a node, any tree; exact.

beta(rho) = sum over x of min(q(x), p(x) / rho) is what one test accepts, and
s = 1 - (1 - beta)^k what k of them do. A draft is accepted with
min(1, p(x) / (rho q(x))); if none is, the token is drawn from
p - min(q, p / rho) s / beta, renormalised. That is a law exactly if s <= rho beta:
below the root of s = rho beta some token would have been accepted more often than p
allows, and rho = 1 is the mistake of section 0x08B. The smallest such rho accepts most,
and rho = k always will do (section 0x08C; Sun et al. 2023, "SpecTr").

The root is irrational in general. With Fractions the smallest valid multiple of 2^-20
is taken, which is exact; with float64 Newton steps find the root to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

import numpy as np

from .. import checks
from ..chance import Chance
from ..contract import Law, Selection, Verifier, VerifierContract
from ..drafts.samplers import MOST_DRAWS
from ..errors import ContractError
from ..proposal import ProbabilitySemantics, SamplingRelation
from ..tree import CandidateTree
from .coupling import matching
from .walk import Draft, walk

GRID = 2**20
"""An exact rho is a multiple of 1 / GRID."""

_ROUNDING = 1e-12
_NOTHING = 1e-290
"""Below it float64 has no digits left for a ratio, and no output depends on one."""


def choose(
    p: np.ndarray, drafts: Sequence[Draft], chance: Chance, rho: Any = None
) -> Draft | int:
    """The first draft that passes its test, or a draw from the correction. Raises
    `ContractError` for drafts of different laws and for a rho that is too small."""
    q, k = drafts[0].law, len(drafts)
    recorded = drafts[0].recorded
    if not all(np.array_equal(draft.recorded, recorded) for draft in drafts[1:]):
        raise ContractError("kseq: the drafts of a node must have one law")
    if rho is None:
        rho = smallest_rho(p, q, k)
    else:
        rho = matching(rho, p)
    for draft in drafts:
        x = draft.token
        scaled = rho * q[x]
        if chance.flip(1 if p[x] >= scaled else p[x] / scaled):
            return draft
    return chance.draw(correction(p, q, k, rho))


def correction(p: np.ndarray, q: np.ndarray, k: int, rho: Any) -> np.ndarray:
    """The law [V] of the token after k refusals."""
    beta, accepted = _accepted(p, q, k, rho)
    if not beta > (0 if p.dtype == object else _NOTHING):
        return p
    share = accepted / beta
    if share > rho * (1 + (0 if p.dtype == object else _ROUNDING)):
        raise ContractError(f"kseq: rho = {rho} is below the smallest valid one")
    left = np.where(p < rho * q, p * (1 - share / rho), p - q * share)
    # Valid, so nothing here is negative but by float64 rounding.
    left = np.maximum(left, 0)
    total = left.sum()
    return left / total if total > 0 else p


def smallest_rho(p: np.ndarray, q: np.ndarray, k: int) -> Any:
    """The smallest valid rho in [1, k] for the laws p and q [V]: with Fractions the
    smallest valid multiple of 1 / GRID, with float64 the root to rounding."""
    p = checks.law(p, "p")
    q = checks.law(q, "q", size=len(p))
    k = checks.integer(k, "k", least=1, most=MOST_DRAWS)
    if _slack(p, q, k, 1) >= 0:
        return 1
    if p.dtype == object:
        return _exact_root(tuple(p), tuple(q), k)
    if not np.minimum(p, q).sum() > _NOTHING:
        return k
    return _float_root(p, q, k)


def _accepted(p: np.ndarray, q: np.ndarray, k: int, rho: Any) -> tuple[Any, Any]:
    """What one test accepts, and what k of them do."""
    beta = np.minimum(q, p / rho).sum()
    if p.dtype == object:
        return beta, 1 - (1 - beta) ** k
    # Rounding must not lift a probability above 1; nor lose a small one.
    beta = min(float(beta), 1.0)
    return beta, float(-np.expm1(k * np.log1p(-beta))) if beta < 1 else 1.0


def _slack(p: np.ndarray, q: np.ndarray, k: int, rho: Any) -> Any:
    """rho beta - s: it grows with rho, and rho is valid where it is not negative."""
    beta, accepted = _accepted(p, q, k, rho)
    return rho * beta - accepted


@lru_cache(maxsize=256)
def _exact_root(p: tuple[Any, ...], q: tuple[Any, ...], k: int) -> Fraction:
    # An enumeration asks about the same few laws on each of its branches.
    rows = np.array(p, dtype=object), np.array(q, dtype=object)
    low, high = GRID, k * GRID  # below the root, and not below it
    while high - low > 1:
        middle = (low + high) // 2
        if _slack(*rows, k, Fraction(middle, GRID)) >= 0:
            high = middle
        else:
            low = middle
    return Fraction(high, GRID)


def _float_root(p: np.ndarray, q: np.ndarray, k: int) -> float:
    """Newton steps between a bound below the root and one that is not.

    rho beta is rho A + B, where A sums q over the tokens with p >= rho q and B sums p
    over the others. Between two tokens' ratios A and B are fixed, so that several
    steps follow one look at the rows.
    """
    low, high = 1.0, float(k)
    rho, nudge = low, 2.0**-48
    for _ in range(200):
        under = p < rho * q
        # A mask as a factor costs a quarter of a mask as an index.
        a, b = float((q * ~under).sum()), float((p * under).sum())
        slack, _ = _piece(a, b, k, rho)
        if slack < 0:
            low = rho
        else:
            high = rho
        if 0 <= slack <= 1e-14 * (a + b) or high - low <= 4 * nudge:
            return high
        for _ in range(8):
            slack, slope = _piece(a, b, k, rho)
            rho = rho - slack / slope if slope > 0 else high
            if not low < rho < high:
                break
        if rho >= high:
            rho = (low + high) / 2
        # Steps that are lost in rounding must still end at or above the root.
        if rho - low <= low * nudge:
            rho, nudge = low + low * nudge, 2 * nudge
    return high


def _piece(a: float, b: float, k: int, rho: float) -> tuple[float, float]:
    """The slack at rho and its slope, for fixed A and B."""
    beta = min(a + b / rho, 1.0)
    missed = (1 - beta) ** (k - 1)
    accepted = -math.expm1(k * math.log1p(-beta)) if beta < 1 else 1.0
    return rho * a + b - accepted, a + k * missed * b / rho**2


def select(tree: CandidateTree, law: Law, chance: Chance, rho: Any = None) -> Selection:
    """K-SEQ at every node of the accepted path."""
    return walk(tree, law, chance, partial(choose, rho=rho), name="kseq")


def verifier(rho: Any = None) -> Verifier:
    """K-SEQ with a fixed rho, at least 1, in place of the smallest valid one."""
    if rho is not None:
        checks.float64(rho, "rho", least=1)  # both kinds of rows can hold it
    return Verifier(CONTRACT, partial(select, rho=rho))


CONTRACT = VerifierContract(
    name="kseq",
    reads_q=True,
    exact=True,
    probability=frozenset({ProbabilitySemantics.NORMALIZED_CONDITIONAL}),
    sampling=frozenset({SamplingRelation.IID}),
)
VERIFIER = verifier()
