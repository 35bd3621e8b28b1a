"""What a round cost and what it bought (section 0x02C)."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbook.errors import SpecbookError
from specbook.ledger import COST_TERMS, RoundLedger, Stopwatch

from .helpers import must_fail

COST = st.fractions(0, 100, max_denominator=50)


@st.composite
def ledgers(draw: Any) -> RoundLedger:
    costs = {term: draw(COST) for term in COST_TERMS}
    return RoundLedger(**costs, committed_tokens=draw(st.integers(1, 9)))


def test_there_are_six_terms_in_the_articles_order() -> None:
    assert COST_TERMS == (
        "proposal",
        "retrieval",
        "packing",
        "target_verify",
        "selection",
        "temporary_state",
    )
    assert [f.name for f in dataclasses.fields(RoundLedger)] == [
        *COST_TERMS,
        "committed_tokens",
    ]


def check_six_terms(cost_of: Any) -> None:
    """Every term counts, each by itself and with the same weight."""
    for term in COST_TERMS:
        assert cost_of(RoundLedger(**{term: Fraction(7, 3)})) == Fraction(7, 3)
    all_of_them = RoundLedger(*range(1, 7), committed_tokens=1)
    assert cost_of(all_of_them) == 21


def test_the_round_cost_is_the_sum_of_the_six() -> None:
    check_six_terms(lambda ledger: ledger.round_cost)
    for left_out in COST_TERMS:
        must_fail(
            check_six_terms,
            lambda ledger, out=left_out: ledger.round_cost - getattr(ledger, out),
        )


def check_sum_over_sums(rounds: Any, average: Any) -> None:
    total = sum((r.round_cost for r in rounds), Fraction(0))
    assert average(rounds) == total / sum(r.committed_tokens for r in rounds)


def mean_of_ratios(rounds: Any) -> Any:
    """The planted fault: short rounds weigh as much as long ones."""
    return sum(r.time_per_committed_token for r in rounds) / Fraction(len(rounds))


@settings(max_examples=50, deadline=None)
@given(st.lists(ledgers(), min_size=1, max_size=5))
def test_totals_are_exact_and_sum_over_sums(rounds: Any) -> None:
    total = RoundLedger.total(rounds)
    check_sum_over_sums(rounds, lambda r: total.time_per_committed_token)
    assert all(type(getattr(total, term)) is Fraction for term in COST_TERMS)
    assert type(total.round_cost) is Fraction
    for name, value in total.as_dict().items():
        assert value == sum(getattr(r, name) for r in rounds)


def test_the_mean_of_ratios_fails_the_same_check() -> None:
    rounds = [
        RoundLedger(proposal=Fraction(1), committed_tokens=1),
        RoundLedger(proposal=Fraction(1), committed_tokens=9),
    ]
    check_sum_over_sums(rounds, lambda r: RoundLedger.total(r).time_per_committed_token)
    must_fail(check_sum_over_sums, rounds, mean_of_ratios)


def test_a_ledger_with_one_fraction_stays_exact() -> None:
    one = RoundLedger(packing=Fraction(1, 3), committed_tokens=1)
    assert type(one.round_cost) is Fraction and one.round_cost == Fraction(1, 3)
    assert RoundLedger.total([one, one]).round_cost == Fraction(2, 3)


def test_of_no_rounds_there_is_an_empty_ledger() -> None:
    empty = RoundLedger.total([])
    assert empty == RoundLedger() and empty.round_cost == 0
    assert empty.committed_tokens == 0


@settings(max_examples=100, deadline=None)
@given(ledgers(), st.fractions(Fraction(1, 50), 100, max_denominator=50))
def test_speedup_and_break_even_are_one_statement(ledger: Any, step: Any) -> None:
    break_even = ledger.break_even_tokens(step)
    assert break_even * step == ledger.round_cost
    if ledger.round_cost == 0:
        return
    speedup = ledger.speedup(step)
    assert speedup * ledger.time_per_committed_token == step
    assert (speedup > 1) is (ledger.committed_tokens > break_even)
    assert (speedup == 1) is (ledger.committed_tokens == break_even)


def test_the_highest_acceptance_can_lose() -> None:
    """The article's point: more tokens a round, and slower."""
    small = RoundLedger(proposal=1, target_verify=10, committed_tokens=2)
    large = RoundLedger(proposal=22, target_verify=10, committed_tokens=3)
    assert small.speedup(10) > 1 > large.speedup(10)
    assert large.committed_tokens > small.committed_tokens


