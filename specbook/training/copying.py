"""An induction circuit, written into the weights of a small Llama by construction.

To go on with a text that repeats itself a model looks for the place where its last
token stood before, and says what followed there. Two attention layers can do it
(Elhage and others, 2021; Olsson and others, 2022): a head of the first finds the
previous token and notes a signature of it; heads of the second look for the position
whose noted signature is that of the current token, and copy the token that stands
there. A model has to read very many tokens before it forms these heads by itself; a
draft that is trained for minutes gets them for nothing if we write them down.

The stream's first coordinates hold the token (a projection of the target's embedding),
then come `NOTE` for the note, and the last is, after the norm, the same for every
token: attention in a Llama has no bias, and what should not depend on the token reads
this one. (The final norm hides it from the head.) Positions come from rotary
attention: pairs of coordinates that turn fast tell the previous position from its
neighbours, pairs that turn slowly let signatures be compared over hundreds of tokens.
All other weights stay as they were drawn, for training to use.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from ..errors import SpecbookError
from .projection import projection

NOTE = 63
"""Coordinates of the stream that hold the note of the previous token."""

CONSTANT = 0.5
"""The constant coordinate, measured in lengths of the token's vector."""

FAST, SLOW = 1 / 8, 9 / 16
"""Of the rotary pairs, from the fastest to the slowest: those before the share FAST
tell positions, those after the share SLOW compare signatures."""

POSITION_NATS = 10.0
"""By so much the previous position is preferred to its neighbours."""

MATCH_NATS = 16.0
"""By so much a position whose note matches is preferred to an average one."""

COPY_STRENGTH = 6.0
"""What is copied is so many times as long as the current token's own vector."""

RIDGE = 0.3
"""Of the inverse covariance through which a copied token is written, as a share of the
average variance."""

FINAL_NORM = 0.3
"""Scale of the final norm: the first laws should be broad, not sure and wrong."""


@torch.no_grad()
def write_circuit(
    target: Any, student: Any, weights: torch.Tensor | None, seed: int
) -> None:
    """Write embeddings and circuit into `student`, a fresh LlamaForCausalLM.

    `target`: the LlamaForCausalLM whose embeddings are projected; `weights` [V]: how
    much each token counts; `seed` of the random directions that make the signatures.
    Raises `SpecbookError` for a student of fewer than two layers, of a stream too
    narrow for token and note, of heads that cannot hold a note, or whose value heads
    together are narrower than the token.
    """
    check_shape(student.config)
    width = int(student.config.hidden_size)
    token = width - NOTE - 1
    embedding = target.get_input_embeddings().weight.float()
    if weights is None:
        weights = torch.ones(len(embedding))
    share = weights.float() / weights.sum()
    vectors = embedding @ projection(embedding, token, weights).float()
    generator = torch.Generator().manual_seed(seed)

    size = vectors.norm(dim=1)
    student.model.embed_tokens.weight.zero_()
    student.model.embed_tokens.weight[:, :token] = vectors
    student.model.embed_tokens.weight[:, -1] = CONSTANT * size
    student.model.norm.weight.fill_(FINAL_NORM)
    student.model.norm.weight[-1] = 0
    # What a layer reads when only the token is in the stream.
    unit = math.sqrt(width / (1 + CONSTANT**2))
    read = vectors * (unit / size.clamp_min(1e-6))[:, None]
    signature = _signature_reader(read, share, generator)
    length = float((share * size).sum())
    _write_previous_token_head(student, signature, length, unit)
    dual = _dual(vectors, share)
    _write_copying_heads(student, signature, dual, length, generator)


def check_shape(config: Any) -> None:
    """Raise `SpecbookError` when a student of `config` has no room for the circuit."""
    width, head = int(config.hidden_size), int(config.head_dim)
    groups, layers = int(config.num_key_value_heads), int(config.num_hidden_layers)
    if layers < 2 or head < NOTE or not NOTE <= width - NOTE - 1 <= groups * head:
        raise SpecbookError(
            f"a copying start needs two layers, heads of at least {NOTE} and a width "
            f"from {2 * NOTE + 1} to {groups * head + NOTE + 1}; got {layers} layers, "
            f"heads of {head} and width {width}"
        )


