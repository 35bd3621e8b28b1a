"""Does a datastore hold what it will be evaluated on? (0x04C)

Leaked evaluation material changes no output: verification keeps the target's law. It
makes acceptance and latency look better than they are, so exactness is no defence. An
item is looked for by its n-grams, which finds near copies as well as exact ones, and by
its longest run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ... import checks
from ...errors import ArtifactError, SpecbookError
from .datastore import Datastore

NGRAM = 8
LIMIT = Fraction(1, 2)


@dataclass(frozen=True)
class Overlap:
    """How much of an evaluation item a datastore holds.

    `name`: the item's. `ngrams`: how many it has, and `found` of them occur; an item
    shorter than n tokens is one n-gram. `longest`: tokens of its longest run that
    occurs. `tokens`: of the item.
    """

    name: str
    tokens: int
    ngrams: int
    found: int
    longest: int

    @property
    def share(self) -> Fraction:
        """The share of the n-grams that occur: 1 for a copy, exactly."""
        return Fraction(self.found, self.ngrams)


def overlap(
    corpus: Datastore | Iterable[Iterable[int]],
    evaluation: Mapping[str, Iterable[int]] | Iterable[Iterable[int]],
    n: int = NGRAM,
) -> list[Overlap]:
    """For each evaluation item, how much of it the corpus holds.

    `corpus`: a datastore, or documents of token ids. `evaluation`: token sequences by
    name, or in order (then named by their number). `n`: tokens of an n-gram. Raises
    `SpecbookError` for an item without tokens.
    """
    checks.integer(n, "n", least=1)
    items = _items(evaluation)
    store = corpus if isinstance(corpus, Datastore) else Datastore.build(corpus)
    return [_overlap(store, name, tokens, n) for name, tokens in items.items()]


def refuse(
    corpus: Datastore | Iterable[Iterable[int]],
    evaluation: Mapping[str, Iterable[int]] | Iterable[Iterable[int]],
    n: int = NGRAM,
    *,
    limit: Fraction | float = LIMIT,
    longest: int | None = None,
) -> list[Overlap]:
    """As `overlap`, but raises `ArtifactError` that names every item of which more than
    the share `limit` was found, or a run of more than `longest` tokens."""
    checks.real(limit, "limit", least=0, most=1)
    if longest is not None:
        checks.integer(longest, "longest", least=0)
    found = overlap(corpus, evaluation, n)
    leaked = [
        f"{item.name!r} ({item.found} of {item.ngrams} {n}-grams, a run of "
        f"{item.longest} tokens)"
        for item in found
        if item.share > limit or (longest is not None and item.longest > longest)
    ]
    if leaked:
        raise ArtifactError(
            f"the datastore holds evaluation material: {'; '.join(leaked)}"
        )
    return found


def exclude(
    documents: Iterable[Iterable[int]],
    evaluation: Mapping[str, Iterable[int]] | Iterable[Iterable[int]],
    n: int = NGRAM,
) -> Iterator[tuple[int, list[int]]]:
    """The documents that share no n-gram with any evaluation item, each with its
    number, one at a time. An item shorter than n tokens is one n-gram."""
    checks.integer(n, "n", least=1)
    unordered = isinstance(documents, (str, bytes, Mapping, Set))
    if unordered or not isinstance(documents, Iterable):
        raise SpecbookError(
            f"documents must be a sequence of token sequences, got {documents!r}"
        )
    grams = {
        gram
        for tokens in _items(evaluation).values()
        for gram in _ngrams(tokens, min(n, len(tokens)))
    }
    return _clean(documents, grams, sorted({len(gram) for gram in grams}))


def _clean(
    documents: Iterable[Iterable[int]], grams: Set[tuple[int, ...]], sizes: list[int]
) -> Iterator[tuple[int, list[int]]]:
    for number, document in enumerate(documents):
        tokens = checks.token_ids(document, f"documents[{number}]")
        if not any(gram in grams for size in sizes for gram in _ngrams(tokens, size)):
            yield number, tokens


def manifest(
    evaluation: Mapping[str, Iterable[int]] | Iterable[Iterable[int]], n: int = NGRAM
) -> str:
    """The text that a release binds as `exclusions`: how many items were kept out, by
    which n-grams, and a digest of their names and tokens."""
    checks.integer(n, "n", least=1)
    items = _items(evaluation)
    digest = hashlib.sha256(json.dumps(items, sort_keys=True).encode()).hexdigest()
    return f"{len(items)} items by {n}-grams, sha256 {digest}"


def _items(evaluation: Any) -> dict[str, list[int]]:
    if isinstance(evaluation, Mapping):
        named = list(evaluation.items())
    else:
        listed = checks.entries(evaluation, "evaluation", "token sequences")
        named = [(str(number), tokens) for number, tokens in enumerate(listed)]
    items = {}
    for name, tokens in named:
        checks.text(name, "the name of an evaluation item")
        items[name] = checks.token_ids(tokens, f"evaluation[{name!r}]")
        if not items[name]:
            raise SpecbookError(f"evaluation[{name!r}] holds no tokens")
    return items


def _overlap(store: Datastore, name: str, tokens: list[int], n: int) -> Overlap:
    size = min(n, len(tokens))
    runs = _longest_runs(store, tokens)
    starts = len(tokens) - size + 1
    return Overlap(
        name=name,
        tokens=len(tokens),
        ngrams=starts,
        found=sum(run >= size for run in runs[:starts]),
        longest=max(runs),
    )


def _longest_runs(store: Datastore, tokens: Sequence[int]) -> list[int]:
    """For each position, how many tokens from it on occur in a row in the datastore.
    The run of the next position is at most one token shorter, so the end of the window
    never moves back and every end is asked for once."""
    runs = []
    end = 0
    for start in range(len(tokens)):
        end = max(end, start)
        while end < len(tokens) and store._count(tokens[start : end + 1]):
            end += 1
        runs.append(end - start)
    return runs


def _ngrams(tokens: Sequence[int], size: int) -> Iterable[tuple[int, ...]]:
    return (
        tuple(tokens[start : start + size]) for start in range(len(tokens) - size + 1)
    )
