"""The best nodes without enumeration are those of a full count, also where a common
suffix is only sampled."""

from __future__ import annotations

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


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 2), max_size=40), max_size=4),
    st.lists(st.integers(0, 2), min_size=1, max_size=2),
    st.integers(0, 20),
    st.integers(1, 6),
    st.sampled_from([1, 2, 3, 7, 1024]),
    st.sampled_from([0, 5, 64]),
    st.sampled_from([None, 1, 30]),
)
def test_how_rows_are_read_changes_nothing(
    documents: Any,
    suffix: list[int],
    budget: int,
    length: int,
    rows: int,
    several: int,
    shard_tokens: int | None,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "ROWS", rows)
        patch.setattr(ranking, "SEVERAL", several)
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
    nodes = ranking._read(matches, step, budget, length) if matches else None
    if nodes is not None:
        assert plain.paths(nodes) == plain.best(found, budget, length)


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
    def guessed(rows: Any, *_: Any) -> Any:
        return [(match, most, begin) for match, _, most, begin, _ in rows]

    monkeypatch.setattr(ranking, "_counted", guessed)


def what_was_not_seen_counts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "_unseen", lambda matches, step: 0)


def faulty_order(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    def changed(*arguments: Any) -> Any:
        codes, edges, order = heads(*arguments)
        return codes, edges, change(order, edges)

    heads = ranking._heads
    monkeypatch.setattr(ranking, "_heads", changed)


def ties_the_other_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def last_first(order: list[int], edges: list[int]) -> list[int]:
        return sorted(order, key=lambda i: (edges[i] - edges[i + 1], -i))

    faulty_order(monkeypatch, last_first)


def siblings_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    faulty_order(monkeypatch, lambda order, _: sorted(order))


def a_child_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    faulty_order(monkeypatch, lambda order, _: order[:1] + order[2:])


def a_run_ends_with_its_first_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the first row has, taken for what all rows have in common."""

    def only_first(rows: Any, *arguments: Any) -> Any:
        match, low, _ = rows[0]
        return shared([(match, low, low + 1)], *arguments)

    shared = ranking._shared
    monkeypatch.setattr(ranking, "_shared", only_first)


def check_all() -> None:
    texts = [text(15_000, seed) for seed in (1, 2, 3)]
    check_best(texts, COMMON, 64, 8)
    flat = [t for number in range(1, 5001) for t in (0, number % 997)]
    check_best([flat], COMMON, 10, 4)
    check_best([[t for number in range(1, 3001) for t in (0, number)]], COMMON, 9, 2)
    check_best([[0, 1], *[[0, 2]] * 3], COMMON, 1, 1)
    check_best([[0, 1, 0, 2, 0, 1, 3]], COMMON, 3, 3)
    check_best([[0, 1, 1, 1]] * 3 + [[0, 2]] * 2, COMMON, 4, 3)


@pytest.mark.parametrize(
    "fault",
    [
        one_level_only,
        what_was_read_for_counts,
        what_was_not_seen_counts_nothing,
        ties_the_other_way,
        siblings_as_they_come,
        a_child_left_out,
        a_run_ends_with_its_first_row,
    ],
    ids=lambda f: f.__name__,
)
def test_a_ranking_fault_is_found(monkeypatch: pytest.MonkeyPatch, fault: Any) -> None:
    check_all()
    fault(monkeypatch)

    def check() -> None:
        try:
            check_all()
        except KeyError as problem:  # a node before its parent
            raise AssertionError from problem

    must_fail(check)


def test_a_token_of_another_shard_is_no_border() -> None:
    # 7 does not occur in the second shard, whose documents end after the 0.
    documents = [[0, 7]] * 3 + [[0]] * 5 + [[0, 8]]
    for rows in (1, 1024):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ranking, "ROWS", rows)
            check_best(documents, COMMON, 2, 2, shard_tokens=6)
