"""Who wins at which tree size: drafting and verification over accepted tokens.

Section 0x06D compares (C_draft + C_T(N)) / E[A]. Dependent heads draft longer, since
one waits for the other, and are accepted more often, so that they need a smaller tree
or fewer rounds; independent heads are quick and need more rows. Which of the two wins
depends on what a row costs, hence on the size N: so every kind gets its own best tree
of every size, and the quotient is compared at each.

E[A] counts all tokens that a round commits, the correction or bonus token among them,
as G of a planned tree does; N counts the root.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import checks, lab
from ..errors import SpecbookError
from ..topologies.hardware import Candidate, choose

if TYPE_CHECKING:
    from ..plotting import FramedFigure


@dataclass(frozen=True)
class Point:
    """One kind at one size: its best tree there. `drafting`, `verifying`: C_draft and
    C_T(N); `tokens`: E[A]; `per_token`: their quotient, in the unit of the times."""

    kind: str
    nodes: int
    depth: int
    drafting: Any
    verifying: Any
    tokens: Any
    per_token: Any
    candidate: Candidate


@dataclass(frozen=True)
class Tradeoff:
    """Every kind at every size that its slots can fill. `plain`: the time of a plain
    step, None if it was not given."""

    points: tuple[Point, ...]
    plain: Any = None

    @property
    def kinds(self) -> tuple[str, ...]:
        """In the order in which they were given."""
        return tuple(dict.fromkeys(point.kind for point in self.points))

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes at which all kinds have a tree, smallest first."""
        found = [
            {point.nodes for point in self.points if point.kind == kind}
            for kind in self.kinds
        ]
        return tuple(sorted(set.intersection(*found))) if found else ()

    def at(self, kind: str, nodes: int) -> Point:
        """The best tree of a kind at a size. Raises `SpecbookError` without one."""
        for point in self.points:
            if (point.kind, point.nodes) == (kind, nodes):
                return point
        raise SpecbookError(f"{kind!r} has no tree of {nodes!r} nodes")

    def winner(self, nodes: int) -> Point:
        """The quickest of all kinds at a size; of equally quick ones the first."""
        found = [point for point in self.points if point.nodes == nodes]
        if not found:
            raise SpecbookError(f"no kind has a tree of {nodes!r} nodes")
        return min(found, key=lambda point: point.per_token)

    def best(self, kind: str | None = None) -> Point:
        """The quickest size of a kind, or of all; of equally quick ones the least."""
        found = [point for point in self.points if kind in (None, point.kind)]
        if not found:
            raise SpecbookError(f"{kind!r} is none of {list(self.kinds)}")
        return min(found, key=lambda point: (point.per_token, point.nodes))

    def table(self, scale: float = 1.0, unit: str = "") -> lab.Table:
        """One row a size: what a token costs for each kind, times `scale`, and who
        wins. `unit`: of the scaled times, for the head."""
        head = [
            "rows N",
            *(f"{kind}{f', {unit}' if unit else ''}" for kind in self.kinds),
        ]
        rows = [
            [
                str(n),
                *(
                    f"{float(scale * self.at(kind, n).per_token):.3g}"
                    for kind in self.kinds
                ),
                self.winner(n).kind,
            ]
            for n in self.sizes
        ]
        return lab.table([*head, "winner"], rows)

    def figure(self, scale: float, unit: str, where: str) -> FramedFigure:
        """What a token costs over the size, a line a kind. Times are drawn `scale`
        times as large, in `unit`; `where`: machine and date, for the caption."""
        from .. import plotting

        lines = {}
        for kind in self.kinds:
            mine = [point for point in self.points if point.kind == kind]
            lines[kind] = (
                [point.nodes for point in mine],
                [float(scale * point.per_token) for point in mine],
            )
        told = "; ".join(
            f"{kind} least at {self.best(kind).nodes} rows, "
            f"{float(scale * self.best(kind).per_token):.3g} {unit}"
            for kind in self.kinds
        )
        plain = None if self.plain is None else float(scale * self.plain)
        if not self.sizes:
            raise SpecbookError("there is no size at which all kinds have a tree")
        best, small = self.best(), self.winner(self.sizes[0])
        return plotting.figure(
            plotting.tradeoff(lines, f"{unit} a token", plain=plain),
            "Lines of the time of a token over the rows of a verification, one for "
            f"each kind of heads, the least of each filled: {told}.",
            f"At {small.nodes} rows {small.kind} is quickest; of all sizes, "
            f"{best.kind} at {best.nodes} rows. Measured on {where}.",
        )


def tradeoff(
    acceptance: Mapping[str, Any],
    verify_time: Mapping[int, Any],
    draft_time: Mapping[str, Any],
    *,
    max_depth: int | None = None,
) -> Tradeoff:
    """(C_draft + C_T(N)) / E[A] of every kind at every measured size.

    `acceptance`: {kind: slots, or a row of slots a depth} (`optimize_tree`).
    `verify_time`: {N: C_T(N)}. `draft_time`: {kind: a function that tells what drafting
    a shape costs (`StageCosts.drafting`), or the cost of one level}. One unit for both;
    Fractions stay exact. At each size the best depth counts. A size of one row is plain
    decoding and no kind's: it is `plain`. Raises `SpecbookError` for kinds that are not
    the same in both, and what `hardware.choose` raises.
    """
    for value, name in ((acceptance, "acceptance"), (draft_time, "draft_time")):
        if not isinstance(value, Mapping) or not value:
            raise SpecbookError(f"{name} must map kinds, got {value!r}")
    if set(acceptance) != set(draft_time):
        raise SpecbookError(
            f"acceptance is of {list(acceptance)}, draft_time of {list(draft_time)}"
        )
    if not isinstance(verify_time, Mapping):
        raise SpecbookError(f"verify_time must map N to C_T(N), got {verify_time!r}")
    larger = {n: t for n, t in verify_time.items() if n != 1}
    if (plain := verify_time.get(1)) is not None:
        checks.real(plain, "t(1)", least=0)
    points = []
    for kind, slots in acceptance.items():
        checks.text(kind, "a kind")
        choice = choose(slots, larger, draft_time[kind], max_depth=max_depth)
        best: dict[int, Candidate] = {}
        for candidate in choice.candidates:  # fastest first
            best.setdefault(candidate.nodes, candidate)
        for nodes, one in sorted(best.items()):
            verifying = verify_time[nodes]
            points.append(
                Point(
                    kind,
                    nodes,
                    one.depth,
                    one.steps - verifying,
                    verifying,
                    one.progress,
                    one.steps / one.progress,
                    one,
                )
            )
    return Tradeoff(tuple(points), plain)
