"""Which proposal may meet which verifier (section 0x02A).

A rule is exact only for proposals that were made the way its proof assumes. `bind`
compares the two sides before any target call and names every clash. It is the only
way into a round, so a wrong pair cannot run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from . import checks, registry
from .chance import Chance
from .errors import ContractError
from .ledger import COST_TERMS
from .manifest import RoundManifest
from .proposal import (
    ProbabilitySemantics,
    Proposal,
    ProposalStateHandle,
    SamplingRelation,
    Topology,
)
from .tree import CandidateTree

NORMALISED = frozenset({ProbabilitySemantics.NORMALIZED_CONDITIONAL})
"""The only numbers that a rule may read as q."""

_ADMITTED = ("probability", "sampling", "topology")
_COMPARED: dict[str, type[StrEnum]] = {
    "probability_semantics": ProbabilitySemantics,
    "sampling_relation": SamplingRelation,
    "topology": Topology,
}
"""What both sides state: a proposal one value each, a verifier the ones it admits."""

TARGET_ROWS = frozenset({Topology.SEQUENCE, Topology.SET, Topology.TREE})
"""Topologies that can become target rows. A metadata graph must be unfolded first."""


@dataclass(frozen=True)
class SourceContract:
    """What a draft source promises about every proposal that it makes.

    `cost_term` is the ledger term that its `propose` calls are billed to; its `commit`
    calls are billed to `temporary_state`. The rest is for readers, and makes the
    taxonomy of section 0x03: `weights` (which parameters it needs), `state` (what it
    keeps during a request), `cache` (what it keeps computed, and who owns that) and
    `invalidated_by` (the changes after which it must be built or started anew).
    """

    name: str
    probability_semantics: ProbabilitySemantics
    sampling_relation: SamplingRelation
    topology: Topology
    cost_term: str = "proposal"
    weights: str = ""
    state: str = ""
    cache: str = ""
    invalidated_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        checks.text(self.name, "name", error=ContractError)
        for field_name in ("weights", "state", "cache"):
            checks.text(getattr(self, field_name), field_name, error=ContractError)
        changes = checks.entries(
            self.invalidated_by, "invalidated_by", "texts", ContractError
        )
        for index, change in enumerate(changes):
            checks.text(change, f"invalidated_by[{index}]", error=ContractError)
        object.__setattr__(self, "invalidated_by", tuple(changes))
        for field_name, kind in _COMPARED.items():
            value = getattr(self, field_name)
            value = checks.member(value, field_name, kind, error=ContractError)
            object.__setattr__(self, field_name, value)
        checks.one_of(self.cost_term, "cost_term", COST_TERMS)

    def proposed(
        self, request: str, generation: int, manifest_hash: str
    ) -> dict[str, Any]:
        """The fields of a proposal of this source beside its nodes, for a session of
        `request` that has seen `generation` commits. Raises `ProposalError` for what
        is no such field."""
        return {
            "probability_semantics": self.probability_semantics,
            "sampling_relation": self.sampling_relation,
            "topology": self.topology,
            "state_handle": ProposalStateHandle(self.name, request, generation),
            "manifest_hash": manifest_hash,
        }


@dataclass(frozen=True)
class VerifierContract:
    """What a verifier needs in order to be what it claims to be.

    `reads_q`: the rule uses the proposal's probabilities. Such a rule admits
    normalised conditional q and nothing else, whatever is listed, and serves merged
    sources only if `merges_q` says that its proof covers several q at one node.
    `exact`: the output law equals the target's; otherwise the rule is a heuristic.
    `greedy_only`: the rule selects by argmax, so it belongs to temperature 0. `parts`:
    the contracts of the rules that it is made of, where it verifies subgraphs apart:
    then every source must fit one of them, and what the lists above admit is their
    union. A part reads no q, or merges several, so that any of its sources may meet.
    """

    name: str
    reads_q: bool
    exact: bool
    probability: frozenset[ProbabilitySemantics]
    sampling: frozenset[SamplingRelation]
    topology: frozenset[Topology] = TARGET_ROWS
    merges_q: bool = False
    greedy_only: bool = False
    parts: tuple[VerifierContract, ...] = ()

    def __post_init__(self) -> None:
        checks.text(self.name, "name", error=ContractError)
        for flag in ("reads_q", "exact", "merges_q", "greedy_only"):
            checks.boolean(getattr(self, flag), flag, error=ContractError)
        for field_name, kind in zip(_ADMITTED, _COMPARED.values(), strict=True):
            listed = getattr(self, field_name)
            if isinstance(listed, Set):
                listed = list(listed)
            listed = checks.entries(listed, field_name, "names", ContractError)
            members = frozenset(
                checks.member(value, field_name, kind, error=ContractError)
                for value in listed
            )
            object.__setattr__(self, field_name, members)
        if self.reads_q and not self.probability <= NORMALISED:
            extra = sorted(map(str, self.probability - NORMALISED))
            raise ContractError(
                f"verifier {self.name!r} reads q, so it cannot admit {extra}"
            )
        if self.topology - TARGET_ROWS:
            raise ContractError(
                f"verifier {self.name!r} cannot admit a metadata graph: "
                "unfold it into rows with one parent each first"
            )
        parts = checks.entries(self.parts, "parts", "contracts", ContractError)
        object.__setattr__(self, "parts", tuple(parts))
        for index, part in enumerate(self.parts):
            self._check_part(f"parts[{index}] of verifier {self.name!r}", part)

    def _check_part(self, which: str, part: Any) -> None:
        if not isinstance(part, VerifierContract) or part.parts:
            raise ContractError(f"{which} is no contract of one rule: {part!r}")
        if part.reads_q and not part.merges_q:
            raise ContractError(f"{which} covers one q a node, and sources may meet")
        for name in _ADMITTED:
            if not getattr(part, name) <= getattr(self, name):
                raise ContractError(f"{which} admits a {name} that the whole does not")
        if self.exact and not part.exact:
            raise ContractError(f"{which} is a heuristic, and the whole is exact")

    def supports_probability(self, semantics: ProbabilitySemantics) -> bool:
        """Whether the rule is valid for numbers of this meaning."""
        return semantics in self.probability

    def supports_sampling_relation(self, relation: SamplingRelation) -> bool:
        """Whether the rule is valid for candidates chosen this way."""
        return relation in self.sampling

    def supports_topology(self, topology: Topology) -> bool:
        """Whether the rule can walk this shape."""
        return topology in self.topology


@dataclass(frozen=True)
class Selection:
    """A verifier's answer: the accepted root-to-node path, as row numbers, and the
    one token that follows it (the bonus token after a leaf, else the correction).
    Whether the rows are a path and the token is in the vocabulary, the engine checks:
    a selection does not know its tree. Raises `ContractError`."""

    rows: tuple[int, ...]
    token: int

    def __post_init__(self) -> None:
        rows = checks.entries(self.rows, "rows", "row numbers", ContractError)
        for index, row in enumerate(rows):
            rows[index] = checks.integer(
                row, f"rows[{index}]", least=0, error=ContractError
            )
        object.__setattr__(self, "rows", tuple(rows))
        token = checks.integer(self.token, "token", least=0, error=ContractError)
        object.__setattr__(self, "token", token)


Law = Callable[[int], np.ndarray]
"""`law(row)` is the target's law [V] for the children of `row`; -1 is the frontier."""


