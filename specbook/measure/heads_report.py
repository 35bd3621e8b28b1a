"""The result of `specbook bench heads`: agreement, tokens a round, speed, and where the
time goes, for every kind of draft heads. Reading it needs no torch.

A system is "plain", a kind with the tree that all share ("hydra, shared tree"), or a
kind with the tree that was chosen for it on this machine ("hydra, own tree"). Ratios
are sums over sums, with intervals from drawing the prompts again. What the plans
promised stands beside what decoding gave.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .. import checks
from ..errors import SpecbookError
from ..topologies.progress import shape_of
from ..tree import CandidateTree
from .decode_report import Difference, Sample
from .head_stages import StageCosts
from .head_tradeoff import Tradeoff, tradeoff
from .plain_report import ALL, PLAIN, PlainReport, aims_table
from .report import Ratio, Table, percent

if TYPE_CHECKING:
    from ..plotting import FramedFigure

KINDS = ("medusa", "hydra", "hydra_plus", "clover", "markov")
"""As `models.heads.KINDS`, which a test compares; the reports need no torch."""

SHARED, OWN = "shared tree", "own tree"


def system(kind: str, use: str) -> str:
    """The name of a kind with one of its trees."""
    return f"{kind}, {use}"


@dataclass(frozen=True)
class Agreement:
    """One kind at one depth on one workload: (agreed, tried) of all rows, `forced`, and
    of those where all heads above agreed, `chain`; `bins` of q, each (rows, mean q,
    share agreed)."""

    kind: str
    workload: str
    depth: int
    forced: tuple[int, ...]
    chain: tuple[int, ...]
    bins: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        checks.text(self.kind, "kind")
        checks.text(self.workload, "workload")
        checks.integer(self.depth, "depth", least=1)
        for name in ("forced", "chain"):
            what = f"{name} of {self.kind}"
            counts = checks.entries(getattr(self, name), what, "agreed and tried")
            for count in counts:
                checks.integer(count, what, least=0)
            if len(counts) != 2 or counts[0] > counts[1]:
                raise SpecbookError(f"{self.kind}: {name} must be agreed and tried")
        for row in checks.entries(self.bins, f"bins of {self.kind}", "bins"):
            told = f"a bin of {self.kind}"
            numbers = checks.entries(row, told, "rows, q and share")
            for value, most in zip(numbers, (None, 1, 1), strict=False):
                checks.float64(value, told, least=0, most=most)
            if len(numbers) != 3 or not numbers[0]:
                raise SpecbookError(f"{self.kind}: a bin is rows, q and share: {row}")


@dataclass(frozen=True)
class Planned:
    """One kind's tree and what was expected of it. `use`: `SHARED` or `OWN`. `tokens`:
    G, by this kind's acceptance on the development half. `drafting`, `verifying`,
    `plain`: seconds of a draft, of its verification, of a plain step."""

    dtype: str
    kind: str
    use: str
    parents: tuple[int, ...]
    ranks: tuple[int, ...]
    tokens: float
    drafting: float
    verifying: float
    plain: float

    def __post_init__(self) -> None:
        checks.one_of(self.use, "use", (SHARED, OWN))
        for name in ("tokens", "drafting", "verifying", "plain"):
            checks.float64(getattr(self, name), f"{name} of {self.kind}", least=0)
        if not self.verifying:
            raise SpecbookError(f"verifying of {self.kind} must be above 0")
        self.shape()  # raises for what is no tree

    @property
    def nodes(self) -> int:
        """Rows of a verification, the root included."""
        return len(self.parents) + 1

    @property
    def speedup(self) -> float:
        """The speed-up over plain decoding that was expected."""
        return self.tokens * self.plain / (self.drafting + self.verifying)

    def shape(self) -> CandidateTree:
        """The tree, without the root."""
        return shape_of(self.parents, self.ranks)


@dataclass(frozen=True)
class Measured:
    """What trees were chosen by, for one kind in one dtype: `acceptance`, a row of
    slots a depth, on the development half; and the stages of its drafts."""

    dtype: str
    kind: str
    acceptance: tuple[tuple[float, ...], ...]
    costs: StageCosts


@dataclass(frozen=True)
class HeadsReport(PlainReport):
    """Everything that one run measured. `verify`: {dtype: [[rows, seconds], ...]}."""

    KIND: ClassVar[str] = "heads report"
    STEM: ClassVar[str] = "heads"
    SYSTEMS: ClassVar[tuple[str, ...]] = (
        PLAIN,
        *(system(kind, use) for kind in KINDS for use in (SHARED, OWN)),
    )

    samples: tuple[Sample, ...]
    differences: tuple[Difference, ...] = ()
    agreements: tuple[Agreement, ...] = ()
    trees: tuple[Planned, ...] = ()
    measured: tuple[Measured, ...] = ()
    verify: dict[str, list[list[float]]] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)

    # ---------------------------------------------------------------- what was measured

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds that were measured, in order."""
        return tuple(dict.fromkeys(item.kind for item in self.measured))

    def agreed(
        self, kind: str, depth: int, scope: str = ALL, *, chain: bool = False
    ) -> float | None:
        """The share of rows on which a head said what the target says; None without
        rows. `chain`: of those where all heads above it did."""
        counts = [
            item.chain if chain else item.forced
            for item in self.agreements
            if (item.kind, item.depth) == (kind, depth)
            and self._inside(item.workload, scope)
        ]
        tried = sum(n for _, n in counts)
        return sum(n for n, _ in counts) / tried if tried else None

    def bins(self, kind: str, depth: int, scope: str = ALL) -> list[list[float]]:
        """[rows, mean q, share agreed] of each bin of q that has rows, workloads added
        up."""
        sums: dict[int, np.ndarray] = {}
        for item in self.agreements:
            if (item.kind, item.depth) != (kind, depth):
                continue
            if self._inside(item.workload, scope):
                for rows, q, share in item.bins:
                    part = np.array([rows, rows * q, rows * share])
                    place = min(int(10 * q), 9)
                    sums[place] = sums.get(place, np.zeros(3)) + part
        return [
            [float(n), float(q / n), float(share / n)]
            for _, (n, q, share) in sorted(sums.items())
        ]

    def calibration_error(
        self, kind: str, depth: int, scope: str = ALL
    ) -> float | None:
        """The expected calibration error of q; None without rows."""
        return calibration_error(self.bins(kind, depth, scope))

    def depths(self, kind: str) -> list[int]:
        """The depths that a kind has heads for."""
        return sorted({item.depth for item in self.agreements if item.kind == kind})

    def tradeoff(self, dtype: str) -> Tradeoff:
        """Which kind wins at which tree size by what was measured: `head_tradeoff`.
        Times are in seconds."""
        mine = [item for item in self.measured if item.dtype == dtype]
        if not mine:
            raise SpecbookError(f"nothing was measured in {dtype!r}")
        return tradeoff(
            {item.kind: item.acceptance for item in mine},
            {int(n): seconds for n, seconds in self.verify[dtype]},
            {item.kind: item.costs.drafting for item in mine},
        )

    # ------------------------------------------------------------------- what follows

    def aims(self) -> list[dict[str, Any]]:
        """What was aimed at and measured, and whether it was reached; only aims whose
        parts were measured."""
        rows: list[dict[str, Any]] = []

        def aim(
            what: str, value: float | None, least: float, *, above: bool = False
        ) -> None:
            if value is not None:
                kept = value > least if above else value >= least
                rows.append(
                    {"what": what, "measured": value, "aim": least, "kept": kept}
                )

        first = self.dtypes[0] if self.dtypes else ""
        wanted = [scope for scope in ("code", "chat") if scope in self.scopes]
        for scope in wanted:
            shares = [self.agreed(kind, 3, scope) for kind in ("hydra", "medusa")]
            aim(
                f"{scope}: agreement at depth 3, hydra over medusa",
                _over(*shares),
                1.5,
            )
            gains = [
                _less(*(self.agreed(k, depth, scope) for k in ("hydra_plus", "hydra")))
                for depth in self.depths("hydra_plus")
            ]
            known = [gain for gain in gains if gain is not None]
            aim(
                f"{scope}: agreement of hydra_plus less that of hydra, least of depths",
                min(known) if known else None,
                0.0,
                above=True,
            )
        if "code" in wanted:
            ratio = self.rounds_ratio(
                first, "code", system("hydra", SHARED), system("medusa", SHARED)
            )
            aim(
                "code: tokens a round with the shared tree, hydra over medusa",
                None if ratio is None else ratio.value,
                1.15,
            )
        for scope, least in (("code", 2.2), ("chat", 1.7)):
            if scope in wanted:
                found = [
                    self.tokens_per_round(first, scope, system(kind, SHARED))
                    for kind in self.kinds
                ]
                aim(
                    f"{scope}: tokens a round with the shared tree, best kind",
                    max((r.value for r in found if r), default=None),
                    least,
                )
        if "code" in wanted:
            quick = self.faster_dtype("code")
            for dtype in self.dtypes:
                found = self._speeds(dtype, dtype)
                aim(
                    f"code, {dtype}: speed over plain decoding, best kind",
                    max((r.value for r in found if r), default=None),
                    1.4,
                )
            every = [r for d in self.dtypes for r in self._speeds(d, quick) if r]
            aim(
                f"code: speed over plain decoding in {quick}, the faster, best of all",
                max((r.value for r in every), default=None),
                1.15,
            )
        return rows

    def _speeds(self, dtype: str, over: str) -> list[Ratio | None]:
        return [
            self.speed(dtype, "code", system(kind, OWN), over=over)
            for kind in self.kinds
        ]

    def derived(self) -> dict[str, Any]:
        """The aims, and a hash of all that was measured: a flipped digit is found."""
        return {"aims": self.aims(), "sha256": self.sha256()}

    # ------------------------------------------------------------------------- output

    def options(self) -> list[str]:
        """How things were set."""
        told = [
            f"Greedy, {len({s.prompt_id for s in self.samples})} prompts of the "
            f"{self.settings.get('half')} half, at most "
            f"{self.settings.get('max_new_tokens')} new tokens. Trees were chosen on "
            "the development half, prompts of each workload: "
            f"{self.settings.get('calibration')}.",
            f"The shared tree has {self.settings.get('nodes')} rows with the root and "
            f"was planned for {self.settings.get('tree_of')}; an own tree is the "
            "quickest by t(n) and the stages of its heads. Systems of one dtype took "
            "turns; dtypes ran one after the other.",
        ]
        for name, told_by in (self.settings.get("heads") or {}).items():
            told.append(f"{name}: {told_by}.")
        return told

    def strengths(self) -> list[str]:
        """Whether tokens agree, where no tree pays, and what costs least."""
        lines = self.unlike_plain()
        for dtype in self.dtypes:
            own = [t.kind for t in self.trees if (t.dtype, t.use) == (dtype, OWN)]
            if never := [kind for kind in self.kinds if kind not in own]:
                lines.append(
                    f"{dtype}: no tree of {', '.join(never)} promised more than plain "
                    "decoding, so none was run."
                )
        for dtype in self.dtypes:
            if self.measured:
                best = self.tradeoff(dtype).best()
                lines.append(
                    f"{dtype}: by the measured costs a token is cheapest with "
                    f"{best.kind} at {best.nodes} rows, {1e3 * best.per_token:.1f} ms."
                )
        return lines

    def tables(self) -> Iterable[Table]:
        """All tables; those of parts that were not measured are left out."""
        made = [
            self._agreement_table(),
            self._calibration_table(),
            self._rounds_table(),
            self._trees_table(),
            self._speed_table(),
            self.time_table(),
            self._stages_table(),
            *(self._sizes_table(dtype) for dtype in self.dtypes if self.measured),
            self.agreement(),
            aims_table(
                self.aims(), head="at least", missed="not reached", forms=(".3g", "g")
            ),
        ]
        return [table for table in made if table[2]]

    def agreement(self) -> Table:
        """As in the base, for the systems that ran."""
        title, head, rows = super().agreement()
        return title, head, [row for row in rows if row[2] != "0"]

    def _agreement_table(self) -> Table:
        most = max((item.depth for item in self.agreements), default=0)
        depths = range(1, most + 1)
        rows = [
            [
                kind,
                scope,
                *(percent(self.agreed(kind, depth, scope)) for depth in depths),
                *(percent(self.agreed(kind, d, scope, chain=True)) for d in depths),
            ]
            for scope in self.scopes
            for kind in self.kinds
            if self.depths(kind)
        ]
        return (
            f"Agreement with the target's greedy token at each depth, "
            f"{self.dtypes[0] if self.dtypes else ''}: true tokens above (forced), and "
            "where all heads above agreed too (chain)",
            [
                "heads",
                "workload",
                *(f"forced {depth}" for depth in depths),
                *(f"chain {depth}" for depth in depths),
            ],
            rows,
        )

    def _calibration_table(self) -> Table:
        rows = []
        for kind in self.kinds:
            for depth in self.depths(kind):
                found = {min(int(10 * q), 9): s for _, q, s in self.bins(kind, depth)}
                error = self.calibration_error(kind, depth)
                rows.append(
                    [
                        kind,
                        str(depth),
                        "" if error is None else f"{error:.3f}",
                        *(percent(found.get(place)) for place in range(10)),
                    ]
                )
        return (
            "Calibration: how often the drafted token was right, by the q that it was "
            "drafted with, and the expected calibration error",
            [
                "heads",
                "depth",
                "error",
                *(
                    f"q {place / 10:.1f} to {place / 10 + 0.1:.1f}"
                    for place in range(10)
                ),
            ],
            rows,
        )

    def _rounds_table(self) -> Table:
        rows = []
        for dtype in self.dtypes:
            planned = {
                item.kind: item
                for item in self.trees
                if (item.dtype, item.use) == (dtype, SHARED)
            }
            for scope in self.scopes:
                for kind, item in planned.items():
                    name = system(kind, SHARED)
                    ratio = self.tokens_per_round(dtype, scope, name)
                    over = self.rounds_ratio(
                        dtype, scope, name, system("medusa", SHARED)
                    )
                    rows.append(
                        [
                            dtype,
                            kind,
                            scope,
                            str(ratio or ""),
                            str(over or ""),
                            f"{item.tokens:.2f}",
                            str(ratio.prompts if ratio else 0),
                        ]
                    )
        return (
            "Tokens a round with the tree that all kinds share; [95 % bootstrap]",
            [
                "dtype",
                "heads",
                "workload",
                "tokens a round",
                "over medusa",
                "planned, all",
                "prompts",
            ],
            rows,
        )

    def _trees_table(self) -> Table:
        rows = [
            [
                item.dtype,
                item.kind,
                item.use,
                str(item.nodes),
                str(item.shape().max_depth),
                f"{item.tokens:.2f}",
                str(
                    self.tokens_per_round(item.dtype, ALL, system(item.kind, item.use))
                    or ""
                ),
                f"{1e3 * item.drafting:.1f}",
                f"{1e3 * item.verifying:.1f}",
                f"{item.speedup:.2f}",
                str(self.speed(item.dtype, ALL, system(item.kind, item.use)) or ""),
            ]
            for item in self.trees
        ]
        return (
            "Trees: what they were planned to give, and gave",
            [
                "dtype",
                "heads",
                "tree",
                "rows",
                "depth",
                "tokens a round, planned",
                "tokens a round, measured",
                "draft ms, planned",
                "verify ms, planned",
                "speed-up, planned",
                "speed-up, measured",
            ],
            rows,
        )

    def _speed_table(self) -> Table:
        rows = []
        for dtype in self.dtypes:
            for scope in self.scopes:
                quick = self.faster_dtype(scope)
                for kind in self.kinds:
                    name = system(kind, OWN)
                    ratio = self.speed(dtype, scope, name)
                    if ratio is None:
                        continue
                    rows.append(
                        [
                            dtype,
                            kind,
                            scope,
                            str(ratio),
                            str(self.speed(dtype, scope, name, over=quick)),
                            quick,
                            str(self.tokens_per_round(dtype, scope, name)),
                            str(ratio.prompts),
                        ]
                    )
        return (
            "Speed with the own tree: tokens a second over plain decoding, sums over "
            "sums; [95 % bootstrap over prompts]",
            [
                "dtype",
                "heads",
                "workload",
                "over plain",
                "over the faster plain",
                "which is",
                "tokens a round",
                "prompts",
            ],
            rows,
        )

    def _stages_table(self) -> Table:
        rows = []
        for item in self.measured:
            costs = item.costs
            for depth in range(costs.heads):
                names = ("step", "features", "lm_head", "law", "pick")
                rows.append(
                    [
                        item.dtype,
                        item.kind,
                        str(depth + 1),
                        *(f"{1e3 * costs.seconds(name, depth):.2f}" for name in names),
                        f"{1e3 * costs.head_stage(depth):.2f}",
                        f"{1e3 * costs.critical_path(depth + 1):.2f}",
                    ]
                )
        return (
            "Stages of a head on one row, milliseconds: its step, network and LM head "
            "are C_h; the path is until the head of that depth has spoken",
            [
                "dtype",
                "heads",
                "depth",
                "step",
                "network",
                "LM head",
                "law",
                "pick",
                "C_h",
                "path",
            ],
            rows,
        )

    def _sizes_table(self, dtype: str) -> Table:
        found = self.tradeoff(dtype)
        rows = [
            [
                str(n),
                *(f"{1e3 * found.at(kind, n).per_token:.1f}" for kind in found.kinds),
                found.winner(n).kind,
            ]
            for n in found.sizes
        ]
        return (
            f"{dtype}: milliseconds a token by the size of the tree, "
            "(C_draft + C_T(N)) / E[A]",
            ["rows N", *found.kinds, "winner"],
            rows,
        )

    @property
    def drawable(self) -> bool:
        """Whether a kind decoded with a tree."""
        return bool(self._drawn())

    def _drawn(self) -> dict[str, dict[str, tuple[float, float, float]]]:
        """{scope and dtype: {kind: speed}}, of kinds that ran everywhere."""
        names = [
            kind
            for kind in self.kinds
            if all(self.select(d, ALL, system(kind, OWN)) for d in self.dtypes)
        ]
        groups: dict[str, dict[str, tuple[float, float, float]]] = {}
        for dtype in self.dtypes:
            for scope in self.scopes:
                row = {}
                for kind in names:
                    ratio = self.speed(dtype, scope, system(kind, OWN))
                    assert ratio is not None, "it ran on every workload"
                    row[kind] = (ratio.value, ratio.low, ratio.high)
                if row:
                    groups[f"{dtype}, {scope.replace('_', ' ')}"] = row
        return groups

    def figure(self) -> FramedFigure:
        """Speed over plain decoding of each kind with its own tree."""
        from .. import plotting

        groups = self._drawn()
        if not groups:
            raise SpecbookError("no kind of heads decoded with a tree of its own")
        told = "; ".join(
            f"{group}: " + ", ".join(f"{k} {v[0]:.2f}" for k, v in row.items())
            for group, row in groups.items()
        )
        best = max(
            (
                (v[0], kind, group)
                for group, row in groups.items()
                for kind, v in row.items()
            )
        )
        return plotting.figure(
            plotting.grouped_ranges(
                groups,
                "tokens a second, plain decoding in the same dtype = 1",
                reference=(1.0, "plain"),
            ),
            alt="Dots with 95 percent intervals: tokens a second of each kind of draft "
            f"heads over plain decoding, by dtype and workload. {told}.",
            caption=f"The most is gained by {best[1]} ({best[2]}): {best[0]:.2f} times "
            f"plain decoding. Measured on: {self.where()}.",
        )


def calibration_error(bins: Iterable[Sequence[float]]) -> float | None:
    """The expected calibration error of bins [rows, mean q, share right]: how far q is
    from being right that often, each row counted once. None without rows."""
    total = rows = 0.0
    for number, one in enumerate(checks.entries(bins, "bins", "bins")):
        place = f"bins[{number}]"
        three = checks.entries(one, place, "rows, mean q and share")
        if len(three) != 3:
            raise SpecbookError(f"{place} must be rows, mean q and share: {one!r}")
        n, q, share = (checks.float64(value, place, least=0) for value in three)
        total += n * abs(q - share)
        rows += n
    return total / rows if rows else None


def _over(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None


def _less(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other
