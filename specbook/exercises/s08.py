"""The exercises of 0x08_optimal_transport: a coupling, the optimum, a witness."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from .. import controls
from ..oracles import optimal_acceptance, transport
from . import Exercise

Law = list[Fraction]


def _law(weights: Iterable[int]) -> Law:
    return controls.exact([int(w) for w in weights]).tolist()


def _row(values: Sequence[Any]) -> np.ndarray:
    return np.array([Fraction(v) for v in values], dtype=object)


# -------------------------------------------------------------- 0x08-coupling

Pair = tuple[Law, Law]
Plan = list[list[Any]]


def _coupling_cases(rng: np.random.Generator) -> Iterator[Pair]:
    yield _law([5, 3, 2]), _law([4, 4, 2])
    yield _law([1, 1]), _law([1, 0])
    yield _law([1, 2, 3]), _law([1, 2, 3])
    yield _law([1, 0, 0]), _law([0, 1, 1])
    for size in (2, 3, 4, 5):
        yield _law(rng.integers(1, 6, size=size)), _law(rng.integers(0, 5, size) + 1)


def _coupling(case: Pair) -> Plan:
    """One draft is a vector of one: the flow's plan, as a table."""
    p, q = case
    plan = transport(_row(p), _row(q), 1).coupling
    size = range(len(p))
    return [[plan.get(((x,), y), Fraction(0)) for y in size] for x in size]


def _table(case: Pair, value: Any) -> Plan:
    """The answer as exact numbers [V][V]. Raises where it is no such table."""
    size = len(case[0])
    plan = [[Fraction(mass) for mass in row] for row in value]
    if len(plan) != size or any(len(row) != size for row in plan):
        raise ValueError(f"{size} rows of {size} numbers are asked for")
    return plan


def _coupling_right(case: Pair, value: Any, truth: Plan) -> bool:
    p, q = case
    plan = _table(case, value)
    return (
        all(mass >= 0 for row in plan for mass in row)
        and [sum(row) for row in plan] == q
        and [sum(column) for column in zip(*plan, strict=True)] == p
    )


def _coupling_cost(case: Pair, value: Any) -> Fraction:
    plan = _table(case, value)
    return 1 - sum((plan[x][x] for x in range(len(plan))), Fraction(0))


def _coupling_mistake(case: Pair, value: Any, truth: Plan) -> str | None:
    p, q = case
    try:
        plan = _table(case, value)
    except (TypeError, ValueError):
        size = len(p)
        return f"return {size} rows of {size} Fractions: a row a draft, [x][y]."
    if any(isinstance(mass, float) for row in value for mass in row):
        return "floats cannot hold a third, and sums are compared exactly: Fractions."
    if any(mass < 0 for row in plan for mass in row):
        return "a mass is negative; move only what is there."
    rows = [sum(row) for row in plan]
    columns = [sum(column) for column in zip(*plan, strict=True)]
    if rows == p and columns == q:
        return "turned over: rows are drafts, columns are emitted tokens."
    if rows != q:
        x = next(i for i in range(len(q)) if rows[i] != q[i])
        return f"row {x} adds up to {rows[x]}; draft {x} comes with {q[x]}."
    again = [min(a, b) for a, b in zip(p, q, strict=True)]
    refused = 1 - sum(again)
    if columns == [m + refused * a for m, a in zip(again, p, strict=True)]:
        return (
            "you drew the correction from p. What was accepted has been paid for "
            "already: draw from max(p - q, 0), renormalised."
        )
    y = next(i for i in range(len(p)) if columns[i] != p[i])
    return f"token {y} is emitted with {columns[y]} and p wants {p[y]}."


# --------------------------------------------------------------- 0x08-optimum

Drafts = tuple[Law, Law, int]


def _drafts(rng: np.random.Generator, k: int, size: int) -> Drafts:
    return _law(rng.integers(1, 7, size=size)), _law(rng.integers(1, 7, size=size)), k


def _optimum_cases(rng: np.random.Generator) -> Iterator[Drafts]:
    yield _law([5, 3, 2]), _law([4, 4, 2]), 2
    yield _law([1, 1]), _law([1, 0]), 4
    yield _law([1, 3, 6]), _law([3, 1, 1]), 2
    yield _law([1, 2, 3]), _law([1, 2, 3]), 3
    for k in (1, 2, 3, 5):
        yield _drafts(rng, k, int(rng.integers(4, 9)))


def _optimum(case: Drafts) -> Fraction:
    p, q, k = case
    return Fraction(optimal_acceptance(_row(p), _row(q), k))


def _least(case: Drafts, order: Callable[[int], Any]) -> Fraction:
    """The least p(H) - q(H)^k over the beginnings of an order."""
    p, q, k = case
    least = mine = theirs = Fraction(0)
    for x in sorted(range(len(p)), key=order):
        mine, theirs = mine + p[x], theirs + q[x]
        least = min(least, mine - theirs**k)
    return least


