"""The loss and its gradients against a direct computation in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specbook.errors import SpecbookError
from specbook.training import distil
from specbook.training.distil import distillation_loss


def case(seed, rows=7, vocab=11, width=3, k=4):
    """Student's hidden rows and head, the teacher's whole laws, and its top k."""
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(rows, width, generator=generator, dtype=torch.float64)
    weight = torch.randn(vocab, width, generator=generator, dtype=torch.float64)
    laws = torch.randn(rows, vocab, generator=generator, dtype=torch.float64)
    laws = torch.log_softmax(2 * laws, -1)
    top = laws.topk(k, -1)
    return hidden.requires_grad_(), weight.requires_grad_(), laws, top


def direct(hidden, weight, top):
    """The formula, on k + 1 cells, by plain differentiable operations."""
    q = torch.softmax(hidden @ weight.T, -1)
    p_top = top.values.exp()
    q_top = q.gather(-1, top.indices)
    p = torch.cat([p_top, 1 - p_top.sum(-1, keepdim=True)], -1)
    q = torch.cat([q_top, 1 - q_top.sum(-1, keepdim=True)], -1)
    return (p * (p / q).log()).sum(-1).mean()


def ours(hidden, weight, top, dtype=torch.float64):
    return distillation_loss(hidden, weight, top.indices, top.values, dtype=dtype)


@settings(deadline=None, max_examples=40, derandomize=True)
@given(st.integers(0, 10_000), st.integers(1, 9), st.integers(1, 10))
def test_value_and_gradients_are_the_direct_ones(seed, rows, k):
    hidden, weight, _, top = case(seed, rows=rows, k=k)
    wanted = direct(hidden, weight, top)
    expected = torch.autograd.grad(wanted, (hidden, weight))
    found = ours(hidden, weight, top)
    gradients = torch.autograd.grad(found, (hidden, weight))
    assert torch.allclose(found, wanted, atol=1e-9)
    for one, other in zip(gradients, expected, strict=True):
        assert torch.allclose(one, other, atol=1e-9)


@pytest.mark.parametrize("others", [None, 3])
def test_a_frozen_side_costs_no_gradient_and_changes_none(others):
    hidden, weight, _, top = case(5)

    def loss(one, other):
        return distillation_loss(
            one,
            other,
            top.indices,
            top.values,
            dtype=torch.float64,
            others=others,
            generator=torch.Generator().manual_seed(1),
        )

    both = torch.autograd.grad(loss(hidden, weight), (hidden, weight))
    (by_hidden,) = torch.autograd.grad(loss(hidden, weight.detach()), (hidden,))
    (by_weight,) = torch.autograd.grad(loss(hidden.detach(), weight), (weight,))
    assert torch.equal(both[0], by_hidden) and torch.equal(both[1], by_weight)
    frozen = loss(hidden, weight.detach())
    assert frozen.grad_fn.saved_tensors[1] is None
    assert not loss(hidden.detach(), weight.detach()).requires_grad


def test_parts_of_the_rows_make_no_difference(monkeypatch):
    hidden, weight, _, top = case(1)
    whole = torch.autograd.grad(ours(hidden, weight, top), (hidden, weight))
    monkeypatch.setattr(distil, "ROWS_AT_ONCE", 2)
    parts = torch.autograd.grad(ours(hidden, weight, top), (hidden, weight))
    for one, other in zip(whole, parts, strict=True):
        assert torch.allclose(one, other, atol=1e-12)


def test_the_cells_lose_information_and_never_add_any():
    hidden, weight, laws, _ = case(2)
    q = torch.log_softmax(hidden @ weight.T, -1)
    whole = (laws.exp() * (laws - q)).sum(-1).mean()
    found = [ours(hidden, weight, laws.topk(k, -1)).item() for k in (1, 3, 6, 10)]
    assert found == sorted(found) and found[-1] <= whole.item() + 1e-12
    # All tokens but one are all cells but a renamed one.
    assert abs(found[-1] - whole.item()) < 1e-12


def test_a_student_that_agrees_has_no_loss_and_no_gradient():
    hidden, weight, _, _ = case(3)
    laws = torch.log_softmax(hidden @ weight.T, -1).detach()
    loss = ours(hidden, weight, laws.topk(4, -1))
    gradients = torch.autograd.grad(loss, (hidden, weight))
    assert abs(loss.item()) < 1e-12
    assert max(float(g.abs().max()) for g in gradients) < 1e-12


def test_leaving_out_the_rest_would_be_seen():
    """The planted fault: cross entropy on the kept tokens alone has another value and
    another gradient."""
    hidden, weight, _, top = case(4, k=2)
    q = torch.log_softmax(hidden @ weight.T, -1).gather(-1, top.indices)
    kept = (top.values.exp() * (top.values - q)).sum(-1).mean()
    assert abs(float(kept - ours(hidden, weight, top))) > 1e-3
    (wrong,) = torch.autograd.grad(kept, hidden)
    (right,) = torch.autograd.grad(ours(hidden, weight, top), hidden)
    assert not torch.allclose(wrong, right, atol=1e-4)


def test_all_columns_are_no_sample():
    hidden, weight, _, top = case(8)
    wanted = torch.autograd.grad(ours(hidden, weight, top), (hidden, weight))
    sampled = distillation_loss(
        hidden, weight, top.indices, top.values, dtype=torch.float64, others=11
    )
    found = torch.autograd.grad(sampled, (hidden, weight))
    for one, other in zip(wanted, found, strict=True):
        assert torch.allclose(one, other, atol=1e-12)


def test_sampled_columns_stand_for_all_without_bias():
    """The sum of exponentials over the columns, averaged over every token that one
    draw can give, is the sum over the vocabulary."""
    hidden, weight, _, top = case(9, rows=1, vocab=9)
    ids = top.indices
    exact = (hidden @ weight.T).exp().sum()
    means = {}
    for seed in range(200):
        generator = torch.Generator().manual_seed(seed)
        columns, weights, places = distil.sampled_columns(ids, 9, 1, generator)
        assert torch.equal(columns[places], ids)
        assert float(weights.exp().sum()) == pytest.approx(9)
        part = ((hidden @ weight[columns].T) + weights).exp().sum()
        means[int(columns[-1])] = float(part)
    # Each of the five other tokens was drawn by some seed, and all weigh the same.
    assert set(means) == set(range(9)) - set(ids[0].tolist())
    assert sum(means.values()) / 5 == pytest.approx(float(exact))
    # The planted fault: without its weight a drawn token stands for itself alone.
    columns, _, _ = distil.sampled_columns(ids, 9, 1, torch.Generator())
    assert float((hidden @ weight[columns].T).exp().sum()) < float(exact)


def test_the_gradient_of_a_sample_is_that_of_its_columns():
    hidden, weight, _, top = case(10, vocab=30)
    generator = torch.Generator().manual_seed(1)
    columns, weights, places = distil.sampled_columns(top.indices, 30, 3, generator)
    q = torch.softmax(hidden @ weight[columns].T + weights, -1)
    q_top = q.gather(-1, places)
    p = torch.cat([top.values.exp(), 1 - top.values.exp().sum(-1, keepdim=True)], -1)
    q = torch.cat([q_top, 1 - q_top.sum(-1, keepdim=True)], -1)
    wanted = (p * (p / q).log()).sum(-1).mean()
    expected = torch.autograd.grad(wanted, (hidden, weight))
    found = distillation_loss(
        hidden, weight, top.indices, top.values, dtype=torch.float64, others=3,
        generator=torch.Generator().manual_seed(1),
    )  # fmt: skip
    assert torch.allclose(found, wanted, atol=1e-6)
    gradients = torch.autograd.grad(found, (hidden, weight))
    for one, other in zip(gradients, expected, strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def test_bfloat16_is_near():
    hidden, weight, _, top = case(5, rows=64, vocab=300, width=16, k=8)
    small = (hidden / 4).detach().float().requires_grad_()
    head = weight.detach().float().requires_grad_()
    exact = torch.autograd.grad(ours(small, head, top, torch.float32), (small, head))
    rounded = torch.autograd.grad(ours(small, head, top, torch.bfloat16), (small, head))
    for one, other in zip(exact, rounded, strict=True):
        assert float((one - other).norm() / one.norm()) < 0.02


def test_a_rest_that_float16_made_negative_counts_as_none():
    hidden, weight, laws, _ = case(6)
    top = laws.topk(10, -1)
    more = (top.indices, (top.values + 0.002).half().float())
    loss = distillation_loss(hidden, weight, *more, dtype=torch.float64)
    assert torch.isfinite(loss)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("width", "do not fit"),
        ("rows", "as many"),
        ("none", "at least one"),
        ("vocabulary", "outside 0 .. 10"),
        ("negative", "outside 0 .. 10"),
        ("twice", "twice"),
        ("sum", "more than 1"),
        ("nan", "no law"),
    ],
)
def test_bad_rows_are_refused(fault, told):
    hidden, weight, _, top = case(7)
    ids, logps = top.indices.clone(), top.values.clone()
    if fault == "width":
        weight = weight[:, :2]
    elif fault == "rows":
        ids = ids[1:]
    elif fault == "none":
        hidden, ids, logps = hidden[:0], ids[:0], logps[:0]
    elif fault == "vocabulary":
        ids[0, 0] = 11
    elif fault == "negative":
        ids[0, 0] = -1
    elif fault == "twice":
        ids[0, 0] = ids[0, 1]
    elif fault == "sum":
        logps = logps + 1
    else:
        logps[0, 0] = float("nan")
    with pytest.raises(SpecbookError, match=told):
        distillation_loss(hidden, weight, ids, logps)


# ---- with a temperature ------------------------------------------------------------


def at(temperature, hidden, weight, top, **options):
    return distillation_loss(
        hidden,
        weight,
        top.indices,
        top.values,
        dtype=torch.float64,
        temperature=temperature,
        **options,
    )


@settings(deadline=None, max_examples=40, derandomize=True)
@given(st.integers(0, 10_000), st.integers(1, 9), st.sampled_from([0.5, 1.0, 1.7, 4.0]))
def test_softened_laws_are_compared_whole(seed, k, temperature):
    """The others of the teacher in the student's proportions, all of them written out;
    the teacher is no function of the student's numbers."""
    hidden, weight, _, top = case(seed, k=k)
    q = torch.softmax(hidden @ weight.T, -1).detach()
    left = q.scatter(-1, top.indices, 0.0)
    rest = 1 - top.values.exp().sum(-1, keepdim=True)
    law = (rest * left / left.sum(-1, keepdim=True)).scatter(
        -1, top.indices, top.values.exp()
    )
    hot = torch.log_softmax(law.log() / temperature, -1)
    logs = torch.log_softmax(hidden @ weight.T / temperature, -1)
    wanted = temperature**2 * (hot.exp() * (hot - logs)).sum(-1).mean()
    found = at(temperature, hidden, weight, top)
    assert torch.allclose(found, wanted, atol=1e-9)
    expected = torch.autograd.grad(wanted, (hidden, weight))
    gradients = torch.autograd.grad(found, (hidden, weight))
    for one, other in zip(gradients, expected, strict=True):
        assert torch.allclose(one, other, atol=1e-8)
    # The planted faults: no square, and laws that are not softened.
    if temperature != 1:
        assert not torch.allclose(found / temperature**2, wanted, atol=1e-6)
        assert not torch.allclose(at(1.0, hidden, weight, top), wanted, atol=1e-6)


