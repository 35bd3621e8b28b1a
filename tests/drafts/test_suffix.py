"""The suffix source: which match speaks, what is copied, and that it stays lossless."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbook import drafts, engine
from specbook.chance import law
from specbook.contract import VerifierContract, bind
from specbook.drafts.automaton import IDS, FrozenAutomaton, SuffixAutomaton
from specbook.drafts.draft_length import BUCKETS
from specbook.drafts.prompt_lookup import PromptLookup
from specbook.drafts.suffix import TUNED, Suffix
from specbook.errors import ContractError, SpecbookError
from specbook.models import TableTarget
from specbook.proposal import ProbabilitySemantics, SamplingRelation
from tests.core.helpers.laws import plain_law, table_of, tables
from tests.core.helpers.rules import fresh_draw, verifier
from tests.drafts.counting import bytecodes

Documents = list[list[int]]

texts = st.one_of(
    st.lists(st.integers(0, 1), max_size=14),
    st.lists(st.integers(0, 3), max_size=20),
    st.builds(
        lambda phrase, times, tail: phrase * times + tail,
        st.lists(st.integers(0, 3), min_size=1, max_size=5),
        st.integers(1, 5),
        st.lists(st.integers(0, 3), max_size=4),
    ),
)


def own_length(tokens: list[int]) -> int:
    """The longest suffix that ended before, by brute force."""
    size = len(tokens)
    for length in range(size - 1, 0, -1):
        for end in range(length, size):
            if tokens[end - length : end] == tokens[size - length :]:
                return length
    return 0


def corpus_copies(tokens: list[int], corpus: Documents) -> tuple[int, list[int]]:
    """The longest suffix that some document continues, and the latest continuation."""
    for length in range(len(tokens), 0, -1):
        word = tokens[len(tokens) - length :]
        for document in reversed(corpus):
            for end in range(len(document) - 1, length - 1, -1):
                if document[end - length : end] == word:
                    return length, document[end:]
    return 0, []


def check_lookup(
    found: list[int], tokens: list[int], corpus: Documents, threshold: int, most: int
) -> None:
    """`found` is what the rules of the module say for the prefix `tokens`."""
    own = own_length(tokens)
    length, copy = corpus_copies(tokens, corpus)
    if max(own, length) < threshold or most == 0:
        assert found == []
    elif length > own:
        assert found == copy[:most]
    else:
        assert len(found) == most
        # Some earlier occurrence of the longest suffix is continued, beyond the end of
        # the text with its own continuation.
        said = tokens + found
        assert any(
            tokens[end - own : end] == tokens[len(tokens) - own :]
            and all(said[len(tokens) + i] == said[end + i] for i in range(len(found)))
            for end in range(own, len(tokens))
        )


@settings(max_examples=300, deadline=None)
@given(
    prompt=texts,
    blocks=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=5), max_size=6),
    corpus=st.one_of(st.none(), st.lists(texts, max_size=3)),
    threshold=st.integers(1, 4),
    most=st.integers(0, 7),
)
def test_every_lookup_follows_the_rules(
    prompt: list[int],
    blocks: Documents,
    corpus: Documents | None,
    threshold: int,
    most: int,
) -> None:
    source = Suffix(most, threshold, corpus)
    session = source.start(prompt, vocab_size=4)
    tokens = list(prompt)
    for block in [[], *blocks]:
        session.commit(block)
        tokens += block
        found = session.lookup()
        check_lookup(found, tokens, corpus or [], threshold, most)
        # A session that grew and one that starts here agree.
        assert source.start(tokens).lookup() == found
        nodes = session.propose(max_depth=99, max_nodes=99).nodes
        assert [node.token_id for node in nodes] == found
        length = max(own_length(tokens), corpus_copies(tokens, corpus or [])[0])
        assert {node.score for node in nodes} <= {length}


@pytest.mark.parametrize("fault", ["corpus on ties", "no threshold", "stops at end"])
def test_planted_faults_are_caught(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if fault == "corpus on ties":
        monkeypatch.setattr(SuffixAutomaton, "match", property(lambda self: (0, 0)))
    elif fault == "no threshold":
        monkeypatch.setattr(
            Suffix,
            "threshold",
            property(lambda self: 1, lambda self, value: None),
            raising=False,
        )
    else:
        monkeypatch.setattr(
            "specbook.drafts.suffix.SuffixSession._own_copy",
            lambda self, end, most: self._text.tokens[end : end + most].tolist(),
        )
    rng = random.Random(1)
    with pytest.raises(AssertionError):
        for _ in range(60):
            tokens = [rng.randrange(3) for _ in range(rng.randint(1, 12))]
            corpus = [[rng.randrange(3) for _ in range(8)] for _ in range(2)]
            session = Suffix(4, 3, corpus).start(tokens)
            check_lookup(session.lookup(), tokens, corpus, 3, 4)


@pytest.mark.parametrize(
    ("tokens", "options", "expected"),
    [
        ([], {}, []),
        ([9], {}, []),
        ([3, 4, 5], {}, []),
        # the article's example: D follows the earlier A B C, then the copy goes on
        ([10, 11, 12, 13, 10, 11, 12], {"max_candidates": 1}, [13]),
        ([10, 11, 12, 13, 10, 11, 12], {"max_candidates": 6}, [13, 10, 11, 12, 13, 10]),
        # a loop of period 1 and of period 3, drafted to the full length
        ([6, 6], {"max_candidates": 4}, [6, 6, 6, 6]),
        ([1, 2, 3, 1, 2, 3], {"max_candidates": 7}, [1, 2, 3, 1, 2, 3, 1]),
        # the recent one
        ([1, 2, 9, 1, 2, 8, 1, 2], {"max_candidates": 3}, [8, 1, 2]),
        # longer than any n-gram limit: 20 tokens single out one of two places
        ([*range(30), 77, *range(10, 30)], {"max_candidates": 2}, [77, 10]),
        ([1, 2, 1], {"max_candidates": 0}, []),
        # the switch
        ([1, 2, 9, 1, 2], {"threshold": 2, "max_candidates": 2}, [9, 1]),
        ([1, 2, 9, 1, 2], {"threshold": 3, "max_candidates": 2}, []),
        # the corpus continues a longer match than the text does
        ([4, 5, 7, 3, 4, 5], {"corpus": [[3, 4, 5, 8, 9]]}, [8, 9]),
        # of equal ones the text speaks
        (
            [4, 5, 7, 3, 4, 5],
            {"corpus": [[4, 5, 8]], "max_candidates": 2},
            [7, 3],
        ),
        # the latest document, and never across a border
        ([2, 3], {"corpus": [[2, 3, 4], [2, 3, 5], [7, 2, 3]]}, [5]),
        ([2, 3], {"corpus": [[2], [3, 4]]}, [4]),
        # ids over 16 bits
        ([70_000, 4_464], {"corpus": [[4_464, 1], [70_000, 4_464, 2]]}, [2]),
        # an empty corpus is no corpus
        ([1, 2, 1], {"corpus": [], "max_candidates": 1}, [2]),
        ([1, 2, 1], {"corpus": [[], []], "max_candidates": 1}, [2]),
    ],
)
def test_small_cases(
    tokens: list[int], options: dict[str, Any], expected: list[int]
) -> None:
    assert Suffix(**options).start(tokens).lookup() == expected


def test_it_finds_what_a_limited_ngram_confuses() -> None:
    tokens = [1, 5, 6, 7, 40, 2, 5, 6, 7, 50, 1, 5, 6, 7]
    assert PromptLookup(3, 1).start(tokens).lookup() == [50]
    assert Suffix(1).start(tokens).lookup() == [40]


# The proposal.


def test_the_proposal_says_what_it_is() -> None:
    source = drafts.get("suffix")(max_candidates=3)
    session = source.start([1, 2, 9, 1, 2], request="r7", manifest_hash="m")
    proposal = session.propose(max_depth=5, max_nodes=2)
    assert [(n.token_id, n.parent, n.depth) for n in proposal.nodes] == [
        (9, -1, 1),
        (1, 0, 2),
    ]
    assert {n.q for n in proposal.nodes} == {None}
    assert {n.score for n in proposal.nodes} == {2}
    assert {(n.source, n.state_owner, n.origin_request) for n in proposal.nodes} == {
        ("suffix", "suffix", "r7")
    }
    assert proposal.probability_semantics is ProbabilitySemantics.ABSENT
    assert proposal.sampling_relation is SamplingRelation.DETERMINISTIC_LOOKUP
    assert (proposal.state_handle.owner, proposal.state_handle.generation) == (
        "suffix",
        0,
    )
    assert proposal.manifest_hash == "m"
    assert source.contract.cost_term == "retrieval"
    bind(proposal, "membership")
    bind(proposal, "greedy")
    reads_q = VerifierContract(
        "reads q",
        reads_q=True,
        exact=True,
        probability=frozenset({ProbabilitySemantics.NORMALIZED_CONDITIONAL}),
        sampling=frozenset(SamplingRelation),
    )
    with pytest.raises(ContractError, match="suffix: probability 'absent'"):
        bind(proposal, reads_q)
    session.commit([9])
    later = session.propose(max_depth=1, max_nodes=9, manifest_hash="n")
    assert (later.state_handle.generation, later.manifest_hash) == (1, "n")


@pytest.mark.parametrize(("depth", "nodes"), [(0, 9), (9, 0)])
def test_no_room_is_a_miss(depth: int, nodes: int) -> None:
    session = Suffix().start([1, 2, 1])
    assert session.propose(max_depth=depth, max_nodes=nodes).nodes == ()


def test_sessions_share_the_corpus_and_nothing_else() -> None:
    corpus = FrozenAutomaton([[1, 2, 3, 4], [5, 6, 7]])
    one, other = Suffix(2, corpus=corpus), Suffix(1, 2, corpus)
    assert one.corpus is other.corpus is corpus
    before = corpus.digest, corpus._ends.tolist(), corpus._text._end.tolist()
    first, second, third = one.start([1, 2]), one.start([5]), other.start([])
    first.commit([3])
    second.commit([6])
    third.commit([2])
    assert (first.lookup(), second.lookup()) == ([4], [7])
    assert third.lookup() == [], "the match is shorter than the threshold"
    third.commit([3, 4, 2, 3])
    assert third.lookup() == [4]
    assert (first.lookup(), second.lookup()) == ([4], [7])
    assert before == (corpus.digest, corpus._ends.tolist(), corpus._text._end.tolist())


def test_the_identity_tells_the_options_and_the_corpus() -> None:
    sources = [
        Suffix(),
        Suffix(9),
        Suffix(10, 2),
        Suffix(corpus=[]),
        Suffix(corpus=[[1, 2]]),
        Suffix(corpus=[[1], [2]]),
        Suffix(length="adaptive"),
        Suffix(length="adaptive", cost=((1, 1.0), (2, 3.0))),
    ]
    assert len({source.identity() for source in sources}) == len(sources)
    assert Suffix(corpus=[[1, 2]]).identity() == Suffix(corpus=([1, 2],)).identity()


def test_the_registry_has_it_with_its_tuned_options() -> None:
    assert "suffix" in drafts.names()
    made = drafts.make("suffix")
    assert {name: getattr(made, name) for name in TUNED} == TUNED
    assert Suffix.tuned(threshold=5).threshold == 5
    with pytest.raises(SpecbookError, match="option of the lookup must be one of"):
        Suffix.tuned(max_ngram=3)


def test_the_draft_length_is_learnt_from_the_request() -> None:
    flat = ((1, 1.0), (64, 1.0))
    steep = ((1, 1.0), (64, 64.0))
    prior = [(1, 1)] * len(BUCKETS)

    def drafted(cost: Any, tokens: list[int]) -> int:
        source = Suffix(8, length="adaptive", cost=cost, prior=prior)
        session = source.start([1, 2, 3, 1])
        for token in tokens:
            session.propose(max_depth=9, max_nodes=9)
            session.commit([token])
        assert len(session.lookup()) == 8
        return len(session.propose(max_depth=9, max_nodes=9).nodes)

    # Rows are free; rows cost a step each, and the copies agreed; and did not.
    assert drafted(flat, []) == 8
    assert drafted(steep, [2, 3, 1, 2, 3, 1] * 3) == 0
    gentle = ((1, 1.0), (9, 2.0))
    assert drafted(gentle, [2, 3, 1, 2, 3, 1] * 3) >= 4
    assert drafted(gentle, [token for i in range(9) for token in (9 + i, 1)]) == 0


# Cost, counted and not timed.


def test_a_decoding_costs_the_same_a_round_however_long_the_prefix_is() -> None:
    corpus = FrozenAutomaton([[1, 2, 3] * 20])

    def cost(size: int) -> int:
        rng = random.Random(3)
        text = [rng.randrange(50) for _ in range(size)]
        session = Suffix(10, corpus=corpus, length="adaptive").start(text)
        blocks = [[rng.randrange(50) for _ in range(4)] for _ in range(60)]
        # Copies of the text itself too, so that hits are among the rounds.
        blocks += [text[i : i + 4] for i in range(0, 120, 4)]

        def rounds() -> None:
            for block in blocks:
                session.propose(max_depth=10, max_nodes=10)
                session.commit(block)

        return bytecodes(rounds)

    assert cost(32_000) < 1.2 * cost(1_000)


# Inside the engine.


def decoded(target: TableTarget, prompt: list[int], source: Any, count: int) -> Any:
    return engine.generate(target, prompt, source, max_new_tokens=count)


@settings(max_examples=60, deadline=None)
@given(
    found=tables(),
    prompt=st.lists(st.integers(0, 1), min_size=1, max_size=8),
    corpus=st.one_of(st.none(), st.lists(st.lists(st.integers(0, 1)), max_size=3)),
    threshold=st.integers(1, 3),
    most=st.integers(0, 5),
    length=st.sampled_from(["fixed", "adaptive"]),
    count=st.integers(1, 12),
)
def test_greedy_decoding_says_what_the_target_says(
    found: Any,
    prompt: list[int],
    corpus: Documents | None,
    threshold: int,
    most: int,
    length: str,
    count: int,
) -> None:
    vocab, table = found
    target = TableTarget(table, vocab_size=vocab)
    source = Suffix(most, threshold, corpus, length=length)
    plain = decoded(target, prompt, None, count)
    assert decoded(target, prompt, source, count).tokens == plain.tokens
    both = decoded(target, prompt, [source, PromptLookup(2, 3)], count)
    assert both.tokens == plain.tokens


def test_below_the_threshold_the_round_is_left_to_the_other_source() -> None:
    rows = [[int(i == (last + 1) % 5) for i in range(5)] for last in range(5)]
    target = TableTarget(lambda prefix: rows[prefix[-1]], vocab_size=5)
    sources = [Suffix(3, threshold=7), PromptLookup(2, 2)]
    result = decoded(target, [0, 1, 2, 3, 4, 0], sources, 14)
    speaking = [
        {mark.source for marks in r.tree.sources for mark in marks}
        for r in result.rounds
    ]
    # The match is 1, 4 and then 8 or more tokens long; prompt lookup speaks always.
    assert speaking[:2] == [{"prompt_lookup"}] * 2
    assert speaking[2] == {"prompt_lookup", "suffix"}
    assert result.tokens == [(1 + i) % 5 for i in range(14)]


def test_a_loop_takes_few_rounds() -> None:
    rows = [[int(i == (last + 1) % 3) for i in range(3)] for last in range(3)]
    target = TableTarget(lambda prefix: rows[prefix[-1]], vocab_size=3)
    result = decoded(target, [0, 1, 2, 0], Suffix(16), 34)
    assert result.tokens == [(1 + i) % 3 for i in range(34)]
    assert [len(r.committed) for r in result.rounds] == [17, 17]
    # Prompt lookup copies what stands there, one period at first.
    assert len(decoded(target, [0, 1, 2, 0], PromptLookup(3, 16), 34).rounds) > 3


ROWS = [[3, 2, 1], [1, 3, 1], [1, 1, 2], [0, 1, 3]]


def sampled(source: Any, rule: Any, count: int) -> tuple[dict, int, int]:
    """The law of the output; the most rounds and the most accepted tokens of a run."""
    target = TableTarget(table_of(ROWS, 5), vocab_size=3)
    rounds, accepted = set(), set()

    def program(chance: Any) -> tuple[int, ...]:
        result = engine.generate(
            target,
            [0, 1, 0],
            source,
            rule,
            max_new_tokens=count,
            temperature=1.0,
            chance=chance,
        )
        rounds.add(len(result.rounds))
        accepted.add(sum(r.accepted for r in result.rounds))
        return tuple(result.tokens)

    return law(program), max(rounds), max(accepted)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_candidates": 2},
        {"threshold": 2},
        {"corpus": [[0, 1, 2, 2], [1, 0, 0, 1]]},
        {"length": "adaptive", "cost": ((1, 1.0), (64, 1.0))},
        {"length": "adaptive", "cost": ((1, 1.0), (64, 30.0))},
    ],
    ids=["plain", "short", "threshold", "corpus", "free rows", "dear rows"],
)
def test_the_law_of_several_rounds_is_the_targets(options: dict[str, Any]) -> None:
    found, rounds, accepted = sampled(Suffix(**options), "membership", 4)
    assert found == plain_law(table_of(ROWS, 5), (0, 1, 0), 4)
    assert sum(found.values()) == Fraction(1)
    assert rounds >= 2 and (accepted >= 1 or "cost" in options)


def test_a_rule_that_draws_anew_has_another_law_with_it() -> None:
    found, _, _ = sampled(Suffix(), verifier(fresh_draw), 3)
    assert found != plain_law(table_of(ROWS, 5), (0, 1, 0), 3)


# Bad input.


@pytest.mark.parametrize("value", [-1, 1.0, True, "2", None, float("nan")])
@pytest.mark.parametrize("name", ["max_candidates", "threshold"])
def test_bad_limits_are_refused(name: str, value: object) -> None:
    with pytest.raises(SpecbookError, match=f"{name} must be"):
        Suffix(**{name: value})  # type: ignore[arg-type]


def test_a_threshold_of_zero_is_refused() -> None:
    with pytest.raises(SpecbookError, match="threshold must be at least 1"):
        Suffix(threshold=0)


@pytest.mark.parametrize(
    "corpus", [7, "ab", [3], [[-1]], [[1], None], [[True]], {1: [2]}, [[IDS]]]
)
def test_a_bad_corpus_is_refused(corpus: object) -> None:
    with pytest.raises(SpecbookError, match="documents"):
        Suffix(corpus=corpus)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "tokens",
    [[1, -2], [1, 2.0], [True, 1], "121", 7, None, [[1], [2]], [1, None], [1, IDS]],
)
def test_bad_tokens_are_refused_and_leave_no_trace(tokens: Any) -> None:
    with pytest.raises(SpecbookError, match="prefix"):
        Suffix().start(tokens)
    session = Suffix(2).start([1, 2, 1])
    with pytest.raises(SpecbookError, match="tokens"):
        session.commit(tokens)
    assert session.lookup() == [2, 1]
    assert session.propose(max_depth=1, max_nodes=1).state_handle.generation == 0


def test_a_corpus_of_another_vocabulary_is_refused() -> None:
    source = Suffix(corpus=[[1, 2], [5, 3]])
    source.start([1], vocab_size=6)
    with pytest.raises(SpecbookError, match=r"the corpus holds token 5, outside 0"):
        source.start([1], vocab_size=5)
    target = TableTarget(lambda prefix: [1, 0, 0], vocab_size=3)
    with pytest.raises(SpecbookError, match="another vocabulary"):
        engine.generate(target, [0], source, max_new_tokens=2)


def test_other_bad_options_are_refused() -> None:
    with pytest.raises(SpecbookError, match="length must be one of"):
        Suffix(length="long")
    with pytest.raises(SpecbookError, match="cost"):
        Suffix(length="adaptive", cost=3)  # type: ignore[arg-type]
    session = Suffix().start([1, 2], vocab_size=8)
    with pytest.raises(SpecbookError, match=r"tokens\[0\] = 9"):
        session.commit([9])
    with pytest.raises(SpecbookError, match="max_depth"):
        session.propose(max_depth=-1, max_nodes=1)
    with pytest.raises(SpecbookError, match="max_nodes"):
        session.propose(max_depth=1, max_nodes=True)


def test_generators_and_numpy_ids_are_ids() -> None:
    source = Suffix(np.int64(2), np.int32(1), (d for d in [np.array([1, 2, 3])]))
    session = source.start(iter([1]))
    session.commit(np.array([2]))
    assert session.lookup() == [3]


@pytest.mark.parametrize("length", ["fixed", "adaptive"])
@pytest.mark.parametrize("corpus", [None, [[9, *[1, 2] * 4, *range(3, 200)]]])
def test_a_round_copies_no_more_than_it_can_use(
    length: str, corpus: list[list[int]] | None
) -> None:
    """A loop goes on for ever: what is copied of it is what a round may publish."""

    def session(most: int) -> Any:
        return Suffix(most, corpus=corpus, length=length).start([9, *[1, 2] * 4])

    def cost(most: int) -> int:
        return bytecodes(lambda: session(most).propose(max_depth=4, max_nodes=9))

    assert cost(100_000) < 2 * cost(1_000)
    assert len(session(1_000).lookup()) >= 100, "the copy itself is long"
    plain, endless = session(20), session(2**70)
    for block in ([1, 2, 1, 2, 1], [2, 1, 7], [1], [2, 1, 2, 1, 2]):
        drafts_of = [
            [n.token_id for n in s.propose(max_depth=4, max_nodes=9).nodes]
            for s in (plain, endless)
        ]
        assert drafts_of[0] == drafts_of[1]
        # What is learnt from a round is the same too, bonus token included.
        for s in (plain, endless):
            s.commit(block)


def test_an_id_that_no_automaton_holds_is_refused_before_any_is_taken() -> None:
    session = Suffix().start([1, 2, 1], vocab_size=2**70)
    before = session.lookup()
    with pytest.raises(SpecbookError, match=r"tokens\[1\] = 2361183241434822606848"):
        session.commit([2, 2**71])
    assert session.lookup() == before
    with pytest.raises(SpecbookError, match="vocab_size must be an integer"):
        Suffix().start([1], vocab_size=True)
