"""The schemas: each is valid, says where it comes from, and refuses what it should."""

from __future__ import annotations

import math

import pytest

from specbook.errors import SpecbookError
from specbook.export import schema

GOOD = {
    "llama_cpp": {
        "spec-type": "ngram-simple",
        "spec-ngram-simple-size-n": 4,
        "spec-ngram-simple-size-m": 16,
    },
    "medusa": [[0], [0, 9]],
    "paths": [[0], [0, 10]],
    "sglang_adaptive": {"1": {"candidate_steps": [0, 2]}},
    "sglang_corpus": ["a text"],
    "sglang_ngram": {
        "speculative-algorithm": "NGRAM",
        "speculative-num-draft-tokens": 12,
    },
    "source": {
        "format": 1,
        "kind": "source",
        "source": "suffix",
        "options": {},
        "identity": "suffix",
    },
    "tensorrt_llm": {
        "speculative_config": {
            "decoding_type": "Eagle3",
            "speculative_model": "m",
            "max_draft_len": 1,
            "eagle_choices": [[0]],
        }
    },
    "vllm": {"method": "ngram", "num_speculative_tokens": 4},
    "vllm_token_tree": {
        "speculative_token_tree": "[(0,)]",
        "num_speculative_tokens": 1,
    },
}


def test_every_schema_has_a_case():
    assert schema.names() == sorted(GOOD)


@pytest.mark.parametrize("name", sorted(GOOD))
def test_what_fits_passes_and_the_rest_does_not(name):
    schema.check(GOOD[name], name)
    stated = schema.origin(name)
    assert all((stated.engine, stated.version, stated.source))
    for bad in (None, 3, "text", [], {}, [[]], {"unknown": 1}, math.nan):
        with pytest.raises(SpecbookError):
            schema.check(bad, name)


@pytest.mark.parametrize("name", [n for n in sorted(GOOD) if isinstance(GOOD[n], dict)])
def test_no_name_that_the_engine_does_not_know(name):
    with pytest.raises(SpecbookError, match="nonsense"):
        schema.check({**GOOD[name], "nonsense": 1}, name)


def test_the_place_is_told():
    with pytest.raises(SpecbookError, match=r"vLLM 0.33 takes: num_speculative_tokens"):
        schema.check({**GOOD["vllm"], "num_speculative_tokens": 0}, "vllm")
    with pytest.raises(SpecbookError, match=r"\[1\]\[1\]: 10 is greater"):
        schema.check([[0], [0, 10]], "medusa")
    long = {**GOOD["vllm"], "method": "x" * 9999}
    with pytest.raises(SpecbookError) as refusal:
        schema.check(long, "vllm")
    assert len(str(refusal.value)) < 400


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("vllm", {**GOOD["vllm"], "num_speculative_tokens": 4.0}),
        ("vllm", {**GOOD["vllm"], "num_speculative_tokens": True}),
        ("medusa", [[0.0]]),
        ("sglang_adaptive", {"1": {"candidate_steps": [2.0]}}),
        (
            "sglang_adaptive",
            {"1\n": {"candidate_steps": [2]}, **GOOD["sglang_adaptive"]},
        ),
        ("llama_cpp", {**GOOD["llama_cpp"], "spec-ngram-simple-size-n": 4.0}),
        (
            "vllm_token_tree",
            {"speculative_token_tree": "[(x)]", "num_speculative_tokens": 1},
        ),
        (
            "vllm_token_tree",
            {"speculative_token_tree": "[()]", "num_speculative_tokens": 1},
        ),
        (
            "vllm_token_tree",
            {"speculative_token_tree": "[(0)]", "num_speculative_tokens": 1},
        ),
    ],
)
def test_what_only_looks_right(name, bad):
    """3.0 is an integer to JSON Schema, and to no engine; `$` stands before a last line
    end, too."""
    with pytest.raises(SpecbookError):
        schema.check(bad, name)


def test_json_has_no_nan():
    made = {**GOOD["vllm"], "suffix_decoding_min_token_prob": math.nan}
    with pytest.raises(SpecbookError, match="suffix_decoding_min_token_prob is nan"):
        schema.check(made, "vllm")


def test_an_unknown_schema():
    for bad in ("none", "../vllm", None, 3):
        with pytest.raises(SpecbookError, match="schema must be one of"):
            schema.load(bad)
