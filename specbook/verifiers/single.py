"""The rule for one draft: accept with min(1, p / q), else draw from what is left of p.

Contract: a chain, each token drawn from the normalised law that stands beside it; reads
q, one source at a time; exact. At each position it is the maximal coupling of section
0x08A, so a draft is accepted with probability 1 - TV(p, q). The walk ends at the first
refusal, whatever the later tokens are (case H13), and after full acceptance one token
more comes from the target's own law.
"""

from __future__ import annotations

from ..chance import Chance
from ..contract import Law, Selection, Verifier, VerifierContract
from ..errors import ContractError
from ..proposal import (
    PREFIX_FRONTIER,
    ProbabilitySemantics,
    SamplingRelation,
    Topology,
)
from ..tree import CandidateTree
from .coupling import acceptance, residual
from .walk import position


def select(tree: CandidateTree, law: Law, chance: Chance) -> Selection:
    """The accepted part of the chain, then a draw from the residual, or from the
    target's law after the last token. Raises `ContractError` for what is no chain and
    for a token without its law."""
    rows: list[int] = []
    row = PREFIX_FRONTIER
    while True:
        p, drafts = position(tree, law, row, name="single")
        if not drafts:
            return Selection(tuple(rows), chance.draw(p))
        if len(drafts) > 1:
            raise ContractError(
                f"single: row {row} must have one candidate; it has {len(drafts)}"
            )
        draft = drafts[0]
        if not chance.flip(acceptance(p, draft.law, draft.token)):
            return Selection(tuple(rows), chance.draw(residual(p, draft.law)))
        rows.append(draft.row)
        row = draft.row


VERIFIER = Verifier(
    VerifierContract(
        name="single",
        reads_q=True,
        exact=True,
        probability=frozenset({ProbabilitySemantics.NORMALIZED_CONDITIONAL}),
        sampling=frozenset({SamplingRelation.IID}),
        topology=frozenset({Topology.SEQUENCE}),
    ),
    select,
)
