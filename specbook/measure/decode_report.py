"""The result of `specbook bench decode`: samples, ratios with intervals, a table, a
figure and a JSON file. Reading and reporting need no torch.

A ratio is a sum over a sum: of all tokens and all seconds of one system, against those
of another on the same prompts. A mean of per-prompt ratios would let short answers
outvote long ones. Its interval comes from drawing the prompts again (bootstrap),
because the prompts are what varies from one benchmark to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .. import checks
from ..drafts.prompt_lookup import TUNED
from ..errors import SpecbookError
from ..ledger import COST_TERMS
from .report import Ratio, Report, Table, resampled

if TYPE_CHECKING:
    from ..plotting import FramedFigure

SYSTEMS = (
    "transformers greedy",
    "transformers lookup",
    "specbook plain",
    "specbook lookup",
)
OURS = SYSTEMS[2:]

RATIOS = (
    ("specbook plain", "transformers greedy"),
    ("specbook lookup", "transformers lookup"),
    ("specbook lookup", "specbook plain"),
    ("transformers lookup", "transformers greedy"),
)
"""The comparisons that are reported, faster-than-what: (system, baseline)."""

LOOP_PERIODS = 3
LOOP_TOKENS = 16


def loop_tokens(tokens: Sequence[int]) -> int:
    """How many of `tokens` lie inside a repetition loop.

    A loop is a stretch of at least `LOOP_TOKENS` tokens that repeats one period at
    least `LOOP_PERIODS` times over: each token equals the one a period earlier. A weak
    model falls into such loops under greedy decoding, and any lookup shines there.
    Raises `ValueError` for what is no sequence of token ids.
    """
    tokens = checks.token_ids(tokens)
    inside = np.zeros(len(tokens), dtype=bool)
    ids = np.asarray(tokens)
    for period in range(1, len(tokens) // LOOP_PERIODS + 1):
        need = max(LOOP_PERIODS * period, LOOP_TOKENS) - period
        same = np.append(ids[period:] == ids[:-period], False)
        start = 0
        for end in np.flatnonzero(~same).tolist():
            if end - start >= need:
                inside[start : end + period] = True
            start = end + 1
    return int(inside.sum())


@dataclass(frozen=True)
class Sample:
    """One prompt decoded by one system. `seconds` is the median of the repeats, from
    the prompt's ids to the last new token; `rounds` counts target forwards; `drafted`
    and `accepted` count candidate tokens, and `cost_terms` is in seconds (both only
    for our systems)."""

    prompt_id: str
    workload: str
    dtype: str
    system: str
    seconds: float
    prompt_tokens: int
    new_tokens: int
    rounds: int
    loop_tokens: int
    drafted: int | None = None
    accepted: int | None = None
    cost_terms: dict[str, float] | None = None


@dataclass(frozen=True)
class Difference:
    """Where a system's tokens first left those of transformers greedy. `gap` is the
    distance of the two best logits there, by a plain forward of the same dtype."""

    prompt_id: str
    dtype: str
    system: str
    position: int
    token: int | None
    expected: int | None
    gap: float | None


def speed_ratio(
    system: Sequence[Sample], baseline: Sequence[Sample], *, seed: int = 0
) -> Ratio | None:
    """Tokens a second in `system` over those in `baseline`, sums over sums, with a
    bootstrap interval over prompts; None if there are none. Raises `ValueError` where
    the two are not of the same prompts."""
    pairs = [{s.prompt_id: s for s in found} for found in (system, baseline)]
    if pairs[0].keys() != pairs[1].keys():
        names = [
            found[0].system if found else "nothing" for found in (system, baseline)
        ]
        raise SpecbookError(f"{names[0]} and {names[1]} ran on different prompts")
    if not pairs[0]:
        return None
    # Rows: prompts. Columns: tokens and seconds of the system, of the baseline.
    table = [
        [value for s in both for value in (s.new_tokens, s.seconds)]
        for both in ((pairs[0][i], pairs[1][i]) for i in pairs[0])
    ]
    return resampled(
        table, lambda s: s[:, 0] / s[:, 1] / (s[:, 2] / s[:, 3]), seed=seed
    )


class PromptReport(Report):
    """The base of reports about systems that decoded the same prompts: `SYSTEMS`, of
    which the first is the reference for the tokens."""

    SYSTEMS: ClassVar[tuple[str, ...]]

    samples: tuple[Sample, ...]
    differences: tuple[Difference, ...]

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The dtypes that were measured, in order."""
        return tuple(dict.fromkeys(s.dtype for s in self.samples))

    @property
    def workloads(self) -> tuple[str, ...]:
        """The workloads that were measured, in order."""
        return tuple(dict.fromkeys(s.workload for s in self.samples))

    def agreement(self) -> Table:
        """In how many prompts each system left the reference, and at most how far the
        two best logits were apart there."""
        rows = []
        for dtype in self.dtypes:
            for system in self.SYSTEMS[1:]:
                cell = (dtype, system)
                ran = sum((s.dtype, s.system) == cell for s in self.samples)
                found = [d for d in self.differences if (d.dtype, d.system) == cell]
                gaps = [d.gap for d in found if d.gap is not None]
                worst = f"{max(gaps):.3g}" if gaps else ""
                rows.append([dtype, system, str(ran), str(len(found)), worst])
        return (
            f"Agreement with {self.SYSTEMS[0]}, token for token",
            ["dtype", "system", "prompts", "with a difference", "largest top-two gap"],
            rows,
        )


