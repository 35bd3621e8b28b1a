"""Targets that cannot be verified exactly are refused before the first round."""

from __future__ import annotations

import pytest
import transformers

from specbook.models import TransformersTarget, load_target
from specbook.models.target import UnsupportedTargetError, check_config, context_limit
from specbook.models.tiny import build, tiny_model

SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}

REFUSED = [
    ("MambaConfig", {"hidden_size": 32, "num_hidden_layers": 2}, "recurrent state"),
    ("JambaConfig", SMALL, "recurrent state"),
    ("Qwen3NextConfig", SMALL, "recurrent state"),
    ("BloomConfig", {"hidden_size": 32, "n_layer": 2, "n_head": 4}, "alibi"),
    ("FalconConfig", {**SMALL, "alibi": True}, "alibi"),
    ("MptConfig", {"d_model": 32, "n_layers": 2, "n_heads": 4}, "alibi"),
    ("T5Config", {"d_model": 32}, "encoder-decoder"),
    ("MistralConfig", {**SMALL, "sliding_window": 16}, "sliding window of 16"),
    ("Gemma2Config", {**SMALL, "sliding_window": 16}, "sliding window"),
    ("Gemma3TextConfig", {**SMALL, "sliding_window": 16}, "sliding window"),
    (
        "Qwen2Config",
        {
            **SMALL,
            "use_sliding_window": True,
            "sliding_window": 16,
            "max_window_layers": 2,
        },
        "layer 2 attends to a sliding window",
    ),
    (
        "GPTNeoConfig",
        {
            "hidden_size": 32,
            "num_layers": 2,
            "num_heads": 4,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 256,
        },
        "layer 1 attends to a sliding window of 256",
    ),
]


@pytest.mark.parametrize(
    ("name", "settings", "why"), REFUSED, ids=[case[0] for case in REFUSED]
)
def test_a_config_says_enough_to_refuse(name, settings, why):
    with pytest.raises(UnsupportedTargetError, match=why):
        check_config(getattr(transformers, name)(**settings))


def test_h22_a_mamba_is_refused_before_the_first_round(tmp_path):
    config = transformers.MambaConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=2, state_size=4
    )
    model = build(transformers.MambaForCausalLM, config)
    with pytest.raises(UnsupportedTargetError, match="rolled back"):
        TransformersTarget(model)
    model.save_pretrained(tmp_path)
    with pytest.raises(UnsupportedTargetError, match="rolled back"):
        load_target(tmp_path)


def test_a_recurrent_model_without_such_a_config_is_refused_by_its_own_mark():
    config = transformers.RwkvConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2)
    config._attn_implementation = "eager"
    with pytest.raises(UnsupportedTargetError, match="rolled back|no cache"):
        TransformersTarget(build(transformers.RwkvForCausalLM, config))


def test_a_window_that_no_context_can_cross_is_full_attention():
    model = tiny_model("mistral", sliding_window=512)
    assert TransformersTarget(model).context_limit == 512
    with pytest.raises(UnsupportedTargetError, match="sliding window of 511"):
        TransformersTarget(tiny_model("mistral", sliding_window=511))


def test_the_context_limit_is_read_from_each_family_s_own_field():
    assert context_limit(transformers.GPT2Config(n_positions=16)) == 16
    assert context_limit(transformers.LlamaConfig(max_position_embeddings=17)) == 17
    long = transformers.Phi3Config(
        max_position_embeddings=512,
        original_max_position_embeddings=64,
        sliding_window=None,
        rope_parameters={
            "rope_type": "longrope",
            "rope_theta": 1e4,
            "short_factor": [1.0] * 48,
            "long_factor": [2.0] * 48,
            "original_max_position_embeddings": 64,
        },
    )
    # Beyond 64 its frequencies change, and cached rows would be of the old ones.
    assert context_limit(long) == 64
