"""What is handed to the helpers of self-drafting and of losses, works or says so.

Each argument of each is replaced by each hostile value of `tests.core.test_hostile`.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
import torch

from specbook.drafts.neural.bound import Bound
from specbook.drafts.neural.draft_verify import DraftVerify
from specbook.drafts.stop_threshold import ThresholdPolicy
from specbook.measure import bench_self, self_traces
from specbook.measure.row_cost import measure_row_cost
from specbook.measure.self_vectors import every_vector, fading_target
from specbook.measure.skip_objective import SkipCosts, evaluate, measure_costs
from specbook.models import tiny
from specbook.models.kangaroo import Adapter
from specbook.models.lean import LeanTarget
from specbook.models.shared_trunk import sharing
from specbook.models.skip_layers import SkipVector
from specbook.training import losses
from specbook.training.distil import distillation_loss
from tests.core.test_hostile import HOSTILE, check_says_so

TEXT = [3, 1, 4, 1, 5]
LEAN = LeanTarget(tiny.tiny_llama())
FORM = sharing(self_traces.tiny_target("llama", 2), 1)
VECTOR = SkipVector.from_text("am")
PRICES = SkipCosts(
    **{name: Fraction(1) for name in ("attention", "mlp", "base", "state")},
    verify=((1, Fraction(1)), (3, Fraction(2))),
)
ROWS = torch.zeros((1, 4))
IDS = torch.zeros((1, 1), dtype=torch.int64)

CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "tiny_target": (self_traces.tiny_target, {"family": "llama", "layers": 1}),
    "shapes": (self_traces.shapes, {"target": LEAN}),
    "two_rows": (
        self_traces.two_rows,
        {"target": LEAN, "text": TEXT, "vector": VECTOR},
    ),
    "kangaroo_work": (self_traces.kangaroo_work, {"family": "llama", "text": TEXT}),
    "skipping_work": (
        self_traces.skipping_work,
        {"family": "llama", "vector": "am", "text": TEXT},
    ),
    "chain_gaps": (
        self_traces.chain_gaps,
        {"form": FORM, "text": TEXT, "tokens": [9, 9]},
    ),
    "thresholds": (
        self_traces.thresholds,
        {"policy": ThresholdPolicy(), "stream": [(1, 2)], "most": 3},
    ),
    "threshold_rounds": (
        self_traces.threshold_rounds,
        {
            "target": LEAN,
            "source": DraftVerify("am", most=2),
            "prompt": TEXT,
            "max_new_tokens": 3,
        },
    ),
    "kangaroo_rounds": (
        self_traces.kangaroo_rounds,
        {
            "target": FORM,
            "adapter": Adapter.beginning_at(FORM, 4),
            "prompt": TEXT,
            "rounds": 1,
            "most": 2,
            "threshold": 0,
        },
    ),
    "learning_tensors": (self_traces.learning_tensors, {"family": "llama"}),
    "judged": (
        self_traces.judged,
        {
            "rounds": [self_traces.KangarooRound((1,), (0.5,), 1, 2, 0)],
            "threshold": 0.5,
        },
    ),
    "fading_target": (fading_target, {"weights": [1, 0.5], "vocab_size": 16}),
    "every_vector": (
        every_vector,
        {
            "target": LeanTarget(tiny.tiny_llama(num_layers=1)),
            "prompts": [TEXT],
            "prices": PRICES,
            "most": 2,
            "max_new_tokens": 3,
        },
    ),
    "evaluate": (
        evaluate,
        {
            "target": LEAN,
            "prompts": [TEXT],
            "vector": VECTOR,
            "max_new_tokens": 3,
            "most": 2,
            "policy": ThresholdPolicy(),
            "repeats": 1,
        },
    ),
    "measure_costs": (
        measure_costs,
        {"target": LEAN, "most": 1, "prefix": 4, "repeats": 1},
    ),
    "measure_row_cost": (
        measure_row_cost,
        {"target": LEAN, "rows": [1, 2], "prefix": 4, "repeats": 1},
    ),
    "Bound.of": (Bound.of, {"target": LEAN, "vocabulary": [1, 2]}),
    "stored_loss": (
        losses.stored_loss,
        {
            "features": [ROWS],
            "head_weight": torch.zeros((5, 4)),
            "top_ids": [IDS],
            "top_logps": [torch.zeros((1, 1))],
            "weights": [1.0],
        },
    ),
    "distillation_loss": (
        distillation_loss,
        {
            "hidden": ROWS,
            "weight": torch.zeros((5, 4)),
            "top_ids": IDS,
            "top_logps": torch.zeros((1, 1)),
        },
    ),
}
LARGE = ("10**30", "10**400")
LEFT_OUT = {
    (name, argument, label)
    for name, argument in (
        ("tiny_target", "layers"),
        ("kangaroo_rounds", "rounds"),
        ("threshold_rounds", "max_new_tokens"),
        ("every_vector", "max_new_tokens"),
        ("evaluate", "max_new_tokens"),
        ("evaluate", "repeats"),
        ("measure_costs", "prefix"),
        ("measure_costs", "repeats"),
        ("measure_row_cost", "prefix"),
        ("measure_row_cost", "repeats"),
        ("fading_target", "vocab_size"),
    )
    for label in LARGE
}
"""As many are asked for, and no time or memory is enough."""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", CALLS)
def test_hostile_values_work_or_are_refused_by_name(name: str) -> None:
    call, good = CALLS[name]
    call(**good)
    for argument in good:
        for label, value in HOSTILE.items():
            if (name, argument, label) in LEFT_OUT:
                continue
            try:
                check_says_so(call, {**good, argument: value})
            except AssertionError as error:
                raise AssertionError(f"{argument} = {label}: {error}") from error


@pytest.mark.parametrize("argument", ["target", "stored", "dtype", "turns", "clock"])
def test_costs_are_of_targets_and_methods(argument: str) -> None:
    """With no method it times nothing that drafts, and names what is no target."""
    good = {"target": LEAN, "stored": {}, "dtype": "float32", "turns": 1}
    assert bench_self.costs_of(**good).draft == {}
    left_out = {"turns": LARGE, "clock": ("a function",)}.get(argument, ())
    for label, value in HOSTILE.items():
        if label not in left_out:
            check_says_so(bench_self.costs_of, {**good, argument: value})
