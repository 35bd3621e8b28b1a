"""Oracles: what a rule does at one position, and the most that any rule could.

All of them take p, q, k and the name of a sampling relation (see `drafted`).
"""

from __future__ import annotations

from .drafted import RELATIONS
from .flow import Transport, transport
from .optimum import optimal_acceptance
from .position import PositionLaw, measure, position_law
from .table import Comparison, compare
from .tree_lp import TreeOptimum, tree_optimum

__all__ = [
    "RELATIONS",
    "Comparison",
    "PositionLaw",
    "Transport",
    "TreeOptimum",
    "compare",
    "measure",
    "optimal_acceptance",
    "position_law",
    "transport",
    "tree_optimum",
]
