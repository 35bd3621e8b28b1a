"""Sequoia's rule: the residual update for drafts drawn without replacement.

Contract: drafts of one q, drawn without replacement, with the uniform fallback where q
is exhausted; any tree; exact.

Call what is left of p the residual `r`; at first it is p. Draft x is accepted with
probability `min(1, r(x) / q(x))`. When it is refused, the residual becomes
`max(r - q, 0)`, divided by its sum, and q loses x and is divided by what remains. If
nothing of q remains, the next q is uniform over the tokens that were not drawn
(section 0x0AB; Chen et al. 2024). Without that fallback a candidate beyond the support
of q would be divided by 0; filled in by index order, as the method's own code does, it
bends the law.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..chance import Chance
from ..contract import Law, Selection, Verifier, VerifierContract
from ..drafts.samplers import rest
from ..errors import ContractError
from ..proposal import ProbabilitySemantics, SamplingRelation
from ..tree import CandidateTree
from .coupling import acceptance, residual
from .walk import Draft, walk


def choose(p: np.ndarray, drafts: Sequence[Draft], chance: Chance) -> Draft | int:
    """The first draft that passes its test, or a draw from the last residual. Raises
    `ContractError` for a draft whose law is not what the earlier ones left over."""
    _check_succession(drafts)
    left = p
    for draft in drafts:
        if chance.flip(acceptance(left, draft.law, draft.token)):
            return draft
        left = residual(left, draft.law)
    return chance.draw(left)


def _check_succession(drafts: Sequence[Draft]) -> None:
    """Every draft was drawn from what the ones before it left of the first one's q."""
    q: np.ndarray | None = drafts[0].recorded
    taken: list[int] = []
    for draft in drafts:
        if q is None or not np.array_equal(draft.recorded, q):
            raise ContractError(
                f"sequoia: row {draft.row} was not drawn from what the {len(taken)} "
                "drafts before it left of q"
            )
        taken.append(draft.token)
        if len(taken) < len(drafts):
            q = rest(q, taken)


def select(tree: CandidateTree, law: Law, chance: Chance) -> Selection:
    """The residual update, with a shrinking q, at every node of the accepted path."""
    return walk(tree, law, chance, choose, name="sequoia")


VERIFIER = Verifier(
    VerifierContract(
        name="sequoia",
        reads_q=True,
        exact=True,
        probability=frozenset({ProbabilitySemantics.NORMALIZED_CONDITIONAL}),
        sampling=frozenset({SamplingRelation.WITHOUT_REPLACEMENT}),
    ),
    select,
)
