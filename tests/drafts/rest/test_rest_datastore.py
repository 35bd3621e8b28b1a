"""The datastore equals a scan of the whole corpus (0x04B, 0x04C; cases H05 and H08)."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbook.drafts.rest import ContinuationTrie, Datastore
from specbook.drafts.rest import suffix_array as suffix_module
from specbook.errors import SpecbookError
from tests.core.helpers import must_fail, named
from tests.drafts.rest import plain

ARTICLE = [4, 5, 6, 9, 4, 5, 6, 10, 11]


# ---------------------------------------------------------- the article's example


def test_the_articles_continuations() -> None:
    store = Datastore.build([ARTICLE])
    assert store.continuations([4, 5, 6]) == [[9, 4, 5, 6, 10, 11], [10, 11]]
    assert (store.tokens, store.documents, store.largest_id) == (9, 1, 11)


def test_the_articles_trie() -> None:
    store = Datastore.build([ARTICLE])
    ranked = plain.paths(store.best_nodes([4, 5, 6], 3, 64))
    counts = dict(ranked)
    assert [path for path, _ in ranked if len(path) == 1] == [(9,), (10,)]
    assert counts[9,] == counts[10,] == counts[9, 4, 5, 6, 10] == 1
    trie = ContinuationTrie(store.continuations([4, 5, 6]))
    assert trie.paths() == ranked


def test_a_continuation_is_no_longer_than_asked_for() -> None:
    store = Datastore.build([ARTICLE], continuation_length=2)
    assert store.continuations([4, 5, 6]) == [[9, 4], [10, 11]]
    assert max(node.depth for node in store.best_nodes([4, 5, 6], 3, 64)) == 2


def test_an_end_without_a_continuation_is_a_miss() -> None:
    store = Datastore.build([[1, 2, 3], [7, 3, 8]])
    assert store.continuations([2, 3]) == []
    assert store.count([2, 3]) == 1
    # ... and the search backs off to the 3 that something follows.
    assert store.longest_suffix([1, 2, 3], 3) == 1
    assert plain.paths(store.best_nodes([1, 2, 3], 3, 64)) == [((8,), 1)]


# -------------------------------------------------------------------- public cases


@pytest.mark.parametrize("saved", [False, True])
def test_h05_ids_of_more_than_16_bits(tmp_path: Path, saved: bool) -> None:
    store = Datastore.build([[70000, 4464, 70001, 4464, 5]])
    if saved:
        store.save(tmp_path / "index")
        store = Datastore.load(tmp_path / "index")
    assert store.continuations([70000]) == [[4464, 70001, 4464, 5]]
    assert store.continuations([4464]) == [[70001, 4464, 5], [5]]


def test_h08_characters_of_several_tokens() -> None:
    text = "naïve 😀 日本 😀 café"
    ids = list(text.encode())
    store = Datastore.build([ids])
    found = store.continuations([240, 159])
    assert [c[:2] for c in found] == [[152, 128], [152, 128]]
    shown = bytes([240, 159, *found[1]]).decode()
    assert text.endswith(shown) and "\ufffd" not in shown


# ------------------------------------------------------------- equality with a scan

Build = Callable[..., Datastore]


def check_retrieval(
    build: Build,
    corpus: tuple[list[list[int]], list[int]],
    *,
    length: int = 4,
    most: int = 4,
    budget: int = 9,
    **options: Any,
) -> None:
    """Continuations, counts, the back-off and the pruned trie are those of a scan."""
    documents, prefix = corpus
    cross = options.get("cross_borders", False)
    store = build(documents, continuation_length=length, **options)
    assert store.tokens == sum(map(len, documents))
    assert store.documents == sum(1 for document in documents if document)
    for size in range(1, len(prefix) + 1):
        found = plain.continuations(documents, prefix[-size:], length, cross)
        assert store.continuations(prefix[-size:]) == found
    size, found = plain.longest(documents, prefix, most, length, cross)
    assert store.longest_suffix(prefix, most) == size
    best = plain.best(found, budget, length)
    assert plain.paths(store.best_nodes(prefix, most, budget)) == best
    pruned = ContinuationTrie(found).keep_high_frequency_nodes(budget)
    assert pruned.paths() == best
    assert pruned.nodes() == store.best_nodes(prefix, most, budget)


@settings(max_examples=2000, deadline=None, derandomize=True)
@given(
    plain.corpora(),
    st.integers(1, 5),
    st.integers(0, 6),
    st.integers(0, 12),
    st.sampled_from([{}, {"cross_borders": True}, {"shard_tokens": 1}]),
)
def test_retrieval_is_a_scan(
    corpus: Any, length: int, most: int, budget: int, options: dict
) -> None:
    check_retrieval(
        Datastore.build, corpus, length=length, most=most, budget=budget, **options
    )


OVERLAPS = ([[1, 1, 1, 1, 2], [], [1, 1, 3], [1]], [1, 1])


def crossing(documents: Any, **options: Any) -> Datastore:
    return Datastore.build(documents, **options, cross_borders=True)


def sixteen_bits(documents: Any, **options: Any) -> Datastore:
    cut = [[token % 65536 for token in document] for document in documents]
    return Datastore.build(cut, **options)


def backwards(documents: Any, **options: Any) -> Datastore:
    return Datastore.build(documents[::-1], **options)


def without_the_last(documents: Any, **options: Any) -> Datastore:
    return Datastore.build(documents[:-1], **options)


@pytest.mark.parametrize(
    ("build", "corpus"),
    [
        (crossing, ([[1, 2], [1, 3]], [2])),
        (sixteen_bits, ([[70000, 4464, 5]], [4464])),
        (backwards, ([[1, 2], [1, 3]], [1])),
        (without_the_last, OVERLAPS),
    ],
    ids=named,
)
def test_a_datastore_with_a_fault_is_found(build: Build, corpus: Any) -> None:
    check_retrieval(Datastore.build, corpus)
    must_fail(check_retrieval, build, corpus)


def test_a_suffix_array_out_of_order_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    check_retrieval(Datastore.build, OVERLAPS)
    monkeypatch.setattr(
        "specbook.drafts.rest.shard.sorted_suffixes",
        lambda codes: np.flatnonzero(codes).astype(np.int32),
    )
    must_fail(check_retrieval, Datastore.build, OVERLAPS)


# ------------------------------------------------------------------- shape of input


@pytest.mark.parametrize("documents", [[], [[]], [[], []], iter([])], ids=named)
def test_an_empty_corpus_holds_nothing(documents: Any) -> None:
    store = Datastore.build(documents)
    assert (store.tokens, store.documents, store.shards, store.largest_id) == (
        *(0, 0, 0),
        -1,
    )
    assert store.continuations([1]) == [] and store.count([1]) == 0
    assert store.best_nodes([1, 2], 4, 64) == []
    assert store.longest_suffix([1, 2], 4) == 0


def as_arrays(kind: str) -> list[np.ndarray]:
    return [np.array(ARTICLE, dtype=kind), np.array([], dtype=kind)]


@pytest.mark.parametrize(
    "documents",
    [
        [tuple(ARTICLE)],
        [np.array(ARTICLE, dtype=np.uint8)],
        as_arrays("u8"),
        as_arrays("i4"),
        [[np.int64(token) for token in ARTICLE]],
    ],
    ids=["tuple", "uint8", "uint64", "int32", "numpy scalars"],
)
def test_any_integers_will_do(documents: Any) -> None:
    assert Datastore.build(documents).hash == Datastore.build([ARTICLE]).hash


def test_documents_may_come_one_at_a_time() -> None:
    store = Datastore.build(iter(document) for document in [ARTICLE, [1, 2]])
    assert store.hash == Datastore.build([ARTICLE, [1, 2]]).hash


def test_tensors_are_read() -> None:
    torch = pytest.importorskip("torch")
    store = Datastore.build([torch.tensor(ARTICLE)])
    assert store.hash == Datastore.build([ARTICLE]).hash
    assert store.continuations(torch.tensor([6])) == store.continuations([6])


def test_the_callers_array_may_change_later() -> None:
    document = np.array(ARTICLE)
    store = Datastore.build([document])
    document[:] = 0
    assert store.continuations([4, 5, 6]) == [[9, 4, 5, 6, 10, 11], [10, 11]]


@pytest.mark.parametrize(
    ("documents", "told"),
    [
        (None, "documents must be a sequence"),
        (7, "documents must be a sequence"),
        ("text", "documents must be a sequence"),
        ({1: [2]}, "documents must be a sequence"),
        ({(1, 2)}, "documents must be a sequence"),
        ([1, 2, 3], r"documents\[0\] must be a sequence"),
        (["text"], r"documents\[0\] must be a sequence"),
        ([[1], {2: 3}], r"documents\[1\] must be a sequence"),
        ([[1, -1]], r"documents\[0\]\[1\] = -1 is negative"),
        ([np.array([3, -2])], r"documents\[0\]\[1\] = -2 is negative"),
        ([[1, True]], r"documents\[0\]\[1\] must be an integer, got True"),
        ([np.array([True])], r"documents\[0\]\[0\] must be an integer"),
        ([[1.0]], r"documents\[0\]\[0\] must be an integer"),
        ([np.array([1.0])], r"documents\[0\]\[0\] must be an integer"),
        ([[float("nan")]], r"documents\[0\]\[0\] must be an integer"),
        ([[None]], r"documents\[0\]\[0\] must be an integer"),
        ([[1, 2**63]], r"documents\[0\]\[1\] = 9223372036854775808 is above"),
        ([np.array([2**63], dtype=np.uint64)], "is above"),
        ([np.array([[1, 2]])], r"documents\[0\] must be one row of ids"),
    ],
    ids=named,
)
def test_bad_documents_are_refused(documents: Any, told: str) -> None:
    with pytest.raises(SpecbookError, match=told):
        Datastore.build(documents)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"shard_tokens": 0}, "shard_tokens must be at least 1"),
        ({"shard_tokens": True}, "shard_tokens must be an integer"),
        ({"continuation_length": 0}, "continuation_length must be at least 1"),
        ({"context_length": 2.0}, "context_length must be an integer"),
        ({"cross_borders": 1}, "cross_borders must be True or False"),
        ({"tokenizer": 3}, "tokenizer must be text"),
        ({"tokenizer": ""}, "tokenizer must not be empty"),
        ({"colour": "red"}, "an item of the release must be one of"),
        ({"byte_order": "little"}, "an item of the release must be one of"),
    ],
    ids=named,
)
def test_bad_options_are_refused(options: dict, told: str) -> None:
    with pytest.raises(SpecbookError, match=told):
        Datastore.build([[1, 2]], **options)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda s: s.continuations([]), "suffix must hold at least one"),
        (lambda s: s.count([]), "pattern must hold at least one"),
        (lambda s: s.continuations(4), "suffix must be a sequence"),
        (lambda s: s.continuations([-1]), r"suffix\[0\] = -1 is negative"),
        (lambda s: s.continuations([True]), r"suffix\[0\] must be an integer"),
        (lambda s: s.best_nodes([1.5], 1, 1), r"prefix\[0\] must be an integer"),
        (lambda s: s.best_nodes([1], -1, 1), "max_suffix must be at least 0"),
        (lambda s: s.best_nodes([1], 1, -1), "node_budget must be at least 0"),
        (lambda s: s.best_nodes([1], 1, True), "node_budget must be an integer"),
        (lambda s: s.best_nodes([1], 1, 1, max_depth=-1), "max_depth must be at least"),
        (lambda s: s.longest_suffix([1], 1.0), "max_suffix must be an integer"),
    ],
    ids=range(11),
)
def test_bad_queries_are_refused(call: Any, told: str) -> None:
    with pytest.raises(SpecbookError, match=told):
        call(Datastore.build([ARTICLE]))


@pytest.mark.parametrize("unknown", [3, 12, 2**40, 2**63, 2**200])
def test_ids_that_the_corpus_has_not_are_a_miss(unknown: int) -> None:
    store = Datastore.build([ARTICLE], shard_tokens=1)
    assert store.continuations([unknown]) == []
    assert store.best_nodes([4, 5, unknown], 3, 8) == []
    # After it the search starts anew.
    assert store.longest_suffix([unknown, 5, 6], 9) == 2


@pytest.mark.parametrize(
    ("most", "budget", "depth"), [(0, 8, None), (3, 0, None), (3, 8, 0)]
)
def test_a_limit_of_zero_proposes_nothing(
    most: int, budget: int, depth: int | None
) -> None:
    store = Datastore.build([ARTICLE])
    assert store.best_nodes([4, 5, 6], most, budget, max_depth=depth) == []


def test_a_suffix_longer_than_everything() -> None:
    store = Datastore.build([ARTICLE])
    assert store.continuations(ARTICLE + ARTICLE) == []
    assert store.longest_suffix(ARTICLE[:7], 10**9) == 7


# -------------------------------------------------------------------------- shards


def test_documents_fill_shards_and_are_never_split() -> None:
    documents = [[1] * 3, [2] * 3, [3] * 9, [4]]
    store = Datastore.build(documents, shard_tokens=6)
    assert store.shards == 3
    assert Datastore.build(documents).shards == 1
    assert store.count([3] * 9) == 1


def test_matches_cannot_cross_from_shard_to_shard() -> None:
    with pytest.raises(SpecbookError, match=r"documents\[1\] would begin a second"):
        Datastore.build([[1, 2], [3]], shard_tokens=2, cross_borders=True)


def test_too_long_a_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suffix_module, "MOST_CODES", 3)
    Datastore.build([[1, 2]])
    with pytest.raises(SpecbookError, match="build the datastore in shards"):
        Datastore.build([[1, 2, 3]])


def test_ids_take_the_least_width() -> None:
    for distinct, width in ((255, 1), (256, 2), (65535, 2), (65536, 4)):
        store = Datastore.build([np.arange(distinct) + 10**12])
        (shard,) = store._shards()
        assert shard.array.codes.itemsize == width
        assert store.continuations([10**12]) == [
            [10**12 + 1 + i for i in range(store.release.continuation_length)]
        ]


# -------------------------------------------------------------------- what it costs


def test_reading_needs_no_builder(tmp_path: Path) -> None:
    Datastore.build([ARTICLE]).save(tmp_path / "index")
    code = (
        "import sys; sys.modules.update({'pydivsufsort': None, 'torch': None})\n"
        "from specbook.drafts.rest import Datastore\n"
        f"store = Datastore.load({str(tmp_path / 'index')!r})\n"
        "print(store.continuations([6]))\n"
        "try: Datastore.build([[1]])\n"
        "except ValueError as problem: print(problem)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    first, second = ran.stdout.splitlines()
    assert first == "[[9, 4, 5, 6, 10, 11], [10, 11]]"
    assert "pip install pydivsufsort" in second


def test_build_and_build_to_take_the_same_options() -> None:
    build, build_to = (
        inspect.signature(function).parameters
        for function in (Datastore.build, Datastore.build_to)
    )
    assert set(build_to) - set(build) == {"path"}
