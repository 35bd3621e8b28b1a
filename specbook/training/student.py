"""A small Llama that starts from what the target knows.

A few million tokens teach a small model little from nothing. So the student gets the
target's embeddings, seen through the projection that loses least of them, and, if
wished, some of the target's layers seen through the same projection. With E the
target's embeddings [V, d] and P [d, w] its first right singular vectors, E P is the
student's embedding, and E P P' the best approximation of E of rank w (Eckart and
Young, 1936). A layer that reads x through a matrix A and writes through B becomes one
that reads P'x through A P and writes through P' B.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from .. import checks
from ..errors import SpecbookError, TargetError
from ..models.fetch import quiet_transformers
from .settings import STARTS


def projection(
    embedding: torch.Tensor, width: int, weights: torch.Tensor | None = None
) -> torch.Tensor:
    """The orthonormal [d, width] through which `embedding` [V, d] loses least.

    P are the first right singular vectors, so E P P' is the rank-`width` matrix that
    is nearest to E. `weights` [V]: how much the error of each row counts (default:
    all alike). Raises `SpecbookError` for a width that is not in 1 .. d, and for
    weights that are negative, not finite or all 0.
    """
    if embedding.dim() != 2:
        raise SpecbookError(f"embedding must be a matrix, got {embedding.dim()} axes")
    size = embedding.shape[1]
    checks.integer(width, "width", least=1, most=size)
    rows = embedding.detach().double()
    if weights is not None:
        if weights.shape != embedding.shape[:1]:
            raise SpecbookError(
                f"weights {tuple(weights.shape)}: one for each of the "
                f"{len(embedding)} rows is needed"
            )
        given = weights.detach().double()
        usable = bool(torch.isfinite(given).all()) and float(given.min()) >= 0
        if not usable or float(given.sum()) == 0:
            raise SpecbookError("weights must be finite, not negative and not all 0")
        rows = rows * given.sqrt()[:, None]
    values, vectors = torch.linalg.eigh(rows.T @ rows)
    best = vectors[:, values.argsort(descending=True)[:width]]
    # The sign of a singular vector is free; fixed, so that a build is repeatable.
    signs = best.gather(0, best.abs().argmax(0, keepdim=True)).sign()
    return best * signs


def build(
    target: Any,
    *,
    width: int,
    layers: Sequence[int],
    inner: int,
    start: str = "layers",
    seed: int = 0,
    weights: torch.Tensor | None = None,
) -> Any:
    """A LlamaForCausalLM of `len(layers)` layers for the vocabulary of `target`.

    `target`: a LlamaForCausalLM of transformers. `layers`: which of its layers the
    student's stand for, in rising order. `inner`: width of the feed-forward blocks.
    The heads are as many and as wide as the target's. `start`: one of `STARTS`; what
    is not taken from the target is drawn from `seed`. `weights`: see `projection`.
    float32, tied embeddings. No generator of the caller moves.
    """
    import transformers

    if type(target).__name__ != "LlamaForCausalLM":
        raise TargetError(
            f"a student is cut from a LlamaForCausalLM, not a {type(target).__name__}"
        )
    checks.one_of(start, "start", STARTS)
    checks.integer(seed, "seed", least=0)
    config = target.config
    count = int(config.num_hidden_layers)
    chosen = [
        checks.integer(layer, f"layers[{i}]", least=0, most=count - 1)
        for i, layer in enumerate(checks.entries(layers, "layers", "layer numbers"))
    ]
    if not chosen or chosen != sorted(set(chosen)):
        raise SpecbookError(f"layers must be in rising order, got {chosen}")
    checks.integer(inner, "inner", least=1, most=int(config.intermediate_size))
    size = int(config.hidden_size)
    checks.integer(width, "width", least=1, most=size)
    settings = config.to_dict()
    for name in ("_name_or_path", "architectures", "torch_dtype", "dtype"):
        settings.pop(name, None)
    settings.update(
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=len(chosen),
        head_dim=int(
            getattr(config, "head_dim", None) or size // config.num_attention_heads
        ),
        tie_word_embeddings=True,
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]), quiet_transformers():
        torch.manual_seed(seed)
        student = transformers.LlamaForCausalLM(transformers.LlamaConfig(**settings))
    student.generation_config.eos_token_id = target.generation_config.eos_token_id
    student.generation_config.bos_token_id = target.generation_config.bos_token_id
    student.generation_config.pad_token_id = target.generation_config.pad_token_id
    if start != "random":
        _take_over(target, student, chosen, weights, with_layers=start == "layers")
    return student.eval()


@torch.no_grad()
def _take_over(
    target: Any,
    student: Any,
    layers: list[int],
    weights: torch.Tensor | None,
    *,
    with_layers: bool,
) -> None:
    embedding = target.get_input_embeddings().weight.float()
    width = student.config.hidden_size
    p = projection(embedding, width, weights).float()
    # A root mean square over fewer entries is larger by this much.
    scale = math.sqrt(embedding.shape[1] / width)
    student.model.embed_tokens.weight.copy_(embedding @ p)
    final = target.model.norm.weight.float()
    student.model.norm.weight.copy_(scale * (final[:, None] * p * p).sum(0))
    if not with_layers:
        return
    for own, number in zip(student.model.layers, layers, strict=True):
        theirs = target.model.layers[number]
        read = theirs.input_layernorm.weight.float()[:, None] * p
        for name in ("q_proj", "k_proj", "v_proj"):
            matrix = getattr(theirs.self_attn, name).weight.float()
            getattr(own.self_attn, name).weight.copy_(matrix @ read)
        own.self_attn.o_proj.weight.copy_(p.T @ theirs.self_attn.o_proj.weight.float())
        read = theirs.post_attention_layernorm.weight.float()[:, None] * p
        gate = theirs.mlp.gate_proj.weight.float() @ read
        up = theirs.mlp.up_proj.weight.float() @ read
        down = p.T @ theirs.mlp.down_proj.weight.float()
        # The neurons that can move the projected stream most.
        force = gate.norm(dim=1) * up.norm(dim=1) * down.norm(dim=0)
        kept = force.argsort(descending=True)[: student.config.intermediate_size]
        kept = kept.sort().values
        own.mlp.gate_proj.weight.copy_(gate[kept])
        own.mlp.up_proj.weight.copy_(up[kept])
        own.mlp.down_proj.weight.copy_(down[:, kept])
        own.input_layernorm.weight.fill_(scale)
        own.post_attention_layernorm.weight.fill_(scale)
