"""The optimum without the vectors: by one sort, and by an integral for a large V."""

from __future__ import annotations

import math
from fractions import Fraction as F
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbook.drafts import samplers
from specbook.errors import LawError, SpecbookError
from specbook.oracles import (
    RELATIONS,
    arrivals,
    optimal_acceptance,
    optimum,
    optimum_of,
    transport,
)
from tests.core.helpers import must_fail
from tests.verifiers.helpers import drawing, exact, instances, weights

from .helpers import ARTICLE, by_every_set, questions

P, Q = ARTICLE


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(questions())
def test_it_is_the_minimum_over_every_set(question: Any) -> None:
    p, q, k, sampling = question
    found = optimal_acceptance(p, q, k, sampling)
    assert isinstance(found, F)
    assert found == by_every_set(p, q, k, sampling)
    rows = q if sampling == "independent" else [q]
    floats = [row.astype(float) for row in rows]
    rounded = optimal_acceptance(
        p.astype(float), floats if sampling == "independent" else floats[0], k, sampling
    )
    if sampling in ("top_k", "greedy_draft", "hub") and len(set(q)) < len(q):
        return  # rounding may break a tie another way
    assert abs(rounded - found) < 1e-12


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(questions(most=4, deepest=3))
def test_drafts_of_any_kind_have_the_same_optimum(question: Any) -> None:
    p, q, k, sampling = question
    draws = drawing(str(RELATIONS[sampling]), q, k)
    found = optimum_of(draws, p)
    assert isinstance(found, F)
    assert found == by_every_set(p, q, k, sampling)
    floats = optimum_of(draws, p.astype(float))
    assert abs(floats - found) < 1e-12


def test_the_optimum_of_drafts_that_no_relation_describes() -> None:
    """A draw of q and a token that is certain; and none at all."""
    q, sure = exact([1, 1, 8]), samplers.Draw(0, None, 1)
    found = optimum_of(lambda chance: [*samplers.iid(q, 1, chance), sure], P)
    laws = [q, samplers.one_hot(q, 0)]
    assert found == optimal_acceptance(P, laws, 2, "independent")
    assert optimum_of(lambda chance: [], P) == 0
    for draws, told in (
        (3, "draws must be callable"),
        (lambda chance: [samplers.Draw(3, None, 1)], "outside 0 .. 2"),
        (lambda chance: [3], r"draws\[0\] is no Draw"),
    ):
        with pytest.raises(SpecbookError, match=told):
            optimum_of(draws, P)  # type: ignore[arg-type]
    many = exact([1] * 17)
    with pytest.raises(SpecbookError, match="at most 16"):
        optimum_of(lambda chance: samplers.iid(many, 1, chance), many)


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(instances(most=5, deepest=4))
def test_the_sorted_beginnings_suffice_without_replacement(instance: Any) -> None:
    """The sort itself, on exact numbers, against every set: the theorem that the large
    vocabulary rests on (small ones look at the sets)."""
    p, q, k = instance
    if np.count_nonzero(q) <= k:
        return  # the fallback's case has a form of its own
    check_order(p, q, k, optimum._by_ratio(p, q))


def check_order(p: Any, q: Any, k: int, order: Any) -> None:
    """Some beginning of `order` attains the optimum."""
    inside = optimum._within_sets(q[order], k)
    beginnings = [inside[(1 << m) - 1] for m in range(1, len(order) + 1)]
    found = optimum._best(p[order], np.array(beginnings))
    assert found == by_every_set(p, q, k, "without_replacement")


def test_another_order_is_found() -> None:
    """The planted fault: by p, not by p / q."""
    p, q = exact([1, 1, 1]), exact([1, 3, 4])
    check_order(p, q, 2, optimum._by_ratio(p, q))
    must_fail(check_order, p, q, 2, np.argsort(p))


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(instances(most=5, deepest=4))
def test_two_draws_have_a_closed_form(instance: Any) -> None:
    _, q, _ = instance
    q = q[q > 0]
    if len(q) > 2:
        sets = optimum._within_sets(q, 2)
        expected = [sets[(1 << m) - 1] for m in range(1, len(q) + 1)]
        assert optimum._pairs(q).tolist() == expected
        assert np.allclose(
            optimum._pairs(q.astype(float)),
            [float(x) for x in expected],
            rtol=0,
            atol=1e-14,
        )


