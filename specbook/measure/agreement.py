"""How often a copied token agrees, by the length of the match that it follows.

These counts are where `draft_length.PRIOR` comes from: at every position of every
recorded answer the lookup names one token, and the answer says whether it was right.
No draft length has a part in it, so the counts hold for any.
"""

from __future__ import annotations

from typing import Any

from ..drafts.draft_length import BUCKETS, bucket, prior_of
from ..drafts.prompt_lookup import PromptLookup
from ..errors import SpecbookError
from .recording import Recording


def agreement_counts(
    recorded: Recording, source: Any = None
) -> list[list[tuple[int, int]]]:
    """For each recorded output, (agreements, disagreements) by class of match.

    Entry [i][c]: at how many positions of output i a match of class c of
    `draft_length.BUCKETS` named the next token, and at how many another one. `source`:
    one that copies and scores a copy by the length of its match, with fixed length; by
    default the lookup of `specbook decode`. Raises `SpecbookError` for another. Section
    0x02C.
    """
    if not isinstance(recorded, Recording):
        raise SpecbookError(f"not a Recording: {recorded!r}")
    source = PromptLookup.tuned(length="fixed") if source is None else source
    if getattr(source, "length", None) != "fixed":
        raise SpecbookError(
            f"a source that copies a fixed length is needed: {source!r}"
        )
    found = []
    for output in recorded.outputs:
        counts = [[0, 0] for _ in BUCKETS]
        session = source.start(output.prompt_ids, vocab_size=recorded.vocab_size)
        for token in output.tokens:
            for node in session.propose(max_depth=1, max_nodes=1).nodes:
                counts[bucket(node.score)][node.token_id != token] += 1
            session.commit([token])
        found.append([(agreed, refused) for agreed, refused in counts])
    return found


def lookup_prior(
    recorded: Recording, source: Any = None
) -> tuple[tuple[int, int], ...]:
    """The prior that the recorded outputs give to the adaptive lookup: `prior_of` their
    `agreement_counts`, added up."""
    found = agreement_counts(recorded, source)
    return prior_of(
        [
            (sum(a for a, _ in column), sum(d for _, d in column))
            for column in zip(*found, strict=True)
        ]
    )
