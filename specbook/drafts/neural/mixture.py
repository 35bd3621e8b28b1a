"""A draft model and a lookup as one drafter: every token comes from a stated mixture.

The first way out of a merge (section 0x02A). REST and prompt lookup have no q that
could be divided by; but a token that a lookup names is certain, given the text, and a
certain token has a law, the one that puts everything on it. So after every path

    q = w q_draft + (1 - w) 1[token that the lookup names there]

is a normalised law, and where the lookup finds nothing q = q_draft. Every candidate is
drawn from this q and carries it, whichever of the two would have named it. Scored with
the draft model's law alone, the same tokens would bend the output.

One draw from the mixture is accepted at least as often as a draw from one of the two,
picked with probability w: 1 - TV(p, q) is concave in q. Candidates of both side by side
(`verifiers.apart`, target-sample membership) are accepted more often still, and take
two rows of the target where this takes one.

Contract: that of the draft model, by the same options; `top_k` ranks and is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ... import checks, registry
from ...contract import SourceContract
from ...errors import ContractError, SpecbookError
from ...policy import SamplingPolicy
from ...proposal import (
    PREFIX_FRONTIER,
    ProbabilitySemantics,
    Proposal,
    SamplingRelation,
)
from ...verifiers.coupling import matching
from ..samplers import mixture, one_hot
from .draft_model import CONTRACT as DRAFT_CONTRACT
from .draft_model import DraftModel, DraftModelSession

CONTRACT = replace(
    DRAFT_CONTRACT,
    name="mixture",
    weights="a causal language model of its own, and the lookup's index",
    state="the request's tokens",
)


class Mixture:
    """The draft source. See the module for its contract.

    `draft_model`: a `DraftModel`, or what makes one (a target, a folder, a hub id; None
    is the shipped checkpoint). `lookup`: a source of certain candidates, by name or as
    an object; its first candidate counts. `weight`: the draft model's share, between 0
    and 1. Raises `ContractError` for a lookup whose candidates are drawn, since these
    are not certain, and another `ValueError` for anything else.
    """

    contract = CONTRACT

    def __init__(
        self,
        draft_model: Any = None,
        lookup: Any = "prompt_lookup",
        weight: Any = 0.5,
    ) -> None:
        if isinstance(lookup, str):
            named = registry.resolve(registry.DRAFTS, "draft source", lookup)
            # Before it is made: one that does not fit may have a model to load.
            _check_certain(getattr(named, "contract", None))
            lookup = named()
        about = getattr(lookup, "contract", None)
        # A class has a contract too, but was meant to be called.
        if isinstance(lookup, type) or not isinstance(about, SourceContract):
            raise SpecbookError(f"lookup is no draft source: {lookup!r}")
        _check_certain(about)
        checks.float64(weight, "weight", least=0, most=1)
        if weight in (0, 1):
            raise SpecbookError(f"weight must be between 0 and 1, got {weight}")
        if not isinstance(draft_model, DraftModel):
            draft_model = DraftModel(draft_model)
        about = draft_model.contract
        if about.probability_semantics is not (
            ProbabilitySemantics.NORMALIZED_CONDITIONAL
        ):
            raise ContractError(
                f"mixture: children {draft_model.children!r} are ranked, not drawn"
            )
        self.draft_model = draft_model
        self.lookup = lookup
        self.weight = weight
        self.contract = replace(
            CONTRACT,
            probability_semantics=about.probability_semantics,
            sampling_relation=about.sampling_relation,
            topology=about.topology,
        )

    def identity(self) -> str:
        """Both sources and the weight, for the round manifest."""
        return (
            f"mixture weight={self.weight} {self.draft_model.identity()} "
            f"lookup {self.lookup.identity()}"
        )

    def check_target(self, target: Any) -> None:
        """As both sources' own."""
        for part in (self.draft_model, self.lookup):
            if hasattr(part, "check_target"):
                part.check_target(target)

    def start(
        self,
        prefix: Iterable[int],
        *,
        request: str = "request-0",
        vocab_size: int | None = None,
        policy: SamplingPolicy | None = None,
        manifest_hash: str = "",
    ) -> MixtureSession:
        """A session for one request, as `DraftModel.start`."""
        tokens, policy = self.draft_model.check_start(prefix, vocab_size, policy)
        return MixtureSession(self, tokens, request, policy, manifest_hash)


def _check_certain(about: Any) -> None:
    """Raises `ContractError` for a contract whose candidates are drawn."""
    if not isinstance(about, SourceContract):
        return
    if about.sampling_relation is not SamplingRelation.DETERMINISTIC_LOOKUP:
        raise ContractError(
            f"mixture: the candidates of {about.name!r} are "
            f"{about.sampling_relation.value!r}, so none of them is certain"
        )


class MixtureSession(DraftModelSession):
    """One request: the draft model's session, with the lookup's share in every law."""

    def __init__(
        self,
        source: Mixture,
        prefix: list[int],
        request: str,
        policy: SamplingPolicy,
        manifest_hash: str,
    ) -> None:
        super().__init__(
            source.draft_model,
            prefix,
            request,
            policy,
            manifest_hash,
            contract=source.contract,
        )
        self._mixture = source
        self._tokens = list(prefix)
        self._is_drawn = True  # at temperature 0 the two may name different tokens

    def commit(self, tokens: Iterable[int]) -> None:
        """The tokens that the round published, in order."""
        published = checks.entries(tokens, "tokens", "token ids")
        super().commit(published)
        self._tokens += published

    def _law(self, row: int, policy: SamplingPolicy) -> np.ndarray:
        law = super()._law(row, policy)
        token = self._named(self._path(row))
        if token is None:
            return law
        weight = matching(self._mixture.weight, law)
        return mixture([law, one_hot(law, token)], [weight, 1 - weight])

    def _path(self, row: int) -> Sequence[int]:
        """The candidates down to `row`."""
        tree = self._own.tree
        if row == PREFIX_FRONTIER or tree is None:
            return ()
        return [tree.token_ids[above] for above in tree.path_rows(row)]

    def _named(self, path: Sequence[int]) -> int | None:
        """What the lookup names after the published text and `path`."""
        lookup = self._mixture.lookup
        size = self._mixture.draft_model.model.vocab_size
        session = lookup.start(
            [*self._tokens, *path],
            request=self._request,
            vocab_size=size,
            policy=self._policy,
        )
        found = session.propose(
            max_depth=1, max_nodes=1, chance=_Unasked(), manifest_hash=""
        )
        if not isinstance(found, Proposal):
            raise ContractError(
                f"mixture: {lookup.contract.name} returned no Proposal but {found!r}"
            )
        if not found.nodes:
            return None
        named = f"the token that {lookup.contract.name} names"
        return checks.integer(
            found.nodes[0].token_id, named, most=size - 1, error=ContractError
        )


class _Unasked:
    """The `Chance` of a lookup: one that asks for anything names no certain token."""

    def flip(self, probability: Any) -> bool:
        raise ContractError("mixture: the lookup asked for a random event")

    def draw(self, weights: Any) -> int:
        raise ContractError("mixture: the lookup asked for a random event")
