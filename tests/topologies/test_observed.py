"""Counts of tried and selected slots, and the probabilities that follow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from specbook.errors import LawError, SpecbookError
from specbook.topologies.acceptance import from_histogram, selected_from_conditional
from specbook.topologies.observed import Observed

from .test_hardware import full


def test_whole_nodes_give_the_histogram() -> None:
    counts = np.array([[[7, 2, 0, 3], [1, 0, 1, 0]], [[0, 4, 4, 0], [5, 1, 0, 2]]])
    observed = full(counts)
    for depth, row in enumerate(observed.acceptance()):
        total = counts[:, depth].sum(axis=0)
        wanted = from_histogram([0, *total[1:], total[0]], none_last=True)
        assert row == pytest.approx([float(p) for p in wanted], abs=1e-15)
        assert selected_from_conditional(observed.rates()[depth]) == pytest.approx(row)
    pooled = observed.pooled().acceptance()
    total = counts.sum(axis=(0, 1))
    assert pooled == pytest.approx([0, *(total[1:] / total.sum())])


def test_nodes_with_fewer_children_tell_about_their_own_slots() -> None:
    """A simulation: half of the nodes have one child only. Selections over all nodes
    would halve the second slot; its rate over trials does not. 40,000 nodes, within 6
    standard errors."""
    rng = np.random.default_rng(3)
    h = np.array([0.5, 0.4, 0.3])
    tried = np.zeros((1, 1, 3), dtype=int)
    selected = np.zeros((1, 1, 3), dtype=int)
    nodes = 40_000
    for width in rng.integers(1, 3, nodes) * 2 - 1:  # 1 or 3 children
        for slot in range(width):
            tried[0, 0, slot] += 1
            if rng.random() < h[slot]:
                selected[0, 0, slot] += 1
                break
    (p,) = Observed(tried, selected).acceptance()
    wanted = selected_from_conditional([0, *h])
    for found, true, trials in zip(p[1:], wanted[1:], tried[0, 0], strict=True):
        assert abs(found - true) < 6 * 0.5 / trials**0.5
    naive = selected[0, 0] / nodes
    assert abs(naive[1] - wanted[2]) > 6 * 0.5 / nodes**0.5


def test_a_slot_that_was_never_tried_is_not_planned_with() -> None:
    observed = Observed(np.array([[[4, 2, 0]]]), np.array([[[2, 2, 0]]]))
    assert observed.rates() == [[0, 0.5, 1.0, 0]]
    assert observed.acceptance() == [[0, 0.5, 0.5, 0]]


def test_worlds_draw_whole_prompts() -> None:
    one, other = [[10, 5]], [[10, 0]]
    observed = Observed(np.array([one, other]), np.array([[[5, 5]], [[10, 0]]]))
    worlds = observed.drawn_again(np.random.default_rng(0), 400)
    seen = {tuple(np.round(row[0], 6)) for row in worlds}
    assert seen == {(0, 0.5, 0.5), (0, 0.75, 0.25), (0, 1.0, 0.0)}


@pytest.mark.parametrize(
    ("tried", "selected", "told"),
    [
        ([[1]], [[1]], "prompts, depths, slots"),
        ([[[]]], [[[]]], "prompts, depths, slots"),
        ([[[1.0]]], [[[1]]], "tried must be integers"),
        ([[[1]]], [[[True]]], "selected must be integers"),
        ([[[-1]]], [[[0]]], "negative"),
        ([[[1]]], [[[1, 0]]], "shape"),
        ([[[1]]], [[[2]]], "prompt 0, depth 1, slot 1"),
        ([[[3, 3]]], [[[1, 0]]], "tried more often"),
        ([[[3], [0]]], [[[1], [0]]], "depth 2 was never reached"),
        (None, [[[1]]], "prompts, depths, slots"),
        ([[[1, 2], [3]]], [[[1]]], "tried is no table"),
        # As int64 this would be negative.
        (np.array([[[2**63 + 5]]], dtype=np.uint64), [[[1]]], "above"),
        ([[[1]]], np.array([[[2**41]]]), "selected has a count"),
    ],
)
def test_bad_counts(tried: Any, selected: Any, told: str) -> None:
    with pytest.raises(LawError, match=told):
        Observed(tried, selected)


def test_bad_worlds() -> None:
    observed = Observed(np.array([[[3]]]), np.array([[[1]]]))
    rng = np.random.default_rng(0)
    for generator, worlds, told in (
        (0, 5, "rng"),
        (rng, 0, "worlds must be at least 1"),
        (rng, 10**9, "worlds must be at most"),
        (rng, 2.0, "worlds"),
    ):
        with pytest.raises(SpecbookError, match=told):
            observed.drawn_again(generator, worlds)
    for every in (1, None, np.array([True, False])):
        with pytest.raises(LawError, match="every_depth"):
            Observed(observed.tried, observed.selected, every_depth=every)


def test_pooled_counts_have_one_depth() -> None:
    counts = np.array([[[3], [1]]])
    with pytest.raises(LawError, match="one depth"):
        Observed(counts, counts, every_depth=False)


def test_each_slot_is_held_against_the_one_before_it() -> None:
    """Slot 3 was tried 4 times: slot 1 was refused so often, slot 2 only 3 times."""
    tried, selected = np.array([[[5, 4, 4]]]), np.array([[[1, 1, 0]]])
    with pytest.raises(LawError, match="tried more often than the slot before it"):
        Observed(tried, selected)
    Observed(np.array([[[5, 4, 3]]]), selected)
