"""The judges of 0x10: right answers pass, each usual mistake is named."""

from __future__ import annotations

import pytest

from tests.exercises.judging import names_the_mistake, told


def token(row):
    return (row[1] + row[2]) / row[0]


def advised(rows, memory):
    return min((n for n in rows if rows[n][3] <= memory), key=lambda n: token(rows[n]))


def level(tokens, draft, verify, rival):
    return (tokens * rival - verify) / draft


def total(listed):
    return sum(s for s, _ in listed) / sum(n for _, n in listed)


def regret(advised, times):
    return total(times[advised]) / min(map(total, times.values()))


RIGHT = [("0x10-advise", advised), ("0x10-level", level), ("0x10-regret", regret)]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("exercise_id", "answer"), RIGHT)
def test_right_answers_are_solved(exercise_id, answer, seed):
    assert told(exercise_id, answer, seed)[0]


def mean(listed):
    return sum(s / n for s, n in listed) / len(listed)


def fitting(rows, memory):
    return [n for n in rows if rows[n][3] <= memory]


WRONG = [
    ("0x10-advise", lambda r, m: max(fitting(r, m), key=lambda n: r[n][0]),
     "the most a round"),
    ("0x10-advise", lambda r, m: min(r, key=lambda n: token(r[n])), "are allowed"),
    ("0x10-advise", lambda r, m: min(fitting(r, m), key=lambda n: r[n][2] / r[n][0]),
     "drafting takes time too"),
    ("0x10-advise", lambda r, m: min(
        [n for n in fitting(r, m) if n != "plain"] or ["plain"],
        key=lambda n: token(r[n])), "plain decoding takes part"),
    ("0x10-advise", lambda r, m: "nothing", "one of the names"),
    ("0x10-level", lambda t, d, v, r: r * t / (d + v), "only its drafting"),
    ("0x10-level", lambda t, d, v, r: t * r - v, "the factor is asked for"),
    ("0x10-level", lambda t, d, v, r: t * r / d, "take it off"),
    ("0x10-level", lambda t, d, v, r: d / (t * r - v), "turned round"),
    ("0x10-level", lambda t, d, v, r: "x", "one number"),
    ("0x10-regret", lambda a, t: mean(t[a]) / min(map(mean, t.values())),
     "means of ratios"),
    ("0x10-regret", lambda a, t: total(t[a]) - min(map(total, t.values())),
     "not a difference"),
    ("0x10-regret", lambda a, t: min(map(total, t.values())) / total(t[a]),
     "never below 1"),
    ("0x10-regret", lambda a, t: total(t[a]) / min(
        total(r) for n, r in t.items() if n != a), "fastest itself"),
]  # fmt: skip


@pytest.mark.parametrize(("exercise_id", "answer", "words"), WRONG)
def test_each_usual_mistake_is_named(exercise_id, answer, words):
    names_the_mistake(exercise_id, answer, words, seeds=40)
