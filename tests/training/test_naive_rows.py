"""Rows that must not be there: counted by hand, and told from those of the rule."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbook.errors import SpecbookError
from specbook.training import naive_rows
from specbook.training.naive_rows import (
    FAULTS,
    WAYS,
    counted,
    faults,
    packed,
    ruled,
)


def test_by_hand():
    assert packed(2, 0, 1) == [0, 0, 2]
    stream = packed(3)
    assert ruled(stream, 5) == [(1, 0, (1,), 2)]
    assert naive_rows.wrapped(stream, 5) == [
        (1, 2, (0,), 1),
        (2, 2, (0, 1), 2),
        (1, 0, (1,), 2),
    ]
    assert counted("wrap", stream, heads=5) == [3, 2, 0, 0]
    assert naive_rows.borrowed(packed(2, 2), 1) == [(1, 0, (1,), 2), (1, 1, (2,), 3)]
    assert counted("borrow", packed(2, 2), heads=1) == [2, 0, 2, 0]
    assert naive_rows.clamped(packed(2, 2), 1) == [
        (1, 0, (0,), 1),
        (1, 0, (1,), 2),
        (1, 2, (2,), 3),
    ]
    assert counted("clamp", packed(2, 2), heads=1) == [3, 0, 1, 2]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=4),
    st.integers(1, 5),
)
def test_the_faultless_rows_of_every_way_are_those_of_the_rule(lengths, heads):
    stream = packed(*lengths)
    good = ruled(stream, heads)
    for make in WAYS.values():
        made = [row for row in make(stream, heads) if not any(faults(row, stream))]
        assert sorted(made) == sorted(good)


def test_h27_short_documents():
    """Case H27: totals for documents of 0 to 5 tokens and ten heads."""
    assert [len(ruled(packed(n), 10)) for n in range(6)] == [0, 0, 0, 1, 3, 6]


def test_an_unknown_way_is_refused():
    with pytest.raises(SpecbookError, match="way"):
        counted("skip", [0])
    with pytest.raises(SpecbookError, match="lengths"):
        packed(-1)


def test_no_row_has_no_fault():
    assert counted("the rule") == counted("borrow", [0, 0]) == [0, 0, 0, 0]
    for way in WAYS:
        assert len(counted(way, packed(1))) == 1 + len(FAULTS)
        with pytest.raises(SpecbookError, match="at least 0, got -1"):
            counted(way, packed(4), heads=-1)
        with pytest.raises(SpecbookError, match="must be an integer"):
            counted(way, packed(4), heads=1.5)
    with pytest.raises(SpecbookError, match="segments"):
        WAYS["wrap"](None, 2)
