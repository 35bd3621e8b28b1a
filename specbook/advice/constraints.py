"""Which configurations may run at all: every refusal has a name and a reason.

A constraint is looked at on its own, so that a configuration that is refused for two
reasons names both, and dropping one of them is known not to help (section 0x10).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .. import checks
from ..contract import contract_of, negotiate
from ..errors import ContractError, SpecbookError
from .estimate import Estimate, megabytes
from .needs import Needs, needs_of


@dataclass(frozen=True)
class Constraints:
    """What the runtime allows and asks for.

    `exact`: only rules that keep the target's law. `extra_bytes`: memory beside the
    target; None is no limit. `datastore`: an index of other texts may be kept, its
    content being governed. `fixed_rows`: a forward must have one of few shapes.
    `temperature`: of the requests. `speedup`: the least speed over plain decoding that
    is worth a deployment. Raises `SpecbookError`. Section 0x10.
    """

    exact: bool = True
    extra_bytes: int | None = None
    datastore: bool = False
    fixed_rows: bool = False
    temperature: float = 0.0
    speedup: Any = 0

    def __post_init__(self) -> None:
        for name in ("exact", "datastore", "fixed_rows"):
            checks.boolean(getattr(self, name), name)
        if self.extra_bytes is not None:
            limit = checks.integer(self.extra_bytes, "extra_bytes", least=0)
            object.__setattr__(self, "extra_bytes", limit)
        checks.float64(self.temperature, "temperature", least=0)
        checks.float64(self.speedup, "speedup", least=0)


@dataclass(frozen=True)
class Refusal:
    """`constraint`: its name; `why`: in words."""

    constraint: str
    why: str


def refusals(
    estimate: Estimate,
    constraints: Constraints,
    *,
    needs: Callable[[Any], Needs] = needs_of,
) -> list[Refusal]:
    """Why `estimate` may not run under `constraints`: [] if it may. `needs`: what a
    configuration asks for, by default as the registry has it. `speedup` is no matter of
    one configuration, and is looked at by `advise`."""
    if not isinstance(estimate, Estimate):
        raise SpecbookError(f"not an Estimate: {estimate!r}")
    if not isinstance(constraints, Constraints):
        raise SpecbookError(f"not Constraints: {constraints!r}")
    one = estimate.configuration
    if one.family == "plain":
        # It drafts nothing and holds nothing: no constraint is about it.
        return []
    return list(_refusals(estimate, needs(one), constraints))


def _refusals(
    estimate: Estimate, asks: Needs, allowed: Constraints
) -> Iterator[Refusal]:
    one = estimate.configuration
    rule = contract_of(one.verifier)
    if asks.contract is not None:
        try:
            negotiate([asks.contract], rule, exact=False)
        except ContractError as error:
            yield Refusal("contract", str(error))
    if allowed.exact and not rule.exact:
        yield Refusal("exact", f"the rule {rule.name} does not keep the target's law")
    if rule.greedy_only and allowed.temperature > 0:
        yield Refusal("temperature", f"the rule {rule.name} belongs to temperature 0")
    limit = allowed.extra_bytes
    if limit is not None and estimate.extra_bytes > limit:
        yield Refusal(
            "extra_bytes",
            f"{megabytes(estimate.extra_bytes)} beside the target, "
            f"{megabytes(limit)} are allowed",
        )
    if asks.datastore and not allowed.datastore:
        yield Refusal("datastore", f"{one.source} looks up in a datastore")
    if allowed.fixed_rows and not asks.fixed_rows:
        yield Refusal("fixed_rows", "a round has as many rows as it finds")
