"""An index of installed packages' sources is bound to them and to the target."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from specbook import corpora
from specbook.drafts.rest import Datastore, Rest, build_for_target, leakage
from specbook.errors import SpecbookError
from specbook.models.table import TableTarget

PACKAGES = ("mpmath",)


class ByteTarget(TableTarget):
    """A target whose tokens are the bytes of the text."""

    def __init__(self) -> None:
        super().__init__(lambda prefix: [1] + [0] * 255, vocab_size=256)

    def encode(self, text: str) -> list[int]:
        return list(text.encode("utf-8"))


@pytest.fixture(scope="module")
def target() -> ByteTarget:
    return ByteTarget()


@pytest.fixture(scope="module")
def built(target: ByteTarget, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("index") / "mpmath"
    build_for_target(path, target, packages=PACKAGES, held_out=Fraction(1, 10))
    return path


def test_it_holds_what_was_kept(built: Path, target: ByteTarget) -> None:
    kept, held = corpora.split(corpora.package_sources(PACKAGES), Fraction(1, 10))
    store = Datastore.load(built, tokenizer=target.identity()["tokenizer"])
    assert store.documents == len(kept)
    assert store.tokens == sum(len(file.text.encode("utf-8")) for file in kept)
    assert store.count(target.encode(kept[0].text)) == 1
    assert all(store.count(target.encode(file.text)) == 0 for file in held)


def test_everything_is_declared(built: Path, target: ByteTarget) -> None:
    kept, held = corpora.split(corpora.package_sources(PACKAGES), Fraction(1, 10))
    release = Datastore.load(built).release
    assert release.undeclared == ()
    assert release.corpus_snapshot == corpora.snapshot(kept)
    assert corpora.snapshot(held) in release.exclusions
    assert "mpmath" in release.licence and "BSD" in release.licence
    assert release.calibrated_for == target.identity()["checkpoint"]
    Rest(built).check_target(target)


def test_evaluation_material_is_left_out(tmp_path: Path, target: ByteTarget) -> None:
    kept, _ = corpora.split(corpora.package_sources(PACKAGES))
    item = {"a prompt": target.encode(kept[3].text[100:300])}
    store = build_for_target(
        tmp_path / "index", target, packages=PACKAGES, evaluation=item, n=50
    )
    assert store.documents < len(kept)
    assert leakage.overlap(store, item, 50)[0].found == 0
    assert leakage.manifest(item, 50) in store.release.exclusions


def test_a_target_without_text_is_refused(tmp_path: Path) -> None:
    silent = TableTarget(lambda prefix: [1], vocab_size=1)
    with pytest.raises(SpecbookError, match="a target that encodes text"):
        build_for_target(tmp_path / "index", silent, packages=PACKAGES)
    assert list(tmp_path.iterdir()) == []
