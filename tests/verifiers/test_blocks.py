"""Block and traversal verification: the closed forms, and what the rules accept."""

from __future__ import annotations

from fractions import Fraction as F
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbook import verifiers
from specbook.chance import Sampler
from specbook.contract import Selection
from specbook.errors import ContractError
from specbook.tree import CandidateTree
from specbook.verifiers.coupling import carried, excess
from tests.core.helpers import must_fail
from tests.core.helpers.laws import table_of
from tests.core.helpers.sources import proposal_of

from .helpers import (
    P,
    Q,
    TableDrafts,
    check_rounds,
    constant,
    exact,
    expected_drafts,
    node_of,
    weights,
)

ARTICLE = (constant(P), constant(Q))
TOY = (constant([1, 2]), constant([2, 1]))
WOR = "without_replacement"


def drafts(name: str, laws: Any, widths: Any, relation: str = "iid") -> Any:
    return expected_drafts(verifiers.get(name).select, *laws, widths, relation)


@pytest.mark.parametrize(
    ("laws", "length", "single", "block"),
    [
        (TOY, 2, F(10, 9), F(11, 9)),
        (TOY, 3, F(38, 27), F(5, 3)),
        (TOY, 4, F(130, 81), F(166, 81)),
        (ARTICLE, 2, F(171, 100), F(87, 50)),
        (ARTICLE, 3, F(2439, 1000), F(2533, 1000)),
    ],
    ids=["toy-2", "toy-3", "toy-4", "article-2", "article-3"],
)
def test_chains_as_they_were_worked_out(
    laws: Any, length: int, single: Any, block: Any
) -> None:
    chain = (1,) * length
    assert drafts("single", laws, chain) == single
    assert drafts("block", laws, chain) == block
    assert drafts("traversal", laws, chain) == block


@pytest.mark.parametrize(
    ("laws", "widths", "relation", "down", "up"),
    [
        (ARTICLE, (2, 1), "iid", F(893, 500), F(227, 125)),
        (ARTICLE, (2, 1), WOR, F(551, 300), F(28, 15)),
        (ARTICLE, (1, 2), "iid", F(1746, 1000), F(1764, 1000)),
        (TOY, (2, 1), "iid", F(35, 27), F(38, 27)),
        (TOY, (2, 1), WOR, F(5, 3), F(16, 9)),
        (TOY, (2, 2), "iid", F(112, 81), F(118, 81)),
    ],
    ids=[
        "article-21-iid",
        "article-21-wor",
        "article-12",
        "toy-21",
        "toy-21-wor",
        "toy-22",
    ],
)
def test_trees_as_they_were_worked_out(
    laws: Any, widths: Any, relation: str, down: Any, up: Any
) -> None:
    top_down = "specinfer" if relation == "iid" else "sequoia"
    assert drafts(top_down, laws, widths, relation) == down
    assert drafts("traversal", laws, widths, relation) == up


@settings(max_examples=30, deadline=None, derandomize=True, database=None)
@given(st.data())
def test_a_block_is_never_shorter_than_what_single_accepts(data: Any) -> None:
    """And its expected length is the sum of the weights w_i, the probabilities that
    the block reaches position i; traversal of a chain is the same rule."""
    tables = [
        table_of(data.draw(st.lists(weights(2), min_size=2, max_size=4)), salt)
        for salt in (3, data.draw(st.integers(1, 99)))
    ]
    length = data.draw(st.integers(1, 3))
    chain = (1,) * length
    block = drafts("block", tables, chain)
    assert block == drafts("traversal", tables, chain)
    assert block >= drafts("single", tables, chain)
    target, draft = tables
    reached = {(0,): (F(1), F(1))}  # path: (probability of drafting it, w)
    expected = F(0)
    for _ in range(length):
        deeper = {}
        for path, (mass, w) in reached.items():
            for token, q in enumerate(draft(path)):
                if q:
                    after = min(F(1), w * target(path)[token] / q)
                    deeper[(*path, token)] = (mass * q, after)
        reached = deeper
        expected += sum(mass * w for mass, w in reached.values())
    assert block == expected


# ----------------------------------------------------------------- planted faults

# Three tokens: with two a residual is a point, and hides what is wrong with it.
TARGET, DRAFT = constant([5, 3, 2]), constant([8, 1, 1])


def traversal_with(*, change: Any = excess, hand_on: Any = carried) -> Any:
    """Traversal with a part exchanged."""
    from specbook.verifiers.walk import position

    def select(tree: CandidateTree, law: Any, chance: Any) -> Selection:
        def visit(row: int, w: Any) -> Selection | None:
            p, below = position(tree, law, row, name="fault")
            for draft in below:
                weight = hand_on(w, p, draft.law, draft.token)
                if (found := visit(draft.row, weight)) is not None:
                    return found
                w, p = change(w, p, draft.law)
            if chance.flip(w):
                return Selection(tree.path_rows(row), chance.draw(p))
            return None

        found = visit(-1, 1)
        return found or Selection((), chance.draw(law(-1)))

    return verifiers.get("traversal").__class__(
        verifiers.get("traversal").contract, select
    )


