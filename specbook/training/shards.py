"""Teacher rows on disk: one safetensors file for each batch of sequences.

A file is written whole or not at all and carries the key of what made it, so that a
run that was interrupted goes on with the files it finds, and rows of another teacher
or another recipe are refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from .. import checks
from ..errors import ArtifactError, SpecbookError
from .decoding import TaughtSequence

FORMAT = "specbook teacher rows 1"
_NAMES = ("tokens", "lengths", "first_rows", "prompt_lengths", "top_ids", "top_logps")


def write(
    path: str | os.PathLike[str],
    sequences: Sequence[TaughtSequence],
    *,
    key: str,
    about: dict[str, Any] | None = None,
) -> str:
    """Write one shard, atomically; returns the sha256 of the file.

    `key` names what made the rows. `about`: plain facts kept with them. Ids are kept
    in the least width that holds them, log-probabilities in float16.
    """
    checks.text(key, "key")
    taught = checks.entries(sequences, "sequences", "taught sequences")
    if not taught:
        raise SpecbookError("a shard needs at least one sequence")
    widths = {sequence.top_ids.shape[1] for sequence in taught}
    if len(widths) != 1:
        raise SpecbookError(f"all rows of a shard have one top_k, got {sorted(widths)}")
    for index, sequence in enumerate(taught):
        rows = len(sequence.tokens) - 1 - sequence.first_row
        if not len(sequence.top_ids) == len(sequence.top_logps) == rows:
            raise SpecbookError(
                f"sequences[{index}] has {len(sequence.top_ids)} rows, its tokens "
                f"have {rows}"
            )
    tokens = np.concatenate([sequence.tokens for sequence in taught])
    top_ids = np.concatenate([sequence.top_ids for sequence in taught])
    largest = int(max(tokens.max(), top_ids.max(initial=0)))
    if min(tokens.min(), top_ids.min(initial=0)) < 0:
        raise SpecbookError("a token id is negative")
    ids: Any = np.uint16 if largest < 1 << 16 else np.uint32
    noted = {"format": FORMAT, "key": key, "about": about or {}}
    content = save(
        {
            "tokens": tokens.astype(ids),
            "lengths": np.array([len(s.tokens) for s in taught], dtype=np.int32),
            "first_rows": np.array([s.first_row for s in taught], dtype=np.int32),
            "prompt_lengths": np.array(
                [s.prompt_length for s in taught], dtype=np.int32
            ),
            "top_ids": top_ids.astype(ids),
            "top_logps": np.concatenate([s.top_logps for s in taught]).astype(
                np.float16
            ),
        },
        # One entry: with several, their order in the file would be random.
        metadata={"specbook": json.dumps(noted, sort_keys=True)},
    )
    write_bytes(Path(path), content)
    return hashlib.sha256(content).hexdigest()


def read(
    path: str | os.PathLike[str], *, key: str
) -> tuple[list[TaughtSequence], dict[str, Any]]:
    """The sequences of a shard, and what was noted about them. Raises `ArtifactError`
    for a file that is missing, damaged, of another form, or made by another `key`."""
    path = Path(path)
    try:
        with safe_open(path, framework="numpy") as stored:
            noted = json.loads((stored.metadata() or {}).get("specbook", "null"))
            found = {name: stored.get_tensor(name) for name in stored.keys()}
    except FileNotFoundError:
        raise ArtifactError(f"{path} is missing") from None
    except (OSError, ValueError, SafetensorError) as problem:
        raise ArtifactError(f"{path} cannot be read: {problem}") from problem
    known = isinstance(noted, dict) and noted.get("format") == FORMAT
    if not known or set(found) != set(_NAMES):
        raise ArtifactError(f"{path} is not a file of {FORMAT!r}")
    if noted.get("key") != key:
        raise ArtifactError(
            f"{path} was made by another teacher or recipe: its key is "
            f"{noted.get('key')!r}, expected {key!r}"
        )
    _check_arrays(found, path)
    lengths, firsts = found["lengths"], found["first_rows"]
    rows = lengths - 1 - firsts
    if (
        rows.min(initial=0) < 0
        or firsts.min(initial=0) < 0
        or lengths.sum() != len(found["tokens"])
        or not rows.sum() == len(found["top_ids"]) == len(found["top_logps"])
    ):
        raise ArtifactError(f"{path}: its lengths do not add up to its rows")
    token_ends, row_ends = np.cumsum(lengths), np.cumsum(rows)
    sequences = [
        TaughtSequence(
            found["tokens"][token_ends[i] - lengths[i] : token_ends[i]].astype(
                np.int64
            ),
            int(firsts[i]),
            int(found["prompt_lengths"][i]),
            found["top_ids"][row_ends[i] - rows[i] : row_ends[i]].astype(np.int64),
            found["top_logps"][row_ends[i] - rows[i] : row_ends[i]].astype(np.float32),
        )
        for i in range(len(lengths))
    ]
    return sequences, dict(noted["about"])


def _check_arrays(found: dict[str, np.ndarray], path: Path) -> None:
    """Raise `ArtifactError` unless the arrays are of the kinds that `write` writes."""
    for name, array in found.items():
        kind, axes = (
            ("f", 2) if name == "top_logps" else ("iu", 2 if "top" in name else 1)
        )
        if array.dtype.kind not in kind or array.ndim != axes:
            raise ArtifactError(
                f"{path}: {name} is {array.dtype} {list(array.shape)}, not what a "
                "shard holds"
            )
    for one, other in (
        ("lengths", "first_rows"),
        ("lengths", "prompt_lengths"),
        ("top_ids", "top_logps"),
    ):
        if found[one].shape != found[other].shape:
            raise ArtifactError(
                f"{path}: {one} is {list(found[one].shape)} and {other} "
                f"{list(found[other].shape)}"
            )


def file_sha256(path: Path) -> str:
    """The sha256 of a file's bytes. Raises `ArtifactError` when it cannot be read."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as problem:
        raise ArtifactError(f"{path} cannot be read: {problem}") from None


def digest(lines: Iterable[str]) -> str:
    """One sha256 over lines of text."""
    return hashlib.sha256("\n".join(lines).encode("utf-8")).hexdigest()


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole: to a name of its own beside it, then renamed. Raises
    `ArtifactError` where the system refuses."""
    stamp = f"{os.getpid()}-{threading.get_ident()}-{time.monotonic_ns()}"
    part = path.with_name(f".{path.name}-{stamp}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, path)
    except OSError as problem:
        raise ArtifactError(f"{path} cannot be written: {problem}") from problem
    finally:
        # It is gone when it was renamed, and never was where nothing can be written.
        with contextlib.suppress(OSError):
            part.unlink()
