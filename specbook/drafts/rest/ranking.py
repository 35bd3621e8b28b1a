"""The best nodes of a trie that is never built.

The occurrences of a suffix are sorted by what follows them. So a trie node is a run of
neighbours that share a prefix, and its count is how long the run is. What follows them
is read as a table, a row for each level and a column for each occurrence, and numpy
finds all its runs at once. Row by row, the runs come by depth and then by path, which
is how ties are broken: the best nodes are a stable sort of the runs by size.

What is below a run counts no more than the run, and loses a tie because it is deeper.
So some rows are read of all columns, and more rows of those columns only whose run
counts more than the last of the best so far.

A common suffix has more occurrences than one wants to read. Then every `step`-th is. A
run of s columns has s * step occurrences, give or take step - 1; and a run of at least
`step` occurrences cannot hide between two columns. Those that may be among the best are
counted, by binary searches between neighbours that were read. Where one might be among
them that was not seen, or in a single column, the step is made smaller, down to every
occurrence. The answer is exact in every case.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...proposal import PREFIX_FRONTIER
from .few import best_of_few
from .nodes import Ranked
from .shard import Shard
from .suffix_array import BORDER

FEW = 48
"""Up to so many occurrences are ranked sooner without numpy."""

COLUMNS = 1024
"""About how many occurrences of a common suffix are read, to begin with."""

CELLS = 1 << 13
"""About how many cells are read at once."""

PROBES = 7
"""At so many places at once a binary search looks."""

COUNTED = 1024
"""So many runs are counted, sooner than that more occurrences are read."""


class Match(NamedTuple):
    """The occurrences of a suffix of `offset` tokens in one shard: where they start, in
    the order of what begins there. Something follows each of them."""

    shard: Shard
    starts: Sequence[int]
    offset: int


class Runs(NamedTuple):
    """Runs of a table. `keys` [R]: row * width of the table + first column, ascending.
    `sizes` [R]: in columns. `cells` [R]: what stands in them."""

    keys: np.ndarray
    sizes: np.ndarray
    cells: np.ndarray


def best_nodes(matches: Sequence[Match], budget: int, depth: int) -> Ranked:
    """The `budget` nodes of highest rank, at most `depth` deep, of the trie of all
    continuations of `matches`: by rank, parents before their children."""
    # A node has all its ancestors before it, so none can be deeper than the budget.
    depth = min(depth, budget)
    size = sum([len(match.starts) for match in matches])
    if depth <= 0 or not size:
        return Ranked([], [], [], [])
    if size <= FEW and len(matches) == 1:
        shard, starts, offset = matches[0]
        places = [start + offset for start in starts]
        found = best_of_few(shard.array.text, places, budget, depth)
        return found._replace(tokens=shard.decode(found.tokens))
    step = max(1, size // COLUMNS)
    while (ranked := _read(matches, step, budget, depth)) is None:
        step = max(1, step // 4)
    return ranked


def _read(
    matches: Sequence[Match], step: int, budget: int, depth: int
) -> Ranked | None:
    """The best nodes from every `step`-th occurrence; None where that cannot tell."""
    table = _Table(matches, step)
    width = count = len(table.places)
    unseen = _unseen(matches, step)
    columns: np.ndarray | None = None
    first: np.ndarray | None = None
    runs: Runs | None = None
    row = 0
    while True:
        rows = min(depth - row, max(1, CELLS // count))
        # A single column ranks last. Among more than are needed it need not be found,
        # and where only some occurrences are read it could not be trusted.
        enough = step > 1 or (runs is not None and len(runs.keys) >= budget)
        found = _runs(
            table.cells(columns, first, row, rows), first, 0 if enough else budget
        )
        read, row = row, row + rows
        placed = found
        if columns is not None:
            level, column = np.divmod(found.keys, count)
            placed = found._replace(keys=(read + level) * width + columns.take(column))
        runs = placed if runs is None else _joined(runs, placed)
        best = _best(runs.sizes, budget)
        # The last of the best has so many columns, and counts at least the bound.
        least = int(runs.sizes[best[-1]]) if len(best) == budget else 0
        bound = least * step - min(least, len(matches)) * (step - 1)
        if row == depth:
            break
        # Of the last row that was read, the runs below which more is to be read.
        begin = (rows - 1) * count
        last = found.keys.searchsorted(begin)
        heads, spans = found.keys[last:] - begin, found.sizes[last:]
        large = spans * step + unseen > bound
        if not large.any():
            break
        heads, spans = heads[large], spans[large]
        # Their columns, next to each other.
        begins = spans.cumsum() - spans
        kept = np.arange(spans.sum()) + np.repeat(heads - begins, spans)
        columns = kept if columns is None else columns.take(kept)
        count = len(columns)
        first = np.zeros(count, dtype=bool)
        first[begins] = True
    if step == 1:
        return _ranked(matches, runs, best, runs.sizes.take(best), width)
    if bound <= step + unseen:
        return None
    rivals = (runs.sizes * step + unseen >= bound).nonzero()[0]
    if len(rivals) > COUNTED:
        return None
    counts = _counted(table, step, runs.keys.take(rivals), runs.sizes.take(rivals))
    order = (-counts).argsort(kind="stable")[:budget]
    return _ranked(matches, runs, rivals.take(order), counts.take(order), width)


def _unseen(matches: Sequence[Match], step: int) -> int:
    """The most that a run may count which was not seen, and how much more than `step`
    for each of its columns one may count which was: what is between two columns, in
    each shard."""
    return (step - 1) * len(matches)


class _Table:
    """What follows every `step`-th occurrence.

    `places`: where in its text each column begins. `owners`: which match has that text;
    None where there is but one. With one match a cell is a code. The codes of different
    shards mean different ids; then it is the id and one more.
    """

    def __init__(self, matches: Sequence[Match], step: int) -> None:
        self.matches = matches
        parts = [np.asarray(m.starts)[::step] + np.intp(m.offset) for m in matches]
        self.places, self.owners = parts[0], None
        if len(parts) > 1:
            self.places = np.concatenate(parts)
            self.owners = np.repeat(range(len(parts)), [len(part) for part in parts])

    def cells(
        self,
        columns: np.ndarray | None,
        first: np.ndarray | None,
        row: int,
        rows: int,
    ) -> np.ndarray:
        """Some rows from `row` on [rows, n] of some columns [n] or of all, in their
        order. `first` [n]: where a run of the row above begins. With several matches
        the columns of a run are sorted here, and change places in the table."""
        places = self.places if columns is None else self.places.take(columns)
        index = np.arange(row, row + rows)[:, None] + places
        if self.owners is None:
            return self._codes(0, index)
        if columns is None or first is None:
            columns = np.arange(len(places))
            first = columns == 0
        owners = self.owners.take(columns)
        cells = self._ids(owners, index)
        # What comes after the end of a document tells nothing apart.
        cells[_downwards(cells == BORDER)] = BORDER
        keys = np.vstack([first.cumsum(dtype=np.uint64), cells])
        # As bytes, the largest first, rows of numbers sort as the numbers do.
        lines = np.ascontiguousarray(keys.T, dtype=">u8").view(f"V{8 * len(keys)}")
        order = lines.ravel().argsort(kind="stable")
        self.owners[columns], self.places[columns] = owners[order], places[order]
        return cells[:, order]

    def prefixes(self, columns: np.ndarray, rows: int) -> np.ndarray:
        """The first rows of some columns [n]: [rows, n]."""
        index = np.arange(rows)[:, None] + self.places[columns]
        if self.owners is None:
            return self._codes(0, index)
        return self._ids(self.owners[columns], index)

    def at(self, number: int, starts: np.ndarray, rows: int) -> np.ndarray:
        """What follows starts [n, p] of one match: [rows, n, p]."""
        offset = self.matches[number].offset
        index = np.arange(offset, offset + rows)[:, None, None] + starts
        read = self._codes if self.owners is None else self._one
        return read(number, index)

    def _codes(self, number: int, index: np.ndarray) -> np.ndarray:
        codes = self.matches[number].shard.array.codes
        return codes.take(index, mode="clip")

    def _one(self, number: int, index: np.ndarray) -> np.ndarray:
        codes = self._codes(number, index)
        vocabulary = self.matches[number].shard.vocabulary
        ids = vocabulary.take(codes.astype(np.intp) - 1, mode="clip")
        return np.where(codes == BORDER, 0, ids.astype(np.uint64) + np.uint64(1))

    def _ids(self, owners: np.ndarray, index: np.ndarray) -> np.ndarray:
        cells = np.empty(index.shape, dtype=np.uint64)
        for number in range(len(self.matches)):
            mine = owners == number
            cells[:, mine] = self._one(number, index[:, mine])
        return cells


def _runs(cells: np.ndarray, first: np.ndarray | None, wanted: int) -> Runs:
    """The runs of `cells` [rows, n] that have several columns; where those are fewer
    than `wanted`, all runs. One ends where the row above it has a border, or has
    another run begin: `first` [n] says where above the first row."""
    rows, columns = cells.shape
    ended = cells == BORDER
    # With one more column, where every run is at its end.
    new = np.empty((rows, columns + 1), dtype=bool)
    new[:, 0] = new[:, columns] = True
    np.not_equal(cells[:, 1:], cells[:, :-1], out=new[:, 1:columns])
    if first is not None:
        new[0, :columns] |= first
    new[:, :columns] |= ended
    new = _downwards(new)
    here, after = new[:, :-1], new[:, 1:]
    keys = (here > after).ravel().nonzero()[0]
    sizes = (here < after).ravel().nonzero()[0] - keys + 1
    if len(keys) < wanted:
        single = (here & after & ~_downwards(ended)).ravel().nonzero()[0]
        keys = np.concatenate([keys, single])
        order = keys.argsort(kind="stable")
        keys = keys.take(order)
        sizes = np.concatenate([sizes, np.ones_like(single)]).take(order)
    return Runs(keys, sizes, cells.ravel().take(keys))


def _downwards(marks: np.ndarray) -> np.ndarray:
    """Marks [rows, n], and everything below them."""
    # Numpy is faster with bytes than with booleans.
    return np.bitwise_or.accumulate(marks.view(np.uint8), axis=0).view(bool)


def _joined(runs: Runs, more: Runs) -> Runs:
    return Runs(*[np.concatenate(column) for column in zip(runs, more, strict=True)])


def _best(sizes: np.ndarray, budget: int) -> np.ndarray:
    """The places of the `budget` largest, or of all: by size, of equal ones the first
    first."""
    if len(sizes) <= 2 * budget:
        return (-sizes).argsort(kind="stable")[:budget]
    # Few are sorted sooner than many.
    large = (sizes >= np.partition(sizes, -budget)[-budget]).nonzero()[0]
    return large.take((-sizes.take(large)).argsort(kind="stable")[:budget])


def _counted(
    table: _Table, step: int, keys: np.ndarray, sizes: np.ndarray
) -> np.ndarray:
    """How many occurrences some runs have [n]."""
    rows, columns = np.divmod(keys, len(table.places))
    prefixes = table.prefixes(columns, int(rows.max()) + 1)
    counts = np.zeros_like(keys)
    for number, match in enumerate(table.matches):
        size = len(match.starts)
        if table.owners is None:
            # Between the columns that have the prefix and their neighbours.
            high = np.concatenate([columns, columns + sizes]) * step
            low = np.maximum(high - (step - 1), 0)
            high = np.minimum(high, size)
        else:
            low = np.zeros(2 * len(keys), dtype=np.intp)
            high = low + size
        begins, ends = _edges(table, number, prefixes, rows, low, high)
        counts += ends - begins
    return counts


def _edges(
    table: _Table,
    number: int,
    prefixes: np.ndarray,
    rows: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Where in a match the occurrences begin and end that have a prefix: the first
    `rows + 1` cells of a column of `prefixes` [L, n]. `low`, `high` [2 n]: what the n
    begins, and then the n ends, are at least and at most."""
    length, size = prefixes.shape
    wanted = np.concatenate([prefixes, prefixes], axis=1)
    rows = np.concatenate([rows, rows])
    within = (np.arange(length)[:, None] <= rows)[:, :, None]
    every = np.arange(2 * size)
    ends = (every >= size)[:, None]
    starts = np.asarray(table.matches[number].starts)
    while most := int((spans := high - low).max()):
        # At several places at once.
        share = min(PROBES, most) + 1
        probes = low[:, None] + spans[:, None] * np.arange(1, share) // share
        found = table.at(number, starts.take(probes, mode="clip"), length)
        # The first difference, or any place where there is none.
        place = ((found != wanted[:, :, None]) & within).argmax(axis=0)
        theirs = found.ravel().take(
            place * place.size + np.arange(place.size).reshape(place.shape)
        )
        ours = wanted.ravel().take(place * len(every) + every[:, None])
        before = (theirs < ours) | (ends & (theirs == ours))
        # They are sorted, so those that come before are the first.
        passed = np.count_nonzero(before & (spans > 0)[:, None], axis=1)
        bounds = np.concatenate([low[:, None] - 1, probes, high[:, None]], axis=1)
        low, high = bounds[every, passed] + 1, bounds[every, passed + 1]
    return low[:size], low[size:]


def _ranked(
    matches: Sequence[Match],
    runs: Runs,
    best: np.ndarray,
    counts: np.ndarray,
    width: int,
) -> Ranked:
    """The nodes of the best runs, which have all their ancestors among them."""
    keys, cells = runs.keys.take(best), runs.cells.take(best).tolist()
    if len(matches) == 1:
        tokens = matches[0].shard.decode(cells)
    else:
        tokens = [cell - 1 for cell in cells]
    order = keys.argsort()
    # The last run of the row above that begins no later.
    above = keys.take(order).searchsorted(keys - width, side="right") - 1
    parents = order.take(above, mode="clip")
    parents[keys < width] = PREFIX_FRONTIER
    depths = keys // width + 1
    return Ranked(tokens, parents.tolist(), depths.tolist(), counts.tolist())
