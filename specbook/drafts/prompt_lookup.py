"""Prompt lookup: what followed the last tokens when they stood here before (0x04A).

Contract: a sequence found by deterministic lookup. It has no q; the score of a node is
the length of the match, in tokens, and only ranks.

Three things are left open by "look the suffix up": which occurrence counts, whether it
may overlap the suffix, and which suffix lengths are tried. Implementations differ, so
each choice has a name here (`POLICIES`):

latest
    The article's. The longest suffix that has an occurrence ending before the suffix
    starts; of several occurrences the latest.
transformers
    `PromptLookupCandidateGenerator` of transformers 5.x. The longest suffix that has
    an occurrence ending before the prefix does (it may overlap the suffix); of several
    occurrences the earliest. That class also cuts its copy before an end token; here
    the engine ends the output at one.
llama_cpp
    `ngram-simple` of llama.cpp (`common_ngram_simple_draft` in `common/ngram-map.cpp`,
    commit 003c9035). One suffix length only, n = `max_ngram`; the last occurrence that
    starts after position 0 and ends two or more tokens before the prefix does. The copy
    stops one token before the end of the prefix, a copy shorter than n is dropped, and
    a prefix of n + `max_candidates` + 2 tokens or fewer is not searched.

All of them copy a plain slice of the prefix, at most `max_candidates` tokens, which may
run into the suffix itself.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .. import checks
from ..contract import SourceContract
from ..errors import SpecbookError
from ..policy import SamplingPolicy
from ..proposal import ProbabilitySemantics, SamplingRelation, Topology
from .copying import CopySession, CopySource
from .draft_length import COST, MATCH_CAP, PRIOR


@dataclass(frozen=True)
class _Policy:
    """`newest`: the latest occurrence wins, otherwise the earliest. `overlap`: an
    occurrence may reach into the suffix, as long as it ends `gap` tokens before the
    prefix does. `first`: the least position at which an occurrence may start.
    `strict`: one suffix length only, and llama.cpp's rules about short copies."""

    newest: bool
    overlap: bool
    gap: int = 1
    first: int = 0
    strict: bool = False

    def lengths(self, min_ngram: int, max_ngram: int) -> range:
        """The suffix lengths that are tried."""
        least = max_ngram if self.strict else min_ngram
        return range(max(1, least), max_ngram + 1)

    def least_gap(self, length: int) -> int:
        """How far an occurrence of `length` tokens must end before the prefix does."""
        return self.gap if self.overlap else length

    def copy(
        self, tokens: Sequence[int], end: int, length: int, most: int
    ) -> list[int]:
        """What is copied after an occurrence of `length` tokens that ends at `end`."""
        if not self.strict:
            return list(tokens[end : end + most])
        copied = list(tokens[end : min(end + most, len(tokens) - 1)])
        searched = len(tokens) > length + most + 2
        return copied if searched and len(copied) >= length else []


_POLICIES = {
    "latest": _Policy(newest=True, overlap=False),
    "transformers": _Policy(newest=False, overlap=True),
    "llama_cpp": _Policy(newest=True, overlap=True, gap=2, first=1, strict=True),
}

POLICIES = tuple(_POLICIES)

TUNED = {"max_ngram": 4, "max_candidates": 16, "length": "adaptive"}
"""The options that did best on the development half of the book's prompts; the
evaluation half had no part in choosing them. `specbook decode` and `specbook bench
decode` both use them; the benchmark measures its own `cost` table first. The defaults
of `PromptLookup` are plainer, for the notebooks."""


def prompt_lookup(
    tokens: Iterable[int],
    max_ngram: int,
    max_candidates: int,
    *,
    policy: str = "latest",
    min_ngram: int = 1,
) -> list[int]:
    """Up to `max_candidates` token ids that may follow `tokens`; `[]` where none match.

    `max_ngram`, `min_ngram`: the longest and the shortest suffix to look up, in tokens.
    `policy`: see the module. Time is linear in the prefix, whatever `max_ngram` is.
    Raises `ValueError` for a limit that is negative or no integer, for token ids that
    are none, and for an unknown policy. Section 0x04A.
    """
    tokens = checks.token_ids(tokens)
    rule = _checked(max_ngram, max_candidates, policy, min_ngram)
    if max_ngram == 0 or max_candidates == 0:
        return []
    found = _search(tokens, rule, rule.lengths(min_ngram, max_ngram))
    return [] if found is None else rule.copy(tokens, *found, max_candidates)


