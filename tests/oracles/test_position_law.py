"""The law of one position: the known values, as fractions, and what is refused."""

from __future__ import annotations

from fractions import Fraction as F
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from specbook import controls, verifiers
from specbook.contract import Selection
from specbook.drafts import samplers
from specbook.drafts.samplers import Draw
from specbook.errors import ContractError, LawError, SpecbookError, TreeError
from specbook.oracles import measure, optimal_acceptance, position_law
from specbook.oracles.drafted import ask, count_of_vectors
from specbook.verifiers import kseq
from specbook.verifiers.walk import walk

from .helpers import ARTICLE, drafted, questions

P, Q = ARTICLE

KNOWN = [
    ("single", 1, "iid", F(9, 10)),
    ("optimal", 2, "iid", F(1)),
    ("optimal", 2, "without_replacement", F(1)),
    ("greedy_draft", 2, "greedy_draft", F(1)),
    ("spechub", 2, "hub", F(1)),
    ("specinfer", 2, "iid", F(47, 50)),
    ("sequoia", 2, "without_replacement", F(29, 30)),
    ("membership", 2, "iid", F(73, 125)),
    ("membership", 2, "without_replacement", F(53, 75)),
    ("membership", 2, "top_k", F(4, 5)),
    ("one_hot", 2, "top_k", F(4, 5)),
]


@pytest.mark.parametrize(("name", "k", "sampling", "acceptance"), KNOWN)
def test_the_table_of_the_common_instance(
    name: str, k: int, sampling: str, acceptance: F
) -> None:
    found = position_law(name, P, Q, k, sampling)
    assert found.acceptance == acceptance
    assert found.output == tuple(P)


def test_k_seq_with_rho_k_and_just_above_the_root() -> None:
    found = position_law(kseq.verifier(rho=2), P, Q, 2)
    assert (found.acceptance, found.membership) == (F(3, 4), F(111, 125))
    assert found.output == tuple(P)
    best = position_law("kseq", P, Q, 2)
    assert best.output == tuple(P)
    # The root is irrational: rho = (2 - A + sqrt((2 - A)^2 - 4 B)) / 2 is rounded up.
    root = (41 + 2 * 14**0.5) / 50
    assert root - 1e-6 < best.acceptance < root
    assert best.acceptance < best.membership


def test_the_articles_marginal() -> None:
    """Section 0x09A: all pairs, all branches, (0.5, 0.3, 0.2)."""
    assert position_law("specinfer", P, Q, 2).output == (F(1, 2), F(3, 10), F(1, 5))
    rounded = position_law("specinfer", [0.5, 0.3, 0.2], [0.4, 0.4, 0.2], 2)
    assert np.allclose(rounded.output, [0.5, 0.3, 0.2], rtol=0, atol=1e-12)
    assert isinstance(rounded.acceptance, float)


@pytest.mark.parametrize("k", range(1, 5))
def test_repeating_the_test_of_one_draft(k: int) -> None:
    """Section 0x08B: every draft is token 1, p is Bernoulli(1/2): 1 - 2^-k."""
    p, q = [F(1, 2), F(1, 2)], [F(0), F(1)]

    def select(tree: Any, law: Any, chance: Any) -> Any:
        return walk(tree, law, chance, controls.repeats, name="repeats")

    found = measure(select, lambda chance: samplers.iid(q, k, chance), p)
    assert found.acceptance == found.output[1] == 1 - F(1, 2**k)


def rule(choose: Any) -> Any:
    return lambda tree, law, chance: walk(tree, law, chance, choose, name="wrong")


