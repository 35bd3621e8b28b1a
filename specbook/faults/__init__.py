"""The failure lab: faults of every layer, planted into running code (section 0x0E).

The article's table of failures is lost. This is one made from code: each row is a
`Fault` that runs, in the module of its layer. `plant` has those that can be put into
any target, the reader's own among them.
"""

from __future__ import annotations

from collections.abc import Iterable

from .. import checks
from ..errors import SpecbookError
from . import commits, contracts, plans, rules, sources, targets, training, trees
from .elsewhere import ELSEWHERE, Elsewhere
from .fault import LAYERS, LOGITS, TOKENS, VARIATION, Fault, Finding

__all__ = [
    "ELSEWHERE",
    "FAULTS",
    "LAYERS",
    "LOGITS",
    "TOKENS",
    "VARIATION",
    "Elsewhere",
    "Fault",
    "Finding",
    "get",
    "names",
    "run",
]

FAULTS: tuple[Fault, ...] = (
    *sources.FAULTS,
    *contracts.FAULTS,
    *trees.FAULTS,
    *targets.FAULTS,
    *rules.FAULTS,
    *commits.FAULTS,
    *plans.FAULTS,
    *training.FAULTS,
)
"""All of them, layer by layer."""


def names() -> list[str]:
    """The ids of all faults."""
    return [fault.id for fault in FAULTS]


def get(fault_id: str) -> Fault:
    """The fault with this id; an unknown one raises and lists the known ones."""
    for fault in FAULTS:
        if isinstance(fault_id, str) and fault.id == fault_id:
            return fault
    raise SpecbookError(f"no fault is called {fault_id!r}; there are {names()}")


def run(ids: Iterable[str] | None = None) -> list[Finding]:
    """Looks for every fault (or for those of `ids`), live: see `Fault.run`."""
    wanted = names() if ids is None else checks.entries(ids, "ids", "names")
    return [get(name).run() for name in wanted]
