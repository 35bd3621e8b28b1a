"""One table of all rules, from the registry."""

from __future__ import annotations

from fractions import Fraction as F
from typing import Any

import numpy as np
import pytest

from specbook import controls, registry, verifiers
from specbook.errors import ContractError, LawError, SpecbookError
from specbook.oracles import RELATIONS, Comparison, compare, optimal_acceptance
from specbook.verifiers import apart, kseq
from tests.core.helpers import must_fail
from tests.verifiers.helpers import exact

from .helpers import ARTICLE

P, Q = ARTICLE

TELLING = [
    (exact([5, 3, 2]), exact([4, 4, 2]), 2),
    (exact([4, 2, 1]), exact([1, 1, 5]), 2),
    (exact([1, 3, 2, 2]), exact([5, 1, 0, 2]), 2),
    (exact([1, 6, 2]), exact([6, 1, 2]), 3),
]
"""The article's instance, and three on which the rules differ."""


def check_rows(rows: tuple[Comparison, ...], p: Any) -> None:
    for row in rows:
        if row.kind == "exact":
            assert row.output == tuple(p) and row.variation == 0
            assert row.acceptance + row.gap == row.optimum and row.gap >= 0
            assert row.acceptance <= row.membership <= row.optimum
            if row.verifier in ("optimal", "greedy_draft", "spechub"):
                assert row.gap == 0


@pytest.mark.parametrize(("p", "q", "k"), TELLING, ids=map(str, range(len(TELLING))))
def test_the_rows_are_those_of_the_registry(p: Any, q: Any, k: int) -> None:
    rows = compare(p, q, k)
    check_rows(rows, p)
    assert {row.verifier for row in rows} == set(registry.VERIFIERS) - (
        {"greedy"} if k == 2 else {"greedy", "spechub"}
    )
    assert len({(row.verifier, row.sampling) for row in rows}) == len(rows)
    for row in rows:
        contract = verifiers.get(row.verifier).contract
        assert row.kind == ("exact" if contract.exact else "heuristic")
        assert contract.supports_sampling_relation(RELATIONS[row.sampling])
        assert row.optimum == optimal_acceptance(p, q, row.k, row.sampling)


def test_independent_laws_have_their_own_rows() -> None:
    rows = compare(P, [Q, exact([8, 1, 1])], 2)
    check_rows(rows, P)
    assert {row.sampling for row in rows} == {"independent"}
    found = {row.verifier: row.acceptance for row in rows}
    assert found["specinfer"] == F(49, 50)


def test_heuristics_and_controls_are_told_from_exact_rules() -> None:
    rows = compare(P, Q, 2, controls=controls.CONTROLS)
    kinds = {row.verifier: row.kind for row in rows}
    assert kinds["typical"] == kinds["ensemble"] == "heuristic"
    wrong = [row for row in rows if row.kind == "control"]
    assert [row.verifier for row in wrong] == [
        control.name
        for control in controls.CONTROLS
        if control.caught_by == controls.ONE_POSITION
    ]
    for row in wrong:
        assert row.variation == controls.get(row.verifier).variation(
            [5, 3, 2], [[4, 4, 2]] * 2
        )
        assert sum(row.output) == pytest.approx(1, abs=1e-12)
        assert row.acceptance <= row.membership
        assert row.gap == row.optimum - row.acceptance
    exact_rows = {(r.verifier, r.sampling, r.k): r.acceptance for r in rows}
    # The rule that accepts all and emits p, and the one that accepts all and does not.
    assert exact_rows["optimal", "iid", 2] == exact_rows["typical", "iid", 2] == 1
    assert exact_rows["single", "iid", 1] == F(9, 10)


def test_a_control_may_accept_more_than_any_lossless_rule_could() -> None:
    """Its drafts are its own, and so is the optimum that it is compared with."""
    rows = {r.verifier: r for r in compare(P, Q, 2, controls=controls.CONTROLS)}
    greedy = rows["argmax draft with the whole q"]
    # Token 0 alone is drafted: nobody may emit it more often than p says.
    assert (greedy.acceptance, greedy.optimum, greedy.gap) == (1, P[0], P[0] - 1)
    ranked = rows["top-k set as independent draws"]
    assert (ranked.acceptance, ranked.optimum) == (1, P[0] + P[1])
    repeated = rows["tests each draft against the original p"]
    assert repeated.acceptance == F(99, 100)
    assert repeated.optimum == optimal_acceptance(P, Q, 2)


