"""The judges of 0x0A: right answers pass, each usual mistake is named."""

from __future__ import annotations

from fractions import Fraction
from heapq import heappop, heappush

import pytest

from specbook.exercises import get, grade


def told(exercise_id, answer, seed=5):
    report = grade(get(exercise_id), answer, seed)
    return report.solved, " ".join(report.lines)


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


RIGHT = {
    "0x0A-selected": selected,
    "0x0A-worth": worth,
    "0x0A-every-size": every_size,
}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("exercise_id", RIGHT)
def test_a_right_answer_passes(exercise_id, seed):
    solved, lines = told(exercise_id, RIGHT[exercise_id], seed)
    assert solved, lines


def test_best_first_looks_at_few_nodes():
    report = grade(get("0x0A-every-size"), every_size, 1)
    assert report.cost < report.reference_cost


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


@pytest.mark.parametrize(("exercise_id", "answer", "words"), WRONG)
def test_a_wrong_answer_is_told_why(exercise_id, answer, words):
    solved, lines = told(exercise_id, answer)
    assert not solved and words in lines, lines
