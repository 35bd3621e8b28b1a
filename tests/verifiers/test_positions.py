"""One position: every rule with every relation that its contract admits.

The law of the emitted token is p, as Fractions and with `==`, over laws with zeros and
ties, point masses, disjoint supports and p = q. A pair of rule and relation is tried on
`SPECBOOK_INSTANCES` of them, by default 90: more than 2,000 in all.
"""

from __future__ import annotations

import itertools
import os
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbook import verifiers
from specbook.drafts.samplers import Draw, one_hot
from specbook.proposal import SamplingRelation, Topology
from tests.core.helpers import must_fail

from .helpers import (
    accepted,
    check_position,
    drawing,
    exact,
    instances,
    output,
    position_law,
    weights,
)

DRAWN = ("iid", "without_replacement", "beam", "greedy_plus_one", "hub")
PAIRS = [
    (name, str(relation))
    for name in verifiers.names()
    for relation in SamplingRelation
    if verifiers.get(name).contract.exact
    and not verifiers.get(name).contract.greedy_only
    and verifiers.get(name).contract.supports_sampling_relation(relation)
    and relation is not SamplingRelation.DETERMINISTIC_LOOKUP  # `beam` again
]
INSTANCES = int(os.environ.get("SPECBOOK_INSTANCES", "90"))


def test_the_pairs_are_those_of_the_contracts() -> None:
    assert len(PAIRS) * INSTANCES > 2000
    assert {name for name, _ in PAIRS} == {
        name for name in verifiers.names() if verifiers.get(name).contract.exact
    } - {"greedy"}


def one_candidate(name: str) -> bool:
    return verifiers.get(name).contract.topology == {Topology.SEQUENCE}


@pytest.mark.parametrize(("name", "relation"), PAIRS)
def test_the_output_has_the_law_p(name: str, relation: str) -> None:
    @settings(max_examples=INSTANCES, deadline=None, derandomize=True, database=None)
    @given(st.data())
    def check(data: Any) -> None:
        p, q, k = data.draw(instances(deepest=1 if one_candidate(name) else 4))
        if relation == "hub":
            k = 2
        if relation == "independent":
            rows = st.lists(weights(len(p)), min_size=k, max_size=k)
            q = [exact(row) for row in data.draw(rows)]
        check_position(verifiers.get(name), p, drawing(relation, q, k))

    check()


def optimum(p: Any, q: Any, k: int, relation: str) -> Any:
    """1 + min over H of p(H) - P(all drafts in H), over every set H: shares nothing
    with the rules."""
    drafted: dict[Any, Any] = {}
    from specbook.chance import law

    draws = drawing(relation, q, k)
    for tokens, mass in law(
        lambda chance: frozenset(draw.token for draw in draws(chance))
    ).items():
        drafted[tokens] = mass
    sets = itertools.chain.from_iterable(
        itertools.combinations(range(len(p)), size) for size in range(len(p) + 1)
    )
    return 1 + min(
        sum(p[x] for x in inside)
        - sum(mass for tokens, mass in drafted.items() if tokens <= set(inside))
        for inside in sets
    )


ATTAINS = [
    ("optimal", "iid"),
    ("optimal", "without_replacement"),
    ("greedy_draft", "greedy_plus_one"),
    ("spechub", "hub"),
]


@pytest.mark.parametrize(("name", "relation"), ATTAINS)
def test_the_rules_that_are_optimal_attain_the_optimum(
    name: str, relation: str
) -> None:
    @settings(max_examples=40, deadline=None, derandomize=True, database=None)
    @given(instances())
    def check(instance: Any) -> None:
        p, q, k = instance
        k = 2 if relation == "hub" else k
        draws = drawing(relation, q, k)
        found = position_law(verifiers.get(name).select, p, draws)
        assert accepted(found) == optimum(p, q, k, relation)

    check()


@pytest.mark.parametrize(
    ("name", "relation"),
    [pair for pair in PAIRS if pair not in ATTAINS and pair[1] in DRAWN],
)
def test_no_rule_accepts_more_than_the_optimum(name: str, relation: str) -> None:
    @settings(max_examples=15, deadline=None, derandomize=True, database=None)
    @given(instances(most=4, deepest=1 if one_candidate(name) else 3))
    def check(instance: Any) -> None:
        p, q, k = instance
        k = 2 if relation == "hub" else k
        draws = drawing(relation, q, k)
        found = position_law(verifiers.get(name).select, p, draws)
        assert accepted(found) <= optimum(p, q, k, relation)

    check()


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(instances(), st.sampled_from(DRAWN))
def test_one_hot_is_membership(instance: Any, relation: str) -> None:
    """The same law of acceptance and token, whatever was drafted."""
    p, q, k = instance
    draws = drawing(relation, q, 2 if relation == "hub" else k)
    laws = [
        position_law(verifiers.get(name).select, p, draws)
        for name in ("one_hot", "membership")
    ]
    assert laws[0] == laws[1]


def test_h16_a_greedy_draft_has_a_one_hot_proposal() -> None:
    """The draft model says .4 .35 .25 and proposes its argmax. The right value is p."""
    p, q = exact([3, 5, 2]), exact([8, 7, 5])
    for name in ("one_hot", "membership"):
        found = position_law(verifiers.get(name).select, p, drawing("beam", q, 1))
        assert output(found, 3) == p.tolist() and accepted(found) == p[0]
    sure = [Draw(0, one_hot(q, 0))]
    for name in ("specinfer", "single", "block", "traversal", "greedy_draft"):
        assert check_position(verifiers.get(name), p, lambda chance: sure) == p[0]
    # Scored with .4, it is accepted with 3/4, and the rest is token 1.
    wrong = position_law(
        verifiers.get("specinfer").select, p, lambda chance: [Draw(0, q)]
    )
    assert output(wrong, 3) == [Fraction(3, 4), Fraction(1, 4), 0]


def test_the_order_of_drafters_changes_what_is_accepted_and_not_the_output() -> None:
    p, rows = exact([5, 3, 2]), [exact([4, 4, 2]), exact([8, 1, 1])]
    specinfer = verifiers.get("specinfer")
    there = check_position(specinfer, p, drawing("independent", rows, 2))
    back = check_position(specinfer, p, drawing("independent", rows[::-1], 2))
    assert (there, back) == (Fraction(49, 50), Fraction(22, 25))


def test_a_tree_of_no_candidates_is_a_target_draw() -> None:
    p = exact([1, 0, 2])
    for name, _ in PAIRS:
        found = position_law(verifiers.get(name).select, p, lambda chance: [])
        assert output(found, 3) == p.tolist() and not accepted(found)


def test_a_rule_whose_output_is_not_p_fails_the_check() -> None:
    p, q = exact([5, 3, 2]), exact([4, 4, 2])
    typical = verifiers.get("typical")
    must_fail(check_position, typical, p, drawing("iid", q, 2))
