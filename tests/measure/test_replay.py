"""Replay: its rounds are the engine's own, and it counts them right."""

from __future__ import annotations

import math
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbook.contract import Selection, Verifier
from specbook.drafts.prompt_lookup import POLICIES, PromptLookup
from specbook.engine import generate
from specbook.errors import (
    ContractError,
    ProposalError,
    SpecbookError,
    TargetError,
    TreeError,
)
from specbook.measure import replay
from specbook.measure.recording import RecordedOutput, Recording
from specbook.measure.replay import (
    VERIFIER,
    RecordedTarget,
    Replay,
    ReplayedPrompt,
    decode_again,
)
from specbook.models import TableTarget
from specbook.policy import SamplingPolicy
from specbook.tree import CandidateTree
from tests.core.helpers import must_fail, named
from tests.core.helpers.laws import tables
from tests.core.helpers.sources import FixedSource


def recording_of(target, prompt, found, cap, ends=(), temperature=0.0):
    """The recording of a decode that was run to `cap` tokens."""
    output = RecordedOutput(tuple(prompt), tuple(found.tokens), found.stop_reason)
    return Recording(
        (output,),
        target.vocab_size,
        tuple(ends),
        max_new_tokens=cap,
        context_limit=target.context_limit,
        temperature=temperature,
    )


def told(found):
    """What must be equal, round for round. Rows that were selected behind an end token
    are no part of it: nothing of them is published."""
    return [
        (r.tree.token_ids, r.tree.parents, r.committed, r.accepted, r.ending)
        for r in found.rounds
    ]


def check_same_rounds(real, again):
    assert (again.tokens, again.stop_reason) == (real.tokens, real.stop_reason)
    assert told(again) == told(real)


LOOKUPS = [
    *(PromptLookup(2, 3, policy) for policy in POLICIES),
    PromptLookup(3, 8, length="adaptive", cost=((1, 1.0), (16, 2.0))),
]


@settings(max_examples=150, deadline=None)
@given(
    table=tables(),
    prompt=st.lists(st.integers(0, 1), min_size=1, max_size=12),
    source=st.sampled_from(LOOKUPS),
    temperature=st.sampled_from([0.0, 0.7, 1.0]),
    cap=st.integers(1, 30),
    limit=st.one_of(st.none(), st.integers(13, 30)),
    ends=st.sampled_from([(), (0,), (1,)]),
    seed=st.integers(0, 5),
)
def test_the_rounds_are_those_of_the_decode(
    table, prompt, source, temperature, cap, limit, ends, seed
):
    vocab, law = table
    target = TableTarget(law, vocab_size=vocab, context_limit=limit)
    rule = "greedy" if temperature == 0 else "membership"
    real = generate(
        target,
        prompt,
        source,
        rule,
        max_new_tokens=cap,
        temperature=temperature,
        seed=seed,
        eos_token_id=ends,
    )
    recorded = recording_of(target, prompt, real, cap, ends, temperature)
    again = decode_again(source, recorded.outputs[0], recorded)
    check_same_rounds(real, again)
    counted = replay(source, recorded)
    assert counted.rounds == len(real.rounds)
    assert counted.tokens == len(real.tokens)
    assert counted.nodes == sum(len(r.tree) for r in real.rounds)
    assert counted.accepted == sum(r.accepted for r in real.rounds)
    check_counts(counted, real)


def check_counts(counted, real):
    """A round whose candidates were all refused made some too."""
    assert counted.made == sum(len(r.tree) > 0 for r in real.rounds)
    assert counted.missed == sum(len(r.tree) == 0 for r in real.rounds)
    for depth, (drafted, accepted) in enumerate(
        zip(counted.drafted_by_depth, counted.accepted_by_depth, strict=True), start=1
    ):
        assert drafted == sum(r.tree.depths.count(depth) for r in real.rounds)
        assert accepted == sum(r.accepted >= depth for r in real.rounds)
    (sizes,) = [prompt.rounds_by_nodes for prompt in counted.prompts]
    assert sum(sizes) == len(real.rounds)
    assert sum(n * count for n, count in enumerate(sizes)) == counted.nodes


