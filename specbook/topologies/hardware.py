"""The tree that this machine should run: progress against what its rows cost.

The tree with the most expected tokens is rarely the fastest one. With t(n) the time to
verify n rows, root included, and c the time of one draft step, both in target steps of
one row, a round of a tree of n nodes and d edges commits G(n, d) tokens in t(n) + d c
steps, so that

    speed-up(n, d) = G(n, d) / (t(n) + d c)

and every n that was measured is looked at with every depth: t is a staircase on most
machines, so the best n need not lie where a smooth curve would put it. An n that was
not measured has no time, and is no candidate (section 0x0AD).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import checks
from ..errors import SpecbookError, TreeError
from ..proposal import PREFIX_FRONTIER
from ..tree import CandidateTree
from .acceptance import by_depth, increasing_slots
from .best_first import grow
from .observed import Observed
from .progress import PlannedTree
from .sequoia import solve


@dataclass(frozen=True)
class Candidate:
    """A tree with its price. `nodes` with the root, `depth` in edges, `progress` G in
    tokens, `steps` t(n) + d c in target steps of one row, `speedup` their quotient."""

    nodes: int
    depth: int
    progress: Any
    steps: Any
    speedup: Any
    plan: PlannedTree

    @property
    def tree(self) -> CandidateTree:
        """The shape, without the root."""
        return self.plan.tree

    @property
    def time_per_token(self) -> Any:
        """In target steps of one row: 1 is plain decoding."""
        return self.steps / self.progress


@dataclass(frozen=True)
class Choice:
    """The fastest tree and all that it was chosen from, fastest first. Of equally fast
    ones the smallest, then the shallowest."""

    candidates: tuple[Candidate, ...]

    @property
    def best(self) -> Candidate:
        """The chosen one."""
        return self.candidates[0]

    @property
    def speedup(self) -> Any:
        """Of the chosen tree, over decoding one token a step."""
        return self.best.speedup

    @property
    def score(self) -> Any:
        """G of the chosen tree: expected tokens a round, root included."""
        return self.best.progress

    @property
    def tree(self) -> CandidateTree:
        """The chosen shape, without the root."""
        return self.best.tree


def choose(
    acceptance: Any,
    verify_time: Mapping[int, Any],
    draft_time: Any,
    *,
    max_depth: int | None = None,
) -> Choice:
    """The fastest tree for these prices.

    `acceptance`: as for `solve`. `verify_time`: {n: t(n)}, n counting the root;
    `draft_time`: c, for a source whose round costs as many equal steps as its tree
    is deep, or a function that tells what drafting a shape costs. All in units of
    t(1); an exact answer for Fractions. `max_depth`: the deepest tree that is
    looked at. One node, plain decoding, is a candidate if t(1) is among the times.
    Raises `SpecbookError` for no times, times that are not positive, and a negative
    c, and what `solve` raises.
    """
    if not isinstance(verify_time, Mapping) or not verify_time:
        raise SpecbookError(f"verify_time must map n to t(n), got {verify_time!r}")
    rows, every = by_depth(acceptance)
    acceptance = rows if every else rows[0]  # an iterator can be read only once
    exact = not isinstance(rows[0][0], float)
    read = checks.real if exact else checks.float64
    times = {
        checks.integer(n, "n of verify_time", least=1): read(t, f"t({n})")
        for n, t in verify_time.items()
    }
    if low := [n for n, t in times.items() if not t > 0]:
        raise SpecbookError(f"t({low[0]}) must be above 0, got {times[low[0]]}")
    if callable(draft_time):
        drafting = draft_time
    else:
        c = read(draft_time, "draft_time", least=0)

        def drafting(shape: CandidateTree) -> Any:
            return shape.max_depth * c

    found = []
    for plan in plans(acceptance, sorted(times), max_depth):
        drafted = read(drafting(plan.tree), "draft_time", least=0)
        steps = times[plan.nodes] + drafted
        found.append(
            Candidate(
                plan.nodes, plan.depth, plan.score, steps, plan.score / steps, plan
            )
        )
    if not found:
        raise SpecbookError(
            f"no tree of {sorted(times)} nodes is possible with these slots and depths"
        )
    found.sort(key=lambda one: (-one.speedup, one.nodes, one.depth))
    return Choice(tuple(found))


def plans(
    acceptance: Any, sizes: Iterable[int], max_depth: int | None = None
) -> list[PlannedTree]:
    """The optimal tree of every size in `sizes` at every depth limit, each shape once.

    By best-first where no slot increases, otherwise by the recurrence. A limit that
    brings no other tree is passed over, and depths end where more of them change
    nothing.
    """
    wanted = sorted(
        {
            checks.integer(n, f"sizes[{i}]", least=1)
            for i, n in enumerate(checks.entries(sizes, "sizes", "node counts"))
        }
    )
    if not wanted:
        raise SpecbookError("sizes is empty: there is no tree to look for")
    rows, every = by_depth(acceptance)
    acceptance = rows if every else rows[0]
    deepest = min(wanted[-1] - 1, len(rows) if every else wanted[-1] - 1)
    if max_depth is not None:
        checks.integer(max_depth, "max_depth", least=0)
        if every and max_depth > len(rows):
            raise SpecbookError(
                f"max_depth is {max_depth}, acceptance has rows for {len(rows)} depths"
            )
        deepest = min(deepest, max_depth)
    kept = tuple(map(tuple, rows))
    rising = increasing_slots(acceptance)
    table = solve(wanted[-1], deepest, acceptance) if rising else None
    found: dict[tuple[int, tuple[int, ...], tuple[int, ...]], PlannedTree] = {}
    before: Any = None
    for depth in range(deepest + 1):
        if table is not None:
            made = [
                table.tree(n, depth) for n in wanted if table.score(n, depth) != -np.inf
            ]
        else:
            growth = grow(wanted[-1], depth, acceptance)
            scores = growth.scores()
            if growth == before:
                break
            before = growth
            made = [
                PlannedTree(scores[n - 1], growth.shape(n), "best-first", kept)
                for n in wanted
                if n <= len(scores)
            ]
        for plan in made:
            key = (plan.nodes, plan.tree.parents, plan.tree.token_ids)
            found.setdefault(key, plan)
    return list(found.values())


# -------------------------------------------------------------------- uncertainty


@dataclass(frozen=True)
class Times:
    """Measured seconds. `verify[turn, i]`: a verification of `nodes[i]` rows, root
    included, n = 1 among them; the sizes took turns, so a row of the table is one
    moment of the machine. `draft`: {rows: seconds of single draft steps over so many
    rows}, empty for a source that runs no model. `batch`: so many requests share a
    verification; a level of their drafts is one step over the rows of all."""

    nodes: tuple[int, ...]
    verify: np.ndarray
    draft: Mapping[int, np.ndarray]
    batch: int = 1

    def __post_init__(self) -> None:
        sizes = tuple(
            checks.integer(n, f"nodes[{i}]", least=1)
            for i, n in enumerate(checks.entries(self.nodes, "nodes", "row counts"))
        )
        if 1 not in sizes or len(set(sizes)) != len(sizes):
            raise SpecbookError(f"nodes must differ and hold 1, got {list(sizes)}")
        checks.integer(self.batch, "batch", least=1)
        object.__setattr__(self, "nodes", sizes)
        verify = _seconds(self.verify, "verify", 2)
        if verify.shape[1] != len(sizes) or not len(verify):
            raise SpecbookError(
                f"verify has shape {verify.shape} for {len(sizes)} sizes"
            )
        object.__setattr__(self, "verify", verify)
        if not isinstance(self.draft, Mapping):
            raise SpecbookError(f"draft must map rows to seconds, got {self.draft!r}")
        steps = {
            checks.integer(n, "rows of draft", least=1): _seconds(x, f"draft[{n}]", 1)
            for n, x in sorted(self.draft.items())
        }
        if empty := [n for n, seconds in steps.items() if not len(seconds)]:
            raise SpecbookError(f"draft[{empty[0]}] has no time")
        object.__setattr__(self, "draft", steps)

    @property
    def one(self) -> float:
        """Seconds of a verification of one row: the unit of t(n) and c."""
        return float(np.median(self.verify[:, self.nodes.index(1)]))

    def steps(self) -> dict[int, float]:
        """{n: t(n)}: the median of a size over the median of one row."""
        medians = np.median(self.verify, axis=0)
        return {
            n: float(m / self.one) for n, m in zip(self.nodes, medians, strict=True)
        }

    def draft_steps(self, shape: CandidateTree) -> float:
        """What drafting `shape` costs, in target steps of one row: a draft step for
        each level, over as many rows as have children there."""
        if not isinstance(shape, CandidateTree):
            raise TreeError(f"not a CandidateTree: {type(shape).__name__}")
        medians = {n: float(np.median(x)) for n, x in self.draft.items()}
        return float(_drafting(shape, medians, 0.0, self.batch)) / self.one


def _seconds(values: Any, name: str, dimensions: int) -> np.ndarray:
    try:
        table = np.asarray(values, dtype=np.float64)
    except (ValueError, TypeError, OverflowError) as problem:
        raise SpecbookError(f"{name} must hold seconds: {problem}") from None
    if table.ndim != dimensions or not (np.isfinite(table) & (table > 0)).all():
        raise SpecbookError(f"{name} must hold positive seconds, got {table!r}")
    return table


def _drafting(
    shape: CandidateTree, steps: Mapping[int, Any], nothing: Any, batch: int
) -> Any:
    """The sum of `steps` over the levels of `shape`, for `batch` requests: of the next
    size that was measured, or above the largest in proportion to the rows."""
    if not steps or not len(shape):
        return nothing
    parents = set(shape.parents) - {PREFIX_FRONTIER}
    rows = [1] + [0] * (shape.max_depth - 1)
    for parent in parents:
        rows[shape.depths[parent]] += 1
    total = nothing
    largest = max(steps)
    for count in rows:
        count *= batch
        size = min((n for n in steps if n >= count), default=largest)
        total = total + steps[size] * max(1.0, count / largest)
    return total


@dataclass(frozen=True)
class Standing:
    """A candidate under uncertainty. `wins`: in which share of the resampled worlds it
    is the fastest. `speedup`: 95 % interval. `against_best`: the interval of its
    speed-up over the chosen tree's, world by world."""

    candidate: Candidate
    wins: float
    speedup: tuple[float, float]
    against_best: tuple[float, float]


