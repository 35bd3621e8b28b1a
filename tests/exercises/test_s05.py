"""The judges of 0x05: right answers pass, each usual mistake is named."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from specbook.exercises import get
from tests.exercises.judging import names_the_mistake, told

# ------------------------------------------------------------------------- right


def best_vector(trials, cost=lambda r: r[0] + r[1] + r[2]):
    def objective(requests):
        return Fraction(sum(map(cost, requests)), sum(r[3] for r in requests))

    return min(trials, key=lambda name: objective(trials[name]))


def threshold(
    rounds,
    most,
    *,
    start=Fraction(0),
    step=Fraction(1, 1000),
    remember=True,
    late=False,
    hold=True,
    times=1,
    empty=False,
):
    gamma, rate = Fraction(4, 5), start
    for drafted, accepted in rounds:
        if not drafted and not empty:
            continue
        share = Fraction(accepted, drafted) if drafted else Fraction(0)
        for _ in range(times):
            new = (rate + share) / 2 if remember else share
            seen = rate if late else new
            rate = new
            if seen < Fraction(9, 10) or (not hold and seen == Fraction(9, 10)):
                gamma += step
            elif drafted < most or not hold:
                gamma -= step
    return gamma


def layer_rows(prompt, layers, boundary, rounds):
    rows = adapter = unread = 0
    pending = prompt
    for drafted, accepted in rounds:
        rows += pending + drafted
        adapter += unread + pending + drafted - 1
        unread, pending = int(accepted == drafted), 1
    return rows * boundary, rows * (layers - boundary), adapter


def publishable(rows, tokens, layers, *, taint=True, ran=True, before=True):
    clean, found = True, []
    for token, position, tail, steps in rows:
        full = steps == list(range(layers))
        clean &= full
        right = token == tokens[position]
        right &= not before or tail == tokens[:position]
        found.append(right and (not ran or (clean if taint else full)))
    return found


RIGHT = {
    "0x05-best-vector": best_vector,
    "0x05-threshold": threshold,
    "0x05-layer-rows": layer_rows,
    "0x05-publishable": publishable,
}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("exercise_id", RIGHT)
def test_a_right_answer_passes(exercise_id, seed):
    solved, lines = told(exercise_id, RIGHT[exercise_id], seed)
    assert solved, lines


# ------------------------------------------------------------------------- wrong


def averaged(trials):
    def mean(requests):
        return sum(Fraction(a + b + c, n) for a, b, c, n in requests) / len(requests)

    return min(trials, key=lambda name: mean(trials[name]))


def by(key):
    return lambda trials: min(trials, key=lambda name: key(trials[name]))


def worked(change):
    def answer(prompt, layers, boundary, rounds):
        right = layer_rows(prompt, layers, boundary, rounds)
        return change(right, prompt, layers, boundary, rounds)

    return answer


def drafted_of(rounds):
    return sum(n for n, _ in rounds)


def lagging(rounds):
    """Rounds behind which the adapter has a row to make up for."""
    return sum(n == a for n, a in rounds[:-1])


def by_token(rows, tokens, layers):
    return [t in tokens and ran == list(range(layers)) for t, _, _, ran in rows]


WRONG = [
    ("0x05-best-vector", averaged, "averaged the requests"),
    (
        "0x05-best-vector",
        lambda trials: best_vector(trials, lambda r: r[0] + r[1]),
        "time for state",
    ),
    ("0x05-best-vector", by(lambda rs: -sum(r[3] for r in rs)), "most verified"),
    ("0x05-best-vector", by(lambda rs: sum(r[0] for r in rs)), "cheapest draft"),
    (
        "0x05-best-vector",
        by(lambda rs: sum(sum(r[:3]) for r in rs)),
        "verified little",
    ),
    ("0x05-best-vector", lambda trials: 3, "the name of a vector"),
    (
        "0x05-threshold",
        lambda *case: threshold(*case, hold=False),
        "two branches",
    ),
    ("0x05-threshold", lambda *case: threshold(*case, times=2), "twice a round"),
    (
        "0x05-threshold",
        lambda *case: threshold(*case, step=Fraction(1, 100)),
        "beta2 is missing",
    ),
    ("0x05-threshold", lambda *case: threshold(*case, late=True), "not the old one"),
    (
        "0x05-threshold",
        lambda *case: threshold(*case, remember=False),
        "remembers half",
    ),
    (
        "0x05-threshold",
        lambda *case: threshold(*case, start=Fraction(1)),
        "starts at 0",
    ),
    (
        "0x05-threshold",
        lambda *case: threshold(*case, empty=True),
        "says nothing",
    ),
    (
        "0x05-layer-rows",
        worked(lambda v, p, n, b, rs: (v[0] + b * drafted_of(rs), *v[1:])),
        "no shallow layer runs twice",
    ),
    (
        "0x05-layer-rows",
        worked(lambda v, p, n, b, rs: (v[0], v[1] + b * drafted_of(rs), v[2])),
        "only the other layers",
    ),
    (
        "0x05-layer-rows",
        worked(lambda v, p, n, b, rs: (*v[:2], v[2] + len(rs))),
        "does not read the last token of a draft.",
    ),
    (
        "0x05-layer-rows",
        worked(lambda v, p, n, b, rs: (*v[:2], v[2] - lagging(rs))),
        "one row behind",
    ),
    (
        "0x05-layer-rows",
        worked(lambda v, p, n, b, rs: (*v[:2], v[2] + len(rs) - lagging(rs))),
        "makes up for",
    ),
    (
        "0x05-layer-rows",
        worked(lambda v, p, n, b, rs: (v[0] // b, v[1] // (n - b), v[2])),
        "each layer of its part",
    ),
    (
        "0x05-layer-rows",
        worked(
            lambda v, p, n, b, rs: (
                v[0] - (p - 1) * b,
                v[1] - (p - 1) * (n - b),
                v[2] - (p - 1),
            )
        ),
        "the whole prompt",
    ),
    (
        "0x05-publishable",
        lambda *case: publishable(*case, taint=False),
        "attended to",
    ),
    (
        "0x05-publishable",
        lambda *case: publishable(*case, ran=False),
        "the layers that ran",
    ),
    (
        "0x05-publishable",
        lambda *case: publishable(*case, taint=False, before=False),
        "tokens before it",
    ),
    ("0x05-publishable", by_token, "compare the position"),
    (
        "0x05-publishable",
        lambda rows, tokens, n: [ran == list(range(n)) for *_, ran in rows],
        "not this place's row",
    ),
]


@pytest.mark.parametrize(
    ("exercise_id", "answer", "words"),
    WRONG,
    ids=[f"{name} {words}" for name, _, words in WRONG],
)
def test_a_usual_mistake_is_named(exercise_id, answer, words):
    names_the_mistake(exercise_id, answer, words, seeds=10)


def test_the_first_case_of_the_objective_tells_every_mistake_apart():
    case = next(iter(get("0x05-best-vector").cases(np.random.default_rng(0))))
    truth = get("0x05-best-vector").oracle(case)
    wrong = [answer(case) for name, answer, _ in WRONG if name.endswith("vector")]
    assert truth == "-xx-" and truth not in wrong


def test_rows_are_asked_for_that_are_tainted_and_that_are_not():
    exercise = get("0x05-publishable")
    found = [
        exercise.oracle(case)
        for seed in range(3)
        for case in exercise.cases(np.random.default_rng(seed))
    ]
    assert any(all(row) for row in found) and any(not row[-1] for row in found)
