"""A target whose LM head a source borrows: whole, or for some tokens alone.

With a cut vocabulary the LM head has only the rows of the tokens that may be drafted; q
is 0 for every other token, and a law over the whole vocabulary all the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...models.heads import storage
from ...models.protocol import checked_target
from ...policy import SamplingPolicy


@dataclass(frozen=True)
class Bound:
    """A target, how its LM head is asked, and for which ids if not for all."""

    target: Any
    read_out: Callable[[torch.Tensor], torch.Tensor]
    ids: np.ndarray | None = None

    @classmethod
    def of(cls, target: Any, vocabulary: Sequence[int] | None) -> Bound:
        """`target` (a `HiddenTarget`), asked for the ids of `vocabulary` alone, or for
        all with None. Raises `SpecbookError` for what is no such target, and for ids
        that it does not have."""
        checked_target(target, "read_out", "cut_head")
        if vocabulary is None:
            return cls(target, target.read_out)
        ids = storage.checked_vocabulary(vocabulary, target.vocab_size)
        return cls(target, target.cut_head(torch.tensor(ids)), np.array(ids))

    def logits(self, features: torch.Tensor) -> np.ndarray:
        """What the LM head says of rows [n, d]: [n, V], or [n, len(ids)]."""
        found = self.read_out(features)
        if found.dtype not in (torch.float32, torch.float64):
            found = found.float()
        return found.cpu().numpy()

    def law(self, row: np.ndarray, policy: SamplingPolicy, where: str) -> np.ndarray:
        """The processed law [V] of one row of logits."""
        return self.whole(policy.law_from_logits(row, where))

    def whole(self, law: np.ndarray) -> np.ndarray:
        """A law over the ids that are asked for, as one over the vocabulary [V]."""
        if self.ids is None:
            return law
        whole = np.zeros(self.target.vocab_size)
        whole[self.ids] = law
        return whole


def described(vocabulary: Sequence[int] | None) -> str:
    """A cut vocabulary as an identity names it."""
    if vocabulary is None:
        return "vocabulary=all"
    digest = hashlib.sha256(repr(tuple(vocabulary)).encode()).hexdigest()
    return f"vocabulary={len(vocabulary)} sha256:{digest}"
