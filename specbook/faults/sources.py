"""Faults of the draft sources: ids, corpora, thresholds (sections 0x03 to 0x05)."""

from __future__ import annotations

from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np

from ..drafts import prompt_lookup as lookup
from ..drafts.lookup_check import check_copy
from ..drafts.neural.draft_model import DraftModel
from ..drafts.rest import Datastore, leakage
from ..drafts.stop_threshold import StopThreshold, ThresholdPolicy
from ..models.table import TableTarget
from .exact import wrong_tokens
from .fault import Fault

_CORPUS = [[5, 6, 7, 8, 9], [5, 6, 1]]


def _index(planted_tokenizer: str, damage: bool) -> Datastore:
    """An index that is saved and loaded again for the tokenizer "sha256:ours"."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "index")
        Datastore.build(_CORPUS, tokenizer=planted_tokenizer).save(path)
        if damage:
            whole = bytearray(path.read_bytes())
            whole[len(whole) // 3] ^= 1  # inside an array
            path.write_bytes(whole)
        return Datastore.load(path, tokenizer="sha256:ours")


def _foreign(planted: bool) -> None:
    _index("sha256:theirs" if planted else "sha256:ours", damage=False)


def _damaged(planted: bool) -> None:
    _index("sha256:ours", damage=planted)


def _leaked(planted: bool) -> None:
    question = list(range(20, 40))
    corpus = [*_CORPUS, [1, *question, 2]] if planted else _CORPUS
    leakage.refuse(corpus, {"question 7": question})


def _leaked_harm(planted: bool) -> Fraction:
    """The share of the answer's tokens that the index knows by heart."""
    question = list(range(20, 40))
    corpus = [*_CORPUS, [1, *question, 2]] if planted else _CORPUS
    store = Datastore.build(corpus)
    known = sum(
        store.continuations(question[max(0, place - 4) : place])[:1]
        == [[*question[place:], 2]]
        for place in range(1, len(question))
    )
    return Fraction(known, len(question) - 1)


def _wide(planted: bool) -> Datastore:
    """An id of 17 bits, stored as what 16 bits make of it: a negative one."""
    tokens = np.array([70000, 4464, 40000, 4464, 5])
    with np.errstate(over="ignore"):
        stored = tokens.astype(np.int16 if planted else np.int64)
    return Datastore.build([stored])


def _wide_harm(planted: bool) -> int:
    """Occurrences of token 4464 that are none: 70000 is 65536 more."""
    tokens = np.array([70000, 4464, 70001, 4464, 5])
    stored = tokens.astype(np.uint16 if planted else np.int64)
    found = Datastore.build([stored]).count([4464])
    return found - int((tokens == 4464).sum())


class _Worded(TableTarget):
    """A table with a tokenizer: what each id stands for."""

    def __init__(self, *words: str) -> None:
        row = [Fraction(1, len(words))] * len(words)
        super().__init__(lambda prefix: row, vocab_size=len(words))
        from tokenizers import Tokenizer, models
        from transformers import PreTrainedTokenizerFast

        vocabulary = {word: place for place, word in enumerate(words)}
        backend = Tokenizer(models.WordLevel(vocabulary, unk_token=words[0]))
        self.tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=backend, unk_token=words[0]
        )

    def identity(self) -> dict[str, str]:
        """As `TableTarget.identity`, with a tokenizer that has no files."""
        return {**super().identity(), "tokenizer": "none"}


def _vocabulary(planted: bool) -> None:
    ours = _Worded("?", "a", "yes", "no")
    other = (
        _Worded("?", "a", "no", "yes") if planted else _Worded("?", "a", "yes", "no")
    )
    DraftModel(other).check_target(ours)


def _policy() -> ThresholdPolicy:
    return ThresholdPolicy(
        start=Fraction(4, 5),
        target=Fraction(9, 10),
        epsilon=Fraction(1, 100),
        beta1=Fraction(1, 2),
        beta2=Fraction(9, 10),
    )


def _twice(planted: bool) -> Any:
    """The end of a draft moves the threshold, and the commit moves it again."""
    moved = StopThreshold(_policy(), 4)
    for _ in range(2 if planted else 1):
        moved.learn(0, 4, 4)
    return moved


def _twice_harm(planted: bool) -> Fraction:
    """Three rounds, all of four accepted tokens; off in units of the estimate.
    Each half is booked as a round of its own, or `learn` would refuse the second."""
    once, twice = StopThreshold(_policy(), 4), StopThreshold(_policy(), 4)
    for number in range(3):
        once.learn(number, 4, 4)
        for half in range(2 if planted else 1):
            twice.learn(2 * number + half, 4, 4)
    return twice.ema - once.ema


# ------------------------------------------------------------------ the lookup itself

