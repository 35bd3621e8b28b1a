"""What heads are worth: forced rows, chains and calibration, against a plain loop."""

import dataclasses

import numpy as np
import pytest
import torch

from specbook.models.heads import build, config_of
from specbook.models.tiny import tiny_llama
from specbook.training import heads_agreement as module
from specbook.training.decoding import TaughtSequence, continue_all
from specbook.training.heads import Teacher
from specbook.training.heads_agreement import BINS, heads_agreement

HEADS = 3


@pytest.fixture(scope="module")
def answers():
    """Greedy answers of the target to prompts of two and three tokens."""
    generator = torch.Generator().manual_seed(1)
    return continue_all(
        tiny_llama(0),
        [[5, 9], [11, 2, 40], [7, 33], [60, 1, 4]],
        temperatures=[0.0] * 4,
        max_new_tokens=12,
        top_k=3,
        eos_token_id=None,
        generator=generator,
    )


def shaken(kind="hydra"):
    heads = build(config_of(kind, 32, heads=HEADS), 0)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in heads.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
    return heads.eval()


def plain(heads, model, sequences, ids=None):
    """(depth, hit, whether all above hit, q) of every row, one by one."""
    ids = list(range(64)) if ids is None else ids
    embed = model.get_input_embeddings().weight
    head = model.get_output_embeddings().weight[torch.tensor(ids)]
    found = []
    for s in sequences:
        tokens = torch.from_numpy(s.tokens)
        hidden = model.model(input_ids=tokens[None]).last_hidden_state[0]
        base = heads.base(hidden)
        continued = s.prompt_length < len(tokens)
        for t in range(s.prompt_length if continued else 1, len(tokens)):
            path = embed[tokens[t:][: heads.config.heads]]
            alive = True
            state = heads.start(base[t - 1 : t], path[:1])
            for i in range(1, min(heads.config.heads, len(tokens) - t - 1) + 1):
                if i > 1:
                    state = heads.step(state, torch.tensor([0]), path[i - 1 : i])
                q = torch.softmax(heads.features(state)[0] @ head.T, -1)
                hit = ids[int(q.argmax())] == s.top_ids[t + i - 1 - s.first_row, 0]
                found.append((i, hit, alive, float(q.max().detach())))
                alive &= bool(hit)
    return found


@pytest.mark.parametrize("ids", [None, list(range(0, 64, 2))], ids=["whole", "cut"])
@pytest.mark.parametrize("kind", ["medusa", "hydra", "hydra_plus", "clover", "markov"])
def test_agreement_is_that_of_single_rows(answers, kind, ids):
    heads, model = shaken(kind), tiny_llama(0)
    read = [dataclasses.replace(answers[0], prompt_length=len(answers[0].tokens))]
    frozen = Teacher(model, None if ids is None else torch.tensor(ids))
    for sequences in (answers, read):
        found = heads_agreement(heads, frozen, sequences)
        rows = plain(heads, model, sequences, ids)
        for depth in range(1, HEADS + 1):
            mine = [row for row in rows if row[0] == depth]
            hits = sum(hit for _, hit, _, _ in mine)
            assert found["forced"][depth - 1] == [hits, len(mine)]
            assert found["top1"][depth - 1] == hits / len(mine)
            alive = [hit for _, hit, above, _ in mine if above]
            assert found["chain"][depth - 1] == [sum(alive), len(alive)]
            bins = found["calibration"][depth - 1]
            assert sum(n for n, _, _ in bins) == len(mine)
            assert sum(n * q for n, q, _ in bins) == pytest.approx(
                sum(q for *_, q in mine), rel=1e-4
            )
            assert sum(n * share for n, _, share in bins) == pytest.approx(hits)


def test_rows_of_the_prompt_do_not_count(answers):
    """The pending token is one of the answer: 12 new tokens are 11 rows of head 1."""
    found = heads_agreement(shaken(), Teacher(tiny_llama(0)), answers)
    assert [tried for _, tried in found["forced"]] == [4 * 11, 4 * 10, 4 * 9]


def test_chains_and_bins_by_hand():
    hits = torch.tensor([[1, 1], [1, 0], [0, 1], [1, 0]], dtype=torch.bool)
    tried = torch.tensor([[1, 1], [1, 1], [1, 1], [1, 0]], dtype=torch.bool)
    q = torch.tensor([[0.05, 1.0], [0.15, 0.5], [0.19, 0.55], [0.0, 0.9]])
    found = module.counted(hits, q.double(), tried)
    assert found["forced"] == [[3, 4], [2, 3]]
    assert found["chain"] == [[3, 4], [1, 2]]
    assert found["calibration"] == [
        [[2, pytest.approx(0.025), 1.0], [2, pytest.approx(0.17), 0.5]],
        [[2, pytest.approx(0.525), 0.5], [1, 1.0, 1.0]],
    ]
    assert BINS == 10


def test_nothing_to_count_is_said_to_be_nothing():
    one = TaughtSequence(
        np.array([3, 4]), 0, 1, np.array([[4]]), np.zeros((1, 1), dtype=np.float32)
    )
    found = heads_agreement(shaken(), Teacher(tiny_llama(0)), [one])
    assert found["top1"] == [None] * HEADS and found["forced"] == [[0, 0]] * HEADS


def test_heads_that_read_the_text_one_late_would_be_seen(answers, monkeypatch):
    """The planted fault: states of the pending token itself, which no head can have."""
    heads, frozen = shaken(), Teacher(tiny_llama(0))
    right = heads_agreement(heads, frozen, answers)
    real = Teacher.states
    monkeypatch.setattr(Teacher, "states", lambda self, s: real(self, s).roll(-1, 0))
    assert heads_agreement(heads, frozen, answers) != right
