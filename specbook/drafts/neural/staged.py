"""Staged drafting: one source drafts for the draft model.

The draft model is a small target, so it can be sped up like one. A helper (a lookup,
say) guesses what the draft model is going to draft; the draft model computes the guess
together with the first forward of its round and then drafts as ever, each token drawn
from its own law. Where its draw is the helper's token the row is there already, and a
forward is saved; where it is not, the draw stands and the rest of the guess is of no
more use. That is target-sample membership (section 0x04B) with the draft model as the
target (Spector and Re 2023). So the proposal and its q are distributed exactly as the
plain draft model's, and the helper, whose q nobody reads, only saves draft forwards.

Contract: the draft model's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ... import registry
from ...contract import SourceContract, negotiate
from ...errors import SpecbookError
from ...policy import SamplingPolicy
from .draft_model import CONTRACT as DRAFT_CONTRACT
from .draft_model import DraftModel, DraftModelSession

CONTRACT = replace(
    DRAFT_CONTRACT,
    name="staged",
    weights="a causal language model of its own, and the helper's",
    state="the request's tokens, and the helper's state",
)


class Staged:
    """The draft source. See the module for its contract.

    `draft_model`: a `DraftModel`, or what makes one (a target, a folder, a hub id; None
    is the shipped checkpoint). `helper`: the source that drafts for it, by name or as
    an object. Raises `ValueError` for anything else.
    """

    contract = CONTRACT

    def __init__(self, draft_model: Any = None, helper: Any = "prompt_lookup") -> None:
        if isinstance(helper, str):
            helper = registry.resolve(registry.DRAFTS, "draft source", helper)()
        about = getattr(helper, "contract", None)
        # A class has a contract too, but was meant to be called.
        if isinstance(helper, type) or not isinstance(about, SourceContract):
            raise SpecbookError(f"helper is no draft source: {helper!r}")
        # Any shape that can become rows will do, whatever its numbers mean.
        negotiate([about], "membership")
        if not isinstance(draft_model, DraftModel):
            draft_model = DraftModel(draft_model)
        self.draft_model = draft_model
        self.helper = helper
        about = draft_model.contract
        self.contract = replace(
            CONTRACT,
            probability_semantics=about.probability_semantics,
            sampling_relation=about.sampling_relation,
            topology=about.topology,
        )

    @classmethod
    def tuned(cls, draft_model: Any = None) -> Staged:
        """The source with a draft model of the options `DraftModel.tuned`."""
        return cls(DraftModel.tuned(draft_model))

    def identity(self) -> str:
        """Both sources, for the round manifest."""
        return f"staged {self.draft_model.identity()} helper {self.helper.identity()}"

    def check_target(self, target: Any) -> None:
        """As `DraftModel.check_target`; the helper looks at the draft model, which is
        the target that it serves."""
        self.draft_model.check_target(target)
        if hasattr(self.helper, "check_target"):
            self.helper.check_target(self.draft_model.model)

    def start(
        self,
        prefix: Iterable[int],
        *,
        request: str = "request-0",
        vocab_size: int | None = None,
        policy: SamplingPolicy | None = None,
        manifest_hash: str = "",
    ) -> DraftModelSession:
        """A session for one request, as `DraftModel.start`."""
        return self.draft_model.start(
            prefix,
            request=request,
            vocab_size=vocab_size,
            policy=policy,
            manifest_hash=manifest_hash,
            contract=self.contract,
            helper=self.helper,
        )
