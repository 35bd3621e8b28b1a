"""One chain out of whatever a source proposes.

The plug-in seams of transformers and vLLM take a list of tokens, not a tree. Of a tree
the chain is the path that its source ranks highest, child by child.
"""

from __future__ import annotations

from typing import Any

from ..contract import SourceContract
from ..errors import ContractError
from ..proposal import (
    PREFIX_FRONTIER,
    ProbabilitySemantics,
    Proposal,
    SamplingRelation,
)

MAX_NODES = 1024
"""Of a tree that a chain is taken from; a source's own budget is smaller."""


def check_free(source: Any) -> None:
    """Raises `ContractError` for a source that draws: an engine that is given tokens
    alone would verify them as copies, and a drawn token has a q that matters."""
    contract = getattr(source, "contract", None)
    if not isinstance(contract, SourceContract) or not callable(
        getattr(source, "start", None)
    ):
        raise ContractError(f"not a draft source: {source!r:.80}")
    if (
        contract.sampling_relation is not SamplingRelation.DETERMINISTIC_LOOKUP
        or contract.probability_semantics is ProbabilitySemantics.NORMALIZED_CONDITIONAL
    ):
        raise ContractError(
            f"source {contract.name!r} draws its candidates "
            f"({contract.sampling_relation}); only sources that copy can be handed "
            "over as bare tokens"
        )


def chain(session: Any, length: int) -> list[int]:
    """At most `length` tokens that the session proposes next."""
    if length < 1:
        return []
    return best_path(session.propose(max_depth=length, max_nodes=MAX_NODES))[:length]


def best_path(proposal: Proposal) -> list[int]:
    """Token ids from the first candidate on: at each node the child with the highest
    score, of equals the one that is listed first."""
    best: dict[int, int] = {}
    for index, node in enumerate(proposal.nodes):
        held = best.get(node.parent)
        if held is None or _score(node) > _score(proposal.nodes[held]):
            best[node.parent] = index
    path, at = [], best.get(PREFIX_FRONTIER)
    while at is not None:
        path.append(int(proposal.nodes[at].token_id))
        at = best.get(at)
    return path


def _score(node: Any) -> float:
    return 0 if node.score is None else node.score
