"""The exercises of 0x10: the advice, the point where it turns, and its regret."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from ..advice import Constraints, Estimate, advise
from ..measure.frontier_data import PLAIN, Configuration
from . import Exercise

F = Fraction

# ------------------------------------------------------------------------- 0x10-advise

Row = tuple[Fraction, Fraction, Fraction, int]
Rows = tuple[dict[str, Row], int]
NAMES = ("lookup", "heads", "draft", "self")
"""What the cases are about; plain decoding is always there."""


def _rows(rng: np.random.Generator) -> Rows:
    rows: dict[str, Row] = {"plain": (F(1), F(0), F(1), 0)}
    for name in NAMES:
        tokens = 1 + F(int(rng.integers(0, 16)), 6)
        draft, verify = F(int(rng.integers(0, 7)), 6), 1 + F(int(rng.integers(0, 8)), 6)
        rows[name] = tokens, draft, verify, int(rng.integers(0, 60))
    return rows, int(rng.integers(0, 60))


def _advise_cases(rng: np.random.Generator) -> Iterator[Rows]:
    plain = {"plain": (F(1), F(0), F(1), 0)}
    yield (
        {
            **plain,
            "lookup": (F(2), F(0), F(3, 2), 0),
            "draft": (F(5, 2), F(3, 2), F(3, 2), 5),
            "heads": (F(3), F(0), F(4), 7),
        },
        9,
    )
    yield {**plain, "lookup": (F(2), F(0), F(3), 0)}, 10
    yield (
        {
            **plain,
            "lookup": (F(3, 2), F(0), F(5, 4), 0),
            "heads": (F(3), F(0), F(2), 9),
        },
        8,
    )
    for _ in range(4):
        yield _rows(rng)


def _configuration(name: str) -> Configuration:
    if name == "plain":
        return PLAIN
    # What the contract of a source is does not matter here: one that always fits.
    index = NAMES.index(name)
    return Configuration(
        "prompt_lookup",
        "copying",
        "greedy",
        topology=f"chain {index + 1}",
        parents=tuple(range(-1, index)),
        ranks=(0,) * (index + 1),
    )


def _advised(case: Rows) -> str:
    rows, limit = case
    known = {_configuration(name): name for name in rows}
    made = advise(
        [
            Estimate(_configuration(n), *row[:3], extra_bytes=row[3])
            for n, row in rows.items()
        ],
        Constraints(extra_bytes=limit),
    )
    return known[made.best.configuration]


def _per_token(row: Row) -> Fraction:
    return (row[1] + row[2]) / row[0]


def _advise_right(case: Rows, value: Any, truth: str) -> bool:
    rows, limit = case
    fits = rows[value][3] <= limit
    return fits and _per_token(rows[value]) == _per_token(rows[truth])


def _advise_mistake(case: Rows, value: Any, truth: str) -> str | None:
    rows, limit = case
    if value not in rows:
        return f"return one of the names {list(rows)}."
    if rows[value][3] > limit:
        return f"{value} needs {rows[value][3]}, and {limit} are allowed."
    allowed = {n: r for n, r in rows.items() if r[3] <= limit}
    others = [n for n in allowed if n != "plain"]
    quickest = min(others, key=lambda n: _per_token(allowed[n]), default=None)
    if truth == "plain" and value == quickest:
        return "plain decoding takes part, and here nothing beats it."
    if value == max(allowed, key=lambda n: allowed[n][0]):
        return "that commits the most a round; ask how long its rounds take."
    if value == min(allowed, key=lambda n: allowed[n][2] / allowed[n][0]):
        return "drafting takes time too: it belongs to the round."
    if value == min(allowed, key=lambda n: allowed[n][1] + allowed[n][2]):
        return "that has the shortest round; divide by the tokens."
    return None


# -------------------------------------------------------------------------- 0x10-level

Level = tuple[Fraction, Fraction, Fraction, Fraction]


def _level_cases(rng: np.random.Generator) -> Iterator[Level]:
    yield F(3), F(1), F(3, 2), F(1)
    yield F(2), F(1, 4), F(5, 4), F(1)
    for _ in range(5):
        tokens, draft = (
            1 + F(int(rng.integers(1, 16)), 4),
            F(int(rng.integers(1, 9)), 8),
        )
        verify = 1 + F(int(rng.integers(0, 8)), 8)
        # Somewhere above the verification alone, so that a factor exists.
        yield tokens, draft, verify, verify / tokens * F(int(rng.integers(9, 20)), 8)


def _level(case: Level) -> Fraction:
    tokens, draft, verify, rival = case
    return (tokens * rival - verify) / draft


def _level_mistake(case: Level, value: Any, truth: Fraction) -> str | None:
    tokens, draft, verify, rival = case
    try:
        found = F(value)
    except (TypeError, ValueError):
        return "return one number, a Fraction."
    if found == rival / ((draft + verify) / tokens):
        return "that scales the whole round; only its drafting changes."
    if found == tokens * rival - verify:
        return "that is the drafting time itself; the factor is asked for."
    if found == tokens * rival / draft:
        return "the verification has to be paid first: take it off."
    if truth and found == 1 / truth:
        return "turned round: the new drafting over the old one is asked for."
    return None


# ------------------------------------------------------------------------- 0x10-regret

Times = tuple[str, dict[str, list[tuple[Fraction, int]]]]


def _regret_cases(rng: np.random.Generator) -> Iterator[Times]:
    yield "one", {"one": [(F(2), 4)], "two": [(F(1), 4)]}
    yield "one", {"one": [(F(1), 4), (F(9), 12)], "two": [(F(3), 4), (F(2), 12)]}
    for _ in range(4):
        tokens = rng.integers(2, 30, size=3).tolist()
        times = {
            name: [(F(int(rng.integers(1, 40)), 4), n) for n in tokens]
            for name in ("one", "two", "three")
        }
        yield ("one", "two", "three")[int(rng.integers(3))], times


def _sum(listed: list[tuple[Fraction, int]]) -> Fraction:
    return sum((s for s, _ in listed), F(0)) / sum(n for _, n in listed)


def _regret(case: Times) -> Fraction:
    advised, times = case
    return _sum(times[advised]) / min(map(_sum, times.values()))


def _regret_mistake(case: Times, value: Any, truth: Fraction) -> str | None:
    advised, times = case
    try:
        found = F(value)
    except (TypeError, ValueError):
        return "return one number, a Fraction."
    per = {n: [s / count for s, count in row] for n, row in times.items()}
    means = {n: sum(row, F(0)) / len(row) for n, row in per.items()}
    if found == means[advised] / min(means.values()):
        return "that is of means of ratios: add seconds and tokens up, then divide."
    best = min(map(_sum, times.values()))
    if found == _sum(times[advised]) - best:
        return "a quotient is asked for, not a difference."
    if truth and found == 1 / truth:
        return "turned round: a regret is never below 1."
    others = [_sum(row) for n, row in times.items() if n != advised]
    if others and found == _sum(times[advised]) / min(others):
        return "the advised one may be the fastest itself: its regret is then 1."
    fastest = [min(row[i] for row in per.values()) for i in range(len(per[advised]))]
    if found == means[advised] / (sum(fastest, F(0)) / len(fastest)):
        return "one configuration serves all prompts; the best of each is another."
    return None


EXERCISES: dict[str, Exercise] = {
    exercise.id: exercise
    for exercise in (
        Exercise(
            id="0x10-advise",
            question=(
                "advised(rows, memory): the name to run. rows maps names, plain among "
                "them, to (tokens a round, drafting, verification, memory that it "
                "needs); times are of one round. Of equals any."
            ),
            cases=_advise_cases,
            oracle=_advised,
            diagnose=_advise_mistake,
            right=_advise_right,
        ),
        Exercise(
            id="0x10-level",
            question=(
                "level(tokens, draft, verify, rival): the factor on the drafting time "
                "at which a token takes as long as the rival's, rival being the "
                "rival's time a token. Fractions."
            ),
            cases=_level_cases,
            oracle=_level,
            diagnose=_level_mistake,
        ),
        Exercise(
            id="0x10-regret",
            question=(
                "regret_of(advised, times): the advised configuration's time a token "
                "over the fastest one's. times maps each name to its prompts' "
                "(seconds, tokens). Sums over sums, Fractions."
            ),
            cases=_regret_cases,
            oracle=_regret,
            diagnose=_regret_mistake,
        ),
    )
}
