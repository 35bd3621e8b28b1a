"""What calibration counts: how often each child slot was tried, and how often selected.

A slot is tried at a node that verification reaches, if the node has that child and no
earlier one was selected. So nodes with few children tell about their few slots and
nothing about the others, and trees of any shape can be counted together: the rate of a
slot is its selections over its trials, and the selected-child probabilities follow by
the chain rule (section 0x0AA; in statistics, the product-limit estimate).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import checks
from ..errors import LawError, SpecbookError

MAX_COUNT = 1 << 40
"""Of a single entry; sums over a million prompts still fit into an int64."""

MAX_WORLDS = 1_000_000
"""Resampled worlds are held in memory together."""


@dataclass(frozen=True)
class Observed:
    """Counts [prompts, depths, slots], integers: `tried` and `selected`.

    Depth index 0 belongs to the candidates of depth 1; slot index 0 to slot 1.
    `every_depth`: whether each depth has rows of its own in `acceptance`; otherwise
    there is one depth, which stands for all. Raises `LawError` for other shapes, for
    more selections than trials, for a first slot that was never tried at some depth,
    for a slot tried more often than the slot before it was refused, and for counts
    above `MAX_COUNT`.
    """

    tried: np.ndarray
    selected: np.ndarray
    every_depth: bool = True

    def __post_init__(self) -> None:
        for name in ("tried", "selected"):
            try:
                table = np.asarray(getattr(self, name))
            except (ValueError, TypeError) as problem:
                raise LawError(f"{name} is no table: {problem}") from None
            if table.ndim != 3 or 0 in table.shape:
                raise LawError(
                    f"{name} must be [prompts, depths, slots], none of them 0, got "
                    f"shape {table.shape}"
                )
            if table.dtype.kind not in "iu" or (table < 0).any():
                raise LawError(f"{name} must be integers, none negative")
            if table.max() > MAX_COUNT:
                raise LawError(
                    f"{name} has a count of {table.max()}, above {MAX_COUNT}"
                )
            object.__setattr__(self, name, table.astype(np.int64))
        if self.tried.shape != self.selected.shape:
            raise LawError(
                f"tried has shape {self.tried.shape}, selected {self.selected.shape}"
            )
        refused = self.tried - self.selected
        if (refused < 0).any():
            raise LawError(f"more selected than tried at {_first(refused < 0)}")
        extra = self.tried[:, :, 1:] > refused[:, :, :-1]
        if extra.any():
            raise LawError(
                "a slot was tried more often than the slot before it was refused, at "
                f"{_first(extra)}"
            )
        never = self.tried[:, :, 0].sum(axis=0) == 0
        if never.any():
            depth = int(np.flatnonzero(never)[0]) + 1
            raise LawError(f"depth {depth} was never reached: leave it out")
        checks.boolean(self.every_depth, "every_depth", error=LawError)
        if not self.every_depth and self.tried.shape[1] != 1:
            raise LawError("pooled counts have one depth: see pooled()")

    def pooled(self) -> Observed:
        """The same counts with the depths added up: one row of slots for all depths."""
        tried, selected = (
            table.sum(axis=1, keepdims=True) for table in (self.tried, self.selected)
        )
        return Observed(tried, selected, every_depth=False)

    def rates(self) -> list[list[float]]:
        """h: for each depth [0, h_1, ...]; a slot that was never tried has rate 0, so
        that no tree is planned with it."""
        return _rates(self.tried.sum(axis=0), self.selected.sum(axis=0)).tolist()

    def acceptance(self) -> list[Any]:
        """p in the layout of `acceptance`: a row for each depth, or one for all."""
        rows = _slots(_rates(self.tried.sum(axis=0), self.selected.sum(axis=0)))
        return rows.tolist() if self.every_depth else rows[0].tolist()

    def drawn_again(self, rng: np.random.Generator, worlds: int) -> np.ndarray:
        """p [worlds, depths, 1 + slots], of prompts drawn with replacement. Raises
        `SpecbookError` for another generator than numpy's, and for no worlds or more
        than `MAX_WORLDS`."""
        if not isinstance(rng, np.random.Generator):
            raise SpecbookError(f"rng must be a numpy Generator, got {rng!r}")
        worlds = checks.integer(worlds, "worlds", least=1, most=MAX_WORLDS)
        count = len(self.tried)
        drawn = rng.integers(count, size=(worlds, count))
        weights = np.stack([np.bincount(row, minlength=count) for row in drawn])
        tried, selected = (
            np.tensordot(weights, table, axes=1)
            for table in (self.tried, self.selected)
        )
        return _slots(_rates(tried, selected))


def _rates(tried: np.ndarray, selected: np.ndarray) -> np.ndarray:
    """h [..., depths, 1 + slots] of counts [..., depths, slots]."""
    rates = np.zeros((*tried.shape[:-1], tried.shape[-1] + 1))
    np.divide(selected, tried, out=rates[..., 1:], where=tried > 0)
    return rates


def _slots(rates: np.ndarray) -> np.ndarray:
    """p of h, along the last axis: h_b times the chance that none before it was
    selected."""
    left = np.cumprod(1 - rates[..., :-1], axis=-1)
    slots = np.zeros_like(rates)
    slots[..., 1:] = rates[..., 1:] * left
    return slots


def _first(wrong: np.ndarray) -> str:
    prompt, depth, slot = np.argwhere(wrong)[0].tolist()
    return f"prompt {prompt}, depth {depth + 1}, slot {slot + 1}"
