"""What an advice cost, once the answer was measured.

The regret is the time a token of the advised configuration over that of the fastest
one, on prompts that the advice did not see. It is at least 1, and it is a little
harsh: the fastest was found on the very prompts that judge it. An advice that names
another configuration than the fastest is no failure while its regret is near 1; one
that is slower than plain decoding is (sections 0x0D, 0x10).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import checks, lab
from ..contract import contract_of
from ..errors import SpecbookError
from ..measure.frontier_data import PLAIN, Configuration, FrontierFile
from ..measure.frontier_report import workloads
from .choosing import advise
from .constraints import Constraints
from .estimate import Estimate
from .measured import from_frontier

ALL = "all"


@dataclass(frozen=True)
class Regret:
    """`advised`, `best`: as they were measured; `value`: the quotient of their times a
    token, `low` and `high` its 95 % where worlds were drawn, in each of which the
    fastest of that world is the measure. `speedup`: of the advised over plain."""

    workload: str
    advised: Estimate
    best: Estimate
    value: Any
    low: float | None
    high: float | None
    speedup: Any

    def row(self) -> list[str]:
        """The cells of a table with the columns `HEAD`."""
        spread = ""
        if self.low is not None and self.high is not None:
            spread = f" [{self.low:.2f}, {self.high:.2f}]"
        return [
            self.workload.replace("_", " "),
            self.advised.name,
            f"{1000 * float(self.advised.per_token):.1f}",
            self.best.name,
            f"{1000 * float(self.best.per_token):.1f}",
            f"{float(self.value):.3f}{spread}",
            f"{float(self.speedup):.2f}",
        ]


HEAD = (
    "workload",
    "advised",
    "ms a token",
    "fastest",
    "ms a token",
    "regret",
    "advised over plain",
)


def regret(
    workload: str, advised: Configuration, measured: Sequence[Estimate]
) -> Regret:
    """What advising `advised` cost, by `measured`, which holds it, plain decoding and
    all that might have been advised. Raises `SpecbookError` where it does not."""
    checks.text(workload, "workload")
    checks.instance(advised, "advised", Configuration)
    listed = checks.entries(measured, "measured", "Estimates")
    for place, one in enumerate(listed):
        checks.instance(one, f"measured[{place}]", Estimate)
    by_name = {one.configuration: one for one in listed}
    if len(by_name) != len(listed):
        raise SpecbookError("a configuration was measured twice: which one counts?")
    for wanted in (advised, PLAIN):
        if wanted not in by_name:
            raise SpecbookError(f"{wanted.name} was not measured: it has no regret")
    mine = by_name[advised]
    best = min(listed, key=lambda one: one.per_token)
    low = high = None
    lengths = {None if one.worlds is None else len(one.worlds) for one in listed}
    if len(lengths) == 1 and None not in lengths:
        table = np.stack([np.asarray(one.worlds) for one in listed])
        ratio = np.asarray(mine.worlds) / table.min(axis=0)
        low, high = np.quantile(ratio, (0.025, 0.975)).tolist()
    return Regret(
        workload,
        mine,
        best,
        mine.per_token / best.per_token,
        low,
        high,
        by_name[PLAIN].per_token / mine.per_token,
    )


def table(found: Iterable[Regret]) -> lab.Table:
    """Several regrets, for people."""
    return lab.table(HEAD, [one.row() for one in found])


# --------------------------------------------------------------- of a frontier's file


def halves(file: FrontierFile, workload: str | None) -> tuple[set[str], set[str]]:
    """The decoded prompts of a workload in two parts, every second one. Raises
    `SpecbookError` where there is only one prompt of a workload."""
    parts: tuple[set[str], set[str]] = set(), set()
    for kind in [workload] if workload else workloads(file):
        names = list(
            dict.fromkeys(r.prompt for r in file.of("decoded") if r.workload == kind)
        )
        if len(names) < 2:
            raise SpecbookError(f"{kind!r} has {len(names)} prompt: two are needed")
        for number, name in enumerate(names):
            parts[number % 2].add(name)
    return parts


def crossed(
    file: FrontierFile,
    dtype: str,
    temperature: float = 0.0,
    constraints: Constraints | None = None,
) -> list[Regret]:
    """For each workload, and all together: advised by one half of its prompts, judged
    by the other, and the other way round."""
    allowed = (
        Constraints(temperature=temperature) if constraints is None else constraints
    )
    found = []
    if allowed.temperature != temperature:
        raise SpecbookError(
            f"constraints are for temperature {allowed.temperature:g}, "
            f"{temperature:g} is asked for"
        )
    for workload in [*workloads(file), None]:
        parts = halves(file, workload)
        for number, (seen, unseen) in enumerate((parts, parts[::-1]), 1):
            options: dict[str, Any] = {"dtype": dtype, "temperature": temperature}
            known = from_frontier(file, workload, prompts=seen, **options)
            made = advise(known, allowed)
            judged = from_frontier(file, workload, prompts=unseen, **options)
            open_to = {one.configuration for one in made.ranking}
            found.append(
                regret(
                    f"{workload or ALL}, half {number}",
                    made.best.configuration,
                    [one for one in judged if one.configuration in open_to],
                )
            )
    return found


def screened(
    file: FrontierFile, dtype: str, temperature: float = 0.0
) -> dict[str, Regret]:
    """Advised by screening alone, on the development half, and judged on the evaluation
    half that was decoded: {workload, or "all": regret}. Screening does not tell
    workloads apart, so one advice serves all of them."""
    rows = [
        row
        for row in file.of("screened")
        if (row.dtype, row.temperature) == (dtype, temperature)
    ]
    step = [
        cost.seconds
        for cost in file.of("cost")
        if (cost.dtype, cost.batch, cost.nodes) == (dtype, 1, 1)
    ]
    if not rows or not step:
        raise SpecbookError(f"nothing was screened for {dtype!r} at {temperature:g}")
    every = {
        workload or ALL: from_frontier(file, workload, dtype, temperature)
        for workload in [None, *workloads(file)]
    }
    decoded = {one.configuration for one in every[ALL]}
    promised = [Estimate(PLAIN, 1.0, 0.0, step[0], how="predicted")]
    promised += [
        Estimate(
            row.configuration,
            row.tokens_per_round,
            row.draft_seconds,
            row.verify_seconds,
            how="predicted",
        )
        for row in rows
        if row.configuration in decoded
    ]
    made = advise(promised, Constraints(temperature=temperature))
    return {
        name: regret(name, made.best.configuration, _exact(measured))
        for name, measured in every.items()
    }


def _exact(measured: Iterable[Estimate]) -> list[Estimate]:
    # By the rule's own contract: what a file says of it is not looked at.
    return [one for one in measured if contract_of(one.configuration.verifier).exact]


def by_workload(
    advised: Mapping[str, Configuration], measured: Mapping[str, Sequence[Estimate]]
) -> list[Regret]:
    """The regret of one advice a workload. Raises `SpecbookError` for other workloads
    on one side than on the other."""
    if advised.keys() != measured.keys():
        raise SpecbookError(
            f"advised for {sorted(advised)}, measured for {sorted(measured)}"
        )
    return [regret(name, one, measured[name]) for name, one in advised.items()]
