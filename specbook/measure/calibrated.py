"""A draft source of the registry, as acceptance is measured on it.

A source that draws gets a shape that shows every slot at every depth; a source that
copies proposes what it finds, in its own shape. What does not fit together is told
before anything is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .. import registry
from ..contract import SourceContract
from ..errors import SpecbookError
from ..tree import CandidateTree

WITH_A_MODEL = ("draft_model", "staged")
"""The sources that a checkpoint of a draft model may be given to."""


@dataclass(frozen=True)
class Calibrated:
    """A source that may not be made yet. `contract`: under which it will propose.
    `make`: makes it. `most`: candidates of a round, None where it has no plan."""

    contract: SourceContract
    make: Callable[[], Any]
    most: int | None = None


def calibrated(
    name: str,
    shape: CandidateTree,
    *,
    children: str | None = None,
    draft: str | os.PathLike[str] | None = None,
    datastore: str | os.PathLike[str] | None = None,
) -> Calibrated:
    """The source called `name`, planned as `shape` if it follows plans.

    `children`: how siblings are drawn, by default without replacement; `draft`: the
    checkpoint of a draft model; `datastore`: the index of `rest`. Each belongs to the
    sources that have a use for it, and is refused with any other. Raises `ValueError`
    for that and for an unknown name. No model is loaded.
    """
    from ..drafts.neural.draft_model import DraftModel
    from ..drafts.neural.planned import PlannedSource

    kind = registry.resolve(registry.DRAFTS, "draft source", name)
    if draft is not None and name not in WITH_A_MODEL:
        raise SpecbookError(f"a draft belongs to {WITH_A_MODEL}, not to {name!r}")
    if (datastore is None) == (name == "rest"):
        raise SpecbookError(
            "source 'rest' needs a datastore, and no other source has a use for one; "
            "specbook index --out FILE makes one"
        )
    if not getattr(kind, "follows_plans", True):
        raise SpecbookError(
            f"source {name!r} drafts one chain and says itself how long: there are no "
            "slots to measure"
        )
    if name != "staged" and not issubclass(kind, PlannedSource):
        if children is not None:
            raise SpecbookError(f"source {name!r} draws no children, it copies")
        made = kind() if datastore is None else kind(datastore)
        return Calibrated(made.contract, lambda: made)
    drawn = children or "without_replacement"
    options: dict[str, Any] = {"shape": shape, "children": drawn}
    # The same options without a model tell under which contract it will propose.
    planned = PlannedSource(
        kind.contract, widths=None, stop_below=0.0, usual=(1,), **options
    )

    def make() -> Any:
        if name not in WITH_A_MODEL:
            return kind(**options)
        drafter = DraftModel(draft, **options)
        return kind(drafter) if name == "staged" else drafter

    return Calibrated(planned.contract, make, len(shape))
