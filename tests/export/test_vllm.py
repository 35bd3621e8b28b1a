"""What vLLM is told: within its rules, and read as it reads it."""

from __future__ import annotations

import json
import math
from fractions import Fraction as F

import pytest

from specbook.drafts.prompt_lookup import PromptLookup
from specbook.drafts.suffix import Suffix
from specbook.errors import LawError, SpecbookError
from specbook.export import vllm
from specbook.export.schedule import BatchChoice

BASE = {"method": "eagle3", "model": "m"}
RATES = [F(4, 5), F(3, 5), F(1, 2)]


def choices(*best):
    """{batch: K} as a schedule whose best is K."""
    return [
        BatchChoice(batch, {n: 2.0 if n == k else 1.0 for n in range(4)})
        for batch, k in best
    ]


def settings(export):
    return json.loads(export.body)


def test_unlike_vocabularies_belong_to_a_greedy_draft_model():
    """vLLM 0.33 refuses the rest when it starts: it is refused before."""
    good = {
        "method": "draft_model",
        "model": "m",
        "num_speculative_tokens": 2,
        "use_heterogeneous_vocab": True,
    }
    assert vllm.check(good) == good
    assert vllm.check({**good, "draft_sample_method": "greedy"})
    assert vllm.check({**good, "use_heterogeneous_vocab": False, "method": "eagle3"})
    for change in ({"method": "eagle3"}, {"draft_sample_method": "probabilistic"}):
        with pytest.raises(SpecbookError, match="use_heterogeneous_vocab belongs to"):
            vllm.check({**good, **change})


def drafts_at(schedule, drafts, batch):
    """The number that vLLM takes for a batch size: the entry's, in a gap the entry
    before, behind the last one the last, and never more than drafts."""
    found = schedule[0][2]
    for first, _, k in schedule:
        if first <= batch:
            found = k
    return min(drafts, found)


def test_rates():
    made = settings(vllm.with_rates(BASE, RATES))
    assert made == {
        **BASE,
        "num_speculative_tokens": 3,
        "rejection_sample_method": "synthetic",
        "synthetic_acceptance_rates": [0.8, 0.6, 0.5],
    }
    assert vllm.check(made) == made
    with pytest.raises(LawError, match="above the one before"):
        vllm.with_rates(BASE, [0.5, 0.6])  # conditional ones, as a profile has them
    with pytest.raises(SpecbookError, match="base has num_speculative_tokens = 2"):
        vllm.with_rates({**BASE, "num_speculative_tokens": 2}, RATES)
    with pytest.raises(SpecbookError, match="rejection_sample_method = 'block'"):
        vllm.with_rates({**BASE, "rejection_sample_method": "block"}, RATES)


@pytest.mark.parametrize(
    "best",
    [
        [(1, 3), (2, 1), (8, 0)],
        [(1, 0), (4, 2)],
        [(1, 2)],
        [(1, 2), (2, 2), (4, 2)],
        [(1, 1), (2, 3), (3, 3), (64, 1)],
    ],
)
def test_every_measured_batch_gets_its_best(best):
    made = settings(vllm.with_schedule(BASE, choices(*best)))
    told = made["num_speculative_tokens_per_batch_size"]
    for batch, k in best:
        assert drafts_at(told, made["num_speculative_tokens"], batch) == k
    neighbours = [k for _, _, k in told]
    assert all(a != b for a, b in zip(neighbours, neighbours[1:], strict=False))


def test_a_schedule_within_what_the_base_allows():
    base = {**BASE, "num_speculative_tokens": 5}
    assert (
        settings(vllm.with_schedule(base, choices((1, 3))))["num_speculative_tokens"]
        == 5
    )
    with pytest.raises(SpecbookError, match="asks for 3 drafts"):
        vllm.with_schedule({**base, "num_speculative_tokens": 2}, choices((1, 3)))
    with pytest.raises(SpecbookError, match="at no batch size"):
        vllm.with_schedule(BASE, choices((1, 0), (2, 0)))
    for bad in (None, [], "x", 3):
        with pytest.raises(SpecbookError):
            vllm.with_schedule(bad, choices((1, 3)))
        with pytest.raises(SpecbookError):
            vllm.with_rates(bad, RATES)


