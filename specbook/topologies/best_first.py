"""Best-first growth: the optimum for every size at once, when slots do not increase.

A node's value f(v) is the product of the slots on its path. If p_1 >= p_2 >= ..., a
node is worth no more than its parent and its left sibling, so the n nodes of largest
value form a tree, and no tree of n nodes can be worth more. A heap hands them out in
that order: when a node is taken, its first child and its next sibling come into view.
O(n log n) for all sizes up to n, against the recurrence's O(n^2 d b). The same holds
where the slots depend on the depth, if none increases within its depth.

If a slot is worth more than the one before it, a poor child hides a rich one and the
heap does not see it: p = (3/10, 1/20, 3/5) at n = 4 gives 36/25, the optimum is 39/20.
Measured slots do increase now and then. `best_first_tree` looks for that first.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from .. import checks
from ..errors import LawError, SpecbookError
from ..proposal import PREFIX_FRONTIER
from ..tree import CandidateTree
from . import MAX_NODES
from .acceptance import by_depth, increasing_slots
from .progress import PlannedTree, shape_of
from .sequoia import optimize_tree

INCREASING = ("recurrence", "isotonic", "refuse")


@dataclass(frozen=True)
class Growth:
    """Nodes in the order of their value. `values[i]`, `parents[i]` (an earlier node, or
    `PREFIX_FRONTIER`) and `ranks[i]` (from 0) of candidate i; the root is not listed.
    """

    values: tuple[Any, ...]
    parents: tuple[int, ...]
    ranks: tuple[int, ...]

    def scores(self) -> list[Any]:
        """G of the tree of n nodes, root included, for n = 1, 2, ...."""
        return list(accumulate(self.values, initial=self._one()))

    def shape(self, n: int) -> CandidateTree:
        """The tree of n nodes, root included."""
        checks.integer(n, "n", least=1, most=len(self.values) + 1)
        return shape_of(self.parents[: n - 1], self.ranks[: n - 1])

    def _one(self) -> Any:
        return 1.0 if any(isinstance(v, float) for v in self.values[:1]) else 1


def grow(max_nodes: int, max_depth: int | None, acceptance: Any) -> Growth:
    """The most valuable nodes that a tree can be grown by, one after the other.

    `max_nodes` counts the root. Stops early where the slots make no more nodes. Of
    equal nodes the shallower comes first, then the one seen earlier. This is the
    optimum for every size only if no slot increases; it is not checked here. Raises
    what `solve` raises; the limit is `topologies.MAX_NODES`.
    """
    checks.integer(max_nodes, "max_nodes", least=1, most=MAX_NODES)
    rows, every = by_depth(acceptance)
    limit = len(rows) if every else max_nodes
    if max_depth is not None:
        checks.integer(max_depth, "max_depth", least=0)
        if every and max_depth > limit:
            raise SpecbookError(
                f"max_depth is {max_depth}, acceptance has rows for {limit} depths"
            )
        limit = min(limit, max_depth)
    values: list[Any] = []
    parents: list[int] = []
    ranks: list[int] = []
    heap: list[tuple[Any, int, int, int, int, Any]] = []
    seen = 0

    def offer(depth: int, parent: int, rank: int, above: Any) -> None:
        nonlocal seen
        slots = rows[depth - 1] if every else rows[0]
        if rank + 1 < len(slots):
            value = above * slots[rank + 1]
            heapq.heappush(heap, (-value, depth, seen, parent, rank, above))
            seen += 1

    if limit:
        offer(1, PREFIX_FRONTIER, 0, 1)
    while heap and len(values) + 1 < max_nodes:
        negative, depth, _, parent, rank, above = heapq.heappop(heap)
        values.append(-negative)
        parents.append(parent)
        ranks.append(rank)
        if depth < limit:
            offer(depth + 1, len(values) - 1, 0, -negative)
        offer(depth, parent, rank + 1, above)
    return Growth(tuple(values), tuple(parents), tuple(ranks))


def best_first_tree(
    max_nodes: int,
    max_depth: int | None,
    acceptance: Any,
    *,
    increasing: str = "recurrence",
    weights: Any = None,
) -> PlannedTree:
    """The best tree of at most `max_nodes` nodes, root included.

    Where no slot increases, by best-first. Otherwise as `increasing` says:
    "recurrence" solves that instead, so that the answer is the optimum either way;
    "isotonic" first replaces the slots by the nearest that do not increase (weighted
    by `weights`, one row of observations for each row of slots, if given), and the
    result carries them as its `acceptance`; "refuse" raises `LawError` and names the
    slots. `.method` tells which way was taken.
    """
    checks.one_of(increasing, "increasing", INCREASING)
    if weights is not None and increasing != "isotonic":
        raise LawError(f"weights are for isotonic slots, increasing is {increasing!r}")
    rows, every = by_depth(acceptance)
    acceptance = rows if every else rows[0]  # an iterator can be read only once
    found = increasing_slots(acceptance)
    method = "best-first"
    if found and increasing == "refuse":
        where = ", ".join(
            f"slot {slot}" + (f" at depth {depth}" if depth else "")
            for depth, slot in found[:4]
        )
        raise LawError(f"best-first needs slots that do not increase; {where} does")
    if found and increasing == "recurrence":
        return optimize_tree(max_nodes, max_depth, acceptance)
    if found:
        acceptance = isotonic(acceptance, weights)
        method = "best-first on isotonic slots"
    growth = grow(max_nodes, max_depth, acceptance)
    scores = growth.scores()
    best = scores.index(max(scores))
    rows, _ = by_depth(acceptance)
    return PlannedTree(
        scores[best], growth.shape(best + 1), method, tuple(map(tuple, rows))
    )


def isotonic(acceptance: Any, weights: Any = None) -> list[Any]:
    """The nearest slots, in weighted least squares, that do not increase; float64.

    In the layout of `acceptance`, one vector or rows; shorter rows end in zeros.
    `weights`: positive, one for each slot (of the longest row), entry 0 unused. The sum
    of equally weighted slots stays as it is.
    """
    from scipy.optimize import isotonic_regression

    rows, every = by_depth(acceptance)
    heavy: list[Any] = [None] * len(rows)
    if weights is not None:
        heavy = (
            checks.entries(weights, "weights", "rows", LawError) if every else [weights]
        )
        if len(heavy) != len(rows):
            raise LawError(f"{len(heavy)} rows of weights for {len(rows)} of slots")
    smooth = []
    for number, (row, weight) in enumerate(zip(rows, heavy, strict=True)):
        if weight is not None:
            name = f"weights[{number}]" if every else "weights"
            weight = checks.entries(weight, name, "numbers", LawError)[1:]
            if len(weight) != len(row) - 1:
                raise LawError(f"{name}: {len(weight)} for {len(row) - 1} slots")
            weight = [
                checks.float64(w, f"{name}[{slot}]", error=LawError)
                for slot, w in enumerate(weight, start=1)
            ]
            if min(weight) <= 0:
                raise LawError(f"{name} must be positive, got {weight}")
        slots = [float(slot) for slot in row[1:]]
        fitted = isotonic_regression(slots, weights=weight, increasing=False).x
        smooth.append([0.0, *fitted.tolist()])
    return smooth if every else smooth[0]


# ------------------------------------------------------------------------ a batch


def admit(survivals: Iterable[Sequence[Any]], budget: int) -> list[int]:
    """How many candidates of each request's chain to verify, `budget` in all.

    `survivals`: for each request the probabilities that its 1st, 2nd, ... candidate
    gets accepted together with all before it; they never increase. The `budget`
    largest of all requests are the best choice, and each request's are a beginning of
    its chain. Of equal ones the shallower, then the earlier request's. Raises
    `LawError` for a survival that increases or is no probability.
    """
    checks.integer(budget, "budget", least=0)
    entries = checks.entries(survivals, "survivals", "rows", LawError)
    waiting = []
    for request, row in enumerate(entries):
        where = f"survivals[{request}]"
        values = checks.entries(row, where, "probabilities", LawError)
        before: Any = 1
        for place, value in enumerate(values):
            checks.real(value, f"{where}[{place}]", least=0, most=1, error=LawError)
            if value > before:
                raise LawError(
                    f"{where}[{place}] is {value}, above {before} before it: later "
                    "candidates need the earlier ones"
                )
            before = value
            waiting.append((-value, place, request))
    counts = [0] * len(entries)
    for _, _, request in heapq.nsmallest(budget, waiting):
        counts[request] += 1
    return counts


def grow_batch(
    budget: int, max_depth: int | None, acceptances: Iterable[Any]
) -> list[CandidateTree]:
    """One shape for each request, `budget` candidates in all, for the most tokens a
    round of the whole batch.

    `acceptances`: the slots of each request, none increasing. Every request has its
    root in any case, which the budget does not count. Raises `LawError` for increasing
    slots: the choice between requests would no longer be the optimum.
    """
    checks.integer(budget, "budget", least=0)
    growths = []
    for request, acceptance in enumerate(
        checks.entries(acceptances, "acceptances", "acceptance vectors", LawError)
    ):
        rows, every = by_depth(acceptance, f"acceptances[{request}]")
        slots = rows if every else rows[0]
        if found := increasing_slots(slots):
            raise LawError(f"acceptances[{request}] increases at {found[0]}")
        growths.append(grow(budget + 1, max_depth, slots))
    # A growth's values never increase, and each beginning of it is a tree.
    counts = admit([growth.values for growth in growths], budget)
    return [
        growth.shape(count + 1) for growth, count in zip(growths, counts, strict=True)
    ]
