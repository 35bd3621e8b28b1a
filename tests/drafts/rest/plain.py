"""The plain way to do what the datastore does: scan everything, count everything.

Nothing here is shared with the package.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

IDS = (0, 1, 2, 254, 255, 256, 257, 4464, 65534, 65535, 65536, 70000, 2**31, 2**63 - 1)
"""Ids on both sides of every width."""

Documents = Sequence[Sequence[int]]


def continuations(
    documents: Documents, suffix: Sequence[int], length: int, cross: bool = False
) -> list[list[int]]:
    """What follows every occurrence of `suffix`, found by looking everywhere."""
    if cross:
        documents = [[token for document in documents for token in document]]
    found = []
    for document in documents:
        for start in range(len(document) - len(suffix) + 1):
            end = start + len(suffix)
            if list(document[start:end]) == list(suffix) and end < len(document):
                found.append(list(document[end : end + length]))
    return found


def longest(
    documents: Documents,
    prefix: Sequence[int],
    most: int,
    length: int,
    cross: bool = False,
) -> tuple[int, list[list[int]]]:
    """The longest suffix that goes on somewhere, and its continuations."""
    for size in range(min(most, len(prefix)), 0, -1):
        if found := continuations(documents, prefix[-size:], length, cross):
            return size, found
    return 0, []


def best(
    found: Sequence[Sequence[int]], budget: int, depth: int
) -> list[tuple[tuple[int, ...], int]]:
    """`(full prefix, count)` of the best nodes: every prefix counted, all sorted."""
    counts: Counter[tuple[int, ...]] = Counter()
    for continuation in found:
        for size in range(1, min(len(continuation), depth) + 1):
            counts[tuple(continuation[:size])] += 1
    ranked = sorted(counts.items(), key=lambda item: (-item[1], len(item[0]), item[0]))
    return ranked[:budget]


def paths(nodes: Sequence[Any]) -> list[tuple[tuple[int, ...], int]]:
    """`(full prefix, count)` of ranked nodes; each must hang below an earlier one."""
    made: list[tuple[tuple[int, ...], int]] = []
    for node in nodes:
        assert -1 <= node.parent < len(made)
        above = made[node.parent][0] if node.parent >= 0 else ()
        assert node.depth == len(above) + 1
        made.append(((*above, node.token), node.frequency))
    return made


@st.composite
def corpora(draw: Any, most_documents: int = 4) -> tuple[list[list[int]], list[int]]:
    """Some documents over a few ids, so that they overlap, and a prefix that ends like
    a part of one of them or like none."""
    alphabet = draw(st.lists(st.sampled_from(IDS), min_size=1, max_size=4, unique=True))
    token = st.sampled_from(alphabet)
    documents = draw(st.lists(st.lists(token, max_size=12), max_size=most_documents))
    prefix = draw(st.lists(token, max_size=5))
    return documents, prefix
