"""Trees as lists of paths: there and back, and what an engine cannot take."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbook.errors import SpecbookError, TreeError
from specbook.export import choices
from specbook.topologies.best_first import best_first_tree
from specbook.topologies.progress import shape_of
from specbook.tree import CandidateTree

SMALL = shape_of([-1, -1, 0, 2], [0, 1, 0, 0])
PATHS = [[0], [1], [0, 0], [0, 0, 0]]


@st.composite
def shapes(draw):
    """Sibling-closed shapes: each row hangs on an earlier one, as its next child."""
    parents, ranks, below = [], [], {}
    for row in range(draw(st.integers(1, 12))):
        parent = draw(st.integers(-1, row - 1))
        rank = below.get(parent, 0)
        if rank == choices.MEDUSA_TOPK:
            parent, rank = -1, below.get(-1, 0)
        below[parent] = rank + 1
        parents.append(parent)
        ranks.append(rank)
    return shape_of(parents, ranks)


def test_by_hand():
    assert choices.choices_of(SMALL) == PATHS
    assert choices.shape_from_choices(PATHS[::-1]) == SMALL


@given(shapes())
def test_there_and_back_in_every_form(shape):
    assert choices.shape_from_choices(choices.choices_of(shape)) == shape
    for kind in choices.KINDS:
        made = choices.export_tree(
            shape,
            kind,
            heads=shape.max_depth if kind == "medusa" else None,
            speculative_model="m" if kind == "eagle_choices" else None,
        )
        assert choices.import_tree(made.body) == shape


def test_order_of_rows_does_not_matter():
    depth_first = CandidateTree.from_paths([(0, 0, 0), (1,)], 0, order="depth")
    assert choices.choices_of(depth_first) == PATHS


def test_a_planned_tree():
    plan = best_first_tree(8, 3, [0, 0.5, 0.2, 0.1])
    paths = choices.choices_of(plan.tree)
    assert len(paths) == 7
    assert choices.shape_from_choices(paths) == shape_of(
        plan.tree.parents, plan.tree.token_ids
    )


def test_settings_of_tensorrt_llm():
    made = choices.export_tree(SMALL, "eagle_choices", speculative_model="folder")
    told = json.loads(made.body)["speculative_config"]
    assert told["max_draft_len"] == 3 and told["eagle_choices"] == PATHS
    for bad in (None, ""):
        with pytest.raises(TreeError, match="needs a speculative_model"):
            choices.export_tree(SMALL, "eagle_choices", speculative_model=bad)
    with pytest.raises(TreeError, match="belongs to kind 'eagle_choices'"):
        choices.export_tree(SMALL, speculative_model="m")


def test_the_string_that_vllm_took():
    made = choices.export_tree(SMALL, "token_tree")
    told = json.loads(made.body)
    assert told["speculative_token_tree"] == "[(0,), (1,), (0, 0), (0, 0, 0)]"
    assert told["num_speculative_tokens"] == 4
    assert "42121" in " ".join(made.notes)


def test_limits_of_medusa():
    choices.export_tree(SMALL, "medusa", heads=3)
    with pytest.raises(TreeError, match=r"\[0, 0, 0\] is deeper than 2 heads"):
        choices.export_tree(SMALL, "medusa", heads=2)
    wide = shape_of([-1] * 11, range(11))
    with pytest.raises(TreeError, match="has rank 10; Medusa drafts 10 tokens"):
        choices.export_tree(wide, "medusa", heads=1)
    choices.export_tree(wide, "paths")
    with pytest.raises(TreeError, match="medusa needs heads"):
        choices.export_tree(SMALL, "medusa")
    with pytest.raises(TreeError, match="heads belong to kind 'medusa'"):
        choices.export_tree(SMALL, heads=3)
    for bad in (0, True, 1.5):
        with pytest.raises(TreeError):
            choices.export_tree(SMALL, "medusa", heads=bad)


@pytest.mark.parametrize(
    ("paths", "told"),
    [
        ([], "empty"),
        (None, "sequence"),
        ("[[0]]", "sequence"),
        ({0: 1}, "sequence"),
        ([[]], "the root is no path"),
        ([[0], [0]], "stands twice"),
        ([[0], [0, 0, 0]], r"has no parent: \[0, 0\] is missing"),
        ([[1]], "ranks have a gap"),
        ([[0], [2]], "ranks have a gap"),
        ([[0], [0, 1]], "ranks have a gap"),
        ([[-1]], "negative"),
        ([[True]], "integer"),
        ([[0.0]], "integer"),
        ([[None]], "integer"),
        ([0], "sequence"),
    ],
)
def test_what_is_no_tree(paths, told):
    with pytest.raises(TreeError, match=told):
        choices.shape_from_choices(paths)


def test_shapes_that_are_no_plan():
    with pytest.raises(TreeError, match="the shape is empty"):
        choices.choices_of(CandidateTree.from_rows([], [], 0))
    gap = CandidateTree.from_rows([0, 2], [-1, -1], 0)
    with pytest.raises(TreeError, match=r"\[2\] is there and its sibling \[1\] is not"):
        choices.choices_of(gap)
    with pytest.raises(TreeError, match="not a CandidateTree"):
        choices.choices_of(PATHS)
    with pytest.raises(SpecbookError, match="kind must be one of"):
        choices.export_tree(SMALL, "tree")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "3",
        "null",
        "{}",
        "[" * 100_000,
        '{"speculative_config": {}}',
        '{"speculative_token_tree": 3}',
        '{"speculative_token_tree": "[(0,)]"}',
        '{"speculative_token_tree": "[(0,)]", "num_speculative_tokens": 2}',
        '{"speculative_token_tree": "[__import__(0)]", "num_speculative_tokens": 1}',
        '{"speculative_token_tree": "[(0,), ()]", "num_speculative_tokens": 2}',
        '{"speculative_token_tree": "[(-1,)]", "num_speculative_tokens": 1}',
        None,
        b"[[0]]",
    ],
)
def test_texts_that_hold_no_tree(text):
    with pytest.raises(TreeError):
        choices.import_tree(text)
