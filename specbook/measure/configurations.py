"""Which configurations there are: sources of the registry, their shapes, their rules.

Nothing is listed here by name. A source of the registry that can be made takes part;
what it may propose follows from what it is (one that follows plans gets shapes, one
that does not keeps its own), and the rules that may meet it are those that its contract
admits. So a source or a rule that is added by a line in the registry appears by itself,
and one that cannot take part is named with its reason (sections 0x02A, 0x0D).
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import checks, drafts, paths
from ..contract import SourceContract, admitted, contract_of
from ..drafts.neural.draft_model import SHIPPED as SHIPPED_DRAFT
from ..drafts.neural.draft_model import DraftModel
from ..drafts.neural.heads import SHIPPED as SHIPPED_HEADS
from ..drafts.neural.heads import HeadsSource
from ..drafts.neural.planned import CHILDREN, PlannedSource
from ..drafts.neural.staged import Staged
from ..drafts.rest.datastore import Datastore
from ..engine import fitted_target
from ..errors import SpecbookError
from ..models.heads import storage
from ..topologies import cartesian, chain
from ..topologies.progress import shape_of
from ..tree import CandidateTree
from .frontier_data import OWN, Configuration, Skipped

SLOTS = 3
"""Children of a node that screening counts, and so the widest that a shape may be."""

CHAINS = (1, 2, 3, 4, 6)
STARS = (2, 3)
LEVELS = ((2, 2), (3, 2), (2, 2, 2))
"""Branchings of the full trees."""

BUDGETS = (0, 4, 8)
"""Candidates of a round of a source that copies; 0 is the engine's own limit."""

DEEPEST = 8
"""Levels of a second model, which has no limit of its own."""

Make = Callable[..., Any]


@dataclass(frozen=True)
class Available:
    """A source that can take part. `family`: of `frontier_data.FAMILIES`. `make`: makes
    it; one that follows plans takes `children` and `widths` or `shape`. `levels`: how
    deep its plans may be, 0 where it follows none. `contract`: that of a chain, or its
    only one."""

    name: str
    family: str
    make: Make
    contract: SourceContract
    levels: int = 0


@dataclass(frozen=True)
class Drawing:
    """A source with its candidates drawn in one way, and the rules that may meet it.
    `children`: "" for a source with no choice. `chain`: no node has two children, which
    is a contract of its own. `rules`: names of the registry, exact ones first."""

    source: Available
    children: str
    chain: bool
    contract: SourceContract
    rules: tuple[str, ...]

    @property
    def key(self) -> tuple[str, str, bool]:
        """What no other drawing shares."""
        return self.source.name, self.children, self.chain


def available(
    target: Any,
    *,
    names: Sequence[str] | None = None,
    draft: str | os.PathLike[str] | None = None,
    datastore: Datastore | str | os.PathLike[str] | None = None,
    dtype: str = "float32",
    cost: Sequence[tuple[int, float]] | None = None,
) -> tuple[list[Available], list[Skipped]]:
    """The sources of the registry that can be made and serve `target` (a loaded one),
    each with its shipped artifact, and the others with the reason.

    `names`: only these of the registry; None is all. `draft`: the folder or hub id of
    the second model, by default the shipped one, which is read in `dtype`.
    `datastore`: an index, or its file, for sources that need one. `cost`: pairs
    (rows, time) for sources that choose how long they draft. An artifact that is not
    there or belongs to another target is a reason; one that is damaged raises
    `ArtifactError`. Raises `SpecbookError` for an unknown name.
    """
    loaded: dict[str, Any] = {}

    def model() -> Any:
        if "model" not in loaded:
            from ..models.loading import load_target

            folder = paths.data_path(*SHIPPED_DRAFT) if draft is None else draft
            loaded["model"] = load_target(folder, dtype=dtype)
        return loaded["model"]

    found: list[Available] = []
    skipped: list[Skipped] = []
    known = drafts.names()
    if names is not None:
        for name in (asked := checks.entries(names, "names", "sources")):
            checks.one_of(name, "source", known)
        known = [name for name in known if name in asked]
    for name in known:
        kind: Any = drafts.get(name)
        reason = _missing(name, kind, datastore)
        if not reason:
            made = _available(name, kind, model, datastore, cost)
            reason = _refused(made, target)
        if reason:
            skipped.append(Skipped(name, reason))
        else:
            found.append(made)
    return found, skipped


def _refused(source: Available, target: Any) -> str:
    """Why a source cannot serve the target; "" where it can. Its own check says."""
    made = source.make(widths=(1,)) if source.levels else source.make()
    try:
        fitted = fitted_target(target, made)
        if hasattr(made, "check_target"):
            made.check_target(fitted)
    except SpecbookError as error:
        return str(error)
    return ""


def _missing(name: str, kind: Any, datastore: Any) -> str:
    """Why a source cannot be made; "" where it can."""
    if _is(kind, HeadsSource):
        folder = Path(str(paths.data_path(SHIPPED_HEADS)), name)
        return "" if folder.is_dir() else "no heads of this kind are shipped"
    if "datastore" in _options(kind) and datastore is None:
        return "it needs a datastore, and none was given (specbook index makes one)"
    return ""


