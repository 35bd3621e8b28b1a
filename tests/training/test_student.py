"""What a student takes over from the target."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specbook.errors import SpecbookError, TargetError
from specbook.models.tiny import tiny_llama, tiny_model
from specbook.training.projection import projection
from specbook.training.settings import Settings
from specbook.training.student import build


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


def settings_of(**changes):
    options = {"layers": 2, "width": 12, "inner": 20, "heads": 4, "kv_heads": 2}
    return Settings(**{**options, "start": "random", **changes})


@pytest.mark.parametrize("start", ["random", "embeddings"])
def test_a_student_is_an_ordinary_llama(start):
    target = tiny_llama(1, num_layers=3, tied=True, eos_token_id=5)
    chosen = settings_of(start=start, seed=4)
    before = torch.get_rng_state()
    made = build(target, chosen)
    assert torch.equal(before, torch.get_rng_state())
    config = made.config
    assert (config.hidden_size, config.num_hidden_layers) == (12, 2)
    assert (config.head_dim, config.intermediate_size) == (8, 20)
    assert config.vocab_size == target.config.vocab_size
    assert made.generation_config.eos_token_id == 5
    assert made.get_output_embeddings().weight is made.get_input_embeddings().weight
    assert made(torch.tensor([[1, 2, 3]])).logits.shape == (1, 3, 64)
    again = build(target, chosen)
    for one, other in zip(made.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)
    theirs = target.get_input_embeddings().weight
    own = made.get_input_embeddings().weight
    nearest = theirs @ projection(theirs, 12).float()
    assert torch.allclose(own, nearest, atol=1e-5) is (start == "embeddings")
    other = build(target, settings_of(start="random", seed=5))
    assert not torch.equal(other.get_input_embeddings().weight, own)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"width": 36}, "width"),
        ({"heads": 5, "kv_heads": 5}, "no such student"),
        ({"start": "copying"}, "copying start needs"),
        ({"start": "copying", "layers": 1, "width": 32}, "copying start needs"),
    ],
    ids=["width", "heads", "narrow", "shallow"],
)
def test_a_student_that_cannot_be_is_refused(changes, told):
    with pytest.raises(SpecbookError, match=told):
        build(tiny_llama(0), settings_of(**changes))


@pytest.mark.parametrize(
    ("width", "weights", "told"),
    [
        (0, None, "width"),
        (33, None, "width"),
        (True, None, "width"),
        (8, torch.ones(3), "weights"),
        (8, torch.zeros(64), "weights"),
        (8, -torch.ones(64), "weights"),
        (8, torch.full((64,), float("nan")), "weights"),
    ],
    ids=[f"case{i}" for i in range(7)],
)
def test_a_projection_of_bad_input_is_refused(width, weights, told):
    embedding = tiny_llama(0).get_input_embeddings().weight
    with pytest.raises(SpecbookError, match=told):
        projection(embedding, width, weights)
    with pytest.raises(SpecbookError, match="matrix"):
        projection(embedding[0], 1)


def test_only_a_student_of_a_llama_is_made():
    with pytest.raises(TargetError, match="LlamaForCausalLM"):
        build(tiny_model("gpt2"), settings_of())