def ten(prefix):
    """A target over 10 tokens that mostly goes on in a circle, and sometimes not."""
    law = np.full(10, 0.02)
    law[(prefix[-1] + 1) % 5] += 0.8
    return law


def trees(prefix, chance):
    """Paths with siblings, one of which often goes on right; deeper than any room."""
    right = [(prefix[-1] + 1 + i) % 5 for i in range(5)]
    return [[9], right, [*right[:2], 7], [8, 8]]


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_trees_and_merged_sources_too(temperature):
    sources = [FixedSource(trees), PromptLookup(2, 4)]
    target = TableTarget(ten, vocab_size=10)
    real = generate(
        target,
        [0, 1, 2],
        sources,
        "greedy" if temperature == 0 else "membership",
        max_new_tokens=60,
        temperature=temperature,
        max_nodes=9,
        max_depth=4,
    )
    recorded = recording_of(target, [0, 1, 2], real, 60, (), temperature)
    limits = {"max_nodes": 9, "max_depth": 4}
    again = decode_again(sources, recorded.outputs[0], recorded, **limits)
    check_same_rounds(real, again)
    counted = replay(sources, recorded, **limits)
    if temperature:
        assert any(len(r.tree) and not r.accepted for r in real.rounds)
    check_counts(counted, real)
    # Planted: another budget, and another source, make other rounds.
    other = decode_again(sources, recorded.outputs[0], recorded, max_nodes=2)
    must_fail(check_same_rounds, real, other)
    other = decode_again(sources[1], recorded.outputs[0], recorded, **limits)
    must_fail(check_same_rounds, real, other)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("length", ["fixed", "adaptive"])
def test_a_real_model_takes_the_same_rounds(temperature, length):
    pytest.importorskip("torch")
    from specbook.models import TransformersTarget, tiny_llama

    target = TransformersTarget(tiny_llama(num_layers=1, vocab_size=16))
    prompt = [1, 2, 3, 4] * 8
    source = PromptLookup(2, 6, length=length)
    accepted = 0
    for seed in range(3):
        real = generate(
            target,
            prompt,
            source,
            "greedy" if temperature == 0 else "membership",
            max_new_tokens=64,
            temperature=temperature,
            seed=seed,
            eos_token_id=5,
        )
        recorded = recording_of(target, prompt, real, 64, [5], temperature)
        check_same_rounds(real, decode_again(source, recorded.outputs[0], recorded))
        accepted += sum(r.accepted for r in real.rounds)
    assert accepted > 0


# -------------------------------------------------------------------------- by hand


def test_counts_by_hand():
    # Prompt 1 2 3 1: the lookup finds 1 and copies 2 3 1. The answer 2 3 9 2 4:
    #   round 1 drafts 2 3 1, publishes 2 3 and the correction 9    (3 tokens)
    #   round 2 looks 9 up, 9 is new: nothing                       (2)
    #   round 3 has room for one token only, so nothing is asked    (4)
    found = replay(PromptLookup(1, 3), [([1, 2, 3, 1], [2, 3, 9, 2, 4])])
    assert (found.tokens, found.rounds, found.made, found.missed) == (5, 3, 1, 2)
    assert (found.nodes, found.accepted) == (3, 2)
    assert found.prompts[0].rounds_by_nodes == (2, 0, 0, 1)
    assert found.drafted_by_depth == (1, 1, 1)
    assert found.accepted_by_depth == (1, 1, 0)
    assert Fraction(found.tokens, found.rounds) == Fraction(5, 3)
    assert found.tokens_per_round == 5 / 3
    assert found.loop_share == 0 and found.prompts[0].stop_reason == "length"


