"""Equal requests in one batch, to time what a verification costs in company.

The engine decodes one request at a time; a serving system verifies many together, and
its t(B, n) is another curve. So here are B copies of one prefix in one cache, and one
forward over B copies of a tree. The parts of a verification are apart, so that each can
be timed by itself: the mask is built on the host, sent to the device, and used there
(section 0x0AD).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .. import checks
from ..errors import TargetError
from ..tree import CandidateTree
from .cache import TreeCache
from .protocol import check_prompt, check_tree
from .target import TransformersTarget

MAX_COPIES = 4096
"""More requests than any server verifies together."""


@dataclass(frozen=True)
class Inputs:
    """What one verification is fed: ids [1, 1 + N], positions [1, 1 + N] and the mask
    [1, 1, 1 + N, P + N], for a prefix of P tokens whose last is the first row."""

    ids: torch.Tensor
    positions: torch.Tensor
    mask: torch.Tensor

    def on(self, device: torch.device) -> Inputs:
        """The same on `device`."""
        return Inputs(
            self.ids.to(device), self.positions.to(device), self.mask.to(device)
        )

    @property
    def nbytes(self) -> int:
        """Bytes that are sent."""
        parts = (self.ids, self.positions, self.mask)
        return sum(part.numel() * part.element_size() for part in parts)


class Batch:
    """`copies` requests with the prompt `prefix`, verified by `target` in one forward.

    The prefix is read once and its rows are copied. Raises `TargetError` for a target
    without the generic forward (the lean one serves one request), `ValueError` for a
    bad prefix or count.
    """

    def __init__(
        self, target: TransformersTarget, prefix: Sequence[int], copies: int
    ) -> None:
        if not isinstance(target, TransformersTarget):
            raise TargetError(
                "a batch needs the transformers forward: "
                'load_target(..., forward="transformers")'
            )
        self.target = target
        self.copies = checks.integer(copies, "copies", least=1, most=MAX_COPIES)
        self.tokens = check_prompt(prefix, target.vocab_size, target.context_limit)
        self._state: TreeCache = target._new_state()
        if len(self.tokens) > 1:
            self._read(self.tokens[:-1])
        self._state.repeat(copies)

    @torch.inference_mode()
    def _read(self, tokens: list[int]) -> None:
        nothing = CandidateTree.from_paths([], len(tokens))
        self.target._run(self._state, tokens, nothing)

    def build(self, tree: CandidateTree) -> Inputs:
        """The host's part: ids, positions and mask of the last prefix token and of the
        tree's rows, on the CPU."""
        target, base = self.target, len(self.tokens) - 1
        check_tree(tree, base + 1, target.vocab_size, target.context_limit)
        return Inputs(
            torch.tensor([[self.tokens[-1], *tree.token_ids]]),
            target.position_rows(base, 1, tree),
            target.additive_mask(base, 1, tree),
        )

    @torch.inference_mode()
    def run(self, inputs: Inputs) -> torch.Tensor:
        """Logits [copies, 1 + N, V] of `inputs`, which must be on the target's device.
        The cache is as before afterwards. Raises `TargetError` for what `build` does
        not make for this prefix."""
        return self.runner(inputs)()

    @torch.inference_mode()
    def runner(self, inputs: Inputs) -> Callable[[], torch.Tensor]:
        """`run` as a function of nothing: all that can be prepared is prepared, so that
        what is timed is the forward."""
        target, copies = self.target, self.copies
        base = len(self._state)
        self._check(inputs, base)
        arguments: dict[str, Any] = {
            "input_ids": inputs.ids.expand(copies, -1).contiguous(),
            "position_ids": inputs.positions.expand(copies, -1).contiguous(),
            "attention_mask": inputs.mask.expand(copies, -1, -1, -1),
            **self._state.arguments(target._cache_argument),
        }

        @torch.inference_mode()
        def forward() -> torch.Tensor:
            try:
                return target.model(**arguments).logits
            finally:
                self._state.keep(base, [])

        return forward

    def _check(self, inputs: Any, base: int) -> None:
        """A wrong shape would be broadcast, or fail deep inside of the model."""
        if not isinstance(inputs, Inputs):
            raise TargetError(f"inputs must be Inputs, as build makes them: {inputs!r}")
        rows = inputs.ids.shape[-1] if isinstance(inputs.ids, torch.Tensor) else 0
        wanted = {
            "ids": ((1, rows), torch.int64),
            "positions": ((1, rows), torch.int64),
            "mask": ((1, 1, rows, base + rows), self.target.dtype),
        }
        for name, (shape, dtype) in wanted.items():
            part = getattr(inputs, name)
            found = (
                (tuple(part.shape), part.dtype, part.device.type)
                if isinstance(part, torch.Tensor)
                else type(part).__name__
            )
            device = torch.device(self.target.device).type
            if rows == 0 or found != (shape, dtype, device):
                raise TargetError(
                    f"inputs.{name} must be {(shape, dtype, device)}, got {found}"
                )
        checks.token_ids(
            inputs.ids[0].tolist(),
            "inputs.ids",
            vocab_size=self.target.vocab_size,
            error=TargetError,
        )

    def kv_bytes(self, rows: int) -> int:
        """Bytes of the temporary keys and values of `rows` rows in every request."""
        checks.integer(rows, "rows", least=0)
        return rows * self.copies * self.target._bytes_per_row
