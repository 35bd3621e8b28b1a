"""The judges of 0x09: right answers pass, each usual mistake is named."""

from __future__ import annotations

from fractions import Fraction

import pytest

from tests.exercises.judging import names_the_mistake, told

# ------------------------------------------------------------------------- right


def step(p, q, token):
    left = [max(a - b, 0) for a, b in zip(p, q, strict=True)]
    return min(1, p[token] / q[token]), [x / sum(left) for x in left]


def tests(p, drafts):
    found = []
    for token, q in drafts:
        found.append(min(Fraction(1), p[token] / q[token]))
        if found[-1] == 1:
            break
        left = [max(a - b, 0) for a, b in zip(p, q, strict=True)]
        p = [x / sum(left) for x in left]
    return found


tests.__test__ = False


def growth(prefix, rows, config):
    total = 0
    for window in config["windows"]:
        most = prefix + rows if window is None else window - 1
        total += min(prefix + rows, most) - min(prefix, most)
    width = config["hidden_size"] // config["heads"]
    return total * 2 * config["kv_heads"] * width * config["bytes"]


RIGHT = {"0x09-residual": step, "0x09-in-turn": tests, "0x09-kv-bytes": growth}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("exercise_id", RIGHT)
def test_a_right_answer_passes(exercise_id, seed):
    solved, lines = told(exercise_id, RIGHT[exercise_id], seed)
    assert solved, lines


# ------------------------------------------------------------------------- wrong


def positive(p, q):
    return [max(a - b, 0) for a, b in zip(p, q, strict=True)]


def signed(p, q, token):
    return step(p, q, token)[0], [a - b for a, b in zip(p, q, strict=True)]


def without_the_token(p, q, token):
    left = [0 if t == token else x for t, x in enumerate(p)]
    return step(p, q, token)[0], [x / (sum(left) or 1) for x in left]


def first_q(p, drafts):
    return tests(p, [(token, drafts[0][1]) for token, _ in drafts])


def against_p(p, drafts):
    found = []
    for token, q in drafts:
        found.append(min(Fraction(1), p[token] / q[token]))
        if found[-1] == 1:
            break
    return found


def never_stops(p, drafts):
    found = tests(p, drafts)
    return found + [Fraction(1)] * (len(drafts) - len(found))


def dense(prefix, rows, config):
    return growth(prefix, rows, {**config, "windows": [None] * config["layers"]})


def all_heads(prefix, rows, config):
    return dense(prefix, rows, config) * config["heads"] // config["kv_heads"]


WRONG = [
    ("0x09-residual", lambda p, q, t: p[t] / q[t], "return two things"),
    (
        "0x09-residual",
        lambda p, q, t: (p[t] / q[t], step(p, q, t)[1]),
        "at most 1",
    ),
    ("0x09-residual", signed, "below 0"),
    (
        "0x09-residual",
        lambda p, q, t: (step(p, q, t)[0], positive(p, q)),
        "divide by its sum",
    ),
    ("0x09-residual", without_the_token, "takes out its whole law"),
    ("0x09-residual", lambda p, q, t: (step(p, q, t)[0], p), "counts twice"),
    (
        "0x09-residual",
        lambda p, q, t: (step(p, q, t)[0], [1] * len(p)),
        "the test is min",
    ),
    ("0x09-in-turn", against_p, "against what is left"),
    ("0x09-in-turn", first_q, "from its own"),
    ("0x09-in-turn", never_stops, "stop behind it"),
    ("0x09-in-turn", lambda p, drafts: [], "one number for each draft"),
    (
        "0x09-kv-bytes",
        lambda *case: growth(*case) // 2,
        "keys and values",
    ),
    ("0x09-kv-bytes", all_heads, "query heads"),
    (
        "0x09-kv-bytes",
        lambda p, n, c: dense(p, p + n, c),
        "counted the prefix",
    ),
    ("0x09-kv-bytes", dense, "w - 1 rows at most"),
]


@pytest.mark.parametrize(
    ("exercise_id", "answer", "words"),
    WRONG,
    ids=[f"{name} {words}" for name, _, words in WRONG],
)
def test_a_usual_mistake_is_named(exercise_id, answer, words):
    names_the_mistake(exercise_id, answer, words, seeds=20)
