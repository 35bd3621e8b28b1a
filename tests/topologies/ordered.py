"""All ordered trees of a few nodes, as nested tuples: the slow, plain oracle."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

Tree = tuple[Any, ...]
"""A node is the tuple of its children; child i sits in slot i + 1."""


@cache
def trees(nodes: int) -> tuple[Tree, ...]:
    """Every ordered tree of `nodes` nodes, root included (Catalan many)."""
    return tuple(_forests(nodes - 1))


def _forests(nodes: int) -> Iterator[Tree]:
    if nodes == 0:
        yield ()
        return
    for first in range(1, nodes + 1):
        for tree in trees(first):
            for others in _forests(nodes - first):
                yield (tree, *others)


@cache
def depth(tree: Tree) -> int:
    """In edges."""
    return max((1 + depth(child) for child in tree), default=0)


@cache
def widest(tree: Tree) -> int:
    return max([len(tree), *(widest(child) for child in tree)])


def progress(tree: Tree, rows: list[list[Any]], at: int = 0) -> Any:
    """Expected tokens by the definition: this node, and each child's with the
    probability of its slot. `rows[d]` are the slots of children of depth d + 1."""
    return 1 + sum(
        rows[at][slot] * progress(child, rows, at + 1)
        for slot, child in enumerate(tree, start=1)
    )


def best(nodes: int, rows: list[list[Any]]) -> list[list[Any]]:
    """[n][d]: the largest progress of the trees of exactly n nodes and at most d edges,
    None if no tree fits; n to `nodes`, d to `nodes` - 1, but no deeper than `rows`."""
    slots = len(rows[0]) - 1
    found: list[list[Any]] = [[None] * nodes for _ in range(nodes + 1)]
    for n in range(1, nodes + 1):
        for tree in trees(n):
            if widest(tree) <= slots and depth(tree) <= len(rows):
                score = progress(tree, rows)
                for d in range(depth(tree), nodes):
                    if found[n][d] is None or score > found[n][d]:
                        found[n][d] = score
    return found
