"""The suffix automaton: every answer against brute force, its size and its cost."""

from __future__ import annotations

import inspect
import random
import re
import statistics
import sys
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbook.drafts.automaton import (
    BORDER,
    IDS,
    FrozenAutomaton,
    SuffixAutomaton,
)
from specbook.errors import SpecbookError
from tests.drafts.counting import bytecodes

Documents = list[list[int]]

words = st.one_of(
    st.lists(st.integers(0, 1), max_size=16),
    st.lists(st.integers(0, 3), max_size=24),
    st.builds(
        lambda phrase, times, tail: phrase * times + tail,
        st.lists(st.integers(0, 2), min_size=1, max_size=5),
        st.integers(1, 5),
        st.lists(st.integers(0, 2), max_size=4),
    ),
    # Wider than 16, 32 and 53 bits; neighbours that a float would merge.
    st.lists(st.sampled_from([0, 65_536, 2**31, 2**53, 2**53 + 1, IDS - 1])),
)
corpora = st.lists(words, max_size=5)


# The oracle: every definition in the most direct way, with no regard to time.


def flat(documents: Documents) -> list[int]:
    return [token for document in documents for token in (*document, BORDER)]


def ends(text: list[int], word: list[int], last: int) -> list[int]:
    """Where `word` ends in `text`, up to and including position `last`."""
    size = len(word)
    return [e for e in range(size, last + 1) if text[e - size : e] == word]


def suffixes(text: list[int]) -> list[list[int]]:
    """The suffixes of the current document, longest first."""
    begin = max((i + 1 for i, token in enumerate(text) if token == BORDER), default=0)
    return [text[start:] for start in range(begin, len(text))]


def longest(text: list[int]) -> list[int]:
    """The longest suffix of the current document that ended before."""
    for word in suffixes(text):
        if ends(text, word, len(text) - 1):
            return word
    return []


def closure(text: list[int], word: list[int]) -> list[int]:
    """The longest string that ended wherever `word` ended before."""
    while True:
        places = [e - len(word) - 1 for e in ends(text, word, len(text) - 1)]
        before = {text[place] if place >= 0 else BORDER for place in places}
        if len(before) > 1 or BORDER in before:
            return word
        word = [*before, *word]


def check_matches(automaton: SuffixAutomaton, documents: Documents) -> None:
    """The match after each token, by its definition."""
    text: list[int] = []
    matched: list[list[int]] = []
    for token in flat(documents):
        text.append(token)
        if token == BORDER:
            automaton.border()
            matched.append([])
            assert automaton.match == (0, 0)
            continue
        automaton.append(token)
        word = longest(text)
        end = 0
        if word:
            whole = closure(text, word)
            made = [m + 1 for m, other in enumerate(matched) if other == whole]
            end = made[-1] if made else ends(text, whole, len(text) - 1)[0]
            assert text[end - len(word) : end] == word and end < len(text)
        assert automaton.match == (end, len(word)), (documents, text)
        matched.append(word)
    assert automaton.tokens.tolist() == text


@settings(max_examples=300, deadline=None)
@given(corpora)
def test_the_match_is_the_longest_and_a_recent_one(documents: Documents) -> None:
    check_matches(SuffixAutomaton(), documents)


class NeverParts(SuffixAutomaton):
    """Fault: a state that also stands for longer strings is taken as it is."""

    def _exactly(self, above: int, token: int, state: int) -> int:
        return state


class KeepsTransitions(SuffixAutomaton):
    """Fault: a clone shares its original's branches."""

    def _exactly(self, above: int, token: int, state: int) -> int:
        found = super()._exactly(above, token, state)
        if found != state and self._token[state] == self._token[found] == -2:
            self._target[found] = self._target[state]
        return found


class Earliest(SuffixAutomaton):
    """Fault, here: it tells the earliest place."""

    def append(self, token: int) -> None:
        known = list(self._end)
        super().append(token)
        self._end[: len(known)] = type(self._end)("i", known)


