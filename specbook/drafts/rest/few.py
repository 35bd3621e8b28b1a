"""The best nodes of a trie of few continuations, without the trie.

Continuations that are sorted have all that counts in the lengths of what neighbours
share. Where a run of neighbours shares more than with those around it, there is a chain
of nodes that all count as many as the run has members; a single continuation has a
chain for what it shares with none. The chains are ranked from the largest run on, and
those of one size take turns, level by level.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ...proposal import PREFIX_FRONTIER
from .nodes import Ranked
from .suffix_array import BORDER

Chain = tuple[int, int, int]
"""The first member of a run, and the levels of its nodes: from one on, up to another
that is no longer one of them."""


def best_of_few(
    text: memoryview, places: Sequence[int], budget: int, depth: int
) -> Ranked:
    """The `budget` nodes of highest rank, at most `depth` deep, of the continuations
    that begin at `places` of `text`, in codes. They are sorted by what they say, a
    border ends each, and none is empty."""
    ranked = Ranked([], [], [], [])
    codes, parents, depths, counts = ranked
    # The last node above what is left of each continuation.
    above = [PREFIX_FRONTIER] * len(places)
    chains = _chains(_shared(text, places, depth), depth)
    for size in sorted(chains, reverse=True):
        missing = budget - len(codes)
        if not missing:
            break
        found = chains[size]
        if len(found) == 1:
            first, level, end = found[0]
            begin = places[first]
            added = text[begin + level : begin + min(end, level + missing)].tolist()
            if BORDER in added:
                del added[added.index(BORDER) :]
            if added:
                rank = len(codes)
                codes += added
                parents += [above[first], *range(rank, len(codes) - 1)]
                depths += range(level + 1, level + 1 + len(added))
                above[first] = len(codes) - 1
        else:
            found.sort()
            _take_turns(text, places, found, missing, ranked, above)
        counts += [size] * (len(codes) - len(counts))
        if size > 1:
            for first, _, _ in found:
                above[first : first + size] = [above[first]] * size
    return ranked


def _take_turns(
    text: memoryview,
    places: Sequence[int],
    chains: list[Chain],
    missing: int,
    ranked: Ranked,
    above: list[int],
) -> None:
    """Appends at most `missing` nodes of chains of one size, by level and then by
    member, without their counts."""
    codes, parents, depths, _ = ranked
    full = len(codes) + missing
    level = min([begin for _, begin, _ in chains])
    while chains:
        going = []
        for chain in chains:
            first, begin, end = chain
            if begin <= level:
                code = text[places[first] + level] if level < end else BORDER
                if code == BORDER:
                    continue
                parents.append(above[first])
                above[first] = len(codes)
                codes.append(code)
                depths.append(level + 1)
                if len(codes) == full:
                    return
            going.append(chain)
        chains = going
        level += 1


def _shared(text: memoryview, places: Sequence[int], depth: int) -> list[int]:
    """How many codes each continuation and the next have in common, at most `depth`."""

    def common(one: int, other: int, size: int) -> int:
        while size < depth:
            code = text[one + size]
            if code == BORDER or code != text[other + size]:
                break
            size += 1
        return size

    if len(places) == 1:
        return []
    # What the first and the last share, all do.
    least = common(places[0], places[-1], 0)
    if len(places) == 2:
        return [least]
    return [common(one, other, least) for one, other in pairwise(places)]


def _chains(shared: list[int], depth: int) -> dict[int, list[Chain]]:
    """The chains by the size of their run."""
    chains: dict[int, list[Chain]] = {}
    # Runs that are not at their end: how much they share, and their first member.
    open_: list[tuple[int, int]] = [(0, 0)]
    before = 0
    for member, after in enumerate([*shared, 0]):
        alone = before if before > after else after
        if alone < depth:
            chains.setdefault(1, []).append((member, alone, depth))
        first = member
        while (level := open_[-1][0]) > after:
            first = open_.pop()[1]
            begin = max(after, open_[-1][0])
            chains.setdefault(member + 1 - first, []).append((first, begin, level))
        if after > level:
            open_.append((after, first))
        before = after
    return chains
