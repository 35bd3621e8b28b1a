"""How many drafts for how many requests, against every chain tried by hand."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction as F

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbook.errors import LawError, SpecbookError
from specbook.export.schedule import BatchChoice, choose_lengths, first_prefix, ranges

from .making import times

RATES = [F(4, 5), F(3, 5), F(1, 2)]
CLOCK = {
    1: {1: 1.0, 2: 1.0, 3: 1.0, 4: 1.0},  # rows are free
    2: {1: 1.0, 2: 1.5, 3: 2.0, 4: 3.0},
    8: {1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0},  # a row costs as much as a token
}


def test_the_more_requests_the_fewer_drafts():
    chosen = choose_lengths(RATES, times(CLOCK), draft_seconds=0)
    assert [(one.batch, one.best) for one in chosen] == [(1, 3), (2, 1), (8, 0)]
    assert chosen[0].speedups[3] == pytest.approx(1 + 0.8 + 0.6 + 0.5)
    assert chosen[1].speedups[1] == pytest.approx(1.8 / 1.5)
    assert ranges(chosen) == [(1, 1, 3), (2, 7, 1), (8, 8, 0)]


def test_a_draft_step_costs():
    costly = choose_lengths(RATES, times(CLOCK), draft_seconds=0.9)
    assert [one.best for one in costly] == [0, 0, 0]
    assert ranges(costly) == [(1, 8, 0)]
    assert costly[0].speedups[1] == pytest.approx(1.8 / 1.9)


def test_the_times_that_belong_to_a_chain():
    """Of several lengths of text the one that is asked for, and the times of chains
    where they were taken."""
    from dataclasses import replace

    short, long = times({1: CLOCK[1]}), times({1: CLOCK[8]}, prefix=512)
    both = replace(short, cells=short.cells + long.cells)
    (first,) = choose_lengths(RATES, both, draft_seconds=0)
    (second,) = choose_lengths(RATES, both, draft_seconds=0, prefix=512)
    assert (first.best, second.best) == (3, 0)
    stars = tuple(replace(cell, shape="star", depth=0) for cell in long.cells)
    stars = tuple(replace(cell, prefix=64) for cell in stars)
    for cells in (stars + short.cells, short.cells + stars):
        (found,) = choose_lengths(RATES, replace(short, cells=cells), draft_seconds=0)
        assert found.best == 3
    (starred,) = choose_lengths(RATES, replace(short, cells=stars), draft_seconds=0)
    assert starred.best == 0


SECONDS = st.floats(0.5, 3.0)


@given(
    st.lists(st.fractions(0, 1, max_denominator=9), min_size=1, max_size=3),
    st.lists(SECONDS, min_size=4, max_size=4),
    st.floats(0, 1),
)
def test_the_best_of_all_chains(shares, seconds, draft):
    unconditional = sorted(shares, reverse=True)
    clock = dict(zip((1, 2, 3, 4), seconds, strict=True))
    (found,) = choose_lengths(unconditional, times({1: clock}), draft_seconds=draft)
    expected = {
        k: (1 + float(sum(unconditional[:k]))) / (clock[k + 1] + k * draft) * clock[1]
        for k in range(len(unconditional) + 1)
    }
    # A chain whose last draft is never accepted is no plan of that size.
    assert set(found.speedups) <= set(expected)
    for k, speedup in found.speedups.items():
        assert speedup == pytest.approx(expected[k])
    assert max(expected.values()) == pytest.approx(found.speedups[found.best])


def test_near_ones():
    one = BatchChoice(1, {0: 1.0, 1: 1.20, 2: 1.18, 3: 1.0})
    assert (one.near(0.05), one.near(0), one.best) == ([1, 2], [1], 1)
    tied = BatchChoice(1, {0: 1.0, 1: 1.5, 2: 1.5})
    assert tied.best == 1  # the smaller of equals
    for bad in (-0.1, 1.1, float("nan"), None, True):
        with pytest.raises(SpecbookError):
            one.near(bad)


@pytest.mark.parametrize(
    "bad",
    [
        (0, {0: 1.0}),
        (True, {0: 1.0}),
        (1, {}),
        (1, {1: 1.0}),
        (1, {0: float("nan")}),
        (1, {0: 1.0, -1: 1.0}),
        (1, {0: 1.0, "1": 1.0}),
        (1, [1.0]),
        (1, None),
    ],
)
def test_a_choice_has_numbers_and_plain_decoding(bad):
    with pytest.raises(SpecbookError):
        BatchChoice(*bad)


def test_one_request_is_the_runtimes_own():
    """Whichever of two forwards was timed first."""
    runtime = times({1: CLOCK[1]})
    batched = replace(
        runtime.cells[0], forward="batch", seconds=(9.0,), nodes=1, depth=0
    )
    dear = replace(batched, nodes=2, depth=1, seconds=(90.0,))
    first = replace(runtime, cells=(batched, dear, *runtime.cells))
    (found,) = choose_lengths(RATES, first, draft_seconds=0)
    assert found.best == 3  # rows are free in the runtime
    assert first_prefix(first) == 64
    with pytest.raises(SpecbookError, match="holds no time"):
        first_prefix(replace(runtime, cells=()))


def test_what_cannot_be_chosen_from():
    clock = times(CLOCK)
    for bad, told in (
        ({"draft_seconds": -1}, "draft_seconds"),
        ({"draft_seconds": None}, "draft_seconds"),
        ({"draft_seconds": 0, "prefix": 7}, "nothing was measured with 7"),
        ({"draft_seconds": 0, "prefix": 0}, "prefix"),
        ({"draft_seconds": 0, "prefix": "64"}, "prefix"),
        ({"draft_seconds": 0, "longest": 0}, "longest"),
        ({"draft_seconds": 0, "longest": True}, "longest"),
    ):
        with pytest.raises(SpecbookError, match=told):
            choose_lengths(RATES, clock, **bad)
    with pytest.raises(SpecbookError, match="must be a VerifyProfile"):
        choose_lengths(RATES, CLOCK, draft_seconds=0)
    with pytest.raises(LawError, match="above the one before"):
        choose_lengths([0.5, 0.6], clock, draft_seconds=0)
    with pytest.raises(SpecbookError, match="smallest batch is 2"):
        choose_lengths(RATES, times({2: CLOCK[2]}), draft_seconds=0)


def test_choices_begin_at_one_and_go_up():
    one, two = BatchChoice(1, {0: 1.0}), BatchChoice(2, {0: 1.0})
    assert ranges([one, two]) == [(1, 2, 0)]
    for bad in ([], [two], [one, one], [one, "two"], None, "12"):
        with pytest.raises(SpecbookError):
            ranges(bad)
