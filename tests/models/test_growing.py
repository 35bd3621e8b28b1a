"""A draft model's two verbs: rows that are grown, and tokens that have no state.

Every row's logits equal a plain forward over prefix and path, however the tree came
about and whatever was committed before it.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

from specbook.errors import TreeError
from specbook.models import LeanTarget, TableTarget, TransformersTarget, tiny_llama
from specbook.models.protocol import (
    CommitError,
    ContextLimitError,
    GrowingSession,
    TargetSession,
)
from specbook.models.selftest import SelfTestError
from specbook.models.target import ModelSession
from specbook.models.tiny import families, tiny_model
from specbook.policy import SamplingPolicy
from specbook.tree import CandidateTree

from .drive import check_rows, random_path, random_tree


def first(tree, count):
    """The first `count` rows of `tree`, a tree themselves."""
    return CandidateTree.from_rows(
        tree.token_ids[:count], tree.parents[:count], tree.prefix_len
    )


def check_growing(target, plain, *, seed=0, rounds=5, rows=9):
    """Trees grown in steps of random size, scattered commits, tokens without state."""
    random = np.random.default_rng(seed)
    tokens = random.integers(target.vocab_size, size=5).tolist()
    session = target.start(tokens)
    tokens = list(tokens)
    for number in range(rounds):
        tree = random_tree(random, target.vocab_size, len(tokens), rows)
        cuts = sorted(random.integers(len(tree) + 1, size=3).tolist())
        session.verify(first(tree, cuts[0]))
        for before, count in pairwise([*cuts, len(tree)]):
            held = session.cached
            found = session.grow(first(tree, count))
            assert session.cached == held + count - before, "no row is computed twice"
        check_rows(found, tree, tokens, plain)
        # What was committed last, and how many tokens come without state.
        path = random_path(random, tree)
        token = int(random.integers(target.vocab_size))
        more = random.integers(target.vocab_size, size=number % 3).tolist()
        session.commit(path, token)
        tokens += [tree.token_ids[row] for row in path] + [token]
        assert session.cached == len(tokens) - 1
        if more:
            session.extend(more)
            tokens += more
        assert session.tokens == tokens
        assert session.cached == len(tokens) - 1 - len(more)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", families())
def test_grown_rows_equal_plain_forwards(family, attention):
    target = TransformersTarget(
        tiny_model(family, seed=1, attn_implementation=attention), self_test=False
    )
    check_growing(target, target.plain_logits, seed=2)


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2"])
@pytest.mark.parametrize("pack", [True, False])
def test_grown_rows_of_the_lean_forward_equal_plain_forwards(family, pack):
    model = tiny_model(family, seed=1)
    plain = TransformersTarget(model).plain_logits
    check_growing(LeanTarget(model, pack=pack, self_test=False), plain, rounds=8)


@pytest.mark.parametrize("kind", [TransformersTarget, LeanTarget])
def test_a_wide_growth_and_a_long_stretch_without_state(kind):
    """Past one group of the head, one block of the prompt, one growth of the buffer."""
    model = tiny_llama(5, max_positions=2048)
    plain = TransformersTarget(model).plain_logits
    random = np.random.default_rng(0)
    session = kind(model).start([1, 2])
    session.verify(CandidateTree.from_rows([], [], 2))
    session.commit((), 3)
    session.extend(random.integers(64, size=1200).tolist())
    tree = random_tree(random, 64, len(session.tokens), 30)
    session.verify(first(tree, 2))
    check_rows(session.grow(tree), tree, session.tokens, plain)


# ------------------------------------------------------------------ planted faults


class PositionsByRow(TransformersTarget):
    """Grown rows sit where they lie, not where their depth puts them."""

    def _positions(self, base, pending, tree, done=0):
        if not done:
            return super()._positions(base, pending, tree)
        return torch.tensor([range(base + done, base + len(tree))])


class AncestorsUnseen(TransformersTarget):
    """Grown rows see the prefix and one another, not the rows that lie there."""

    def _mask(self, base, pending, tree, done=0):
        mask = super()._mask(base, pending, tree, done)
        mask[..., base + pending : base + pending + done] = torch.finfo(self.dtype).min
        return mask


class SiblingsSeen(TransformersTarget):
    """Grown rows see all of the rows that lie there."""

    def _mask(self, base, pending, tree, done=0):
        mask = super()._mask(base, pending, tree, done)
        mask[..., base + pending : base + pending + done] = 0
        return mask


class StateClaimed(ModelSession):
    """Takes the token that was pending for computed when more of them come."""

    def extend(self, tokens):
        super().extend(tokens)
        self._base += 1


class ClaimsState(TransformersTarget):
    def start(self, prompt_ids):
        session = super().start(prompt_ids)
        session.__class__ = StateClaimed
        return session


@pytest.mark.parametrize(
    "fault", [PositionsByRow, AncestorsUnseen, SiblingsSeen, ClaimsState]
)
def test_these_checks_find_a_planted_fault(fault):
    target = fault(tiny_llama(), self_test=False)
    with pytest.raises(AssertionError):
        check_growing(target, target.plain_logits)


@pytest.mark.parametrize("fault", [PositionsByRow, AncestorsUnseen, SiblingsSeen])
def test_the_self_test_finds_it_too(fault):
    with pytest.raises(SelfTestError, match="round 0, grown: the logits of row"):
        fault(tiny_llama())


# ----------------------------------------------------------------------- refusals


def make(kind, limit=64):
    if kind == "table":
        law = [0.25] * 4
        return TableTarget(lambda prefix: law, vocab_size=4, context_limit=limit)
    model = tiny_llama(vocab_size=4, max_positions=limit)
    return (LeanTarget if kind == "lean" else TransformersTarget)(model)


@pytest.fixture(params=["table", "generic", "lean"])
def session(request):
    return make(request.param).start([1, 2])


def tree(*rows, length=2):
    tokens = [token for token, _ in rows]
    return CandidateTree.from_rows(tokens, [parent for _, parent in rows], length)


OPEN = ((0, -1), (1, -1), (2, 0))


def test_every_session_has_both_verbs(session):
    assert isinstance(session, TargetSession) and isinstance(session, GrowingSession)


@pytest.mark.parametrize(
    ("grown", "where"),
    [
        (tree(*OPEN[:2]), "has 2 rows, the open one has 3"),
        (tree((0, -1), (3, -1), (2, 0), (1, 0)), "row 1 .* token_ids 3.* it is 1"),
        (tree((0, -1), (1, -1), (2, 1)), "row 2 .* parents 1.* it is 0"),
        (tree(*OPEN, length=3), "prefix of 3 tokens"),
        ("tree", "CandidateTree"),
        (None, "CandidateTree"),
    ],
    ids=["shorter", "another token", "another parent", "another prefix", "text", "no"],
)
def test_a_tree_that_does_not_continue_the_open_one_is_refused(session, grown, where):
    session.verify(tree(*OPEN))
    with pytest.raises(TreeError, match=where):
        session.grow(grown)
    # Nothing has changed: the open tree is still there to be committed.
    session.commit((0, 2), 3)
    assert session.tokens == [1, 2, 0, 2, 3]


def test_growing_needs_an_open_tree(session):
    with pytest.raises(CommitError, match="grow without a verify"):
        session.grow(tree(*OPEN))
    session.verify(tree(*OPEN))
    session.commit((), 0)
    with pytest.raises(CommitError, match="grow without a verify"):
        session.grow(tree(*OPEN, length=3))


def test_nothing_new_is_no_forward(session):
    session.verify(tree(*OPEN))
    rows = session.grow(tree(*OPEN))
    assert rows.law(2, SamplingPolicy(1.0)).sum() == pytest.approx(1)


@pytest.mark.parametrize("tokens", [[4], [-1], ["a"], [1.0], [True], 5, None, "1"])
def test_tokens_that_are_none_are_not_committed(session, tokens):
    session.verify(tree(*OPEN))
    with pytest.raises(ValueError):
        session.extend(tokens)
    session.commit((0,), 3)
    assert session.tokens == [1, 2, 0, 3]


def test_an_extension_is_a_commit_and_forgets_the_open_tree(session):
    session.verify(tree(*OPEN))
    session.extend([3, 0])
    assert session.tokens == [1, 2, 3, 0] and session.generation == 1
    with pytest.raises(CommitError):
        session.commit((0,), 1)
    session.verify(tree(*OPEN, length=4))
    session.commit((1,), 2)
    assert session.tokens == [1, 2, 3, 0, 1, 2] and session.generation == 2


@pytest.mark.parametrize("kind", ["table", "generic", "lean"])
def test_h21_growth_stops_at_the_context_limit(kind):
    session = make(kind, limit=16).start([1] * 15)
    session.verify(tree((0, -1), length=15))
    with pytest.raises(ContextLimitError, match="row 1 would sit at position 16"):
        session.grow(tree((0, -1), (0, 0), length=15))
    session.grow(tree((0, -1), (1, -1), length=15))
    session.commit((1,), 2)
    session.extend([3])  # held, though nothing can be computed for it
    with pytest.raises(ContextLimitError, match="18 tokens"):
        session.verify(tree(length=18))


@pytest.mark.parametrize("kind", ["generic", "lean"])
def test_a_growth_that_breaks_off_leaves_no_trace(kind, monkeypatch):
    target = make(kind)
    plain = TransformersTarget(tiny_llama(vocab_size=4, max_positions=64)).plain_logits
    session = target.start([1, 2])
    session.verify(tree(*OPEN))
    name = "torch.nn.functional.scaled_dot_product_attention"
    attention = torch.nn.functional.scaled_dot_product_attention
    with monkeypatch.context() as patch:
        calls = []

        def breaks(*arguments, **options):
            calls.append(1)
            if len(calls) == 2:  # in the second layer
                raise KeyboardInterrupt
            return attention(*arguments, **options)

        patch.setattr(name, breaks)
        with pytest.raises(KeyboardInterrupt):
            session.grow(tree(*OPEN, (3, 2)))
    assert session.cached == 2 + 3
    grown = tree(*OPEN, (3, 2), (0, 1))
    check_rows(session.grow(grown), grown, session.tokens, plain)


def test_the_lean_head_is_run_once_for_each_grown_row(monkeypatch):
    target = LeanTarget(tiny_llama(vocab_size=64))
    runs = []
    head = target._weights.head_logits
    monkeypatch.setattr(
        target._weights, "head_logits", lambda h: runs.append(len(h)) or head(h)
    )
    session = target.start([1])
    session.verify(tree(length=1))
    rows = session.grow(tree(*((t, -1) for t in range(20)), length=1))
    assert runs == [1, 8, 8, 4]
    for row in range(-1, 20):
        rows.law(row, SamplingPolicy(1.0))
    assert runs == [1, 8, 8, 4]
