"""The result of `specbook bench decode`: samples, ratios with intervals, a table, a
figure and a JSON file. Reading and reporting need no torch.

A ratio is a sum over a sum: of all tokens and all seconds of one system, against those
of another on the same prompts. A mean of per-prompt ratios would let short answers
outvote long ones. Its interval comes from drawing the prompts again (bootstrap),
because the prompts are what varies from one benchmark to the next.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import checks
from ..drafts.prompt_lookup import TUNED
from ..errors import ArtifactError, SpecbookError
from ..ledger import COST_TERMS

if TYPE_CHECKING:
    from ..plotting import FramedFigure

FORMAT = 1

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
RESAMPLES = 2000


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
class Ratio:
    """How many times as many tokens a second, with a 95 % interval over prompts."""

    value: float
    low: float
    high: float
    prompts: int

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


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
    table = np.array(
        [
            [value for s in both for value in (s.new_tokens, s.seconds)]
            for both in ((pairs[0][i], pairs[1][i]) for i in pairs[0])
        ],
        dtype=np.float64,
    )
    count = len(table)
    drawn = np.random.default_rng(seed).integers(count, size=(RESAMPLES, count))
    sums = np.vstack([table.sum(axis=0), table[drawn].sum(axis=1)])
    values = (sums[:, 0] / sums[:, 1]) / (sums[:, 2] / sums[:, 3])
    low, high = np.quantile(values[1:], (0.025, 0.975))
    return Ratio(float(values[0]), float(low), float(high), count)


@dataclass(frozen=True)
class DecodeReport:
    """Everything that one benchmark run measured. `row_cost`: seconds of a forward by
    its rows, for each dtype. `machine` and `settings` say what was measured where."""

    samples: tuple[Sample, ...]
    differences: tuple[Difference, ...] = ()
    row_cost: dict[str, list[list[float]]] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The dtypes that were measured, in order."""
        return tuple(dict.fromkeys(s.dtype for s in self.samples))

    @property
    def workloads(self) -> tuple[str, ...]:
        """The workloads that were measured, in order."""
        return tuple(dict.fromkeys(s.workload for s in self.samples))

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

    def markdown(self) -> str:
        """The tables as Markdown, under what both lookups were set to."""
        tables = [
            f"**{title}**\n\n{markdown_table(head, rows)}"
            for title, head, rows in self.tables()
        ]
        return "\n\n".join([*self.options(), *tables])

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

    def tables(self) -> Iterable[tuple[str, list[str], list[list[str]]]]:
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
        yield (
            "Agreement with transformers greedy, token for token",
            ["dtype", "system", "prompts", "with a difference", "largest top-two gap"],
            list(self._agreement()),
        )

    def _agreement(self) -> Iterable[list[str]]:
        for dtype in self.dtypes:
            for system in SYSTEMS[1:]:
                ran = [
                    s for s in self.samples if (s.dtype, s.system) == (dtype, system)
                ]
                found = [
                    d
                    for d in self.differences
                    if (d.dtype, d.system) == (dtype, system)
                ]
                gaps = [d.gap for d in found if d.gap is not None]
                worst = f"{max(gaps):.3g}" if gaps else ""
                yield [dtype, system, str(len(ran)), str(len(found)), worst]

    def figure(self) -> FramedFigure:
        """Speed of each system over transformers greedy, by workload and dtype."""
        from .. import plotting

        return _figure(self, plotting)

    def as_dict(self) -> dict[str, Any]:
        """The report as plain values, ratios included; `from_dict` reads it back."""
        ratios = [
            {
                **row,
                "all": asdict(row["all"]),
                "without_loops": row["without_loops"] and asdict(row["without_loops"]),
            }
            for row in self.ratio_rows()
        ]
        return {
            "format": FORMAT,
            "machine": self.machine,
            "settings": self.settings,
            "row_cost": self.row_cost,
            "ratios": ratios,
            "differences": [asdict(item) for item in self.differences],
            "samples": [asdict(sample) for sample in self.samples],
        }

    @classmethod
    def from_dict(cls, values: Any) -> DecodeReport:
        """The report that `as_dict` gave; anything else raises `ArtifactError`."""
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            raise ArtifactError("not a decoding report of this version")
        try:
            return cls(
                samples=tuple(Sample(**item) for item in values["samples"]),
                differences=tuple(Difference(**i) for i in values["differences"]),
                row_cost=values["row_cost"],
                settings=values["settings"],
                machine=values["machine"],
            )
        except (KeyError, TypeError) as error:
            raise ArtifactError(f"a damaged decoding report: {error}") from error

    def save(self, path: str | Path) -> Path:
        """Writes the JSON to a temporary name, then renames it."""
        return write_whole(
            path, json.dumps(self.as_dict(), indent=1, allow_nan=False) + "\n"
        )

    @classmethod
    def load(cls, path: str | Path) -> DecodeReport:
        """Reads what `save` wrote. Raises `ArtifactError` for anything else."""
        try:
            values = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ArtifactError(f"{path} is not a decoding report: {error}") from error
        return cls.from_dict(values)


def write_whole(path: str | Path, text: str) -> Path:
    """Writes a file by way of a temporary name, which a failure does not leave behind.
    Returns the path."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return path


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


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; all columns but the first three are numbers."""
    lines = [head, ["---"] * min(3, len(head)) + ["---:"] * (len(head) - 3), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


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
        where = report.machine.get("line", "machine not recorded")
        if report.settings.get("clock", "wall") != "wall":
            where += f", {report.settings['clock']} time"
        return plotting.figure(
            fig,
            alt="Dots with 95 percent intervals: tokens a second of three systems as "
            "multiples of transformers greedy, by workload. " + "; ".join(told) + ".",
            caption="Lookup pays where the answer repeats the prompt, and costs little "
            f"where it does not. Measured on: {where}.",
        )
