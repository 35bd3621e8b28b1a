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


def check_best(
    documents: Any, suffix: list[int], budget: int, length: int, **options: Any
) -> None:
    store = Datastore.build(documents, continuation_length=length, **options)
    found = plain.continuations(documents, suffix, length)
    expected = plain.best(found, budget, length)
    nodes = store.best_nodes(suffix, len(suffix), budget)
    assert plain.paths(nodes) == expected


@settings(max_examples=250, deadline=None)
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
    if not plain.continuations(documents, suffix, length):
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "ROWS", rows)
        patch.setattr(ranking, "CELLS", cells)
        check_best(documents, suffix, budget, length, shard_tokens=shard_tokens)


def text(size: int, seed: int) -> list[int]:
    """Tokens of very different frequencies, most of which hang on the token before."""
    generator = np.random.default_rng(seed)
    tokens = [0]
    for step in (generator.zipf(1.6, size) - 1).tolist():
        tokens.append((tokens[-1] + step) % 50 if step else 0)
    return tokens


COMMON = [0]


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
    monkeypatch.setattr(ranking, "CELLS", 1)
    monkeypatch.setattr(ranking, "_settled", lambda *arguments: True)


def no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sampled sizes are taken for counts."""

    def guessed(matches: Any, step: int, budget: int, depth: int) -> Any:
        rows, name = ranking._rows(matches, step, depth)
        runs = ranking._Runs(rows)
        best = ranking._largest(runs, budget)
        return runs.nodes(best, (runs.sizes[best] * step).tolist(), name)

    monkeypatch.setattr(ranking, "_sampled", guessed)


def ties_the_other_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def last_first(runs: Any, budget: int) -> np.ndarray:
        kept = runs.kept[::-1]
        return kept[np.argsort(-runs.sizes[kept], kind="stable")[:budget]]

    monkeypatch.setattr(ranking, "_largest", last_first)


def check_both() -> None:
    check_best([text(15_000, seed) for seed in (1, 2, 3)], COMMON, 64, 8)
    check_best([[0, 1, 0, 2, 0, 1, 3]], COMMON, 3, 3)
    check_best([[0, 1, 1, 1]] * 3 + [[0, 2]] * 2, COMMON, 4, 3)


@pytest.mark.parametrize(
    "fault", [one_level_only, no_bound, ties_the_other_way], ids=lambda f: f.__name__
)
def test_a_ranking_fault_is_found(monkeypatch: pytest.MonkeyPatch, fault: Any) -> None:
    check_both()
    fault(monkeypatch)

    def check() -> None:
        try:
            check_both()
        except KeyError as problem:  # a node without its parent
            raise AssertionError from problem

    must_fail(check)


def test_a_token_of_another_shard_is_no_border() -> None:
    # 7 does not occur in the second shard, whose documents end after the 0.
    documents = [[0, 7]] * 3 + [[0]] * 5 + [[0, 8]]
    for rows in (1, 1024):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ranking, "ROWS", rows)
            check_best(documents, COMMON, 2, 2, shard_tokens=6)
