"""The index file: every byte is checked, nothing is half-written (case H06)."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from specbook.drafts.rest import Datastore, storage
from specbook.errors import ArtifactError, SpecbookError
from tests.core.helpers import must_fail, named

DOCUMENTS = [[70000, 4464, 70001, 4464, 5], [5, 4464, 70001, 9]]
SUFFIX = [4464]
HEADER = storage._HEADER


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """A small index of two shards."""
    path = tmp_path / "index"
    store = Datastore.build(
        DOCUMENTS, shard_tokens=5, tokenizer="tokenizer A", corpus="two documents"
    )
    assert store.shards == 2
    store.save(path)
    return path


def same(left: Datastore, right: Datastore) -> bool:
    return (
        left.hash == right.hash
        and left.release == right.release
        and (left.tokens, left.documents, left.largest_id, left.shards)
        == (right.tokens, right.documents, right.largest_id, right.shards)
        and left.continuations(SUFFIX) == right.continuations(SUFFIX)
        and left.best_nodes(SUFFIX, 4, 9) == right.best_nodes(SUFFIX, 4, 9)
    )


# ------------------------------------------------------------------ there and back


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("documents", [DOCUMENTS, [], [[0]]], ids=named)
def test_what_was_saved_is_loaded(tmp_path: Path, documents: Any, lazy: bool) -> None:
    store = Datastore.build(documents, shard_tokens=5, licence="CC0")
    before = store.hash
    assert store.save(tmp_path / "index") == before
    assert same(Datastore.load(tmp_path / "index", lazy=lazy), store)
    assert same(Datastore.load(str(tmp_path / "index")), store)


def test_a_loaded_index_can_be_saved(index: Path, tmp_path: Path) -> None:
    Datastore.load(index).save(tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == index.read_bytes()
    # ... also over itself.
    store = Datastore.load(index)
    store.save(index)
    assert index.read_bytes() == (tmp_path / "copy").read_bytes()
    assert same(store, Datastore.load(index))


@pytest.mark.parametrize("shard_tokens", [1, 5, 100])
def test_a_streamed_build_writes_the_same_file(
    tmp_path: Path, shard_tokens: int
) -> None:
    Datastore.build(DOCUMENTS, shard_tokens=shard_tokens).save(tmp_path / "built")
    streamed = Datastore.build_to(
        tmp_path / "streamed",
        (iter(document) for document in DOCUMENTS),
        shard_tokens=shard_tokens,
    )
    files = [(tmp_path / name).read_bytes() for name in ("built", "streamed")]
    assert files[0] == files[1]
    assert same(streamed, Datastore.load(tmp_path / "built"))


def test_a_streamed_build_holds_one_shard_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    written: list[int] = []

    def documents() -> Iterator[list[int]]:
        for number in range(20):
            taken.append(number)
            yield [number] * 10

    laid_out = storage._laid_out

    def watched(shard: Any, offset: int) -> Any:
        written.append(len(taken))
        return laid_out(shard, offset)

    monkeypatch.setattr(storage, "_laid_out", watched)
    Datastore.build_to(tmp_path / "index", documents(), shard_tokens=40)
    # A shard is on its way to the file before the second document after it is read.
    assert written == [5, 9, 13, 17, 20]


def test_the_file_is_as_small_as_it_can_be(tmp_path: Path) -> None:
    tokens = 10_000
    store = Datastore.build([[i % 50_000 for i in range(tokens)]])
    store.save(tmp_path / "index")
    (entry,) = storage.read(tmp_path / "index").entries
    assert (entry.code_bytes, entry.start_bytes) == (2, 4)
    assert entry.codes == tokens + 1
    arrays = 6 * tokens + 2 + 8 * entry.distinct
    assert arrays <= entry.length < arrays + 8


# ------------------------------------------------------------------------- damage


def check_every_flip(index: Path, mask: int) -> None:
    """Each byte in turn is changed; every load refuses and names the file."""
    good = index.read_bytes()
    target = index.with_name("flipped")
    for place in range(len(good)):
        bad = bytearray(good)
        bad[place] ^= mask
        target.write_bytes(bad)
        try:
            Datastore.load(target)
        except ArtifactError as problem:
            assert str(target) in str(problem), place
        else:
            raise AssertionError(f"a flip of byte {place} was not noticed")
    Datastore.load(index)


@pytest.mark.parametrize("mask", [0x01, 0xFF])
def test_every_flipped_byte_is_refused(index: Path, mask: int) -> None:
    check_every_flip(index, mask)


def unchecked_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    def opener(buffer: Any, entry: Any, where: str) -> Callable[[], Any]:
        return cache(lambda: entry.read(buffer))

    monkeypatch.setattr(storage, "_opener", opener)


def unchecked_record(monkeypatch: pytest.MonkeyPatch) -> None:
    header = storage._header

    def trusting(path: Path, buffer: Any, size: int) -> tuple[int, bytes]:
        place, _ = header(path, buffer, size)
        return place, hashlib.sha256(buffer[place:]).digest()

    monkeypatch.setattr(storage, "_header", trusting)


def unchecked_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgiving:
        size = HEADER.size
        pack = HEADER.pack

        @staticmethod
        def unpack_from(buffer: Any) -> tuple[Any, ...]:
            values = list(HEADER.unpack_from(buffer))
            values[2] = 0
            return tuple(values)

    monkeypatch.setattr(storage, "_HEADER", Forgiving)


@pytest.mark.parametrize(
    "fault",
    [unchecked_shards, unchecked_record, unchecked_zero],
    ids=lambda f: f.__name__,
)
def test_a_byte_that_nobody_checks_is_found(
    index: Path, monkeypatch: pytest.MonkeyPatch, fault: Any
) -> None:
    fault(monkeypatch)
    must_fail(check_every_flip, index, 0x01)


def test_every_truncation_is_refused(index: Path) -> None:
    good = index.read_bytes()
    for size in range(len(good)):
        index.write_bytes(good[:size])
        told = "too short" if size < HEADER.size else "was cut or added to"
        with pytest.raises(ArtifactError, match=told):
            Datastore.load(index)
        with pytest.raises(ArtifactError, match=told):
            Datastore.load(index, lazy=True)


@pytest.mark.parametrize("more", [b"\0", b"x", b"\0" * 4096])
def test_trailing_bytes_are_refused(index: Path, more: bytes) -> None:
    index.write_bytes(index.read_bytes() + more)
    with pytest.raises(ArtifactError, match="was cut or added to"):
        Datastore.load(index)


def test_a_lazy_load_checks_a_shard_when_it_is_opened(index: Path) -> None:
    good = index.read_bytes()
    first, second = storage.read(index).entries
    for entry in (first, second):
        bad = bytearray(good)
        bad[entry.offset + entry.length - 1] ^= 1
        index.write_bytes(bad)
        store = Datastore.load(index, lazy=True)
        # What the record says is known without a shard.
        assert (store.tokens, store.documents) == (9, 2)
        for _ in range(2):  # a second try is no way around it
            with pytest.raises(ArtifactError, match="is damaged: its SHA-256 differs"):
                store.continuations(SUFFIX)
        with pytest.raises(ArtifactError, match="is damaged"):
            Datastore.load(index)
    index.write_bytes(good)
    Datastore.load(index, lazy=True).continuations(SUFFIX)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="there is no index file"):
        Datastore.load(tmp_path / "nowhere")
    with pytest.raises(ArtifactError, match="cannot be read"):
        Datastore.load(tmp_path)
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(ArtifactError, match="too short"):
        Datastore.load(tmp_path / "empty")
    (tmp_path / "text").write_text("no index, but long enough to be one" * 9, "utf-8")
    with pytest.raises(ArtifactError, match="is no index file"):
        Datastore.load(tmp_path / "text")


# ------------------------------------------------- sound bytes that say other things


def rewrite(index: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes the record and makes header and hash fit it again."""
    content = index.read_bytes()
    magic, version, zero, place, _, _ = HEADER.unpack_from(content)
    record = json.loads(content[place:])
    change(record)
    made = json.dumps(record).encode()
    header = HEADER.pack(
        magic, version, zero, place, place + len(made), hashlib.sha256(made).digest()
    )
    index.write_bytes(header + content[HEADER.size : place] + made)


