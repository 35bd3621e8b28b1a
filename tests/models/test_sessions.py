"""The rules of a session, the same for the table, the generic and the lean target."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from specbook.errors import LawError, TreeError
from specbook.models import LeanTarget, TableTarget, TransformersTarget, tiny_llama
from specbook.models.protocol import CommitError, ContextLimitError, Target
from specbook.models.tiny import tiny_model
from specbook.policy import SamplingPolicy
from specbook.tree import CandidateTree

from .drive import check_rows, greedy

UNIFORM = [0.25, 0.25, 0.25, 0.25]


def make(kind, limit=64):
    if kind == "table":
        return TableTarget(lambda prefix: UNIFORM, vocab_size=4, context_limit=limit)
    model = tiny_llama(vocab_size=4, max_positions=limit)
    return (LeanTarget if kind == "lean" else TransformersTarget)(model)


@pytest.fixture(params=["table", "generic", "lean"])
def target(request):
    return make(request.param)


TREE = ([0, 1, 2, 3, 0], [-1, -1, 0, 1, 3])


def tree(length):
    return CandidateTree.from_rows(*TREE, length)


@pytest.mark.parametrize(
    ("rows", "where"),
    [
        ((1, 4), "rows\\[1\\] = 4 has parent 3, not 1"),
        ((2,), "rows\\[0\\] = 2 has parent 0, not -1"),
        ((0, 1), "not a root-to-node path"),
        ((0, 0), "not a root-to-node path"),
        ((5,), "not a row of the verified tree"),
        ((-1,), "not a row"),
        ((0, -1), "not a row"),
        ((1.0,), "integer"),
        ((True,), "integer"),
        ("01", "sequence"),
        (3, "sequence"),
    ],
)
def test_anything_but_a_path_is_refused_and_changes_nothing(target, rows, where):
    session = target.start([1, 2])
    session.verify(tree(2))
    with pytest.raises(CommitError, match=where):
        session.commit(rows, 0)
    assert session.tokens == [1, 2] and session.generation == 0
    session.commit((1, 3), 2)
    assert session.tokens == [1, 2, 1, 3, 2] and session.generation == 1


@pytest.mark.parametrize("token", [4, -1, 1.5, None, "a"])
def test_a_token_outside_the_vocabulary_is_refused(target, token):
    session = target.start([1])
    session.verify(tree(1))
    with pytest.raises(ValueError, match="token"):
        session.commit((), token)
    session.commit((), 3)
    assert session.tokens == [1, 3]


def test_one_commit_a_verify(target):
    session = target.start([1])
    with pytest.raises(CommitError, match="without a verify"):
        session.commit((), 0)
    session.verify(tree(1))
    session.commit((0,), 0)
    with pytest.raises(CommitError, match="without a verify"):
        session.commit((0,), 0)


def test_a_tree_for_another_prefix_is_refused(target):
    session = target.start([1, 2, 3])
    for length in (0, 2, 4):
        with pytest.raises(TreeError, match=f"prefix of {length}"):
            session.verify(tree(length))


def test_a_tree_with_a_foreign_token_is_refused(target):
    session = target.start([1])
    with pytest.raises(TreeError, match="row 1 holds token 4"):
        session.verify(CandidateTree.from_rows([0, 4], [-1, 0], 1))


@pytest.mark.parametrize("prompt", [[], [4], [-1], ["a"], [1.0], 5, [True], None])
def test_a_bad_prompt_is_refused(target, prompt):
    with pytest.raises(ValueError):
        target.start(prompt)


def test_every_target_fits_the_protocol(target):
    assert isinstance(target, Target)
    about = target.identity()
    assert set(about) == {
        "checkpoint",
        "tokenizer",
        "output_head",
        "dtype",
        "backend",
    }
    assert all(isinstance(text, str) and text for text in about.values())


# ------------------------------------------------------- context limit (case H21)


@pytest.mark.parametrize("kind", ["table", "generic", "lean"])
def test_h21_the_limit_is_the_package_s_own(kind):
    target = make(kind, limit=16)
    with pytest.raises(ContextLimitError, match="17 tokens"):
        target.start([1] * 17)
    session = target.start([1] * 14)
    with pytest.raises(ContextLimitError, match="row 4 would sit at position 16"):
        session.verify(tree(14))  # its row 4 has depth 3
    session.verify(CandidateTree.from_rows([0, 1], [-1, 0], 14))
    session.commit((0, 1), 2)
    # 17 tokens: nothing can be computed for the last one.
    with pytest.raises(ContextLimitError):
        session.verify(CandidateTree.from_rows([], [], 17))


def test_h21_gpt2_runs_to_its_last_position_and_not_past_it():
    target = TransformersTarget(tiny_model("gpt2", n_positions=16))
    prompt = np.random.default_rng(0).integers(64, size=13).tolist()
    assert len(greedy(target, prompt, 3)) == 3
    with pytest.raises(ContextLimitError):
        greedy(target, prompt, 5)


# ------------------------------------------------------------------ real sessions


@pytest.mark.parametrize("kind", ["generic", "lean"])
def test_a_verify_that_is_not_committed_leaves_no_trace(kind):
    target = make(kind)
    plain = TransformersTarget(tiny_llama(vocab_size=4, max_positions=64)).plain_logits
    session = target.start([1, 2, 0])
    for round_number in range(3):
        length = len(session.tokens)
        session.verify(tree(length))
        rows = session.verify(CandidateTree.from_rows([3], [-1], length))
        check_rows(
            rows, CandidateTree.from_rows([3], [-1], length), session.tokens, plain
        )
        session.commit((0,) if round_number else (), 1)
        assert session.cached == len(session.tokens) - 1


@pytest.mark.parametrize("kind", ["generic", "lean"])
def test_a_forward_that_breaks_off_leaves_no_trace(kind, monkeypatch):
    target = make(kind)
    plain = TransformersTarget(tiny_llama(vocab_size=4, max_positions=64)).plain_logits
    session = target.start([1, 2, 0])
    session.verify(tree(3))
    session.commit((1,), 2)
    with monkeypatch.context() as patch:
        calls = []

        def breaks(*arguments, **options):
            calls.append(1)
            if len(calls) == 2:  # in the second layer
                raise KeyboardInterrupt
            return original(*arguments, **options)

        name = "torch.nn.functional.scaled_dot_product_attention"
        original = torch.nn.functional.scaled_dot_product_attention
        patch.setattr(name, breaks)
        with pytest.raises(KeyboardInterrupt):
            session.verify(tree(5))
    assert session.cached == 4
    check_rows(session.verify(tree(5)), tree(5), session.tokens, plain)


@pytest.mark.parametrize("kind", ["generic", "lean"])
def test_two_requests_do_not_disturb_each_other(kind):
    target = make(kind)
    alone = [greedy(target, prompt, 12) for prompt in ([1, 2], [3, 0, 0])]
    first, second = target.start([1, 2]), target.start([3, 0, 0])
    for _ in range(12):
        for session in (first, second):
            rows = session.verify(tree(len(session.tokens)))
            session.commit((), rows.argmax(-1))
    assert [first.tokens[2:], second.tokens[3:]] == alone


@pytest.mark.parametrize("kind", ["generic", "lean"])
def test_no_gradients_and_no_training_mode(kind):
    model = tiny_llama(vocab_size=4).train()
    target = (LeanTarget if kind == "lean" else TransformersTarget)(model)
    assert not model.training
    rows = target.start([1]).verify(tree(1))
    assert not rows._row(-1).requires_grad


# ----------------------------------------------------------- rows (cases H18, H19)


def broken(values):
    """The rows of a verified tree whose row 0 holds `values`."""
    session = TransformersTarget(tiny_llama(vocab_size=4)).start([1])
    rows = session.verify(CandidateTree.from_rows([0], [-1], 1))
    rows._logits = rows._logits.clone()
    rows._logits[1] = torch.tensor(values)
    return rows


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("temperature", [0, 1e-6, 1.0])
@pytest.mark.parametrize(
    "values", [[NAN] * 4, [0.0, NAN, 1.0, 2.0], [-INF] * 4, [0.0, INF, 1.0, 2.0]]
)
def test_h18_a_broken_row_is_named_and_never_a_token(values, temperature):
    rows = broken(values)
    with pytest.raises(LawError, match="row 0"):
        rows.law(0, SamplingPolicy(temperature))
    with pytest.raises(LawError, match="row 0"):
        rows.argmax(0)
    assert rows.law(-1, SamplingPolicy(1.0)).sum() == pytest.approx(1, abs=1e-12)


def test_h18_zero_mass_in_the_tail_is_a_good_row():
    rows = broken([1.0, 2.0, -INF, -INF])
    law = rows.law(0, SamplingPolicy(1.0))
    assert law[2] == law[3] == 0 and law.sum() == pytest.approx(1, abs=1e-12)
    assert rows.argmax(0) == 1


@pytest.mark.parametrize("temperature", [0, 1e-6, 1e-3])
def test_h19_cold_rows_are_finite_and_agree_with_the_argmax(temperature):
    for values, best in (([0.0, 30.0, 29.999, 0.0], 1), ([0.0, 1e4, -1e4, 0.0], 1)):
        rows = broken(values)
        law = rows.law(0, SamplingPolicy(temperature))
        assert np.isfinite(law).all() and law.argmax() == best == rows.argmax(0)
        if temperature == 0:
            assert law.tolist() == [0, 1, 0, 0]
    with pytest.raises(ValueError, match="temperature"):
        SamplingPolicy(-1)


def test_the_lowest_id_wins_a_tie():
    rows = broken([0.0, 5.0, 5.0, 5.0])
    assert rows.argmax(0) == 1 == rows.law(0, SamplingPolicy(0)).argmax()


@pytest.mark.parametrize("kind", ["table", "generic", "lean"])
@pytest.mark.parametrize("row", [-2, 5, 1.0, None, True])
def test_a_row_that_is_not_there_is_refused(kind, row):
    rows = make(kind).start([1]).verify(tree(1))
    with pytest.raises(ValueError, match="row"):
        rows.law(row, SamplingPolicy(1.0))


def test_lean_rows_come_in_groups_and_only_when_asked(monkeypatch):
    target = LeanTarget(tiny_llama(vocab_size=64))
    wide = CandidateTree.from_rows(list(range(40)), [-1] * 40, 1)
    runs = []
    head = target._weights.head_logits
    monkeypatch.setattr(
        target._weights, "head_logits", lambda h: runs.append(len(h)) or head(h)
    )
    rows = target.start([1]).verify(wide)
    assert runs == [8]
    rows.law(-1, SamplingPolicy(0))
    rows.law(6, SamplingPolicy(0))
    assert runs == [8]
    rows.prepare(39)
    assert runs == [8, 1]
    rows.law(39, SamplingPolicy(0))
    rows.law(39, SamplingPolicy(1.0))
    assert runs == [8, 1]
