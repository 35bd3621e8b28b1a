"""`specbook bench trees`: what it takes to find a tree.

The recurrence and best-first growth are timed in turns on the same slots, and with them
the recurrence as it is usually written, one state at a time in Python, at a size where
that is bearable. Scores are compared on the way: a fast answer to another question
would be no answer (section 0x0AC).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .. import checks
from ..errors import SpecbookError
from ..topologies.acceptance import one_row
from ..topologies.best_first import grow
from ..topologies.sequoia import solve
from .report import Report, Table, save
from .setup import clock_of, folder, machine, teller

if TYPE_CHECKING:
    from ..plotting import FramedFigure

RECURRENCE = (64, 128, 256, 512)
BEST_FIRST = (64, 512, 10_000, 100_000)
PLAIN = (64, 128)
QUICK = {"recurrence": (64, 128), "best-first": (64, 10_000), "plain loops": (64,)}
DEPTH, SLOTS = 9, 32
AIMS = {("recurrence", 512): 3.0, ("best-first", 100_000): 1.0}
"""Seconds."""


@dataclass(frozen=True)
class Solved:
    """One way at one size: seconds of each turn, and the score G that it found."""

    way: str
    nodes: int
    seconds: tuple[float, ...]
    score: float


@dataclass(frozen=True)
class TreesReport(Report):
    """What one run measured."""

    KIND: ClassVar[str] = "trees report"
    STEM: ClassVar[str] = "trees"

    solved: tuple[Solved, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.solved:
            raise SpecbookError("solved is empty: nothing was timed")
        best: dict[int, Solved] = {}
        for item in self.solved:
            checks.integer(item.nodes, f"nodes of {item.way}", least=1)
            checks.float64(item.score, f"score of {item.way}, {item.nodes}", least=1)
            if not item.seconds or any(not s > 0 for s in item.seconds):
                raise SpecbookError(f"{item.way}, {item.nodes}: times must be above 0")
            one = best.setdefault(item.nodes, item)
            if abs(one.score - item.score) > 1e-9:
                raise SpecbookError(
                    f"{item.nodes} nodes: {one.way} finds {one.score}, {item.way} "
                    f"finds {item.score}"
                )

    def seconds(self, way: str, nodes: int) -> float | None:
        """The median of one way at one size; None if it was not timed."""
        for item in self.solved:
            if (item.way, item.nodes) == (way, nodes):
                return median(item.seconds)
        return None

    def aims(self) -> list[dict[str, Any]]:
        """What was aimed at and measured, in seconds, and whether it was kept."""
        rows = []
        for (way, nodes), aim in AIMS.items():
            found = self.seconds(way, nodes)
            if found is not None:
                told = f"{way}, {nodes} nodes"
                rows.append(
                    {"what": told, "measured": found, "aim": aim, "kept": found <= aim}
                )
        return rows

    def derived(self) -> dict[str, Any]:
        return {"aims": self.aims()}

    def options(self) -> list[str]:
        return [
            f"{self.settings.get('slots')} slots that do not increase, at most "
            f"{self.settings.get('depth')} edges deep; every size and depth up to the "
            f"one given is answered. Measured on {self.where()}."
        ]

    def tables(self) -> list[Table]:
        rows = []
        for item in self.solved:
            other = self.seconds("recurrence", item.nodes)
            here = median(item.seconds)
            ratio = "" if other is None else f"{here / other:.3g}"
            aim = AIMS.get((item.way, item.nodes))
            rows.append(
                [
                    item.way,
                    str(item.nodes),
                    f"{here:.4f}",
                    f"{min(item.seconds):.4f} to {max(item.seconds):.4f}",
                    ratio,
                    f"{item.score:.4f}",
                    "" if aim is None else f"{aim:g}",
                ]
            )
        head = ["way", "nodes", "seconds", "turns", "over recurrence", "G", "aim, s"]
        return [("Finding a tree", head, rows)]

    def figure(self) -> FramedFigure:
        """Seconds over nodes, one line a way."""
        from .. import plotting

        lines = {}
        for way in dict.fromkeys(item.way for item in self.solved):
            items = [item for item in self.solved if item.way == way]
            lines[way] = (
                [item.nodes for item in items],
                [median(item.seconds) for item in items],
                [min(item.seconds) for item in items],
                [max(item.seconds) for item in items],
            )
        largest = max(self.solved, key=lambda item: item.nodes)
        return plotting.figure(
            plotting.growth(lines, "nodes of the tree", "seconds"),
            "Seconds to find the best tree over its number of nodes, both axes "
            f"logarithmic, one line for each of: {', '.join(lines)}.",
            f"{largest.way} finds {largest.nodes:,} nodes in "
            f"{median(largest.seconds):.2g} s. Measured on {self.where()}.",
        )


def run(
    *,
    repeats: int = 5,
    seed: int = 0,
    clock: str = "wall",
    quick: bool = False,
    out: str | os.PathLike[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> TreesReport:
    """Times all ways in turns and returns the report.

    `repeats`: turns. `seed`: of the slots. `clock`: "wall" or "cpu". `quick`: small
    sizes. `out`: a folder for `trees.json`, `trees.md` and `trees.png`. Raises
    `ValueError` for bad options, before anything is timed.
    """
    checks.integer(repeats, "repeats", least=1)
    checks.integer(seed, "seed", least=0)
    checks.boolean(quick, "quick")
    now, tell = clock_of(clock), teller(progress)
    if out is not None:
        out = folder(out)
    sizes = (
        QUICK
        if quick
        else {
            "recurrence": RECURRENCE,
            "best-first": BEST_FIRST,
            "plain loops": PLAIN,
        }
    )
    slots = falling_slots(SLOTS, seed)
    ways: dict[str, Callable[[int], float]] = {
        "recurrence": lambda n: float(solve(n, DEPTH, slots).score(n, DEPTH)),
        "best-first": lambda n: float(grow(n, DEPTH, slots).scores()[-1]),
        "plain loops": lambda n: plain_loops(n, DEPTH, slots),
    }
    spent: dict[tuple[str, int], list[float]] = {}
    scores: dict[tuple[str, int], float] = {}
    for turn in range(repeats):
        tell(f"turn {turn + 1} of {repeats}")
        for way, listed in sizes.items():
            for nodes in listed:
                began = now()
                scores[way, nodes] = ways[way](nodes)
                spent.setdefault((way, nodes), []).append(now() - began)
    report = TreesReport(
        tuple(
            Solved(way, nodes, tuple(seconds), scores[way, nodes])
            for (way, nodes), seconds in spent.items()
        ),
        {
            "slots": SLOTS,
            "depth": DEPTH,
            "repeats": repeats,
            "seed": seed,
            "clock": clock,
            "quick": quick,
        },
        machine(),
    )
    if out is not None:
        save(report, out)
    return report


def falling_slots(count: int, seed: int) -> list[float]:
    """[0, p_1, ...]: a draw of slots that do not increase, with a stop mass."""
    checks.integer(count, "count", least=1)
    checks.integer(seed, "seed", least=0)
    weights = np.random.default_rng(seed).dirichlet(np.full(count + 1, 0.3))
    return [0.0, *sorted(weights[1:].tolist(), reverse=True)]


def plain_loops(max_nodes: int, max_depth: int, acceptance: Sequence[float]) -> float:
    """G of the best tree of `max_nodes` nodes: the recurrence, state by state; minus
    infinity if there is none."""
    checks.integer(max_nodes, "max_nodes", least=1)
    checks.integer(max_depth, "max_depth", least=0)
    acceptance = one_row(acceptance)
    never = float("-inf")
    slots = range(1, len(acceptance))
    below = [never, 1.0] + [never] * (max_nodes - 1)
    alone = list(below)
    for _ in range(max_depth):
        best = list(alone)
        before = alone
        for branch in slots:
            now = [never] * (max_nodes + 1)
            for nodes in range(branch + 1, max_nodes + 1):
                for left in range(branch, nodes):
                    if before[left] > never and below[nodes - left] > never:
                        total = before[left] + acceptance[branch] * below[nodes - left]
                        if total > now[nodes]:
                            now[nodes] = total
            best = [max(pair) for pair in zip(best, now, strict=True)]
            before = now
        below = best
    return below[max_nodes]
