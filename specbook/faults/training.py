"""Faults of training: rows and states of another document, heads of another target."""

from __future__ import annotations

from typing import Any

import torch

from ..models.heads import storage
from ..models.tiny import tiny_llama
from ..training import packed
from ..training.rows import HeadRows, check_rows, head_rows
from .fault import Fault
from .targets import target

_SEGMENTS = [0, 0, 0, 0, 1, 1, 1, 1, 1]
_HEADS = 3


def _rows(planted: bool) -> list[HeadRows]:
    """Teacher rows of two documents. `planted`: the stream counts as one."""
    names = [0] * len(_SEGMENTS) if planted else _SEGMENTS
    return head_rows(names, [True] * len(names), _HEADS)


def _across(planted: bool) -> None:
    check_rows(_rows(planted), _SEGMENTS, [True] * len(_SEGMENTS))


def _across_harm(planted: bool) -> int:
    """Rows that read more than one document."""
    return sum(
        len({_SEGMENTS[place] for place in (state, *embedded, label)}) > 1
        for part in _rows(planted)
        for state, embedded, label in zip(
            part.hidden.tolist(),
            part.embedded.tolist(),
            part.labels.tolist(),
            strict=True,
        )
    )


def _early_rows(planted: bool) -> list[HeadRows]:
    """Right rows. `planted`: the label is the token that the row was just given."""
    back = 1 if planted else 0
    return [part._replace(labels=part.labels - back) for part in _rows(False)]


def _early(planted: bool) -> None:
    check_rows(_early_rows(planted), _SEGMENTS, [True] * len(_SEGMENTS))


def _early_harm(planted: bool) -> int:
    """Rows that are asked for what they were told."""
    return sum(
        int((part.embedded[:, -1] == part.labels).sum())
        for part in _early_rows(planted)
    )


def _states(planted: bool) -> tuple[Any, list[int], torch.Tensor]:
    """States of two documents in one stream. `planted`: by a plain causal forward."""
    model = target().model
    tokens = [3, 1, 4, 1, 5, 9, 2, 6, 5]
    names = [0] * len(tokens) if planted else _SEGMENTS
    return model, tokens, packed.segment_causal_states(model, tokens, names)


def _contaminated(planted: bool) -> float:
    model, tokens, states = _states(planted)
    return packed.check_states(model, tokens, _SEGMENTS, states)


def _contaminated_harm(planted: bool) -> float:
    model, tokens, states = _states(planted)
    clean = packed.segment_causal_states(model, tokens, _SEGMENTS)
    return float((states - clean).abs().max() / clean.abs().max())


def _heads(planted: bool) -> None:
    """Heads that were trained on one checkpoint, loaded for another."""
    about = target().identity()
    other = {**about, "checkpoint": "another"} if planted else about
    storage.check_target({"name": "heads", "target": about}, other)


def _heads_harm(planted: bool) -> float:
    """The states that the heads would read, of the same text in two checkpoints."""
    text = [3, 1, 4, 1, 5]
    models = [target().model, tiny_llama(1) if planted else target().model]
    one, other = (packed.segment_causal_states(m, text, [0] * 5) for m in models)
    return float((one - other).abs().max() / one.abs().max())


FAULTS: tuple[Fault, ...] = (
    Fault(
        "row-across-documents",
        "training",
        "0x06B",
        "teacher rows are cut from a packed stream as if it were one document",
        "heads that expect the next document to go on with this one",
        "a state, some embeddings and a label: the same number for every head",
        "specbook.training.rows.check_rows",
        _across,
        "of document 0, the label is of 1",
        _across_harm,
        "rows of two documents",
        ("vllm-project/speculators #818",),
        "a wrong segment id",
    ),
    Fault(
        "label-that-was-given",
        "training",
        "0x06B",
        "a head's label is the token whose embedding it was given",
        "a loss that falls to nothing, and heads that repeat the last token",
        "a label is a token id",
        "specbook.training.rows.check_rows",
        _early,
        "not the run that ends at its label",
        _early_harm,
        "rows that know their label",
    ),
    Fault(
        "contaminated-states",
        "training",
        "0x06B",
        "a packed stream is read by a plain causal forward",
        "heads that are good in training and worse on every real prompt",
        "a state [n, d], and the rows are cut at the right places",
        "specbook.training.packed.check_states",
        _contaminated,
        "the states of document 1",
        _contaminated_harm,
        "of the largest state",
    ),
    Fault(
        "heads-of-another-checkpoint",
        "training",
        "0x0B",
        "heads are loaded for a target that was trained on",
        "exact text, low acceptance",
        "the same width, the same tokenizer",
        "specbook.models.heads.storage.check_target",
        _heads,
        "was trained for the checkpoint",
        _heads_harm,
        "of the largest state",
    ),
)
