"""The judges of 0x0D: right answers pass, each usual mistake is named."""

from __future__ import annotations

from fractions import Fraction

import pytest

from tests.exercises.judging import names_the_mistake, told


def speed(mine, plain):
    def rate(rows):
        return sum(n for n, _ in rows) / sum(s for _, s in rows)

    return rate(mine) / rate(plain)


def waits(rounds):
    found = []
    for count, seconds in rounds:
        found += [seconds] + [0] * (count - 1)
    return found


def unbeaten(systems):
    kept = set()
    for name, (time, memory) in systems.items():
        worse = [
            (t, m) for t, m in systems.values()
            if t <= time and m <= memory and (t, m) != (time, memory)
        ]  # fmt: skip
        if not worse:
            kept.add(name)
    return kept


RIGHT = {"0x0D-speed": speed, "0x0D-waits": waits, "0x0D-unbeaten": unbeaten}


@pytest.mark.parametrize("name", RIGHT)
def test_right_answers_pass(name):
    for seed in range(5):
        assert told(name, RIGHT[name], seed)[0]


def mean_of_ratios(mine, plain):
    ratios = [t / s for (_, s), (_, t) in zip(mine, plain, strict=True)]
    return sum(ratios) / len(ratios)


def harmonic(mine, plain):
    ratios = [s / t for (_, s), (_, t) in zip(mine, plain, strict=True)]
    return len(ratios) / sum(ratios)


def luckiest(mine, plain):
    return max(t / s for (_, s), (_, t) in zip(mine, plain, strict=True))


@pytest.mark.parametrize(
    ("name", "answer", "words"),
    [
        ("0x0D-speed", mean_of_ratios, "add up first"),
        ("0x0D-speed", lambda mine, plain: speed(plain, mine), "upside down"),
        ("0x0D-speed", luckiest, "luckiest"),
        ("0x0D-speed", harmonic, "one vote"),
        ("0x0D-waits", lambda r: [s / n for n, s in r for _ in range(n)], "round ends"),
        ("0x0D-waits", lambda r: [s for _, s in r], "one wait a round"),
        (
            "0x0D-waits",
            lambda r: [x for n, s in r for x in [Fraction(0)] * (n - 1) + [s]],
            "not the last",
        ),
        ("0x0D-unbeaten", lambda s: {min(s, key=lambda n: s[n])}, "fastest alone"),
        (
            "0x0D-unbeaten",
            lambda s: {
                n for n, (t, m) in s.items()
                if not any(a < t and b < m for a, b in s.values())
            },
            "equal in one",
        ),
        (
            "0x0D-unbeaten",
            lambda s: {
                n for n in unbeaten(s) if list(s.values()).count(s[n]) == 1
            },
            "both stay",
        ),
        ("0x0D-unbeaten", lambda s: set(s), "beaten"),
    ],
)  # fmt: skip
def test_the_usual_mistakes_are_named(name, answer, words):
    names_the_mistake(name, answer, words, seeds=40)
