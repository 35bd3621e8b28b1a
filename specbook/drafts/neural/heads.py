"""What the sources with draft heads share (section 0x06).

Draft heads run on the target's own hidden states. In each round they start from the
state of the last *committed* row, h_{t-1}, and from the pending token x_t. Whatever the
round before ended with, a correction or a bonus token is that pending token: it was
decided, its state has not been computed, and the heads know it by its embedding alone
(independent heads do not know it at all). States of candidates that were refused are
never seen, those of accepted ones with the next round.

In the first round nothing is committed yet, so there is no state and no candidate: it
is an ordinary step, and it reads the prompt.

A tree is expanded path by path and batched by depth: one step of the heads and one run
of the LM head a level. Independent heads need one run for all levels. With a cut
vocabulary the LM head has only the rows of the tokens that may be drafted; q is 0 for
every other token, and a law over the whole vocabulary all the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
import torch

from ... import checks, paths
from ...chance import Chance
from ...contract import SourceContract
from ...errors import ArtifactError, ContractError, SpecbookError
from ...models.heads import storage
from ...models.heads.base import Heads, State
from ...models.protocol import HiddenTarget, gives_hidden
from ...policy import SamplingPolicy
from ...proposal import ProbabilitySemantics, SamplingRelation, Topology
from ...tree import CandidateTree
from .bound import Bound, described
from .planned import PlannedSession, PlannedSource, check_policy

SHIPPED = "heads"
"""The folder in `data/` that holds a folder of each kind."""


def contract(name: str, *, cache: str) -> SourceContract:
    """The contract of a chain that the heads called `name` draw."""
    return SourceContract(
        name=name,
        probability_semantics=ProbabilitySemantics.NORMALIZED_CONDITIONAL,
        sampling_relation=SamplingRelation.IID,
        topology=Topology.SEQUENCE,
        weights="heads for one target; its embedding and LM head are borrowed",
        state="the target's hidden state of the last committed row",
        cache=cache,
        invalidated_by=(
            "another checkpoint of the target",
            "another tokenizer",
            "another sampling policy",
            "heads trained anew",
        ),
    )


class HeadsSource(PlannedSource):
    """A draft source with heads of one kind. See the module.

    `heads`: the folder of an artifact, one that was read (`storage.read`: several
    plans of the same heads, one copy), or heads in memory (`models.heads`), which are
    taken at their word about the target; None is what the book ships. `widths`,
    `shape`, `children` and `stop_below` as for `DraftModel`; without them a chain as
    long as there are heads. No plan may be deeper than that. `vocabulary`: the only ids
    that are drafted; None takes what the artifact was trained for. Raises `ValueError`
    for bad options and `ArtifactError` for heads that are missing, damaged or of
    another kind. It serves the target that `check_target` was last given.
    """

    kind: ClassVar[str]
    base_contract: ClassVar[SourceContract]

    def __init__(
        self,
        heads: Any = None,
        *,
        widths: Sequence[int] | None = None,
        shape: CandidateTree | None = None,
        children: str = "without_replacement",
        stop_below: float = 0.0,
        vocabulary: Sequence[int] | None = None,
    ) -> None:
        self._stored: storage.StoredHeads | None = None
        if not isinstance(heads, Heads):
            self._stored = _stored(heads, self.kind)
            heads = self._stored.heads
            if vocabulary is None:
                vocabulary = self._stored.vocabulary
        if heads.config.kind != self.kind:
            raise ArtifactError(f"these are {heads.config.kind} heads, not {self.kind}")
        self.heads = heads
        count = heads.config.heads
        super().__init__(
            self.base_contract,
            widths=widths,
            shape=shape,
            children=children,
            stop_below=stop_below,
            usual=(1,) * count,
        )
        if self.plan.depth > count:
            raise SpecbookError(
                f"the plan is {self.plan.depth} levels deep, there are {count} heads"
            )
        self.vocabulary: tuple[int, ...] | None = None
        if vocabulary is not None:
            self.vocabulary = tuple(storage.checked_vocabulary(vocabulary))
        self._bound: Bound | None = None

    def identity(self) -> str:
        """The options and the heads, for the round manifest."""
        return f"{self.kind} {self.options()} {self._weights()}"

    def artifact_identity(self) -> str:
        """What proposes, whatever the plan: the heads and how they are drawn from."""
        return f"{self.kind} {self.drawing()} {self._weights()}"

    def _weights(self) -> str:
        sha256 = self._stored.sha256 if self._stored else storage.digest(self.heads)
        return f"{described(self.vocabulary)} heads=sha256:{sha256}"

    def check_target(self, target: Any) -> None:
        """Serve `target` from now on. Raises `ContractError` for one that gives no
        hidden states or has another width, `ArtifactError` for one that the artifact
        was not trained for, `SpecbookError` when the vocabulary exceeds its own."""
        if not gives_hidden(target) or not isinstance(target, HiddenTarget):
            raise ContractError(
                f"{self.kind}: draft heads read the target's hidden states, its "
                f"embedding and its LM head; a {type(target).__name__} does not give "
                "them"
            )
        if target.hidden_width != self.heads.config.width:
            raise ContractError(
                f"{self.kind}: the heads read states of width "
                f"{self.heads.config.width}, the target's are {target.hidden_width}"
            )
        if self._stored is not None:
            storage.check_target(self._stored.manifest, target.identity())
        self._bound = Bound.of(target, self.vocabulary)

    @property
    def bound(self) -> Bound:
        """How the target that `check_target` was last given is asked. Raises
        `SpecbookError` before that."""
        if self._bound is None:
            raise SpecbookError(
                f"{self.kind}: no target yet; check_target(target) comes before start"
            )
        return self._bound

    def start(
        self,
        prefix: Iterable[int],
        *,
        request: str = "request-0",
        vocab_size: int | None = None,
        policy: SamplingPolicy | None = None,
        manifest_hash: str = "",
    ) -> HeadsSession:
        """A session for one request whose prompt is `prefix` (token ids). `policy` is
        the target's, by default that of temperature 1: the heads draw by it too."""
        bound = self.bound
        known = bound.target.vocab_size
        if vocab_size is not None and vocab_size != known:
            raise SpecbookError(
                f"{self.kind}: the target has {known} tokens, vocab_size is "
                f"{vocab_size}"
            )
        tokens = checks.token_ids(prefix, "prefix", vocab_size=known)
        if not tokens:
            raise SpecbookError("prefix is empty; a draft needs at least one token")
        return HeadsSession(
            self, bound, tokens, request, check_policy(policy), manifest_hash
        )


