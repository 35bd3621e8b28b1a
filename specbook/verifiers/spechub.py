"""SpecHub's rule: pairs of drafts in which the most probable token always is.

Contract: two children a node, drawn as a hub pair of one q; any tree; exact.

The hub is a = argmax q. A pair (x, a) comes with probability q(x), a pair (a, x) with
q(a) q(x) / (1 - q(a)). Two stages fill p(x) for every x but a, one for each kind of
pair: the first takes min(p(x), q(x)), the second min(what is left of p(x), its own
mass). Whatever pair is not accepted for its x is free for the hub, which is in every
pair: the token is then drawn from what is left of p, and if it is a, the walk goes on
below a. All of p(a) is accepted, and of every other token what two drafts can carry
(Sun et al. 2024, "SpecHub").
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..chance import Chance
from ..contract import Law, Selection, Verifier, VerifierContract
from ..errors import ContractError
from ..proposal import ProbabilitySemantics, SamplingRelation
from ..tree import CandidateTree
from .walk import Draft, walk


def choose(p: np.ndarray, drafts: Sequence[Draft], chance: Chance) -> Draft | int:
    """The spoke if it passes its stage, else a draw from what is left of p: the hub, or
    the token. Raises `ContractError` for what is no hub pair."""
    q = drafts[0].law
    hub = int(np.argmax(q))
    # The mass of the pairs (x, hub) and of the pairs (hub, x).
    first = q.copy()
    first[hub] = 0
    outside = first.sum()
    second = first / outside * q[hub] if outside > 0 else first
    taken_first = np.minimum(p, first)
    left = p - taken_first
    taken_second = np.minimum(left, second)
    left = left - taken_second

    centre, spoke = _pair(drafts, hub)
    if spoke is not None:
        ahead = spoke is drafts[0]
        taken, mass = (taken_first, first) if ahead else (taken_second, second)
        x = spoke.token
        if chance.flip(1 if taken[x] == mass[x] else taken[x] / mass[x]):
            return spoke
    total = left.sum()
    # Nothing is left where nothing is refused, but for the rounding of float64.
    token = chance.draw(left / total if total > 0 else p)
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
    if not others and drafts[0].law[hub] != 1:
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
    ),
    select,
)
