"""What a student takes over from the target."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specbook.errors import SpecbookError, TargetError
from specbook.models.tiny import tiny_llama, tiny_model
from specbook.training import student
from specbook.training.student import build, projection


def matrix(seed, rows=20, size=6):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, size, generator=generator, dtype=torch.float64)


def lost(embedding, p, weights=None):
    """Squared error of the projection, each row as much as it counts."""
    error = ((embedding - embedding @ p @ p.T) ** 2).sum(1)
    return float((error if weights is None else weights * error).sum())


@settings(deadline=None, max_examples=40, derandomize=True)
@given(st.integers(0, 10_000), st.integers(1, 6), st.booleans())
def test_no_projection_of_this_width_loses_less(seed, width, weighted):
    embedding = matrix(seed)
    weights = matrix(seed + 1, size=1)[:, 0].abs() if weighted else None
    p = projection(embedding, width, weights)
    assert torch.allclose(p.T @ p, torch.eye(width, dtype=p.dtype), atol=1e-9)
    # Eckart and Young: what is lost is the tail of the singular values.
    scaled = embedding if weights is None else embedding * weights.sqrt()[:, None]
    tail = np.linalg.svd(scaled.numpy(), compute_uv=False)[width:]
    assert lost(embedding, p, weights) == pytest.approx((tail**2).sum(), abs=1e-8)
    other, _ = torch.linalg.qr(matrix(seed + 2, rows=6, size=width))
    assert lost(embedding, p, weights) <= lost(embedding, other, weights) + 1e-9


def test_weights_move_the_projection_to_what_counts():
    """The planted fault: a projection that ignores the weights loses more."""
    embedding = matrix(0)
    weights = torch.ones(20, dtype=torch.float64)
    weights[3] = 1000
    right, wrong = projection(embedding, 2, weights), projection(embedding, 2)
    assert lost(embedding, right, weights) < lost(embedding, wrong, weights) / 2


@pytest.mark.parametrize("start", ["random", "embeddings", "layers"])
def test_a_student_is_an_ordinary_llama(start):
    target = tiny_llama(1, num_layers=3, tied=True)
    before = torch.get_rng_state()
    made = build(target, width=12, layers=(0, 2), inner=20, start=start, seed=4)
    assert torch.equal(before, torch.get_rng_state())
    config = made.config
    assert (config.hidden_size, config.num_hidden_layers) == (12, 2)
    assert (config.head_dim, config.intermediate_size) == (8, 20)
    assert config.vocab_size == target.config.vocab_size
    assert made.get_output_embeddings().weight is made.get_input_embeddings().weight
    assert made(torch.tensor([[1, 2, 3]])).logits.shape == (1, 3, 64)
    again = build(target, width=12, layers=(0, 2), inner=20, start=start, seed=4)
    for one, other in zip(made.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)
    theirs = target.get_input_embeddings().weight
    own = made.get_input_embeddings().weight
    nearest = theirs @ projection(theirs, 12).float()
    assert torch.allclose(own, nearest, atol=1e-5) is (start != "random")


def test_through_a_whole_projection_the_student_is_the_target():
    """Nothing is lost at full width: a turned stream gives the same logits."""
    target = tiny_llama(2, num_layers=3, tied=True)
    inner = target.config.intermediate_size
    ids = torch.tensor([[5, 9, 9, 1, 30, 2, 5, 9]])
    whole = build(target, width=32, layers=(0, 1, 2), inner=inner, start="layers")
    with torch.inference_mode():
        wanted, found = target(ids).logits, whole(ids).logits
        assert (wanted - found).abs().max() < 1e-3 * wanted.abs().max()
        # And it is no accident: without the layers it is another model.
        other = build(target, width=32, layers=(0, 1, 2), inner=inner, start="random")
        assert (wanted - other(ids).logits).abs().max() > 0.1 * wanted.abs().max()


def test_norm_weights_are_read_through():
    """Norm weights of the target that are not 1 go into the matrices behind them."""
    target = tiny_llama(3, num_layers=1, tied=True)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for layer in target.model.layers:
            for norm in (layer.input_layernorm, layer.post_attention_layernorm):
                norm.weight.copy_(1 + torch.rand(32, generator=generator))
    inner = target.config.intermediate_size
    made = build(target, width=32, layers=(0,), inner=inner, start="layers")
    ids = torch.tensor([[5, 9, 1]])
    with torch.inference_mode():
        wanted, found = target(ids).logits, made(ids).logits
    assert (wanted - found).abs().max() < 1e-3 * wanted.abs().max()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"width": 0}, "width"),
        ({"width": 33}, "width"),
        ({"width": True}, "width"),
        ({"layers": ()}, "rising order"),
        ({"layers": (1, 0)}, "rising order"),
        ({"layers": (0, 0)}, "rising order"),
        ({"layers": (2,)}, r"layers\[0\]"),
        ({"layers": "01"}, "layers"),
        ({"inner": 65}, "inner"),
        ({"start": "all"}, "start"),
        ({"seed": -1}, "seed"),
        ({"weights": torch.ones(3)}, "weights"),
        ({"weights": torch.zeros(64)}, "weights"),
        ({"weights": -torch.ones(64)}, "weights"),
        ({"weights": torch.full((64,), float("nan"))}, "weights"),
    ],
    ids=[f"case{i}" for i in range(15)],
)
def test_bad_input_is_refused(changes, told):
    options = {"width": 8, "layers": (0, 1), "inner": 16, **changes}
    with pytest.raises(SpecbookError, match=told):
        build(tiny_llama(0), **options)


def test_only_a_llama_is_cut():
    with pytest.raises(TargetError, match="LlamaForCausalLM"):
        build(tiny_model("gpt2"), width=8, layers=(0,), inner=16)


def test_starts_are_told():
    assert set(student.STARTS) == {"random", "embeddings", "layers"}
