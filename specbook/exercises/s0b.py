"""The exercises of 0x0B_training_heads: what is learned, losses of heads, masks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from . import Exercise

# ---------------------------------------------------------------- 0x0B-learned

Joint = dict[tuple[str, str], Fraction]
Laws = tuple[dict[str, Fraction], dict[str, dict[str, Fraction]]]


def _joint(weights: Mapping[tuple[str, str], int]) -> Joint:
    total = sum(weights.values())
    return {pair: Fraction(weight, total) for pair, weight in weights.items()}


def _learned_cases(rng: np.random.Generator) -> Iterator[Joint]:
    yield _joint({("a", "x"): 9, ("a", "y"): 1, ("b", "x"): 2, ("b", "y"): 8})
    yield _joint({("a", "x"): 1, ("b", "y"): 3})
    yield _joint({("a", "x"): 1})
    for _ in range(9):
        pairs = [(one, two) for one in "abc" for two in "xyz"]
        chosen = rng.permutation(len(pairs))[: int(rng.integers(2, 8))]
        yield _joint({pairs[i]: int(rng.integers(1, 10)) for i in sorted(chosen)})


def _learned(joint: Joint) -> Laws:
    firsts = dict.fromkeys(one for one, _ in joint)
    seconds = dict.fromkeys(two for _, two in joint)
    mass = {a: sum(p for (one, _), p in joint.items() if one == a) for a in firsts}
    return (
        {b: Fraction(sum(p for (_, t), p in joint.items() if t == b)) for b in seconds},
        {
            a: {two: p / mass[a] for (one, two), p in joint.items() if one == a}
            for a in firsts
        },
    )


def _learned_right(joint: Joint, value: Any, truth: Laws) -> bool:
    """A token that never comes may be left out or have probability 0."""
    marginal, behind = value
    return (
        _law_of(marginal) == truth[0]
        and set(behind) == set(truth[1])
        and all(_law_of(row) == truth[1][one] for one, row in behind.items())
    )


def _law_of(row: Mapping[str, Any]) -> dict[str, Any]:
    return {token: p for token, p in row.items() if p != 0}


def _learned_mistake(joint: Joint, value: Any, truth: Laws) -> str | None:
    marginal, behind = value
    firsts = {a: sum(truth_p for truth_p in _row(joint, a).values()) for a in truth[1]}
    if set(marginal) == set(firsts) and _law_of(marginal) == firsts:
        return "that is the law of the first token; the heads predict the second."
    even = {
        b: sum(row.get(b, Fraction(0)) for row in truth[1].values()) / len(truth[1])
        for b in truth[0]
    }
    if _law_of(marginal) == _law_of(even) and _law_of(even) != truth[0]:
        return (
            "you averaged the conditional laws as if all first tokens were as likely."
        )
    if all(_law_of(behind.get(a, {})) == _row(joint, a) for a in truth[1]):
        return (
            "behind each first token yours adds up to that token's probability: divide "
            "by it. A head is a law for each input that it can tell apart."
        )
    if all(_law_of(behind.get(a, {})) == truth[0] for a in truth[1]):
        return "the dependent head sees the first token, so its law may change with it."
    if set(behind) == set(truth[0]) != set(truth[1]):
        return "you conditioned on the second token; it is the one that is predicted."
    return None


def _row(joint: Joint, first: str) -> dict[str, Fraction]:
    return {two: p for (one, two), p in joint.items() if one == first}


# ------------------------------------------------------------------- 0x0B-loss

Terms = tuple[list[list[Fraction]], list[Fraction]]


def _loss_cases(rng: np.random.Generator) -> Iterator[Terms]:
    one = Fraction(1)
    yield [[one, 3 * one, 8 * one], [2 * one]], [one, Fraction(1, 2)]
    yield [[one, one, one, one], [one, one], []], [one, Fraction(1, 2), Fraction(1, 4)]
    yield [[Fraction(1, 2)]], [Fraction(4, 5)]
    for _ in range(9):
        heads = int(rng.integers(2, 5))
        most = int(rng.integers(heads, heads + 4))
        rows = [
            [Fraction(int(rng.integers(1, 20)), 4) for _ in range(most - head)]
            for head in range(heads)
        ]
        decay = Fraction(int(rng.integers(3, 6)), 5)
        yield rows, [decay**head for head in range(heads)]


def _loss(case: Terms) -> Fraction:
    rows, weights = case
    total = Fraction(0)
    for losses, weight in zip(rows, weights, strict=True):
        if losses:
            total += weight * sum(losses) / len(losses)
    return total


def _loss_mistake(case: Terms, value: Any, truth: Fraction) -> str | None:
    rows, weights = case
    pairs = list(zip(rows, weights, strict=True))
    count = sum(map(len, rows))
    summed = sum((w * sum(row) for row, w in pairs), Fraction(0))
    if value == truth:
        return None
    if value == summed:
        return (
            "you added up rows. Early heads have more of them, so they would decide: "
            "take the mean of each head first."
        )
    if value == summed / count:
        return "one mean over all rows still weighs heads by their rows."
    if value == sum((sum(row) / len(row) for row in rows if row), Fraction(0)):
        return "you left out the weights of the heads."
    if value == truth / len(rows) or value == truth / sum(weights):
        return "the weights are as they are: nothing is divided by their sum or number."
    return None


# ---------------------------------------------------------------- 0x0B-visible


def _visible_cases(rng: np.random.Generator) -> Iterator[list[str]]:
    yield ["a", "a", "b", "b", "b"]
    yield ["a", "b", "a"]
    yield ["a"]
    yield []
    for _ in range(9):
        names = [str(n) for n in rng.choice(list("abc"), size=int(rng.integers(2, 6)))]
        yield [name for name in names for _ in range(int(rng.integers(1, 4)))]


def _visible(segments: list[str]) -> list[list[int]]:
    return [
        [seen for seen in range(row + 1) if len(set(segments[seen : row + 1])) == 1]
        for row in range(len(segments))
    ]


def _visible_mistake(segments: list[str], value: Any, truth: Any) -> str | None:
    rows = [sorted(row) for row in value]
    n = len(segments)
    if len(rows) != n:
        return f"there are {n} rows, yours are {len(rows)}."
    if rows == truth:
        return "the rows are right; return each as a list, in ascending order."
    if rows == [list(range(row + 1)) for row in range(n)]:
        return "that is a plain causal mask: a row reads the documents before its own."
    same = [[j for j in range(n) if segments[j] == segments[i]] for i in range(n)]
    if rows == [[j for j in row if j <= i] for i, row in enumerate(same)]:
        return "a document that comes back is another one; equal names are not enough."
    if rows == same or any(row and row[-1] > i for i, row in enumerate(rows)):
        return "a row may not read what comes after it."
    if rows == [row[:-1] for row in truth]:
        return "a row reads itself, too."
    return None


EXERCISES: dict[str, Exercise] = {
    exercise.id: exercise
    for exercise in (
        Exercise(
            id="0x0B-learned",
            question=(
                "learned_laws(joint): what two heads learn of the second token from "
                "hard labels. joint maps pairs of tokens to probabilities. Return "
                "a pair: the independent head's law, a dict from token to probability, "
                "and the dependent head's, such a dict for each first token."
            ),
            cases=_learned_cases,
            oracle=_learned,
            diagnose=_learned_mistake,
            right=_learned_right,
        ),
        Exercise(
            id="0x0B-loss",
            question=(
                "whole_loss(rows, weights): the loss of all heads. rows[i] are the "
                "losses of one head's rows, none where it has no row; weights[i] is "
                "its lambda. Fractions."
            ),
            cases=_loss_cases,
            oracle=_loss,
            diagnose=_loss_mistake,
        ),
        Exercise(
            id="0x0B-visible",
            question=(
                "visible(segments): for each row of a packed stream the list of rows "
                "that it may read, itself included, in ascending order. segments[i] "
                "names the document of token i; a name that comes back is another "
                "document."
            ),
            cases=_visible_cases,
            oracle=_visible,
            diagnose=_visible_mistake,
        ),
    )
}
