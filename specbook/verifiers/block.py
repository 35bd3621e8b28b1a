"""Block verification: a drafted chain is judged as a whole, from its end.

Contract: a chain, each token drawn from the normalised law that stands beside it; reads
q, one source at a time; exact.

A weight w runs along the chain. It starts at 1, and each drafted token x turns it into
`min(1, w p(x) / q(x))`: the probability that the accepted block ends at this position
or at a later one. Then the positions are tried from the last to the first. With s for
the sum of `max(w p - q, 0)` over the tokens that may follow a position, the block ends
there with probability `s / (s + 1 - w)`, and at the last position with w itself. The
token that follows comes from that residual, renormalised, and after a whole block from
p (Sun et al. 2024, "Block Verification Accelerates Speculative Decoding").

A token that the rule for one draft refuses for good can be accepted here because those
before it were worth more than they used; no lossless rule accepts more of a chain.
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
from .coupling import carried, excess
from .walk import position


def select(tree: CandidateTree, law: Law, chance: Chance) -> Selection:
    """The accepted block, then the token after it. Raises `ContractError` for what is
    no chain and for a token without its law."""
    rows: list[int] = []
    steps = []  # p, q and w at every position that has a candidate
    row, w = PREFIX_FRONTIER, 1
    while True:
        p, drafts = position(tree, law, row, name="block")
        if not drafts:
            break
        if len(drafts) > 1:
            raise ContractError(f"block: row {row} has {len(drafts)} candidates, not 1")
        draft = drafts[0]
        steps.append((p, draft.law, w))
        w = carried(w, p, draft.law, draft.token)
        rows.append(draft.row)
        row = draft.row
    if chance.flip(w):
        return Selection(tuple(rows), chance.draw(p))
    for end in reversed(range(len(rows))):
        w, p = excess(steps[end][2], *steps[end][:2])
        if chance.flip(w):
            break
    # At the beginning w is 1, so the loop always breaks.
    return Selection(tuple(rows[:end]), chance.draw(p))


VERIFIER = Verifier(
    VerifierContract(
        name="block",
        reads_q=True,
        exact=True,
        probability=frozenset({ProbabilitySemantics.NORMALIZED_CONDITIONAL}),
        sampling=frozenset({SamplingRelation.IID}),
        topology=frozenset({Topology.SEQUENCE}),
    ),
    select,
)
