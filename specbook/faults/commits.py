"""Faults of publication: what is kept of a round, in the cache and in the text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import torch

from .. import engine
from ..lab import FixedPaths
from ..measure import self_traces as watching
from ..measure.self_vectors import FULL_DRAFTS, fading_target
from ..models import tiny
from ..models.shared_trunk import sharing
from ..models.state import StateKey, Tag, ancestry, check_reuse, full_path, publish
from ..models.table import TableTarget
from ..models.target import TransformersTarget
from ..oracles.exactness import check_tokens
from ..policy import SamplingPolicy
from ..tree import CandidateTree
from . import plant
from .exact import wrong_tokens
from .fault import LOGITS, TOKENS, Fault
from .targets import logit_gap, self_test, target

PUBLISH = "specbook.models.state.publish"
_TEXT = [1, 2, 3, 4, 5]
_LAYERS = 2


def _key(token: int, tokens: Sequence[int] = (), **changes: Any) -> StateKey:
    """What the cache of a model of two layers needs of `token` behind `tokens`."""
    key = StateKey(
        "target", _LAYERS, token, len(tokens), ancestry(tokens), "float32", 1
    )
    return replace(key, **changes)


def _row(key: StateKey, owner: str = "target") -> Tag:
    """A row that went through all layers of whatever computed it."""
    return Tag(key, _LAYERS, owner, full_path(_LAYERS))


# ------------------------------------------------------------------ foreign rows


def _skipped(planted: bool) -> Any:
    """The row of a token that the skipped path computed, and the target's own."""
    tag = watching.two_rows(watching.tiny_target("llama", 3), _TEXT, "-m-").tag
    if not planted:
        tag = Tag(tag.key, tag.layers, "target", full_path(tag.layers))
    return publish([tag], [tag.key])


def _skipped_harm(planted: bool) -> int:
    """Wrong tokens of 32, greedy."""
    made = fading_target((0.6, 0.4, 0.4))
    kind = watching.PublishesSkippedRows if planted else watching.DraftVerify
    source = kind("mm-", most=4, policy=FULL_DRAFTS)
    found, plain = (
        engine.generate(made, _TEXT, given, "greedy", max_new_tokens=32).tokens
        for given in (source, None)
    )
    return wrong_tokens(found, plain)


def _draft_row(planted: bool) -> Any:
    need = _key(7, (1, 2))
    return publish(
        [_row(_key(7, (1, 2), checkpoint="draft") if planted else need)], [need]
    )


def _draft_row_harm(planted: bool) -> float:
    """The last committed row is replaced by that of another model, of equal shape."""
    made = target()
    other = TransformersTarget(tiny.tiny_llama(1), self_test=False)
    sessions: list[Any] = [model.start(_TEXT) for model in (made, other)]
    for session in sessions:
        session.verify(CandidateTree.from_rows([], [], len(_TEXT)))
        session.commit([], 6)
    ours, theirs = (session._state for session in sessions)
    if planted:
        with torch.inference_mode():
            end = len(ours)
            ours.append_from(theirs, range(_LAYERS), end - 1, end)
            ours.keep(end - 1, [end])
    rows = sessions[0].verify(CandidateTree.from_rows([], [], len(_TEXT) + 1))
    wanted = made.plain_logits([*_TEXT, 6])[-1]
    return float(np.abs(rows.logits(-1) - wanted).max())


def _correction(planted: bool) -> Any:
    """The row of the refused candidate 4, published where token 9 was emitted."""
    need = _key(9, (1, 2))
    return publish([_row(_key(4, (1, 2)) if planted else need)], [need])


def _by_token(planted: bool) -> None:
    """A drafted row of the same token, behind other tokens."""
    need = _key(9, (1, 9))
    check_reuse(_row(_key(9, (1,)) if planted else need), need)


def _by_token_harm(planted: bool) -> float:
    form = sharing(watching.tiny_target("llama", 4), 2)
    with watching.reuse_by_token_alone() if planted else plant.nothing():
        return max(watching.chain_gaps(form, _TEXT, [9, 9, 9]))


# -------------------------------------------------------------------- wrong paths

_END = 0
_STORY = {1: 2, 2: _END, _END: 1}
"""What follows each token, greedily: 1 2 0 1 2 0 ..."""

_CHAIN = CandidateTree.from_rows([2, 1, 2, 0], range(-1, 3), 1)
"""A draft behind the prompt [1]. The target refuses its second token, and agrees with
each of the two behind it, given the one before."""


def _story() -> TableTarget:
    rows = {last: [float(t == then) for t in range(3)] for last, then in _STORY.items()}
    return TableTarget(lambda prefix: rows[prefix[-1]], vocab_size=3)


def _agreed(planted: bool) -> list[int]:
    """Rows that the target agrees with. `planted`: those behind a refusal, too."""
    rows = _story().start([1]).verify(_CHAIN)
    said = [int(rows.law(row - 1, SamplingPolicy(0.0)).argmax()) for row in range(4)]
    found: list[int] = []
    for row, token in enumerate(_CHAIN.token_ids):
        if token == said[row]:
            found.append(row)
        elif not planted:
            break
    return found


