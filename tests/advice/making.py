"""Estimates that a reader can check by hand, in Fractions."""

from __future__ import annotations

from fractions import Fraction as F
from typing import Any

from specbook.advice import Estimate
from specbook.measure.frontier_data import PLAIN, Configuration

LOOKUP = Configuration("prompt_lookup", "copying", "greedy")
REST = Configuration("rest", "copying", "greedy")
TYPICAL = Configuration("prompt_lookup", "copying", "typical", False)
CHAIN = Configuration(
    "draft_model", "model", "greedy", True, "chain 2", "top_k", False,
    parents=(-1, 0), ranks=(0, 0),
)  # fmt: skip
TREE = Configuration(
    "hydra", "heads", "greedy", True, "star 2", "top_k", False,
    parents=(-1, -1), ranks=(0, 1),
)  # fmt: skip
INDEPENDENT = Configuration(
    "medusa", "heads", "greedy", True, "star 2", "top_k", False,
    parents=(-1, -1), ranks=(0, 1),
)  # fmt: skip


def plain(**changes: Any) -> Estimate:
    """A token a second."""
    return Estimate(PLAIN, F(1), F(0), F(1), **changes)


def several() -> list[Estimate]:
    """Times a token: lookup 3/4, heads 4/5, a draft model 5/6, plain 1; a heuristic
    and a datastore would be faster than all."""
    return [
        plain(),
        Estimate(LOOKUP, F(2), F(0), F(3, 2)),
        Estimate(CHAIN, F(3), F(1), F(3, 2), extra_bytes=40_000_000),
        Estimate(TREE, F(5, 2), F(1, 2), F(3, 2), extra_bytes=12_000_000),
        Estimate(TYPICAL, F(4), F(0), F(2)),
        Estimate(REST, F(3), F(1, 10), F(2), extra_bytes=20_000_000),
    ]
