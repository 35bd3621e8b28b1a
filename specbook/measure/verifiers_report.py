"""The result of `specbook bench verifiers`: what a rule's own choice costs at a real
vocabulary, what the optimum costs, and what finding a plan costs. Reading it needs no
model.

A rule runs once a node, between two forwards of the target, so its time is added to
every round. The aims say when it may be forgotten beside a forward.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..errors import SpecbookError
from .report import Ratio, Report, Table, resampled

if TYPE_CHECKING:
    from ..plotting import FramedFigure

NODE_AIM = 2e-3
NODE_AIMS: Mapping[str, float] = {"kseq": 5e-3, "sequoia": 5e-3}
"""Seconds a node that a rule may take, unless another number stands here."""
OPTIMUM_AIMS: Mapping[tuple[str, int], float] = {("without_replacement", 8): 2.0}
OPTIMUM_AIM = 20e-3
FLOW_AIM, FLOW_TIMES = 1.0, 10.0
"""Seconds that a plan may take, and how many times networkx may at least."""
PRACTICAL = (NODE_AIM, 1.0)
"""Seconds a node within which `optimal` is called practical: as the other rules, and
for work without a model."""

BASELINES = {True: "single", False: "membership"}
"""The simplest rule of those that read q, and of those that do not."""


@dataclass(frozen=True)
class NodeTimes:
    """A rule on drafts of one sampling. `children`: drafts a node. `seconds`: of one
    choice, for each row. `refused`: why it does not serve these rows."""

    verifier: str
    sampling: str
    children: int
    reads_q: bool
    seconds: tuple[float, ...] = ()
    refused: str = ""


@dataclass(frozen=True)
class OptimumTimes:
    """`optimal_acceptance` for `drafts` of one sampling: seconds for each row."""

    sampling: str
    drafts: int
    seconds: tuple[float, ...]


@dataclass(frozen=True)
class FlowTimes:
    """`transport` on small problems: seconds of the whole call, for each problem, and
    of networkx for the flow alone on the same graph, which is ready for it: its
    "default" algorithm, and its "fastest" here. `agreed`: in how many problems all
    values were equal."""

    tokens: int
    drafts: int
    method: str
    seconds: tuple[float, ...]
    networkx: dict[str, tuple[float, ...]]
    agreed: int


@dataclass(frozen=True)
class ListTimes:
    """The rule `optimal` on laws of so many tokens: seconds of one choice, for each
    row, its plan included."""

    sampling: str
    tokens: int
    seconds: tuple[float, ...]


@dataclass(frozen=True)
class VerifiersReport(Report):
    """Everything that one run measured. `vocabulary`: tokens of a row. `settings` says
    what the rows are."""

    KIND: ClassVar[str] = "verifiers report"
    STEM: ClassVar[str] = "verifiers"

    vocabulary: int
    nodes: tuple[NodeTimes, ...]
    optima: tuple[OptimumTimes, ...] = ()
    flows: tuple[FlowTimes, ...] = ()
    lists: tuple[ListTimes, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)

    def ratio(self, item: NodeTimes) -> Ratio | None:
        """Seconds of `item` over those of the simplest rule of its kind, sums over
        sums, with an interval over the rows; None where one of them did not run."""
        name = BASELINES[item.reads_q]
        for other in self.nodes:
            if other.verifier == name and other.seconds and item.seconds:
                return _ratio(item.seconds, other.seconds)
        return None

    def practical(self, sampling: str, most: float) -> int | None:
        """The most tokens at which `optimal` took `most` seconds or less, in the
        median, there and below; None if it never did."""
        found = None
        for item in self.lists:
            if item.sampling == sampling:
                if median(item.seconds) > most:
                    break
                found = item.tokens
        return found

    def aims(self) -> list[dict[str, Any]]:
        """What was aimed at: `what`, the `measured` median, the `aim`, in seconds or
        as a ratio, and whether it was `kept`. A rule counts with the sampling that
        costs it most."""
        rows: list[dict[str, Any]] = []

        def add(what: str, measured: float, aim: float, least: bool = False) -> None:
            kept = measured >= aim if least else measured <= aim
            rows.append({"what": what, "measured": measured, "aim": aim, "kept": kept})

        slowest: dict[str, float] = {}
        for item in self.nodes:
            if item.seconds:
                before = slowest.get(item.verifier, 0.0)
                slowest[item.verifier] = max(before, median(item.seconds))
        for name, seconds in slowest.items():
            add(f"{name}, a node", seconds, node_aim(name))
        for optimum in self.optima:
            what = f"optimum, {_words(optimum.sampling)}, {optimum.drafts} drafts"
            aim = OPTIMUM_AIMS.get((optimum.sampling, optimum.drafts), OPTIMUM_AIM)
            add(what, median(optimum.seconds), aim)
        for flow in self.flows:
            add(f"transport, {_size(flow)}", median(flow.seconds), FLOW_AIM)
            ratio = self.times(flow, "default").value
            add("networkx over transport", ratio, FLOW_TIMES, least=True)
        return rows

    def times(self, flow: FlowTimes, algorithm: str) -> Ratio:
        """How many times as long as the whole of `transport` networkx takes for the
        flow alone, with an interval over the problems."""
        return _ratio(flow.networkx[algorithm], flow.seconds)

    # ------------------------------------------------------------------- output

    def options(self) -> list[str]:
        told = [f"Rows: {self.settings.get('rows', 'not recorded')}."]
        if self.settings.get("quick"):
            told.append("A quick run: few rows, few turns.")
        told.append(
            "A node is one call of the rule's own select: the target's law at the "
            "node, its drafts, and after an accepted draft a draw from the target. "
            "Drawing the drafts is not counted. Ratios are over single for rules that "
            "read q, and over membership for the others."
        )
        return told

    def tables(self) -> list[Table]:
        tables: list[Table] = [
            (
                f"A rule's choice, {self.vocabulary:,} tokens, float64",
                [
                    "verifier",
                    "drafts",
                    "children",
                    "ms a node",
                    "90 % of rows",
                    "ratio",
                    "aim, ms",
                ],
                [self._node_row(item) for item in self.nodes],
            )
        ]
        if self.optima:
            rows = [
                [
                    _words(item.sampling),
                    str(item.drafts),
                    str(len(item.seconds)),
                    _ms(median(item.seconds)),
                    _span(item.seconds),
                    _ms(OPTIMUM_AIMS.get((item.sampling, item.drafts), OPTIMUM_AIM)),
                ]
                for item in self.optima
            ]
            head = ["drafts", "number", "rows", "ms a row", "90 % of rows", "aim, ms"]
            tables.append(("The optimum of one position", head, rows))
        if self.flows:
            rows = []
            for flow in self.flows:
                listed = [("transport, whole", flow.seconds, "", f"{1e3 * FLOW_AIM:g}")]
                for name, seconds in flow.networkx.items():
                    ratio = str(self.times(flow, name))
                    what = f"networkx, its {name} algorithm, flow alone"
                    listed.append((what, seconds, ratio, ""))
                rows += [
                    [what, _size(flow), _ms(median(times)), _span(times), ratio, aim]
                    for what, times, ratio, aim in listed
                ]
            head = ["solver", "problem", "ms", "90 %", "over transport", "aim, ms"]
            tables.append(("A plan by maximum flow", head, rows))
        if self.lists:
            head = ["drafts", "tokens", "ms a node", "90 % of rows"]
            rows = [
                [
                    _words(item.sampling),
                    str(item.tokens),
                    _ms(median(item.seconds)),
                    _span(item.seconds),
                ]
                for item in self.lists
            ]
            tables.append(
                ("The rule optimal, by the tokens that can be drafted", head, rows)
            )
        return tables

    def strengths(self) -> list[str]:
        told = []
        budget = self.settings.get("budget", math.inf)
        for sampling in dict.fromkeys(item.sampling for item in self.lists):
            parts = []
            for most in (most for most in PRACTICAL if most <= budget):
                found = self.practical(sampling, most)
                tokens = "at no size" if found is None else f"up to {found} tokens"
                parts.append(f"{tokens} in {_ms(most)} ms")
            told.append(f"optimal, {_words(sampling)}: {'; '.join(parts)}.")
        refused = {
            f"{item.verifier} is refused: {item.refused}."
            for item in self.nodes
            if item.refused
        }
        told += sorted(refused)
        missed = [aim["what"] for aim in self.aims() if not aim["kept"]]
        told.append(f"Aims missed: {'; '.join(missed) or 'none'}.")
        return told

    def _node_row(self, item: NodeTimes) -> list[str]:
        about = [item.verifier, _words(item.sampling), str(item.children)]
        if not item.seconds:
            return [*about, "refused", "", "", ""]
        return [
            *about,
            _ms(median(item.seconds)),
            _span(item.seconds),
            str(self.ratio(item) or ""),
            _ms(node_aim(item.verifier)),
        ]

    def derived(self) -> dict[str, Any]:
        ratios = [(item, self.ratio(item)) for item in self.nodes]
        return {
            "aims": self.aims(),
            "ratios": [
                {
                    "verifier": item.verifier,
                    "sampling": item.sampling,
                    "over": BASELINES[item.reads_q],
                    "ratio": asdict(ratio),
                }
                for item, ratio in ratios
                if ratio is not None
            ],
        }

    @property
    def drawable(self) -> bool:
        return any(item.seconds for item in self.nodes)

    def figure(self) -> FramedFigure:
        """Milliseconds a node of every rule, with the sampling that costs it most,
        beside its aim; and of `optimal` by its tokens. Raises `SpecbookError` if no
        rule was timed."""
        if not self.drawable:
            raise SpecbookError("no rule was timed")
        from .. import plotting

        return _figure(self, plotting)


def node_aim(verifier: str) -> float:
    """Seconds that a choice of the rule may take."""
    return NODE_AIMS.get(verifier, NODE_AIM)


def _ratio(one: Sequence[float], other: Sequence[float]) -> Ratio:
    table = np.column_stack([one, other])
    return resampled(table, lambda sums: sums[:, 0] / sums[:, 1])


def _words(name: str) -> str:
    return name.replace("_", " ")


def _size(flow: FlowTimes) -> str:
    return f"{flow.tokens} tokens, {flow.drafts} drafts"


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g}" if seconds < 1 else f"{1e3 * seconds:,.0f}"


def _span(seconds: Sequence[float]) -> str:
    low, high = np.quantile(seconds, (0.05, 0.95))
    return f"{_ms(low)} to {_ms(high)}"


def _figure(report: VerifiersReport, plotting: Any) -> FramedFigure:
    from matplotlib.figure import Figure

    slowest: dict[str, NodeTimes] = {}
    for item in report.nodes:
        if item.seconds:
            held = slowest.setdefault(item.verifier, item)
            if median(item.seconds) > median(held.seconds):
                slowest[item.verifier] = item
    samplings = list(dict.fromkeys(item.sampling for item in report.lists))
    told = []
    with plotting.style():
        fig = Figure(figsize=(7.2, 1.4 + 0.24 * len(slowest)), layout="constrained")
        axes = fig.subplots(
            1,
            1 + bool(samplings),
            squeeze=False,
            width_ratios=[3, 2][: 1 + bool(samplings)],
        )[0]
        for place, item in enumerate(slowest.values()):
            low, middle, high = 1e3 * np.quantile(item.seconds, (0.05, 0.5, 0.95))
            group = int(not item.reads_q)
            look = {"color": plotting.COLOURS[group]}
            axes[0].plot([low, high], [place, place], "-", marker="|", **look)
            axes[0].plot(
                middle,
                place,
                marker=plotting.MARKERS[group],
                linestyle="none",
                label=("reads q", "reads no q")[group],
                **look,
            )
            aim = 1e3 * node_aim(item.verifier)
            axes[0].plot(
                aim, place, marker="|", color=plotting.INK, ls="none", ms=11, mew=1.4
            )
            told.append(f"{item.verifier} {middle:.2g} of {aim:g}")
        axes[0].plot(
            [],
            [],
            marker="|",
            color=plotting.INK,
            ls="none",
            ms=11,
            mew=1.4,
            label="aim",
        )
        names = [f"{item.verifier}" for item in slowest.values()]
        axes[0].set_yticks(range(len(names)), names)
        axes[0].invert_yaxis()
        axes[0].set_xscale("log")
        axes[0].xaxis.set_major_formatter("{x:g}")
        axes[0].set_xlabel("milliseconds a node")
        axes[0].set_title(f"{report.vocabulary:,} tokens")
        for index, sampling in enumerate(samplings):
            found = [item for item in report.lists if item.sampling == sampling]
            values = [1e3 * median(item.seconds) for item in found]
            axes[1].plot(
                [item.tokens for item in found],
                values,
                label=_words(sampling),
                marker=plotting.MARKERS[index + 2],
                color=plotting.COLOURS[index + 2],
                linestyle=plotting.DASHES[index],
            )
            told.append(
                f"optimal {_words(sampling)} at {found[-1].tokens} tokens "
                f"{values[-1]:.3g}"
            )
        if samplings:
            axes[1].axhline(1e3 * NODE_AIM, color=plotting.INK, ls="--", lw=1.2)
            axes[1].set_yscale("log")
            axes[1].yaxis.set_major_formatter("{x:g}")
            axes[1].set_xlabel("tokens that can be drafted")
            axes[1].set_ylabel("milliseconds a node")
            axes[1].set_title("optimal")
        handles: dict[str, Any] = {}
        for ax in axes:
            handles |= dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
        fig.legend(
            handles.values(), handles.keys(), loc="outside upper center", ncols=5
        )
        missed = [
            aim["what"]
            for aim in report.aims()
            if aim["what"].endswith(" a node") and not aim["kept"]
        ]
        conclusion = "Every rule's own choice keeps its aim"
        if missed:
            conclusion = f"Above their aim: {'; '.join(missed)}; the others keep theirs"
        return plotting.figure(
            fig,
            alt="Dots with bars on a logarithmic axis, one row a rule: milliseconds a "
            "node, median and nine tenths of the rows, beside a stroke for the aim; "
            f"and rising curves of the rule optimal. {'; '.join(told)}.",
            caption=f"{conclusion}. {report.options()[0]} Measured on: "
            f"{report.where()}.",
        )
