"""A separate draft model: a smaller causal language model with the target's vocabulary.

Contract, by the options. A chain is drawn token by token from the draft model's own
law, processed by the target's sampling policy, so its q is a normalised conditional law
and its tokens are independent draws ("iid"; a sequence). A tree (a node with several
children) comes in five kinds, which `planned` describes.
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
from ...policy import SamplingPolicy
from ...proposal import ProbabilitySemantics, Proposal, SamplingRelation, Topology
from ...tree import CandidateTree
from .own_tree import OwnTree
from .planned import PlannedSession, PlannedSource, check_policy

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


class DraftModel(PlannedSource):
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
        super().__init__(
            CONTRACT,
            widths=widths,
            shape=shape,
            children=children,
            stop_below=stop_below,
            usual=(1, 1, 1, 1),
        )
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

    def identity(self) -> str:
        """The options and the checkpoint, for the round manifest."""
        backend = self.model.identity()["backend"]
        return f"draft_model {self.options()} {self._weights()} backend={backend}"

    def artifact_identity(self) -> str:
        """What proposes, whatever the plan and the machine: the checkpoint and how it
        is drawn from. A tree's artifact is bound to this (section 0x0AE)."""
        return f"draft_model {self.drawing()} {self._weights()}"

    def _weights(self) -> str:
        about = self.model.identity()
        return (
            f"checkpoint={about['checkpoint']} tokenizer={about['tokenizer']} "
            f"dtype={about['dtype']}"
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
        return tokens, check_policy(policy)


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


class DraftModelSession(PlannedSession):
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
        super().__init__(
            source, request, policy, manifest_hash, contract or source.contract
        )
        self._helper = helper
        self._own = OwnTree(source.model, prefix)

    def commit(self, tokens: Iterable[int]) -> None:
        """The tokens that the round published, in order."""
        published = checks.entries(tokens, "tokens", "token ids")
        self._own.commit(published)
        if self._helper is not None:
            self._helper.commit(published)
        super().commit(published)

    def _guess(self, depth: int, chance: Any, manifest_hash: str) -> Proposal | None:
        """The helper's candidates, as deep as rows of them can be of use."""
        if self._helper is None or depth == 0:
            return None
        return self._helper.propose(
            max_depth=depth, max_nodes=depth, chance=chance, manifest_hash=manifest_hash
        )

    def _room(self) -> int:
        return self._own.room()

    def _begin(self, levels: int, chance: Chance | None, manifest_hash: str) -> None:
        self._own.begin(self._guess(levels - 1, chance, manifest_hash))

    def _rows(self, candidates: Sequence[tuple[int, int]]) -> list[int]:
        return self._own.rows(candidates)

    def _law(self, row: int, policy: SamplingPolicy) -> np.ndarray:
        return self._own.law(row, policy)
