"""The best nodes without enumeration are those of a full count, also where a common
suffix is only sampled."""

from __future__ import annotations

from dataclasses import replace
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
    st.sampled_from([1, 5, 1 << 16]),
    st.sampled_from([None, 1, 30]),
)
def test_few_rows_and_few_cells_change_nothing(
    documents: Any,
    suffix: list[int],
    budget: int,
    length: int,
    rows: int,
    cells: int,
    shard_tokens: int | None,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "ROWS", rows)
        patch.setattr(ranking, "CELLS", cells)
        check_best(documents, suffix, budget, length, shard_tokens=shard_tokens)


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=8, max_size=60),
    st.integers(2, 4),
    st.integers(1, 4),
    st.integers(1, 3),
)
def test_a_sample_gives_the_answer_or_none(
    document: list[int], step: int, budget: int, length: int
) -> None:
    # Small counts are where a bound that is off by one would let a tie go wrong.
    found = plain.continuations([document], COMMON, length)
    matches = Datastore.build([document])._matches(COMMON)
    nodes = ranking._sampled(matches, step, budget, length) if matches else None
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
        sampled = ranking._sampled

        def watched(*arguments: Any) -> Any:
            found = sampled(*arguments)
            self.settled += found is not None
            self.given_up += found is None
            return found

        patch.setattr(ranking, "_sampled", watched)


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
    largest = ranking._largest_runs
    monkeypatch.setattr(
        ranking, "_largest_runs", lambda rows, most, depth: largest(rows, most, 1)
    )


def samples_for_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def guessed(matches: Any, step: int, budget: int, depth: int) -> Any:
        runs = ranking._largest_runs(ranking._Rows(matches, step), budget, depth)
        counts = (runs.sizes * step).tolist()
        return ranking._nodes(runs, np.arange(len(counts)), counts)

    monkeypatch.setattr(ranking, "_sampled", guessed)


def first_sample_that_fills(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exact counts of the runs that were sampled most often, and no bound."""

    def no_rest(*arguments: Any) -> Any:
        return replace(largest(*arguments), rest=-(10**9))

    largest = ranking._largest_runs
    monkeypatch.setattr(ranking, "_largest_runs", no_rest)


def ties_the_other_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def last_first(sizes: np.ndarray, most: int) -> np.ndarray:
        order = len(sizes) - 1 - np.argsort(-sizes[::-1], kind="stable")
        return np.sort(order[:most])

    monkeypatch.setattr(ranking, "_chosen", last_first)


def rows_left_out_too_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    def fewer(rows: Any, level: int, length: int, above: np.ndarray) -> Any:
        cells, above = read(rows, level, length, above)
        if level:
            cells[: len(cells) // 2] = 0
        return cells, above

    read = ranking._Rows.read
    monkeypatch.setattr(ranking._Rows, "read", fewer)


def check_all() -> None:
    texts = [text(15_000, seed) for seed in (1, 2, 3)]
    check_best(texts, COMMON, 64, 8)
    flat = [t for number in range(1, 5001) for t in (0, number % 997)]
    check_best([flat], COMMON, 10, 4)
    check_best([[0, 1, 0, 2, 0, 1, 3]], COMMON, 3, 3)
    check_best([[0, 1, 1, 1]] * 3 + [[0, 2]] * 2, COMMON, 4, 3)


@pytest.mark.parametrize(
    "fault",
    [
        one_level_only,
        samples_for_counts,
        first_sample_that_fills,
        ties_the_other_way,
        rows_left_out_too_soon,
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
