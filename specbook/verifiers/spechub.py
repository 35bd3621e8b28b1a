"""SpecHub's rule: pairs of drafts in which the most probable token always is.

Contract: two children a node, drawn as a hub pair of one q; any tree; exact.

The hub is a = argmax q. A pair (x, a) comes with probability q(x), a pair (a, x) with
q(a) q(x) / (1 - q(a)); together x is drafted with q'(x) = q(x) / (1 - q(a)). Two stages
fill p(x), one for each kind of pair: the first takes min(p(x), q(x)), the second what
is still missing, as far as its own mass goes. Whatever pair is not accepted for its x
is free for the hub, which is in every pair: the token is then drawn from (p - q')+ /
its sum, and if it is a, the walk goes on below a. All of p(a) is accepted, and of every
other token what two drafts can carry (Sun et al. 2024, "SpecHub").
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..chance import Chance
from ..contract import Law, Selection, Verifier, VerifierContract
from ..drafts.samplers import rest
from ..errors import ContractError
from ..proposal import ProbabilitySemantics, SamplingRelation, Topology
from ..tree import CandidateTree
from .coupling import residual
from .walk import Draft, walk


def choose(p: np.ndarray, drafts: Sequence[Draft], chance: Chance) -> Draft | int:
    """The spoke if it passes its stage, else a draw from what is left of p: the hub, or
    the token. Raises `ContractError` for what is no hub pair."""
    q = drafts[0].law
    hub = int(np.argmax(drafts[0].recorded))  # a near tie may round to a tie
    centre, spoke = _pair(drafts, hub)
    left = p
    if spoke is not None:
        x = spoke.token
        both = rest(q, [hub], fallback=False)
        assert both is not None  # x has mass, and is not the hub
        # The mass of the pairs (x, hub), and of the pairs (hub, x).
        mass = q[x] if spoke is drafts[0] else both[x] * q[hub]
        missing = p[x] if spoke is drafts[0] else max(p[x] - q[x], 0 * p[x])
        if chance.flip(1 if missing >= mass else missing / mass):
            return spoke
        left = residual(p, both)
    token = chance.draw(left)
    return centre if token == hub else token


def _pair(drafts: Sequence[Draft], hub: int) -> tuple[Draft, Draft | None]:
    """The draft of the hub, and the other one if there is one."""
    at_hub = [draft for draft in drafts if draft.token == hub]
    others = [draft for draft in drafts if draft.token != hub]
    if len(at_hub) != 1 or len(others) > 1:
        raise ContractError(
            f"spechub: a pair with token {hub} in it is expected, got "
            f"{[draft.token for draft in drafts]}"
        )
    if not others and np.count_nonzero(drafts[0].law) > 1:
        raise ContractError(f"spechub: token {hub} came alone, and q has others")
    return at_hub[0], others[0] if others else None


def select(tree: CandidateTree, law: Law, chance: Chance) -> Selection:
    """The two stages at every node of the accepted path."""
    return walk(tree, law, chance, choose, name="spechub")


VERIFIER = Verifier(
    VerifierContract(
        name="spechub",
        reads_q=True,
        exact=True,
        probability=frozenset({ProbabilitySemantics.NORMALIZED_CONDITIONAL}),
        sampling=frozenset({SamplingRelation.HUB}),
        topology=frozenset({Topology.SET, Topology.TREE}),
    ),
    select,
)
