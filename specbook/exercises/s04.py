"""The exercises of 0x04_prompt_lookup_and_rest: verify, choose a length, prune."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from ..chance import Sampler
from . import Exercise

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


# ------------------------------------------------------------------ 0x04-prune

Path = tuple[int, ...]
Prune = tuple[list[list[int]], int]


def _prune_cases(rng: np.random.Generator) -> Iterator[Prune]:
    yield [[9, 4, 5, 6, 10, 11], [10, 11]], 3
    yield [[1, 2, 3]], 0
    yield [[5], [5, 6], [5, 6]], 9
    yield [[7, 1, 1], [8, 1], [8, 2], [6, 1, 1]], 2
    yield [[3, 2], [1, 2, 2], [], [1, 2, 0], [2, 2]], 4
    for size in (6, 12, 24):
        rows = [
            [int(t) for t in rng.integers(0, 3, size=int(rng.integers(1, 5)))]
            for _ in range(size)
        ]
        yield rows, int(rng.integers(2, 12))


def _grown(case: Prune) -> list[Path]:
    """From the root, one node at a time: the best of those whose parent is kept."""
    continuations, budget = case
    kept: list[Path] = []
    while len(kept) < budget:
        open_nodes: dict[Path, int] = {}
        for row in continuations:
            for parent in [(), *kept]:
                if len(row) > len(parent) and tuple(row[: len(parent)]) == parent:
                    node = (*parent, row[len(parent)])
                    if node not in kept:
                        open_nodes[node] = open_nodes.get(node, 0) + 1
        if not open_nodes:
            break
        kept.append(min(open_nodes, key=lambda n: (-open_nodes[n], len(n), n)))
    return kept


def _prefixes(case: Prune) -> list[Path]:
    """Every prefix of every continuation, as often as it occurs."""
    return [tuple(row[:n]) for row in case[0] for n in range(1, len(row) + 1)]


def _by_token(case: Prune) -> list[Path]:
    """The mistake of counting a token wherever it stands."""
    paths = list(dict.fromkeys(_prefixes(case)))
    counts = Counter(token for row in case[0] for token in row)
    return sorted(paths, key=lambda n: (-counts[n[-1]], len(n), n))[: case[1]]


def _first_come(case: Prune) -> list[Path]:
    """The mistake of leaving ties to the order of insertion."""
    return [path for path, _ in Counter(_prefixes(case)).most_common(case[1])]


def _deep_first(case: Prune) -> list[Path]:
    counts = Counter(_prefixes(case))
    return sorted(counts, key=lambda n: (-counts[n], -len(n), n))[: case[1]]


def _whole_rows(case: Prune) -> list[Path]:
    """The mistake of spending the budget on continuations and not on nodes."""
    counts = Counter(map(tuple, filter(None, case[0])))
    rows = sorted(counts, key=lambda n: (-counts[n], len(n), n))[: case[1]]
    return list(dict.fromkeys(r[:n] for r in rows for n in range(1, len(r) + 1)))


def _prune_right(case: Prune, value: Any, truth: list[Path]) -> bool:
    listed = [tuple(path) for path in value]
    return len(listed) == len(truth) and set(listed) == set(truth)


def _prune_mistake(case: Prune, value: Any, truth: list[Path]) -> str | None:
    listed = [tuple(path) for path in value]
    if len(set(listed)) < len(listed):
        return "a path is listed twice; equal prefixes are one node with a count."
    found = set(listed)
    if not found <= set(_prefixes(case)):
        return "not every path of yours begins some continuation; list full paths."
    known: list[tuple[Callable[[Prune], list[Path]], str]] = [
        (_whole_rows, "the budget is of nodes, and you spent it on continuations."),
        (_by_token, "count full paths: one token under two parents is two nodes."),
        (_deep_first, "of equal counts the shallower node comes first."),
        (_first_come, "of equal counts and depths the smaller ids come first."),
    ]
    for rule, words in known:
        if found == set(rule(case)):
            return words
    if len(listed) > case[1]:
        return f"the budget is {case[1]} nodes, yours keeps {len(listed)}."
    if any(path[:-1] and path[:-1] not in found for path in found):
        return "a path is kept whose parent is not, so it cannot become a row."
    if len(listed) < len(truth):
        return (
            f"the budget allows {len(truth)} of the nodes, yours keeps {len(listed)}."
        )
    return None


EXERCISES: dict[str, Exercise] = {
    exercise.id: exercise
    for exercise in (
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
        Exercise(
            id="0x04-prune",
            question=(
                "prune(continuations, budget): the nodes of their trie that a budget "
                "keeps, each as its full path (a tuple of ids). A node counts how many "
                "continuations begin with it. Higher counts first, then shallower "
                "nodes, then smaller ids; the list may be in any order."
            ),
            cases=_prune_cases,
            oracle=_grown,
            diagnose=_prune_mistake,
            right=_prune_right,
        ),
    )
}
