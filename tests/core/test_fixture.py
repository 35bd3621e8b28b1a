"""The article's fixture holds, and each step notices the fault that it is there for."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from specbook import controls, fixture
from specbook.contract import Verifier
from specbook.errors import SpecbookError
from specbook.fixture import ARTICLE, DRAWN
from specbook.tree import CandidateTree
from specbook.verifiers import get


def missed(**changes):
    return {step.name for step in fixture.run(**changes).steps if not step.held}


def test_every_step_finds_what_the_article_publishes():
    found = fixture.run()
    assert found.held, [step for step in found.steps if not step.held]
    assert found.hash == fixture.HASH
    assert [step.name for step in found.steps][-1] == "artifact"


def test_only_one_choice_of_four_paths_fits_the_articles_sentences():
    left = fixture.left_out()
    fitting = [path for path, about in left.items() if about == (7, 2, True)]
    assert fitting == ["AF"]
    assert set(ARTICLE.hydra + ARTICLE.rest) == {*left} - {"AF"}


def test_the_drawn_graph_is_another_instance():
    assert missed(instance=DRAWN) == {"paths", "count", "artifact"}


class SeesSiblings(CandidateTree):
    tree_mask = property(lambda self: np.tri(len(self), dtype=bool))


class MoreColumns(CandidateTree):
    """A column too many, or numbers that add up: the sum of the prefix is right."""

    ancestor_mask = property(
        lambda self: np.pad(CandidateTree.ancestor_mask.__get__(self), ((0, 0), (0, 1)))
    )


class TwosAndNoughts(CandidateTree):
    def _mask(self):
        mask = np.array(CandidateTree.ancestor_mask.__get__(self), dtype=int)
        mask[:, 0], mask[:, 1] = 0, 2
        return mask

    ancestor_mask = property(_mask)


class PositionByRow(CandidateTree):
    position_ids = property(lambda self: [self.prefix_len + r for r in range(7)])


class ScoresItself(CandidateTree):
    predictor_rows = property(lambda self: tuple(range(len(self))))


def by_depth_and_token(proposals, prefix_len, order):
    """The tempting key: the second B is hung below the first one's parent."""
    tree = CandidateTree.from_proposals(proposals, prefix_len, order)
    rows, tokens, parents = {}, [], []
    for row, key in enumerate(zip(tree.depths, tree.token_ids, strict=True)):
        if key not in rows:
            rows[key] = len(tokens)
            tokens.append(key[1])
            above = tree.parents[row]
            at = (tree.depths[above], tree.token_ids[above]) if above >= 0 else None
            parents.append(rows[at] if at else -1)
    return CandidateTree.from_rows(tokens, parents, prefix_len)


@pytest.mark.parametrize(
    ("compiler", "steps"),
    [
        (SeesSiblings.from_proposals, {"mask", "artifact"}),
        (MoreColumns.from_proposals, {"mask"}),
        (TwosAndNoughts.from_proposals, {"mask", "artifact"}),
        (PositionByRow.from_proposals, {"coordinates", "artifact"}),
        (ScoresItself.from_proposals, {"coordinates", "artifact"}),
        (by_depth_and_token, {"rows", "count", "two B", "artifact"}),
        (
            lambda proposals, n, order: CandidateTree.from_proposals(proposals, n),
            {"rows", "artifact"},
        ),
    ],
    ids=["siblings", "columns", "twos", "positions", "predictors", "merge", "order"],
)
def test_a_wrong_compiler_is_found(compiler, steps):
    assert missed(compiler=compiler) == steps


def test_a_wrong_residual_rule_is_found():
    wrong = controls.get("tests each draft against the original p").position
    rule = Verifier(get("specinfer").contract, wrong.select)
    assert missed(rule=rule) == {"output"}


def test_a_rule_that_reads_no_q_may_meet_the_graph():
    assert missed(rule="membership") == {"contract"}


def test_rates_that_are_passed_as_probabilities_are_found():
    assert missed(slots=list) == {"recurrence", "every size", "artifact"}


TENTH = Fraction(1, 10)


@pytest.mark.parametrize(
    ("change", "steps"),
    [
        ({"p": (8 * TENTH, TENTH, TENTH)}, {"output", "transport"}),
        ({"prefix_len": 6}, {"artifact"}),
        ({"verifier": "single"}, {"artifact", "contract"}),
        ({"temperature": 2}, {"artifact"}),
        ({"draft_time": TENTH}, {"recurrence", "artifact"}),
        ({"max_depth": 3}, {"recurrence", "artifact"}),
        ({"hydra": ("ABC", "XB", "ABD")}, {"artifact"}),
        ({"rest": ("ABF",)}, {"artifact"}),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_another_instance_is_noticed(change, steps):
    assert missed(instance=replace(ARTICLE, **change)) == steps


def test_the_hash_binds_topology_profile_and_policy():
    changed = [
        replace(ARTICLE, hydra=("ABC", "ABF", "XB")),
        replace(ARTICLE, verify_times=ARTICLE.verify_times[:-1]),
        replace(ARTICLE, sibling_rates=ARTICLE.sibling_rates[:-1]),
        replace(ARTICLE, temperature=0),
    ]
    hashes = {fixture.run(instance).hash for instance in changed}
    assert len(hashes | {fixture.HASH}) == len(changed) + 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: fixture.run(None), "not an Instance"),
        (lambda: fixture.run(replace(ARTICLE, rest=("ABZ",))), "letters of ABCDEFX"),
        (lambda: fixture.digest({"rows": [{"q": 0.5}]}), r"artifact\['rows'\]\[0\]"),
        (lambda: replace(ARTICLE, hydra=5), "hydra must be a sequence"),
        (lambda: replace(ARTICLE, hydra="ABC"), "hydra must be a sequence"),
        (lambda: replace(ARTICLE, prefix_len=-1), "prefix_len must be at least 0"),
        (lambda: replace(ARTICLE, drafts=2.0), "drafts must be an integer"),
        (lambda: replace(ARTICLE, verifier=None), "verifier must be text"),
        (lambda: replace(ARTICLE, p=(0.5, 0.5)), "an entry of p must be a Fraction"),
        (lambda: replace(ARTICLE, q=None), "q must be a sequence"),
        (lambda: replace(ARTICLE, verify_times=5), "verify_times must be a sequence"),
        (lambda: replace(ARTICLE, verify_times=(1,)), r"verify_times\[0\] must be a"),
        (lambda: replace(ARTICLE, verify_times=((2, 1.0),)), "entry of verify_times"),
        (lambda: replace(ARTICLE, draft_time=0.09), "an entry of draft_time must be"),
    ],
)
def test_bad_input_is_refused(wrong, message):
    with pytest.raises(SpecbookError, match=message):
        wrong()
