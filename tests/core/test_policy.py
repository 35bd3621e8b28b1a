"""From raw rows to the law that is decoded (bug cases H18 and H19)."""

from __future__ import annotations

import math
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbook.errors import LawError, SpecbookError
from specbook.policy import SamplingPolicy

from .helpers import must_fail, named
from .helpers.laws import counts, fractions

ROWS = [
    [0, 30, 29.999],
    [0, 1e4, -1e4],
    [0.0, 1e308, -1e308],
    [1e308, -1e308, 0.0],
    [-1e308, -1.7e308, -1e308],
    [-math.inf, 0.0, -math.inf],
    [-math.inf, 3.0, 3.0],
    [5e-324, 0.0, -5e-324],
    [7.0],
]
TEMPERATURES = [0, 5e-324, 2.3e-308, 1e-6, 1e-3, 0.7, 1, 1e3, 1.7e308]


@pytest.fixture(autouse=True)
def _no_warnings() -> Any:
    """An overflow that is only warned about is a fault here."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def check_law(law: np.ndarray, size: int) -> None:
    assert law.shape == (size,)
    assert np.isfinite(law).all()
    assert (law >= 0).all()
    assert abs(law.sum() - 1) < 1e-12


def naive_law(logits: Any, temperature: float) -> np.ndarray:
    """The planted fault: exponentiates before anything is subtracted."""
    with np.errstate(all="ignore"):
        weights = np.exp(np.asarray(logits, dtype=float) / temperature)
        return weights / weights.sum()


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("row", ROWS, ids=named)
def test_h19_every_temperature_gives_a_law(row: Any, temperature: Any) -> None:
    forms = [row, np.array(row)]
    if max(map(abs, filter(math.isfinite, row))) < 3e38:
        forms.append(np.array(row, dtype=np.float32))
    for logits in forms:
        law = SamplingPolicy(temperature).law_from_logits(logits)
        assert law.dtype == np.float64
        check_law(law, len(row))
        top = int(np.argmax(row))
        assert law[top] == law.max()
        if temperature in (0, 1e-6, 5e-324) and abs(row[top]) > 1e-300:
            assert law[top] == 1 / sum(x == row[top] for x in row) or not temperature
        if temperature == 0:
            assert law[top] == 1


def test_h19_the_naive_way_fails_the_same_check() -> None:
    for row, temperature in (([0, 1e4, -1e4], 1e-3), ([0, 30, 29.999], 0)):
        check_law(SamplingPolicy(temperature).law_from_logits(row), 3)
        must_fail(check_law, naive_law(row, temperature or 1e-320), 3)


def test_the_law_is_the_softmax() -> None:
    logits = np.array([0.1, -2.0, 3.5, -math.inf, 1.0])
    for temperature in (0.3, 1, 2.5):
        expected = np.exp(logits / temperature)
        law = SamplingPolicy(temperature).law_from_logits(logits)
        np.testing.assert_allclose(law, expected / expected.sum(), rtol=1e-14)
        assert law[3] == 0


def test_whole_numbers_are_logits_too() -> None:
    for logits in ([1, 2, 3], np.array([1, 2, 3]), np.array([1, 2, 3], np.uint8)):
        law = SamplingPolicy(1).law_from_logits(logits)
        np.testing.assert_array_equal(
            law, SamplingPolicy(1).law_from_logits([1.0, 2.0, 3.0])
        )
        assert SamplingPolicy(0).law_from_logits(logits).tolist() == [0, 0, 1]


def test_a_temperature_has_one_form() -> None:
    for temperature in (Fraction(1, 2), np.float32(0.5), 0.5):
        policy = SamplingPolicy(temperature)  # type: ignore[arg-type]
        assert type(policy.temperature) is float and policy == SamplingPolicy(0.5)


def test_zero_is_the_argmax_and_ties_go_to_the_lowest_id() -> None:
    greedy = SamplingPolicy(0)
    assert greedy.greedy and not SamplingPolicy(1e-300).greedy
    assert greedy.law_from_logits([1.0, 5.0, 5.0]).tolist() == [0, 1, 0]
    assert greedy.law_from_logits([-math.inf, -1.0, -1.0]).tolist() == [0, 1, 0]
    exact = greedy.law_from_probabilities(fractions([1, 2, 2]))
    assert exact.tolist() == [0, 1, 0]
    assert all(type(p) is Fraction for p in exact)
    assert greedy.law_from_probabilities([0.2, 0.4, 0.4]).tolist() == [0, 1, 0]
    assert SamplingPolicy(-0.0) == greedy


def test_the_callers_row_is_not_changed() -> None:
    logits = np.array([1.0, 2.0, 3.0])
    law = np.array([0.25, 0.25, 0.5])
    for policy in (
        SamplingPolicy(0.5),
        SamplingPolicy(1, 2),
        SamplingPolicy(1, 2, 0.5),
    ):
        policy.law_from_logits(logits)
        policy.law_from_probabilities(law)
    assert logits.tolist() == [1, 2, 3]
    assert law.tolist() == [0.25, 0.25, 0.5]


BROKEN_LOGITS = [
    ([math.nan] * 3, "NaN"),
    ([0.0, math.nan, 9.0], "NaN"),
    ([math.nan, math.inf, 0.0], "NaN|inf"),
    ([0.0, math.inf, 1.0], "inf"),
    ([-math.inf] * 3, "no finite"),
    ([], "row of logits"),
    ([[1.0, 2.0]], "row of logits"),
    (3.0, "row of logits"),
    (None, "logits"),
    ("abc", "logits"),
    (["a", "b"], "type"),
    ([1j, 2.0], "type"),
    ([True, False], "type"),
    ([None, 1.0], "type"),
]


@pytest.mark.parametrize("temperature", [0, 1e-6, 1])
@pytest.mark.parametrize("row, told", BROKEN_LOGITS, ids=named)
def test_h18_broken_logits_name_the_row(row: Any, told: str, temperature: Any) -> None:
    with pytest.raises(LawError, match=f"row 17.*({told})"):
        SamplingPolicy(temperature).law_from_logits(row, where="row 17")


BROKEN_LAWS = [
    [math.nan] * 2,
    [0.5, math.nan, 0.5],
    [-math.inf, 1.0],
    [],
    [0.5, 0.4],
    [1.2, -0.2],
    [Fraction(1, 2), Fraction(1, 3)],
]


@pytest.mark.parametrize("temperature", [0, 0.5, 1])
@pytest.mark.parametrize("row", BROKEN_LAWS, ids=named)
def test_h18_broken_laws_name_the_row(row: Any, temperature: Any) -> None:
    with pytest.raises(LawError, match="row 17"):
        SamplingPolicy(temperature).law_from_probabilities(row, where="row 17")


@pytest.mark.parametrize("temperature", [-1, -1e-300, math.nan, math.inf, None, "1"])
def test_h19_temperatures_that_are_none_are_refused(temperature: Any) -> None:
    with pytest.raises(SpecbookError, match="temperature"):
        SamplingPolicy(temperature)


@pytest.mark.parametrize(
    "temperature", [True, [1.0], 1j, 10**400, Fraction(1, 10**400)], ids=type
)
def test_temperatures_without_a_place_in_float64_are_refused(temperature: Any) -> None:
    with pytest.raises(SpecbookError, match="temperature"):
        SamplingPolicy(temperature)


@pytest.mark.parametrize(
    "options",
    [
        {"top_k": 0},
        {"top_k": -1},
        {"top_k": 1.5},
        {"top_k": True},
        {"top_p": 0},
        {"top_p": 0.0},
        {"top_p": -0.5},
        {"top_p": 1.5},
        {"top_p": math.nan},
        {"top_p": "0.9"},
    ],
    ids=named,
)
def test_truncations_that_are_none_are_refused(options: Any) -> None:
    with pytest.raises(SpecbookError, match=next(iter(options))):
        SamplingPolicy(1, **options)


# ------------------------------------------------------------------ truncation


def reference(p: list[Fraction], top_k: Any, top_p: Any) -> list[Fraction]:
    """Truncation told in words: sort by (larger first, lower id first); keep k of
    them; of those, renormalised, keep the shortest beginning that reaches top_p."""
    order = sorted(range(len(p)), key=lambda i: (-p[i], i))
    kept = order[: top_k or len(p)]
    total = sum(p[i] for i in kept)
    if top_p is not None:
        reached, some = Fraction(0), []
        for i in kept:
            if reached >= top_p:
                break
            some.append(i)
            reached += p[i] / total
        kept = some
    total = sum(p[i] for i in kept)
    return [p[i] / total if i in kept else Fraction(0) for i in range(len(p))]


def check_truncation(policy: SamplingPolicy, p: list[Fraction], process: Any) -> None:
    found = process(policy, p)
    expected = reference(p, policy.top_k, policy.top_p)
    if all(type(x) is Fraction for x in found):
        assert list(found) == expected
    else:
        np.testing.assert_allclose(found, [float(x) for x in expected], atol=1e-12)


def exactly(policy: SamplingPolicy, p: Any) -> Any:
    return policy.law_from_probabilities(p)


def in_floats(policy: SamplingPolicy, p: Any) -> Any:
    return policy.law_from_probabilities(np.array([float(x) for x in p]))


def keeps_one_more(policy: SamplingPolicy, p: Any) -> Any:
    """The planted fault that was here once: the token's own share is added to the sum
    and taken off again, which rounds 0.6 down to 0.5999999999999999."""
    law = np.array([float(x) for x in p])
    order = np.argsort(-law, kind="stable")
    before = np.cumsum(law[order]) - law[order]
    kept = np.where(np.isin(np.arange(len(law)), order[before < policy.top_p]), law, 0)
    return kept / kept.sum()


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_truncation_on_fractions_and_floats(data: Any) -> None:
    p = fractions(data.draw(counts(data.draw(st.integers(1, 6)))))
    top_k = data.draw(st.none() | st.integers(1, 7))
    # Sums of these laws have denominators below 25, so no sum meets the threshold.
    top_p = data.draw(st.none() | st.sampled_from([1e-9, 0.301, 0.503, 0.7001, 1.0]))
    policy = SamplingPolicy(1, top_k, top_p)
    check_truncation(policy, p, exactly)
    check_truncation(policy, p, in_floats)


def test_a_threshold_that_is_met_exactly_keeps_no_more() -> None:
    p = [Fraction(6, 10), Fraction(3, 10), Fraction(1, 10)]
    policy = SamplingPolicy(1, top_p=0.6)
    check_truncation(policy, p, in_floats)
    must_fail(check_truncation, policy, p, keeps_one_more)


def test_ties_at_the_cut_go_to_the_lowest_ids() -> None:
    p = fractions([1, 1, 1, 1])
    assert SamplingPolicy(1, top_k=2).law_from_probabilities(p).tolist() == (
        fractions([1, 1, 0, 0])
    )
    assert SamplingPolicy(1, top_p=Fraction(1, 2)).law_from_probabilities(
        p
    ).tolist() == fractions([1, 1, 0, 0])


def test_a_top_k_beyond_the_vocabulary_changes_nothing() -> None:
    p = fractions([1, 2, 3])
    assert SamplingPolicy(1, top_k=99).law_from_probabilities(p).tolist() == p


def test_logits_and_probabilities_agree() -> None:
    p = np.array([0.1, 0.2, 0.0, 0.7])
    with np.errstate(divide="ignore"):
        logits = np.log(p)
    for policy in (
        SamplingPolicy(1),
        SamplingPolicy(0.5),
        SamplingPolicy(2, top_k=2),
        SamplingPolicy(2, top_p=0.6),
        SamplingPolicy(0),
    ):
        np.testing.assert_allclose(
            policy.law_from_logits(logits),
            policy.law_from_probabilities(p),
            atol=1e-14,
        )


def test_fractions_stay_fractions_at_temperatures_zero_and_one_only() -> None:
    p = fractions([1, 3])
    for temperature, exact in ((0, True), (1, True), (1.0, True), (0.5, False)):
        law = SamplingPolicy(temperature).law_from_probabilities(p)
        assert all(type(x) is Fraction for x in law) is exact