def test_a_deeper_answer_and_an_end_token_by_hand():
    # An end token in an accepted block ends the output there; candidates behind it
    # were drafted, and are no part of what was accepted.
    pairs = [([5, 6, 0, 7, 5, 6], [0])]
    recorded = Recording.of(pairs, eos_token_id=0)
    assert recorded.outputs[0].stop_reason == "eos"
    capped = Recording(recorded.outputs, recorded.vocab_size, (0,), max_new_tokens=9)
    found = replay(PromptLookup(2, 3), capped)
    assert (found.tokens, found.rounds, found.nodes, found.accepted) == (1, 1, 3, 1)
    assert found.accepted_by_depth == (1, 0, 0)
    assert found.prompts[0].stop_reason == "eos"
    # Without a cap the output is cut where it ends: its last token has no room for a
    # candidate.
    assert replay(PromptLookup(2, 3), recorded).nodes == 0


def test_loops_are_counted():
    found = replay(PromptLookup(2, 8), [([1, 2], [3] * 20), ([1, 2], [4, 5])])
    assert found.loop_share == 20 / 22
    assert len(found.select(without_loops=True).prompts) == 1


# ------------------------------------------------------------- bounds and refusals


class Peek(FixedSource):
    """A source with a planted fault: it was given what is to be said."""

    def __init__(self, output, depth):
        known = [*output.prompt_ids, *output.tokens]
        super().__init__(lambda prefix, chance: [known[len(prefix) :][:depth]])


@pytest.mark.parametrize("depth", [1, 3, 7])
def test_a_source_that_peeks_is_not_stopped_and_shows_the_bound(depth):
    tokens = [(7 * i) % 31 for i in range(40)]
    recorded = Recording.of([([1, 2, 3], tokens)])
    output = recorded.outputs[0]
    found = replay(Peek(output, depth), recorded)
    assert found.rounds == math.ceil(40 / (depth + 1))
    for source in (PromptLookup(3, depth), None):
        assert replay(source, recorded).rounds > found.rounds
    # No source of that depth can beat it, and every accepted candidate was drafted.
    assert found.accepted == found.nodes


def test_plain_decoding_takes_one_round_a_token():
    found = replay(None, [([1], [2, 3, 4]), ([5], [6])])
    assert (found.rounds, found.tokens, found.made) == (4, 4, 0)
    assert found.tokens_per_round == 1


def test_a_source_with_q_is_refused_by_name():
    source = FixedSource(
        [[1]], name="sampler", semantics="normalized_conditional", relation="iid"
    )
    with pytest.raises(ContractError, match=r"'replay' refuses.*sampler.*probability"):
        replay(source, [([1], [2])])
    with pytest.raises(ContractError, match="sampler"):
        replay([PromptLookup(), source], [([1], [2])])
    # Frequencies and scores are not q.
    for semantics in ("absent", "frequency", "score_only"):
        replay(FixedSource([[1]], semantics=semantics), [([1], [2])])


class Feature(FixedSource):
    """A source that reads the target's hidden states, as the neural ones do."""

    def check_target(self, target):
        target.hidden_states  # noqa: B018


class Bound(FixedSource):
    """A source that was built for one tokenizer."""

    def check_target(self, target):
        if target.identity()["tokenizer"] != "ids 0..2":
            raise ContractError("built with another tokenizer")


def test_a_source_that_needs_a_targets_state_is_refused_by_name():
    with pytest.raises(ContractError, match="'feature' cannot be replayed.*hidden"):
        replay(Feature([[1]], name="feature"), [([1], [2])])
    assert replay(Bound([[1]]), [([1], [2])]).rounds == 1
    with pytest.raises(ContractError, match="'fixed' cannot be replayed.*tokenizer"):
        replay([None, Bound([[1]])], [([1], [3])])


class Told(FixedSource):
    """A source that writes down which policy it is told."""

    def start(self, prefix, *, policy, **options):
        self.told = policy
        return super().start(prefix, policy=policy, **options)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_source_is_told_the_recorded_policy(temperature):
    source = Told([[1]])
    pairs = [([1], [1, 2])]
    found = replay(source, Recording.of(pairs, temperature=temperature))
    assert source.told == SamplingPolicy(temperature) and found.accepted == 1


