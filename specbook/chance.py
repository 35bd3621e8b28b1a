"""One program, two readings.

A verifier, a sampling drafter or a whole decoding round is written once, as a
function of a `Chance` that it asks for its random events. `Sampler` answers with
random numbers: that is what decodes. `law` walks every branch and adds up the
exact law of the result: that is what is proved. Both run the same program.

A program must be a function of its `chance`: no other randomness, and no state that
outlives a run. `law` re-runs the program for each branch, and the first branch once
more at the end, and notices when a run does not repeat itself.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from fractions import Fraction
from typing import Any, Protocol

import numpy as np

from . import checks
from .errors import ChanceError

Probability = Fraction | float


class Chance(Protocol):
    """What a program may ask."""

    def flip(self, probability: Probability) -> bool:
        """True with the given probability."""

    def draw(self, weights: Any) -> int:
        """An index of `weights` [V], each with its own probability; they sum to 1."""


class Sampler:
    """Answers with pseudo-random numbers from a generator of its own.

    `seed`: a non-negative integer or a `numpy.random.Generator`. The global states of
    numpy and torch are neither read nor written.
    """

    def __init__(self, seed: int | np.random.Generator = 0) -> None:
        if not isinstance(seed, np.random.Generator):
            seed = np.random.default_rng(checks.integer(seed, "seed", least=0))
        self._generator = seed

    def flip(self, probability: Probability) -> bool:
        """True with the given probability (0 never, 1 always)."""
        checks.real(probability, "probability", least=0, most=1, error=ChanceError)
        return self._generator.random() < probability

    def draw(self, weights: Any) -> int:
        """An index i with probability `weights[i]`; never one of weight zero."""
        weights = checks.law(weights, "weights").astype(np.float64, copy=False)
        cumulative = np.cumsum(weights)
        point = self._generator.random() * cumulative[-1]
        # side="right" steps over entries of weight zero; rounding can still reach
        # the end, and the last entry that has any weight is where it belongs.
        index = int(np.searchsorted(cumulative, point, side="right"))
        if index == len(weights):
            index = int(np.flatnonzero(weights)[-1])
        return index


class _Branch:
    """Replays a recorded list of answers, then takes the first open branch each time.

    `trail` holds one entry for each question that has more than one possible
    answer: [options, weights, position among the options].
    """

    def __init__(self, trail: list[list[Any]], max_branches: int) -> None:
        self.trail = trail
        self.max_branches = max_branches
        self.asked = 0
        self.probability: Any = 1

    def flip(self, probability: Probability) -> bool:
        checks.real(probability, "probability", least=0, most=1, error=ChanceError)
        return bool(self._answer((True, False), (probability, 1 - probability)))

    def draw(self, weights: Any) -> int:
        weights = checks.law(weights, "weights")
        options = tuple(int(i) for i in np.flatnonzero(weights))
        return self._answer(options, tuple(weights[i] for i in options))

    def _answer(self, options: tuple[Any, ...], weights: tuple[Any, ...]) -> Any:
        # Events of probability zero are not branches, and a sure one asks nothing.
        kept = [(o, w) for o, w in zip(options, weights, strict=True) if w > 0]
        if len(kept) == 1:
            return kept[0][0]
        if self.asked == len(self.trail):
            # Each open question has another branch behind it. Counting here as well
            # stops a program whose first branch never ends.
            if len(self.trail) + 1 >= self.max_branches:
                raise _too_many(self.max_branches)
            self.trail.append([kept, 0])
        recorded, position = self.trail[self.asked]
        if recorded != kept:
            raise ChanceError(
                f"the program is not a function of its chance: question {self.asked} "
                f"was {recorded} in one run and {kept} in another"
            )
        self.asked += 1
        option, weight = kept[position]
        self.probability = self.probability * weight
        return option


def _too_many(max_branches: int) -> ChanceError:
    return ChanceError(f"the program has more than {max_branches} branches")


def law(
    program: Callable[[Chance], Hashable], *, max_branches: int = 1_000_000
) -> dict[Hashable, Any]:
    """The exact law of `program(chance)`: `{result: probability}`.

    The probabilities are Fractions when every probability that the program asked
    about was rational, and they then sum to 1 exactly. A result that is a list is
    keyed as a tuple; any other result must be hashable. Raises `ChanceError` when
    the program has more than `max_branches` branches or does not repeat itself.
    """
    checks.integer(max_branches, "max_branches", least=1)
    # A class is callable, but calling one makes an object and decides nothing.
    if not callable(program) or isinstance(program, type):
        raise ChanceError(f"program must be callable and no class, got {program!r}")
    results: dict[Hashable, Any] = {}
    trail: list[list[Any]] = []
    first: Any = None
    for number in range(max_branches):
        branch = _Branch(trail, max_branches)
        result, probability = _run(program, branch)
        if number == 0:
            first = (result, [list(step) for step in trail])
        results[result] = results.get(result, 0) + probability
        # Depth first: step the deepest question that still has an answer left.
        while trail and trail[-1][1] == len(trail[-1][0]) - 1:
            trail.pop()
        if not trail:
            break
        trail[-1][1] += 1
    else:
        raise _too_many(max_branches)
    # State that leaks from run to run, or hidden randomness, need not change the
    # questions. Whatever it changes in the first branch shows now.
    again = _run(program, _Branch(trail, max_branches))[0]
    if (again, trail) != first:
        raise ChanceError(
            "the program is not a function of its chance: its first branch gave "
            f"{first[0]!r} and then {again!r}"
        )
    return results


def _run(
    program: Callable[[Chance], Hashable], branch: _Branch
) -> tuple[Hashable, Any]:
    """The result of one branch, and its probability."""
    result = program(branch)
    if branch.asked != len(branch.trail):
        raise ChanceError(
            "the program is not a function of its chance: it asked "
            f"{branch.asked} questions where an earlier run asked {len(branch.trail)}"
        )
    result = tuple(result) if isinstance(result, list) else result
    try:
        hash(result)
    except TypeError:
        raise ChanceError(f"the result must be hashable, got {result!r}") from None
    probability = branch.probability
    # No question was open: the one branch is certain, exactly.
    return result, Fraction(1) if isinstance(probability, int) else probability
