"""The index file: one header, the shards, one record; every byte of it is checked.

    header   64 bytes: magic, format version, zero, where the record begins, how long
             the file is, SHA-256 of the record
    shards   one after the other: vocabulary (int64), suffix array (int32), codes (1, 2
             or 4 bytes), zeros to a multiple of 8; little-endian
    record   canonical JSON: the release, and for each shard its place, its sizes and
             its SHA-256

The record's hash names the release. A file is written beside its final name and then
renamed, so a reader finds the old index or the new one and never a half of either.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import stat
import struct
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ... import checks
from ...errors import ArtifactError, SpecbookError
from .release import Release
from .shard import Shard, code_type
from .suffix_array import SuffixArray

MAGIC = b"SPECREST"
VERSION = 1
_HEADER = struct.Struct("<8sIIQQ32s")
_ALIGNMENT = 8
ID_BYTES = 8
START_BYTES = 4


@dataclass(frozen=True)
class ShardEntry:
    """A shard in the record. `offset` and `length` are bytes of the file; the widths
    `id_bytes`, `start_bytes` and `code_bytes` are those of its three arrays."""

    offset: int
    length: int
    sha256: str
    documents: int
    tokens: int
    codes: int
    distinct: int
    largest_id: int
    id_bytes: int
    start_bytes: int
    code_bytes: int

    def check(self, where: str) -> None:
        """Raises `ArtifactError` naming a size or a width that does not fit."""
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "sha256":
                name = f"{where}: {field.name}"
                checks.integer(value, name, least=0, error=ArtifactError)
        checks.text(self.sha256, f"{where}: sha256", error=ArtifactError)
        try:
            code_bytes = code_type(self.distinct).itemsize
        except SpecbookError as problem:
            raise ArtifactError(f"{where}: {problem}") from problem
        for name, ours in (
            ("id_bytes", ID_BYTES),
            ("start_bytes", START_BYTES),
            ("code_bytes", code_bytes),
        ):
            if getattr(self, name) != ours:
                raise ArtifactError(
                    f"{where}: {name} is {getattr(self, name)}, the width of its "
                    f"{self.distinct} distinct ids is {ours} here"
                )
        if self.codes - self.tokens not in (1, self.documents):
            raise ArtifactError(
                f"{where}: {self.tokens} tokens and the ends of {self.documents} "
                f"documents are not {self.codes} codes"
            )
        if self.length != _padded(sum(self._sizes)):
            raise ArtifactError(
                f"{where}: its arrays do not fill its {self.length} bytes"
            )

    @property
    def _sizes(self) -> tuple[int, int, int]:
        return (
            self.distinct * self.id_bytes,
            self.tokens * self.start_bytes,
            self.codes * self.code_bytes,
        )

    def read(self, buffer: Any) -> Shard:
        """The shard as views of `buffer`, the whole file."""
        vocabulary, starts, _ = self._sizes
        return Shard(
            _array(buffer, f"i{ID_BYTES}", self.distinct, self.offset),
            SuffixArray(
                _array(
                    buffer,
                    f"u{self.code_bytes}",
                    self.codes,
                    self.offset + vocabulary + starts,
                ),
                _array(
                    buffer, f"i{START_BYTES}", self.tokens, self.offset + vocabulary
                ),
            ),
            self.documents,
        )


@dataclass(frozen=True)
class Stored:
    """An index file that was opened: `open_shards` gives each shard, checking it whole
    the first time."""

    release: Release
    hash: str
    entries: tuple[ShardEntry, ...]
    open_shards: tuple[Callable[[], Shard], ...]


def write(
    path: str | os.PathLike[str], shards: Iterable[Shard], release: Release
) -> str:
    """Writes an index file, one shard at a time, and returns the hash of its record.

    Nothing is at `path` before all of it is on disk; what was there before stays until
    then. Raises `ArtifactError` where the system refuses.
    """
    path = checked_path(path)
    # Not all of a long name: the temporary one must not be too long for the system.
    part = path.with_name(f".{path.name[:32]}.{uuid.uuid4().hex}.part")
    try:
        with part.open("xb") as stream:
            stream.write(bytes(_HEADER.size))
            entries = []
            for shard in _made(shards):
                chunks, entry = _laid_out(shard, stream.tell())
                stream.writelines(chunks)
                entries.append(entry)
            record = _record(release, entries)
            place = stream.tell()
            stream.write(record)
            digest = hashlib.sha256(record)
            header = (MAGIC, VERSION, 0, place, place + len(record), digest.digest())
            stream.seek(0)
            stream.write(_HEADER.pack(*header))
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, path)
    except OSError as problem:
        raise ArtifactError(f"{path} cannot be written: {problem}") from problem
    finally:
        # It is gone when it was renamed, and never was where nothing can be written.
        with contextlib.suppress(OSError):
            part.unlink()
    return digest.hexdigest()


def _made(shards: Iterable[Shard]) -> Iterator[Shard]:
    """`shards` as they are made: what cannot be read is no fault of the index file."""
    try:
        yield from shards
    except OSError as problem:
        raise ArtifactError(f"the documents cannot be read: {problem}") from problem


def record_hash(shards: Iterable[Shard], release: Release) -> str:
    """The hash that `write` would return, without writing."""
    entries: list[ShardEntry] = []
    place = _HEADER.size
    for shard in shards:
        _, entry = _laid_out(shard, place)
        place += entry.length
        entries.append(entry)
    return hashlib.sha256(_record(release, entries)).hexdigest()


def read(path: str | os.PathLike[str], *, lazy: bool = False) -> Stored:
    """Opens an index file through a memory map.

    Header, record and length are checked at once, and every shard too unless `lazy`:
    then a shard is checked whole when it is first opened. Raises `ArtifactError` that
    names what is wrong. The file is only ever read.
    """
    path = checked_path(path)
    try:
        # A pipe would be waited for, and a device never ends.
        if not stat.S_ISREG(path.stat().st_mode):
            raise ArtifactError(f"{path} cannot be read: it is no regular file")
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            if size < _HEADER.size:
                raise ArtifactError(
                    f"{path} is {size} bytes long, which is too short for an index"
                )
            buffer = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise ArtifactError(f"there is no index file {path}") from None
    except OSError as problem:
        raise ArtifactError(f"{path} cannot be read: {problem}") from problem
    place, digest = _header(path, buffer, size)
    record = buffer[place:]
    if hashlib.sha256(record).digest() != digest:
        raise ArtifactError(f"{path}: the record is damaged, its SHA-256 differs")
    release, entries = _parsed(path, record, place)
    open_shards = tuple(
        _opener(buffer, entry, f"{path}, shard {number}")
        for number, entry in enumerate(entries)
    )
    if not lazy:
        for open_shard in open_shards:
            open_shard()
    return Stored(release, digest.hex(), entries, open_shards)


def checked_path(path: Any) -> Path:
    """`path` as a Path, or an error that says what is none."""
    if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
        raise SpecbookError(f"path must be the name of a file, got {path!r}")
    try:
        os.fsencode(path)
    except UnicodeEncodeError as problem:
        raise SpecbookError(f"path cannot be written as bytes: {problem}") from problem
    if "\0" in os.fspath(path) or not Path(path).name:
        raise SpecbookError(f"path must be the name of a file, got {path!r}")
    return Path(path)


def _opener(buffer: Any, entry: ShardEntry, where: str) -> Callable[[], Shard]:
    @cache
    def open_shard() -> Shard:
        content = memoryview(buffer)[entry.offset : entry.offset + entry.length]
        if hashlib.sha256(content).hexdigest() != entry.sha256:
            raise ArtifactError(f"{where} is damaged: its SHA-256 differs")
        return entry.read(buffer)

    return open_shard


def _header(path: Path, buffer: Any, size: int) -> tuple[int, bytes]:
    magic, version, zero, place, length, digest = _HEADER.unpack_from(buffer)
    if magic != MAGIC:
        raise ArtifactError(f"{path} is no index file: it begins with {magic!r}")
    if version != VERSION:
        raise ArtifactError(
            f"{path} has format version {version}, this specbook reads {VERSION}"
        )
    if zero:
        raise ArtifactError(f"{path}: the header is damaged, a zero in it is {zero}")
    if length != size:
        raise ArtifactError(
            f"{path} is {size} bytes long and its header says {length}: the file was "
            "cut or added to, or the header is damaged"
        )
    if not _HEADER.size <= place < size:
        raise ArtifactError(
            f"{path}: the header is damaged, the record cannot begin at byte {place}"
        )
    return place, digest


def _parsed(
    path: Path, record: bytes, place: int
) -> tuple[Release, tuple[ShardEntry, ...]]:
    try:
        values = json.loads(record)
        release, listed = values["release"], values["shards"]
        entries = tuple(ShardEntry(**entry) for entry in listed)
    except (ValueError, KeyError, TypeError, RecursionError) as problem:
        raise ArtifactError(
            f"{path}: the record cannot be read: {problem}"
        ) from problem
    expected = _HEADER.size
    for number, entry in enumerate(entries):
        where = f"{path}, shard {number}"
        entry.check(where)
        if entry.offset != expected:
            raise ArtifactError(f"{where} begins at {entry.offset}, not at {expected}")
        expected += entry.length
    if expected != place:
        raise ArtifactError(f"{path}: the shards end at {expected}, not at {place}")
    return Release.from_dict(release, str(path)), entries


def _record(release: Release, entries: Iterable[ShardEntry]) -> bytes:
    values = {
        "release": release.to_dict(),
        "shards": [asdict(entry) for entry in entries],
    }
    return json.dumps(values, sort_keys=True, separators=(",", ":")).encode("ascii")


def _laid_out(shard: Shard, offset: int) -> tuple[list[Any], ShardEntry]:
    arrays = (shard.vocabulary, shard.array.starts, shard.array.codes)
    # No copy where the machine is little-endian and the array in one piece.
    chunks: list[Any] = [
        np.ascontiguousarray(array, array.dtype.newbyteorder("<")).view(np.uint8)
        for array in arrays
    ]
    size = sum(len(chunk) for chunk in chunks)
    chunks.append(bytes(_padded(size) - size))
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    entry = ShardEntry(
        offset=offset,
        length=_padded(size),
        sha256=digest.hexdigest(),
        documents=shard.documents,
        tokens=shard.tokens,
        codes=len(shard.array.codes),
        distinct=len(shard.vocabulary),
        largest_id=shard.largest_id,
        id_bytes=shard.vocabulary.itemsize,
        start_bytes=shard.array.starts.itemsize,
        code_bytes=shard.array.codes.itemsize,
    )
    return chunks, entry


def _array(buffer: Any, kind: str, count: int, offset: int) -> np.ndarray:
    stored = np.frombuffer(buffer, f"<{kind}", count, offset)
    # A view costs nothing; "<i4" and "i4" are one type, but not to a memoryview.
    return stored.view(kind) if sys.byteorder == "little" else stored.astype(kind)


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
