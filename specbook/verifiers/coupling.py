"""The two halves of a maximal coupling: the test of one draft, and what is left of p.

A draft x ~ q is accepted with probability min(1, p(x) / q(x)), so that min(p, q) of
every token's mass is spent on accepted drafts; after a refusal max(p - q, 0),
renormalised, is the law of what must still be emitted. Together they give p, and no
coupling accepts more often than 1 - TV(p, q) (article, section 0x08A).

Written for float64 rows and for object rows of Fractions alike. A residual must be
renormalised, not passed through a softmax, and never drawn from p again (cases H14 and
H15): either would count mass twice.
"""

from __future__ import annotations

import numbers
from fractions import Fraction
from typing import Any

import numpy as np

from ..errors import LawError


def matching(number: Any, row: np.ndarray) -> Any:
    """`number` of the kind of `row`: a Fraction beside Fractions, exactly, or float64.
    numpy's own scalars are no Fractions yet, and its integers would wrap inside one."""
    if row.dtype != object:
        return float(number)
    if isinstance(number, numbers.Rational):
        return Fraction(int(number.numerator), int(number.denominator))
    return Fraction(float(number))


def acceptance(p: np.ndarray, q: np.ndarray, token: int) -> Any:
    """min(1, p / q) at `token`, which was drawn from q [V] and tested against p [V].

    Raises `LawError` where q(token) is 0: such a token cannot have been drawn.
    """
    if not q[token] > 0:
        raise LawError(f"token {token} has q = {q[token]}: it was not drawn from q")
    # Compared first, so that nothing above 1 has to be cut and no tiny q overflows.
    return 1 if p[token] >= q[token] else p[token] / q[token]


def residual(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """max(p - q, 0) / its sum, [V]: the law of what is emitted after a refusal.

    Where p exceeds q nowhere it is p. Of two exact laws that means that they are equal,
    and nothing is ever refused. Of float64 rows it means that they differ by rounding:
    then min(p, q) = p has been spent on accepted drafts, and whatever probability the
    rounding left over is p's in proportion too.
    """
    if p.dtype != q.dtype:
        # Fractions on one side only: the other side's rounding is there anyway.
        p, q = p.astype(np.float64), q.astype(np.float64)
    if p.shape != q.shape:
        raise LawError(f"p has shape {p.shape} and q {q.shape}")
    left = np.maximum(p - q, 0)
    total = left.sum()
    return left / total if total > 0 else p


def carried(w: Any, p: np.ndarray, q: np.ndarray, token: int) -> Any:
    """min(1, w p / q) at `token`, drawn from q [V]: the weight that a path of weight w
    hands on to it (block and traversal verification).

    Raises `LawError` where q(token) is 0.
    """
    if not q[token] > 0:
        raise LawError(f"token {token} has q = {q[token]}: it was not drawn from q")
    mass = w * p[token]
    return 1 if mass >= q[token] else mass / q[token]


def excess(w: Any, p: np.ndarray, q: np.ndarray) -> tuple[Any, np.ndarray]:
    """What a node of weight w keeps when its draw from q [V] was refused: the weight
    s / (s + 1 - w) and the law (w p - q)+ / s, where s is the sum of (w p - q)+.

    Where s is 0 the node keeps nothing; except that a weight of 1 stays 1, with p: then
    p is q, and nothing is refused but by the rounding of float64.
    """
    left = np.maximum(w * p - q, 0)
    s = left.sum()
    if not s > 0:
        return (1 if w == 1 else 0), p
    return s / (s + (1 - w)), left / s
