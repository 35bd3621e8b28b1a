"""Acceptance by formula: equal to the enumerated rule, and sampled without bias."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from specbook.chance import Sampler
from specbook.errors import SpecbookError
from specbook.oracles import acceptance_curve, optimal_acceptance, position_law
from specbook.oracles.closed_form import PAIRS
from tests.verifiers.helpers import exact, instances

ARTICLE = exact([5, 3, 2]), exact([4, 4, 2])


@pytest.mark.parametrize("pair", PAIRS, ids=" ".join)
def test_a_formula_is_the_enumerated_acceptance(pair: tuple[str, str]) -> None:
    seen = []

    @settings(max_examples=80, deadline=None, derandomize=True, database=None)
    @given(instances(4, 3))
    def check(instance: Any) -> None:
        p, q, k = instance
        verifier, sampling = pair
        k = 2 if sampling == "hub" else k
        found = acceptance_curve(verifier, p, q, [k], sampling).values[k]
        wanted = position_law(verifier, p, q, k, sampling).acceptance
        assert found == wanted and isinstance(found, (int, Fraction))
        seen.append(0 < wanted < 1)

    check()
    assert sum(seen) > 5


def test_all_numbers_of_drafts_come_from_one_look() -> None:
    p, q = exact([1, 1, 2, 3]), exact([3, 2, 1, 1])
    for verifier, sampling in PAIRS:
        ks = [2] if sampling == "hub" else [3, 1, 2]
        curve = acceptance_curve(verifier, p, q, ks, sampling)
        assert list(curve.values) == sorted(ks)
        for k in ks:
            wanted = position_law(verifier, p, q, k, sampling).acceptance
            assert curve.values[k] == wanted and curve.errors[k] == 0


@pytest.mark.parametrize(
    "sampling", ["iid", "without_replacement", "top_k", "greedy_draft"]
)
def test_optimal_stands_for_the_optimum(sampling: str) -> None:
    p, q = exact([1, 1, 2, 3]), exact([3, 2, 1, 1])
    found = acceptance_curve("optimal", p, q, range(1, 4), sampling).values
    assert found == {k: optimal_acceptance(p, q, k, sampling) for k in range(1, 4)}


def test_floats_agree_with_fractions() -> None:
    p, q = exact([1, 1, 2, 3]), exact([3, 2, 1, 1])
    for verifier, sampling in PAIRS:
        k = 2 if sampling == "hub" else 3
        sharp = acceptance_curve(verifier, p, q, [k], sampling).values[k]
        rows = p.astype(float), q.astype(float)
        rounded = acceptance_curve(verifier, *rows, [k], sampling).values[k]
        assert abs(rounded - float(sharp)) < 1e-5  # an exact rho is a multiple of 2^-20


VARIED = exact([1, 6, 2, 2]), exact([1, 1, 6, 5])
"""Two drafts can be refused first: where only one can, nothing sampled is random."""


def test_sampling_is_unbiased_and_says_its_error() -> None:
    p, q = VARIED
    wanted = acceptance_curve("sequoia", p, q, [2, 3], "without_replacement").values
    found = acceptance_curve(
        "sequoia",
        p.astype(float),
        q.astype(float),
        [2, 3],
        "without_replacement",
        chance=Sampler(3),
        repeats=4000,
    )
    for k in (2, 3):
        # Six standard errors: a false alarm in 5e8.
        assert abs(found.values[k] - float(wanted[k])) < 6 * found.errors[k] + 1e-12
        assert found.errors[k] < 0.01
    assert found.errors[3] > 1e-4  # more than rounding: the answers do vary


def test_the_standard_error_is_the_spread_of_repeated_answers() -> None:
    p, q = (row.astype(float) for row in VARIED)
    made = [
        acceptance_curve(
            "sequoia",
            p,
            q,
            [3],
            "without_replacement",
            chance=Sampler(seed),
            repeats=16,
        )
        for seed in range(60)
    ]
    spread = np.std([one.values[3] for one in made], ddof=1)
    told = np.sqrt(np.mean([one.errors[3] ** 2 for one in made]))
    assert 0.6 < told / spread < 1.6  # sixty answers: a spread is right to a tenth


def test_a_wrong_law_of_the_refused_draft_would_be_seen() -> None:
    """Drawn from q itself instead of (q - R)+, Sequoia's average comes out wrong."""
    from specbook.chance import law
    from specbook.drafts.samplers import rest
    from specbook.verifiers.coupling import residual

    p, q = exact([4, 2, 1, 3]), exact([1, 1, 5, 3])

    def planted(chance: Any) -> Any:
        first = 1 - np.minimum(p, q).sum()
        left, fewer = residual(p, q), rest(q, [chance.draw(q)])
        return first * (1 - np.minimum(left, fewer).sum())

    wrong = 1 - sum(value * mass for value, mass in law(planted).items())
    right = position_law("sequoia", p, q, 2, "without_replacement").acceptance
    assert wrong != right
    assert (
        acceptance_curve("sequoia", p, q, [2], "without_replacement").values[2] == right
    )


def test_more_drafts_than_tokens_end_where_the_tokens_do() -> None:
    p, q = exact([1, 1]), exact([1, 3])
    found = acceptance_curve("sequoia", p, q, range(1, 5), "without_replacement").values
    for k in range(1, 5):
        wanted = position_law("sequoia", p, q, k, "without_replacement").acceptance
        assert found[k] == wanted


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"verifier": "traversal"}, "no formula for 'traversal'"),
        ({"sampling": "top_k", "verifier": "kseq"}, "no formula for 'kseq'"),
        ({"verifier": 3}, "no formula for 3"),
        ({"ks": []}, "no number of drafts"),
        ({"ks": [0]}, r"ks\[0\] must be at least 1"),
        ({"ks": 3}, "ks must be"),
        ({"repeats": 1}, "repeats must be at least 2"),
        ({"p": [0.5, 0.2, 0.2]}, "p"),
        ({"sampling": "no such"}, "no such"),
        ({"verifier": "spechub", "sampling": "hub", "ks": [2, 3]}, "k is 3"),
    ],
)
def test_what_has_no_formula_is_refused(change: dict[str, Any], words: str) -> None:
    asked = {"verifier": "kseq", "p": ARTICLE[0], "q": ARTICLE[1], "ks": [2]} | change
    with pytest.raises(SpecbookError, match=words):
        acceptance_curve(**asked)


def test_no_walk_through_a_real_vocabulary() -> None:
    q = np.full(1000, 1 / 1000)
    with pytest.raises(SpecbookError, match="vectors, more than"):
        acceptance_curve("sequoia", q, q, [3], "without_replacement")


def test_independent_drafts_have_no_curve() -> None:
    with pytest.raises(SpecbookError, match="a law each, and no curve"):
        acceptance_curve("optimal", ARTICLE[0], [ARTICLE[1]] * 2, [2], "independent")