_TEXT = [4, 5, 6, 9, 5, 7, 4, 5]
"""The last two tokens stood at the beginning, the last one alone later, too."""


def _copied(max_ngram: int, **changed: Any) -> list[int]:
    """What the running lookup copies behind `_TEXT`, with parts of it changed."""
    with mock.patch.multiple(lookup._Policy, **changed) if changed else ExitStack():
        return lookup.PromptLookup(max_ngram, 3).start(_TEXT, request="r").lookup()


def _itself(planted: bool) -> list[int]:
    """`planted`: an occurrence may end where the text does, and so one always does."""
    window = {"least_gap": lambda self, length: 0} if planted else {}
    return _copied(2, **window)


def _unlimited(planted: bool) -> list[int]:
    """`planted`: suffixes of any length are tried, whatever `max_ngram` says."""
    any_length = {"lengths": lambda self, least, most: range(least, len(_TEXT))}
    return _copied(1, **(any_length if planted else {}))


FAULTS: tuple[Fault, ...] = (
    Fault(
        "suffix-finds-itself",
        "source",
        "0x04A",
        "the search for the last tokens goes up to the end of the text",
        "exact text, and a lookup that never drafts, or drafts tokens of its own",
        "an empty list is what a lookup gives that found nothing",
        "specbook.drafts.lookup_check.check_copy",
        lambda planted: check_copy(_TEXT, _itself(planted), 2, 3),
        "and [6, 9, 5] followed",
        lambda planted: wrong_tokens(_itself(planted), _itself(False)),
        "wrong candidates",
        ("ml-explore/mlx-examples #237",),
    ),
    Fault(
        "limit-without-effect",
        "source",
        "0x04A",
        "the longest suffix to look for is a setting that nobody reads",
        "exact text; whoever tunes the setting sees no difference",
        "as many candidates as were asked for",
        "specbook.drafts.lookup_check.check_copy",
        lambda planted: check_copy(_TEXT, _unlimited(planted), 1, 3),
        "and [7, 4, 5] followed",
        lambda planted: wrong_tokens(_unlimited(planted), _unlimited(False)),
        "wrong candidates",
        ("vllm-project/vllm #15348", "vllm-project/vllm #22437"),
        "a limit of another policy than the one that is asked for",
    ),
    Fault(
        "foreign-tokenizer",
        "source",
        "0x04C",
        "an index is used with another tokenizer than it was made with",
        "exact text; hardly a candidate is accepted",
        "ids are ids, and most of them exist in both",
        "specbook.drafts.rest.Datastore.load",
        _foreign,
        "the one in use is 'sha256:ours'",
    ),
    Fault(
        "draft-with-another-vocabulary",
        "source",
        "0x08A",
        "a draft model's vocabulary has the same size and two words exchanged",
        "exact text; some words are never accepted",
        "V is V",
        "specbook.drafts.neural.draft_model.DraftModel.check_target",
        _vocabulary,
        "id 2 is 'yes' in the target and 'no' in the draft",
        seen=("ggml-org/llama.cpp #3812",),
    ),
    Fault(
        "leaked-corpus",
        "source",
        "0x04C",
        "the datastore holds the texts that it is measured on",
        "acceptance as nowhere else, until the first user comes",
        "documents are lists of ids",
        "specbook.drafts.rest.leakage.refuse",
        _leaked,
        "'question 7' (13 of 13 8-grams",
        _leaked_harm,
        "of the answer known by heart",
        blind="a paraphrase, or a translation",
    ),
    Fault(
        "damaged-index",
        "source",
        "0x04C",
        "an index file was copied with one byte wrong",
        "other continuations, or none",
        "the file has its length, its header and its arrays",
        "specbook.drafts.rest.storage.read",
        _damaged,
        "SHA-256",
        seen=("Project-OSRM/osrm-backend #4097",),
    ),
    Fault(
        "ids-in-sixteen-bits",
        "source",
        "0x04B",
        "ids are stored in 16 bits, and larger ones wrap around",
        "rare tokens turn up as common ones",
        "an array of integers of the right length",
        "specbook.drafts.rest.Datastore.build",
        _wide,
        "documents[0]",
        _wide_harm,
        "matches that are none",
        ("FasterDecoding/REST #24",),
        "ids that wrap to ids that exist, before the index sees them",
    ),
    Fault(
        "threshold-moved-twice",
        "source",
        "0x05A",
        "the stop threshold learns from one round at the draft's end and at the commit",
        "drafts grow or shrink twice as fast as they should",
        "a number from 0 to 1",
        "specbook.drafts.stop_threshold.StopThreshold.learn",
        _twice,
        "moves once a round",
        _twice_harm,
        "too much in the estimate",
        blind="a caller that counts its two halves as two rounds",
    ),
)
