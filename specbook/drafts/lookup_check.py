"""Is a copied draft what the article's lookup copies? (section 0x04A)

A lookup that finds its own suffix, or that does not keep to its limits, breaks nothing:
candidates are verified, and the text is right. So nothing tells, except a second look
at the text. This one compares slices, from the longest suffix and the latest place
downwards; the source itself keeps an index and compares none.
"""

from __future__ import annotations

from collections.abc import Iterable

from .. import checks
from ..errors import SpecbookError


def check_copy(
    tokens: Iterable[int],
    found: Iterable[int],
    max_ngram: int,
    max_candidates: int,
) -> None:
    """Raises `SpecbookError` unless `found` is what the policy "latest" copies behind
    `tokens` (ids): what followed the latest earlier occurrence of the longest suffix of
    at most `max_ngram` tokens that has one, cut to `max_candidates`.
    """
    text = checks.token_ids(tokens, "tokens")
    offered = checks.token_ids(found, "found")
    checks.integer(max_ngram, "max_ngram", least=0)
    checks.integer(max_candidates, "max_candidates", least=0)
    if len(offered) > max_candidates:
        raise SpecbookError(
            f"{len(offered)} candidates are offered, the limit is {max_candidates}"
        )
    for length in range(min(max_ngram, len(text) // 2), 0, -1):
        suffix = text[-length:]
        for end in range(len(text) - length, length - 1, -1):
            if text[end - length : end] == suffix:
                wanted = text[end : end + max_candidates]
                if offered != wanted:
                    raise SpecbookError(
                        f"the last {length} tokens stood before position {end}, and "
                        f"{wanted} followed; {offered} is offered"
                    )
                return
    if offered:
        raise SpecbookError(
            f"no suffix of up to {max_ngram} tokens stood there before, and {offered} "
            "is offered"
        )
