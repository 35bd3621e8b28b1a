"""Typical acceptance: a candidate that the target finds not too unlikely will do.

Contract: reads no q, any sampling relation, any tree; a heuristic. Its output does not
have the target's law, and exact mode refuses it.

A child x is taken for acceptable if p(x) > min(epsilon, delta exp(-H(p))), H being the
entropy of p: a lower bar where the target itself is unsure. Of the paths whose tokens
all are, the longest wins, then the most probable; the token after it is drawn from p
(Cai et al. 2024, "Medusa", with its epsilon = 0.09 and delta = 0.3). One certain draft
a position is then emitted whenever it clears the bar, so that what comes out has the
law of the drafts, not of the target.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from .. import checks
from ..chance import Chance
from ..contract import Law, Selection, Verifier, VerifierContract
from ..proposal import PREFIX_FRONTIER, ProbabilitySemantics, SamplingRelation
from ..tree import CandidateTree
from .walk import target_law

EPSILON, DELTA = 0.09, 0.3


def select(
    tree: CandidateTree,
    law: Law,
    chance: Chance,
    epsilon: float = EPSILON,
    delta: float = DELTA,
) -> Selection:
    """The longest path of acceptable tokens, then a target draw."""
    laws: dict[int, np.ndarray] = {}
    best = (0, 0.0, PREFIX_FRONTIER)  # depth, log-likelihood, row
    paths = [best]
    while paths:
        depth, likelihood, row = paths.pop()
        # The first of equals wins, so that the answer is one of the tree alone.
        if (depth, likelihood) > best[:2]:
            best = (depth, likelihood, row)
        p = laws[row] = target_law(tree, law, row)
        children = tree.children(row)
        if not children:
            continue
        bar = threshold(p, epsilon, delta)
        for child in reversed(children):
            probability = p[tree.token_ids[child]]
            if probability > bar:
                paths.append((depth + 1, likelihood + _log(probability), child))
    row = best[2]
    return Selection(tree.path_rows(row), chance.draw(laws[row]))


def _log(probability: Any) -> float:
    """Of a float, or of a Fraction that may be too small for one."""
    if isinstance(probability, Fraction):
        return math.log(probability.numerator) - math.log(probability.denominator)
    return math.log(probability)


def threshold(p: np.ndarray, epsilon: float = EPSILON, delta: float = DELTA) -> float:
    """min(epsilon, delta exp(-H)) for the law p [V]; H in nats."""
    mass = p.astype(np.float64)
    mass = mass[mass > 0]  # what is too small for float64 has no entropy to speak of
    return min(epsilon, delta * float(np.exp((mass * np.log(mass)).sum())))


def verifier(epsilon: float = EPSILON, delta: float = DELTA) -> Verifier:
    """Typical acceptance with other bars: `epsilon` absolute, `delta` relative to
    exp(-H); both at least 0."""
    epsilon = checks.float64(epsilon, "epsilon", least=0)
    delta = checks.float64(delta, "delta", least=0)
    return Verifier(CONTRACT, partial(select, epsilon=epsilon, delta=delta))


CONTRACT = VerifierContract(
    name="typical",
    reads_q=False,
    exact=False,
    probability=frozenset(ProbabilitySemantics),
    sampling=frozenset(SamplingRelation),
)
VERIFIER = verifier()