def test_it_knows_nothing_off_the_recorded_path():
    recorded = Recording.of([([1, 2], [3, 4, 5])])
    target = RecordedTarget(recorded.outputs[0], recorded)
    with pytest.raises(TargetError, match="not the prompt"):
        target.start([1, 3])
    session = target.start([1, 2])
    rows = session.verify(CandidateTree.from_paths([[3, 4], [0]], 2))
    policy = SamplingPolicy(1.0)
    assert [int(np.argmax(rows.law(row, policy))) for row in (-1, 0, 2)] == [3, 4, 5]
    law = rows.law(-1, policy)
    assert law.shape == (6,) and law.sum() == 1 and not law.flags.writeable
    with pytest.raises(TargetError, match="does not say what follows"):
        rows.law(1, policy)
    for row in (-2, 3, 0.5, True):
        with pytest.raises(SpecbookError, match="row must be"):
            rows.law(row, policy)
    session.commit([0], 4)
    with pytest.raises(SpecbookError, match="without a verify"):
        session.commit([], 5)
    assert session.tokens == [1, 2, 3, 4] and session.generation == 1


def first_child(tree, law, chance):
    """A planted fault: it takes the first candidate, whatever the target says."""
    rows, row = [], -1
    while children := tree.children(row):
        row = children[0]
        rows.append(row)
    return Selection(tuple(rows), int(np.argmax(law(row))))


def test_a_rule_that_leaves_the_path_is_caught():
    recorded = Recording.of([([1, 2, 3, 1], [2, 4, 4])])
    target = RecordedTarget(recorded.outputs[0], recorded)
    rule = Verifier(VERIFIER.contract, first_child)
    with pytest.raises(TargetError, match="does not say"):
        generate(target, [1, 2, 3, 1], PromptLookup(1, 2), rule, max_new_tokens=3)


def test_ids_beyond_the_vocabulary_are_refused():
    # What the source proposes, too: without a vocabulary it ends at the largest id.
    source = FixedSource([[50]])
    with pytest.raises(TreeError, match="50"):
        replay(source, [([1], [2, 3])])
    wide = Recording.of([([1], [2, 3])], vocab_size=51)
    assert replay(source, wide).rounds == 2
    with pytest.raises(SpecbookError, match="outside 0 .. 2"):
        Recording.of([([1], [2, 3])], vocab_size=3)


@pytest.mark.parametrize(
    ("recorded", "message"),
    [
        ([], "nothing is recorded"),
        (None, "pairs"),
        ("text", "pairs"),
        ([5, 6, 7], r"recorded\[0\] must be a pair"),
        ([([1], [2], [3])], r"recorded\[0\] must be a pair"),
        ([([1], [2]), "ab"], r"recorded\[1\] must be a pair"),
        ([([], [2])], "prompt_ids is empty"),
        ([([1], [])], "tokens is empty"),
        ([([1], [True])], r"output ids\[0\]"),
        ([([1], [2.0])], r"output ids\[0\]"),
        ([([1], [-2])], r"output ids\[0\]"),
        ([([None], [2])], r"prompt ids\[0\]"),
        ([([float("nan")], [2])], r"prompt ids\[0\]"),
    ],
    ids=str,
)
def test_bad_recordings_are_named(recorded, message):
    with pytest.raises(SpecbookError, match=message):
        replay("prompt_lookup", recorded)


def test_numpy_ids_and_generators_are_read():
    plain = replay(PromptLookup(1, 3), [([1, 2, 3, 1], [2, 3, 9])])
    pairs = (
        (np.array(a, dtype=np.int32), np.array(b))
        for a, b in [([1, 2, 3, 1], [2, 3, 9])]
    )
    assert replay(PromptLookup(1, 3), pairs) == plain


@pytest.mark.parametrize(
    "source", [5, PromptLookup, "no such source", object()], ids=named
)
def test_what_is_no_source_is_refused(source):
    with pytest.raises(SpecbookError):
        replay(source, [([1], [2])])


@pytest.mark.parametrize("option", ["seed", "max_nodes", "max_depth"])
@pytest.mark.parametrize("value", [-1, True, 1.5, None])
def test_bad_options_are_named(option, value):
    with pytest.raises(SpecbookError, match=option):
        replay(None, [([1], [2])], **{option: value})


# ---------------------------------------------------------------------- the report


