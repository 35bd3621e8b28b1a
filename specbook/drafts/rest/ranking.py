"""The best nodes of a trie that is never built.

The occurrences of a suffix are an interval of the suffix array, sorted by what follows
them; so a trie node is a run of neighbours that share a prefix, and its count is how
long the run is. The runs are found some levels at a time, and only in rows that can
still hold one of the best: what lies below a run counts no more than the run, and loses
a tie because it is deeper.

A common suffix has more occurrences than one wants to read. Then every `step`-th is: a
node with at least `step` occurrences cannot hide between two of them. That gives
candidates and bounds of their counts; the few that can be among the best are counted
exactly, by two binary searches each. Where the bounds do not settle it, the step is
made smaller, down to every occurrence. The answer is exact in every case.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...proposal import PREFIX_FRONTIER
from .nodes import TrieNode
from .shard import Shard

ROWS = 1024
"""About how many occurrences of a common suffix are read, to begin with."""

CELLS = 1 << 12
"""About how many tokens are read before rows that cannot matter are left out."""


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
    runs = _largest_runs(_Rows(matches, 1), budget, depth)
    return _nodes(runs, np.arange(len(runs.sizes)), runs.sizes.tolist())


@dataclass(frozen=True)
class _Runs:
    """Some largest runs, largest first and, where sizes are equal, by depth and path.

    `ids`: the last token of each; `parents`: the place of the run above, or
    PREFIX_FRONTIER; `places`: increasing with depth and then path; `rest`: no run that
    is not here is larger.
    """

    ids: np.ndarray
    parents: np.ndarray
    depths: np.ndarray
    sizes: np.ndarray
    places: np.ndarray
    rest: int


class _Rows:
    """Where every `step`-th occurrence goes on, sorted by what is read there."""

    def __init__(self, matches: Sequence[Match], step: int) -> None:
        parts = [
            match.shard.array.starts[match.low : match.high : step].astype(np.intp)
            + match.offset
            for match in matches
        ]
        self._shards = [match.shard for match in matches]
        self.cell_type: type = np.intp if len(matches) == 1 else np.uint64
        self._positions = np.concatenate(parts)
        self._owners = np.repeat(np.arange(len(parts)), [len(part) for part in parts])

    def __len__(self) -> int:
        return len(self._positions)

    def read(
        self, level: int, length: int, above: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """`length` levels of cells [R, length], 0 after the end of a document, sorted
        within the run `above` [R] of each row; and those runs in the same order."""
        positions = self._positions + level
        if len(self._shards) == 1:
            return self._shards[0].array.following(positions, length), above
        # Codes of different shards mean different ids. An id and one more is a cell.
        cells: np.ndarray = np.zeros((len(self), length), self.cell_type)
        for owner, shard in enumerate(self._shards):
            mine = self._owners == owner
            codes = shard.array.following(positions[mine], length).astype(np.intp)
            ids = shard.vocabulary.take(codes - 1, mode="clip").astype(np.uint64)
            cells[mine] = np.where(codes, ids + np.uint64(1), 0)
        order = np.lexsort((*cells.T[::-1], above))
        self._choose(order)
        return cells[order], above[order]

    def keep(self, rows: np.ndarray) -> None:
        """Only `rows` (true or false for each) are read from now on."""
        self._choose(np.flatnonzero(rows))

    def _choose(self, order: np.ndarray) -> None:
        self._positions = self._positions[order]
        self._owners = self._owners[order]

    def ids(self, cells: np.ndarray) -> np.ndarray:
        """The token ids of cells that are not 0."""
        if len(self._shards) == 1:
            return self._shards[0].vocabulary[cells - np.intp(1)]
        return cells - np.uint64(1)


def _largest_runs(rows: _Rows, most: int, depth: int) -> _Runs:
    """The `most` largest runs of at most `depth` levels."""
    above = np.full(len(rows), PREFIX_FRONTIER)
    level = made = rest = 0
    # cells, parents, depths, sizes and places of the best so far, by place
    best: list[np.ndarray] = [
        np.zeros(0, kind) for kind in (rows.cell_type, *[np.intp] * 4)
    ]
    while len(rows) and level < depth:
        length = min(depth - level, max(1, CELLS // len(rows)))
        cells, above = rows.read(level, length, above)
        count = len(cells)
        first = np.ones((length, count), dtype=bool)
        same = (cells[1:] == cells[:-1]).T
        same[0] &= above[1:] == above[:-1]
        first[:, 1:] = ~np.logical_and.accumulate(same)
        # Run i begins at cell starts[i] of the levels, read one after the other.
        starts = np.flatnonzero(first)
        sizes = np.diff(starts, append=length * count)
        depths, places = starts // count, made + np.arange(len(starts))
        run_of = made - 1 + np.cumsum(first).reshape(length, count)
        # The run over a cell is that of the cell one level up.
        over = np.concatenate([above, run_of[:-1].ravel()])
        tokens = cells.T.ravel()[starts]
        real = np.flatnonzero(tokens)
        found = (tokens, over[starts], level + 1 + depths, sizes, places)
        best = [
            np.concatenate([old, new[real]])
            for old, new in zip(best, found, strict=True)
        ]
        chosen = _chosen(best[3], most)
        best = [column[chosen] for column in best]
        goes_on = cells[:, -1] != 0
        if len(chosen) == most:
            # With so many found, one below must be larger than the least of them.
            rest = int(best[3].min())
            goes_on &= sizes[run_of[-1] - made] > rest
        above = run_of[-1][goes_on]
        rows.keep(goes_on)
        level += length
        made += len(starts)
    return _by_rank(rows, rest, *best)


def _by_rank(
    rows: _Rows,
    rest: int,
    cells: np.ndarray,
    parents: np.ndarray,
    depths: np.ndarray,
    sizes: np.ndarray,
    places: np.ndarray,
) -> _Runs:
    """Runs that came by place, and name their parents by place, by rank."""
    order = np.argsort(-sizes, kind="stable")
    ranks = np.empty(len(order), dtype=np.intp)
    ranks[order] = np.arange(len(order))
    top = parents == PREFIX_FRONTIER
    parents = ranks[np.searchsorted(places, np.where(top, places, parents))]
    return _Runs(
        ids=rows.ids(cells[order]),
        parents=np.where(top, PREFIX_FRONTIER, parents)[order],
        depths=depths[order],
        sizes=sizes[order],
        places=places[order],
        rest=rest,
    )


def _chosen(sizes: np.ndarray, most: int) -> np.ndarray:
    """Which `most` of `sizes` are the largest, the earlier ones where they are equal,
    in their own order."""
    if len(sizes) <= most:
        return np.arange(len(sizes))
    # Most sizes are small and equal, which counting them likes and sorting does not.
    at_least = np.bincount(sizes)[::-1].cumsum()[::-1]
    least = int(np.flatnonzero(at_least >= most)[-1])
    level = np.flatnonzero(sizes == least)
    chosen = sizes > least
    missing = most - int(np.count_nonzero(chosen))
    chosen[level[:missing]] = True
    return np.flatnonzero(chosen)


def _sampled(
    matches: Sequence[Match], step: int, budget: int, depth: int
) -> list[TrieNode] | None:
    """The best nodes from every `step`-th occurrence; None where that cannot tell.

    With s matches, a run of k rows stands for at most (k + s) * step - s occurrences,
    and so does with k = 0 a node that was not seen.
    """
    # More exact counts than this cost more than more rows.
    runs = _largest_runs(_Rows(matches, step), 4 * budget, depth)
    sizes = [*runs.sizes.tolist(), runs.rest]
    intervals = {PREFIX_FRONTIER: [(match.low, match.high) for match in matches]}
    # The best so far; the last of them by rank comes first.
    best: list[tuple[int, int, int]] = []
    for run, (token, parent, level, place) in enumerate(
        zip(
            runs.ids.tolist(),
            runs.parents.tolist(),
            runs.depths.tolist(),
            runs.places.tolist(),
            strict=True,
        )
    ):
        # The run above has at least as many rows and comes first.
        intervals[run] = [
            match.shard.narrow(*over, match.offset + level - 1, token)
            for match, over in zip(matches, intervals[parent], strict=True)
        ]
        count = sum([high - low for low, high in intervals[run]])
        heapq.heappush(best, (count, -place, run))
        if len(best) > budget:
            heapq.heappop(best)
        # A node that was not counted must lose to the last of the best, even on a tie.
        bound = (sizes[run + 1] + len(matches)) * step - len(matches)
        if len(best) == budget and best[0][0] > bound:
            best.sort(reverse=True)
            chosen = np.array([run for _, _, run in best])
            return _nodes(runs, chosen, [count for count, _, _ in best])
    return None


def _nodes(runs: _Runs, chosen: np.ndarray, counts: list[int]) -> list[TrieNode]:
    """The trie nodes of the chosen runs, which are closed under parents and ranked."""
    ranks = np.empty(len(runs.sizes), dtype=np.intp)
    ranks[chosen] = np.arange(len(chosen))
    parents = runs.parents[chosen]
    parents = np.where(parents < 0, PREFIX_FRONTIER, ranks[parents])
    columns = (runs.ids[chosen], parents, runs.depths[chosen])
    return list(map(TrieNode, *(c.tolist() for c in columns), counts))
