"""Joint laws and what chains for them bring, against sums written out by hand."""

from __future__ import annotations

from fractions import Fraction as F
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbook.errors import SpecbookError
from specbook.measure.joints import Joint
from specbook.models import TableTarget

TEXTS = list(product(range(2), repeat=2))


def by_hand(joint, rows):
    """Sum over depths and drafted paths of the products of min(p, q)."""
    total, alive = F(0), {(): F(1)}
    for place, row in enumerate(rows):
        below = {}
        for text, mass in alive.items():
            known = sum(n for t, n in joint.weights.items() if t[:place] == text)
            for token, q in enumerate(row):
                path = (*text, token)
                more = sum(
                    n for t, n in joint.weights.items() if t[: place + 1] == path
                )
                if both := min(F(more, known), q):
                    below[path] = mass * both
        alive = below
        total += sum(alive.values())
    return total


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=4, max_size=4).filter(any))
def test_a_chain_of_marginals_is_accepted_as_the_sum_says(weights):
    joint = Joint(dict(zip(TEXTS, weights, strict=True)))
    found = joint.accepted(joint.independent())
    assert found == by_hand(joint, joint.marginals())
    split = all(joint.mass(t) == joint.product(t) for t in joint_texts(joint))
    assert (found == 2) == split
    assert joint.accepted(joint.target()) == 2


def joint_texts(joint):
    return product(range(joint.size), repeat=joint.depth)


def test_a_drafter_that_looks_at_the_path_would_be_seen(monkeypatch):
    """The planted fault: the independent drafter says the conditional laws."""
    joint = Joint({"aa": 1, "bb": 1})
    assert joint.accepted(joint.independent()) == F(3, 2)
    monkeypatch.setattr(Joint, "independent", Joint.target)
    assert joint.accepted(joint.independent()) != F(3, 2)


def test_letters_are_tokens_and_masses_add_up():
    joint = Joint({"aab": 5, "bba": 3, "aba": 1, "bab": 1, "aaa": 0})
    assert joint.weights == {(0, 0, 1): 5, (1, 1, 0): 3, (0, 1, 0): 1, (1, 0, 1): 1}
    assert [row.tolist() for row in joint.marginals()] == [
        [F(6, 10), F(4, 10)],
        [F(6, 10), F(4, 10)],
        [F(4, 10), F(6, 10)],
    ]
    assert sum(joint.mass(t) for t in joint_texts(joint)) == 1
    assert sum(joint.product(t) for t in joint_texts(joint)) == 1
    target = joint.target()
    assert isinstance(target, TableTarget)
    assert target.lookup((0, 0, 0)).tolist() == [0, 1]
    assert target.lookup((0, 1, 1, 1)).tolist() == [F(1, 2)] * 2


def test_the_likelihood_of_a_product():
    joint = Joint({"aab": 2, "bba": 1})
    half = [F(1, 2), F(1, 2)]
    assert joint.likelihood([half] * 3) == F(1, 2) ** 9
    rows = joint.marginals()
    assert joint.likelihood(rows) == F(2, 3) ** 6 * F(1, 3) ** 3
    assert joint.likelihood([rows[0], half, rows[2]]) < joint.likelihood(rows)


@pytest.mark.parametrize(
    ("weights", "told"),
    [
        ({"a": 1, "ab": 1}, "one length"),
        ({"ab": 0}, "one length"),
        ({"": 1}, "one length"),
        ({"ab": -1}, "weight of 'ab'"),
        ({"aB": 1}, "text 'aB'"),
        ({"ab": 1, (0, 1): 3}, "twice"),
        ([("ab", 1)], "weights must map texts"),
    ],
)
def test_what_is_no_joint_law_is_refused(weights, told):
    with pytest.raises(SpecbookError, match=told):
        Joint(weights)


def test_a_text_may_be_letters_everywhere_and_must_be_whole():
    joint = Joint({"ab": 1, "ba": 3})
    assert joint.mass("ab") == joint.mass((0, 1)) == F(1, 4)
    assert joint.product("ab") == joint.product((0, 1)) == F(1, 16)
    for text in ((0,), "aba", (0, -1), (0, 2), "ac", 3):
        for ask in (joint.mass, joint.product):
            with pytest.raises(SpecbookError, match="text"):
                ask(text)


@pytest.mark.parametrize(
    "rows",
    [None, [[1, 0]], [[1], [1]], [[1, 0], [2, -1]], [[3, 3], [5, 5]]],
)
def test_a_likelihood_is_of_one_law_a_place(rows):
    with pytest.raises(SpecbookError, match="laws|rows"):
        Joint({"ab": 1, "ba": 3}).likelihood(rows)
