"""What the tests of judges share: what an answer is told, and that a mistake is named.

The first failing case decides what is told, so that a seed may show another mistake of
the same answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from specbook.exercises import get, grade


def told(
    exercise_id: str, answer: Callable[..., Any], seed: int = 5
) -> tuple[bool, str]:
    """Whether the exercise is solved, and what the reader is told."""
    report = grade(get(exercise_id), answer, seed)
    return report.solved, " ".join(report.lines)


def names_the_mistake(
    exercise_id: str, answer: Callable[..., Any], words: str, *, seeds: int
) -> None:
    """Fails unless a wrong answer is told `words` for one of the first `seeds` seeds,
    and is refused for every seed before it."""
    for seed in range(seeds):
        solved, lines = told(exercise_id, answer, seed)
        assert not solved, f"solved at seed {seed}"
        if words in lines:
            return
    pytest.fail(lines)
