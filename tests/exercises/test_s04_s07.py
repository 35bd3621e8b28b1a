"""The judges of 0x04 and 0x07: right answers pass, each usual mistake is named."""

from __future__ import annotations

import numpy as np
import pytest

from specbook.drafts.rest import ContinuationTrie
from specbook.exercises.s04 import (
    _by_token,
    _deep_first,
    _first_come,
    _second_draw,
    _whole_rows,
)
from tests.exercises.judging import names_the_mistake, told

# ------------------------------------------------------------------------- right


def merge(paths):
    row_of, tokens, parents = {}, [], []
    for path in paths:
        for n in range(1, len(path) + 1):
            if path[:n] not in row_of:
                row_of[path[:n]] = len(tokens)
                tokens.append(path[n - 1])
                parents.append(row_of.get(path[: n - 1], -1))
    return tokens, parents


def mask(parents):
    seen = np.eye(len(parents), dtype=bool)
    for row, parent in enumerate(parents):
        if parent >= 0:
            seen[row] |= seen[parent]
    return seen


def coordinates(parents, prefix_len):
    at = {-1: prefix_len - 1}
    for row, parent in enumerate(parents):
        at[row] = at[parent] + 1
    return [(at[row], parent) for row, parent in enumerate(parents)]


def verify(draft, laws, chance):
    tokens = []
    for depth, law in enumerate(laws):
        tokens.append(chance.draw(law))
        if depth == len(draft) or tokens[-1] != draft[depth]:
            return tokens


def length(agree, cost):
    best, expected, reached = (0, 1 / cost[0]), 1, 1
    for k, share in enumerate(agree, 1):
        reached *= share
        expected += reached
        if expected / cost[k] > best[1]:
            best = (k, expected / cost[k])
    return best[0]


def prune(continuations, budget):
    trie = ContinuationTrie(continuations)
    return [path for path, _ in trie.keep_high_frequency_nodes(budget).paths()]


RIGHT = {
    "0x07-merge": merge,
    "0x07-mask": mask,
    "0x07-coordinates": coordinates,
    "0x04-prune": prune,
    "0x04-verify": verify,
    "0x04-length": length,
}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("exercise_id", RIGHT)
def test_a_right_answer_passes(exercise_id, seed):
    solved, lines = told(exercise_id, RIGHT[exercise_id], seed)
    assert solved, lines
    assert "for less" not in lines


# ------------------------------------------------------------------------- wrong


def merge_by_depth(paths):
    row_of, tokens, parents = {}, [], []
    for path in paths:
        above = -1
        for key in enumerate(path):
            if key not in row_of:
                row_of[key] = len(tokens)
                tokens.append(key[1])
                parents.append(above)
            above = row_of[key]
    return tokens, parents


def longest_draft(agree, cost):
    return len(cost) - 1


def redraw(draft, laws, chance):
    return _second_draw((draft, laws, chance))


WRONG = [
    ("0x07-merge", merge_by_depth, "by depth and token"),
    ("0x07-merge", lambda paths: ([1, 2], [1, 0]), "row that comes before"),
    ("0x07-merge", lambda paths: 5, "two lists"),
    ("0x07-mask", lambda p: np.tri(len(p), dtype=bool), "siblings see each other"),
    ("0x07-mask", lambda p: mask(p).T, "turned over"),
    ("0x07-mask", lambda p: mask(p) & ~np.eye(len(p), dtype=bool), "see itself"),
    ("0x07-mask", lambda p: np.eye(len(p), dtype=bool), "no row sees any ancestor"),
    (
        "0x07-coordinates",
        lambda p, n: [(n + r, q) for r, q in enumerate(p)],
        "follows the depth",
    ),
    (
        "0x07-coordinates",
        lambda p, n: [(a + 1, q) for a, q in coordinates(p, n)],
        "one too far",
    ),
    (
        "0x07-coordinates",
        lambda p, n: [(a, r) for r, (a, _) in enumerate(coordinates(p, n))],
        "predicts its children",
    ),
    (
        "0x07-coordinates",
        lambda p, n: [(a, r - 1) for r, (a, _) in enumerate(coordinates(p, n))],
        "not the row before",
    ),
    ("0x04-prune", lambda *case: _by_token(case), "under two parents"),
    ("0x04-prune", lambda *case: _first_come(case), "smaller ids come first"),
    ("0x04-prune", lambda *case: _deep_first(case), "shallower node comes first"),
    ("0x04-prune", lambda *case: _whole_rows(case), "spent it on continuations"),
    ("0x04-prune", lambda rows, n: prune(rows, n + 1), "the budget is"),
    ("0x04-prune", lambda rows, n: prune(rows, n)[:-1], "yours keeps"),
    ("0x04-prune", lambda rows, n: prune(rows, n) * 2, "listed twice"),
    ("0x04-prune", lambda rows, n: [p[-1:] for p in prune(rows, n)], "list"),
    ("0x04-prune", lambda rows, n: prune(rows, n + 1)[1:], "whose parent is not"),
    ("0x04-verify", redraw, "second time"),
    ("0x04-verify", lambda d, w, c: verify(d, w, c)[:-1], "is a token too"),
    ("0x04-verify", lambda d, w, c: d, "unseen"),
    ("0x04-length", longest_draft, "the longest draft"),
    (
        "0x04-length",
        lambda a, c: max(range(len(c)), key=lambda k: (1 + sum(a[:k])) / c[k]),
        "so multiply",
    ),
    ("0x04-length", lambda a, c: 1, "which every round commits"),
    ("0x04-length", lambda a, c: 2.5, "whole number"),
    ("0x04-length", lambda a, c: 99, "entries"),
]


@pytest.mark.parametrize("exercise_id, answer, words", WRONG)
def test_a_usual_mistake_is_named(exercise_id, answer, words):
    names_the_mistake(exercise_id, answer, words, seeds=4)


def test_an_unmerged_tree_is_right_and_costs_more():
    def unmerged(paths):
        tokens, parents = [], []
        for path in paths:
            above = -1
            for token in path:
                parents.append(above)
                above = len(tokens)
                tokens.append(token)
        return tokens, parents

    solved, lines = told("0x07-merge", unmerged)
    assert solved and "for less" in lines


@pytest.mark.parametrize("seed", range(8))
def test_no_draft_is_no_answer_where_one_pays(seed):
    solved, lines = told("0x04-length", lambda agree, cost: 0, seed)
    assert not solved and "some length is faster" in lines


def test_a_shorter_draft_than_the_best_gains_and_costs_more():
    def short(agree, cost):
        best = length(agree, cost)
        return min(best, 1)

    solved, lines = told("0x04-length", short)
    assert solved and "for less" in lines


def test_any_order_of_the_kept_nodes_is_right():
    solved, lines = told("0x04-prune", lambda rows, n: prune(rows, n)[::-1])
    assert solved, lines
