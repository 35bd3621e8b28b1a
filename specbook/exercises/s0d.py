"""The exercises of 0x0D: a speed over several prompts, waits, what nothing beats."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from . import Exercise

Times = list[tuple[int, Fraction]]
"""Tokens and seconds, a prompt each."""


# ------------------------------------------------------------------- 0x0D-speed


def _times(rng: np.random.Generator, prompts: int) -> Times:
    return [
        (int(rng.integers(4, 129)), Fraction(int(rng.integers(1, 60)), 4))
        for _ in range(prompts)
    ]


def _speed_cases(rng: np.random.Generator) -> Iterator[tuple[Times, Times]]:
    half = Fraction(1, 2)
    yield [(8, Fraction(1))], [(8, Fraction(2))]
    yield [(8, half), (80, Fraction(12))], [(8, Fraction(2)), (80, Fraction(10))]
    for prompts in (2, 3, 5):
        plain = _times(rng, prompts)
        seconds = [s for _, s in _times(rng, prompts)]
        mine = [(n, s) for (n, _), s in zip(plain, seconds, strict=True)]
        yield mine, plain


def _speed(case: tuple[Times, Times]) -> Fraction:
    rates = []
    for side in case:
        tokens, seconds = map(sum, zip(*side, strict=True))
        rates.append(Fraction(tokens) / seconds)
    return rates[0] / rates[1]


def _speed_mistake(case: tuple[Times, Times], value: Any, truth: Any) -> str | None:
    mine, plain = case
    each = [t / s for (_, s), (_, t) in zip(mine, plain, strict=True)]
    if value == sum(each) / len(each):
        return "that is the mean of the prompts' ratios: add up first, then divide."
    if value == 1 / truth:
        return "upside down: more is faster."
    if value == sorted(each)[-1]:
        return "that is the luckiest prompt."
    if value == 1 / (sum(1 / ratio for ratio in each) / len(each)):
        return "a harmonic mean of ratios still gives every prompt one vote."
    return None


# ------------------------------------------------------------------- 0x0D-waits


def _waits_cases(rng: np.random.Generator) -> Iterator[Times]:
    yield [(1, Fraction(1))]
    yield [(3, Fraction(1)), (1, Fraction(1, 2))]
    for rounds in (2, 4, 6):
        yield [
            (int(rng.integers(1, 6)), Fraction(int(rng.integers(1, 20)), 10))
            for _ in range(rounds)
        ]


def _waits(rounds: Times) -> list[Fraction]:
    return [
        seconds if first else Fraction(0)
        for count, seconds in rounds
        for first in [True, *[False] * (count - 1)]
    ]


def _waits_mistake(case: Times, value: Any, truth: Any) -> str | None:
    shared = [s / n for n, s in case for _ in range(n)]
    if list(value) == shared and shared != truth:
        return (
            "nobody sees a token before its round ends: the first waits for all of it, "
            "the others come with it."
        )
    if list(value) == [s for _, s in case] and len(case) != len(truth):
        return "that is one wait a round; every token has one."
    late = [
        s if last else Fraction(0)
        for n, s in case
        for last in [*[False] * (n - 1), True]
    ]
    if list(value) == late:
        return "the first token of a round does the waiting, not the last."
    return None


# ----------------------------------------------------------------- 0x0D-unbeaten

Named = dict[str, tuple[int, int]]
"""Time and memory by name."""


def _unbeaten_cases(rng: np.random.Generator) -> Iterator[Named]:
    yield {"plain": (4, 0)}
    yield {"plain": (4, 0), "heads": (2, 5), "slow": (3, 9)}
    yield {"plain": (4, 0), "lookup": (4, 0), "heads": (5, 1)}
    for size in (4, 6, 9):
        yield {
            f"s{i}": (int(rng.integers(1, 9)), int(rng.integers(0, 6)))
            for i in range(size)
        }


def _beats(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] <= other[0] and one[1] <= other[1] and one != other


def _unbeaten(systems: Named) -> set[str]:
    return {
        name
        for name, mine in systems.items()
        if not any(_beats(other, mine) for other in systems.values())
    }


def _unbeaten_mistake(case: Named, value: Any, truth: Any) -> str | None:
    found = set(value)
    if len(found) == 1 and len(truth) > 1:
        return "the fastest alone: whoever has no memory to spare needs another."
    strict = {
        name
        for name, (time, memory) in case.items()
        if not any(t < time and m < memory for t, m in case.values())
    }
    if found == strict:
        return "equal in one and worse in the other is beaten too."
    twins = {
        name
        for name in truth
        if sum(case[name] == entry for entry in case.values()) > 1
    }
    if twins and found == truth - twins:
        return "two that are equal do not beat each other: both stay."
    if extra := sorted(found - truth):
        return f"{extra[0]} is beaten: another is no worse in both, and better in one."
    return None


EXERCISES = {
    exercise.id: exercise
    for exercise in (
        Exercise(
            "0x0D-speed",
            "How many times as many tokens a second did `mine` decode as `plain`?",
            _speed_cases,
            _speed,
            _speed_mistake,
        ),
        Exercise(
            "0x0D-waits",
            "How long does a reader wait for each token?",
            _waits_cases,
            _waits,
            _waits_mistake,
        ),
        Exercise(
            "0x0D-unbeaten",
            "The names of the systems that no other beats in time and memory.",
            _unbeaten_cases,
            _unbeaten,
            _unbeaten_mistake,
        ),
    )
}
