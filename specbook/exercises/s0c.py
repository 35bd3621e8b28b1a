"""The exercises of 0x0C_buffer_trace: reorder, keep, publish."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..chance import Sampler
from ..drafts import samplers
from ..tree import CandidateTree
from ..verifiers import greedy
from . import Exercise


def _tree(rng: np.random.Generator, paths: int, depth: int = 4) -> CandidateTree:
    """A random tree in breadth order, over six tokens."""
    found = [rng.integers(0, 6, size=rng.integers(1, depth + 1)) for _ in range(paths)]
    return CandidateTree.from_paths([list(map(int, p)) for p in found], 0)


# ------------------------------------------------------------------ 0x0C-reorder

Rows = tuple[list[int], list[int]]


def _reorder_cases(rng: np.random.Generator) -> Iterator[Rows]:
    yield [0, 6, 1, 5, 1, 2, 3, 4], [-1, -1, 0, 0, 1, 2, 2, 2]
    for size in (4, 6, 9):
        tree = CandidateTree.from_paths([[0, 1], [3], [0, 2]], 0)
        while CandidateTree.from_paths(tree.paths(), 0, "depth").parents == (
            tree.parents
        ):
            tree = _tree(rng, size)
        yield list(tree.token_ids), list(tree.parents)


def _reorder(case: Rows) -> Rows:
    tree = CandidateTree.from_rows(*case, 0)
    deep = CandidateTree.from_paths(tree.full_prefixes, 0, "depth")
    return list(deep.token_ids), list(deep.parents)


def _reorder_mistake(case: Rows, value: Any, truth: Rows) -> str | None:
    tokens, parents = (list(column) for column in value)
    if (tokens, parents) == case:
        return "these are still the rows level by level."
    if tokens != truth[0]:
        if sorted(tokens) == sorted(truth[0]):
            return (
                "the rows are there, in another order: a row, then all that hangs "
                "below its first child, then its next child."
            )
        return "the tokens are others; reordering adds and drops none."
    if sorted(parents) == sorted(case[1]):
        return (
            "the parents still hold row numbers of the old order: they must be "
            "renamed, not only moved."
        )
    row = next(r for r, parent in enumerate(truth[1]) if parents[r] != parent)
    return f"row {row} hangs below row {truth[1][row]}, not {parents[row]}."


# --------------------------------------------------------------- 0x0C-kept-slots

Slots = tuple[list[int], int, int]


def _slots_cases(rng: np.random.Generator) -> Iterator[Slots]:
    yield [-1, -1, 0, 0, 1, 2, 2, 2], 6, 5
    yield [-1, 0], 1, 3
    for size in (4, 6, 9):
        tree = _tree(rng, size)
        while not any(
            tree.path_rows(r) != tuple(range(tree.depths[r])) for r in range(len(tree))
        ):
            tree = _tree(rng, size)
        scattered = [
            row
            for row in range(len(tree))
            if tree.path_rows(row) != tuple(range(tree.depths[row]))
        ]
        last = int(rng.choice(scattered))
        yield list(tree.parents), last, int(rng.integers(2, 9))


def _slots(case: Slots) -> list[int]:
    parents, last, prefix_len = case
    # Who the last row sees is what must stay: the mask knows it as well as the parents.
    tree = CandidateTree.from_rows(range(len(parents)), parents, prefix_len)
    return np.flatnonzero(tree.ancestor_mask[last]).tolist()


def _slots_mistake(case: Slots, value: Any, truth: list[int]) -> str | None:
    parents, last, prefix_len = case
    yours, prefix = list(value), list(range(prefix_len))
    path = [slot - prefix_len for slot in truth[prefix_len:]]
    depth = len(path)
    known = [
        ([prefix_len + r for r in path], "the prefix stays, too."),
        (path, "slots count from the start of the cache, and the prefix stays."),
        (prefix + path, "row r of the tree lies behind the prefix, at prefix_len + r."),
        (
            prefix + [prefix_len + i for i in range(depth)],
            "that keeps the first rows of the tree; the path lies elsewhere.",
        ),
        (
            prefix + [prefix_len + r for r in reversed(path)],
            "in the order of the text: the first token first.",
        ),
        (prefix + [prefix_len + last], "the whole path stays, not its last row alone."),
        (truth[:-1], "the last row belongs to the path."),
        (list(range(prefix_len + len(parents))), "the rivals must go."),
    ]
    for mistake, words in known:
        if yours == mistake:
            return words
    return None


# ----------------------------------------------------------------- 0x0C-publish

Asked = tuple[list[int], list[int], dict[int, int]]
Published = tuple[list[int], list[int]]


def _publish_cases(rng: np.random.Generator) -> Iterator[Asked]:
    tokens, parents = [0, 6, 1, 2, 3, 4], [-1, -1, 0, 2, 2, 2]
    yield tokens, parents, {-1: 0, 0: 1, 1: 1, 2: 3, 3: 5, 4: 5, 5: 5}  # a bonus
    yield tokens, parents, {-1: 0, 0: 1, 1: 1, 2: 5, 3: 5, 4: 5, 5: 5}  # a correction
    yield tokens, parents, {-1: 2, 0: 1, 1: 1, 2: 3, 3: 5, 4: 5, 5: 5}  # nothing fits
    for size in (4, 6, 9):
        tree = _tree(rng, size)
        choices = {}
        for row in range(-1, len(tree)):
            below = [tree.token_ids[r] for r in tree.children(row)]
            agree = below and rng.random() < 0.7
            choices[row] = int(rng.choice(below) if agree else rng.integers(0, 6))
        yield list(tree.token_ids), list(tree.parents), choices


def _publish(case: Asked) -> Published:
    tokens, parents, choices = case
    tree = CandidateTree.from_rows(tokens, parents, 0)
    like = np.full(7, 1 / 7)
    chosen = greedy.select(
        tree, lambda row: samplers.one_hot(like, choices[row]), Sampler(0)
    )
    path = [tokens[row] for row in chosen.rows]
    return [*path, chosen.token], list(chosen.rows)


def _publish_mistake(case: Asked, value: Any, truth: Published) -> str | None:
    tokens, rows = (list(column) for column in value)
    parents: Mapping[int, int] = dict(enumerate(case[1]))
    if tokens == truth[0][:-1]:
        return (
            "the target chose one token more: after the path it always has an answer."
        )
    if tokens == truth[0] and rows[:-1] == truth[1]:
        return (
            f"row {rows[-1]} holds token {case[0][rows[-1]]}, and the last token "
            "published has no row yet: it was chosen, and the next forward computes it."
        )
    if tokens == truth[0]:
        return f"the rows that stay are those of the accepted path: {truth[1]}."
    if any(parents.get(row) not in {-1, *rows} for row in rows):
        return "the rows are no path: each must hang below the one before it."
    if len(tokens) > len(truth[0]):
        return "the walk ends where no child holds the target's token."
    return None


EXERCISES = {
    exercise.id: exercise
    for exercise in (
        Exercise(
            id="0x0C-reorder",
            question=(
                "reorder(token_ids, parents): rows level by level are given; return "
                "token ids and parents branch by branch. Children keep their order."
            ),
            cases=_reorder_cases,
            oracle=_reorder,
            diagnose=_reorder_mistake,
        ),
        Exercise(
            id="0x0C-kept-slots",
            question=(
                "kept(parents, last, prefix_len): the cache holds the prefix, then the "
                "tree's rows. Which slots stay when the path that ends in row `last` "
                "is committed, in which order?"
            ),
            cases=_slots_cases,
            oracle=_slots,
            diagnose=_slots_mistake,
        ),
        Exercise(
            id="0x0C-publish",
            question=(
                "publish(token_ids, parents, choices): choices[row] is the target's "
                "token after a row, choices[-1] the one after the prefix. Return the "
                "tokens to publish and the tree rows whose KV stays."
            ),
            cases=_publish_cases,
            oracle=_publish,
            diagnose=_publish_mistake,
        ),
    )
}
