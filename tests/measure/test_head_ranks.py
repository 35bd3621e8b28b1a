"""Ranks along an answer stand for decoding: the same rounds, slots and agreement."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from specbook import drafts
from specbook.engine import generate
from specbook.errors import ArtifactError, SpecbookError
from specbook.measure import head_ranks as module
from specbook.measure.acceptance import calibration_shape, count
from specbook.measure.head_ranks import (
    RankedAnswer,
    accepted,
    agreement,
    plain_answers,
    play,
    rank_answers,
    tokens_per_round,
)
from specbook.measure.recording import RecordedOutput
from specbook.models.heads import KINDS
from specbook.models.lean import LeanTarget
from specbook.models.target import TransformersTarget
from specbook.models.tiny import tiny_llama, tiny_model
from specbook.topologies import cartesian, chain
from specbook.topologies.progress import shape_of
from specbook.training.decoding import TaughtSequence
from specbook.training.heads import Teacher
from specbook.training.heads_agreement import heads_agreement
from tests.heads.making import shaken

SHAPES = {
    "chain": chain(3),
    "wide": cartesian([4, 2]),
    # Child 1 of the root goes deeper than child 0.
    "ragged": shape_of([-1, -1, -1, 1, 1, 4, 5], [0, 1, 2, 0, 1, 0, 0]),
}
PROMPTS = [("chat", "a", [3, 7, 1]), ("code", "b", [9]), ("code", "c", [4, 4, 60, 2])]


SMALL: dict[str, Any] = {"hidden_size": 12, "num_heads": 2, "num_kv_heads": 1}


def lean(**changes: Any) -> LeanTarget:
    return LeanTarget(tiny_llama(**SMALL, **changes))


def source(kind: str, **options: Any) -> Any:
    """Heads that are right now and then: near what the target's own head says."""
    made = shaken(kind)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter *= 0.2
    return drafts.get(kind)(made.float(), children="top_k", **options)


@pytest.fixture(scope="module")
def repeating() -> tuple[LeanTarget, list[RecordedOutput]]:
    """A tiny target and its answers, which soon repeat themselves: heads are right now
    and then."""
    target = lean()
    return target, plain_answers(target, PROMPTS, 24)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_rounds_are_those_of_decoding(
    kind: str, name: str, repeating: tuple[LeanTarget, list[RecordedOutput]]
) -> None:
    target, answers = repeating
    shape = SHAPES[name]
    made = source(kind, shape=shape)
    ranked = rank_answers(target, made, answers)
    hits = 0
    for answer, one in zip(answers, ranked, strict=True):
        played = play(one, shape)
        decoded = generate(target, answer.prompt_ids, made, "greedy", max_new_tokens=24)
        assert tuple(decoded.tokens) == answer.tokens
        assert (played.tokens, played.rounds) == (24, len(decoded.rounds))
        assert (played.workload, played.prompt) == (answer.workload, answer.prompt_id)
        depths, slots = shape.max_depth, len(played.tried[0])
        tried, selected = count(decoded.rounds, depths=depths, slots=slots)
        assert np.array_equal(played.tried, tried)
        assert np.array_equal(played.selected, selected)
        hits += int(selected.sum())
    assert hits > 3, "nothing was accepted: the rounds say little"


@pytest.mark.parametrize("kind", KINDS)
def test_the_rounds_stop_where_an_end_token_stops_them(
    kind: str, repeating: tuple[LeanTarget, list[RecordedOutput]]
) -> None:
    target, answers = repeating
    shape = SHAPES["wide"]
    made = source(kind, shape=shape)
    stopped = 0
    for answer in answers:
        end = answer.tokens[13]
        decoded = generate(
            target,
            answer.prompt_ids,
            made,
            "greedy",
            max_new_tokens=24,
            eos_token_id=end,
        )
        cut = dataclasses.replace(
            answer, tokens=tuple(decoded.tokens), stop_reason=decoded.stop_reason
        )
        (one,) = rank_answers(target, made, [cut])
        stopped += one.ended
        assert play(one, shape).rounds == len(decoded.rounds)
    assert stopped == len(answers)


