"""What a draft source returns: a typed proposal, not a list of ids (section 0x02).

A proposal says how its candidates came about, because that decides which verifiers
may read it. `q` is a probability under which the token was drawn; `score` only
ranks. They are two fields so that one can never be passed for the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain, count
from operator import lt
from typing import Any

from . import checks
from .errors import ProposalError

PREFIX_FRONTIER = -1
"""The parent of a first candidate: the end of the committed prefix."""


class ProbabilitySemantics(StrEnum):
    """What the numbers on the nodes mean."""

    NORMALIZED_CONDITIONAL = "normalized_conditional"
    SCORE_ONLY = "score_only"
    FREQUENCY = "frequency"
    ABSENT = "absent"


class SamplingRelation(StrEnum):
    """How the children of one parent were chosen together.

    `iid`: independent draws from one law. `independent`: independent draws, whose laws
    may differ. `without_replacement`: each from what the ones before it left over.
    `greedy_plus_one`: the most probable tokens, then one draw among the others. `hub`:
    two draws, of which one is the most probable token. `beam`: ranked, not drawn.
    `deterministic_lookup`: copied from somewhere.
    """

    IID = "iid"
    INDEPENDENT = "independent"
    WITHOUT_REPLACEMENT = "without_replacement"
    GREEDY_PLUS_ONE = "greedy_plus_one"
    HUB = "hub"
    BEAM = "beam"
    DETERMINISTIC_LOOKUP = "deterministic_lookup"


class Topology(StrEnum):
    """The shape that the candidates form."""

    SEQUENCE = "sequence"
    SET = "set"
    TREE = "tree"
    METADATA_GRAPH = "metadata_graph"


@dataclass(frozen=True)
class ProposalNode:
    """One candidate token: v = (token, parent, depth, q, s, source, state owner).

    `parent` is the index of an earlier node of the same proposal, or
    `PREFIX_FRONTIER`; `depth` counts edges from the prefix and starts at 1. `q` in
    [0, 1] is the token's probability under the conditional law it was drawn from;
    `score` is any real number, larger is better. `state_owner` names whose
    provisional state stands behind the node, `origin_request` the request it is for.

    `law` [V] is that conditional law as a whole, for the rules that must know what q
    gives to every other token (a residual max(p - q, 0) does). It is the law of this
    very draw: of siblings drawn without replacement, a later one's has zeros where the
    earlier ones were. It is kept as a read-only view, and two nodes are compared
    without it. Raises `LawError` when it is none, `ProposalError` when `q` is not its
    entry.
    """

    token_id: int
    parent: int = PREFIX_FRONTIER
    depth: int = 1
    q: float | None = None
    score: float | None = None
    source: str = ""
    state_owner: str = ""
    origin_request: str = ""
    law: Any = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        checks.integer(self.token_id, "token_id", least=0, error=ProposalError)
        checks.integer(self.parent, "parent", least=-1, error=ProposalError)
        checks.integer(self.depth, "depth", least=1, error=ProposalError)
        if self.q is not None:
            checks.real(self.q, "q", least=0, most=1, error=ProposalError)
        if self.score is not None:
            checks.real(self.score, "score", error=ProposalError)
        for name in ("source", "state_owner", "origin_request"):
            checks.text(getattr(self, name), name, error=ProposalError)
        if self.law is not None:
            self._check_law()

    def _check_law(self) -> None:
        law = checks.law(self.law, f"the law of token {self.token_id}").view()
        law.flags.writeable = False
        if not (self.token_id < len(law) and law[self.token_id] == self.q):
            raise ProposalError(
                f"token {self.token_id} has q = {self.q}, which is not its entry in "
                f"the law [{len(law)}] that it was drawn from"
            )
        object.__setattr__(self, "law", law)


@dataclass(frozen=True)
class ProposalStateHandle:
    """Points at the proposer's provisional state; never at target state.

    `owner` is the name in the source's contract, `request` the one that the session
    was started for. `generation` counts the commits to that state, as the manifest's
    proposal cache generation does, so that a handle from an earlier round can be told
    from the current one. The engine refuses a proposal whose handle says otherwise.
    """

    owner: str
    request: str
    generation: int

    def __post_init__(self) -> None:
        for name in ("owner", "request"):
            checks.text(getattr(self, name), name, error=ProposalError)
        checks.integer(self.generation, "generation", least=0, error=ProposalError)


@dataclass(frozen=True)
class Proposal:
    """The typed result of one `propose` call; an empty `nodes` is a miss.

    Five classes of field (section 0x02): the candidate nodes; what their numbers
    mean and how they were sampled; their shape; the proposer's state; the hash of the
    round manifest under which they were made. Raises `ProposalError` where two
    fields contradict each other.
    """

    nodes: tuple[ProposalNode, ...]
    probability_semantics: ProbabilitySemantics
    sampling_relation: SamplingRelation
    topology: Topology
    state_handle: ProposalStateHandle
    manifest_hash: str

    def __post_init__(self) -> None:
        nodes = checks.entries(self.nodes, "nodes", "ProposalNodes", ProposalError)
        object.__setattr__(self, "nodes", tuple(nodes))
        for name, kind in (
            ("probability_semantics", ProbabilitySemantics),
            ("sampling_relation", SamplingRelation),
            ("topology", Topology),
        ):
            value = checks.member(getattr(self, name), name, kind, error=ProposalError)
            object.__setattr__(self, name, value)
        if not isinstance(self.state_handle, ProposalStateHandle):
            raise ProposalError(
                f"state_handle must be a ProposalStateHandle, got {self.state_handle!r}"
            )
        checks.text(self.manifest_hash, "manifest_hash", error=ProposalError)
        for index, node in enumerate(self.nodes):
            self._check_node(index, node)
        self._check_shape()

    @classmethod
    def from_columns(
        cls,
        token_ids: Sequence[int],
        parents: Sequence[int],
        depths: Sequence[int],
        scores: Sequence[Any],
        *,
        source: str = "",
        state_owner: str = "",
        origin_request: str = "",
        **fields: Any,
    ) -> Proposal:
        """The proposal whose nodes have a score and no q and share a source, from one
        column for each field that differs: the same value as node by node, and the same
        errors. Whole columns of plain integers are checked at once, which takes a
        fraction of the time. `fields`: those of the proposal, without its nodes."""
        shared: dict[str, Any] = {
            "source": source,
            "state_owner": state_owner,
            "origin_request": origin_request,
        }
        rows = _rows(token_ids, parents, depths, scores)
        made = cls(nodes=(), **fields)
        if (
            rows is None
            or made.topology is not Topology.TREE
            or made.probability_semantics is ProbabilitySemantics.NORMALIZED_CONDITIONAL
        ):
            # Whatever is unusual, or wrong, is looked at node by node.
            columns = [
                checks.entries(column, name, "numbers", ProposalError)
                for name, column in (
                    ("token_ids", token_ids),
                    ("parents", parents),
                    ("depths", depths),
                    ("scores", scores),
                )
            ]
            if len(set(map(len, columns))) > 1:
                raise ProposalError(f"columns of {[*map(len, columns)]} entries")
            nodes = [
                ProposalNode(token, parent, depth, score=score, **shared)
                for token, parent, depth, score in zip(*columns, strict=True)
            ]
            return cls(nodes=tuple(nodes), **fields)
        # What the nodes share is checked once.
        pattern = vars(ProposalNode(0, **shared))
        nodes = []
        for token, parent, depth, score in rows:
            node = object.__new__(ProposalNode)
            vars(node).update(
                pattern, token_id=token, parent=parent, depth=depth, score=score
            )
            nodes.append(node)
        object.__setattr__(made, "nodes", tuple(nodes))
        return made

    @property
    def source_names(self) -> tuple[str, ...]:
        """The distinct sources of the nodes, in order of first appearance."""
        return tuple(dict.fromkeys(node.source for node in self.nodes))

    def _check_node(self, index: int, node: ProposalNode) -> None:
        if not isinstance(node, ProposalNode):
            raise ProposalError(f"nodes[{index}] is not a ProposalNode: {node!r}")
        if node.parent >= index:
            raise ProposalError(
                f"nodes[{index}] has parent {node.parent}, which is not before it"
            )
        above = 0 if node.parent == PREFIX_FRONTIER else self.nodes[node.parent].depth
        if node.depth != above + 1:
            raise ProposalError(
                f"nodes[{index}] has depth {node.depth} under a parent of depth {above}"
            )
        semantics = self.probability_semantics
        if semantics is ProbabilitySemantics.NORMALIZED_CONDITIONAL:
            if node.q is None:
                raise ProposalError(
                    f"nodes[{index}] has no q in a {semantics} proposal"
                )
            if node.q == 0:
                raise ProposalError(
                    f"nodes[{index}] has q = 0: it cannot have been drawn from q"
                )
        elif node.q is not None:
            raise ProposalError(
                f"nodes[{index}] has q = {node.q} in a proposal whose numbers are "
                f"{semantics}; a ranking number belongs in score"
            )
        elif semantics is not ProbabilitySemantics.ABSENT and node.score is None:
            raise ProposalError(
                f"nodes[{index}] has no score in a {semantics} proposal"
            )

    def _check_shape(self) -> None:
        for index, node in enumerate(self.nodes):
            if self.topology is Topology.SEQUENCE and node.parent != index - 1:
                raise ProposalError(
                    f"nodes[{index}] has parent {node.parent} in a sequence"
                )
            if self.topology is Topology.SET and node.parent != PREFIX_FRONTIER:
                raise ProposalError(f"nodes[{index}] is not a first token, in a set")


def _rows(*columns: Any) -> Iterable[tuple[int, int, int, int]] | None:
    """Token id, parent, depth and score of each node, of four columns that are lists of
    plain ints and make a tree, parents before children; None of any others."""
    if any(type(column) is not list for column in columns):
        return None
    token_ids, parents, depths, scores = columns
    if not len(token_ids) == len(parents) == len(depths) == len(scores):
        return None
    if not token_ids:
        return ()
    if set(map(type, chain(*columns))) != {int}:
        return None
    if min(token_ids) < 0 or min(parents) < PREFIX_FRONTIER:
        return None
    if not all(map(lt, parents, count())):
        return None
    # The frontier, -1, finds the depth 0 at the end.
    above = [*depths, 0]
    if depths != [above[parent] + 1 for parent in parents]:
        return None
    return zip(*columns, strict=True)
