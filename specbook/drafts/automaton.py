"""The suffix automaton: the longest suffix that stood here before, as a text grows.

A state stands for all subsequences of the text that end at the same places; its link
leads to the longest shorter suffix that also ends somewhere else. After each token the
link of the state of the whole text is therefore the answer to "what is the longest
suffix that ended here before, overlaps allowed?", with no search at all. A text of n
tokens has at most 2n states and 3n transitions, and a transition is made once and
redirected an amortised constant number of times, so a token costs amortised constant
time whatever the text is (Blumer and others, 1985). The alphabet does not enter,
since transitions are looked up by hashing.

*Which occurrence.* A match has many places in general. `SuffixAutomaton` tells a
recent one: the last place where the same match was made, see `match`. The very latest
place cannot be kept at this cost: every token would have to tell it to its whole chain
of links, n of them on a text of n equal tokens, or to a tree that takes a logarithm.
The earliest place would be free too (SAM-Decoding takes it), but a text that is being
edited repeats its latest version: on source code the recent place, mostly the very
latest, foretells the next token as often as that does, and the earliest less often.
`FrozenAutomaton`, which is built once, tells the latest place that something follows.

*Memory.* Most states have one transition. It is kept in the arrays of the state, and
only branching states own a dictionary: on source code that takes a third of the memory
of a dictionary a state. `nbytes` counts what is held, of the order of a hundred bytes a
token.
"""

from __future__ import annotations

import hashlib
import sys
from array import array
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np

from .. import checks

BORDER = -1
"""Stands in `tokens` where a document ends. It is no token and never matches."""

IDS = 2**63
"""Token ids are below this."""

_NONE, _MANY = -1, -2
"""In place of the token of a state's only transition."""

Match = tuple[int, int]
"""End position and length of a match; (0, 0) where nothing matches."""

Place = tuple[int, int]
"""Where a reader stands in an automaton: a state, and the length that it matched."""


class SuffixAutomaton:
    """The automaton of a text that grows at its end, in one or several documents.

    `tokens`: the text so far, with `BORDER` after each finished document. A position
    counts what stands before it, so that `tokens[end:]` follows a match.
    """

    def __init__(self) -> None:
        self.tokens = array("q")
        # Of each state: the length of its longest string, its link, a place where it
        # ended, and its only transition (token, target), or _MANY and its branch.
        self._length = array("i")
        self._link = array("i")
        self._end = array("i")
        self._token = array("q")
        self._target = array("i")
        self._branches: list[dict[int, int]] = []
        self._last = self._matched = self._state(0, -1, 0)
        self._match: Match = (0, 0)

    @property
    def match(self) -> Match:
        """End and length of the longest suffix of the current document that ended
        somewhere before, in this document or another; it may overlap itself.

        Let w be that suffix and c the longest string that ended wherever w did before
        (so w is a suffix of c, and mostly w is c). The end is the last position at
        which c was the match, or else the first at which c ended.
        """
        return self._match

    @property
    def states(self) -> int:
        """The number of states: at most two a token, and one."""
        return len(self._length)

    @property
    def transitions(self) -> int:
        """The number of transitions: at most three a token."""
        single = sum(token >= 0 for token in self._token)
        return single + sum(map(len, self._branches))

    @property
    def nbytes(self) -> int:
        """The bytes that the arrays and dictionaries hold, room for growth included."""
        arrays = (
            self.tokens,
            self._length,
            self._link,
            self._end,
            self._token,
            self._target,
        )
        held: list[Any] = [*arrays, self._branches, *self._branches]
        # A target in a dictionary is an integer object of its own; a token is mostly
        # one that the caller holds as well, but it is counted.
        entries = sum(map(len, self._branches))
        return sum(map(sys.getsizeof, held)) + 2 * entries * sys.getsizeof(2**20)

    def append(self, token: int) -> None:
        """One more token, in amortised constant time. Raises `ValueError`, and takes
        nothing, if it is no integer from 0 to `IDS` - 1."""
        if type(token) is not int or not 0 <= token < IDS:
            token = checks.integer(token, "token", least=0, most=IDS - 1)
        last = self._last
        known = self._follow(last, token)
        if known:
            # This document has so far been the beginning of something known.
            self._last = matched = self._exactly(last, token, known)
        else:
            size = len(self.tokens) + 1
            self._last = state = self._state(self._length[last] + 1, 0, size)
            above = last
            while above >= 0 and not (known := self._follow(above, token)):
                self._lead(above, token, state)
                above = self._link[above]
            matched = self._exactly(above, token, known) if above >= 0 else 0
            self._link[state] = matched
        self.tokens.append(token)
        self._match = (self._end[matched], self._length[matched])
        # The root matches nothing, so its end stays 0.
        if matched:
            self._end[matched] = len(self.tokens)

    def border(self) -> None:
        """Ends the current document."""
        self.tokens.append(BORDER)
        self._last = 0
        self._match = (0, 0)

    def _state(self, length: int, link: int, end: int) -> int:
        self._length.append(length)
        self._link.append(link)
        self._end.append(end)
        self._token.append(_NONE)
        self._target.append(0)
        return len(self._length) - 1

    def _follow(self, state: int, token: int) -> int:
        """The state after `token`; 0 if there is none, since none leads to the root."""
        only = self._token[state]
        if only == token:
            return self._target[state]
        if only == _MANY:
            return self._branches[self._target[state]].get(token, 0)
        return 0

    def _lead(self, state: int, token: int, target: int) -> None:
        """Makes or redirects a transition."""
        only = self._token[state]
        if only == _MANY:
            self._branches[self._target[state]][token] = target
        elif only in (_NONE, token):
            self._token[state] = token
            self._target[state] = target
        else:
            self._branches.append({only: self._target[state], token: target})
            self._token[state] = _MANY
            self._target[state] = len(self._branches) - 1

    def _exactly(self, above: int, token: int, state: int) -> int:
        """The state of the strings of `above` with `token` after them. It is `state`,
        unless that also stands for longer ones: then they part here."""
        length = self._length[above] + 1
        if self._length[state] == length:
            return state
        clone = self._state(length, self._link[state], self._end[state])
        self._token[clone] = self._token[state]
        self._target[clone] = self._target[state]
        if self._token[clone] == _MANY:
            self._branches.append(dict(self._branches[self._target[state]]))
            self._target[clone] = len(self._branches) - 1
        while above >= 0 and self._follow(above, token) == state:
            self._lead(above, token, clone)
            above = self._link[above]
        self._link[state] = clone
        return clone


