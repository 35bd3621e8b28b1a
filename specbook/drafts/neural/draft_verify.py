"""Draft & Verify: the target drafts for itself with some sublayers left out (0x05A).

A round begins with the pending token on the skipped path (`models.skip_layers`), which
reads the target's own rows of all committed tokens. Each drafted token is drawn from
the path's law, processed by the target's sampling policy, and goes through the path in
turn. Drafting stops behind a token whose confidence is below a threshold that follows
the acceptance rate (`drafts.stop_threshold`), or at `most` tokens. Whether a token is
followed by another depends on the tokens kept so far and their laws; none that was
drawn is dropped, so q is the law that each was drawn from.

In the first round nothing is committed yet. It is an ordinary step, it reads the
prompt, and nothing else ever has to.

Contract: a chain of independent draws, each with its normalised conditional law.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ... import checks, paths
from ...chance import Chance
from ...contract import SourceContract
from ...errors import ArtifactError, SpecbookError
from ...models import skip_storage
from ...models.skip_layers import MARKS, SkippedPath, SkipVector, check_vector
from ...policy import SamplingPolicy
from ...proposal import (
    ProbabilitySemantics,
    ProposalNode,
    SamplingRelation,
    Topology,
)
from ..stop_threshold import MOST, StopThreshold, ThresholdPolicy
from .planned import PlannedSession, PlannedSource, _Place, check_policy

LONGEST = 4096
"""Tokens that a draft may be asked to have: beyond it a slip of the hand, no plan."""

SHIPPED = ("skip", "smollm2")
"""Where in `data/` the vector lies that was searched for the book's own target."""

CONTRACT = SourceContract(
    name="draft_verify",
    probability_semantics=ProbabilitySemantics.NORMALIZED_CONDITIONAL,
    sampling_relation=SamplingRelation.IID,
    topology=Topology.SEQUENCE,
    weights="the target's own, with some sublayers left out",
    state="the target's session, and the acceptance rate so far",
    cache="its own; copies of the target's committed rows, provisional rows dropped",
    invalidated_by=(
        "another checkpoint of the target",
        "another skip vector",
        "another sampling policy",
    ),
)


class DraftVerify(PlannedSource):
    """The draft source. See the module for its contract.

    `vector`: a `SkipVector`, its text form, the folder of an artifact, or one that was
    read (`skip_storage.read`); None is the vector that the book ships. `most`: tokens
    of a full draft. `policy`: how the threshold moves, a `ThresholdPolicy` or the name
    of a rule. Raises `ValueError` for bad options and `ArtifactError` for a vector that
    is missing or damaged. A text that can be a vector is one: a folder called "am" is
    named by "./am". Section 0x05A.
    """

    contract = CONTRACT
    follows_plans = False

    def __init__(
        self,
        vector: Any = None,
        *,
        most: int = MOST,
        policy: ThresholdPolicy | str = "original",
    ) -> None:
        self._stored: skip_storage.StoredSkip | None = None
        self.vector, self._stored = _vector(vector)
        self.most = checks.integer(most, "most", least=1, most=LONGEST)
        if isinstance(policy, str):
            policy = ThresholdPolicy(policy)
        if not isinstance(policy, ThresholdPolicy):
            raise SpecbookError(
                f"policy must be a ThresholdPolicy or the name of a rule, got "
                f"{policy!r}"
            )
        self.policy = policy
        super().__init__(
            CONTRACT,
            widths=(1,) * self.most,
            shape=None,
            children="iid",
            stop_below=0.0,
            usual=(1,),
        )

    def identity(self) -> str:
        """The options and the vector, for the round manifest."""
        return f"{self.artifact_identity()} most={self.most} threshold: {self.policy}"

    def artifact_identity(self) -> str:
        """What proposes, however long: the vector, and the files it came from."""
        files = f" files=sha256:{self._stored.sha256}" if self._stored else ""
        return f"draft_verify skip={self.vector}{files}"

    def check_target(self, target: Any) -> None:
        """Raises `UnsupportedTargetError`, by name, for a target whose sublayers cannot
        be left out, `SpecbookError` for a vector of another number of layers, and
        `ArtifactError` for one that was searched for another checkpoint."""
        check_vector(self.vector, target)
        if self._stored is not None:
            skip_storage.check_target(self._stored.manifest, target.identity())

    def start(
        self,
        prefix: Iterable[int],
        *,
        request: str = "request-0",
        vocab_size: int | None = None,
        policy: SamplingPolicy | None = None,
        manifest_hash: str = "",
    ) -> DraftVerifySession:
        """A session for one request whose prompt is `prefix` (token ids). `policy` is
        the target's, by default that of temperature 1: the draft draws by it too."""
        checks.token_ids(prefix, "prefix", vocab_size=vocab_size)
        return DraftVerifySession(self, request, check_policy(policy), manifest_hash)


