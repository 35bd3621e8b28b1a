"""A draft that follows a planned tree: its shape, its laws, and the output's law."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbook.chance import Sampler, law
from specbook.drafts.neural.draft_model import DraftModel
from specbook.engine import generate
from specbook.errors import SpecbookError
from specbook.models.table import TableTarget
from specbook.topologies import cartesian, chain
from specbook.topologies.progress import shape_of
from specbook.tree import CandidateTree
from tests.core.helpers.laws import plain_law, table_of

from .drafting import PLAIN, Counting, check_rounds, path_to

FOUR = table_of([[1, 2, 3, 1], [2, 1, 1, 4]], salt=6)
TARGET = table_of([[1, 2], [3, 1], [1, 1]], salt=2)
DRAFT = table_of([[2, 1], [1, 3]], salt=5)
WIDE_LEFT = shape_of([-1, -1, 0, 0, 2], [0, 1, 0, 1, 0])
"""Two candidates; the first has two children, of which the first has one."""


@st.composite
def shapes(draw: Any) -> CandidateTree:
    parents: list[int] = []
    ranks: list[int] = []
    for row in range(draw(st.integers(1, 9))):
        parent = draw(st.integers(-1, row - 1))
        if parents.count(parent) < 4:
            parents.append(parent)
            ranks.append(parents.count(parent) - 1)
        else:
            parents.append(row - 1)
            ranks.append(0)
    return shape_of(parents, ranks)


def drafted(shape: CandidateTree, kind: str, **budget: int) -> Any:
    source = DraftModel(TableTarget(FOUR, vocab_size=4), shape=shape, children=kind)
    budget = {"max_depth": 99, "max_nodes": 99, **budget}
    return source.start([0]).propose(chance=Sampler(3), **budget)


def as_shape(proposal: Any) -> CandidateTree:
    """The ranks of what was drafted: the r-th under a node has rank r."""
    seen: dict[int, int] = {}
    ranks = []
    for node in proposal.nodes:
        ranks.append(seen.get(node.parent, 0))
        seen[node.parent] = ranks[-1] + 1
    return shape_of([node.parent for node in proposal.nodes], ranks)


def check_output(source: DraftModel, rule: str) -> None:
    """Four tokens through the engine have the plain law."""
    model = TableTarget(TARGET, vocab_size=2)

    def program(chance: Any) -> tuple[int, ...]:
        made = generate(
            model,
            [0],
            source,
            rule,
            max_new_tokens=4,
            temperature=1,
            chance=chance,
            clock=lambda: 0.0,
        )
        return tuple(made.tokens)

    assert law(program) == plain_law(TARGET, (0,), 4)


@settings(max_examples=60, deadline=None)
@given(shapes(), st.sampled_from(["without_replacement", "top_k"]))
def test_what_is_drafted_has_the_shape(shape: CandidateTree, kind: str) -> None:
    found = as_shape(drafted(shape, kind))
    assert (found.parents, found.token_ids) == (shape.parents, shape.token_ids)


def test_widths_are_a_shape() -> None:
    for widths in ((1, 1, 1), (2, 2), (3, 1)):
        made = [
            DraftModel(TableTarget(FOUR, vocab_size=4), **options)
            .start([0])
            .propose(max_depth=9, max_nodes=99, chance=Sampler(1))
            .nodes
            for options in ({"widths": widths}, {"shape": cartesian(widths)})
        ]
        assert made[0] == made[1]


def test_a_planned_chain_meets_the_rule_that_it_was_planned_with() -> None:
    source = DraftModel(TableTarget(DRAFT, vocab_size=2), shape=chain(2))
    assert source.is_chain and source.contract.topology == "tree"
    check_output(source, "sequoia")


def test_a_budget_cuts_from_the_end() -> None:
    whole = drafted(WIDE_LEFT, "top_k").nodes
    for nodes in range(len(whole) + 1):
        assert drafted(WIDE_LEFT, "top_k", max_nodes=nodes).nodes == whole[:nodes]
    flat = drafted(WIDE_LEFT, "top_k", max_depth=1)
    assert [node.depth for node in flat.nodes] == [1, 1]


@pytest.mark.parametrize("kind", ["without_replacement", "iid"])
def test_laws_follow_the_published_path(kind: str) -> None:
    source = DraftModel(TableTarget(FOUR, vocab_size=4), shape=WIDE_LEFT, children=kind)
    made = check_rounds(
        source, lambda p: PLAIN.law_from_probabilities(FOUR(tuple(p))), rounds=14
    )
    assert max(len(proposal.nodes) for proposal in made) == len(WIDE_LEFT)


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        ("without_replacement", "sequoia"),
        ("iid", "specinfer"),
        ("iid", "traversal"),
        ("top_k", "membership"),
    ],
)
def test_the_output_has_the_plain_law(kind: str, rule: str) -> None:
    shape = shape_of([-1, -1, 0], [0, 1, 0])
    drawn = TableTarget(DRAFT, vocab_size=2)
    check_output(DraftModel(drawn, shape=shape, children=kind), rule)


def test_leaves_of_the_plan_cost_no_row() -> None:
    """Five candidates, of which two have children: the model computes these two."""
    counting = Counting(FOUR, vocab_size=4)
    session = DraftModel(counting, shape=WIDE_LEFT, children="top_k").start([0])
    proposal = session.propose(max_depth=9, max_nodes=99, chance=Sampler(0))
    inner = {node.parent for node in proposal.nodes} - {-1}
    assert counting.rows == len(inner) == 2
    assert path_to(proposal, len(proposal.nodes) - 1)


def test_the_shape_is_part_of_the_identity() -> None:
    table = TableTarget(FOUR, vocab_size=4)
    names = {
        DraftModel(table, shape=shape).identity()
        for shape in (WIDE_LEFT, chain(5), cartesian([5]))
    }
    assert len(names) == 3


def test_a_tuned_draft_takes_a_shape() -> None:
    made = DraftModel.tuned(TableTarget(FOUR, vocab_size=4), shape=WIDE_LEFT)
    assert made.widths is None and made.plan.depth == 3


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"shape": "chain"}, "CandidateTree"),
        ({"shape": CandidateTree.from_paths([], 0)}, "empty"),
        ({"shape": CandidateTree.from_paths([(1,)], 0)}, r"ranks \[1\]"),
        ({"shape": CandidateTree.from_paths([(0, 2), (0, 0)], 0)}, "row 0"),
        ({"shape": chain(2), "widths": (1, 1)}, "not both"),
        ({"shape": cartesian([3]), "children": "hub"}, "pairs"),
    ],
)
def test_bad_shapes(options: Any, told: str) -> None:
    with pytest.raises(SpecbookError, match=told):
        DraftModel(TableTarget(FOUR, vocab_size=4), **options)


def test_another_shape_would_be_seen() -> None:
    other = as_shape(drafted(cartesian([2, 1]), "top_k"))
    assert other.parents != WIDE_LEFT.parents
    assert np.array_equal(as_shape(drafted(chain(2), "top_k")).parents, (-1, 0))
