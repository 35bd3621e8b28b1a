"""The best nodes without enumeration are those of a full count, also where a common
suffix is only sampled."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbook.drafts.rest import Datastore, ranking
from tests.core.helpers import must_fail
from tests.drafts.rest import plain

COMMON = [0]


def check_best(
    documents: Any, suffix: list[int], budget: int, length: int, **options: Any
) -> None:
    store = Datastore.build(documents, continuation_length=length, **options)
    _, found = plain.longest(documents, suffix, len(suffix), length)
    expected = plain.best(found, budget, length)
    nodes = store.best_nodes(suffix, len(suffix), budget)
    assert plain.paths(nodes) == expected


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 2), max_size=40), max_size=4),
    st.lists(st.integers(0, 2), min_size=1, max_size=2),
    st.integers(0, 20),
    st.integers(1, 6),
    st.fixed_dictionaries(
        {
            "FEW": st.sampled_from([0, 4, 128]),
            "COLUMNS": st.sampled_from([1, 2, 3, 7, 1024]),
            "CELLS": st.sampled_from([1, 5, 20, 1 << 13]),
            "PROBES": st.sampled_from([1, 2, 7]),
            "COUNTED": st.sampled_from([0, 9, 1024]),
        }
    ),
    st.sampled_from([None, 1, 30]),
)
def test_how_the_table_is_read_changes_nothing(
    documents: Any,
    suffix: list[int],
    budget: int,
    length: int,
    sizes: dict[str, int],
    shard_tokens: int | None,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, size in sizes.items():
            patch.setattr(ranking, name, size)
        check_best(documents, suffix, budget, length, shard_tokens=shard_tokens)


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=8, max_size=60),
    st.integers(2, 4),
    st.integers(1, 4),
    st.integers(1, 3),
    st.sampled_from([1, 2, 3]),
)
def test_a_sample_gives_the_answer_or_none(
    document: list[int], step: int, budget: int, length: int, shards: int
) -> None:
    # Small counts are where a bound that is off by one would let a tie go wrong.
    documents = [document[part::shards] for part in range(shards)]
    found = plain.continuations(documents, COMMON, length)
    matches = Datastore.build(documents, shard_tokens=1)._matches(COMMON)
    ranked = ranking._read(matches, step, budget, length) if matches else None
    if ranked is not None:
        assert plain.paths(ranked.nodes()) == plain.best(found, budget, length)


def text(size: int, seed: int) -> list[int]:
    """Tokens of very different frequencies, most of which hang on the token before."""
    generator = np.random.default_rng(seed)
    tokens = [0]
    for step in (generator.zipf(1.6, size) - 1).tolist():
        tokens.append((tokens[-1] + step) % 50 if step else 0)
    return tokens


class Watch:
    """Counts how often sampling settled the matter, and how often it did not."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.settled = self.given_up = 0
        read = ranking._read

        def watched(matches: Any, step: int, budget: int, depth: int) -> Any:
            found = read(matches, step, budget, depth)
            self.settled += step > 1 and found is not None
            self.given_up += found is None
            return found

        patch.setattr(ranking, "_read", watched)


@pytest.mark.parametrize("shard_tokens", [None, 20_000])
def test_a_common_suffix_is_sampled_and_exact(
    monkeypatch: pytest.MonkeyPatch, shard_tokens: int | None
) -> None:
    watch = Watch(monkeypatch)
    monkeypatch.setattr(ranking, "COLUMNS", 256)
    documents = [text(15_000, seed) for seed in (1, 2, 3)]
    check_best(documents, COMMON, 64, 8, shard_tokens=shard_tokens)
    assert watch.settled == 1


def test_a_flat_suffix_needs_every_occurrence(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    # 0 is followed by something else every time: no sample can tell which is best.
    document = [t for number in range(1, 5001) for t in (0, number)]
    check_best([document], COMMON, 10, 4)
    assert watch.settled == 0 and watch.given_up > 0


def one_level_only(monkeypatch: pytest.MonkeyPatch) -> None:
    read = ranking._read
    monkeypatch.setattr(
        ranking,
        "_read",
        lambda matches, step, budget, _: read(matches, step, budget, 1),
    )


def what_was_read_for_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def guessed(table: Any, step: int, keys: Any, sizes: Any) -> Any:
        return sizes * step

    monkeypatch.setattr(ranking, "_counted", guessed)


def what_was_not_seen_counts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "_unseen", lambda matches, step: 0)