def test_the_closed_form_keeps_its_digits_where_q_is_almost_sure() -> None:
    for tiny in (1e-8, 1e-14, 1e-30):
        q = exact([10**30, int(1e30 * tiny), int(2e30 * tiny), int(5e30 * tiny)])
        for order in ([0, 1, 2, 3], [3, 1, 0, 2], [1, 2, 3, 0]):
            there = optimum._pairs(q[order]).astype(float)
            here = optimum._pairs(q[order].astype(float))
            assert np.allclose(here, there, rtol=0, atol=1e-14)


# ------------------------------------------------------------------- the fallback

EXHAUSTED = exact([0, 0, 8, 1, 3]), exact([1, 0, 0, 0, 0]), 3
"""q has one token, and two more are drawn uniformly from the other four."""


def check_fallback() -> None:
    p, q, k = EXHAUSTED
    found = optimal_acceptance(p, q, k, "without_replacement")
    assert found == by_every_set(p, q, k, "without_replacement") == F(5, 6)


def test_under_the_fallback_the_order_is_that_of_p() -> None:
    check_fallback()


def test_an_order_by_token_id_under_the_fallback_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The planted fault: p / q is infinite for all of them, and a stable sort keeps
    the order of their ids."""
    monkeypatch.setattr(optimum.np, "sort", lambda row: row)
    must_fail(check_fallback)


def test_the_fallback_at_a_real_vocabulary() -> None:
    """A greedy draft of one token, and seven more: exact numbers in floats."""
    size = 49_152
    q = np.zeros(size)
    q[7] = 1.0
    p = np.zeros(size)
    p[[7, 9]] = 0.25, 0.75
    found = optimal_acceptance(p, q, 8, "without_replacement")
    assert found == pytest.approx(0.25 + 7 / (size - 1), abs=1e-12)
    assert optimal_acceptance(q, q, 8, "without_replacement") == 1


# ------------------------------------------------------------------ large vocabulary


def rows(seed: int, size: int, sharp: float) -> Any:
    """Float rows p and q that are related as a target's and a draft's are."""
    generator = np.random.default_rng(seed)
    logits = sharp * generator.standard_t(4, size)
    other = logits + generator.normal(size=size)
    laws = [np.exp(row - row.max()) for row in (logits, other)]
    return [row / row.sum() for row in laws]


@pytest.mark.parametrize("k", [2, 3, 5, 8])
@pytest.mark.parametrize("sharp", [0.5, 2, 10, 60])
def test_the_integral_is_the_sum_over_sets(k: int, sharp: float) -> None:
    q = rows(k, 11, sharp)[0]
    sets = optimum._within_sets(q, k)
    expected = [sets[(1 << m) - 1] for m in range(1, 12)]
    assert np.abs(arrivals.within(q, k) - expected).max() < 1e-13 < arrivals.ERROR


@pytest.mark.parametrize("sharp", [1, 4, 15])
def test_the_integral_at_a_larger_vocabulary(sharp: float) -> None:
    """Against the closed form of two draws, and against a finer grid."""
    q = rows(4, 1500, sharp)[0]
    assert np.abs(arrivals.within(q, 2) - optimum._pairs(q)).max() < 1e-12
    fine = arrivals.within(q, 4, step=arrivals.STEP / 2)
    assert np.abs(arrivals.within(q, 4) - fine).max() < 1e-12


def test_a_coarse_grid_is_found() -> None:
    """The planted fault: too few points."""

    def check(step: float) -> None:
        q = rows(4, 300, 1)[0]
        assert np.abs(arrivals.within(q, 2, step=step) - optimum._pairs(q)).max() < (
            arrivals.ERROR
        )

    check(arrivals.STEP)
    must_fail(check, 1.5)


def test_many_drafts_need_closer_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal q: the sets of k tokens are equally likely. Above 170 drafts k! leaves
    float64. The planted fault: the points of few drafts for many."""

    def check(k: int, size: int) -> None:
        found = arrivals.within(np.full(size, 1 / size), k)
        sets = math.comb(size, k)
        expected = [math.comb(m, k) / sets for m in range(1, size + 1)]
        assert np.abs(found - expected).max() < 1e-13 < arrivals.ERROR

    for k in (16, 17, 40, 100, 200):
        for size in (k + 1, 2 * k, 5 * k):
            check(k, size)
    q = rows(7, 400, 2)[0]
    fine = arrivals.within(q, 60, step=arrivals.STEP / 3)
    assert np.abs(arrivals.within(q, 60) - fine).max() < 1e-12
    monkeypatch.setattr(arrivals, "_FEW", 10**9)
    check(16, 80)
    must_fail(check, 60, 300)


