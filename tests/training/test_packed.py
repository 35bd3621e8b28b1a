"""States of packed documents are those of each alone, and rows cannot repair others."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from specbook.errors import SpecbookError, TargetError
from specbook.models.tiny import tiny_llama, tiny_model
from specbook.training.packed import path_states, segment_causal_states
from specbook.training.rows import head_rows

TOLERANCE = 1e-4
LENGTHS = (5, 1, 7, 4)
SEGMENTS = [s for s, length in enumerate(LENGTHS) for _ in range(length)]
TOKENS = [(7 * j + 3) % 64 for j in range(len(SEGMENTS))]


@torch.inference_mode()
def alone(model: Any, tokens: list[int]) -> torch.Tensor:
    """The last hidden states [n, d] of one document in a forward of its own."""
    return model.get_decoder()(input_ids=torch.tensor([tokens]))[0][0]


def each_alone(model: Any) -> torch.Tensor:
    found, start = [], 0
    for length in LENGTHS:
        found.append(alone(model, TOKENS[start : start + length]))
        start += length
    return torch.cat(found)


@pytest.mark.parametrize(
    "family", ["llama", "qwen2", "qwen3", "gpt2", "gpt_neox", "opt"]
)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_packed_document_has_the_states_it_has_alone(
    family: str, attention: str
) -> None:
    model = tiny_model(family, attn_implementation=attention)
    found = segment_causal_states(model, TOKENS, SEGMENTS)
    assert (found - each_alone(model)).abs().max() <= TOLERANCE


def test_no_choice_of_rows_repairs_a_contaminated_state() -> None:
    """A plain causal forward over the stream: the rows are the same, the states that
    they read are others in every document but the first, and so are the labels that a
    teacher would give."""
    model = tiny_llama()
    wanted, plain = each_alone(model), alone(model, TOKENS)
    for part in head_rows(SEGMENTS, [True] * len(SEGMENTS), 3):
        clean = part.hidden < LENGTHS[0]
        difference = (plain - wanted)[part.hidden].abs().amax(-1)
        assert difference[clean].max() <= TOLERANCE
        assert difference[~clean].min() > 0.1
    with torch.inference_mode():
        top = [model.lm_head(states).argmax(-1) for states in (plain, wanted)]
    changed = (top[0] != top[1])[LENGTHS[0] :]
    assert changed.float().mean() > 0.3
    found = segment_causal_states(model, TOKENS, SEGMENTS)
    assert (found - wanted).abs().max() <= TOLERANCE


def test_positions_that_run_on_would_be_seen() -> None:
    """Learned positions: a document must begin at 0 wherever it is packed."""
    model = tiny_model("gpt2")
    shifted = alone(model, TOKENS)[: LENGTHS[0]]
    later = segment_causal_states(
        model, [*TOKENS[5:12], *TOKENS[:5]], [0] * 7 + [1] * 5
    )
    assert (later[7:] - shifted).abs().max() <= TOLERANCE


def test_a_document_that_comes_back_is_another() -> None:
    model = tiny_llama()
    found = segment_causal_states(model, TOKENS[:9], [1, 1, 1, 2, 2, 2, 1, 1, 1])
    assert (found[6:] - alone(model, TOKENS[6:9])).abs().max() <= TOLERANCE


def test_no_row_sees_an_inactive_token() -> None:
    model = tiny_llama()
    valid = [True, True, False, True]
    one, other = (
        segment_causal_states(model, [5, 6, token, 7], [0] * 4, valid)
        for token in (1, 2)
    )
    assert torch.equal(one[[0, 1, 3]], other[[0, 1, 3]])
    assert bool(torch.isfinite(one).all())
    assert (one[2] - other[2]).abs().max() > 0.1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"tokens": []}, "0 tokens"),
        ({"tokens": [1, 64, 2]}, r"tokens\[1\]"),
        ({"segment_ids": [0, 0]}, "2 segment ids"),
        ({"valid": [True]}, "1 flags"),
        ({"valid": [True, 1, True]}, r"valid\[1\]"),
        ({"segment_ids": [0.5, 0.5, 0.5]}, r"segment_ids\[0\] must be an integer"),
        ({"model": 3}, "transformers model"),
        ({"model": "narrow"}, "a document has 3 tokens, the model 2 positions"),
    ],
)
def test_bad_input_is_refused(change: dict[str, Any], told: str) -> None:
    model = tiny_llama()
    if change.get("model") == "narrow":
        change = {"model": tiny_llama(max_positions=2)}
    given = {
        "model": model,
        "tokens": [1, 2, 3],
        "segment_ids": [0, 0, 0],
        "valid": [True] * 3,
    }
    with pytest.raises((SpecbookError, TargetError), match=told):
        segment_causal_states(**{**given, **change})


@pytest.mark.parametrize(
    ("rows", "paths", "told"),
    [
        ([0], torch.tensor([[1]]), "rows must be an int64 tensor of 1 axes"),
        (torch.tensor([0.0]), torch.tensor([[1]]), "rows must be an int64"),
        (torch.tensor([[0]]), torch.tensor([[1]]), "rows must be an int64"),
        (torch.tensor([0]), torch.tensor([1]), "paths must be an int64"),
        (torch.tensor([0]), torch.tensor([[64]]), r"paths\[0\] = 64"),
        (torch.tensor([2]), torch.tensor([[1]]), r"outside 0 \.\. 1"),
        (torch.tensor([0, 1]), torch.tensor([[1]]), "they do not fit"),
    ],
)
def test_paths_that_are_none_are_refused(rows: Any, paths: Any, told: str) -> None:
    with pytest.raises(SpecbookError, match=told):
        path_states(tiny_llama(), [1, 2], [0, 0], rows, paths)
