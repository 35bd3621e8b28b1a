"""The losses of draft heads, one function each (section 0x0BA).

Every loss is a weighted sum over heads, sum_i lambda_i L_i, and L_i is the mean over
the rows that head i has (`rows.head_rows`): heads have different numbers of rows, and a
sum over rows would weigh them by that. Logits and labels come as one entry a head, so
no padding is ever looked at.

Which embeddings a dependent head was given is not the loss's business: `forced_tokens`
and `own_tokens` say what goes in.

At a real vocabulary the logits of all heads at once do not fit. There `stored_loss`
computes head, softmax and loss in one, a few hundred rows at a time (see `distil`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from .. import checks
from ..errors import SpecbookError
from ..models.heads.base import Heads
from .distil import distillation_loss

Choose = Callable[[torch.Tensor], torch.Tensor]
"""One token id a row, int64 [R], from logits [R, V]."""


def head_weights(heads: int, decay: float = 1.0) -> list[float]:
    """lambda_i = decay^(i - 1) for heads 1 .. `heads`; 1 counts all alike. Raises
    `SpecbookError` for one that no float64 holds."""
    checks.integer(heads, "heads", least=1)
    decay = checks.float64(decay, "decay", least=0)
    try:
        return [decay**index for index in range(heads)]
    except OverflowError:
        raise SpecbookError(
            f"decay {decay:g} is too large for {heads} heads: its power {heads - 1} "
            "is no number"
        ) from None


def independent_loss(
    logits: Sequence[torch.Tensor],
    labels: Sequence[torch.Tensor],
    weights: Sequence[float],
) -> torch.Tensor:
    """sum_i lambda_i CE(H_i(h), x_{t+i}): the loss of heads that see the state alone.

    `logits[i - 1]` [R_i, V] of head i, from h and nothing else; `labels[i - 1]` int64
    [R_i]. Such a head learns a marginal: what comes i tokens later, whatever comes
    before it. The formula is `hard_label_loss`'s; what differs is what q_i was given.
    """
    return hard_label_loss(logits, labels, weights)


def hard_label_loss(
    logits: Sequence[torch.Tensor],
    labels: Sequence[torch.Tensor],
    weights: Sequence[float],
) -> torch.Tensor:
    """sum_i lambda_i CE(q_i( . | h, x_{t:t+i-1}), x_{t+i}): Hydra's loss.

    `logits[i - 1]` [R_i, V] of head i given the tokens before; `labels[i - 1]` int64
    [R_i]. Nats. A head without rows adds nothing. Raises `SpecbookError` for counts or
    shapes that do not fit, and for a label that is none of the V tokens.
    """
    weights = _check_heads(weights, logits=logits, labels=labels)
    terms = []
    for head, (rows, wanted) in enumerate(zip(logits, labels, strict=True), start=1):
        if rows.dim() != 2 or wanted.shape != rows.shape[:1]:
            raise SpecbookError(
                f"head {head}: logits {list(rows.shape)} and labels "
                f"{list(wanted.shape)} do not fit"
            )
        if wanted.dtype != torch.int64:
            raise SpecbookError(f"head {head}: labels are {wanted.dtype}, not int64")
        # Looked at here: `cross_entropy` leaves a label of -100 out without a word.
        if bool(((wanted < 0) | (wanted >= rows.shape[1])).any()):
            raise SpecbookError(
                f"head {head}: a label is outside 0 .. {rows.shape[1] - 1}"
            )
        terms.append(_mean(F.cross_entropy(rows, wanted, reduction="none"), rows))
    return _weighted(terms, weights)


def teacher_loss(
    logits: Sequence[torch.Tensor],
    laws: Sequence[torch.Tensor],
    weights: Sequence[float],
) -> torch.Tensor:
    """Cross entropy to the target's law, the teacher loss of Hydra++:
    -sum_i lambda_i sum_v p_T(v | x_{<=t+i-1}) log q_i(v | h, x_{t:t+i-1}).

    `laws[i - 1]` [R_i, V]: the target's whole law where head i predicts, a law a row.
    With a law that is sure of the label this is `hard_label_loss`. Its least value is
    the laws' entropy, not 0. Raises `SpecbookError` for rows that are no laws.
    """
    weights = _check_heads(weights, logits=logits, laws=laws)
    terms = []
    for head, (rows, law) in enumerate(zip(logits, laws, strict=True), start=1):
        _check_pair(head, rows, law, "laws")
        if len(law) and not bool(
            (law >= 0).all() and ((law.double().sum(-1) - 1).abs() <= 1e-3).all()
        ):
            raise SpecbookError(f"head {head}: a row of laws is no law")
        # A token that both sides rule out adds nothing, and not 0 times infinity.
        logs = torch.log_softmax(rows, dim=-1).masked_fill(law == 0, 0)
        cross = -(law * logs).sum(-1)
        terms.append(_mean(cross, rows))
    return _weighted(terms, weights)


def tempered_loss(
    logits: Sequence[torch.Tensor],
    teacher_logits: Sequence[torch.Tensor],
    weights: Sequence[float],
    temperature: float,
) -> torch.Tensor:
    """sum_i lambda_i T^2 KL(softmax(z_T / T) || softmax(z_i / T)): both laws softened.

    `teacher_logits[i - 1]` [R_i, V]; minus infinity is a token that is ruled out. The
    gradient by a logit of the student is T times the difference of the two softened
    laws, and that difference falls like 1 / T: the square keeps its size when T is
    changed (Hinton et al. 2015). At T = 1 it is `teacher_loss` less the teacher's
    entropy, so its gradients are the same. Raises `SpecbookError` for a row of the
    teacher that is no law when it is softened.
    """
    heat = checks.float64(temperature, "temperature", least=0)
    if heat == 0:
        raise SpecbookError("temperature must be above 0")
    weights = _check_heads(weights, logits=logits, teacher_logits=teacher_logits)
    terms = []
    for head, (rows, taught) in enumerate(
        zip(logits, teacher_logits, strict=True), start=1
    ):
        _check_pair(head, rows, taught, "teacher_logits")
        log_p = torch.log_softmax(taught / heat, dim=-1)
        if bool(log_p.isnan().any()):
            raise SpecbookError(
                f"head {head}: a row of teacher_logits is no law at T = {heat:g}"
            )
        ruled_out = log_p == -torch.inf
        log_p = log_p.masked_fill(ruled_out, 0)
        log_q = torch.log_softmax(rows / heat, dim=-1)
        # What the teacher rules out has no share, and not 0 times infinity.
        log_q = log_q.masked_fill(ruled_out, 0)
        divergence = F.kl_div(log_q, log_p, reduction="none", log_target=True).sum(-1)
        terms.append(heat**2 * _mean(divergence, rows))
    return _weighted(terms, weights)


def stored_loss(
    features: Sequence[torch.Tensor],
    head_weight: torch.Tensor,
    top_ids: Sequence[torch.Tensor],
    top_logps: Sequence[torch.Tensor],
    weights: Sequence[float],
    **options: Any,
) -> torch.Tensor:
    """sum_i lambda_i KL on stored teacher rows: the k most probable tokens and the rest
    (`distil.distillation_loss`, whose `options` these are).

    `features[i - 1]` [R_i, d] of head i, for the LM head `head_weight` [V, d];
    `top_ids`, `top_logps`: [R_i, k] a head. At k = V - 1 it is `teacher_loss` less the
    laws' entropy; with k = 1 and a probability of 1 (`label_rows`) `hard_label_loss`.
    Raises `SpecbookError` as `distillation_loss`.
    """
    checks.instance(head_weight, "head_weight", torch.Tensor)
    weights = _check_heads(
        weights, features=features, top_ids=top_ids, top_logps=top_logps
    )
    terms = [
        distillation_loss(rows, head_weight, ids, logps, **options)
        if len(rows)
        else rows.sum()
        for rows, ids, logps in zip(features, top_ids, top_logps, strict=True)
    ]
    return _weighted(terms, weights)


def state_loss(
    features: Sequence[torch.Tensor],
    states: Sequence[torch.Tensor],
    weights: Sequence[float],
) -> torch.Tensor:
    """sum_i lambda_i SmoothL1(f_i, h_{t+i-1}): how far features are from the states
    that the target itself will have (Clover-2 and EAGLE add this to a teacher loss).

    `features[i - 1]`, `states[i - 1]`: [R_i, d] of head i, what its LM head reads and
    what the target's will. A law says d numbers' worth about a state only through
    thousands of logits; the state says it directly, so few rows teach more. Mean over
    the numbers of a row: half the square of a difference up to 1, its size less a half
    beyond. Raises `SpecbookError` for counts or shapes that do not fit.
    """
    weights = _check_heads(weights, features=features, states=states)
    terms = []
    for head, (rows, truth) in enumerate(zip(features, states, strict=True), start=1):
        _check_pair(head, rows, truth, "states")
        distance = F.smooth_l1_loss(rows, truth, reduction="none").mean(-1)
        terms.append(_mean(distance, rows))
    return _weighted(terms, weights)


def label_rows(labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`labels` [R] as stored teacher rows that are sure: ids and log-probabilities
    [R, 1]. The hard-label loss at a real vocabulary is `stored_loss` of these."""
    _check_ids(labels, "labels")
    return labels[:, None], torch.zeros((len(labels), 1))