@dataclass(frozen=True)
class Verifier:
    """A contract and the one function that both decodes and is enumerated."""

    contract: VerifierContract
    select: Callable[[CandidateTree, Law, Chance], Selection] = field(compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.contract, VerifierContract):
            raise ContractError(f"not a verifier contract: {self.contract!r}")
        if not callable(self.select):
            raise ContractError(f"select must be callable, got {self.select!r}")


@dataclass(frozen=True)
class BoundRound:
    """Proposals and a verifier that `bind` found to fit together."""

    proposals: tuple[Proposal, ...]
    verifier: Verifier | VerifierContract

    @property
    def node_count(self) -> int:
        """Candidate nodes before merging."""
        return sum(len(proposal.nodes) for proposal in self.proposals)


def contract_of(verifier: Any) -> VerifierContract:
    """The contract of a verifier given by name, as an object, or as a contract."""
    if isinstance(verifier, str):
        verifier = registry.resolve(registry.VERIFIERS, "verifier", verifier)
    contract = getattr(verifier, "contract", verifier)
    if not isinstance(contract, VerifierContract):
        raise ContractError(f"not a verifier: {verifier!r}")
    return contract


def bind(
    proposal: Proposal | Iterable[Proposal],
    verifier: Any,
    *,
    exact: bool | None = None,
    manifest: RoundManifest | None = None,
    bytes_per_node: int = 0,
) -> BoundRound:
    """Checks that the proposal (or several, to be merged) may meet the verifier.

    `verifier`: a name of the registry, a `Verifier` or a bare `VerifierContract`.
    `exact`: refuse heuristics; by default as the manifest's mode says, and without
    a manifest yes. False cannot loosen a manifest whose mode is exact. `manifest`:
    also check that every proposal was made under it, that the verifier is the one it
    names, and that the candidates fit its node, depth and temporary-state limits, at
    `bytes_per_node` bytes each. Raises `ContractError` naming everything that clashes.
    """
    if isinstance(proposal, Proposal):
        proposal = [proposal]
    proposals = tuple(checks.entries(proposal, "proposal", "Proposals", ContractError))
    for index, item in enumerate(proposals):
        if not isinstance(item, Proposal):
            raise ContractError(f"proposal {index} is not a Proposal: {item!r}")
    if manifest is not None and not isinstance(manifest, RoundManifest):
        raise ContractError(f"not a manifest: {manifest!r}")
    checks.integer(bytes_per_node, "bytes_per_node", least=0, error=ContractError)
    if exact is not None:
        checks.boolean(exact, "exact", error=ContractError)
    if isinstance(verifier, str):
        verifier = registry.resolve(registry.VERIFIERS, "verifier", verifier)
    contract = contract_of(verifier)
    clashes = []
    for item in proposals:
        who = "/".join(item.source_names) or item.state_handle.owner
        clashes += _clashes(who, item, contract)
    requests = {item.state_handle.request for item in proposals}
    if len(requests) > 1:
        clashes.append(f"proposals for different requests: {sorted(requests)}")
    names = list(dict.fromkeys(name for p in proposals for name in p.source_names))
    if len(names) > 1 or sum(bool(p.nodes) for p in proposals) > 1:
        clashes += _merge_clashes(names, contract)
    if manifest is not None:
        clashes += _manifest_clashes(proposals, contract, manifest, bytes_per_node)
        if manifest.mode == "exact" or exact is None:
            exact = manifest.mode == "exact"
    if exact is None or exact:
        clashes += _mode_clashes(contract)
    _refuse(clashes, contract)
    return BoundRound(proposals, verifier)


