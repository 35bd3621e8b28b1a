"""The frozen target's hidden states on disk: computed once, read batch by batch.

Heads are small, so most of their training is the target's forward, and every pass and
every kind of heads would compute the same states again. A store keeps them beside the
teacher rows, in the target's own dtype: d numbers a token. Nothing but the documents of
one batch is ever in memory.

A document is found by its tokens, whatever batch it comes in. Its states are those of a
forward over it alone, which differ from those of a packed forward by rounding: training
from a store is a setting of its own, and what it read is part of what binds a run.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from .. import checks
from ..errors import ArtifactError, SpecbookError
from ..models.target import check_model
from . import shards
from .packed import segment_causal_states, trunk_states

FORMAT = "specbook hidden states 1"
DOCUMENTS = 64
"""In one file."""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class StoredStates:
    """Where the states of each document lie. `places`: name of a document to file,
    first row and rows; `sha256`: of all that is stored, in order."""

    places: dict[str, tuple[Any, int, int]]
    sha256: str

    def read(self, tokens: Sequence[int]) -> torch.Tensor:
        """The states [n, d] of a whole document, in the dtype of the target. Raises
        `SpecbookError` for one that is not stored."""
        name = document(tokens)
        if name not in self.places:
            raise SpecbookError(
                f"the states of a document of {len(tokens)} tokens are not stored"
            )
        file, first, rows = self.places[name]
        return file.get_slice("states")[first : first + rows]

    def described(self) -> dict[str, Any]:
        """As plain JSON, for a manifest."""
        return {"documents": len(self.places), "sha256": self.sha256}


def document(tokens: Sequence[int]) -> str:
    """The name of a document: the sha256 of its ids."""
    tokens = checks.token_ids(tokens)
    return hashlib.sha256(np.asarray(tokens, dtype="<i8").tobytes()).hexdigest()


def store(
    model: Any,
    documents: Iterable[Sequence[int]],
    *,
    folder: str | os.PathLike[str],
    key: str,
    boundary: int | None = None,
    progress: Progress | None = None,
) -> StoredStates:
    """The states of `documents` (token ids), computed where `folder` lacks them.

    `model`: a frozen causal LM of transformers, and `key` what its weights are.
    `boundary`: above how many layers (`packed.trunk_states`); None is above all, as the
    LM head reads them. A file is named by these, the dtype and its documents, so a
    store that was interrupted, or gets more documents at its end, goes on with the
    files it finds. Raises `ArtifactError` for one that is damaged or holds anything
    else, and `SpecbookError` for documents that are no token ids or empty.
    """
    say = progress or (lambda line: None)
    check_model(model)
    checks.text(key, "key")
    if boundary is not None:
        key = f"{key} at {checks.integer(boundary, 'boundary', least=1)}"
    if not isinstance(folder, (str, os.PathLike)):
        raise SpecbookError(f"folder must be a folder, got {folder!r}")
    dtype = str(model.get_output_embeddings().weight.dtype).removeprefix("torch.")
    listed = checks.entries(documents, "documents", "lists of token ids")
    unique = list({document(ids): ids for ids in listed}.items())
    places: dict[str, tuple[Any, int, int]] = {}
    hashes = []
    clock, made = time.monotonic(), 0
    for begin in range(0, len(unique), DOCUMENTS):
        group = unique[begin : begin + DOCUMENTS]
        whole = shards.digest([FORMAT, key, dtype, *(name for name, _ in group)])
        path = Path(folder) / f"states-{whole[:16]}.safetensors"
        if not path.exists():
            shards.write_bytes(path, _computed(model, boundary, group, key=whole))
            made += sum(len(ids) for _, ids in group)
            speed = made / (time.monotonic() - clock)
            done = begin + len(group)
            say(f"states of {done} of {len(unique)} documents, {speed:.0f} rows/s")
        file, sha256 = _opened(path, key=whole, rows=sum(len(ids) for _, ids in group))
        hashes.append(sha256)
        first = 0
        for name, ids in group:
            places[name] = (file, first, len(ids))
            first += len(ids)
    return StoredStates(places, shards.digest(hashes))


_Group = Sequence[tuple[str, Sequence[int]]]


def _computed(model: Any, boundary: int | None, group: _Group, *, key: str) -> bytes:
    """The content of one file."""
    found = [_states(model, boundary, ids) for _, ids in group]
    states = torch.cat(found).cpu().contiguous()
    noted = {
        "format": FORMAT,
        "key": key,
        "sha256": _digest(states),
    }
    content: bytes = save(
        {"states": states}, metadata={"specbook": json.dumps(noted, sort_keys=True)}
    )
    return content


def _states(model: Any, boundary: int | None, ids: Sequence[int]) -> torch.Tensor:
    """Of one document alone."""
    segments = [0] * len(ids)
    if boundary is None:
        return segment_causal_states(model, ids, segments)
    return trunk_states(model, boundary, ids, segments)


def _opened(path: Path, *, key: str, rows: int) -> tuple[Any, str]:
    """A file that was looked at whole, to be read piece by piece; its states' hash."""
    try:
        file = safe_open(path, framework="pt")
        noted = json.loads((file.metadata() or {}).get("specbook", "null"))
        states = file.get_tensor("states")
    except (OSError, ValueError, RecursionError, SafetensorError) as problem:
        raise ArtifactError(f"{path} cannot be read: {problem}") from problem
    if not isinstance(noted, dict) or noted.get("format") != FORMAT:
        raise ArtifactError(f"{path} is not a file of {FORMAT!r}")
    if noted.get("key") != key:
        raise ArtifactError(f"{path} holds the states of other documents or weights")
    if states.dim() != 2 or len(states) != rows:
        raise ArtifactError(
            f"{path} holds states {list(states.shape)} for documents of {rows} tokens"
        )
    if noted.get("sha256") != _digest(states):
        raise ArtifactError(f"{path} is damaged: its states have another hash")
    return file, str(noted["sha256"])


def _digest(states: torch.Tensor) -> str:
    """Of shape, dtype and bytes."""
    told = f"{states.dtype} {list(states.shape)} ".encode()
    content = states.view(torch.uint8).numpy().data
    return hashlib.sha256(told + content).hexdigest()
