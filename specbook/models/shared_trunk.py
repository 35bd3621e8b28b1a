"""Targets that share their lowest layers: the generic form, and how to ask for one.

`sharing` gives the form of any target that has one; `trunk` is what the forms do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .. import checks
from ..errors import TargetError
from . import selftest
from .cache import TreeCache
from .layered import Layered
from .lean import LeanTarget
from .lean_trunk import LeanTrunkTarget
from .target import Seen, TransformersTarget, UnsupportedTargetError, additive
from .trunk import TrunkTarget, checked_boundary

if TYPE_CHECKING:
    from ..tree import CandidateTree


class SharedTrunkTarget(TrunkTarget, TransformersTarget):
    """A causal LM of transformers whose first `boundary` layers can be run ahead.

    `boundary`: 1 to the number of layers less one. The rest is as in
    `TransformersTarget`, self-test included. Raises `UnsupportedTargetError`, by name,
    for a family that `models.layered` does not know.
    """

    def __init__(
        self,
        model: Any,
        boundary: int,
        *,
        source: str | None = None,
        self_test: bool = True,
    ) -> None:
        self._share(model, boundary)
        super().__init__(model, source=source, self_test=self_test)

    @classmethod
    def of(
        cls, target: TransformersTarget, boundary: int, *, self_test: bool = True
    ) -> SharedTrunkTarget:
        """`target` in this form: the same model, nothing is loaded and nothing copied.
        Arguments and errors as in the constructor."""
        checks.boolean(self_test, "self_test")
        checks.instance(target, "target", TransformersTarget)
        form = cls.__new__(cls)
        vars(form).update(vars(target))
        form._share(target.model, boundary)
        if self_test:
            plan = selftest.plan(form.vocab_size, form.context_limit, form.dtype)
            plan.check(form, plan.reference(form.plain_logits), form.dtype)
        return form

    def _share(self, model: Any, boundary: int) -> None:
        self.layered = layered = Layered(model)
        self.layer_count = layered.count
        self.boundary = checked_boundary(boundary, layered.count)
        self.norm_weight = layered.norm_weight
        self.feature_dtype = layered.norm_weight.dtype
        self.forward_name = f"transformers, layer by layer, trunk of {boundary}"
        self.shallow = _Half(layered, 0, boundary)
        self.deep = _Half(layered, boundary, layered.count)

    def _embed(self, ids: list[int], positions: np.ndarray) -> torch.Tensor:
        places = torch.from_numpy(positions)[None].to(self.device)
        rows = self.layered.embed(torch.tensor([ids], device=self.device), places)
        return rows[0]

    def _run(
        self,
        state: Any,
        pending: list[int],
        tree: CandidateTree,
        done: int = 0,
        seen: Seen = None,
    ) -> torch.Tensor:
        needed = bool(pending) + len(tree) - done
        rows = self.run_block(state, pending, tree, done)
        normed = self.layered.final(rows[None])
        if seen is not None:
            seen.append(normed[0])
        return self.layered.head(normed[:, -needed:])[0]


class _Half:
    """Layers `first` to `last` - 1 of a model. See `trunk.Half`."""

    def __init__(self, layered: Layered, first: int, last: int) -> None:
        self._layered, self._first, self._last = layered, first, last

    def cache(self) -> TreeCache:
        return TreeCache()

    def run(
        self,
        rows: torch.Tensor,
        positions: np.ndarray,
        visible: np.ndarray,
        cache: TreeCache,
    ) -> torch.Tensor:
        return self._layered.run(
            rows[None],
            self._first,
            self._last,
            torch.from_numpy(positions)[None].to(rows.device),
            additive(visible, rows.dtype).to(rows.device),
            cache,
        )[0]


def sharing(target: Any, boundary: int, *, self_test: bool = True) -> TrunkTarget:
    """`target` in the form whose first `boundary` layers can be run ahead: itself if it
    is that already.

    `self_test`: compare the form with `target` on a small tree first. Raises
    `TargetError` for a form at another boundary, `UnsupportedTargetError` for a target
    whose layers cannot be reached, `ValueError` for a boundary beyond its layers.
    """
    if isinstance(target, TrunkTarget):
        checks.integer(boundary, "boundary", least=1)
        if target.boundary != boundary:
            raise TargetError(
                f"the target shares its first {target.boundary} layers already, and "
                f"cannot share {boundary} as well: one boundary for all its drafters"
            )
        return target
    if isinstance(target, LeanTarget):
        return LeanTrunkTarget(target, boundary, self_test=self_test)
    if isinstance(target, TransformersTarget):
        return SharedTrunkTarget.of(target, boundary, self_test=self_test)
    raise UnsupportedTargetError(
        f"a {type(target).__name__} has no layers that could be shared"
    )
