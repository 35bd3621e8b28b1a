"""Faults of the planner: a tree that is best for other numbers (section 0x0A).

None of them changes a token: the rule stays exact. They cost time, and nobody is told.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from ..measure.setup import check_same_machine
from ..topologies import chain
from ..topologies.acceptance import one_row
from ..topologies.hardware import choose
from ..topologies.progress import PlannedTree, check_plan, expected_progress
from ..topologies.sequoia import optimize_tree, selected_from_conditional
from .fault import Fault

_RATES = [Fraction(0), Fraction(3, 5), Fraction(1, 2), Fraction(2, 5)]
"""How often slot b is selected *when the slots before it were refused*."""

_HALVES = [rate / 2 for rate in _RATES]
"""The same, halved: rates that sum to less than 1, so that they pass for selected."""


def _rates(planted: bool) -> list[Any]:
    return one_row(_RATES if planted else selected_from_conditional(_RATES))


def _rates_harm(planted: bool) -> Fraction:
    """What a plan of 12 nodes promises, less what its tree is worth."""
    right = selected_from_conditional(_HALVES)
    plan = optimize_tree(12, None, _HALVES if planted else right)
    return plan.score - expected_progress(plan.tree, right)


def _as_printed(nodes: int, depth: int, slots: list[float]) -> PlannedTree:
    """The article's recurrence as it stands there: a tree that does not exist is worth
    minus infinity, and is multiplied by the probability of its slot."""
    below = np.full(nodes + 1, -np.inf)
    below[1] = 1.0
    for _ in range(depth):
        best = alone = np.full(nodes + 1, -np.inf)
        best[1] = 1.0
        for slot in slots[1:]:
            with np.errstate(invalid="ignore"):
                more = [
                    np.max([alone[y] + slot * below[n - y] for y in range(1, n)])
                    if n > 1
                    else -np.inf
                    for n in range(nodes + 1)
                ]
            alone = np.array(more)
            best = np.maximum(best, alone)
        below = best
    return PlannedTree(
        float(np.max(below)), chain(1), "the recurrence as printed", (tuple(slots),)
    )


def _infinity(planted: bool) -> None:
    slots = [0.0, 0.75, 0.0]
    check_plan(_as_printed(3, 1, slots) if planted else optimize_tree(3, 1, slots))


def _times_p(planted: bool) -> None:
    """A chain of four tokens of acceptance 1/2 is worth 1 + 4/2, or is it?"""
    half = (Fraction(0), Fraction(1, 2))
    tree = chain(4)
    score = 1 + 4 * half[1] if planted else expected_progress(tree, half)
    check_plan(PlannedTree(score, tree, "length times p", (half,)))


def _times_p_harm(planted: bool) -> Fraction:
    half = (Fraction(0), Fraction(1, 2))
    worth = expected_progress(chain(4), half)
    return (1 + 4 * half[1] if planted else worth) - worth


_THERE = {"processor": "one name", "instructions": "AVX512", "threads": 2}


def _machine(planted: bool) -> None:
    here = {**_THERE, "instructions": "AVX2"} if planted else _THERE
    check_same_machine(_THERE, here, "the profile")


def _machine_harm(planted: bool) -> Fraction:
    """The share of the speed that is lost: rows are nearly free where the tree was
    planned, and dear where it runs."""
    slots = [Fraction(0), Fraction(1, 2), Fraction(1, 4), Fraction(1, 8)]
    cheap = {n: 1 + Fraction(n - 1, 150) for n in range(1, 17)}
    dear = {n: 1 + Fraction(2 * (n - 1), 5) for n in range(1, 17)}
    here = choose(slots, dear, Fraction(1, 50))
    planned = choose(slots, cheap if planted else dear, Fraction(1, 50)).best
    steps = dear[planned.nodes] + planned.depth * Fraction(1, 50)
    return 1 - planned.progress / steps / here.speedup


FAULTS: tuple[Fault, ...] = (
    Fault(
        "rates-as-probabilities",
        "plan",
        "0x0AA",
        "rates given that the slots before were refused are read as probabilities",
        "wide trees look better than they are",
        "one number a slot, from 0 to 1, behind the unused zero",
        "specbook.topologies.acceptance.one_row",
        _rates,
        "convert them by selected_from_conditional",
        _rates_harm,
        "tokens a round, promised in vain",
        blind="rates that happen to sum to 1 or less, as the ones of the damage do",
    ),
    Fault(
        "zero-times-infinity",
        "plan",
        "0x0AC",
        "a slot of probability 0 is multiplied with a tree that does not exist",
        "the score is NaN, and every comparison with it is false",
        "a float",
        "specbook.topologies.progress.check_plan",
        _infinity,
        "promises nan tokens",
    ),
    Fault(
        "length-times-p",
        "plan",
        "0x0AA",
        "a chain's progress is taken for its length times the acceptance rate",
        "long drafts look free",
        "a number of tokens",
        "specbook.topologies.progress.check_plan",
        _times_p,
        "is worth 31/16",
        _times_p_harm,
        "tokens a round, promised in vain",
        ("ggml-org/llama.cpp #3649",),
    ),
    Fault(
        "planned-for-another-machine",
        "plan",
        "0x0AE",
        "a tree is taken over with the profile of a machine of the same name",
        "right text, slower than no tree at all",
        "a tree is a list of parents, wherever it runs",
        "specbook.measure.setup.check_same_machine",
        _machine,
        "was measured with instructions 'AVX512'",
        _machine_harm,
        "of the speed",
    ),
)
