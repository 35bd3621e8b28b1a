"""The exercises of 0x06_draft_heads: lost conditions, teacher rows, a critical path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import product
from math import lcm
from typing import Any

import numpy as np

from ..measure import joints
from . import Exercise

Joint = dict[tuple[int, ...], Fraction]

# ---------------------------------------------------------------- 0x06-accepted


def _joint(weights: Mapping[tuple[int, ...], int]) -> Joint:
    kept = {text: n for text, n in weights.items() if n}
    return {text: Fraction(n, sum(kept.values())) for text, n in kept.items()}


def _joint_cases(rng: np.random.Generator) -> Iterator[Joint]:
    yield _joint({(0, 0): 1, (1, 1): 1})
    yield _joint({(0, 0): 3, (0, 1): 1, (1, 1): 2})
    yield _joint({(0, 0, 1): 5, (1, 1, 0): 3, (0, 1, 0): 1, (1, 0, 1): 1})
    for _ in range(3):
        depth, size = (3, 2) if rng.random() < 0.5 else (2, 3)
        texts = list(product(range(size), repeat=depth))
        while True:
            weights = [int(w) for w in rng.integers(0, 5, size=len(texts))]
            if sum(map(bool, weights)) >= 3:
                break
        yield _joint(dict(zip(texts, weights, strict=True)))


def _marginals(joint: Joint) -> list[list[Fraction]]:
    size = 1 + max(token for text in joint for token in text)
    depth = len(next(iter(joint)))
    found = [[Fraction(0)] * size for _ in range(depth)]
    for text, mass in joint.items():
        for place, token in enumerate(text):
            found[place][token] += mass
    return found


def _accepted(joint: Joint) -> Fraction:
    # By the engine itself: a table drafts by place, the rule of one draft tests, and
    # all branches are walked.
    whole = lcm(*(mass.denominator for mass in joint.values()))
    weights = {text: int(mass * whole) for text, mass in joint.items()}
    made = joints.Joint(weights)
    found: Fraction = made.accepted(made.independent())
    return found


def _accepted_mistake(case: Joint, value: Any, truth: Fraction) -> str | None:
    laws, depth = _marginals(case), len(next(iter(case)))
    if value == truth + 1:
        return "that counts the correction or bonus token, which nobody drafted."
    if value == 1:  # a marginal is right at the first place, and always accepted
        return "that is the first head alone; add what each later head brings."
    if value == depth != truth:
        return (
            "each head has the right marginal, but the target tests a token behind the "
            "tokens before it: compare with its conditional law."
        )
    overlap = Fraction(0)
    for text, mass in case.items():
        q = Fraction(1)
        for place, token in enumerate(text):
            q *= laws[place][token]
        overlap += min(mass, q)
    if value == overlap:
        return (
            "you compared whole texts. The rule tests token by token, and what was "
            "accepted before a refusal stays."
        )
    return None


# -------------------------------------------------------------------- 0x06-rows

Packed = tuple[list[int], int]
Row = tuple[int, int, int]


def _rows_cases(rng: np.random.Generator) -> Iterator[Packed]:
    yield [4], 2
    yield [4, 3], 3
    yield [0, 1, 2, 5], 10
    yield [], 3
    yield [3, 3], 0
    for _ in range(7):
        count = int(rng.integers(1, 5))
        lengths = [int(n) for n in rng.integers(0, 7, size=count)]
        yield lengths, int(rng.integers(1, 6))


def _rows(case: Packed) -> list[Row]:
    # From named vectors: the package's rows say which state and which tokens they read.
    from ..training.rows import hydra_teacher_rows

    lengths, heads = case
    n = sum(lengths)
    made = hydra_teacher_rows(
        range(n),
        [[j] for j in range(n)],
        heads,
        segment_ids=[
            number for number, size in enumerate(lengths) for _ in range(size)
        ],
        valid=[True] * n,
        embed=lambda token: [token],
    )
    return [(head, reads[0], label) for head, reads, label in made]


def _naive(case: Packed, first: int, clamp: bool = False) -> list[Row]:
    """The rows of a shift that knows no documents, or holds on to their first token."""
    lengths, heads = case
    n = sum(lengths)
    starts = {sum(lengths[:place]) for place in range(len(lengths))}
    return [
        (i, t if clamp and t in starts else (t - 1) % n, t + i)
        for t in range(first, n)
        for i in range(1, min(heads, n - t - 1) + 1)
    ]


def _rows_mistake(case: Packed, value: Any, truth: list[Row]) -> str | None:
    value = [tuple(row) for row in value]
    if value == truth:
        return None
    if value == _naive(case, 0):
        return "your first row reads the last state of the stream: nothing wraps."
    if value == _naive(case, 1):
        return (
            "rows run over the border of a document: state, tokens and label must be "
            "of one."
        )
    if value == _naive(case, 0, clamp=True):
        return (
            "the first token of a document has no state before it; its own has read "
            "it already, and does not exist at that time. Skip the token."
        )
    if sorted(value) == sorted((i, h, label - 1) for i, h, label in truth):
        return (
            "head i is given x_t up to x_(t+i-1), so its label is x_(t+i), i + 1 "
            "behind the state."
        )
    if sorted(value) == sorted((i, h + 1, label) for i, h, label in truth):
        return (
            "you gave the place of x_t; the state is that of the token before it, "
            "since x_t has not been through the target."
        )
    if sorted(value) == sorted(truth):
        return "the rows are right, their order is not: by position, then by head."
    return None


# ---------------------------------------------------------- 0x06-critical-path

Offer = tuple[bool, Fraction, dict[int, tuple[int, Fraction]]]
Race = tuple[dict[str, Offer], dict[int, Fraction]]


def _race(
    stage: Fraction,
    tokens: Mapping[str, Mapping[int, tuple[int, Fraction]]],
    forward: Mapping[int, Fraction],
) -> Race:
    offers = {
        name: (name == "dependent", stage, dict(sizes))
        for name, sizes in tokens.items()
    }
    return offers, dict(forward)


def _race_cases(rng: np.random.Generator) -> Iterator[Race]:
    chains = {
        "independent": {4: (3, Fraction(31, 10))},
        "dependent": {4: (3, Fraction(4))},
    }
    # Each usual mistake chooses another way here.
    tenths = {
        "independent": {4: (2, 18), 16: (3, 23), 64: (4, 29)},
        "dependent": {4: (2, 24), 16: (3, 28), 64: (4, 41)},
    }
    apart = {
        name: {n: (depth, Fraction(gain, 10)) for n, (depth, gain) in sizes.items()}
        for name, sizes in tenths.items()
    }
    costs = {4: Fraction(7, 5), 16: Fraction(3, 2), 64: Fraction(27, 10)}
    yield _race(Fraction(9, 20), apart, costs)
    yield _race(Fraction(1, 10), chains, {4: Fraction(1)})
    yield _race(Fraction(1, 4), chains, {4: Fraction(1)})
    flat = {4: Fraction(11, 10), 16: Fraction(5, 4), 64: Fraction(3, 2)}
    steep = {4: Fraction(6, 5), 16: Fraction(2), 64: Fraction(5)}
    wide = {
        "independent": {
            4: (3, Fraction(8, 5)),
            16: (4, Fraction(21, 10)),
            64: (4, Fraction(14, 5)),
        },
        "dependent": {
            4: (3, Fraction(21, 10)),
            16: (4, Fraction(27, 10)),
            64: (4, Fraction(3)),
        },
    }
    for prices in (flat, steep):
        yield _race(Fraction(1, 5), wide, prices)
        yield _race(Fraction(1, 20), wide, prices)
    count = 0
    while count < 7:
        sizes = sorted({int(n) for n in rng.integers(2, 65, size=3)})
        steps = np.cumsum(rng.integers(1, 12, size=len(sizes)))
        forward = {
            n: 1 + Fraction(int(c), 10) for n, c in zip(sizes, steps, strict=True)
        }
        tokens = {}
        for name in ("independent", "dependent"):
            gains = np.cumsum(rng.integers(1, 9, size=len(sizes)))
            tokens[name] = {
                n: (
                    min(n - 1, int(rng.integers(2, 6))),
                    1 + Fraction(int(g), 7),
                )
                for n, g in zip(sizes, gains, strict=True)
            }
        race = _race(Fraction(int(rng.integers(1, 8)), 20), tokens, forward)
        ranked = sorted(_prices(race).values())
        if ranked[0] < ranked[1]:
            count += 1
            yield race


def _prices(race: Race, stages: str = "right") -> dict[tuple[str, int], Fraction]:
    """Time a token of every way; `stages` is how many the heads are charged for."""
    offers, forward = race
    found = {}
    for name, (waits, stage, sizes) in offers.items():
        for n, (depth, tokens) in sizes.items():
            count = {"right": depth if waits else 1, "one": 1, "all": depth}
            found[name, n] = (forward[n] + count[stages] * stage) / tokens
    return found


def _faster(race: Race) -> tuple[str, int]:
    # Pair by pair, by the article's inequality multiplied out.
    offers, forward = race
    best: tuple[Fraction, Fraction, tuple[str, int]] | None = None
    for name, (waits, stage, sizes) in offers.items():
        for n, (depth, tokens) in sizes.items():
            cost = forward[n] + (depth * stage if waits else stage)
            if best is None or cost * best[1] < best[0] * tokens:
                best = (cost, tokens, (name, n))
    assert best is not None
    return best[2]


def _faster_mistake(case: Race, value: Any, truth: tuple[str, int]) -> str | None:
    value = tuple(value)
    ways = _prices(case)
    if value not in ways:
        return "return the name and the number of rows."
    for stages, told in (
        ("one", "a dependent head waits for the one above: charge a stage a depth."),
        ("all", "independent heads run together: charge them one stage."),
    ):
        wrong = _prices(case, stages)
        if value == min(wrong, key=lambda way: wrong[way]):
            return told
    tokens = {
        (name, n): gain
        for name, (_, _, sizes) in case[0].items()
        for n, (_, gain) in sizes.items()
    }
    if tokens[value] == max(tokens.values()):
        return "most tokens a round is not least time a token: divide by the cost."
    if value[1] == min(n for _, n in ways):
        return "the cheapest round is not the cheapest token: divide by the tokens."
    return None


EXERCISES: dict[str, Exercise] = {
    exercise.id: exercise
    for exercise in (
        Exercise(
            id="0x06-accepted",
            question=(
                "accepted(joint): joint maps texts (tuples of tokens, all of one "
                "length) to the target's probabilities, Fractions. Independent heads "
                "draft one token a place, each from its marginal; the rule of one "
                "draft tests them in turn. Return how many drafted tokens are accepted "
                "on average."
            ),
            cases=_joint_cases,
            oracle=_accepted,
            diagnose=_accepted_mistake,
        ),
        Exercise(
            id="0x06-rows",
            question=(
                "rows(lengths, heads): documents of these lengths are packed one "
                "behind the other. Return the teacher rows of heads 1 to `heads`, by "
                "position and then by head, each as (head, place of the state that it "
                "reads, place of its label) in the stream."
            ),
            cases=_rows_cases,
            oracle=_rows,
            diagnose=_rows_mistake,
        ),
        Exercise(
            id="0x06-critical-path",
            question=(
                "faster(offers, forward): offers maps a name to (waits, stage, sizes): "
                "whether a head waits for the one above it, the cost of one stage of "
                "heads, and {rows: (depth, tokens a round)}. forward maps rows to the "
                "cost of a verification. Return (name, rows) of the least cost for "
                "each token."
            ),
            cases=_race_cases,
            oracle=_faster,
            diagnose=_faster_mistake,
        ),
    )
}
