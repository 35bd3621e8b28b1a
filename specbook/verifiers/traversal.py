"""Traversal verification: a drafted tree is judged from its leaves upwards.

Contract: children drawn independently from one q, or without replacement, each with the
law that it was drawn from; any tree; exact.

A node is entered with a weight w, the probability that it or something below it will be
accepted; for the prefix that is 1. Its children are visited in the order of drawing, a
child x with min(1, w p(x) / q(x)). When everything at and below x is refused, with
s = sum of (w p - q)+, w becomes s / (s + 1 - w), p becomes (w p - q)+ / s, and q the
law of the next draw. When no child is left, the node itself is accepted with w, and the
next token comes from p as it now stands (Weng et al. 2025, "Traversal Verification for
Speculative Tree Decoding"). On a chain this is block verification.

A token that was drawn twice has one row, and is judged once: that its first draw could
be refused means that w p(x) < q(x), so nothing of p(x) is left for the second.
"""

from __future__ import annotations

from typing import Any

from ..chance import Chance
from ..contract import Law, Selection, Verifier, VerifierContract
from ..proposal import PREFIX_FRONTIER, ProbabilitySemantics, SamplingRelation
from ..tree import CandidateTree
from .coupling import carried, excess
from .walk import position


def select(tree: CandidateTree, law: Law, chance: Chance) -> Selection:
    """The first accepted node, deepest first, then the token after it. Raises
    `ContractError` for a candidate without its law."""

    def visit(row: int, w: Any) -> Selection | None:
        if not w > 0:
            return None
        p, drafts = position(tree, law, row, name="traversal")
        for draft in drafts:
            found = visit(draft.row, carried(w, p, draft.law, draft.token))
            if found is not None:
                return found
            w, p = excess(w, p, draft.law)
        if chance.flip(w):
            return Selection(tree.path_rows(row), chance.draw(p))
        return None

    found = visit(PREFIX_FRONTIER, 1)
    assert found is not None  # the prefix keeps the weight 1
    return found


VERIFIER = Verifier(
    VerifierContract(
        name="traversal",
        reads_q=True,
        exact=True,
        probability=frozenset({ProbabilitySemantics.NORMALIZED_CONDITIONAL}),
        sampling=frozenset(
            {SamplingRelation.IID, SamplingRelation.WITHOUT_REPLACEMENT}
        ),
    ),
    select,
)
