"""The exercises of 0x04_prompt_lookup_and_rest: look up, verify, choose a length."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from ..chance import Sampler
from . import Exercise

# ----------------------------------------------------------------- 0x04-lookup

Lookup = tuple[list[int], int, int]


def _lookup_cases(rng: np.random.Generator) -> Iterator[Lookup]:
    yield [0, 1, 2, 3, 0, 1, 2], 3, 4
    yield [7, 8, 9], 3, 4
    yield [1, 2, 9, 1, 2, 8, 1, 2], 2, 3
    yield [4, 5, 6, 9, 5, 7, 4, 5], 3, 3
    yield [6, 6, 6, 6, 6], 3, 4
    for size in (12, 20, 40):
        tokens = [int(t) for t in rng.integers(0, 4, size=size)]
        yield tokens, int(rng.integers(1, 5)), int(rng.integers(1, 6))


def _copy(
    case: Lookup, *, latest: bool = False, longest: bool = True, gap: int | None = 1
) -> list[int]:
    """The rule by trying every start; its keywords are the usual mistakes. `gap`: the
    fewest tokens from the end of an occurrence to that of the text, None for the
    occurrence's own length."""
    tokens, max_ngram, most = case
    size = len(tokens)
    lengths = range(1, min(max_ngram, size) + 1)
    for n in reversed(lengths) if longest else lengths:
        last = size - n - (n if gap is None else gap)
        ends = [
            start + n
            for start in range(last + 1)
            if tokens[start : start + n] == tokens[size - n :]
        ]
        if ends:
            end = ends[-1] if latest else ends[0]
            return tokens[end : end + most]
    return []


def _lookup(case: Lookup) -> list[int]:
    return _copy(case)


def _lookup_mistake(case: Lookup, value: Any, truth: list[int]) -> str | None:
    tokens, _, most = case
    value = list(value)
    if len(value) > most:
        return f"at most {most} tokens may be copied, yours copies {len(value)}."
    if not value and truth and _copy(case, latest=True, gap=0) == []:
        return "you found the suffix itself; an occurrence must end before the text."
    known: list[tuple[dict[str, Any], str]] = [
        ({"latest": True}, "that is the latest occurrence; here the earliest counts."),
        ({"longest": False}, "begin with the longest suffix, not with the shortest."),
        ({"gap": None}, "here an occurrence may overlap the suffix."),
    ]
    for options, words in known:
        if value == _copy(case, **options):
            return words
    if truth and value == truth[: len(value)]:
        return "the copy is cut short; it may run on, even into the suffix."
    if not truth:
        return "nothing matches here, so nothing may be copied."
    if value and value[0] == tokens[-1]:
        return "your copy starts one token early; it starts after the match."
    return None


# ----------------------------------------------------------------- 0x04-verify


