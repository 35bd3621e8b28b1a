"""The engine gives hidden states to the sources that read them, and only to those."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from specbook.chance import law
from specbook.contract import SourceContract
from specbook.engine import generate
from specbook.errors import SpecbookError, TargetError
from specbook.models.table import TableTarget
from specbook.proposal import (
    ProbabilitySemantics,
    Proposal,
    ProposalNode,
    ProposalStateHandle,
    SamplingRelation,
    Topology,
)
from tests.core.helpers.laws import fractions, plain_law, table_of

TARGET = table_of([[1, 2], [3, 1], [1, 1]], salt=2)

CONTRACT = SourceContract(
    "reader",
    ProbabilitySemantics.NORMALIZED_CONDITIONAL,
    SamplingRelation.IID,
    Topology.SEQUENCE,
)


class Reader:
    """A source with exact laws that depend on the last committed state: one candidate,
    drawn from a law that the state chooses. `seen` keeps all that it was shown."""

    contract = CONTRACT

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def identity(self) -> str:
        return "reader"

    def start(self, prefix: Iterable[int], **_: Any) -> ReaderSession:
        self.seen = []
        return ReaderSession(self, list(prefix))


class ReaderSession:
    def __init__(self, source: Reader, tokens: list[int]) -> None:
        self.source, self.tokens = source, tokens
        self.state: Any = None
        self.commits = 0

    def propose(
        self, *, max_depth: int, max_nodes: int, chance: Any, manifest_hash: str
    ) -> Proposal:
        nodes = []
        if self.state is not None and max_depth and max_nodes:
            q = fractions([1 + self.state[0], 1 + self.state[1]])
            row = np.array(q, dtype=object)
            token = chance.draw(row)
            nodes = [ProposalNode(token, q=row[token], source="reader", law=row)]
        handle = ProposalStateHandle("reader", "request-0", self.commits)
        return Proposal(
            tuple(nodes),
            CONTRACT.probability_semantics,
            CONTRACT.sampling_relation,
            CONTRACT.topology,
            handle,
            manifest_hash,
        )

    def commit(self, tokens: Iterable[int]) -> None:
        self.tokens += tokens
        self.commits += 1

    def observe(self, hidden: Any) -> None:
        self.source.seen += hidden
        self.state = hidden[-1]
        # One state for each token but the pending one, in order.
        assert len(self.source.seen) == len(self.tokens) - 1


def state(prefix: tuple[int, ...]) -> list[int]:
    return [len(prefix) % 3, 2 * prefix[-1]]


def target(**options: Any) -> TableTarget:
    return TableTarget(TARGET, vocab_size=2, hidden=state, **options)


@pytest.mark.parametrize("rule", ["single", "specinfer", "block", "membership"])
def test_the_law_over_several_rounds_is_the_targets_own(rule: str) -> None:
    """A candidate depends on what earlier rounds committed, by way of the states."""

    def program(chance: Any) -> tuple[int, ...]:
        made = generate(
            target(),
            [0, 1],
            Reader(),
            rule,
            max_new_tokens=4,
            temperature=1.0,
            chance=chance,
        )
        assert not made.rounds[0].tree and any(r.tree for r in made.rounds[1:])
        return tuple(made.tokens)

    assert law(program) == plain_law(TARGET, (0, 1), 4)


def test_every_committed_row_is_shown_once_and_in_order() -> None:
    source = Reader()
    made = generate(
        target(), [0, 1, 1], source, "single", max_new_tokens=9, temperature=1.0
    )
    tokens = [0, 1, 1, *made.tokens]
    wanted = [state(tuple(tokens[: n + 1])) for n in range(len(tokens) - 1)]
    assert source.seen == wanted


def test_two_readers_and_a_source_that_reads_nothing_share_a_round() -> None:
    readers = [Reader(), Reader()]
    generate(
        target(), [0, 1], [*readers, "prompt_lookup"], "membership", max_new_tokens=5
    )
    assert readers[0].seen == readers[1].seen != []


def test_nobody_is_asked_when_nobody_reads(monkeypatch: Any) -> None:
    def asked(prefix: tuple[int, ...]) -> list[int]:
        raise AssertionError("a state was computed that nobody reads")

    silent = TableTarget(TARGET, vocab_size=2, hidden=asked)
    generate(silent, [0, 1], "prompt_lookup", "greedy", max_new_tokens=4)
    with pytest.raises(AssertionError, match="nobody reads"):
        generate(silent, [0, 1], Reader(), "greedy", max_new_tokens=4)


def test_a_target_without_states_is_refused() -> None:
    plain = TableTarget(TARGET, vocab_size=2)
    with pytest.raises(TargetError, match="no hidden states"):
        generate(plain, [0], Reader(), "greedy", max_new_tokens=2)

    class Bare:
        """A session as it had to be before there were heads."""

        def __init__(self, session: Any) -> None:
            self._session = session
            self.bytes_per_row, self.verify = session.bytes_per_row, session.verify
            self.commit = session.commit

        tokens = property(lambda self: self._session.tokens)
        generation = property(lambda self: self._session.generation)

    class Older(TableTarget):
        def start(self, prompt_ids: Any) -> Any:
            return Bare(super().start(prompt_ids))

    older = Older(TARGET, vocab_size=2)
    generate(older, [0], "prompt_lookup", "greedy", max_new_tokens=2)
    with pytest.raises(SpecbookError, match="target session with hidden states"):
        generate(older, [0], Reader(), "greedy", max_new_tokens=2)


@pytest.mark.parametrize("change", [lambda s: s[:-1], lambda s: [*s, [0, 0]]])
def test_states_of_other_rows_are_refused(change: Any, monkeypatch: Any) -> None:
    from specbook.models.table import TableSession

    right = TableSession.committed_hidden
    monkeypatch.setattr(
        TableSession, "committed_hidden", lambda self: change(right(self))
    )
    with pytest.raises(TargetError, match="rows that were committed"):
        generate(target(), [0, 1], Reader(), "greedy", max_new_tokens=3)


def test_a_stale_state_costs_acceptance_and_never_exactness() -> None:
    """So the law alone could not find a source that is shown the wrong rows: the tests
    above look at the rows."""

    class Late(ReaderSession):
        def observe(self, hidden: Any) -> None:
            self.state = self.source.seen[-1] if self.source.seen else None
            self.source.seen += hidden

    class LateReader(Reader):
        def start(self, prefix: Iterable[int], **_: Any) -> ReaderSession:
            self.seen = []
            return Late(self, list(prefix))

    def program(chance: Any) -> tuple[int, ...]:
        made = generate(
            target(),
            [0, 1],
            LateReader(),
            "single",
            max_new_tokens=3,
            temperature=1.0,
            chance=chance,
        )
        return tuple(made.tokens)

    assert law(program) == plain_law(TARGET, (0, 1), 3)
