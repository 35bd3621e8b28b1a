"""What reports share whose first system is our own plain decoding: speed over it,
tokens a round, and where the time of a round goes. Ratios are sums over sums, with
intervals from drawing the prompts again. Reading it needs no torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .. import checks
from ..errors import SpecbookError
from ..ledger import COST_TERMS
from .decode_report import PromptReport, Sample, speed_ratio
from .report import Ratio, Table, resampled

PLAIN = "plain"
CODE = ("continue_code", "edit_code")
ALL = "all"
"""The workloads taken together."""


class PlainReport(PromptReport):
    """The base of reports about systems that are compared with plain decoding, in one
    dtype or several."""

    @property
    def scopes(self) -> tuple[str, ...]:
        """ "code", which is its two workloads, then the others, then all together."""
        found = self.workloads
        code = ("code",) if set(found) & set(CODE) else ()
        return (*code, *(name for name in found if name not in CODE), ALL)

    def _inside(self, workload: str, scope: str) -> bool:
        if scope not in (*self.scopes, *self.workloads):
            raise SpecbookError(
                f"{scope!r} was not measured; there are {list(self.scopes)}"
            )
        return scope in (workload, ALL) or (scope == "code" and workload in CODE)

    def select(self, dtype: str, scope: str, name: str) -> list[Sample]:
        """The samples of one system in one dtype, of the workloads of a scope."""
        checks.one_of(name, "system", self.SYSTEMS)
        return [
            sample
            for sample in self.samples
            if (sample.dtype, sample.system) == (dtype, name)
            and self._inside(sample.workload, scope)
        ]

    def tokens_per_round(self, dtype: str, scope: str, name: str) -> Ratio | None:
        """Tokens a round of a system, with its interval; None if it did not run."""
        found = self.select(dtype, scope, name)
        if not found:
            return None
        table = [(s.new_tokens, s.rounds) for s in found]
        return resampled(table, lambda sums: sums[:, 0] / sums[:, 1])

    def rounds_ratio(
        self, dtype: str, scope: str, name: str, other: str
    ) -> Ratio | None:
        """Tokens a round of one system over those of another on the same prompts."""
        mine, theirs = (self.select(dtype, scope, one) for one in (name, other))
        if not mine or not theirs:
            return None
        prompts = [[s.prompt_id for s in found] for found in (mine, theirs)]
        if prompts[0] != prompts[1]:
            raise SpecbookError(f"{name} and {other} ran on different prompts")
        table = [
            (a.new_tokens, a.rounds, b.new_tokens, b.rounds)
            for a, b in zip(mine, theirs, strict=True)
        ]
        return resampled(table, lambda s: s[:, 0] / s[:, 1] / (s[:, 2] / s[:, 3]))

    def faster_dtype(self, scope: str = ALL) -> str:
        """The dtype in which plain decoding is the quickest."""

        def speed(dtype: str) -> float:
            found = self.select(dtype, scope, PLAIN)
            return sum(s.new_tokens for s in found) / sum(s.seconds for s in found)

        return max(self.dtypes, key=speed)

    def speed(
        self, dtype: str, scope: str, name: str, *, over: str | None = None
    ) -> Ratio | None:
        """Tokens a second of a system over those of plain decoding in the dtype `over`,
        by default its own; None if it did not run."""
        found = self.select(dtype, scope, name)
        if not found:
            return None
        return speed_ratio(found, self.select(over or dtype, scope, PLAIN))

    def left_plain(self, dtype: str) -> int:
        """In how many answers any system left the tokens of plain decoding."""
        return sum(found.dtype == dtype for found in self.differences)

    def unlike_plain(self) -> list[str]:
        """Sentences: whether the answers of each dtype are those of plain decoding."""
        lines = []
        for dtype in self.dtypes:
            found = self.left_plain(dtype)
            systems = {s.system for s in self.samples if s.dtype == dtype}
            if systems <= {PLAIN}:
                continue
            if not found:
                lines.append(f"{dtype}: every answer equals plain greedy decoding.")
            elif dtype == "float32":
                lines.append(
                    f"{dtype}: answers unlike plain greedy decoding: {found}. That "
                    "is a fault unless the two best logits were equal to rounding."
                )
            else:
                lines.append(
                    f"{dtype}: answers unlike plain greedy decoding: {found}; the "
                    "gaps of the two best logits there are below."
                )
        return lines

    def time_table(self) -> Table:
        """Milliseconds a round by cost term, for each system that ran."""
        rows = []
        for dtype in self.dtypes:
            for name in self.SYSTEMS:
                if found := self.select(dtype, ALL, name):
                    rows.append([dtype, name, *_spent(found)])
        return (
            "Where the time goes: milliseconds a round by cost term",
            [
                "dtype",
                "system",
                *(term.replace("_", " ") for term in COST_TERMS),
                "round",
                "a token",
            ],
            rows,
        )


def aims_table(
    aims: Iterable[Mapping[str, Any]],
    *,
    head: str,
    missed: str,
    forms: tuple[str, str],
) -> Table:
    """A row for each of `aims`: "what", "measured", "aim" and whether it was "kept".
    `head` stands above the aims, `missed` where one was not kept; `forms`: how measured
    and aim are written."""
    rows = [
        [
            row["what"],
            format(row["measured"], forms[0]),
            format(row["aim"], forms[1]),
            "reached" if row["kept"] else missed,
        ]
        for row in aims
    ]
    return "Aims", ["what", "measured", head, ""], rows


def _spent(found: Sequence[Sample]) -> list[str]:
    """Milliseconds a round of each cost term, of all, and milliseconds a token."""
    rounds = sum(sample.rounds for sample in found)
    spent = [sample.cost_terms or {} for sample in found]
    terms = [sum(item.get(term, 0.0) for item in spent) for term in COST_TERMS]
    tokens = sum(sample.new_tokens for sample in found)
    seconds = sum(sample.seconds for sample in found)
    return [
        *(f"{1e3 * term / rounds:.2f}" for term in (*terms, sum(terms))),
        f"{1e3 * seconds / tokens:.2f}",
    ]
