"""The judges of the exercises of notebooks 0x00 and 0x02: a right answer is solved,
and each foreseen mistake is named."""

from fractions import Fraction

import pytest

from specbook import exercises
from specbook.exercises import s02
from specbook.ledger import RoundLedger

SEEDS = range(8)


# ---------------------------------------------------------------------- right answers


def published(proposed, target):
    count = 0
    while count < len(proposed) and proposed[count] == target[count]:
        count += 1
    return [*proposed[:count], target[count]]


def chain_worth(laws, chain):
    reach = worth = Fraction(1)
    for law, token in zip(laws, chain, strict=True):
        reach *= law[token]
        worth += reach
    return worth


def tokens_a_round(prompts):
    return Fraction(sum(map(sum, prompts)), sum(map(len, prompts)))


def accepted_path(tokens, parents, best):
    rows, token = [], best(-1)
    for row, parent in enumerate(parents):
        if parent == (rows[-1] if rows else -1) and tokens[row] == token:
            rows.append(row)
            token = best(row)
    return rows, token


def wrong_pair(p, q, drawn):
    kept = [d * min(1, a / b) for a, b, d in zip(p, q, drawn, strict=True)]
    left = [max(a - b, 0) for a, b in zip(p, q, strict=True)]
    refused = 1 - sum(kept)
    if not refused:
        return kept
    return [k + refused * rest / sum(left) for k, rest in zip(kept, left, strict=True)]


def speedup(rounds, step):
    return step * sum(r[6] for r in rounds) / sum(sum(r[:6]) for r in rounds)


RIGHT = {
    "0x00-published": published,
    "0x00-chain-worth": chain_worth,
    "0x00-tokens-a-round": tokens_a_round,
    "0x02-accepted-path": accepted_path,
    "0x02A-wrong-pair": wrong_pair,
    "0x02C-speedup": speedup,
}


def test_every_exercise_is_tried_here():
    assert set(RIGHT) == {*exercises.of_notebook("00"), *exercises.of_notebook("02")}


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_right_answer_is_solved(name, seed):
    report = exercises.grade(exercises.get(name), RIGHT[name], seed)
    assert report.solved, report


@pytest.mark.parametrize("name", RIGHT)
def test_a_stub_is_unsolved(name):
    report = exercises.grade(exercises.get(name), lambda *case: ..., 0)
    assert report.status == "unsolved"


# ------------------------------------------------------------------ foreseen mistakes


def own_rows(tokens, parents, best):
    rows = s02._own_row_walk((tokens, parents, best))
    return rows, best(rows[-1] if rows else -1)


def mean(values):
    return sum(values) / len(values)


MISTAKES = [
    ("0x00-published", lambda p, t: published(p, t)[:-1], "after the accepted"),
    ("0x00-published", lambda p, t: p[: len(published(p, t))], "refused candidate"),
    (
        "0x00-published",
        lambda p, t: [a for a, b in zip(p, t, strict=False) if a == b] + t[-1:],
        "behind a mismatch",
    ),
    ("0x00-chain-worth", lambda *case: chain_worth(*case) - 1, "ends the round"),
    (
        "0x00-chain-worth",
        lambda laws, chain: 1 + sum(p[t] for p, t in zip(laws, chain, strict=True)),
        "multiply along the chain",
    ),
    (
        "0x00-tokens-a-round",
        lambda prompts: mean([Fraction(sum(p), len(p)) for p in prompts]),
        "all tokens by all rounds",
    ),
    ("0x00-tokens-a-round", lambda p: 1 / tokens_a_round(p), "upside down"),
    ("0x00-tokens-a-round", lambda p: tokens_a_round(p) - 1, "counts too"),
    ("0x02-accepted-path", own_rows, "its own row"),
    (
        "0x02-accepted-path",
        lambda t, p, b: (accepted_path(t, p, b)[0], -7),
        "behind the last accepted row",
    ),
    (
        "0x02-accepted-path",
        lambda t, p, b: (accepted_path(t, p, b)[0][:-1], b(-1)),
        "too early",
    ),
    ("0x02A-wrong-pair", lambda p, q, drawn: p, "another law"),
    (
        "0x02A-wrong-pair",
        lambda p, q, drawn: [
            d * min(1, a / b) for a, b, d in zip(p, q, drawn, strict=True)
        ],
        "residual",
    ),
    (
        "0x02C-speedup",
        lambda rounds, step: mean([speedup([r], step) for r in rounds]),
        "mean of the rounds",
    ),
    ("0x02C-speedup", lambda *bill: 1 / speedup(*bill), "upside down"),
    (
        "0x02C-speedup",
        lambda rounds, step: speedup([(*r[:1], 0, *r[2:]) for r in rounds], step),
        "retrieval",
    ),
    (
        "0x02C-speedup",
        lambda rounds, step: speedup(
            [(0, 0, 0, r[3], 0, 0, r[6]) for r in rounds], step
        ),
        "five more terms",
    ),
]


@pytest.mark.parametrize(("name", "wrong", "words"), MISTAKES)
def test_a_foreseen_mistake_is_named(name, wrong, words):
    # The first failing case decides the message, so some seeds show another mistake.
    told = []
    for seed in SEEDS:
        report = exercises.grade(exercises.get(name), wrong, seed)
        assert not report.solved
        told.append(str(report))
    assert any(words in text for text in told), told[0]


def test_reading_every_row_costs_more():
    def thorough(tokens, parents, best):
        everything = [best(row) for row in range(-1, len(tokens))]
        return accepted_path(tokens, parents, lambda row: everything[row + 1])

    report = exercises.grade(exercises.get("0x02-accepted-path"), thorough, 0)
    assert report.solved
    assert report.cost > report.reference_cost


def test_the_speedup_agrees_with_the_ledger():
    entry = (1, 2, 3, 4, 5, Fraction(6), 7)
    assert speedup([entry], 10) == RoundLedger(*entry).speedup(10)