def test_rewriting_alone_changes_nothing(index: Path) -> None:
    before = Datastore.load(index).continuations(SUFFIX)
    rewrite(index, lambda record: None)
    assert Datastore.load(index).continuations(SUFFIX) == before


def test_another_version_is_refused(index: Path) -> None:
    content = bytearray(index.read_bytes())
    HEADER_VERSION = 8
    content[HEADER_VERSION] += 1
    index.write_bytes(content)
    with pytest.raises(ArtifactError, match="format version 2, this specbook reads 1"):
        Datastore.load(index)


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("code_bytes", 4, "code_bytes is 4, the width of its 4 distinct ids is 1"),
        ("code_bytes", 2, "code_bytes is 2"),
        ("id_bytes", 4, "id_bytes is 4"),
        ("start_bytes", 8, "start_bytes is 8"),
        ("distinct", 300, "code_bytes is 1, the width of its 300 distinct ids is 2"),
        ("distinct", 2**70, "distinct ids are more than a shard can number"),
        ("tokens", 6, "6 tokens and the ends of 1 documents are not 6 codes"),
        ("codes", 60, "5 tokens and the ends of 1 documents are not 60 codes"),
        ("length", 8, "its arrays do not fill"),
        ("offset", 72, "begins at 72, not at 64"),
        ("tokens", -1, "tokens must be at least 0"),
        ("tokens", 5.0, "tokens must be an integer"),
        ("documents", True, "documents must be an integer"),
        ("sha256", 5, "sha256 must be text"),
        ("sha256", "0" * 64, "shard 0 is damaged"),
    ],
    ids=range(15),
)
def test_a_shard_that_cannot_be_is_refused(
    index: Path, field: str, value: Any, told: str
) -> None:
    def change(record: dict[str, Any]) -> None:
        record["shards"][0][field] = value

    rewrite(index, change)
    with pytest.raises(ArtifactError, match=told):
        Datastore.load(index)


