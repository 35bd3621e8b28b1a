"""The recurrence against every ordered tree of up to eight nodes (section 0x0AC)."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbook.errors import LawError, SpecbookError, TreeError
from specbook.topologies import sequoia
from specbook.topologies.best_first import best_first_tree, grow
from specbook.topologies.progress import expected_progress, reached, shape_of
from specbook.topologies.sequoia import optimize_tree, selected_from_conditional, solve

from . import ordered

COUNTEREXAMPLE = [0, Fraction(3, 10), Fraction(1, 20), Fraction(3, 5)]


@st.composite
def slots(draw: Any, most: int = 3) -> list[Fraction]:
    """[0, p_1, ..., p_B] with a stop mass that may be 0; zeros and ties are common."""
    weights = draw(st.lists(st.integers(0, 4), min_size=2, max_size=most + 1))
    if not sum(weights):
        weights[0] = 1
    return [Fraction(0), *(Fraction(w, sum(weights)) for w in weights[:-1])]


def check_table(acceptance: Any, rows: list[list[Any]], nodes: int) -> int:
    """Every size and depth of one table against all ordered trees; the trees that are
    read back score what the table says. Returns how many sizes and depths."""
    table = solve(nodes, None if rows is acceptance else nodes - 1, acceptance)
    checked = 0
    best = ordered.best(nodes, rows)
    for d in range(table.max_depth + 1):
        for n in range(1, nodes + 1):
            wanted = best[n][d]
            if wanted is None:
                assert table.score(n, d) == float("-inf")
                with pytest.raises(SpecbookError, match="no tree of"):
                    table.tree(n, d)
                continue
            assert table.score(n, d) == wanted
            planned = table.tree(n, d)
            assert (planned.nodes, planned.score) == (n, wanted)
            assert planned.depth <= d
            if len(planned.tree):
                assert expected_progress(planned.tree, acceptance) == wanted
            assert 1 <= wanted <= min(n, d + 1)
            checked += 1
    return checked


@settings(max_examples=40, deadline=None)
@given(slots())
def test_recurrence_is_the_best_of_all_ordered_trees(p: Any) -> None:
    check_table(p, [p] * 8, 7)


def test_eight_nodes_rising_slots_and_zeros() -> None:
    cases = [
        COUNTEREXAMPLE,
        [0, Fraction(0), Fraction(1, 2)],
        [0, Fraction(1, 2), Fraction(0), Fraction(1, 4)],
        [0, Fraction(1)],
        [0, Fraction(0)],
        selected_from_conditional([0, Fraction(1, 5), Fraction(4, 5)]),
    ]
    for p in cases:
        p = [Fraction(x) for x in p]
        assert check_table(p, [p] * 8, 8) > 8


@settings(max_examples=25, deadline=None)
@given(st.lists(slots(most=2), min_size=2, max_size=4))
def test_slots_by_depth(rows: Any) -> None:
    width = max(map(len, rows))
    rows = [row + [Fraction(0)] * (width - len(row)) for row in rows]
    check_table(rows, rows, 6)


def test_a_table_read_at_the_wrong_depth_would_be_seen() -> None:
    """The planted fault: rows by depth, handed over in reverse."""
    rows = [[0, Fraction(1, 2)], [0, Fraction(1, 5)]]
    assert solve(3, 2, rows).score(3, 2) == 1 + Fraction(1, 2) + Fraction(1, 10)
    assert solve(3, 2, rows[::-1]).score(3, 2) != solve(3, 2, rows).score(3, 2)


def test_low_slots_that_hide_a_high_one_are_filled() -> None:
    best = optimize_tree(4, None, COUNTEREXAMPLE)
    assert best.score == Fraction(39, 20)
    assert best.tree.parents == (-1, -1, -1)
    assert grow(4, None, COUNTEREXAMPLE).scores()[-1] == Fraction(36, 25)


def test_the_articles_oracle() -> None:
    """The toy search's rates, converted; its five-node chain (section 0x0AD)."""
    h = [0, Fraction(82, 100), Fraction(48, 100), Fraction(24, 100)]
    p = selected_from_conditional(h)
    assert p[1:] == [Fraction(41, 50), Fraction(54, 625), Fraction(351, 15625)]
    assert 1 - sum(p) == Fraction(71136, 1000000)
    chain = solve(8, 4, p).tree(5, 4)
    assert chain.tree.parents == (-1, 0, 1, 2)
    assert chain.score == Fraction(349588976, 10**8)
    with pytest.raises(LawError, match="selected_from_conditional"):
        optimize_tree(8, 4, h)


