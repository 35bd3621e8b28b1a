"""Suffix lookup: what followed the longest suffix that stood anywhere before (0x04A).

Contract: a sequence found by deterministic lookup. It has no q; the score of a node is
the length of the match, in tokens, and only ranks.

Prompt lookup tries suffixes up to a fixed length. A suffix automaton knows the longest
one, whatever its length, at an amortised constant cost a token; engines ship it in this
form (SAM-Decoding, TensorRT-LLM, SGLang). Three choices are made here:

* *Where.* The request's own text, prompt and output; and, if given, a corpus of
  documents that all requests share. The longer match speaks; of equal ones the
  request's own.
* *How long.* A copy of own text that reaches the end of the text goes on with what it
  has copied, so that a loop of any period is drafted to the full length. A copy from
  the corpus ends with its document.
* *Whether.* Nothing is proposed for a match shorter than `threshold`. In a list of
  sources this is the switch that leaves the round to the others, which draft better
  than a short match does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from .. import checks
from ..contract import SourceContract
from ..errors import SpecbookError
from ..policy import SamplingPolicy
from ..proposal import ProbabilitySemantics, SamplingRelation, Topology
from .automaton import IDS, FrozenAutomaton, SuffixAutomaton
from .copying import CopySession, CopySource
from .draft_length import COST, PRIOR

CONTRACT = SourceContract(
    name="suffix",
    probability_semantics=ProbabilitySemantics.ABSENT,
    sampling_relation=SamplingRelation.DETERMINISTIC_LOOKUP,
    topology=Topology.SEQUENCE,
    cost_term="retrieval",
    weights="none",
    state="the suffix automaton of the request's tokens, and a place in the corpus's",
    cache="the corpus's automaton, if any: the source's, shared and never changed",
    invalidated_by=("another tokenizer", "another corpus"),
)

TUNED = {"max_candidates": 32, "threshold": 1, "length": "adaptive"}
"""The options that did best on the development half of the book's prompts, where the
source stands alone: there a higher threshold only loses tokens, since an adaptive
length drafts nothing after a short match that does not pay. The threshold is for lists
of sources."""


class Suffix(CopySource):
    """The draft source. It needs no model and keeps no state between requests.

    `max_candidates`: the most tokens that are copied. `threshold`: the shortest match
    that is proposed for, at least 1. `corpus`: documents (sequences of token ids), or a
    `FrozenAutomaton` of them; it is built once. `length`, `cost`, `prior`: as in
    `PromptLookup`. Raises `ValueError` for bad options, and in `start` for a corpus
    with ids outside the vocabulary. Section 0x04A.
    """

    contract = CONTRACT
    TUNED = TUNED

    def __init__(
        self,
        max_candidates: int = 10,
        threshold: int = 1,
        corpus: FrozenAutomaton | Iterable[Iterable[int]] | None = None,
        *,
        length: str = "fixed",
        cost: Sequence[tuple[int, float]] = COST,
        prior: Sequence[tuple[float, float]] = PRIOR,
    ) -> None:
        super().__init__(length=length, cost=cost, prior=prior)
        self.max_candidates = checks.integer(max_candidates, "max_candidates", least=0)
        self.threshold = checks.integer(threshold, "threshold", least=1)
        if corpus is not None and not isinstance(corpus, FrozenAutomaton):
            corpus = FrozenAutomaton(corpus)
        self.corpus = corpus

    def identity(self) -> str:
        """The options and the digest of the corpus, for the round manifest."""
        corpus = "none"
        if self.corpus is not None:
            corpus = f"{len(self.corpus)} tokens sha256:{self.corpus.digest}"
        return (
            f"suffix threshold={self.threshold} candidates={self.max_candidates} "
            f"corpus={corpus} {self.length_identity()}"
        )

    def start(
        self,
        prefix: Iterable[int],
        *,
        request: str = "request-0",
        vocab_size: int | None = None,
        policy: SamplingPolicy | None = None,
        manifest_hash: str = "",
    ) -> SuffixSession:
        """A session for one request whose prompt is `prefix` (token ids). A lookup
        does not sample, so `policy` is not asked."""
        vocab_size = IDS if vocab_size is None else vocab_size
        # What the automaton cannot hold is refused before a token is taken.
        vocab_size = min(checks.integer(vocab_size, "vocab_size", least=1), IDS)
        tokens = checks.token_ids(prefix, "prefix", vocab_size=vocab_size)
        if self.corpus is not None and (largest := self.corpus.largest) >= vocab_size:
            raise SpecbookError(
                f"the corpus holds token {largest}, outside 0 .. {vocab_size - 1}: it "
                "was made for another vocabulary"
            )
        return SuffixSession(self, tokens, request, vocab_size, manifest_hash)


class SuffixSession(CopySession):
    """One request: the automaton of its text, and where it stands in the corpus.

    `commit` costs an amortised constant a token; `propose` costs what it copies.
    """

    def __init__(
        self,
        source: Suffix,
        prefix: Sequence[int],
        request: str,
        vocab_size: int | None,
        manifest_hash: str,
    ) -> None:
        super().__init__(source, request, vocab_size, manifest_hash)
        self._max_candidates = source.max_candidates
        self._threshold = source.threshold
        self._corpus = source.corpus
        self._place = FrozenAutomaton.START
        self._text = SuffixAutomaton()
        for token in prefix:
            self._append(token)

    def _append(self, token: int) -> None:
        self._text.append(token)
        if self._corpus is not None:
            self._place = self._corpus.step(self._place, token)

    def _look_up(self, most: int | None = None) -> tuple[int, list[int]]:
        end, length = self._text.match
        copy: Any = self._own_copy
        if self._corpus is not None:
            other_end, other_length = self._corpus.match(self._place)
            if other_length > length:
                end, length, copy = other_end, other_length, self._corpus.copy
        if length < self._threshold or self._max_candidates == 0:
            return 0, []
        wanted = self._max_candidates
        return length, copy(end, wanted if most is None else min(wanted, most))

    def _own_copy(self, end: int, most: int) -> list[int]:
        """`most` tokens from `end` on. Where the text ends, the copy is its own
        continuation: each token repeats the one a period before."""
        tokens = self._text.tokens
        copied = tokens[end : end + most].tolist()
        period = len(tokens) - end
        while len(copied) < most:
            copied.append(copied[-period])
        return copied
