"""The exercises of 0x0A: rates and probabilities, what a tree is worth, best first."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np

from ..topologies.acceptance import selected_from_conditional
from ..topologies.progress import expected_progress, shape_of
from ..topologies.sequoia import optimize_tree, solve
from ..tree import CandidateTree
from . import Exercise

Slots = list[Fraction]


def _falling(rng: np.random.Generator, slots: int) -> Slots:
    weights = sorted(rng.integers(1, 9, size=slots).tolist(), reverse=True)
    total = sum(weights) + int(rng.integers(1, 9))
    return [Fraction(0), *(Fraction(w, total) for w in weights)]


# --------------------------------------------------------------- 0x0A-selected


def _selected_cases(rng: np.random.Generator) -> Iterator[Slots]:
    yield [Fraction(0), Fraction(1, 2)]
    yield [Fraction(0), Fraction(41, 50), Fraction(12, 25), Fraction(6, 25)]
    yield [Fraction(0), Fraction(1), Fraction(1, 2)]
    for slots in (2, 3, 4, 5):
        rates = rng.integers(0, 7, size=slots)
        rates[0] = rng.integers(1, 6)  # a first rate of 0 or 1 hides most mistakes
        yield [Fraction(0), *(Fraction(int(r), 6) for r in rates)]


def _selected_mistake(h: Slots, value: Any, truth: Slots) -> str | None:
    try:
        found = [Fraction(v) for v in value]
    except (TypeError, ValueError):
        return "return a list of Fractions, as long as the rates."
    if found == truth[1:]:
        return "keep the unused zero in front: slot b stands at place b."
    if len(found) != len(h):
        return f"{len(h)} numbers are asked for, the unused zero first."
    if found == list(h):
        return "those are the rates; slot 2 is tried only where slot 1 was refused."
    total = sum(truth)
    if total and found == [p / total for p in truth]:
        return "you made them sum to one; what is missing is the chance of none."
    left = accumulate(h[1:], lambda x, rate: x * (1 - rate), initial=Fraction(1))
    if found == [1 - x for x in left]:
        return "that is the chance that any slot so far was selected."
    if sum(found) > 1:
        return f"they sum to {sum(found)}: more than one child would be selected."
    return None


# ------------------------------------------------------------------ 0x0A-worth

Worth = tuple[list[int], list[int], Slots]


def _shape(rng: np.random.Generator, nodes: int, slots: Slots) -> CandidateTree:
    """A shape with depth and width, so that both kinds of mistake show."""
    parents, ranks = [-1, -1, 0], [0, 1, 0]
    while len(parents) < nodes:
        parent = int(rng.integers(-1, len(parents)))
        rank = parents.count(parent)
        if rank + 1 < len(slots):
            parents.append(parent)
            ranks.append(rank)
    return shape_of(parents, ranks)


def _worth_cases(rng: np.random.Generator) -> Iterator[Worth]:
    yield [], [], [Fraction(0), Fraction(1, 2)]
    yield [-1, 0, 1], [0, 0, 0], [Fraction(0), Fraction(1, 2)]
    for nodes in (3, 5, 7, 9):
        slots = _falling(rng, 4)
        shape = _shape(rng, nodes, slots)
        yield list(shape.parents), list(shape.token_ids), slots


def _worth(case: Worth) -> Fraction:
    parents, ranks, slots = case
    return Fraction(expected_progress(shape_of(parents, ranks), slots))


def _worth_mistake(case: Worth, value: Any, truth: Fraction) -> str | None:
    parents, ranks, slots = case
    try:
        found = Fraction(value)
    except (TypeError, ValueError):
        return "return one number, a Fraction."
    if found == truth - 1:
        return "count the root too: a round commits one token in any case."
    if found == 1 + sum((slots[rank + 1] for rank in ranks), Fraction(0)):
        return "a row counts only if all rows above it were selected: multiply."
    first = [slots[1]] * len(ranks)
    values: list[Fraction] = []
    for parent, slot in zip(parents, first, strict=True):
        values.append(slot if parent < 0 else values[parent] * slot)
    if found == 1 + sum(values, Fraction(0)):
        return "every rank has a slot of its own: rank r stands at place r + 1."
    if found == 1 + len(parents):
        return "those are the rows; most of them are seldom reached."
    if found > min(len(parents) + 1, shape_of(parents, ranks).max_depth + 1):
        return "more than a path can hold."
    return None


# ------------------------------------------------------------- 0x0A-every-size

Budget = tuple[int, Slots]


def _every_size_cases(rng: np.random.Generator) -> Iterator[Budget]:
    yield 1, [Fraction(0), Fraction(1, 2)]
    yield 5, [Fraction(0), Fraction(1, 2)]
    yield 6, [Fraction(0), Fraction(1, 2), Fraction(1, 4)]
    for n in (8, 12, 16):
        yield n, _falling(rng, 5)


def _every_size(case: Budget) -> tuple[list[Fraction], int]:
    """By the recurrence; it looks at every node of every best tree."""
    n, slots = case
    table = solve(n, n - 1, slots)
    scores = [Fraction(table.score(size, n - 1)) for size in range(1, n + 1)]
    return scores, sum(range(1, n + 1)) * (len(slots) - 1)


def _answer(value: Any) -> tuple[list[Fraction], int]:
    scores, looked = value
    return [Fraction(score) for score in scores], int(looked)


def _every_size_right(case: Budget, value: Any, truth: Any) -> bool:
    return _answer(value)[0] == truth[0]


def _every_size_cost(case: Budget, value: Any) -> int:
    return _answer(value)[1]


def _every_size_mistake(case: Budget, value: Any, truth: Any) -> str | None:
    n, slots = case
    try:
        scores, _ = _answer(value)
    except (TypeError, ValueError):
        return "return two things: the list of scores, and how many you looked at."
    if len(scores) != n:
        return f"{n} scores are asked for, of 1 to {n} nodes; you gave {len(scores)}."
    if scores[0] == 0:
        return "one node is the root alone, and worth 1."
    powers = accumulate((slots[1] ** d for d in range(1, n)), initial=Fraction(1))
    if scores == list(powers):
        return "that is a chain; a second child is often worth more than a fifth level."
    flat = optimize_tree(n, 1, slots).score
    if scores[-1] == flat and flat < truth[0][-1]:
        return "nodes below the first level may be worth more than late siblings."
    place = next(i for i in range(n) if scores[i] != truth[0][i])
    return f"{place + 1} nodes: you say {scores[place]}, the best is {truth[0][place]}."


EXERCISES = {
    exercise.id: exercise
    for exercise in (
        Exercise(
            "0x0A-selected",
            "Turn rates given refusals into selected-child probabilities.",
            _selected_cases,
            selected_from_conditional,
            _selected_mistake,
        ),
        Exercise(
            "0x0A-worth",
            "How many tokens is a round with this tree expected to commit?",
            _worth_cases,
            _worth,
            _worth_mistake,
        ),
        Exercise(
            "0x0A-every-size",
            "The best G of every size up to n, for slots that do not increase.",
            _every_size_cases,
            _every_size,
            _every_size_mistake,
            cost=_every_size_cost,
            cost_unit="nodes looked at",
            right=_every_size_right,
        ),
    )
}
