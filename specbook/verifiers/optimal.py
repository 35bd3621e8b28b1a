"""An optimal rule for one position: a mixture of priority lists.

Contract: the children of the prefix, drawn independently from one q or without
replacement; a set; exact.

A priority list is an order of some tokens: the first of them that is among the drafts
is accepted, none if none is. A list L accepts its token x with the probability
f(L up to x) - f(L before x), where f(H) is the probability that some draft lies in H. f
is submodular, and the masses that some rule can accept are the points a >= 0 with
a(H) <= f(H) for all H: a polytope whose corners are the lists. So

1. fill a up to p, token by token, as far as f allows; whatever the order, the total is
   then the optimum, the minimum over H of p(H) + 1 - P(all drafts in H);
2. write a as a mixture of corners;
3. draw a list from the mixture and follow it; if nothing on it was drafted, draw the
   token from p - a, renormalised.

This is the transport plan of section 0x08C, found without one variable for each vector
of drafts. It looks at every set of the tokens that can be drafted, at most `MOST` of
them, and computes in exact arithmetic whatever it is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, reduce
from operator import and_
from typing import Any

import numpy as np

from .. import checks
from ..chance import Chance
from ..contract import Law, Selection, Verifier, VerifierContract
from ..drafts.samplers import MOST_DRAWS, rest
from ..errors import ContractError, SpecbookError
from ..proposal import ProbabilitySemantics, SamplingRelation, Topology
from ..tree import CandidateTree
from .walk import Draft, walk

MOST = 12
"""So many tokens make 2^12 sets, each looked at once for every list."""


@dataclass(frozen=True)
class Plan:
    """`lists` of tokens, first served first, with a law of `weights` over them; the
    masses [V] that they accept, and what is `left` of p: a law [V], or p where the
    drafts take all."""

    lists: tuple[tuple[int, ...], ...]
    weights: np.ndarray
    accepted: np.ndarray
    left: np.ndarray


def plan(p: Any, q: Any, k: int, sampling: str = "iid") -> Plan:
    """The mixture for k drafts of q [V], drawn "iid" or "without_replacement".

    Its acceptance, `accepted.sum()`, is the optimum. The laws may be Fractions or
    floats; the plan is in Fractions. Raises `SpecbookError` for more than `MOST`
    tokens that matter.
    """
    p = checks.law(p, "p")
    q = checks.law(q, "q", size=len(p))
    k = checks.integer(k, "k", least=1, most=MOST_DRAWS)
    checks.one_of(sampling, "sampling", ("iid", "without_replacement"))
    return _plan(_fractions(p.tolist()), tuple(q.tolist()), k, sampling)


@lru_cache(maxsize=64)
def _plan(p: tuple[Fraction, ...], q: tuple[Any, ...], k: int, sampling: str) -> Plan:
    tokens, f = _hits_iid(p, q, k) if sampling == "iid" else _hits_without(p, q, k)
    filled = _fill([p[x] for x in tokens], f)
    corners = _corners(filled, f)
    accepted = np.array([Fraction(0)] * len(p), dtype=object)
    for mass, x in zip(filled, tokens, strict=True):
        accepted[x] = mass
    law = np.array(p, dtype=object)
    refused = 1 - accepted.sum()
    return Plan(
        tuple(tuple(tokens[i] for i in order) for order, _ in corners),
        np.array([weight for _, weight in corners], dtype=object),
        accepted,
        (law - accepted) / refused if refused > 0 else law,
    )


# ------------------------------ f(H) = P(some draft lies in H), for sets as bits


def _hits_iid(
    p: Sequence[Fraction], q: Sequence[Any], k: int
) -> tuple[list[int], np.ndarray]:
    """The tokens that matter, and f for every set of them."""
    q = _fractions(q)
    tokens = _few([x for x in range(len(p)) if p[x] > 0 and q[x] > 0])
    return tokens, 1 - (1 - _sums([q[x] for x in tokens])) ** k


def _hits_without(
    p: Sequence[Fraction], q: Sequence[Any], k: int
) -> tuple[list[int], np.ndarray]:
    """The same, by the sets that the draws may make, each with its probability."""
    exact = all(isinstance(x, Fraction) for x in q)
    law = np.array(q, dtype=object if exact else np.float64)
    support = np.flatnonzero(law).tolist()
    # Beyond the support every token can be drawn: the uniform fallback.
    tokens = _few(support if k <= len(support) else list(range(len(law))))
    bit = {x: 1 << i for i, x in enumerate(tokens)}
    drawn: dict[frozenset[int], Any] = {frozenset(): 1}
    for _ in range(min(k, len(tokens))):
        more: dict[frozenset[int], Any] = {}
        for taken, mass in drawn.items():
            left = rest(law, sorted(taken)) if taken else law
            assert left is not None
            for x in np.flatnonzero(left).tolist():
                key = taken | {x}
                more[key] = more.get(key, 0) + mass * left[x]
        drawn = more
    # Whatever the rounding of float64 did to these masses: as exact numbers that sum
    # to 1 they are the law of some random set, and f is submodular to the last digit.
    inside = np.array([Fraction(0)] * (1 << len(tokens)), dtype=object)
    for taken, mass in zip(drawn, _fractions(list(drawn.values())), strict=True):
        inside[sum(bit[x] for x in taken)] = mass
    sets = np.arange(len(inside))
    for i in range(len(tokens)):
        above = (sets >> i & 1).astype(bool)
        inside[above] += inside[~above]
    return tokens, 1 - inside[::-1]


def _few(tokens: list[int]) -> list[int]:
    if len(tokens) > MOST:
        raise SpecbookError(
            f"optimal: it looks at every set of the tokens that can be drafted, and "
            f"these are {len(tokens)}; at most {MOST} are allowed"
        )
    return tokens


# ------------------------------------------------------------ points and corners


def _fill(most: Sequence[Fraction], f: np.ndarray) -> list[Fraction]:
    """A greatest point a <= `most` with a(H) <= f(H) for every set H."""
    sets = np.arange(len(f))
    room = f.copy()  # f(H) - a(H)
    filled = []
    for i, limit in enumerate(most):
        with_i = (sets >> i & 1).astype(bool)
        filled.append(min(limit, min(room[with_i])))
        room[with_i] -= filled[-1]
    return filled


def _corners(
    point: Sequence[Fraction], f: np.ndarray
) -> list[tuple[tuple[int, ...], Fraction]]:
    """`point` as a mixture of lists: (list, weight) pairs, the weights a law.

    From the point, away from one corner of the face that it lies on, to where the ray
    leaves the polytope; there a smaller face begins, and so on down to a corner.
    """
    count = len(point)
    x = np.array(point, dtype=object)
    share = Fraction(1)
    found = []
    while True:
        slack = f - _sums(x)
        order = _order(x, slack)
        corner = np.array([Fraction(0)] * count, dtype=object)
        before = 0
        for i in order:
            corner[i] = f[before | 1 << i] - f[before]
            before |= 1 << i
        away = x - corner
        limits = [
            room / grows
            for room, grows in zip(slack, _sums(away), strict=True)
            if grows > 0
        ]
        limits += [
            mass / -shrinks
            for mass, shrinks in zip(x, away, strict=True)
            if shrinks < 0
        ]
        if not limits:  # nothing changes on the way: the point is the corner
            found.append((order, share))
            return found
        step = min(limits)
        found.append((order, share * step / (1 + step)))
        share = share / (1 + step)
        x = x + step * away


def _order(x: np.ndarray, slack: np.ndarray) -> tuple[int, ...]:
    """The tokens with any mass, in an order in which every set without slack is, as
    far as it has mass, a beginning."""
    support = [i for i in range(len(x)) if x[i] > 0]
    tight = [subset for subset in range(1, len(slack)) if slack[subset] == 0]
    # The smallest set without slack that holds i: they are closed under intersection.
    smallest = {}
    for i in support:
        holding = [subset for subset in tight if subset >> i & 1]
        if holding:
            smallest[i] = reduce(and_, holding)
    bound = sorted(smallest, key=lambda i: (smallest[i].bit_count(), smallest[i], i))
    return (*bound, *(i for i in support if i not in smallest))


def _sums(x: Iterable[Fraction]) -> np.ndarray:
    """x(H) for every set H, sets as bits."""
    sums = np.array([Fraction(0)], dtype=object)
    for value in x:
        sums = np.concatenate([sums, sums + value])
    return sums


def _fractions(law: Sequence[Any]) -> tuple[Fraction, ...]:
    """The law, exactly; floats are what they are, divided by their exact sum."""
    numbers = [Fraction(x) for x in law]
    total = sum(numbers)
    return tuple(x / total for x in numbers)


# ------------------------------------------------------------------------ the rule


def choose(p: np.ndarray, drafts: Sequence[Draft], chance: Chance) -> Draft | int:
    """The first draft on a list of the plan, or a draw from what is left."""
    made = plan(p, drafts[0].law, len(drafts), _sampling(drafts))
    kind = p.dtype
    order = made.lists[chance.draw(made.weights.astype(kind))]
    for token in order:
        for draft in drafts:
            if draft.token == token:
                return draft
    return chance.draw(made.left.astype(kind))


def _sampling(drafts: Sequence[Draft]) -> str:
    """How the drafts were drawn, as their laws tell."""
    q = drafts[0].recorded
    if all(np.array_equal(draft.recorded, q) for draft in drafts):
        return "iid"
    expected: np.ndarray | None = q
    for number, draft in enumerate(drafts):
        if expected is None or not np.array_equal(draft.recorded, expected):
            raise ContractError(
                f"optimal: row {draft.row} was drawn neither from the first draft's "
                "law nor from what is left of it"
            )
        # From what was left last: float64 rounds with every draw, as the sampler did.
        expected = rest(expected, [d.token for d in drafts[: number + 1]])
    return "without_replacement"


def select(tree: CandidateTree, law: Law, chance: Chance) -> Selection:
    """The list's choice, then a target draw; or the correction."""
    return walk(tree, law, chance, choose, name="optimal")


VERIFIER = Verifier(
    VerifierContract(
        name="optimal",
        reads_q=True,
        exact=True,
        probability=frozenset({ProbabilitySemantics.NORMALIZED_CONDITIONAL}),
        sampling=frozenset(
            {SamplingRelation.IID, SamplingRelation.WITHOUT_REPLACEMENT}
        ),
        topology=frozenset({Topology.SET}),
    ),
    select,
)