class Dice(Sampler):
    """A chance with a number, so that the same throws can be had again."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number
        self.draws = 0

    def draw(self, weights: Any) -> int:
        """One more throw, counted: an index, with probability `weights[index]`."""
        self.draws += 1
        return super().draw(weights)

    def __repr__(self) -> str:
        return f"Dice({self.number})"


Round = tuple[list[int], list[list[Fraction]], Dice]


def _verify_cases(rng: np.random.Generator) -> Iterator[Round]:
    sure = [[Fraction(int(t == k)) for t in range(3)] for k in (1, 2, 0)]
    yield [0, 2], sure, Dice(0)
    yield [1, 2], sure, Dice(0)
    yield [], [[Fraction(1, 3)] * 3], Dice(1)
    for _ in range(12):
        depth = int(rng.integers(1, 4))
        laws = []
        for _ in range(depth + 1):
            weights = rng.integers(1, 5, size=3)
            laws.append([Fraction(int(w), int(weights.sum())) for w in weights])
        draft = [int(np.argmax([float(p) for p in law])) for law in laws[:-1]]
        yield draft, laws, Dice(int(rng.integers(0, 10_000)))


def _verify(case: Round) -> list[int]:
    draft, laws, given = case
    dice = Dice(given.number)
    # One draw more than there were agreements.
    agreed = 0
    tokens = [dice.draw(laws[0])]
    while agreed < len(draft) and tokens[-1] == draft[agreed]:
        agreed += 1
        tokens.append(dice.draw(laws[agreed]))
    return tokens


def _second_draw(case: Round) -> list[int]:
    draft, laws, given = case
    dice = Dice(given.number)
    tokens: list[int] = []
    for depth, token in enumerate(draft):
        if dice.draw(laws[depth]) != token:
            return [*tokens, dice.draw(laws[depth])]
        tokens.append(token)
    return [*tokens, dice.draw(laws[len(draft)])]


def _verify_mistake(case: Round, value: Any, truth: list[int]) -> str | None:
    draft, laws, _ = case
    value = list(value)
    if value == truth[:-1]:
        return "the draw that ended the path is a token too: emit it."
    if len(value) == len(truth) + 1 and value[:-1] == truth:
        return "you went on after a mismatch; the round ends there."
    if value == _second_draw(case):
        return (
            "you drew a second time after a mismatch. The law shifts towards the "
            "draft; emit the very draw that missed."
        )
    best = [int(np.argmax([float(p) for p in law])) for law in laws]
    if value == best[: len(value)] and value != truth:
        return "you took the likeliest token; at a temperature the target draws."
    if value == draft:
        return "you accepted the whole draft unseen."
    return "draw once at each position, from that position's law, and in order."


# ----------------------------------------------------------------- 0x04-length

Costs = tuple[list[Fraction], list[Fraction]]
_MOST = 8


def _length_cases(rng: np.random.Generator) -> Iterator[Costs]:
    flat = [Fraction(10 + k, 10) for k in range(_MOST + 1)]
    steep = [Fraction(1 + k) for k in range(_MOST + 1)]
    yield [Fraction(9, 10)] * _MOST, flat
    yield [Fraction(1, 10)] * _MOST, flat
    yield [Fraction(1, 2)] * _MOST, steep
    yield [Fraction(0)] * _MOST, flat
    # A match that has held for longer is trusted more, so agreement may grow.
    yield [Fraction(2 + k, 10) for k in range(_MOST)], flat
    for _ in range(8):
        step = Fraction(int(rng.integers(1, 8)), 20)
        agree = [Fraction(int(a), 20) for a in rng.integers(1, 20, size=_MOST)]
        yield agree, [1 + step * k for k in range(_MOST + 1)]


def _tokens(agree: list[Fraction], length: int) -> Fraction:
    """Expected tokens of a round, by adding up its outcomes."""
    expected, reached = Fraction(0), Fraction(1)
    for k, share in enumerate(agree[:length]):
        expected += reached * (1 - share) * (k + 1)
        reached *= share
    return expected + reached * (length + 1)


def _time_per_token(case: Costs, length: int) -> Fraction:
    agree, cost = case
    return cost[length] / _tokens(agree, length)


def _length(case: Costs) -> int:
    return min(range(_MOST + 1), key=lambda k: (_time_per_token(case, k), k))


def _length_right(case: Costs, value: Any, truth: int) -> bool:
    # Where a draft pays, whatever gains on plain decoding is an answer; how good it is
    # shows in the score. Where none pays, nothing may be lost.
    if isinstance(value, bool) or value != int(value):
        return False
    if not 0 <= value < len(case[1]):
        return False
    spent, plain = _time_per_token(case, int(value)), case[1][0]
    return spent < plain if truth else spent <= plain


def _length_cost(case: Costs, value: Any) -> float:
    return float(_time_per_token(case, int(value)))


def _length_mistake(case: Costs, value: Any, truth: int) -> str | None:
    agree, cost = case
    if isinstance(value, float) or not isinstance(value, (int, np.integer)):
        return "a length is a whole number of copied tokens."
    if not 0 <= value < len(cost):
        return f"cost has entries for 0 to {len(cost) - 1} copied tokens."

    def best(tokens: Callable[[int], Fraction]) -> int:
        return max(range(len(cost)), key=lambda k: tokens(k) / cost[k])

    if value == 0:
        return "some length is faster here than no draft at all."
    if value == best(lambda k: _tokens(agree, k) - 1):
        return "you left out the target's own token, which every round commits."
    if value == best(lambda k: 1 + sum(agree[:k], Fraction(0))):
        return (
            "you added up the agreements. A copy counts only if all before it "
            "agreed, so multiply."
        )
    if value == len(cost) - 1:
        return "the longest draft is not the best one: rows that miss cost time."
    slower = float(_time_per_token(case, int(value)) / cost[0])
    return f"this length is {slower:.2f} times as slow as no draft at all."


EXERCISES: dict[str, Exercise] = {
    exercise.id: exercise
    for exercise in (
        Exercise(
            id="0x04-lookup",
            question=(
                "lookup(tokens, max_ngram, most) by transformers' rule: the longest "
                "suffix that also stands earlier (it may overlap itself there), the "
                "earliest such place, at most `most` tokens from there; [] if none."
            ),
            cases=_lookup_cases,
            oracle=_lookup,
            diagnose=_lookup_mistake,
        ),
        Exercise(
            id="0x04-verify",
            question=(
                "verify(draft, laws, chance): the tokens that one round commits. "
                "laws[k] is the target's law after k draft tokens; draw with "
                "chance.draw(law), once at each position that you reach."
            ),
            cases=_verify_cases,
            oracle=_verify,
            diagnose=_verify_mistake,
        ),
        Exercise(
            id="0x04-length",
            question=(
                "length(agree, cost): how many copied tokens to verify. agree[i] is "
                "the probability that copy i agrees if all before it did; cost[k] is "
                "the time of a round with k copies. Where drafting pays, gain by it."
            ),
            cases=_length_cases,
            oracle=_length,
            diagnose=_length_mistake,
            right=_length_right,
            cost=_length_cost,
            cost_unit="time units a token",
        ),
    )
}
