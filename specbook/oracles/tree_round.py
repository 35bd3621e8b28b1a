"""One round on a drawn tree, exactly: the law of the path that a rule accepts.

`position_law` looks at one position. In a tree the laws below a candidate depend on the
path to it, and a rule that is exact at a node may be wrong in the tree, or accept less
than another one that looks further down (section 0x08C, one position is not a tree).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .. import checks
from ..chance import Chance
from ..chance import law as chance_law
from ..contract import Verifier
from ..drafts.samplers import SAMPLERS, expand
from ..proposal import ProbabilitySemantics, Proposal, ProposalStateHandle, Topology
from ..tree import CandidateTree
from .drafted import RELATIONS
from .position import rule_of

Path = tuple[int, ...]


def round_law(
    verifier: str | Verifier,
    target: Any,
    draft: Any,
    widths: Iterable[int],
    sampling: str = "iid",
) -> dict[tuple[Path, int], Any]:
    """{(accepted tokens, the token after them): probability} of one round.

    `target`, `draft`: a law [V], the same after every path, or a function of the path
    (a tuple of tokens) that returns one. `widths[d]`: children below every candidate of
    depth d, drawn as `sampling` says (any of `RELATIONS` but `independent`). Exact on
    Fractions. Contracts are not asked: a mistake can be measured, too. Raises what the
    rule raises, and `ChanceError` for a tree out of reach.
    """
    checks.one_of(sampling, "sampling", [s for s in RELATIONS if s != "independent"])
    relation = RELATIONS[sampling]
    select = rule_of(verifier).select
    counts = checks.entries(widths, "widths", "integers")
    p, q = _after(target, "target"), _after(draft, "draft")
    drawn = sampling != "top_k"
    semantics = (
        ProbabilitySemantics.NORMALIZED_CONDITIONAL
        if drawn
        else ProbabilitySemantics.SCORE_ONLY
    )
    state = ProposalStateHandle("draft", "request-0", 0)

    def program(chance: Chance) -> tuple[Path, int]:
        nodes = expand(q, counts, SAMPLERS[relation], chance)
        made = Proposal(nodes, semantics, relation, Topology.TREE, state, "")
        tree = CandidateTree.from_proposals(made, 0)
        paths = {-1: (), **dict(enumerate(tree.full_prefixes))}
        found = select(tree, lambda row: p(paths[row]), chance)
        rows = tree.check_path(found.rows)
        return tuple(tree.token_ids[row] for row in rows), found.token

    return chance_law(program)  # type: ignore[return-value]


def _after(given: Any, name: str) -> Callable[[Path], Any]:
    if callable(given):
        return given
    row = checks.law(given, name)
    return lambda path: row


def continued(
    blocks: Mapping[tuple[Path, int], Any], target: Any, length: int
) -> dict[Path, Any]:
    """The law of the first `length` tokens of the output whose first round has the law
    `blocks` (as `round_law` gives it); what a round leaves open comes from `target`, a
    law [V] or a function of the path. This is what a lossless rule leaves as it is."""
    checks.integer(length, "length", least=1)
    p = _after(target, "target")
    found: dict[Path, Any] = {}

    def add(text: Path, mass: Any) -> None:
        if len(text) < length:
            for token, step in enumerate(checks.law(p(text), f"target after {text}")):
                if step > 0:
                    add((*text, token), mass * step)
        else:
            key = text[:length]
            found[key] = found.get(key, 0) + mass

    for (path, token), mass in blocks.items():
        add((*path, token), mass)
    return found
