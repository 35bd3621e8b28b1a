"""The judges of 0x0C: right answers pass, each usual mistake is named."""

from __future__ import annotations

import pytest

from tests.exercises.judging import names_the_mistake, told

# ------------------------------------------------------------------------- right


def reorder(token_ids, parents):
    old = []

    def visit(parent):
        for row, above in enumerate(parents):
            if above == parent:
                old.append(row)
                visit(row)

    visit(-1)
    new = {row: place for place, row in enumerate(old)} | {-1: -1}
    return [token_ids[r] for r in old], [new[parents[r]] for r in old]


def kept(parents, last, prefix_len):
    path = []
    while last >= 0:
        path.insert(0, prefix_len + last)
        last = parents[last]
    return [*range(prefix_len), *path]


def publish(token_ids, parents, choices):
    tokens, rows, at = [], [], -1
    while True:
        tokens.append(choices[at])
        below = [r for r, above in enumerate(parents) if above == at]
        found = [r for r in below if token_ids[r] == choices[at]]
        if not found:
            return tokens, rows
        at = found[0]
        rows.append(at)


RIGHT = {"0x0C-reorder": reorder, "0x0C-kept-slots": kept, "0x0C-publish": publish}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("exercise_id", RIGHT)
def test_a_right_answer_passes(exercise_id, seed):
    solved, lines = told(exercise_id, RIGHT[exercise_id], seed)
    assert solved, lines


# ------------------------------------------------------------------------- wrong


def not_renamed(token_ids, parents):
    pairs = {}

    def visit(parent):
        for row, above in enumerate(parents):
            if above == parent:
                pairs[row] = above
                visit(row)

    visit(-1)
    return [token_ids[r] for r in pairs], list(pairs.values())


def last_child_first(token_ids, parents):
    tokens, above = reorder(token_ids[::-1], parents)
    return reorder(token_ids, parents)[0][::-1], above


def row_for_each_token(token_ids, parents, choices):
    tokens, rows = publish(token_ids, parents, choices)
    at = rows[-1] if rows else -1
    below = [r for r, above in enumerate(parents) if above == at]
    return tokens, rows + below[:1]


def tail(parents, last, n):
    return kept(parents, last, n)[n:]


WRONG = [
    ("0x0C-reorder", lambda t, p: (t, p), "level by level"),
    ("0x0C-reorder", not_renamed, "must be renamed"),
    ("0x0C-reorder", last_child_first, "in another order"),
    ("0x0C-reorder", lambda t, p: (reorder(t, p)[0], [-1] * len(p)), "hangs below"),
    ("0x0C-reorder", lambda t, p: (t[1:], p[1:]), "adds and drops none"),
    ("0x0C-kept-slots", tail, "the prefix stays, too"),
    (
        "0x0C-kept-slots",
        lambda p, e, n: [s - n for s in tail(p, e, n)],
        "from the start of the cache",
    ),
    (
        "0x0C-kept-slots",
        lambda p, e, n: [*range(n), *(s - n for s in tail(p, e, n))],
        "behind the prefix",
    ),
    (
        "0x0C-kept-slots",
        lambda p, e, n: list(range(len(kept(p, e, n)))),
        "the first rows of the tree",
    ),
    (
        "0x0C-kept-slots",
        lambda p, e, n: [*range(n), *reversed(tail(p, e, n))],
        "first token first",
    ),
    ("0x0C-kept-slots", lambda p, e, n: [*range(n), n + e], "not its last row alone"),
    ("0x0C-kept-slots", lambda p, e, n: kept(p, e, n)[:-1], "belongs to the path"),
    ("0x0C-kept-slots", lambda p, e, n: list(range(n + len(p))), "rivals must go"),
    (
        "0x0C-publish",
        lambda t, p, c: (publish(t, p, c)[0][:-1], publish(t, p, c)[1]),
        "one token more",
    ),
    ("0x0C-publish", row_for_each_token, "has no row yet"),
    (
        "0x0C-publish",
        lambda t, p, c: (publish(t, p, c)[0], list(range(len(t)))),
        "those of the accepted path",
    ),
    ("0x0C-publish", lambda t, p, c: ([9], [3]), "no path"),
    (
        "0x0C-publish",
        lambda t, p, c: ([*publish(t, p, c)[0], 0], publish(t, p, c)[1]),
        "the walk ends",
    ),
]


@pytest.mark.parametrize(
    ("exercise_id", "answer", "words"),
    WRONG,
    ids=[f"{name} {words}" for name, _, words in WRONG],
)
def test_a_usual_mistake_is_named(exercise_id, answer, words):
    names_the_mistake(exercise_id, answer, words, seeds=8)
