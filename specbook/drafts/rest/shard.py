"""A shard: some whole documents over their own dense alphabet, and their suffix array.

The distinct ids of the shard, in order, are numbered from 1, and 0 ends a document.
Codes keep the order of the ids, take one, two or four bytes whatever the ids are, and
an id that the shard has never seen cannot match by accident.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import SpecbookError
from .suffix_array import BORDER, SuffixArray, sorted_suffixes

CODE_WIDTHS = (1, 2, 4)
"""Bytes of a code, the least that hold the alphabet and the border."""


@dataclass(frozen=True, eq=False)
class Shard:
    """`vocabulary`: the distinct ids, sorted, int64 [K]; code c is id
    `vocabulary[c - 1]`. `array`: the documents' codes and their suffix array."""

    vocabulary: np.ndarray
    array: SuffixArray
    documents: int

    @classmethod
    def build(cls, documents: Sequence[np.ndarray], *, cross_borders: bool) -> Shard:
        """A shard of `documents` (int64 arrays of ids, none empty, at least one)."""
        text = np.concatenate(documents)
        vocabulary = np.unique(text)
        ends = np.cumsum([len(document) for document in documents])
        if cross_borders:
            ends = ends[-1:]
        codes = np.zeros(len(text) + len(ends), code_type(len(vocabulary)))
        tokens = np.ones(len(codes), dtype=bool)
        tokens[ends + np.arange(len(ends))] = False
        codes[tokens] = np.searchsorted(vocabulary, text) + 1
        array = SuffixArray(codes, sorted_suffixes(codes))
        return cls(vocabulary, array, len(documents))

    @property
    def tokens(self) -> int:
        """How many tokens the documents have together."""
        return len(self.array.starts)

    @property
    def largest_id(self) -> int:
        """The largest id of the documents."""
        return int(self.vocabulary[-1])

    def code(self, token: int) -> int:
        """The code of an id; the border for one that the shard does not hold."""
        # Faster for one id than numpy's own search.
        ids = self.vocabulary.data
        place = bisect_left(ids, token)
        return place + 1 if place < len(ids) and ids[place] == token else BORDER

    def encode(self, tokens: Sequence[int]) -> list[int]:
        """The codes of ids; the border for an id that the shard does not hold."""
        try:
            wanted = np.array(tokens, dtype=np.int64)
        except OverflowError:
            return [self.code(t) if t <= self.largest_id else BORDER for t in tokens]
        places = np.searchsorted(self.vocabulary, wanted)
        held = self.vocabulary.take(places, mode="clip") == wanted
        return np.where(held, places + 1, BORDER).tolist()

    def decode(self, codes: Sequence[int]) -> list[int]:
        """The ids of codes that hold no border."""
        return self.vocabulary[np.array(codes, dtype=np.intp) - 1].tolist()

    def interval(self, tokens: Sequence[int]) -> tuple[int, int]:
        """The occurrences of `tokens`, as an interval of the suffix array."""
        codes = self.encode(tokens)
        return (0, 0) if BORDER in codes else self.array.interval(codes)

    def narrow(self, low: int, high: int, offset: int, token: int) -> tuple[int, int]:
        """The part of an interval in which `token` stands `offset` after the start."""
        code = self.code(token)
        # A border is what ends a document, not a token that is not there.
        return (
            (low, low) if code == BORDER else self.array.narrow(low, high, offset, code)
        )

    def longest(self, tail: Sequence[int]) -> tuple[int, int, int]:
        """`(length, low, high)` of the longest end of `tail` that goes on."""
        codes = self.encode(tail)
        for position in range(len(codes) - 1, -1, -1):
            if codes[position] == BORDER:
                codes = codes[position + 1 :]
                break
        return self.array.longest(codes)

    def continuations(self, tokens: Sequence[int], length: int) -> list[list[int]]:
        """What follows each occurrence of `tokens`, in corpus order, at most `length`
        ids each; an occurrence that nothing follows is left out."""
        low, high = self.interval(tokens)
        found = self.array.continuations(low, high, len(tokens), length)
        return [self.decode(codes) for codes in found]


def code_type(distinct: int) -> np.dtype:
    """The least unsigned type for `distinct` ids and the border."""
    for width in CODE_WIDTHS:
        if distinct < 1 << (8 * width):
            return np.dtype(f"u{width}")
    raise SpecbookError(f"{distinct} distinct ids are more than a shard can number")
