"""Table targets that can be watched, and the plain decoding that they must equal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from specbook.models.table import TableTarget


class WatchedTarget(TableTarget):
    """A table target that counts what is asked of it.

    `trees`: the tree of every verify call. `sessions`: every session started.
    `row_bytes`: what a row pretends to cost.
    """

    def __init__(self, table: Any, *, row_bytes: int = 0, **options: Any) -> None:
        super().__init__(table, **options)
        self.row_bytes = row_bytes
        self.trees: list[Any] = []
        self.sessions: list[Any] = []

    def start(self, prompt_ids: Sequence[int]) -> Any:
        session = super().start(prompt_ids)
        plain_verify = session.verify

        def verify(tree: Any) -> Any:
            self.trees.append(tree)
            return plain_verify(tree)

        session.verify = verify  # type: ignore[method-assign]
        session.bytes_per_row = lambda: self.row_bytes  # type: ignore[method-assign]
        self.sessions.append(session)
        return session


def one_hot_table(
    choose: Callable[[tuple[int, ...]], int], vocab: int
) -> Callable[[tuple[int, ...]], np.ndarray]:
    """A table whose law puts everything on `choose(prefix)`."""
    return lambda prefix: np.eye(vocab)[choose(prefix)]


def cycle(prefix: tuple[int, ...]) -> int:
    """Bug case H03's target: 5, 6, 7, 8, 5, 6, 7, 8, ..."""
    return 5 + (prefix[-1] - 4) % 4


def plain_greedy(
    choose: Callable[[tuple[int, ...]], int],
    prompt: Sequence[int],
    count: int,
    ends: Sequence[int] = (),
) -> list[int]:
    """Ordinary decoding, one token at a time, sharing no code with the package."""
    new: list[int] = []
    while len(new) < count:
        new.append(choose((*prompt, *new)))
        if new[-1] in ends:
            break
    return new
