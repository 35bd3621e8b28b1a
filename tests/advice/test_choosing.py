"""The choice: constraints refuse by name, plain decoding takes part, ties are told."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction as F

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specbook import registry
from specbook.advice import Constraints, Estimate, advise
from specbook.advice.constraints import refusals
from specbook.advice.needs import family_of, needs_of
from specbook.contract import negotiate
from specbook.errors import SpecbookError
from specbook.measure.frontier_data import FAMILIES, PLAIN, Configuration
from tests.advice.making import CHAIN, LOOKUP, REST, TREE, TYPICAL, plain, several


def test_the_fastest_is_not_the_one_with_the_most_tokens():
    made = advise(several())
    assert made.best.configuration == LOOKUP
    assert made.best.per_token == F(3, 4)
    assert max(made.ranking, key=lambda e: e.tokens).configuration == CHAIN
    assert made.speedup == F(4, 3)
    assert made.runner_up.configuration == TREE


@pytest.mark.parametrize(
    ("constraints", "best"),
    [
        (Constraints(exact=False), TYPICAL),
        (Constraints(datastore=True), REST),
        (Constraints(fixed_rows=True), TREE),
        (Constraints(fixed_rows=True, extra_bytes=12_000_000), TREE),
        (Constraints(fixed_rows=True, extra_bytes=11_999_999), PLAIN),
        (Constraints(datastore=True, extra_bytes=0), LOOKUP),
        (Constraints(temperature=0.5), PLAIN),
    ],
)
def test_each_constraint_flips_the_choice(constraints, best):
    assert advise(several(), constraints).best.configuration == best


def test_every_reason_of_a_refusal_is_named():
    allowed = Constraints(extra_bytes=0, temperature=1.0, fixed_rows=True)
    rest = next(e for e in several() if e.configuration == REST)
    names = {r.constraint for r in refusals(rest, allowed)}
    assert names == {"temperature", "extra_bytes", "datastore", "fixed_rows"}
    made = advise(several(), allowed)
    assert {r.estimate.configuration: set(r.constraints) for r in made.refused}[
        REST
    ] == names


def test_a_wrong_pair_is_refused_by_the_contracts():
    """A lookup has no q, so a rule that divides by q may not meet it."""
    wrong = Estimate(
        Configuration("prompt_lookup", "copying", "single"), F(9), F(0), F(1)
    )
    made = advise([plain(), wrong], Constraints(temperature=1.0))
    assert made.best.configuration == PLAIN
    assert made.refused[0].constraints == ("contract",)
    assert "probability" in made.refused[0].why[0].why


def test_what_is_advised_negotiates_for_every_source_and_rule():
    """The refusal is exactly what the contracts say, over the whole registry."""
    for name in registry.DRAFTS:
        one = Configuration(name, family_of(name), "greedy")
        for rule in registry.VERIFIERS:
            pair = replace(one, verifier=rule, exact=False)
            found = refusals(
                Estimate(pair, F(2), F(0), F(1)),
                Constraints(exact=False, datastore=True),
            )
            asked = needs_of(pair).contract
            try:
                negotiate([asked], rule, exact=False)
            except ValueError:
                assert [r.constraint for r in found] == ["contract"]
            else:
                assert found == []


def test_every_registered_source_has_a_family_and_needs():
    for name in registry.DRAFTS:
        assert family_of(name) in FAMILIES
        needs = needs_of(Configuration(name, family_of(name), "greedy"))
        assert needs.contract.name == name
    stored = {
        name
        for name in registry.DRAFTS
        if needs_of(Configuration(name, "copying", "greedy")).datastore
    }
    assert stored == {"rest"}


def test_plain_is_advised_where_nothing_pays_and_must_be_there():
    slow = Estimate(LOOKUP, F(2), F(0), F(3))
    assert advise([slow, plain()]).best.configuration == PLAIN
    with pytest.raises(SpecbookError, match="plain decoding is not among"):
        advise([slow])
    # Of equals the one that drafts nothing.
    level = Estimate(LOOKUP, F(2), F(0), F(2))
    made = advise([level, plain()])
    assert made.best.configuration == PLAIN
    assert [e.configuration for e in made.ties] == [LOOKUP]


def test_plain_decoding_is_one_and_nothing_is_asked_of_it():
    sampled = replace(PLAIN, verifier="membership")
    with pytest.raises(SpecbookError, match="plain decoding is estimated 2 times"):
        advise([plain(), Estimate(sampled, F(1), F(0), F(1))])
    with pytest.raises(SpecbookError, match="holds nothing beside the target"):
        plain(extra_bytes=1)
    # Its rule has nothing to judge: no constraint is about it, by whatever name.
    strict = Constraints(extra_bytes=0, fixed_rows=True, temperature=1.0)
    bent = Estimate(replace(PLAIN, verifier="typical"), F(1), F(0), F(1))
    assert advise([bent], strict).best is bent


def test_siblings_that_may_be_one_token_have_no_fixed_rows():
    """Drawn independently, two children may be one token, and the tree has one row."""
    star = replace(CHAIN, topology="star 2", parents=(-1, -1), ranks=(0, 1))
    fixed = Constraints(fixed_rows=True, temperature=1.0)
    for shape, children, held in (
        (star, "iid", False),
        (star, "without_replacement", True),
        (CHAIN, "iid", True),
    ):
        one = replace(shape, children=children, verifier="sequoia")
        if children == "iid":
            one = replace(one, verifier="specinfer")
        assert needs_of(one).fixed_rows is held
        made = advise([plain(), Estimate(one, F(9), F(0), F(1))], fixed)
        assert (made.best.configuration == one) is held
        assert held or made.refused[0].constraints == ("fixed_rows",)


def test_a_limit_that_is_told_can_be_typed():
    """Told in MB to the byte: rounded, the limit that is named would refuse it."""
    one = Estimate(TREE, F(9), F(0), F(1), extra_bytes=12_049_999)
    made = advise([plain(), one], Constraints(extra_bytes=12_000_000))
    assert made.refused[0].why[0].why == (
        "12.049999 MB beside the target, 12 MB are allowed"
    )
    typed = round(float(made.refused[0].why[0].why.split(" MB")[0]) * 1e6)
    best = advise([plain(), one], Constraints(extra_bytes=typed)).best
    assert best.configuration == TREE


def test_a_speed_that_nothing_reaches_says_what_is_kept_out():
    with pytest.raises(SpecbookError) as told:
        advise(several(), Constraints(speedup=F(7, 5)))
    text = str(told.value)
    assert "1.33 times as fast" in text
    assert "typical would be, and is kept out by exact" in text
    assert "rest / greedy would be, and is kept out by datastore" in text
    assert advise(several(), Constraints(speedup=F(4, 3))).speedup == F(4, 3)


def test_sureness_counts_worlds_and_names_ties():
    worlds = np.array([1.0, 1.0, 1.0, 1.0])
    ahead = replace(several()[1], worlds=np.array([0.7, 0.8, 1.2, 0.7]))
    behind = replace(several()[3], worlds=np.array([0.9, 0.7, 1.1, 0.9]))
    sure = replace(several()[2], worlds=np.array([2.0, 2.0, 2.0, 2.0]))
    made = advise([plain(worlds=worlds), ahead, behind, sure])
    assert made.wins == 0.5  # worlds 1 and 4; world 2 is the heads', world 3 plain's
    assert made.source_wins == 0.5
    assert {e.configuration for e in made.ties} == {PLAIN, TREE}
    assert advise(several()).wins is None


def test_two_shapes_of_a_source_share_its_wins():
    other = replace(TREE, topology="star 3", parents=(-1, -1, -1), ranks=(0, 1, 2))
    one = Estimate(TREE, 2.0, 0.5, 0.9, worlds=np.array([0.6, 0.8]))
    two = Estimate(other, 2.0, 0.5, 1.0, worlds=np.array([0.7, 0.7]))
    made = advise([plain(worlds=np.ones(2)), one, two])
    assert (made.wins, made.source_wins) == (0.5, 1.0)


TWELFTHS = st.tuples(
    st.integers(12, 72), st.integers(0, 24), st.integers(1, 48), st.integers(0, 50)
)


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=50)
@given(st.lists(TWELFTHS, min_size=1, max_size=5), st.integers(0, 50))
def test_never_slower_than_plain_and_never_over_the_memory(rows, limit):
    listed = [plain()]
    for number, (tokens, draft, verify, size) in enumerate(rows):
        one = replace(LOOKUP, topology=f"chain {number + 1}",
                      parents=(-1,), ranks=(0,))  # fmt: skip
        times = F(tokens, 12), F(draft, 12), F(verify, 12)
        listed.append(Estimate(one, *times, extra_bytes=size))
    made = advise(listed, Constraints(extra_bytes=limit))
    assert made.best.per_token <= 1
    assert made.best.extra_bytes <= limit
    allowed = [e for e in listed if e.extra_bytes <= limit]
    assert made.best.per_token == min(e.per_token for e in allowed)
    assert len(made.ranking) + len(made.refused) == len(listed)


@pytest.mark.parametrize(
    "changes",
    [
        {"tokens": F(1, 2)},
        {"tokens": float("nan")},
        {"tokens": None},
        {"draft": -1},
        {"verify": 0},
        {"extra_bytes": True},
        {"extra_bytes": -1},
        {"how": "guessed"},
        {"worlds": np.array([1.0, 0.0])},
        {"worlds": np.array([1.0, float("nan")])},
        {"worlds": np.ones((2, 2))},
        {"configuration": Configuration("transformers greedy", "peer", "greedy")},
        {"configuration": "prompt_lookup"},
    ],
)
def test_impossible_estimates_are_refused(changes):
    with pytest.raises(SpecbookError):
        replace(plain(), **changes)


@pytest.mark.parametrize(
    "changes",
    [{"exact": 1}, {"extra_bytes": -1}, {"extra_bytes": 1.5}, {"temperature": -0.1},
     {"speedup": None}, {"datastore": "no"}],
)  # fmt: skip
def test_bad_constraints_are_refused(changes):
    with pytest.raises(SpecbookError):
        Constraints(**changes)


def test_what_is_no_estimate_is_refused():
    with pytest.raises(SpecbookError, match="not an Estimate"):
        advise([plain(), "x"])
    with pytest.raises(SpecbookError, match="twice"):
        advise([plain(), plain()])
    with pytest.raises(SpecbookError, match="not Constraints"):
        refusals(plain(), {"exact": True})
