"""The exercises of notebook 0x02: predictor rows, wrong pairs, round cost."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from ..chance import law
from ..ledger import COST_TERMS, RoundLedger
from ..proposal import (
    PREFIX_FRONTIER,
)
from ..tree import CandidateTree
from . import Exercise
from .s00 import random_law

# ------------------------------------------------------------------ predictor rows


class Best:
    """`best(row)`: the target's greedy token behind a row, -1 for the frontier. It
    notes which rows were asked for, because a real target pays for each."""

    def __init__(self, tokens: dict[int, int]) -> None:
        self.tokens = tokens
        self.asked: set[int] = set()

    def __call__(self, row: int) -> int:
        self.asked.add(int(row))
        return self.tokens[row]

    def __repr__(self) -> str:
        return f"best from {self.tokens}"


Walk = tuple[list[int], list[int], Best]


def _walk_cases(rng: np.random.Generator) -> Iterator[Walk]:
    yield [4, 5], [-1, 0], Best({-1: 4, 0: 5, 1: 6})
    yield [4, 5], [-1, 0], Best({-1: 4, 0: 4, 1: 5})
    yield [], [], Best({-1: 3})
    for _ in range(9):
        size = int(rng.integers(2, 7))
        paths = rng.integers(0, 3, (size, 3)).tolist()
        tree = CandidateTree.from_paths(paths, 1)
        best = {row: int(rng.integers(0, 3)) for row in range(-1, len(tree))}
        yield list(tree.token_ids), list(tree.parents), Best(best)


def _walk_oracle(case: Walk) -> tuple[list[int], int]:
    # Every path that the target agrees with all along; the longest is the answer.
    tokens, parents, best = case
    table = best.tokens
    agreed: dict[int, list[int]] = {PREFIX_FRONTIER: []}
    for row, (token, parent) in enumerate(zip(tokens, parents, strict=True)):
        if parent in agreed and table[parent] == token:
            agreed[row] = [*agreed[parent], row]
    path = max(agreed.values(), key=len)
    # What a walk has to ask for: the frontier and the rows that it accepts.
    following = [best(row) for row in (PREFIX_FRONTIER, *path)]
    return path, following[-1]


def _own_row_walk(case: Walk) -> list[int]:
    tokens, parents, best = case
    path: list[int] = []
    row = PREFIX_FRONTIER
    while True:
        fitting = [
            child
            for child, parent in enumerate(parents)
            if parent == row and best.tokens[child] == tokens[child]
        ]
        if not fitting:
            return path
        row = fitting[0]
        path.append(row)


def _walk_diagnose(case: Walk, answer: Any, truth: tuple[list[int], int]) -> str | None:
    tokens, _, best = case
    rows, token = list(answer[0]), answer[1]
    if rows == truth[0]:
        return (
            "the rows are right, the token is not: it is what the target says behind "
            "the last accepted row, or behind the frontier if there is none."
        )
    if rows == [tokens[row] for row in truth[0]] and token == truth[1]:
        return "you return tokens where row numbers are asked for."
    if rows == _own_row_walk(case):
        return (
            "you compare a candidate with the prediction of its own row. That row has "
            "read the candidate and predicts the next token; ask its parent."
        )
    if rows and rows == truth[0][: len(rows)]:
        return "you stop too early: a child that agrees is left."
    if truth[0] == rows[: len(truth[0])]:
        return f"row {rows[len(truth[0])]} does not carry its parent's best token."
    return None


# --------------------------------------------------------------------- wrong pairs

Rule = tuple[list[Fraction], list[Fraction], list[Fraction]]


def _pair_cases(rng: np.random.Generator) -> Iterator[Rule]:
    half, third = Fraction(1, 2), Fraction(1, 3)
    yield [half, half], [third, 2 * third], [third, 2 * third]
    yield [half, half], [half, half], [Fraction(1), Fraction(0)]
    for _ in range(6):
        size = int(rng.integers(2, 5))
        p, q, drawn = (random_law(rng, size) for _ in range(3))
        if rng.random() < 0.4:
            fixed = int(rng.integers(size))
            drawn = [Fraction(int(i == fixed)) for i in range(size)]
        yield p, q, drawn


def one_draft(p: Any, q: Any, drawn: Any) -> dict[Any, Any]:
    """The exact law of the one-draft rule when the token comes from `drawn` [V] and
    the rule believes `q` [V]."""
    p, q = np.array(p, dtype=object), np.array(q, dtype=object)

    def program(chance: Any) -> int:
        token = chance.draw(drawn)
        if chance.flip(min(Fraction(1), p[token] / q[token])):
            return token
        left = np.maximum(p - q, 0)
        return chance.draw(left / left.sum())

    return law(program)


def _pair_oracle(case: Rule) -> list[Fraction]:
    found = one_draft(*case)
    return [found.get(token, Fraction(0)) for token in range(len(case[0]))]


def _pair_diagnose(case: Rule, answer: Any, truth: list[Fraction]) -> str | None:
    p, q, drawn = case
    answer = list(answer)
    kept = [d * min(Fraction(1), a / b) for a, b, d in zip(p, q, drawn, strict=True)]
    if answer == list(p):
        return (
            "your answer is the target's law, whatever was drawn. That is the theorem "
            "for drafts from q; here they come from another law."
        )
    if answer == kept:
        return "the refused draws are missing: they end in the residual."
    if answer == [k + (1 - sum(kept)) * a for k, a in zip(kept, p, strict=True)]:
        return "after a refusal the rule draws from the residual, not from p."
    if sum(answer) != 1:
        return f"your numbers add up to {sum(answer)}, so they are no law."
    return None


# ----------------------------------------------------------------------- round cost

Bill = tuple[list[tuple[Any, ...]], Fraction]


def _cost_cases(rng: np.random.Generator) -> Iterator[Bill]:
    yield (
        [(0, 0, 0, Fraction(10), 0, 0, 1), (0, 0, 0, Fraction(10), 0, 0, 4)],
        Fraction(10),
    )
    for _ in range(6):
        rounds = [
            (
                *(Fraction(int(t), 4) for t in rng.integers(1, 20, 6)),
                int(rng.integers(1, 6)),
            )
            for _ in range(rng.integers(1, 5))
        ]
        yield rounds, Fraction(int(rng.integers(5, 40)))


def _cost_oracle(case: Bill) -> Fraction:
    rounds, step = case
    ledger = RoundLedger.total(RoundLedger(*entry) for entry in rounds)
    return Fraction(ledger.speedup(step))


def _cost_diagnose(case: Bill, answer: Any, truth: Fraction) -> str | None:
    rounds, step = case
    ledgers = [RoundLedger(*entry) for entry in rounds]
    each = [Fraction(ledger.speedup(step)) for ledger in ledgers]
    if answer == 1 / truth:
        return "the ratio is upside down: a value above 1 means faster."
    if len(each) > 1 and answer == sum(each) / len(each):
        return (
            "that is the mean of the rounds' own speedups. Time is spent in sums: "
            "divide all tokens by all cost."
        )
    total = RoundLedger.total(ledgers)
    for term in COST_TERMS:
        rest = total.round_cost - getattr(total, term)
        if rest and answer == step * total.committed_tokens / rest != truth:
            return f"the term {term} is missing from the cost of a round."
    if total.target_verify and answer == step * total.committed_tokens / (
        total.target_verify
    ):
        return "only the target's time is counted; a round has five more terms."
    return None


EXERCISES = {
    exercise.id: exercise
    for exercise in (
        Exercise(
            id="0x02-accepted-path",
            question=(
                "accepted_path(tokens, parents, best): best(row) is the target's "
                "greedy token behind a row, -1 being the frontier. Return the accepted "
                "rows, as a list, and the token that follows them."
            ),
            cases=_walk_cases,
            oracle=_walk_oracle,
            diagnose=_walk_diagnose,
            cost=lambda case, answer: len(case[2].asked),
            cost_unit="target rows read",
        ),
        Exercise(
            id="0x02A-wrong-pair",
            question=(
                "wrong_pair(p, q, drawn): the one-draft rule believes q, but the token "
                "comes from the law `drawn`. Return the law of its output, a list."
            ),
            cases=_pair_cases,
            oracle=_pair_oracle,
            diagnose=_pair_diagnose,
        ),
        Exercise(
            id="0x02C-speedup",
            question=(
                "speedup(rounds, step): each round is its six cost terms, in order, "
                "and its committed tokens; a plain step costs `step`. Return the "
                "speedup of all rounds together."
            ),
            cases=_cost_cases,
            oracle=_cost_oracle,
            diagnose=_cost_diagnose,
        ),
    )
}
