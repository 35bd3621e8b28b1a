"""The committed notebooks against the registers of claims and exercises."""

import pkgutil
from pathlib import Path

import numpy as np
import pytest

from specbook import claims, exercises

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
NUMBERS = sorted(
    module.name[1:].upper()
    for module in pkgutil.iter_modules(exercises.__path__)
    if module.name.startswith("s")
)


def test_every_claim_of_a_notebook_is_checked_and_every_check_has_a_claim():
    assert claims.register_faults(NOTEBOOKS) == []


def test_every_notebook_has_its_exercises_with_executed_solutions():
    assert exercises.notebook_faults(NOTEBOOKS) == []


@pytest.mark.parametrize("number", NUMBERS)
def test_each_exercise_accepts_its_own_oracle_and_refuses_nonsense(number):
    """Also runs every diagnosis in the open: inside `check` its crash is swallowed."""
    table = exercises.of_notebook(number)
    assert table
    for exercise in table.values():
        for seed in range(3):
            for case in exercise.cases(np.random.default_rng(seed)):
                truth = exercise.oracle(case)
                if exercise.right is None:
                    assert exercises.same(truth, truth), exercise.id
                else:
                    assert exercise.right(case, truth, truth), exercise.id
                if exercise.cost is not None:
                    assert exercise.cost(case, truth) >= 0, exercise.id
        if not exercise.takes_value:
            report = exercises.grade(exercise, lambda *case: "nonsense", 0)
            assert report.status == "wrong", exercise.id
            report = exercises.grade(exercise, lambda *case: None, 0)
            assert report.status == "unsolved", exercise.id
