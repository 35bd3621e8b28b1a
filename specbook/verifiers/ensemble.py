"""Ensemble verification: the rule for one draft against a blend of target and draft.

Contract: a chain, each token drawn from the normalised law that stands beside it; reads
q, one source at a time; a heuristic. Its output has the law w p + (1 - w) q where a
draft was tested, and exact mode refuses it.

A draft is accepted with min(1, v / q) where v = w p + (1 - w) q, so more often the less
the target counts: 1 - w TV(p, q). The correction is drawn from (v - q)+ renormalised,
which is (p - q)+ renormalised, and after a whole chain the token comes from p itself
(transformers' `assistant_ensemble_weight`, after "DIVERSE", arXiv 2604.07622).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from .. import checks
from ..chance import Chance
from ..contract import Law, Selection, Verifier, VerifierContract
from ..errors import ContractError, SpecbookError
from ..proposal import ProbabilitySemantics, SamplingRelation, Topology
from ..tree import CandidateTree
from .coupling import acceptance, matching, residual
from .walk import Draft, walk

WEIGHT = 0.5


def choose(
    p: np.ndarray, drafts: list[Draft], chance: Chance, weight: Any
) -> Draft | int:
    """The one draft if it passes against the blend, else the usual correction."""
    if len(drafts) != 1:
        raise ContractError(f"ensemble: one candidate a row, got {len(drafts)}")
    draft = drafts[0]
    weight = matching(weight, p)
    blend = weight * p + (1 - weight) * draft.law
    if chance.flip(acceptance(blend, draft.law, draft.token)):
        return draft
    return chance.draw(residual(p, draft.law))


def select(
    tree: CandidateTree, law: Law, chance: Chance, weight: Any = WEIGHT
) -> Selection:
    """The accepted part of the chain, then the token after it."""
    return walk(tree, law, chance, partial(choose, weight=weight), name="ensemble")


def verifier(weight: Any = WEIGHT) -> Verifier:
    """The rule with the target's `weight` in (0, 1); at 1 it would be `single`."""
    checks.float64(weight, "weight", least=0, most=1)
    if weight in (0, 1):
        raise SpecbookError(f"weight must be between 0 and 1, got {weight}")
    return Verifier(CONTRACT, partial(select, weight=weight))


CONTRACT = VerifierContract(
    name="ensemble",
    reads_q=True,
    exact=False,
    probability=frozenset({ProbabilitySemantics.NORMALIZED_CONDITIONAL}),
    sampling=frozenset({SamplingRelation.IID}),
    topology=frozenset({Topology.SEQUENCE}),
)
VERIFIER = verifier()