def test_chains_and_budgets_that_do_not_fit() -> None:
    """Public case H26: a chain's progress is no multiple of p, and a budget is a
    limit."""
    half = [0, Fraction(1, 2)]
    table = solve(6, None, half)
    assert [table.score(n, 5) for n in range(1, 7)] == [
        2 - Fraction(1, 2) ** (n - 1) for n in range(1, 7)
    ]
    short = optimize_tree(6, 2, half)
    assert (short.score, short.nodes) == (Fraction(7, 4), 3)
    assert short.tree.parents == (-1, 0)
    assert best_first_tree(6, 2, half).score == Fraction(7, 4)
    floats = optimize_tree(6, 2, [0, 0.5])
    assert (floats.score, floats.nodes) == (1.75, 3)


def test_no_state_becomes_nan() -> None:
    """A slot of 0 times a size that no tree has: a plain port of the recurrence fills
    with NaN here."""
    p = [0.0, 0.6, 0.0, 0.1, 0.0, 0.0]
    table = solve(40, 6, p)
    scores = np.array(
        [[table.score(n, d) for n in range(1, 41)] for d in range(7)], dtype=float
    )
    assert not np.isnan(scores).any()
    assert scores[0, 1] == -np.inf  # two nodes need an edge


def test_of_equal_trees_the_smallest() -> None:
    useless = [0, Fraction(1, 2), Fraction(0)]
    best = optimize_tree(6, 2, useless)
    assert (best.nodes, best.score) == (3, Fraction(7, 4))
    assert optimize_tree(5, None, [0, 0.0]).nodes == 1


def test_floats_agree_with_fractions() -> None:
    rng = random.Random(1)
    for _ in range(20):
        weights = [rng.randrange(1, 50) for _ in range(6)]
        exact = [Fraction(0), *(Fraction(w, sum(weights)) for w in weights[:-1])]
        floats = [float(p) for p in exact]
        one, other = solve(24, 5, exact), solve(24, 5, floats)
        for n in range(6, 25):
            assert abs(float(one.score(n, 5)) - other.score(n, 5)) < 1e-12


def test_simulated_walks_reach_what_the_score_says() -> None:
    """20,000 walks down a tree of 12 nodes; within 6 standard errors (a true score
    fails once in 500 million runs)."""
    p = [0, 0.5, 0.25, 0.1]
    planned = optimize_tree(12, None, p)
    rng = np.random.default_rng(7)
    slots = np.searchsorted(
        np.cumsum(p[1:]), rng.random((20_000, planned.depth)), side="right"
    )
    lengths = []
    for walk in slots.tolist():
        row, length = -1, 1
        for slot in walk:
            child = planned.tree.child_with_token(row, slot)
            if child is None:
                break
            row, length = child, length + 1
        lengths.append(length)
    error = np.std(lengths) / len(lengths) ** 0.5
    assert abs(np.mean(lengths) - planned.score) < 6 * error
    assert abs(np.mean(lengths) - (planned.score + 0.1)) > 6 * error  # it could fail


def test_reached_is_a_product_along_the_path() -> None:
    p = [0, Fraction(1, 2), Fraction(1, 3)]
    planned = solve(7, 2, p).tree(7, 2)
    values = reached(planned.tree, p)
    assert sorted(values) == sorted(
        [Fraction(1, 2), Fraction(1, 3)] + [a * b for a in p[1:] for b in p[1:]]
    )
    with pytest.raises(LawError, match="child 3"):
        reached(planned.tree.from_paths([(2,)], 0), p)
    with pytest.raises(LawError, match="2 deep"):
        reached(planned.tree, [p])


def test_numbers_of_every_kind_are_read() -> None:
    exact = [0, Fraction(1, 2), Fraction(1, 4)]
    wanted = optimize_tree(9, 3, exact)
    for kind in (np.float32, np.float64, object):
        for plan in (optimize_tree, best_first_tree):
            found = plan(9, 3, np.array(exact, dtype=kind))
            assert (found.score, found.nodes) == (wanted.score, wanted.nodes)
            found = plan(9, 3, iter(exact))  # can be read only once
            assert found.score == wanted.score
        rows = optimize_tree(9, 3, np.array([exact] * 3, dtype=kind))
        assert rows.score == wanted.score
    # Fractions of numpy's integers would overflow in a product of a few.
    tiny = [np.int64(0), Fraction(np.int64(1), np.int64(10**9))]
    assert optimize_tree(9, None, tiny).score == sum(
        Fraction(1, 10 ** (9 * i)) for i in range(9)
    )