@pytest.mark.parametrize("kind", KINDS)
def test_an_end_token_that_is_the_last_allowed_is_no_candidate(
    kind: str, repeating: tuple[LeanTarget, list[RecordedOutput]]
) -> None:
    target, answers = repeating
    shape = SHAPES["wide"]
    made = source(kind, shape=shape)
    more = 0
    for answer in answers:
        end = answer.tokens[13]
        first = answer.tokens.index(end) + 1
        decoded = generate(
            target,
            answer.prompt_ids,
            made,
            "greedy",
            max_new_tokens=first,
            eos_token_id=end,
        )
        cut = dataclasses.replace(
            answer, tokens=tuple(decoded.tokens), stop_reason=decoded.stop_reason
        )
        assert cut.stop_reason == "eos"
        (one,) = rank_answers(target, made, [cut], max_new_tokens=first)
        (free,) = rank_answers(target, made, [cut])
        played = play(one, shape)
        assert played.rounds == len(decoded.rounds)
        slots = len(played.tried[0])
        tried, selected = count(decoded.rounds, depths=shape.max_depth, slots=slots)
        assert np.array_equal(played.tried, tried)
        assert np.array_equal(played.selected, selected)
        more += int(np.sum(play(free, shape).tried)) - int(np.sum(tried))
    assert more > 0, "the limit made no difference: the rounds say little"


@pytest.mark.parametrize("vocabulary", [None, range(0, 64, 3)], ids=["whole", "cut"])
@pytest.mark.parametrize("kind", KINDS)
def test_agreement_is_that_of_the_training_code(kind: str, vocabulary: Any) -> None:
    """Another target class, another forward, other code around the heads."""
    model = tiny_model("qwen3", hidden_size=12)
    target = TransformersTarget(model)
    answers = plain_answers(target, PROMPTS, 20)
    made = source(kind, vocabulary=vocabulary)
    found = agreement(rank_answers(target, made, answers))
    taught = [
        TaughtSequence(
            np.array([*a.prompt_ids, *a.tokens]),
            len(a.prompt_ids) - 1,
            len(a.prompt_ids),
            np.array(a.tokens)[:, None],
            np.zeros((len(a.tokens), 1), dtype=np.float32),
        )
        for a in answers
    ]
    ids = None if vocabulary is None else torch.tensor(list(vocabulary))
    wanted = heads_agreement(made.heads, Teacher(model, ids), taught)
    assert found["forced"] == wanted["forced"] and found["chain"] == wanted["chain"]
    assert [n for n, _ in found["forced"]] != [0] * 4
    assert [tried for _, tried in found["forced"]] == [3 * 19, 3 * 18, 3 * 17, 3 * 16]
    for mine, theirs in zip(found["calibration"], wanted["calibration"], strict=True):
        assert [n for n, *_ in mine] == [n for n, *_ in theirs]
        for one, other in zip(mine, theirs, strict=True):
            assert one[1:] == pytest.approx(other[1:], abs=1e-5)


def test_the_profile_is_that_of_decoding_with_a_calibration_shape(
    repeating: tuple[LeanTarget, list[RecordedOutput]],
) -> None:
    target, answers = repeating
    shape = calibration_shape(3, 4)
    made = source("hydra", shape=shape)
    profile = accepted(
        target, made, rank_answers(target, made, answers), slots=3, about_machine={}
    )
    assert profile.settings["target"] == target.identity()["checkpoint"]
    assert profile.workloads() == ["chat", "code"]
    for prompt, answer in zip(profile.prompts, answers, strict=True):
        decoded = generate(target, answer.prompt_ids, made, max_new_tokens=24)
        tried, selected = count(decoded.rounds, depths=4, slots=3)
        assert np.array_equal(prompt.tried, tried)
        assert np.array_equal(prompt.selected, selected)
    # With a planned tree what was planned is what is played.
    ratio = tokens_per_round(rank_answers(target, made, answers), shape)
    assert ratio.value == profile.tokens_per_round and ratio.prompts == 3


def by_hand(ranks: Any, *, ended: bool = False) -> RankedAnswer:
    ranks = np.array(ranks)
    return RankedAnswer("chat", "a", ranks, np.zeros(ranks.shape), ended)


def test_rounds_by_hand() -> None:
    """Six tokens, two heads. From token 0: both right, so tokens 1, 2 and 3 come in
    one round; from token 3 the second child at depth 1, then no room for another."""
    ranks = [[0, 0], [9, 9], [9, 9], [1, 0], [0, -1], [-1, -1]]
    pair = cartesian([2, 1])
    one = play(by_hand(ranks), pair)
    assert (one.tokens, one.rounds) == (6, 3)
    assert one.tried == ((2, 1), (1, 0)) and one.selected == ((1, 1), (1, 0))
    # A chain refuses rank 1, and token 4 is the correction; then one round more.
    alone = play(by_hand(ranks), chain(2))
    assert (alone.rounds, alone.tried) == (4, ((2,), (1,)))
    # Before an end token the source does not know that the answer ends.
    end = play(by_hand(ranks, ended=True), pair)
    assert end.rounds == 3 and end.selected == ((1, 1), (2, 0))
    assert play(by_hand([[-1, -1]]), pair).rounds == 1


