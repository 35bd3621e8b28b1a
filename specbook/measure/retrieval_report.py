"""The result of `specbook bench retrieval`: what was measured of each index, ratios, a
table, a figure and a JSON file. Reading and reporting need no index.

Times and memory are medians of runs that took turns; a ratio of query times is a sum
over a sum, with an interval from drawing the queries again, as in `decode_report`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..errors import SpecbookError
from .report import Ratio, Report, Table, resampled
from .retrieval_growth import Grown

if TYPE_CHECKING:
    from ..plotting import FramedFigure

OURS, PEER = "suffix array", "Arctic suffix tree"
GROUPS = ("specbook", "ArcticInference", "no index")
AIMS = (("build", 1.0), ("held", 1.0), ("query", 2.0))
"""What our index aims at, as the most of each ratio to the peer's."""


@dataclass(frozen=True)
class Measured:
    """One index. `build`: seconds of each build. `held` and `peak`: bytes that a build
    adds to a fresh process, afterwards and at most. `queries`: seconds of each query,
    by its number; a slow system is asked a part of them. `checked` and `wrong` count
    the answers that were compared with the plain scan's. `absent`: why it did not run,
    and how to get it; then the rest is empty."""

    system: str
    version: str = ""
    better: str = ""
    build: tuple[float, ...] = ()
    held: int | None = None
    peak: int | None = None
    queries: dict[int, float] = field(default_factory=dict)
    checked: int = 0
    wrong: int = 0
    absent: str = ""


@dataclass(frozen=True)
class RetrievalReport(Report):
    """Everything that one benchmark run measured. `tokens`, `documents`: the size of
    the corpus. `grown`: the texts that grew, see `retrieval_growth`. `machine` and
    `settings` say what was measured where."""

    KIND: ClassVar[str] = "retrieval report"
    STEM: ClassVar[str] = "retrieval"

    measured: tuple[Measured, ...]
    tokens: int
    documents: int
    grown: tuple[Grown, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)

    def of(self, system: str) -> Measured:
        """What was measured of one system. Raises `ValueError` for an unknown one."""
        for item in self.measured:
            if item.system == system:
                return item
        raise SpecbookError(
            f"no system is called {system!r}; there are "
            f"{[item.system for item in self.measured]}"
        )

    def ratio(self, what: str, system: str, baseline: str) -> Ratio | None:
        """`what` of `system` over that of `baseline`: "build" and "held" and "peak"
        (medians), or "query" (sums over the queries that both were asked, with a
        bootstrap interval over them). None where one of them was not measured."""
        one, other = self.of(system), self.of(baseline)
        if what == "query":
            return _sums(one.queries, other.queries)
        if what == "build":
            pair = [median(m.build) if m.build else None for m in (one, other)]
            runs = min(len(one.build), len(other.build))
        elif what in ("held", "peak"):
            pair, runs = [getattr(m, what) for m in (one, other)], 1
        else:
            raise SpecbookError(
                f"what must be build, held, peak or query, got {what!r}"
            )
        if pair[0] is None or not pair[1]:
            return None
        value = float(pair[0] / pair[1])
        if what == "build":
            low = min(one.build) / max(other.build)
            high = max(one.build) / min(other.build)
            return Ratio(value, low, high, runs)
        return Ratio(value, value, value, runs)

    def growth_ratio(self, system: str, baseline: str) -> Ratio | None:
        """Seconds of `system` over those of `baseline` on the growing texts, a sum over
        a sum with an interval over the texts; None where one did not run."""
        both = []
        for name in (system, baseline):
            found = [item for item in self.grown if item.system == name]
            if not found or found[0].absent:
                return None
            both.append(dict(enumerate(found[0].seconds)))
        return _sums(both[0], both[1])

    def aims(self) -> list[dict[str, Any]]:
        """Our index against the peer's: each ratio, the most that it aims at, and
        whether it keeps to that (None where the peer is absent)."""
        rows = []
        for what, most in AIMS:
            found = self.ratio(what, OURS, PEER)
            kept = None if found is None else found.value <= most
            rows.append({"what": what, "most": most, "ratio": found, "kept": kept})
        return rows

    # ------------------------------------------------------------------- output

    def strengths(self) -> list[str]:
        """What each index is better at; for one that did not run, how to get it."""
        return [
            f"*{m.system}*: {f'did not run: {m.absent}' if m.absent else m.better}."
            for m in self.measured
        ]

    def tables(self) -> list[Table]:
        size = f"{self.tokens:,} tokens in {self.documents:,} documents"
        tables = [
            (
                f"Indexes of {size}: medians",
                [
                    "index",
                    "build, s",
                    "held, bytes a token",
                    "peak",
                    "query, \N{MICRO SIGN}s",
                    "95th of 100",
                    "answers checked",
                    "wrong",
                ],
                [self._row(item) for item in self.measured],
            )
        ]
        rows = []
        for aim in self.aims():
            kept = {None: "not measured", True: "kept", False: "missed"}[aim["kept"]]
            told = str(aim["ratio"] or "")
            rows.append([aim["what"], told, f"{aim['most']:g}", kept])
        title = f"{OURS} over {PEER}: ratios; [spread of builds, 95 % over queries]"
        tables.append((title, ["of", "ratio", "aim, at most", ""], rows))
        if self.grown:
            head = [
                "index",
                "\N{MICRO SIGN}s a token",
                f"over {PEER}",
                "first token right",
                "right tokens a draft",
            ]
            rows = [self._growth_row(item) for item in self.grown]
            tables.append(("A text that grows: a token in, a draft out", head, rows))
        return tables

    def _growth_row(self, item: Grown) -> list[str]:
        if item.absent:
            return [item.system, "absent", *[""] * 3]
        tokens = max(1, item.total)
        return [
            item.system,
            f"{1e6 * sum(item.seconds) / tokens:.1f}",
            str(self.growth_ratio(item.system, PEER) or ""),
            f"{item.first / tokens:.0%}",
            f"{item.agreed / tokens:.2f}",
        ]

    def _row(self, item: Measured) -> list[str]:
        if item.absent:
            return [item.system, "absent", *[""] * 6]
        times = [1e6 * seconds for seconds in item.queries.values()]

        def per_token(value: int | None) -> str:
            return "" if value is None else f"{value / max(1, self.tokens):.1f}"

        return [
            item.system,
            f"{median(item.build):.2f}" if item.build else "",
            per_token(item.held),
            per_token(item.peak),
            f"{median(times):.1f}" if times else "",
            f"{np.quantile(times, 0.95):.1f}" if times else "",
            str(item.checked),
            str(item.wrong),
        ]

    def figure(self) -> FramedFigure:
        """Build time, memory and query time of every index that ran, logarithmic."""
        from .. import plotting

        return _figure(self, plotting)

    def derived(self) -> dict[str, Any]:
        rows = [
            {**aim, "ratio": aim["ratio"] and asdict(aim["ratio"])}
            for aim in self.aims()
        ]
        return {"aims": rows}


