"""Best-first growth: when it is the optimum, when not, and what is done then."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbook.errors import LawError, SpecbookError
from specbook.topologies.acceptance import (
    conditional_from_selected,
    from_histogram,
    increasing_slots,
    one_row,
    selected_from_conditional,
)
from specbook.topologies.best_first import (
    admit,
    best_first_tree,
    grow,
    grow_batch,
    isotonic,
)
from specbook.topologies.progress import expected_progress
from specbook.topologies.sequoia import solve

from .test_recurrence import COUNTEREXAMPLE, slots


@settings(max_examples=80, deadline=None)
@given(slots(most=4), st.integers(1, 6))
def test_where_no_slot_increases_it_is_the_recurrence(p: Any, depth: int) -> None:
    p = [p[0], *sorted(p[1:], reverse=True)]
    assert increasing_slots(p) == []
    growth = grow(14, depth, p)
    table = solve(14, depth, p)
    for n, score in enumerate(growth.scores(), start=1):
        assert score == table.score(n, depth)
        assert expected_progress(growth.shape(n), p) == score


@pytest.mark.parametrize("n", [0, 5])
def test_a_growth_has_no_tree_of_another_size(n: int) -> None:
    growth = grow(4, None, [0, Fraction(1, 2)])
    assert growth.shape(4).node_count == 3
    with pytest.raises(SpecbookError, match="n must be at"):
        growth.shape(n)


@settings(max_examples=40, deadline=None)
@given(st.lists(slots(most=3), min_size=1, max_size=4))
def test_also_by_depth(rows: Any) -> None:
    rows = [[row[0], *sorted(row[1:], reverse=True)] for row in rows]
    growth, table = grow(10, None, rows), solve(10, None, rows)
    for n, score in enumerate(growth.scores(), start=1):
        assert score == table.score(n, table.max_depth)


def test_increasing_slots_are_found_and_named() -> None:
    assert increasing_slots(COUNTEREXAMPLE) == [(0, 3)]
    assert increasing_slots([[0, 0.5, 0.2], [0, 0.1, 0.2]]) == [(2, 2)]
    rates = [0, Fraction(1, 5), Fraction(4, 5)]
    assert increasing_slots(selected_from_conditional(rates)) == [(0, 2)]
    with pytest.raises(LawError, match="slot 3"):
        best_first_tree(4, None, COUNTEREXAMPLE, increasing="refuse")
    with pytest.raises(LawError, match="slot 2 at depth 2"):
        best_first_tree(4, None, [[0, 0.5], [0, 0.1, 0.2]], increasing="refuse")
    with pytest.raises(SpecbookError, match="increasing"):
        best_first_tree(4, None, COUNTEREXAMPLE, increasing="ignore")


def test_the_answer_is_the_optimum_either_way() -> None:
    found = best_first_tree(4, None, COUNTEREXAMPLE)
    assert (found.method, found.score) == ("recurrence", Fraction(39, 20))
    rng = random.Random(3)
    for _ in range(30):
        weights = [rng.randrange(9) for _ in range(4)] + [1]
        p = [Fraction(0), *(Fraction(w, sum(weights)) for w in weights[:-1])]
        found = best_first_tree(9, 4, p)
        assert found.score == solve(9, 4, p).most(9, 4)[1]
        assert found.method == ("recurrence" if increasing_slots(p) else "best-first")


def test_isotonic_slots_are_recorded() -> None:
    p = [0, 0.3, 0.05, 0.6]
    found = best_first_tree(4, None, p, increasing="isotonic")
    assert found.method == "best-first on isotonic slots"
    (row,) = found.acceptance
    assert increasing_slots(row) == [] and row != tuple(p)
    assert sum(row) == pytest.approx(sum(p))
    assert row == pytest.approx((0, *[0.95 / 3] * 3))
    heavy = isotonic(p, [0, 1000, 1, 1])
    weighted = best_first_tree(
        4, None, p, increasing="isotonic", weights=[0, 1000, 1, 1]
    )
    assert weighted.acceptance == (tuple(heavy),)
    assert heavy[1] == pytest.approx((300 + 0.65) / 1002)
    for wrong, told in (
        ([0, 1, 0, 1], "positive"),
        ([0, 1], "1 for 3 slots"),
        ([0, 1, 1, 1, 1], "4 for 3 slots"),
        ([0, 1, None, 1], r"weights\[2\]"),
        (3, "weights"),
    ):
        with pytest.raises(LawError, match=told):
            isotonic(p, wrong)
    for wrong, told in ((3, "weights"), ([[0, 1]], "1 rows"), ([[0, 1], 3], r"\[1\]")):
        with pytest.raises(LawError, match=told):
            isotonic([[0, 0.3], [0, 0.2]], wrong)
    with pytest.raises(LawError, match="weights are for isotonic"):
        best_first_tree(4, None, p, weights=[0, 1, 1, 1])


def test_growth_stops_where_the_slots_end() -> None:
    assert len(grow(100, 2, [0, 0.5, 0.3]).values) == 6
    assert len(grow(100, 0, [0, 0.5]).values) == 0
    assert best_first_tree(1, None, [0, 0.5]).nodes == 1
    # A node of value 0 is a row that costs and brings nothing.
    assert best_first_tree(50, None, [0, 0.5, 0.0]).tree.max_depth == 49
    assert best_first_tree(50, 2, [0, 0.5, 0.0]).nodes == 3


def test_a_long_chain_needs_no_recursion() -> None:
    shape = grow(5_000, None, [0, 1.0]).shape(5_000)
    assert (len(shape), shape.max_depth) == (4_999, 4_999)


# ------------------------------------------------------------------------ a batch


def best_total(survivals: Any, budget: int) -> Any:
    """By every way of dividing the budget."""
    return max(
        sum(sum(row[:count]) for row, count in zip(survivals, counts, strict=True))
        for counts in itertools.product(*(range(len(row) + 1) for row in survivals))
        if sum(counts) <= budget
    )


def test_a_batch_admits_the_most_probable() -> None:
    rng = random.Random(5)
    for _ in range(200):
        survivals = [
            sorted(
                (Fraction(rng.randrange(9), 8) for _ in range(rng.randrange(5))),
                reverse=True,
            )
            for _ in range(rng.randrange(1, 4))
        ]
        survivals = [[min(s, Fraction(1)) for s in row] for row in survivals]
        budget = rng.randrange(8)
        counts = admit(survivals, budget)
        total = sum(
            sum(row[:count]) for row, count in zip(survivals, counts, strict=True)
        )
        assert sum(counts) == min(budget, sum(map(len, survivals)))
        assert total == best_total(survivals, budget)
    assert admit([[0.9, 0.1], [0.5, 0.5]], 3) == [1, 2]


def test_a_batch_of_trees_shares_one_budget() -> None:
    p, q = [0, Fraction(1, 2), Fraction(1, 4)], [0, Fraction(9, 10), Fraction(1, 20)]
    for budget in range(9):
        shapes = grow_batch(budget, 3, [p, q])
        total = sum(
            expected_progress(shape, slots)
            for shape, slots in zip(shapes, (p, q), strict=True)
        )
        one, other = solve(budget + 1, 3, p), solve(budget + 1, 3, q)
        assert sum(map(len, shapes)) == budget
        assert total == max(
            one.score(a + 1, 3) + other.score(budget - a + 1, 3)
            for a in range(budget + 1)
        )
    with pytest.raises(LawError, match=r"acceptances\[1\]"):
        grow_batch(4, None, [p, COUNTEREXAMPLE])
    with pytest.raises(LawError, match=r"acceptances\[1\]"):
        grow_batch(4, None, [p, [0, 2]])
    assert [len(shape) for shape in grow_batch(4, None, [iter(p), iter(q)])] == [0, 4]


@pytest.mark.parametrize(
    ("survivals", "budget", "told"),
    [
        ([[0.5, 0.6]], 1, r"survivals\[0\]\[1\]"),
        ([[1.5]], 1, r"survivals\[0\]\[0\]"),
        ([[0.5], [float("nan")]], 1, r"survivals\[1\]\[0\]"),
        ([[0.5]], -1, "budget"),
        ([0.5], 1, r"survivals\[0\]"),
        ("x", 1, "survivals"),
    ],
)
def test_bad_batches(survivals: Any, budget: Any, told: str) -> None:
    with pytest.raises(SpecbookError, match=told):
        admit(survivals, budget)


# ------------------------------------------------------------------------ layouts


@settings(max_examples=60, deadline=None)
@given(st.lists(st.fractions(0, 1, max_denominator=9), min_size=1, max_size=5))
def test_rates_and_slots_convert_both_ways(h: Any) -> None:
    p = selected_from_conditional([0, *h])
    left = Fraction(1)
    for rate, slot in zip(h, p[1:], strict=True):
        assert slot == left * rate
        left -= slot
    assert sum(p) <= 1
    back = conditional_from_selected(p)
    assert selected_from_conditional(back) == p
    alive = [h[i] for i in range(len(h)) if all(rate < 1 for rate in h[:i])]
    assert back[1 : len(alive) + 1] == alive


def test_histograms_of_both_kinds() -> None:
    assert from_histogram([0, 6, 3, 1], none_last=True) == [
        0,
        Fraction(6, 10),
        Fraction(3, 10),
    ]
    assert from_histogram([0, 6, 3, 1], none_last=False)[-1] == Fraction(1, 10)
    of_numpy = from_histogram([np.int64(0), np.int64(1), np.int64(2)], none_last=True)
    assert of_numpy == [0, Fraction(1, 3)] and isinstance(of_numpy[1], Fraction)
    with pytest.raises(LawError, match=r"counts\[0\]"):
        from_histogram([1, 1], none_last=False)
    for counts, told in (([0, 0], "all 0"), ([0, -1, 2], "negative"), ([1, 1], "zero")):
        with pytest.raises(LawError, match=told):
            from_histogram(counts, none_last=False)
    with pytest.raises(SpecbookError, match="none_last"):
        from_histogram([0, 1], none_last=1)


def test_one_row_says_what_and_where() -> None:
    assert one_row([0, 1, 0]) == [0, 1, 0]
    with pytest.raises(LawError, match=r"rates\[2\]"):
        one_row([0, 0.5, 1.5], "rates")
    with pytest.raises(LawError, match=r"h\[1\]"):
        selected_from_conditional([0, 1.5])


@pytest.mark.parametrize("bad", [5, "slots", None])
def test_a_batch_is_a_sequence_of_slots(bad: Any) -> None:
    with pytest.raises(LawError, match="acceptances must be a sequence"):
        grow_batch(3, None, bad)
