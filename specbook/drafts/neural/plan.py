"""How many children each node of a draft gets: by level, or by a planned tree.

A plan is asked before anything is drawn at a node. It may look at where the node is,
never at which token it holds: a plan that did would bend q (section 0x05A).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ... import checks
from ...errors import SpecbookError, TreeError
from ...proposal import PREFIX_FRONTIER
from ...topologies.artifact import topology_hash
from ...tree import CandidateTree


class Plan(Protocol):
    """`depth`: levels; `counts`: the numbers of children that nodes get, without 0."""

    depth: int
    counts: set[int]

    def count(self, node: int, depth: int) -> int:
        """Children of the planned node `node`; they have depth `depth`."""

    def child(self, node: int, rank: int) -> int:
        """The planned node of the candidate that is drawn `rank`-th under `node`."""


class Widths:
    """Every node of a level gets the same number."""

    def __init__(self, widths: Sequence[int]) -> None:
        self.widths = tuple(
            checks.integer(width, f"widths[{level}]", least=1)
            for level, width in enumerate(checks.entries(widths, "widths", "integers"))
        )
        if not self.widths:
            raise SpecbookError("widths is empty: a draft has one level at least")
        self.depth = len(self.widths)
        self.counts = set(self.widths)

    def __str__(self) -> str:
        return f"widths={self.widths}"

    def count(self, node: int, depth: int) -> int:
        """As `Plan.count`."""
        return self.widths[depth - 1]

    def child(self, node: int, rank: int) -> int:
        """As `Plan.child`: one node stands for a level."""
        return node


class Shape:
    """A shape of `topologies`: rows whose token ids are ranks, siblings from rank 0
    without a gap. Raises `TreeError` for another tree, and for an empty one."""

    def __init__(self, shape: Any) -> None:
        if not isinstance(shape, CandidateTree):
            raise TreeError(f"shape must be a CandidateTree, got {shape!r}")
        if not len(shape):
            raise TreeError("the shape is empty: a draft has one candidate at least")
        self._children: dict[int, dict[int, int]] = {}
        for node in (PREFIX_FRONTIER, *range(len(shape))):
            ranks = {shape.token_ids[row]: row for row in shape.children(node)}
            if sorted(ranks) != list(range(len(ranks))):
                raise TreeError(
                    f"the children of row {node} of the shape have ranks "
                    f"{sorted(ranks)}, not 0 to {len(ranks) - 1}"
                )
            self._children[node] = ranks
        self.depth = shape.max_depth
        self.counts = {len(ranks) for ranks in self._children.values() if ranks}
        self._name = topology_hash(shape)

    def __str__(self) -> str:
        return f"shape=sha256:{self._name}"

    def count(self, node: int, depth: int) -> int:
        """As `Plan.count`."""
        return len(self._children[node])

    def child(self, node: int, rank: int) -> int:
        """As `Plan.child`."""
        return self._children[node][rank]
