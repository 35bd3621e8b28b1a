"""Drafting a planned shape, level by level: what every model that draws has in common.

Five kinds of children, each with the sampler of that name in `drafts.samplers`:

without_replacement (the default)
    The children of a node are drawn one after the other, each from the law that is left
    when the earlier ones are taken out, which is the law that it carries. A law with
    fewer possible tokens than the width gives fewer children.
iid
    The children are drawn independently. A token that is drawn twice is two nodes with
    one full prefix; the tree merges them and keeps both marks, and only the first is
    drafted further.
greedy_plus_one
    The children are the most probable tokens, fixed, and one draw among the others.
hub
    Two children, of which one is the most probable token; every width is 2. A pair that
    the budget would cut is not drawn.
top_k
    The children are the most probable tokens, lowest id first on ties. That is a beam,
    not a sample: the probabilities are scores, and no rule may read them as q.

At temperature 0 the law is one-hot: q is 1, and a sampled tree is a chain.

Whether a node is expanded may depend on its path (budget, context, `stop_below`), never
on the tokens that would be drawn there; dropping a drawn token because the model was
unsure of it would bend q (article, section 0x05A).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ... import checks
from ...chance import Chance
from ...contract import SourceContract
from ...errors import SpecbookError
from ...policy import SamplingPolicy
from ...proposal import (
    PREFIX_FRONTIER,
    ProbabilitySemantics,
    Proposal,
    ProposalNode,
    SamplingRelation,
    Topology,
)
from ...tree import CandidateTree
from ..samplers import SAMPLERS, Draw, without_replacement
from .plan import Plan, Shape, Widths

CHILDREN = ("without_replacement", "iid", "greedy_plus_one", "hub", "top_k")


class PlannedSource:
    """The options of a source that draws a planned shape.

    `contract`: of a chain of the source; its name, weights and so on are kept, and the
    fields that follow from the options are filled in. `widths`: children of each node,
    level by level, so `(1, 1, 1)` is a chain of three. `shape`: a planned tree instead
    (of `topologies`): the candidate that is drawn r-th under a node gets the children
    of the node's r-th child there, as far as the budget goes. `children`: one of
    `CHILDREN`. `stop_below`: nothing is drafted below a node if the probability, under
    the draft, of the path and of its most probable continuation together is less (at
    temperature 0 that of temperature 1 counts); 0 never stops.
    """

    follows_plans = True
    """Whether the caller may say a shape and how children are drawn."""

    def __init__(
        self,
        contract: SourceContract,
        *,
        widths: Sequence[int] | None,
        shape: CandidateTree | None,
        children: str,
        stop_below: float,
        usual: Sequence[int],
    ) -> None:
        if widths is not None and shape is not None:
            raise SpecbookError("give widths or a shape, not both")
        self.widths: tuple[int, ...] | None = None
        self.plan: Plan
        if shape is None:
            self.plan = plan = Widths(usual if widths is None else widths)
            self.widths = plan.widths
        else:
            self.plan = Shape(shape)
        self.children = checks.one_of(children, "children", CHILDREN)
        if children == "hub" and self.plan.counts != {2}:
            raise SpecbookError(
                f"hub children come in pairs, not in {sorted(self.plan.counts)}"
            )
        self.stop_below = checks.float64(stop_below, "stop_below", least=0, most=1)
        # A planned chain keeps the contract of its kind: the plan came from a
        # measurement with a rule, and another plan must not need another rule.
        chain = self.is_chain and shape is None
        self.contract = _contract(contract, chain, children)

    @property
    def is_chain(self) -> bool:
        """Whether every node has one child at most."""
        return max(self.plan.counts) == 1

    def options(self) -> str:
        """The options as `identity` says them."""
        return f"{self.plan} {self.drawing()}"

    def drawing(self) -> str:
        """The options that say how candidates are drawn, without the plan. What was
        measured with one plan holds for others that are drawn alike."""
        return f"children={self.children} stop_below={self.stop_below}"


def check_policy(policy: Any) -> SamplingPolicy:
    """`policy`, by default that of temperature 1."""
    policy = SamplingPolicy() if policy is None else policy
    if not isinstance(policy, SamplingPolicy):
        raise SpecbookError(f"not a SamplingPolicy: {policy!r}")
    return policy


def _contract(base: SourceContract, chain: bool, children: str) -> SourceContract:
    relation = _relation(children)
    semantics = ProbabilitySemantics.NORMALIZED_CONDITIONAL
    if children == "top_k":
        semantics = ProbabilitySemantics.SCORE_ONLY
    elif chain:
        # One draw is any of them: a chain is what rules for independent draws expect.
        relation = SamplingRelation.IID
    return replace(
        base,
        probability_semantics=semantics,
        sampling_relation=relation,
        topology=Topology.SEQUENCE if chain else Topology.TREE,
    )


def _relation(children: str) -> SamplingRelation:
    return SamplingRelation.BEAM if children == "top_k" else SamplingRelation(children)


@dataclass(frozen=True)
class _Place:
    """A node that may be expanded: its index among the nodes, its row in the model's
    own tree, its row in the plan, and the probability of its path."""

    node: int
    row: int
    planned: int
    sure: Any


class PlannedSession:
    """One request to a `PlannedSource`.

    A subclass says how its model is asked: `_room()`, how many levels it could predict
    now; `_begin(levels, chance, manifest_hash)`, the work before a round's first law;
    `_rows(candidates)`, one row number for every candidate (token, parent row), all of
    them different; `_law(row, policy)`, the law of a row's children, -1 the frontier.
    It overrides `commit` and calls this one.
    """

    def __init__(
        self,
        source: PlannedSource,
        request: str,
        policy: SamplingPolicy,
        manifest_hash: str,
        contract: SourceContract,
    ) -> None:
        self._planned = source
        self._contract = contract
        self._request = request
        self._policy = policy
        self._ranking = (
            SamplingPolicy(top_k=policy.top_k, top_p=policy.top_p)
            if policy.greedy
            else policy
        )
        self._manifest_hash = manifest_hash
        # Otherwise every law is one-hot, or nothing but ranks is asked for.
        self._is_drawn = not policy.greedy and source.children != "top_k"
        self._commits = 0

    def propose(
        self,
        *,
        max_depth: int,
        max_nodes: int,
        chance: Chance | None = None,
        manifest_hash: str | None = None,
    ) -> Proposal:
        """A chain or tree within the budget; none where the model can say nothing.
        `chance` answers the draws; at temperature 0 none is asked."""
        checks.integer(max_depth, "max_depth", least=0)
        checks.integer(max_nodes, "max_nodes", least=0)
        manifest_hash = self._manifest_hash if manifest_hash is None else manifest_hash
        levels = min(self._planned.plan.depth, max_depth, self._room())
        nodes: list[ProposalNode] = []
        if levels and max_nodes:
            self._begin(levels, chance, manifest_hash)
            self._draft(levels, nodes, max_nodes, chance)
        contract = self._contract
        about = contract.proposed(self._request, self._commits, manifest_hash)
        return Proposal(nodes=tuple(nodes), **about)

    def commit(self, tokens: Any) -> None:
        """The tokens that the round published, in order."""
        self._commits += 1

    def _room(self) -> int:
        raise NotImplementedError

    def _begin(self, levels: int, chance: Chance | None, manifest_hash: str) -> None:
        raise NotImplementedError

    def _rows(self, candidates: Sequence[tuple[int, int]]) -> list[int]:
        raise NotImplementedError

    def _law(self, row: int, policy: SamplingPolicy) -> np.ndarray:
        """The law [V] that the children of `row` are drawn from, or ranked by."""
        raise NotImplementedError

    def _draft(
        self,
        levels: int,
        nodes: list[ProposalNode],
        max_nodes: int,
        chance: Chance | None,
    ) -> None:
        """Appends up to `max_nodes` candidates to `nodes`, level by level."""
        level = [_Place(PREFIX_FRONTIER, PREFIX_FRONTIER, PREFIX_FRONTIER, 1)]
        for depth in range(1, levels + 1):
            below = self._level(level, depth, nodes, max_nodes, chance)
            if not below or depth == levels or len(nodes) == max_nodes:
                return
            # A leaf of the plan needs no row of its own.
            below = [b for b in below if self._planned.plan.count(b.planned, depth + 1)]
            rows = self._rows([(nodes[b.node].token_id, b.row) for b in below])
            level = [replace(b, row=r) for b, r in zip(below, rows, strict=True)]

    def _level(
        self,
        level: Sequence[_Place],
        depth: int,
        nodes: list[ProposalNode],
        max_nodes: int,
        chance: Chance | None,
    ) -> list[_Place]:
        """Appends the children of `level` to `nodes`; those that may have children of
        their own, with their parent's row."""
        below: dict[tuple[int, int], _Place] = {}
        name, plan = self._contract.name, self._planned.plan
        for place in level:
            width = plan.count(place.planned, depth)
            if not width:
                continue
            scores = None
            if self._planned.stop_below:
                scores = self._law(place.row, self._ranking)
                if place.sure * scores.max() < self._planned.stop_below:
                    continue
            count = min(width, max_nodes - len(nodes))
            drawn = self._children(place.row, count, chance)
            for rank, (token, law, score) in enumerate(drawn):
                nodes.append(
                    ProposalNode(
                        token_id=token,
                        parent=place.node,
                        depth=depth,
                        q=None if law is None else law[token],
                        score=score,
                        source=name,
                        state_owner=name,
                        origin_request=self._request,
                        law=law,
                    )
                )
                sure = 1 if scores is None else place.sure * scores[token]
                planned = plan.child(place.planned, rank)
                below.setdefault(
                    (place.row, token),
                    _Place(len(nodes) - 1, place.row, planned, sure),
                )
        return list(below.values())

    def _children(self, row: int, count: int, chance: Chance | None) -> list[Draw]:
        """Up to `count` tokens under `row`, each with the law it was drawn from."""
        kind = self._planned.children
        if kind == "hub" and count < 2:
            return []
        ranked = kind == "top_k"
        law = self._law(row, self._ranking if ranked else self._policy)
        if not self._is_drawn:
            chance = _Sure()
        elif chance is None:
            raise SpecbookError(
                "a draft at temperature above 0 is drawn: chance is needed"
            )
        if kind == "without_replacement":
            # Tokens that the draft model rules out are not worth a row of the target.
            return without_replacement(law, count, chance, fallback=False)
        return SAMPLERS[_relation(kind)](law, count, chance)


class _Sure:
    """The `Chance` of temperature 0: every law is one-hot, so nothing is asked."""

    def flip(self, probability: Any) -> bool:
        return bool(probability == 1)

    def draw(self, weights: Any) -> int:
        return int(np.argmax(weights))
