"""Hidden states of committed rows: those of a plain forward, on every target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from specbook.errors import SpecbookError, TargetError
from specbook.models.lean import PREFILL, LeanTarget
from specbook.models.protocol import (
    CommitError,
    HiddenSession,
    HiddenTarget,
    gives_hidden,
)
from specbook.models.table import TableTarget
from specbook.models.target import ModelSession, TransformersTarget
from specbook.models.tiny import tiny_llama, tiny_model
from specbook.tree import CandidateTree
from tests.models.drive import random_path, random_tree

TOLERANCE = 1e-4

FAMILIES = ["llama", "qwen2", "qwen3", "gpt2", "gpt_neox", "opt", "falcon", "gemma"]
TARGETS: dict[str, Callable[[], tuple[Any, Any]]] = {
    name: (lambda name=name: (lambda m: (m, TransformersTarget(m)))(tiny_model(name)))
    for name in FAMILIES
}
TARGETS["lean"] = lambda: (lambda m: (m, LeanTarget(m)))(tiny_llama())
TARGETS["lean tied"] = lambda: (lambda m: (m, LeanTarget(m)))(tiny_llama(tied=True))
TARGETS["lean qwen2"] = lambda: (lambda m: (m, LeanTarget(m)))(tiny_model("qwen2"))


@pytest.fixture(scope="module", params=list(TARGETS))
def pair(request: Any) -> Any:
    return TARGETS[request.param]()


@torch.inference_mode()
def plain_states(model: Any, tokens: Sequence[int]) -> torch.Tensor:
    """The model's last hidden states [n, d], of one forward without a cache."""
    inner = model.get_decoder() if hasattr(model, "get_decoder") else model.base_model
    return inner(input_ids=torch.tensor([list(tokens)]))[0][0]


def check_states(
    model: Any, target: Any, *, seed: int = 0, prompt: int = 6, grow: bool = False
) -> None:
    """Random trees and scattered paths; after each commit the states are those of the
    rows that came to the cache, in order, and no others."""
    random = np.random.default_rng(seed)
    tokens = random.integers(target.vocab_size, size=prompt).tolist()
    session = target.start(tokens)
    session.watch_hidden()
    known = 0
    for number in range(6):
        rows = 0 if number in (0, 3) else 9
        tree = random_tree(random, target.vocab_size, len(tokens), rows)
        if grow and rows:
            part = CandidateTree.from_rows(
                tree.token_ids[:4], tree.parents[:4], tree.prefix_len
            )
            session.verify(part)
            session.grow(tree)
        else:
            if number == 4:  # a verify that nobody followed leaves no trace
                session.verify(random_tree(random, target.vocab_size, len(tokens), 3))
            session.verify(tree)
        path = () if number == 2 else random_path(random, tree)
        token = int(random.integers(target.vocab_size))
        session.commit(path, token)
        tokens += [tree.token_ids[row] for row in path] + [token]
        hidden = session.committed_hidden()
        wanted = plain_states(model, tokens)[known:-1]
        assert hidden.shape == wanted.shape
        assert (hidden - wanted).abs().max() <= TOLERANCE
        known = len(tokens) - 1
        if number == 3:
            session.extend([1, 2])
            tokens += [1, 2]
            assert len(session.committed_hidden()) == 0


def test_states_are_those_of_a_plain_forward(pair: Any) -> None:
    model, target = pair
    assert gives_hidden(target) and isinstance(target, HiddenTarget)
    assert isinstance(target.start([1]), HiddenSession)
    for seed in range(3):
        check_states(model, target, seed=seed)
    check_states(model, target, seed=7, prompt=1)
    check_states(model, target, seed=8, grow=True)


def test_a_long_prompt_is_read_in_blocks_and_none_is_lost() -> None:
    model = tiny_llama(max_positions=2 * PREFILL + 200)
    for target in (LeanTarget(model), TransformersTarget(model)):
        check_states(model, target, prompt=PREFILL + 60)
        check_states(model, target, prompt=PREFILL)


