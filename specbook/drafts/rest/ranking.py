"""The best nodes of a trie that is never built.

The occurrences of a suffix are an interval of the suffix array, sorted by what follows
them; so a trie node is a run of neighbours that share a prefix, and its count is how
long the run is. All nodes of a few thousand rows are found at once.

A common suffix has more occurrences than that. Then every `step`-th is looked at: a
node with at least `step` occurrences cannot hide between two of them. That gives
candidates and bounds of their counts; the few that can be among the best are counted
exactly, by two binary searches each. Where the bounds do not settle it, the step is
made smaller, down to every occurrence. The answer is exact in every case.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...proposal import PREFIX_FRONTIER
from .nodes import TrieNode
from .shard import Shard

ROWS = 1024
"""About how many occurrences of a common suffix are looked at, to begin with."""

CELLS = 1 << 16
"""Rows times depth that are read at once before fewer levels are tried first."""


@dataclass(frozen=True)
class Match:
    """The occurrences of a suffix of `offset` tokens in one shard."""

    shard: Shard
    low: int
    high: int
    offset: int


def best_nodes(matches: Sequence[Match], budget: int, depth: int) -> list[TrieNode]:
    """The `budget` nodes of highest rank, at most `depth` deep, of the trie of all
    continuations of `matches`: by rank, parents before their children."""
    matches = [match for match in matches if match.low < match.high]
    # A node has all its ancestors before it, so none can be deeper than the budget.
    depth = min(depth, budget)
    if not matches or depth <= 0:
        return []
    step = max(1, sum(match.high - match.low for match in matches) // ROWS)
    while step > 1:
        found = _sampled(matches, step, budget, depth)
        if found is not None:
            return found
        step //= 4
    return _counted(matches, budget, depth)


class _Runs:
    """The runs of equal prefixes in sorted rows [R, L], level by level.

    Run i begins at cell `starts[i]` of the rows read column by column and is `sizes[i]`
    rows long; `kept` are the runs that are no border. Their order is by depth and then
    by path.
    """

    def __init__(self, rows: np.ndarray) -> None:
        count, length = rows.shape
        first = np.ones((length, count), dtype=bool)
        same = np.logical_and.accumulate(rows[1:] == rows[:-1], axis=1)
        first[:, 1:] = ~same.T
        self.count = count
        self.length = length
        self.cells = rows.T.ravel()
        self.starts = np.flatnonzero(first)
        self.sizes = np.diff(self.starts, append=count * length)
        self.kept = np.flatnonzero(self.cells[self.starts])

    def parents(self, runs: np.ndarray) -> np.ndarray:
        """The run above each of `runs`; PREFIX_FRONTIER above the first level."""
        above = self.starts[runs] - self.count
        places = np.searchsorted(self.starts, above, side="right") - 1
        return np.where(above < 0, PREFIX_FRONTIER, places)

    def nodes(
        self, runs: np.ndarray, counts: Sequence[int], name: Callable[[int], int]
    ) -> list[TrieNode]:
        """The trie nodes of `runs`, which are ordered by rank."""
        place = {PREFIX_FRONTIER: PREFIX_FRONTIER}
        made: list[TrieNode] = []
        for run, parent, start, count in zip(
            runs.tolist(),
            self.parents(runs).tolist(),
            self.starts[runs].tolist(),
            counts,
            strict=True,
        ):
            place[run] = len(made)
            token = name(int(self.cells[start]))
            made.append(TrieNode(token, place[parent], start // self.count + 1, count))
        return made


def _counted(matches: Sequence[Match], budget: int, depth: int) -> list[TrieNode]:
    """Every occurrence is looked at, so the size of a run is its count."""
    total = sum(match.high - match.low for match in matches)
    length = depth if total * depth <= CELLS else max(1, CELLS // total)
    while True:
        length = min(length, depth)
        rows, name = _rows(matches, 1, length)
        runs = _Runs(rows)
        best = _largest(runs, budget)
        if length == depth or _settled(runs, best, budget):
            return runs.nodes(best, runs.sizes[best].tolist(), name)
        length *= 2


def _largest(runs: _Runs, most: int) -> np.ndarray:
    """The `most` largest runs, the earlier ones where sizes are equal, by rank."""
    kept = runs.kept
    level = kept[:0]
    if len(kept) > most:
        sizes = runs.sizes[kept]
        least = np.partition(sizes, -most)[-most]
        level = kept[sizes == least]
        kept = kept[sizes > least]
    order = np.argsort(-runs.sizes[kept], kind="stable")
    return np.concatenate([kept[order], level[: most - len(kept)]])


def _settled(runs: _Runs, best: np.ndarray, budget: int) -> bool:
    """Whether no deeper level can matter: what is below the last level counts no more
    than its largest run, and loses a tie because it is deeper."""
    last = runs.kept[runs.starts[runs.kept] >= (runs.length - 1) * runs.count]
    if len(last) == 0:
        return True
    return len(best) == budget and runs.sizes[best[-1]] >= runs.sizes[last].max()


def _sampled(
    matches: Sequence[Match], step: int, budget: int, depth: int
) -> list[TrieNode] | None:
    """The same from every `step`-th occurrence; None where that does not settle it.

    With s matches, a run of k rows stands for at most (k + s) * step - s occurrences,
    and so does with k = 0 a node that was not seen.
    """
    rows, name = _rows(matches, step, depth)
    runs = _Runs(rows)
    # More exact counts than this cost more than more rows.
    order = _largest(runs, 4 * budget)
    if len(order) < budget:
        return None
    sizes = runs.sizes[order].tolist()
    unseen = 0 if len(order) == len(runs.kept) else sizes[-1]
    parents = dict(zip(order.tolist(), runs.parents(order).tolist(), strict=True))
    intervals = {PREFIX_FRONTIER: [(match.low, match.high) for match in matches]}
    counted: list[tuple[int, int]] = []
    for place, run in enumerate(order.tolist()):
        start = int(runs.starts[run])
        token = name(int(runs.cells[start]))
        level = start // runs.count
        # A parent has at least as many rows and comes first, so it has been counted.
        intervals[run] = [
            match.shard.narrow(*above, match.offset + level, token)
            for match, above in zip(matches, intervals[parents[run]], strict=True)
        ]
        counted.append((-sum(high - low for low, high in intervals[run]), run))
        more = sizes[place + 1] if place + 1 < len(sizes) else unseen
        if len(counted) < budget or more == sizes[place]:
            continue
        # A node that was not counted must lose to the last of the best, even on a tie.
        bound = (more + len(matches)) * step - len(matches)
        best = sorted(counted)[:budget]
        if -best[-1][0] > bound:
            chosen = np.array([run for _, run in best])
            return runs.nodes(chosen, [-count for count, _ in best], name)
    return None


def _rows(
    matches: Sequence[Match], step: int, length: int
) -> tuple[np.ndarray, Callable[[int], int]]:
    """Sorted rows of what follows the occurrences, and what gives a cell's id. A cell
    is 0 after the end of a document."""
    if len(matches) == 1:
        match = matches[0]
        rows = match.shard.array.rows(match.low, match.high, step, match.offset, length)
        vocabulary = match.shard.vocabulary
        return rows, lambda code: int(vocabulary[code - 1])
    # Codes of different shards mean different ids. An id and one more is below 2**64.
    blocks = []
    for match in matches:
        rows = match.shard.array.rows(match.low, match.high, step, match.offset, length)
        table = np.zeros(len(match.shard.vocabulary) + 1, dtype=np.uint64)
        table[1:] = match.shard.vocabulary
        table[1:] += np.uint64(1)
        blocks.append(table[rows])
    rows = np.concatenate(blocks)
    return rows[np.lexsort(rows.T[::-1])], lambda cell: cell - 1