def _optimum_mistake(case: Drafts, value: Any, truth: Fraction) -> str | None:
    p, q, k = case
    pairs = list(zip(p, q, strict=True))
    known = [
        (sum(min(a, b) for a, b in pairs), "that is one draft; there are k of them."),
        (
            min(Fraction(1), sum(min(a, k * b) for a, b in pairs)),
            "the sum of min(p, k q) is an upper bound: it forgets that drafts repeat.",
        ),
        (
            sum(a * (1 - (1 - b) ** k) for a, b in pairs),
            "that is membership, where the token is drawn without looking at the "
            "drafts. A rule may look.",
        ),
        (truth - 1, "add the 1: the minimum is what is lost."),
        (
            1 + _least(case, lambda x: (q[x] == 0, -p[x] / q[x] if q[x] else 0)),
            "sort by p/q with the smallest first.",
        ),
        (
            1 + _least(case, lambda x: p[x]),
            "sort by p/q, not by p: what counts is p against what q offers.",
        ),
    ]
    for mistake, words in known:
        if value == mistake:
            return words
    if value > truth:
        return "more than any rule can accept; is some set H left out?"
    return None


# --------------------------------------------------------------- 0x08-witness

MOST_TOKENS = 6
"""Larger witnesses would take long to walk through."""


@dataclass(frozen=True)
class WrongRule:
    """A rule of `specbook.controls` to be tried: called with a chance, p and a row of q
    for each draft, it returns its tokens."""

    name: str

    def __call__(self, chance: Any, p: Any, q: Any) -> tuple[int, ...]:
        """One run: the tokens that the rule emits."""
        rows = [_row(row) for row in q]
        return controls.get(self.name).wrong(chance, _row(p), rows)

    def __repr__(self) -> str:
        return f"rule({self.name!r})"


Suspect = tuple[WrongRule, int]
Witness = tuple[Sequence[int], Sequence[Sequence[int]]]


def _witness_cases(rng: np.random.Generator) -> Iterator[Suspect]:
    hidden = [
        "draws without replacement to the rule for independent ones",
        "independent draws to the rule for draws without replacement",
        "second draft scored with the first one's q",
        "the longer of two answers",
    ]
    for name in hidden:
        yield WrongRule(name), len(controls.get(name).q)


def _witness(case: Suspect) -> Witness:
    control = controls.get(case[0].name)
    return control.p, control.q


def _read(case: Suspect, value: Any) -> tuple[list[int], list[list[int]]]:
    """The weights of p, and of q for each draft. Raises where they are none."""
    p, q = value
    if any(w != int(w) for row in (p, *q) for w in row):
        raise ValueError("weights are whole numbers: 1 and 3, not 0.25 and 0.75")
    p, q = [int(w) for w in p], [[int(w) for w in row] for row in q]
    if len(q) != case[1] or any(len(row) != len(p) for row in q):
        raise ValueError("p and every row of q have one length; q has k rows")
    if not 2 <= len(p) <= MOST_TOKENS:
        raise ValueError(f"2 to {MOST_TOKENS} tokens")
    return p, q


def _witness_right(case: Suspect, value: Any, truth: Witness) -> bool:
    return bool(controls.get(case[0].name).variation(*_read(case, value)) > 0)


def _witness_mistake(case: Suspect, value: Any, truth: Witness) -> str | None:
    try:
        p, q = _read(case, value)
        variation = controls.get(case[0].name).variation(p, q)
    except (TypeError, ValueError) as error:
        return f"return weights p and {case[1]} rows of weights q ({error})."
    if variation == 0:
        return (
            "on this instance the law comes out right. Enumerate other small ones "
            "until one does not."
        )
    return None


EXERCISES = {
    exercise.id: exercise
    for exercise in (
        Exercise(
            id="0x08-coupling",
            question=(
                "coupling(p, q): a table of Fractions; entry [x][y] is the probability "
                "that the draft is x and the emitted token y. Rows add up to q, "
                "columns to p. The score is the mass off the diagonal."
            ),
            cases=_coupling_cases,
            oracle=_coupling,
            diagnose=_coupling_mistake,
            right=_coupling_right,
            cost=_coupling_cost,
            cost_unit="of probability refused",
        ),
        Exercise(
            id="0x08-optimum",
            question=(
                "optimum(p, q, k): the largest acceptance of any lossless rule for k "
                "independent drafts of q, as a Fraction."
            ),
            cases=_optimum_cases,
            oracle=_optimum,
            diagnose=_optimum_mistake,
        ),
        Exercise(
            id="0x08-witness",
            question=(
                "witness(rule, k): an instance on which the wrong rule is caught: "
                "integer weights p, and k rows of weights q. rule(chance, p, q) "
                "returns the tokens of one run."
            ),
            cases=_witness_cases,
            oracle=_witness,
            diagnose=_witness_mistake,
            right=_witness_right,
        ),
    )
}
