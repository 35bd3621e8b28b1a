"""The checks that the failure lab found missing: each passes what is right, refuses a
planted fault in words, and refuses what is no question at all."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction as F
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specbook.drafts.lookup_check import check_copy
from specbook.drafts.prompt_lookup import prompt_lookup
from specbook.errors import LawError, SpecbookError, TreeError
from specbook.merging import check_merge
from specbook.models.tiny import tiny_llama
from specbook.oracles import check_law, check_tokens
from specbook.proposal import (
    ProbabilitySemantics,
    Proposal,
    ProposalNode,
    ProposalStateHandle,
    SamplingRelation,
    Topology,
)
from specbook.topologies import chain
from specbook.topologies.best_first import best_first_tree
from specbook.topologies.progress import PlannedTree, check_plan
from specbook.topologies.sequoia import optimize_tree
from specbook.training.packed import check_states, segment_causal_states
from specbook.training.rows import check_rows, head_rows
from specbook.tree import CandidateTree

# --------------------------------------------------------------------- exactness


def test_equal_laws_pass_whatever_holds_them() -> None:
    check_law(
        {(0,): F(1, 2), (1,): F(1, 2)}, {(1,): F(1, 2), (0,): F(1, 2), (2,): F(0)}
    )
    check_law({0: 0.1 + 0.2, 1: 0.7}, {0: 0.3, 1: F(7, 10)})


def test_the_worst_result_and_the_variation_are_told() -> None:
    found, wanted = {(0,): F(3, 4), (1,): F(1, 4)}, {(0,): F(1, 2), (2,): F(1, 2)}
    with pytest.raises(LawError, match=r"\(2,\) has probability 0, .* 1/2; .* 1/2"):
        check_law(found, wanted)
    with pytest.raises(LawError, match="text 0 has probability 0.4, .* 0.5; .* 0.1"):
        check_law({0: 0.4, 1: 0.6}, {0: 0.5, 1: 0.5}, "text")


def test_a_fraction_is_not_rounded_away() -> None:
    tiny = F(1, 10**30)
    with pytest.raises(LawError, match="total variation"):
        check_law({0: F(1, 2) + tiny, 1: F(1, 2) - tiny}, {0: F(1, 2), 1: F(1, 2)})


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        ({}, {0: 1}),
        ({0: 1}, {}),
        ([1], {0: 1}),
        ({0: 1}, None),
        ({0: math.nan}, {0: 1}),
        ({0: True}, {0: 1}),
        ({0: -1}, {0: 1}),
        ({0: "1"}, {0: 1}),
    ],
)
def test_what_is_no_law_is_refused(found: Any, wanted: Any) -> None:
    with pytest.raises(SpecbookError):
        check_law(found, wanted)


@given(st.lists(st.integers(0, 3), max_size=6), st.lists(st.integers(0, 3), max_size=6))
def test_tokens_are_equal_or_the_first_difference_is_told(
    one: list[int], other: list[int]
) -> None:
    if one == other:
        check_tokens(one, other)
        return
    same = 0
    while same < min(len(one), len(other)) and one[same] == other[same]:
        same += 1
    told = f"token {same} of" if same < min(len(one), len(other)) else "ends after"
    with pytest.raises(LawError, match=told):
        check_tokens(one, other)


@pytest.mark.parametrize("bad", [None, "12", [True], [1.0], [-1], 3])
def test_what_are_no_tokens_is_refused(bad: Any) -> None:
    for pair in ((bad, [1]), ([1], bad)):
        with pytest.raises(SpecbookError):
            check_tokens(*pair)


# ----------------------------------------------------------------------- merging


def proposed(*paths: tuple[int, ...], source: str = "s") -> Proposal:
    """Chains that share nothing, with the place of each candidate as its score."""
    nodes: list[ProposalNode] = []
    for path in paths:
        for depth, token in enumerate(path, start=1):
            parent = -1 if depth == 1 else len(nodes) - 1
            score = float(len(nodes))
            nodes.append(ProposalNode(token, parent, depth, score=score, source=source))
    return Proposal(
        tuple(nodes),
        ProbabilitySemantics.SCORE_ONLY,
        SamplingRelation.BEAM,
        Topology.TREE,
        ProposalStateHandle(source, "request-0", 0),
        "",
    )


PATHS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=3), max_size=4)


@given(PATHS, PATHS, st.sampled_from(["breadth", "depth"]))
def test_a_merge_by_full_prefix_passes_in_any_order(
    one: list[list[int]], other: list[list[int]], order: str
) -> None:
    both = [
        proposed(*map(tuple, one), source="a"),
        proposed(*map(tuple, other), source="b"),
    ]
    check_merge(CandidateTree.from_proposals(both, 3, order), both)
    check_merge(CandidateTree.from_proposals(both, 3, order), both[::-1])


def test_what_a_merge_lost_moved_or_made_up_is_named() -> None:
    right = proposed((0, 1), (2, 1))
    tree = CandidateTree.from_proposals(right, 0)
    check_merge(tree, right)
    lost = CandidateTree.from_proposals(proposed((0, 1), (2,)), 0)
    with pytest.raises(TreeError, match=r"path \(2, 1\) has no row"):
        check_merge(lost, right)
    more = CandidateTree.from_proposals(proposed((0, 1), (2, 1), (4,)), 0)
    with pytest.raises(TreeError, match=r"row 2 stands for \(4,\), which nobody"):
        check_merge(more, right)
    moved = replace(tree, sources=(tree.sources[1], tree.sources[0], *tree.sources[2:]))
    with pytest.raises(TreeError, match=r"row 0 stands for \(0,\) and has .*2\.0"):
        check_merge(moved, right)
    twice = proposed((0,), (0,))
    once = replace(CandidateTree.from_proposals(twice, 0))
    once = replace(once, sources=(once.sources[0][:1],))
    with pytest.raises(TreeError, match="row 0"):
        check_merge(once, twice)


@pytest.mark.parametrize(
    ("tree", "proposals"), [(None, []), (chain(1), [3]), (chain(1), 3)]
)
def test_a_merge_of_nothing_we_know(tree: Any, proposals: Any) -> None:
    with pytest.raises(TreeError):
        check_merge(tree, proposals)


# -------------------------------------------------------------------------- plans

SLOTS = [F(0), F(1, 2), F(1, 4)]


@pytest.mark.parametrize("slots", [SLOTS, [float(x) for x in SLOTS], [SLOTS, SLOTS]])
@pytest.mark.parametrize("nodes", [1, 2, 3, 7])
def test_what_the_planners_promise_is_what_their_trees_are_worth(
    nodes: int, slots: Any
) -> None:
    check_plan(optimize_tree(nodes, 2, slots))
    check_plan(best_first_tree(nodes, 2, slots))


@pytest.mark.parametrize("off", [F(1, 10**20), F(-1, 7)])
def test_a_promise_that_is_off_is_refused(off: F) -> None:
    plan = optimize_tree(5, 3, SLOTS)
    with pytest.raises(LawError, match="the plan by recurrence promises"):
        check_plan(replace(plan, score=plan.score + off))


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf, 2.1])
def test_a_float_promise_that_is_none(score: float) -> None:
    plan = optimize_tree(3, 1, [0.0, 0.5, 0.25])
    with pytest.raises(LawError, match="promises"):
        check_plan(replace(plan, score=score))


def test_a_plan_with_another_plans_tree_is_refused() -> None:
    plan = optimize_tree(4, 3, SLOTS)
    with pytest.raises(LawError, match="of 2 nodes"):
        check_plan(PlannedTree(plan.score, chain(1), plan.method, plan.acceptance))
    with pytest.raises(TreeError, match="not a PlannedTree"):
        check_plan(plan.tree)  # type: ignore[arg-type]


# --------------------------------------------------------------------------- rows

SEGMENTS = ["a", "a", "a", "b", "b", "b", "b"]
VALID = [True] * 6 + [False]


def test_the_rows_of_the_rule_pass() -> None:
    check_rows(head_rows(SEGMENTS, VALID, 3), SEGMENTS, VALID)
    check_rows([], [], [])


@pytest.mark.parametrize(
    ("segments", "valid", "told"),
    [
        (["a"] * 7, VALID, "of document 'a', the label is of 'b'"),
        (SEGMENTS, [True] * 7, "place 6 is no input"),
        ([*SEGMENTS, "b"], [True] * 8, "outside the stream|is no input"),
    ],
)
def test_rows_of_another_stream_are_refused(
    segments: Any, valid: Any, told: str
) -> None:
    with pytest.raises(SpecbookError, match=told):
        check_rows(head_rows(segments, valid, 2), SEGMENTS, VALID)


@pytest.mark.parametrize(
    "change",
    [
        lambda part: part._replace(labels=part.labels - 1),
        lambda part: part._replace(hidden=part.hidden + 1),
        lambda part: part._replace(embedded=part.embedded.flip(1)),
        lambda part: part._replace(hidden=part.hidden - 9),
    ],
)
def test_a_row_that_reads_other_places_is_refused(change: Any) -> None:
    good = [True] * 7
    for part in head_rows(SEGMENTS, good, 2)[1:]:
        with pytest.raises(SpecbookError, match="head 2, the row with its label at"):
            check_rows([change(part)], SEGMENTS, good)


@pytest.mark.parametrize("bad", [None, [3], "rows"])
def test_what_are_no_rows(bad: Any) -> None:
    with pytest.raises(SpecbookError):
        check_rows(bad, SEGMENTS, VALID)


# ------------------------------------------------------------------------- states


def test_states_of_a_packed_stream_are_those_of_its_documents() -> None:
    model = tiny_llama()
    tokens, names = [3, 1, 4, 1, 5, 9, 2], [0, 0, 0, 1, 1, 1, 1]
    right = segment_causal_states(model, tokens, names)
    assert check_states(model, tokens, names, right) < 1e-4
    mixed = segment_causal_states(model, tokens, [0] * 7)
    with pytest.raises(SpecbookError, match=r"document 1 \(places 3 to 6\)"):
        check_states(model, tokens, names, mixed)
    assert check_states(model, tokens, [0] * 7, mixed) < 1e-4
    for bad in (right[:-1], torch.full_like(right, math.nan)):
        with pytest.raises(SpecbookError, match="states"):
            check_states(model, tokens, names, bad)


# ------------------------------------------------------------------------- lookups


@given(
    st.lists(st.integers(0, 2), max_size=12),
    st.integers(0, 5),
    st.integers(0, 5),
    st.data(),
)
def test_a_copy_is_the_lookups_own_or_refused(
    text: list[int], longest: int, most: int, data: Any
) -> None:
    right = prompt_lookup(text, longest, most)
    check_copy(text, right, longest, most)
    other = data.draw(st.lists(st.integers(0, 2), max_size=6))
    if other != right:
        with pytest.raises(SpecbookError):
            check_copy(text, other, longest, most)


def test_what_is_wrong_with_a_copy_is_told() -> None:
    text = [4, 5, 6, 9, 5, 7, 4, 5]
    with pytest.raises(SpecbookError, match="3 candidates are offered, the limit is 2"):
        check_copy(text, [6, 9, 5], 2, 2)
    with pytest.raises(SpecbookError, match=r"last 2 tokens .* position 2, .*\[6, 9\]"):
        check_copy(text, [], 3, 2)
    with pytest.raises(SpecbookError, match=r"up to 2 tokens .* \[0\] is offered"):
        check_copy([3, 4, 5], [0], 2, 4)


@pytest.mark.parametrize(
    "asked",
    [
        (None, [], 1, 1),
        ("12", [], 1, 1),
        ([-1], [], 1, 1),
        ([1], None, 1, 1),
        ([1], [True], 1, 1),
        ([1], [], -1, 1),
        ([1], [], 1.0, 1),
        ([1], [], 1, True),
    ],
)
def test_what_is_no_copy_is_refused(asked: Any) -> None:
    with pytest.raises(SpecbookError):
        check_copy(*asked)
