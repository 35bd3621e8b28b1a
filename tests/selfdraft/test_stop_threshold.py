"""The threshold of section 0x05A, exactly: two rules, once a round."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction as F
from typing import Any

import pytest

from specbook.drafts.stop_threshold import (
    MOST,
    RULES,
    START_GREEDY,
    START_SAMPLING,
    StopThreshold,
    ThresholdPolicy,
)
from specbook.errors import SpecbookError

EXACT: dict[str, Any] = {
    "start": F(4, 5),
    "target": F(9, 10),
    "epsilon": F(1, 100),
    "beta1": F(1, 2),
    "beta2": F(9, 10),
}
ROUNDS = [(8, 8), (8, 8), (8, 8), (8, 8), (3, 3), (0, 2), (8, 8), (0, 0), (5, 5)]
"""Accepted and drafted: full, short, refused and empty drafts, on both sides of the
target rate."""


def by_hand(rule: str, rounds: Sequence[tuple[int, int]]) -> list[tuple[F, F]]:
    """(gamma, ema) after each round, in the article's own words."""
    gamma, ema, found = F(4, 5), F(0), []
    for accepted, drafted in rounds:
        if drafted:
            ema = F(1, 2) * ema + F(1, 2) * F(accepted, drafted)
            if ema < F(9, 10) or (rule == "article" and ema == F(9, 10)):
                candidate = gamma + F(1, 100)
            elif rule == "original" and drafted == 8:
                candidate = gamma
            else:
                candidate = gamma - F(1, 100)
            gamma = F(9, 10) * gamma + F(1, 10) * candidate
        found.append((gamma, ema))
    return found


def trace(rule: str, rounds: Sequence[tuple[int, int]], kind: Any = StopThreshold):
    threshold = kind(ThresholdPolicy(rule, **EXACT))
    found = []
    for number, (accepted, drafted) in enumerate(rounds):
        threshold.learn(number, accepted, drafted)
        found.append((threshold.gamma, threshold.ema))
    return found


@pytest.mark.parametrize("rule", RULES)
def test_the_trace_is_the_formula_exactly(rule: str) -> None:
    assert trace(rule, ROUNDS) == by_hand(rule, ROUNDS)


def test_the_numbers_of_two_rounds() -> None:
    for rule in RULES:
        first, second = trace(rule, [(8, 8), (4, 8)])
        assert first == (F(801, 1000), F(1, 2))
        assert second == (F(802, 1000), F(1, 2))


def test_an_update_twice_a_round_is_refused_and_would_be_seen() -> None:
    """The planted fault of a loop that learns once for a round and once for a token."""
    threshold = StopThreshold()
    threshold.learn(0, 1, 2)
    moved = threshold.gamma, threshold.ema
    with pytest.raises(SpecbookError, match="moved in round 0 already"):
        threshold.learn(0, 1, 2)
    assert (threshold.gamma, threshold.ema) == moved

    class Twice(StopThreshold):
        def learn(self, number: int, accepted: int, drafted: int) -> None:
            super().learn(2 * number, accepted, drafted)
            super().learn(2 * number + 1, accepted, drafted)

    for rule in RULES:
        assert trace(rule, ROUNDS, Twice) != by_hand(rule, ROUNDS)


def test_at_the_target_rate_itself_the_rules_part() -> None:
    exact = {**EXACT, "target": F(1, 2)}
    moved = {}
    for rule in RULES:
        threshold = StopThreshold(ThresholdPolicy(rule, **exact))
        threshold.learn(0, 3, 3)  # an estimate of exactly 1/2
        moved[rule] = threshold.gamma - F(4, 5)
    assert moved == {"article": F(1, 1000), "original": -F(1, 1000)}


def test_only_the_original_holds_after_a_full_draft() -> None:
    exact = {**EXACT, "target": F(1, 4)}
    for drafted, held in ((MOST, True), (MOST - 1, False)):
        gammas = {}
        for rule in RULES:
            threshold = StopThreshold(ThresholdPolicy(rule, **exact))
            threshold.learn(0, drafted, drafted)
            gammas[rule] = threshold.gamma
        assert gammas["article"] == F(799, 1000)
        assert gammas["original"] == (F(4, 5) if held else F(799, 1000))


def test_a_round_without_a_draft_moves_nothing() -> None:
    threshold = StopThreshold()
    threshold.learn(0, 0, 0)
    assert (threshold.gamma, threshold.ema) == (START_GREEDY, 0)


def test_it_stops_below_gamma_and_not_at_it() -> None:
    threshold = StopThreshold(ThresholdPolicy(start=F(1, 2)))
    assert [threshold.stops(c) for c in (F(49, 100), F(1, 2), 1)] == [
        True,
        False,
        False,
    ]


def test_the_usual_constants_are_the_official_ones() -> None:
    policy = ThresholdPolicy()
    assert (policy.beta1, policy.target, policy.epsilon, policy.beta2) == (
        *(0.5, 0.9, 0.01),
        0.9,
    )
    assert MOST == StopThreshold().most == 8
    assert StopThreshold().gamma == START_GREEDY == 0.8
    assert StopThreshold(greedy=False).gamma == START_SAMPLING == 0.5
    assert StopThreshold().ema == 0


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: ThresholdPolicy("best"), "rule must be one of"),
        (lambda: ThresholdPolicy(start=1.5), "start must be at most 1"),
        (lambda: ThresholdPolicy(beta1=-1), "beta1 must be at least 0"),
        (lambda: ThresholdPolicy(epsilon=float("nan")), "epsilon must be finite"),
        (lambda: ThresholdPolicy(target="high"), "target must be a real number"),
        (lambda: StopThreshold("original"), "not a ThresholdPolicy"),
        (lambda: StopThreshold(most=0), "most must be at least 1"),
        (lambda: StopThreshold(greedy=1), "greedy must be True or False"),
        (lambda: StopThreshold().learn(0, 3, 2), "accepted must be at most 2"),
        (lambda: StopThreshold().learn(0, 0, 9), "drafted must be at most 8"),
        (lambda: StopThreshold().learn(-1, 0, 0), "round must be at least 0"),
        (lambda: StopThreshold().stops(1.1), "confidence must be at most 1"),
    ],
)
def test_bad_input_is_refused(make: Any, told: str) -> None:
    with pytest.raises(SpecbookError, match=told):
        make()
