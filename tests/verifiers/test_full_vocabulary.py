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


POLICIES = {
    "plain": (SamplingPolicy(1.0), SamplingPolicy(1.0)),
    "hot and cold": (SamplingPolicy(2.0), SamplingPolicy(0.5)),
    "cold and hot": (SamplingPolicy(0.3), SamplingPolicy(2.0)),
    "disjoint": (SamplingPolicy(1.0, top_k=1), SamplingPolicy(1.0)),
    "equal": (SamplingPolicy(0.7), SamplingPolicy(0.7)),
    "sure target": (SamplingPolicy(0.0), SamplingPolicy(1.0)),
    "sure draft": (SamplingPolicy(1.0), SamplingPolicy(0.0)),
    "nearly sure": (SamplingPolicy(1e-6), SamplingPolicy(1e-3)),
    "both by top-k": (SamplingPolicy(1.0, top_k=700), SamplingPolicy(1.0, top_k=90)),
    "both by top-p": (SamplingPolicy(2.0, top_p=0.6), SamplingPolicy(2.0, top_p=0.3)),
    "target alone cut": (SamplingPolicy(0.7, 40, 0.95), SamplingPolicy(1.3)),
}
"""How the target's row and the draft's come about, from logits of a head and a tail."""


def rows_of(name: str) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """p, q and the groups of tokens that are alike in both."""
    rng = np.random.default_rng(sum(map(ord, name)))
    bounds = [np.array([token]) for token in (11, 500)]
    bounds += [np.arange(1000, 20_000), np.arange(20_000, VOCAB)]
    p_logits, q_logits = np.zeros(VOCAB), np.zeros(VOCAB)
    for number, group in enumerate(bounds):
        head = 10.0 if number < 2 else 0.0
        p_logits[group] = head + rng.normal()
        q_logits[group] = head + rng.normal()
    one, other = POLICIES[name]
    p = one.law_from_logits(p_logits)
    q = other.law_from_logits(p_logits if name == "equal" else q_logits)
    if name == "disjoint":
        q = q.copy()
        q[p > 0] = 0
        q /= q.sum()
    # A cut by rank goes through the middle of a group: what is alike is what is equal.
    _, kind = np.unique(np.stack([p, q]), axis=1, return_inverse=True)
    return p, q, [np.flatnonzero(kind == number) for number in range(kind.max() + 1)]


def test_the_rows_are_what_they_are_called() -> None:
    sizes = {
        name: [np.count_nonzero(r) for r in rows_of(name)[:2]] for name in POLICIES
    }
    assert (
        sizes["sure target"][0] == sizes["sure draft"][1] == sizes["disjoint"][0] == 1
    )
    assert sizes["both by top-k"] == [700, 90]
    assert 1 < sizes["both by top-p"][1] < sizes["both by top-p"][0] < VOCAB
    assert sizes["target alone cut"][0] <= 40 and sizes["plain"] == [VOCAB] * 2
    for name in POLICIES:
        groups = rows_of(name)[2]
        assert sum(map(len, groups)) == VOCAB and len(groups) < 10


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
    ("membership", "iid", 2),
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


@pytest.mark.parametrize("kind", POLICIES)
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