@pytest.mark.parametrize("faulty", [NeverParts, KeepsTransitions, Earliest])
def test_planted_faults_in_the_construction_are_caught(
    faulty: type[SuffixAutomaton],
) -> None:
    rng = random.Random(3)
    documents = [[[rng.randrange(3) for _ in range(25)]] for _ in range(40)]
    with pytest.raises(AssertionError):
        for document in documents:
            check_matches(faulty(), document)


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        ([[]], (0, 0)),
        ([[7]], (0, 0)),
        ([[7, 7]], (1, 1)),
        ([[7, 7, 7, 7]], (3, 3)),
        # the article's example: A B C D A B C
        ([[10, 11, 12, 13, 10, 11, 12]], (3, 3)),
        # of two places the one where the same match was made: 1 2 after 9, after 8
        ([[1, 2, 9, 1, 2, 8, 1, 2]], (5, 2)),
        # 1 2 was last made the match at 5; the place at 8 was told to 9 1 2
        ([[1, 2, 9, 1, 2, 9, 9, 1, 2, 8, 1, 2]], (5, 2)),
        # longer than any n-gram limit, and overlapping itself
        ([[1, 2, 3] * 9], (24, 24)),
        # another document
        ([[4, 5, 6], [9, 4, 5]], (2, 2)),
        # never across a border: 6 9 stands nowhere
        ([[5, 6], [9, 6, 9]], (4, 1)),
    ],
)
def test_small_cases(documents: Documents, expected: tuple[int, int]) -> None:
    automaton = SuffixAutomaton()
    for index, document in enumerate(documents):
        if index:
            automaton.border()
        for token in document:
            automaton.append(token)
    assert automaton.match == expected


# Size and cost.


def built(text: list[int]) -> SuffixAutomaton:
    automaton = SuffixAutomaton()
    for token in text:
        automaton.append(token)
    return automaton


def fibonacci(size: int) -> list[int]:
    shorter, word = [1], [0]
    while len(word) < size:
        shorter, word = word, word + shorter
    return word[:size]


def de_bruijn(order: int) -> list[int]:
    """Every binary word of `order` tokens once: the greedy rule, 1 before 0."""
    word = [0] * order
    seen = {tuple(word)}
    while True:
        for token in (1, 0):
            window = (*word[1 - order :], token)
            if window not in seen:
                seen.add(window)
                word.append(token)
                break
        else:
            return word


def shuffled(size: int, vocabulary: int) -> list[int]:
    rng = random.Random(5)
    return [rng.randrange(vocabulary) for _ in range(size)]


TEXTS: dict[str, Callable[[int], list[int]]] = {
    "one token": lambda size: [7] * size,
    "a b b b": lambda size: [1] + [2] * (size - 1),
    "a a b b": lambda size: [1] * (size // 2) + [2] * (size // 2),
    "Fibonacci": fibonacci,
    "de Bruijn": lambda size: de_bruijn(size.bit_length() - 1),
    "two tokens": lambda size: shuffled(size, 2),
    "many tokens": lambda size: shuffled(size, 5_000),
    "all different": lambda size: list(range(size)),
    "squares": lambda size: shuffled(size // 2, 90) * 2,
}


def test_de_bruijn_words_are_what_they_say() -> None:
    word = de_bruijn(5)
    windows = {tuple(word[i : i + 5]) for i in range(len(word) - 4)}
    assert len(windows) == 32 == len(word) - 4


def classes(text: list[int]) -> dict[tuple[int, ...], set[tuple[int, ...]]]:
    """The substrings by where they end, the empty one apart."""
    found: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for start in range(len(text)):
        for end in range(start + 1, len(text) + 1):
            word = text[start:end]
            found.setdefault(tuple(ends(text, word, len(text))), set()).add(tuple(word))
    return found


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 2), max_size=18))
def test_states_are_the_classes_of_substrings_and_no_more(text: list[int]) -> None:
    automaton = built(text)
    known = classes(text)
    assert automaton.states == len(known) + 1
    followed = {(end, text[e]) for end in known for e in end if e < len(text)}
    assert automaton.transitions == len(followed) + len(set(text))


@pytest.mark.parametrize("name", TEXTS)
def test_at_most_two_states_and_three_transitions_a_token(name: str) -> None:
    text = TEXTS[name](1_024)
    automaton = built(text)
    assert automaton.states <= 2 * len(text) - 1
    assert automaton.transitions <= 3 * len(text) - 4
    if name == "one token":
        assert (automaton.states, automaton.transitions) == (1_025, 1_024)
    if name == "a b b b":  # the most states that a text can have
        assert automaton.states == 2 * len(text) - 1