# ----------------------------------------------------------------- what goes in


def forced_tokens(
    tokens: torch.Tensor, positions: torch.Tensor, heads: int
) -> torch.Tensor:
    """Teacher forcing: the true tokens x_t .. x_{t+K-1}, int64 [R, K].

    `tokens` int64 [n]: the stream; `positions` int64 [R]: t of each row. Behind the end
    of the stream stands the last token; no head with a row there reads it. Raises
    `SpecbookError` for a position that the stream does not have.
    """
    checks.integer(heads, "heads", least=1)
    for column, name in ((tokens, "tokens"), (positions, "positions")):
        _check_ids(column, name)
    if bool(((positions < 0) | (positions >= len(tokens))).any()):
        raise SpecbookError(f"positions has one outside 0 .. {len(tokens) - 1}")
    places = positions[:, None] + torch.arange(heads, device=positions.device)
    return tokens[places.clamp_max(len(tokens) - 1)]


@torch.no_grad()
def own_tokens(
    heads: Heads,
    base: torch.Tensor,
    pending: torch.Tensor,
    embed: Callable[[torch.Tensor], torch.Tensor],
    logits: Callable[[torch.Tensor], torch.Tensor],
    choose: Choose | None = None,
) -> torch.Tensor:
    """Self-conditioning: x_t and then what the heads themselves say, int64 [R, K].

    `base` [R, d] of the last committed rows, `pending` int64 [R]: x_t. `embed` and
    `logits`: the target's frozen embedding and LM head. `choose` picks a token a row
    from logits [R, V], by default the most probable. No gradient: the choice has none,
    and the article calls what could stand for it a surrogate. Labels and laws of such
    rows must be taken after the chosen tokens, where they are not the text's own.
    Raises `SpecbookError` for pending tokens that are not as many as the rows, and for
    what are no heads, rows or functions.
    """
    checks.instance(heads, "heads", Heads)
    checks.instance(base, "base", torch.Tensor)
    checks.function(embed, "embed")
    checks.function(logits, "logits")
    if choose is not None:
        checks.function(choose, "choose")
    _check_ids(pending, "pending")
    if len(pending) != len(base):
        raise SpecbookError(f"{len(base)} base rows and {len(pending)} pending tokens")
    pick = choose or (lambda rows: rows.argmax(dim=-1))
    rows = torch.arange(len(base), device=base.device)
    found = [pending]
    state = heads.start(base, embed(pending))
    for _ in range(heads.config.heads - 1):
        token = pick(logits(heads.features(state)))
        found.append(token)
        state = heads.step(state, rows, embed(token))
    return torch.stack(found, dim=1)


