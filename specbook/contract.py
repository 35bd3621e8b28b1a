"""Which proposal may meet which verifier (section 0x02A).

A rule is exact only for proposals that were made the way its proof assumes. `bind`
compares the two sides before any target call and names every clash. It is the only
way into a round, so a wrong pair cannot run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from . import checks, registry
from .chance import Chance
from .errors import ContractError
from .ledger import COST_TERMS
from .manifest import RoundManifest
from .proposal import ProbabilitySemantics, Proposal, SamplingRelation, Topology
from .tree import CandidateTree

TARGET_ROWS = frozenset({Topology.SEQUENCE, Topology.SET, Topology.TREE})
"""Topologies that can become target rows. A metadata graph must be unfolded first."""


@dataclass(frozen=True)
class SourceContract:
    """What a draft source promises about every proposal that it makes.

    `cost_term` is the ledger term that its `propose` calls are billed to.
    """

    name: str
    probability_semantics: ProbabilitySemantics
    sampling_relation: SamplingRelation
    topology: Topology
    cost_term: str = "proposal"

    def __post_init__(self) -> None:
        checks.one_of(self.cost_term, "cost_term", COST_TERMS)


@dataclass(frozen=True)
class VerifierContract:
    """What a verifier needs in order to be what it claims to be.

    `reads_q`: the rule uses the proposal's probabilities. Such a rule admits
    normalised conditional q and nothing else, whatever is listed, and serves merged
    sources only if `merges_q` says that its proof covers several q at one node.
    `exact`: the output law equals the target's; otherwise the rule is a heuristic.
    `greedy_only`: the rule selects by argmax, so it belongs to temperature 0.
    """

    name: str
    reads_q: bool
    exact: bool
    probability: frozenset[ProbabilitySemantics]
    sampling: frozenset[SamplingRelation]
    topology: frozenset[Topology] = TARGET_ROWS
    merges_q: bool = False
    greedy_only: bool = False

    def __post_init__(self) -> None:
        normalised = frozenset({ProbabilitySemantics.NORMALIZED_CONDITIONAL})
        if self.reads_q and not self.probability <= normalised:
            extra = sorted(map(str, self.probability - normalised))
            raise ContractError(
                f"verifier {self.name!r} reads q, so it cannot admit {extra}"
            )
        if self.topology - TARGET_ROWS:
            raise ContractError(
                f"verifier {self.name!r} cannot admit a metadata graph: "
                "unfold it into rows with one parent each first"
            )

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
    one token that follows it (the bonus token after a leaf, else the correction)."""

    rows: tuple[int, ...]
    token: int


Law = Callable[[int], np.ndarray]
"""`law(row)` is the target's law [V] for the children of `row`; -1 is the frontier."""


@dataclass(frozen=True)
class Verifier:
    """A contract and the one function that both decodes and is enumerated."""

    contract: VerifierContract
    select: Callable[[CandidateTree, Law, Chance], Selection] = field(compare=False)


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
    a manifest yes. `manifest`: also check that every proposal was made
    under it, that the verifier is the one it names, and that the candidates fit its
    node, depth and temporary-state limits, at `bytes_per_node` bytes each. Raises
    `ContractError` naming everything that clashes.
    """
    proposals = (proposal,) if isinstance(proposal, Proposal) else tuple(proposal)
    for index, item in enumerate(proposals):
        if not isinstance(item, Proposal):
            raise ContractError(f"proposal {index} is not a Proposal: {item!r}")
    if isinstance(verifier, str):
        verifier = registry.resolve(registry.VERIFIERS, "verifier", verifier)
    contract = contract_of(verifier)
    clashes = [c for item in proposals for c in _clashes(item, contract)]
    clashes += _merge_clashes(proposals, contract)
    if exact is None:
        exact = manifest is None or manifest.mode == "exact"
    if manifest is not None:
        clashes += _manifest_clashes(proposals, contract, manifest, bytes_per_node)
    if exact and not contract.exact:
        clashes.append("the mode is exact and the verifier is a heuristic")
    if clashes:
        raise ContractError(
            f"verifier {contract.name!r} refuses the proposal: " + "; ".join(clashes)
        )
    return BoundRound(proposals, verifier)


def _clashes(proposal: Proposal, contract: VerifierContract) -> list[str]:
    who = "/".join(proposal.source_names) or proposal.state_handle.owner
    compared: tuple[tuple[str, StrEnum, frozenset[Any]], ...] = (
        ("probability", proposal.probability_semantics, contract.probability),
        ("sampling", proposal.sampling_relation, contract.sampling),
        ("topology", proposal.topology, contract.topology),
    )
    return [
        f"{who}: {what} {has.value!r}, needs {sorted(map(str, needs))}"
        for what, has, needs in compared
        if has not in needs
    ]


def _merge_clashes(
    proposals: Sequence[Proposal], contract: VerifierContract
) -> list[str]:
    names = dict.fromkeys(name for p in proposals for name in p.source_names)
    several = len(names) > 1 or sum(bool(p.nodes) for p in proposals) > 1
    if several and contract.reads_q and not contract.merges_q:
        return [
            f"sources {list(names)} are merged, and the rule's proof covers one q a "
            "node; sample from a normalised mixture, use a verifier that reads no q, "
            "or verify the sources apart"
        ]
    return []


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
    needed = nodes * checks.integer(bytes_per_node, "bytes_per_node", least=0)
    for what, value, limit in (
        ("candidate nodes", nodes, manifest.max_nodes),
        ("depth", depth, manifest.max_depth),
        ("temporary state bytes", needed, manifest.temporary_state_bytes),
    ):
        if value > limit:
            clashes.append(f"{value} {what}, the manifest allows {limit}")
    return clashes
