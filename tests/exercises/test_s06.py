"""The judges of 0x06: right answers pass, each usual mistake is named."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from specbook.exercises import get
from tests.exercises.judging import names_the_mistake, told

# ------------------------------------------------------------------------- right


def marginals(joint):
    found = [{} for _ in next(iter(joint))]
    for text, mass in joint.items():
        for row, token in zip(found, text, strict=True):
            row[token] = row.get(token, 0) + mass
    return found


def accepted(joint, start=1):
    laws, total, alive = marginals(joint), start - 1, {(): Fraction(1)}
    for place, q in enumerate(laws):
        below = {}
        for text, mass in alive.items():
            known = [m for t, m in joint.items() if t[:place] == text]
            for token in q:
                more = [m for t, m in joint.items() if t[: place + 1] == (*text, token)]
                p = Fraction(sum(more)) / sum(known)
                if both := min(p, q[token]):
                    below[*text, token] = mass * both
        alive = below
        total += sum(alive.values())
    return total


def rows(lengths, heads):
    found, start = [], 0
    for length in lengths:
        for t in range(1, length):
            for i in range(1, min(heads, length - t - 1) + 1):
                found.append((i, start + t - 1, start + t + i))
        start += length
    return found


def faster(offers, forward):
    ways = {
        (name, n): (forward[n] + (depth if waits else 1) * stage) / tokens
        for name, (waits, stage, sizes) in offers.items()
        for n, (depth, tokens) in sizes.items()
    }
    return min(ways, key=ways.get)


RIGHT = {"0x06-accepted": accepted, "0x06-rows": rows, "0x06-critical-path": faster}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("exercise_id", RIGHT)
def test_a_right_answer_passes(exercise_id, seed):
    solved, lines = told(exercise_id, RIGHT[exercise_id], seed)
    assert solved, lines


# ------------------------------------------------------------------------- wrong


def overlap(joint):
    laws = marginals(joint)
    total = 0
    for text, mass in joint.items():
        q = 1
        for law, token in zip(laws, text, strict=True):
            q *= law[token]
        total += min(mass, q)
    return total


def shifted(state_of, first):
    def answer(lengths, heads):
        n = sum(lengths)
        begins = {sum(lengths[:k]) for k in range(len(lengths))}
        return [
            (i, state_of(t, n, begins), t + i)
            for t in range(first, n)
            for i in range(1, min(heads, n - t - 1) + 1)
        ]

    return answer


wrap = shifted(lambda t, n, begins: (t - 1) % n, 0)
borrow = shifted(lambda t, n, begins: t - 1, 1)
clamp = shifted(lambda t, n, begins: t if t in begins else t - 1, 0)


def charged(count, divide=True):
    def answer(offers, forward):
        ways = {}
        for name, (waits, stage, sizes) in offers.items():
            for n, (depth, tokens) in sizes.items():
                cost = forward[n] + count(depth, waits) * stage
                ways[name, n] = cost / tokens if divide else cost
        return min(ways, key=ways.get)

    return answer


def most_tokens(offers, forward):
    ways = {
        (name, n): tokens
        for name, (_, _, sizes) in offers.items()
        for n, (_, tokens) in sizes.items()
    }
    return max(ways, key=ways.get)


WRONG = [
    ("0x06-accepted", lambda joint: accepted(joint, start=2), "counts the correction"),
    ("0x06-accepted", lambda joint: len(next(iter(joint))), "conditional law"),
    ("0x06-accepted", overlap, "whole texts"),
    ("0x06-accepted", lambda joint: Fraction(1), "first head alone"),
    ("0x06-rows", wrap, "nothing wraps"),
    ("0x06-rows", borrow, "border of a document"),
    ("0x06-rows", clamp, "Skip the token"),
    (
        "0x06-rows",
        lambda *case: [(i, h, x - 1) for i, h, x in rows(*case)],
        "its label is",
    ),
    (
        "0x06-rows",
        lambda *case: [(i, h + 1, x) for i, h, x in rows(*case)],
        "not been through the target",
    ),
    ("0x06-rows", lambda *case: sorted(rows(*case)), "by position, then by head"),
    ("0x06-critical-path", charged(lambda depth, waits: 1), "charge a stage a depth"),
    (
        "0x06-critical-path",
        charged(lambda depth, waits: depth),
        "charge them one stage",
    ),
    ("0x06-critical-path", charged(lambda depth, waits: 0), "charge a stage a depth"),
    ("0x06-critical-path", most_tokens, "not least time a token"),
    (
        "0x06-critical-path",
        charged(lambda depth, waits: depth if waits else 1, divide=False),
        "divide by the tokens",
    ),
    ("0x06-critical-path", lambda *case: "dependent", "the name and the number"),
]


@pytest.mark.parametrize(
    ("exercise_id", "answer", "words"),
    WRONG,
    ids=[f"{name} {words}" for name, _, words in WRONG],
)
def test_a_usual_mistake_is_named(exercise_id, answer, words):
    names_the_mistake(exercise_id, answer, words, seeds=10)


def test_rows_are_asked_of_documents_that_have_none():
    cases = list(get("0x06-rows").cases(np.random.default_rng(0)))
    truth = get("0x06-rows").oracle
    assert any(not truth(case) for case in cases)
    assert {tuple(case[0]): len(truth(case)) for case in cases[:3]} == {
        (4,): 3,
        (4, 3): 4,
        (0, 1, 2, 5): 6,
    }


def test_every_kind_of_heads_wins_somewhere():
    race = get("0x06-critical-path")
    winners = {
        race.oracle(case)[0]
        for seed in range(3)
        for case in race.cases(np.random.default_rng(seed))
    }
    assert winners == {"independent", "dependent"}


def test_the_marginals_of_the_judge_are_laws():
    for case in get("0x06-accepted").cases(np.random.default_rng(1)):
        assert sum(case.values()) == 1
        depth = len(next(iter(case)))
        truth = get("0x06-accepted").oracle(case)
        assert truth == accepted(case) and 1 <= truth <= depth
        laws = marginals(case)
        joint = all(
            case.get(text, 0)
            == np.prod([law[t] for law, t in zip(laws, text, strict=True)])
            for text in product(*laws)
        )
        assert (truth == depth) == joint
