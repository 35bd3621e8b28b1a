"""Kangaroo: the target drafts with its own lowest layers and an adapter (0x05B).

The first exit leaves the target at a layer boundary: the rows of the layers below it
are the target's own, computed while drafting and reused when the layers above verify
them (`models.trunk`). An adapter turns such a row into one that the target's LM head
can read (`models.kangaroo`). The second exit ends the draft behind a token at whose
place the adapter was not sure enough; that token is kept and verified.

Contract: a chain. Each token is drawn from the adapter's law after the tokens before
it, processed by the target's sampling policy, so q is a normalised conditional law and
the tokens are independent draws. Whether another token follows depends on the laws of
places that have their tokens already, never on the token that would be drawn next.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ... import checks, paths
from ...chance import Chance
from ...contract import SourceContract
from ...errors import ArtifactError, ContractError, SpecbookError
from ...models import kangaroo_storage
from ...models.heads import storage
from ...models.kangaroo import MOST, THRESHOLD, Adapter, KangarooDraft, draft_chain
from ...models.shared_trunk import sharing
from ...models.trunk import TrunkTarget
from ...policy import SamplingPolicy
from ...proposal import (
    ProbabilitySemantics,
    Proposal,
    ProposalNode,
    SamplingRelation,
    Topology,
)
from .bound import Bound, described
from .planned import check_policy

SHIPPED = ("adapters", "smollm2")
"""Where in `data/` the adapter lies that the book trained for its own target."""

CONTRACT = SourceContract(
    name="kangaroo",
    probability_semantics=ProbabilitySemantics.NORMALIZED_CONDITIONAL,
    sampling_relation=SamplingRelation.IID,
    topology=Topology.SEQUENCE,
    weights="an adapter for one target; its lowest layers and LM head are borrowed",
    state="the target's session",
    cache="the adapter's rows, its own; the shallow rows are the target's",
    invalidated_by=(
        "another checkpoint of the target",
        "another tokenizer",
        "another layer boundary",
        "another sampling policy",
        "an adapter trained anew",
    ),
)


class Kangaroo:
    """The draft source. See the module for its contract.

    `adapter`: the folder of an artifact, one that was read (`kangaroo_storage.read`),
    or an `Adapter` in memory, which is taken at its word about the target and needs
    `boundary`, the number of layers below it; None is what the book ships. `most`: of
    tokens in a draft. `threshold`: behind a place where the adapter's most probable
    token has less than this, untempered, nothing is drafted; 0 never stops.
    `vocabulary`: the only ids that are drafted; None takes what the artifact was
    trained for. Raises `ValueError` for bad options and `ArtifactError` for an adapter
    that is missing or damaged. It serves the target that `check_target` was last given.
    Section 0x05B.
    """

    contract = CONTRACT
    follows_plans = False
    """The draft is one chain, and its length is the second exit's."""

    def __init__(
        self,
        adapter: Any = None,
        *,
        most: int = MOST,
        threshold: float = THRESHOLD,
        vocabulary: Sequence[int] | None = None,
        boundary: int | None = None,
    ) -> None:
        self.most = checks.integer(most, "most", least=1)
        self.threshold = checks.float64(threshold, "threshold", least=0, most=1)
        if boundary is not None:
            checks.integer(boundary, "boundary", least=1)
        self._stored: kangaroo_storage.StoredAdapter | None = None
        if not isinstance(adapter, Adapter):
            self._stored = _stored(adapter)
            adapter = self._stored.adapter
            if boundary not in (None, self._stored.boundary):
                raise SpecbookError(
                    f"the adapter was trained above {self._stored.boundary} layers, "
                    f"boundary is {boundary}"
                )
            boundary = self._stored.boundary
            if vocabulary is None:
                vocabulary = self._stored.vocabulary
        if boundary is None:
            raise SpecbookError(
                "an adapter in memory does not say how many layers are below it: give "
                "boundary"
            )
        self.adapter = adapter
        self.boundary = boundary
        self.vocabulary: tuple[int, ...] | None = None
        if vocabulary is not None:
            self.vocabulary = tuple(storage.checked_vocabulary(vocabulary))
        self._form: tuple[Any, TrunkTarget] | None = None
        self._bound: Bound | None = None

    def identity(self) -> str:
        """The options and the adapter, for the round manifest."""
        return f"kangaroo most={self.most} {self._told()}"

    def artifact_identity(self) -> str:
        """What proposes, however long: the adapter and how it is drawn from."""
        return f"kangaroo {self._told()}"

    def _told(self) -> str:
        if self._stored is None:
            sha256 = kangaroo_storage.digest(self.adapter)
        else:
            sha256 = self._stored.sha256
        return (
            f"threshold={self.threshold} boundary={self.boundary} "
            f"{described(self.vocabulary)} adapter=sha256:{sha256}"
        )

    def target_for(self, target: Any) -> TrunkTarget:
        """`target` in the form that shares its lowest layers; itself if it does that
        already. The last one is kept: a form tests itself when it is made.

        Raises as `sharing`, and `ArtifactError` for a target that the adapter was not
        trained for.
        """
        if isinstance(target, TrunkTarget):
            return sharing(target, self.boundary)
        if self._form is None or self._form[0] is not target:
            if self._stored is not None:
                kangaroo_storage.check_target(self._stored, target.identity())
            self._form = (target, sharing(target, self.boundary))
        return self._form[1]

    def check_target(self, target: Any) -> None:
        """Serve `target` from now on. Raises `ContractError` for one that does not
        share its layers below the boundary or has another width, `ArtifactError` for
        one that the adapter was not trained for, `SpecbookError` when the vocabulary
        exceeds its own."""
        if not isinstance(target, TrunkTarget) or target.boundary != self.boundary:
            raise ContractError(
                f"kangaroo: a {type(target).__name__} does not share its first "
                f"{self.boundary} layers; target_for(target) gives the form that does"
            )
        if target.hidden_width != self.adapter.width:
            raise ContractError(
                f"kangaroo: the adapter reads rows of width {self.adapter.width}, the "
                f"target's are {target.hidden_width}"
            )
        if self._stored is not None:
            kangaroo_storage.check_target(self._stored, target.identity())
        self._bound = Bound.of(target, self.vocabulary)

    def start(
        self,
        prefix: Iterable[int],
        *,
        request: str = "request-0",
        vocab_size: int | None = None,
        policy: SamplingPolicy | None = None,
        manifest_hash: str = "",
    ) -> KangarooSession:
        """A session for one request whose prompt is `prefix` (token ids). `policy` is
        the target's, by default that of temperature 1: the adapter draws by it too.
        Before its first round it is to `join` the target's session."""
        if self._bound is None:
            raise SpecbookError(
                "kangaroo: no target yet; check_target(target) comes before start"
            )
        known = self._bound.target.vocab_size
        if vocab_size is not None and vocab_size != known:
            raise SpecbookError(
                f"kangaroo: the target has {known} tokens, vocab_size is {vocab_size}"
            )
        tokens = checks.token_ids(prefix, "prefix", vocab_size=known)
        if not tokens:
            raise SpecbookError("prefix is empty; a draft needs at least one token")
        policy = check_policy(policy)
        return KangarooSession(
            self, self._bound, tokens, request, policy, manifest_hash
        )