def test_a_law_that_is_stored_whole_gives_the_tempered_loss():
    """One token is left for the rest, or none: nothing is taken to be so."""
    from specbook.training.losses import tempered_loss

    for k in (10, 11):
        hidden, weight, laws, _ = case(8)
        top = laws.topk(k, -1)
        wanted = tempered_loss([hidden @ weight.T], [laws], [1.0], 3.0)
        found = at(3.0, hidden, weight, top)
        assert torch.allclose(found, wanted, rtol=1e-5)
        expected = torch.autograd.grad(wanted, hidden)
        gradient = torch.autograd.grad(found, hidden)
        assert torch.allclose(gradient[0], expected[0], atol=1e-5)


def test_sampled_columns_estimate_the_softened_loss(monkeypatch):
    """The mean over many draws is near the loss over all columns. The planted fault, to
    count each drawn column once, is far from it."""
    hidden, weight, _, top = case(9, rows=5, vocab=200, width=3, k=4)
    wanted = float(at(2.0, hidden, weight, top))

    def mean():
        draws = [
            at(2.0, hidden, weight, top, others=20,
               generator=torch.Generator().manual_seed(seed))
            for seed in range(100)
        ]  # fmt: skip
        return float(torch.stack(draws).mean())

    assert abs(mean() - wanted) < 0.05 * wanted
    real = distil.sampled_columns

    def once(*arguments):
        columns, log_weights, places = real(*arguments)
        return columns, torch.zeros_like(log_weights), places

    monkeypatch.setattr(distil, "sampled_columns", once)
    assert abs(mean() - wanted) > 0.1 * wanted


@pytest.mark.parametrize("temperature", [0, -1, float("nan"), True, "1"])
def test_bad_temperatures_are_refused(temperature):
    hidden, weight, _, top = case(7)
    with pytest.raises(SpecbookError, match="temperature"):
        at(temperature, hidden, weight, top)