def test_states_of_other_rows_would_be_seen(monkeypatch: Any) -> None:
    """The planted faults: rows behind the prefix in a line, whatever the path; and the
    states before the final norm."""
    model = tiny_llama(tied=True)
    target = LeanTarget(model)
    check_states(model, target)
    with monkeypatch.context() as patch:
        patch.setattr(LeanTarget, "_read", lambda self, states: states)
        with pytest.raises(AssertionError):
            check_states(model, target)
    right = ModelSession._kept_rows

    def in_line(base: int, length: int, path: Sequence[int]) -> list[int]:
        return right(base, length, range(len(path)))

    generic = TransformersTarget(model)
    check_states(model, generic)
    monkeypatch.setattr(ModelSession, "_kept_rows", staticmethod(in_line))
    with pytest.raises(AssertionError):
        check_states(model, generic)


def test_watching_changes_no_logits(pair: Any) -> None:
    _, target = pair
    random = np.random.default_rng(3)
    prompt = random.integers(target.vocab_size, size=5).tolist()
    tree = random_tree(random, target.vocab_size, 5, 7)
    watched, plain = target.start(prompt), target.start(prompt)
    watched.watch_hidden()
    one, other = watched.verify(tree), plain.verify(tree)
    for row in range(-1, len(tree)):
        assert np.abs(one.logits(row) - other.logits(row)).max() <= 1e-5
    assert len(one) == len(other) == len(tree)


def test_nothing_is_kept_that_nobody_asked_for(pair: Any) -> None:
    _, target = pair
    session = target.start([1, 2, 3])
    session.verify(CandidateTree.from_rows([4, 5], [-1, -1], 3))
    assert session._seen is None and session._committed is None
    session.commit([1], 6)
    assert session._seen is None and session._committed is None
    with pytest.raises(TargetError, match="nobody asked"):
        session.committed_hidden()
    with pytest.raises(TargetError, match="too late"):
        session.watch_hidden()


