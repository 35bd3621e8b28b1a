"""Our sources inside vLLM's interface: the drafts of our engine, whatever the batch."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from specbook import engine
from specbook.drafts.neural.medusa import Medusa
from specbook.drafts.prompt_lookup import PromptLookup
from specbook.drafts.rest import Datastore, Rest
from specbook.drafts.suffix import Suffix
from specbook.errors import ContractError, SpecbookError
from specbook.export import sources
from specbook.export.chains import best_path, chain
from specbook.export.vllm_proposer import IDLE, SOURCE_VARIABLE, Proposer
from specbook.models import TransformersTarget
from specbook.models.tiny import tiny_llama

STORE = Datastore.build([[n % 7 for n in range(i, i + 40)] for i in range(5)])
SOURCES = {
    "prompt_lookup": PromptLookup(),
    "adaptive": PromptLookup.tuned(),
    "suffix": Suffix(),
    "rest": Rest(STORE),
}


def config(length=5, limit=1000, vocab_size=None):
    model = SimpleNamespace(max_model_len=limit)
    if vocab_size is not None:
        model.get_vocab_size = lambda: vocab_size
    return SimpleNamespace(
        speculative_config=SimpleNamespace(num_speculative_tokens=length),
        model_config=model,
    )


def arrays(texts, width=128):
    """The texts as vLLM holds them: padded rows, with what was left there before."""
    table = np.full((len(texts) + 2, width), 77, dtype=np.int32)
    lengths = np.zeros(len(texts) + 2, dtype=np.int32)
    for row, text in enumerate(texts):
        table[row, : len(text)] = text
        lengths[row] = len(text)
    return lengths, table


def asked(proposer, texts, sampled=None):
    lengths, table = arrays(texts)
    if sampled is None:
        sampled = [text[-1:] for text in texts]
    return proposer.propose(sampled, lengths, table, slot_mappings=None)


def fresh(source, text, length=5):
    return chain(source.start(text), length)


@pytest.fixture(scope="module")
def target():
    return TransformersTarget(tiny_llama(vocab_size=8, seed=3))


@pytest.mark.parametrize("name", SOURCES)
def test_the_drafts_of_our_engine_round_by_round(target, name):
    prompts = [[1, 2, 3, 4, 1, 2, 3], [5, 6, 5, 6, 5], [0, 1, 2, 3, 4, 5, 6, 0, 1]]
    played = [
        engine.generate(
            target, p, SOURCES[name], "greedy", max_new_tokens=40, max_depth=5
        )
        for p in prompts
    ]
    proposer = Proposer(config(), SOURCES[name])
    texts = [list(p) for p in prompts]
    drafted = 0
    for number in range(min(len(one.rounds) for one in played)):
        if max(map(len, texts)) > 36:
            break  # near its end the engine drafts only what it still needs
        found = asked(proposer, texts)
        for text, drafts, one in zip(texts, found, played, strict=True):
            round_ = one.rounds[number]
            # A tree offers more; the chain is one of its paths.
            path = tuple(drafts)
            assert path in {(), *round_.tree.full_prefixes}
            if name != "rest":
                assert path == round_.tree.token_ids
            drafted += len(drafts)
            text += map(int, round_.committed)
    assert drafted > 10


def test_rows_move_and_requests_come_and_go():
    source = PromptLookup()
    proposer = Proposer(config(), source)
    one, two, three = [1, 2, 3, 1, 2], [4, 5, 4, 5, 4], [6, 7, 6]
    asked(proposer, [one, two])
    held = dict(proposer._sessions)
    one, two = [*one, 3, 9], [*two, 5]
    # The first request moved behind the second, and a new one stands in between.
    texts = [two, three, one]
    assert asked(proposer, texts) == [fresh(source, text) for text in texts]
    assert set(held) < set(proposer._sessions)  # both were found again
    assert len(proposer._sessions) == 3
    # The third is gone; a row in its place goes on from nothing that is known.
    other = [9, 8, 9, 8, 9]
    assert asked(proposer, [two, other]) == [fresh(source, two), fresh(source, other)]
    assert len(proposer._sessions) == 4


def test_a_moved_row_keeps_its_history():
    """The adaptive length learns from a request's own rounds; a session that is lost
    forgets them, so the right one must be found."""
    proposer = Proposer(config(16), PromptLookup.tuned())
    alone = PromptLookup.tuned().start([1, 2, 3, 4] * 3)
    text, other = [1, 2, 3, 4] * 3, [5, 6, 7] * 3
    for turn in range(6):
        rows = [text, other] if turn % 2 else [other, text]
        found = asked(proposer, rows)[rows.index(text)]
        assert found == chain(alone, 16)
        new = [*found[:2], 0]  # two are accepted, the third is corrected
        alone.commit(new)
        text = text + new
        other = [*other, 5]
    assert len(proposer._sessions) == 2


def test_a_text_that_only_ends_alike_is_another_request():
    proposer = Proposer(config(), PromptLookup())
    asked(proposer, [[1, 2, 3, 5]])
    other = [7, 8, 9, 5, 7, 8, 9]  # as long, and the same token in the last place
    assert asked(proposer, [other]) == [[5, 7, 8, 9]] == [fresh(PromptLookup(), other)]
    assert len(proposer._sessions) == 2


def test_two_requests_with_one_text():
    proposer = Proposer(config(), PromptLookup())
    text = [1, 2, 1, 2]
    assert asked(proposer, [text, text]) == [[1, 2], [1, 2]]
    assert len(proposer._sessions) == 2
    assert asked(proposer, [[*text, 1], [*text, 5]]) == [
        fresh(PromptLookup(), [*text, 1]),
        [],
    ]
    assert len(proposer._sessions) == 2


def test_a_request_that_still_reads_its_prompt_gets_none():
    proposer = Proposer(config(), PromptLookup())
    text = [1, 2, 1, 2]
    assert asked(proposer, [text, text], [[], [2]]) == [[], [1, 2]]
    assert asked(proposer, [text], [[]]) == [[]]
    assert asked(proposer, []) == []


def test_no_draft_beyond_the_longest_text():
    proposer = Proposer(config(5, limit=8), PromptLookup())
    assert asked(proposer, [[1, 2, 3, 1, 2, 3]]) == [[1]]  # and one of the target's
    assert asked(proposer, [[1, 2, 3, 1, 2, 3, 1]]) == [[]]
    assert asked(proposer, [[1, 2, 3, 1, 2, 3, 1, 2]]) == [[]]


def test_idle_sessions_are_dropped_oldest_first():
    proposer = Proposer(config(), PromptLookup())
    for first in range(IDLE + 10):
        asked(proposer, [[first, 1, first]])
    assert len(proposer._sessions) == IDLE + 1
    assert min(proposer._sessions) == 10


@pytest.mark.parametrize(
    ("sampled", "lengths", "table", "told"),
    [
        ([[1]], [2], [[1, 2]], "not the interface of this version"),
        ([[-1]], [2], [[1, 2]], "negative"),
        ([[2.0]], [2], [[1, 2]], "integer"),
        ([[2]], [3], [[1, 2]], "rows have 2 places"),
        ([[2]], [-1], [[1, 2]], "rows have 2 places"),
        ([[2], [2]], [2], [[1, 2]], "2 requests sampled"),
        ([[2]], 2, [[1, 2]], "has shape"),
        ([[2]], [2], [1, 2], "has shape"),
        ([[2]], [2.0], [[1, 2]], "must be integers"),
        ([[2]], [2], [[1.0, 2.0]], "must be integers"),
        (None, [2], [[1, 2]], "sequence of token lists"),
        ([[1, 2, 2]], [2], [[1, 2]], "not the interface"),
    ],
)
def test_an_interface_that_changed_is_noticed(sampled, lengths, table, told):
    proposer = Proposer(config(), PromptLookup())
    with pytest.raises(SpecbookError, match=told):
        proposer.propose(sampled, np.array(lengths), np.array(table))


def test_the_source_comes_from_a_file(tmp_path, monkeypatch):
    with pytest.raises(SpecbookError, match="SPECBOOK_VLLM_SOURCE must hold"):
        Proposer(config())
    content = sources.described("prompt_lookup", {"max_candidates": 3})
    path = sources.export("vllm", "run", content).save(tmp_path / "s.json")
    monkeypatch.setenv(SOURCE_VARIABLE, str(path))
    proposer = Proposer(config())
    assert proposer.source.identity() == content["identity"]
    proposer.load_model("anything")


def test_what_cannot_be_a_proposer():
    drawn = SimpleNamespace(contract=Medusa.contract, start=len)
    with pytest.raises(ContractError, match="draws its candidates"):
        Proposer(config(), drawn)
    with pytest.raises(ContractError, match="not a draft source"):
        Proposer(config(), "prompt_lookup")
    for bad in ({"length": 0}, {"length": True}, {"limit": 0}, {"vocab_size": 0}):
        with pytest.raises(SpecbookError):
            Proposer(config(**bad), PromptLookup())


def test_a_source_of_another_vocabulary_is_refused():
    proposer = Proposer(config(vocab_size=3), Rest(STORE))
    with pytest.raises(ContractError, match="vocabulary"):
        asked(proposer, [[1, 2]])


def test_the_best_path_of_a_tree():
    store = Datastore.build([[1, 2, 3], [1, 2, 3], [1, 4, 5, 6]])
    proposal = Rest(store).start([1]).propose(max_depth=3, max_nodes=10)
    assert best_path(proposal) == [2, 3]
    assert chain(Rest(store).start([1]), 1) == [2]
    assert chain(Rest(store).start([1]), 0) == []
    assert chain(Rest(store).start([9]), 3) == []
    # Of equals the one that the source lists first.
    tied = Datastore.build([[1, 4, 5], [1, 2, 3]])
    assert chain(Rest(tied).start([1]), 2) == [2, 3]
