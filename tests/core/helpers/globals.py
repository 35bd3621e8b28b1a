"""Nobody may read or move the generators that the whole process shares."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest


def check_leaves_globals_alone(work: Callable[[], Any]) -> None:
    """`work` leaves the global states of numpy, torch and random as they were."""
    torch = pytest.importorskip("torch")

    def states() -> tuple[Any, ...]:
        name, keys, *rest = np.random.get_state()
        return (
            (name, keys.tolist(), rest),  # type: ignore[union-attr]
            torch.random.get_rng_state().tolist(),
            random.getstate(),
        )

    before = states()
    work()
    assert states() == before
