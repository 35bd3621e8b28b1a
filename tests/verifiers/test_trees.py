"""Whole trees and several rounds, through the engine: conditional laws that depend on
the whole history, drawn candidates, and everything enumerated."""

from __future__ import annotations

from fractions import Fraction as F
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbook import controls, verifiers
from specbook.chance import law
from specbook.contract import Verifier
from specbook.drafts.neural.draft_model import DraftModel
from specbook.models.table import TableTarget
from specbook.verifiers.specinfer import choose as specinfer_choose
from specbook.verifiers.walk import walk
from tests.core.helpers import must_fail
from tests.core.helpers.laws import table_of
from tests.core.helpers.rules import contract

from .helpers import (
    TableDrafts,
    check_outputs,
    check_rounds,
    constant,
    exact,
    generated,
    weights,
)

TREES = [
    ("specinfer", "iid"),
    ("sequoia", "without_replacement"),
    ("kseq", "iid"),
    ("greedy_draft", "greedy_plus_one"),
    ("spechub", "hub"),
    ("one_hot", "beam"),
    ("one_hot", "without_replacement"),
    ("membership", "beam"),
    ("traversal", "iid"),
    ("traversal", "without_replacement"),
]
CHAINS = [("single", "iid"), ("block", "iid"), ("traversal", "iid")]
SHAPES = [(2, (2, 1)), (2, (1, 2)), (2, (2, 1)), (2, (1, 2)), (2, (2, 2)), (3, (2, 1))]
EXAMPLES = 100


@st.composite
def histories(draw: Any, vocab: int) -> Any:
    """A law for every prefix, chosen by every token of it."""
    rows = draw(st.lists(weights(vocab), min_size=2, max_size=4))
    return table_of(rows, draw(st.integers(1, 997)))


@pytest.mark.parametrize(("name", "relation"), TREES)
def test_whole_trees_have_the_plain_law(name: str, relation: str) -> None:
    rounds = []

    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None)
    @given(st.data())
    def check(data: Any) -> None:
        vocab, widths = data.draw(st.sampled_from(SHAPES))
        if relation == "hub":
            widths = (2, 2)
        target, draft = data.draw(histories(vocab)), data.draw(histories(vocab))
        source = TableDrafts(draft, widths, relation)
        rounds.append(check_rounds(target, source, name, 3, vocab))

    check()
    assert len(rounds) >= EXAMPLES and sum(count > 1 for count in rounds) >= 20


@pytest.mark.parametrize(("name", "relation"), CHAINS)
def test_whole_chains_have_the_plain_law(name: str, relation: str) -> None:
    rounds = []

    @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None)
    @given(st.data())
    def check(data: Any) -> None:
        vocab, depth = data.draw(st.sampled_from([(2, 2), (2, 3), (3, 2)]))
        target, draft = data.draw(histories(vocab)), data.draw(histories(vocab))
        source = TableDrafts(draft, (1,) * depth, relation)
        rounds.append(check_rounds(target, source, name, depth + 1, vocab))

    check()
    assert len(rounds) >= EXAMPLES and sum(count > 1 for count in rounds) >= 20


ROUNDS = 20


@pytest.mark.parametrize(("name", "relation"), [*TREES, *CHAINS])
def test_two_rounds_and_more_have_the_plain_law(name: str, relation: str) -> None:
    """Every run takes two rounds at least: a round publishes one token more than its
    tree is deep, and one child or two below the prefix leave four tokens to be made.
    What leaks from a round into the next one would bend the joint law."""
    width = 1 if (name, relation) in CHAINS else 2
    rounds = []

    @settings(max_examples=ROUNDS, deadline=None, derandomize=True, database=None)
    @given(histories(2), histories(2))
    def check(target: Any, draft: Any) -> None:
        source = TableDrafts(draft, (width,), relation)
        found = generated(target, source, name, 4, 2)
        check_outputs(found, target, 4)
        rounds.append(min(map(len, found)))

    check()
    assert len(rounds) >= ROUNDS and min(rounds) >= 2


def test_a_source_that_remembers_its_first_draw_is_found() -> None:
    """The planted fault of two rounds: the noise of the first is used again."""
    reuses = controls.get("noise reused across rounds").wrong
    law_of_two: dict[Any, Any] = law(
        lambda chance: reuses(chance, exact([1, 1]), [exact([1, 1])])
    )
    plain = F(1, 2) ** len(next(iter(law_of_two)))
    assert any(mass != plain for mass in law_of_two.values())


TARGET = table_of([[1, 2], [3, 1], [1, 1]], salt=2)
DRAFT = table_of([[2, 1], [1, 3]], salt=5)
OTHER = table_of([[1, 1], [4, 1], [1, 5]], salt=8)


@pytest.mark.parametrize("order", ["breadth", "depth"])
def test_two_draft_models_are_merged_and_each_keeps_its_q(order: str) -> None:
    """Expand, merge, linearise, verify (section 0x09): two draft models, whose trees
    share the rows of their common prefixes."""

    def sources() -> list[Any]:
        return [
            DraftModel(TableTarget(table, vocab_size=2), widths=widths, children="iid")
            for table, widths in ((DRAFT, (1, 1)), (OTHER, (1,)))
        ]

    assert check_rounds(TARGET, sources(), "specinfer", 3, 2, order=order) > 1


@pytest.mark.parametrize("widths", [((2,), (1,)), ((1,), (2,)), ((1, 1), (1, 1))])
def test_two_sources_of_any_widths_may_meet_specinfer(widths: Any) -> None:
    sources = [
        TableDrafts(DRAFT, widths[0], "iid", "one"),
        TableDrafts(OTHER, widths[1], "independent", "two"),
    ]
    check_rounds(TARGET, sources, "specinfer", 3 if len(widths[0]) > 1 else 2, 2)


def test_a_rule_that_takes_the_first_sources_q_for_both_is_found() -> None:
    specinfer = verifiers.get("specinfer")

    def choose(p: Any, drafts: Any, chance: Any) -> Any:
        same = [draft._replace(law=drafts[0].law) for draft in drafts]
        return specinfer_choose(p, same, chance)

    def select(tree: Any, law: Any, chance: Any) -> Any:
        return walk(tree, law, chance, choose, name="merges badly")

    rule = Verifier(contract("merges badly"), select)
    # After a refusal two tokens must be left, or there is nothing to get wrong: with
    # two tokens in all this fault cannot be seen.
    sources = [
        TableDrafts(constant([8, 1, 1]), (1,), "iid", "one"),
        TableDrafts(constant([1, 7, 2]), (1,), "iid", "two"),
    ]
    target = constant([1, 1, 1])
    check_rounds(target, sources, specinfer, 2, 3)
    must_fail(check_rounds, target, sources, rule, 2, 3)
    small = [
        TableDrafts(DRAFT, (1,), "iid", "one"),
        TableDrafts(OTHER, (1,), "iid", "two"),
    ]
    check_rounds(TARGET, small, rule, 2, 2)


def test_more_is_accepted_from_the_leaves_upwards() -> None:
    """Traversal never accepts less than the residual update, and here more."""
    drafts = {}
    for name in ("specinfer", "traversal"):
        source = TableDrafts(DRAFT, (2, 2), "iid")
        found = generated(TARGET, source, name, 3, 2)
        # Fewer rounds for the same tokens.
        drafts[name] = sum(len(blocks) * mass for blocks, mass in found.items())
    assert drafts["traversal"] < drafts["specinfer"]
