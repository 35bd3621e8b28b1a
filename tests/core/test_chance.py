"""One program, two readings: the sampler and the enumerator (design, section 4)."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbook.chance import Sampler, law
from specbook.errors import ChanceError, LawError, SpecbookError

from .helpers import must_fail, named
from .helpers.globals import check_leaves_globals_alone
from .helpers.laws import counts, fractions

HALF = Fraction(1, 2)


class Scripted(np.random.Generator):
    """A generator whose uniform numbers are written down."""

    def __new__(cls, *points: float) -> Any:
        return super().__new__(cls, np.random.PCG64(0))

    def __init__(self, *points: float) -> None:
        super().__init__(np.random.PCG64(0))
        self.points = list(points)

    def random(self, *_: Any, **__: Any) -> Any:
        return self.points.pop(0)


# --------------------------------------------------------------------- sampler


def answers(sampler: Any) -> list[Any]:
    drawn: list[Any] = []
    for _ in range(50):
        drawn += [sampler.flip(0.5), sampler.draw([0.25, 0.25, 0.5])]
    return drawn


def test_a_seed_repeats_and_another_differs() -> None:
    assert answers(Sampler(1)) == answers(Sampler(1))
    assert answers(Sampler(1)) != answers(Sampler(2))
    assert answers(Sampler(np.random.default_rng(1))) == answers(Sampler(1))


def test_global_generators_are_left_alone() -> None:
    check_leaves_globals_alone(lambda: answers(Sampler(3)))
    for fault in (np.random.random, random.random):
        must_fail(check_leaves_globals_alone, fault)


def test_global_seeds_have_no_influence() -> None:
    np.random.seed(1)
    first = answers(Sampler(5))
    np.random.seed(2)
    random.seed(9)
    assert answers(Sampler(5)) == first


@pytest.mark.parametrize("seed", [-1, 1.0, True, None, "1", [1], math.nan])
def test_a_seed_that_is_none_is_refused(seed: Any) -> None:
    with pytest.raises(SpecbookError, match="seed"):
        Sampler(seed)


def check_never_zero(draw: Any, weights: Any, point: float) -> None:
    index = draw(weights, point)
    assert type(index) is int
    assert 0 <= index < len(weights)
    assert weights[index] > 0


def real_draw(weights: Any, point: float) -> int:
    return Sampler(Scripted(point)).draw(weights)


def draw_from_the_left(weights: Any, point: float) -> int:
    """The planted fault: lands on a zero-weight entry when the point hits an edge."""
    sums = np.cumsum([float(w) for w in weights])
    return int(min(np.searchsorted(sums, point, side="left"), len(sums) - 1))


def draw_to_the_end(weights: Any, point: float) -> int:
    """The planted fault: what lies beyond the sum goes to the last entry."""
    sums = np.cumsum([float(w) for w in weights])
    beyond = point >= sums[-1] * (1 - 2**-52)
    return len(sums) - 1 if beyond else int(np.searchsorted(sums, point, side="right"))


NEARLY_ONE = 1 - 2**-53
POINTS = st.one_of(
    st.sampled_from([0.0, 5e-324, 0.25, 0.5, 0.75, 1 - 2**-52, NEARLY_ONE]),
    st.floats(0, NEARLY_ONE),
)


@st.composite
def laws_with_zeros(draw: Any) -> Any:
    """Laws as Fractions, floats, or floats of very different size; zeros anywhere."""
    row = draw(st.lists(st.integers(0, 5), min_size=1, max_size=8).filter(any))
    row = [0] * draw(st.integers(0, 3)) + row + [0] * draw(st.integers(0, 3))
    kind = draw(st.sampled_from(["exact", "float", "steep"]))
    if kind == "exact":
        return fractions(row)
    floats = np.array(row, dtype=float)
    if kind == "steep":
        floats = np.where(floats > 0, 10.0 ** (-60.0 * floats), 0.0)
    return floats / floats.sum()


@settings(max_examples=300, deadline=None)
@given(laws_with_zeros(), POINTS)
def test_draw_never_gives_an_entry_of_weight_zero(weights: Any, point: float) -> None:
    check_never_zero(real_draw, weights, point)


def test_the_faulty_draws_are_found() -> None:
    check_never_zero(real_draw, [0.0, 1.0], 0.0)
    must_fail(check_never_zero, draw_from_the_left, [0.0, 1.0], 0.0)
    check_never_zero(real_draw, [0.5, 0.5, 0.0, 0.0], NEARLY_ONE)
    must_fail(check_never_zero, draw_to_the_end, [0.5, 0.5, 0.0, 0.0], NEARLY_ONE)


def test_a_point_past_the_end_goes_to_the_last_entry_that_has_weight() -> None:
    # A uniform number of exactly 1 stands for whatever rounding may do.
    assert Sampler(Scripted(1.0)).draw([0.5, 0.5, 0.0]) == 1


def test_flip_at_its_ends() -> None:
    for never, always in ((0, 1), (0.0, 1.0), (Fraction(0), Fraction(1))):
        assert not any(Sampler(0).flip(never) for _ in range(100))
        assert all(Sampler(0).flip(always) for _ in range(100))
    assert Sampler(Scripted(0.0)).flip(0) is False
    assert Sampler(Scripted(NEARLY_ONE)).flip(1) is True
    assert Sampler(Scripted(0.5)).flip(0.5) is False


SIZE = 20_000


def check_counts(draw: Any, weights: list[Any]) -> None:
    """All shares within Hoeffding's bound: for K entries a right sampler fails with
    probability at most 1e-6, since 2 K exp(-2 n t^2) = 1e-6 defines t."""
    t = math.sqrt(math.log(2 * len(weights) / 1e-6) / (2 * SIZE))
    drawn = np.bincount([draw() for _ in range(SIZE)], minlength=len(weights))
    shares = drawn / SIZE
    assert np.all(np.abs(shares - [float(w) for w in weights]) <= t)


def test_counts_match_the_law() -> None:
    weights = [0.4, 0.0, 0.1, 0.3, 0.2]
    sampler = Sampler(11)
    check_counts(lambda: sampler.draw(weights), weights)
    check_counts(lambda: int(not sampler.flip(Fraction(1, 3))), [1 / 3, 2 / 3])
    must_fail(check_counts, lambda: sampler.draw([0.37, 0, 0.1, 0.33, 0.2]), weights)
    must_fail(check_counts, lambda: int(not sampler.flip(0.37)), [1 / 3, 2 / 3])


# ------------------------------------------------------------------ enumerator


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_the_law_of_fractions_sums_to_exactly_one(data: Any) -> None:
    first = fractions(data.draw(counts(3)))
    rows = [fractions(data.draw(counts(2))) for _ in range(3)]
    bias = Fraction(*sorted((data.draw(st.integers(0, 9)), 9)))

    def program(chance: Any) -> tuple[int, ...]:
        a = chance.draw(first)
        b = chance.draw(rows[a])
        return (a, b, *([chance.draw(rows[b])] if chance.flip(bias) else []))

    found = law(program)
    assert sum(found.values()) == 1
    assert all(type(p) is Fraction and p > 0 for p in found.values())
    expected: dict[tuple[int, ...], Fraction] = {}
    for a, b, c in itertools.product(range(3), range(2), range(2)):
        both = first[a] * rows[a][b]
        long = both * bias * rows[b][c]
        for key, p in (((a, b), both * (1 - bias)), ((a, b, c), long)):
            if p and not (len(key) == 2 and c):
                expected[key] = p
    assert found == expected


def test_floats_and_fractions_give_the_same_law() -> None:
    def program(kind: Any) -> Any:
        def run(chance: Any) -> int:
            return chance.draw([kind(0.25), kind(0.75)]) + chance.flip(kind(0.5))

        return run

    exact, floats = law(program(Fraction)), law(program(float))
    assert exact == {0: Fraction(1, 8), 1: HALF, 2: Fraction(3, 8)}
    assert floats == pytest.approx({k: float(v) for k, v in exact.items()}, abs=1e-15)


def test_what_asks_nothing_or_only_sure_things_is_certain() -> None:
    assert law(lambda chance: "x") == {"x": 1}
    found = law(lambda c: (c.flip(1), c.flip(0), c.draw([0, 1]), c.draw([0.0, 1.0])))
    assert found == {(True, False, 1, 1): 1}
    assert type(next(iter(found.values()))) is Fraction


def test_events_of_probability_zero_are_no_branches() -> None:
    visited: list[int] = []

    def program(chance: Any) -> int:
        index = chance.draw([HALF, 0, HALF, 0])
        visited.append(index)
        return index

    assert law(program, max_branches=2) == {0: HALF, 2: HALF}
    assert set(visited) == {0, 2}


def test_a_list_is_keyed_as_a_tuple_and_what_cannot_be_keyed_is_refused() -> None:
    assert law(lambda chance: [1, 2]) == {(1, 2): 1}
    for result in ({}, set(), ([],), np.zeros(2)):
        with pytest.raises(ChanceError, match="hashable"):
            law(lambda chance, result=result: result)


def test_the_programs_own_error_comes_through() -> None:
    with pytest.raises(KeyError, match="mine"):
        law(lambda chance: {}["mine"])


def test_max_branches_is_a_limit_that_is_met_exactly() -> None:
    def three_flips(chance: Any) -> tuple[bool, ...]:
        return tuple(chance.flip(HALF) for _ in range(3))

    assert len(law(three_flips, max_branches=8)) == 8
    for limit in (1, 2, 3, 7):
        with pytest.raises(ChanceError, match=f"more than {limit} branches"):
            law(three_flips, max_branches=limit)
    for limit in (0, -1, 1.5, True, None):
        with pytest.raises(SpecbookError, match="max_branches"):
            law(three_flips, max_branches=limit)  # type: ignore[arg-type]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("stop", [True, False])
def test_a_branch_without_an_end_is_stopped(stop: bool) -> None:
    def program(chance: Any) -> int:
        rounds = 0
        while chance.flip(HALF) is not stop:
            rounds += 1
        return rounds

    with pytest.raises(ChanceError, match="more than 100 branches"):
        law(program, max_branches=100)


def check_notices(program: Any) -> None:
    try:
        law(program)
    except ChanceError as error:
        assert "not a function of its chance" in str(error)
    else:
        raise AssertionError("the program does not repeat itself, and nobody noticed")


def leaks(kind: str) -> Any:
    """Programs that are no function of their chance, each in another way."""
    state: list[int] = []

    def program(chance: Any) -> Any:
        state.append(0)
        count = len(state)
        if kind == "another weight":
            return chance.flip(Fraction(1, 1 + count))
        if kind == "another kind of question":
            return chance.flip(HALF) if count % 2 else chance.draw([HALF, HALF])
        if kind == "more questions":
            return [chance.flip(HALF) for _ in range(min(count, 3))]
        if kind == "fewer questions":
            return [chance.flip(HALF) for _ in range(max(3 - count, 1))]
        if kind == "fewer questions, once":
            return [chance.flip(HALF) for _ in range(1 if count == 2 else 2)]
        if kind == "only the result":
            return (chance.flip(HALF), count)
        assert kind == "hidden noise without a question"
        return random.Random(count).random()

    return program


@pytest.mark.parametrize(
    "kind",
    [
        "another weight",
        "another kind of question",
        "more questions",
        "fewer questions",
        "fewer questions, once",
        "only the result",
        "hidden noise without a question",
    ],
)
def test_a_program_that_does_not_repeat_itself_is_noticed(kind: str) -> None:
    check_notices(leaks(kind))


def test_a_program_that_does_repeat_itself_is_not_accused() -> None:
    must_fail(check_notices, lambda chance: chance.flip(HALF))


def test_state_that_is_reset_in_each_run_is_no_leak() -> None:
    def program(chance: Any) -> tuple[int, ...]:
        history: list[int] = []
        for _ in range(3):
            weights = [Fraction(1 + sum(history), 4), Fraction(3 - sum(history), 4)]
            history.append(chance.draw(weights))
        return tuple(history)

    assert sum(law(program).values()) == 1


# ------------------------------------------------------------------- bad input

BAD_PROBABILITIES = [
    -0.1,
    1.1,
    math.nan,
    math.inf,
    -math.inf,
    Fraction(-1, 9),
    Fraction(10, 9),
    None,
    "0.5",
    True,
    np.True_,
    [0.5],
    np.array([0.5]),
    0.5j,
]

BAD_WEIGHTS = [
    [],
    [0.5, 0.4],
    [0.5, 0.6],
    [0.5, math.nan, 0.5],
    [math.nan],
    [math.inf, 0.0],
    [1.5, -0.5],
    [Fraction(1, 2), Fraction(1, 3)],
    [Fraction(3, 2), Fraction(-1, 2)],
    [HALF, 0.4],
    [Fraction(10**400), 0.5],
    [0, 0],
    [2],
    [True, False],
    ["0.5", "0.5"],
    [None],
    [0.5j, 1 - 0.5j],
    [[0.5, 0.5]],
    [[0.5], [0.5]],
    np.full((2, 2), 0.25),
    np.array([[1.0]]),
    np.array(1.0),
    np.array([True, False]),
    np.array([0.5 + 0j, 0.5]),
    np.array([0.5, 0.5], dtype=object),
    "1",
    b"\x01",
    1.0,
    None,
    {0: 0.5, 1: 0.5},
    {0.5},
    {1},
]


@pytest.mark.parametrize("probability", BAD_PROBABILITIES, ids=named)
def test_a_probability_that_is_none_is_refused(probability: Any) -> None:
    with pytest.raises(ChanceError, match="probability"):
        Sampler(0).flip(probability)
    with pytest.raises(ChanceError, match="probability"):
        law(lambda chance: chance.flip(probability))


@pytest.mark.parametrize("weights", BAD_WEIGHTS, ids=named)
def test_weights_that_are_no_law_are_refused(weights: Any) -> None:
    with pytest.raises(LawError, match="weights"):
        Sampler(0).draw(weights)
    with pytest.raises(LawError, match="weights"):
        law(lambda chance: chance.draw(weights))


@pytest.mark.parametrize("program", [None, 3, "x", {}, int, dict])
def test_what_cannot_be_called_is_no_program(program: Any) -> None:
    with pytest.raises(ChanceError, match="callable"):
        law(program)
