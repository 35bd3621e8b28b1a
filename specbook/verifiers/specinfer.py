"""SpecInfer's rule: test the drafts in turn, each against what is left of p.

Contract: independent drafts, each with the normalised law that it was drawn from;
these laws may differ, so several drafters may be merged; any tree; exact.

Call what is left the residual `r`; at first it is p. Draft x, drawn from its law q, is
accepted with probability `min(1, r(x) / q(x))`. When it is refused, the residual
becomes `max(r - q, 0)`, divided by its sum, and the next draft is tested against that.
After the last refusal the token is drawn from the residual (section 0x09A; Miao et al.
2024). Each step is the rule for one draft with the residual in the place of p, so by
induction the output has the law p. In which order the drafters
are tested changes how often a draft is accepted, never the output.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..chance import Chance
from ..contract import Law, Selection, Verifier, VerifierContract
from ..proposal import ProbabilitySemantics, SamplingRelation
from ..tree import CandidateTree
from .coupling import acceptance, residual
from .walk import Draft, walk


def choose(p: np.ndarray, drafts: Sequence[Draft], chance: Chance) -> Draft | int:
    """The first draft that passes its test, or a draw from the last residual."""
    left = p
    for draft in drafts:
        if chance.flip(acceptance(left, draft.law, draft.token)):
            return draft
        left = residual(left, draft.law)
    return chance.draw(left)


def select(tree: CandidateTree, law: Law, chance: Chance) -> Selection:
    """The residual update at every node of the accepted path."""
    return walk(tree, law, chance, choose, name="specinfer")


VERIFIER = Verifier(
    VerifierContract(
        name="specinfer",
        reads_q=True,
        exact=True,
        merges_q=True,
        probability=frozenset({ProbabilitySemantics.NORMALIZED_CONDITIONAL}),
        sampling=frozenset({SamplingRelation.IID, SamplingRelation.INDEPENDENT}),
    ),
    select,
)
