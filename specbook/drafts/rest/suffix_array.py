"""A suffix array: every suffix of a text, in order, so that what starts alike is one
interval.

The text is a row of codes in which 0 ends a document and is smaller than every token.
A pattern has no 0 in it, so no match crosses a border, and a continuation ends at the
next 0. Finding a pattern costs two binary searches whatever the size of its answer.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from importlib import metadata

import numpy as np

from ...errors import SpecbookError

BORDER = 0
"""The code that ends a document."""

MOST_CODES = 2**31 - 1
"""The longest text of one array: its positions are int32."""

BUILDER = "pydivsufsort"


def sorted_suffixes(codes: np.ndarray) -> np.ndarray:
    """The start of every suffix that begins with a token, in order, int32.

    `codes`: unsigned integers [n] that end with a border. Built by libdivsufsort.
    """
    if len(codes) > MOST_CODES:
        raise SpecbookError(
            f"{len(codes)} codes are more than one suffix array holds ({MOST_CODES}); "
            "build the datastore in shards"
        )
    try:
        from pydivsufsort import divsufsort
    except ImportError as problem:
        raise SpecbookError(
            f"building a datastore needs the package {BUILDER}, reading one does not; "
            f"`python -m pip install {BUILDER}` gets it"
        ) from problem
    # The borders are the smallest code, so their suffixes come first.
    borders = int(np.count_nonzero(codes == BORDER))
    # Its type has another name than int32, which a memoryview does not know.
    return divsufsort(codes)[borders:].astype(np.int32)


def builder() -> str:
    """Name and version of what sorts the suffixes."""
    return f"{BUILDER} {metadata.version(BUILDER)}"


class SuffixArray:
    """`codes` [n] and `starts` [t], the sorted starts of its t tokens.

    An interval `(low, high)` of `starts` stands for all occurrences of one pattern.
    """

    def __init__(self, codes: np.ndarray, starts: np.ndarray) -> None:
        self.codes = codes
        self.starts = starts
        # An item of a memoryview is a Python int and costs less than one of an array.
        self._codes = codes.data
        self._starts = starts.data

    def interval(self, pattern: list[int]) -> tuple[int, int]:
        """The occurrences of `pattern`, which holds no border; empty where none."""
        codes, size = self._codes, len(pattern)

        def head(start: int) -> list[int]:
            return codes[start : start + size].tolist()

        low = bisect_left(self._starts, pattern, key=head)
        return low, bisect_right(self._starts, pattern, low, key=head)

    def narrow(self, low: int, high: int, offset: int, code: int) -> tuple[int, int]:
        """The part of an interval whose code `offset` after the start is `code`.
        The interval's occurrences agree up to there."""
        codes = self._codes

        def next_code(start: int) -> int:
            return codes[start + offset]

        low = bisect_left(self._starts, code, low, high, key=next_code)
        return low, bisect_right(self._starts, code, low, high, key=next_code)

    def continued(self, pattern: list[int]) -> tuple[int, int]:
        """The occurrences of `pattern` that something follows in their document."""
        low, high = self.interval(pattern)
        if low < high:
            low = self.narrow(low, high, len(pattern), BORDER)[1]
        return low, high

    def longest(self, tail: list[int]) -> tuple[int, int, int]:
        """`(length, low, high)` of the longest end of `tail` that has a continuation;
        length 0 where none has. An end that has one gives one to every shorter end, so
        the length can be halved towards."""
        found = (0, 0, 0)
        least, most = 1, len(tail)
        while least <= most:
            size = (least + most) // 2
            low, high = self.continued(tail[-size:])
            if low < high:
                found, least = (size, low, high), size + 1
            else:
                most = size - 1
        return found

    def following(self, positions: np.ndarray, length: int) -> np.ndarray:
        """The codes at and after `positions` [R] of the text: [R, length], borders from
        the first one on."""
        cells = self.codes.take(positions[:, None] + np.arange(length), mode="clip")
        cells *= np.logical_and.accumulate(cells != BORDER, axis=1)
        return cells

    def continuations(self, low: int, high: int, offset: int, length: int) -> list:
        """What follows each occurrence of an interval, in text order: lists of at most
        `length` codes; empty ones are left out."""
        found = []
        for start in np.sort(self.starts[low:high]).tolist():
            codes = self._codes[start + offset : start + offset + length].tolist()
            if BORDER in codes:
                codes = codes[: codes.index(BORDER)]
            if codes:
                found.append(codes)
        return found
