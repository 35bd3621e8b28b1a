"""A source that drafts with the target's own layers: the form of the target that it
asks for, and the session that it is handed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from specbook.contract import SourceContract
from specbook.engine import fitted_target, generate, round_manifest
from specbook.errors import SpecbookError, TargetError
from specbook.models.table import TableTarget
from specbook.policy import SamplingPolicy
from specbook.proposal import (
    ProbabilitySemantics,
    Proposal,
    ProposalNode,
    ProposalStateHandle,
    SamplingRelation,
    Topology,
)
from tests.core.helpers.laws import table_of

TARGET = TableTarget(table_of([[1, 2], [3, 1], [1, 1]], salt=2), vocab_size=2)

CONTRACT = SourceContract(
    "insider",
    ProbabilitySemantics.ABSENT,
    SamplingRelation.DETERMINISTIC_LOOKUP,
    Topology.SEQUENCE,
)


class Form:
    """The target again with another backend, or with `changes` it must not have."""

    def __init__(self, target: Any, **changes: str) -> None:
        self._target = target
        self._changes = {"backend": "insider's", **changes}
        self.vocab_size = target.vocab_size
        self.context_limit = target.context_limit
        self.eos_token_id = target.eos_token_id

    def identity(self) -> dict[str, str]:
        return {**self._target.identity(), **self._changes}

    def start(self, prompt: Any) -> Any:
        return self._target.start(prompt)


class Insider:
    """A source that asks for a form of its target and drafts one token that it reads
    from the session it was handed."""

    contract = CONTRACT

    def __init__(self, **changes: str) -> None:
        self._changes = changes
        self.joined: list[Any] = []
        self.asked: list[Any] = []

    def identity(self) -> str:
        return "insider"

    def target_for(self, target: Any) -> Any:
        self.asked.append(target)
        if isinstance(target, Form):
            return target
        return Form(target, **self._changes)

    def start(self, prefix: Iterable[int], **_: Any) -> InsiderSession:
        return InsiderSession(self)


class InsiderSession:
    def __init__(self, source: Insider) -> None:
        self.source = source
        self.session: Any = None
        self.commits = 0

    def join(self, session: Any) -> None:
        self.source.joined.append(session)
        self.session = session

    def propose(
        self, *, max_depth: int, max_nodes: int, chance: Any, manifest_hash: str
    ) -> Proposal:
        nodes = ()
        if max_depth and max_nodes:
            nodes = (ProposalNode(self.session.tokens[-1], source="insider"),)
        return Proposal(
            nodes,
            CONTRACT.probability_semantics,
            CONTRACT.sampling_relation,
            CONTRACT.topology,
            ProposalStateHandle("insider", "request-0", self.commits),
            manifest_hash,
        )

    def commit(self, tokens: Iterable[int]) -> None:
        # What the session committed is there before the drafter is told of it.
        assert self.session.generation == self.commits + 1
        self.commits += 1


def test_a_session_is_handed_over_once_and_the_output_is_plain() -> None:
    source = Insider()
    found = generate(TARGET, [0, 1], source, max_new_tokens=6)
    plain = generate(TARGET, [0, 1], max_new_tokens=6)
    assert found.tokens == plain.tokens
    assert len(source.joined) == 1
    assert source.joined[0].tokens == [0, 1, *found.tokens]


def test_the_manifest_binds_the_form_that_runs() -> None:
    source = Insider()
    frozen = round_manifest(TARGET, source, "greedy", SamplingPolicy(0.0))
    assert frozen.backend == "insider's"
    found = generate(TARGET, [0], source, max_new_tokens=3, manifest=frozen)
    assert found.manifest == frozen


def test_a_form_is_asked_for_again_and_stays_itself() -> None:
    source = Insider()
    form = fitted_target(TARGET, source)
    assert fitted_target(form, source) is form
    assert fitted_target(TARGET, None) is TARGET


@pytest.mark.parametrize("field", ["checkpoint", "tokenizer", "output_head", "dtype"])
def test_another_model_is_refused(field: str) -> None:
    with pytest.raises(TargetError, match=f"another {field}"):
        generate(TARGET, [0], Insider(**{field: "other"}), max_new_tokens=2)


def test_something_else_than_a_target_is_refused() -> None:
    class Wrong(Insider):
        def target_for(self, target: Any) -> Any:
            return None

    with pytest.raises(SpecbookError, match="target of 'insider'"):
        generate(TARGET, [0], Wrong(), max_new_tokens=2)


def test_the_target_itself_is_looked_at_first() -> None:
    class Nameless(TableTarget):
        def identity(self) -> dict[str, str]:
            return {}

    with pytest.raises(TargetError, match="lacks"):
        generate(
            Nameless(table_of([[1, 1]]), vocab_size=2),
            [0],
            Insider(),
            max_new_tokens=2,
        )