def test_an_integral_that_would_take_minutes_is_refused() -> None:
    q = rows(8, 49_152, 1)[0]
    with pytest.raises(SpecbookError, match="products"):
        optimal_acceptance(q, q, 4096, "without_replacement")


def test_the_integral_and_the_sets_meet_at_their_border(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    p, q = rows(9, optimum.MOST, 2)
    q = q[::-1]  # far from p, or every optimum is 1
    for k in (3, 4, 6):
        there = optimal_acceptance(p, q, k, "without_replacement")
        with monkeypatch.context() as patch:
            patch.setattr(optimum, "MOST", 4)
            here = optimal_acceptance(p, q, k, "without_replacement")
        assert here < 1 and abs(here - there) < 1e-12


def test_more_drafts_accept_more_and_distinct_ones_more_still() -> None:
    p, q = rows(1, 2000, 1)
    q = q[::-1]  # far from p, or every optimum is 1
    for sampling in ("iid", "without_replacement"):
        values = [optimal_acceptance(p, q, k, sampling) for k in (1, 2, 3, 4, 8)]
        assert values == sorted(values) and 0 < values[0] < values[-1] < 1
    single = np.minimum(p, q).sum()
    assert optimal_acceptance(p, q, 1) == pytest.approx(single, abs=1e-12)
    for k in (2, 3, 4):
        apart = optimal_acceptance(p, q, k, "without_replacement")
        assert optimal_acceptance(p, q, k) < apart


def test_equal_laws_are_iid_at_any_size() -> None:
    p, q = rows(2, 5000, 2)
    there = optimal_acceptance(p, [q, q, q], 3, "independent")
    assert there == optimal_acceptance(p, q, 3)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(st.data())
def test_laws_that_differ_against_the_flow(data: Any) -> None:
    size = data.draw(st.integers(2, 4))
    p, one, other = (exact(data.draw(weights(size))) for _ in range(3))
    found = optimal_acceptance(p, [one, other], 2, "independent")
    assert found == transport(p, [one, other], 2, "independent").acceptance
    assert found == optimal_acceptance(p, [other, one], 2, "independent")


def test_what_cannot_be_answered_is_refused() -> None:
    many = exact([1] * 20)
    with pytest.raises(SpecbookError, match="only float64"):
        optimal_acceptance(many, many, 3, "without_replacement")
    assert optimal_acceptance(many, many, 2, "without_replacement") == 1
    other = exact([1, 2] * 10)
    with pytest.raises(SpecbookError, match="at most 16"):
        optimal_acceptance(many, [many, other], 2, "independent")
    tiny = np.full(30, 1e-320)
    tiny[0] = 1.0
    with pytest.raises(SpecbookError, match="too small"):
        optimal_acceptance(tiny, tiny, 3, "without_replacement")


@pytest.mark.parametrize(
    ("change", "error", "told"),
    [
        ({"q": [0.5, 0.6, 0.1]}, LawError, "q sums to"),
        ({"q": []}, LawError, "q must be"),
        ({"p": {0: 1}}, LawError, "p must be a sequence"),
        ({"k": "2"}, SpecbookError, "k must be an integer"),
        ({"k": 0}, SpecbookError, "k must be at least 1"),
        ({"sampling": "hub", "k": 1}, SpecbookError, "hub"),
        ({"sampling": ["iid"]}, SpecbookError, "sampling must be one of"),
    ],
)
def test_bad_input_is_refused_by_name(change: Any, error: Any, told: str) -> None:
    with pytest.raises(error, match=told):
        optimal_acceptance(**{"p": P, "q": Q, "k": 2, **change})
