"""The linear program over all lossless rules of a small tree."""

from __future__ import annotations

from fractions import Fraction as F
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from specbook import controls, verifiers
from specbook.chance import law
from specbook.errors import LawError, SpecbookError
from specbook.oracles import RELATIONS, optimal_acceptance, tree_lp, tree_optimum
from specbook.verifiers.walk import walk
from tests.core.helpers import must_fail
from tests.core.helpers.laws import table_of
from tests.verifiers.helpers import (
    TableDrafts,
    constant,
    exact,
    expected_drafts,
    tree_of,
)

from .helpers import ARTICLE, SINGLE, TOY, questions

SLACK = 1e-9

KNOWN = [
    (ARTICLE, (2, 1), "iid", F(2)),
    (ARTICLE, (2, 1), "without_replacement", F(2)),
    (ARTICLE, (1, 2), "iid", F(9, 5)),
    (ARTICLE, (2, 2), "iid", F(2)),
    (ARTICLE, (2, 2), "without_replacement", F(2)),
    (TOY, (2, 1), "iid", F(131, 81)),
    (TOY, (2, 1), "without_replacement", F(17, 9)),
    (TOY, (2, 2), "iid", F(1271, 729)),
]


@pytest.mark.parametrize(
    ("laws", "widths", "sampling", "optimum"),
    KNOWN,
    ids=[
        f"{'article' if laws is ARTICLE else 'toy'}-{widths}-{sampling}"
        for laws, widths, sampling, _ in KNOWN
    ],
)
def test_the_known_optima(laws: Any, widths: Any, sampling: str, optimum: F) -> None:
    p, q = laws
    found = tree_optimum(p, q, widths, sampling)
    assert abs(found.accepted - optimum) < SLACK


def test_one_family_for_a_token_that_came_twice_can_accept_less() -> None:
    p, q = TOY
    one = tree_optimum(p, q, (2, 1), families="one")
    assert abs(one.accepted - F(41, 27)) < SLACK
    assert one.trees < tree_optimum(p, q, (2, 1)).trees
    # Without replacement nothing comes twice.
    for families in ("one", "apart"):
        found = tree_optimum(p, q, (2, 1), "without_replacement", families=families)
        assert abs(found.accepted - F(17, 9)) < SLACK


def expanded(q: Any, widths: Any, sampling: str) -> dict[Any, Any]:
    """The law of the trees that `samplers.expand` draws, merged as decoding merges."""
    source = TableDrafts(q, widths, str(RELATIONS[sampling]))
    return law(lambda chance: frozenset(tree_of(source, (), chance).full_prefixes))


@pytest.mark.parametrize("sampling", SINGLE)
def test_with_one_family_the_trees_are_those_that_are_drawn(sampling: str) -> None:
    """Laws that depend on the history: `tree_optimum` bounds what decodes."""
    for seed in range(6):
        _, table = histories(seed)
        for widths in ((2, 2),) if sampling == "hub" else ((2, 1), (1, 2), (2, 2)):
            program = tree_lp._drawn(table, 2, list(widths), sampling, "one")
            assert program == expanded(table, widths, sampling)


def test_families_apart_are_independent_chains() -> None:
    """Two draws of one token have two continuations, each its own."""
    _, table = histories(3)
    apart: dict[Any, Any] = {}
    for x, y in product(range(2), repeat=2):
        for a, b in product(range(2), repeat=2):
            paths = frozenset([(x,), (y,), (x, a), (y, b)])
            first = table(())[x] * table(())[y]
            mass = first * table((x,))[a] * table((y,))[b]
            if mass:
                apart[paths] = apart.get(paths, 0) + mass
    assert tree_lp._drawn(table, 2, [2, 1], "iid", "apart") == apart
    # The planted fault: as if a token that came twice had one family.
    assert tree_lp._drawn(table, 2, [2, 1], "iid", "one") != apart


def test_a_tree_can_beat_the_best_rule_at_every_node() -> None:
    """One position is not a tree: 1 + 0.9 node by node, 2 for the article's pair."""
    p, q = ARTICLE
    by_node = optimal_acceptance(p, q, 2) * (1 + optimal_acceptance(p, q, 1))
    assert by_node == F(19, 10)
    assert tree_optimum(p, q, (2, 1)).accepted > by_node + F(1, 11)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(questions(most=4, deepest=3))
def test_at_depth_one_it_is_the_optimum_of_a_position(question: Any) -> None:
    p, q, k, sampling = question
    if sampling != "independent":
        found = tree_optimum(p, q, (k,), sampling).accepted
        assert abs(found - optimal_acceptance(p, q, k, sampling)) < SLACK


