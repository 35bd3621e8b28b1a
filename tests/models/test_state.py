"""The state contract: what a row is for, what it is, and who may publish it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbook.models.state import (
    EMBEDDING,
    FIELDS,
    Ownership,
    StateError,
    StateKey,
    Tag,
    TaggedRows,
    ancestry,
    check_reuse,
    descend,
    full_path,
    layer_steps,
    may_reuse,
    publish,
)

LAYERS = 3
OTHER = {
    "checkpoint": "another checkpoint",
    "layer_boundary": 2,
    "token_id": 8,
    "position": 5,
    "ancestry_hash": ancestry([1, 2, 3, 5]),
    "dtype": "bfloat16",
    "cache_generation": 1,
}


def key(boundary: int = LAYERS, token: int = 7, before=(1, 2, 3, 4)) -> StateKey:
    return StateKey(
        checkpoint="a checkpoint",
        layer_boundary=boundary,
        token_id=token,
        position=len(before),
        ancestry_hash=ancestry(before),
        dtype="float32",
        cache_generation=0,
    )


def tag(path=None, boundary: int = LAYERS, owner: str = "target", **rest) -> Tag:
    path = full_path(boundary) if path is None else path
    return Tag(key(boundary, **rest), LAYERS, owner, tuple(path))


def without(*steps: str) -> tuple[str, ...]:
    return tuple(step for step in full_path(LAYERS) if step not in steps)


# ------------------------------------------------------------------ seven fields


def test_there_are_the_seven_fields_of_the_article():
    assert set(FIELDS) == set(OTHER) and len(FIELDS) == 7
    assert may_reuse(key(), key())


@pytest.mark.parametrize("field", FIELDS)
def test_each_field_alone_forbids_reuse(field):
    other = dataclasses.replace(key(), **{field: OTHER[field]})
    assert not may_reuse(other, key()) and not may_reuse(key(), other)
    with pytest.raises(StateError, match=f"{field} is .* needed is"):
        check_reuse(dataclasses.replace(tag(), key=other), key())
    with pytest.raises(StateError, match=field):
        publish([tag()], [other])


@given(st.lists(st.integers(0, 300), max_size=6), st.lists(st.integers(0, 300)))
def test_an_ancestry_is_the_tokens_in_order_and_nothing_else(first, second):
    assert (ancestry(first) == ancestry(second)) == (first == second)
    whole = ancestry(first)
    for token in second:
        whole = descend(whole, token)
    assert whole == ancestry(first + second)


def test_digits_of_neighbouring_tokens_do_not_run_together():
    assert ancestry([1, 23]) != ancestry([12, 3])


@pytest.mark.parametrize(("field", "value"), [("position", -1), ("dtype", 4)])
def test_a_key_of_bad_fields_is_refused(field, value):
    with pytest.raises(StateError, match=field):
        dataclasses.replace(key(), **{field: value})
    with pytest.raises(StateError, match="StateKey"):
        may_reuse(dataclasses.asdict(key()), key())


# --------------------------------------------------------------------- ownership


def test_ownership_follows_from_the_path():
    assert tag().ownership is Ownership.VERIFICATION
    assert tag(boundary=2).ownership is Ownership.PROVISIONAL
    assert tag(without("1.mlp")).ownership is Ownership.PROVISIONAL
    (published,) = publish([tag()], [key()])
    assert published.ownership is Ownership.AUTHORITATIVE


def test_seven_equal_fields_do_not_let_a_skipped_path_in():
    skipped = tag(without("1.attention"), owner="draft_verify")
    assert may_reuse(skipped.key, key())
    with pytest.raises(StateError, match=r"draft_verify.* left out 1\.attention"):
        check_reuse(skipped, key())
    with pytest.raises(StateError, match=r"provisional.*left out 1\.attention"):
        publish([skipped], [key()])


@pytest.mark.parametrize(
    ("path", "why"),
    [
        (without("0.mlp", "2.attention"), r"left out 0\.mlp, 2\.attention"),
        ((*full_path(LAYERS), "adapter"), "went through adapter, too"),
        ((*full_path(1), *layer_steps(2, 3), *layer_steps(1, 2)), "another order"),
        ((*full_path(2), "2.attention", "2.attention", "2.mlp"), "another order"),
        ((EMBEDDING, "adapter"), r"left out 0\.attention"),
    ],
)
def test_any_other_path_is_refused_and_named(path, why):
    with pytest.raises(StateError, match=why):
        publish([tag(path)], [key()])


def test_a_shallow_row_is_not_published_however_right_it_is():
    shallow = tag(boundary=2, owner="shared trunk")
    with pytest.raises(StateError, match="ends at layer boundary 2 of 3"):
        publish([shallow], [key(boundary=2)])
    whole = shallow.through(layer_steps(2, 3), 3, "target")
    assert publish([whole], [key()])[0].published


def test_a_row_that_attended_to_a_skipped_row_is_tainted_and_so_are_its_heirs():
    skipped = tag(without("0.attention"), owner="draft_verify", token=4, before=[1])
    start = Tag(key(0, token=5, before=[1, 4]), LAYERS, "target", (EMBEDDING,))
    child = start.through(layer_steps(0, 3), 3, "target", attended=[skipped])
    assert child.path == full_path(3)
    with pytest.raises(StateError, match=r"token 4 at position 1.*0\.attention"):
        publish([child], [child.key])
    start = Tag(key(0, token=6, before=[1, 4, 5]), LAYERS, "target", (EMBEDDING,))
    grandchild = start.through(layer_steps(0, 3), 3, "target", attended=[child])
    with pytest.raises(StateError, match="token 5 at position 2"):
        check_reuse(grandchild, grandchild.key)
    # The taint of a shallow row stays with it on its way up.
    shallow = start.through(layer_steps(0, 1), 1, "shared trunk", attended=[skipped])
    assert shallow.through(layer_steps(1, 3), 3, "target").deviation


def test_a_tag_cannot_be_declared_published():
    for found in (tag(without("1.mlp")), tag((*full_path(2), "adapter"))):
        with pytest.raises(StateError, match="cannot be published"):
            dataclasses.replace(found, published=True)


def test_a_right_row_of_the_lower_layers_cannot_be_declared_published():
    with pytest.raises(StateError, match="ends at layer boundary 2 of 3"):
        dataclasses.replace(tag(boundary=2), published=True)
    (published,) = publish([tag()], [key()])
    with pytest.raises(StateError, match="authoritative.*published already"):
        publish([published], [key()])


@pytest.mark.parametrize(
    "change",
    [
        {"owner": None},
        {"taint": None},
        {"published": "no"},
        {"published": 1},
        {"path": None},
        {"path": list(full_path(LAYERS))},
        {"path": (EMBEDDING, None)},
    ],
    ids=[f"case{i}" for i in range(7)],
)
def test_a_tag_of_bad_fields_is_refused(change):
    with pytest.raises(StateError, match=next(iter(change))):
        dataclasses.replace(tag(), **change)


@pytest.mark.parametrize(
    "call",
    [
        lambda: publish(None, [key()]),
        lambda: publish([tag()], None),
        lambda: publish([None], [key()]),
        lambda: publish([tag()], [None]),
        lambda: check_reuse(None, key()),
        lambda: check_reuse(tag(), None),
        lambda: tag().through(None, LAYERS, "x"),
        lambda: tag().through(["a"], None, "x"),
        lambda: tag().through(["a"], LAYERS, "x", attended=[None]),
        lambda: full_path(-1),
        lambda: full_path([1]),
        lambda: layer_steps(2, 1),
        lambda: layer_steps(True, 1),
        lambda: TaggedRows(None, [tag()]),
        lambda: TaggedRows(np.zeros((1, 2)), [None]),
        lambda: TaggedRows(np.zeros((1, 2)), [tag()]).take([-1]),
        lambda: TaggedRows(np.zeros((1, 2)), [tag()]).take([1]),
    ],
    ids=[f"case{i}" for i in range(17)],
)
def test_what_is_no_tag_no_key_and_no_row_is_refused(call):
    with pytest.raises(StateError):
        call()


def test_what_goes_on_from_a_published_row_is_not_published():
    (published,) = publish([tag()], [key()])
    onward = published.through(["adapter"], LAYERS, "adapter")
    assert onward.ownership is Ownership.PROVISIONAL


def test_all_rows_are_published_or_none():
    tags = [tag(), tag(without("2.mlp"), token=8)]
    with pytest.raises(StateError, match="row 1 of 2"):
        publish(tags, [key(), key(token=8)])
    with pytest.raises(StateError, match="2 rows for 1 places"):
        publish(tags, [key()])
    assert not any(found.published for found in tags)


def test_impossible_tags_are_refused():
    with pytest.raises(StateError, match="layer boundary 4 of a model with 3"):
        tag(boundary=4)
    with pytest.raises(StateError, match="StateKey"):
        Tag("a key", LAYERS, "target", full_path(LAYERS))


# ------------------------------------------------------------------- tagged rows


def test_rows_and_tags_do_not_part():
    rows = TaggedRows(np.arange(6).reshape(3, 2), [tag(token=t) for t in (5, 6, 7)])
    some = rows.take([2, 0])
    assert some.tensor.tolist() == [[4, 5], [0, 1]]
    assert [found.key.token_id for found in some.tags] == [7, 5]
    assert len(TaggedRows.none(rows)) == 0
    with pytest.raises(StateError, match="3 rows of a tensor have 2 tags"):
        TaggedRows(rows.tensor, rows.tags[:2])
