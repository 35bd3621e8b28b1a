"""Agreement by match length, counted by hand and against a scan."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbook.drafts.draft_length import BUCKETS, MATCH_CAP
from specbook.drafts.prompt_lookup import TUNED, PromptLookup, prompt_lookup
from specbook.errors import SpecbookError
from specbook.measure.agreement import agreement_counts, lookup_prior
from specbook.measure.recording import Recording


def test_counts_by_hand():
    # Prefix 1 2 3 1, answer 2 3 9 2: the lookup says 2 (match 1), 3 (match 2: 1 2),
    # 1 (match 3: 1 2 3) which is wrong, and nothing after the new 9.
    counts = agreement_counts(Recording.of([([1, 2, 3, 1], [2, 3, 9, 2])]))
    assert counts == [[(1, 0), (1, 0), (0, 1), (0, 0), (0, 0), (0, 0), (0, 0)]]


def scanned(prompt, answer):
    """The same, from the definition: one search a position, and the match measured
    by comparing backwards from the copy."""
    counts = [[0, 0] for _ in BUCKETS]
    for place, token in enumerate(answer):
        prefix = [*prompt, *answer[:place]]
        copied = prompt_lookup(prefix, TUNED["max_ngram"], 1)
        if not copied:
            continue
        # The longest suffix that stood here before, and its latest occurrence.
        found = []
        for n in range(1, TUNED["max_ngram"] + 1):
            ends = [
                end
                for end in range(n, len(prefix) - n + 1)
                if prefix[end - n : end] == prefix[len(prefix) - n :]
            ]
            if ends:
                found.append(max(ends))
        end, match = found[-1], 0
        while (
            match < min(end, MATCH_CAP)
            and prefix[end - 1 - match] == (prefix[len(prefix) - 1 - match])
        ):
            match += 1
        index = max(i for i, least in enumerate(BUCKETS) if least <= match)
        counts[index][copied[0] != token] += 1
    return [tuple(pair) for pair in counts]


IDS = st.lists(st.integers(0, 2), min_size=1, max_size=30)


@settings(max_examples=100, deadline=None)
@given(prompt=IDS, answer=IDS)
def test_counts_equal_a_scan(prompt, answer):
    assert agreement_counts(Recording.of([(prompt, answer)])) == [
        scanned(prompt, answer)
    ]


def test_the_prior_is_that_of_all_outputs_together():
    # Matches of one token: right once in each of three outputs, wrong five times.
    pairs = [([1, 2], [1, 2]), ([1, 2], [1, 5, 1, 6, 1, 7]), ([3, 4, 3], [4])]
    counts = agreement_counts(Recording.of(pairs))
    assert [output[0] for output in counts] == [(1, 0), (0, 3), (1, 0)]
    # 2 of 5 is 1.6 of 4; the longer classes were never met.
    assert lookup_prior(Recording.of(pairs)) == ((2, 2),) * 7


def test_only_a_fixed_copy_is_counted():
    recorded = Recording.of([([1, 2], [3])])
    with pytest.raises(SpecbookError, match="fixed length"):
        agreement_counts(recorded, PromptLookup.tuned())
    with pytest.raises(SpecbookError, match="not a Recording"):
        agreement_counts([([1, 2], [3])])
