"""The rule for greedy drafts: k - 1 fixed tokens, and one draw among the others.

Contract: the most probable tokens of q, fixed, then one draw from q without them; any
tree; exact.

The last draft x ~ q' is tested alone, with min(1, p(x) / q'(x)); after a refusal a
token is drawn from (p - q')+ / its sum, and if that token is one of the fixed ones, the
walk goes on below it. The fixed tokens T need no test: q' gives them nothing, so all of
p(T) is left for the correction. What is accepted is p(T) + sum outside T of min(p, q'),
and no rule accepts more of such drafts (Hu et al. 2025, "Towards Optimal Multi-draft
Speculative Decoding").
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..chance import Chance
from ..contract import Law, Selection, Verifier, VerifierContract
from ..errors import ContractError
from ..proposal import ProbabilitySemantics, SamplingRelation
from ..tree import CandidateTree
from .coupling import acceptance, residual
from .walk import Draft, walk


def choose(p: np.ndarray, drafts: Sequence[Draft], chance: Chance) -> Draft | int:
    """The last draft if it passes, else a draw from the residual: the draft that it
    lands on, or the token. Raises `ContractError` if an earlier draft was not fixed."""
    *fixed, last = drafts
    for draft in fixed:
        if draft.law[draft.token] != 1:
            raise ContractError(
                f"greedy_draft: row {draft.row} was drawn; all but the last are fixed"
            )
    if chance.flip(acceptance(p, last.law, last.token)):
        return last
    token = chance.draw(residual(p, last.law))
    return next((draft for draft in fixed if draft.token == token), token)


def select(tree: CandidateTree, law: Law, chance: Chance) -> Selection:
    """One test a node, on the accepted path."""
    return walk(tree, law, chance, choose, name="greedy_draft")


VERIFIER = Verifier(
    VerifierContract(
        name="greedy_draft",
        reads_q=True,
        exact=True,
        probability=frozenset({ProbabilitySemantics.NORMALIZED_CONDITIONAL}),
        sampling=frozenset({SamplingRelation.GREEDY_PLUS_ONE}),
    ),
    select,
)
