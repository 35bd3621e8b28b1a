"""The exercises of notebook 0x12: what records show, what is covered, what chance
does."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from .. import gate
from ..chance import law
from ..claims import Claim, record
from . import Exercise

Record = tuple[bool, str]
NOW = "now"

# ------------------------------------------------------------ what the records show


def _state_cases(rng: np.random.Generator) -> Iterator[tuple[list[Record]]]:
    yield ([(True, NOW)],)
    yield ([],)
    yield ([(False, NOW), (True, NOW)],)
    yield ([(True, "before")],)
    yield ([(True, NOW), (True, "before")],)
    yield ([(False, "before")],)
    yield ([(False, NOW), (True, "before")],)
    for _ in range(6):
        yield (
            [
                (bool(rng.random() < 0.7), NOW if rng.random() < 0.7 else "before")
                for _ in range(rng.integers(0, 4))
            ],
        )


def _state_oracle(case: tuple[list[Record]]) -> str:
    # Through the gate itself: version "now" asks.
    claim = Claim("0x12-x", "0x12", "X.", "source-local", "exact", "0x12_publish_gate")
    records = [record(claim, held, "seen", version=v) for held, v in case[0]]
    return gate.claim_state(claim, records, NOW)


def _state_diagnose(case: tuple[list[Record]], answer: Any, truth: str) -> str | None:
    (records,) = case
    if not records:
        return "there is no record, so nothing was shown: silence is missing."
    if answer not in gate.STATES:
        return f"the states are {', '.join(gate.STATES)}."
    now = [held for held, version in records if version == NOW]
    if truth == "red" and answer == "green" and now[-1]:
        return (
            "the last record held, an earlier one of this version did not. A check "
            "that fails sometimes does not show its claim."
        )
    if truth == "red" and answer == "stale":
        return "a failure of this version outweighs records of another one."
    if truth == "stale" and answer == "red":
        return "what another version found wrong says nothing about this one."
    if truth == "stale" and answer == "green":
        return "a record of another version shows another book."
    if truth == "stale" and answer == "missing":
        return "there are records, only not of this version: that is stale."
    return None


# ------------------------------------------------------------------ what is covered

Bound = tuple[list[str], list[str]]
SECTIONS = ("0x07", "0x07D", "0x0A", "0x0AC")


def _cover_cases(
    rng: np.random.Generator,
) -> Iterator[tuple[list[Bound], list[str]]]:
    ids = [f"{section}-{word}" for section in SECTIONS for word in ("one", "two")]
    yield [([], ["0x07"]), (["0x0A-one"], [])], ids
    yield [(["0x07-one"], [])], ids[:2]
    yield [([], ["0x07"]), ([], ["0x0A"])], ids
    yield [(["0x07D-two"], ["0x0AC"])], ids
    for _ in range(6):
        lines = [
            (
                [str(n) for n in rng.choice(ids, rng.integers(0, 2), replace=False)],
                [str(s) for s in rng.choice(SECTIONS, 1, replace=False)],
            )
            for _ in range(rng.integers(0, 4))
        ]
        yield lines, [str(n) for n in rng.permutation(ids)]


def _cover_oracle(case: tuple[list[Bound], list[str]]) -> set[str]:
    lines, ids = case
    register = {
        name: Claim(
            name, name.partition("-")[0], "X.", "source-local", "exact", "0x00_x"
        )
        for name in ids
    }
    bound = [
        gate.Line(
            "x",
            "x",
            "x",
            tuple(
                name
                for name, claim in register.items()
                if name in names or claim.section in sections
            ),
        )
        for names, sections in lines
    ]
    return set(gate.uncovered(bound, register))


def _cover_diagnose(
    case: tuple[list[Bound], list[str]], answer: Any, truth: set[str]
) -> str | None:
    lines, ids = case
    found = set(answer)
    sections = {name.partition("-")[0] for name in ids}
    whole = {section for _, bound in lines for section in bound}
    named = {name.partition("-")[0] for names, _ in lines for name in names}
    if found == sections - truth and found != truth:
        return "these are the sections that are covered."
    if found == sections - whole:
        return "a line may also name single claims, and covers their sections."
    if found == sections - named:
        return "a line may also name whole sections."
    if found == {s for s in sections if not s.startswith(tuple(whole | named))}:
        return "0x07 is the beginning of 0x07D, and another section all the same."
    if found & {name for name in ids}:
        return "sections are asked for, not claims."
    return None


# -------------------------------------------------------------------- what chance does


def _alarm_cases(rng: np.random.Generator) -> Iterator[tuple[list[Fraction]]]:
    yield ([Fraction(1, 4)],)
    yield ([Fraction(1, 2), Fraction(1, 3)],)
    yield ([],)
    for _ in range(5):
        yield (
            [
                Fraction(1, int(d))
                for d in rng.choice([2, 3, 4, 5, 10, 100], rng.integers(2, 5))
            ],
        )


def _alarm_oracle(case: tuple[list[Fraction]]) -> Fraction:
    # Every way in which the checks can fall, one by one.
    def program(chance: Any) -> bool:
        return any([chance.flip(rate) for rate in case[0]])

    found: Any = law(program)
    return found.get(True, Fraction(0))


def _alarm_diagnose(
    case: tuple[list[Fraction]], answer: Any, truth: Fraction
) -> str | None:
    (rates,) = case
    if answer == sum(rates):
        return (
            "the sum counts a run twice in which two checks fail. It is a bound from "
            "above, and a close one only where all rates are small."
        )
    if answer == 1 - truth:
        return "that is the chance that none fails."
    product = Fraction(1)
    for rate in rates:
        product *= rate
    if answer == product:
        return "that is the chance that all of them fail; one is enough."
    if rates and answer == max(rates):
        return "the others can fail too when the most fallible one does not."
    return None


EXERCISES = {
    exercise.id: exercise
    for exercise in (
        Exercise(
            id="0x12-state",
            question=(
                "state(records): the records of one claim, each (held, version). "
                '"now" is the version that asks. Is the claim "green", "missing", '
                '"stale" or "red"?'
            ),
            cases=_state_cases,
            oracle=_state_oracle,
            diagnose=_state_diagnose,
        ),
        Exercise(
            id="0x12-uncovered",
            question=(
                "uncovered(lines, ids): each line is (claim ids, whole sections); an "
                "id begins with its section and a hyphen. Which sections have claims "
                "and are under no line? A set."
            ),
            cases=_cover_cases,
            oracle=_cover_oracle,
            diagnose=_cover_diagnose,
        ),
        Exercise(
            id="0x12-alarm",
            question=(
                "alarm(rates): independent checks of true claims, each of which fails "
                "by chance with its rate, a Fraction. How likely is it that at least "
                "one fails?"
            ),
            cases=_alarm_cases,
            oracle=_alarm_oracle,
            diagnose=_alarm_diagnose,
        ),
    )
}