def _check_ids(ids: Any, name: str) -> None:
    if not isinstance(ids, torch.Tensor) or ids.dtype != torch.int64 or ids.dim() != 1:
        raise SpecbookError(f"{name} must be an int64 tensor [n], got {ids!r}")


def _check_heads(weights: Sequence[float], **columns: Sequence[Any]) -> Sequence[float]:
    """The weights: numbers that can weigh, as many as there are tensors of each."""
    weights = [
        checks.float64(weight, f"weights[{place}]", least=0)
        for place, weight in enumerate(checks.entries(weights, "weights", "numbers"))
    ]
    counts = {}
    for name, column in columns.items():
        if not isinstance(column, Sequence):
            raise SpecbookError(f"{name} must be one tensor a head, got {column!r}")
        for head, entry in enumerate(column, start=1):
            if not isinstance(entry, torch.Tensor):
                raise SpecbookError(f"{name} of head {head} is no tensor: {entry!r}")
        counts[name] = len(column)
    if set(counts.values()) != {len(weights)} or not len(weights):
        raise SpecbookError(
            f"{len(weights)} weights for {counts}: one a head is needed"
        )
    return weights


def _check_pair(head: int, rows: torch.Tensor, other: torch.Tensor, name: str) -> None:
    if rows.dim() != 2 or rows.shape != other.shape:
        raise SpecbookError(
            f"head {head}: logits {list(rows.shape)} and {name} {list(other.shape)} "
            "do not fit"
        )


def _mean(values: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """The mean; of no rows 0, which still belongs to the graph."""
    return values.mean() if len(values) else rows.sum()


def _weighted(terms: Sequence[torch.Tensor], weights: Sequence[float]) -> torch.Tensor:
    return torch.stack(
        [float(weight) * term for weight, term in zip(weights, terms, strict=True)]
    ).sum()
