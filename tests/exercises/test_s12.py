"""The judges of 0x12: right answers pass, each usual mistake is named."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from tests.exercises.judging import names_the_mistake, told

# ------------------------------------------------------------------------- right


def state(records):
    if not records:
        return "missing"
    now = [held for held, version in records if version == "now"]
    if not all(now):
        return "red"
    return "green" if len(now) == len(records) else "stale"


def section(name):
    return name.partition("-")[0]


def uncovered(lines, ids):
    under = {s for _, sections in lines for s in sections}
    under |= {section(n) for names, _ in lines for n in names}
    return {section(n) for n in ids} - under


def alarm(rates):
    return 1 - math.prod((1 - rate for rate in rates), start=Fraction(1))


RIGHT = [("0x12-state", state), ("0x12-uncovered", uncovered), ("0x12-alarm", alarm)]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("exercise_id", "answer"), RIGHT)
def test_a_right_answer_passes(exercise_id, answer, seed):
    solved, lines = told(exercise_id, answer, seed)
    assert solved, lines


# ------------------------------------------------------------------------- wrong


def no_failure(records):
    return "red" if not all(held for held, _ in records) else "green"


def last_counts(records):
    return state(records[-1:])


def any_failure(records):
    if records and not all(held for held, _ in records):
        return "red"
    return state(records)


def stale_first(records):
    if any(version != "now" for _, version in records):
        return "stale"
    return state(records)


def versionless(records):
    return state([(held, "now") for held, version in records if version == "now"])


def only_now(records):
    now = [r for r in records if r[1] == "now"]
    return state(now) if now or not records else "green"


def covered(lines, ids):
    return {section(n) for n in ids} - uncovered(lines, ids)


def whole_only(lines, ids):
    return uncovered([([], sections) for _, sections in lines], ids)


def named_only(lines, ids):
    return uncovered([(names, []) for names, _ in lines], ids)


def by_beginning(lines, ids):
    under = {s for _, sections in lines for s in sections}
    under |= {section(n) for names, _ in lines for n in names}
    return {section(n) for n in ids if not n.startswith(tuple(under))}


def claims_left(lines, ids):
    left = uncovered(lines, ids)
    return {name for name in ids if section(name) in left}


WRONG = [
    ("0x12-state", no_failure, "silence is missing"),
    ("0x12-state", last_counts, "an earlier one of this version did not"),
    ("0x12-state", any_failure, "says nothing about this one"),
    ("0x12-state", stale_first, "outweighs"),
    ("0x12-state", versionless, "there are records"),
    ("0x12-state", only_now, "shows another book"),
    ("0x12-state", lambda records: "ok", "the states are"),
    ("0x12-uncovered", covered, "that are covered"),
    ("0x12-uncovered", whole_only, "single claims"),
    ("0x12-uncovered", named_only, "whole sections"),
    ("0x12-uncovered", by_beginning, "the beginning of 0x07D"),
    ("0x12-uncovered", claims_left, "not claims"),
    ("0x12-alarm", lambda rates: sum(rates, Fraction(0)), "counts a run twice"),
    ("0x12-alarm", lambda rates: 1 - alarm(rates), "none fails"),
    ("0x12-alarm", lambda rates: math.prod(rates, start=Fraction(1)), "all of them"),
    ("0x12-alarm", lambda rates: max(rates, default=Fraction(0)), "the others"),
]


@pytest.mark.parametrize(("exercise_id", "answer", "message"), WRONG)
def test_each_usual_mistake_is_named(exercise_id, answer, message):
    names_the_mistake(exercise_id, answer, message, seeds=4)
