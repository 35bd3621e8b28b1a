"""The judges of 0x0A: right answers pass, each usual mistake is named."""

from __future__ import annotations

from fractions import Fraction
from heapq import heappop, heappush

import pytest

from specbook.exercises import get, grade
from tests.exercises.judging import told

# ------------------------------------------------------------------------- right


def selected(h):
    found, left = [Fraction(0)], Fraction(1)
    for rate in h[1:]:
        found.append(left * rate)
        left *= 1 - rate
    return found


def worth(parents, ranks, p):
    values = []
    for parent, rank in zip(parents, ranks, strict=True):
        values.append((1 if parent == -1 else values[parent]) * p[rank + 1])
    return 1 + sum(values)


def every_size(n, p):
    scores, heap, looked = [Fraction(1)], [], 0

    def offer(above, slot):
        nonlocal looked
        if slot < len(p):
            looked += 1
            heappush(heap, (-above * p[slot], looked, above, slot))

    offer(Fraction(1), 1)
    while len(scores) < n:
        value, _, above, slot = heappop(heap)
        scores.append(scores[-1] - value)
        offer(-value, 1)
        offer(above, slot + 1)
    return scores, looked


def fastest(progress, times, c):
    return max(progress, key=lambda k: progress[k] / (times[k[0]] + k[1] * c))


def corner(weights, bandwidth, speed):
    return 4 * speed // (2 * bandwidth) + 1


def stale(then, now):
    low, high = then["temperatures"]
    names = {n for n in now if n != "temperature" and now[n] != then[n]}
    return names | ({"temperature"} if not low <= now["temperature"] <= high else set())


RIGHT = {
    "0x0A-selected": selected,
    "0x0A-worth": worth,
    "0x0A-every-size": every_size,
    "0x0A-fastest": fastest,
    "0x0A-corner": corner,
    "0x0A-stale": stale,
}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("exercise_id", RIGHT)
def test_a_right_answer_passes(exercise_id, seed):
    solved, lines = told(exercise_id, RIGHT[exercise_id], seed)
    assert solved, lines


def test_best_first_looks_at_few_nodes():
    report = grade(get("0x0A-every-size"), every_size, 1)
    assert report.cost == report.reference_cost


# ------------------------------------------------------------------------- wrong


def normalised(h):
    found = selected(h)
    return [p / (sum(found) or 1) for p in found]


def any_so_far(h):
    found, left = [Fraction(0)], Fraction(1)
    for rate in h[1:]:
        left *= 1 - rate
        found.append(1 - left)
    return found


def chain_only(n, p):
    scores = [Fraction(1)]
    for d in range(1, n):
        scores.append(scores[-1] + p[1] ** d)
    return scores, n


WRONG = [
    ("0x0A-selected", list, "those are the rates"),
    ("0x0A-selected", lambda h: selected(h)[1:], "unused zero"),
    ("0x0A-selected", normalised, "sum to one"),
    ("0x0A-selected", any_so_far, "any slot so far"),
    ("0x0A-selected", lambda h: [0], "numbers are asked for"),
    ("0x0A-selected", lambda h: 3, "a list of Fractions"),
    ("0x0A-worth", lambda *case: worth(*case) - 1, "count the root"),
    ("0x0A-worth", lambda a, r, p: 1 + sum(p[x + 1] for x in r), "multiply"),
    ("0x0A-worth", lambda a, r, p: worth(a, [0] * len(r), p), "a slot of its own"),
    ("0x0A-worth", lambda a, r, p: 1 + len(a), "those are the rows"),
    ("0x0A-worth", lambda a, r, p: "many", "one number"),
    ("0x0A-every-size", chain_only, "that is a chain"),
    ("0x0A-every-size", lambda n, p: every_size(n, p)[0], "two things"),
    ("0x0A-every-size", lambda n, p: ([0] * n, 0), "the root alone"),
    ("0x0A-every-size", lambda n, p: ([1], 0), "scores are asked for"),
    (
        "0x0A-every-size",
        lambda n, p: ([g + (n > 5) for g in every_size(n, p)[0]], 0),
        "the best is",
    ),
]


WRONG += [
    ("0x0A-fastest", lambda g, t, c: max(g, key=g.get), "the most tokens"),
    (
        "0x0A-fastest",
        lambda g, t, c: max(g, key=lambda k: g[k] / t[k[0]]),
        "left out the draft",
    ),
    ("0x0A-fastest", lambda g, t, c: (1, 0), "the cheapest round"),
    ("0x0A-fastest", lambda g, t, c: 3, "a pair"),
    ("0x0A-fastest", lambda g, t, c: (99, 99), "a pair"),
    ("0x0A-corner", lambda w, b, s: corner(w, b, s) - 1, "one more row"),
    ("0x0A-corner", lambda w, b, s: 4 * s // b + 1, "two operations"),
    ("0x0A-corner", lambda w, b, s: s // (2 * b) + 1, "four bytes"),
    ("0x0A-corner", lambda w, b, s: "many", "whole number"),
    (
        "0x0A-stale",
        lambda then, now: stale(then, now | {"temperature": 0.7}),
        "left its range",
    ),
    (
        "0x0A-stale",
        lambda then, now: stale(then, now) | {"temperature"},
        "ends included",
    ),
    ("0x0A-stale", lambda then, now: 3, "names of the fields"),
    ("0x0A-stale", lambda then, now: [*stale(then, now), "colour"], "as it was"),
]


@pytest.mark.parametrize(("exercise_id", "answer", "words"), WRONG)
def test_a_wrong_answer_is_told_why(exercise_id, answer, words):
    solved, lines = told(exercise_id, answer)
    assert not solved and words in lines, lines
