"""The induction circuit copies, before any training."""

import dataclasses

import pytest
import torch

from specbook.models.tiny import build as tiny_build
from specbook.training import copying
from specbook.training.settings import Settings
from specbook.training.student import build

VOCABULARY, HALF = 400, 60
SETTINGS = Settings(layers=2, width=192, inner=32, heads=6, kv_heads=3)


@pytest.fixture(scope="module")
def target():
    """Random embeddings of the real shape's head width, and nothing else of use."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        head_dim=64,
        max_position_embeddings=4096,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
        tie_word_embeddings=True,
    )
    return tiny_build(LlamaForCausalLM, config)


@pytest.fixture(scope="module")
def repeated():
    """Distinct random tokens, twice."""
    generator = torch.Generator().manual_seed(1)
    half = torch.randperm(VOCABULARY, generator=generator)[:HALF]
    return torch.cat([half, half])[None]


def attention(student, ids):
    student.set_attn_implementation("eager")
    with torch.inference_mode():
        return student(ids, output_attentions=True).attentions


def repeats_found(student, ids):
    """How often the best token, the current one left out, is what came next the first
    time. (Embeddings are tied: before training each token also speaks for itself.)"""
    with torch.inference_mode():
        logits = student(ids).logits[0, HALF:-1]
    logits = logits.scatter(1, ids[0, HALF:-1, None], -torch.inf)
    return float((logits.argmax(-1) == ids[0, HALF + 1 :]).float().mean())


def test_the_first_head_finds_the_previous_token(target, repeated):
    seen = attention(build(target, SETTINGS), repeated)[0][0, 0]
    assert float(seen.diagonal(-1).min()) > 0.9


def test_the_heads_of_the_second_layer_find_what_came_next(target, repeated):
    seen = attention(build(target, SETTINGS), repeated)[1][0]
    rows = torch.arange(HALF + 1, 2 * HALF)
    for head in (0, 2, 4):  # the first of each group
        assert float(seen[head, rows, rows - HALF + 1].mean()) > 0.8
    # The others were not written, and do not find it.
    assert float(seen[1, rows, rows - HALF + 1].mean()) < 0.1


def test_a_student_with_the_circuit_copies_and_one_without_does_not(target, repeated):
    assert repeats_found(build(target, SETTINGS), repeated) > 0.9
    for start in ("embeddings", "random"):
        plain = build(target, dataclasses.replace(SETTINGS, start=start))
        assert repeats_found(plain, repeated) < 0.1


@pytest.mark.parametrize("broken", ["note", "key"])
def test_each_half_of_the_circuit_is_needed(target, repeated, broken):
    """The planted faults: no note of the previous token, or nobody looks for it."""
    student = build(target, SETTINGS)
    with torch.no_grad():
        if broken == "note":
            student.model.layers[0].self_attn.o_proj.weight[-copying.NOTE - 1 : -1] = 0
        else:
            student.model.layers[1].self_attn.k_proj.weight.zero_()
    assert repeats_found(student, repeated) < 0.3


def test_the_seed_decides_the_signatures(target):
    one, same = build(target, SETTINGS), build(target, SETTINGS)
    other = build(target, dataclasses.replace(SETTINGS, seed=1))
    for a, b in zip(one.parameters(), same.parameters(), strict=True):
        assert torch.equal(a, b)
    values = [m.model.layers[0].self_attn.v_proj.weight for m in (one, other)]
    assert not torch.equal(*values)
