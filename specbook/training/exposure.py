"""Exposure: heads along the text, and along what they say themselves (section 0x0BA).

In training a head is given the tokens of the text. When it drafts, it is given what the
heads before it drafted. Each is asked here at the same positions, against what the
target says behind the very tokens that the head was given.

Along a greedy answer the two can differ only where a chain has already failed: as long
as every token was the target's own, the text is what the heads have said. So `chain` is
counted from the heads' own path, and must come out as it does along the text.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .. import checks
from ..errors import SpecbookError
from ..models.heads.base import Heads
from .decoding import TaughtSequence
from .heads import Stream, Teacher, pack, row_mask, stream_features, taught_sequences
from .losses import own_tokens
from .packed import path_states

ROWS_AT_ONCE = 256


@torch.inference_mode()
def exposure(
    heads: Heads,
    teacher: Teacher,
    sequences: Sequence[TaughtSequence],
    *,
    every: int = 1,
) -> dict[str, list[list[int]]]:
    """How often `heads` say what the target says, by what they are given.

    Positions are those of `heads_agreement` at which every head has a row and the text
    goes on as the target says; of these every so-manieth is taken (`every`), since the
    target reads each path anew.

    Returns lists of [agreed, tried] for depths 1 .. K, counted over the same positions:
    "forced", given the tokens of the text; "own", given the heads' own most probable
    tokens; "astray", the part of "own" behind a token that is not the text's; "chain",
    the rest of it, and "chain_forced", the same along the text. Raises `SpecbookError`
    when there is no such position.
    """
    checks.integer(every, "every", least=1)
    parts = [
        found
        for sequence in taught_sequences(sequences)
        if (found := _hits(heads, teacher, sequence, every)) is not None
    ]
    if not parts:
        count = heads.config.heads
        raise SpecbookError(
            f"no position has rows for all {count} heads on a text that goes on as the "
            "target says"
        )
    return _counted(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _hits(
    heads: Heads, teacher: Teacher, sequence: TaughtSequence, every: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None:
    """Boolean [R, K] of one sequence: right when given the text, right when given their
    own tokens, and whether the token that was said on the own path is the text's."""
    count = heads.config.heads
    stream = pack([sequence])
    mask = row_mask(stream, count)
    if sequence.prompt_length < len(sequence.tokens):
        mask[: sequence.prompt_length] = False
    steps = torch.arange(1, count + 1)
    chosen = mask.all(dim=1).nonzero()[:, 0]
    truth = stream.top_ids[stream.law[chosen[:, None] + steps], 0]
    is_text = (truth == stream.tokens[chosen[:, None] + steps]).all(dim=1)
    chosen, truth = chosen[is_text][::every], truth[is_text][::every]
    if not len(chosen):
        return None
    mask = torch.zeros_like(mask)
    mask[chosen] = True
    positions, base, features = stream_features(heads, teacher, stream, mask)
    given = own_tokens(
        heads,
        base,
        stream.tokens[positions].to(base.device),
        teacher.embed,
        lambda features: features,
        lambda features: _best(features, teacher).to(base.device),
    )
    said = _best(heads(base, teacher.embed(given)), teacher)
    behind = truth.clone()
    if count > 1:
        # Where the path is the text, the target has read it already.
        astray = (said != truth)[:, :-1].cummax(dim=1).values
        behind[:, 1:] = torch.where(
            astray, _target_says(teacher, stream, positions, given[:, 1:]), truth[:, 1:]
        )
    return _best(features, teacher) == truth, said == behind, said == truth


def _target_says(
    teacher: Teacher, stream: Stream, positions: torch.Tensor, paths: torch.Tensor
) -> torch.Tensor:
    """The target's most probable id behind each token of `paths` [R, D], the same."""
    states = path_states(
        teacher.model,
        stream.tokens.tolist(),
        stream.segments.tolist(),
        positions,
        paths.cpu(),
    )
    weight = teacher.model.get_output_embeddings().weight.detach()
    rows = states.reshape(-1, states.shape[-1]).split(ROWS_AT_ONCE)
    best = torch.cat([(part @ weight.T).argmax(dim=-1) for part in rows])
    return best.view(paths.shape).cpu()


def _best(features: torch.Tensor, teacher: Teacher) -> torch.Tensor:
    """The most probable id of each row of `features` [..., d], on the CPU."""
    weight = teacher.head().float()
    rows = features.reshape(-1, features.shape[-1]).split(ROWS_AT_ONCE)
    best = torch.cat([(part @ weight.T).argmax(dim=-1) for part in rows])
    return teacher.ids(best).view(features.shape[:-1]).cpu()


def _counted(
    forced: torch.Tensor, own: torch.Tensor, on_text: torch.Tensor
) -> dict[str, list[list[int]]]:
    names = ("forced", "own", "astray", "chain", "chain_forced")
    found: dict[str, list[list[int]]] = {name: [] for name in names}
    every = torch.ones(len(own), dtype=torch.bool)
    still, alive = every.clone(), every.clone()
    for depth in range(own.shape[1]):
        columns = (forced, every), (own, every), (own, ~still), (own, still)
        for name, (hits, rows) in zip(names, (*columns, (forced, alive)), strict=True):
            found[name].append([int((hits[:, depth] & rows).sum()), int(rows.sum())])
        still &= on_text[:, depth]
        alive &= forced[:, depth]
    return found
