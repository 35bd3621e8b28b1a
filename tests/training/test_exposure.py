"""Exposure against a plain loop: one position, one token and one forward at a time."""

import dataclasses
from functools import cache

import numpy as np
import pytest
import torch

from specbook.errors import SpecbookError
from specbook.models.heads import KINDS, build
from specbook.models.tiny import tiny_llama
from specbook.training import exposure as module
from specbook.training import heads as loop
from specbook.training.decoding import continue_all
from specbook.training.exposure import exposure
from specbook.training.heads import Teacher
from specbook.training.settings import HeadsSettings

HEADS = 3
NAMES = ("forced", "own", "astray", "chain", "chain_forced")


@cache
def made():
    generator = torch.Generator().manual_seed(1)
    return continue_all(
        tiny_llama(0),
        [[5, 9], [60, 1, 4], [7, 33]],
        temperatures=[0.0, 1.0, 0.0],
        max_new_tokens=16,
        top_k=3,
        eos_token_id=None,
        generator=generator,
    )


@pytest.fixture
def answers():
    return made()


@cache
def fitted(kind="hydra"):
    """Heads that have learned the answers a little: right often, and wrong often."""
    settings = HeadsSettings(
        kind, heads=HEADS, steps=12, rows_per_step=40, warm_up=2, learning_rate=2e-2,
        dtype="float32", others=1000,
    )  # fmt: skip
    heads = build(settings.config(32))
    loop.train(heads, Teacher(model()), made(), settings, data_key="exposure")
    return heads


def model():
    return tiny_llama(0).requires_grad_(False)


@torch.inference_mode()
def plain(heads, frozen, sequences, every=1):
    """[agreed, tried] by name, from forwards over every text and every path alone."""
    embed = frozen.model.get_input_embeddings().weight
    ids = frozen.ids(torch.arange(len(frozen.head())))
    found = {name: [[0, 0] for _ in range(HEADS)] for name in NAMES}

    @cache
    def known(tokens):
        return int(
            frozen.model(input_ids=torch.tensor([tokens])).logits[0, -1].argmax()
        )

    def says(tokens):
        return known(tuple(tokens))

    def drafted(base, given):
        state = heads.start(base, embed[given[:1]])
        for token in given[1:]:
            state = heads.step(state, torch.tensor([0]), embed[token][None])
        return int(ids[(heads.features(state)[0] @ frozen.head().T).argmax()])

    def add(name, depth, hit):
        found[name][depth][0] += hit
        found[name][depth][1] += 1

    for s in sequences:
        text = s.tokens.tolist()
        base = heads.base(
            frozen.model.model(input_ids=torch.tensor([text])).last_hidden_state[0]
        )
        first = s.prompt_length if s.prompt_length < len(text) else 1
        usable = [
            t
            for t in range(first, len(text) - HEADS)
            if all(says(text[: t + i]) == text[t + i] for i in range(1, HEADS + 1))
        ]
        for t in usable[::every]:
            own, alive = text[: t + 1], True
            for depth in range(HEADS):
                true = text[: t + depth + 1]
                right = drafted(base[t - 1 : t], true[t:]) == says(true)
                said = drafted(base[t - 1 : t], own[t:])
                hit = said == says(own)
                add("forced", depth, right)
                add("own", depth, hit)
                add("chain" if own == true else "astray", depth, hit)
                if alive:
                    add("chain_forced", depth, right)
                alive &= right
                own = [*own, said]
    return found


@pytest.mark.parametrize("ids", [None, list(range(0, 64, 2))], ids=["whole", "cut"])
@pytest.mark.parametrize("kind", KINDS)
def test_counts_are_those_of_a_plain_loop(answers, kind, ids):
    frozen = Teacher(model(), None if ids is None else torch.tensor(ids))
    heads = fitted(kind)
    found = exposure(heads, frozen, answers)
    assert found == plain(heads, frozen, answers)
    for depth in range(HEADS):
        assert found["forced"][depth][1] == found["own"][depth][1] > 10
        parts = zip(found["astray"][depth], found["chain"][depth], strict=True)
        whole = [sum(pair) for pair in parts]
        assert whole == found["own"][depth]
    assert found["chain"] == found["chain_forced"]
    assert found["own"][0] == found["forced"][0]
    for name in ("astray", "chain"):
        assert 0 < found[name][1][1]
    for name in ("forced", "own"):
        assert all(0 < hits < tried for hits, tried in found[name])


def test_every_third_position(answers):
    heads, frozen = fitted(), Teacher(model())
    found = exposure(heads, frozen, answers, every=3)
    assert found == plain(heads, frozen, answers, every=3)
    assert found["own"][0][1] < exposure(heads, frozen, answers)["own"][0][1] / 2


def test_independent_heads_do_not_notice_what_they_are_given(answers):
    """What Medusa says is one and the same; what the target says behind it is not."""
    frozen = Teacher(model())
    own = exposure(fitted("medusa"), frozen, answers)
    assert own["own"][1] != own["forced"][1]
    heads = fitted("medusa")
    read = torch.from_numpy(np.array([[1, 2, 3], [1, 9, 9]]))
    rows = heads(torch.ones(2, 32), frozen.embed(read))
    assert torch.equal(rows[0], rows[1])


@pytest.mark.parametrize("fault", ["text", "shifted"])
def test_paths_that_are_not_the_heads_own_would_be_seen(answers, monkeypatch, fault):
    """The planted faults: the target reads the text in place of the path, and a path
    one place too far."""
    real = module.path_states

    def wrong(frozen, tokens, segments, rows, paths):
        if fault == "text":
            places = rows[:, None] + 1 + torch.arange(paths.shape[1])
            paths = torch.tensor(tokens)[places]
        else:
            rows = rows - 1
        return real(frozen, tokens, segments, rows, paths)

    heads, frozen = fitted(), Teacher(model())
    right = exposure(heads, frozen, answers)
    monkeypatch.setattr(module, "path_states", wrong)
    found = exposure(heads, frozen, answers)
    assert found["own"] != right["own"] and found["forced"] == right["forced"]


def test_what_cannot_be_counted_is_refused(answers):
    frozen = Teacher(model())
    with pytest.raises(SpecbookError, match="every"):
        exposure(fitted(), frozen, answers, every=0)
    with pytest.raises(SpecbookError, match="sequences must be"):
        exposure(fitted(), frozen, None)
    short = [dataclasses.replace(answers[0], prompt_length=len(answers[0].tokens) - 2)]
    for nothing in ([], short):
        with pytest.raises(SpecbookError, match="all 3 heads"):
            exposure(fitted(), frozen, nothing)