class TellsTheChain(SuffixAutomaton):
    """Fault: it keeps the very latest place by telling every state on the chain."""

    def append(self, token: int) -> None:
        super().append(token)
        state = self._link[self._last]
        while state > 0:
            self._end[state] = len(self.tokens)
            state = self._link[state]


class Rereads(SuffixAutomaton):
    """Fault: it looks at the whole text for every token."""

    def append(self, token: int) -> None:
        super().append(token)
        for _ in self.tokens:
            pass


def growth(kind: type[SuffixAutomaton], name: str, size: int = 512) -> float:
    """How the bytecodes grow when the text doubles; 2 is linear."""

    def cost(size: int) -> int:
        text = TEXTS[name](size)
        automaton = kind()

        def build() -> None:
            for token in text:
                automaton.append(token)

        return bytecodes(build)

    return cost(2 * size) / cost(size)


@pytest.mark.parametrize("name", TEXTS)
def test_a_token_costs_an_amortised_constant(name: str) -> None:
    assert growth(SuffixAutomaton, name) < 2.15


def test_what_is_not_amortised_constant_would_be_caught() -> None:
    assert growth(TellsTheChain, "one token", 128) > 3
    assert growth(Rereads, "two tokens") > 2.3


def test_memory_counts_what_is_held_and_is_linear() -> None:
    small, large = (built(TEXTS["many tokens"](size)) for size in (2_000, 8_000))
    # Five arrays a state, and one of tokens: a lower bound that cannot be missed.
    assert large.nbytes > large.states * (4 * 4 + 8) + 8 * 8_000
    assert 3 < large.nbytes / small.nbytes < 5


def test_a_dictionary_a_state_would_take_three_times_the_memory() -> None:
    words = re.findall(r"\w+|\s+|[^\w\s]", inspect.getsource(statistics))
    ids = {word: number for number, word in enumerate(dict.fromkeys(words))}
    automaton = built([ids[word] for word in words])

    def dictionary(state: int) -> int:
        size = int(automaton._token[state] >= 0)
        if automaton._token[state] == -2:
            size = len(automaton._branches[automaton._target[state]])
        table = sys.getsizeof(dict.fromkeys(range(size)))
        return table + 2 * size * sys.getsizeof(2**20)

    others = (automaton.tokens, automaton._length, automaton._link, automaton._end)
    plain = sum(map(sys.getsizeof, others))
    plain += sum(dictionary(state) for state in range(automaton.states))
    assert plain > 3 * automaton.nbytes
    assert 60 < automaton.nbytes / len(words) < 240


# The frozen automaton.


def check_reader(
    frozen: FrozenAutomaton, documents: Documents, read: list[int]
) -> None:
    """The place and the match after each token that is read."""
    text = flat(documents)
    place = frozen.START
    for count in range(1, len(read) + 1):
        place = frozen.step(place, read[count - 1])
        found = [read[start:count] for start in range(count)]
        occurring = [word for word in found if ends(text, word, len(text))]
        assert place[1] == (len(occurring[0]) if occurring else 0)
        expected = (0, 0)
        for word in found:
            followed = [
                end for end in ends(text, word, len(text)) if text[end] != BORDER
            ]
            if followed:
                expected = (followed[-1], len(word))
                break
        assert frozen.match(place) == expected
        if expected[1]:
            end = expected[0]
            rest = text[end : text.index(BORDER, end)]
            assert [frozen.copy(end, most) for most in (1, 3, 99)] == [
                rest[:1],
                rest[:3],
                rest,
            ]


@settings(max_examples=300, deadline=None)
@given(corpora, words)
def test_a_reader_finds_the_longest_followed_suffix(
    documents: Documents, read: list[int]
) -> None:
    frozen = FrozenAutomaton(documents)
    assert len(frozen) == sum(map(len, documents))
    check_reader(frozen, documents, read)


