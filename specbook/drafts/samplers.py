"""How the children of one node are drawn: one function for each sampling relation.

Each takes a law q [V], a number of children k and a `Chance`, and returns the `Draw`s
in order. A draw carries the law that it was made from, given the draws before it: that
is what a rule must divide by. A token that was not drawn but fixed has the law that
puts everything on it; one that was only ranked (`top_k`) has none.

Written once against `Chance`, like the rules: the same functions draft and are
enumerated (sections 0x08C, 0x09, 0x0AB).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from .. import checks
from ..chance import Chance
from ..errors import LawError, SpecbookError
from ..proposal import (
    PREFIX_FRONTIER,
    ProbabilitySemantics,
    Proposal,
    ProposalNode,
    ProposalStateHandle,
    SamplingRelation,
    Topology,
)
from ..tree import CandidateTree

MOST_DRAWS = 1 << 12
"""More candidates below one node are a mistake, and no loop should be what finds it."""

MOST_NODES = 1 << 20
"""The same for a whole tree."""


class Draw(NamedTuple):
    """A candidate: its token, the law [V] it was drawn from, or a score instead."""

    token: int
    law: np.ndarray | None
    score: Any = None


def iid(q: Any, k: int, chance: Chance) -> list[Draw]:
    """k independent draws from q; a token may come twice."""
    q, k = _asked(q, k)
    _check_chance(chance)
    return [Draw(chance.draw(q), q) for _ in range(k)]


def independent(laws: Iterable[Any], chance: Chance) -> list[Draw]:
    """One draw from each of `laws`, independently: several drafters, one candidate
    each (section 0x09)."""
    rows = [
        checks.law(law, f"laws[{i}]")
        for i, law in enumerate(_rows(laws, "laws", "probability laws"))
    ]
    _check_chance(chance)
    return [Draw(chance.draw(row), row) for row in rows]


def without_replacement(
    q: Any, k: int, chance: Chance, *, fallback: bool = True
) -> list[Draw]:
    """k draws, each from what is left of q when the earlier tokens are taken out.

    When all of q's mass is drawn, the next candidates are uniform over the tokens that
    remain (section 0x0AB), until there are none; with `fallback` False drawing ends
    there. The draws are made one after the other, so that they can be enumerated; an
    exponential race has the same law.
    """
    law, k = _asked(q, k)
    _check_chance(chance)
    draws: list[Draw] = []
    for number in range(k):
        if number:
            left = rest(law, [draw.token for draw in draws], fallback=fallback)
            if left is None:
                break
            law = left
        draws.append(Draw(chance.draw(law), law))
    return draws


def top_k(q: Any, k: int, chance: Chance | None = None) -> list[Draw]:
    """The k most probable tokens, lowest id first on ties; nothing is drawn, so they
    have scores and no law. Tokens of probability 0 are left out."""
    q, k = _asked(q, k)
    return [Draw(token, None, q[token]) for token in most_probable(q, k)]


def greedy_plus_one(q: Any, k: int, chance: Chance) -> list[Draw]:
    """The k - 1 most probable tokens, and one draw from q without them.

    Where q has no mass outside them, there is no draw (Hu et al. 2025, "Towards
    Optimal Multi-draft Speculative Decoding").
    """
    q, k = _asked(q, k)
    _check_chance(chance)
    if k == 0:
        return []
    fixed = most_probable(q, k - 1)
    draws = [Draw(token, one_hot(q, token)) for token in fixed]
    law = rest(q, fixed, fallback=False) if fixed else q
    if law is not None:
        draws.append(Draw(chance.draw(law), law))
    return draws


def hub(q: Any, k: int, chance: Chance) -> list[Draw]:
    """Two candidates of which one is the hub a = argmax q: x drawn from q, then a; or,
    if x is a itself, then one more from q without a (Sun et al. 2024, "SpecHub").

    The pair (x, a) comes with probability q(x), the pair (a, x) with
    q(a) q(x) / (1 - q(a)). Where q is all on a, a is the only candidate. Raises
    `SpecbookError` unless k is 2.
    """
    q, k = _asked(q, k)
    _check_chance(chance)
    if k != 2:
        raise SpecbookError(f"a hub pair has two candidates, k is {k}")
    centre = int(np.argmax(q))
    first = Draw(chance.draw(q), q)
    if first.token != centre:
        return [first, Draw(centre, one_hot(q, centre))]
    law = rest(q, [centre], fallback=False)
    return [first] if law is None else [first, Draw(chance.draw(law), law)]


ChildSampler = Callable[[Any, int, Chance], list[Draw]]

SAMPLERS: Mapping[SamplingRelation, ChildSampler] = {
    SamplingRelation.IID: iid,
    SamplingRelation.WITHOUT_REPLACEMENT: without_replacement,
    SamplingRelation.BEAM: top_k,
    SamplingRelation.GREEDY_PLUS_ONE: greedy_plus_one,
    SamplingRelation.HUB: hub,
}
"""The samplers that draw k candidates from one law."""


def rest(
    law: np.ndarray, taken: Sequence[int], *, fallback: bool = True
) -> np.ndarray | None:
    """What is left of `law` [V] without the tokens in `taken`, renormalised.

    If nothing is left: uniform over the other tokens, or None if there is no other
    token or `fallback` is False.
    """
    law = _known(law, "law")
    taken = checks.token_ids(taken, "taken", vocab_size=len(law))
    left = law.copy()
    left[taken] = 0
    total = left.sum()
    if total > 0:
        return left / total
    others = np.ones(len(law), dtype=bool)
    others[taken] = False
    count = int(others.sum())
    if count == 0 or not fallback:
        return None
    left[others] = Fraction(1, count) if law.dtype == object else 1 / count
    return left


def most_probable(law: np.ndarray, count: int) -> list[int]:
    """The `count` most probable tokens of `law` [V], the lowest id first on ties;
    fewer if fewer are possible."""
    law = _known(law, "law")
    count = checks.integer(count, "count", least=0)
    possible = np.flatnonzero(law)
    count = min(count, len(possible))
    if count == 0:
        return []
    # A full sort of a real vocabulary costs more than a small draft model's forward;
    # and so does a partition of one that is nearly all zeros.
    mass = law[possible]
    least = np.partition(mass, len(mass) - count)[len(mass) - count]
    found = possible[mass >= least]
    return found[np.argsort(-law[found], kind="stable")][:count].tolist()


def one_hot(like: np.ndarray, token: int) -> np.ndarray:
    """The law that is sure of `token`, of the size and kind of `like` [V]."""
    like = _known(like, "like")
    (token,) = checks.token_ids([token], "token", vocab_size=len(like))
    law = like * 0
    law[token] = law[token] + 1
    return law


def mixture(laws: Iterable[Any], weights: Any) -> np.ndarray:
    """The normalised mixture of several drafters' laws: one law again, so that a draw
    from it may meet every rule for one q (the first way out of a merge, section
    0x02A). `weights`: a law over the drafters."""
    rows = [
        checks.law(law, f"laws[{i}]")
        for i, law in enumerate(_rows(laws, "laws", "probability laws"))
    ]
    weights = checks.law(weights, "weights", size=len(rows))
    if len({len(row) for row in rows}) > 1:
        raise LawError(f"laws over {sorted({len(row) for row in rows})} tokens")
    if any(row.dtype != object for row in (*rows, weights)):
        # Where one side rounds, the other's exactness is of no use.
        *rows, weights = (row.astype(np.float64) for row in (*rows, weights))
    mixed = sum(weight * row for weight, row in zip(weights, rows, strict=True))
    return checks.law(mixed, "the mixture")


def expand(
    conditional: Callable[[tuple[int, ...]], Any],
    widths: Iterable[int],
    sampler: ChildSampler,
    chance: Chance,
    *,
    source: str = "draft",
    max_nodes: int | None = None,
) -> tuple[ProposalNode, ...]:
    """A tree of drawn candidates: `widths[d]` children of every node of depth d.

    `conditional(path)` is the draft law [V] after the candidates in `path`. Level by
    level; a token that was drawn twice under one parent is two nodes and has one
    family of children. A family that does not fit into `max_nodes` is not begun, so
    that no family is cut by what was drawn in it (section 0x09). Raises
    `SpecbookError` for more than `MOST_NODES`.
    """
    for name, program in (("conditional", conditional), ("sampler", sampler)):
        # A class is callable, but calling one makes an object and draws nothing.
        if not callable(program) or isinstance(program, type):
            raise SpecbookError(f"{name} must be a function, got {program!r}")
    if max_nodes is not None:
        checks.integer(max_nodes, "max_nodes", least=0)
    nodes: list[ProposalNode] = []
    level: dict[tuple[int, ...], int] = {(): PREFIX_FRONTIER}
    for depth, width in enumerate(_rows(widths, "widths", "integers"), start=1):
        checks.integer(width, f"widths[{depth - 1}]", least=1)
        below: dict[tuple[int, ...], int] = {}
        for path, parent in level.items():
            if max_nodes is not None and len(nodes) + width > max_nodes:
                return tuple(nodes)
            if len(nodes) + width > MOST_NODES:
                raise SpecbookError(f"a tree of more than {MOST_NODES} nodes")
            draws = sampler(conditional(path), width, chance)
            for draw in checks.entries(draws, "what the sampler returned", "draws"):
                made = node(draw, parent, depth, source)
                below.setdefault((*path, made.token_id), len(nodes))
                nodes.append(made)
        level = below
    return tuple(nodes)


def node(draw: Draw, parent: int, depth: int, source: str) -> ProposalNode:
    """`draw` as a node of a proposal. Raises `SpecbookError` for what is no `Draw`, and
    for a token that its law does not know."""
    if not isinstance(draw, Draw):
        raise SpecbookError(f"not a Draw: {draw!r}")
    law = None if draw.law is None else _known(draw.law, "the law of a draw")
    size = None if law is None else len(law)
    (token,) = checks.token_ids([draw.token], "token", vocab_size=size)
    return ProposalNode(
        token,
        parent,
        depth,
        q=None if law is None else law[token],
        score=draw.score,
        source=source,
        law=law,
    )


def position_tree(draws: Iterable[Draw], *, prefix_len: int = 0) -> CandidateTree:
    """The tree of depth 1 that a rule sees when it is asked about one position. Draws
    with a law and draws without one are two sources, merged in this order. Raises
    `SpecbookError` for what are no draws."""
    parts: tuple[list[ProposalNode], list[ProposalNode]] = ([], [])
    for index, draw in enumerate(_rows(draws, "draws", "draws")):
        if not isinstance(draw, Draw):
            raise SpecbookError(f"draws[{index}] is no Draw: {draw!r}")
        parts[draw.law is None].append(node(draw, PREFIX_FRONTIER, 1, "draft"))
    kinds = (
        (ProbabilitySemantics.NORMALIZED_CONDITIONAL, SamplingRelation.INDEPENDENT),
        (ProbabilitySemantics.SCORE_ONLY, SamplingRelation.BEAM),
    )
    state = ProposalStateHandle("draft", "request-0", 0)
    proposals = [
        Proposal(tuple(nodes), *kind, Topology.SET, state, "")
        for nodes, kind in zip(parts, kinds, strict=True)
        if nodes
    ]
    return CandidateTree.from_proposals(proposals, prefix_len)


def _check_chance(chance: Any) -> None:
    if not hasattr(chance, "draw"):
        raise SpecbookError(f"chance must answer `draw`, got {chance!r}")


def _known(law: Any, name: str) -> np.ndarray:
    """A law; an array of Fractions has been one before, and an enumeration asks about
    the same few on each of its branches."""
    if (
        isinstance(law, np.ndarray)
        and law.ndim == 1
        and len(law)
        and all(type(entry) is Fraction for entry in law)
    ):
        return law
    return checks.law(law, name)


def _asked(q: Any, k: int) -> tuple[np.ndarray, int]:
    return checks.law(q, "q"), checks.integer(k, "k", least=0, most=MOST_DRAWS)


def _rows(values: Any, name: str, what: str) -> list[Any]:
    """A list of rows; an array of them stays an array each."""
    if isinstance(values, np.ndarray) and values.ndim:
        return list(values)
    return checks.entries(values, name, what)
