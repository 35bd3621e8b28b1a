"""A separate draft model: a smaller causal language model with the target's vocabulary.

Contract, by the options. A chain is drawn token by token from the draft model's own
law, processed by the target's sampling policy, so its q is a normalised conditional law
and its tokens are independent draws ("iid"; a sequence). A tree (a node with several
children) comes in five kinds, each with the sampler of that name in `drafts.samplers`:

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

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ... import checks, paths
from ...chance import Chance
from ...contract import SourceContract
from ...errors import ArtifactError, ContractError, SpecbookError
from ...policy import SamplingPolicy
from ...proposal import (
    PREFIX_FRONTIER,
    ProbabilitySemantics,
    Proposal,
    ProposalNode,
    ProposalStateHandle,
    SamplingRelation,
    Topology,
)
from ...tree import CandidateTree
from ..samplers import SAMPLERS, Draw, without_replacement
from .own_tree import OwnTree
from .plan import Plan, Shape, Widths

CHILDREN = ("without_replacement", "iid", "greedy_plus_one", "hub", "top_k")

_OPTIONS = ("widths", "shape", "children", "stop_below")

SHIPPED = ("draft", "smollm2")
"""Where in `data/` the checkpoint lies that the book trained for its own target."""

TUNED: dict[str, Any] = {"widths": (1,) * 8, "stop_below": 0.1}
"""What `specbook decode` and the benchmark use. A drafted token pays while the chance
that it is accepted is above what it costs, its draft forward and one more row of the
target's, in target steps (section 0x02C)."""

TUNED_BY = "the fastest chain of a sweep over the development half, greedy"
"""How `TUNED` came about: `measure.bench_draft.sweep` over chains of 4, 6 and 8 with
`stop_below` 0.1 to 0.5, four prompts a workload. The length hardly mattered."""

CONTRACT = SourceContract(
    name="draft_model",
    probability_semantics=ProbabilitySemantics.NORMALIZED_CONDITIONAL,
    sampling_relation=SamplingRelation.IID,
    topology=Topology.SEQUENCE,
    weights="a causal language model of its own",
    state="the request's tokens",
    cache="its own key/value cache, rolled back to the published path",
    invalidated_by=(
        "another tokenizer",
        "another sampling policy",
        "another checkpoint of either model",
    ),
)