def prompt(name, workload, tokens, rounds, loops=0):
    return ReplayedPrompt(
        name,
        workload,
        tokens,
        rounds,
        made=rounds - 1,
        nodes=7,
        rounds_by_nodes=(1, rounds - 1),
        drafted_by_depth=(4, 3),
        accepted_by_depth=(2, 1),
        loop_tokens=loops,
        stop_reason="length",
    )


MADE_UP = Replay(
    (
        prompt("a", "chat", 10, 10),
        prompt("b", "chat", 30, 20),
        prompt("c", "edit_code", 20, 5, loops=18),
    )
)


def test_ratios_are_sums_over_sums():
    chat = MADE_UP.select("chat")
    assert chat.tokens_per_round == 40 / 30
    value, low, high = chat.interval()
    # A mean of the two ratios would be 1.25. Resampled, the extremes are one prompt.
    assert (value, low, high) == (40 / 30, 1.0, 1.5)
    rows = {row["workload"]: row for row in MADE_UP.rows()}
    assert list(rows) == ["chat", "edit_code", "all"]
    assert rows["edit_code"]["tokens_per_round"] == 4
    assert rows["edit_code"]["interval"] is None, "one prompt has no interval"
    assert rows["all"]["tokens"] == 60 and rows["all"]["missed"] == 3
    assert rows["all"]["accepted"] == 9 and rows["all"]["loop_share"] == 18 / 60
    assert MADE_UP.accepted_by_depth == (6, 3)


def test_sources_are_compared_prompt_by_prompt():
    halved = Replay(
        tuple(
            prompt(p.prompt_id, p.workload, p.tokens, 2 * p.rounds)
            for p in MADE_UP.prompts
        )
    )
    # Each prompt took twice as many rounds, so there is no spread at all.
    assert MADE_UP.fewer_rounds(halved) == (2.0, 2.0, 2.0)
    assert halved.fewer_rounds(MADE_UP) == (0.5, 0.5, 0.5)
    with pytest.raises(SpecbookError, match="different outputs"):
        MADE_UP.fewer_rounds(MADE_UP.select("chat"))
    with pytest.raises(SpecbookError, match="not a Replay"):
        MADE_UP.fewer_rounds(None)


def test_rounds_are_priced_by_their_rows():
    free, steep = ((1, 2), (9, 2)), ((1, 1), (2, 3), (3, 3))
    # Free rows: tokens a round. Otherwise t(1) for a round without candidates, of
    # which each prompt has one, and t(2) for the others.
    assert MADE_UP.speedup(free) == MADE_UP.interval()
    assert MADE_UP.speedup(steep)[0] == 60 / (3 * 1 + 32 * 3)
    plain = replay(None, [([1], [2, 3, 4]), ([5], [6])])
    assert plain.speedup() == plain.speedup(steep) == (1, 1, 1)
    with pytest.raises(SpecbookError, match="cost"):
        MADE_UP.speedup(((2, 1.0), (3, 1.0)))


def test_an_empty_selection_is_refused():
    with pytest.raises(SpecbookError, match="nothing was replayed for 'poems'"):
        MADE_UP.select("poems")
    with pytest.raises(SpecbookError, match="has a loop"):
        MADE_UP.select("edit_code", without_loops=True)
    assert MADE_UP.select("chat", without_loops=True).tokens == 40


def test_it_runs_without_torch():
    code = (
        "import sys; sys.modules['torch'] = sys.modules['transformers'] = None\n"
        "from specbook.measure import replay\n"
        "print(replay('prompt_lookup', [([1, 2, 3, 1], [2, 3, 9])]).rounds)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert ran.stdout == "1\n", ran.stderr


def test_a_source_that_breaks_its_word_is_stopped_as_in_the_engine():
    with pytest.raises(ProposalError, match="depth 3, the limit is 1"):
        replay(FixedSource([[1, 2, 3]], overrun=(2, 2)), [([1], [2, 3])])
    with pytest.raises(ProposalError, match="generation is 9"):
        replay(FixedSource([[1]], lie={"generation": 9}), [([1], [2, 3])])
