"""The floor of a verification: its formula, its corner, and what it counts."""

from __future__ import annotations

import pytest
import torch

from specbook.errors import SpecbookError
from specbook.measure import roofline as module
from specbook.measure.roofline import Roofline, multiplied_weights, roofline
from specbook.models import LeanTarget, TableTarget, tiny_llama
from specbook.models.tiny import tiny_model


def test_the_slower_of_two() -> None:
    line = Roofline(1000, 250, 10, 100.0, 1000.0)
    assert line.seconds(1) == (1000 + 10) / 100
    assert line.seconds(1, prefix=50) == (1000 + 510) / 100
    assert line.seconds(100) == 2 * 100 * 250 / 1000
    corner = line.corner()
    for n in (1, corner - 1, corner, corner + 5):
        slow = 2 * n * 250 / 1000 > 1000 / 100
        assert slow == (n >= corner)


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2", "opt"])
def test_weights_are_those_of_the_model(family: str) -> None:
    model = tiny_model(family)
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    wanted = sum(p.numel() for p in model.parameters())
    if head.weight is not embedding.weight:
        wanted -= embedding.weight.numel()
    assert multiplied_weights(model.config) == wanted


def test_a_target_gets_its_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "READ_BYTES", 1 << 12)
    monkeypatch.setattr(module, "SQUARE", 8)
    now = iter(range(10_000))
    target = LeanTarget(tiny_llama())
    line = roofline(target, turns=3, clock=lambda: float(next(now)))
    assert (line.bandwidth, line.speed) == (float(1 << 12), 2.0 * 8**3)
    assert line.weight_bytes == 4 * line.weights
    assert line.row_bytes == target.start([1]).bytes_per_row()
    assert module.speed(torch.bfloat16, turns=1, clock=lambda: float(next(now))) > 0


def test_bad_input() -> None:
    line = Roofline(1000, 250, 10, 100.0, 1000.0)
    for arguments in ((0,), (True,), (1, -1)):
        with pytest.raises(SpecbookError):
            line.seconds(*arguments)
    with pytest.raises(SpecbookError, match="target"):
        roofline(TableTarget(lambda prefix: [1], vocab_size=1))
    with pytest.raises(SpecbookError, match="turns"):
        roofline(LeanTarget(tiny_llama()), turns=0)
    for turns in (0, -1, 1.5, True):
        with pytest.raises(SpecbookError, match="turns"):
            module.bandwidth(turns=turns)  # type: ignore[arg-type]
        with pytest.raises(SpecbookError, match="turns"):
            module.speed(torch.float32, turns=turns)  # type: ignore[arg-type]
    with pytest.raises(SpecbookError, match="dtype"):
        module.speed("float32")  # type: ignore[arg-type]
    good = {"weight_bytes": 40, "weights": 10, "row_bytes": 3}
    good |= {"bandwidth": 1e3, "speed": 1e4}
    for name, value in (
        ("weight_bytes", 0),
        ("weights", 1.5),
        ("row_bytes", -1),
        ("bandwidth", 0.0),
        ("bandwidth", float("nan")),
        ("speed", -1.0),
        ("speed", float("inf")),
    ):
        with pytest.raises(SpecbookError, match=name):
            Roofline(**{**good, name: value})  # type: ignore[arg-type]
