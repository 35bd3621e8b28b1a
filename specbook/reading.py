"""Files from outside: only regular ones, and every failure with the file's name.

A pipe would be waited for and a device may never end, so both are refused before they
are opened; a link is followed. What is read is checked by whoever reads it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from .errors import ArtifactError

Readable = str | os.PathLike[str]
_PIECE = 1 << 20


def contents(path: Readable) -> bytes:
    """The bytes of a file. Raises `ArtifactError`, naming file and reason, for what is
    missing, is no regular file, or cannot be read."""
    with _opened(path) as stream:
        return stream.read()


def text(path: Readable) -> str:
    """The text in a file of UTF-8. Raises as `contents`, and for other bytes."""
    try:
        return contents(path).decode("utf-8")
    except UnicodeDecodeError as problem:
        raise ArtifactError(f"{path} cannot be read: {problem}") from problem


def json_object(path: Readable, what: str) -> dict[str, Any]:
    """The JSON object in a file; `what` it should be, for the message.

    A name that stands twice is refused, which readers of JSON resolve each in their own
    way, and so is NaN, which is no JSON. Raises `ArtifactError`, naming file and
    reason.
    """
    told = text(path)
    try:
        found = json.loads(told, object_pairs_hook=_once, parse_constant=_no_number)
    except (ValueError, RecursionError) as problem:
        raise ArtifactError(f"{path} is not {what}: {problem}") from problem
    if not isinstance(found, dict):
        raise ArtifactError(f"{path} is not {what}: no JSON object")
    return found


def sha256(path: Readable) -> str:
    """SHA-256 (hex) of a file's bytes. Raises as `contents`."""
    found = hashlib.sha256()
    with _opened(path) as stream:  # piece by piece: an index may be larger than memory
        while piece := stream.read(_PIECE):
            found.update(piece)
    return found.hexdigest()


def digests(paths: Iterable[Readable]) -> dict[str, str]:
    """{file name: SHA-256 (hex)}; files of one name are told apart by their paths.
    Raises as `contents`."""
    found: dict[Path, str] = {}
    for path in paths:
        digest = sha256(path)
        found[Path(path)] = digest
    names = [path.name for path in found]
    return {
        path.name if names.count(path.name) == 1 else str(path): digest
        for path, digest in found.items()
    }


@contextlib.contextmanager
def _opened(path: Readable) -> Iterator[BinaryIO]:
    if not isinstance(path, (str, os.PathLike)):
        raise ArtifactError(f"not the path of a file: {path!r:.80}")
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ArtifactError(f"{path} cannot be read: it is no regular file")
        with open(path, "rb") as stream:
            yield stream
    except FileNotFoundError:
        raise ArtifactError(f"there is no file {path}") from None
    except (OSError, ValueError, MemoryError) as problem:
        if isinstance(problem, ArtifactError):
            raise
        raise ArtifactError(f"{path} cannot be read: {problem}") from problem


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        told = [name for name, _ in pairs]
        twice = sorted({name for name in told if told.count(name) > 1})
        raise ValueError(f"{twice} stand twice")
    return found


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")
