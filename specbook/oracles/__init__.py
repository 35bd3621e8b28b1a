"""Oracles: what a rule does at one position, and the most that any rule could.

All of them take p, q, k and the name of a sampling relation (see `drafted`).
"""

from __future__ import annotations

from .closed_form import Curve, acceptance_curve
from .drafted import RELATIONS
from .exactness import check_law, check_tokens
from .flow import Transport, transport
from .optimum import optimal_acceptance, optimum_of
from .position import PositionLaw, measure, position_law
from .table import Comparison, compare
from .tree_lp import TreeOptimum, tree_optimum
from .tree_round import continued, round_law

__all__ = [
    "RELATIONS",
    "Comparison",
    "Curve",
    "PositionLaw",
    "Transport",
    "TreeOptimum",
    "acceptance_curve",
    "check_law",
    "check_tokens",
    "compare",
    "continued",
    "measure",
    "optimal_acceptance",
    "optimum_of",
    "position_law",
    "round_law",
    "transport",
    "tree_optimum",
]
