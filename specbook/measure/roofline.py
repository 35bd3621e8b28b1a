"""What a verification must cost at least: bytes that are read, products that are made.

A forward over n rows reads every weight once and makes two operations for each weight
and row. Whichever takes longer on this machine is a floor for t(n): flat while reading
the weights is what it waits for, rising with n when the arithmetic is (Williams et al.
2009, "Roofline"; section 0x0AD). Both speeds are measured, with operations as plain as
can be: a real kernel reaches less.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .. import checks
from ..errors import SpecbookError

READ_BYTES = 1 << 27
"""More than the caches of a processor hold."""

SQUARE = 1536
"""Rows and columns of the product that is timed."""

Clock = Callable[[], float]


@dataclass(frozen=True)
class Roofline:
    """A floor for the seconds of a verification. `weight_bytes`: read once a forward;
    `weights`: numbers that each row is multiplied with; `row_bytes`: keys and values of
    one cached token; `bandwidth` in bytes a second, `speed` in operations a second."""

    weight_bytes: int
    weights: int
    row_bytes: int
    bandwidth: float
    speed: float

    def __post_init__(self) -> None:
        for name in ("weight_bytes", "weights"):
            checks.integer(getattr(self, name), name, least=1)
        checks.integer(self.row_bytes, "row_bytes", least=0)
        for name in ("bandwidth", "speed"):
            if not checks.float64(getattr(self, name), name) > 0:
                raise SpecbookError(f"{name} must be above 0")

    def seconds(self, n: int, prefix: int = 0) -> float:
        """The floor for n rows behind `prefix` cached tokens."""
        checks.integer(n, "n", least=1)
        checks.integer(prefix, "prefix", least=0)
        read = self.weight_bytes + (prefix + n) * self.row_bytes
        return max(read / self.bandwidth, 2 * n * self.weights / self.speed)

    def corner(self) -> int:
        """The first n at which the arithmetic takes longer than reading the weights."""
        alone = self.weight_bytes / self.bandwidth
        return int(alone * self.speed / (2 * self.weights)) + 1


def roofline(
    target: Any, *, turns: int = 5, clock: Clock = time.perf_counter
) -> Roofline:
    """The floor for `target` (of `load_target`), with both speeds measured now.

    Counts the weights by building the model without its numbers, so that it needs no
    memory: an input embedding of its own is looked up and not multiplied, and does not
    count. Raises `SpecbookError` for what is no such target.
    """
    from ..models.target import ModelTarget

    if not isinstance(target, ModelTarget):
        raise SpecbookError(f"target must be a model's target, got {target!r}")
    checks.integer(turns, "turns", least=1)
    weights = multiplied_weights(target.config)
    return Roofline(
        weights * target.dtype.itemsize,
        weights,
        target.start([0]).bytes_per_row(),
        bandwidth(device=target.device, turns=turns, clock=clock),
        speed(target.dtype, device=target.device, turns=turns, clock=clock),
    )


def multiplied_weights(config: Any) -> int:
    """How many weights of a causal LM each row is multiplied with."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    model.tie_weights()
    count = sum(p.numel() for p in model.parameters())
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    if (
        embedding is not None
        and head is not None
        and head.weight is not embedding.weight
    ):
        count -= embedding.weight.numel()
    return count


def bandwidth(
    *,
    device: str | torch.device = "cpu",
    turns: int = 5,
    clock: Clock = time.perf_counter,
) -> float:
    """Bytes a second of summing up a tensor that no cache holds."""
    checks.integer(turns, "turns", least=1)
    long = torch.ones(READ_BYTES // 4, device=device)
    return READ_BYTES / _median(lambda: long.sum(), long.device, turns, clock)


def speed(
    dtype: torch.dtype,
    *,
    device: str | torch.device = "cpu",
    turns: int = 5,
    clock: Clock = time.perf_counter,
) -> float:
    """Operations a second of a square product in `dtype`."""
    checks.integer(turns, "turns", least=1)
    if not isinstance(dtype, torch.dtype):
        raise SpecbookError(f"dtype must be a torch dtype, got {dtype!r}")
    one = torch.ones((SQUARE, SQUARE), dtype=dtype, device=device)
    return 2 * SQUARE**3 / _median(lambda: one @ one, one.device, turns, clock)


def _median(
    action: Callable[[], Any], device: torch.device, turns: int, clock: Clock
) -> float:
    def finished() -> float:
        # A GPU is given its work and goes on by itself.
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return clock()

    action()
    spent = []
    for _ in range(turns):
        began = finished()
        action()
        spent.append(finished() - began)
    return statistics.median(spent)
