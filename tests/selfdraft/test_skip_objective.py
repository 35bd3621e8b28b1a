"""Time per verified token: counts that repeat, costs that add up."""

from __future__ import annotations

from fractions import Fraction as F
from typing import Any

import pytest

from specbook.drafts.stop_threshold import ThresholdPolicy
from specbook.errors import SpecbookError
from specbook.measure import skip_objective as module
from specbook.measure.skip_objective import (
    SkipCosts,
    SkipCounts,
    SkipEvaluation,
    evaluate,
    measure_costs,
    predicted,
)
from specbook.models.skip_layers import SkipVector

from .models import LAYERS, target_of

COSTS = SkipCosts(
    base=F(1, 2),
    attention=F(1, 4),
    mlp=F(1, 3),
    verify=((1, F(3)), (3, F(4)), (9, F(7))),
    state=F(1, 10),
)
PROMPTS = [[1, 2, 3], [5, 4, 3, 2]]
NEVER = ThresholdPolicy(start=0)


class Ticks:
    """A clock that is read, and not looked at: one tick a reading."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        self.now += 1
        return self.now


def test_the_prediction_is_the_sum_by_hand_exactly() -> None:
    vector = SkipVector.from_text("-am")
    step = F(1, 2) + 2 * F(1, 4) + 2 * F(1, 3)
    assert COSTS.draft_step(vector) == step
    counts = SkipCounts(
        rounds=3, drafted=4, accepted=2, committed=5, rows=((1, 1), (2, 1), (4, 1))
    )
    verify = F(3) + F(7, 2) + F(9, 2)
    assert predicted(vector, counts, COSTS) == (4 * step + verify + F(3, 10)) / 5
    assert COSTS.plain() == F(31, 10)
    assert SkipCosts.from_dict(COSTS.as_dict()) == COSTS


def test_counts_are_those_of_the_rounds_that_drafted() -> None:
    """A path that skips nothing is accepted whole: three drafts and a token of the
    target's each time, and the round that reads the prompt is left out."""
    found = evaluate(
        target_of("lean"),
        PROMPTS,
        SkipVector.nothing(LAYERS),
        max_new_tokens=9,
        most=3,
        policy=NEVER,
        clock=Ticks(),
    )
    assert found.counts == SkipCounts(4, 12, 12, 16, ((4, 4),))
    assert found.measured == (found.draft + found.verify + found.state) / 16
    assert min(found.draft, found.verify, found.state) > 0


def test_counts_do_not_depend_on_the_clock_and_times_do() -> None:
    target, vector = target_of("lean"), SkipVector.from_text("--m")
    one, other = (
        evaluate(target, PROMPTS, vector, max_new_tokens=9, most=3, clock=clock)
        for clock in (Ticks(), lambda: 0)
    )
    assert one.counts == other.counts and one.counts.drafted
    assert one.measured > 0 == other.measured


def test_of_several_runs_the_median_counts() -> None:
    spent = iter([1.0, 100.0, 2.0])

    class Slow:
        """Ticks, but each request runs at its own speed."""

        def __init__(self) -> None:
            self.now = 0.0
            self.speed = 0.0

        def __call__(self) -> float:
            self.now += self.speed
            return self.now

    clock = Slow()
    target, vector = target_of("lean"), SkipVector.from_text("--m")
    right = module.generate

    def request(*arguments: Any, **options: Any) -> Any:
        clock.speed = next(spent)
        return right(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "generate", request)
        three = evaluate(
            target, PROMPTS[:1], vector, max_new_tokens=9, repeats=3, clock=clock
        )
    once = evaluate(target, PROMPTS[:1], vector, max_new_tokens=9, clock=Ticks())
    assert three.counts == once.counts
    assert three.measured == pytest.approx(2 * once.measured, rel=1e-9)


def test_costs_are_differences_between_four_paths(monkeypatch: Any) -> None:
    """With a clock that costs a step what its sublayers cost, they come out again."""
    want = {"base": 5.0, "attention": 2.0, "mlp": 3.0}
    tick = 2.0**-10  # each reading of the clock, for no forward may take no time
    now = 0.0
    right = module.SkippedPath.grow

    def clock() -> float:
        nonlocal now
        now += tick
        return now

    def grow(self: Any, token: int) -> Any:
        nonlocal now
        vector = self.vector
        now += want["base"]
        now += want["attention"] * (vector.layers - sum(vector.attention))
        now += want["mlp"] * (vector.layers - sum(vector.mlp))
        return right(self, token)

    monkeypatch.setattr(module.SkippedPath, "grow", grow)
    found = measure_costs(target_of("lean"), most=2, prefix=8, repeats=2, clock=clock)
    assert found.base == want["base"] + tick
    assert (found.attention, found.mlp) == (want["attention"], want["mlp"])
    assert found.verify == ((1, tick), (2, tick), (3, tick))
    # Without drafting and verification a round is some readings of the clock.
    assert 0 < found.state < 1


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: SkipCounts(None, 0, 0, 0, ()), "rounds must be an integer"),
        (lambda: SkipCounts(1, 0, 0, 0, ((1,),)), r"rows\[0\] must be two counts"),
        (lambda: SkipCounts.from_dict(None), "a SkipCounts has the fields"),
        (lambda: SkipCosts.from_dict({"base": 1}), "a SkipCosts has the fields"),
        (lambda: COSTS.draft_step(None), "vector must be a SkipVector"),
        (
            lambda: predicted(SkipVector.nothing(1), None, COSTS),
            "counts must be a SkipCounts",
        ),
        (
            lambda: predicted(
                SkipVector.nothing(1), SkipCounts(1, 1, 1, 1, ((1, 1),)), None
            ),
            "costs must be a SkipCosts",
        ),
        (lambda: SkipCosts(-1, 0, 0, ((1, 1), (2, 1)), 0), "base must be at least 0"),
        (lambda: SkipCosts(1, 0, 0, ((2, 1), (3, 1)), 0), "increasing from 1"),
        (
            lambda: predicted(SkipVector.nothing(1), SkipCounts(0, 0, 0, 0, ()), COSTS),
            "no token was committed",
        ),
        (
            lambda: (
                SkipEvaluation(
                    SkipVector.nothing(1), SkipCounts(0, 0, 0, 0, ()), 0, 0, 0
                ).measured
            ),
            "no token was committed",
        ),
        (
            lambda: evaluate(None, [], SkipVector.nothing(1), max_new_tokens=4),
            "prompts is empty",
        ),
        (
            lambda: evaluate(None, [[1]], SkipVector.nothing(1), max_new_tokens=1),
            "max_new_tokens must be at least 2",
        ),
    ],
)
def test_bad_input_is_refused(make: Any, told: str) -> None:
    with pytest.raises(SpecbookError, match=told):
        make()
