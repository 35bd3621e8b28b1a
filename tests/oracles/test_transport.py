"""The transport plan: value and both marginals, exactly; two independent witnesses."""

from __future__ import annotations

from fractions import Fraction as F
from typing import Any

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from scipy.optimize import linprog

from specbook.errors import LawError, SpecbookError
from specbook.oracles import flow, optimal_acceptance, transport
from tests.core.helpers import must_fail
from tests.verifiers.helpers import exact

from .helpers import ARTICLE, drafted, questions

P, Q = ARTICLE


def check_plan(found: Any, p: Any, supply: Any, tolerance: Any = 0) -> None:
    """Both marginals, and what the plan accepts: a token that is among the drafts."""
    vectors: dict[Any, Any] = dict.fromkeys(supply, 0)
    tokens = [0] * len(p)
    accepted: Any = 0
    for (X, y), mass in found.coupling.items():
        assert mass > 0
        vectors[X] += mass
        tokens[y] += mass
        accepted += mass * (y in X)
    assert all(abs(vectors[X] - mass) <= tolerance for X, mass in supply.items())
    assert all(abs(a - b) <= tolerance for a, b in zip(tokens, p, strict=True))
    assert abs(accepted - found.acceptance) <= tolerance


def by_networkx(p: Any, supply: Any) -> F:
    """A witness: networkx on integers, the graph written down anew."""
    masses = [*supply.values(), *p]
    scale = int(np.lcm.reduce(np.array([m.denominator for m in masses], dtype=object)))
    graph = networkx.DiGraph()
    graph.add_nodes_from("st")
    for X, mass in supply.items():
        graph.add_edge("s", X, capacity=int(mass * scale))
        graph.add_edges_from((X, y) for y in set(X))
    for y, mass in enumerate(p):
        graph.add_edge(y, "t", capacity=int(mass * scale))
    value = networkx.maximum_flow_value(
        graph, "s", "t", flow_func=networkx.algorithms.flow.edmonds_karp
    )
    return F(value, scale)


def by_highs(p: Any, supply: Any) -> float:
    """A witness: the linear program over all pairs (X, y), section 0x08C."""
    size = len(p)
    vectors = list(supply)
    cost = [float(y not in X) for X in vectors for y in range(size)]
    rows = np.kron(np.eye(len(vectors)), np.ones(size))
    columns = np.tile(np.eye(size), len(vectors))
    solved = linprog(
        cost,
        A_eq=np.vstack([rows, columns]),
        b_eq=[float(mass) for mass in (*supply.values(), *p)],
        method="highs",
    )
    assert solved.success
    return 1 - solved.fun


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(questions())
def test_plan_optimum_program_and_networkx_agree(question: Any) -> None:
    p, q, k, sampling = question
    supply = drafted(q, k, sampling)
    found = transport(p, q, k, sampling)
    check_plan(found, p, supply)
    assert found.acceptance == optimal_acceptance(p, q, k, sampling)
    assert found.acceptance == by_networkx(p, supply)
    assert abs(found.acceptance - by_highs(p, supply)) < 1e-9


def test_the_articles_oracle() -> None:
    """Section 0x08C: nine vectors, acceptance 1; one draft, 0.9."""
    found = transport(P, Q, 2)
    assert found.acceptance == 1 and found.method == "scipy"
    assert len({X for X, _ in found.coupling}) == 9
    assert transport(P, Q, 1).acceptance == F(9, 10)


H25 = [
    ((1 / 3, 1 / 3, 1 / 3), (1 / 3, 1 / 3, 1 / 3), 2, 1),
    ((0.5, 0.3, 0.2), (0.4, 0.4, 0.2), 2, 1),
    ((0.5, 0.3, 0.2), (0.4, 0.4, 0.2), 1, 0.9),
    ((0.5, 0.5, 0.0), (0.2, 0.3, 0.5), 2, 0.75),
    ((1.0, 0.0), (0.0, 1.0), 2, 0),
    ((0.7, 0.2, 0.1), (0.1, 0.2, 0.7), 1, 0.4),
    ((0.7, 0.2, 0.1), (0.1, 0.2, 0.7), 2, 0.49),
    ((0.7, 0.2, 0.1), (0.1, 0.2, 0.7), 3, 0.571),
]


@pytest.mark.parametrize(("p", "q", "k", "acceptance"), H25)
def test_awkward_fractions_as_floats(p: Any, q: Any, k: int, acceptance: float) -> None:
    """Case H25."""
    found = transport(p, q, k)
    assert isinstance(found.acceptance, float)
    assert found.acceptance == acceptance  # read as decimals: not even a last digit
    check_plan(found, p, drafted(q, k, "iid"), 1e-9)
    assert abs(optimal_acceptance(p, q, k) - acceptance) < 1e-12