FAULTS = {
    "keeps the weight after a refusal": {
        "change": lambda w, p, q: (w, excess(w, p, q)[1])
    },
    "keeps p after a refusal": {"change": lambda w, p, q: (excess(w, p, q)[0], p)},
    "forgets w in the residual": {
        "change": lambda w, p, q: (excess(w, p, q)[0], excess(1, p, q)[1])
    },
    "hands on p / q without w": {"hand_on": lambda w, p, q, x: carried(1, p, q, x)},
}


@pytest.mark.parametrize("name", FAULTS)
def test_traversal_with_a_part_exchanged_is_found(name: str) -> None:
    source = TableDrafts(DRAFT, (1, 1), "iid")
    check_rounds(TARGET, source, traversal_with(), 3, 3)
    must_fail(check_rounds, TARGET, source, traversal_with(**FAULTS[name]), 3, 3)


def block_with(fault: str) -> Any:
    def select(tree: CandidateTree, law: Any, chance: Any) -> Selection:
        rows, weights_, laws, w = [], [1], [], 1
        row = -1
        for row_below in range(len(tree)):
            q = tree.draws(row)[0][1].law
            p = law(row)
            laws.append((p, q))
            token = tree.token_ids[row_below]
            ratio = p[token] / q[token]
            w = w * ratio if fault == "w is not capped" else min(1, w * ratio)
            weights_.append(min(1, w))
            rows.append(row_below)
            row = row_below
        if chance.flip(weights_[-1]):
            return Selection(tuple(rows), chance.draw(law(row)))
        for end in reversed(range(len(rows))):
            w = weights_[end]
            h, rest = excess(w, *laws[end])
            if fault == "h is w":
                h = w
            if fault == "the residual forgets w":
                rest = excess(1, *laws[end])[1]
            if chance.flip(h):
                return Selection(tuple(rows[:end]), chance.draw(rest))
        raise AssertionError("unreachable")

    rule = verifiers.get("block")
    return rule.__class__(rule.contract, select)


@pytest.mark.parametrize(
    "fault", ["w is not capped", "h is w", "the residual forgets w"]
)
def test_block_with_a_part_exchanged_is_found(fault: str) -> None:
    source = TableDrafts(DRAFT, (1, 1), "iid")
    check_rounds(TARGET, source, block_with("none"), 3, 3)
    must_fail(check_rounds, TARGET, source, block_with(fault), 3, 3)


# --------------------------------------------------------------------- by hand


def test_block_takes_chains_only() -> None:
    row = exact([1, 1])
    made = proposal_of([], semantics="normalized_conditional", relation="iid")
    import dataclasses

    two = dataclasses.replace(made, nodes=(node_of(0, row), node_of(1, row)))
    tree = CandidateTree.from_proposals(two, 0)
    with pytest.raises(ContractError, match="2 candidates"):
        verifiers.get("block").select(tree, lambda _: row, Sampler(0))
    for name in ("block", "traversal", "specinfer", "kseq"):
        bare = CandidateTree.from_paths([[0, 1]], 0, sources=["s"])
        with pytest.raises(ContractError, match=f"{name}: row 0 comes without"):
            verifiers.get(name).select(bare, lambda _: row, Sampler(0))
        unmarked = CandidateTree.from_paths([[0, 1]], 0)
        with pytest.raises(ContractError, match=f"{name}: a child of row -1"):
            verifiers.get(name).select(unmarked, lambda _: row, Sampler(0))


def test_a_weight_that_is_spent_accepts_nothing_below() -> None:
    """q drafts what p forbids: the subtree is skipped, and its rows are not asked."""
    asked = []
    nodes = (node_of(0, exact([1, 0])), node_of(1, exact([0, 1]), 0, 2))
    import dataclasses

    made = proposal_of([], semantics="normalized_conditional", relation="iid")
    tree = CandidateTree.from_proposals(dataclasses.replace(made, nodes=nodes), 0)

    def law(row: int) -> Any:
        asked.append(row)
        return exact([0, 1])

    found = verifiers.get("traversal").select(tree, law, Sampler(0))
    assert found == Selection((), 1) and asked == [-1]


def test_the_two_helpers_at_their_limits() -> None:
    p, q = exact([1, 1]), exact([1, 1])
    assert excess(1, p, q)[0] == 1
    assert excess(1, p, q)[1] is p
    assert excess(F(1, 2), p, q)[0] == 0
    weight, rest = excess(F(1, 2), exact([1, 0]), exact([1, 3]))
    assert weight == F(1, 4) / (F(1, 4) + F(1, 2)) and rest.tolist() == [1, 0]
    assert carried(F(1, 2), exact([1, 0]), exact([1, 3]), 0) == 1
    assert carried(F(1, 2), exact([1, 3]), exact([1, 1]), 0) == F(1, 4)
    tiny = np.array([1.0, 5e-324])
    assert carried(1, tiny, np.array([5e-324, 1.0]), 0) == 1
    with pytest.raises(ValueError, match="q = 0"):
        carried(1, p, exact([1, 0]), 1)
