"""K-SEQ: the smallest valid rho, its closed forms, and any larger one."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from specbook.chance import Sampler
from specbook.drafts.samplers import iid, position_tree
from specbook.errors import ContractError, SpecbookError
from specbook.verifiers import kseq
from tests.core.helpers import must_fail

from .helpers import P, Q, check_position, drawing, exact, instances

STEP = Fraction(1, kseq.GRID)


def slack(p: Any, q: Any, k: int, rho: Any) -> Any:
    """rho beta - (1 - (1 - beta)^k), written anew."""
    beta = sum(min(b, a / rho) for a, b in zip(p, q, strict=True))
    return rho * beta - (1 - (1 - beta) ** k)


def check_smallest(p: Any, q: Any, k: int, rho: Any) -> None:
    assert 1 <= rho <= k
    assert slack(p, q, k, rho) >= 0, "not valid"
    assert rho == 1 or slack(p, q, k, rho - STEP) < 0, "not the smallest"


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(instances())
def test_the_exact_rho_is_valid_and_the_smallest_of_its_grid(instance: Any) -> None:
    p, q, k = instance
    check_smallest(p, q, k, kseq.smallest_rho(p, q, k))


def test_a_rho_beside_the_root_is_found() -> None:
    p, q = exact(P), exact(Q)
    rho = kseq.smallest_rho(p, q, 2)
    check_smallest(p, q, 2, rho)
    for wrong in (rho - STEP, rho + STEP, Fraction(1), Fraction(2)):
        must_fail(check_smallest, p, q, 2, wrong)


@settings(max_examples=50, deadline=None, derandomize=True, database=None)
@given(instances(deepest=3))
def test_the_acceptance_has_its_closed_form(instance: Any) -> None:
    p, q, k = instance
    rho = kseq.smallest_rho(p, q, k)
    beta = sum(min(b, a / rho) for a, b in zip(p, q, strict=True))
    taken = check_position(kseq.VERIFIER, p, drawing("iid", q, k))
    assert taken == 1 - (1 - beta) ** k


def test_the_articles_instance_by_hand() -> None:
    """k = 2: beta = A + B / rho with A = q(a) = 2/5 where p > rho q fails nowhere else;
    the root is (2 - A + sqrt((2 - A)^2 - 4 B)) / 2, and the acceptance there is
    (41 + 2 sqrt 14) / 50."""
    p, q = exact(P), exact(Q)
    rho = kseq.smallest_rho(p, q, 2)
    # On [1, 5/4]: min(q, p / rho) is q at token 0 and p / rho at the others.
    assert 1 < rho < Fraction(5, 4)
    a, b = Fraction(2, 5), Fraction(1, 2)

    def polynomial(x: Any) -> Any:
        """rho^2 - (2 - A) rho + B, which changes sign at the root."""
        return x * x - (2 - a) * x + b

    assert polynomial(rho) >= 0 > polynomial(rho - STEP)
    taken = check_position(kseq.VERIFIER, p, drawing("iid", q, 2))

    def below(x: Any) -> Any:
        """(50 x - 41)^2 against 4 * 14: the acceptance at the root squares to it."""
        return (50 * x - 41) ** 2 - 56

    assert below(taken) <= 0 < below(taken + 10 * STEP)
    slowest = check_position(kseq.verifier(2), p, drawing("iid", q, 2))
    assert slowest == Fraction(3, 4)


@settings(max_examples=30, deadline=None, derandomize=True, database=None)
@given(instances(deepest=3), st.integers(0, 4))
def test_any_larger_rho_is_exact_and_accepts_less(instance: Any, more: int) -> None:
    p, q, k = instance
    best = kseq.smallest_rho(p, q, k)
    rho = best + (k - best) * Fraction(more, 4) if more else Fraction(k)
    assume(rho >= best)
    taken = check_position(kseq.verifier(rho), p, drawing("iid", q, k))
    assert taken <= check_position(kseq.VERIFIER, p, drawing("iid", q, k))


def test_a_smaller_rho_is_refused_where_it_would_bend_the_law() -> None:
    p, q = exact(P), exact(Q)
    rho = kseq.smallest_rho(p, q, 2) - STEP
    with pytest.raises(ContractError, match="below the smallest valid"):
        kseq.correction(p, q, 2, rho)
    with pytest.raises(ContractError, match="below the smallest valid"):
        kseq.correction(p.astype(float), q.astype(float), 2, 1.0)
    with pytest.raises(ContractError, match="below"):
        check_position(kseq.verifier(1), p, drawing("iid", q, 2))
    # With one draft the smallest rho is 1.
    check_position(kseq.verifier(1), p, drawing("iid", q, 1))


@pytest.mark.parametrize("bad", [0, 0.5, -1, True, "2", float("nan"), [1]], ids=repr)
def test_rho_is_a_number_of_at_least_one(bad: Any) -> None:
    with pytest.raises(SpecbookError, match="rho"):
        kseq.verifier(bad)


def test_drafts_of_two_laws_are_refused() -> None:
    draws = [*iid(exact([1, 1]), 1, Sampler(0)), *iid(exact([1, 2]), 1, Sampler(0))]
    p = exact([1, 1])
    with pytest.raises(ContractError, match="one law"):
        kseq.select(position_tree(draws), lambda row: p, Sampler(0))


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(st.data())
def test_newton_finds_the_root_to_rounding(data: Any) -> None:
    size, k = data.draw(st.integers(2, 30)), data.draw(st.integers(1, 8))
    rows = []
    for _ in range(2):
        exponents = data.draw(st.lists(st.floats(-60, 0), min_size=size, max_size=size))
        row = np.exp(np.array(exponents))
        rows.append(row / row.sum())
    p, q = rows
    rho = kseq.smallest_rho(p, q, k)
    assert 1 <= rho <= k
    assert slack(p, q, k, rho) >= -1e-14
    # A hair below, it is no longer valid, or the slack is too flat to tell.
    assert rho == 1 or slack(p, q, k, rho * (1 - 1e-6)) < 1e-9


@pytest.mark.parametrize("k", [1, 2, 4, 8])
def test_newton_at_the_limits(k: int) -> None:
    half, one, other = np.array([0.5, 0.5]), np.array([1.0, 0.0]), np.array([0.0, 1.0])
    assert kseq.smallest_rho(half, half, k) == 1  # p = q: a double root
    assert kseq.smallest_rho(one, other, k) == 1  # nothing is ever accepted
    near = np.array([0.5 + 1e-9, 0.5 - 1e-9])
    assert 1 <= kseq.smallest_rho(near, half, k) <= k
    assert kseq.smallest_rho(half, one, k) == pytest.approx(
        float(kseq.smallest_rho(exact([1, 1]), exact([1, 0]), k)), abs=1e-5
    )


def test_an_overlap_too_small_for_floats_is_kept_by_fractions() -> None:
    tiny = Fraction(1, 10**400)
    p = np.array([1 - tiny, tiny], dtype=object)
    for k in (1, 2):
        check_position(kseq.VERIFIER, p, drawing("iid", p[::-1], k))
