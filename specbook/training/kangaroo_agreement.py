"""What an adapter of Kangaroo is worth: how often it says what the target says.

At depth 1 the adapter stands behind a true token. Deeper it stands behind its own; but
as long as all of these were what the target says, and the text is what the target says,
they are the text's. So along a greedy answer one reading of the text tells how far the
adapter's own chain gets from each of its tokens. A text of someone else's hand is
followed from each token as far as the target would have written it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .. import checks
from ..models.kangaroo import MOST, Adapter
from .decoding import TaughtSequence
from .heads import pack, taught_sequences
from .heads_agreement import counted, most_probable
from .kangaroo import Trunk, stream_features, taught_labels


@torch.inference_mode()
def kangaroo_agreement(
    adapter: Adapter,
    trunk: Trunk,
    sequences: Sequence[TaughtSequence],
    depths: int = MOST,
) -> dict[str, Any]:
    """Agreement of an adapter with the target over `sequences`, one at a time.

    In a continued sequence the pending token is one of the continuation, as at
    runtime; in a text that nobody continued it is any. The target's token is the first
    of its stored law. Returns what `heads_agreement` does, for depths 1 .. `depths`:
    "top1" at depth 1 is with true tokens going in; "forced" counts a depth where the
    text above it is the target's, and "chain" where the adapter's chain is, too.
    """
    checks.instance(adapter, "adapter", Adapter)
    checks.instance(trunk, "trunk", Trunk)
    checks.integer(depths, "depths", least=1)
    hits, probable, tried = [], [], []
    for sequence in taught_sequences(sequences):
        stream = pack([sequence])
        labels = taught_labels(stream)
        if sequence.prompt_length < len(sequence.tokens):
            labels = labels[labels > sequence.prompt_length]
        if not len(labels):
            continue
        features = stream_features(adapter, trunk, stream)
        said = features[(labels - 1).to(features.device)]
        best, q = most_probable(said, trunk.teacher)
        wanted = stream.top_ids[stream.law[labels], 0]
        right, own = best == wanted, stream.tokens[labels] == wanted
        # Labels are neighbours: from one on, depth d is the d-th of them.
        places = torch.arange(len(labels))[:, None] + torch.arange(depths)
        there = places < len(labels)
        places = places.clamp_max(len(labels) - 1)
        followed = torch.cat([there[:, :1], own[places[:, :-1]]], dim=1)
        rows = there & followed.cumprod(dim=1).bool()
        hits.append(right[places] & rows)
        probable.append(q[places])
        tried.append(rows)
    if not tried:
        nothing = torch.zeros((0, depths), dtype=torch.bool)
        return counted(nothing, nothing.float(), nothing)
    return counted(torch.cat(hits), torch.cat(probable), torch.cat(tried))