def _gap_in_path(planted: bool) -> Any:
    return _CHAIN.check_path(_agreed(planted))


def _gap_harm(planted: bool) -> int:
    found = [_CHAIN.token_ids[row] for row in _agreed(planted)]
    plain = engine.generate(_story(), [1], None, "greedy", max_new_tokens=len(found))
    return wrong_tokens(found, plain.tokens)


# --------------------------------------------------------------------- end tokens


def _decoded(source: Any, planted: bool) -> list[int]:
    """Up to nine tokens. `planted`: the end is looked for in the last token alone."""

    def last_only(block: list[int], room: int, ends: Any) -> list[int]:
        return block[:room]

    cut = last_only if planted else engine._cut
    with mock.patch.object(engine, "_cut", cut):
        made = engine.generate(
            _story(), [1], source, "greedy", max_new_tokens=9, eos_token_id=_END
        )
    return made.tokens


def _end_inside(planted: bool) -> None:
    check_tokens(_decoded(FixedPaths((2, 0, 1)), planted), _decoded(None, False))


def _end_harm(planted: bool) -> int:
    source = FixedPaths((2, 0, 1))
    return wrong_tokens(_decoded(source, planted), _decoded(None, False))


FAULTS: tuple[Fault, ...] = (
    Fault(
        "rows-of-a-chain-kept",
        "commit",
        "0x0CB",
        "m accepted rows are kept as the first m of the tree",
        "right on chains; on trees the cache holds rows of refused siblings",
        "m rows are kept, as they should be",
        "specbook.models.selftest.Plan.check",
        self_test(plant.first_rows_kept),
        "round 1",
        logit_gap(plant.first_rows_kept),
        LOGITS,
        ("huggingface/transformers #30042",),
    ),
    Fault(
        "pending-row-dropped",
        "commit",
        "0x0CB",
        "a crop forgets the row of the token that was pending",
        "the cache lags by a row, and every position is one off",
        "rows are rows; the lengths of all layers agree",
        "specbook.models.selftest.Plan.check",
        self_test(plant.pending_dropped),
        "the cache holds",
        logit_gap(plant.pending_dropped),
        LOGITS,
        ("huggingface/transformers #30042", "paiml/aprender #2014"),
    ),
    Fault(
        "refused-row-for-the-correction",
        "commit",
        "0x0CB",
        "the row of the refused candidate stays as that of the correction token",
        "the model remembers a token that nobody can read in the text",
        "the position is right, and one row more is what a token adds",
        "specbook.models.selftest.Plan.check",
        self_test(plant.refused_row_kept),
        "the cache holds",
        logit_gap(plant.refused_row_kept),
        LOGITS,
    ),
    Fault(
        "refused-row-published",
        "commit",
        "0x05C",
        "a runtime that tags its rows publishes a refused one for the correction token",
        "the model remembers a token that nobody can read in the text",
        "position, ancestry, checkpoint, type and generation are those of the place",
        PUBLISH,
        _correction,
        "token_id is 4, needed is 9",
        logit_gap(plant.refused_row_kept),
        LOGITS,
    ),
    Fault(
        "skipped-row-published",
        "commit",
        "0x05C",
        "a row of the skipped path stands in the cache as the target's",
        "the text bends a little after each accepted draft",
        "keys and values of every layer, of the right shape",
        PUBLISH,
        _skipped,
        "left out 1.mlp",
        _skipped_harm,
        TOKENS,
        blind="a row whose owner wrote a wrong path into its tag",
    ),
    Fault(
        "draft-row-published",
        "commit",
        "0x05C",
        "a row of the draft model's cache is copied into the target's",
        "one row of another model's memory in every prefix from then on",
        "two models of one shape have caches of one shape",
        PUBLISH,
        _draft_row,
        "checkpoint is 'draft', needed is 'target'",
        _draft_row_harm,
        LOGITS,
    ),
    Fault(
        "row-reused-by-token",
        "commit",
        "0x05B",
        "a shallow row is used again for any row of the same token",
        "right until a word comes twice",
        "one row a token, of the right width",
        "specbook.models.state.check_reuse",
        _by_token,
        "position is 1, needed is 2",
        _by_token_harm,
        "of the largest logit",
    ),
    Fault(
        "agreements-behind-a-refusal",
        "commit",
        "0x09B",
        "all agreements of a draft are committed, not those up to the first refusal",
        "words are missing in the text, and acceptance looks good",
        "a list of rows that the target agreed with",
        "specbook.tree.CandidateTree.check_path",
        _gap_in_path,
        "row 2 has parent 1, not 0",
        _gap_harm,
        TOKENS,
        ("vllm-project/vllm #2658",),
    ),
    Fault(
        "end-token-inside-a-block",
        "commit",
        "0x0CB",
        "only the last token of a block is looked at for the end",
        "the answer ends, and then goes on",
        "a block of accepted tokens, all of them right",
        "specbook.oracles.exactness.check_tokens",
        _end_inside,
        "plain decoding ends after 2",
        _end_harm,
        TOKENS,
        (
            "huggingface/transformers #47912",
            "huggingface/transformers #31301",
            "huggingface/transformers #46790",
        ),
    ),
)
