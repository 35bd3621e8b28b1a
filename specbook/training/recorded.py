"""Recorded answers as lessons: what the frozen target says behind each of their tokens.

The teacher rows of a training are made once and take hours (`teacher`). A few answers
that are recorded already make a small set in seconds: the target reads each of them
once, its states are stored (`states`), and the laws are read off these.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .. import checks
from ..errors import SpecbookError
from . import states
from .decoding import TaughtSequence
from .heads import Teacher

ROWS_AT_ONCE = 64
"""Rows whose logits are in memory at the same time."""

Answer = tuple[Sequence[int], Sequence[int]]
"""The ids of a prompt, and those of what was answered."""


@torch.inference_mode()
def lessons(
    model: Any,
    answers: Iterable[Answer],
    *,
    folder: Path,
    key: str,
    top_k: int = 16,
) -> tuple[Teacher, list[TaughtSequence]]:
    """`model` as a teacher that has read `answers`, and a sequence for each of them.

    `model`: a frozen causal LM of transformers. `folder` and `key`: where its states
    are stored, and what its weights are. Every token of an answer is a label, with the
    `top_k` most probable tokens of the law behind it. Raises `SpecbookError` for no
    answers, and for an empty prompt or answer.
    """
    head = model.get_output_embeddings().weight.detach()
    checks.integer(top_k, "top_k", least=1, most=len(head))
    wholes, prompts = [], []
    for place, pair in enumerate(checks.entries(answers, "answers", "answers")):
        name = f"answers[{place}]"
        both = [
            checks.token_ids(part, name, vocab_size=len(head))
            for part in checks.entries(pair, name, "a prompt and what was answered")
        ]
        if len(both) != 2 or not both[0] or not both[1]:
            raise SpecbookError(f"{name} has no prompt or no answer, or has more")
        prompt, answer = both
        wholes.append([*prompt, *answer])
        prompts.append(len(prompt))
    if not wholes:
        raise SpecbookError("there are no answers to learn from")
    stored = states.store(model, wholes, folder=folder, key=key)
    rows = torch.cat(
        [
            stored.read(ids)[length - 1 : -1]
            for ids, length in zip(wholes, prompts, strict=True)
        ]
    )
    # What is kept is allocated first: between large rows of logits that come and go,
    # small results would hold on to memory many times their own.
    top_ids = np.empty((len(rows), top_k), dtype=np.int64)
    top_logps = np.empty((len(rows), top_k), dtype=np.float32)
    for first in range(0, len(rows), ROWS_AT_ONCE):
        part = slice(first, first + ROWS_AT_ONCE)
        logits = (rows[part].to(head) @ head.T).float()
        top = torch.log_softmax(logits, dim=-1).topk(top_k, dim=-1)
        top_ids[part], top_logps[part] = top.indices.cpu(), top.values.cpu()
    found, first = [], 0
    for ids, length in zip(wholes, prompts, strict=True):
        part = slice(first, first + len(ids) - length)
        first = part.stop
        tokens = np.array(ids, dtype=np.int64)
        found.append(
            TaughtSequence(tokens, length - 1, length, top_ids[part], top_logps[part])
        )
    return Teacher(model, stored=stored), found
