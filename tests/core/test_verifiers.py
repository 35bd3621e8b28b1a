"""The two rules that read no q, proved on every branch (0x09, 0x04B, 0x08B)."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbook import verifiers
from specbook.chance import Sampler, law
from specbook.contract import TARGET_ROWS, Selection, Verifier
from specbook.errors import ChanceError, LawError, SpecbookError
from specbook.proposal import ProbabilitySemantics, SamplingRelation
from specbook.tree import CandidateTree

from .helpers import must_fail
from .helpers.laws import check_selection, forests, fractions, table_of, tables
from .helpers.rules import (
    FAULTY,
    FAULTY_GREEDY,
    child_against_p,
    fresh_draw,
    stops_early,
)

membership = verifiers.get("membership").select
greedy = verifiers.get("greedy").select

VISIBLE = ([[0, 1], [1, 0]], table_of([[1, 1], [2, 1], [1, 3]], salt=5))
"""Four rows that hold every token: whatever a rule does wrong has room to show."""


def one_hot(table: Any, prefix: tuple[int, ...]) -> np.ndarray:
    row = table(prefix)
    return np.array([Fraction(int(i == row.index(max(row)))) for i in range(len(row))])


# ------------------------------------------------------------------ membership


@settings(max_examples=350, deadline=None)
@given(st.data())
def test_membership_keeps_the_law_on_whole_trees(data: Any) -> None:
    vocab, table = data.draw(tables())
    paths = data.draw(forests(vocab, max_depth=3 if vocab < 4 else 2))
    order = data.draw(st.sampled_from(["breadth", "depth"]))
    check_selection(membership, paths, table, order=order)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_membership_keeps_the_law_at_one_position(data: Any) -> None:
    vocab, table = data.draw(tables())
    drafts = data.draw(st.lists(st.integers(0, vocab - 1), max_size=4))
    check_selection(membership, [[token] for token in drafts], table)


def test_the_check_admits_another_lossless_rule() -> None:
    check_selection(stops_early, *VISIBLE)


@pytest.mark.parametrize("rule", FAULTY, ids=lambda rule: rule.__name__)
def test_faulty_rules_fail_the_same_check(rule: Any) -> None:
    check_selection(membership, *VISIBLE)
    must_fail(check_selection, rule, *VISIBLE)


@pytest.mark.parametrize("rule", FAULTY, ids=lambda rule: rule.__name__)
def test_faulty_rules_fail_at_one_position(rule: Any) -> None:
    paths, table = [[0], [1]], table_of([[1, 2, 3]])
    check_selection(membership, paths, table)
    must_fail(check_selection, rule, paths, table)


def test_what_the_faults_do_by_hand() -> None:
    """p = (1/2, 1/2), one candidate 0: a redraw makes it 3/4 (section 0x08B)."""
    tree = CandidateTree.from_paths([[0]], 0)
    half = fractions([1, 1])

    def first(select: Any) -> Any:
        def program(chance: Any) -> int:
            selection = select(tree, lambda row: half, chance)
            return (
                tree.token_ids[selection.rows[0]]
                if selection.rows
                else (selection.token)
            )

        return law(program)

    assert first(membership) == {0: Fraction(1, 2), 1: Fraction(1, 2)}
    for rule in (fresh_draw, child_against_p):
        assert first(rule) == {0: Fraction(3, 4), 1: Fraction(1, 4)}


def test_h17a_a_lookup_is_accepted_as_often_as_the_target_says() -> None:
    """40,000 seeded draws: 1.5 points are 6.9 standard deviations, so a right rule
    fails with probability below 1e-11 (Gaussian tail; Hoeffding gives 4e-8)."""
    p = fractions([1, 2, 1])
    tree = CandidateTree.from_paths([[2]], 3)

    def block(chance: Any, p: Any = p) -> tuple[tuple[int, ...], int]:
        selection = membership(tree, lambda row: p, chance)
        return selection.rows, 2 if selection.rows else selection.token

    exact = law(block)
    assert exact == {((), 0): p[0], ((), 1): p[1], ((0,), 2): p[2]}
    sampler = Sampler(17)
    floats = np.array([float(x) for x in p])
    taken = [block(sampler, floats) for _ in range(40_000)]
    for result, probability in exact.items():
        share = taken.count(result) / len(taken)
        assert abs(share - float(probability)) < 0.015


def test_membership_draws_once_a_visited_node() -> None:
    asked: list[Any] = []

    class Spy(Sampler):
        def draw(self, weights: Any) -> int:
            asked.append(weights)
            return int(np.argmax(weights))

    tree = CandidateTree.from_paths([[0, 1], [0, 0], [1, 1]], 2)
    selection = membership(tree, lambda row: [0.9, 0.1], Spy(0))
    assert selection.rows == (0, tree.child_with_token(0, 0))
    assert len(asked) == len(selection.rows) + 1


# ---------------------------------------------------------------------- greedy


def check_greedy(select: Any, paths: Any, table: Any, *, hot: bool = False) -> None:
    """The block is the beginning of plain greedy decoding, followed as far as the tree
    reaches and one token further."""
    tree = CandidateTree.from_paths(paths, 1)
    prefixes = dict(enumerate(tree.full_prefixes)) | {-1: ()}
    read = one_hot if hot else (lambda table, prefix: np.array(table(prefix)))
    selection = select(tree, lambda row: read(table, (0, *prefixes[row])), Sampler(0))
    plain: tuple[int, ...] = ()
    while True:
        row = table((0, *plain))
        plain = (*plain, row.index(max(row)))
        if plain not in tree.full_prefixes:
            break
    block = [tree.token_ids[r] for r in tree.check_path(selection.rows)]
    assert (*block, selection.token) == plain


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_greedy_is_plain_decoding(data: Any) -> None:
    vocab, table = data.draw(tables())
    check_greedy(greedy, data.draw(forests(vocab)), table)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_membership_at_temperature_zero_is_greedy(data: Any) -> None:
    vocab, table = data.draw(tables())
    check_greedy(membership, data.draw(forests(vocab)), table, hot=True)


GREEDY_FAULT_CASES = (
    ([[0, 0], [1, 1]], table_of([[1, 1]])),
    ([[1, 0], [0, 1], [0, 0]], table_of([[2, 1], [1, 3], [3, 1]], salt=4)),
    ([[0], [1]], table_of([[1, 3]])),
)


@pytest.mark.parametrize("rule", FAULTY_GREEDY, ids=lambda rule: rule.__name__)
def test_faulty_greedy_rules_fail_the_same_check(rule: Any) -> None:
    caught = 0
    for paths, table in GREEDY_FAULT_CASES:
        check_greedy(greedy, paths, table)
        try:
            check_greedy(rule, paths, table)
        except AssertionError:
            caught += 1
    assert caught >= 1


def test_h13_nothing_after_a_refusal_counts() -> None:
    """Agreement yes, no, yes, yes: one accepted, then the correction."""
    tree = CandidateTree.from_paths([[1, 2, 3, 4]], 5)
    target = {-1: 1, 0: 9, 1: 3, 2: 4, 3: 5}

    def row_law(row: int) -> np.ndarray:
        return np.eye(10)[target[row]]

    for select in (greedy, membership):
        assert select(tree, row_law, Sampler(0)) == Selection((0,), 9)


def test_ties_go_to_the_lowest_id() -> None:
    tree = CandidateTree.from_paths([[1], [0]], 0)
    tied = np.array([0.5, 0.5])
    assert greedy(tree, lambda row: tied, Sampler(0)) == Selection((1,), 0)


def test_the_bonus_token_follows_a_leaf() -> None:
    tree = CandidateTree.from_paths([[1, 0]], 0)
    laws = {-1: [0.0, 1.0], 0: [1.0, 0.0], 1: [0.0, 1.0]}
    for select in (greedy, membership):
        answer = select(tree, lambda row: np.array(laws[row]), Sampler(0))
        assert answer == Selection((0, 1), 1)


def test_h18_membership_never_turns_a_broken_row_into_a_token() -> None:
    tree = CandidateTree.from_paths([[0]], 0)
    nan = float("nan")
    broken: list[Any] = [[nan] * 2, [nan, 1.0], [], [-0.5, 1.5], [0.4, 0.5]]
    for row in broken:
        with pytest.raises((LawError, ChanceError)):
            membership(tree, lambda _, row=row: row, Sampler(0))


# -------------------------------------------------------------------- registry


def test_every_registered_verifier_resolves_and_is_named_as_registered() -> None:
    assert {"greedy", "membership"} <= set(verifiers.names())
    for name in verifiers.names():
        found = verifiers.get(name)
        assert isinstance(found, Verifier)
        assert found.contract.name == name


def test_what_the_two_rules_state_about_themselves() -> None:
    for name, greedy_only in (("greedy", True), ("membership", False)):
        rule = verifiers.get(name).contract
        assert rule.exact and not rule.reads_q and not rule.merges_q
        assert rule.greedy_only is greedy_only
        assert rule.probability == frozenset(ProbabilitySemantics)
        assert rule.sampling == frozenset(SamplingRelation)
        assert rule.topology == TARGET_ROWS


@pytest.mark.parametrize("name", ["", "nope", None, 3, ["greedy"]])
def test_an_unknown_name_lists_the_known_ones(name: Any) -> None:
    with pytest.raises(SpecbookError, match="greedy.*membership"):
        verifiers.get(name)
