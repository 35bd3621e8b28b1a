"""Expected progress of a shape: how many tokens a round of it commits on average.

A shape's row is reached if at every node of its path just that child is selected. By
linearity the expected number of committed tokens is the sum of the probabilities of
being reached, with 1 for the root: the token that a round commits in any case
(section 0x0AA).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .. import checks
from ..errors import LawError, TreeError
from ..proposal import PREFIX_FRONTIER
from ..tree import CandidateTree
from .acceptance import TOLERANCE, by_depth


@dataclass(frozen=True)
class PlannedTree:
    """A shape and what is expected of it.

    `score`: G, the expected tokens a round, root included. `tree`: the shape, without
    the root, which is no candidate row. `method`: how it was found. `acceptance`: the
    rows that it was planned with, as they were used.
    """

    score: Any
    tree: CandidateTree
    method: str
    acceptance: tuple[tuple[Any, ...], ...]

    @property
    def nodes(self) -> int:
        """The rows of a verification, n: the candidates and the root."""
        return len(self.tree) + 1

    @property
    def depth(self) -> int:
        """Depth of the deepest candidate, in edges from the root."""
        return self.tree.max_depth


def reached(shape: CandidateTree, acceptance: Any) -> list[Any]:
    """f(v) for every row of `shape`: the probability that verification gets there.

    `acceptance`: see `acceptance`; the token id of a shape's row is its rank, from 0.
    Raises `LawError` where the shape has a depth or a slot that `acceptance` does not
    know: its chance is not known to be 0.
    """
    if not isinstance(shape, CandidateTree):
        raise TreeError(f"not a CandidateTree: {type(shape).__name__}")
    rows, every = by_depth(acceptance)
    known = len(rows) if every else shape.max_depth
    if shape.max_depth > known:
        raise LawError(
            f"the shape is {shape.max_depth} deep, acceptance has {known} depths"
        )
    values: list[Any] = []
    for row, (rank, parent, depth) in enumerate(
        zip(shape.token_ids, shape.parents, shape.depths, strict=True)
    ):
        slots = rows[depth - 1 if every else 0]
        if rank + 1 >= len(slots):
            raise LawError(
                f"row {row} is child {rank + 1} of its parent, acceptance has "
                f"{len(slots) - 1} slots"
            )
        above = 1 if parent == PREFIX_FRONTIER else values[parent]
        values.append(above * slots[rank + 1])
    return values


def expected_progress(shape: CandidateTree, acceptance: Any) -> Any:
    """G(shape): 1 for the root and f(v) for every row. At least 1, and at most the
    smaller of the rows with the root and the depth plus one."""
    return 1 + sum(reached(shape, acceptance))


def check_plan(plan: PlannedTree) -> None:
    """Raises `LawError` unless the score of `plan` is what its own tree is worth.

    G is added up anew, row by row, from the acceptance that the plan says it was made
    with: exactly for Fractions, within `TOLERANCE` of it for floats. A planner whose
    recurrence went wrong, or met 0 times infinity, has another number, or none.
    """
    if not isinstance(plan, PlannedTree):
        raise TreeError(f"not a PlannedTree: {plan!r}")
    rows = plan.acceptance
    worth = expected_progress(plan.tree, rows if len(rows) > 1 else rows[0])
    slack = TOLERANCE * worth if isinstance(worth, float) else 0
    # A NaN is not within anything.
    if not abs(plan.score - worth) <= slack:
        raise LawError(
            f"the plan by {plan.method} promises {plan.score} tokens a round, its tree "
            f"of {plan.nodes} nodes is worth {worth}"
        )


def shape_of(parents: Sequence[int], ranks: Sequence[int]) -> CandidateTree:
    """The shape with these rows, in breadth order, siblings by rank.

    `parents`: an earlier row each, or `PREFIX_FRONTIER`; `ranks`: from 0. Linear, and
    no path is written out, so that a chain of many thousand rows is no trouble. Raises
    `TreeError` for what is no tree: a row that hangs on a later one would be lost.
    """
    parents = _parents(parents)
    ranks = checks.token_ids(ranks, "ranks", error=TreeError)
    if len(ranks) != len(parents):
        raise TreeError(f"{len(ranks)} ranks for {len(parents)} parents")
    below: dict[int, list[int]] = {}
    for row, parent in enumerate(parents):
        below.setdefault(parent, []).append(row)
    order: list[int] = []
    level = [PREFIX_FRONTIER]
    while level:
        level = [
            child
            for row in level
            for child in sorted(below.get(row, ()), key=ranks.__getitem__)
        ]
        order += level
    place = {row: number for number, row in enumerate(order)}
    place[PREFIX_FRONTIER] = PREFIX_FRONTIER
    return CandidateTree.from_rows(
        [ranks[row] for row in order], [place[parents[row]] for row in order], 0
    )


def _parents(parents: Any) -> list[int]:
    found = []
    for row, parent in enumerate(checks.entries(parents, "parents", "rows", TreeError)):
        found.append(
            checks.integer(
                parent,
                f"parents[{row}]",
                least=PREFIX_FRONTIER,
                most=row - 1,
                error=TreeError,
            )
        )
    return found