def _stored(adapter: Any) -> kangaroo_storage.StoredAdapter:
    if isinstance(adapter, kangaroo_storage.StoredAdapter):
        return adapter
    if adapter is None:
        try:
            adapter = paths.data_path(*SHIPPED)
        except ArtifactError as error:
            raise ArtifactError(
                "no adapter is shipped with this specbook: train one with `specbook "
                "train kangaroo`, or name the folder of an artifact"
            ) from error
    if not isinstance(adapter, (str, os.PathLike)):
        raise SpecbookError(
            f"adapter must be an Adapter or the folder of an artifact, got {adapter!r}"
        )
    return kangaroo_storage.read(adapter)


class KangarooSession:
    """One request. A round costs, for each token, a run of the shallow layers, of the
    adapter and of the LM head; verification has those shallow rows for nothing."""

    def __init__(
        self,
        source: Kangaroo,
        bound: Bound,
        prefix: Sequence[int],
        request: str,
        policy: SamplingPolicy,
        manifest_hash: str,
    ) -> None:
        self._source = source
        self._bound = bound
        self._prefix = list(prefix)
        self._request = request
        self._policy = policy
        self._manifest_hash = manifest_hash
        self._commits = 0
        self.draft: KangarooDraft | None = None
        """The drafting side of the target's session, once that was joined."""

    def join(self, session: Any) -> None:
        """The target's session of this request, before its first round. Raises
        `SpecbookError` for one of another target, or with other tokens."""
        draft = KangarooDraft(session, self._source.adapter, self._bound.read_out)
        if session.target is not self._bound.target:
            raise SpecbookError(
                "kangaroo: the session is of another target than check_target was given"
            )
        if session.tokens != self._prefix or session.generation:
            raise SpecbookError("kangaroo: the session is not at this request's prompt")
        self.draft = draft

    def propose(
        self,
        *,
        max_depth: int,
        max_nodes: int,
        chance: Chance | None = None,
        manifest_hash: str | None = None,
    ) -> Proposal:
        """A chain within the budget and the context. `chance` answers the draws; at
        temperature 0 none is asked."""
        checks.integer(max_depth, "max_depth", least=0)
        checks.integer(max_nodes, "max_nodes", least=0)
        most = min(self._source.most, max_depth, max_nodes, self._room())
        nodes: list[ProposalNode] = []
        if most:
            self._draft(nodes, most, chance)
        about = CONTRACT.proposed(
            self._request,
            self._commits,
            self._manifest_hash if manifest_hash is None else manifest_hash,
        )
        return Proposal(nodes=tuple(nodes), **about)

    def commit(self, tokens: Any) -> None:
        """The tokens that the round published, in order, after the target's session
        committed them. `SpecbookError` if it did not."""
        session = self._joined().session
        published = checks.token_ids(tokens, vocab_size=self._bound.target.vocab_size)
        committed = session.tokens[len(session.tokens) - len(published) :]
        if session.generation != self._commits + 1 or committed != published:
            raise SpecbookError(
                "kangaroo: what was published is not what the target's session has "
                "just committed"
            )
        self._joined().commit()
        self._commits += 1

    def _joined(self) -> KangarooDraft:
        if self.draft is None:
            raise SpecbookError(
                "kangaroo drafts with the target's own layers: whoever drives this "
                "source must call join(session) before the first round"
            )
        return self.draft

    def _room(self) -> int:
        """Tokens that still have a position in the target's context."""
        tokens, limit = self._joined().session.tokens, self._bound.target.context_limit
        return self._source.most if limit is None else max(0, limit - len(tokens))

    def _draft(
        self, nodes: list[ProposalNode], most: int, chance: Chance | None
    ) -> None:
        """Appends a chain of up to `most` tokens to `nodes`."""
        policy, bound = self._policy, self._bound
        if chance is None and not policy.greedy:
            raise SpecbookError(
                "a draft at temperature above 0 is drawn: chance is needed"
            )

        def choose(row: np.ndarray, untempered: np.ndarray) -> int:
            law = untempered
            if policy != SamplingPolicy():
                law = policy.law_from_logits(row, f"kangaroo, token {len(nodes) + 1}")
            law = bound.whole(law)
            # At temperature 0 the law is one-hot, so nothing is asked.
            if policy.greedy or chance is None:
                token = int(law.argmax())
            else:
                token = chance.draw(law)
            nodes.append(
                ProposalNode(
                    token_id=token,
                    parent=len(nodes) - 1,
                    depth=len(nodes) + 1,
                    q=law[token],
                    source=CONTRACT.name,
                    state_owner=CONTRACT.name,
                    origin_request=self._request,
                    law=law,
                )
            )
            return token

        draft_chain(self._joined(), choose, most, self._source.threshold)
