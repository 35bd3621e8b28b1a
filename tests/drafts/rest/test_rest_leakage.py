"""Evaluation material in a datastore is found, exact copies and near ones (0x04C)."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbook.drafts.rest import Datastore, leakage
from specbook.errors import ArtifactError, SpecbookError
from tests.core.helpers import must_fail

ITEM = list(range(100, 140))
OTHER = list(range(500, 540))


def plain_overlap(documents: Any, item: list[int], n: int) -> tuple[int, int, int]:
    """(n-grams, found, longest run) by looking everywhere."""

    def occurs(run: list[int]) -> bool:
        return any(
            document[at : at + len(run)] == run
            for document in documents
            for at in range(len(document) - len(run) + 1)
        )

    n = min(n, len(item))
    grams = [item[at : at + n] for at in range(len(item) - n + 1)]
    runs = [
        end - at
        for at in range(len(item))
        for end in range(at + 1, len(item) + 1)
        if occurs(item[at:end])
    ]
    return len(grams), sum(map(occurs, grams)), max(runs, default=0)


def check_overlap(measure: Any, documents: Any, item: list[int], n: int) -> None:
    (found,) = measure(documents, [item], n)
    assert (found.ngrams, found.found, found.longest) == plain_overlap(
        documents, item, n
    )
    assert found.share == Fraction(found.found, found.ngrams)
    assert found.tokens == len(item) and found.name == "0"


few = st.lists(st.integers(0, 2), max_size=10)


@settings(max_examples=100, deadline=None)
@given(st.lists(few, max_size=3), few.filter(bool), st.integers(1, 5))
def test_overlap_is_a_scan(documents: Any, item: list[int], n: int) -> None:
    check_overlap(leakage.overlap, documents, item, n)
    store = Datastore.build(documents, shard_tokens=1)
    check_overlap(
        lambda _, items, size: leakage.overlap(store, items, size),
        *(documents, item, n),
    )


def across_borders(documents: Any, items: Any, n: int) -> Any:
    return leakage.overlap(Datastore.build(documents, cross_borders=True), items, n)


def one_gram_short(documents: Any, items: Any, n: int) -> Any:
    return leakage.overlap(documents, items, n + 1)


@pytest.mark.parametrize(
    "faulty", [across_borders, one_gram_short], ids=lambda f: f.__name__
)
def test_a_measure_with_a_fault_is_found(faulty: Any) -> None:
    case = ([[1, 2], [3, 4]], [1, 2, 3, 4], 2)
    check_overlap(leakage.overlap, *case)
    must_fail(check_overlap, faulty, *case)


def test_a_copy_is_found_whole() -> None:
    store = Datastore.build([OTHER, [1, *ITEM, 2]])
    (found,) = leakage.overlap(store, {"copy": ITEM})
    assert found.share == 1 and found.longest == len(ITEM) == 40


def test_a_near_copy_is_found_by_its_ngrams() -> None:
    near = [*ITEM[:20], 9999, *ITEM[21:]]
    (found,) = leakage.overlap([near], [ITEM])
    # The changed token spoils the eight 8-grams that hold it.
    assert (found.ngrams, found.found, found.longest) == (33, 25, 20)
    with pytest.raises(ArtifactError, match=r"'0' \(25 of 33 8-grams, a run of 20"):
        leakage.refuse([near], [ITEM])


def test_the_window_never_moves_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """One look-up for each token that a run takes in, and one for each that ends it;
    begun anew at every token, a copy would cost the square of its length."""
    asked = []
    count = Datastore._count

    def counted(store: Datastore, tokens: Any) -> int:
        asked.append(len(tokens))
        return count(store, tokens)

    monkeypatch.setattr(Datastore, "_count", counted)
    item = list(range(60))
    assert leakage.overlap([item[:40] + item[41:]], [item])[0].longest == 40
    assert len(asked) <= 2 * len(item)


def test_what_is_not_there_is_not_found() -> None:
    (found,) = leakage.refuse(Datastore.build([OTHER]), {"other": ITEM})
    assert found.share == 0 and found.longest == 0
    assert leakage.refuse([], {"other": ITEM})[0].found == 0


def test_every_item_over_the_limit_is_named() -> None:
    store = Datastore.build([ITEM + OTHER])
    items = {"first": ITEM, "fine": [7] * 10, "second": OTHER}
    with pytest.raises(ArtifactError, match="'first'.*'second'") as caught:
        leakage.refuse(store, items)
    assert "fine" not in str(caught.value)


def test_the_limits_are_inclusive() -> None:
    half = [*ITEM[:20], *OTHER[:20]]
    (found,) = leakage.overlap([ITEM], [half], 1)
    assert found.share == Fraction(1, 2) and found.longest == 20
    leakage.refuse([ITEM], [half], 1, limit=Fraction(1, 2), longest=20)
    for limits in ({"limit": Fraction(49, 100)}, {"longest": 19}):
        with pytest.raises(ArtifactError):
            leakage.refuse([ITEM], [half], 1, **limits)


def test_an_item_shorter_than_an_ngram_is_one() -> None:
    (found,) = leakage.overlap([ITEM], [ITEM[3:6]])
    assert (found.ngrams, found.share) == (1, 1)


# ------------------------------------------------------------------------- exclusion


def check_exclusion(exclude: Any, documents: Any, items: Any, n: int) -> None:
    """What is kept holds nothing of any item; what is dropped does."""
    kept = dict(exclude(documents, items, n))
    for number, document in enumerate(documents):
        assert kept.get(number, document) == document
        held = any(o.found for o in leakage.overlap([document], items, n))
        assert held == (number not in kept)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(few, max_size=4),
    st.lists(few.filter(bool), max_size=3),
    st.integers(1, 4),
)
def test_exclusion_leaves_nothing(documents: Any, items: Any, n: int) -> None:
    check_exclusion(leakage.exclude, documents, items, n)


def whole_items_only(documents: Any, items: Any, n: int) -> Any:
    return [(i, d) for i, d in enumerate(documents) if d not in items]


def drops_all(documents: Any, items: Any, n: int) -> Any:
    return []


def renumbered(documents: Any, items: Any, n: int) -> Any:
    return list(enumerate(d for _, d in leakage.exclude(documents, items, n)))


@pytest.mark.parametrize(
    "faulty", [whole_items_only, drops_all, renumbered], ids=lambda f: f.__name__
)
def test_an_exclusion_with_a_fault_is_found(faulty: Any) -> None:
    must_fail(check_exclusion, faulty, [[1, *ITEM], OTHER], [ITEM], 8)


def test_the_exclusion_manifest_binds_what_was_kept_out() -> None:
    texts = [
        leakage.manifest({"a": ITEM}),
        leakage.manifest({"b": ITEM}),
        leakage.manifest({"a": OTHER}),
        leakage.manifest({"a": ITEM}, 9),
        leakage.manifest({}),
        leakage.manifest({"a": ITEM, "b": OTHER}),
    ]
    assert len(set(texts)) == len(texts)
    assert texts[5] == leakage.manifest({"b": OTHER, "a": ITEM})
    store = Datastore.build([OTHER], exclusions=texts[0])
    assert store.release.exclusions == texts[0]


@pytest.mark.parametrize(
    "call",
    [
        lambda: leakage.overlap([ITEM], [[]]),
        lambda: leakage.overlap([ITEM], ITEM),
        lambda: leakage.overlap([ITEM], "text"),
        lambda: leakage.overlap([ITEM], {3: ITEM}),
        lambda: leakage.overlap([ITEM], [ITEM], 0),
        lambda: leakage.overlap([ITEM], [ITEM], True),
        lambda: leakage.overlap([ITEM], [[-1]]),
        lambda: leakage.overlap(ITEM, [ITEM]),
        lambda: leakage.refuse([ITEM], [OTHER], limit=1.5),
        lambda: leakage.refuse([ITEM], [OTHER], limit=float("nan")),
        lambda: leakage.refuse([ITEM], [OTHER], longest=-1),
        lambda: list(leakage.exclude([[True]], [ITEM])),
        lambda: leakage.exclude([ITEM], [ITEM], 1.0),
        lambda: leakage.manifest([[]]),
        lambda: leakage.exclude(5, [ITEM]),
        lambda: leakage.exclude("text", [ITEM]),
        lambda: leakage.exclude({tuple(ITEM)}, [ITEM]),
        lambda: leakage.exclude({3: ITEM}, [ITEM]),
    ],
    ids=range(18),
)
def test_bad_input_is_refused(call: Any) -> None:
    with pytest.raises(SpecbookError):
        call()