K = "num_speculative_tokens_per_batch_size"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"num_speculative_tokens": True}, "True is not of type 'integer'"),
        ({"num_speculative_tokens": 0}, "minimum"),
        ({"method": "eagle4"}, "not one of"),
        ({"model": None}, "not of type 'string'"),
        ({K: []}, "non-empty"),
        ({K: [[2, 3, 1]]}, "must begin at 1"),
        ({K: [[1, 4, 1], [4, 8, 2]]}, "do not overlap"),
        ({K: [[1, 4, 1], [9, 8, 2]]}, "do not overlap"),
        ({K: [[1, 4, -1]]}, "minimum"),
        ({K: [[1, 4, 9]]}, "asks for 9 drafts"),
        ({K: [[1, 4]]}, "too short"),
        ({K: [[1, 4, 2, 2]]}, "too long"),
        ({"synthetic_acceptance_rates": [0.5] * 3}, "dependency"),
        ({"rejection_sample_method": "synthetic"}, "valid under"),
        (
            {
                "rejection_sample_method": "synthetic",
                "synthetic_acceptance_rates": [0.5, 0.4],
            },
            "2 synthetic_acceptance_rates for 3 drafts",
        ),
        (
            {
                "rejection_sample_method": "synthetic",
                "synthetic_acceptance_rates": [0.5, 0.6, 0.1],
            },
            "above the one before",
        ),
        (
            {
                "rejection_sample_method": "synthetic",
                "synthetic_acceptance_length": 4.5,
            },
            "at most 4",
        ),
        (
            {
                "rejection_sample_method": "synthetic",
                "synthetic_acceptance_rates": [0.5, math.nan, 0.1],
            },
            "is nan",
        ),
        ({"prompt_lookup_min": 5, "prompt_lookup_max": 3}, "above prompt_lookup_max"),
        ({"speculative_token_tree": "[(0,)]"}, "unexpected"),
    ],
)
def test_what_vllm_would_refuse(changes, told):
    good = {**BASE, "num_speculative_tokens": 3}
    assert vllm.check(good) == good
    with pytest.raises(SpecbookError, match=told):
        vllm.check({**good, **changes})


def test_ngram_is_the_lookup_that_does_the_same():
    source = PromptLookup(3, 7, "transformers", 2)
    assert settings(vllm.ngram(source)) == {
        "method": "ngram",
        "num_speculative_tokens": 7,
        "prompt_lookup_max": 3,
        "prompt_lookup_min": 2,
    }
    for other in (PromptLookup(), PromptLookup.tuned(policy="transformers")):
        with pytest.raises(SpecbookError, match="export it as a custom class"):
            vllm.ngram(other)
    with pytest.raises(SpecbookError, match="must be PromptLookup, got Suffix"):
        vllm.ngram(Suffix())
    with pytest.raises(SpecbookError, match="num_speculative_tokens"):
        vllm.ngram(PromptLookup(3, 0, "transformers"))


def lookup_of_vllm(tokens, least, most, k):
    """vLLM's rule, said plainly: of the longest n-gram that ends the text and stood
    before, the earliest place; then what followed it."""
    for n in range(min(most, len(tokens) - 1), least - 1, -1):
        for start in range(len(tokens) - n):
            if tokens[start : start + n] == tokens[-n:]:
                return tokens[start + n : start + n + k]
    return []


def test_the_same_drafts_as_that_rule():
    import itertools

    source = PromptLookup(3, 4, "transformers", 2)
    for tokens in itertools.product(range(2), repeat=9):
        session = source.start(list(tokens), vocab_size=2)
        expected = lookup_of_vllm(list(tokens), 2, 3, 4)
        assert session.lookup() == expected


def test_suffix_carries_what_has_a_counterpart():
    made = settings(vllm.suffix(Suffix(20), max_spec_factor=2.0))
    assert made["num_speculative_tokens"] == 20
    assert made["suffix_decoding_max_spec_factor"] == 2.0
    for other in (Suffix(threshold=2), Suffix(corpus=[[1, 2]]), Suffix.tuned()):
        with pytest.raises(SpecbookError, match="export it as a custom class"):
            vllm.suffix(other)
    for bad in ({"min_token_prob": 1.5}, {"max_tree_depth": 0}, {"min_token_prob": ""}):
        with pytest.raises(SpecbookError):
            vllm.suffix(Suffix(), **bad)


def test_a_custom_class_that_can_be_imported():
    from importlib import import_module

    made = settings(vllm.custom("a b.json", 8))
    module, _, name = made["model"].rpartition(".")
    assert getattr(import_module(module), name) is vllm.Proposer
    assert "SPECBOOK_VLLM_SOURCE='a b.json' vllm serve" in vllm.custom(
        "a b.json", 8
    ).told("out.json")
    for bad in (0, True, None, 1.5):
        with pytest.raises(SpecbookError, match="length"):
            vllm.custom("a", bad)
    for bad in ("", None):
        with pytest.raises(SpecbookError, match="source_file"):
            vllm.custom(bad, 8)
