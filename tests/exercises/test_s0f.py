"""The judges of 0x0F: right answers pass, each usual mistake is named."""

from __future__ import annotations

import pytest

from tests.exercises.judging import names_the_mistake, told

# ------------------------------------------------------------------------- right


def first_fault(rows, prefix_len, skip=()):
    seen = set()
    for number, row in enumerate(rows):
        parent, key = row["parent"], (row["parent"], row["token"])
        if not -1 <= parent < number:
            return number
        depth = 1 if parent == -1 else rows[parent]["depth"] + 1
        wrong = {
            "depth": row["depth"] != depth,
            "position": row["position"] != prefix_len + depth - 1,
            "predictor": row["predictor"] != parent,
            "repeated": key in seen,
        }
        if any(wrong[name] for name in wrong if name not in skip):
            return number
        seen.add(key)
    return -1


def may_commit(parents, rows):
    return [parents[row] for row in rows] == [-1, *rows][: len(rows)]


def gate(source, rule, exact):
    names = "probability", "sampling", "topology"
    clashes = [name for name in names if source[name] not in rule[name]]
    return clashes + ["mode"] * (exact and not rule["exact"])


RIGHT = {
    "0x0F-first-fault": first_fault,
    "0x0F-may-commit": may_commit,
    "0x0F-gate": gate,
}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("exercise_id", RIGHT)
def test_a_right_answer_passes(exercise_id, seed):
    solved, lines = told(exercise_id, RIGHT[exercise_id], seed)
    assert solved, lines


# ------------------------------------------------------------------------- wrong


def blind(name):
    return lambda rows, prefix_len: first_fault(rows, prefix_len, skip=[name])


def any_parent(rows, prefix_len):
    kept = [row for i, row in enumerate(rows) if row["parent"] < i]
    return first_fault(kept, prefix_len) if kept == rows else -1


WRONG = [
    ("0x0F-first-fault", lambda rows, n: 0, "nothing is wrong here"),
    ("0x0F-first-fault", blind("depth"), "it hangs at depth"),
    ("0x0F-first-fault", blind("position"), "sits at position"),
    ("0x0F-first-fault", blind("predictor"), "scores it is its parent"),
    ("0x0F-first-fault", blind("repeated"), "repeats the full prefix"),
    ("0x0F-first-fault", any_parent, "does not come before it"),
    ("0x0F-may-commit", lambda p, rows: bool(rows) and may_commit(p, rows), "too: no"),
    ("0x0F-may-commit", lambda p, rows: not rows, "is a path"),
    (
        "0x0F-may-commit",
        lambda p, rows: all(p[b] == a for a, b in zip(rows, rows[1:], strict=False)),
        "begins below the prefix",
    ),
    (
        "0x0F-may-commit",
        lambda p, rows: not rows or p[rows[0]] == -1,
        "does not hang below it",
    ),
    ("0x0F-gate", lambda *case: gate(*case)[:1], "not the first alone"),
    ("0x0F-gate", lambda s, r, e: gate(s, r, False), "the mode is exact"),
    ("0x0F-gate", lambda s, r, e: gate(s, r, True), "in exact mode only"),
    (
        "0x0F-gate",
        lambda s, r, e: gate(s, r, e) + ["mode"] * (e and r["exact"]),
        "fits every mode",
    ),
    (
        "0x0F-gate",
        lambda s, r, e: [c for c in gate(s, r, e) if c != "topology"],
        "does not admit topology",
    ),
    (
        "0x0F-gate",
        lambda s, r, e: ["topology"] if not gate(s, r, e) else gate(s, r, e),
        "is admitted",
    ),
]


@pytest.mark.parametrize(
    ("exercise_id", "answer", "words"),
    WRONG,
    ids=[f"{name} {words}" for name, _, words in WRONG],
)
def test_a_usual_mistake_is_named(exercise_id, answer, words):
    names_the_mistake(exercise_id, answer, words, seeds=12)
