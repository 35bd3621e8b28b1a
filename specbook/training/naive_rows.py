"""Teacher rows that must not be there: three usual ways to fill the gap at the front.

`rows.hydra_teacher_rows` gives the first token of a document no row, because no state
comes before it. Code that rolls the embeddings gives it one. The rows here have the
places in the stream in place of numbers, so that one can see what a row has read
(section 0x06B).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from .. import checks
from .rows import hydra_teacher_rows


class Places(NamedTuple):
    """One row: whose state it reads, whose embeddings, and where its label stands."""

    head: int
    state: int
    embedded: tuple[int, ...]
    label: int


def packed(*lengths: int) -> list[int]:
    """Segment ids of documents of these lengths, one behind the other."""
    return [
        number
        for number, length in enumerate(lengths)
        for _ in range(checks.integer(length, f"lengths[{number}]", least=0))
    ]


def ruled(segments: Sequence[int], heads: int) -> list[Places]:
    """The rows of the boundary rule: `hydra_teacher_rows` on named vectors."""
    n = len(segments)
    made = hydra_teacher_rows(
        range(n),
        [[j] for j in range(n)],
        heads,
        segment_ids=segments,
        valid=[True] * n,
        embed=lambda token: [token],
    )
    return [
        Places(head, reads[0], tuple(reads[1:]), label) for head, reads, label in made
    ]


def wrapped(segments: Sequence[int], heads: int) -> list[Places]:
    """The first token reads `hidden[-1]`, the last state of the stream."""
    return _shifted(segments, heads, 0, lambda t: (t - 1) % len(segments))


def borrowed(segments: Sequence[int], heads: int) -> list[Places]:
    """The stream is one document: the first token of a document reads the last state
    of the one before."""
    return _shifted(segments, heads, 1, lambda t: t - 1)


def clamped(segments: Sequence[int], heads: int) -> list[Places]:
    """The first token of a document reads its own state."""

    def state(t: int) -> int:
        return t - 1 if t and segments[t] == segments[t - 1] else t

    return _shifted(segments, heads, 0, state)


WAYS: dict[str, Callable[[Sequence[int], int], list[Places]]] = {
    "the rule": ruled,
    "wrap": wrapped,
    "borrow": borrowed,
    "clamp": clamped,
}

FAULTS = ("saw its label", "two documents", "state of x_t itself")


def faults(row: Places, segments: Sequence[int]) -> tuple[bool, bool, bool]:
    """Which `FAULTS` a row has, if every state has read its own document up to its
    token and nothing else."""
    owners = {segments[j] for j in (row.state, *row.embedded, row.label)}
    return (
        len(owners) == 1 and row.state >= row.label,
        len(owners) > 1,
        row.state == row.embedded[0],
    )


def counted(way: str, *streams: Sequence[int], heads: int = 3) -> list[int]:
    """How many rows a way makes of `streams`, and how many have each fault."""
    make = WAYS[checks.one_of(way, "way", tuple(WAYS))]
    found = [faults(row, s) for s in streams for row in make(s, heads)]
    return [len(found), *(sum(row[i] for row in found) for i in range(len(FAULTS)))]


def _shifted(
    segments: Sequence[int], heads: int, first: int, state: Callable[[int], int]
) -> list[Places]:
    n = len(checks.entries(segments, "segments", "segment ids"))
    checks.integer(heads, "heads", least=0)
    return [
        Places(i, state(t), tuple(range(t, t + i)), t + i)
        for t in range(first, n)
        for i in range(1, min(heads, n - t - 1) + 1)
    ]
