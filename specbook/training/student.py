"""A small Llama that starts from what is known before any training.

A few million tokens teach a small model little from nothing. So a student may take
over the target's embeddings, through the projection that loses least of them: with E
the embeddings [V, d] and P [d, w] its first right singular vectors, E P is the
student's embedding, and E P P' the best approximation of E of rank w (Eckart and
Young, 1936). And it may be given what a language model takes long to learn, the heads
that copy what followed the last time (see `copying`).
"""

from __future__ import annotations

from typing import Any

import torch

from .. import checks
from ..errors import SpecbookError, TargetError
from ..models.fetch import quiet_transformers
from . import copying
from .projection import projection
from .settings import Settings


def build(target: Any, settings: Settings, weights: torch.Tensor | None = None) -> Any:
    """The untrained student of `settings` for the vocabulary of `target`.

    `target`: a LlamaForCausalLM of transformers, whose rotary frequencies, head width
    and special tokens the student has too. `weights` [V]: how much each token's
    embedding counts in the projection. Whatever is not taken over is drawn from the
    settings' seed. float32, tied embeddings. No generator of the caller moves.
    """
    import transformers

    if type(target).__name__ != "LlamaForCausalLM":
        raise TargetError(
            f"a student is made for a LlamaForCausalLM, not a {type(target).__name__}"
        )
    with torch.random.fork_rng(devices=[]), quiet_transformers():
        torch.manual_seed(settings.seed)
        config = student_config(target.config, settings)
        student = transformers.LlamaForCausalLM(config)
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        special = getattr(target.generation_config, name)
        setattr(student.generation_config, name, special)
    if settings.start == "embeddings":
        _take_embeddings(target, student, weights)
    elif settings.start == "copying":
        copying.write_circuit(target, student, weights, settings.seed)
    return student.eval()


@torch.no_grad()
def _take_embeddings(target: Any, student: Any, weights: torch.Tensor | None) -> None:
    embedding = target.get_input_embeddings().weight.float()
    width = student.config.hidden_size
    p = projection(embedding, width, weights).float()
    student.model.embed_tokens.weight.copy_(embedding @ p)
    student.model.norm.weight.fill_(copying.FINAL_NORM)


def student_config(config: Any, settings: Settings) -> Any:
    """The student's LlamaConfig, from the `config` of its target. Raises
    `SpecbookError` for a shape that cannot be: asked for before the data are made,
    which take much longer."""
    import transformers

    if config.model_type != "llama":
        raise TargetError(f"a student is made for a Llama, not a {config.model_type}")
    size = int(config.hidden_size)
    checks.integer(settings.width, "width", least=1, most=size)
    told = config.to_dict()
    for name in list(told):
        if name.endswith("name_or_path") or name in ("architectures", "torch_dtype"):
            del told[name]
    told.update(
        hidden_size=settings.width,
        intermediate_size=settings.inner,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        num_key_value_heads=settings.kv_heads,
        head_dim=int(
            getattr(config, "head_dim", None) or size // config.num_attention_heads
        ),
        tie_word_embeddings=True,
        dtype="float32",
    )
    try:
        made = transformers.LlamaConfig(**told)
    except Exception as problem:  # transformers checks configs with its own class
        raise SpecbookError(f"no such student: {problem}") from problem
    if settings.start == "copying":
        copying.check_shape(made)
    return made
