"""The lean target, sharing its lowest layers. See `trunk`.

Its two halves are the same packed matrices, some of them each: nothing is copied. The
rows between them are the residual stream, float32 whatever the weights are, so a round
of one block is the plain forward's, bit for bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .. import checks
from ..tree import CandidateTree
from . import selftest
from .lean import PREFILL, LeanTarget, _State, _Weights
from .trunk import TrunkTarget, checked_boundary

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .target import Seen


class LeanTrunkTarget(TrunkTarget, LeanTarget):
    """The lean `target` with its first `boundary` layers (1 to the number of layers
    less one) to be run ahead. It reads the weights of `target`.

    `self_test`: its rows must be those of `target` on a small tree, or `SelfTestError`.
    """

    def __init__(
        self, target: LeanTarget, boundary: int, *, self_test: bool = True
    ) -> None:
        checks.boolean(self_test, "self_test")
        checks.instance(target, "target", LeanTarget)
        vars(self).update(vars(target))
        self._whole = target
        weights = self._weights
        self.layer_count = count = len(weights.layers)
        self.boundary = checked_boundary(boundary, count)
        self.norm_weight = weights.final_norm
        self.feature_dtype = torch.float32
        self.forward_name = f"lean, trunk of {boundary}"
        below = [layer < boundary for layer in range(count)]
        above = [not is_below for is_below in below]
        self.shallow = _Half(weights.only(below, below))
        self.deep = _Half(weights.only(above, above))
        if self_test:
            plan = selftest.plan(self.vocab_size, self.context_limit, self.dtype)
            expected = plan.reference(lambda tokens: _plain_rows(target, tokens))
            plan.check(self, expected, self.dtype)

    def _embed(self, ids: list[int], positions: np.ndarray) -> torch.Tensor:
        return self._weights.embedding[torch.tensor(ids)]

    def cut_head(self, ids: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
        """As `HiddenTarget.cut_head`: the whole target keeps the one copy, so that its
        forms need not pack it again."""
        return self._whole.cut_head(ids)

    def _run(
        self,
        state: Any,
        pending: list[int],
        tree: CandidateTree,
        done: int = 0,
        seen: Seen = None,
    ) -> torch.Tensor:
        rows = self.run_block(state, pending, tree, done)
        if seen is not None:
            seen.append(rows)
        return rows[max(0, len(pending) - 1) :]


class _Half:
    """Some layers of a lean target. See `trunk.Half`."""

    def __init__(self, weights: _Weights) -> None:
        self.weights = weights

    def cache(self) -> _State:
        return _State(self.weights)

    def run(
        self,
        rows: torch.Tensor,
        positions: np.ndarray,
        visible: np.ndarray,
        cache: _State,
    ) -> torch.Tensor:
        done: list[torch.Tensor] = []
        # A long prompt block by block, as the plain forward reads it.
        for first in range(0, max(1, len(rows)), PREFILL):
            part = slice(first, first + PREFILL)
            columns = len(cache) + len(rows[part])
            seen: np.ndarray | None = visible[part, :columns]
            if len(rows) == 1 and visible.all():
                seen = None
            done.append(self.weights.through(rows[part], cache, positions[part], seen))
        return done[0] if len(done) == 1 else torch.cat(done)


def _plain_rows(target: LeanTarget, tokens: Sequence[int]) -> np.ndarray:
    """Logits [len(tokens), V] of one forward of `target` itself."""
    session = target.start(tokens[:1])
    chain = CandidateTree.from_rows(tokens[1:], range(-1, len(tokens) - 2), 1)
    rows = session.verify(chain)
    return np.stack([rows.logits(row) for row in range(-1, len(chain))])