def _vector(given: Any) -> tuple[SkipVector, skip_storage.StoredSkip | None]:
    if isinstance(given, SkipVector):
        return given, None
    if isinstance(given, skip_storage.StoredSkip):
        return given.vector, given
    if given is None:
        try:
            given = paths.data_path(*SHIPPED)
        except ArtifactError as error:
            raise ArtifactError(
                "no skip vector is shipped with this specbook: search one with "
                "`specbook train skip`, or name the folder of an artifact or a vector"
            ) from error
    if not isinstance(given, (str, os.PathLike)):
        raise SpecbookError(
            f"vector must be a skip vector or the folder of an artifact, got {given!r}"
        )
    if isinstance(given, str) and given and set(given) <= set(MARKS.values()):
        return SkipVector.from_text(given), None
    stored = skip_storage.read(given)
    return stored.vector, stored


class DraftVerifySession(PlannedSession):
    """One request. A round costs one run of the skipped path for each drafted token."""

    def __init__(
        self,
        source: DraftVerify,
        request: str,
        policy: SamplingPolicy,
        manifest_hash: str,
    ) -> None:
        super().__init__(source, request, policy, manifest_hash, source.contract)
        self._source = source
        self.threshold = StopThreshold(source.policy, source.most, greedy=policy.greedy)
        """Gamma as it is now; it starts anew with each request."""
        self.path: SkippedPath | None = None
        """The skipped path, once the session was joined."""
        self._logits: list[np.ndarray] = []
        """After the pending token, and after each drafted token that was read."""
        self._drafted: list[int] = []

    def join(self, session: Any) -> None:
        """The target's session of this request. Raises as `SkippedPath`."""
        self.path = SkippedPath(session, self._source.vector)

    def commit(self, tokens: Any) -> None:
        """The tokens that the round published, in order. Those of the draft at their
        beginning were accepted, and the threshold moves, once."""
        published = checks.token_ids(tokens)
        accepted = 0
        for token, drafted in zip(published, self._drafted, strict=False):
            if token != drafted:
                break
            accepted += 1
        self.threshold.learn(self._commits, accepted, len(self._drafted))
        self._drafted = []
        super().commit(published)

    def _room(self) -> int:
        """None before the first commit. The last token needs no row of its own, so it
        may sit one past the target's last position."""
        if self.path is None:
            raise SpecbookError(
                "draft_verify drafts with the target's own layers: whoever drives this "
                "source must call join(session) before the first round"
            )
        self._drafted = []
        if not self.path.ready:
            return 0
        session = self.path.session
        limit = session.target.context_limit
        if limit is None:
            return sys.maxsize
        return max(0, limit + 1 - len(session.tokens))

    def _begin(self, levels: int, chance: Chance | None, manifest_hash: str) -> None:
        assert self.path is not None  # `_room` was asked first
        self._logits = [self.path.begin()]

    def _rows(self, candidates: Sequence[tuple[int, int]]) -> list[int]:
        assert self.path is not None
        rows = []
        for token, _ in candidates:  # a chain: one, or none where drafting stopped
            rows.append(len(self._logits) - 1)
            self._logits.append(self.path.grow(token))
        return rows

    def _law(self, row: int, policy: SamplingPolicy) -> np.ndarray:
        return policy.law_from_logits(self._logits[row + 1], f"draft {row + 2}")

    def _level(
        self,
        level: Sequence[_Place],
        depth: int,
        nodes: list[ProposalNode],
        max_nodes: int,
        chance: Chance | None,
    ) -> list[_Place]:
        below = super()._level(level, depth, nodes, max_nodes, chance)
        self._drafted = [node.token_id for node in nodes]
        return [
            place
            for place in below
            if not self.threshold.stops(
                self._confidence(place.row, nodes[place.node].token_id)
            )
        ]

    def _confidence(self, row: int, token: int) -> float:
        """The path's untempered probability of a token that was drawn under `row`."""
        # Not rounded above 1: the sum of a softmax is 1 within rounding.
        return min(1.0, float(self._law(row, SamplingPolicy())[token]))
