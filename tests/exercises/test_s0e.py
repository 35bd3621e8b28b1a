"""The judges of 0x0E: right answers pass, each usual mistake is named."""

from __future__ import annotations

import numpy as np
import pytest

from specbook import controls
from specbook.chance import law
from specbook.exercises import get, grade
from specbook.exercises.s0e import BROKEN, RULES, ancestors
from specbook.tree import CandidateTree
from tests.exercises.judging import names_the_mistake, told

# ------------------------------------------------------------------------- right


def witness(broken):
    forests = [[]]
    while True:
        forests = [[*f, parent] for f in forests for parent in range(-1, len(f))]
        for parents in forests:
            if broken(parents) != ancestors(parents):
                return parents


def large(broken):
    """A tree on which all of them are wrong, at a price."""
    return [-1, -1, 0, 0, 2, 4, 5]


def which_rule(p, q, seen):
    p, q = np.array(p), np.array(q)
    for name in RULES:
        wrong = controls.get(name).wrong
        found = law(lambda chance, wrong=wrong: wrong(chance, p, [q, q]))
        if [found.get((token,), 0) for token in range(len(p))] == seen:
            return name
    return "right"


def publish(block, room, ends):
    for place, token in enumerate(block[:room]):
        if token in ends:
            return block[: place + 1]
    return block[:room]


RIGHT = [
    ("0x0E-witness", witness),
    ("0x0E-witness", large),
    ("0x0E-which-rule", which_rule),
    ("0x0E-publish", publish),
    ("0x0E-publish", lambda *case: tuple(publish(*case))),
]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("exercise_id", "answer"), RIGHT)
def test_right_answers_pass(exercise_id, answer, seed):
    solved, lines = told(exercise_id, answer, seed)
    assert solved, lines


def test_a_smaller_witness_costs_less():
    small, wide = (grade(get("0x0E-witness"), a, 1) for a in (witness, large))
    assert small.cost == small.reference_cost < wide.cost


def test_the_ancestors_is_the_trees_own():
    for parents in ([], [-1], [-1, 0, 0, 1], [-1, -1, 1, 2, 0]):
        tree = CandidateTree.from_rows(range(len(parents)), parents, 0)
        assert ancestors(parents) == tree.tree_mask.tolist()


def test_every_broken_mask_is_right_somewhere_and_wrong_somewhere():
    right_on = {"_no_self": []}
    for broken in BROKEN:
        assert broken(large(broken)) != ancestors(large(broken)), broken
        parents = right_on.get(broken.__name__, [-1, 0])
        assert broken(parents) == ancestors(parents), broken


# ---------------------------------------------------------------------- mistakes

WRONG = [
    ("0x0E-witness", lambda broken: [-1, 0], "a chain has no siblings"),
    ("0x0E-witness", lambda broken: [], "a chain has no siblings"),
    ("0x0E-witness", lambda broken: [0, 1], "row 0 has parent 0"),
    ("0x0E-witness", lambda broken: 3, "a list of parents"),
    ("0x0E-which-rule", lambda p, q, seen: "nothing", "answer with one of"),
    ("0x0E-which-rule", lambda p, q, seen: "right", "the law is off by"),
    ("0x0E-which-rule", lambda p, q, seen: RULES[0], "gives another law|p itself"),
    ("0x0E-publish", lambda block, room, ends: block, "more came behind it"),
    (
        "0x0E-publish",
        lambda block, room, ends: publish(block, 99, ends),
        "there is room for",
    ),
    (
        "0x0E-publish",
        lambda block, room, ends: [
            t for t in publish(block, room, ends) if t not in ends
        ],
        "the end token itself",
    ),
    ("0x0E-publish", lambda block, room, ends: [9], "the beginning of the block"),
    ("0x0E-publish", lambda block, room, ends: block[:1], "may be published"),
]


@pytest.mark.parametrize(("exercise_id", "answer", "words"), WRONG)
def test_the_likely_mistake_is_named(exercise_id, answer, words):
    if "|" in words:
        solved, lines = told(exercise_id, answer)
        assert not solved and any(word in lines for word in words.split("|"))
        return
    names_the_mistake(exercise_id, answer, words, seeds=6)


def test_the_law_of_a_right_rule_is_named():
    names_the_mistake(
        "0x0E-which-rule",
        lambda p, q, seen: RULES[2] if seen == p else which_rule(p, q, seen),
        "the law is p itself",
        seeds=3,
    )