def test_ratios_that_do_not_exist_are_refused() -> None:
    with pytest.raises(SpecbookError, match="no token"):
        _ = RoundLedger(proposal=1).time_per_committed_token
    with pytest.raises(SpecbookError, match="no speedup"):
        RoundLedger(committed_tokens=1).speedup(1)
    with pytest.raises(SpecbookError, match="target_step_cost"):
        RoundLedger(proposal=1).break_even_tokens(0)


@pytest.mark.parametrize("step", [-1, math.nan, math.inf, None, "1", True])
def test_a_step_cost_is_a_number(step: Any) -> None:
    ledger = RoundLedger(proposal=1, committed_tokens=1)
    for method in (ledger.speedup, ledger.break_even_tokens):
        with pytest.raises(SpecbookError, match="target_step_cost"):
            method(step)


@pytest.mark.parametrize("value", [-1e-9, math.nan, math.inf, None, "1", True, 1j])
@pytest.mark.parametrize("term", COST_TERMS)
def test_a_term_is_a_number(term: str, value: Any) -> None:
    with pytest.raises(SpecbookError, match=term):
        RoundLedger(**{term: value})


@pytest.mark.parametrize("count", [-1, 1.0, True, None])
def test_committed_tokens_are_a_count(count: Any) -> None:
    with pytest.raises(SpecbookError, match="committed_tokens"):
        RoundLedger(committed_tokens=count)


def test_only_ledgers_add_up() -> None:
    with pytest.raises(TypeError):
        RoundLedger() + 1  # type: ignore[operator]


# ------------------------------------------------------------------- stopwatch


class Clock:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def tick(self, seconds: float) -> None:
        self.now += seconds


def test_the_stopwatch_bills_each_stretch_to_its_term() -> None:
    clock = Clock()
    watch = Stopwatch(clock)
    for power, term in enumerate(COST_TERMS):
        clock.tick(64)  # between stretches nothing is billed
        with watch.bill(term):
            clock.tick(2**power)
    with watch.bill("proposal"):
        clock.tick(128)
    ledger = watch.close(3)
    assert ledger.as_dict() == {
        "proposal": 129,
        "retrieval": 2,
        "packing": 4,
        "target_verify": 8,
        "selection": 16,
        "temporary_state": 32,
        "committed_tokens": 3,
    }


def check_bills_on_exceptions(watch: Any, clock: Clock) -> None:
    with pytest.raises(KeyError):
        with watch.bill("retrieval"):
            clock.tick(5)
            raise KeyError
    assert watch.close(0).retrieval == 5


def test_a_stretch_that_raises_is_billed_too() -> None:
    from contextlib import contextmanager

    clock = Clock()
    check_bills_on_exceptions(Stopwatch(clock), clock)

    class Forgetful(Stopwatch):
        @contextmanager
        def bill(self, term: str) -> Any:
            start = clock()
            yield
            self._spent[term] += clock() - start

    must_fail(check_bills_on_exceptions, Forgetful(clock), clock)


def test_a_stretch_inside_another_is_counted_once() -> None:
    clock = Clock()
    watch = Stopwatch(clock)
    with watch.bill("selection"):
        clock.tick(1)
        with watch.bill("target_verify"):
            clock.tick(10)
            with watch.bill("target_verify"):
                clock.tick(100)
        clock.tick(1000)
    ledger = watch.close(0)
    assert (ledger.selection, ledger.target_verify) == (1001, 110)
    assert ledger.round_cost == clock.now - 1000


@pytest.mark.parametrize("term", ["lunch", "", None, 3, "committed_tokens"])
def test_there_is_no_seventh_term(term: Any) -> None:
    with pytest.raises(SpecbookError, match="cost term"):
        with Stopwatch(Clock()).bill(term):
            raise AssertionError("the inside must not run")


@pytest.mark.parametrize("clock", [5, None, "x", float])
def test_what_is_no_function_is_no_clock(clock: Any) -> None:
    with pytest.raises(SpecbookError, match="clock"):
        Stopwatch(clock)


@pytest.mark.parametrize("reading", ["now", None, math.nan, math.inf, True, [1.0]])
def test_a_clock_reads_finite_numbers(reading: Any) -> None:
    with pytest.raises(SpecbookError, match="the clock's reading"):
        with Stopwatch(lambda: reading).bill("proposal"):
            pass


def test_the_default_clock_is_monotonic() -> None:
    watch = Stopwatch()
    with watch.bill("selection"):
        pass
    assert watch.close(1).selection >= 0