class DraftModel:
    """The draft source. See the module for its contract.

    `model`: a `Target`, or a folder or hub id that `load_target` reads; None is the
    checkpoint that the book ships. `widths`: children of each node, level by level, so
    `(1, 1, 1)` is a chain of three. `shape`: a planned tree instead (of `topologies`):
    the candidate that is drawn r-th under a node gets the children of the node's r-th
    child there, as far as the budget goes. `children`: one of `CHILDREN`. `stop_below`:
    nothing is drafted below a node if the probability, under the draft model, of the
    path and of its most probable continuation together is less (at temperature 0 that
    of temperature 1 counts); 0 never stops. Raises `ValueError` for bad options and
    `ArtifactError` for a checkpoint that is not there. Sections 0x03 and 0x08A.
    """

    contract = CONTRACT

    def __init__(
        self,
        model: Any = None,
        *,
        widths: Sequence[int] | None = None,
        shape: CandidateTree | None = None,
        children: str = "without_replacement",
        stop_below: float = 0.0,
    ) -> None:
        if widths is not None and shape is not None:
            raise SpecbookError("give widths or a shape, not both")
        self.widths: tuple[int, ...] | None = None
        self.plan: Plan
        if shape is None:
            self.plan = plan = Widths((1, 1, 1, 1) if widths is None else widths)
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
        self.contract = _contract(chain, children)
        self.model = _loaded(model)
        self._matched: set[Any] = set()

    @classmethod
    def tuned(cls, model: Any = None, **changes: Any) -> DraftModel:
        """The source with the options `TUNED`, except for `changes`."""
        for option in changes:
            checks.one_of(option, "option of the draft model", _OPTIONS)
        if "shape" in changes:
            changes = {"widths": None, **changes}
        return cls(model, **{**TUNED, **changes})

    @property
    def is_chain(self) -> bool:
        """Whether every node has one child at most."""
        return max(self.plan.counts) == 1

    def identity(self) -> str:
        """The options and the checkpoint, for the round manifest."""
        about = self.model.identity()
        return (
            f"draft_model {self.plan} children={self.children} "
            f"stop_below={self.stop_below} checkpoint={about['checkpoint']} "
            f"tokenizer={about['tokenizer']} dtype={about['dtype']} "
            f"backend={about['backend']}"
        )

    def check_target(self, target: Any) -> None:
        """Raises `ContractError`, naming the first difference, if `target` has another
        vocabulary or tokenizer: equal ids would stand for different text (case H23)."""
        from ...models.vocabulary import first_difference

        one, other = (
            (part.identity()["tokenizer"], part.vocab_size)
            for part in (target, self.model)
        )
        # The same files say the same, and need not be loaded to be compared: two fast
        # tokenizers and their vocabularies take more than a hundred megabytes.
        same_files = one == other and one[0].startswith("sha256:")
        if same_files or (one, other) in self._matched:
            return
        if difference := first_difference(target, self.model):
            raise ContractError(
                f"{self.contract.name}: the draft model has another vocabulary than "
                f"the target: {difference}"
            )
        if "none" not in (one[0], other[0]):  # that stands for nothing in particular
            self._matched.add((one, other))

    def start(
        self,
        prefix: Iterable[int],
        *,
        request: str = "request-0",
        vocab_size: int | None = None,
        policy: SamplingPolicy | None = None,
        manifest_hash: str = "",
        contract: SourceContract | None = None,
        helper: Any = None,
    ) -> DraftModelSession:
        """A session for one request whose prompt is `prefix` (token ids). `policy` is
        the target's, by default that of temperature 1: the draft draws by it too.
        `contract`, `helper`: for a source that is made of this one (`staged`)."""
        tokens, policy = self.check_start(prefix, vocab_size, policy)
        if helper is not None:
            helper = helper.start(
                tokens,
                request=request,
                vocab_size=self.model.vocab_size,
                policy=policy,
            )
        return DraftModelSession(
            self,
            tokens,
            request,
            policy,
            manifest_hash,
            contract=contract,
            helper=helper,
        )

    def check_start(
        self, prefix: Iterable[int], vocab_size: int | None, policy: Any
    ) -> tuple[list[int], SamplingPolicy]:
        """What `start` was given, checked: the prompt's ids, and the policy."""
        known = self.model.vocab_size
        if vocab_size is not None and vocab_size != known:
            raise SpecbookError(
                f"the draft model has {known} tokens, vocab_size is {vocab_size}"
            )
        tokens = checks.token_ids(prefix, "prefix", vocab_size=known)
        policy = SamplingPolicy() if policy is None else policy
        if not isinstance(policy, SamplingPolicy):
            raise SpecbookError(f"not a SamplingPolicy: {policy!r}")
        return tokens, policy


def _contract(chain: bool, children: str) -> SourceContract:
    relation = _relation(children)
    semantics = ProbabilitySemantics.NORMALIZED_CONDITIONAL
    if children == "top_k":
        semantics = ProbabilitySemantics.SCORE_ONLY
    elif chain:
        # One draw is any of them: a chain is what rules for independent draws expect.
        relation = SamplingRelation.IID
    return replace(
        CONTRACT,
        probability_semantics=semantics,
        sampling_relation=relation,
        topology=Topology.SEQUENCE if chain else Topology.TREE,
    )


def _relation(children: str) -> SamplingRelation:
    return SamplingRelation.BEAM if children == "top_k" else SamplingRelation(children)


def _loaded(model: Any) -> Any:
    """`model` as a target."""
    if model is None:
        try:
            model = paths.data_path(*SHIPPED)
        except ArtifactError as error:
            raise ArtifactError(
                "no draft model is shipped with this specbook: train one with "
                "`specbook train draft`, or name a folder or hub id"
            ) from error
    if isinstance(model, (str, os.PathLike)):
        from ...models.loading import load_target

        return load_target(model)
    from ...models.protocol import Target

    if isinstance(model, type) or not isinstance(model, Target):
        raise SpecbookError(
            f"model must be a target, a folder or a hub id, got {model!r}"
        )
    return model


