"""The continuation trie: counts, sibling order, exact and closed pruning (case H07)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbook.drafts.rest import ContinuationTrie
from specbook.errors import SpecbookError
from specbook.proposal import ProbabilitySemantics, SamplingRelation
from tests.core.helpers import must_fail
from tests.drafts.rest import plain

H07 = ([1, 2, 3], [1, 2, 4], [1, 5], [6])

Paths = list[tuple[tuple[int, ...], int]]
Prune = Callable[[Sequence[Sequence[int]], int], Paths]


def prune(continuations: Sequence[Sequence[int]], budget: int) -> Paths:
    return ContinuationTrie(continuations).keep_high_frequency_nodes(budget).paths()


def check_pruning(
    prune: Prune, continuations: Sequence[Sequence[int]], budget: int
) -> None:
    """Everything that H07 asks of a pruned trie, from the counts alone."""
    every = dict(plain.best(continuations, 10**9, 10**9))
    kept = prune(continuations, budget)
    assert len(kept) == min(budget, len(every))
    assert len(dict(kept)) == len(kept)
    for path, count in kept:
        assert count == every[path]
        assert len(path) == 1 or path[:-1] in dict(kept)
    # A dropped node whose parent is kept ranks below every kept one.
    for path, count in every.items():
        if path not in dict(kept) and (len(path) == 1 or path[:-1] in dict(kept)):
            for other, more in kept:
                assert (-more, len(other), other) < (-count, len(path), path)
    for order in list(permutations(continuations))[:24]:
        assert prune(order, budget) == kept


@pytest.mark.parametrize("budget", [0, 1, 2, 3, 6, 100])
def test_h07_the_budget_is_exact(budget: int) -> None:
    check_pruning(prune, H07, budget)
    kept = [path for path, _ in prune(H07, budget)]
    assert kept == [(1,), (1, 2), (6,), (1, 5), (1, 2, 3), (1, 2, 4)][:budget]


def test_h07_the_counts() -> None:
    trie = ContinuationTrie(H07)
    assert trie.count([1]) == 3 and trie.count([1, 2]) == 2
    for path in ([6], [1, 5], [1, 2, 3], [1, 2, 4]):
        assert trie.count(path) == 1
    assert trie.count([2]) == 0 and trie.count([1, 2, 3, 4]) == 0
    assert len(trie) == 6


def test_h07_a_budget_as_deep_as_the_continuation() -> None:
    assert len(prune([[1, 2, 3, 4]], 4)) == 4


continuation_lists = st.lists(st.lists(st.integers(0, 2), max_size=4), max_size=5)


@settings(max_examples=300, deadline=None)
@given(continuation_lists, st.integers(0, 10))
def test_any_trie_is_pruned_exactly(continuations: Any, budget: int) -> None:
    check_pruning(prune, continuations, budget)


def loses_a_node(continuations: Any, budget: int) -> Paths:
    return prune(continuations, max(0, budget - 1))


def by_threshold(continuations: Any, budget: int) -> Paths:
    """Whatever counts as often as the last of the best: the budget does not hold."""
    kept = prune(continuations, budget)
    least = kept[-1][1] if kept else 0
    return [item for item in prune(continuations, 10**6) if item[1] >= least > 0]


def deepest_first(continuations: Any, budget: int) -> Paths:
    """Best by count, but the deeper one on a tie: not closed under prefixes."""
    every = prune(continuations, 10**6)
    return sorted(every, key=lambda item: (-item[1], -len(item[0]), item[0]))[:budget]


def as_it_comes(continuations: Any, budget: int) -> Paths:
    """Ties in order of first appearance: another result for another order."""
    trie = dict(prune(continuations, 10**6))
    seen = dict.fromkeys(
        tuple(c[:size]) for c in continuations for size in range(1, len(c) + 1)
    )
    ranked = sorted(seen, key=lambda path: (-trie[path], len(path)))
    return [(path, trie[path]) for path in ranked[:budget]]


def doubles_the_first(continuations: Any, budget: int) -> Paths:
    kept = prune(continuations, budget)
    return [(path, count * 2) for path, count in kept[:1]] + kept[1:]


@pytest.mark.parametrize(
    "faulty",
    [loses_a_node, by_threshold, deepest_first, as_it_comes, doubles_the_first],
    ids=lambda rule: rule.__name__,
)
def test_a_pruning_fault_is_found(faulty: Prune) -> None:
    def check() -> None:
        for budget in range(8):
            check_pruning(faulty, H07, budget)

    must_fail(check)


def test_siblings_by_count_and_then_by_id() -> None:
    trie = ContinuationTrie([[7, 1], [3, 1], [5, 1], [5, 2]])
    assert trie.children() == [5, 3, 7]
    assert trie.children([5]) == [1, 2]
    assert trie.children([7, 1]) == trie.children([9]) == []


def test_insert_counts_each_prefix_once() -> None:
    trie = ContinuationTrie()
    trie.insert([1, 1, 1], increment_frequency=True)
    trie.insert(iter([1, 2]))
    trie.insert([])
    assert trie.paths() == [((1,), 2), ((1, 1), 1), ((1, 2), 1), ((1, 1, 1), 1)]


def test_insert_without_counting_makes_nodes() -> None:
    trie = ContinuationTrie([[1, 2]])
    trie.insert([1, 3], increment_frequency=False)
    assert trie.paths() == [((1,), 1), ((1, 2), 1), ((1, 3), 0)]


def test_pruning_leaves_the_trie_as_it_was() -> None:
    trie = ContinuationTrie(H07)
    before = trie.paths()
    kept = trie.keep_high_frequency_nodes(2)
    kept.insert([1, 9])
    assert trie.paths() == before and len(kept) == 3
    assert kept.count([1]) == 4


def check_frequencies_are_scores(trie: ContinuationTrie) -> None:
    """A frequency is stated as one, ranks as a score, and nothing has a q."""
    made = trie.proposal(manifest_hash="m", request="r", generation=3)
    assert made.probability_semantics is ProbabilitySemantics.FREQUENCY
    assert made.sampling_relation is SamplingRelation.DETERMINISTIC_LOOKUP
    assert [node.score for node in made.nodes] == [n for _, n in trie.paths()]
    assert all(node.q is None for node in made.nodes)
    assert (made.manifest_hash, made.state_handle.request) == ("m", "r")
    assert made.state_handle.generation == 3


def test_frequencies_go_to_score() -> None:
    check_frequencies_are_scores(ContinuationTrie(H07))


def test_a_frequency_turned_into_q_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from specbook.drafts.rest import trie as module

    plain_proposal = module.proposal_of

    def faulty(nodes: Any, **options: Any) -> Any:
        nodes = list(nodes)
        total = sum(node.frequency for node in nodes if node.depth == 1)
        shares = [node._replace(frequency=node.frequency / total) for node in nodes]
        return plain_proposal(shares, **options)

    monkeypatch.setattr(module, "proposal_of", faulty)
    must_fail(check_frequencies_are_scores, ContinuationTrie(H07))


@pytest.mark.parametrize("order", ["breadth", "depth"])
def test_the_tree_has_the_tries_paths(order: str) -> None:
    trie = ContinuationTrie(H07)
    tree = trie.tree(5, order)
    tree.validate()
    counts = dict(trie.paths())
    assert set(tree.full_prefixes) == set(counts)
    for prefix, marks in zip(tree.full_prefixes, tree.sources, strict=True):
        assert [mark.score for mark in marks] == [counts[prefix]]
    roots = [tree.token_ids[row] for row in tree.children(-1)]
    assert roots == trie.children() == [1, 6]


def test_the_tree_of_nothing() -> None:
    assert len(ContinuationTrie().tree(3)) == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda: ContinuationTrie([1, 2]),
        lambda: ContinuationTrie("text"),
        lambda: ContinuationTrie([[1, -1]]),
        lambda: ContinuationTrie().insert([True]),
        lambda: ContinuationTrie().insert([1.0]),
        lambda: ContinuationTrie().insert(3),
        lambda: ContinuationTrie().insert([1], increment_frequency=1),
        lambda: ContinuationTrie().keep_high_frequency_nodes(-1),
        lambda: ContinuationTrie().keep_high_frequency_nodes(True),
        lambda: ContinuationTrie().keep_high_frequency_nodes(2.0),
        lambda: ContinuationTrie().count([]),
        lambda: ContinuationTrie().count([-1]),
        lambda: ContinuationTrie().children(["a"]),
    ],
    ids=range(13),
)
def test_bad_input_is_refused(call: Any) -> None:
    with pytest.raises(SpecbookError):
        call()


def test_a_refused_continuation_leaves_no_trace() -> None:
    trie = ContinuationTrie([[1, 2]])
    with pytest.raises(SpecbookError, match=r"continuation\[1\]"):
        trie.insert([1, -3])
    assert trie.paths() == [((1,), 1), ((1, 2), 1)]
