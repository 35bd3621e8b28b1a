"""What a draft is worth: how often it says what the target says.

Along a greedy answer of the target the draft's chain is right up to depth d exactly
if its most probable token is the target's at d positions in a row: as long as it is
right, its own chain is the target's text. So one teacher-forced forward tells the
acceptance at every depth. At a temperature the chance that one draft token is kept is
the mass that both laws share, the sum of min(p, q) (article, section 0x08A).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from .. import checks
from ..errors import SpecbookError
from .decoding import TaughtSequence

DEPTHS = 4


@torch.inference_mode()
def greedy_agreement(
    draft: Any, sequences: Sequence[TaughtSequence], *, depths: int = DEPTHS
) -> dict[str, Any]:
    """How far the greedy chains of `draft` follow the target's greedy answers.

    `draft`: a transformers causal LM. `sequences`: greedy continuations; what follows
    the prompt counts. Returns "rows", "agreed", "top1" (the
    share of rows) and "by_depth": [agreed, tried] for depth 1 .. `depths`, where depth
    d is tried only after d - 1 right tokens.
    """
    checks.integer(depths, "depths", least=1)
    agreed = rows = 0
    by_depth = [[0, 0] for _ in range(depths)]
    for tokens, first in _answers(sequences):
        best = _rows(draft, tokens, first - 1).argmax(-1)
        hits = (best == tokens[first:]).tolist()
        agreed += sum(hits)
        rows += len(hits)
        count_chains(hits, by_depth)
    return _shares(agreed, rows, by_depth)


def count_chains(hits: Sequence[bool], by_depth: list[list[int]]) -> None:
    """Add to `by_depth` [agreed, tried] for every start of a chain along `hits`."""
    for start in range(len(hits)):
        for depth, count in enumerate(by_depth):
            if start + depth >= len(hits):
                break
            count[1] += 1
            if not hits[start + depth]:
                break
            count[0] += 1


@torch.inference_mode()
def teacher_agreement(
    draft: Any, sequences: Sequence[TaughtSequence]
) -> dict[str, Any]:
    """As `greedy_agreement`, against the teacher's most probable token of every taught
    row after the prompt, or of every taught row where nothing follows it: for texts
    that the target did not write itself. No chains."""
    agreed = rows = 0
    for sequence in sequences:
        tokens = torch.from_numpy(sequence.tokens)
        continued = sequence.prompt_length < len(tokens)
        first = max(sequence.first_row, sequence.prompt_length - 1 if continued else 0)
        best = _rows(draft, tokens, first).argmax(-1)
        theirs = sequence.top_ids[first - sequence.first_row :, 0]
        agreed += int((best == torch.from_numpy(theirs)).sum())
        rows += len(theirs)
    return {"rows": rows, "agreed": agreed, "top1": agreed / rows if rows else None}


@torch.inference_mode()
def shared_mass(
    draft: Any,
    target: Any,
    sequences: Sequence[TaughtSequence],
    *,
    temperature: float,
) -> dict[str, Any]:
    """The mean of sum min(p, q) over the answers' positions, p and q both at
    `temperature`: the chance that a token drawn from the draft is kept there.

    `draft`, `target`: transformers causal LMs of one vocabulary. Returns "rows" and
    "shared".
    """
    heat = float(checks.real(temperature, "temperature"))
    if not heat > 0:
        raise SpecbookError(f"temperature must be above 0, got {heat}")
    total, rows = 0.0, 0
    for tokens, first in _answers(sequences):
        p = torch.softmax(_rows(target, tokens, first - 1) / heat, -1)
        q = torch.softmax(_rows(draft, tokens, first - 1) / heat, -1)
        if p.shape != q.shape:
            raise SpecbookError(
                f"the draft has {q.shape[1]} tokens, the target {p.shape[1]}"
            )
        total += float(torch.minimum(p, q).double().sum())
        rows += len(p)
    return {"rows": rows, "shared": total / rows if rows else None}


def _answers(
    sequences: Iterable[TaughtSequence],
) -> Iterable[tuple[torch.Tensor, int]]:
    """Tokens, and the number of the first token that counts."""
    for sequence in sequences:
        first = sequence.prompt_length
        if first >= len(sequence.tokens):
            continue
        yield torch.from_numpy(sequence.tokens), first


def _rows(model: Any, tokens: torch.Tensor, first: int) -> torch.Tensor:
    """Logits [L - 1 - first, V] of the rows from `first` to the last but one; the head
    is not run on any other."""
    read = tokens[None, :-1]
    kept = read.shape[1] - first
    output = model(input_ids=read, use_cache=False, logits_to_keep=kept)
    return output.logits[0].float()


def _shares(agreed: int, rows: int, by_depth: list[list[int]]) -> dict[str, Any]:
    return {
        "rows": rows,
        "agreed": agreed,
        "top1": agreed / rows if rows else None,
        "by_depth": by_depth,
    }
