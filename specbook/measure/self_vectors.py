"""What skip vectors are worth, all of them or those of a search (section 0x05A).

For a small target every vector can be tried, so the surface over which a search walks
can be drawn whole. Tokens are counted by decoding and priced by given costs: no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch

from .. import checks
from ..drafts.stop_threshold import ThresholdPolicy
from ..errors import SpecbookError
from ..models import tiny
from ..models.lean import LeanTarget
from ..models.skip_layers import SkipVector, layer_count
from ..models.skip_storage import StoredSkip
from .skip_objective import SkipCosts, SkipCounts, evaluate, predicted

FULL_DRAFTS = ThresholdPolicy(start=0, epsilon=0)
"""A threshold that never stops a draft and never moves."""


@dataclass(frozen=True)
class Worth:
    """One vector: `share`, of its drafted tokens, that was accepted; `time`, a token,
    in those of plain decoding."""

    vector: SkipVector
    share: Any
    time: Any

    @property
    def point(self) -> tuple[float, float, float]:
        """As `plotting.selfdraft.surface` draws it."""
        return self.vector.skipped, float(self.time), float(self.share)

    def __str__(self) -> str:
        told = f"{float(self.share):.0%} accepted, {float(self.time):.2f} of plain"
        return f"{self.vector}: {told}"


def fading_target(weights: Sequence[float], vocab_size: int = 32) -> LeanTarget:
    """A tiny target of random numbers whose layers change their input less and less:
    what layer i adds is multiplied by `weights[i]`. Raises `SpecbookError` where there
    is no weight, or one that is no number."""
    wanted = [
        checks.float64(w, f"weights[{i}]", least=0)
        for i, w in enumerate(checks.entries(weights, "weights", "numbers"))
    ]
    if not wanted:
        raise SpecbookError("weights is empty: a target has layers")
    model = tiny.tiny_llama(vocab_size=vocab_size, num_layers=len(wanted))
    with torch.no_grad():
        for layer, weight in zip(model.model.layers, wanted, strict=True):
            layer.self_attn.o_proj.weight.mul_(weight)
            layer.mlp.down_proj.weight.mul_(weight)
    return LeanTarget(model)


def every_vector(
    target: Any,
    prompts: Sequence[Sequence[int]],
    prices: SkipCosts,
    *,
    most: int,
    max_new_tokens: int,
) -> list[Worth]:
    """All 4^L vectors of `target`, of 5 layers at most, in drafts of `most` tokens;
    shares and times are fractions where the prices are. Raises `SpecbookError` for a
    target of more layers, for what are no prices, and what `skip_objective.evaluate`
    raises."""
    checks.instance(prices, "prices", SkipCosts)
    layers = checks.integer(layer_count(target), "layers", least=1, most=5)
    found = []
    for bits in product((False, True), repeat=2 * layers):
        vector = SkipVector.from_bits(bits)
        counts = evaluate(
            target,
            prompts,
            vector,
            max_new_tokens=max_new_tokens,
            most=most,
            policy=FULL_DRAFTS,
        ).counts
        found.append(_worth(vector, counts, prices))
    return found


def of_history(stored: StoredSkip) -> list[Worth]:
    """Every trial of a search, computed again from its counts and the costs in the
    manifest. Raises `SpecbookError` for a trial whose predicted time is another, and
    for a search that does not tell its costs or its counts."""
    checks.instance(stored, "stored", StoredSkip)
    prices = SkipCosts.from_dict(stored.manifest.get("costs"))
    found = []
    for number, trial in enumerate(stored.history):
        vector = SkipVector.from_text(trial["vector"])
        counts = SkipCounts.from_dict(trial.get("counts"))
        again = predicted(vector, counts, prices)
        said = checks.float64(trial.get("predicted"), f"predicted of trial {number}")
        if abs(again - said) > 1e-9 * again:
            raise SpecbookError(
                f"trial {number} says {said} seconds a token, its counts and costs say "
                f"{again}"
            )
        found.append(_worth(vector, counts, prices))
    return found


def _worth(vector: SkipVector, counts: SkipCounts, prices: SkipCosts) -> Worth:
    time = predicted(vector, counts, prices) / prices.plain()
    return Worth(vector, counts.accepted / max(1, counts.drafted), time)
