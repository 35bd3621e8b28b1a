"""Two draft models at once, merged, on the real target (section 0x09): the shipped one,
and a worse one, its first half.

At temperature 0 the output is plain greedy's. At temperature 0.7 it is shown in two
steps: the laws that the rule is handed in a run are those of plain steps, the target's
and both drafters'; and the first token of many seeded runs on these laws has the
target's law, in a test that would find a known mistake almost surely.
"""

from __future__ import annotations

import shutil
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import stats

from specbook import controls, paths, prompts
from specbook.contract import Selection, Verifier
from specbook.drafts.neural.draft_model import DraftModel
from specbook.drafts.neural.mixture import Mixture
from specbook.drafts.prompt_lookup import PromptLookup
from specbook.engine import generate
from specbook.models import TableTarget, load_target
from specbook.models.checkpoint import load_transformers_model
from specbook.policy import SamplingPolicy
from specbook.proposal import PREFIX_FRONTIER
from specbook.tree import CandidateTree
from specbook.verifiers import apart, get
from specbook.verifiers.coupling import residual
from specbook.verifiers.walk import walk
from tests.real.test_real_target import (
    FALSE_ALARM,
    NAMED,
    check_counts,
    check_same_output,
    encode,
)

pytestmark = [pytest.mark.real, pytest.mark.slow]

POLICY = SamplingPolicy(0.7)
TEXT = "import numpy as"
SAMPLES = 1500


@pytest.fixture(scope="module")
def target() -> Any:
    return load_target()