@pytest.mark.parametrize(
    ("item", "value", "told"),
    [
        ("byte_order", "big", "byte_order is 'big'; this specbook's is 'little'"),
        ("key_encoding", "raw ids", "key_encoding is 'raw ids'"),
        ("counter", "16 bits", "counter is '16 bits'"),
        ("pruning", "as it comes", "pruning is 'as it comes'"),
        ("context_length", 0, "context_length must be at least 1"),
        ("continuation_length", "10", "continuation_length must be an integer"),
        ("licence", "", "licence must not be empty"),
        ("licence", 5, "licence must be text"),
        ("colour", "red", "unknown release items"),
    ],
    ids=range(9),
)
def test_a_release_of_other_conventions_is_refused(
    index: Path, item: str, value: Any, told: str
) -> None:
    def change(record: dict[str, Any]) -> None:
        record["release"][item] = value

    rewrite(index, change)
    with pytest.raises(ArtifactError, match=told):
        Datastore.load(index)


def without(path: tuple[str | int, ...]) -> Callable[[dict[str, Any]], None]:
    def change(record: Any) -> None:
        for step in path[:-1]:
            record = record[step]
        del record[path[-1]]

    return change


@pytest.mark.parametrize(
    "path",
    [
        ("release",),
        ("shards",),
        ("release", "licence"),
        ("shards", 0, "sha256"),
        ("shards", 0),
        ("shards", 1),
    ],
    ids=named,
)
def test_a_record_that_lacks_something_is_refused(
    index: Path, path: tuple[str | int, ...]
) -> None:
    rewrite(index, without(path))
    with pytest.raises(ArtifactError, match=str(index)):
        Datastore.load(index)


@pytest.mark.parametrize("record", [b"", b"[]", b"7", b"{}", b"\xff", b"[" * 99999])
def test_a_record_that_is_none_is_refused(index: Path, record: bytes) -> None:
    content = index.read_bytes()
    magic, version, zero, place, _, _ = HEADER.unpack_from(content)
    digest = hashlib.sha256(record).digest()
    header = HEADER.pack(magic, version, zero, place, place + len(record), digest)
    index.write_bytes(header + content[HEADER.size : place] + record)
    with pytest.raises(ArtifactError, match=str(index)):
        Datastore.load(index)


# ----------------------------------------------------------------------- tokenizer


def test_another_tokenizer_is_refused(index: Path, tmp_path: Path) -> None:
    assert Datastore.load(index, tokenizer="tokenizer A").tokens == 9
    with pytest.raises(ArtifactError, match="'tokenizer A', the one in use is 'B'"):
        Datastore.load(index, tokenizer="B")
    # An index that does not say is no proof that the tokenizer fits.
    Datastore.build(DOCUMENTS).save(tmp_path / "undeclared")
    with pytest.raises(ArtifactError, match="'undeclared', the one in use is 'B'"):
        Datastore.load(tmp_path / "undeclared", tokenizer="B")


# ------------------------------------------------------------------------ atomicity


def left_behind(index: Path) -> list[str]:
    return sorted(path.name for path in index.parent.iterdir() if path != index)


def check_unharmed(index: Path, work: Callable[[], Any], kind: Any) -> None:
    before = index.read_bytes()
    with pytest.raises(kind):
        work()
    assert index.read_bytes() == before
    assert left_behind(index) == []