@dataclass(frozen=True)
class DecodeReport(PromptReport):
    """Everything that one benchmark run measured. `row_cost`: seconds of a forward by
    its rows, for each dtype. `machine` and `settings` say what was measured where."""

    KIND: ClassVar[str] = "decoding report"
    STEM: ClassVar[str] = "decode"
    SYSTEMS: ClassVar[tuple[str, ...]] = SYSTEMS

    samples: tuple[Sample, ...]
    differences: tuple[Difference, ...] = ()
    row_cost: dict[str, list[list[float]]] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)

    def select(
        self, dtype: str, workload: str, system: str, *, without_loops: bool = False
    ) -> list[Sample]:
        """The samples of one cell. `without_loops`: leave out every prompt on which
        the baseline, transformers greedy, fell into a repetition loop."""
        if workload not in self.workloads or dtype not in self.dtypes:
            raise SpecbookError(f"nothing was measured for {workload!r} in {dtype!r}")
        checks.one_of(system, "system", SYSTEMS)
        looping = {
            s.prompt_id
            for s in self.samples
            if s.dtype == dtype and s.system == SYSTEMS[0] and s.loop_tokens
        }
        return [
            s
            for s in self.samples
            if (s.dtype, s.workload, s.system) == (dtype, workload, system)
            and not (without_loops and s.prompt_id in looping)
        ]

    def ratio(
        self,
        system: str,
        baseline: str,
        dtype: str,
        workload: str,
        *,
        without_loops: bool = False,
        seed: int = 0,
    ) -> Ratio | None:
        """Tokens a second of `system` over those of `baseline`, sums over sums, with a
        bootstrap interval over prompts; None if no prompt is left."""
        found = [
            self.select(dtype, workload, name, without_loops=without_loops)
            for name in (system, baseline)
        ]
        return speed_ratio(*found, seed=seed)

    def cells(self) -> list[dict[str, Any]]:
        """One row for each dtype, workload and system: medians, totals and shares."""
        rows = []
        for dtype in self.dtypes:
            for workload in self.workloads:
                for system in SYSTEMS:
                    if found := self.select(dtype, workload, system):
                        rows.append(_cell(dtype, workload, system, found))
        return rows

    def ratio_rows(self) -> list[dict[str, Any]]:
        """One row for each dtype, workload and comparison, with and without loops."""
        return [
            {
                "dtype": dtype,
                "workload": workload,
                "system": system,
                "baseline": baseline,
                "all": self.ratio(system, baseline, dtype, workload),
                "without_loops": self.ratio(
                    system, baseline, dtype, workload, without_loops=True
                ),
            }
            for dtype in self.dtypes
            for workload in self.workloads
            for system, baseline in RATIOS
        ]

    # ------------------------------------------------------------------- output

    def options(self) -> list[str]:
        """One sentence for each lookup: its options and who chose them. The two are
        not set alike, so a table of speeds must not stand without them."""
        told = []
        if ours := self.settings.get("lookup"):
            tuned = "the caller's choice"
            if {name: ours.get(name) for name in TUNED} == TUNED:
                tuned = "tuned on the development half of the prompts"
                if self.settings.get("half") == "development":
                    tuned += ", which is the half that was measured here"
            cost = "given" if "cost" in ours else "measured before the run"
            told.append(
                f"specbook lookup: {_listed(ours)}; {tuned}, its cost table {cost}."
            )
        if theirs := self.settings.get("transformers_lookup"):
            told.append(
                f"transformers lookup: {_listed(theirs)}; not tuned, n-grams at the "
                "library's default."
            )
        return told

    def tables(self) -> Iterable[Table]:
        yield (
            "Speed: tokens a second, sums over sums; [95 % bootstrap over prompts]",
            [
                "dtype",
                "workload",
                "system",
                "over",
                "ratio",
                "without loops",
                "prompts",
            ],
            [
                [
                    row["dtype"],
                    row["workload"],
                    row["system"],
                    row["baseline"],
                    str(row["all"]),
                    str(row["without_loops"] or "none left"),
                    _counts(row["all"], row["without_loops"]),
                ]
                for row in self.ratio_rows()
            ],
        )
        yield (
            "Decoding: medians over prompts, shares of all tokens",
            [
                "dtype",
                "workload",
                "system",
                "ms a token",
                "tokens a round",
                "accepted",
                "in loops",
            ],
            [
                [
                    row["dtype"],
                    row["workload"],
                    row["system"],
                    f"{row['ms_per_token']:.1f}",
                    f"{row['tokens_per_round']:.2f}",
                    "" if row["accepted"] is None else f"{row['accepted']:.0%}",
                    f"{row['loop_share']:.0%}",
                ]
                for row in self.cells()
            ],
        )
        yield (
            "Cost terms: milliseconds a committed token",
            ["dtype", "workload", "system", *(t.replace("_", " ") for t in COST_TERMS)],
            [
                [
                    row["dtype"],
                    row["workload"],
                    row["system"],
                    *(f"{row['cost_terms'][term]:.3f}" for term in COST_TERMS),
                ]
                for row in self.cells()
                if row["cost_terms"] is not None
            ],
        )
        yield self.agreement()

    def figure(self) -> FramedFigure:
        """Speed of each system over transformers greedy, by workload and dtype."""
        from .. import plotting

        return _figure(self, plotting)

    def derived(self) -> dict[str, Any]:
        ratios = [
            {
                **row,
                "all": asdict(row["all"]),
                "without_loops": row["without_loops"] and asdict(row["without_loops"]),
            }
            for row in self.ratio_rows()
        ]
        return {"ratios": ratios}


