"""Prompt lookup: every policy against a brute-force oracle, upstream, and its cases."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbook import drafts
from specbook.contract import bind
from specbook.drafts.prompt_lookup import POLICIES, PromptLookup, prompt_lookup
from specbook.errors import SpecbookError
from tests.drafts.counting import bytecodes

# The oracles restate each rule in the most direct way, with no regard to time.


def latest(tokens: list[int], max_ngram: int, most: int, min_ngram: int) -> list[int]:
    size = len(tokens)
    for n in range(min(max_ngram, size), min_ngram - 1, -1):
        for start in range(size - 2 * n, -1, -1):
            if tokens[start : start + n] == tokens[size - n :]:
                return tokens[start + n : start + n + most]
    return []


def earliest(tokens: list[int], max_ngram: int, most: int, min_ngram: int) -> list[int]:
    size = len(tokens)
    for n in range(min(max_ngram, size - 1), min_ngram - 1, -1):
        for start in range(size - n):
            if tokens[start : start + n] == tokens[size - n :]:
                return tokens[start + n : start + n + most]
    return []


def ngram_simple(tokens: list[int], n: int, most: int, min_ngram: int) -> list[int]:
    history, pattern = tokens[:-1], tokens[len(tokens) - n :]
    if n == 0 or len(history) <= n + most + 1:
        return []
    for start in range(len(history) - n - 1, 0, -1):
        if history[start : start + n] == pattern:
            copied = history[start + n : start + n + most]
            return copied if len(copied) >= n else []
    return []


ORACLES = {
    "latest": latest,
    "transformers": earliest,
    "llama_cpp": ngram_simple,
}

texts = st.one_of(
    st.lists(st.integers(0, 1), max_size=40),
    st.lists(st.integers(0, 3), max_size=60),
    # Runs of a repeated phrase, as edited text and repetition loops have.
    st.builds(
        lambda phrase, times, tail: phrase * times + tail,
        st.lists(st.integers(0, 5), min_size=1, max_size=7),
        st.integers(1, 6),
        st.lists(st.integers(0, 5), max_size=7),
    ),
)


def test_every_policy_has_an_oracle() -> None:
    assert set(ORACLES) == set(POLICIES)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=300, deadline=None)
@given(
    tokens=texts, max_ngram=st.integers(0, 8), most=st.integers(0, 12), data=st.data()
)
def test_the_one_pass_search_equals_brute_force(
    policy: str, tokens: list[int], max_ngram: int, most: int, data: st.DataObject
) -> None:
    min_ngram = data.draw(st.integers(1, max(1, max_ngram)))
    found = prompt_lookup(tokens, max_ngram, most, policy=policy, min_ngram=min_ngram)
    wanted = ORACLES[policy](tokens, max_ngram, most, min_ngram) if most else []
    assert found == wanted


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=150, deadline=None)
@given(
    prompt=texts,
    blocks=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), max_size=12),
    max_ngram=st.integers(0, 6),
    most=st.integers(0, 8),
    data=st.data(),
)
def test_the_growing_index_equals_the_one_pass_search(
    policy: str,
    prompt: list[int],
    blocks: list[list[int]],
    max_ngram: int,
    most: int,
    data: st.DataObject,
) -> None:
    min_ngram = data.draw(st.integers(1, max(1, max_ngram)))
    source = PromptLookup(max_ngram, most, policy, min_ngram)
    session = source.start(prompt, request="r", vocab_size=8)
    tokens = list(prompt)
    for block in [[], *blocks]:
        session.commit(block)
        tokens += block
        wanted = prompt_lookup(
            tokens, max_ngram, most, policy=policy, min_ngram=min_ngram
        )
        assert session.lookup() == wanted
        proposal = session.propose(max_depth=99, max_nodes=99)
        assert [node.token_id for node in proposal.nodes] == wanted


def test_a_wrong_tie_rule_would_be_caught() -> None:
    rng = random.Random(1)
    texts = [[rng.randrange(3) for _ in range(12)] for _ in range(50)]
    for policy in POLICIES:
        for other in set(POLICIES) - {policy}:
            assert any(
                prompt_lookup(tokens, 2, 3, policy=policy)
                != ORACLES[other](tokens, 2, 3, 1)
                for tokens in texts
            )


# The public bug cases H01 and H02.


@pytest.mark.parametrize(
    ("tokens", "max_ngram", "most", "expected"),
    [
        ([3, 4, 5], 2, 4, []),
        ([9], 3, 4, []),
        ([], 3, 4, []),
        ([6, 6], 2, 3, [6]),
        ([6, 6, 6, 6, 6], 3, 4, [6, 6]),
        ([4, 5, 6, 9, 5, 7, 4, 5], 1, 3, [7, 4, 5]),
        ([4, 5, 6, 9, 5, 7, 4, 5], 2, 3, [6, 9, 5]),
        ([4, 5, 6, 9, 5, 7, 4, 5], 3, 3, [6, 9, 5]),
        ([1, 2, 9, 1, 2, 8, 1, 2], 2, 3, [8, 1, 2]),
        ([1, 2, 9, 1, 2, 8, 1, 2], 2, 0, []),
        # The article's own example: D follows the earlier A B C.
        ([10, 11, 12, 13, 10, 11, 12], 3, 1, [13]),
        ([10, 11, 12, 13, 10, 11, 12], 3, 9, [13, 10, 11, 12]),
    ],
)
def test_public_bug_cases(
    tokens: list[int], max_ngram: int, most: int, expected: list[int]
) -> None:
    assert prompt_lookup(tokens, max_ngram, most) == expected
    session = PromptLookup(max_ngram, most).start(tokens, request="r")
    assert session.lookup() == expected


@pytest.mark.parametrize(
    ("tokens", "policy", "max_ngram", "most", "expected"),
    [
        # earliest, not latest
        ([1, 2, 9, 1, 2, 8, 1, 2], "transformers", 2, 3, [9, 1, 2]),
        # the occurrence may overlap the suffix: 6 6 6 6 stands one to the left
        ([6, 6, 6, 6, 6], "transformers", 4, 4, [6]),
        ([6, 6], "transformers", 2, 3, [6]),
        # it falls back to shorter suffixes
        ([7, 3, 9, 4, 3], "transformers", 3, 2, [9, 4]),
        # last, not earliest
        ([0, 1, 2, 9, 9, 1, 2, 8, 7, 1, 2], "llama_cpp", 2, 3, [8, 7, 1]),
        # one length only: no fall-back
        ([0, 7, 3, 9, 4, 5, 6, 3], "llama_cpp", 2, 3, []),
        # position 0 means "no match"
        ([1, 2, 5, 6, 7, 8, 1, 2], "llama_cpp", 2, 3, []),
        ([0, 1, 2, 5, 6, 7, 8, 1, 2], "llama_cpp", 2, 3, [5, 6, 7]),
        # the copy stops before the last token, and one shorter than n is dropped
        ([0, 1, 2, 5, 1, 2], "llama_cpp", 2, 1, []),
        ([3, 3, 0, 9, 8, 9, 5, 9], "llama_cpp", 1, 3, [5]),
        # a prefix of n + m + 2 tokens is not searched
        ([0, 4, 5, 6, 7, 4], "llama_cpp", 1, 3, []),
        ([3, 0, 4, 5, 6, 7, 4], "llama_cpp", 1, 3, [5, 6, 7]),
    ],
)
def test_each_policy_is_pinned(
    tokens: list[int], policy: str, max_ngram: int, most: int, expected: list[int]
) -> None:
    assert prompt_lookup(tokens, max_ngram, most, policy=policy) == expected


def test_the_transformers_policy_equals_transformers() -> None:
    torch = pytest.importorskip("torch")
    generator = pytest.importorskip("transformers.generation.candidate_generator")
    rng = random.Random(7)
    for _ in range(300):
        size = rng.randint(1, 40)
        tokens = [rng.randrange(rng.choice((2, 4))) for _ in range(size)]
        max_ngram, most = rng.randint(1, 5), rng.randint(1, 12)
        upstream = generator.PromptLookupCandidateGenerator(
            num_output_tokens=most, max_matching_ngram_size=max_ngram, max_length=999
        )
        ids, _ = upstream.get_candidates(torch.tensor([tokens]))
        wanted = ids[0, size:].tolist()
        assert prompt_lookup(tokens, max_ngram, most, policy="transformers") == wanted


# Cost, counted and not timed.


def sample_text(size: int) -> list[int]:
    rng = random.Random(3)
    return [rng.randrange(50) for _ in range(size)]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_round_costs_the_same_however_long_the_prefix_is(policy: str) -> None:
    def worst_round(size: int) -> int:
        text = sample_text(size)
        session = PromptLookup(3, 10, policy, length="adaptive").start(text)

        def one_round(tokens: list[int]) -> None:
            session.propose(max_depth=10, max_nodes=10)
            session.commit(tokens)

        rng = random.Random(5)
        rounds = [[rng.randrange(50) for _ in range(4)] for _ in range(30)]
        # Copies of the text itself too, so that hits are among the rounds.
        rounds += [text[i : i + 4] for i in range(0, 60, 4)]
        return max(bytecodes(lambda block=block: one_round(block)) for block in rounds)

    # Rounds differ a little with what they find; 64 times the prefix must not show.
    assert worst_round(64_000) < 1.2 * worst_round(1_000)


def test_a_search_from_scratch_would_be_caught() -> None:
    short, long = (
        bytecodes(lambda size=size: prompt_lookup(sample_text(size), 3, 10))
        for size in (250, 4_000)
    )
    assert long > 10 * short


@pytest.mark.parametrize("kind", ["one token", "two halves", "random"])
def test_the_search_is_linear_in_the_prefix_and_blind_to_max_ngram(kind: str) -> None:
    def text(size: int) -> list[int]:
        return {
            "one token": [1] * size,
            "two halves": [1] * (size // 2) + [2] + [1] * (size // 2 - 1),
            "random": sample_text(size),
        }[kind]

    def cost(size: int, max_ngram: int) -> int:
        tokens = text(size)
        return bytecodes(lambda: prompt_lookup(tokens, max_ngram, 10))

    assert cost(2_000, 1_000) < 1.1 * cost(2_000, 2)
    assert cost(2_000, 1_000) < 4.4 * cost(500, 250)


# The proposal.


def test_the_proposal_says_what_it_is() -> None:
    source = drafts.get("prompt_lookup")(max_ngram=2, max_candidates=3)
    session = source.start([1, 2, 9, 1, 2], request="r7", manifest_hash="m")
    proposal = session.propose(max_depth=5, max_nodes=2)
    assert [(n.token_id, n.parent, n.depth) for n in proposal.nodes] == [
        (9, -1, 1),
        (1, 0, 2),
    ]
    assert {n.q for n in proposal.nodes} == {None}
    assert {n.score for n in proposal.nodes} == {2}
    assert {(n.source, n.origin_request) for n in proposal.nodes} == {
        ("prompt_lookup", "r7")
    }
    assert proposal.probability_semantics == source.contract.probability_semantics
    assert proposal.state_handle.generation == 0
    assert proposal.manifest_hash == "m"
    assert source.contract.cost_term == "retrieval"
    bind(proposal, "membership")
    bind(proposal, "greedy")
    session.commit([9])
    assert session.propose(max_depth=1, max_nodes=9).state_handle.generation == 1


@pytest.mark.parametrize(("depth", "nodes"), [(0, 9), (9, 0)])
def test_no_room_is_a_miss(depth: int, nodes: int) -> None:
    session = PromptLookup().start([1, 2, 1])
    assert session.propose(max_depth=depth, max_nodes=nodes).nodes == ()


def test_sessions_share_nothing() -> None:
    source = PromptLookup(2, 3)
    first, second = source.start([1, 2, 1]), source.start([5, 6, 5])
    first.commit([2, 8])
    assert second.lookup() == [6, 5]
    assert first.lookup() == prompt_lookup([1, 2, 1, 2, 8], 2, 3)


def test_the_registry_lists_and_refuses() -> None:
    assert "prompt_lookup" in drafts.names()
    with pytest.raises(ValueError, match="no draft source is called 'lookup'.*prompt_"):
        drafts.get("lookup")


# Bad input.


@pytest.mark.parametrize("value", [-1, 1.0, True, "2", None])
@pytest.mark.parametrize("name", ["max_ngram", "max_candidates"])
def test_bad_limits_are_refused(name: str, value: object) -> None:
    limits = {"max_ngram": 2, "max_candidates": 2, name: value}
    with pytest.raises(SpecbookError, match=name):
        prompt_lookup([1, 2, 1], **limits)
    with pytest.raises(SpecbookError, match=name):
        PromptLookup(**limits)


@pytest.mark.parametrize(
    "tokens", [[1, -2], [1, 2.0], [True, 1], "121", 7, None, [[1], [2]], [1, None]]
)
def test_bad_tokens_are_refused(tokens: object) -> None:
    with pytest.raises(SpecbookError, match="tokens"):
        prompt_lookup(tokens, 2, 2)
    with pytest.raises(SpecbookError, match="prefix"):
        PromptLookup().start(tokens)
    with pytest.raises(SpecbookError, match="tokens"):
        PromptLookup().start([1]).commit(tokens)


def test_other_bad_options_are_refused() -> None:
    with pytest.raises(SpecbookError, match="policy must be one of"):
        prompt_lookup([1], 2, 2, policy="oldest")
    with pytest.raises(SpecbookError, match="min_ngram 3 is above"):
        prompt_lookup([1], 2, 2, min_ngram=3)
    with pytest.raises(SpecbookError, match="min_ngram"):
        PromptLookup(min_ngram=0)
    with pytest.raises(SpecbookError, match="length must be one of"):
        PromptLookup(length="long")
    with pytest.raises(SpecbookError, match=r"prefix\[1\] = 8 is outside 0 .. 7"):
        PromptLookup().start([1, 8], vocab_size=8)
    session = PromptLookup().start([1, 2], vocab_size=8)
    with pytest.raises(SpecbookError, match=r"tokens\[0\] = 9"):
        session.commit([9])
    with pytest.raises(SpecbookError, match="max_depth"):
        session.propose(max_depth=-1, max_nodes=1)


def test_numpy_ids_are_ids() -> None:
    numpy = pytest.importorskip("numpy")
    assert prompt_lookup(numpy.array([1, 2, 1]), 2, 2) == [2, 1]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_limit_beyond_the_text_costs_nothing(policy: str) -> None:
    """A suffix cannot be longer than the text, whatever is allowed."""
    text = sample_text(40)

    def cost(max_ngram: int) -> int:
        source = PromptLookup(max_ngram, 10, policy)
        return bytecodes(lambda: source.start(text).propose(max_depth=9, max_nodes=9))

    assert cost(40_000) < 2 * cost(4_000)
    beyond = 2**70  # nothing of this size can be allocated, or counted to
    found = PromptLookup(beyond, beyond, policy).start([1, 2, 1, 2]).lookup()
    assert found == prompt_lookup([1, 2, 1, 2], beyond, beyond, policy=policy)
