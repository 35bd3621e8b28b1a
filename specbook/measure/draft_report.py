"""The result of `bench_draft.run`: speed against transformers' own assisted generation,
acceptance by depth, and what a drafted token costs. Reading it needs no torch.

Acceptance by depth counts rounds. At depth d a round is *offered* if its draft has a
d-th token, *reached* if all tokens before it were accepted too, and *accepted* if the
d-th was. Accepted over reached is the conditional acceptance, which says how good the
draft model is so far from the prefix; accepted over offered is the survival, which says
how often the d-th token pays. Rounds that were cut by the end of the output are not
counted: what the verifier thought of their last tokens is not known.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from .. import checks
from ..errors import SpecbookError
from .decode_report import Difference, PromptReport, Sample, speed_ratio
from .report import Ratio, Table, percent

if TYPE_CHECKING:
    from ..engine import Round
    from ..plotting import FramedFigure

SYSTEMS = (
    "transformers greedy",
    "transformers assisted",
    "specbook plain",
    "specbook draft model",
    "specbook staged",
)

RATIOS = (
    ("specbook draft model", "transformers assisted"),
    ("specbook draft model", "specbook plain"),
    ("specbook staged", "specbook draft model"),
    ("transformers assisted", "transformers greedy"),
)
"""The comparisons that are reported, faster-than-what: (system, baseline)."""

ALL = "all"
"""The workloads taken together."""


@dataclass(frozen=True)
class Depth:
    """Rounds of one workload at one temperature, counted at one depth (1 is the first
    drafted token)."""

    dtype: str
    workload: str
    temperature: float
    depth: int
    offered: int
    reached: int
    accepted: int

    @property
    def conditional(self) -> float | None:
        """Accepted of those whose earlier tokens were accepted; None if there are
        none."""
        return self.accepted / self.reached if self.reached else None

    @property
    def survival(self) -> float | None:
        """Accepted of those that had such a token; None if there are none."""
        return self.accepted / self.offered if self.offered else None


def by_depth(
    rounds: Iterable[Round], *, dtype: str, workload: str, temperature: float
) -> list[Depth]:
    """Acceptance by depth over rounds whose drafts were chains. See the module."""
    counts: list[list[int]] = []
    for done in rounds:
        length = done.tree.max_depth
        if length != len(done.tree):
            raise SpecbookError("acceptance by depth is counted on chains")
        if done.ending == "cut":
            continue
        while len(counts) < length:
            counts.append([0, 0, 0])
        for depth in range(length):
            counts[depth][0] += 1
            counts[depth][1] += done.accepted >= depth
            counts[depth][2] += done.accepted > depth
    return [
        Depth(dtype, workload, temperature, depth, *found)
        for depth, found in enumerate(counts, start=1)
    ]


def pooled(depths: Iterable[Depth]) -> list[Depth]:
    """The counts of all workloads added up, for each dtype, temperature and depth."""
    sums: dict[tuple[str, float, int], list[int]] = {}
    for item in depths:
        found = sums.setdefault((item.dtype, item.temperature, item.depth), [0, 0, 0])
        for place, name in enumerate(("offered", "reached", "accepted")):
            found[place] += getattr(item, name)
    return [
        Depth(dtype, ALL, temperature, depth, *found)
        for (dtype, temperature, depth), found in sorted(sums.items())
    ]


@dataclass(frozen=True)
class DraftReport(PromptReport):
    """Everything that one run measured. `depths` come from runs of their own, with
    drafts of one length; `settings` and `machine` say what was measured where."""

    KIND: ClassVar[str] = "draft report"
    STEM: ClassVar[str] = "draft"
    SYSTEMS: ClassVar[tuple[str, ...]] = SYSTEMS

    samples: tuple[Sample, ...]
    differences: tuple[Difference, ...] = ()
    depths: tuple[Depth, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)

    @property
    def workloads(self) -> tuple[str, ...]:
        """The workloads that were measured, in order, then all of them."""
        return (*super().workloads, ALL)

    @property
    def drawable(self) -> bool:
        """Whether acceptance by depth was measured."""
        return bool(self.depths)

    def select(self, dtype: str, workload: str, system: str) -> list[Sample]:
        """The samples of one cell; `workload` may be `ALL`."""
        checks.one_of(system, "system", SYSTEMS)
        checks.one_of(workload, "workload", self.workloads)
        return [
            s
            for s in self.samples
            if s.dtype == dtype and s.system == system and workload in (s.workload, ALL)
        ]

    def ratio(
        self, system: str, baseline: str, dtype: str, workload: str = ALL
    ) -> Ratio | None:
        """Tokens a second of `system` over those of `baseline`, sums over sums, with a
        bootstrap interval over prompts."""
        return speed_ratio(
            self.select(dtype, workload, system), self.select(dtype, workload, baseline)
        )

    def draft_seconds(self, dtype: str, system: str) -> float | None:
        """Seconds that a drafted token took, its proposal only; None if none was."""
        found = self.select(dtype, ALL, system)
        drafted = sum(s.drafted or 0 for s in found)
        spent = sum((s.cost_terms or {}).get("proposal", 0.0) for s in found)
        return spent / drafted if drafted else None

    def pair_rows(self) -> list[dict[str, Any]]:
        """One row for each dtype, workload and comparison."""
        return [
            {
                "dtype": dtype,
                "workload": workload,
                "system": system,
                "baseline": baseline,
                "ratio": ratio,
            }
            for dtype in self.dtypes
            for workload in self.workloads
            for system, baseline in RATIOS
            if (ratio := self.ratio(system, baseline, dtype, workload)) is not None
        ]

    # ------------------------------------------------------------------- output

    def options(self) -> list[str]:
        """One sentence for each system's settings: the two are not set alike."""
        told = []
        if ours := self.settings.get("options"):
            listed = ", ".join(f"{name} {value}" for name, value in ours.items())
            told.append(f"specbook draft model: {listed}; {self.settings['chosen']}.")
        if theirs := self.settings.get("transformers_assisted"):
            listed = ", ".join(f"{name} {value}" for name, value in theirs.items())
            told.append(f"transformers assisted: its defaults ({listed}).")
        return told

    def tables(self) -> list[Table]:
        return [
            (
                "Speed: tokens a second, sums over sums; [95 % bootstrap over prompts]",
                ["dtype", "workload", "system", "over", "ratio", "prompts"],
                [
                    [
                        row["dtype"],
                        row["workload"],
                        row["system"],
                        row["baseline"],
                        str(row["ratio"]),
                        str(row["ratio"].prompts),
                    ]
                    for row in self.pair_rows()
                ],
            ),
            (
                "Decoding: sums over all prompts",
                [
                    "dtype",
                    "system",
                    "prompts",
                    "tokens a second",
                    "tokens a round",
                    "drafted",
                    "accepted",
                    "ms a drafted token",
                ],
                [
                    self._cell(dtype, system)
                    for dtype in self.dtypes
                    for system in SYSTEMS
                    if self.select(dtype, ALL, system)
                ],
            ),
            (
                "Acceptance by depth: drafts of one length, rounds not cut by an end",
                [
                    "dtype",
                    "workload",
                    "temperature",
                    "depth",
                    "offered",
                    "reached",
                    "accepted",
                    "conditional",
                    "survival",
                ],
                [
                    [
                        item.dtype,
                        item.workload,
                        f"{item.temperature:g}",
                        str(item.depth),
                        str(item.offered),
                        str(item.reached),
                        str(item.accepted),
                        percent(item.conditional),
                        percent(item.survival),
                    ]
                    for item in (*self.depths, *pooled(self.depths))
                ],
            ),
            self.agreement(),
        ]

    def _cell(self, dtype: str, system: str) -> list[str]:
        found = self.select(dtype, ALL, system)
        tokens = sum(s.new_tokens for s in found)
        drafted = sum(s.drafted or 0 for s in found)
        accepted = sum(s.accepted or 0 for s in found)
        spent = self.draft_seconds(dtype, system)
        return [
            dtype,
            system,
            str(len(found)),
            f"{tokens / sum(s.seconds for s in found):.2f}",
            f"{tokens / sum(s.rounds for s in found):.2f}",
            str(drafted) if drafted else "",
            percent(accepted / drafted) if drafted else "",
            "" if spent is None else f"{1e3 * spent:.2f}",
        ]

    def figure(self) -> FramedFigure:
        """Survival of drafted tokens by depth, one curve a temperature. Raises
        `SpecbookError` if acceptance was not measured to two depths at least."""
        from .. import plotting

        series: dict[str, list[float]] = {}
        for item in pooled(self.depths):
            name = f"{item.dtype}, temperature {item.temperature:g}"
            series.setdefault(name, []).append(item.survival or 0.0)
        length = min(map(len, series.values()), default=0)
        if length < 2:
            raise SpecbookError("acceptance by depth was not measured")
        series = {name: values[:length] for name, values in series.items()}
        told = "; ".join(
            f"{name}: " + ", ".join(f"{value:.2f}" for value in values)
            for name, values in series.items()
        )
        return plotting.figure(
            plotting.curves(
                range(1, length + 1),
                series,
                "depth of the drafted token",
                "share of drafts accepted to this depth",
            ),
            alt="Falling curves: the share of drafted chains that are accepted down to "
            f"each depth. {told}.",
            caption="Every further token of a draft is accepted less often, so a draft "
            f"pays down to a depth and no further. Measured on: {self.where()}.",
        )

    def derived(self) -> dict[str, Any]:
        rows = [{**row, "ratio": asdict(row["ratio"])} for row in self.pair_rows()]
        return {"ratios": rows}