def _write_previous_token_head(
    student: Any, signature: torch.Tensor, length: float, unit: float
) -> None:
    """The first head of the first layer: attend to the previous position, and note
    the signature of the token there."""
    attention = student.model.layers[0].self_attn
    width, head = int(student.config.hidden_size), int(student.config.head_dim)
    token, half = signature.shape[1], head // 2
    # Reads 1 whatever the token is.
    always = torch.zeros(width)
    always[-1] = 1 / (CONSTANT * unit)
    turns = student.model.rotary_emb.inv_freq.float()
    fast = turns[: max(1, int(len(turns) * FAST))]
    # How much less the neighbours of the previous position get from these pairs.
    gap = float((1 - fast.cos()).sum())
    strength = math.sqrt(POSITION_NATS * math.sqrt(head) / gap)
    attention.q_proj.weight[:head] = 0
    attention.k_proj.weight[:head] = 0
    for i, angle in enumerate(fast.tolist()):
        # A query that is turned back by one position meets the key of the last one.
        attention.k_proj.weight[i] = strength * always
        attention.q_proj.weight[i] = strength * math.cos(angle) * always
        attention.q_proj.weight[i + half] = -strength * math.sin(angle) * always
    attention.v_proj.weight[:head] = 0
    attention.v_proj.weight[:NOTE, :token] = signature
    # The note is about as long as the token's own vector.
    attention.o_proj.weight[:, :head] = 0
    attention.o_proj.weight[token:-1, :NOTE] = (
        length / math.sqrt(NOTE) * torch.eye(NOTE)
    )


def _write_copying_heads(
    student: Any,
    signature: torch.Tensor,
    dual: torch.Tensor,
    length: float,
    generator: torch.Generator,
) -> None:
    """The first head of each group of the second layer: attend to the positions whose
    note is the current token's signature, and copy the tokens there. Each group
    compares in directions of its own, and copies its share of the coordinates."""
    attention = student.model.layers[1].self_attn
    config = student.config
    width, head = int(config.hidden_size), int(config.head_dim)
    groups = int(config.num_key_value_heads)
    per_group = int(config.num_attention_heads) // groups
    token, half = signature.shape[1], head // 2
    # Token and note share the stream's length here.
    shrink = math.sqrt(2)
    start = int(half * SLOW)
    pairs = torch.cat([torch.arange(start, half), torch.arange(start, half) + half])
    scale = math.sqrt(MATCH_NATS * math.sqrt(head) / len(pairs))
    # What is read of the note of length sqrt(NOTE) after the norm.
    noted = math.sqrt(width) / (length * shrink) * (length / math.sqrt(NOTE))
    copied = COPY_STRENGTH * length / math.sqrt(width) * shrink
    bounds = torch.linspace(0, token, groups + 1).round().int().tolist()
    for group in range(groups):
        mix = torch.randn(NOTE, NOTE, generator=generator)
        mix = torch.linalg.qr(mix).Q[: len(pairs)]
        query, key = group * per_group * head, group * head
        attention.q_proj.weight[query : query + head] = 0
        attention.k_proj.weight[key : key + head] = 0
        attention.q_proj.weight[query + pairs, :token] = (
            scale * shrink * (mix @ signature)
        )
        attention.k_proj.weight[key + pairs, token:-1] = scale * mix / noted
        attention.v_proj.weight[key : key + head] = 0
        attention.o_proj.weight[:, query : query + head] = 0
        for i, place in enumerate(range(bounds[group], bounds[group + 1])):
            attention.v_proj.weight[key + i, place] = 1
            attention.o_proj.weight[:token, query + i] = copied * dual[place]


def _dual(vectors: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
    """A symmetric matrix that turns a token's vector into one whose products with all
    tokens' vectors single it out: the inverse of their covariance, with a ridge."""
    mean = (share[:, None] * vectors).sum(0)
    centred = ((vectors - mean) * share.sqrt()[:, None]).double()
    gram = centred.T @ centred
    ridge = RIDGE * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype)
    found = torch.linalg.inv(gram + ridge)
    return (found / found.diagonal().mean()).float()


def _signature_reader(
    read: torch.Tensor, share: torch.Tensor, generator: torch.Generator
) -> torch.Tensor:
    """A matrix [NOTE, token] that makes signatures: tokens of average size are given
    vectors of length about sqrt(NOTE), and different tokens nearly orthogonal ones."""
    mean = (share[:, None] * read).sum(0)
    centred = ((read - mean) * share.sqrt()[:, None]).double()
    values, vectors = torch.linalg.eigh(centred.T @ centred)
    best = values.argsort(descending=True)[:NOTE]
    white = (vectors[:, best] / values[best].sqrt()).T.float()
    # The common part of all tokens tells nothing: it is not read.
    common = mean / mean.norm()
    white = white - (white @ common)[:, None] * common
    turn = torch.linalg.qr(torch.randn(NOTE, NOTE, generator=generator)).Q
    return turn @ white
