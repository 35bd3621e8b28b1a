"""Sequoia's recurrence: the best tree of every size and depth, whatever the slots.

T[n, d, b] is the most that a tree of n nodes can be expected to commit, root included,
when its depth is at most d edges and its root has exactly b children:

    T[n, d, b] = max over y of  T[y, d, b - 1] + p_b * max over j of T[n - y, d - 1, j]

y nodes are the root with its first b - 1 children's subtrees, n - y the subtree of
child b. So slot b is used only where the slots before it are, which matters when they
are worth less. O(n^2 d b); one table answers for every size and every depth
(Chen et al. 2024, "Sequoia"; section 0x0AC).

Depth is counted in edges. The authors' own code counts levels: its depth 10 is 9 here.

A state that no tree fills is worth minus infinity, and a slot of probability 0 would
multiply that to NaN. Such states are kept out of the product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from .. import checks
from ..errors import SpecbookError
from ..proposal import PREFIX_FRONTIER
from .acceptance import by_depth, selected_from_conditional
from .progress import PlannedTree, shape_of

__all__ = ["Table", "optimize_tree", "selected_from_conditional", "solve"]

MAX_NODES = 4096
"""The largest budget: a step looks at every pair of sizes at once. Best-first has no
such limit."""

_NEVER = -np.inf


@dataclass(frozen=True)
class _Level:
    """The subtrees of one depth below one depth: `best[n]` the score, `branches[n]` the
    children of the root that reach it, `splits[b, n]` the nodes before child b."""

    best: np.ndarray
    branches: np.ndarray
    splits: np.ndarray


class Table:
    """The solved recurrence. `max_nodes`, `max_depth`: its limits, root and edges.

    `score(n, d)` and `tree(n, d)` read any size up to `max_nodes` and any depth limit
    up to `max_depth`.
    """

    def __init__(
        self,
        max_nodes: int,
        max_depth: int,
        rows: tuple[tuple[Any, ...], ...],
        levels: dict[tuple[int, int], _Level],
        every_depth: bool,
    ) -> None:
        self.max_nodes, self.max_depth = max_nodes, max_depth
        self.acceptance = rows
        self._levels, self._every = levels, every_depth
        self._deepest = max(left for _, left in levels)

    def _level(self, depth: int, left: int) -> _Level:
        """Of nodes at `depth` with at most `left` edges below them."""
        if self._every:
            return self._levels[depth, left]
        return self._levels[0, min(left, self._deepest)]

    def _asked(self, n: int, d: int) -> tuple[int, int]:
        checks.integer(n, "n", least=1, most=self.max_nodes)
        checks.integer(d, "d", least=0, most=self.max_depth)
        return n, d

    def score(self, n: int, d: int) -> Any:
        """G of the best tree of exactly n nodes, root included, at most d edges deep;
        minus infinity where the slots do not make so many nodes."""
        n, d = self._asked(n, d)
        return self._level(0, d).best[n]

    def most(self, n: int, d: int) -> tuple[int, Any]:
        """The size and the score of the best tree of at most n nodes; the smallest
        such tree, because a row that brings nothing still costs."""
        n, d = self._asked(n, d)
        scores = self._level(0, d).best[: n + 1]
        size = int(np.argmax(scores))
        return size, scores[size]

    def tree(self, n: int, d: int) -> PlannedTree:
        """The best tree of exactly n nodes and at most d edges. Raises `SpecbookError`
        where there is none."""
        n, d = self._asked(n, d)
        score = self.score(n, d)
        if score == _NEVER:
            raise SpecbookError(
                f"no tree of {n} nodes is at most {d} deep with "
                f"{len(self.acceptance[0]) - 1} slots"
            )
        parents: list[int] = []
        ranks: list[int] = []
        # (row of the root of a subtree, its depth, its nodes, edges left below it)
        open_ = [(PREFIX_FRONTIER, 0, n, d)]
        while open_:
            row, depth, nodes, left = open_.pop()
            level = self._level(depth, left)
            for branch in range(int(level.branches[nodes]), 0, -1):
                before = int(level.splits[branch, nodes])
                parents.append(row)
                ranks.append(branch - 1)
                open_.append((len(parents) - 1, depth + 1, nodes - before, left - 1))
                nodes = before
        return PlannedTree(
            score, shape_of(parents, ranks), "recurrence", self.acceptance
        )


def solve(max_nodes: int, max_depth: int | None, acceptance: Any) -> Table:
    """Solves the recurrence for every size up to `max_nodes` and depth to `max_depth`.

    `acceptance`: [0, p_1, ..., p_B], or a row of these for each depth; exact for
    Fractions, float64 otherwise. `max_depth` None is no limit, or as many depths as
    there are rows. Raises `LawError` for bad slots and `SpecbookError` for limits
    outside 1 to `MAX_NODES` nodes, or for more depths than rows.
    """
    checks.integer(max_nodes, "max_nodes", least=1, most=MAX_NODES)
    rows, every = by_depth(acceptance)
    free = min(max_nodes - 1, len(rows)) if every else max_nodes - 1
    if max_depth is None:
        max_depth = free
    checks.integer(max_depth, "max_depth", least=0)
    if every and max_depth > len(rows):
        raise SpecbookError(
            f"max_depth is {max_depth}, acceptance has rows for {len(rows)} depths"
        )
    kind = float if isinstance(rows[0][0], float) else object
    alone = np.full(max_nodes + 1, _NEVER, dtype=kind)
    alone[1] = rows[0][0] + 1
    none = np.zeros(max_nodes + 1, dtype=int)
    leaf = _Level(alone, none, np.zeros((1, max_nodes + 1), dtype=int))
    levels: dict[tuple[int, int], _Level] = {}
    if every:
        for depth in range(max_depth, -1, -1):
            levels[depth, 0] = leaf
            for left in range(1, max_depth - depth + 1):
                below = levels[depth + 1, left - 1].best
                levels[depth, left] = _family(alone, below, rows[depth])
    else:
        levels[0, 0] = leaf
        for left in range(1, max_depth + 1):
            below = levels[0, left - 1].best
            levels[0, left] = _family(alone, below, rows[0])
            if np.array_equal(levels[0, left].best, below):
                break  # more depth brings nothing more, at any size
    return Table(max_nodes, max_depth, tuple(map(tuple, rows)), levels, every)


def _family(alone: np.ndarray, below: np.ndarray, slots: list[Any]) -> _Level:
    """The best trees whose root's children are roots of the trees of `below`."""
    last = len(alone) - 1
    scores = [alone]
    splits = np.zeros((len(slots), last + 1), dtype=np.int32)
    filled = below != _NEVER
    for branch, slot in enumerate(slots[1:], start=1):
        gain = np.full(2 * last + 1, _NEVER, dtype=alone.dtype)
        gain[last:][filled] = slot * below[filled]
        # Row n, column y: what n - y nodes below child `branch` bring.
        gains = sliding_window_view(gain[::-1], last + 1)[::-1]
        totals = scores[-1] + gains
        splits[branch] = totals.argmax(axis=1)
        scores.append(totals[np.arange(last + 1), splits[branch]])
    table = np.stack(scores)
    branches = table.argmax(axis=0)
    return _Level(table[branches, np.arange(last + 1)], branches, splits)


def optimize_tree(
    max_nodes: int, max_depth: int | None, acceptance: Any
) -> PlannedTree:
    """The tree of at most `max_nodes` nodes, root included, and `max_depth` edges that
    commits the most tokens a round, by the recurrence.

    Arguments and errors as for `solve`. Of equal trees the smallest: a row that brings
    nothing still costs. `.score` is G, `.tree` the shape of `len(tree) + 1` nodes.
    """
    table = solve(max_nodes, max_depth, acceptance)
    size, _ = table.most(table.max_nodes, table.max_depth)
    return table.tree(size, table.max_depth)
