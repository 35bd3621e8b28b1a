"""The exercises of 0x07_candidate_trees: merge, mask, address."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..tree import CandidateTree
from . import Exercise

Paths = list[tuple[int, ...]]
Rows = tuple[list[int], list[int]]


# ------------------------------------------------------------------ 0x07-merge


def _paths(rng: np.random.Generator, count: int, depth: int, vocab: int) -> Paths:
    return [
        tuple(int(t) for t in rng.integers(0, vocab, size=rng.integers(1, depth + 1)))
        for _ in range(count)
    ]


def _merge_cases(rng: np.random.Generator) -> Iterator[Paths]:
    yield [(4, 5), (4, 6)]
    yield [(4, 7), (5, 7)]
    yield [(0, 1, 2), (0, 1, 3), (4, 1), (0, 1, 5), (0, 6)]
    for count in (4, 6, 9):
        yield _paths(rng, count, depth=4, vocab=3)


def _merge(paths: Paths) -> Rows:
    tree = CandidateTree.from_paths(paths, prefix_len=0)
    return list(tree.token_ids), list(tree.parents)


def _prefixes_of_paths(paths: Paths) -> set[tuple[int, ...]]:
    return {path[:n] for path in paths for n in range(1, len(path) + 1)}


def _prefixes_of_rows(value: Any) -> list[tuple[int, ...]]:
    """Every row's full prefix. Raises for what is no pair of equally long lists, or
    where a parent does not stand before its child."""
    tokens, parents = (list(column) for column in value)
    prefixes: list[tuple[int, ...]] = []
    for row, (token, parent) in enumerate(zip(tokens, parents, strict=True)):
        if not -1 <= parent < row:
            raise ValueError(f"row {row} has parent {parent}")
        above = prefixes[parent] if parent >= 0 else ()
        prefixes.append((*above, int(token)))
    return prefixes


def _merge_right(paths: Paths, value: Any, truth: Rows) -> bool:
    # Any order with parents first will do, and rows may even be doubled: the target
    # would still be asked the right questions, only at a price.
    return set(_prefixes_of_rows(value)) == _prefixes_of_paths(paths)


def _merge_cost(paths: Paths, value: Any) -> int:
    return len(value[0])


def _merge_mistake(paths: Paths, value: Any, truth: Rows) -> str | None:
    try:
        found = set(_prefixes_of_rows(value))
    except ValueError as error:
        return f"{error}; a parent must be -1 or a row that comes before."
    except TypeError:
        return "return two lists of equal length: token ids, parents."
    wanted = _prefixes_of_paths(paths)
    lost = sorted(wanted - found)
    by_depth = {(len(p), p[-1]) for p in wanted}
    if lost and len(list(value[0])) == len(by_depth) < len(wanted):
        return (
            f"no row stands for the path {lost[0]}. Did you merge by depth and "
            "token? The key is the whole path."
        )
    if lost:
        return f"no row stands for the path {lost[0]}."
    return f"a row stands for {sorted(found - wanted)[0]}, which no path contains."


# ------------------------------------------------------------------- 0x07-mask


def _random_parents(rng: np.random.Generator, size: int) -> list[int]:
    return [int(rng.integers(-1, row)) if row else -1 for row in range(size)]


def _mask_cases(rng: np.random.Generator) -> Iterator[list[int]]:
    yield [-1]
    yield [-1, 0, 1]
    yield [-1, 0, 0, 1]
    for size in (5, 8, 12):
        # At least one pair of siblings, so that a chain's mask is never right.
        yield [*_random_parents(rng, size), 0, 0]


def _mask(parents: list[int]) -> list[list[bool]]:
    size = len(parents)
    lines = []
    for row in range(size):
        line, at = set(), row
        while at != -1:
            line.add(at)
            at = parents[at]
        lines.append(line)
    return [[v in lines[u] for v in range(size)] for u in range(size)]


def _mask_mistake(parents: list[int], value: Any, truth: Any) -> str | None:
    yours, right = np.asarray(value, dtype=bool), np.asarray(truth)
    size = len(parents)
    if yours.shape != right.shape:
        return f"the mask of {size} rows is {size} by {size}, yours is {yours.shape}."
    own = np.eye(size, dtype=bool)
    parent = own.copy()
    for row, above in enumerate(parents):
        if above >= 0:
            parent[row, above] = True
    known = [
        (np.tri(size, dtype=bool), "a chain's mask: siblings see each other."),
        (right & ~own, "a row must also see itself."),
        (right.T, "turned over: line u says what row u sees, not who sees it."),
        (parent, "a row sees all its ancestors, not its parent alone."),
        (parent & ~own, "a row sees itself and all ancestors, not its parent alone."),
        (own, "no row sees any ancestor."),
    ]
    for mistake, words in known:
        if np.array_equal(yours, mistake):
            return words
    u, v = np.argwhere(yours != right)[0]
    return f"row {u} {'must' if right[u, v] else 'must not'} see row {v}."


# ------------------------------------------------------------- 0x07-coordinates


def _coordinate_cases(rng: np.random.Generator) -> Iterator[tuple[list[int], int]]:
    yield [-1, 0, 1, 1], 5
    yield [-1, -1, 0, 1], 3
    for size in (5, 8, 12):
        parents = _random_parents(rng, size)
        # Two first candidates: with one, position by row is right for longer.
        yield (
            [-1, -1, *(p if p < 0 else p + 2 for p in parents)],
            int(rng.integers(2, 50)),
        )


def _coordinates(case: tuple[list[int], int]) -> list[tuple[int, int]]:
    parents, prefix_len = case
    mask = _mask(parents)
    # A row at depth d sees d candidate rows: itself and d - 1 ancestors.
    return [
        (prefix_len + sum(line) - 1, parent)
        for line, parent in zip(mask, parents, strict=True)
    ]


def _coordinates_mistake(
    case: tuple[list[int], int], value: Any, truth: Sequence[tuple[int, int]]
) -> str | None:
    parents, prefix_len = case
    positions, predictors = (list(column) for column in zip(*value, strict=True))
    right = [position for position, _ in truth]
    rows = range(len(parents))
    if positions == [prefix_len + row for row in rows] != right:
        return "you placed each row by its number; the position follows the depth."
    if positions == [p + 1 for p in right]:
        return "all positions are one too far: depth 1 sits at prefix_len itself."
    if positions == [p - prefix_len + 1 for p in right]:
        return "that is the depth; the target wants the absolute position."
    if positions == [p - prefix_len for p in right]:
        return "add prefix_len: the target wants the absolute position."
    if positions != right:
        row = next(r for r in rows if positions[r] != right[r])
        return f"row {row} sits at position {right[row]}, not {positions[row]}."
    if predictors == list(rows):
        return (
            "a row's own output predicts its children; the row itself is scored "
            "by its parent's output."
        )
    if predictors == [row - 1 for row in rows]:
        return "the predictor is the parent's row, not the row before."
    row = next(r for r in rows if predictors[r] != parents[r])
    return f"row {row} is scored by row {parents[row]}, not by {predictors[row]}."


EXERCISES = {
    exercise.id: exercise
    for exercise in (
        Exercise(
            id="0x07-merge",
            question=(
                "merge(paths): return two lists, token_ids and parents, with one row "
                "for each distinct full prefix and parents before children."
            ),
            cases=_merge_cases,
            oracle=_merge,
            diagnose=_merge_mistake,
            right=_merge_right,
            cost=_merge_cost,
            cost_unit="target rows",
        ),
        Exercise(
            id="0x07-mask",
            question=(
                "mask(parents): an N by N table of bools; entry [u][v] says whether "
                "row u may attend to row v."
            ),
            cases=_mask_cases,
            oracle=_mask,
            diagnose=_mask_mistake,
        ),
        Exercise(
            id="0x07-coordinates",
            question=(
                "coordinates(parents, prefix_len): for each row the pair (position "
                "id, predictor row); the frontier is -1."
            ),
            cases=_coordinate_cases,
            oracle=_coordinates,
            diagnose=_coordinates_mistake,
        ),
    )
}
