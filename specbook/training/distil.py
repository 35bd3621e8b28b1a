"""The distillation loss: Kullback-Leibler divergence from stored teacher rows.

A stored row keeps the k most probable tokens of the teacher's law p and so the mass r
of all others. The loss compares p and the student's law q on these k + 1 cells:

    sum over the k tokens of p log(p / q)  +  r log(r / q(all others)),

which is at most the divergence of the whole laws, and zero where they agree on the
cells. Its gradient by the logit of token j is q_j - p_j for a kept token and
q_j (1 - r / q(all others)) for any other, so head and loss are one function here:
logits exist only for a few hundred rows at a time, which at a vocabulary of 49,152 is
the difference between 50 MB and many hundreds.

The head is most of a small student's work, and most of its columns get no gradient to
speak of. So the columns can be sampled: those that some row of the same part keeps, and
`others` of the rest, drawn evenly, each of which stands for as many as were left out.
The sum of exponentials is then estimated without bias.

With a temperature T both laws are softened and the loss is multiplied with T^2 (section
0x05B). Softening p needs every token's share, and of the others only the sum is stored.
They are taken to be in the student's own proportions, which is what the cells say at
T = 1, too: there the divergence of the whole laws is that of the cells. The softened
laws are then in the same proportions again, and so it is at every T. The hotter, the
more weighs this assumption and the less what is stored.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from .. import checks
from ..errors import SpecbookError

ROWS_AT_ONCE = 512

LEAST_REST = 1e-6
"""The student's mass outside the kept tokens is taken to be at least this much where
we divide by it: it may vanish to rounding while the teacher's does not."""


def distillation_loss(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    top_ids: torch.Tensor,
    top_logps: torch.Tensor,
    *,
    dtype: torch.dtype = torch.float32,
    others: int | None = None,
    generator: torch.Generator | None = None,
    temperature: float = 1.0,
) -> torch.Tensor:
    """Mean loss (nats a row) of a student whose logits are `hidden @ weight.T`.

    `hidden`: [R, width]; `weight`: the head, [V, width]; `top_ids`: int64 [R, k];
    `top_logps`: natural logarithms of the teacher's law, [R, k]. `dtype`: in which the
    products are computed. `others`: so many tokens that no row keeps are drawn, from
    `generator`, to stand for all of those; None computes all. `temperature` T: T^2
    times the loss of the laws at T. Differentiable by `hidden` and `weight`. Raises
    `SpecbookError` for shapes that do not fit, ids outside the vocabulary, an id twice
    in a row, a row whose probabilities are more than 1 together, and T = 0.
    """
    for tensor, name in (
        (hidden, "hidden"),
        (weight, "weight"),
        (top_ids, "top_ids"),
        (top_logps, "top_logps"),
    ):
        if checks.instance(tensor, name, torch.Tensor).dim() != 2:
            raise SpecbookError(
                f"{name} must have two dimensions, got {tuple(tensor.shape)}"
            )
    if top_ids.dtype != torch.int64:
        raise SpecbookError(f"top_ids must be int64, got {top_ids.dtype}")
    rows, vocab_size = len(hidden), len(weight)
    if hidden.shape[1] != weight.shape[1]:
        raise SpecbookError(
            f"hidden {tuple(hidden.shape)} and weight {tuple(weight.shape)} do not fit"
        )
    if rows == 0 or top_ids.shape != top_logps.shape or len(top_ids) != rows:
        raise SpecbookError(
            f"{rows} hidden rows, top_ids {tuple(top_ids.shape)} and top_logps "
            f"{tuple(top_logps.shape)}: they must be as many, and at least one"
        )
    if int(top_ids.min()) < 0 or int(top_ids.max()) >= vocab_size:
        raise SpecbookError(f"top_ids has an id outside 0 .. {vocab_size - 1}")
    ordered = top_ids.sort(dim=-1).values
    if bool((ordered[:, 1:] == ordered[:, :-1]).any()):
        raise SpecbookError("a row of top_ids has an id twice")
    # float16 keeps three digits, so the sum may exceed 1 by a little.
    if not float(top_logps.double().exp().sum(-1).max()) <= 1.01:
        raise SpecbookError("a row of top_logps is no law: it sums to more than 1")
    if others is not None:
        checks.integer(others, "others", least=1)
    heat = checks.float64(temperature, "temperature", least=0)
    if heat == 0:
        raise SpecbookError("temperature must be above 0")
    options = (dtype, others, generator, heat)
    return _HeadDivergence.apply(hidden, weight, top_ids, top_logps, options)


