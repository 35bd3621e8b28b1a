"""The release binds every item of section 0x04C, and its hash all of them."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from specbook import __version__
from specbook.drafts.rest import UNDECLARED, Datastore, Release, Rest
from specbook.errors import SpecbookError
from tests.core.helpers import must_fail

ITEMS: dict[str, tuple[str, ...]] = {
    "corpus snapshot and licence": ("corpus", "corpus_snapshot", "licence"),
    "exclusion manifest": ("exclusions",),
    "tokenizer files and normalisation": ("tokenizer", "normalisation"),
    "context and continuation length": ("context_length", "continuation_length"),
    "suffix key encoding and endianness": ("key_encoding", "byte_order"),
    "frequency counter width": ("counter",),
    "pruning and tie rule": ("pruning", "cross_borders"),
    "builder": ("builder",),
    "target used for calibration": ("calibrated_for",),
}
"""The article's list; the checksums are those of the record."""

DECLARED: dict[str, Any] = {
    "corpus": "two documents",
    "corpus_snapshot": "sha256 of them",
    "licence": "CC0",
    "exclusions": "nothing",
    "tokenizer": "bytes",
    "normalisation": "none",
    "calibrated_for": "a table",
}
OTHERS: dict[str, Any] = {
    **{name: f"another {name}" for name in DECLARED},
    "context_length": 3,
    "continuation_length": 5,
    "cross_borders": True,
}


def build(documents: Any = ((1, 2, 3),), **items: Any) -> Datastore:
    return Datastore.build(documents, **{**DECLARED, **items})


def test_every_item_of_the_article_is_a_field() -> None:
    listed = {name for names in ITEMS.values() for name in names}
    assert listed == {field.name for field in fields(Release)}


def test_what_is_not_declared_is_named() -> None:
    assert set(Datastore.build([[1]]).release.undeclared) == set(DECLARED)
    assert build().release.undeclared == ()
    assert build(licence=UNDECLARED).release.undeclared == ("licence",)


def test_the_builder_is_recorded() -> None:
    builder = build().release.builder
    assert builder.startswith(f"specbook {__version__}, pydivsufsort ")


def check_hash_binds(hash_of: Any) -> None:
    """Another item, another document or another cut into shards is another hash."""
    stores = [build(), build([[1, 2, 4]]), build([[1], [2, 3]])]
    stores += [build([[1], [2, 3]], shard_tokens=2)]
    stores += [build(**{name: other}) for name, other in OTHERS.items()]
    hashes = [hash_of(store) for store in stores]
    assert len(set(hashes)) == len(hashes)
    assert hash_of(build()) == hash_of(build())


def test_the_hash_binds_everything() -> None:
    check_hash_binds(lambda store: store.hash)


def test_the_manifest_gets_the_hash() -> None:
    check_hash_binds(lambda store: Rest(store).identity())
    store = build()
    assert store.hash in Rest(store).identity()
    options = [Rest(store, 3), Rest(store, 4), Rest(store, 3, 9)]
    assert len({source.identity() for source in options}) == 3


@pytest.mark.parametrize("forgotten", [*OTHERS])
def test_a_hash_that_forgets_an_item_is_found(forgotten: str) -> None:
    def forgetful(store: Datastore) -> str:
        items = {**store.release.to_dict(), forgotten: None}
        return repr((items, [shard.array.codes.tolist() for shard in store._shards()]))

    must_fail(check_hash_binds, forgetful)


def test_the_release_comes_back_from_the_file(tmp_path: Path) -> None:
    store = build(context_length=3, continuation_length=5, cross_borders=True)
    store.save(tmp_path / "index")
    assert Datastore.load(tmp_path / "index").release == store.release
    assert Release.from_dict(store.release.to_dict(), "here") == store.release


@pytest.mark.parametrize(
    ("item", "value"),
    [
        ("licence", ""),
        ("licence", None),
        ("licence", 3),
        ("licence", "half of \ud800"),
        ("context_length", 0),
        ("context_length", True),
        ("continuation_length", 2.5),
        ("cross_borders", 0),
        ("byte_order", "big"),
        ("pruning", "another"),
    ],
    ids=range(10),
)
def test_bad_items_are_refused(item: str, value: Any) -> None:
    with pytest.raises(SpecbookError, match=item):
        replace(Release(), **{item: value})


def test_a_release_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        build().release.licence = "mine"  # type: ignore[misc]
