"""Tiny random models: a real architecture in milliseconds, the same on every run.

The initialiser range is 0.5, not the usual 0.02: nearly flat logits hide a leaking
mask or a shifted position, while here either is off by a unit or more. Every model is
built from a seed inside a fork of torch's generator, so the caller's random state is
as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .. import checks
from ..errors import SpecbookError
from .fetch import quiet_transformers

INITIALIZER_RANGE = 0.5


def build(model_class: Any, config: Any, seed: int = 0) -> Any:
    """`model_class(config)` in eval mode, float32, with weights from `seed`.

    Every matrix and every bias is normal(0, `INITIALIZER_RANGE`), whatever the
    family's own initialiser does; norm weights keep theirs. Embeddings tied to the
    head stay tied. Global random state is untouched.
    """
    seed = checks.integer(seed, "seed", least=0)
    with torch.random.fork_rng(devices=[]), quiet_transformers():
        torch.manual_seed(seed)
        model = model_class(config).to(torch.float32).eval()
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, parameter in sorted(model.named_parameters()):
                if parameter.dim() >= 2 or name.endswith("bias"):
                    parameter.normal_(0.0, INITIALIZER_RANGE, generator=generator)
    return model


def tiny_llama(
    seed: int = 0,
    *,
    vocab_size: int = 64,
    hidden_size: int = 32,
    num_layers: int = 2,
    num_heads: int = 4,
    num_kv_heads: int = 2,
    max_positions: int = 512,
    tied: bool = False,
    attn_implementation: str = "sdpa",
    **changes: Any,
) -> Any:
    """The tiny Llama of the book's unit tests: a transformers LlamaForCausalLM.

    64 tokens, width 32, 2 layers, 4 heads of which 2 for keys and values, float32,
    CPU. `tied` shares embeddings and head; other keyword arguments go to LlamaConfig.
    Wrap it in `TransformersTarget` or `LeanTarget`.
    """
    for name, value in (
        ("vocab_size", vocab_size),
        ("hidden_size", hidden_size),
        ("num_layers", num_layers),
        ("num_heads", num_heads),
        ("num_kv_heads", num_kv_heads),
        ("max_positions", max_positions),
    ):
        checks.integer(value, name, least=1)
    checks.boolean(tied, "tied")
    return tiny_model(
        "llama",
        seed,
        attn_implementation=attn_implementation,
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        num_hidden_layers=num_layers,
        num_attention_heads=num_heads,
        num_key_value_heads=num_kv_heads,
        max_position_embeddings=max_positions,
        tie_word_embeddings=tied,
        **changes,
    )


_WIDTH: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
}
_GROUPED = {**_WIDTH, "num_key_value_heads": 2}
_NO_TOKENS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}

# Family -> (config class, model class, settings of the tiny form).
_FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", "LlamaForCausalLM", _GROUPED),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", _GROUPED),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", {**_GROUPED, "head_dim": 8}),
    "mistral": (
        "MistralConfig",
        "MistralForCausalLM",
        {**_GROUPED, "sliding_window": None},
    ),
    "gemma": ("GemmaConfig", "GemmaForCausalLM", {**_GROUPED, "head_dim": 8}),
    "phi": ("PhiConfig", "PhiForCausalLM", _WIDTH),
    "gpt_neox": ("GPTNeoXConfig", "GPTNeoXForCausalLM", _WIDTH),
    "gpt2": (
        "GPT2Config",
        "GPT2LMHeadModel",
        {"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 512},
    ),
    "opt": (
        "OPTConfig",
        "OPTForCausalLM",
        {
            "vocab_size": 64,
            "hidden_size": 32,
            "word_embed_proj_dim": 32,
            "ffn_dim": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "max_position_embeddings": 512,
        },
    ),
    "falcon": (
        "FalconConfig",
        "FalconForCausalLM",
        {
            "vocab_size": 64,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_kv_heads": 2,
            "new_decoder_architecture": True,
            "alibi": False,
            "max_position_embeddings": 512,
        },
    ),
    # Latent attention: one latent of 8 and one rotated key of 4 a row, for four heads.
    "deepseek_v3": (
        "DeepseekV3Config",
        "DeepseekV3ForCausalLM",
        {
            **_WIDTH,
            "num_key_value_heads": 4,
            "first_k_dense_replace": 2,
            "q_lora_rank": None,
            "kv_lora_rank": 8,
            "qk_rope_head_dim": 4,
            "qk_nope_head_dim": 8,
            "v_head_dim": 8,
        },
    ),
}


def families() -> list[str]:
    """The families that `tiny_model` builds, all of them valid tree targets."""
    return list(_FAMILIES)


def tiny_model(
    family: str, seed: int = 0, *, attn_implementation: str = "sdpa", **changes: Any
) -> Any:
    """A tiny random causal LM of `family` (see `families`), 64 tokens, width 32, 2
    layers, unless `changes` to its config say otherwise."""
    import transformers

    checks.one_of(family, "family", families())
    config_name, model_name, settings = _FAMILIES[family]
    config_class: Callable[..., Any] = getattr(transformers, config_name)
    # A config takes any name and keeps it as an attribute that nothing reads.
    plain = config_class()
    for name in changes:
        if not hasattr(plain, name) or callable(getattr(plain, name)):
            raise SpecbookError(f"tiny {family}: {config_name} has no field {name!r}")
    try:
        config = config_class(**{**_NO_TOKENS, **settings, **changes})
    except Exception as problem:  # transformers checks configs with a class of its own
        raise SpecbookError(f"tiny {family}: {problem}") from problem
    groups = getattr(config, "num_key_value_heads", None) or 1
    if config.num_attention_heads % groups:
        raise SpecbookError(
            f"tiny {family}: {config.num_attention_heads} heads cannot share {groups} "
            "key/value heads"
        )
    config._attn_implementation = checks.one_of(
        attn_implementation, "attn_implementation", ("sdpa", "eager")
    )
    return build(getattr(transformers, model_name), config, seed)
