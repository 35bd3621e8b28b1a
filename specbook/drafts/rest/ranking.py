"""The best nodes of a trie that is never built.

The occurrences of a suffix are sorted by what follows them; so a trie node is a run of
neighbours that share a prefix, and its count is how long the run is. Runs are opened
from the largest on: what lies below a run counts no more than the run, and loses a tie
because it is deeper. The first row of a run and its last agree as far as all of it
does, and where they part it is split.

A common suffix has more occurrences than one wants to read. Then every `step`-th is: a
run of at least `step` rows cannot hide between two of them. A run that was seen waits
with the most that it may count, and is counted, by two binary searches between
neighbours that were read, when no other may count more. Where a run that was not seen
might be among the best, the step is made smaller, down to every occurrence. The answer
is exact in every case.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import chain, count, pairwise, repeat
from typing import NamedTuple

import numpy as np

from ...proposal import PREFIX_FRONTIER
from .nodes import TrieNode
from .shard import Shard
from .suffix_array import BORDER

ROWS = 1024
"""About how many occurrences of a common suffix are read, to begin with."""

SEVERAL = 64
"""More rows than this are split by numpy, fewer sooner without."""


class Match(NamedTuple):
    """The occurrences of a suffix of `offset` tokens in one shard: where they start, in
    the order of what begins there. Something follows each of them."""

    shard: Shard
    starts: Sequence[int]
    offset: int


Rows = tuple[Match, int, int]
"""The rows of a run in one match: the first, and the one after the last."""

Seen = tuple[Match, int, int, int, int]
"""The same of a run that was not counted. The first is one of `[1]` to `[2]`, and the
one after the last is one of `[3]` to `[4]`."""

Path = tuple[int, ...]
"""Cells. A cell is a code; but the codes of different shards mean different ids, and
then it is the id and one more."""

Chain = tuple[Path, int, list[int], int]
"""Runs of one size below each other: the path of the first, the level above it, the
cell of each, and a number."""

Below = tuple[int, int, Sequence[Rows | Seen]]


def best_nodes(matches: Sequence[Match], budget: int, depth: int) -> list[TrieNode]:
    """The `budget` nodes of highest rank, at most `depth` deep, of the trie of all
    continuations of `matches`: by rank, parents before their children."""
    # A node has all its ancestors before it, so none can be deeper than the budget.
    depth = min(depth, budget)
    if not matches or depth <= 0:
        return []
    step = max(1, sum([len(match.starts) for match in matches]) // ROWS)
    while (found := _read(matches, step, budget, depth)) is None:
        step = max(1, step // 4)
    return found


def _read(
    matches: Sequence[Match], step: int, budget: int, depth: int
) -> list[TrieNode] | None:
    """The best nodes from every `step`-th occurrence; None where that cannot tell."""
    nodes: list[TrieNode] = []
    # The rank of the last node of each run that was opened, or of the one above.
    last = [PREFIX_FRONTIER]
    unseen = _unseen(matches, step)
    alone = len(matches) == 1
    ids = matches[0].shard.vocabulary.data if alone else range(2**63)
    whole = [(match, 0, len(match.starts)) for match in matches]
    size = sum([high for _, _, high in whole])
    # Minus the most that a run may count, whether it counts that, the level of its
    # first node, its path, its rows, the number of the run above, and its siblings.
    waiting: list = [(-size, True, 0, (), whole, 0, iter(()))]
    while waiting and len(nodes) < budget and (size := -waiting[0][0]) > unseen:
        missing = budget - len(nodes)
        chains: list[Chain] = []
        # Each has at least one node, and those to come are deeper or further on.
        while waiting and waiting[0][0] == -size and len(chains) < missing:
            _, exact, level, path, rows, above, siblings = heappop(waiting)
            _wait(waiting, siblings, step, level, path[:level], above)
            if not exact:
                rows = _counted(rows, level, path[-1], alone)
                counted = sum([high - low for _, low, high in rows])
                heappush(waiting, (-counted, True, level, path, rows, above, iter(())))
                continue
            shared = _shared(rows, level, depth, alone)
            number = len(last)
            last.append(last[above])
            if shared:
                chains.append((path, level, shared, number))
            if size > 1 and level + len(shared) < depth:
                path = (*path[:level], *shared)
                level += len(shared)
                below = _split(rows, level, step, alone)
                _wait(waiting, below, step, level, path, number)
        if len(chains) == 1:
            _, level, shared, number = chains[0]
            tokens = [ids[cell - 1] for cell in shared[:missing]]
            parents = chain([last[number]], count(len(nodes)))
            columns = (tokens, parents, count(level + 1), repeat(size))
            nodes += map(_node, zip(*columns, strict=False))
            last[number] = len(nodes) - 1
        elif chains:
            _rank(nodes, last, chains, size, missing, ids)
    return nodes[:budget] if step == 1 or len(nodes) >= budget else None


def _unseen(matches: Sequence[Match], step: int) -> int:
    """The most that a run may count which was not seen: no row of it was read."""
    return (step - 1) * len(matches)


def _wait(
    waiting: list, runs: Iterator[Below], step: int, level: int, path: Path, above: int
) -> None:
    """Lets the next of some siblings wait; the others do not come before it."""
    for size, cell, rows in runs:
        run = (-size, step == 1, level, (*path, cell), rows, above, runs)
        heappush(waiting, run)
        break


def _rank(
    nodes: list[TrieNode],
    last: list[int],
    chains: list[Chain],
    size: int,
    missing: int,
    ids: Sequence[int],
) -> None:
    """Appends the nodes of runs of one size, by depth and then path; at least `missing`
    of them if there are so many."""
    chains.sort()
    levels = {level for _, level, _, _ in chains}
    levels.update([level + len(cells) for _, level, cells, _ in chains])
    for level, end in pairwise(sorted(levels)):
        # Where none begins and none ends, they take turns.
        here = [c for c in chains if c[1] <= level < c[1] + len(c[2])]
        if not here or missing <= 0:
            continue
        width, rank = len(here), len(nodes)
        end = min(end, level - -missing // width)
        missing -= (end - level) * width
        cells = zip(
            *[cells[level - first : end - first] for _, first, cells, _ in here],
            strict=True,
        )
        columns = (
            [ids[cell - 1] for cell in chain.from_iterable(cells)],
            chain([last[number] for _, _, _, number in here], count(rank)),
            [depth for depth in range(level + 1, end + 1) for _ in here],
            repeat(size),
        )
        nodes += map(_node, zip(*columns, strict=False))
        for rank, (_, _, _, number) in enumerate(here, len(nodes) - width):
            last[number] = rank


def _shared(rows: Sequence[Rows], level: int, depth: int, alone: bool) -> list[int]:
    """The cells from `level` to `depth` that all rows of a run have in common."""
    match, low, high = rows[0]
    text = match.shard.array.text
    first = match.starts[low] + match.offset
    if high - low == 1:
        cells = text[first + level : first + depth].tolist()
        if BORDER in cells:
            del cells[cells.index(BORDER) :]
    else:
        final = match.starts[high - 1] + match.offset
        cells = []
        for place in range(level, depth):
            code = text[first + place]
            if code == BORDER or text[final + place] != code:
                break
            cells.append(code)
    if alone:
        return cells
    cells = [match.shard.vocabulary.item(code - 1) + 1 for code in cells]
    if len(rows) > 1:
        theirs = _shared(rows[1:], level, level + len(cells), alone)
        while theirs != cells[: len(theirs)]:
            theirs.pop()
        return theirs
    return cells


def _split(rows: Sequence[Rows], level: int, step: int, alone: bool) -> Iterator[Below]:
    """The runs into which a run falls at `level`: the most that each may count, its
    cell there, and its rows. Those that may count most come first, then by cell."""
    if alone:
        match, low, high = rows[0]
        heads, edges, order = _heads(match, low, high, level, step)
        for place in order:
            if code := heads[place]:
                row, after = edges[place], edges[place + 1]
                size = min(after - row + step - 1, high - low)
                yield size, code, (_between(match, low, high, row, after, step),)
        return
    below: dict[int, list] = {}
    sizes: dict[int, int] = {}
    for match, low, high in rows:
        heads, edges, _ = _heads(match, low, high, level, step)
        for code, (row, after) in zip(heads, pairwise(edges), strict=True):
            if code:
                cell = match.shard.vocabulary.item(code - 1) + 1
                part = _between(match, low, high, row, after, step)
                below.setdefault(cell, []).append(part)
                sizes[cell] = sizes.get(cell, 0) + after - row + step - 1
    if step > 1:
        # It may hide in a shard where it was not seen.
        for cell, parts in below.items():
            for match, low, high in rows:
                if all(part[0] is not match for part in parts):
                    parts.append((match, low, high, low, high))
                    sizes[cell] += step - 1
    size = sum([high - low for _, low, high in rows])
    for cell in sorted(below, key=lambda cell: (-min(sizes[cell], size), cell)):
        yield min(sizes[cell], size), cell, below[cell]


def _between(
    match: Match, low: int, high: int, row: int, after: int, step: int
) -> Rows | Seen:
    """The part of a run of which rows from `row` on, and not `after`, were read."""
    if step == 1:
        return match, row, after
    least, most = max(low, row - step + 1), min(after, high)
    return match, least, row, after - step + 1, most


def _heads(
    match: Match, low: int, high: int, level: int, step: int
) -> tuple[list[int], list[int], list[int]]:
    """The different codes at `level`, where each begins and the last ends, and in which
    order they come by size."""
    offset = match.offset + level
    starts = match.starts[low:high:step]
    if len(starts) <= SEVERAL:
        text = match.shard.array.text
        heads: list[int] = []
        edges: list[int] = []
        before = -1
        row = low
        for start in starts:
            if (code := text[start + offset]) != before:
                heads.append(code)
                edges.append(row)
                before = code
            row += step
        edges.append(row)
        minus = [row - after for row, after in pairwise(edges)]
        return heads, edges, sorted(range(len(heads)), key=minus.__getitem__)
    codes = match.shard.array.codes.take(np.asarray(starts, dtype=np.intp) + offset)
    new = np.ones(len(codes) + 1, dtype=bool)
    np.not_equal(codes[1:], codes[:-1], out=new[1:-1])
    rows = np.flatnonzero(new)
    order = (rows[:-1] - rows[1:]).argsort(kind="stable")
    return codes.take(rows[:-1]).tolist(), (low + rows * step).tolist(), order.tolist()


def _counted(rows: Sequence[Seen], level: int, cell: int, alone: bool) -> list[Rows]:
    """Where a run lies that has `cell` at `level`."""
    found = []
    for match, least, most, begin, end in rows:
        code = cell if alone else match.shard.code(cell - 1)
        # A border is what ends a document, not a token that is not there.
        if code == BORDER:
            continue
        low, high = match.shard.array.narrow(
            match.starts, match.offset + level, code, least, end, most, begin
        )
        if low < high:
            found.append((match, low, high))
    return found


_node = partial(tuple.__new__, TrieNode)
