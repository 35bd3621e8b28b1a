"""Draws without replacement from a large vocabulary: a race, and one integral.

Let every token x arrive at an exponential time of rate q(x). The order of arrival is
the order of drawing without replacement. The first k are all in H exactly if k tokens
of H arrive before the first of the others, whose rate is c = 1 - q(H):

    f(H) = integral over t of  c exp(-c t) F(t),   F(t) = P(k of H arrived by t).

F(t) is the tail of a sum of independent coins, one a token. For the beginnings of a
row, H = the first m tokens, one pass over the tokens updates it for all m, at all
points t at once: O(V k M) for M points.

Where t is long against 1/a, a the k-th largest q, nothing decays that 1/c does not: F
is 1 there, or c >= a. So `(1 - exp(-a t)) ** k` is taken off F, whose integral is the
product of `j a / (j a + c)` for j from 1 to k; what is left vanishes at both ends,
faster than any power of log t on the right, and like `t ** (k + 1)` on the left. On the
axis of log t it is analytic in a strip, so the plain trapezoidal sum converges
exponentially. The more drafts, the steeper F: the time of the k-th of many arrivals
spreads like 1 / sqrt(k) on that axis, and the points must lie that much closer.
"""

from __future__ import annotations

import math

import numpy as np

from ..errors import SpecbookError

ERROR = 1e-11
"""The error of `within`, absolute; what tests find is below 1e-13."""

STEP = 0.15
"""Between points, in log t, for up to `_FEW` drafts; more drafts, smaller steps."""

MOST_WORK = 1 << 36
"""Tokens times drafts times points: about a minute."""

_FEW = 16
_NOTHING = 1e-20
_LONG = 45.0  # e^-45 < 1e-19
_BLOCK = 1 << 18


def within(q: np.ndarray, k: int, *, step: float = STEP) -> np.ndarray:
    """P(the first k draws without replacement are all among the first m + 1 tokens),
    for every m; `q`: float64 [V] without zeros, of more than k tokens.

    `step`: in place of `STEP`. Raises `SpecbookError` where the k-th largest q is too
    small for the times, and for more than `MOST_WORK`.
    """
    step *= min(1.0, math.sqrt(_FEW / k))
    a = float(np.partition(q, len(q) - k)[len(q) - k])
    longest = _LONG / a
    if not math.isfinite(longest):
        raise SpecbookError(f"the {k}-th largest q is {a}: too small for float64 times")
    # The point at which t^(k + 1) / k! is nothing; k! itself leaves float64 at 171.
    shortest = math.exp((math.log(_NOTHING) + math.lgamma(k + 1)) / (k + 1))
    points = math.ceil(math.log(longest / shortest) / step) + 1
    times = longest * np.exp(step * np.arange(1 - points, 1))
    baseline = (-np.expm1(-a * times)) ** k
    # Sums from the far end, so that a small c keeps its digits.
    outside = np.append(np.cumsum(q[:0:-1])[::-1], 0.0)

    # A token that has not arrived by the longest time decides nothing.
    live = np.flatnonzero(q * longest > _NOTHING)
    if len(live) * (k + 1) * points > MOST_WORK:
        raise SpecbookError(
            f"{k} draws without replacement from {len(q)} tokens: the integral would "
            f"take {len(live)} times {k + 1} times {points} products, more than "
            f"{MOST_WORK}"
        )
    c = outside[live]
    found = np.ones(len(live))
    for j in range(1, k + 1):
        found *= j * a / (j * a + c)
    state = np.zeros((k + 1, points))  # P(j arrived), the last row: k or more
    state[0] = 1.0
    size = max(1, _BLOCK // points)
    for start in range(0, len(live), size):
        block = slice(start, start + size)
        arrived = _advance(state, q[live[block]], times)
        weights = c[block, None] * times
        weights *= np.exp(-weights)
        arrived -= baseline
        found[block] += step * np.einsum("mt,mt->m", weights, arrived)
    # Every beginning has the value of its last live token.
    last = np.searchsorted(live, np.arange(len(q)), side="right")
    return np.concatenate([[0.0], found])[last]


def _advance(state: np.ndarray, rates: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Lets the tokens of `rates` [B] join, one after the other; F [B, M] after each."""
    hits = -np.expm1(-np.outer(rates, times))
    arrived = np.empty_like(hits)
    moved = np.empty_like(state[:-1])
    for number, hit in enumerate(hits):
        np.multiply(state[:-1], hit, out=moved)
        state[:-1] -= moved
        state[1:] += moved
        arrived[number] = state[-1]
    return arrived
