"""Greedy verification: follow the target's argmax while the tree holds it.

Contract: reads no q, any sampling relation, any tree; exact at temperature 0, where
the output is token for token what plain greedy decoding gives (section 0x09).
"""

from __future__ import annotations

import numpy as np

from ..chance import Chance
from ..contract import Law, Selection, Verifier, VerifierContract
from ..proposal import PREFIX_FRONTIER, ProbabilitySemantics, SamplingRelation
from ..tree import CandidateTree
from .walk import target_law


def select(tree: CandidateTree, law: Law, chance: Chance) -> Selection:
    """The longest path on which every token is the argmax of its predictor row, then
    that row's argmax. Ties go to the lowest id, as in plain decoding."""
    rows: list[int] = []
    row = PREFIX_FRONTIER
    while True:
        p = target_law(tree, law, row)
        token = int(np.argmax(p))
        child = tree.child_with_token(row, token)
        if child is None:
            return Selection(tuple(rows), token)
        rows.append(child)
        row = child


VERIFIER = Verifier(
    VerifierContract(
        name="greedy",
        reads_q=False,
        exact=True,
        greedy_only=True,
        probability=frozenset(ProbabilitySemantics),
        sampling=frozenset(SamplingRelation),
    ),
    select,
)
