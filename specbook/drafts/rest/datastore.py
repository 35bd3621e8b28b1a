"""The datastore: documents as token ids, and what followed a suffix in them (0x04B).

A context-continuation pair of the article is a position here: the tokens before it are
its context and the tokens after it its continuation, so nothing is stored but the
documents and their suffix array. Neither a match nor a continuation crosses from one
document into the next unless the datastore was built with `cross_borders`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import numpy as np

from ... import checks
from ...errors import ArtifactError, SpecbookError
from . import storage
from .nodes import Ranked, TrieNode
from .ranking import Match, best_nodes
from .release import Release, declared
from .shard import Shard
from .suffix_array import builder

LARGEST_ID = 2**63 - 1
SHARD_TOKENS = 1 << 24
"""Tokens of a shard when a datastore is built to a file: building one takes about half
a gigabyte of memory."""


class Datastore:
    """An immutable index. Make one with `build`, `build_to` or `load`.

    `release`: what it binds. `documents` and `tokens`: how many there are; empty
    documents do not count. `largest_id`: of the corpus; -1 where it is empty.
    """

    def __init__(
        self,
        release: Release,
        open_shards: Sequence[Callable[[], Shard]],
        sizes: Sequence[Shard | storage.ShardEntry],
        record_hash: str | None = None,
    ) -> None:
        self.release = release
        self.documents = sum(size.documents for size in sizes)
        self.tokens = sum(size.tokens for size in sizes)
        self.largest_id = max((size.largest_id for size in sizes), default=-1)
        self._open_shards = tuple(open_shards)
        self._hash = record_hash

    # ------------------------------------------------------------------ making

    @classmethod
    def build(
        cls,
        documents: Iterable[Iterable[int]],
        *,
        shard_tokens: int | None = None,
        **items: Any,
    ) -> Datastore:
        """A datastore in memory.

        `documents`: sequences of token ids (0 to 2**63 - 1), lists or integer arrays;
        in empty ones there is nothing to find. `shard_tokens`: begin a new shard when
        the next document would make one larger; None is one shard. `items`: what the
        release declares and its two lengths, see `release.Release` (`corpus`,
        `licence`, `tokenizer`, `continuation_length`, `cross_borders`, ...). Raises
        `SpecbookError` naming the document and the place of a bad id.
        """
        release, shards = _building(documents, shard_tokens, items)
        made = list(shards)
        return cls(release, [_given(shard) for shard in made], made)

    @classmethod
    def build_to(
        cls,
        path: str | os.PathLike[str],
        documents: Iterable[Iterable[int]],
        *,
        shard_tokens: int = SHARD_TOKENS,
        **items: Any,
    ) -> Datastore:
        """As `build`, into the file `path` and with one shard in memory at a time, so
        the corpus may be larger than memory. The result is loaded from the file."""
        storage.checked_path(path)
        checks.integer(shard_tokens, "shard_tokens", least=1)
        release, shards = _building(documents, shard_tokens, items)
        storage.write(path, shards, release)
        return cls.load(path, lazy=True)

    def save(self, path: str | os.PathLike[str]) -> str:
        """Writes the index to `path`, whole or not at all, and returns its hash."""
        self._hash = storage.write(path, self._shards(), self.release)
        return self._hash

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        tokenizer: str | None = None,
        lazy: bool = False,
    ) -> Datastore:
        """The index in the file `path`, memory-mapped.

        `tokenizer`: the identity of the one in use; an index that was bound to another,
        or to none, is refused. `lazy`: check a shard when it is first opened and not
        now. Raises `ArtifactError` naming what is missing, damaged or different.
        """
        checks.boolean(lazy, "lazy")
        if tokenizer is not None:
            checks.text(tokenizer, "tokenizer")
        stored = storage.read(path, lazy=lazy)
        if tokenizer is not None and tokenizer != stored.release.tokenizer:
            raise ArtifactError(
                f"{os.fspath(path)} was made with tokenizer "
                f"{stored.release.tokenizer!r}, the one in use is {tokenizer!r}"
            )
        # The record is checked, so the sizes are known before a shard is opened.
        return cls(stored.release, stored.open_shards, stored.entries, stored.hash)

    # ----------------------------------------------------------------- looking

    def count(self, pattern: Iterable[int]) -> int:
        """How often `pattern` (at least one id) occurs in the documents."""
        return self._count(_pattern(pattern, "pattern"))

    def continuations(self, suffix: Iterable[int]) -> list[list[int]]:
        """What followed each occurrence of `suffix` (at least one id, no back-off), in
        corpus order: lists of ids, at most `release.continuation_length` long. An
        occurrence that nothing follows is a miss and gives none."""
        tokens = _pattern(suffix, "suffix")
        length = self.release.continuation_length
        found = []
        for shard in self._shards():
            found += shard.continuations(tokens, length)
        return found

    def longest_suffix(self, prefix: Iterable[int], max_suffix: int) -> int:
        """The length of the longest end of `prefix`, at most `max_suffix` tokens, that
        has a continuation; 0 where none has."""
        tokens = checks.token_ids(prefix, "prefix")
        checks.integer(max_suffix, "max_suffix", least=0)
        matches = self._matches(_tail(tokens, max_suffix))
        return matches[0].offset if matches else 0

    def best_nodes(
        self,
        prefix: Iterable[int],
        max_suffix: int,
        node_budget: int,
        *,
        max_depth: int | None = None,
    ) -> list[TrieNode]:
        """The `node_budget` best nodes of the trie of all continuations of the longest
        suffix of `prefix` that has any, by rank; none on a miss.

        `max_suffix`: in tokens; shorter suffixes are tried down to one token.
        `max_depth`: in edges, at most (and by default) the continuation length. Exact
        whatever the number of matches, which are not enumerated.
        """
        return self._asked(prefix, max_suffix, node_budget, max_depth).nodes()

    def _asked(
        self, prefix: Any, max_suffix: Any, node_budget: Any, max_depth: Any
    ) -> Ranked:
        tokens = checks.token_ids(prefix, "prefix")
        checks.integer(max_suffix, "max_suffix", least=0)
        checks.integer(node_budget, "node_budget", least=0)
        depth = self.release.continuation_length
        if max_depth is not None:
            depth = min(depth, checks.integer(max_depth, "max_depth", least=0))
        return self._ranked(_tail(tokens, max_suffix), node_budget, depth)

    def _ranked(self, tail: Sequence[int], node_budget: int, depth: int) -> Ranked:
        matches = self._matches(tail) if node_budget and depth else []
        return best_nodes(matches, node_budget, depth)

    def _count(self, tokens: Sequence[int]) -> int:
        intervals = [shard.interval(tokens) for shard in self._shards()]
        return sum(high - low for low, high in intervals)

    def _matches(self, tail: Sequence[int]) -> list[Match]:
        """Where the longest end of `tail` that has a continuation occurs."""
        if not len(tail):
            return []
        found = [(shard, *shard.longest(tail)) for shard in self._shards()]
        longest = max([size for _, size, _ in found], default=0)
        return [
            Match(shard, starts, size)
            for shard, size, starts in found
            if size == longest > 0
        ]

    # ------------------------------------------------------------------- facts

    @property
    def hash(self) -> str:
        """SHA-256 (hex) of the record, which binds every byte of the shards."""
        if self._hash is None:
            self._hash = storage.record_hash(self._shards(), self.release)
        return self._hash

    @property
    def shards(self) -> int:
        """How many shards there are."""
        return len(self._open_shards)

    def __repr__(self) -> str:
        return (
            f"Datastore({self.documents} documents, {self.tokens} tokens, "
            f"{self.shards} shards)"
        )

    def _shards(self) -> Iterator[Shard]:
        return (open_shard() for open_shard in self._open_shards)


def _building(
    documents: Any, shard_tokens: int | None, items: Mapping[str, Any]
) -> tuple[Release, Iterator[Shard]]:
    release = replace(declared(items), builder=f"{Release.builder}, {builder()}")
    if shard_tokens is not None:
        checks.integer(shard_tokens, "shard_tokens", least=1)
    if isinstance(documents, (str, bytes, Mapping, Set)) or not isinstance(
        documents, Iterable
    ):
        raise SpecbookError(
            f"documents must be a sequence of token sequences, got {documents!r}"
        )
    return release, _built(documents, shard_tokens, release.cross_borders)


def _built(
    documents: Iterable[Any], shard_tokens: int | None, cross_borders: bool
) -> Iterator[Shard]:
    waiting: list[np.ndarray] = []
    size = 0
    for number, document in enumerate(documents):
        ids = _ids(document, f"documents[{number}]")
        if waiting and shard_tokens is not None and size + len(ids) > shard_tokens:
            if cross_borders:
                raise SpecbookError(
                    f"documents[{number}] would begin a second shard, and a match "
                    "cannot cross from one shard into the next; raise shard_tokens or "
                    "leave cross_borders"
                )
            yield Shard.build(waiting, cross_borders=cross_borders)
            waiting, size = [], 0
        if len(ids):
            waiting.append(ids)
            size += len(ids)
    if waiting:
        yield Shard.build(waiting, cross_borders=cross_borders)


def _ids(document: Any, name: str) -> np.ndarray:
    """The ids of a document, int64."""
    if isinstance(document, np.ndarray) and np.issubdtype(document.dtype, np.integer):
        if document.ndim != 1:
            raise SpecbookError(f"{name} must be one row of ids, got {document.shape}")
        if len(document) and document.min() < 0:
            place = int(document.argmin())
            raise SpecbookError(f"{name}[{place}] = {document[place]} is negative")
        largest = int(document.max()) if len(document) else 0
        ids: Any = document
    else:
        ids = checks.token_ids(document, name)
        largest = max(ids, default=0)
    if largest > LARGEST_ID:
        place = list(ids).index(largest)
        raise SpecbookError(f"{name}[{place}] = {largest} is above {LARGEST_ID}")
    return np.array(ids, dtype=np.int64)


def _pattern(tokens: Any, name: str) -> list[int]:
    checked = checks.token_ids(tokens, name)
    if not checked:
        raise SpecbookError(f"{name} must hold at least one token id")
    return checked


def _tail(tokens: list[int], length: int) -> list[int]:
    return tokens[max(0, len(tokens) - length) :]


def _given(shard: Shard) -> Callable[[], Shard]:
    return lambda: shard
