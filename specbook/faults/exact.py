"""Small exact worlds in which a fault shows as a wrong law: the tables of the lab."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from fractions import Fraction
from typing import Any

from ..chance import Chance
from ..chance import law as enumerate_law
from ..controls import exact
from ..lab import FixedPaths, decoded_law, distance
from ..models.table import TableTarget
from ..tree import CandidateTree
from .plant import Planted

Program = Callable[[Chance], tuple[int, ...]]

AFTER = {0: exact([1, 2, 1]), 1: exact([1, 1, 3]), 2: exact([3, 1, 2])}
"""The target's law of the next token by the last one: three tokens, all possible."""

PATHS = ((1, 2), (1, 0), (2, 2))
"""Candidates of two depths, siblings at both; token 2 stands under two parents."""

LENGTH = 3


def table() -> TableTarget:
    """A target whose law depends on the last token alone, as fractions."""
    return TableTarget(lambda prefix: AFTER[prefix[-1]].tolist(), vocab_size=3)


def tree() -> CandidateTree:
    """The candidates of `PATHS` behind one token."""
    return CandidateTree.from_paths(PATHS, 1)


def paths() -> FixedPaths:
    """A source that offers `PATHS` in every round."""
    return FixedPaths(*PATHS)


def plain_law(length: int = LENGTH) -> dict[Any, Any]:
    """What plain sampling gives after the prompt [0]."""
    return decoded_law(table(), [0], None, "membership", length)[0]


def output_law(
    source: Any, verifier: Any, planted: Planted | None = None, length: int = LENGTH
) -> dict[Any, Any]:
    """What the engine gives after the prompt [0], with `planted` in force."""
    with planted or ExitStack():
        return decoded_law(table(), [0], source, verifier, length)[0]


def variation(found: dict[Any, Any]) -> Fraction:
    """The total variation between a law of outputs and plain sampling."""
    length = len(next(iter(found)))
    return distance(found, plain_law(length))


def drawn(p: Any, length: int = 1) -> dict[Any, Any]:
    """The law of `length` independent draws from p [V]."""
    found: Any = enumerate_law(lambda c: tuple(c.draw(p) for _ in range(length)))
    return found


def wrong_tokens(found: Sequence[int], plain: Sequence[int]) -> int:
    """In how many places two texts differ; what one has too many counts, too."""
    pairs = zip(found, plain, strict=False)
    return sum(a != b for a, b in pairs) + abs(len(found) - len(plain))