CONTROLS = [
    (
        "each draft against p",
        lambda chance: samplers.iid(Q, 2, chance),
        rule(controls.tests_against_p),
        F(99, 100),
        (F(9, 20), F(33, 100), F(11, 50)),
    ),
    (
        "top two as iid draws",
        lambda chance: [Draw(token, Q) for token in samplers.most_probable(Q, 2)],
        verifiers.get("specinfer").select,
        F(1),
        (F(1), F(0), F(0)),
    ),
    (
        "argmax with all of q",
        lambda chance: [Draw(int(np.argmax(Q)), Q)],
        verifiers.get("specinfer").select,
        F(1),
        (F(1), F(0), F(0)),
    ),
    (
        "without replacement as iid: hidden by this instance",
        lambda chance: [
            draw._replace(law=Q) for draw in samplers.without_replacement(Q, 2, chance)
        ],
        verifiers.get("specinfer").select,
        F(29, 30),
        tuple(P),
    ),
]


@pytest.mark.parametrize(
    ("draws", "select", "acceptance", "output"),
    [case[1:] for case in CONTROLS],
    ids=[case[0] for case in CONTROLS],
)
def test_controls_are_measured(
    draws: Any, select: Any, acceptance: F, output: Any
) -> None:
    found = measure(select, draws, P)
    assert (found.acceptance, found.output) == (acceptance, output)


@pytest.mark.parametrize(
    ("name", "acceptance", "output"),
    [
        ("typical", F(1), (F(2, 5), F(2, 5), F(1, 5))),
        ("ensemble", F(19, 20), (F(9, 20), F(7, 20), F(1, 5))),
    ],
)
def test_heuristics_are_measured(name: str, acceptance: F, output: Any) -> None:
    found = position_law(name, P, Q, 1)
    assert (found.acceptance, found.output) == (acceptance, output)


PAIRS = [
    ("sequoia", "iid"),
    ("specinfer", "without_replacement"),
    ("kseq", "independent"),
    ("specinfer", "top_k"),
    ("spechub", "iid"),
    ("greedy_draft", "hub"),
    ("optimal", "independent"),
    ("single", "iid"),  # two drafts are no chain
    ("block", "iid"),
]


@pytest.mark.parametrize(("name", "sampling"), PAIRS)
def test_a_pair_that_bind_refuses_is_refused(name: str, sampling: str) -> None:
    q = [Q, Q] if sampling == "independent" else Q
    with pytest.raises(ContractError, match=name):
        position_law(name, P, q, 2, sampling)


def test_greedy_belongs_to_a_target_that_is_sure() -> None:
    sure = [F(0), F(1), F(0)]
    assert position_law("greedy", sure, Q, 2).output == tuple(sure)
    with pytest.raises(ContractError, match="temperature 0"):
        position_law("greedy", P, Q, 2)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(questions(most=4, deepest=3))
def test_what_every_rule_emits_is_p_and_never_more_than_the_optimum(
    question: Any,
) -> None:
    p, q, k, sampling = question
    optimum = optimal_acceptance(p, q, k, sampling)
    met = 0
    for name in verifiers.names():
        try:
            found = position_law(name, p, q, k, sampling)
        except ContractError:
            continue
        if verifiers.get(name).contract.exact:
            met += 1
            assert found.output == tuple(p)
            assert found.acceptance <= found.membership <= optimum <= 1
            if name in ("optimal", "greedy_draft", "spechub"):
                assert found.acceptance == optimum
    assert met >= 2  # membership and one_hot refuse nothing