def test_a_failing_build_leaves_the_old_file(index: Path) -> None:
    def documents() -> Iterator[list[int]]:
        yield [1, 2, 3]
        yield [4, 5, 6]
        raise RuntimeError("the corpus ends here")

    check_unharmed(
        index,
        lambda: Datastore.build_to(index, documents(), shard_tokens=3),
        RuntimeError,
    )
    bad = [[1, 2, 3], [4, 5, 6], [-1]]
    check_unharmed(
        index, lambda: Datastore.build_to(index, bad, shard_tokens=3), SpecbookError
    )


@pytest.mark.parametrize("step", ["replace", "fsync"])
def test_a_failing_system_call_leaves_the_old_file(
    index: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def refuse(*arguments: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, step, refuse)
    store = Datastore.build([[1, 2]])
    check_unharmed(index, lambda: store.save(index), ArtifactError)


def test_an_interrupt_leaves_the_old_file(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*arguments: Any) -> Any:
        raise KeyboardInterrupt

    store = Datastore.build([[1, 2]])
    monkeypatch.setattr(storage, "_laid_out", stop)
    check_unharmed(index, lambda: store.save(index), KeyboardInterrupt)


def test_writing_in_place_is_found(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def in_place(path: Any, shards: Any, release: Any) -> str:
        Path(path).write_bytes(b"begun")
        raise OSError("no space left")

    monkeypatch.setattr(storage, "write", in_place)
    store = Datastore.build([[1, 2]])
    must_fail(check_unharmed, index, lambda: store.save(index), OSError)


def test_a_failed_load_loses_no_file(index: Path) -> None:
    bad = index.read_bytes()[:-1]
    index.write_bytes(bad)
    check_unharmed(index, lambda: Datastore.load(index), ArtifactError)
    check_unharmed(index, lambda: Datastore.load(index, tokenizer="B"), ArtifactError)


def test_an_open_index_survives_its_replacement(index: Path) -> None:
    store = Datastore.load(index)
    before = store.continuations(SUFFIX)
    Datastore.build([[4464, 1]]).save(index)
    assert store.continuations(SUFFIX) == before
    assert Datastore.load(index).continuations(SUFFIX) == [[1]]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="cannot be written"):
        Datastore.build([[1]]).save(tmp_path / "nowhere" / "index")
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_named(index: Path) -> None:
    store = Datastore.build([[1, 2]])
    for name in (index / "below", index.with_name("x" * 300)):
        for work in (
            lambda name=name: store.save(name),
            lambda name=name: Datastore.build_to(name, [[1]]),
        ):
            check_unharmed(index, work, ArtifactError)


def test_the_longest_name_that_a_file_can_have_will_do(tmp_path: Path) -> None:
    """The temporary name must not be longer than the final one may be."""
    path = tmp_path / ("\N{LATIN SMALL LETTER E WITH ACUTE}" * 127 + "x")
    assert len(os.fsencode(path.name)) == 255
    store = Datastore.build([[1, 2]])
    store.save(path)
    assert same(Datastore.load(path), store)
    assert list(tmp_path.iterdir()) == [path]


def test_documents_that_cannot_be_read_are_not_blamed_on_the_index(
    index: Path,
) -> None:
    def documents() -> Iterator[list[int]]:
        yield [1, 2]
        raise FileNotFoundError("corpus.txt")

    def work() -> None:
        Datastore.build_to(index, documents(), shard_tokens=1)

    check_unharmed(index, work, ArtifactError)
    with pytest.raises(ArtifactError, match=r"documents cannot be read: corpus\.txt"):
        work()


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """Opened for reading it would block until somebody writes."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    keeper = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)  # lets a faulty load end
    try:
        with pytest.raises(ArtifactError, match="pipe cannot be read: .*no regular"):
            Datastore.load(pipe)
    finally:
        os.close(keeper)


def test_a_path_that_is_no_bytes_is_named() -> None:
    store = Datastore.build([[1]])
    for work in (store.save, Datastore.load, lambda p: Datastore.build_to(p, [[1]])):
        with pytest.raises(SpecbookError, match="path cannot be written as bytes"):
            work("\ud800index")


@pytest.mark.parametrize("path", [None, 7, b"index", "", "a\0b", "/", True], ids=named)
def test_paths_that_are_none(path: Any) -> None:
    store = Datastore.build([[1]])
    for work in (store.save, Datastore.load, lambda p: Datastore.build_to(p, [[1]])):
        with pytest.raises(SpecbookError, match="must be the name of a file"):
            work(path)


@pytest.mark.parametrize("flag", [1, "yes", None], ids=named)
def test_lazy_is_a_truth_value(index: Path, flag: Any) -> None:
    with pytest.raises(SpecbookError, match="lazy must be True or False"):
        Datastore.load(index, lazy=flag)
