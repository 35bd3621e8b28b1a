"""Target-sample membership: draw the next token from the target; is it in the tree?

Contract: reads no q, any sampling relation, any tree; exact. The draw is the output
whether or not a child carries it, so the candidates can only save target steps, never
change the law. One draw a node: a second draw after a mismatch, or one draw a path,
would count tokens twice (sections 0x04B and 0x08B).
"""

from __future__ import annotations

from ..chance import Chance
from ..contract import Law, Selection, Verifier, VerifierContract
from ..proposal import PREFIX_FRONTIER, ProbabilitySemantics, SamplingRelation
from ..tree import CandidateTree
from .walk import target_law


def select(tree: CandidateTree, law: Law, chance: Chance) -> Selection:
    """One target draw at each visited node: follow the child that carries it, if
    there is one; otherwise emit that very draw and stop."""
    rows: list[int] = []
    row = PREFIX_FRONTIER
    while True:
        token = chance.draw(target_law(tree, law, row))
        child = tree.child_with_token(row, token)
        if child is None:
            return Selection(tuple(rows), token)
        rows.append(child)
        row = child


VERIFIER = Verifier(
    VerifierContract(
        name="membership",
        reads_q=False,
        exact=True,
        probability=frozenset(ProbabilitySemantics),
        sampling=frozenset(SamplingRelation),
    ),
    select,
)
