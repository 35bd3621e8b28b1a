"""Draft sources whose proposals are written down, and some that misbehave."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from specbook.contract import SourceContract
from specbook.proposal import (
    PREFIX_FRONTIER,
    Proposal,
    ProposalNode,
    ProposalStateHandle,
)

Paths = Iterable[Sequence[int]]


def nodes_of(
    paths: Paths,
    *,
    most: int = 10**9,
    deepest: int = 10**9,
    source: str = "fixed",
    q: Any = None,
    score: Any = None,
) -> tuple[ProposalNode, ...]:
    """Merges `paths` into nodes, cut to `deepest` edges and the first `most` nodes.

    Nodes come in the order in which a walk along the paths first meets them, so a
    parent always comes first and a cut keeps a tree.
    """
    index: dict[tuple[int, ...], int] = {}
    nodes: list[ProposalNode] = []
    for path in paths:
        for depth in range(1, min(len(path), deepest) + 1):
            prefix = tuple(path[:depth])
            if prefix in index:
                continue
            if len(nodes) == most:
                break
            parent = index.get(prefix[:-1], PREFIX_FRONTIER)
            index[prefix] = len(nodes)
            nodes.append(
                ProposalNode(prefix[-1], parent, depth, q=q, score=score, source=source)
            )
    return tuple(nodes)


def proposal_of(
    paths: Paths,
    *,
    semantics: str = "absent",
    relation: str = "deterministic_lookup",
    topology: str = "tree",
    manifest_hash: str = "m",
    owner: str = "fixed",
    generation: int = 0,
    request: str = "request",
    **options: Any,
) -> Proposal:
    """A proposal of the merged `paths`, with the numbers that its semantics needs."""
    if semantics == "normalized_conditional":
        options.setdefault("q", 0.5)
    elif semantics != "absent":
        options.setdefault("score", 1.0)
    options.setdefault("source", owner)
    return Proposal(
        nodes_of(paths, **options),
        semantics,  # type: ignore[arg-type]
        relation,  # type: ignore[arg-type]
        topology,  # type: ignore[arg-type]
        ProposalStateHandle(owner, request, generation),
        manifest_hash,
    )


@dataclass
class FixedSource:
    """Proposes `paths(prefix, chance)` each round, within the budget that it is given.

    `paths` may also be a plain list of paths. `overrun` adds to the budget, `lie`
    overrides what a proposal states about itself, `stale` is a manifest hash to use
    instead of the current one. `log` collects (prefix, budget) of each call.
    """

    paths: Any
    name: str = "fixed"
    semantics: str = "absent"
    relation: str = "deterministic_lookup"
    topology: str = "tree"
    cost_term: str = "proposal"
    overrun: tuple[int, int] = (0, 0)
    lie: dict[str, Any] | None = None
    stale: str | None = None

    def __post_init__(self) -> None:
        self.contract = SourceContract(
            self.name,
            self.semantics,  # type: ignore[arg-type]
            self.relation,  # type: ignore[arg-type]
            self.topology,  # type: ignore[arg-type]
            self.cost_term,
        )
        self.log: list[tuple[tuple[int, ...], int, int]] = []

    def identity(self) -> str:
        return f"{self.name}: written down"

    def start(
        self, prefix: Sequence[int], *, request: str, vocab_size: int, policy: Any
    ) -> Any:
        return _Session(self, list(prefix), request)


class _Session:
    def __init__(self, source: FixedSource, prefix: list[int], request: str) -> None:
        self.source = source
        self.prefix = prefix
        self.request = request
        self.generation = 0

    def propose(
        self, *, max_depth: int, max_nodes: int, chance: Any, manifest_hash: str
    ) -> Any:
        source = self.source
        source.log.append((tuple(self.prefix), max_depth, max_nodes))
        paths = source.paths
        if callable(paths):
            paths = paths(tuple(self.prefix), chance)
        stated = {
            "semantics": source.semantics,
            "relation": source.relation,
            "topology": source.topology,
            "manifest_hash": source.stale or manifest_hash,
            "owner": source.name,
            "request": self.request,
            "generation": self.generation,
            **(source.lie or {}),
        }
        return proposal_of(
            paths,
            deepest=max_depth + source.overrun[0],
            most=max_nodes + source.overrun[1],
            **stated,
        )

    def commit(self, tokens: Sequence[int]) -> None:
        self.prefix.extend(tokens)
        self.generation += 1


def follower(
    choose: Callable[[tuple[int, ...]], int], depth: int
) -> Callable[[tuple[int, ...], Any], Paths]:
    """Paths of one chain that `choose(prefix) -> token` grows, `depth` tokens long."""

    def paths(prefix: tuple[int, ...], chance: Any) -> Paths:
        chain: list[int] = []
        for _ in range(depth):
            chain.append(choose((*prefix, *chain)))
        return [chain]

    return paths