@pytest.fixture(scope="module")
def drafters(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    shipped = paths.data_path("draft", "smollm2")
    half = tmp_path_factory.mktemp("draft") / "half"
    shutil.copytree(shipped, half, ignore=shutil.ignore_patterns("manifest.json"))
    model = load_transformers_model(shipped)
    layers = len(model.model.layers) // 2
    model.model.layers = model.model.layers[:layers]
    model.config.num_hidden_layers = layers
    model.save_pretrained(half)
    return [load_target(shipped), load_target(half)]


def test_greedy_output_equals_plain_greedy(target: Any, drafters: Any) -> None:
    sources = [DraftModel(model, widths=(1, 1, 1)) for model in drafters]
    accepted = 0
    for workload in ("continue_code", "edit_code", "chat"):
        ids = encode(target, prompts.load(workload, "development")[0])
        options = {"max_new_tokens": 32, "eos_token_id": target.eos_token_id}
        plain = generate(target, ids, None, **options)
        made = generate(target, ids, sources, "specinfer", **options)
        check_same_output(target, ids, plain.tokens, made.tokens)
        accepted += sum(item.accepted for item in made.rounds)
    # Equality without any accepted candidate would show nothing.
    assert accepted > 10


def test_a_draft_model_and_a_lookup_meet_by_all_three_ways_out(
    target: Any, drafters: Any
) -> None:
    """A mixture, a rule that reads no q, subgraphs apart (section 0x02A): the lookup's
    candidates and the draft model's, and the tokens of plain greedy decoding."""
    ids = encode(target, prompts.load("edit_code", "development")[0])
    options = {"max_new_tokens": 24, "eos_token_id": target.eos_token_id}
    plain = generate(target, ids, None, **options)
    draft, lookup = DraftModel(drafters[1], widths=(1, 1)), PromptLookup()
    for source, rule in (
        (Mixture(draft, lookup), "single"),
        ([draft, lookup], "membership"),
        ([draft, lookup], apart.VERIFIER),
    ):
        made = generate(target, ids, source, rule, **options)
        check_same_output(target, ids, plain.tokens, made.tokens)
        assert sum(item.accepted for item in made.rounds) > 5


def plain_law(model: Any, prefix: Any) -> np.ndarray:
    """The law after `prefix`, by a plain step."""
    session = model.start(list(prefix))
    rows = session.verify(CandidateTree.from_paths([], len(prefix)))
    return rows.law(PREFIX_FRONTIER, POLICY)


Seen = list[tuple[CandidateTree, dict[int, np.ndarray]]]


def watched(seen: Seen) -> Verifier:
    """The residual update, and every law that it is handed."""
    rule = get("specinfer")

    def select(tree: CandidateTree, law: Any, chance: Any) -> Selection:
        asked: dict[int, np.ndarray] = {}

        def ask(row: int) -> np.ndarray:
            asked[row] = law(row)
            return asked[row]

        seen.append((tree, asked))
        return rule.select(tree, ask, chance)

    return Verifier(rule.contract, select)


def check_laws(target: Any, drafters: Any, ids: Any, rounds: Any, seen: Any) -> int:
    """Every law in `seen` is that of a plain step; returns how many were compared."""
    prefix, compared = list(ids), 0
    for done, (tree, asked) in zip(rounds, seen, strict=True):
        at = {PREFIX_FRONTIER: (), **dict(enumerate(tree.full_prefixes))}
        for row, law in asked.items():
            plain = plain_law(target, [*prefix, *at[row]])
            assert np.abs(law - plain).max() < 1e-4
            compared += 1
        for row, claims in enumerate(tree.sources):
            above = [*prefix, *at[tree.parents[row]]]
            wanted = [plain_law(model, above) for model in drafters]
            for claim in claims:
                # Both sources have one name: a claim is one of the two, and each
                # drafter has one child under a row, so both are met.
                off = [np.abs(claim.law - row_law).max() for row_law in wanted]
                assert min(off) < 1e-4
                compared += 1
        prefix += done.committed
    return compared


def test_the_rule_is_handed_the_laws_of_plain_steps(target: Any, drafters: Any) -> None:
    ids = encode(target, prompts.load("edit_code", "development")[0])
    sources = [DraftModel(model, widths=(1, 1)) for model in drafters]
    seen: Seen = []
    made = generate(
        target,
        ids,
        sources,
        watched(seen),
        max_new_tokens=5,
        temperature=POLICY.temperature,
        seed=3,
    )
    assert check_laws(target, drafters, ids, made.rounds, seen) > 8
    # The planted fault: the rows of the first round, one token later.
    with pytest.raises(AssertionError):
        check_laws(target, drafters, [*ids, 5], made.rounds, seen)


# ------------------------------------------------------------------ the sampled law


@pytest.fixture(scope="module")
def copies(target: Any, drafters: Any) -> tuple[Any, list[Any], list[int]]:
    """Target and drafters with every law computed once, and the prompt."""

    def copy(model: Any) -> TableTarget:
        @cache
        def table(prefix: tuple[int, ...]) -> np.ndarray:
            return plain_law(model, prefix)

        return TableTarget(table, vocab_size=target.vocab_size)

    return copy(target), [copy(model) for model in drafters], target.encode(TEXT)


def first_tokens(copies: Any, rule: Any) -> list[int]:
    """The first token of `SAMPLES` seeded runs with both drafters. The laws are
    processed already, so they are drawn from as they are: temperature 1."""
    target, drafters, ids = copies
    sources = [DraftModel(model, widths=(1,)) for model in drafters]
    return [
        generate(
            target, ids, sources, rule, max_new_tokens=2, temperature=1, seed=seed
        ).tokens[0]
        for seed in range(SAMPLES)
    ]


def groups(row: np.ndarray, p: np.ndarray) -> np.ndarray:
    """The likeliest tokens of `p` one by one, and all others together."""
    likely = np.argsort(-p)[:NAMED]
    return np.array([*row[likely], 1 - row[likely].sum()])


def law_against_p(p: np.ndarray, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """What comes out where both drafts are tested against p, worked out by hand."""
    first, second = np.minimum(p, one), np.minimum(p, other)
    left = residual(residual(p, one), other)
    refused = 1 - first.sum()
    return first + refused * (second + (1 - second.sum()) * left)


def test_two_drafters_sample_the_targets_law(copies: Any) -> None:
    """Pearson's test of 1,500 seeded first tokens, false-alarm rate 1e-6. Against the
    rule that tests both drafts against p its power on these rows is above 1 - 1e-6."""
    target, drafters, ids = copies
    p, one, other = (m.lookup(ids) for m in (target, *drafters))
    check_counts(first_tokens(copies, "specinfer"), p)

    wrong, right = groups(law_against_p(p, one, other), p), groups(p, p)
    noncentrality = SAMPLES * ((wrong - right) ** 2 / right).sum()
    threshold = stats.chi2.isf(FALSE_ALARM, NAMED)
    assert stats.ncx2.cdf(threshold, NAMED, noncentrality) < 1e-6


def test_the_counts_find_the_rule_that_tests_against_p(copies: Any) -> None:
    target, _, ids = copies

    def select(tree: CandidateTree, law: Any, chance: Any) -> Selection:
        return walk(tree, law, chance, controls.tests_against_p, name="wrong")

    fault = Verifier(get("specinfer").contract, select)
    with pytest.raises(AssertionError, match="p-value"):
        check_counts(first_tokens(copies, fault), target.lookup(ids))
