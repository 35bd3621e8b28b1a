"""The draft length: it maximises the round-cost equation, learns, and recovers."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbook.drafts.draft_length import (
    BUCKETS,
    COST,
    PRIOR,
    PRIOR_LARGEST,
    PRIOR_WEIGHT,
    DraftLength,
    bucket,
    checked_prior,
    prior_of,
)
from specbook.drafts.prompt_lookup import PromptLookup
from specbook.drafts.suffix import Suffix
from specbook.errors import SpecbookError

FLAT = ((1, 1.0), (64, 1.0))
STEEP = ((1, 1.0), (64, 64.0))
GENTLE = ((1, 1.0), (16, 2.0), (64, 5.0))


def brute_force(control: DraftLength, match: int, most: int) -> int:
    """The argmax of E[N_commit] / C_round, written out from the definition."""

    def rate(length: int) -> float:
        expected = 0.0
        for agreeing in range(length + 1):
            product = 1.0
            for index in range(agreeing):
                product *= control.agreement(match + index)
            expected += product
        return expected / control.time(1 + length)

    return max(range(most + 1), key=lambda length: (rate(length), -length))


@settings(max_examples=200, deadline=None)
@given(
    counts=st.lists(
        st.tuples(st.integers(1, 40), st.integers(1, 40)),
        min_size=len(BUCKETS),
        max_size=len(BUCKETS),
    ),
    times=st.lists(st.integers(0, 30), min_size=1, max_size=4),
    match=st.integers(0, 20),
    most=st.integers(0, 20),
)
def test_the_choice_maximises_tokens_per_time(
    counts: list, times: list, match: int, most: int
) -> None:
    cost, total = [(1, 10)], 10
    for index, step in enumerate(times):
        total += step
        cost.append((5 * (index + 1), total))
    control = DraftLength(cost, counts)
    chosen = control.choose(match, most)
    best = brute_force(control, match, most)
    if chosen != best:  # a tie up to rounding
        rates = []
        for length in (chosen, best):
            survive = expected = 1.0
            for index in range(length):
                survive *= control.agreement(match + index)
                expected += survive
            rates.append(expected / control.time(1 + length))
        assert rates[0] == pytest.approx(rates[1], rel=1e-12)


def test_two_worked_choices() -> None:
    half = [(1, 1)] * len(BUCKETS)
    # Rows are free: every copy helps. Rows cost a step each: 1 + 1/2 < 2.
    assert DraftLength(FLAT, half).choose(1, 10) == 10
    assert DraftLength(STEEP, half).choose(1, 10) == 0
    # t = 1, 1.2, 1.4, 1.6: 1.5/1.2 = 1.25, 1.75/1.4 = 1.25 (a tie), 1.875/1.6 = 1.17
    slope = ((1, 1.0), (2, 1.2), (3, 1.4), (4, 1.6))
    assert DraftLength(slope, half).choose(1, 10) == 1


def test_agreement_is_the_posterior_mean_of_its_class() -> None:
    control = DraftLength(prior=[(Fraction(1), Fraction(1))] * len(BUCKETS))
    # Match 2, then 3, then 4: two agreements and a refusal, each in its own class.
    control.learn(2, [7, 8, 9, 9], [7, 8, 0])
    assert control.agreement(1) == Fraction(1, 2)
    assert control.agreement(2) == Fraction(2, 3)
    assert control.agreement(3) == Fraction(2, 3)
    assert control.agreement(4) == control.agreement(5) == Fraction(1, 3)
    assert control.agreement(16) == control.agreement(999)
    # Nothing after a disagreement counts, and neither does what was not committed.
    control.learn(1, [5, 5, 5], [6, 5, 5])
    control.learn(1, [5, 5, 5], [])
    assert control.agreement(1) == Fraction(1, 3)
    assert control.agreement(2) == Fraction(2, 3)


def test_times_are_linear_between_the_pairs_and_go_on_after_them() -> None:
    control = DraftLength(((1, 1), (3, 2), (5, 6)))
    assert [control.time(n) for n in (1, 2, 3, 4, 5, 6)] == [1, 1.5, 2, 4, 6, 8]


def run(session, truth: list[int]) -> list[int]:  # noqa: ANN001
    """Drafts through `truth` as a target that says `truth` would; K of each round."""
    drafted = []
    at = 0
    while at < len(truth):
        proposal = session.propose(max_depth=len(truth), max_nodes=64)
        copied = [node.token_id for node in proposal.nodes]
        drafted.append(len(copied))
        agreed = 0
        while (
            agreed < len(copied) and truth[at : at + agreed + 1] == copied[: agreed + 1]
        ):
            agreed += 1
        session.commit(truth[at : at + agreed + 1])
        at += agreed + 1
    return drafted


PHRASE = list(range(100, 140))


def misses(count: int) -> list[int]:
    """Tokens after which every look-up hits and every copy is wrong: 1 comes back each
    time with another follower."""
    return [token for index in range(count) for token in (1, 200 + index)]


def test_a_perfect_history_grows_to_the_cap_and_misses_fall_to_zero() -> None:
    source = PromptLookup(3, 16, length="adaptive", cost=GENTLE)
    good = run(source.start(PHRASE), PHRASE * 6)
    assert good[-2:].count(16) >= 1 and max(good) == 16
    session = source.start([1])
    bad = run(session, misses(40))
    assert bad[-40:] == [0] * 40
    fixed = run(PromptLookup(3, 16).start([1]), misses(40))
    # The planted fault: without control every hit goes on to draft wrong copies.
    assert sorted(fixed[-40:]) == [0] * 20 + [2] * 20


def test_it_recovers_from_misses_and_within_the_stated_bound() -> None:
    prior = [(1, 1)] * len(BUCKETS)
    control = DraftLength(((1, 1.0), (2, 1.25), (3, 2.0)), prior)
    # K = 1 pays when a > 1/4, which is (1 + agreed) / (2 + trials) > 1/4.
    for _ in range(10):
        control.learn(1, [5], [6])
    assert control.choose(1, 1) == 0
    rounds = 0
    while control.choose(1, 1) == 0:
        control.learn(1, [5], [5])  # only looked up: K was 0
        rounds += 1
    assert rounds == 3, "(1 + 3) / (12 + 3) = 0.267 is the first above 0.25"
    source = PromptLookup(3, 16, length="adaptive", cost=GENTLE)
    session = source.start([*PHRASE, 1])
    assert run(session, misses(20))[-1] == 0
    assert max(run(session, PHRASE * 3)) == 16


@pytest.mark.parametrize("kind", [PromptLookup, Suffix])
@pytest.mark.parametrize(
    ("depth", "committed"),
    [(4, [3, 4, 8]), (4, [3, 4, 9, 1]), (1, [3, 4]), (1, [7]), (0, [3])],
    ids=["refused", "all", "bonus", "first", "only looked up"],
)
def test_a_round_teaches_each_token_that_was_answered_once(
    kind: Any, depth: int, committed: list[int]
) -> None:
    source = kind(max_candidates=4, length="adaptive")
    session = source.start([1, 2, 3, 4, 9, 1, 2])
    session.propose(max_depth=depth, max_nodes=9)
    session.commit(committed)
    wanted = DraftLength(source.cost, source.prior)
    wanted.learn(2, [3, 4, 9, 1], committed)

    def shares(control: DraftLength) -> list[float]:
        return [control.agreement(match) for match in BUCKETS]

    assert shares(session._control) == shares(wanted)
    assert shares(wanted) != shares(DraftLength(source.cost, source.prior))
    # A commit with no round before it answers nothing.
    session.commit([9, 1, 2])
    assert shares(session._control) == shares(wanted)


def test_it_is_deterministic_and_belongs_to_the_session() -> None:
    source = PromptLookup(3, 8, length="adaptive")
    text = (PHRASE * 2 + misses(10)) * 2
    first = run(source.start([1]), text)
    assert run(source.start([1]), text) == first


def test_it_shortens_the_copy_and_changes_nothing_else() -> None:
    tokens = (PHRASE + misses(3)) * 3
    adaptive = PromptLookup(3, 8, length="adaptive").start(tokens)
    fixed = PromptLookup(3, 8).start(tokens)
    whole = [n.token_id for n in fixed.propose(max_depth=9, max_nodes=9).nodes]
    part = [n.token_id for n in adaptive.propose(max_depth=9, max_nodes=9).nodes]
    assert part == whole[: len(part)]
    assert adaptive.lookup() == fixed.lookup() == whole


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        (((1, 1.0),), "two or more"),
        (((2, 1.0), (3, 1.0)), "from 1"),
        (((1, 1.0), (3, 1.0), (3, 2.0)), "increasing"),
        (((1, 0.0), (2, 1.0)), "not above 0"),
        (((1, float("nan")), (2, 1.0)), "finite"),
        (((1, 2.0), (2, 1.0)), "falls at its end"),
        (((1, 2.0, 3.0), (2, 1.0)), "must be a pair"),
        (((1.5, 2.0), (2, 1.0)), "integer"),
        (7, "must hold pairs"),
        (((1, 10**400), (2, 10**400)), "cost\\[0\\] time is too large"),
        (((1, 1.0), (10**400, 2.0)), "cost\\[1\\] rows is too large"),
    ],
)
def test_bad_cost_tables_are_refused(cost: object, message: str) -> None:
    with pytest.raises(SpecbookError, match=message):
        PromptLookup(length="adaptive", cost=cost)


@pytest.mark.parametrize(
    "prior", [PRIOR[1:], ((0, 1), *PRIOR[1:]), ((1, -1), *PRIOR[1:]), None]
)
def test_bad_priors_are_refused(prior: object) -> None:
    with pytest.raises(SpecbookError, match="prior"):
        PromptLookup(length="adaptive", prior=prior)


def test_the_options_are_part_of_the_identity() -> None:
    plain, adaptive = PromptLookup(), PromptLookup(length="adaptive")
    other = PromptLookup(length="adaptive", cost=STEEP)
    assert len({plain.identity(), adaptive.identity(), other.identity()}) == 3
    assert str(COST[0]) in adaptive.identity()


@pytest.mark.parametrize("value", [-3, 1.5, None, "2", True, math.nan, math.inf])
def test_rows_and_matches_are_checked(value: object) -> None:
    control = DraftLength()
    with pytest.raises(SpecbookError, match="rows must be"):
        control.time(value)
    with pytest.raises(SpecbookError, match="match_length must be"):
        control.agreement(value)
    with pytest.raises(SpecbookError, match="match_length must be"):
        control.choose(value, 4)
    with pytest.raises(SpecbookError, match="match_length must be"):
        control.learn(value, [1], [1])
    with pytest.raises(SpecbookError, match="most must be"):
        control.choose(3, value)
    with pytest.raises(SpecbookError, match="rows must be at least 1"):
        control.time(0)


def test_what_is_learnt_from_is_checked_and_leaves_the_counts() -> None:
    control = DraftLength()
    before = [control.agreement(match) for match in range(1, 20)]
    for copied, committed, name in ((5, [1], "copied"), ([1], [None], "committed")):
        with pytest.raises(SpecbookError, match=name):
            control.learn(2, copied, committed)
    control.learn(0, [], [1])
    assert [control.agreement(match) for match in range(1, 20)] == before


# ------------------------------------------------------------------------- the prior


def one_class(pair: object) -> list:
    """Counts with `pair` in the first class and nothing in the others."""
    return [pair, *[(0, 0)] * (len(BUCKETS) - 1)]


@pytest.mark.parametrize(
    ("counts", "pair"),
    [
        ((0, 0), (2, 2)),
        ((25, 75), (1, 3)),
        ((37, 63), (1, 3)),  # 1.48 of 4
        ((38, 62), (2, 2)),  # 1.52 of 4
        ((3, 5), (2, 2)),  # 1.5 of 4: halves go up
        ((5, 3), (3, 1)),  # 2.5 of 4
        ((87, 13), (3, 1)),  # 3.48 of 4
        ((7, 1), (7, 1)),  # 3.5 of 4 would leave nothing, so the odds
        ((88, 12), (7, 1)),
        ((89, 10), (9, 1)),
        ((999, 1), (16, 1)),
        ((5, 0), (5, 1)),
        ((50, 0), (16, 1)),
        ((1, 0), (1, 1)),
        ((1, 11), (1, 11)),
        ((1, 8), (1, 8)),
        ((1, 7), (1, 3)),  # 0.5 of 4
        ((0, 3), (1, 3)),
        ((0, 30), (1, 16)),
    ],
)
def test_the_rule_from_counts_to_a_small_pair(
    counts: tuple[int, int], pair: tuple[int, int]
) -> None:
    assert prior_of(one_class(counts)) == (pair, *[(2, 2)] * (len(BUCKETS) - 1))


@settings(max_examples=200, deadline=None)
@given(agreed=st.integers(0, 400), refused=st.integers(0, 400))
def test_a_prior_is_near_its_share_and_can_be_outvoted(
    agreed: int, refused: int
) -> None:
    pair = prior_of(one_class((agreed, refused)))[0]
    assert min(pair) >= 1 and max(pair) <= PRIOR_LARGEST
    assert sum(pair) <= PRIOR_LARGEST + 1
    if agreed + refused >= 2 * PRIOR_WEIGHT:
        share = Fraction(agreed, agreed + refused)
        assert abs(Fraction(pair[0], sum(pair)) - share) <= Fraction(1, 8)
    checked_prior([pair] * len(BUCKETS))


def test_a_class_begins_at_its_least_match() -> None:
    for index, least in enumerate(BUCKETS):
        assert bucket(least) == index
        assert bucket(least - 1) == max(0, index - 1)
    assert bucket(10**6) == len(BUCKETS) - 1


def test_the_shipped_prior_is_that_of_the_development_answers() -> None:
    from specbook.measure import recording
    from specbook.measure.agreement import lookup_prior

    assert lookup_prior(recording.load(0.0, half="development")) == PRIOR


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        (5, "counts must hold pairs"),
        ([5], "counts must hold pairs"),
        (one_class((1, 1))[1:], "counts needs 7 pairs, got 6"),
        (one_class((1, 1, 1)), r"counts\[0\] must be a pair"),
        (one_class((1, -1)), r"counts\[0\] must be at least 0"),
        (one_class((True, 1)), r"counts\[0\] must be an integer"),
        (one_class((0.5, 1)), r"counts\[0\] must be an integer"),
        (one_class((1, float("nan"))), r"counts\[0\] must be an integer"),
    ],
)
def test_bad_counts_are_named(counts: object, message: str) -> None:
    with pytest.raises(SpecbookError, match=message):
        prior_of(counts)
