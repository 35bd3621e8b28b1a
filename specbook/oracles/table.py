"""Every rule beside the optimum, in one table (sections 0x08 and 0x09).

The rows are the registry's verifiers with every sampling that their contracts admit, so
a new rule is in the table by its line there. Two rules that both accept always may
differ in the one column that matters: what comes out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import checks
from ..chance import Chance
from ..contract import Verifier
from ..drafts.samplers import MOST_DRAWS, Draw
from ..errors import ContractError, LawError, SpecbookError
from ..proposal import Topology
from ..verifiers import names
from .drafted import RELATIONS, ask, check_reach
from .optimum import optimal_acceptance, optimum_of
from .position import admit, measure, rule_of


@dataclass(frozen=True)
class Comparison:
    """One row. `kind`: "exact", "heuristic" or "control". `gap`: the optimum for these
    drafts less the acceptance; a rule that is not exact may go below 0. `variation`:
    the total variation between `output` and p, 0 for an exact rule. A control draws its
    own drafts, and its optimum is that of these."""

    verifier: str
    kind: str
    sampling: str
    k: int
    acceptance: Any
    membership: Any
    optimum: Any
    gap: Any
    output: tuple[Any, ...]
    variation: Any


def compare(
    p: Any,
    q: Any,
    k: int,
    *,
    verifiers: Iterable[str | Verifier] | None = None,
    controls: Iterable[Any] = (),
) -> tuple[Comparison, ...]:
    """The rows for target law `p` [V] and `k` drafts of `q` [V].

    With a list of k rows as q the drafts are `independent`, with one row they are drawn
    in every other way. A rule that only walks chains is shown with one draft.
    `verifiers`: names or objects, by default all of the registry; pairs that their
    contracts refuse are no rows. `controls`: mistakes
    to set beside them (`specbook.controls.CONTROLS`); those that need more rounds than
    one position has are left out. Raises what `position_law` raises for bad laws.
    """
    checks.integer(k, "k", least=1, most=MOST_DRAWS)
    p = checks.law(p, "p")
    # Read once: rows and laws may come as generators.
    q = checks.entries(
        list(q) if isinstance(q, np.ndarray) and q.ndim else q,
        "q",
        "numbers, or rows",
        LawError,
    )
    several = bool(q) and isinstance(q[0], Iterable) and not isinstance(q[0], str)
    if several:
        q = [checks.law(row, f"q[{i}]", size=len(p)) for i, row in enumerate(q)]
        if len(q) != k:
            raise SpecbookError(f"q has {len(q)} rows for {k} independent drafts")
    else:
        q = checks.law(q, "q", size=len(p))
    samplings = [s for s in RELATIONS if (s == "independent") is several]
    rules = names() if verifiers is None else verifiers
    rows: list[Comparison] = []
    for rule in checks.entries(rules, "verifiers", "verifiers"):
        chosen = rule_of(rule)
        contract = chosen.contract
        chain = not contract.topology & {Topology.SET, Topology.TREE}
        if chain and several:
            continue
        for sampling in samplings:
            if contract.supports_sampling_relation(RELATIONS[sampling]):
                row = _row(chosen, p, q, 1 if chain else k, sampling)
                rows += [] if row is None else [row]
    for control in checks.entries(controls, "controls", "controls"):
        rows += _control(control, p, q if several else [q] * k)
    return tuple(rows)


def _row(rule: Verifier, p: Any, q: Any, k: int, sampling: str) -> Comparison | None:
    """The row of a pair, or None where the rule does not serve it."""
    if sampling == "hub" and k != 2:
        return None
    asked = ask(p, q, k, sampling)
    try:
        admit(rule, asked)
    except ContractError:
        return None
    check_reach(asked)
    found = measure(rule.select, asked.draw, asked.p)
    optimum = optimal_acceptance(p, q, k, sampling)
    return Comparison(
        rule.contract.name,
        "exact" if rule.contract.exact else "heuristic",
        sampling,
        k,
        found.acceptance,
        found.membership,
        optimum,
        optimum - found.acceptance,
        found.output,
        _variation(found.output, asked.p),
    )


def _control(control: Any, p: Any, rows: Any) -> list[Comparison]:
    asked = ask(p, rows, len(rows), "independent")
    if not hasattr(control, "position"):
        raise SpecbookError(f"not a control: {control!r}")
    made = control.position
    if made is None:
        return []

    def draws(chance: Chance) -> list[Draw]:
        return list(made.draw(list(asked.rows), chance))

    found = measure(made.select, draws, asked.p)
    optimum = optimum_of(draws, asked.p)
    return [
        Comparison(
            control.name,
            "control",
            "its own",
            asked.k,
            found.acceptance,
            found.membership,
            optimum,
            optimum - found.acceptance,
            found.output,
            _variation(found.output, asked.p),
        )
    ]


def _variation(output: Iterable[Any], p: np.ndarray) -> Any:
    return sum(abs(a - b) for a, b in zip(output, p, strict=True)) / 2
