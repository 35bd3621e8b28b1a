"""The stages of a round of draft heads, as numbers: what was timed, and what a planned
tree takes by it (section 0x06D). `head_costs` says what each stage is and times them;
reading and adding up need no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from .. import checks
from ..errors import SpecbookError
from ..tree import CandidateTree

STAGES = ("read", "step", "features", "lm_head", "law", "pick")
DEPENDS_ON_DEPTH = ("step", "features")
"""Those that are timed at each depth; the others are the same at all."""


@dataclass(frozen=True)
class Stage:
    """One stage on `rows` rows. `depth`: candidates since the pending token, so 0 is
    the level that drafts the children of the root; 0 for a stage that is the same at
    every depth. `seconds`: one for each turn."""

    name: str
    depth: int
    rows: int
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        checks.one_of(self.name, "name", STAGES)
        checks.integer(self.depth, "depth", least=0)
        checks.integer(self.rows, "rows", least=1)
        seconds = checks.entries(self.seconds, f"seconds of {self.name}", "numbers")
        if not seconds:
            raise SpecbookError(f"{self.name} was not timed: it has no seconds")
        for i, value in enumerate(seconds):
            checks.float64(value, f"seconds[{i}] of {self.name}", least=0)


@dataclass(frozen=True)
class StageCosts:
    """The stages of one kind of heads. `heads`: K. `independent`: whether the heads
    wait for no candidate. Raises `SpecbookError` where a stage is missing."""

    kind: str
    heads: int
    independent: bool
    stages: tuple[Stage, ...]

    def __post_init__(self) -> None:
        checks.text(self.kind, "kind")
        checks.integer(self.heads, "heads", least=1)
        checks.boolean(self.independent, "independent")
        for place, one in enumerate(checks.entries(self.stages, "stages", "stages")):
            if not isinstance(one, Stage):
                raise SpecbookError(f"stages[{place}] is no Stage: {one!r}")
        for name in STAGES:
            depths = range(self.heads) if name in DEPENDS_ON_DEPTH else range(1)
            for depth in depths:
                if self._needs(name, depth) and not self._sizes(name, depth):
                    raise SpecbookError(f"{self.kind}: {name} at {depth} is not timed")

    def _needs(self, name: str, depth: int) -> bool:
        return name != "step" or (depth > 0 and not self.independent)

    def _sizes(self, name: str, depth: int) -> dict[int, float]:
        """{rows: median seconds} of one stage."""
        return {
            one.rows: median(one.seconds)
            for one in self.stages
            if (one.name, one.depth) == (name, depth)
        }

    def seconds(self, name: str, depth: int = 0, rows: int = 1) -> float:
        """The median of a stage on `rows` rows: that of the next size that was timed,
        or above the largest in proportion. A step to depth 0 takes nothing, and so does
        any step of independent heads."""
        checks.one_of(name, "name", STAGES)
        checks.integer(depth, "depth", least=0, most=self.heads - 1)
        checks.integer(rows, "rows", least=1)
        if not self._needs(name, depth):
            return 0.0
        sizes = self._sizes(name, depth if name in DEPENDS_ON_DEPTH else 0)
        largest = max(sizes)
        size = min((n for n in sizes if n >= rows), default=largest)
        return sizes[size] * max(1.0, rows / largest)

    def head_stage(self, depth: int, rows: int = 1) -> float:
        """C_h: one stage of a head on its critical path, step, network and LM head."""
        return sum(
            self.seconds(name, depth, rows) for name in ("step", "features", "lm_head")
        )

    def critical_path(self, depth: int) -> float:
        """Seconds until the last of `depth` heads has said its most probable token: a
        stage each where heads wait for each other, else one for all."""
        checks.integer(depth, "depth", least=1, most=self.heads)
        if not self.independent:
            return sum(self.head_stage(level) for level in range(depth))
        networks = sum(self.seconds("features", level) for level in range(depth))
        return networks + self.seconds("lm_head", 0, depth)

    def drafting(self, shape: CandidateTree) -> float:
        """Seconds of all stages that a draft of `shape` needs; an empty one none."""
        levels = level_rows(shape)
        if not levels:
            return 0.0
        if len(levels) > self.heads:
            raise SpecbookError(
                f"the shape is {len(levels)} levels deep, {self.kind} has "
                f"{self.heads} heads"
            )
        total = self.seconds("read")
        for depth, rows in enumerate(levels):
            asked = 1 if self.independent else rows
            total += self.seconds("step", depth, asked)
            total += self.seconds("features", depth, asked)
            total += self.seconds("law", 0, asked) + self.seconds("pick", 0, rows)
            if not self.independent:
                total += self.seconds("lm_head", 0, rows)
        if self.independent:
            total += self.seconds("lm_head", 0, len(levels))
        return total


def level_rows(shape: CandidateTree) -> list[int]:
    """For each level of a draft of `shape` how many nodes have children there, the root
    first."""
    if not isinstance(shape, CandidateTree):
        raise SpecbookError(f"not a CandidateTree: {type(shape).__name__}")
    rows = [0] * shape.max_depth
    for parent in set(shape.parents):
        rows[0 if parent < 0 else shape.depths[parent]] += 1
    return rows