@pytest.mark.parametrize(
    ("change", "error", "told"),
    [
        ({"verifier": "nobody"}, SpecbookError, "nobody"),
        ({"verifier": 3}, ContractError, "not a verifier"),
        ({"p": [F(1, 2), F(1, 3), F(1, 7)]}, LawError, "p sums to"),
        ({"p": [0.5, float("nan"), 0.5]}, LawError, r"p\[1\] is NaN"),
        ({"p": []}, LawError, "p must be"),
        ({"q": [F(1)]}, LawError, "q has 1 entries, expected 3"),
        ({"q": [F(3, 2), F(-1, 2), F(0)]}, LawError, r"q\[1\] is negative"),
        ({"q": "abc"}, LawError, "q must be"),
        ({"k": 0}, SpecbookError, "k must be at least 1"),
        ({"k": True}, SpecbookError, "k must be an integer"),
        ({"k": 2.0}, SpecbookError, "k must be an integer"),
        ({"sampling": "by magic"}, SpecbookError, "sampling must be one of"),
        ({"sampling": None}, SpecbookError, "sampling must be one of"),
        ({"sampling": "independent"}, LawError, r"q\[0\] must be"),
        ({"sampling": "independent", "q": [Q]}, SpecbookError, "k is 2, q has 1"),
        ({"sampling": "independent", "q": [Q, [F(1)]]}, LawError, r"q\[1\] has 1"),
        ({"sampling": "hub", "k": 3}, SpecbookError, "hub"),
        ({"k": 12}, SpecbookError, "531441 vectors, more than 131072"),
        ({"k": 4096}, SpecbookError, r"about 2\^6493 vectors"),
        ({"k": 4097}, SpecbookError, "k must be at most 4096"),
    ],
)
def test_bad_input_is_refused_by_name(change: Any, error: Any, told: str) -> None:
    asked = {"verifier": "membership", "p": P, "q": Q, "k": 2, "sampling": "iid"}
    with pytest.raises(error, match=told):
        position_law(**{**asked, **change})


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(questions())
def test_the_vectors_are_counted_before_they_are_walked_through(question: Any) -> None:
    p, q, k, sampling = question
    counted = count_of_vectors(ask(p, q, k, sampling))
    listed = len(drafted(q, k, sampling))
    if sampling in ("iid", "independent", "without_replacement"):
        assert counted == listed
    assert counted >= listed


def test_draws_beyond_the_support_are_counted_one_by_one() -> None:
    # One token has all of q; two of the four others follow, in 4 * 3 orders.
    q = [F(1), F(0), F(0), F(0), F(0)]
    asked = ask([F(1, 5)] * 5, q, 3, "without_replacement")
    assert count_of_vectors(asked) == 12 == len(drafted(q, 3, "without_replacement"))
    # And two of four tokens within it, also in 4 * 3 orders.
    four = [F(1, 4)] * 4
    assert count_of_vectors(ask(four, four, 2, "without_replacement")) == 12


def test_what_is_no_rule_and_no_draft_is_refused_by_name() -> None:
    rule, draws = verifiers.get("membership").select, lambda chance: []
    with pytest.raises(ContractError, match="select must be callable"):
        measure("membership", draws, P)  # type: ignore[arg-type]
    with pytest.raises(ContractError, match="draws must be callable"):
        measure(rule, [], P)  # type: ignore[arg-type]
    with pytest.raises(ContractError, match="no Selection but 1"):
        measure(lambda tree, law, chance: 1, draws, P)
    with pytest.raises(ContractError, match="token must be at most 2, got 3"):
        measure(lambda tree, law, chance: Selection((), 3), draws, P)
    with pytest.raises(TreeError, match="outside 0 .. 2"):
        measure(rule, lambda chance: [Draw(3, None, 1)], P)


def test_laws_may_come_as_generators_numpy_and_ints() -> None:
    for p, q in [
        ((x for x in P), (x for x in Q)),
        ([0, 1, 0], np.array([0, 0, 1])),
        (np.float32([0.5, 0.25, 0.25]), np.array([0.5, 0.5, 0.0])),
    ]:
        found = position_law("specinfer", p, q, np.int64(2))
        assert sum(found.output) == 1


@pytest.mark.parametrize("rule", ["single", "block"])
def test_a_rule_for_one_chain_is_not_asked_about_two_drafts(rule: str) -> None:
    assert position_law(rule, P, Q, 1).acceptance == F(9, 10)
    with pytest.raises(ContractError, match="topology 'set'"):
        position_law(rule, P, Q, 2)
