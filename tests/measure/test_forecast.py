"""Predicted beside measured: which rounds count, and what each part is made of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from specbook.drafts.neural.draft_model import DraftModel
from specbook.engine import Generation, generate
from specbook.errors import SpecbookError
from specbook.ledger import RoundLedger
from specbook.measure.forecast import HEAD, Part, forecast
from specbook.models import TableTarget
from specbook.topologies.hardware import Candidate, Times, choose
from tests.core.helpers.laws import table_of

LENGTH = 60
TARGET = TableTarget(table_of([[4, 1, 1], [1, 3, 1]], salt=1), vocab_size=3)
DRAFT = TableTarget(table_of([[3, 2, 1], [2, 3, 1]], salt=1), vocab_size=3)


def prices() -> Times:
    verify = np.array([[0.010, 0.012, 0.020]] * 3)
    return Times((1, 4, 16), verify, {1: np.array([0.001]), 4: np.array([0.002])})


def chosen() -> Candidate:
    times = prices()
    return choose([0, 0.6, 0.3], times.steps(), times.draft_steps, max_depth=2).best


def runs(source: Any, rule: str, prompts: int = 6) -> list[Generation]:
    return [
        generate(
            TARGET,
            [i % 3],
            source,
            rule,
            max_new_tokens=LENGTH,
            temperature=1.0,
            seed=i,
        )
        for i in range(prompts)
    ]


def costing(run: Generation, **terms: float) -> Generation:
    """The run with one price for every round but the first, which costs a second."""
    ledgers = [RoundLedger(**terms, committed_tokens=1) for _ in run.rounds]
    ledgers[0] = RoundLedger(target_verify=1.0, committed_tokens=1)
    rounds = [
        replace(played, ledger=ledger)
        for played, ledger in zip(run.rounds, ledgers, strict=True)
    ]
    return replace(run, rounds=rounds)


def named(parts: list[Part]) -> dict[str, Part]:
    return {part.name: part for part in parts}


def test_every_part_of_a_known_run() -> None:
    best = chosen()
    assert best.nodes > 1
    plain = [
        costing(run, target_verify=0.011, selection=0.001)
        for run in runs(None, "membership")
    ]
    trees = [
        costing(
            run,
            proposal=0.003,
            packing=0.0005,
            target_verify=0.013,
            selection=0.001,
            temporary_state=0.0005,
        )
        for run in runs(DraftModel(DRAFT, shape=best.tree), "sequoia")
    ]
    parts = named(forecast(best, prices(), plain, trees, max_new_tokens=LENGTH))
    step, whole = parts["a plain step, ms"], parts["a round, ms"]
    assert (step.predicted, step.measured) == pytest.approx((10, 12))
    assert parts["verification, ms"].measured == pytest.approx(13)
    assert parts["verification, ms"].predicted == pytest.approx(
        1000 * dict(zip((1, 4, 16), (0.010, 0.012, 0.020), strict=True))[best.nodes]
    )
    assert parts["drafting, ms"].measured == pytest.approx(3)
    drafted = 1000 * prices().one * prices().draft_steps(best.tree)
    assert parts["drafting, ms"].predicted == pytest.approx(drafted)
    assert parts["the rest of a round, ms"].measured == pytest.approx(2)
    assert parts["the rest of a round, ms"].ratio is None
    assert whole.measured == pytest.approx(18)
    assert whole.predicted == pytest.approx(10 * best.steps)
    tokens = parts["tokens a round"]
    assert parts["a token, ms"].measured == pytest.approx(18 / tokens.measured)
    assert parts["speed-up"].measured == pytest.approx(12 * tokens.measured / 18)
    assert parts["speed-up"].predicted == best.speedup
    assert all(len(part.row()) == len(HEAD) for part in parts.values())


def test_the_rounds_that_count_had_room_and_were_not_the_first() -> None:
    best = chosen()
    trees = runs(DraftModel(DRAFT, shape=best.tree), "sequoia")
    plain = runs(None, "membership")
    found = named(forecast(best, prices(), plain, trees, max_new_tokens=LENGTH))
    total = rounds = 0
    for run in trees:
        done = 0
        for number, played in enumerate(run.rounds):
            if number > 0 and LENGTH - done >= best.depth + 1:
                # All that was planned could be offered.
                assert played.tree.max_depth == best.depth
                total += len(played.selection.rows) + 1
                rounds += 1
            done += len(played.committed)
    assert rounds < sum(len(run.rounds) - 1 for run in trees)
    tokens = found["tokens a round"]
    assert tokens.measured == total / rounds
    assert tokens.low is not None and tokens.high is not None
    assert tokens.low <= tokens.measured <= tokens.high


def test_bad_input() -> None:
    best, plain = chosen(), runs(None, "membership", 1)
    trees = runs(DraftModel(DRAFT, shape=best.tree), "sequoia", 1)
    good: dict[str, Any] = {"max_new_tokens": LENGTH}
    for arguments, told in (
        ((None, prices(), plain, trees), "Candidate"),
        ((best, {}, plain, trees), "Times"),
        ((best, prices(), plain, [1]), r"trees\[0\]"),
        ((best, prices(), "ab", trees), "plain"),
        ((best, prices(), [], trees), "no round"),
    ):
        with pytest.raises(SpecbookError, match=told):
            forecast(*arguments, **good)  # type: ignore[arg-type]
    with pytest.raises(SpecbookError, match="max_new_tokens"):
        forecast(best, prices(), plain, trees, max_new_tokens=0)
    with pytest.raises(SpecbookError, match=str(LENGTH)):
        forecast(best, prices(), plain, trees, max_new_tokens=LENGTH - 1)