def test_planted_faults_in_a_frozen_automaton_are_caught() -> None:
    rng = random.Random(9)
    cases = [
        (
            [[rng.randrange(2) for _ in range(6)] for _ in range(3)],
            [rng.randrange(2) for _ in range(9)],
        )
        for _ in range(30)
    ]

    def earliest(frozen: FrozenAutomaton) -> None:
        for state in range(frozen._text.states):
            frozen._ends[state] = frozen._text.tokens.index(1) + 1

    def any_state(frozen: FrozenAutomaton) -> None:
        for state in range(frozen._text.states):
            frozen._useful[state] = state

    for fault in (earliest, any_state):
        with pytest.raises(AssertionError):
            for documents, read in cases:
                frozen = FrozenAutomaton(documents)
                fault(frozen)
                check_reader(frozen, documents, read)


def test_readers_share_it_and_change_nothing() -> None:
    frozen = FrozenAutomaton([[1, 2, 3, 1, 2, 4], [], [3, 1]])
    before = (frozen._text._end.tolist(), frozen._ends.tolist(), frozen.nbytes)
    first = second = frozen.START
    for one, other in zip([1, 2, 4, 1, 3, 1, 2], [3, 1, 2, 2, 1, 9, 3], strict=True):
        first, second = frozen.step(first, one), frozen.step(second, other)
    assert (frozen.match(first), frozen.match(second)) == ((5, 3), (9, 1))
    assert before == (frozen._text._end.tolist(), frozen._ends.tolist(), frozen.nbytes)


def test_reading_costs_an_amortised_constant() -> None:
    frozen = FrozenAutomaton([[7] * 600 + [8], fibonacci(600)])

    def cost(size: int) -> int:
        # Runs that the corpus knows, each ended by a token that it does not.
        read = ([7] * 500 + [9]) * (size // 501)

        def run() -> None:
            place = frozen.START
            for token in read:
                place = frozen.step(place, token)

        return bytecodes(run)

    assert cost(8_016) / cost(2_004) < 4.1
    # Leaving the run walks 500 links once; a walk a token costs a hundred times that.
    assert cost(2_004) < 250 * 2_004


def test_the_digest_tells_documents_apart() -> None:
    texts = [[[1, 2]], [[1], [2]], [[2, 1]], [[1, 2], []], [], [[IDS - 1]]]
    assert len({FrozenAutomaton(text).digest for text in texts}) == len(texts)
    assert FrozenAutomaton([[1, 2]]).digest == FrozenAutomaton(((1, 2),)).digest
    assert [FrozenAutomaton(t).largest for t in ([], [[]], [[3, 9, 4]])] == [-1, -1, 9]


# Bad input.


@pytest.mark.parametrize("token", [-1, BORDER, 1.0, True, None, "1", IDS, [1]])
def test_a_bad_token_is_refused_and_leaves_no_trace(token: object) -> None:
    automaton = built([1, 2, 1])
    before = (automaton.match, automaton.states, automaton.tokens.tolist())
    with pytest.raises(SpecbookError, match="token must be"):
        automaton.append(token)  # type: ignore[arg-type]
    assert before == (automaton.match, automaton.states, automaton.tokens.tolist())
    automaton.append(2)
    assert automaton.match == (2, 2)


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        (7, "documents must be"),
        ("12", "documents must be"),
        ({1: [2]}, "documents must be"),
        ([1, 2], r"documents\[0\] must be"),
        ([[1], [2, -3]], r"documents\[1\]\[1\] = -3 is outside"),
        ([[1], [2, IDS]], r"documents\[1\]\[1\]"),
        ([[True]], r"documents\[0\]\[0\] must be an integer"),
        ([[1.5]], r"documents\[0\]\[0\] must be an integer"),
    ],
)
def test_bad_documents_are_refused(documents: object, message: str) -> None:
    with pytest.raises(SpecbookError, match=message):
        FrozenAutomaton(documents)  # type: ignore[arg-type]


def test_generators_and_arrays_are_documents() -> None:
    plain = FrozenAutomaton([[1, 2, 1], [4]])
    made = FrozenAutomaton(iter([np.array([1, 2, 1]), (t for t in [np.int64(4)])]))
    assert made.digest == plain.digest
    automaton = SuffixAutomaton()
    for token in np.array([3, 3]):
        automaton.append(token)
    assert automaton.match == (1, 1)
    assert automaton.tokens.tolist() == [3, 3]