class FrozenAutomaton:
    """The automaton of a fixed set of documents, for any number of readers.

    `documents`: sequences of token ids. Neither a match nor a copy crosses from one to
    the next. A reader keeps a place, beginning at `START`, and moves it by `step`; the
    automaton itself never changes. `nbytes` as in `SuffixAutomaton`; for a corpus of
    many millions of tokens take the suffix array of `drafts.rest`, which holds a few
    bytes a token. Raises `ValueError` for what is no token id.
    """

    START: Place = (0, 0)

    def __init__(self, documents: Iterable[Iterable[int]]) -> None:
        text = SuffixAutomaton()
        places = array("i")
        listed = checks.entries(documents, "documents", "token sequences")
        for index, document in enumerate(listed):
            name = f"documents[{index}]"
            for token in checks.token_ids(document, name, vocab_size=IDS):
                text.append(token)
                places.append(text._last)
            text.border()
            places.append(0)
        self._text = text
        self._ends, self._useful = _followed(text, places)
        self._size = len(text.tokens) - len(listed)
        self._largest = max(text.tokens, default=BORDER)

    def __len__(self) -> int:
        """The number of tokens; borders do not count."""
        return self._size

    @property
    def nbytes(self) -> int:
        """The bytes that are held."""
        return self._text.nbytes + sum(map(sys.getsizeof, (self._ends, self._useful)))

    @property
    def largest(self) -> int:
        """The largest token id; -1 if there is no token."""
        return self._largest

    @cached_property
    def digest(self) -> str:
        """The sha256 of the documents: ids and borders, as little-endian int64."""
        ids = np.asarray(self._text.tokens, dtype="<i8")
        return hashlib.sha256(ids.tobytes()).hexdigest()

    def step(self, place: Place, token: int) -> Place:
        """The place after one more token: that of the longest suffix of what was read
        that occurs in some document. Amortised constant time."""
        text = self._text
        state, length = place
        while not (after := text._follow(state, token)):
            if not state:
                return self.START
            state = text._link[state]
            length = text._length[state]
        return after, length + 1

    def match(self, place: Place) -> Match:
        """End and length of the longest suffix of what was read that occurs with a
        token of the same document after it, at the latest such occurrence."""
        state, length = place
        useful = self._useful[state]
        if useful != state:
            length = self._text._length[useful]
        return (self._ends[useful], length) if length else (0, 0)

    def copy(self, end: int, most: int) -> list[int]:
        """At most `most` tokens from position `end` on, all of the same document."""
        copied = self._text.tokens[end : end + most].tolist()
        return copied[: copied.index(BORDER)] if BORDER in copied else copied


def _followed(text: SuffixAutomaton, places: array[int]) -> tuple[array, array]:
    """For each state the latest place where it ends and a token follows (0 if none),
    and the first state on its way to the root that has one.

    `places`: the state of the document so far, after each entry of `text.tokens`.
    """
    ends = array("i", [0]) * text.states
    follows = text.tokens[1:]
    for index, token in enumerate(follows):
        if token != BORDER:
            ends[places[index]] = index + 1
    # A string ends wherever a longer one ends that it is a suffix of.
    order = np.argsort(np.asarray(text._length), kind="stable").tolist()
    for state in reversed(order[1:]):
        above = text._link[state]
        if ends[state] > ends[above]:
            ends[above] = ends[state]
    ends[0] = 0
    useful = array("i", [0]) * text.states
    for state in order[1:]:
        useful[state] = state if ends[state] else useful[text._link[state]]
    return ends, useful
