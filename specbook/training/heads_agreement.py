"""What draft heads are worth: how often they say what the target says, by depth.

Along a text whose true tokens are given to the heads (the forced path), head i drafts
its most probable token, which is right if it is the target's most probable one there.
`forced` counts every row of a head; `chain` only those where all heads above it on the
same path were right, which is how far a greedy chain gets. `calibration` sets the mean
probability that heads gave the drafted token beside how often it was right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .. import checks
from ..models.heads.base import Heads
from .decoding import TaughtSequence
from .heads import Teacher, pack, row_mask, stream_features, taught_sequences

BINS = 10
ROWS_AT_ONCE = 256


@torch.inference_mode()
def heads_agreement(
    heads: Heads, teacher: Teacher, sequences: Sequence[TaughtSequence]
) -> dict[str, Any]:
    """Agreement of `heads` with the target over `sequences`, one at a time.

    In a continued sequence the pending token is one of the continuation, as at
    runtime; in a text that nobody continued it is any but the first. The target's
    token is the first of its stored law.

    Returns "forced" and "chain", lists of [agreed, tried] for depths 1 .. K; "top1",
    the shares of "forced", None for a depth without rows; and "calibration": for each
    depth a list of [rows, mean q, share agreed] for the bins of q that have rows, of
    which there are `BINS` of equal width.
    """
    checks.instance(heads, "heads", Heads)
    checks.instance(teacher, "teacher", Teacher)
    count = heads.config.heads
    hits, probable, tried = [], [], []
    for sequence in taught_sequences(sequences):
        stream = pack([sequence])
        mask = row_mask(stream, count)
        if sequence.prompt_length < len(sequence.tokens):
            mask[: sequence.prompt_length] = False
        if not bool(mask.any()):
            continue
        positions, _, features = stream_features(heads, teacher, stream, mask)
        best, q = most_probable(features.reshape(-1, features.shape[-1]), teacher)
        places = positions[:, None] + torch.arange(1, count + 1)
        rows = mask[positions]
        # Where there is no row any law will do: it is not counted.
        law = stream.law[places.clamp_max(len(stream.law) - 1)].clamp_min(0)
        hits.append((best.view(rows.shape) == stream.top_ids[law, 0]) & rows)
        probable.append(q.view(rows.shape))
        tried.append(rows)
    if not tried:
        nothing = [[0, 0] for _ in range(count)]
        return _told(nothing, nothing, [[] for _ in range(count)])
    return counted(torch.cat(hits), torch.cat(probable), torch.cat(tried))


def most_probable(
    features: torch.Tensor, teacher: Teacher
) -> tuple[torch.Tensor, torch.Tensor]:
    """The most probable token of each row and its probability, on the CPU."""
    weight = teacher.head().float()
    tokens, probable = [], []
    for part in features.split(ROWS_AT_ONCE):
        top = torch.softmax(part @ weight.T, dim=-1).max(dim=-1)
        ids = top.indices
        tokens.append(teacher.ids(ids))
        probable.append(top.values)
    return torch.cat(tokens).cpu(), torch.cat(probable).cpu()


def counted(hits: torch.Tensor, q: torch.Tensor, tried: torch.Tensor) -> dict[str, Any]:
    """What `heads_agreement` tells, of rows that were looked at already.

    `hits`, `tried` boolean [R, K]: whether head i has this row, and was right there;
    `q` [R, K]: the probability that it gave to what it said.
    """
    forced, chain, calibration = [], [], []
    alive = torch.ones(len(hits), dtype=torch.bool)
    bins = (q.double() * BINS).long().clamp_max(BINS - 1)
    for depth in range(hits.shape[1]):
        right, rows = hits[:, depth], tried[:, depth]
        forced.append([int(right.sum()), int(rows.sum())])
        chain.append([int((right & alive).sum()), int((rows & alive).sum())])
        alive &= right
        found = []
        for number in range(BINS):
            inside = rows & (bins[:, depth] == number)
            if n := int(inside.sum()):
                mean = float(q[inside, depth].double().mean())
                found.append([n, mean, int((right & inside).sum()) / n])
        calibration.append(found)
    return _told(forced, chain, calibration)


def _told(
    forced: list[list[int]], chain: list[list[int]], calibration: list[Any]
) -> dict[str, Any]:
    top1 = [agreed / tried if tried else None for agreed, tried in forced]
    return {
        "top1": top1,
        "forced": forced,
        "chain": chain,
        "calibration": calibration,
    }
