"""A text that grows by a token at a time: what a draft costs, and whether it is right.

This is the other use of an index, of the request's own text. After each token it takes
the token in and drafts. The documents are held-out ones, each started anew, and the
document itself says which tokens of a draft the target would have taken, had it written
the document.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from ..drafts.prompt_lookup import PromptLookup
from ..drafts.suffix import Suffix
from .retrieval_systems import ARCTIC, INSTALL, Limits, why_missing

DOCUMENTS = 20
TOKENS = 2_000
"""How many documents grow, and up to which length."""

Step = Callable[[int], Sequence[int]]
"""Takes one token in and returns the draft after it."""


@dataclass(frozen=True)
class Grower:
    """An index of a growing text. `start` makes one that is empty."""

    name: str
    start: Callable[[Limits], Step]
    package: str = "specbook.drafts"
    install: str = ""

    def missing(self) -> str | None:
        """None if it can run here, otherwise how to get it."""
        return why_missing(self.package, self.install)


@dataclass(frozen=True)
class Grown:
    """What one index did. `seconds`: of each document, the median of the repeats.
    `tokens`: of each. `first` counts the drafts whose first token was right, and
    `agreed` the right tokens of all drafts. `absent`: why it did not run."""

    system: str
    seconds: tuple[float, ...] = ()
    tokens: tuple[int, ...] = ()
    first: int = 0
    agreed: int = 0
    absent: str = ""

    @property
    def total(self) -> int:
        """The tokens of all documents."""
        return sum(self.tokens)


def _suffix(limits: Limits) -> Step:
    session = Suffix(limits.node_budget).start([])

    def step(token: int) -> Sequence[int]:
        session.commit([token])
        return session.lookup()

    return step


def _prompt_lookup(limits: Limits) -> Step:
    session = PromptLookup(4, limits.node_budget).start([])

    def step(token: int) -> Sequence[int]:
        session.commit([token])
        return session.lookup()

    return step


def _arctic(limits: Limits) -> Step:
    """A request's own tree and one draft a token, with the settings of vLLM: a draft is
    at most as long as its match, which is why fewer of its tokens can come true."""
    from arctic_inference.suffix_decoding._C import SuffixTree

    depth = limits.max_suffix + limits.node_budget
    tree = SuffixTree(depth)
    text = np.empty(TOKENS, np.int32)
    size = 0

    def step(token: int) -> Sequence[int]:
        nonlocal size
        text[size] = token
        tree.extend_ndarray(0, text[size : size + 1])
        size += 1
        last = text[max(0, size - depth) : size]
        draft = tree.speculate_ndarray(last, limits.node_budget, 1.0, 0.0, 0.1, False)
        return draft.token_ids

    return step


GROWERS = (
    Grower("suffix automaton", _suffix),
    Grower("prompt lookup", _prompt_lookup),
    Grower("Arctic suffix tree", _arctic, ARCTIC, INSTALL),
)


def grow(
    documents: Sequence[np.ndarray],
    limits: Limits,
    repeats: int,
    growers: Sequence[Grower] = GROWERS,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Grown]:
    """Lets the first documents grow in each index, taking turns."""
    texts = [d[:TOKENS].tolist() for d in documents if len(d)][:DOCUMENTS]
    absent = {g.name: why for g in growers if (why := g.missing()) is not None}
    running = [g for g in growers if g.name not in absent]
    spent: dict[str, list[list[float]]] = {g.name: [[] for _ in texts] for g in running}
    for turn in range(repeats):
        for number, text in enumerate(texts):
            first = (turn + number) % max(1, len(running))
            for grower in [*running[first:], *running[:first]]:
                step = grower.start(limits)
                start = clock()
                for token in text:
                    step(token)
                spent[grower.name][number].append(clock() - start)
    found = []
    for grower in growers:
        if grower.name in absent:
            found.append(Grown(grower.name, absent=absent[grower.name]))
            continue
        right = [agreements(text, grower.start(limits)) for text in texts]
        found.append(
            Grown(
                system=grower.name,
                seconds=tuple(median(seconds) for seconds in spent[grower.name]),
                tokens=tuple(map(len, texts)),
                first=sum(count > 0 for counts in right for count in counts),
                agreed=sum(count for counts in right for count in counts),
            )
        )
    return found


def agreements(text: Sequence[int], step: Step) -> list[int]:
    """For each place in `text`, how many tokens of the draft there came true."""
    counts = []
    for place, token in enumerate(text):
        count = 0
        for drafted, truth in zip(step(token), text[place + 1 :], strict=False):
            if drafted != truth:
                break
            count += 1
        counts.append(count)
    return counts
