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
from .decoding import ROWS_AT_ONCE, TaughtSequence
from .heads import Teacher

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
    `top_k` most probable tokens of the law behind it. Raises `SpecbookError` for an
    empty prompt or answer.
    """
    head = model.get_output_embeddings().weight.detach()
    checks.integer(top_k, "top_k", least=1, most=len(head))
    wholes, prompts = [], []
    for place, (prompt, answer) in enumerate(answers):
        if not len(prompt) or not len(answer):
            raise SpecbookError(f"answers[{place}] has no prompt or no answer")
        wholes.append([*prompt, *answer])
        prompts.append(len(prompt))
    stored = states.store(model, wholes, folder=folder, key=key)
    found = []
    for ids, length in zip(wholes, prompts, strict=True):
        rows = stored.read(ids)[length - 1 : -1].to(head)
        parts = [
            torch.log_softmax((part @ head.T).float(), dim=-1).topk(top_k, dim=-1)
            for part in rows.split(ROWS_AT_ONCE)
        ]
        top_ids = torch.cat([part.indices for part in parts]).cpu().numpy()
        top_logps = torch.cat([part.values for part in parts]).cpu().numpy()
        tokens = np.array(ids, dtype=np.int64)
        found.append(TaughtSequence(tokens, length - 1, length, top_ids, top_logps))
    return Teacher(model, stored=stored), found
