"""A batch of equal requests computes what one request computes, copy by copy."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from specbook.errors import TargetError, TreeError
from specbook.models import LeanTarget, TransformersTarget, tiny_llama
from specbook.models.batched import Batch
from specbook.models.tiny import tiny_model
from specbook.tree import CandidateTree

from .drive import random_tree

FAMILIES = ("llama", "qwen3", "gemma", "gpt_neox", "opt")
TOLERANCE = 1e-4


def check_batch(batch: Batch, tree: CandidateTree) -> None:
    """Every row of every copy is that of a request of its own."""
    session = batch.target.start(batch.tokens)
    rows = session.verify(tree)
    wanted = np.stack([rows.logits(row) for row in range(-1, len(tree))])
    found = batch.run(batch.build(tree).on(batch.target.device)).numpy()
    assert found.shape == (batch.copies, *wanted.shape)
    for copy in found:
        assert np.abs(copy - wanted).max() < TOLERANCE


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("copies", [1, 3])
def test_every_copy_is_a_request(family: str, copies: int) -> None:
    target = TransformersTarget(tiny_model(family))
    random = np.random.default_rng(1)
    for length in (1, 2, 9):
        prompt = random.integers(target.vocab_size, size=length).tolist()
        batch = Batch(target, prompt, copies)
        # One after the other: the cache is as it was after each.
        for rows in (7, 0, 3):
            check_batch(batch, random_tree(random, target.vocab_size, length, rows))


def test_a_wrong_mask_or_position_would_be_seen() -> None:
    target = TransformersTarget(tiny_llama())
    batch = Batch(target, [1, 2, 3], 2)
    tree = CandidateTree.from_paths([[4, 5], [6, 5]], 3)
    good = batch.build(tree)
    check_batch(batch, tree)
    right = batch.run(good)
    leaky = dataclasses.replace(good, mask=torch.zeros_like(good.mask))
    by_row = dataclasses.replace(good, positions=torch.arange(2, 2 + 5).view(1, -1))
    for wrong in (leaky, by_row):
        assert (batch.run(wrong) - right).abs().max() > 100 * TOLERANCE


def test_bytes_are_those_of_every_copy() -> None:
    target = TransformersTarget(tiny_llama())
    one, four = Batch(target, [1, 2, 3], 1), Batch(target, [1, 2, 3], 4)
    assert (
        four.kv_bytes(5)
        == 4 * one.kv_bytes(5)
        == 20 * target.start([1]).bytes_per_row()
    )
    before = four._state.payload_bytes()
    assert before == 4 * one._state.payload_bytes()
    inputs = four.build(CandidateTree.from_paths([[4], [5]], 3))
    four.run(inputs)
    assert four._state.payload_bytes() == before
    assert inputs.nbytes == 3 * 8 * 2 + 3 * 5 * 4


def test_bad_batches() -> None:
    target = TransformersTarget(tiny_llama())
    with pytest.raises(TargetError, match="transformers forward"):
        Batch(LeanTarget(tiny_llama()), [1], 2)  # type: ignore[arg-type]
    for prefix, copies, told in (
        ([], 1, "empty"),
        ([1], 0, "copies"),
        ([1], True, "copies"),
        ([1], 10**9, "copies must be at most"),
        ([1], 10**30, "copies must be at most"),
    ):
        with pytest.raises(ValueError, match=told):
            Batch(target, prefix, copies)
    batch = Batch(target, [1, 2, 3], 2)
    with pytest.raises(TreeError, match="prefix"):
        batch.build(CandidateTree.from_paths([[4]], 2))


def test_inputs_of_another_shape_are_refused_and_change_nothing() -> None:
    """Some would be broadcast without a word, others fail deep inside of the model."""
    target = TransformersTarget(tiny_llama())
    batch = Batch(target, [1, 2, 3], 2)
    good = batch.build(CandidateTree.from_paths([[4, 5]], 3))
    before = batch.run(good)
    longer = Batch(target, [1, 2, 3, 4], 2)
    foreign = longer.build(CandidateTree.from_paths([[4, 5]], 4))
    cases: list[tuple[object, str]] = [
        (None, "inputs must be Inputs"),
        (good.ids, "inputs must be Inputs"),
        (foreign, "inputs.mask"),
        (dataclasses.replace(good, ids=[[3, 4, 5]]), "inputs.ids"),  # type: ignore
        (dataclasses.replace(good, ids=good.ids[:, :0]), "inputs.ids"),
        (dataclasses.replace(good, ids=good.ids.float()), "inputs.ids"),
        (dataclasses.replace(good, ids=good.ids + 10**6), r"inputs.ids\[0\]"),
        (dataclasses.replace(good, ids=-good.ids), r"inputs.ids\[0\]"),
        (dataclasses.replace(good, positions=good.positions[:, :1]), "positions"),
        (dataclasses.replace(good, positions=good.positions[0, :1]), "positions"),
        (dataclasses.replace(good, mask=good.mask[..., 1:]), "inputs.mask"),
        (dataclasses.replace(good, mask=good.mask.double()), "inputs.mask"),
    ]
    for inputs, told in cases:
        for call in (batch.run, batch.runner):
            with pytest.raises(TargetError, match=told):
                call(inputs)  # type: ignore[arg-type]
    assert torch.equal(batch.run(good), before)
