"""Shapes and their node counts (sections 0x07A to 0x07C)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbook import topologies
from specbook.errors import SpecbookError
from specbook.topologies import cartesian, chain, independent_chains, kary
from specbook.tree import CandidateTree

from .helpers import must_fail


def check_count(shape: CandidateTree, formula: int) -> None:
    assert len(shape) == formula
    shape.validate()
    assert shape.prefix_len == 0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 4), max_size=4))
def test_cartesian_counts_and_keeps_every_combination(branching: Any) -> None:
    n = sum(math.prod(branching[: i + 1]) for i in range(len(branching)))
    shape = cartesian(branching)
    check_count(shape, n)
    for row in range(-1, len(shape)):
        depth = shape.depths[row] if row >= 0 else 0
        width = branching[depth] if depth < len(branching) else 0
        tokens = [shape.token_ids[c] for c in shape.children(row)]
        assert tokens == list(range(width))


def test_the_articles_example_has_21_nodes() -> None:
    shape = cartesian([3, 2, 2])
    check_count(shape, 21)
    assert [shape.depths.count(d) for d in (1, 2, 3)] == [3, 6, 12]
    must_fail(check_count, shape, 3 * 2 * 2)
    must_fail(check_count, shape, 22)  # the root is no candidate row


def test_independent_chains_share_nothing() -> None:
    for width in range(1, 5):
        for depth in range(5):
            shape = independent_chains(width, depth)
            check_count(shape, width * depth)
            assert len(shape.children(-1)) == (width if depth else 0)
            assert all(len(shape.children(r)) <= 1 for r in range(len(shape)))
    must_fail(check_count, independent_chains(3, 4), 3 + 3)


def test_chain_and_kary() -> None:
    for depth in range(6):
        check_count(chain(depth), depth)
        assert chain(depth) == kary(1, depth) == independent_chains(1, depth)
        for k in (2, 3):
            check_count(kary(k, depth), sum(k**d for d in range(1, depth + 1)))
    must_fail(check_count, kary(2, 3), 2**4 - 1)  # a heap counts its root
    assert chain(3).parents == (-1, 0, 1)


def test_a_shape_is_read_by_its_rank_paths() -> None:
    shape = cartesian([2, 2])
    assert shape.full_prefixes == ((0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1))
    assert cartesian([]).node_count == chain(0).node_count == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda: cartesian(None),  # type: ignore[arg-type]
        lambda: cartesian(3),  # type: ignore[arg-type]
        lambda: cartesian("32"),  # type: ignore[arg-type]
        lambda: cartesian({3, 2}),  # type: ignore[arg-type]
        lambda: cartesian([3, 0]),
        lambda: cartesian([3, -1]),
        lambda: cartesian([2.0]),  # type: ignore[list-item]
        lambda: cartesian([True]),
        lambda: cartesian([[2]]),  # type: ignore[list-item]
        lambda: chain(-1),
        lambda: chain(1.5),  # type: ignore[arg-type]
        lambda: chain(True),
        lambda: kary(0, 2),
        lambda: kary(0, 0),
        lambda: kary(2, -1),
        lambda: kary(None, 1),  # type: ignore[arg-type]
        lambda: independent_chains(0, 2),
        lambda: independent_chains(2, -1),
        lambda: independent_chains(2, None),  # type: ignore[arg-type]
        # A product that numpy's integers cannot hold.
        lambda: independent_chains(np.int64(2), 10**30),  # type: ignore[arg-type]
        lambda: independent_chains(np.int64(2**40), np.int64(2**40)),  # type: ignore
    ],
)
def test_shapes_that_are_none_are_refused(call: Any) -> None:
    with pytest.raises(SpecbookError):
        call()


@pytest.mark.parametrize(
    "build, nodes",
    [
        (lambda: cartesian([3, 2, 2]), 21),
        (lambda: kary(2, 4), 30),
        (lambda: chain(7), 7),
        (lambda: independent_chains(3, 4), 12),
    ],
)
def test_the_largest_size_is_met_exactly(
    build: Any, nodes: int, monkeypatch: Any
) -> None:
    monkeypatch.setattr(topologies, "MAX_NODES", nodes)
    check_count(build(), nodes)
    monkeypatch.setattr(topologies, "MAX_NODES", nodes - 1)
    with pytest.raises(SpecbookError, match=f"more than {nodes - 1} nodes"):
        build()


def test_shapes_that_no_machine_could_hold_are_refused_at_once() -> None:
    for build in (
        lambda: cartesian([2] * 64),
        lambda: cartesian([10**30]),
        lambda: kary(10**6, 10**6),
        lambda: chain(10**30),
        lambda: independent_chains(10**9, 10**9),
    ):
        with pytest.raises(SpecbookError, match="more than 1048576 nodes"):
            build()
