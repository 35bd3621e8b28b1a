"""Topologies: shapes to be filled with tokens (section 0x07A to 0x07C).

A shape is a `CandidateTree` whose token ids are child ranks, counted from 0, over an
empty prefix. So a row's full prefix is its rank path, and `len` is its node count.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from .. import checks
from ..errors import TreeError
from ..tree import CandidateTree

MAX_NODES = 1 << 20
"""Larger shapes are refused: their ancestor mask alone would take a terabyte."""


def cartesian(branching: Sequence[int]) -> CandidateTree:
    """The full tree that keeps `branching[i]` candidates at depth i + 1.

    N = sum over depths of the product of the branchings so far; [3, 2, 2] has 21.
    """
    widths = [
        checks.integer(b, f"branching[{i}]", least=1)
        for i, b in enumerate(checks.entries(branching, "branching", "child counts"))
    ]
    level, nodes = 1, 0
    for width in widths:
        level *= width
        nodes += level
        _check_size(nodes)
    paths = list(product(*map(range, widths)))
    return CandidateTree.from_paths(paths, prefix_len=0)


def chain(depth: int) -> CandidateTree:
    """One sequence of `depth` nodes."""
    return cartesian([1] * _check_size(checks.integer(depth, "depth", least=0)))


def kary(k: int, depth: int) -> CandidateTree:
    """Every node above `depth` has k children: k + k^2 + ... + k^depth nodes."""
    checks.integer(k, "k", least=1)
    return cartesian([k] * _check_size(checks.integer(depth, "depth", least=0)))


def independent_chains(width: int, depth: int) -> CandidateTree:
    """`width` sequences of `depth` nodes that share nothing: N_raw = width * depth.

    This is the budget before merging; chains with common prefixes need fewer rows.
    """
    # As ints of Python: those of numpy could not multiply what is too large.
    width = checks.integer(width, "width", least=1)
    depth = checks.integer(depth, "depth", least=0)
    _check_size(width * depth)
    paths = [(rank, *[0] * (depth - 1)) for rank in range(width if depth else 0)]
    return CandidateTree.from_paths(paths, prefix_len=0)


def _check_size(nodes: int) -> int:
    if nodes > MAX_NODES:
        raise TreeError(f"a shape of more than {MAX_NODES} nodes")
    return nodes
