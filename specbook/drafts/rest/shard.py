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

FEW = 512
"""So many places are followed back sooner than searched for once more."""

SEVERAL = 24
"""So many are followed back by numpy, fewer sooner without."""

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
        ids = self.vocabulary.data
        return [ids[code - 1] for code in codes]

    def interval(self, tokens: Sequence[int]) -> tuple[int, int]:
        """The occurrences of `tokens`, as an interval of the suffix array."""
        codes = self.encode(tokens)
        return (0, 0) if BORDER in codes else self.array.interval(codes)

    def longest(self, tail: Sequence[int]) -> tuple[int, Sequence[int]]:
        """The length of the longest end of `tail` that goes on, 0 where none does; and
        where it stands: starts in the order of what begins there.

        An end that has a continuation gives one to every shorter end, so the length is
        doubled, then halved towards. A longer end stands where a shorter one does: as
        soon as these places are few, each is followed back.
        """
        array = self.array
        codes: list[int] = []  # of the tail, the last one first
        least, most = 0, len(tail)
        low = high = 0
        while least < most and (least == 0 or high - low > FEW):
            # Most find two tokens, and one alone is in many places.
            size = min(2 * least or 2, (least + most + 1) // 2)
            while len(codes) < size and (code := self.code(tail[-1 - len(codes)])):
                codes.append(code)
            if len(codes) < size:
                most = len(codes)
                continue
            found = array.continued(codes[size - 1 :: -1])
            if found[0] < found[1]:
                least, (low, high) = size, found
            else:
                most = size - 1
        starts: Sequence[int] = array.places[low:high]
        text = array.text
        while least < most and (code := self.code(tail[-1 - least])):
            # Before the first token stands the last code, which is a border.
            if len(starts) > SEVERAL:
                places = np.asarray(starts) - 1
                before = places[array.codes.take(places) == code].data
            else:
                before = [start - 1 for start in starts if text[start - 1] == code]
            if not len(before):
                break
            least, starts = least + 1, before
        return least, starts

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
