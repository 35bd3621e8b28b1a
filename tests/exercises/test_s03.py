"""The judges of 0x03: right answers pass, each usual mistake is named."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from specbook.exercises import get
from tests.exercises.judging import names_the_mistake, told

# ------------------------------------------------------------------------- right


def rounds(tokens, offered):
    place = count = 0
    while place < len(tokens):
        for token in offered.get(place, []):
            if place == len(tokens) or token != tokens[place]:
                break
            place += 1
        place, count = place + 1, count + 1
    return count


def choose(offers, cost):
    time = {name: (d + cost[1 + int(n)]) / t for name, (t, d, n) in offers.items()}
    best = min(time, key=time.get)
    return best if time[best] < cost[1] else None


def shared(q, draft, target):
    kept = [q[draft.index(word)] if word in draft else 0 for word in target]
    return [p / sum(kept) for p in kept]


RIGHT = {"0x03-rounds": rounds, "0x03-choose": choose, "0x03-shared": shared}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("exercise_id", RIGHT)
def test_a_right_answer_passes(exercise_id, seed):
    solved, lines = told(exercise_id, RIGHT[exercise_id], seed)
    assert solved, lines
    assert "for less" not in lines


# ------------------------------------------------------------------------- wrong


def accepted_only(tokens, offered):
    place = count = 0
    while place < len(tokens):
        length = 0
        for token in offered.get(place, []):
            if place + length == len(tokens) or token != tokens[place + length]:
                break
            length += 1
        place, count = place + max(length, 1), count + 1
    return count


def past_a_mismatch(tokens, offered):
    place = count = 0
    while place < len(tokens):
        chain = offered.get(place, [])
        same = sum(a == b for a, b in zip(chain, tokens[place:], strict=False))
        place, count = place + same + 1, count + 1
    return count


def by_ids(q, draft, target):
    row = [*q, *[0] * len(target)][: len(target)]
    return [p / sum(row) for p in row]


def unscaled(q, draft, target):
    return [q[draft.index(word)] if word in draft else 0 for word in target]


def drafts_order(q, draft, target):
    kept = [p if word in target else 0 for word, p in zip(draft, q, strict=True)]
    return [p / sum(kept) for p in kept]


def spread(q, draft, target):
    kept = unscaled(q, draft, target)
    return [p + (1 - sum(kept)) / len(target) for p in kept]


def most_tokens(offers, cost):
    return max(offers, key=lambda name: offers[name][0])


def cheapest(offers, cost):
    return min(offers, key=lambda name: offers[name][1])


WRONG = [
    ("0x03-rounds", lambda tokens, offered: len(tokens), "plain decoding"),
    ("0x03-rounds", accepted_only, "the target's own token"),
    ("0x03-rounds", past_a_mismatch, "behind a mismatch"),
    ("0x03-rounds", lambda tokens, offered: len(offered), "is a round too"),
    ("0x03-rounds", lambda tokens, offered: -1, "from place to place"),
    ("0x03-choose", most_tokens, "the most tokens a round"),
    ("0x03-choose", cheapest, "its rows cost the target"),
    (
        "0x03-choose",
        lambda offers, cost: "wide" if len(offers) == 1 else None,
        "some source is faster",
    ),
    ("0x03-choose", lambda offers, cost: "oracle", "return one of"),
    ("0x03-choose", lambda offers, cost: "draft model", "as long as plain"),
    ("0x03-shared", unscaled, "no law any more"),
    ("0x03-shared", by_ids, "went by ids"),
    ("0x03-shared", drafts_order, "the target's ids"),
    ("0x03-shared", spread, "never draws them"),
    ("0x03-shared", lambda q, draft, target: {}, "return a list"),
    ("0x03-shared", lambda q, draft, target: [1], "entries"),
]


@pytest.mark.parametrize(
    ("exercise_id", "answer", "words"),
    WRONG,
    ids=[f"{name} {words}" for name, _, words in WRONG],
)
def test_a_usual_mistake_is_named(exercise_id, answer, words):
    names_the_mistake(exercise_id, answer, words, seeds=20)


def test_a_source_that_gains_is_right_and_may_not_be_the_best():
    def any_gain(offers, cost):
        for name, (tokens, drafting, rows) in sorted(offers.items()):
            if (drafting + cost[1 + int(rows)]) / tokens < cost[1]:
                return name
        return None

    solved, lines = told("0x03-choose", any_gain)
    assert solved and "for less" in lines


@pytest.mark.parametrize("seed", range(8))
def test_a_case_has_a_source_and_some_have_none_that_gains(seed):
    cases = list(get("0x03-choose").cases(np.random.default_rng(seed)))
    answers = [choose(*case) for case in cases]
    assert None in answers and any(answers)
    assert all(isinstance(tokens, Fraction) for tokens, _, _ in cases[0][0].values())