def histories(seed: int) -> tuple[Any, Any]:
    """A target's and a draft's table whose laws depend on the whole history."""
    generator = np.random.default_rng(seed)
    target, draft = (
        table_of(generator.integers(0, 4, (3, 2)) + [[1, 0]], int(salt))
        for salt in generator.integers(1, 997, 2)
    )
    return target, draft


def check_bound(select: Any, laws: Any, widths: Any, sampling: str) -> float:
    """The rule accepts no more than the program's value; returns what is missing."""
    target, draft = laws
    found = tree_optimum(
        lambda path: target((0, *path)),
        lambda path: draft((0, *path)),
        widths,
        sampling,
        families="one",
    )
    relation = str(RELATIONS[sampling])
    reached = expected_drafts(select, target, draft, widths, relation)
    assert reached <= found.accepted + SLACK
    return found.accepted - float(reached)


TREES = [
    ("specinfer", "iid"),
    ("traversal", "iid"),
    ("kseq", "iid"),
    ("membership", "iid"),
    ("sequoia", "without_replacement"),
    ("traversal", "without_replacement"),
    ("one_hot", "top_k"),
    ("greedy_draft", "greedy_draft"),
    ("spechub", "hub"),
]


@pytest.mark.parametrize(("name", "sampling"), TREES)
def test_no_rule_accepts_more(name: str, sampling: str) -> None:
    for seed in range(4):
        for widths in ((2, 2),) if sampling == "hub" else ((2, 1), (1, 2), (2, 2)):
            if name == "greedy_draft" and 1 in widths:
                continue  # a greedy draft of one is one draw
            check_bound(verifiers.get(name).select, histories(seed), widths, sampling)


@pytest.mark.parametrize("name", ["block", "traversal"])
def test_block_verification_is_optimal_on_chains(name: str) -> None:
    for seed in range(8):
        for depth in (2, 3):
            missing = check_bound(
                verifiers.get(name).select, histories(seed), (1,) * depth, "iid"
            )
            assert missing < SLACK


def test_top_down_verification_is_not() -> None:
    laws = constant([1, 2]), constant([2, 1])
    missing = check_bound(verifiers.get("specinfer").select, laws, (1, 1), "iid")
    assert abs(missing - (F(11, 9) - F(10, 9))) < SLACK


def test_a_rule_that_is_not_lossless_is_found() -> None:
    """The planted fault: the one-draft test, repeated, accepts more than anybody may
    (every draft of the toy is likelier drafted than wanted)."""

    def select(tree: Any, law: Any, chance: Any) -> Any:
        return walk(tree, law, chance, controls.repeats, name="repeats")

    laws = constant([1, 4]), constant([4, 1])
    check_bound(verifiers.get("specinfer").select, laws, (2, 2), "iid")
    must_fail(check_bound, select, laws, (2, 2), "iid")


@pytest.mark.parametrize(
    ("change", "error", "told"),
    [
        ({"sampling": "independent"}, SpecbookError, "sampling must be one of"),
        ({"families": "many"}, SpecbookError, "families must be one of"),
        ({"widths": (2, 0)}, SpecbookError, r"widths\[1\] must be at least 1"),
        ({"widths": (True,)}, SpecbookError, r"widths\[0\] must be an integer"),
        ({"widths": 2}, SpecbookError, "widths must be a sequence"),
        ({"target": [0.5, 0.6]}, LawError, "target sums to"),
        ({"draft": [F(1)]}, LawError, "has 1 entries, expected 3"),
        ({"draft": lambda path: [F(1, 2)] * 2}, LawError, r"draft after \(\) has 2"),
        ({"widths": [1] * 14}, SpecbookError, "more than 2000000 coefficients"),
        ({"sampling": "hub", "widths": (2, 1)}, SpecbookError, "hub"),
    ],
)
def test_bad_input_is_refused_by_name(change: Any, error: Any, told: str) -> None:
    p, q = ARTICLE
    with pytest.raises(error, match=told):
        tree_optimum(**{"target": p, "draft": q, "widths": (2, 1), **change})


def test_a_program_that_is_too_large_is_refused_while_it_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tree_lp, "MAX_ENTRIES", 200)
    with pytest.raises(SpecbookError, match="more than 200 coefficients"):
        tree_optimum(*ARTICLE, (2, 1))


def test_no_drafts_accept_nothing() -> None:
    p, q = ARTICLE
    assert tree_optimum(p, q, ()).accepted == 0
    sure = exact([0, 1, 0])
    for sampling in SINGLE:
        found = tree_optimum(sure, sure, (2, 2), sampling)
        assert abs(found.accepted - 2) < SLACK
