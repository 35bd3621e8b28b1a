"""The exercises of notebook 0x00: what is published, what it is worth, how to count."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from .. import verifiers
from ..chance import Sampler, law
from ..tree import CandidateTree
from . import Exercise

Laws = list[list[Fraction]]


def random_law(rng: np.random.Generator, size: int) -> list[Fraction]:
    """A law [size] of small fractions without a zero."""
    weights = [int(w) for w in rng.integers(1, 8, size)]
    return [Fraction(w, sum(weights)) for w in weights]


# ------------------------------------------------------------------ what is published


def _publish_cases(rng: np.random.Generator) -> Iterator[tuple[list[int], list[int]]]:
    yield [4, 7], [4, 9, 2]
    yield [4, 7], [4, 7, 2]
    yield [], [5]
    yield [3, 1, 1, 6], [3, 8, 1, 6, 0]
    for _ in range(8):
        proposed = [int(t) for t in rng.integers(0, 4, rng.integers(1, 6))]
        target = [
            t if rng.random() < 0.6 else int(rng.integers(0, 4)) for t in proposed
        ]
        yield proposed, [*target, int(rng.integers(0, 4))]


def _publish_oracle(case: tuple[list[int], list[int]]) -> list[int]:
    # Through the verifier itself: the target's answers stand on a chain of rows.
    proposed, target = case
    tree = CandidateTree.from_rows(proposed, range(-1, len(proposed) - 1), 1)
    one_hot = np.eye(max([*proposed, *target]) + 1)
    chosen = verifiers.get("greedy").select(
        tree, lambda r: one_hot[target[r + 1]], Sampler()
    )
    return [*(proposed[row] for row in chosen.rows), chosen.token]


def _publish_diagnose(
    case: tuple[list[int], list[int]], answer: Any, truth: list[int]
) -> str | None:
    proposed, target = case
    accepted = len(truth) - 1
    answer = list(answer)
    if answer == truth[:-1]:
        return (
            "the token after the accepted ones is missing. The target has computed it "
            "in any case: a correction after a mismatch, a bonus after a full match."
        )
    if answer == proposed[: accepted + 1] and accepted < len(proposed):
        return (
            "you publish the refused candidate. What follows the accepted tokens is "
            "the target's own token."
        )
    matching = [p for p, t in zip(proposed, target, strict=False) if p == t]
    if answer in (matching, [*matching, target[-1]]) and accepted < len(proposed):
        return (
            "you go on behind a mismatch. Everything there was computed after a token "
            "that is not in the output."
        )
    if answer == target:
        return "you publish the target's row to its end; behind a mismatch it is void."
    return None


# ------------------------------------------------------------ what a chain is worth


def _chain_cases(rng: np.random.Generator) -> Iterator[tuple[Laws, list[int]]]:
    yield [[Fraction(1, 2), Fraction(1, 2)]], [0]
    yield [[Fraction(1, 2), Fraction(1, 2)]] * 2, [0, 1]
    for depth in (0, 1, 2, 3, 3, 4):
        size = int(rng.integers(2, 5))
        laws = [random_law(rng, size) for _ in range(depth)]
        yield laws, [int(t) for t in rng.integers(0, size, depth)]


def _chain_oracle(case: tuple[Laws, list[int]]) -> Fraction:
    laws, chain = case
    tree = CandidateTree.from_rows(chain, range(-1, len(chain) - 1), 1)
    # The law behind the last candidate does not matter; some law has to stand there.
    rows = [np.array(p, dtype=object) for p in [*laws, [Fraction(1)]]]
    membership = verifiers.get("membership").select
    counts = law(lambda c: len(membership(tree, lambda r: rows[r + 1], c).rows) + 1)
    return sum((n * p for n, p in counts.items()), start=Fraction(0))


def _chain_diagnose(
    case: tuple[Laws, list[int]], answer: Any, truth: Fraction
) -> str | None:
    laws, chain = case
    each = [p[t] for p, t in zip(laws, chain, strict=True)]
    reach = [Fraction(1)]
    for p in each:
        reach.append(reach[-1] * p)
    if answer == truth - 1:
        return "the token that ends the round is missing: every round publishes one."
    if answer == 1 + sum(each):
        return (
            "you add the probabilities as if each candidate were tried. Candidate i is "
            "tried only if all before it were accepted, so multiply along the chain."
        )
    if answer == len(chain) * reach[-1] + 1:
        return "a chain is not accepted as a whole; its first part counts too."
    return None


# ------------------------------------------------------------------- how to count


def _count_cases(rng: np.random.Generator) -> Iterator[tuple[list[list[int]]]]:
    yield ([[1, 1, 1, 1], [4]],)
    yield ([[3, 3], [3]],)
    for _ in range(6):
        yield (
            [
                [int(n) for n in rng.integers(1, 6, rng.integers(1, 7))]
                for _ in range(rng.integers(1, 5))
            ],
        )


def _count_oracle(case: tuple[list[list[int]]]) -> Fraction:
    flat = np.concatenate([np.array(rounds) for rounds in case[0]])
    return Fraction(int(flat.sum()), flat.size)


def _count_diagnose(
    case: tuple[list[list[int]]], answer: Any, truth: Fraction
) -> str | None:
    (prompts,) = case
    means = [Fraction(sum(rounds), len(rounds)) for rounds in prompts]
    if answer == sum(means) / len(means):
        return (
            "that is the mean of the prompts' own ratios. A prompt of one lucky round "
            "then weighs as much as one of a hundred; divide all tokens by all rounds."
        )
    if answer == truth - 1:
        return "the token that ends each round counts too."
    if answer in (1 / truth, 1 / (truth - 1) if truth != 1 else None):
        return "the ratio is upside down: it is tokens for each round."
    return None


EXERCISES = {
    exercise.id: exercise
    for exercise in (
        Exercise(
            id="0x00-published",
            question=(
                "published(proposed, target): a chain of proposed tokens and the "
                "target's greedy token after 0, 1, 2, ... of them. Which tokens does "
                "the round publish?"
            ),
            cases=_publish_cases,
            oracle=_publish_oracle,
            diagnose=_publish_diagnose,
        ),
        Exercise(
            id="0x00-chain-worth",
            question=(
                "chain_worth(laws, chain): the target's law in front of each candidate "
                "of a chain. How many tokens does a membership round publish on "
                "average?"
            ),
            cases=_chain_cases,
            oracle=_chain_oracle,
            diagnose=_chain_diagnose,
        ),
        Exercise(
            id="0x00-tokens-a-round",
            question=(
                "tokens_a_round(prompts): for each prompt, the tokens that each of its "
                "rounds published. How many tokens a round is that, over all prompts?"
            ),
            cases=_count_cases,
            oracle=_count_oracle,
            diagnose=_count_diagnose,
        ),
    )
}