def _listed(options: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in options.items())


def _cell(
    dtype: str, workload: str, system: str, found: Sequence[Sample]
) -> dict[str, Any]:
    def total(value: Callable[[Sample], Any]) -> Any:
        return sum(value(sample) for sample in found)

    tokens = total(lambda s: s.new_tokens)
    drafted = None if found[0].drafted is None else total(lambda s: s.drafted)
    terms = None
    if found[0].cost_terms is not None:
        spent = [sample.cost_terms or {} for sample in found]
        terms = {
            term: 1e3 * sum(item[term] for item in spent) / tokens
            for term in COST_TERMS
        }
    return {
        "dtype": dtype,
        "workload": workload,
        "system": system,
        "ms_per_token": 1e3 * median(s.seconds / s.new_tokens for s in found),
        "tokens_per_second": tokens / total(lambda s: s.seconds),
        "tokens_per_round": tokens / total(lambda s: s.rounds),
        "accepted": total(lambda s: s.accepted) / drafted if drafted else None,
        "loop_share": total(lambda s: s.loop_tokens) / tokens,
        "cost_terms": terms,
    }


def _counts(everything: Ratio, rest: Ratio | None) -> str:
    return f"{everything.prompts}, {rest.prompts if rest else 0}"


def _figure(report: DecodeReport, plotting: Any) -> FramedFigure:
    from matplotlib.figure import Figure

    names = [name for name in SYSTEMS if name != SYSTEMS[0]]
    dtypes, workloads = report.dtypes, report.workloads
    told = []
    with plotting.style():
        fig = Figure(figsize=(7.2, 1.4 + 0.55 * len(workloads)), layout="constrained")
        panels = fig.subplots(1, len(dtypes), sharex=True, sharey=True, squeeze=False)
        for axes, dtype in zip(panels[0], dtypes, strict=True):
            for index, name in enumerate(names):
                ratios = [
                    report.ratio(name, SYSTEMS[0], dtype, workload)
                    for workload in workloads
                ]
                found = [ratio for ratio in ratios if ratio is not None]
                values = [ratio.value for ratio in found]
                height = [w + 0.22 * (index - 1) for w in range(len(workloads))]
                axes.errorbar(
                    values,
                    height,
                    xerr=[
                        [r.value - r.low for r in found],
                        [r.high - r.value for r in found],
                    ],
                    label=name,
                    marker=plotting.MARKERS[index],
                    color=plotting.COLOURS[index],
                    linestyle="none",
                    elinewidth=1.2,
                    capsize=2.5,
                )
                listed = ", ".join(
                    f"{w} {v:.2f}" for w, v in zip(workloads, values, strict=True)
                )
                told.append(f"{dtype}, {name}: {listed}")
            axes.axvline(1, color=plotting.MUTED, linewidth=1, linestyle="--")
            axes.set_title(dtype)
            axes.set_yticks(
                range(len(workloads)), [w.replace("_", " ") for w in workloads]
            )
            axes.set_xlabel("tokens a second, transformers greedy = 1")
        panels[0][0].invert_yaxis()
        fig.legend(
            *panels[0][0].get_legend_handles_labels(),
            loc="outside upper center",
            ncols=3,
        )
        return plotting.figure(
            fig,
            alt="Dots with 95 percent intervals: tokens a second of three systems as "
            "multiples of transformers greedy, by workload. " + "; ".join(told) + ".",
            caption="Lookup pays where the answer repeats the prompt, and costs little "
            f"where it does not. Measured on: {report.where()}.",
        )
