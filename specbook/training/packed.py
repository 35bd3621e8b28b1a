"""Hidden states of a packed stream: several documents in one forward, kept apart.

Teacher rows (`rows`) say which positions of a stream may be taken. They cannot say that
a state is clean: in a plain causal forward over a packed stream every document after
the first has read those before it, and its states are others at every position, however
well the rows are chosen. So the forward itself is segment-causal here: a row sees the
active rows of its own document, and positions begin anew with each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .. import checks
from ..errors import SpecbookError
from ..models.cache import TreeCache
from ..models.layered import Layered
from ..models.target import check_config, check_model, head_inputs
from .rows import checked_stream


@torch.inference_mode()
def segment_causal_states(
    model: Any,
    tokens: Sequence[int],
    segment_ids: Any,
    valid: Any = None,
) -> torch.Tensor:
    """States [n, d] of `tokens`, as the LM head of `model` reads them.

    `model`: a full-attention causal LM of transformers. `segment_ids` [n]: neighbours
    with one id are one document. `valid` [n], by default all True: which tokens are
    inputs; the state of any other means nothing, and no row sees it. Raises
    `SpecbookError` for columns of different lengths and for a document of more tokens
    than the model has positions, `UnsupportedTargetError` for a model whose rows cannot
    be masked.
    """
    check_model(model)
    check_config(model.config)
    ids, visible, position = _seen_rows(model, tokens, segment_ids, valid)
    return _states(model, ids, visible, position)


APART = 1e-4
"""How far a state may lie from that of its document alone, in the largest number of the
latter: float32 rounds in another order in a packed stream, by 1e-6 of it or so."""


@torch.inference_mode()
def check_states(
    model: Any, tokens: Sequence[int], segment_ids: Any, states: torch.Tensor
) -> float:
    """The largest difference between `states` [n, d] and those of each document in a
    forward of its own, over the largest number of the latter.

    Raises `SpecbookError`, naming the first document that is further off than `APART`:
    its states have read another one, or stand at other positions. For float32 and
    float64; the other arguments as `segment_causal_states`, all tokens being inputs.
    """
    ids, _, position = _seen_rows(model, tokens, segment_ids, None)
    if tuple(states.shape[:1]) != (len(ids),):
        raise SpecbookError(f"{len(states)} states for {len(ids)} tokens")
    starts = [place for place, at in enumerate(position.tolist()) if at == 0]
    worst = 0.0
    for number, (start, stop) in enumerate(
        zip(starts, [*starts[1:], len(ids)], strict=True)
    ):
        part = ids[start:stop]
        alone = segment_causal_states(model, part, [0] * len(part))
        found = states[start:stop]
        off = float((found - alone).abs().max() / alone.abs().max())
        if not off <= APART:
            raise SpecbookError(
                f"the states of document {number} (places {start} to {stop - 1}) "
                f"differ by {off:.3g} from those of the document alone: it was not "
                "kept apart in the stream"
            )
        worst = max(worst, off)
    return worst


@torch.inference_mode()
def trunk_states(
    model: Any, boundary: int, tokens: Sequence[int], segment_ids: Any
) -> torch.Tensor:
    """Rows [n, d] of `tokens` above the first `boundary` layers of `model`: what the
    next layer reads. The layers above are not run.

    `model`: of a family that `models.layered` knows. Other arguments and errors: as
    `segment_causal_states`; `SpecbookError` for a boundary that the model has not.
    """
    layered = Layered(model)
    checks.integer(boundary, "boundary", least=1, most=layered.count)
    ids, visible, position = _seen_rows(model, tokens, segment_ids, None)
    _check_length(model, position)
    head = model.get_output_embeddings().weight
    places = position[None].to(head.device)
    embedded = layered.embed(torch.tensor([ids], device=head.device), places)
    mask = _additive(visible, head)
    return layered.run(embedded, 0, boundary, places, mask, TreeCache())[0]


@torch.inference_mode()
def path_states(
    model: Any,
    tokens: Sequence[int],
    segment_ids: Any,
    rows: torch.Tensor,
    paths: torch.Tensor,
) -> torch.Tensor:
    """States [R, D, d] of candidates that are not the stream's own.

    `paths` int64 [R, D]: D tokens that follow the token at row `rows[r]` (int64 [R])
    in place of those that do in the stream. A candidate sees its document up to that
    row, and its own path above it. Other arguments and errors: as
    `segment_causal_states`, with the paths' tokens counted in their document.
    """
    check_model(model)
    check_config(model.config)
    vocab_size = len(model.get_output_embeddings().weight)
    ids = checks.token_ids(tokens, vocab_size=vocab_size)
    given = checks.entries(segment_ids, "segment_ids", "segment ids")
    segments, _ = checked_stream(given, [True] * len(given))
    for value, name, axes in ((rows, "rows", 1), (paths, "paths", 2)):
        if (
            not isinstance(value, torch.Tensor)
            or value.dtype != torch.int64
            or value.dim() != axes
        ):
            raise SpecbookError(
                f"{name} must be an int64 tensor of {axes} axes, got {value!r}"
            )
    count, depth = paths.shape
    if len(segments) != len(ids) or len(rows) != count or not count or not depth:
        raise SpecbookError(
            f"{len(ids)} tokens and {len(segments)} segment ids, {len(rows)} rows and "
            f"paths {list(paths.shape)}: they do not fit, or there is no path"
        )
    if int(rows.min()) < 0 or int(rows.max()) >= len(ids):
        raise SpecbookError(f"rows has a row outside 0 .. {len(ids) - 1}")
    more = checks.token_ids(paths.reshape(-1).tolist(), "paths", vocab_size=vocab_size)
    run, position = _runs(segments)
    n, extra = len(ids), count * depth
    at = rows.repeat_interleave(depth)
    steps = torch.arange(depth).repeat(count)
    path = torch.arange(count).repeat_interleave(depth)
    visible = torch.zeros((n + extra, n + extra), dtype=torch.bool)
    visible[:n, :n] = (run[:, None] == run) & torch.ones(n, n, dtype=torch.bool).tril()
    visible[n:, :n] = visible[at, :n]
    same = path[:, None] == path
    visible[n:, n:] = same & (steps <= steps[:, None])
    position = torch.cat([position, position[at] + 1 + steps])
    return _states(model, [*ids, *more], visible, position)[n:].view(count, depth, -1)


def _seen_rows(
    model: Any, tokens: Sequence[int], segment_ids: Any, valid: Any
) -> tuple[list[int], torch.Tensor, torch.Tensor]:
    """The checked ids; which rows each row sees, [n, n]; and places in documents."""
    vocab_size = len(model.get_output_embeddings().weight)
    ids = checks.token_ids(tokens, vocab_size=vocab_size)
    flags = [True] * len(ids) if valid is None else valid
    segments, active = checked_stream(segment_ids, flags)
    if len(segments) != len(ids) or not ids:
        raise SpecbookError(
            f"{len(ids)} tokens, {len(segments)} segment ids and {len(active)} flags: "
            "a packed stream has one of each a position, and at least one"
        )
    run, position = _runs(segments)
    n = len(ids)
    visible = (run[:, None] == run) & torch.ones(n, n, dtype=torch.bool).tril()
    visible &= torch.tensor(active)
    visible |= torch.eye(n, dtype=torch.bool)  # a row that sees nothing would be NaN
    return ids, visible, position


def _check_length(model: Any, position: torch.Tensor) -> None:
    limit = getattr(model.config, "max_position_embeddings", None)
    if limit is not None and int(position.max()) >= limit:
        raise SpecbookError(
            f"a document has {int(position.max()) + 1} tokens, the model {limit} "
            "positions"
        )


def _additive(visible: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
    """The mask [1, 1, n, n], in the dtype and on the device of `head`."""
    mask = torch.zeros((1, 1, *visible.shape), dtype=head.dtype)
    return mask.masked_fill_(~visible, torch.finfo(head.dtype).min).to(head.device)


def _states(
    model: Any, ids: list[int], visible: torch.Tensor, position: torch.Tensor
) -> torch.Tensor:
    """States of all rows in one forward; row i sees those where `visible[i]`."""
    _check_length(model, position)
    head = model.get_output_embeddings().weight
    seen: list[torch.Tensor] = []
    with head_inputs(model, 1, seen):
        model(
            input_ids=torch.tensor([ids], device=head.device),
            attention_mask=_additive(visible, head),
            position_ids=position[None].to(head.device),
            use_cache=False,
        )
    return seen[0]


def _runs(segments: Sequence[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """The number of the document that each token is in, and its place there."""
    run, position = [0], [0]
    for one, other in zip(segments, segments[1:], strict=False):
        same = one == other
        run.append(run[-1] if same else run[-1] + 1)
        position.append(position[-1] + 1 if same else 0)
    return torch.tensor(run), torch.tensor(position)
