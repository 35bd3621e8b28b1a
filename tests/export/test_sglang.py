"""What SGLang is told: its schedule, its n-gram options, its corpus."""

from __future__ import annotations

import json
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbook.drafts.prompt_lookup import PromptLookup
from specbook.drafts.rest import Datastore, Rest
from specbook.drafts.suffix import Suffix
from specbook.errors import SpecbookError
from specbook.export import sglang
from specbook.export.schedule import BatchChoice

CHOICES = [
    BatchChoice(1, {0: 1.0, 1: 1.2, 2: 1.5, 3: 1.48}),
    BatchChoice(8, {0: 1.0, 1: 0.99, 2: 0.9}),
]


def flags(command):
    words = shlex.split(command)
    return {
        word: words[place + 1] if place + 1 < len(words) else ""
        for place, word in enumerate(words)
        if word.startswith("--")
    }


def test_a_schedule():
    made = sglang.adaptive(CHOICES, draft_model="a b", within=0.02)
    assert json.loads(made.body) == {
        "1": {"candidate_steps": [2, 3]},
        "8": {"candidate_steps": [0, 1]},
    }
    told = flags(made.told("x.json"))
    assert told["--speculative-draft-model-path"] == "a b"
    steps = int(told["--speculative-num-steps"])
    assert steps == CHOICES[0].best == 2
    # topk 1 forces one token more than the steps.
    assert told["--speculative-eagle-topk"] == "1"
    assert int(told["--speculative-num-draft-tokens"]) == steps + 1
    only = json.loads(sglang.adaptive(CHOICES, draft_model="m", within=0).body)
    assert only["8"] == {"candidate_steps": [0]}


def test_schedules_that_sglang_has_no_form_for():
    with pytest.raises(SpecbookError, match="for one request no draft pays"):
        sglang.adaptive([BatchChoice(1, {0: 1.0, 1: 0.9})], draft_model="m")
    for bad in ({"algorithm": "NGRAM"}, {"draft_model": ""}, {"draft_model": None}):
        with pytest.raises(SpecbookError):
            sglang.adaptive(CHOICES, **{"draft_model": "m", **bad})
    for bad in ([], None, [BatchChoice(2, {0: 1.0})]):
        with pytest.raises(SpecbookError):
            sglang.adaptive(bad, draft_model="m")
    for bad in (-1, 2, float("nan"), "x"):
        with pytest.raises(SpecbookError, match="within"):
            sglang.adaptive(CHOICES, draft_model="m", within=bad)


def test_ngram_of_the_size_of_a_source():
    made = sglang.ngram(PromptLookup(3, 10))
    assert sglang.read_ngram(made.body) == {
        "speculative-algorithm": "NGRAM",
        "speculative-num-draft-tokens": 11,  # the root counts
        "speculative-ngram-max-trie-depth": 13,
        "speculative-ngram-min-bfs-breadth": 1,
        "speculative-ngram-max-bfs-breadth": 1,
    }
    store = Datastore.build([[1, 2, 3]], context_length=6, continuation_length=9)
    made = sglang.ngram(Rest(store, node_budget=20), corpus="a b.jsonl", corpus_nodes=5)
    told = sglang.read_ngram(made.body)
    assert told["speculative-num-draft-tokens"] == 21
    assert told["speculative-ngram-max-trie-depth"] == 15
    assert told["speculative-ngram-external-corpus-path"] == "a b.jsonl"
    assert told["speculative-ngram-external-sam-budget"] == 5
    assert made.body.strip() in made.told("unused")


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: sglang.ngram(Suffix()), "PromptLookup or a Rest, got Suffix"),
        (lambda: sglang.ngram(PromptLookup.tuned()), "no adaptive length"),
        (lambda: sglang.ngram(PromptLookup(3, 0)), "minimum"),
        (
            lambda: sglang.ngram(PromptLookup(), corpus="x", corpus_nodes=11),
            "10 drafts",
        ),
        (lambda: sglang.ngram(PromptLookup(), corpus="x", corpus_nodes=0), "at least"),
        (lambda: sglang.ngram(PromptLookup(), corpus="x", corpus_nodes=True), "True"),
        (lambda: sglang.ngram(PromptLookup(), corpus_nodes=3), "without a corpus"),
        (lambda: sglang.ngram(PromptLookup(), corpus=3), "corpus must be text"),
        (lambda: sglang.check_ngram(None), "must be a mapping"),
        (
            lambda: sglang.check_ngram(
                {
                    "speculative-algorithm": "NGRAM",
                    "speculative-num-draft-tokens": 4,
                    "speculative-ngram-min-bfs-breadth": 11,
                }
            ),
            "least breadth 11 is above",
        ),
    ],
)
def test_sizes_that_sglang_refuses(call, told):
    with pytest.raises(SpecbookError, match=told):
        call()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--speculative-algorithm", "has no value"),
        ("speculative-algorithm NGRAM", "is no option"),
        ("--speculative-algorithm NGRAM --speculative-algorithm NGRAM", "twice"),
        ("--speculative-num-draft-tokens x", "is no number"),
        ("--nonsense 1", "is no option"),
        ("'", "not a command line"),
        ("", "required"),
    ],
)
def test_lines_that_say_nothing(line, told):
    with pytest.raises(SpecbookError, match=told):
        sglang.read_ngram(line)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(st.lists(TEXTS, min_size=1, max_size=5))
def test_a_corpus_there_and_back(documents):
    made = sglang.corpus(documents)
    lines = made.body.splitlines()
    # One line a document, whatever ends of line stand in it; as SGLang reads it.
    assert len(lines) == len(documents)
    assert [json.loads(line) for line in lines] == documents
    assert sglang.read_corpus(made.body) == documents
    assert made.body.isascii()


def test_a_corpus_of_odd_documents():
    assert sglang.read_corpus(sglang.corpus(["", "a", ""]).body) == ["a"]
    for bad, told in (
        ([], "no document holds any text"),
        (["", ""], "no document holds any text"),
        (["\ud800"], "is no text"),
        ([None], "must be text"),
        ([b"x"], "must be text"),
        ("text", "sequence"),
        (None, "sequence"),
    ):
        with pytest.raises(SpecbookError, match=told):
            sglang.corpus(bad)
    for bad in ("3\n", "{\n", '{"text": "a"}\n', "", "[" * 99999, None):
        with pytest.raises(SpecbookError):
            sglang.read_corpus(bad)


def test_a_corpus_above_the_engines_limit_says_so(monkeypatch):
    small = sglang.corpus(["äb", "c"])
    assert "at most 5 tokens" in small.notes[0]  # 3 bytes, 1 byte, a border
    assert "max-tokens" not in small.command
    monkeypatch.setattr(sglang, "CORPUS_TOKENS", 4)
    large = sglang.corpus(["äb", "c"])
    told = flags(large.told("x"))
    assert told["--speculative-ngram-external-corpus-max-tokens"] == "5"
