"""Few continuations are ranked from what neighbours share: as a full count does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbook.drafts.rest import few
from tests.core.helpers import must_fail
from tests.drafts.rest import plain


def check_few(continuations: list[list[int]], budget: int, depth: int) -> None:
    """`continuations`: codes, none of them 0, none empty; in any order."""
    text: list[int] = []
    places = []
    for continuation in sorted(continuations):
        places.append(len(text))
        text += [*continuation, 0]
    view = memoryview(bytes(text))
    ranked = few.best_of_few(view, places, budget, depth)
    assert plain.paths(ranked.nodes()) == plain.best(continuations, budget, depth)


@settings(max_examples=1000, deadline=None)
@given(
    st.lists(
        st.lists(st.integers(1, 3), min_size=1, max_size=7), min_size=1, max_size=12
    ),
    st.integers(1, 30),
    st.integers(1, 8),
)
def test_few_are_ranked_exactly(continuations: Any, budget: int, depth: int) -> None:
    check_few(continuations, budget, depth)


CASES: list[tuple[list[list[int]], int, int]] = [
    # The article's two continuations.
    ([[9, 4, 5, 6, 10, 11], [10, 11]], 64, 8),
    # One ends where the other goes on, and the same one twice.
    ([[1, 2], [1, 2, 3], [1, 2, 3]], 9, 9),
    # Two runs of one size take turns, level by level.
    ([[1, 2, 3], [1, 2, 4], [5, 6, 7], [5, 6, 7]], 5, 3),
    # A chain goes on below the end of the others.
    ([[1, 1, 1, 1, 1], [2], [3, 3]], 7, 4),
]


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_cases_worth_a_name(case: Any) -> None:
    check_few(*case)


def one_less_in_common(patch: pytest.MonkeyPatch) -> None:
    shared = few._shared
    patch.setattr(few, "_shared", lambda *a: [max(0, n - 1) for n in shared(*a)])


def ends_that_go_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(few, "BORDER", 255)


def runs_without_singles(patch: pytest.MonkeyPatch) -> None:
    def several(*arguments: Any) -> Any:
        return {size: runs for size, runs in chains(*arguments).items() if size > 1}

    chains = few._chains
    patch.setattr(few, "_chains", several)


def depth_first(patch: pytest.MonkeyPatch) -> None:
    """One chain after the other where they should take turns."""

    def one_by_one(
        text: Any, places: Any, chains: Any, missing: int, *columns: Any
    ) -> None:
        before = len(columns[0])
        for chain in chains:
            left = missing - (len(columns[0]) - before)
            if left:
                take_turns(text, places, [chain], left, *columns)

    take_turns = few._take_turns
    patch.setattr(few, "_take_turns", one_by_one)


@pytest.mark.parametrize(
    "fault",
    [one_less_in_common, ends_that_go_on, runs_without_singles, depth_first],
    ids=lambda fault: fault.__name__,
)
def test_a_fault_with_few_is_found(monkeypatch: pytest.MonkeyPatch, fault: Any) -> None:
    def check() -> None:
        for case in CASES:
            try:
                check_few(*case)
            except IndexError as problem:
                raise AssertionError from problem

    check()
    fault(monkeypatch)
    must_fail(check)