def changed_best(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    monkeypatch.setattr(ranking, "_best", change)


def ties_the_other_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def last_first(sizes: Any, budget: int) -> Any:
        return sizes.argsort(kind="stable")[::-1][:budget]

    changed_best(monkeypatch, last_first)


def as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    best = ranking._best
    changed_best(monkeypatch, lambda sizes, budget: np.sort(best(sizes, budget)))


def the_second_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(sizes: Any, budget: int) -> Any:
        return np.delete(best(sizes, budget + 1), 1)

    best = ranking._best
    changed_best(monkeypatch, without)


def what_parts_may_meet_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells that are the same below a difference, or after an end, taken for a run."""
    monkeypatch.setattr(ranking, "_downwards", lambda marks: marks)


def a_run_ends_where_it_was_last_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def last_seen(*arguments: Any) -> Any:
        begins, _ = edges(*arguments)
        return begins, arguments[-2][len(begins) :]

    edges = ranking._edges
    monkeypatch.setattr(ranking, "_edges", last_seen)


FLAT = [t for number in range(1, 5001) for t in (0, number % 997)]
CASES: list[tuple[list[list[int]], int, int]] = [
    ([text(15_000, seed) for seed in (1, 2, 3)], 64, 8),
    ([FLAT], 10, 4),
    ([FLAT], 10, 1),
    ([[t for number in range(1, 3001) for t in (0, number)]], 9, 2),
    ([[0, 1], *[[0, 2]] * 3], 1, 1),
    ([[0, 1, 0, 2, 0, 1, 3]], 3, 3),
    ([[0, 1, 1, 1]] * 3 + [[0, 2]] * 2, 4, 3),
]


@cache
def expected() -> list[Any]:
    """What a full count says about each of the cases."""
    return [
        plain.best(plain.continuations(documents, COMMON, length), budget, length)
        for documents, budget, length in CASES
    ]


def check_all() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "FEW", 0)
        patch.setattr(ranking, "COLUMNS", 256)
        for (documents, budget, length), best in zip(CASES, expected(), strict=True):
            store = Datastore.build(documents, continuation_length=length)
            assert plain.paths(store.best_nodes(COMMON, 1, budget)) == best


@pytest.mark.parametrize(
    "fault",
    [
        one_level_only,
        what_was_read_for_counts,
        what_was_not_seen_counts_nothing,
        ties_the_other_way,
        as_they_come,
        the_second_left_out,
        what_parts_may_meet_again,
        a_run_ends_where_it_was_last_seen,
    ],
    ids=lambda f: f.__name__,
)
def test_a_ranking_fault_is_found(monkeypatch: pytest.MonkeyPatch, fault: Any) -> None:
    check_all()
    fault(monkeypatch)

    def check() -> None:
        try:
            check_all()
        except (KeyError, IndexError) as problem:  # a node before its parent
            raise AssertionError from problem

    must_fail(check)


def test_a_token_of_another_shard_is_no_border() -> None:
    # 7 does not occur in the second shard, whose documents end after the 0.
    documents = [[0, 7]] * 3 + [[0]] * 5 + [[0, 8]]
    for columns in (1, 1024):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ranking, "COLUMNS", columns)
            check_best(documents, COMMON, 2, 2, shard_tokens=6)


@pytest.mark.parametrize("shard_tokens", [None, 4])
def test_the_largest_ids_are_ranked_as_numbers(shard_tokens: int | None) -> None:
    # One more than the largest needs all bits, and 256 comes after 255 in any order.
    documents = [[0, 2**63 - 1]] * 2 + [[0, 256, 1], [0, 255]] * 3
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "FEW", 0)
        check_best(documents, COMMON, 9, 2, shard_tokens=shard_tokens)
