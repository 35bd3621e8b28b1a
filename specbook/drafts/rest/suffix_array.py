"""A suffix array: every suffix of a text, in order, so that what starts alike is one
interval.

The text is a row of codes in which 0 ends a document and is smaller than every token.
A pattern has no 0 in it, so no match crosses a border, and a continuation ends at the
next 0. Finding a pattern costs two binary searches for each of its codes but the first,
whatever the size of its answer.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from importlib import metadata

import numpy as np

from ...errors import SpecbookError

BORDER = 0
"""The code that ends a document."""

MOST_CODES = 2**31 - 1
"""The longest text of one array: its positions are int32."""

BUILDER = "pydivsufsort"

_AT_ONCE = 1 << 20


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
    `edges` [c + 2]: those that begin with code c are `edges[c]` to `edges[c + 1]`, so
    that a search begins with few; it is as short as the alphabet.
    """

    def __init__(self, codes: np.ndarray, starts: np.ndarray) -> None:
        self.codes = codes
        self.starts = starts
        self.edges = _edges(codes)
        # An item of a memoryview is a Python int and costs less than one of an array.
        self.text = codes.data
        self.places = starts.data
        self._edges = self.edges.data

    def interval(self, pattern: Sequence[int]) -> tuple[int, int]:
        """The occurrences of `pattern` (codes that the text has, no border); empty
        where none."""
        text, places = self.text, self.places
        first = pattern[0]
        low, high = self._edges[first], self._edges[first + 1]
        # Those that are left agree up to an offset, and are sorted by what comes next.
        for offset in range(1, len(pattern)):
            code = pattern[offset]

            def next_code(start: int, offset: int = offset) -> int:
                return text[start + offset]

            low = bisect_left(places, code, low, high, key=next_code)
            if low == high or next_code(places[low]) != code:
                return low, low
            high = bisect_right(places, code, low + 1, high, key=next_code)
        return low, high

    def continued(self, pattern: Sequence[int]) -> tuple[int, int]:
        """The occurrences of `pattern` that something follows in their document."""
        low, high = self.interval(pattern)
        text, size = self.text, len(pattern)
        # Those that nothing follows come first.
        if low < high and text[self.places[low] + size] == BORDER:
            low = bisect_right(
                self.places, BORDER, low, high, key=lambda start: text[start + size]
            )
        return low, high

    def continuations(self, low: int, high: int, offset: int, length: int) -> list:
        """What follows each occurrence of an interval, in text order: lists of at most
        `length` codes; empty ones are left out."""
        found = []
        for start in np.sort(self.starts[low:high]).tolist():
            codes = self.text[start + offset : start + offset + length].tolist()
            if BORDER in codes:
                codes = codes[: codes.index(BORDER)]
            if codes:
                found.append(codes)
        return found


def _edges(codes: np.ndarray) -> np.ndarray:
    """How many tokens have a smaller code, for each code and the one after the last."""
    counts = np.zeros(1, dtype=np.intp)
    # Counting makes a copy of eight bytes a code.
    for part in range(0, len(codes), _AT_ONCE):
        some = np.bincount(codes[part : part + _AT_ONCE], minlength=len(counts))
        some[: len(counts)] += counts
        counts = some
    counts[BORDER] = 0
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
