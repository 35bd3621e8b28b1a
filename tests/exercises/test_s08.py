"""The judges of 0x08: right answers pass, each usual mistake is named."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from specbook import controls
from specbook.chance import law
from specbook.exercises import get
from tests.exercises.judging import names_the_mistake, told

# ------------------------------------------------------------------------- right


def coupling(p, q):
    """Accept what both laws share; what is refused goes where p exceeds q."""
    left = [max(a - b, Fraction(0)) for a, b in zip(p, q, strict=True)]
    plan = []
    for x, mass in enumerate(q):
        kept = min(p[x], mass)
        scale = (mass - kept) / sum(left) if sum(left) else Fraction(0)
        plan.append([scale * missing for missing in left])
        plan[x][x] += kept
    return plan


def optimum(p, q, k):
    drafted = [x for x in range(len(p)) if q[x]]
    least = mine = theirs = Fraction(0)
    for x in sorted(drafted, key=lambda x: p[x] / q[x]):
        mine, theirs = mine + p[x], theirs + q[x]
        least = min(least, mine - theirs**k)
    return 1 + least


def witness(rule, k):
    for p in product(range(1, 4), repeat=3):
        exact = [Fraction(w, sum(p)) for w in p]
        for q in product(range(0, 6), repeat=3):
            if not any(q):
                continue
            rows = [q, q[::-1]][:k]
            laws = [[Fraction(w, sum(row)) for w in row] for row in rows]
            found = law(lambda c, p=exact, q=laws: rule(c, p, q))
            if any(found.get((x,), 0) != exact[x] for x in range(3)):
                return p, rows
    return None


RIGHT = {
    "0x08-coupling": coupling,
    "0x08-optimum": optimum,
    "0x08-witness": witness,
}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("exercise_id", RIGHT)
def test_a_right_answer_passes(exercise_id, seed):
    solved, lines = told(exercise_id, RIGHT[exercise_id], seed)
    assert solved, lines
    assert "for less" not in lines


# ------------------------------------------------------------------------- wrong


def corrected_from_p(p, q):
    plan = []
    for x, mass in enumerate(q):
        kept = min(p[x], mass)
        plan.append([(mass - kept) * a for a in p])
        plan[x][x] += kept
    return plan


def independent(p, q):
    return [[a * b for a in p] for b in q]


def clipped(p, q):
    size = range(len(p))
    return [[min(p[x], q[x]) if x == y else Fraction(0) for y in size] for x in size]


def sorted_the_other_way(p, q, k):
    drafted = [x for x in range(len(p)) if q[x]]
    least = mine = theirs = Fraction(0)
    for x in sorted(drafted, key=lambda x: -p[x] / q[x]):
        mine, theirs = mine + p[x], theirs + q[x]
        least = min(least, mine - theirs**k)
    return 1 + least


def shared(p, q, k=1):
    return sum(min(a, k * b) for a, b in zip(p, q, strict=True))


ARTICLE = ([5, 3, 2], [[4, 4, 2]] * 2)

WRONG = [
    ("0x08-coupling", corrected_from_p, "from p"),
    ("0x08-coupling", lambda p, q: coupling(q, p), "turned over"),
    ("0x08-coupling", clipped, "adds up to"),
    ("0x08-coupling", lambda p, q: [list(p)] * len(p), "adds up to"),
    ("0x08-coupling", lambda p, q: [q], "rows of"),
    ("0x08-coupling", lambda p, q: 3, "rows of"),
    (
        "0x08-coupling",
        lambda p, q: [[float(m) + 1e-17 for m in row] for row in coupling(p, q)],
        "Fractions",
    ),
    (
        "0x08-coupling",
        lambda p, q: [
            [a - b * (x != y) for y, a in enumerate(p)] for x, b in enumerate(q)
        ],
        "negative",
    ),
    ("0x08-optimum", lambda p, q, k: shared(p, q), "that is one draft"),
    ("0x08-optimum", lambda p, q, k: min(1, shared(p, q, k)), "upper bound"),
    ("0x08-optimum", lambda p, q, k: optimum(p, q, k) - 1, "add the 1"),
    ("0x08-optimum", sorted_the_other_way, "smallest first"),
    (
        "0x08-optimum",
        lambda p, q, k: sum(a * (1 - (1 - b) ** k) for a, b in zip(p, q, strict=True)),
        "A rule may look",
    ),
    ("0x08-optimum", lambda p, q, k: float(optimum(p, q, k)), "keep it a Fraction"),
    ("0x08-optimum", lambda p, q, k: Fraction(2), "more than any rule"),
    ("0x08-witness", lambda rule, k: ARTICLE, "comes out right"),
    (
        "0x08-witness",
        lambda rule, k: ([0.5, 1.5], [[1, 1]] * k),
        "weights are whole numbers",
    ),
    ("0x08-witness", lambda rule, k: ([1, 1], [[1, 1, 1]] * k), "one length"),
    ("0x08-witness", lambda rule, k: ([0, 0], [[0, 0]] * k), "weights"),
    ("0x08-witness", lambda rule, k: ([1] * 9, [[1] * 9] * k), "2 to 6 tokens"),
    ("0x08-witness", lambda rule, k: 7, "weights p"),
]


@pytest.mark.parametrize("exercise_id, answer, words", WRONG)
def test_a_usual_mistake_is_named(exercise_id, answer, words):
    names_the_mistake(exercise_id, answer, words, seeds=4)


def test_an_independent_coupling_is_right_and_refuses_more():
    solved, lines = told("0x08-coupling", independent)
    assert solved and "for less" in lines


def test_the_judge_of_couplings_needs_both_marginals():
    exercise = get("0x08-coupling")
    case = ([Fraction(1, 2), Fraction(1, 2)], [Fraction(1), Fraction(0)])
    half = Fraction(1, 2)
    assert exercise.right(case, [[half, half], [0, 0]], None)
    assert not exercise.right(case, [[half, 0], [half, 0]], None)  # not q
    assert not exercise.right(case, [[1, 0], [0, 0]], None)  # not p
    assert not exercise.right(case, [[1, 0], [-half, half]], None)


def test_the_suspects_are_those_that_the_articles_instance_hides():
    cases = list(get("0x08-witness").cases(np.random.default_rng(0)))
    hidden = [control.name for control in controls.CONTROLS if control.hidden()]
    assert [rule.name for rule, _ in cases] == hidden