def negotiate(
    sources: Iterable[SourceContract], verifier: Any, *, exact: bool = True
) -> None:
    """Checks, before anything runs, that whatever the sources may propose can meet the
    verifier: what `bind` would find in some round, found at the start of the first.

    Raises `ContractError` naming everything that clashes.
    """
    contract = contract_of(verifier)
    checks.boolean(exact, "exact", error=ContractError)
    sources = checks.entries(sources, "sources", "source contracts", ContractError)
    for source in sources:
        if not isinstance(source, SourceContract):
            raise ContractError(f"not a source contract: {source!r}")
    clashes = [c for item in sources for c in _clashes(item.name, item, contract)]
    if len(sources) > 1:
        clashes += _merge_clashes([item.name for item in sources], contract)
    if exact:
        clashes += _mode_clashes(contract)
    _refuse(clashes, contract)


def admitted(sources: Iterable[SourceContract], *, exact: bool = True) -> list[str]:
    """The verifiers of the registry that `negotiate` admits for these sources, merged
    if there are several: one row of the contract matrix (section 0x02A)."""
    sources = checks.entries(sources, "sources", "source contracts", ContractError)
    checks.boolean(exact, "exact", error=ContractError)
    # What nobody could bind is an error, and not a row without a verifier.
    negotiate(sources, _ANYTHING, exact=False)
    found = []
    for name in registry.VERIFIERS:
        try:
            negotiate(sources, name, exact=exact)
        except ContractError:
            continue
        found.append(name)
    return found