def sampled_columns(
    top_ids: torch.Tensor,
    vocab_size: int,
    others: int,
    generator: torch.Generator | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Columns of the head that stand for all: (columns [C], log-weights [C], places).

    The columns are the tokens of `top_ids`, each for itself, and `others` draws from
    the rest, each for so many tokens that the weights sum to `vocab_size`. `places`,
    shaped like `top_ids`, tells which column each kept token is.
    """
    kept = torch.unique(top_ids)
    left = torch.ones(vocab_size, dtype=torch.bool, device=kept.device)
    left[kept] = False
    rest = left.nonzero()[:, 0]
    places = torch.searchsorted(kept, top_ids)
    if len(rest) <= others:
        weights = torch.zeros(vocab_size, device=kept.device)
        return torch.cat([kept, rest]), weights, places
    # Drawn on the CPU wherever the head is: the same columns on every machine.
    drawn = rest[torch.randint(len(rest), (others,), generator=generator).to(rest)]
    weights = torch.zeros(len(kept) + others, device=kept.device)
    weights[len(kept) :] = math.log(len(rest) / others)
    return torch.cat([kept, drawn]), weights, places


def softened(
    logp: torch.Tensor,
    r: torch.Tensor,
    logits: torch.Tensor,
    kept: torch.Tensor,
    log_weights: torch.Tensor | None,
    heat: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """A stored law at temperature `heat`: logarithms [R, k] of its kept tokens, and the
    mass [R] of all others, which are in the proportions of the student's.

    `logp` [R, k], `r` [R]: the law at temperature 1. `logits` [R, C] of the student, at
    temperature 1; `kept` [R, k]: the columns of the kept tokens; `log_weights` [C]: for
    how many tokens each column stands, None for one each.
    """
    weights = 0.0 if log_weights is None else log_weights
    rest = logits.scatter(-1, kept, -torch.inf)
    mass = torch.logsumexp(rest + weights, dim=-1)
    # Where there is no other token r is rounding, and nobody's.
    shift = torch.where(mass == -torch.inf, -torch.inf, r.log() - mass)
    others = torch.logsumexp((rest + shift[:, None]) / heat + weights, dim=-1)
    logs = torch.log_softmax(torch.cat([logp / heat, others[:, None]], -1), dim=-1)
    return logs[:, :-1], logs[:, -1].exp()


class _HeadDivergence(torch.autograd.Function):
    """Head, softmax and loss in one; the gradients are computed on the way."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        top_ids: torch.Tensor,
        top_logps: torch.Tensor,
        options: tuple[torch.dtype, int | None, torch.Generator | None, float],
    ) -> torch.Tensor:
        dtype, others, generator, heat = options
        by_hidden, by_weight = ctx.needs_input_grad[:2]
        exact = torch.float64 if dtype == torch.float64 else torch.float32
        head = weight.detach().to(dtype)
        hidden_grad = torch.zeros_like(hidden) if by_hidden else None
        # A frozen head needs none; it would be a third of the work.
        weight_grad = torch.zeros_like(weight) if by_weight else None
        total = torch.zeros((), dtype=exact, device=hidden.device)
        for start in range(0, len(hidden), ROWS_AT_ONCE):
            part = slice(start, start + ROWS_AT_ONCE)
            x = hidden[part].detach().to(dtype)
            ids = top_ids[part]
            log_weights: torch.Tensor | None = None
            if others is None:
                columns, used = None, head
                logits = x @ head.T
                q = torch.softmax(logits / heat, dim=-1)
            else:
                columns, log_weights, ids = sampled_columns(
                    ids, len(weight), others, generator
                )
                used = head[columns]
                logits = (x @ used.T).to(exact)
                q = torch.softmax(logits / heat + log_weights, dim=-1)
            logp = top_logps[part].to(exact)
            p = logp.exp()
            # Stored in float16, the probabilities may exceed 1 by rounding.
            r = (1 - p.sum(-1)).clamp_min(0)
            if heat != 1:
                logp, r = softened(logp, r, logits.to(exact), ids, log_weights, heat)
                p = logp.exp()
            del logits
            q_top = q.gather(-1, ids).to(exact)
            # As a difference of sums of the same rounded numbers, so that what is
            # left is the rest and not the rounding.
            rest = q.sum(-1, dtype=exact) - q_top.sum(-1)
            rest = rest.clamp_min(LEAST_REST)
            smallest = torch.finfo(exact).tiny
            total += (p * (logp - q_top.clamp_min(smallest).log())).sum()
            total += torch.xlogy(r, r / rest).sum()
            if hidden_grad is None and weight_grad is None:
                continue
            grad = q.mul_((1 - r / rest).to(q.dtype)[:, None])
            grad = grad.scatter_(-1, ids, (q_top - p).to(q.dtype)).to(dtype)
            if hidden_grad is not None:
                hidden_grad[part] = (grad @ used).to(hidden.dtype)
            if weight_grad is None:
                continue
            column_grad = (grad.T @ x).to(weight.dtype)
            if columns is None:
                weight_grad += column_grad
            else:
                weight_grad.index_add_(0, columns, column_grad)
        ctx.save_for_backward(hidden_grad, weight_grad)
        ctx.rows, ctx.heat = len(hidden), heat
        return heat**2 * total / len(hidden)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        hidden_grad, weight_grad = ctx.saved_tensors
        # T^2 of the loss, and 1 / T of a logit that was divided by it.
        scale = grads[0] * ctx.heat / ctx.rows
        found = (None if g is None else g * scale for g in (hidden_grad, weight_grad))
        return (*found, None, None, None)
