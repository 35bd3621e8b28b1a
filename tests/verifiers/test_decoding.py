"""Decoding with every rule at the vocabulary of the real target, in float64.

Rows are made from the prefix, so that they are as different as a model's; either side
may be truncated, which makes supports that do not meet. What is asserted is that
nothing is NaN, that no warning is raised, and what is exact: the tokens at temperature
0, and that a run repeats itself.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from specbook import verifiers
from specbook.contract import Verifier
from specbook.drafts.neural.draft_model import DraftModel
from specbook.engine import Generation, generate
from specbook.models.table import TableTarget
from specbook.policy import SamplingPolicy
from tests.core.helpers import must_fail

from .helpers import TableDrafts

VOCAB = 49_152
RULES = [
    ("specinfer", "iid", (2, 2)),
    ("specinfer", "independent", (3, 1)),
    ("sequoia", "without_replacement", (4, 2)),
    ("kseq", "iid", (3, 2)),
    ("greedy_draft", "greedy_plus_one", (3, 2)),
    ("spechub", "hub", (2, 2)),
    ("one_hot", "beam", (3, 2)),
    ("membership", "beam", (3, 2)),
    ("traversal", "iid", (2, 2)),
    ("traversal", "without_replacement", (3, 1)),
    ("block", "iid", (1, 1, 1)),
    ("single", "iid", (1, 1, 1)),
    ("typical", "beam", (3, 2)),
    ("ensemble", "iid", (1, 1)),
]
HEURISTICS = ("typical", "ensemble")


def table(salt: int, sharp: float, shared: float) -> Any:
    """Rows of a model that agrees with the others of its kind as far as `shared`."""
    common = np.random.default_rng(1).normal(size=VOCAB)

    def row(prefix: tuple[int, ...]) -> np.ndarray:
        rng = np.random.default_rng([salt, *prefix[-3:]])
        together = np.random.default_rng([0, *prefix[-3:]]).permutation(common)
        logits = shared * together + (1 - shared) * rng.normal(size=VOCAB)
        return SamplingPolicy().law_from_logits(sharp * logits)

    return row


TARGET = TableTarget(table(2, 6.0, 0.9), vocab_size=VOCAB)


def decode(name: str, relation: str, widths: Any, **options: Any) -> Generation:
    source = TableDrafts(table(3, 6.0, 0.9), widths, relation)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return generate(
            TARGET,
            [1, 2],
            source,
            name,
            max_new_tokens=6,
            exact=name not in HEURISTICS,
            clock=lambda: 0.0,
            **options,
        )


@pytest.mark.parametrize(("name", "relation", "widths"), RULES)
def test_sampled_decoding_at_any_temperature(
    name: str, relation: str, widths: Any
) -> None:
    for options in (
        {"temperature": 0.05},
        {"temperature": 1.0, "top_k": 3},
        {"temperature": 2.0, "top_p": 0.4},
        {"temperature": 2.0},
    ):
        made = decode(name, relation, widths, seed=7, **options)
        assert len(made.tokens) == 6 and set(made.tokens) < set(range(VOCAB))
    again = decode(name, relation, widths, seed=7, **options)
    assert again.tokens == made.tokens


@pytest.mark.parametrize(("name", "relation", "widths"), RULES)
def test_h19_at_temperature_zero_it_is_greedy_decoding(
    name: str, relation: str, widths: Any
) -> None:
    if name == "ensemble":
        return  # half the draft's word counts: that is what makes it a heuristic
    plain = generate(TARGET, [1, 2], None, "greedy", max_new_tokens=6)
    made = decode(name, relation, widths, temperature=0)
    assert made.tokens == plain.tokens


PROCESSED = [
    {"temperature": 0},
    {"temperature": 1e-3},
    {"temperature": 0.7},
    {"temperature": 1.0, "top_k": 5},
    {"temperature": 1.0, "top_p": 0.8},
    {"temperature": 2.0, "top_k": 50, "top_p": 0.9},
    {"temperature": 2.0},
]


def check_recorded(options: Any, policy: SamplingPolicy) -> int:
    """In a run with `options`, the law beside every candidate, and every law of the
    target that the rule is handed, is that side's own, processed by `policy`. Returns
    how many laws were compared."""
    seen: list[Any] = []
    rule = verifiers.get("specinfer")

    def select(tree: Any, law: Any, chance: Any) -> Any:
        asked: dict[int, Any] = {}

        def ask(row: int) -> Any:
            asked[row] = law(row)
            return asked[row]

        seen.append((tree, asked))
        return rule.select(tree, ask, chance)

    model = TableTarget(table(3, 6.0, 0.9), vocab_size=VOCAB)
    source = DraftModel(model, widths=(2, 1), children="iid")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = generate(
            TARGET,
            [1, 2],
            source,
            Verifier(rule.contract, select),
            max_new_tokens=4,
            seed=5,
            **options,
        )
    prefix, compared = (1, 2), 0
    for done, (tree, asked) in zip(made.rounds, seen, strict=True):
        path = {-1: (), **dict(enumerate(tree.full_prefixes))}
        recorded = [
            (mark.law, model, tree.parents[row])
            for row, claims in enumerate(tree.sources)
            for mark in claims
        ]
        recorded += [(law, TARGET, row) for row, law in asked.items()]
        for law, side, row in recorded:
            processed = policy.law_from_probabilities(
                side.lookup((*prefix, *path[row]))
            )
            assert np.array_equal(law, processed)
            compared += 1
        prefix = (*prefix, *done.committed)
    return compared


@pytest.mark.parametrize("options", PROCESSED, ids=str)
def test_what_is_recorded_is_the_processed_law_of_each_side(options: Any) -> None:
    assert check_recorded(options, SamplingPolicy(**options)) > 4


def test_a_law_that_was_processed_otherwise_is_found() -> None:
    options: Any = {"temperature": 1.0, "top_k": 5}
    must_fail(check_recorded, options, SamplingPolicy(1.0))
    must_fail(check_recorded, options, SamplingPolicy(0.7, top_k=5))


def test_drafts_are_accepted_and_refused() -> None:
    """Otherwise nothing above would have been tried."""
    endings = set()
    accepted = 0
    for seed in range(3):
        made = decode("specinfer", "iid", (2, 2), temperature=0.7, seed=seed)
        endings |= {item.ending for item in made.rounds}
        accepted += sum(item.accepted for item in made.rounds)
    assert accepted and "correction" in endings