_ANYTHING = VerifierContract(
    "anything",
    reads_q=False,
    exact=False,
    probability=frozenset(ProbabilitySemantics),
    sampling=frozenset(SamplingRelation),
)
"""Admits whatever can become target rows."""


def _refuse(clashes: list[str], contract: VerifierContract) -> None:
    if clashes:
        raise ContractError(
            f"verifier {contract.name!r} refuses the proposal: " + "; ".join(clashes)
        )


def _clashes(
    who: str, offered: Proposal | SourceContract, contract: VerifierContract
) -> list[str]:
    if contract.parts:
        refusals = [_clashes(who, offered, part) for part in contract.parts]
        if not all(refusals):
            return []
        told = (
            f"{part.name} ({'; '.join(refusal)})"
            for part, refusal in zip(contract.parts, refusals, strict=True)
        )
        return [f"{who} fits no part: {', '.join(told)}"]
    # What is never valid is not even asked for, so that no contract, whatever it
    # answers, can open the way from a score to a rule that reads q.
    questions: tuple[tuple[Set[StrEnum], Callable[[Any], bool]], ...] = (
        (
            NORMALISED if contract.reads_q else frozenset(ProbabilitySemantics),
            contract.supports_probability,
        ),
        (frozenset(SamplingRelation), contract.supports_sampling_relation),
        (TARGET_ROWS, contract.supports_topology),
    )
    clashes = []
    for what, name, (valid, supports) in zip(
        _ADMITTED, _COMPARED, questions, strict=True
    ):
        has = getattr(offered, name)
        if has not in valid or not supports(has):
            needs = sorted(str(value) for value in valid if supports(value))
            clashes.append(f"{who}: {what} {has.value!r}, needs {needs}")
    return clashes


def _merge_clashes(names: Sequence[str], contract: VerifierContract) -> list[str]:
    if not contract.reads_q or contract.merges_q:
        return []
    return [
        f"sources {list(names)} are merged, and the rule's proof covers one q a "
        "node; sample from a normalised mixture, use a verifier that reads no q, "
        "or verify the sources apart"
    ]


def _mode_clashes(contract: VerifierContract) -> list[str]:
    if contract.exact:
        return []
    return ["the mode is exact and the verifier is a heuristic"]


def _manifest_clashes(
    proposals: Sequence[Proposal],
    contract: VerifierContract,
    manifest: RoundManifest,
    bytes_per_node: int,
) -> list[str]:
    clashes = []
    for item in proposals:
        if item.manifest_hash != manifest.hash:
            clashes.append(
                f"{item.state_handle.owner}: made under manifest "
                f"{item.manifest_hash[:12]!r}, this round's is {manifest.hash[:12]!r}"
            )
    if contract.name != manifest.verifier:
        clashes.append(f"the manifest names verifier {manifest.verifier!r}")
    nodes = sum(len(item.nodes) for item in proposals)
    depth = max((n.depth for item in proposals for n in item.nodes), default=0)
    needed = nodes * bytes_per_node
    for what, value, limit in (
        ("candidate nodes", nodes, manifest.max_nodes),
        ("depth", depth, manifest.max_depth),
        ("temporary state bytes", needed, manifest.temporary_state_bytes),
    ):
        if value > limit:
            clashes.append(f"{value} {what}, the manifest allows {limit}")
    return clashes
