"""Many continuations of one Llama-like target at once, with its law at every token.

Data for distillation is made by the batch: thirty-two sequences read the weights once.
Prompts of different lengths are padded on the left, so that every sequence writes its
next token to the same column. Keys and values lie in one buffer that is written in
place, and a sequence that has ended leaves the batch. What is kept of a law are its
`top_k` most probable tokens; sampling itself uses the whole law.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from .. import checks
from ..errors import SpecbookError, TargetError
from ..models.lean import obstacle
from ..models.target import check_model

ROWS_AT_ONCE = 256
"""Rows whose logits are in memory at the same time."""

COMPACT_BELOW = 0.75
"""The batch is packed anew when this share of it is still running."""


@dataclass(frozen=True)
class TaughtSequence:
    """A sequence with the target's law at some of its tokens.

    `tokens`: int64 [L]. Row i of `top_ids` (int64 [R, k]) and `top_logps` (float32
    [R, k], natural logarithms at temperature 1, largest first) is the law of token
    `first_row + 1 + i`: what the target says after reading the tokens before it.
    R = L - 1 - first_row: the last token is the last that is predicted.
    `prompt_length`: how many of the tokens were given.
    """

    tokens: np.ndarray
    first_row: int
    prompt_length: int
    top_ids: np.ndarray
    top_logps: np.ndarray


@torch.inference_mode()
def continue_all(
    model: Any,
    prompts: Sequence[Sequence[int]],
    *,
    temperatures: Sequence[float],
    max_new_tokens: int,
    top_k: int,
    eos_token_id: int | Sequence[int] | None,
    generator: torch.Generator,
    first_rows: Sequence[int] | None = None,
) -> list[TaughtSequence]:
    """Continue every prompt by up to `max_new_tokens` tokens of `model`.

    `model`: a Llama-like transformers model on the CPU. `temperatures`: one for each
    prompt, 0 takes the most probable token. A sequence ends with an end token.
    `first_rows`: the first row to keep of each prompt (default 0). With 0 new tokens
    the prompts themselves are what is taught.
    Raises `SpecbookError` for bad input, `TargetError` for a model that is not
    Llama-like.
    """
    check_model(model)
    if why := obstacle(model):
        raise TargetError(f"no batched decoding for this model: {why}")
    vocab_size = int(model.config.vocab_size)
    asked = [
        checks.token_ids(prompt, f"prompts[{i}]", vocab_size=vocab_size)
        for i, prompt in enumerate(checks.entries(prompts, "prompts", "prompts"))
    ]
    heat = [
        float(checks.real(value, f"temperatures[{i}]", least=0))
        for i, value in enumerate(checks.entries(temperatures, "temperatures", "reals"))
    ]
    starts = [
        checks.integer(value, f"first_rows[{i}]", least=0)
        for i, value in enumerate(first_rows if first_rows is not None else [])
    ] or [0] * len(asked)
    checks.integer(max_new_tokens, "max_new_tokens", least=0)
    checks.integer(top_k, "top_k", least=1, most=vocab_size)
    if not asked or not len(asked) == len(heat) == len(starts):
        raise SpecbookError(
            f"{len(asked)} prompts, {len(heat)} temperatures and {len(starts)} first "
            "rows: there must be as many of each, and at least one"
        )
    for i, (prompt, start) in enumerate(zip(asked, starts, strict=True)):
        if len(prompt) + max_new_tokens < 2 or start >= len(prompt):
            raise SpecbookError(
                f"prompts[{i}] has {len(prompt)} tokens: nothing to teach from row "
                f"{start} on"
            )
    ends = frozenset(
        [eos_token_id] if isinstance(eos_token_id, int) else eos_token_id or ()
    )
    longest = max(map(len, asked)) + max_new_tokens
    limit = getattr(model.config, "max_position_embeddings", None)
    if limit is not None and longest > limit:
        raise SpecbookError(f"{longest} tokens do not fit the context of {limit}")

    pads = torch.tensor([max(map(len, asked)) - len(prompt) for prompt in asked])
    batch = _Batch(model, pads, longest)
    ids = torch.zeros((len(asked), longest - max_new_tokens), dtype=torch.long)
    for i, prompt in enumerate(asked):
        ids[i, int(pads[i]) :] = torch.tensor(prompt)
    hidden = batch.forward(ids)
    kept: list[list[tuple[torch.Tensor, torch.Tensor]]] = [[] for _ in asked]
    for i in range(len(asked)):
        # The row of the last prompt token is computed with the first new token.
        rows = hidden[i, int(pads[i]) + starts[i] : -1]
        for part in rows.split(ROWS_AT_ONCE):
            kept[i].append(_top(_logits(model, part), top_k))
    tokens = [list(prompt) for prompt in asked]
    running = list(range(len(asked)))
    last = hidden[:, -1]
    scale = torch.tensor(heat)
    for step in range(max_new_tokens):
        logits = _logits(model, last)
        top_ids, top_logps = _top(logits, top_k)
        drawn = _draw(logits, scale[running], generator)
        still = []
        for row, (i, token) in enumerate(zip(running, drawn.tolist(), strict=True)):
            if tokens[i][-1] in ends and len(tokens[i]) > len(asked[i]):
                continue
            kept[i].append((top_ids[row : row + 1], top_logps[row : row + 1]))
            tokens[i].append(token)
            if token not in ends:
                still.append(row)
        if not still or step == max_new_tokens - 1:
            break
        if len(still) <= COMPACT_BELOW * len(running):
            batch.keep(still)
            drawn = drawn[still]
            running = [running[row] for row in still]
        last = batch.forward(drawn[:, None])[:, -1]
    return [
        _sequence(tokens[i], starts[i], len(asked[i]), kept[i], top_k)
        for i in range(len(asked))
    ]


def _sequence(
    tokens: list[int],
    first_row: int,
    prompt_length: int,
    kept: list[tuple[torch.Tensor, torch.Tensor]],
    top_k: int,
) -> TaughtSequence:
    empty = np.empty((0, top_k))
    ids = np.concatenate([part.numpy() for part, _ in kept]) if kept else empty
    logps = np.concatenate([part.numpy() for _, part in kept]) if kept else empty
    return TaughtSequence(
        np.array(tokens, dtype=np.int64),
        first_row,
        prompt_length,
        ids.astype(np.int64),
        logps.astype(np.float32),
    )


def _logits(model: Any, hidden: torch.Tensor) -> torch.Tensor:
    return model.get_output_embeddings()(model.model.norm(hidden)).float()


def _top(logits: torch.Tensor, top_k: int) -> tuple[torch.Tensor, torch.Tensor]:
    best = torch.log_softmax(logits, dim=-1).topk(top_k, dim=-1)
    return best.indices, best.values


def _draw(
    logits: torch.Tensor, temperatures: torch.Tensor, generator: torch.Generator
) -> torch.Tensor:
    """One token a row, [rows]; the lowest of the most probable at temperature 0."""
    drawn = logits.argmax(dim=-1)
    warm = (temperatures > 0).nonzero()[:, 0]
    if len(warm):
        laws = torch.softmax(logits[warm] / temperatures[warm, None], dim=-1)
        drawn[warm] = torch.multinomial(laws, 1, generator=generator)[:, 0]
    return drawn


class _Batch:
    """Keys and values of a left-padded batch, and the forward that fills them."""

    def __init__(self, model: Any, pads: torch.Tensor, capacity: int) -> None:
        config = model.config
        self._model = model
        self._pads = pads
        self._heads = int(config.num_attention_heads)
        self._kv_heads = int(config.num_key_value_heads)
        self._width = int(
            getattr(config, "head_dim", None) or config.hidden_size // self._heads
        )
        shape = (
            *(int(config.num_hidden_layers), 2, len(pads)),
            *(self._kv_heads, capacity, self._width),
        )
        self._cache = torch.empty(shape, dtype=model.dtype)
        self._length = 0

    def keep(self, rows: list[int]) -> None:
        """Only these sequences go on."""
        index = torch.tensor(rows)
        filled = self._cache[:, :, :, :, : self._length].index_select(2, index)
        shape = list(self._cache.shape)
        shape[2] = len(rows)
        self._cache = torch.empty(shape, dtype=self._cache.dtype)
        self._cache[:, :, :, :, : self._length] = filled
        self._pads = self._pads[index]

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Last hidden states [B, n, width], before the final norm, of the next n
        columns."""
        batch, rows = ids.shape
        start, stop = self._length, self._length + rows
        self._length = stop
        columns = torch.arange(stop)
        own = columns[start:]
        pads = self._pads[:, None]
        visible = (columns <= own[:, None])[None] & (columns >= pads)[:, None]
        # A pad sees itself: a row that sees nothing would be NaN.
        visible |= (columns == own[:, None])[None]
        mask = torch.zeros(visible.shape, dtype=self._cache.dtype)
        mask.masked_fill_(~visible, torch.finfo(mask.dtype).min)
        group = self._heads // self._kv_heads
        mask = mask.repeat(1, group, 1)[:, None]
        inner = self._model.model
        x = inner.embed_tokens(ids)
        positions = (own - pads).clamp_min(0)
        cos, sin = inner.rotary_emb(x, positions)
        cos, sin = cos[:, :, None], sin[:, :, None]
        for layer, (keys, values) in zip(inner.layers, self._cache, strict=True):
            attention = layer.self_attn
            y = layer.input_layernorm(x)
            query, key, value = (
                project(y).view(batch, rows, -1, self._width)
                for project in (attention.q_proj, attention.k_proj, attention.v_proj)
            )
            keys[:, :, start:stop] = _rotated(key, cos, sin).transpose(1, 2)
            values[:, :, start:stop] = value.transpose(1, 2)
            # The heads of one group share keys: their rows are stacked.
            query = _rotated(query, cos, sin)
            query = query.view(batch, rows, self._kv_heads, group, self._width)
            query = query.permute(0, 2, 3, 1, 4).reshape(
                batch, self._kv_heads, group * rows, self._width
            )
            seen = F.scaled_dot_product_attention(
                query, keys[:, :, :stop], values[:, :, :stop], attn_mask=mask
            )
            seen = seen.view(batch, self._kv_heads, group, rows, self._width)
            seen = seen.permute(0, 3, 1, 2, 4).reshape(batch, rows, -1)
            x = x + attention.o_proj(seen)
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        return x


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin
