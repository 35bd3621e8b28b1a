"""Each loss against its formula in a plain loop, and the relations between them."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
import torch

from specbook.errors import SpecbookError
from specbook.training import losses
from specbook.training.rows import head_rows
from tests.core.test_hostile import HOSTILE, check_says_so
from tests.heads.making import WIDTH, normal, shaken

V = 7
COUNTS = (6, 5, 0, 3)
"""Rows of each head: they differ, and one has none."""
WEIGHTS = losses.head_weights(4, 0.8)


def logits(seed: int = 0) -> list[torch.Tensor]:
    return [normal(n, V, seed=seed + i) for i, n in enumerate(COUNTS)]


def labels() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    return [torch.randint(V, (n,), generator=generator) for n in COUNTS]


def laws() -> list[torch.Tensor]:
    return [torch.softmax(2 * rows, -1) for rows in logits(seed=50)]


def log_q(row: torch.Tensor, heat: float = 1.0) -> list[float]:
    weights = [math.exp(float(x) / heat) for x in row]
    return [math.log(w / sum(weights)) for w in weights]


def by_hand(terms: Any) -> float:
    """sum_i lambda_i times the mean of the i-th list."""
    return sum(
        weight * sum(rows) / len(rows)
        for weight, rows in zip((1, 0.8, 0.64, 0.512), terms, strict=True)
        if rows
    )


def test_weights_are_powers() -> None:
    assert losses.head_weights(3, 0.5) == [1, 0.5, 0.25]
    assert losses.head_weights(2) == [1, 1]


@pytest.mark.parametrize("loss", [losses.hard_label_loss, losses.independent_loss])
def test_hard_labels_by_hand(loss: Any) -> None:
    wanted = by_hand(
        [
            [-log_q(row)[int(x)] for row, x in zip(rows, xs, strict=True)]
            for rows, xs in zip(logits(), labels(), strict=True)
        ]
    )
    assert abs(float(loss(logits(), labels(), WEIGHTS)) - wanted) < 1e-12


def test_teacher_distillation_by_hand() -> None:
    wanted = by_hand(
        [
            [
                -sum(float(p) * q for p, q in zip(law, log_q(row), strict=True))
                for row, law in zip(rows, taught, strict=True)
            ]
            for rows, taught in zip(logits(), laws(), strict=True)
        ]
    )
    assert abs(float(losses.teacher_loss(logits(), laws(), WEIGHTS)) - wanted) < 1e-12


@pytest.mark.parametrize("heat", [0.5, 1.0, 3.0])
def test_softened_laws_by_hand(heat: float) -> None:
    wanted = by_hand(
        [
            [
                heat**2
                * sum(
                    math.exp(p) * (p - q)
                    for p, q in zip(log_q(other, heat), log_q(row, heat), strict=True)
                )
                for row, other in zip(rows, taught, strict=True)
            ]
            for rows, taught in zip(logits(), logits(9), strict=True)
        ]
    )
    found = losses.tempered_loss(logits(), logits(9), WEIGHTS, heat)
    assert abs(float(found) - wanted) < 1e-12


def gradient(loss: Any, *others: Any) -> torch.Tensor:
    """By the logits of all heads, in one column."""
    rows = [row.requires_grad_() for row in logits()]
    return torch.cat(
        [g.reshape(-1) for g in torch.autograd.grad(loss(rows, *others), rows)]
    )


def test_a_sure_teacher_is_a_hard_label() -> None:
    sure = [torch.nn.functional.one_hot(x, V).double() for x in labels()]
    hard = gradient(losses.hard_label_loss, labels(), WEIGHTS)
    soft = gradient(losses.teacher_loss, sure, WEIGHTS)
    assert (hard - soft).abs().max() < 1e-15 and hard.abs().max() > 0.01


def test_at_temperature_one_the_divergence_has_the_teacher_losss_gradients() -> None:
    taught = [row.log() for row in laws()]
    cold = gradient(losses.teacher_loss, laws(), WEIGHTS)
    one = gradient(losses.tempered_loss, taught, WEIGHTS, 1.0)
    assert (cold - one).abs().max() < 1e-12


def test_the_square_keeps_the_size_of_gradients() -> None:
    """Without it they would fall by a hundred from T = 10 to T = 100."""
    at = {
        heat: gradient(losses.tempered_loss, logits(9), WEIGHTS, heat).norm()
        for heat in (10.0, 100.0)
    }
    assert 0.9 < float(at[10.0] / at[100.0]) < 1.1


def stored(k: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    top = [law.log().topk(k, -1) for law in laws()]
    return [t.indices for t in top], [t.values for t in top]


def test_stored_rows_of_all_tokens_but_one_are_the_whole_law() -> None:
    features = [normal(n, WIDTH, seed=n).requires_grad_() for n in COUNTS]
    head = normal(V, WIDTH, seed=77)
    ids, logps = stored(V - 1)
    found = losses.stored_loss(features, head, ids, logps, WEIGHTS, dtype=torch.float64)
    whole = losses.teacher_loss([f @ head.T for f in features], laws(), WEIGHTS)
    entropy = by_hand([[float(-(p * p.log()).sum()) for p in law] for law in laws()])
    assert abs(found.item() - (whole.item() - entropy)) < 1e-9
    one, other = (
        torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, features)])
        for loss in (found, whole)
    )
    assert (one - other).abs().max() < 1e-8


def test_stored_rows_that_are_sure_are_hard_labels() -> None:
    features = [normal(n, WIDTH, seed=n) for n in COUNTS]
    head = normal(V, WIDTH, seed=77)
    rows = [losses.label_rows(x) for x in labels()]
    found = losses.stored_loss(
        features,
        head,
        [ids for ids, _ in rows],
        [logps for _, logps in rows],
        WEIGHTS,
        dtype=torch.float64,
    )
    hard = losses.hard_label_loss([f @ head.T for f in features], labels(), WEIGHTS)
    assert abs(float(found - hard)) < 1e-9


def test_a_sum_over_rows_would_weigh_heads_by_their_rows() -> None:
    """The planted fault: one mean over all heads' rows together."""
    terms = [
        torch.nn.functional.cross_entropy(row, x, reduction="sum")
        for row, x in zip(logits(), labels(), strict=True)
    ]
    pooled = sum(w * t for w, t in zip(WEIGHTS, terms, strict=True)) / sum(COUNTS)
    right = losses.hard_label_loss(logits(), labels(), WEIGHTS)
    assert abs(float(pooled - right)) > 0.1


# ----------------------------------------------------------------- what goes in


def test_forcing_gives_the_true_tokens() -> None:
    tokens = torch.arange(100, 110)
    found = losses.forced_tokens(tokens, torch.tensor([1, 5, 8]), 3)
    assert found.tolist() == [[101, 102, 103], [105, 106, 107], [108, 109, 109]]
    # What each head reads of them is what its teacher rows say.
    for part in head_rows([0] * 10, [True] * 10, 3):
        given = losses.forced_tokens(tokens, part.hidden + 1, 3)[:, : part.head]
        assert torch.equal(given, tokens[part.embedded])


@pytest.mark.parametrize("kind", ["medusa", "hydra", "hydra_plus", "clover", "markov"])
def test_own_tokens_are_what_a_row_by_row_loop_says(kind: str) -> None:
    heads = shaken(kind)
    table, head = normal(V, WIDTH, seed=3), normal(V, WIDTH, seed=4)
    base, pending = normal(5, WIDTH, seed=6), torch.tensor([0, 3, 6, 1, 1])
    found = losses.own_tokens(
        heads, base, pending, lambda ids: table[ids], lambda rows: rows @ head.T
    )
    for row in range(5):
        tokens = [int(pending[row])]
        for i in range(1, 4):
            given = torch.cat([table[tokens], torch.zeros(4 - i, WIDTH)])
            features = heads(base[row : row + 1], given[None])[0, i - 1]
            tokens.append(int((features @ head.T).argmax()))
        assert found[row].tolist() == tokens
    assert not found.requires_grad


def test_own_tokens_may_be_drawn() -> None:
    heads = shaken("hydra")
    calls: list[Any] = []

    def choose(rows: torch.Tensor) -> torch.Tensor:
        calls.append(rows.shape)
        return torch.full((len(rows),), 2)

    found = losses.own_tokens(
        heads,
        normal(2, WIDTH),
        torch.tensor([1, 4]),
        lambda ids: normal(V, WIDTH)[ids],
        lambda rows: rows @ normal(V, WIDTH).T,
        choose,
    )
    assert found.tolist() == [[1, 2, 2, 2], [4, 2, 2, 2]] and calls == [(2, V)] * 3


# --------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: losses.head_weights(0), "heads"),
        (lambda: losses.head_weights(2, -1), "decay"),
        (lambda: losses.hard_label_loss(logits(), labels(), [1, 1]), "one a head"),
        (lambda: losses.hard_label_loss([], [], []), "one a head"),
        (
            lambda: losses.hard_label_loss(logits(), labels(), [1, 1, 1, -1]),
            r"weights\[3\]",
        ),
        (
            lambda: losses.hard_label_loss(logits(), labels()[::-1], WEIGHTS),
            "head 1: logits",
        ),
        (lambda: losses.teacher_loss(logits(), logits(), WEIGHTS), "is no law"),
        (lambda: losses.teacher_loss(logits(), laws()[::-1], WEIGHTS), "do not fit"),
        (
            lambda: losses.tempered_loss(logits(), logits(), WEIGHTS, 0),
            "temperature must be above 0",
        ),
        (lambda: losses.tempered_loss(logits(), logits(), WEIGHTS, -1), "temperature"),
    ],
)
def test_what_does_not_fit_is_refused(call: Any, told: str) -> None:
    with pytest.raises(SpecbookError, match=told):
        call()


def test_the_state_loss_by_a_loop():
    """Half the square up to 1, the size less a half beyond; means over a row's numbers
    and a head's rows."""
    generator = torch.Generator().manual_seed(0)
    features = [torch.randn(n, 3, generator=generator) * 2 for n in (2, 4)]
    states = [torch.randn(n, 3, generator=generator) for n in (2, 4)]
    weights = [1.0, 0.25]
    expected = 0.0
    for rows, truths, weight in zip(features, states, weights, strict=True):
        for row, truth in zip(rows.tolist(), truths.tolist(), strict=True):
            for a, b in zip(row, truth, strict=True):
                gap = abs(a - b)
                part = gap**2 / 2 if gap < 1 else gap - 0.5
                expected += weight * part / (3 * len(rows))
    found = losses.state_loss(features, states, weights)
    assert float(found) == pytest.approx(expected, rel=1e-6)
    assert float(losses.state_loss(states, states, weights)) == 0
    with pytest.raises(SpecbookError, match="head 1: .* states"):
        losses.state_loss(features, [states[0][:, :2], states[1]], weights)


# ----------------------------------------------- tokens that are ruled out, bad ids


def test_a_token_ruled_out_on_both_sides_adds_nothing() -> None:
    """0 times minus infinity is not a number, and neither is its gradient."""
    whole = normal(2, V).requires_grad_()
    cut = torch.cat([whole, torch.full((2, 1), -torch.inf, dtype=whole.dtype)], dim=1)
    taught = normal(2, V, seed=1)
    ruled = torch.cat([taught, cut[:, -1:].detach()], dim=1)
    for loss, wide, narrow in (
        (
            losses.teacher_loss,
            ([cut], [torch.softmax(ruled, -1)], [1.0]),
            ([whole], [torch.softmax(taught, -1)], [1.0]),
        ),
        (
            losses.tempered_loss,
            ([cut], [ruled], [1.0], 2.0),
            ([whole], [taught], [1.0], 2.0),
        ),
    ):
        found, wanted = loss(*wide), loss(*narrow)
        assert torch.allclose(found, wanted)
        pulled = torch.autograd.grad(found, whole)[0]
        assert torch.allclose(pulled, torch.autograd.grad(wanted, whole)[0])


def test_a_token_that_only_the_teacher_says_costs_everything() -> None:
    silent = torch.tensor([[0.0, -torch.inf]])
    assert losses.teacher_loss([silent], [torch.tensor([[0.5, 0.5]])], [1.0]).isinf()
    assert losses.tempered_loss([silent], [torch.zeros(1, 2)], [1.0], 1.0).isinf()


ONE = torch.zeros(1, V)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        # -100 is what `cross_entropy` leaves out in silence.
        *(
            (
                lambda label=label: losses.hard_label_loss(
                    [ONE], [torch.tensor([label])], [1.0]
                ),
                "head 1: a label is outside 0",
            )
            for label in (-100, -1, V)
        ),
        (
            lambda: losses.hard_label_loss([ONE], [torch.tensor([1.0])], [1.0]),
            "head 1: labels are torch.float32",
        ),
        (lambda: losses.hard_label_loss([ONE], [[1]], [1.0]), "labels of head 1 is no"),
        (lambda: losses.hard_label_loss(None, [], [1.0]), "logits must be one tensor"),
        (lambda: losses.hard_label_loss([ONE], [ONE], None), "weights must be"),
        (
            lambda: losses.tempered_loss([ONE], [ONE * torch.nan], [1.0], 1.0),
            "head 1: a row of teacher_logits is no law",
        ),
        (
            lambda: losses.tempered_loss([ONE], [ONE + 1], [1.0], 1e-300),
            "is no law at T = 1e-300",
        ),
        (lambda: losses.head_weights(4, 1e200), "decay 1e.200 is too large"),
        (lambda: losses.label_rows([1]), "labels must be an int64 tensor"),
        *(
            (
                lambda t=t: losses.forced_tokens(torch.arange(5), torch.tensor([t]), 2),
                r"positions has one outside 0 \.\. 4",
            )
            for t in (-1, 5)
        ),
        (lambda: losses.forced_tokens([1, 2], torch.tensor([0]), 2), "tokens must be"),
    ],
)
def test_ids_and_tensors_are_looked_at(call: Any, told: str) -> None:
    with pytest.raises(SpecbookError, match=told):
        call()


def test_weights_may_be_fractions() -> None:
    found = losses.hard_label_loss([ONE], [torch.tensor([1])], [Fraction(1, 2)])
    assert float(found) == pytest.approx(math.log(V) / 2)


@pytest.mark.parametrize("argument", ["heads", "base", "pending", "embed", "logits"])
def test_own_tokens_are_of_heads_rows_and_functions(argument: str) -> None:
    good = {
        "heads": shaken("hydra"),
        "base": normal(2, WIDTH),
        "pending": torch.tensor([1, 4]),
        "embed": lambda ids: normal(V, WIDTH)[ids],
        "logits": lambda rows: rows @ normal(V, WIDTH).T,
    }
    losses.own_tokens(**good)
    for label, value in HOSTILE.items():
        if label != "a function":  # which answers None: that is no argument's fault
            check_says_so(losses.own_tokens, {**good, argument: value})


def test_own_tokens_need_a_pending_token_a_row() -> None:
    for pending, told in (
        ([1, 2], "pending must be"),
        (torch.tensor([1]), "2 base rows and 1 pending"),
    ):
        with pytest.raises(SpecbookError, match=told):
            losses.own_tokens(shaken("hydra"), normal(2, WIDTH), pending, abs, abs)
