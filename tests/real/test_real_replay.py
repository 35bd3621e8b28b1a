"""The real target: a replay takes the rounds of the decode, and the shipped recording
is what the target says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from specbook import prompts
from specbook.drafts.prompt_lookup import PromptLookup
from specbook.engine import generate
from specbook.measure import recording
from specbook.measure.recording import RecordedOutput
from specbook.measure.replay import decode_again
from specbook.models import load_target
from specbook.policy import SamplingPolicy
from specbook.tree import CandidateTree

pytestmark = [pytest.mark.real, pytest.mark.slow]

PROMPT = "edit-01"
SOURCES = {"fixed": PromptLookup(), "adaptive": PromptLookup.tuned()}
NEAR_TIE = 1e-3
NEW_TOKENS = 64


@pytest.fixture(scope="module")
def target():
    return load_target()


def told(found):
    return [
        (r.tree.token_ids, r.tree.parents, r.committed, r.accepted, r.ending)
        for r in found.rounds
    ]


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("length", SOURCES)
def test_a_replay_takes_the_rounds_of_the_decode(target, temperature, length):
    recorded = recording.load(temperature, target=target)
    kept = next(o for o in recorded.outputs if o.prompt_id == PROMPT)
    real = generate(
        target,
        kept.prompt_ids,
        SOURCES[length],
        "membership" if temperature else "greedy",
        max_new_tokens=NEW_TOKENS,
        temperature=temperature,
        seed=kept.seed or 0,
        eos_token_id=target.eos_token_id,
    )
    said = RecordedOutput(kept.prompt_ids, tuple(real.tokens), real.stop_reason)
    cut = replace(recorded, outputs=(said,), max_new_tokens=NEW_TOKENS)
    again = decode_again(SOURCES[length], said, cut)
    assert (again.tokens, again.stop_reason) == (real.tokens, real.stop_reason)
    assert told(again) == told(real)
    assert sum(r.accepted for r in real.rounds) > 10
    # The two sources do not take the same rounds, so equality is no accident.
    other = SOURCES["fixed" if length == "adaptive" else "adaptive"]
    assert told(decode_again(other, said, cut)) != told(real)


def explained(target, output, place, token, policy):
    """Whether rounding explains that `token` was said at `place` and not what was
    recorded: greedy, if the two logits are all but equal; sampled, if the random point
    fell all but on the shares of both tokens, laid end to end by id."""
    prefix = [*output.prompt_ids, *output.tokens[:place]]
    session = target.start(prefix)
    rows = session.verify(CandidateTree.from_paths([], len(prefix)))
    if policy.greedy:
        logits = rows.logits(-1)
        return abs(logits[token] - logits[output.tokens[place]]) < NEAR_TIE
    point = np.random.default_rng(output.seed).random(place + 1)[place]
    law = rows.law(-1, policy)
    ends = np.cumsum(law)
    return all(
        ends[t] - law[t] - NEAR_TIE < point < ends[t] + NEAR_TIE
        for t in (token, output.tokens[place])
    )


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_the_shipped_recording_is_what_the_target_says(target, temperature):
    recorded = recording.load(temperature, target=target)
    kept = next(o for o in recorded.outputs if o.prompt_id == PROMPT)
    prompt = next(p for p in prompts.load() if p.id == PROMPT)
    assert target.encode_chat(prompt.messages) == list(kept.prompt_ids)
    plain = generate(
        target,
        kept.prompt_ids,
        None,
        "membership" if temperature else "greedy",
        max_new_tokens=NEW_TOKENS,
        temperature=temperature,
        seed=kept.seed or 0,
        eos_token_id=target.eos_token_id,
    ).tokens
    pairs = list(zip(plain, kept.tokens, strict=False))
    place = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
    if place is not None:
        policy = SamplingPolicy(temperature)
        assert explained(target, kept, place, plain[place], policy)
    # Another machine may part ways early, but not at once.
    assert place is None or place > 0