def test_siblings_come_by_rank_however_they_were_listed() -> None:
    shape = shape_of([-1, -1, 0, 0], [1, 0, 3, 2])
    assert shape.token_ids == (0, 1, 2, 3)
    assert shape.parents == (-1, -1, 1, 1)
    assert shape.prefix_len == 0


@pytest.mark.parametrize("n, d", [(0, 2), (-1, 2), (5, 2), (2, -1), (2, 3)])
def test_a_table_answers_for_its_own_sizes_alone(n: int, d: int) -> None:
    table = solve(4, 2, [0, Fraction(1, 2)])
    for ask in (table.score, table.most, table.tree):
        with pytest.raises(SpecbookError, match="must be at (least|most)"):
            ask(n, d)


@pytest.mark.parametrize(
    ("parents", "ranks", "told"),
    [
        ([1, 0], [0, 0], r"parents\[0\] must be at most -1"),
        ([-1, 1], [0, 0], r"parents\[1\] must be at most 0"),
        ([-2], [0], r"parents\[0\]"),
        ([-1, 0], [0], "1 ranks for 2 parents"),
        ([-1], [0, 0], "2 ranks for 1 parents"),
        ([-1, -1], [0, 0], "repeats"),
        ([-1], [-1], r"ranks\[0\]"),
        ([-1.0], [0], r"parents\[0\]"),
        ("abc", [0, 0, 0], "parents"),
        (None, [], "parents"),
        ([], None, "ranks"),
    ],
)
def test_rows_that_are_no_shape(parents: Any, ranks: Any, told: str) -> None:
    with pytest.raises(TreeError, match=told):
        shape_of(parents, ranks)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((0, 1, [0, 0.5]), "max_nodes"),
        ((True, 1, [0, 0.5]), "max_nodes"),
        ((2.0, 1, [0, 0.5]), "max_nodes"),
        ((sequoia.MAX_NODES + 1, 1, [0, 0.5]), "max_nodes"),
        ((4, -1, [0, 0.5]), "max_depth"),
        ((4, 3, [[0, 0.5]]), "1 depths"),
        ((4, 1, []), "empty"),
        ((4, 1, [0]), "one slot"),
        ((4, 1, [0.5, 0.5]), r"acceptance\[0\]"),
        ((4, 1, [0, 0.7, 0.4]), "sum to"),
        ((4, 1, [0, Fraction(2, 3), Fraction(1, 2)]), "sum to"),
        ((4, 1, [0, -0.1]), r"acceptance\[1\]"),
        ((4, 1, [0, float("nan")]), r"acceptance\[1\]"),
        ((4, 1, [0, float("inf")]), r"acceptance\[1\]"),
        ((4, 1, [0, True]), r"acceptance\[1\]"),
        ((4, 1, [0, "0.5"]), r"acceptance\[1\]"),
        ((4, 1, "0 0.5"), "acceptance"),
        ((4, 1, {0: 0.5}), "acceptance"),
        ((4, 1, None), "acceptance"),
        ((4, 1, [[0, 0.5], 0.5]), r"acceptance\[1\] must be a sequence"),
        ((4, 1, [0, [0, 0.5]]), r"acceptance\[0\] must be a sequence"),
        ((4, 1, [[0, 0.5], [0, 2]]), r"acceptance\[1\]\[1\]"),
        ((4, 1, np.array(0.5)), "acceptance must be a sequence"),
        ((4, 1, [0, [[0.5]]]), r"acceptance\[0\] must be a sequence"),
        ((4, 1, [0, 0.5, Fraction(1, 10**400)]), r"acceptance\[2\] is not 0"),
        ((4, 1, [[0, 0.5], [0, Fraction(1, 10**400)]]), r"acceptance\[1\]\[1\] is not"),
        ((10**30, 1, [0, 0.5]), "max_nodes must be at most"),
    ],
)
@pytest.mark.parametrize("function", [optimize_tree, best_first_tree, grow])
def test_bad_input(function: Any, arguments: Any, told: str) -> None:
    if function is not optimize_tree and arguments[0] == sequoia.MAX_NODES + 1:
        assert function(*arguments)  # its limit is higher
        return
    with pytest.raises(SpecbookError, match=told):
        function(*arguments)
