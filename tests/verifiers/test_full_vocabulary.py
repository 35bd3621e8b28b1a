"""One position at the vocabulary of the real target, by conditional expectation.

The rows have 49,152 tokens: a head of tokens that differ and a tail of equal ones.
Tokens that nothing tells apart are one case, so that every case can be enumerated, and
the rule runs on the whole rows.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from specbook import verifiers
from specbook.chance import law
from specbook.drafts.samplers import position_tree
from specbook.policy import SamplingPolicy

from .helpers import drawing

VOCAB = 49_152
TOLERANCE = 1e-12


class Alike:
    """A `Chance` that draws one token for all those of a group that weigh the same."""

    def __init__(self, chance: Any, groups: list[np.ndarray]) -> None:
        self.chance, self.groups = chance, groups

    def flip(self, probability: Any) -> bool:
        return self.chance.flip(probability)

    def draw(self, weights: Any) -> int:
        tokens, masses = [], []
        for group in self.groups:
            values, first, count = np.unique(
                weights[group], return_index=True, return_counts=True
            )
            tokens += group[first].tolist()
            masses += (values * count).tolist()
        total = sum(masses)
        return tokens[self.chance.draw(np.array(masses) / total)]


def rows_of(name: str) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """p, q and the groups of tokens that are alike in both."""
    rng = np.random.default_rng(sum(map(ord, name)))
    groups = [np.array([token]) for token in (11, 500)]
    groups += [np.arange(1000, 20_000), np.arange(20_000, VOCAB)]
    rest = np.setdiff1d(np.arange(VOCAB), np.concatenate(groups))
    groups[-1] = np.concatenate([groups[-1], rest])
    p_logits, q_logits = np.zeros(VOCAB), np.zeros(VOCAB)
    for number, group in enumerate(groups):
        head = 10.0 if number < 2 else 0.0
        p_logits[group] = head + rng.normal()
        q_logits[group] = head + rng.normal()
    policies = {
        "plain": (SamplingPolicy(1.0), SamplingPolicy(1.0)),
        "hot and cold": (SamplingPolicy(2.0), SamplingPolicy(0.5)),
        "disjoint": (SamplingPolicy(1.0, top_k=1), SamplingPolicy(1.0)),
        "equal": (SamplingPolicy(0.7), SamplingPolicy(0.7)),
    }
    one, other = policies[name]
    p = one.law_from_logits(p_logits)
    q = other.law_from_logits(p_logits if name == "equal" else q_logits)
    if name == "disjoint":
        q = q.copy()
        q[p > 0] = 0
        q /= q.sum()
    return p, q, groups


PAIRS = [
    ("single", "iid", 1),
    ("block", "iid", 1),
    ("specinfer", "iid", 2),
    ("sequoia", "without_replacement", 2),
    ("kseq", "iid", 2),
    ("traversal", "iid", 2),
    ("traversal", "without_replacement", 2),
    ("greedy_draft", "greedy_plus_one", 2),
    ("spechub", "hub", 2),
    ("one_hot", "beam", 2),
]


def check_row(select: Any, relation: str, k: int, kind: str) -> None:
    """Every group of tokens gets its share of p, to 1e-12."""
    p, q, groups = rows_of(kind)
    draws = drawing(relation, q, k)
    after = np.eye(1, VOCAB).ravel()

    def program(chance: Any) -> int:
        alike = Alike(chance, groups)
        tree = position_tree(draws(alike))
        found = select(tree, lambda row: p if row < 0 else after, alike)
        token = tree.token_ids[found.rows[0]] if found.rows else found.token
        return next(i for i, group in enumerate(groups) if token in group)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = law(program)
    for number, group in enumerate(groups):
        assert abs(found.get(number, 0.0) - p[group].sum()) <= TOLERANCE


@pytest.mark.parametrize("kind", ["plain", "hot and cold", "disjoint", "equal"])
@pytest.mark.parametrize(("name", "relation", "k"), PAIRS)
def test_the_output_has_the_law_p(name: str, relation: str, k: int, kind: str) -> None:
    check_row(verifiers.get(name).select, relation, k, kind)


def test_a_rule_that_is_a_little_off_is_found() -> None:
    """The correction is drawn from p, which is wrong wherever drafts are refused."""
    from specbook.verifiers.coupling import acceptance
    from specbook.verifiers.walk import walk

    def choose(p: Any, drafts: Any, chance: Any) -> Any:
        if chance.flip(acceptance(p, drafts[0].law, drafts[0].token)):
            return drafts[0]
        return chance.draw(p)

    def select(tree: Any, law: Any, chance: Any) -> Any:
        return walk(tree, law, chance, choose, name="fault")

    check_row(select, "iid", 1, "equal")
    with pytest.raises(AssertionError):
        check_row(select, "iid", 1, "plain")
