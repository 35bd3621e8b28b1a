"""Ranked nodes of a continuation trie, and the typed proposal that they make.

Contract of REST: a tree found by deterministic lookup. Its numbers are prefix
frequencies of the corpus; they rank, and no verifier may read them as q.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from ...contract import SourceContract
from ...proposal import (
    ProbabilitySemantics,
    Proposal,
    SamplingRelation,
    Topology,
)

CONTRACT = SourceContract(
    name="rest",
    probability_semantics=ProbabilitySemantics.FREQUENCY,
    sampling_relation=SamplingRelation.DETERMINISTIC_LOOKUP,
    topology=Topology.TREE,
    cost_term="retrieval",
    weights="none",
    state="the request's last tokens, as many as the longest suffix that is looked up",
    cache="none; the datastore is read-only and serves every request",
    invalidated_by=(
        "another tokenizer",
        "another corpus snapshot or exclusion manifest",
        "another index format",
    ),
)


class TrieNode(NamedTuple):
    """One node of a ranked list: `parent` is the place of its parent in the list, or
    `PREFIX_FRONTIER`; `depth` starts at 1; `frequency`
    continuations begin with it."""

    token: int
    parent: int
    depth: int
    frequency: int


class Ranked(NamedTuple):
    """A ranked list as columns, see `TrieNode`."""

    tokens: list[int]
    parents: list[int]
    depths: list[int]
    frequencies: list[int]

    @classmethod
    def of(cls, nodes: Iterable[TrieNode]) -> Ranked:
        """The columns of a list of nodes."""
        listed = list(nodes)
        return cls(*[[node[place] for node in listed] for place in range(4)])

    def nodes(self) -> list[TrieNode]:
        """The same as a list of nodes."""
        return list(map(_node, zip(*self, strict=True)))


_node = partial(tuple.__new__, TrieNode)


def proposal_of(
    nodes: Ranked | Iterable[TrieNode],
    *,
    request: str = "request-0",
    generation: int = 0,
    manifest_hash: str = "",
) -> Proposal:
    """The proposal of ranked nodes: a frequency goes to `score`, and there is no q."""
    return Proposal.from_columns(
        *(nodes if isinstance(nodes, Ranked) else Ranked.of(nodes)),
        source=CONTRACT.name,
        state_owner=CONTRACT.name,
        origin_request=request,
        **CONTRACT.proposed(request, generation, manifest_hash),
    )
