"""Batched decoding: rows against plain forwards, tokens against transformers."""

import math

import numpy as np
import pytest
import torch

from specbook.errors import SpecbookError, TargetError
from specbook.models.tiny import tiny_llama, tiny_model
from specbook.training import decoding
from specbook.training.decoding import continue_all

PROMPTS = [[1, 2, 3], [5, 6, 7, 8, 9, 10, 11], [4], [9, 9, 9, 9]]


@pytest.fixture(scope="module")
def model():
    return tiny_llama(0)


def answers(model, prompts=PROMPTS, heat=0.0, new=10, **changes):
    options = {
        "temperatures": [heat] * len(prompts),
        "max_new_tokens": new,
        "top_k": 5,
        "eos_token_id": None,
        "generator": torch.Generator().manual_seed(0),
        **changes,
    }
    return continue_all(model, prompts, **options)


def plain_top(model, sequence):
    """The kept rows of a sequence by a plain forward of transformers."""
    with torch.inference_mode():
        ids = torch.from_numpy(sequence.tokens)[None]
        laws = torch.log_softmax(model(ids).logits[0], dim=-1)
    return laws[sequence.first_row : -1].topk(sequence.top_ids.shape[1], dim=-1)


def check_rows(model, sequence, tolerance=2e-4):
    wanted = plain_top(model, sequence)
    assert len(sequence.top_ids) == len(sequence.tokens) - 1 - sequence.first_row
    assert np.abs(sequence.top_logps - wanted.values.numpy()).max() < tolerance
    assert (sequence.top_ids == wanted.indices.numpy()).all()


@pytest.mark.parametrize("heat", [0.0, 1.0])
def test_rows_are_those_of_plain_forwards(model, heat):
    for sequence in answers(model, heat=heat):
        check_rows(model, sequence)


@pytest.mark.parametrize("family", ["mistral", "qwen2"])
def test_rows_of_other_llama_like_families(family):
    model = tiny_model(family)
    for sequence in answers(model):
        check_rows(model, sequence)


def test_a_mask_that_shows_padding_is_found(model, monkeypatch):
    """The planted fault: as if nothing had been padded."""
    real = decoding._Batch.__init__

    def blind(self, model, pads, capacity):
        real(self, model, torch.zeros_like(pads), capacity)

    monkeypatch.setattr(decoding._Batch, "__init__", blind)
    short = answers(model)[0]
    wanted = plain_top(model, short).values.numpy()
    assert np.abs(short.top_logps - wanted).max() > 0.1


def test_greedy_tokens_are_those_of_generate(model):
    for prompt, sequence in zip(PROMPTS, answers(model), strict=True):
        ids = torch.tensor([prompt])
        found = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False,
            max_new_tokens=10, pad_token_id=0,
        )  # fmt: skip
        assert sequence.tokens.tolist() == found[0].tolist()
        assert sequence.prompt_length == len(prompt)


def test_a_sequence_ends_with_an_end_token_and_leaves_the_batch(model, monkeypatch):
    free = answers(model, new=12)
    ends = {int(free[0].tokens[5]), int(free[3].tokens[6])}
    widths = []
    real = decoding._Batch.forward

    def counted(self, ids):
        widths.append(len(ids))
        return real(self, ids)

    monkeypatch.setattr(decoding._Batch, "forward", counted)
    ended = answers(model, new=12, eos_token_id=tuple(ends))
    for before, after in zip(free, ended, strict=True):
        new = before.tokens[before.prompt_length :].tolist()
        stop = next((i for i, token in enumerate(new) if token in ends), len(new) - 1)
        assert (
            after.tokens.tolist()
            == before.tokens[: before.prompt_length + stop + 1].tolist()
        )
        check_rows(model, after)
    assert widths[0] == 4 and widths[-1] < 4


def test_prompts_alone_can_be_taught_from_any_row(model):
    sequences = answers(model, new=0, prompts=PROMPTS[:2], first_rows=[1, 4])
    assert [s.first_row for s in sequences] == [1, 4]
    assert [len(s.top_ids) for s in sequences] == [1, 2]
    for sequence in sequences:
        check_rows(model, sequence)


def test_the_generator_decides_and_nothing_else(model):
    before = torch.get_rng_state()
    first, second = answers(model, heat=1.0), answers(model, heat=1.0)
    assert torch.equal(before, torch.get_rng_state())
    assert [s.tokens.tolist() for s in first] == [s.tokens.tolist() for s in second]
    other = answers(model, heat=1.0, generator=torch.Generator().manual_seed(1))
    assert [s.tokens.tolist() for s in first] != [s.tokens.tolist() for s in other]


def test_tokens_are_drawn_from_the_tempered_law():
    """20,000 draws of three tokens. Each frequency is a binomial; by Hoeffding it is
    off by more than 0.02 with probability at most 2 exp(-16) < 3e-7."""
    logits = torch.log(torch.tensor([0.5, 0.3, 0.2]))
    for heat in (0.7, 1.0):
        law = torch.softmax(logits / heat, -1)
        drawn = decoding._draw(
            logits.expand(20_000, 3),
            torch.full((20_000,), heat),
            torch.Generator().manual_seed(3),
        )
        found = torch.bincount(drawn, minlength=3) / 20_000
        assert (found - law).abs().max() < 0.02
        # The planted fault, a forgotten temperature, would be seen.
        assert heat == 1.0 or (found - torch.exp(logits)).abs().max() > 0.02


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"prompts": []}, "at least one"),
        ({"prompts": [[]]}, "nothing to teach"),
        ({"prompts": [[64]]}, r"prompts\[0\]\[0\] = 64 is outside"),
        ({"prompts": [[True]]}, "must be an integer"),
        ({"prompts": [[1]], "new": 0}, "nothing to teach"),
        ({"prompts": [[1, 2]], "first_rows": [2]}, "nothing to teach"),
        ({"prompts": [[1]], "first_rows": [0, 0]}, "as many of each"),
        ({"heat": -1.0}, "temperatures"),
        ({"heat": math.nan}, "temperatures"),
        ({"new": -1}, "max_new_tokens"),
        ({"new": 600}, "context of 512"),
        ({"top_k": 0}, "top_k"),
        ({"top_k": 65}, "top_k"),
    ],
    ids=lambda value: None if isinstance(value, str) else "-".join(value),
)
def test_bad_input_is_refused(model, changes, told):
    with pytest.raises(SpecbookError, match=told):
        answers(model, **changes)


def test_a_model_that_is_not_llama_like_is_refused():
    with pytest.raises(TargetError, match="not one of"):
        answers(tiny_model("gpt2"))
    with pytest.raises(TargetError, match="transformers model"):
        answers("a name")