def test_no_hook_stays_behind(monkeypatch: Any) -> None:
    model = tiny_llama()
    target = TransformersTarget(model)
    hooks = model.get_output_embeddings()._forward_pre_hooks
    session = target.start([1, 2])
    session.watch_hidden()
    session.verify(CandidateTree.from_rows([], [], 2))
    assert not hooks
    monkeypatch.setattr(model.model, "forward", lambda **_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        session.verify(CandidateTree.from_rows([], [], 2))
    assert not hooks


def test_a_head_that_is_not_called_is_said() -> None:
    model = tiny_llama()
    target = TransformersTarget(model)
    head = model.get_output_embeddings()
    model.forward = lambda right=model.forward, **given: _by_name(model, head, given)
    session = target.start([1, 2])
    session.watch_hidden()
    with pytest.raises(TargetError, match="does not call its LM head"):
        session.verify(CandidateTree.from_rows([], [], 2))


def _by_name(model: Any, head: Any, given: dict[str, Any]) -> Any:
    """A forward that hands the states over by name."""
    from types import SimpleNamespace

    given.pop("logits_to_keep", None)
    return SimpleNamespace(logits=head(input=model.model(**given)[0]))


def test_before_the_first_commit_there_are_none() -> None:
    for target in (
        TransformersTarget(tiny_llama()),
        TableTarget(lambda p: [1], vocab_size=1, hidden=lambda p: [0]),
    ):
        session: Any = target.start([0])
        session.watch_hidden()
        session.watch_hidden()
        with pytest.raises(CommitError, match="before the first"):
            session.committed_hidden()


# --------------------------------------------------------- embedding and LM head


def test_embedding_and_head_are_the_models_own(pair: Any) -> None:
    model, target = pair
    ids = torch.tensor([[3, 0], [7, 3]])
    table = model.get_input_embeddings().weight
    assert torch.equal(target.embed_tokens(ids), table[ids])
    head = model.get_output_embeddings()
    assert target.hidden_width == head.weight.shape[1]
    features = torch.randn(3, target.hidden_width, generator=torch.Generator())
    for count in (1, 3):
        logits = target.read_out(features[:count])
        wanted = head(features[:count])
        assert logits.shape == wanted.shape
        assert (logits - wanted).abs().max() <= TOLERANCE
    for ids in ([5, 2], [2, 5, 60]):
        cut = target.cut_head(torch.tensor(ids))
        for count in (1, 3):
            difference = cut(features[:count]) - head(features[:count])[:, ids]
            assert difference.shape == (count, len(ids))
            assert difference.abs().max() <= TOLERANCE
    first = target.cut_head(torch.tensor([5, 2]))
    target.cut_head(torch.tensor([7]))
    assert torch.equal(first(features), target.cut_head(torch.tensor([5, 2]))(features))


@pytest.mark.parametrize("ids", [[-1], [0, 64], [0.5], [True]], ids=str)
def test_an_id_that_the_target_does_not_have_is_refused(pair: Any, ids: Any) -> None:
    """A negative one would be counted from the end, without a word."""
    _, target = pair
    for ask in (target.embed_tokens, target.cut_head):
        with pytest.raises(TargetError, match="ids"):
            ask(torch.tensor(ids))
        with pytest.raises(TargetError, match="int64 tensor, got None"):
            ask(None)
    assert target.embed_tokens(torch.zeros((0,), dtype=torch.int64)).shape[0] == 0


def test_a_head_with_a_bias_gives_it_too() -> None:
    model = tiny_model("phi")
    cut = TransformersTarget(model).cut_head(torch.tensor([5, 2]))
    found = cut(torch.zeros(1, 32))
    assert torch.equal(found[0], model.lm_head.bias[[5, 2]])
    assert found.abs().max() > 0.01


def test_bfloat16_states_are_near_those_of_float32() -> None:
    model = tiny_llama()
    exact = plain_states(model, [1, 2, 3])
    for make in (TransformersTarget, LeanTarget):
        session = make(tiny_llama().to(torch.bfloat16)).start([1, 2, 3])
        session.watch_hidden()
        session.verify(CandidateTree.from_rows([], [], 3))
        session.commit([], 4)
        hidden = session.committed_hidden()
        assert hidden.dtype == torch.bfloat16
        assert (hidden - exact).abs().max() <= 0.3


def test_an_embedding_of_another_width_gives_no_states() -> None:
    narrow = tiny_model("opt", word_embed_proj_dim=16)
    target = TransformersTarget(narrow)  # its head is as narrow as its embedding
    assert gives_hidden(target) and target.hidden_width == 16
    check_states(narrow, target)
    model = tiny_llama()
    model.get_input_embeddings = lambda: torch.nn.Embedding(64, 8)
    assert not gives_hidden(TransformersTarget(model, self_test=False))


# ------------------------------------------------------------------- of a table


def test_a_table_gives_the_states_of_its_function() -> None:
    def state(prefix: tuple[int, ...]) -> list[Fraction]:
        return [Fraction(len(prefix)), Fraction(prefix[-1], 7)]

    target = TableTarget(lambda p: [1, 1], vocab_size=2, hidden=state)
    assert gives_hidden(target) and not isinstance(target, HiddenTarget)
    session = target.start([0, 1])
    assert isinstance(session, HiddenSession)
    session.watch_hidden()
    session.verify(CandidateTree.from_rows([1, 0, 0], [-1, -1, 1], 2))
    session.commit([1, 2], 1)
    # The tokens are 0 1 0 0 1, the last of them pending.
    assert session.committed_hidden() == [
        [1, 0],
        [2, Fraction(1, 7)],
        [3, 0],
        [4, 0],
    ]
    session.extend([0])
    assert session.committed_hidden() == []
    session.verify(CandidateTree.from_rows([], [], 6))
    session.commit([], 1)
    assert session.committed_hidden() == [[5, Fraction(1, 7)], [6, 0]]


def test_a_table_without_a_function_has_none() -> None:
    target = TableTarget(lambda p: [1], vocab_size=1)
    assert not gives_hidden(target)
    with pytest.raises(TargetError, match="no hidden states"):
        target.start([0]).watch_hidden()
    with pytest.raises(TargetError, match="nobody asked"):
        target.start([0]).committed_hidden()
    with pytest.raises(SpecbookError, match="hidden must be"):
        TableTarget(lambda p: [1], vocab_size=1, hidden=[1])  # type: ignore[arg-type]
