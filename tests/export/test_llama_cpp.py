"""What llama.cpp is told."""

from __future__ import annotations

import itertools
import math
import shlex
from fractions import Fraction as F

import pytest

from specbook.drafts.prompt_lookup import PromptLookup, prompt_lookup
from specbook.drafts.suffix import Suffix
from specbook.errors import LawError, SpecbookError
from specbook.export import llama_cpp

RATES = [F(4, 5), F(3, 5), F(1, 2)]


def test_rates_there_and_back():
    made = llama_cpp.rates(RATES, spec_type="draft-simple", draft_model="a b'.gguf")
    assert llama_cpp.read(made.body) == {
        "spec-type": "draft-simple",
        "spec-draft-model": "a b'.gguf",
        "spec-draft-n-max": 3,
        "spec-synth-rates": [0.8, 0.6, 0.5],
    }
    words = shlex.split(made.told("unused"))
    assert words[:3] == ["llama-server", "-m", "MODEL.gguf"]
    assert words[words.index("--spec-synth-rates") + 1] == "0.8,0.6,0.5"
    assert "--draft-max" not in words  # removed, and an error there
    # Every digit survives.
    third = llama_cpp.rates([F(1, 3)], spec_type="draft-mtp")
    assert llama_cpp.read(third.body)["spec-synth-rates"] == [1 / 3]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: llama_cpp.rates([0.5, 0.6], spec_type="draft-mtp"), "above the one"),
        (lambda: llama_cpp.rates([], spec_type="draft-mtp"), "empty"),
        (lambda: llama_cpp.rates([math.nan], spec_type="draft-mtp"), "finite"),
        (lambda: llama_cpp.rates(RATES, spec_type="ngram-simple"), "proposes nothing"),
        (lambda: llama_cpp.rates(RATES, spec_type="draft-none"), "not one of"),
        (lambda: llama_cpp.rates(RATES, spec_type=None), "must be text"),
        (lambda: llama_cpp.rates(RATES, spec_type="draft-simple"), "required"),
        (lambda: llama_cpp.check(None), "must be a mapping"),
        (
            lambda: llama_cpp.check(
                {
                    "spec-type": "draft-mtp",
                    "spec-draft-n-max": 2,
                    "spec-synth-rates": [0.5],
                }
            ),
            "1 rates for 2 drafts",
        ),
        (lambda: llama_cpp.read("--draft-max 3"), "is no option"),
        (
            lambda: llama_cpp.read(
                "--spec-type draft-mtp --spec-draft-n-max 1 --spec-synth-rates x"
            ),
            "is no number",
        ),
        (
            lambda: llama_cpp.read(
                "--spec-type draft-mtp --spec-draft-n-max 1 --spec-synth-rates nan"
            ),
            "is nan",
        ),
    ],
)
def test_what_llama_cpp_would_refuse(call, told):
    with pytest.raises((SpecbookError, LawError), match=told):
        call()


def test_ngram_simple_is_the_lookup_that_does_the_same():
    made = llama_cpp.ngram(PromptLookup(3, 5, "llama_cpp"))
    assert llama_cpp.read(made.body) == {
        "spec-type": "ngram-simple",
        "spec-ngram-simple-size-n": 3,
        "spec-ngram-simple-size-m": 5,
    }
    for other in (PromptLookup(), PromptLookup.tuned(policy="llama_cpp")):
        with pytest.raises(SpecbookError, match="policy 'llama_cpp'"):
            llama_cpp.ngram(other)
    with pytest.raises(SpecbookError, match="must be a PromptLookup, got Suffix"):
        llama_cpp.ngram(Suffix())
    for n, m in ((1025, 5), (3, 1025), (0, 5), (3, 0)):
        with pytest.raises(SpecbookError, match="1024|minimum"):
            llama_cpp.ngram(PromptLookup(n, m, "llama_cpp"))


def test_the_policy_is_that_rule():
    """Said plainly: of the places where the last n tokens stood, not at the beginning
    and ending two tokens before the end or more, the last; copied up to the last token
    but one; not for a short text, and not if shorter than n."""
    n, m = 2, 3
    for tokens in itertools.product(range(2), repeat=9):
        expected: list[int] = []
        for start in range(len(tokens) - n - 2, 0, -1):
            if tokens[start : start + n] == tokens[-n:]:
                expected = list(tokens[start + n : -1][:m])
                break
        if len(expected) < n or len(tokens) <= n + m + 2:
            expected = []
        assert prompt_lookup(tokens, n, m, policy="llama_cpp") == expected
