"""Every full-attention family, under both attentions: rows equal plain forwards."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from specbook.models import LeanTarget, TransformersTarget
from specbook.models.tiny import families, tiny_model

from .drive import check_rounds


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", families())
def test_rows_and_commits_equal_plain_forwards(family, attention):
    model = tiny_model(family, seed=1, attn_implementation=attention)
    target = TransformersTarget(model)
    assert target.attention == attention
    worst = check_rounds(target, target.plain_logits, seed=2)
    scale = np.abs(target.plain_logits([1, 2, 3])).max()
    print(f"{family:10} {attention:6} {worst:.1e} at logits up to {scale:.1f}")
    assert scale > 1, "logits so flat that a fault would not show"


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2"])
@pytest.mark.parametrize("pack", [True, False])
def test_the_lean_forward_equals_plain_forwards(family, pack):
    model = tiny_model(family, seed=1)
    plain = TransformersTarget(model).plain_logits
    check_rounds(LeanTarget(model, pack=pack), plain, seed=2, rounds=8)


@pytest.mark.parametrize(
    "changes",
    [
        {"tied": True},
        {"num_kv_heads": 4},
        {"num_kv_heads": 1},
        {"attention_bias": True, "mlp_bias": True},
        {"head_dim": 16},
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 10000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            }
        },
    ],
    ids=["tied", "no groups", "one kv head", "biases", "wide heads", "llama3 rope"],
)
def test_the_lean_forward_follows_the_config(changes):
    from specbook.models import tiny_llama

    model = tiny_llama(3, **changes)
    plain = TransformersTarget(model).plain_logits
    check_rounds(LeanTarget(model), plain, seed=4)


def test_the_lean_forward_in_bfloat16_is_as_near_as_bfloat16_allows():
    from specbook.models import tiny_llama

    exact = TransformersTarget(tiny_llama(0)).plain_logits
    model = tiny_llama(0).to(torch.bfloat16)
    # The reference is float32: eight bits of weight and activation are lost.
    check_rounds(LeanTarget(model), exact, tolerance=1.0)


@pytest.mark.parametrize("kind", [TransformersTarget, LeanTarget])
def test_a_long_prompt_and_a_wide_tree(kind):
    """Past one block of the prompt, one growth of the buffer, one group of the head."""
    from specbook.models import tiny_llama

    model = tiny_llama(5, max_positions=2048)
    plain = TransformersTarget(model).plain_logits
    prompt = np.random.default_rng(0).integers(64, size=1300).tolist()
    check_rounds(kind(model), plain, prompt=prompt, rounds=4, rows=20)


def test_both_forwards_agree_on_bytes_of_a_row():
    from specbook.models import tiny_llama

    model = tiny_llama()
    # 2 layers, keys and values, 2 heads of 8, 4 bytes.
    expected = 2 * 2 * 2 * 8 * 4
    for kind in (TransformersTarget, LeanTarget):
        assert kind(model).start([1]).bytes_per_row() == expected