def test_ranks_by_hand() -> None:
    logits = torch.tensor([[1.0, 3.0, 3.0, 2.0]] * 4)
    rank, best = module._rank(logits, torch.tensor([1, 2, 3, 0]), None)
    assert rank.tolist() == [0, 1, 2, 3]
    total = np.exp([1.0, 3, 3, 2]).sum()
    assert best == pytest.approx([np.exp(3) / total] * 4)
    cut = torch.tensor([[1.0, 3.0]] * 4)
    rank, _ = module._rank(cut, torch.tensor([5, 2, 3, 9]), (2, 5))
    assert rank.tolist() == [0, 1, 2, 2]


def test_what_does_not_fit_is_refused() -> None:
    target = lean()
    made = source("medusa")
    answers = plain_answers(target, PROMPTS[:1], 3)
    with pytest.raises(SpecbookError, match="deeper|deep"):
        play(by_hand([[0, 0], [0, -1], [-1, -1]]), chain(3))
    with pytest.raises(SpecbookError, match="source must have draft heads"):
        rank_answers(target, "medusa", answers)  # type: ignore[arg-type]
    with pytest.raises(SpecbookError, match="no RecordedOutput"):
        rank_answers(target, made, [[1, 2]])  # type: ignore[list-item]
    with pytest.raises(SpecbookError, match="answers is empty"):
        agreement([])
    with pytest.raises(SpecbookError, match="is no RankedAnswer"):
        tokens_per_round([answers[0]], chain(1))  # type: ignore[list-item]
    with pytest.raises(SpecbookError, match="not a RankedAnswer"):
        play(answers[0], chain(1))  # type: ignore[arg-type]
    mixed = [by_hand([[-1, -1]]), by_hand([[-1]])]
    with pytest.raises(SpecbookError, match=r"answers\[1\] is of 1 heads"):
        agreement(mixed)
    for ask in (rank_answers, accepted):
        with pytest.raises(SpecbookError, match="does not give"):
            ask(None, made, answers)
    with pytest.raises(SpecbookError, match="source must have draft heads"):
        accepted(target, None, mixed[:1])  # type: ignore[arg-type]
    for asked, told in ((None, "asked must be"), ([(1, 2)], r"asked\[0\]")):
        with pytest.raises(SpecbookError, match=told):
            plain_answers(target, asked, 3)  # type: ignore[arg-type]
    wide = source("medusa")
    wider = LeanTarget(tiny_llama(hidden_size=32))
    with pytest.raises((ArtifactError, SpecbookError), match="width 12"):
        rank_answers(wider, wide, answers)


def test_states_that_come_one_late_would_be_seen(
    monkeypatch: pytest.MonkeyPatch,
    repeating: tuple[LeanTarget, list[RecordedOutput]],
) -> None:
    """The planted fault: heads that start from the pending token's own state."""
    target, answers = repeating
    made = source("hydra", shape=SHAPES["wide"])
    right = rank_answers(target, made, answers)
    real = module._states
    monkeypatch.setattr(module, "_states", lambda *given: real(*given).roll(-1, 0))
    wrong = rank_answers(target, made, answers)
    rounds = [[play(one, SHAPES["wide"]).rounds for one in r] for r in (right, wrong)]
    assert rounds[0] != rounds[1]


def test_an_answer_of_one_token_has_no_row() -> None:
    target = lean()
    made = source("clover")
    (one,) = rank_answers(target, made, [RecordedOutput((5, 6), (7,))])
    assert (one.ranks == -1).all() and not one.q.any()
    assert agreement([one])["top1"] == [None] * 4


@pytest.mark.parametrize(
    "ranks",
    [
        [0, -1],  # no columns
        [[-1, -1], [-1, -1]],  # a rank is missing
        [[0, 0], [-1, -1]],  # one too many
        [[-2, -1], [-1, -1]],
        [[0.0, -1.0], [-1.0, -1.0]],
        [[], []],
    ],
)
def test_ranks_are_where_the_answer_has_tokens(ranks: Any) -> None:
    by_hand([[0, -1], [-1, -1]])
    with pytest.raises(SpecbookError, match="ranks must be"):
        by_hand(ranks)
