"""Acceptance by position: both conventions, and what tells them apart."""

from __future__ import annotations

import math
from fractions import Fraction as F

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbook.chance import law
from specbook.errors import LawError, SpecbookError
from specbook.export import rates
from specbook.topologies.observed import Observed
from specbook.topologies.progress import expected_progress
from specbook.topologies.sequoia import optimize_tree

SHARES = st.fractions(min_value=0, max_value=1, max_denominator=50)


def observed(tried, selected):
    return Observed(np.array(tried), np.array(selected))


def test_a_chain_by_hand():
    # Two prompts, two depths, two slots: only the first slots are a chain's.
    counts = observed(
        [[[6, 2], [3, 1]], [[4, 1], [3, 1]]], [[[3, 1], [1, 0]], [[3, 0], [2, 1]]]
    )
    assert rates.chain_rates(counts) == [F(6, 10), F(6, 10) * F(3, 6)]
    assert rates.chain_rates(counts, 1) == [F(3, 5)]
    with pytest.raises(SpecbookError, match="3 positions are asked for, and 2"):
        rates.chain_rates(counts, 3)
    with pytest.raises(SpecbookError, match="do not know positions"):
        rates.chain_rates(counts.pooled())


@given(st.lists(SHARES, min_size=1, max_size=4))
def test_a_rate_is_the_chance_that_all_drafts_so_far_are_accepted(conditional):
    def round_of(chance):
        accepted = 0
        while accepted < len(conditional) and chance.flip(conditional[accepted]):
            accepted += 1
        return accepted

    exact = law(round_of)
    told = rates.unconditional(conditional)
    for place, rate in enumerate(told):
        assert rate == sum(p for n, p in exact.items() if n > place)


@given(st.lists(SHARES, min_size=1, max_size=6))
def test_there_and_back(conditional):
    told = rates.unconditional(conditional)
    again = rates.conditional(told)
    reached = [F(1), *told][:-1]
    # What nothing gets to has no rate of its own.
    assert again == [h if p else 0 for h, p in zip(conditional, reached, strict=True)]
    assert rates.unconditional(again) == told
    floats = rates.floats(told)
    assert floats == sorted(floats, reverse=True)


@given(st.lists(SHARES, min_size=1, max_size=5))
def test_the_tokens_of_a_round_are_the_sum_of_the_rates(conditional):
    told = rates.unconditional(conditional)
    plan = optimize_tree(len(told) + 1, len(told), rates.acceptance_rows(told))
    assert expected_progress(plan.tree, rates.acceptance_rows(told)) == 1 + sum(told)


def test_conditional_rates_that_rise_are_told_from_unconditional_ones():
    with pytest.raises(LawError, match=r"rates\[1\] = 0.6 is above the one before"):
        rates.conditional([0.5, 0.6])
    assert rates.floats(rates.unconditional([0.5, 0.6])) == [0.5, 0.3]


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (None, "sequence"),
        ("0.5", "sequence"),
        ([None], r"rates\[0\] must be a real number"),
        ([True], "real number"),
        ([math.nan], "finite"),
        ([math.inf], "finite"),
        ([1.5], "at most 1"),
        ([-0.1], "at least 0"),
        ({0.5}, "sequence"),
        ({0.5: 1}, "sequence"),
        ([], "empty"),
    ],
)
def test_what_is_no_rate(bad, told):
    with pytest.raises(LawError, match=told):
        rates.check_unconditional(bad)


def test_numbers_of_numpy_become_json():
    assert rates.floats(np.array([0.5, 0.25])) == [0.5, 0.25]
    assert rates.conditional([np.float64(0.0), np.float64(0.0)]) == [0, 0]
    assert rates.unconditional(np.array([1, 0])) == [F(1), F(0)]
    with pytest.raises(SpecbookError, match="must be Observed"):
        rates.chain_rates([[1]])