def _is(kind: Any, base: type) -> bool:
    return isinstance(kind, type) and issubclass(kind, base)


def _options(kind: Any) -> Sequence[str]:
    return list(inspect.signature(kind).parameters)


def _available(
    name: str, kind: Any, model: Callable[[], Any], datastore: Any, cost: Any
) -> Available:
    if _is(kind, HeadsSource):
        # Several plans of the same heads share one copy of them.
        stored = storage.read(paths.data_path(SHIPPED_HEADS, name))

        def heads(**plan: Any) -> Any:
            return kind(stored, **plan)

        levels = stored.heads.config.heads
        return Available(name, "heads", heads, kind.contract, levels)
    if _is(kind, DraftModel) or _is(kind, Staged):

        def drafted(**plan: Any) -> Any:
            made = DraftModel(model(), **plan)
            return made if kind is DraftModel else kind(made)

        return Available(name, "model", drafted, kind.contract, DEEPEST)
    options: dict[str, Any] = {}
    known = _options(kind)
    if "datastore" in known:
        options["datastore"] = datastore
    if "cost" in known and cost is not None:
        options["cost"] = cost
    if _is(kind, PlannedSource) and kind.follows_plans:

        def planned(**plan: Any) -> Any:
            return kind(**options, **plan)

        return Available(name, "model", planned, kind.contract, DEEPEST)
    # It keeps nothing between requests, so one that is made serves them all.
    made = drafts.make(name, **options)
    family = "self" if getattr(kind, "follows_plans", None) is False else "model"
    if made.contract.cost_term == "retrieval":
        family = "copying"
    return Available(name, family, lambda: made, made.contract)


def drawings(source: Available, temperature: float) -> list[Drawing]:
    """The ways in which a source can draw its candidates, each with the rules that its
    contract admits there.

    At temperature 0 a law has one possible token: whatever is drawn from it is a chain,
    so among trees only those of the most probable tokens are left.
    """
    if not source.levels:
        rules = _rules(source.contract, temperature)
        return [Drawing(source, "", False, source.contract, rules)]
    found = []
    for children in CHILDREN:
        for is_chain in (True, False):
            if is_chain and children not in ("without_replacement", "top_k"):
                continue  # one draw is one draw, however siblings would be drawn
            if not is_chain and temperature == 0 and children != "top_k":
                continue
            widths = (1, 1) if is_chain else (2, 2)
            contract = PlannedSource(
                source.contract,
                widths=widths,
                shape=None,
                children=children,
                stop_below=0.0,
                usual=(1,),
            ).contract
            rules = _rules(contract, temperature)
            found.append(Drawing(source, children, is_chain, contract, rules))
    return found


def _rules(contract: SourceContract, temperature: float) -> tuple[str, ...]:
    names = [
        name
        for name in admitted([contract], exact=False)
        if temperature == 0 or not contract_of(name).greedy_only
    ]
    return tuple(sorted(names, key=lambda name: not contract_of(name).exact))


def shapes(drawing: Drawing) -> dict[str, CandidateTree]:
    """The shapes that a drawing is tried with, by name: chains, or stars and full
    trees, as deep as the source goes. {} for a source with a shape of its own."""
    levels = drawing.source.levels
    if not levels:
        return {}
    if drawing.chain:
        return {f"chain {k}": chain(k) for k in CHAINS if k <= levels}
    widths: list[tuple[int, ...]] = [(n,) for n in STARS]
    widths += LEVELS
    if drawing.children == "hub":
        widths = [(2,), (2, 2), (2, 2, 2)]
    return {
        _told(one): cartesian(one)
        for one in widths
        if len(one) <= levels and max(one) <= SLOTS
    }


def _told(widths: tuple[int, ...]) -> str:
    if len(widths) == 1:
        return f"star {widths[0]}"
    return "tree " + " x ".join(map(str, widths))


def configuration(
    drawing: Drawing,
    rule: str,
    topology: str = OWN,
    shape: CandidateTree | None = None,
    most: int = 0,
) -> Configuration:
    """One point of the frontier."""
    return Configuration(
        drawing.source.name,
        drawing.source.family,
        rule,
        contract_of(rule).exact,
        topology,
        drawing.children,
        False,
        most,
        () if shape is None else shape.parents,
        () if shape is None else shape.token_ids,
    )


def source_of(one: Configuration, sources: Sequence[Available]) -> Any:
    """The draft source of a configuration, without its switch. Raises `SpecbookError`
    for one that is not among `sources`."""
    for source in sources:
        if source.name != one.source:
            continue
        if not source.levels:
            return source.make()
        shape = shape_of(one.parents, one.ranks)
        if max(_counts(shape)) == 1:
            # A chain by widths: a planned one would have the contract of a tree.
            return source.make(widths=(1,) * len(shape), children=one.children)
        return source.make(shape=shape, children=one.children)
    raise SpecbookError(f"no source {one.source!r} is available")


def _counts(shape: CandidateTree) -> list[int]:
    return [len(shape.children(row)) for row in range(-1, len(shape))]


def every_pair(temperature: float, sources: Sequence[Available]) -> list[Drawing]:
    """All drawings of all sources at one temperature."""
    return [one for source in sources for one in drawings(source, temperature)]