def _checked(
    max_ngram: Any, max_candidates: Any, policy: Any, min_ngram: Any
) -> _Policy:
    checks.integer(max_ngram, "max_ngram", least=0)
    checks.integer(max_candidates, "max_candidates", least=0)
    checks.integer(min_ngram, "min_ngram", least=1)
    if min_ngram > max(1, max_ngram):
        raise SpecbookError(f"min_ngram {min_ngram} is above max_ngram {max_ngram}")
    return _POLICIES[checks.one_of(policy, "policy", POLICIES)]


def _search(
    tokens: Sequence[int], rule: _Policy, lengths: range
) -> tuple[int, int] | None:
    """End and length of the match, found in one pass over the prefix."""
    best = None
    best_length = lengths.start - 1
    # Gaps grow, so the ends of occurrences come from the latest to the earliest.
    for gap, agree in enumerate(_suffix_agreement(tokens)):
        end = len(tokens) - gap
        length = min(agree, lengths[-1])
        if not rule.overlap:
            length = min(length, gap)
        if length < lengths.start or gap < rule.gap or end < length + rule.first:
            continue
        if length > best_length or (length == best_length and not rule.newest):
            best, best_length = (end, length), length
    return best


def _suffix_agreement(tokens: Sequence[int]) -> list[int]:
    """For every gap g, how many tokens before position len - g equal the last ones.

    This is the Z-function of the reversed prefix: each token is compared at most
    twice, however much of the text repeats. Entry 0 is meaningless and 0.
    """
    size = len(tokens)
    agree = [0] * size
    left = right = 0
    for gap in range(1, size):
        count = min(right - gap, agree[gap - left]) if gap < right else 0
        while gap + count < size and tokens[-1 - count] == tokens[-1 - count - gap]:
            count += 1
        if gap + count > right:
            left, right = gap, gap + count
        agree[gap] = count
    return agree


class NgramIndex:
    """The same search for a prefix that grows: its cost does not depend on the prefix.

    Every n-gram gets a number, made from the number of the (n-1)-gram before its last
    token, so one step costs `max_ngram` dictionary entries of fixed size. An n-gram
    enters the table when the policy's gap has passed, so that whatever the table holds
    is a legal match.
    """

    def __init__(self, rule: _Policy, lengths: range) -> None:
        self.tokens: list[int] = []
        self._rule = rule
        self._lengths = lengths
        self._numbers: dict[tuple[int, int], int] = {}
        self._ends: dict[int, int] = {}
        # grams[-1 - g][n] is the number of the n-gram ending g tokens ago.
        depth = 1 + rule.least_gap(lengths[-1]) if lengths else 1
        self._grams: deque[list[int]] = deque([[0]], maxlen=min(depth, sys.maxsize))

    def append(self, token: int) -> None:
        """One more token of the prefix."""
        shorter = self._grams[-1][: self._lengths.stop - 1]
        numbers = self._numbers
        grams = [0]
        for gram in shorter:
            key = (gram, token)
            grams.append(numbers.setdefault(key, len(numbers) + 1))
        self._grams.append(grams)
        self.tokens.append(token)
        size = len(self.tokens)
        for n in self._lengths:
            gap = self._rule.least_gap(n)
            end = size - gap
            if end < n + self._rule.first:
                break  # longer ones do not fit either, however many are tried
            gram = self._grams[-1 - gap][n]
            if self._rule.newest:
                self._ends[gram] = end
            else:
                self._ends.setdefault(gram, end)

    def find(self) -> tuple[int, int] | None:
        """End and length of the match of the longest suffix that has one."""
        grams = self._grams[-1]
        most = min(self._lengths.stop, len(grams)) - 1
        for n in range(most, self._lengths.start - 1, -1):
            if (end := self._ends.get(grams[n])) is not None:
                return end, n
        return None

    def agreement(self, end: int, known: int) -> int:
        """How many tokens before `end` equal the last ones, at most `MATCH_CAP`;
        `known` of them are known to."""
        size = len(self.tokens)
        while (
            known < min(end, MATCH_CAP)
            and self.tokens[end - 1 - known] == self.tokens[size - 1 - known]
        ):
            known += 1
        return known


