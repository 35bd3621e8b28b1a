"""SpecTr's transport problem as a maximum flow (section 0x08C).

Source -> every vector X of drafts (its probability) -> every token in it -> sink (p).
What can flow is the largest probability with which any rule may emit one of the drafts;
what flows from X to y is that rule's plan. The rest of every vector, and of p, is
paired independently: the correction.

A flow is exact in integers. `scipy.sparse.csgraph.maximum_flow` reads 32 bits, wraps
larger numbers without a word, and is fast; networkx takes Python's integers and is
slow. The probabilities are multiplied by the least common multiple of their
denominators: if that fits, scipy solves the problem, else networkx does. Nothing is
ever rounded to fit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain
from typing import Any

import networkx
import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from ..errors import SpecbookError
from .drafted import ask, in_parts, vectors

INT32 = 2**31 - 1

MAX_SEARCHED = 1 << 24
"""Edges times tokens that networkx is given: about two minutes. It searches the whole
graph once for every token or so."""

MAX_PAIRS = 1 << 20
"""A plan of more pairs of vector and token is not written down."""

Vector = tuple[int, ...]
Flow = dict[tuple[Vector, int], int]


@dataclass(frozen=True)
class Transport:
    """An optimal plan. `coupling[(X, y)]` is the probability that the drafts are X, in
    the order of drawing, and the token is y; pairs of probability 0 are left out.
    `method`: "scipy" or "networkx". `scale`: what the probabilities were multiplied by.
    """

    acceptance: Any
    coupling: Mapping[tuple[Vector, int], Any] = field(repr=False)
    method: str
    scale: int = field(repr=False)


def transport(p: Any, q: Any, k: int, sampling: str = "iid") -> Transport:
    """The most probable membership that drafts and target allow, and a plan for it.

    Arguments as in `position_law`. On Fractions everything is exact: the value, and
    both marginals of the plan. Floats are read as the decimals that Python prints, each
    row divided by its sum, solved exactly, and answered as floats: then the marginals
    are p and the law of X within 1e-9. Raises `SpecbookError` for more than
    `MAX_VECTORS` vectors, `MAX_SEARCHED` or `MAX_PAIRS`.
    """
    asked = ask(p, q, k, sampling)
    question = asked.as_fractions()
    drafts, draft_parts = vectors(question)
    tokens, token_parts = in_parts(dict(enumerate(question.p.tolist())))
    scale = math.lcm(draft_parts, token_parts)
    supply = _scaled(drafts, draft_parts, scale)
    demand = _scaled(tokens, token_parts, scale)
    method = "scipy" if scale <= INT32 else "networkx"
    flow = (_by_scipy if method == "scipy" else _by_networkx)(supply, demand)

    accepted = Fraction(sum(flow.values()), scale)
    coupling = {key: Fraction(amount, scale) for key, amount in flow.items()}
    if accepted < 1:
        # A vector and a token in it are not both left over, or more could flow.
        coupling |= _rest(flow, supply, demand, scale)
    if asked.exact:
        return Transport(accepted, coupling, method, scale)
    rounded = {key: float(mass) for key, mass in coupling.items()}
    return Transport(float(accepted), rounded, method, scale)


def _scaled(parts: Mapping[Any, int], whole: int, scale: int) -> dict[Any, int]:
    return {key: part * (scale // whole) for key, part in parts.items()}


def _rest(
    flow: Flow, supply: Mapping[Vector, int], demand: Mapping[int, int], scale: int
) -> dict[tuple[Vector, int], Fraction]:
    """What did not flow: every vector's rest, with a token from the rest of p."""
    vectors_left, tokens_left = dict(supply), dict(demand)
    for (X, y), amount in flow.items():
        vectors_left[X] -= amount
        tokens_left[y] -= amount
    refused = sum(tokens_left.values())
    pairs = sum(map(bool, vectors_left.values())) * sum(map(bool, tokens_left.values()))
    if pairs > MAX_PAIRS:
        raise _too_large(f"the plan's correction has {pairs} pairs, above {MAX_PAIRS}")
    return {
        (X, y): Fraction(mine * left, refused * scale)
        for X, mine in vectors_left.items()
        if mine
        for y, left in tokens_left.items()
        if left
    }


def _too_large(what: str) -> SpecbookError:
    return SpecbookError(f"{what}; optimal_acceptance gives the value without a plan")


def _members(supply: Mapping[Vector, int], demand: Mapping[int, int]) -> list[Any]:
    """For every vector the tokens in it that p asks for."""
    wanted = {y for y, amount in demand.items() if amount}
    return [sorted(wanted.intersection(X)) for X in supply]


def _by_scipy(supply: Mapping[Vector, int], demand: Mapping[int, int]) -> Flow:
    """Nodes: the source, the vectors, the tokens, the sink. The caller has seen to it
    that every capacity, and their sum, fits into 32 bits."""
    listed, members = list(supply), _members(supply, demand)
    first = 1 + len(listed)
    sink = first + len(demand)
    counts = [len(inside) for inside in members]
    amounts = np.array(list(supply.values()), dtype=np.int32)
    tokens = np.array(list(chain.from_iterable(members)), dtype=np.int32)
    heads = (np.arange(1, first), first + tokens, np.full(len(demand), sink))
    capacities = (amounts, np.repeat(amounts, counts), list(demand.values()))
    bounds = np.cumsum([0, len(listed), *counts, *[1] * len(demand), 0])
    graph = csr_array(
        (
            np.concatenate(capacities, dtype=np.int32),
            np.concatenate(heads, dtype=np.int32),
            bounds.astype(np.int32),
        ),
        shape=(sink + 1, sink + 1),
    )
    flow = maximum_flow(graph, 0, sink).flow
    ends = flow.indptr[1 : first + 1]
    moved = slice(ends[0], ends[-1])
    pairs = zip(
        np.repeat(np.arange(len(listed)), np.diff(ends)).tolist(),
        (flow.indices[moved] - first).tolist(),
        flow.data[moved].tolist(),
        strict=True,
    )
    # Entries below 0 are the way back to the source.
    return {(listed[row], y): amount for row, y, amount in pairs if amount > 0}


def _by_networkx(supply: Mapping[Vector, int], demand: Mapping[int, int]) -> Flow:
    members = _members(supply, demand)
    searched = (len(supply) + sum(map(len, members))) * sum(map(bool, demand.values()))
    if searched > MAX_SEARCHED:
        raise _too_large(
            "the probabilities do not fit into 32 bits, and the slower search would "
            f"look at {searched} edges, above {MAX_SEARCHED}"
        )
    graph = networkx.DiGraph()
    graph.add_nodes_from(("source", "sink"))
    for inside, (X, amount) in zip(members, supply.items(), strict=True):
        graph.add_edge("source", X, capacity=amount)
        graph.add_edges_from(((X, y) for y in inside), capacity=amount)
    for y, amount in demand.items():
        graph.add_edge(y, "sink", capacity=amount)
    dinitz = networkx.algorithms.flow.dinitz
    _, flows = networkx.maximum_flow(graph, "source", "sink", flow_func=dinitz)
    return {
        (X, y): amount for X in supply for y, amount in flows[X].items() if amount > 0
    }
