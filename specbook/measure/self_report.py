"""The result of `specbook bench self`: what self-speculation brings over plain
decoding, what a drafted token costs and must be worth, and whether the search for
layers to skip promised what decoding gave. Reading it needs no torch.

A drafted token costs c target steps. It is paid for whether it is accepted or not, and
brings a committed token if it is, so on a target whose further rows are free a chain
can pay only while more than a share c of its tokens is accepted. That share stands
beside the measured one; where it is the larger, no stop rule helps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from .. import checks
from .decode_report import Difference, Sample
from .plain_report import ALL, PLAIN, PlainReport, aims_table
from .report import Table, percent

if TYPE_CHECKING:
    from ..plotting import FramedFigure

METHODS = ("draft_verify", "kangaroo")
"""The sources, by their names in the registry."""


@dataclass(frozen=True)
class Costs:
    """Seconds of one row on the target, medians: `step` a plain step, `lm_head` the
    whole LM head, `layer` one layer of `layers`; `draft` {method: of a drafted token,
    from chains}. `about` {method: what of the target the method runs for a token}."""

    dtype: str
    step: float
    lm_head: float
    layers: int
    draft: dict[str, float]
    about: dict[str, str]

    def __post_init__(self) -> None:
        checks.text(self.dtype, "dtype")
        checks.integer(self.layers, "layers", least=1)
        for name in ("step", "lm_head"):
            checks.float64(getattr(self, name), name, least=0)
        for name, seconds in self.draft.items():
            checks.one_of(name, "method", METHODS)
            checks.float64(seconds, f"draft of {name}", least=0)

    @property
    def layer(self) -> float:
        """Seconds of one layer: what a step takes without the LM head, shared out."""
        return max(0.0, self.step - self.lm_head) / self.layers


@dataclass(frozen=True)
class Objective:
    """Time a verified token, over that of plain decoding on the same prompts: what the
    search promised (on its prompts and its machine) and what this run gave."""

    dtype: str
    promised: float
    machine: str

    def __post_init__(self) -> None:
        for name in ("dtype", "machine"):
            checks.text(getattr(self, name), name)
        checks.float64(self.promised, "promised", least=0)


@dataclass(frozen=True)
class SelfReport(PlainReport):
    """Everything that one run measured."""

    KIND: ClassVar[str] = "self-speculation report"
    STEM: ClassVar[str] = "self"
    SYSTEMS: ClassVar[tuple[str, ...]] = (PLAIN, *METHODS)

    samples: tuple[Sample, ...]
    differences: tuple[Difference, ...] = ()
    costs: tuple[Costs, ...] = ()
    objectives: tuple[Objective, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that decoded, in order."""
        ran = {sample.system for sample in self.samples}
        return tuple(name for name in METHODS if name in ran)

    def cost(self, dtype: str) -> Costs | None:
        """The costs in one dtype; None if they were not measured."""
        return next((one for one in self.costs if one.dtype == dtype), None)

    def accepted(self, dtype: str, scope: str, method: str) -> float | None:
        """Accepted drafted tokens over all drafted ones; None if there were none."""
        found = self.select(dtype, scope, method)
        drafted = sum(s.drafted or 0 for s in found)
        return sum(s.accepted or 0 for s in found) / drafted if drafted else None

    def drafted_per_round(self, dtype: str, scope: str, method: str) -> float | None:
        """Drafted tokens a round; None if there was no round."""
        found = self.select(dtype, scope, method)
        rounds = sum(s.rounds for s in found)
        return sum(s.drafted or 0 for s in found) / rounds if rounds else None

    def share_of_step(self, dtype: str, method: str) -> float | None:
        """c: seconds that a drafted token adds to a round, its row of the verification
        with it, over those of a plain step. Layers that drafting has run for the
        verification count once."""
        mine = self.select(dtype, ALL, method)
        plain = self.select(dtype, ALL, PLAIN)
        drafted = sum(s.drafted or 0 for s in mine)
        steps = sum(s.rounds for s in plain)
        step = _forwards(plain) / steps if steps else 0.0
        added = _forwards(mine) - step * sum(s.rounds for s in mine)
        return added / drafted / step if drafted and step else None

    def measured_objective(self, dtype: str, method: str) -> float | None:
        """Time a token over that of plain decoding, all prompts; None if not run."""
        ratio = self.speed(dtype, ALL, method)
        return None if ratio is None else 1 / ratio.value

    # ------------------------------------------------------------------- what follows

    def aims(self) -> list[dict[str, Any]]:
        """What was aimed at and measured: equal tokens in float32, and one method
        quicker than plain decoding on code in each dtype."""
        rows: list[dict[str, Any]] = []
        if "float32" in self.dtypes and self.methods:
            left = self.left_plain("float32")
            rows.append(
                {
                    "what": "float32: answers unlike plain greedy decoding",
                    "measured": float(left),
                    "aim": 0.0,
                    "kept": left == 0,
                }
            )
        if "code" in self.scopes:
            for dtype in self.dtypes:
                found = [self.speed(dtype, "code", name) for name in self.methods]
                best = max((r.value for r in found if r), default=None)
                if best is not None:
                    rows.append(
                        {
                            "what": f"code, {dtype}: speed over plain, better method",
                            "measured": best,
                            "aim": 1.0,
                            "kept": best > 1,
                        }
                    )
        return rows

    def derived(self) -> dict[str, Any]:
        """The aims, and a hash of all that was measured: a flipped digit is found."""
        return {"aims": self.aims(), "sha256": self.sha256()}

    # ------------------------------------------------------------------------- output

    def options(self) -> list[str]:
        """How things were set."""
        told = [
            f"Greedy, {len({s.prompt_id for s in self.samples})} prompts of the "
            f"{self.settings.get('half')} half, at most "
            f"{self.settings.get('max_new_tokens')} new tokens. Systems of one dtype "
            "took turns; dtypes ran one after the other."
        ]
        for name, told_by in (self.settings.get("methods") or {}).items():
            told.append(f"{name}: {told_by}.")
        return told

    def strengths(self) -> list[str]:
        """Whether tokens agree, which method pays, and what decides it."""
        lines = self.unlike_plain()
        for dtype in self.dtypes:
            for name in self.methods:
                speed = self.speed(dtype, ALL, name)
                share = self.share_of_step(dtype, name)
                accepted = self.accepted(dtype, ALL, name)
                if speed is None or share is None or accepted is None:
                    continue
                pays = "more" if accepted > share else "no more"
                lines.append(
                    f"{dtype}, {name}: {speed} times plain decoding. A drafted token "
                    f"costs {share:.2f} of a step and {accepted:.0%} are accepted, "
                    f"{pays} than it costs."
                )
        return lines

    def tables(self) -> Iterable[Table]:
        """All tables; those of parts that were not measured are left out."""
        made = [
            self._speed_table(),
            self._costs_table(),
            self._objective_table(),
            self.time_table(),
            self.agreement(),
            aims_table(self.aims(), head="aim", missed="missed", forms=(".2f", ".2f")),
        ]
        return [table for table in made if table[2]]

    def agreement(self) -> Table:
        """As `PromptReport.agreement`, of the methods that ran."""
        title, head, rows = super().agreement()
        return title, head, [row for row in rows if row[2] != "0"]

    def _speed_table(self) -> Table:
        rows = []
        for dtype in self.dtypes:
            for scope in dict.fromkeys((*self.workloads, *self.scopes)):
                for name in self.methods:
                    ratio = self.speed(dtype, scope, name)
                    if ratio is None:
                        continue
                    rows.append(
                        [
                            dtype,
                            name,
                            scope,
                            str(ratio),
                            str(self.tokens_per_round(dtype, scope, name)),
                            _number(self.drafted_per_round(dtype, scope, name)),
                            percent(self.accepted(dtype, scope, name)),
                            _token(self.select(dtype, scope, name)),
                            _token(self.select(dtype, scope, PLAIN)),
                            str(ratio.prompts),
                        ]
                    )
        return (
            "Speed: tokens a second over plain decoding, sums over sums; "
            "[95 % bootstrap over prompts]",
            [
                "dtype",
                "method",
                "workload",
                "over plain",
                "tokens a round",
                "drafted a round",
                "accepted",
                "ms a token",
                "plain",
                "prompts",
            ],
            rows,
        )

    def _costs_table(self) -> Table:
        rows = []
        for dtype in self.dtypes:
            if (cost := self.cost(dtype)) is None:
                continue
            for name in self.methods:
                if name not in cost.draft:
                    continue
                rows.append(
                    [
                        dtype,
                        name,
                        cost.about.get(name, ""),
                        f"{1e3 * cost.step:.1f}",
                        f"{1e3 * cost.layer:.2f}",
                        f"{1e3 * cost.lm_head:.1f}",
                        f"{1e3 * cost.draft[name]:.1f}",
                        f"{cost.draft[name] / cost.step:.2f}",
                        _number(self.share_of_step(dtype, name)),
                        percent(self.accepted(dtype, ALL, name)),
                    ]
                )
        return (
            "What decides: a drafted token against a step, milliseconds and shares",
            [
                "dtype",
                "method",
                "runs for a token",
                "step",
                "layer",
                "LM head",
                "drafted token",
                "of a step",
                "while decoding",
                "accepted",
            ],
            rows,
        )

    def _objective_table(self) -> Table:
        rows = []
        for one in self.objectives:
            found = self.measured_objective(one.dtype, "draft_verify")
            rows.append(
                [
                    one.dtype,
                    f"{one.promised:.2f}",
                    "" if found is None else f"{found:.2f}",
                    one.machine,
                ]
            )
        return (
            "The search for layers to skip: time a verified token, plain decoding = 1 "
            "(reading the prompt is left out of what was promised)",
            ["dtype", "promised", "measured here", "searched on"],
            rows,
        )

    @property
    def drawable(self) -> bool:
        """Whether a method decoded."""
        return bool(self.methods)

    def figure(self) -> FramedFigure:
        """Speed over plain decoding of each method, by dtype and workload."""
        from .. import plotting

        groups: dict[str, dict[str, tuple[float, float, float]]] = {}
        for dtype in self.dtypes:
            for scope in (*self.workloads, ALL):
                row = {}
                for name in self.methods:
                    if (ratio := self.speed(dtype, scope, name)) is not None:
                        row[name] = (ratio.value, ratio.low, ratio.high)
                groups[f"{dtype}, {scope.replace('_', ' ')}"] = row
        told = "; ".join(
            f"{group}: " + ", ".join(f"{k} {v[0]:.2f}" for k, v in row.items())
            for group, row in groups.items()
        )
        value, method, group = max(
            (v[0], k, group) for group, row in groups.items() for k, v in row.items()
        )
        return plotting.figure(
            plotting.grouped_ranges(
                groups,
                "tokens a second, plain decoding in the same dtype = 1",
                reference=(1.0, "plain"),
            ),
            alt="Dots with 95 percent intervals: tokens a second of each way of "
            f"drafting with the target itself, over plain decoding. {told}.",
            caption=f"The best is {method} ({group}) at {value:.2f} times plain "
            f"decoding. Measured on: {self.where()}.",
        )


def _forwards(found: Sequence[Sample]) -> float:
    """Seconds of drafting and verifying."""
    terms = ("proposal", "target_verify")
    return sum((s.cost_terms or {}).get(term, 0.0) for s in found for term in terms)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _token(found: Sequence[Sample]) -> str:
    """Milliseconds a token."""
    tokens = sum(s.new_tokens for s in found)
    return f"{1e3 * sum(s.seconds for s in found) / tokens:.1f}" if tokens else ""