def test_a_plan_of_floats_that_are_no_short_decimals() -> None:
    generator = np.random.default_rng(3)
    for k, sampling in [(2, "iid"), (2, "without_replacement"), (3, "greedy_draft")]:
        p, q = generator.dirichlet(np.ones(4)), generator.dirichlet(np.ones(4) / 2)
        found = transport(p, q, k, sampling)
        assert found.method == "networkx"
        check_plan(found, p, drafted(q, k, sampling), 1e-9)
        assert abs(found.acceptance - optimal_acceptance(p, q, k, sampling)) < 1e-12


AWKWARD = exact([500, 300, 199]), exact([411, 389, 201])
"""Denominators 999 and 1001: scaled to integers, 1 becomes 999 1001^4 at k = 4."""


def test_what_does_not_fit_into_32_bits_goes_to_pythons_integers() -> None:
    p, q = AWKWARD
    for k, method in [(1, "scipy"), (2, "scipy"), (3, "networkx"), (4, "networkx")]:
        found = transport(p, q, k)
        assert found.method == method
        assert (found.scale > 2**31 - 1) is (method == "networkx")
        check_plan(found, p, drafted(q, k, "iid"))
        assert found.acceptance == optimal_acceptance(p, q, k)


def test_the_largest_scale_of_32_bits_is_exact() -> None:
    most = 2**31 - 1  # a prime
    p, q = exact([most - 1, 1]), exact([1, most - 1])
    found = transport(p, q, 1)
    assert (found.method, found.scale) == ("scipy", most)
    assert found.acceptance == F(2, most)
    check_plan(found, p, drafted(q, 1, "iid"))
    assert transport(exact([most, 1]), q, 1).method == "networkx"


def test_a_wrap_at_32_bits_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: everything goes to scipy, whatever its size."""
    p, q = AWKWARD

    def check() -> None:
        check_plan(transport(p, q, 3), p, drafted(q, 3, "iid"))

    check()

    def wrapped(supply: Any, demand: Any) -> Any:
        def cut(masses: Any) -> Any:
            return {key: int(np.int64(mass).astype(np.int32)) for key, mass in masses}

        return by_scipy(cut(supply.items()), cut(demand.items()))

    by_scipy = flow._by_scipy
    monkeypatch.setattr(flow, "_by_networkx", wrapped)
    must_fail(check)


def test_capacities_that_are_rounded_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: floats times a power of two, cut to integers."""

    def check() -> None:
        p = exact([1, 1, 1])
        found = transport(p, p, 2)
        assert found.acceptance == 1
        check_plan(found, p, drafted(p, 2, "iid"))

    check()
    monkeypatch.setattr(
        flow,
        "_scaled",
        lambda parts, whole, scale: {
            key: int(part / whole * scale * (1 - 2**-50)) for key, part in parts.items()
        },
    )
    must_fail(check)


@pytest.mark.parametrize(
    ("change", "error", "told"),
    [
        ({"p": [F(1, 2), F(1, 2)]}, LawError, "q has 3 entries, expected 2"),
        ({"p": [1.0, float("inf"), 0.0]}, LawError, r"p\[1\] is infinite"),
        ({"k": -1}, SpecbookError, "k must be at least 1"),
        ({"k": True}, SpecbookError, "k must be an integer"),
        ({"k": 12}, SpecbookError, "531441 vectors, more than 131072"),
        ({"sampling": "gumbel"}, SpecbookError, "sampling must be one of"),
    ],
)
def test_bad_input_is_refused_by_name(change: Any, error: Any, told: str) -> None:
    with pytest.raises(error, match=told):
        transport(**{"p": P, "q": Q, "k": 2, **change})


def test_what_would_take_long_is_refused() -> None:
    """Rows of a real vocabulary: too many pairs to write down, and in floats too many
    edges to search."""
    size = 20_000
    p = [F(1, size)] * size
    q = [F(1, 2 * size), F(3, 2 * size)] * (size // 2)
    with pytest.raises(SpecbookError, match="pairs.*optimal_acceptance"):
        transport(p, q, 1)
    p, q = (np.random.default_rng(s).dirichlet([1] * 5000) for s in range(2))
    with pytest.raises(SpecbookError, match="edges.*optimal_acceptance"):
        transport(p, q, 1)