def _sums(one: Mapping[int, float], other: Mapping[int, float]) -> Ratio | None:
    """Sum over sum of what both have, with a bootstrap interval."""
    both = sorted(one.keys() & other.keys())
    if not both:
        return None
    table = [[one[n], other[n]] for n in both]
    return resampled(table, lambda sums: sums[:, 0] / sums[:, 1])


def _group(system: str) -> int:
    return 1 if system.startswith("Arctic") else 2 if system == "plain scan" else 0


def _figure(report: RetrievalReport, plotting: Any) -> FramedFigure:
    from matplotlib.figure import Figure

    ran = [item for item in report.measured if not item.absent]
    tokens = max(1, report.tokens)
    panels: list[tuple[str, str, Callable[[Measured], float | None]]] = [
        (
            "build",
            "nanoseconds a token",
            lambda m: 1e9 * median(m.build) / tokens if m.build else None,
        ),
        (
            "memory held",
            "bytes a token",
            lambda m: None if m.held is None or m.held <= 0 else m.held / tokens,
        ),
        (
            "query",
            "microseconds",
            lambda m: 1e6 * median(m.queries.values()) if m.queries else None,
        ),
    ]
    told = []
    with plotting.style():
        fig = Figure(figsize=(7.2, 1.6 + 0.4 * len(ran)), layout="constrained")
        axes = fig.subplots(1, len(panels), sharey=True)
        for ax, (title, unit, value) in zip(axes, panels, strict=True):
            for place, item in enumerate(ran):
                if (found := value(item)) is None:
                    continue
                group = _group(item.system)
                ax.plot(
                    found,
                    place,
                    label=GROUPS[group],
                    marker=plotting.MARKERS[group],
                    color=plotting.COLOURS[group],
                    linestyle="none",
                )
                number = f"{found:,.0f}" if found >= 100 else f"{found:.3g}"
                ax.annotate(
                    number,
                    (found, place),
                    xytext=(0, 6),
                    textcoords="offset points",
                    ha="center",
                    fontsize=plotting.SMALLEST_TEXT,
                )
                told.append(f"{item.system}, {title}: {number} {unit}")
            ax.set_xscale("log")
            ax.margins(x=0.25, y=0.2)
            ax.set_title(title)
            ax.set_xlabel(unit)
        handles = dict(zip(*reversed(axes[0].get_legend_handles_labels()), strict=True))
        fig.legend(
            handles.values(), handles.keys(), loc="outside upper center", ncols=3
        )
        axes[0].set_yticks(range(len(ran)), [item.system for item in ran])
        axes[0].invert_yaxis()
        kept = [aim["what"] for aim in report.aims() if aim["kept"]]
        missed = [aim["what"] for aim in report.aims() if aim["kept"] is False]
        conclusion = "The peer did not run"
        if kept or missed:
            conclusion = (
                f"Against {PEER} the {OURS} keeps its aim for "
                f"{' and '.join(kept) or 'nothing'}"
                + (f", and misses it for {' and '.join(missed)}" if missed else "")
            )
        return plotting.figure(
            fig,
            alt="Three panels of dots on logarithmic axes, one row an index: build "
            f"time, memory and query time. {'; '.join(told)}.",
            caption=f"{conclusion}. {report.tokens:,} tokens; medians. Measured on: "
            f"{report.where()}.",
        )
