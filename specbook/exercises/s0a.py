"""The exercises of the two chapters on 0x0A.

0x0A_sequoia: rates and probabilities, what a tree is worth, best first.
0x0A_tree_verify_timing: the fastest tree, the corner of a roofline, a stale tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np

from ..topologies.acceptance import selected_from_conditional
from ..topologies.best_first import best_first_tree
from ..topologies.progress import expected_progress, shape_of
from ..topologies.sequoia import optimize_tree, solve
from ..tree import CandidateTree
from . import Exercise

Slots = list[Fraction]


def _falling(rng: np.random.Generator, slots: int) -> Slots:
    weights = sorted(rng.integers(1, 9, size=slots).tolist(), reverse=True)
    total = sum(weights) + int(rng.integers(1, 9))
    return [Fraction(0), *(Fraction(w, total) for w in weights)]


# --------------------------------------------------------------- 0x0A-selected


def _selected_cases(rng: np.random.Generator) -> Iterator[Slots]:
    yield [Fraction(0), Fraction(1, 2)]
    yield [Fraction(0), Fraction(41, 50), Fraction(12, 25), Fraction(6, 25)]
    yield [Fraction(0), Fraction(1), Fraction(1, 2)]
    for slots in (2, 3, 4, 5):
        rates = rng.integers(0, 7, size=slots)
        rates[0] = rng.integers(1, 6)  # a first rate of 0 or 1 hides most mistakes
        yield [Fraction(0), *(Fraction(int(r), 6) for r in rates)]


def _selected_mistake(h: Slots, value: Any, truth: Slots) -> str | None:
    try:
        found = [Fraction(v) for v in value]
    except (TypeError, ValueError):
        return "return a list of Fractions, as long as the rates."
    if found == truth[1:]:
        return "keep the unused zero in front: slot b stands at place b."
    if len(found) != len(h):
        return f"{len(h)} numbers are asked for, the unused zero first."
    if found == list(h):
        return "those are the rates; slot 2 is tried only where slot 1 was refused."
    total = sum(truth)
    if total and found == [p / total for p in truth]:
        return "you made them sum to one; what is missing is the chance of none."
    left = accumulate(h[1:], lambda x, rate: x * (1 - rate), initial=Fraction(1))
    if found == [1 - x for x in left]:
        return "that is the chance that any slot so far was selected."
    if sum(found) > 1:
        return f"they sum to {sum(found)}: more than one child would be selected."
    return None


# ------------------------------------------------------------------ 0x0A-worth

Worth = tuple[list[int], list[int], Slots]


def _shape(rng: np.random.Generator, nodes: int, slots: Slots) -> CandidateTree:
    """A shape with depth and width, so that both kinds of mistake show."""
    parents, ranks = [-1, -1, 0], [0, 1, 0]
    while len(parents) < nodes:
        parent = int(rng.integers(-1, len(parents)))
        rank = parents.count(parent)
        if rank + 1 < len(slots):
            parents.append(parent)
            ranks.append(rank)
    return shape_of(parents, ranks)


def _worth_cases(rng: np.random.Generator) -> Iterator[Worth]:
    yield [], [], [Fraction(0), Fraction(1, 2)]
    yield [-1, 0, 1], [0, 0, 0], [Fraction(0), Fraction(1, 2)]
    for nodes in (3, 5, 7, 9):
        slots = _falling(rng, 4)
        shape = _shape(rng, nodes, slots)
        yield list(shape.parents), list(shape.token_ids), slots


def _worth(case: Worth) -> Fraction:
    parents, ranks, slots = case
    return Fraction(expected_progress(shape_of(parents, ranks), slots))


def _worth_mistake(case: Worth, value: Any, truth: Fraction) -> str | None:
    parents, ranks, slots = case
    try:
        found = Fraction(value)
    except (TypeError, ValueError):
        return "return one number, a Fraction."
    if found == truth - 1:
        return "count the root too: a round commits one token in any case."
    if found == 1 + sum((slots[rank + 1] for rank in ranks), Fraction(0)):
        return "a row counts only if all rows above it were selected: multiply."
    first = [slots[1]] * len(ranks)
    values: list[Fraction] = []
    for parent, slot in zip(parents, first, strict=True):
        values.append(slot if parent < 0 else values[parent] * slot)
    if found == 1 + sum(values, Fraction(0)):
        return "every rank has a slot of its own: rank r stands at place r + 1."
    if found == 1 + len(parents):
        return "those are the rows; most of them are seldom reached."
    if found > min(len(parents) + 1, shape_of(parents, ranks).max_depth + 1):
        return "more than a path can hold."
    return None


# ------------------------------------------------------------- 0x0A-every-size

Budget = tuple[int, Slots]


def _every_size_cases(rng: np.random.Generator) -> Iterator[Budget]:
    yield 1, [Fraction(0), Fraction(1, 2)]
    yield 5, [Fraction(0), Fraction(1, 2)]
    yield 6, [Fraction(0), Fraction(1, 2), Fraction(1, 4)]
    for n in (8, 12, 16):
        yield n, _falling(rng, 5)


def _every_size(case: Budget) -> tuple[list[Fraction], int]:
    """Checked by the recurrence; the cost is that of growing best-first, which looks at
    the first child and the next sibling of each node that it takes."""
    n, slots = case
    table = solve(n, n - 1, slots)
    scores = [Fraction(table.score(size, n - 1)) for size in range(1, n + 1)]
    ranks = best_first_tree(n, None, slots).tree.token_ids
    siblings = sum(rank + 2 < len(slots) for rank in ranks)
    return scores, len(slots[1:2]) + len(ranks) * len(slots[1:2]) + siblings


def _answer(value: Any) -> tuple[list[Fraction], int]:
    scores, looked = value
    return [Fraction(score) for score in scores], int(looked)


def _every_size_right(case: Budget, value: Any, truth: Any) -> bool:
    return _answer(value)[0] == truth[0]


def _every_size_cost(case: Budget, value: Any) -> int:
    return _answer(value)[1]


def _every_size_mistake(case: Budget, value: Any, truth: Any) -> str | None:
    n, slots = case
    try:
        scores, _ = _answer(value)
    except (TypeError, ValueError):
        return "return two things: the list of scores, and how many you looked at."
    if len(scores) != n:
        return f"{n} scores are asked for, of 1 to {n} nodes; you gave {len(scores)}."
    if scores[0] == 0:
        return "one node is the root alone, and worth 1."
    powers = accumulate((slots[1] ** d for d in range(1, n)), initial=Fraction(1))
    if scores == list(powers):
        return "that is a chain; a second child is often worth more than a fifth level."
    flat = optimize_tree(n, 1, slots).score
    if scores[-1] == flat and flat < truth[0][-1]:
        return "nodes below the first level may be worth more than late siblings."
    place = next(i for i in range(n) if scores[i] != truth[0][i])
    return f"{place + 1} nodes: you say {scores[place]}, the best is {truth[0][place]}."


# --------------------------------------------------------------- 0x0A-fastest

Prices = tuple[dict[tuple[int, int], Fraction], dict[int, Fraction], Fraction]


def _prices(rng: np.random.Generator, sizes: int, depths: int) -> Prices:
    slots = _falling(rng, 3)
    table = solve(sizes, depths, slots)
    progress = {
        (n, d): Fraction(table.score(n, d))
        for n in range(1, sizes + 1)
        for d in range(depths + 1)
        if table.score(n, d) > 0
    }
    steps = np.cumsum(rng.integers(0, 4, size=sizes))
    times = {
        n: 1 + Fraction(int(steps[n - 1] - steps[0]), 10) for n in range(1, sizes + 1)
    }
    return progress, times, Fraction(int(rng.integers(1, 4)), 20)


def _fastest_cases(rng: np.random.Generator) -> Iterator[Prices]:
    half = {(1, 0): Fraction(1), (2, 1): Fraction(3, 2), (3, 2): Fraction(7, 4)}
    cheap = {1: Fraction(1), 2: Fraction(1), 3: Fraction(1)}
    yield half, cheap, Fraction(0)
    yield half, {**cheap, 3: Fraction(5, 4)}, Fraction(3, 4)
    yield half, {1: Fraction(1), 2: Fraction(2), 3: Fraction(3)}, Fraction(0)
    for sizes in (5, 8, 12):
        yield _prices(rng, sizes, 4)


def _speeds(case: Prices) -> dict[tuple[int, int], Fraction]:
    progress, times, c = case
    return {(n, d): g / (times[n] + d * c) for (n, d), g in progress.items()}


def _fastest(case: Prices) -> tuple[int, int]:
    speeds = _speeds(case)
    return min(speeds, key=lambda key: (-speeds[key], key))


def _fastest_right(case: Prices, value: Any, truth: Any) -> bool:
    speeds = _speeds(case)
    return speeds[tuple(value)] == speeds[truth]


def _fastest_mistake(case: Prices, value: Any, truth: Any) -> str | None:
    progress, times, c = case
    try:
        key = tuple(value)
        gained = progress[key]
    except (TypeError, KeyError):
        return "return a pair (n, d) that G has."
    if gained == max(progress.values()):
        return "that one commits the most tokens; its rows cost too much."
    plain = {k: g / times[k[0]] for k, g in progress.items()}
    if plain[key] == max(plain.values()):
        return "you left out the draft: d steps of c each."
    if times[key[0]] + key[1] * c == min(times[n] + d * c for n, d in progress):
        return "that is the cheapest round, not the cheapest token."
    return f"{key} makes {_speeds(case)[key]} of plain decoding, {truth} more."


# ---------------------------------------------------------------- 0x0A-corner

Machine = tuple[int, int, int]


def _corner_cases(rng: np.random.Generator) -> Iterator[Machine]:
    yield 100, 50, 100
    yield 8, 2, 1
    for _ in range(4):
        yield (
            int(rng.integers(50, 500)),
            int(rng.integers(5, 50)),
            int(rng.integers(50, 5000)),
        )


def _corner(case: Machine) -> int:
    """By trying one n after the other."""
    weights, bandwidth, speed = case
    n = 1
    while Fraction(2 * n * weights, speed) <= Fraction(4 * weights, bandwidth):
        n += 1
    return n


def _corner_mistake(case: Machine, value: Any, truth: int) -> str | None:
    weights, bandwidth, speed = case
    try:
        found = int(value)
    except (TypeError, ValueError):
        return "return one whole number."
    if found == truth - 1:
        return "there both still take equally long, or reading longer: one more row."
    if found in (4 * speed // bandwidth + 1, 4 * speed // bandwidth):
        return "every weight costs two operations: it is multiplied and added."
    if found in (speed // (2 * bandwidth) + 1, speed // (2 * bandwidth)):
        return "a float32 weight has four bytes."
    return None


# ----------------------------------------------------------------- 0x0A-stale

Then = dict[str, Any]
_FIELDS = ("target", "tokenizer", "draft", "data", "hardware")


def _stale_cases(rng: np.random.Generator) -> Iterator[tuple[Then, Then]]:
    then = {name: f"{name} 1" for name in _FIELDS} | {"temperatures": (0.6, 0.8)}
    same = {name: then[name] for name in _FIELDS}
    yield then, same | {"temperature": 0.7}
    yield then, same | {"temperature": 0.8}
    yield then, same | {"temperature": 1.0}
    for _ in range(4):
        changed = rng.choice(_FIELDS, size=int(rng.integers(1, 4)), replace=False)
        now: Then = {n: f"{n} 2" if n in changed else then[n] for n in _FIELDS}
        yield then, now | {"temperature": float(rng.choice([0.0, 0.6, 0.7, 1.0]))}


def _stale(case: tuple[Then, Then]) -> set[str]:
    then, now = case
    low, high = then["temperatures"]
    changed = {name for name in _FIELDS if then[name] != now[name]}
    return changed | (set() if low <= now["temperature"] <= high else {"temperature"})


def _stale_right(case: tuple[Then, Then], value: Any, truth: set[str]) -> bool:
    return set(value) == truth


def _stale_mistake(case: tuple[Then, Then], value: Any, truth: set[str]) -> str | None:
    try:
        found = set(value)
    except TypeError:
        return "return the names of the fields, a set or a list."
    if found - truth == {"temperature"}:
        return "the temperature may lie anywhere between the two, ends included."
    if truth - found == {"temperature"}:
        return "the temperature has left its range."
    if found < truth:
        return f"{min(truth - found)} has changed, too."
    return f"{min(found - truth, default='a name')} is as it was."


EXERCISES = {
    exercise.id: exercise
    for exercise in (
        Exercise(
            "0x0A-selected",
            "Turn rates given refusals into selected-child probabilities.",
            _selected_cases,
            selected_from_conditional,
            _selected_mistake,
        ),
        Exercise(
            "0x0A-worth",
            "How many tokens is a round with this tree expected to commit?",
            _worth_cases,
            _worth,
            _worth_mistake,
        ),
        Exercise(
            "0x0A-every-size",
            "The best G of every size up to n, for slots that do not increase.",
            _every_size_cases,
            _every_size,
            _every_size_mistake,
            cost=_every_size_cost,
            cost_unit="nodes looked at",
            right=_every_size_right,
        ),
        Exercise(
            "0x0A-fastest",
            "Which (n, d) is the fastest at these prices?",
            _fastest_cases,
            _fastest,
            _fastest_mistake,
            right=_fastest_right,
        ),
        Exercise(
            "0x0A-corner",
            "From how many rows on does the arithmetic take longer than the reading?",
            _corner_cases,
            _corner,
            _corner_mistake,
        ),
        Exercise(
            "0x0A-stale",
            "Which fields say that a tree has grown old?",
            _stale_cases,
            _stale,
            _stale_mistake,
            right=_stale_right,
        ),
    )
}