CONTRACT = SourceContract(
    name="prompt_lookup",
    probability_semantics=ProbabilitySemantics.ABSENT,
    sampling_relation=SamplingRelation.DETERMINISTIC_LOOKUP,
    topology=Topology.SEQUENCE,
    cost_term="retrieval",
    weights="none",
    state="the request's tokens and an index of their n-grams",
    cache="none",
    invalidated_by=("another tokenizer",),
)


class PromptLookup(CopySource):
    """The draft source. It needs no model and keeps no state between requests.

    `max_ngram`, `max_candidates`, `policy`, `min_ngram`: as in `prompt_lookup`.
    `length`: "fixed" drafts the whole copy; "adaptive" drafts the part of it that pays
    by the request's own history, see `draft_length`, whose tables are `cost` and
    `prior`. Raises `ValueError` for bad options. Section 0x04A.
    """

    contract = CONTRACT
    TUNED = TUNED

    def __init__(
        self,
        max_ngram: int = 3,
        max_candidates: int = 10,
        policy: str = "latest",
        min_ngram: int = 1,
        *,
        length: str = "fixed",
        cost: Sequence[tuple[int, float]] = COST,
        prior: Sequence[tuple[float, float]] = PRIOR,
    ) -> None:
        super().__init__(length=length, cost=cost, prior=prior)
        self._rule = _checked(max_ngram, max_candidates, policy, min_ngram)
        self.max_ngram = max_ngram
        self.max_candidates = max_candidates
        self.policy = policy
        self.min_ngram = min_ngram

    def identity(self) -> str:
        """The options, for the round manifest."""
        return (
            f"prompt_lookup policy={self.policy} ngram={self.min_ngram}.."
            f"{self.max_ngram} candidates={self.max_candidates} "
            f"{self.length_identity()}"
        )

    def start(
        self,
        prefix: Iterable[int],
        *,
        request: str = "request-0",
        vocab_size: int | None = None,
        policy: SamplingPolicy | None = None,
        manifest_hash: str = "",
    ) -> PromptLookupSession:
        """A session for one request whose prompt is `prefix` (token ids). A lookup
        does not sample, so `policy` is not asked."""
        tokens = checks.token_ids(prefix, "prefix", vocab_size=vocab_size)
        return PromptLookupSession(self, tokens, request, vocab_size, manifest_hash)


class PromptLookupSession(CopySession):
    """One request: the index of its tokens and, if asked for, its agreement history.

    The cost of a round does not grow with the prefix: `commit` indexes the new tokens
    only, `propose` makes at most `max_ngram` look-ups and copies the draft. `lookup()`
    is `prompt_lookup`'s answer for the tokens so far.
    """

    def __init__(
        self,
        source: PromptLookup,
        prefix: Sequence[int],
        request: str,
        vocab_size: int | None,
        manifest_hash: str,
    ) -> None:
        super().__init__(source, request, vocab_size, manifest_hash)
        self._max_candidates = source.max_candidates
        self._rule = source._rule
        lengths = self._rule.lengths(source.min_ngram, source.max_ngram)
        self._index = NgramIndex(self._rule, lengths)
        for token in prefix:
            self._append(token)

    def _append(self, token: int) -> None:
        self._index.append(token)

    def _look_up(self, most: int | None = None) -> tuple[int, list[int]]:
        # All of it: whether a copy is long enough to be drafted does not depend on
        # what a round can use, and the text bounds it.
        found = self._index.find() if self._max_candidates else None
        if found is None:
            return 0, []
        end, length = found
        copied = self._rule.copy(self._index.tokens, end, length, self._max_candidates)
        return self._index.agreement(end, length), copied