@dataclass(frozen=True)
class Decision:
    """A choice and how sure it is. `standing`: that of the chosen tree. `near_ties`:
    the others whose interval against it reaches 1, fastest first: the measurements
    cannot tell them from it."""

    choice: Choice
    standing: Standing
    near_ties: tuple[Standing, ...]
    worlds: int


def decide(
    observed: Observed,
    times: Times,
    *,
    max_depth: int | None = None,
    worlds: int = 1000,
    seed: int = 0,
) -> Decision:
    """Chooses a tree from measurements, and says how sure the choice is.

    Both measurements are drawn again `worlds` times: prompts with all their counts,
    because the nodes of one text are alike, and turns of the clock with all their
    sizes. The candidates are the optimal trees of the measured slots; in each world
    they are priced anew. Pooled observations (`Observed.pooled`) may plan deeper than
    they were made. Raises `SpecbookError` for what are no observations or times.
    """
    if not isinstance(observed, Observed):
        raise SpecbookError(f"observed must be Observed, got {observed!r}")
    if not isinstance(times, Times):
        raise SpecbookError(f"times must be Times, got {times!r}")
    checks.integer(worlds, "worlds", least=1)
    checks.integer(seed, "seed", least=0)
    choice = choose(
        observed.acceptance(), times.steps(), times.draft_steps, max_depth=max_depth
    )
    rng = np.random.default_rng(seed)
    drawn = observed.drawn_again(rng, worlds)
    turns = rng.integers(len(times.verify), size=(worlds, len(times.verify)))
    medians = np.median(times.verify[turns], axis=1)
    one = medians[:, times.nodes.index(1)]
    draft = {
        n: np.median(x[rng.integers(len(x), size=(worlds, len(x)))], axis=1) / one
        for n, x in times.draft.items()
    }
    speeds = np.stack(
        [
            progress_in_worlds(c.tree, drawn, observed.every_depth)
            / (
                medians[:, times.nodes.index(c.nodes)] / one
                + _drafting(c.tree, draft, np.zeros(worlds), times.batch)
            )
            for c in choice.candidates
        ]
    )
    wins = np.bincount(speeds.argmax(axis=0), minlength=len(speeds)) / worlds
    standings = [
        Standing(
            candidate,
            float(wins[number]),
            _interval(speeds[number]),
            _interval(speeds[number] / speeds[0]),
        )
        for number, candidate in enumerate(choice.candidates)
    ]
    near = tuple(one for one in standings[1:] if one.against_best[1] >= 1)
    return Decision(choice, standings[0], near, worlds)


def progress_in_worlds(
    shape: CandidateTree, rows: np.ndarray, every_depth: bool
) -> np.ndarray:
    """G [worlds] of one shape in every world: `expected_progress` of slots that were
    drawn again, `rows` [worlds, depths, 1 + slots] (`Observed.drawn_again`).
    `every_depth`: each depth has rows of its own, otherwise the first stand for all.
    Section 0x0AA."""
    total = np.ones(len(rows))
    values: list[np.ndarray] = []
    for rank, parent, depth in zip(
        shape.token_ids, shape.parents, shape.depths, strict=True
    ):
        slot = rows[:, depth - 1 if every_depth else 0, rank + 1]
        values.append(slot if parent < 0 else values[parent] * slot)
        total += values[-1]
    return total


def _interval(values: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(values, (0.025, 0.975))
    return float(low), float(high)