@dataclass(frozen=True)
class _Place:
    """A node that may be expanded: its index among the nodes, its row in the model's
    own tree, its row in the plan, and the probability of its path."""

    node: int
    row: int
    planned: int
    sure: Any


class DraftModelSession:
    """One request. A round costs one forward of the draft model a level.

    `contract`: under which it proposes. `helper`: the session of another source whose
    candidates are computed with the first forward of a round; a candidate that the
    draft model then draws itself needs no forward of its own (`staged`).
    """

    def __init__(
        self,
        source: DraftModel,
        prefix: Sequence[int],
        request: str,
        policy: SamplingPolicy,
        manifest_hash: str,
        *,
        contract: SourceContract | None = None,
        helper: Any = None,
    ) -> None:
        self._source = source
        self._contract = contract or source.contract
        self._request = request
        self._policy = policy
        self._ranking = (
            SamplingPolicy(top_k=policy.top_k, top_p=policy.top_p)
            if policy.greedy
            else policy
        )
        self._manifest_hash = manifest_hash
        self._helper = helper
        # Otherwise every law is one-hot, or nothing but ranks is asked for.
        self._is_drawn = not policy.greedy and source.children != "top_k"
        self._own = OwnTree(source.model, prefix)
        self._commits = 0

    def propose(
        self,
        *,
        max_depth: int,
        max_nodes: int,
        chance: Chance | None = None,
        manifest_hash: str | None = None,
    ) -> Proposal:
        """A chain or tree within the budget; none where the draft model's context
        ends. `chance` answers the draws; at temperature 0 none is asked."""
        checks.integer(max_depth, "max_depth", least=0)
        checks.integer(max_nodes, "max_nodes", least=0)
        manifest_hash = self._manifest_hash if manifest_hash is None else manifest_hash
        levels = min(self._source.plan.depth, max_depth, self._own.room())
        nodes: list[ProposalNode] = []
        if levels and max_nodes:
            self._own.begin(self._guess(levels - 1, chance, manifest_hash))
            self._draft(levels, nodes, max_nodes, chance)
        contract = self._contract
        return Proposal(
            nodes=tuple(nodes),
            probability_semantics=contract.probability_semantics,
            sampling_relation=contract.sampling_relation,
            topology=contract.topology,
            state_handle=ProposalStateHandle(
                contract.name, self._request, self._commits
            ),
            manifest_hash=manifest_hash,
        )

    def commit(self, tokens: Iterable[int]) -> None:
        """The tokens that the round published, in order."""
        published = checks.entries(tokens, "tokens", "token ids")
        self._own.commit(published)
        if self._helper is not None:
            self._helper.commit(published)
        self._commits += 1

    def _guess(self, depth: int, chance: Any, manifest_hash: str) -> Proposal | None:
        """The helper's candidates, as deep as rows of them can be of use."""
        if self._helper is None or depth == 0:
            return None
        return self._helper.propose(
            max_depth=depth, max_nodes=depth, chance=chance, manifest_hash=manifest_hash
        )

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
            below = [b for b in below if self._source.plan.count(b.planned, depth + 1)]
            rows = self._own.rows([(nodes[b.node].token_id, b.row) for b in below])
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
        name, plan = self._contract.name, self._source.plan
        for place in level:
            width = plan.count(place.planned, depth)
            if not width:
                continue
            scores = None
            if self._source.stop_below:
                scores = self._law(place.row, self._ranking)
                if place.sure * scores.max() < self._source.stop_below:
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
        kind = self._source.children
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

    def _law(self, row: int, policy: SamplingPolicy) -> np.ndarray:
        """The law [V] that the children of `row` are drawn from, or ranked by."""
        return self._own.law(row, policy)


class _Sure:
    """The `Chance` of temperature 0: every law is one-hot, so nothing is asked."""

    def flip(self, probability: Any) -> bool:
        return bool(probability == 1)

    def draw(self, weights: Any) -> int:
        return int(np.argmax(weights))
