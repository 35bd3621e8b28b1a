"""What a configuration asks of the runtime, read off the registry and its contract.

Nothing is listed by name: a source that is added by a line in the registry says itself
whether it looks things up in a datastore, follows a plan, or draws, and which rules may
meet it (sections 0x02A, 0x03).
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from .. import drafts
from ..contract import SourceContract
from ..errors import SpecbookError
from ..measure.frontier_data import OWN, Configuration


@dataclass(frozen=True)
class Needs:
    """`contract`: of the source as it will propose, None where nothing is drafted.
    `datastore`: it looks up in an index of other texts. `fixed_rows`: every whole round
    has the same rows, or none (a switch), so that the forward can be compiled or
    captured for them."""

    contract: SourceContract | None
    datastore: bool
    fixed_rows: bool


def needs_of(one: Configuration) -> Needs:
    """What `one` needs. Raises `SpecbookError` for a source that nobody registered, and
    for another library."""
    if not isinstance(one, Configuration):
        raise SpecbookError(f"not a Configuration: {one!r}")
    if one.family == "peer":
        raise SpecbookError(f"{one.name} is another library: its needs are not known")
    if one.family == "plain":
        return Needs(None, False, True)
    kind: Any = drafts.get(one.source)
    stored = needs_datastore(one.source)
    return Needs(_contract(kind, one), stored, _fixed(one))


def _fixed(one: Configuration) -> bool:
    """Whether each round that drafts has the same rows: a planned shape has, unless
    siblings that are drawn independently of each other may be one token."""
    siblings = len(set(one.parents)) < len(one.parents)
    return one.topology != OWN and not (siblings and one.children == "iid")


def needs_datastore(name: str) -> bool:
    """Whether the source called `name` looks up in an index of other texts."""
    return "datastore" in inspect.signature(drafts.get(name)).parameters


def family_of(name: str) -> str:
    """Of `frontier_data.FAMILIES`: what drafts in the source called `name`."""
    from ..drafts.neural.heads import HeadsSource

    kind: Any = drafts.get(name)
    if kind.contract.cost_term == "retrieval":
        return "copying"
    if isinstance(kind, type) and issubclass(kind, HeadsSource):
        return "heads"
    return "model" if getattr(kind, "follows_plans", True) else "self"


def _contract(kind: Any, one: Configuration) -> SourceContract:
    contract: SourceContract = kind.contract
    if not one.children:
        return contract
    from ..drafts.neural.planned import PlannedSource

    chain = len(set(one.parents)) == len(one.parents)
    made = PlannedSource(
        contract,
        widths=(1, 1) if chain else (2, 2),
        shape=None,
        children=one.children,
        stop_below=0.0,
        usual=(1,),
    )
    return made.contract