def _stored(folder: Any, kind: str) -> storage.StoredHeads:
    if isinstance(folder, storage.StoredHeads):
        return folder
    if folder is None:
        try:
            folder = paths.data_path(SHIPPED, kind)
        except ArtifactError as error:
            raise ArtifactError(
                f"no {kind} heads are shipped with this specbook; name the folder of "
                "an artifact, or give heads in memory"
            ) from error
    if not isinstance(folder, (str, os.PathLike)):
        raise SpecbookError(
            f"heads must be draft heads or the folder of an artifact, got {folder!r}"
        )
    return storage.read(folder)


class HeadsSession(PlannedSession):
    """One request. A round costs one step of the heads and of the LM head a level."""

    def __init__(
        self,
        source: HeadsSource,
        bound: Bound,
        prefix: Sequence[int],
        request: str,
        policy: SamplingPolicy,
        manifest_hash: str,
    ) -> None:
        super().__init__(source, request, policy, manifest_hash, source.contract)
        self._heads = source.heads
        self._bound = bound
        parameter = next(self._heads.parameters())
        self._form = {"device": parameter.device, "dtype": parameter.dtype}
        self._length = len(prefix)
        self._pending = prefix[-1]
        self._cache = self._heads.cache()
        self._waiting: list[torch.Tensor] = []
        """States that were shown and that the prefix layers have not read."""
        self._base: torch.Tensor | None = None
        self._states: list[State] = []
        self._logits: list[np.ndarray] = []
        self._where: list[tuple[int, int]] = []
        """Level of each row, and its place in it; the frontier is (0, 0)."""
        self._laws: dict[Any, np.ndarray] = {}

    def commit(self, tokens: Any) -> None:
        """The tokens that the round published, in order; the last is pending."""
        vocab_size = self._bound.target.vocab_size
        published = checks.token_ids(tokens, vocab_size=vocab_size)
        if published:
            self._length += len(published)
            self._pending = published[-1]
        super().commit(published)

    def observe(self, hidden: Any) -> None:
        """The target's states [n, d] of the rows that the last commit kept."""
        width = self._heads.config.width
        if not isinstance(hidden, torch.Tensor) or hidden.dim() != 2:
            raise SpecbookError(
                f"{self._contract.name}: hidden states are a tensor [n, {width}], got "
                f"{type(hidden).__name__}"
            )
        if hidden.shape[1] != width:
            raise SpecbookError(
                f"{self._contract.name}: hidden states of width {hidden.shape[1]}, the "
                f"heads read {width}"
            )
        if len(hidden):
            self._waiting.append(hidden)

    def _room(self) -> int:
        """No level before the first commit, else as many as there are heads."""
        if not self._commits:
            return 0
        shown = len(self._cache) + sum(map(len, self._waiting))
        if shown != self._length - 1:
            raise SpecbookError(
                f"{self._contract.name}: {shown} hidden states were shown for "
                f"{self._length - 1} committed rows; whoever drives this source must "
                "call observe(hidden) after each commit"
            )
        return self._heads.config.heads

    @torch.inference_mode()
    def _begin(self, levels: int, chance: Chance | None, manifest_hash: str) -> None:
        if self._waiting:
            hidden = torch.cat([part.to(**self._form) for part in self._waiting])
            self._base = self._cache.extend(hidden)[-1:]
            self._waiting = []
        assert self._base is not None  # there is a committed row, so it was shown
        state = self._heads.start(self._base, self._embed([self._pending]))
        self._states, self._logits = [state], []
        self._where, self._laws = [], {}
        if self._heads.independent:
            # No head waits for another: one run of the LM head for all levels.
            rows = [self._heads.features(State(d, state.parts)) for d in range(levels)]
            self._logits = list(self._bound.logits(torch.cat(rows))[:, None])

    @torch.inference_mode()
    def _rows(self, candidates: Sequence[tuple[int, int]]) -> list[int]:
        level = 1 + (self._level_of(candidates[0][1])[0] if candidates else 0)
        first = len(self._where)
        if self._heads.independent:
            self._where += [(level, 0)] * len(candidates)
        elif candidates:
            above = [self._level_of(row)[1] for _, row in candidates]
            tokens = self._embed([token for token, _ in candidates])
            places = torch.tensor(above, device=tokens.device)
            self._states.append(self._heads.step(self._states[-1], places, tokens))
            self._where += [(level, place) for place in range(len(candidates))]
        return list(range(first, len(self._where)))

    @torch.inference_mode()
    def _law(self, row: int, policy: SamplingPolicy) -> np.ndarray:
        level, place = self._level_of(row)
        if level == len(self._logits):
            features = self._heads.features(self._states[level])
            self._logits.append(self._bound.logits(features))
        key = (level, place, policy)
        if key not in self._laws:
            where = f"{self._contract.name}, level {level + 1}"
            logits = self._logits[level][place]
            self._laws[key] = self._bound.law(logits, policy, where)
        return self._laws[key]

    def _level_of(self, row: int) -> tuple[int, int]:
        return (0, 0) if row < 0 else self._where[row]

    def _embed(self, tokens: Sequence[int]) -> torch.Tensor:
        return self._bound.target.embed_tokens(torch.tensor(tokens)).to(**self._form)
