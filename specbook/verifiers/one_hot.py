"""Fixed candidates as drafts that were sure: the residual update with one-hot q.

Contract: reads no q, any sampling relation, any tree; exact.

A candidate that a table or a ranking named was not drawn from a law: it was certain, so
its q is 1 on it and 0 elsewhere. SpecInfer's rule then accepts a child with what is
left of its probability under p, and a refusal takes the child out of p and
renormalises. Written out, child x is accepted with p(x) divided by 1 minus the
probabilities of the children before it. In law that is target-sample membership, one
target draw looked up among the children; engines use either for lookups and for greedy
drafts (sections 0x04B, 0x09A).
"""

from __future__ import annotations

from ..chance import Chance
from ..contract import Law, Selection, Verifier, VerifierContract
from ..proposal import PREFIX_FRONTIER, ProbabilitySemantics, SamplingRelation
from ..tree import CandidateTree
from .walk import target_law


def select(tree: CandidateTree, law: Law, chance: Chance) -> Selection:
    """At each node the first child that passes its test, or a draw from p without the
    children."""
    rows: list[int] = []
    row = PREFIX_FRONTIER
    while True:
        left = target_law(tree, law, row)
        total = left.sum()
        for child in tree.children(row):
            token = tree.token_ids[child]
            if chance.flip(left[token] / total):
                rows.append(child)
                break
            left = left.copy()
            left[token] = 0
            total = left.sum()
        else:
            return Selection(tuple(rows), chance.draw(left / total))
        row = child


VERIFIER = Verifier(
    VerifierContract(
        name="one_hot",
        reads_q=False,
        exact=True,
        probability=frozenset(ProbabilitySemantics),
        sampling=frozenset(SamplingRelation),
    ),
    select,
)
