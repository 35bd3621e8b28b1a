"""Each classic fault of tree verification, planted; the self-test must name it.

All of them leave fluent output behind, so only logits can tell.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from specbook.models import LeanTarget, TransformersTarget, selftest, tiny_llama
from specbook.models import lean as lean_module
from specbook.models.selftest import Plan, SelfTestError
from specbook.models.target import ModelSession, visibility
from specbook.models.tiny import tiny_model

from .drive import check_rounds


class BooleanMask(TransformersTarget):
    """Under eager attention True and False are added as 1 and 0."""

    def _mask(self, *rows):
        return super()._mask(*rows) == 0


class NoPositions(TransformersTarget):
    """Left out, positions count rows instead of depths."""

    def _positions(self, *rows):
        return None


class SiblingsLeak(TransformersTarget):
    """A lower triangle is right only until the first sibling (case H10)."""

    def _mask(self, base, pending, tree, done=0):
        mask = super()._mask(base, pending, tree, done)
        rows = len(tree)
        triangle = torch.tril(torch.ones(rows, rows, dtype=torch.bool))
        if rows:
            mask[0, 0, done - rows :, -rows:].masked_fill_(triangle[done:], 0.0)
        return mask


class WrongRowsKept(ModelSession):
    """Keeps the first rows of the tree, as if its path were a chain."""

    @staticmethod
    def _kept_rows(base, length, path):
        return [*range(base, length), *(length + i for i in range(len(path)))]


class PendingDropped(ModelSession):
    """Forgets that the pending token has a row, too."""

    @staticmethod
    def _kept_rows(base, length, path):
        return [length + row for row in path]


class KeepsWrongRows(TransformersTarget):
    def start(self, prompt_ids):
        session = super().start(prompt_ids)
        session.__class__ = WrongRowsKept
        return session


class DropsPending(TransformersTarget):
    def start(self, prompt_ids):
        session = super().start(prompt_ids)
        session.__class__ = PendingDropped
        return session


@pytest.mark.parametrize(
    ("fault", "attention", "message"),
    [
        (BooleanMask, "eager", "logits of row"),
        (NoPositions, "sdpa", "logits of row"),
        (SiblingsLeak, "sdpa", "logits of row"),
        (SiblingsLeak, "eager", "logits of row"),
        (KeepsWrongRows, "sdpa", "round 1"),
        (DropsPending, "sdpa", "cache holds"),
    ],
)
def test_the_self_test_finds_it(fault, attention, message):
    model = tiny_llama(attn_implementation=attention)
    TransformersTarget(model)
    with pytest.raises(SelfTestError, match=message):
        fault(model)


def test_the_self_test_finds_a_leak_in_nearly_flat_logits():
    model = tiny_llama()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() >= 2:
                parameter.mul_(0.04)  # the usual initialiser range, 0.02
    TransformersTarget(model)
    with pytest.raises(SelfTestError):
        SiblingsLeak(model)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("fault", [NoPositions, SiblingsLeak, KeepsWrongRows])
def test_the_self_test_finds_it_in_other_dtypes(fault, dtype):
    for seed in range(4):
        model = tiny_llama(seed).to(dtype)
        TransformersTarget(model)
        if dtype is torch.bfloat16:
            LeanTarget(model)
        with pytest.raises(SelfTestError, match="logits of row"):
            fault(model)


class OnePlan:
    """A plan that finds what it is told, and counts how often it is asked."""

    def __init__(self, found: float) -> None:
        self.found, self.asked = found, 0

    def reference(self, plain):
        return {(0, -1): plain([])}

    def check(self, target, expected, dtype):
        assert expected == {(0, -1): target}, "the other plan's reference"
        self.asked += 1
        if self.found > 0.3:
            raise SelfTestError(f"logits of row -1 differ by {self.found}")
        return self.found


@pytest.mark.parametrize(
    ("spreads", "asked", "result"),
    [((0.1, 0.9), (1, 0), 0.1), ((0.35, 0.1), (1, 1), 0.1), ((0.5, 0.6), (1, 1), None)],
)
def test_rounding_of_sixteen_bits_may_break_one_plan_a_fault_breaks_both(
    spreads, asked, result
):
    plans = [OnePlan(spread) for spread in spreads]
    either = selftest.Either(plans)
    expected = either.reference(lambda tokens: "logits")
    if result is None:
        with pytest.raises(SelfTestError, match="differ by 0.6"):
            either.check("logits", expected, torch.bfloat16)
    else:
        assert either.check("logits", expected, torch.bfloat16) == result
    assert tuple(plan.asked for plan in plans) == asked


@pytest.mark.parametrize("name", ["float32", "float64", torch.float32])
def test_other_dtypes_have_one_plan_that_must_hold(name):
    assert isinstance(selftest.plan(32, 64, name), selftest.Plan)
    assert isinstance(selftest.plan(32, 64, "bfloat16"), selftest.Either)
    assert isinstance(selftest.plan(32, 64, torch.float16), selftest.Either)


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gpt2"])
def test_eager_attention_in_float64_is_as_exact_as_its_softmax(family):
    """Which transformers computes in float32: a bound of float64 refuses a right one,
    now and then, by the processor."""
    for seed in range(4):
        model = tiny_model(family, seed, attn_implementation="eager").double()
        TransformersTarget(model)
        with pytest.raises(SelfTestError, match="logits of row"):
            SiblingsLeak(model)


@pytest.mark.parametrize("fault", [NoPositions, SiblingsLeak, KeepsWrongRows])
def test_the_random_rounds_of_these_tests_find_it_too(fault):
    model = tiny_llama()
    target = fault(model, self_test=False)
    with pytest.raises(AssertionError, match="off by"):
        check_rounds(target, target.plain_logits)


def test_the_lean_forward_is_refused_when_it_is_wrong(monkeypatch):
    model = tiny_llama()
    LeanTarget(model)
    with monkeypatch.context() as patch:
        # A rotation by one position too many.
        turn = lean_module._Weights.rotation
        patch.setattr(
            lean_module._Weights, "rotation", lambda self, p: turn(self, p + p.max())
        )
        with pytest.raises(SelfTestError, match="logits of row"):
            LeanTarget(model)
    with monkeypatch.context() as patch:

        def leaky(base, pending, tree_mask):
            rows, columns = tree_mask.shape
            triangle = np.tri(columns, dtype=bool)[columns - rows :]
            return visibility(base, pending, triangle)

        patch.setattr(lean_module, "visibility", leaky)
        with pytest.raises(SelfTestError, match="logits of row"):
            LeanTarget(model)
    with monkeypatch.context() as patch:
        # Siblings stay: the length is set, but no row is moved.
        def lazy(self, base, extra):
            self._length = base + len(extra)

        patch.setattr(lean_module._State, "keep", lazy)
        with pytest.raises(SelfTestError, match="round 1"):
            LeanTarget(model)


def test_a_plan_reaches_siblings_a_scattered_path_and_the_empty_tree():
    plan = Plan(64, None)
    trees = [tree for tree, _, _ in plan.rounds]
    first, path, _ = plan.rounds[0]
    assert any(len(first.children(row)) > 1 for row in range(-1, len(first)))
    assert any(
        after - before > 1 for before, after in zip(path, path[1:], strict=False)
    )
    assert path[0] != 0 and len(trees[-1]) == 0


def test_a_plan_fits_a_short_context_and_refuses_none():
    for limit in (7, 8, 16):
        plan = Plan(64, limit)
        for tree, _, _ in plan.rounds:
            assert max(tree.position_ids, default=0) < limit
    with pytest.raises(ValueError, match="too small"):
        Plan(64, 3)