def test_a_control_beside_independent_laws_draws_from_each_of_them() -> None:
    rows = [Q, P]
    tests_again = next(c for c in controls.CONTROLS if "original p" in c.name)
    *_, row = compare(P, rows, 2, verifiers=[], controls=[tests_again])
    # The second draft comes from P itself, so the unchanged test takes it for sure.
    assert row.acceptance == 1 and row.k == 2


def test_what_is_no_control_is_refused() -> None:
    for bad in (3, "repeats the one-draft test", None):
        with pytest.raises(SpecbookError, match="not a control|sequence of controls"):
            compare(P, Q, 2, controls=[bad])
        with pytest.raises(SpecbookError, match="controls must be a sequence"):
            compare(P, Q, 2, controls=bad)  # type: ignore[arg-type]


def test_subgraphs_apart_stand_in_the_table_by_their_object() -> None:
    rows = compare(P, Q, 2, verifiers=[apart.VERIFIER])
    check_rows(rows, P)
    found = {row.sampling: row.acceptance for row in rows}
    assert found["iid"] == F(47, 50) and found["top_k"] == F(4, 5)
    assert set(found) == set(RELATIONS) - {"independent"}


def test_objects_stand_beside_names() -> None:
    rows = compare(P, Q, 2, verifiers=[kseq.verifier(rho=2), "specinfer"])
    assert [row.acceptance for row in rows] == [F(3, 4), F(47, 50)]


def test_a_rule_that_claims_to_be_exact_is_found() -> None:
    """The planted fault: typical acceptance under an exact contract."""
    specinfer = verifiers.get("specinfer")
    liar = type(specinfer)(specinfer.contract, verifiers.get("typical").select)
    rows = compare(P, Q, 2, verifiers=[liar])
    assert len(rows) == 1 and rows[0].kind == "exact" and rows[0].variation > 0
    must_fail(check_rows, rows, P)


def test_laws_may_come_as_generators_and_arrays() -> None:
    rows = compare(P, Q, 2)
    assert compare((x for x in P), (x for x in Q), 2) == rows
    several = compare(P, [Q, Q], 2)
    assert compare(P, (iter(q) for q in (Q, Q)), 2) == several
    assert compare(P, np.array([Q, Q]), 2) == several


def test_a_sure_target_admits_greedy() -> None:
    sure = exact([0, 1, 0])
    rows = compare(sure, Q, 2, verifiers=["greedy"])
    assert rows and all(row.output == tuple(sure) for row in rows)
    assert compare(P, Q, 2, verifiers=["greedy"]) == ()


@pytest.mark.parametrize(
    ("change", "error", "told"),
    [
        ({"verifiers": ["nobody"]}, SpecbookError, "nobody"),
        ({"verifiers": "specinfer"}, SpecbookError, "sequence of verifiers"),
        ({"verifiers": [1]}, ContractError, "not a verifier"),
        ({"p": [0.5, 0.4]}, LawError, "p sums to"),
        ({"q": [0.5, 0.4, 0.2]}, LawError, "q sums to"),
        ({"q": [Q]}, SpecbookError, "q has 1 rows for 2 independent drafts"),
        ({"q": [[F(1)], [F(1)]]}, LawError, r"q\[0\] has 1 entries"),
        ({"q": ["1", "0", "0"]}, LawError, r"q\[0\] is not a number"),
        ({"q": []}, LawError, "q must be"),
        ({"q": 1}, LawError, "q must be a sequence"),
        ({"k": 0}, SpecbookError, "k must be at least 1"),
        ({"k": 2.5}, SpecbookError, "k must be an integer"),
    ],
)
def test_bad_input_is_refused_by_name(change: Any, error: Any, told: str) -> None:
    with pytest.raises(error, match=told):
        compare(**{"p": P, "q": Q, "k": 2, **change})
