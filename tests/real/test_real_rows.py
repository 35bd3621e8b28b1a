"""One position on rows of the real target and a shipped draft model, in float64.

The output law of every rule, by conditional expectation: the drafts are enumerated, the
rule's tests are enumerated for each of them, and a last draw counts as the whole law
that it is drawn from. So nothing is grouped or sampled, and it must be the target's row
to 1e-12. The draft's row is cut to a few tokens, or the pairs could not be listed.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from specbook import paths, prompts, verifiers
from specbook.chance import law
from specbook.drafts.samplers import SAMPLERS, Draw, position_tree
from specbook.models import load_target
from specbook.policy import SamplingPolicy
from specbook.proposal import PREFIX_FRONTIER, SamplingRelation
from specbook.tree import CandidateTree
from specbook.verifiers.coupling import acceptance
from specbook.verifiers.walk import walk
from tests.core.helpers import must_fail
from tests.real.test_real_target import encode

pytestmark = [pytest.mark.real, pytest.mark.slow]

TOLERANCE = 1e-12

POLICIES = {
    "plain, top-k draft": (SamplingPolicy(0.7), SamplingPolicy(0.7, top_k=6)),
    "hot, nucleus": (SamplingPolicy(2.0, top_p=0.9), SamplingPolicy(1.0, 6, 0.9)),
    "cut alike": (SamplingPolicy(1.0, top_k=6), SamplingPolicy(1.0, top_k=6)),
    "sure target": (SamplingPolicy(0.0), SamplingPolicy(2.0, top_k=5)),
    "nearly sure": (SamplingPolicy(1e-3), SamplingPolicy(1e-3)),
}

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


@pytest.fixture(scope="module")
def logits() -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows of logits of both models, after three development prompts."""
    models = load_target(), load_target(paths.data_path("draft", "smollm2"))
    rows = []
    for workload in ("continue_code", "edit_code", "chat"):
        ids = encode(models[0], prompts.load(workload, "development")[1])
        tree = CandidateTree.from_paths([], len(ids))
        pair = [
            np.asarray(model.start(ids).verify(tree).logits(PREFIX_FRONTIER))
            for model in models
        ]
        rows.append((pair[0], pair[1]))
    return rows


class Dense:
    """A `Chance` of one position: tests branch, and a draw that would branch into a
    vocabulary is told as the law that it is drawn from. Token 0 stands for it, and for
    a rule that looks where its draw landed, every token that is `watched` is itself."""

    def __init__(self, chance: Any, watched: list[int]) -> None:
        self.chance, self.watched = chance, watched
        self.told: np.ndarray | None = None

    def flip(self, probability: Any) -> bool:
        return self.chance.flip(probability)

    def draw(self, weights: np.ndarray) -> int:
        others = weights.copy()
        others[self.watched] = 0
        rest = others.sum()
        shares = [*weights[self.watched], rest]
        chosen = self.chance.draw(np.array(shares) / sum(shares))
        if chosen < len(self.watched):
            return self.watched[chosen]
        self.told = others / rest
        return int(np.argmax(others))


def output(select: Any, p: np.ndarray, q: np.ndarray, relation: str, k: int) -> Any:
    """The law [V] of the emitted token."""
    drawn: dict[tuple[int, ...], list[Draw]] = {}
    sampler = SAMPLERS[SamplingRelation(relation)]

    def drafting(chance: Any) -> tuple[int, ...]:
        draws = sampler(q, k, chance)
        tokens = tuple(draw.token for draw in draws)
        drawn[tokens] = draws
        return tokens

    after = np.zeros_like(p)
    after[0] = 1.0
    found = np.zeros_like(p)
    for tokens, mass in law(drafting).items():
        tree = position_tree(drawn[tokens])

        def deciding(chance: Any, tree: Any = tree) -> tuple[Any, ...]:
            dense = Dense(chance, list(tree.token_ids))
            chosen = select(tree, lambda row: p if row < 0 else after, dense)
            if chosen.rows:
                return tree.token_ids[chosen.rows[0]], None
            told = None if dense.told is None else dense.told.tobytes()
            return chosen.token, told

        branches: dict[Any, Any] = law(deciding)
        for (token, told), share in branches.items():
            if told is None:
                found[token] += float(mass * share)
            else:
                found += float(mass * share) * np.frombuffer(told)
    return found


def check_row(select: Any, rows: Any, policies: Any, relation: str, k: int) -> None:
    one, other = policies
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        p, q = one.law_from_logits(rows[0]), other.law_from_logits(rows[1])
        found = output(select, p, q, relation, k)
    assert p.dtype == q.dtype == np.float64
    assert np.abs(found - p).max() <= TOLERANCE


@pytest.mark.parametrize("kind", POLICIES)
@pytest.mark.parametrize(("name", "relation", "k"), PAIRS)
def test_the_output_law_is_the_targets_row(
    logits: Any, name: str, relation: str, k: int, kind: str
) -> None:
    for rows in logits:
        check_row(verifiers.get(name).select, rows, POLICIES[kind], relation, k)


def test_a_correction_from_p_is_found(logits: Any) -> None:
    """The planted fault: what is left after a refusal is drawn from p again."""

    def choose(p: Any, drafts: Any, chance: Any) -> Any:
        if chance.flip(acceptance(p, drafts[0].law, drafts[0].token)):
            return drafts[0]
        return chance.draw(p)

    def select(tree: Any, law: Any, chance: Any) -> Any:
        return walk(tree, law, chance, choose, name="fault")

    policies = POLICIES["plain, top-k draft"]
    for rows in logits:
        check_row(verifiers.get("single").select, rows, policies, "iid", 1)
        must_fail(check_row, select, rows, policies, "iid", 1)
