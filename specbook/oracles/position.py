"""What a rule does at one position, exactly: the law of its token, by enumeration.

Sampler and rule are the programs that decode; `chance.law` walks all their branches. So
a rule is measured as it is, and there is no second version that could differ
(sections 0x08, 0x09A).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import checks
from ..chance import Chance, law
from ..contract import Selection, SourceContract, Verifier, negotiate
from ..drafts.samplers import Draw, position_tree
from ..errors import ContractError
from ..proposal import ProbabilitySemantics, SamplingRelation, Topology
from ..verifiers import get
from .drafted import Position, ask, check_reach


@dataclass(frozen=True)
class PositionLaw:
    """What comes out of one position; Fractions where all the laws were.

    `acceptance`: the probability that the rule itself emits a draft. `membership`: that
    the emitted token is among the drafts, however it got there. `output`: the token's
    law, one entry a token.
    """

    acceptance: Any
    membership: Any
    output: tuple[Any, ...]


def position_law(
    verifier: str | Verifier, p: Any, q: Any, k: int, sampling: str = "iid"
) -> PositionLaw:
    """The exact law of `verifier` (a name or an object) at one position.

    `p` [V]: the target's law. `q` [V]: the law of the `k` drafts; for `independent` a
    list of k rows. `sampling`: one of `RELATIONS`. Where a correction that lands on a
    fixed draft walks on below it (greedy drafts, hub pairs), that draft counts as
    accepted. Heuristics are measured like the rest. Raises `ContractError` for a pair
    that `bind` would refuse, `SpecbookError` for more vectors of drafts than can be
    walked through; `measure` refuses no pair.
    """
    rule = rule_of(verifier)
    asked = ask(p, q, k, sampling)
    admit(rule, asked)
    check_reach(asked)
    return measure(rule.select, asked.draw, asked.p)


def rule_of(verifier: Any) -> Verifier:
    """The verifier of that name, or the object itself if it is one."""
    rule = get(verifier) if isinstance(verifier, str) else verifier
    if not isinstance(rule, Verifier):
        raise ContractError(f"not a verifier: {verifier!r}")
    return rule


def admit(verifier: Verifier, asked: Position) -> None:
    """Raises `ContractError` unless `verifier` may judge the drafts of `asked`."""
    contract = verifier.contract
    # A single draft is a sequence and a set.
    chain = asked.k == 1 and contract.supports_topology(Topology.SEQUENCE)
    drawn = asked.relation is not SamplingRelation.BEAM
    offered = SourceContract(
        f"{asked.k} drafts",
        ProbabilitySemantics.NORMALIZED_CONDITIONAL
        if drawn
        else ProbabilitySemantics.SCORE_ONLY,
        asked.relation,
        Topology.SEQUENCE if chain else Topology.SET,
    )
    negotiate([offered], verifier, exact=False)
    if contract.greedy_only and np.count_nonzero(asked.p) > 1:
        raise ContractError(
            f"verifier {contract.name!r} belongs to temperature 0, where p is sure of "
            f"one token; here {np.count_nonzero(asked.p)} are possible"
        )


def measure(
    select: Callable[..., Any], draws: Callable[[Chance], Iterable[Draw]], p: Any
) -> PositionLaw:
    """The exact law of any rule with any drafts, whether or not they belong together:
    this is how a mistake is measured.

    `select(tree, law, chance)`: a verifier's, or a wrong one. `draws(chance)`: the
    `Draw`s of one position, which may claim any law. `p` [V]: the target's law. Raises
    `ContractError` for what is no rule, and for a token outside the vocabulary.
    """
    p = checks.law(p, "p")
    for name, program_part in (("select", select), ("draws", draws)):
        # A class is callable, but calling one makes an object and decides nothing.
        if not callable(program_part) or isinstance(program_part, type):
            raise ContractError(f"{name} must be callable, got {program_part!r}")
    # After the accepted draft the next token is sure, so that it adds no branch.
    after = p * 0
    after[0] = after[0] + 1

    def program(chance: Chance) -> tuple[bool, bool, int]:
        tree = position_tree(draws(chance))
        tree.validate(vocab_size=len(p))
        chosen = select(tree, lambda row: p if row < 0 else after, chance)
        if not isinstance(chosen, Selection):
            raise ContractError(f"the rule returned no Selection but {chosen!r}")
        rows = tree.check_path(chosen.rows)
        token = tree.token_ids[rows[0]] if rows else chosen.token
        checks.integer(token, "the rule's token", most=len(p) - 1, error=ContractError)
        return bool(rows), token in tree.token_ids, token

    accepted = membership = p[0] * 0
    output = [p[0] * 0] * len(p)
    found: dict[Any, Any] = law(program)
    for (taken, among, token), mass in found.items():
        accepted += mass * taken
        membership += mass * among
        output[token] += mass
    return PositionLaw(accepted, membership, tuple(output))
