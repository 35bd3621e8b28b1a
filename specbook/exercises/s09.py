"""The exercises of 0x09_specinfer: a residual, tests in turn, bytes of a tree."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from ..chance import law
from ..drafts.samplers import Draw, position_tree
from ..models.kv_bytes import CacheSchema, FullLayer, WindowLayer
from ..oracles import measure
from ..verifiers import get
from ..walkthrough import Step, walkthrough
from . import Exercise

Row = list[Fraction]


def _law(rng: np.random.Generator, size: int, zeros: bool = True) -> Row:
    while True:
        weights = [int(w) for w in rng.integers(0 if zeros else 1, 6, size=size)]
        if sum(weights):
            return [Fraction(w, sum(weights)) for w in weights]


def _given(*weights: int) -> Row:
    return [Fraction(w, sum(weights)) for w in weights]


def _array(row: Row) -> np.ndarray:
    return np.array(row, dtype=object)


# ---------------------------------------------------------------- 0x09-residual

Draft = tuple[Row, Row, int]


def _residual_cases(rng: np.random.Generator) -> Iterator[Draft]:
    yield _given(5, 3, 2), _given(4, 4, 2), 1
    yield _given(1, 1, 2), _given(2, 1, 1), 0
    yield _given(4, 3, 2, 1), _given(1, 2, 1, 6), 0
    count = 0
    while count < 9:
        size = int(rng.integers(3, 6))
        p, q = _law(rng, size), _law(rng, size, zeros=False)
        if p != q:
            count += 1
            yield p, q, int(rng.integers(size))


def _residual(case: Draft) -> tuple[Fraction, Row]:
    # By the rule itself: how often it accepts this draft, and what it draws when a
    # draft of the same law has been refused (averaged over the drafts, which is what
    # the residual must make up for).
    p, q, token = (_array(case[0]), _array(case[1]), case[2])
    select = get("specinfer").select
    accepted = measure(select, lambda chance: [Draw(token, q)], p).acceptance

    def corrections(chance: Any) -> int | None:
        tree = position_tree([Draw(chance.draw(q), q)])
        found = select(tree, lambda row: p, chance)
        return None if found.rows else found.token

    drawn = law(corrections)
    refused = sum(mass for token, mass in drawn.items() if token is not None)
    return accepted, [drawn.get(t, Fraction(0)) / refused for t in range(len(p))]


def _residual_mistake(case: Draft, value: Any, truth: tuple[Fraction, Row]) -> str:
    p, q, token = case
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        return "return two things: the probability, and the law as a list."
    accept, left = value[0], list(value[1])
    over = [a - b for a, b in zip(p, q, strict=True)]
    if accept == p[token] / q[token] != truth[0]:
        return "a probability is at most 1: what p has beyond q is not spent here."
    if left == over:
        return "p - q goes below 0; only its positive part is left."
    if left == [max(x, Fraction(0)) for x in over]:
        return "the positive part is right and no law yet: divide by its sum."
    without = [x if t != token else Fraction(0) for t, x in enumerate(p)]
    if sum(without) and left == [x / sum(without) for x in without]:
        return (
            "you took out the one token that was refused. That is right for a draft "
            "that was certain; a drawn one takes out its whole law q."
        )
    if left == list(p):
        return (
            "after a refusal p is no longer what is left; drawing from it counts twice."
        )
    return "the test is min(1, p/q), what is left is (p - q)+ divided by its sum."


# ------------------------------------------------------------------ 0x09-in-turn

Turn = tuple[Row, list[tuple[int, Row]]]


def _turn_cases(rng: np.random.Generator) -> Iterator[Turn]:
    q = _given(4, 4, 2)
    yield _given(5, 3, 2), [(1, q), (1, q)]
    yield _given(1, 2, 3), [(0, _given(4, 1, 1)), (1, _given(1, 3, 2))]
    yield _given(1, 1, 1), [(0, _given(8, 1, 1)), (1, _given(1, 7, 2))]
    yield _given(5, 3, 2), [(0, q), (2, q)]
    for _ in range(9):
        size = int(rng.integers(3, 6))
        drafts = [
            (int(rng.integers(size)), _law(rng, size, zeros=False))
            for _ in range(int(rng.integers(2, 5)))
        ]
        yield _law(rng, size), drafts


def _turns(case: Turn) -> list[Fraction]:
    # The rule's own questions, along the branch on which it refuses.
    p, drafts = _array(case[0]), [Draw(t, _array(q)) for t, q in case[1]]
    step = walkthrough("specinfer", position_tree(drafts), lambda row: p).first
    found = []
    while isinstance(step, Step) and step.kind == "flip":
        chances = {option.answer: option for option in step.options}
        accepted = chances[True].probability if True in chances else Fraction(0)
        found.append(Fraction(accepted))
        if False not in chances:
            break
        step = chances[False].below
    return found


def _in_turn(case: Turn, first_q: bool = False, keep_p: bool = False) -> list[Fraction]:
    """The tests with one of two mistakes."""
    left, drafts = list(case[0]), case[1]
    found = []
    for token, own in drafts:
        q = drafts[0][1] if first_q else own
        found.append(min(Fraction(1), left[token] / q[token]))
        if found[-1] == 1:
            break
        over = [max(a - b, Fraction(0)) for a, b in zip(left, q, strict=True)]
        if not keep_p and any(over):
            left = [x / sum(over) for x in over]
    return found


def _turn_mistake(case: Turn, value: Any, truth: list[Fraction]) -> str | None:
    value = list(value)
    if value == _in_turn(case, keep_p=True):
        return "the later drafts are tested against p; test them against what is left."
    if value == _in_turn(case, first_q=True):
        return "you used the first draft's q for all; each was drawn from its own."
    if value[: len(truth)] == truth and len(value) > len(truth):
        return "a draft that is accepted for certain ends it: stop behind it."
    if len(value) < len(truth):
        return "one number for each draft, up to one that is accepted for certain."
    return None


# ----------------------------------------------------------------- 0x09-kv-bytes

Growth = tuple[int, int, dict[str, Any]]


def _bytes_cases(rng: np.random.Generator) -> Iterator[Growth]:
    small = {"layers": 30, "heads": 9, "kv_heads": 3, "hidden_size": 576, "bytes": 2}
    yield 100, 16, {**small, "windows": [None] * 30}
    yield 100, 1, {**small, "bytes": 4, "windows": [None] * 30}
    tiny = {"layers": 4, "heads": 4, "kv_heads": 2, "hidden_size": 32, "bytes": 4}
    yield 3, 4, {**tiny, "windows": [8, 8, 8, None]}
    yield 20, 4, {**tiny, "windows": [8, 8, 8, None]}
    for _ in range(9):
        kv_heads = int(rng.integers(1, 5))
        heads = kv_heads * int(rng.integers(1, 4))
        layers = int(rng.integers(2, 6))
        windows = [
            None if rng.random() < 0.4 else int(w)
            for w in rng.integers(4, 40, size=layers)
        ]
        config = {
            "layers": layers,
            "heads": heads,
            "kv_heads": kv_heads,
            "hidden_size": heads * 8 * int(rng.integers(1, 4)),
            "bytes": int(rng.choice([2, 4])),
            "windows": windows,
        }
        yield int(rng.integers(1, 40)), int(rng.integers(1, 12)), config


def _bytes(case: Growth) -> int:
    # By what a schema holds with the rows and without them.
    prefix, rows, config = case
    scalars = 2 * config["kv_heads"] * config["hidden_size"] // config["heads"]
    layers = tuple(
        FullLayer(scalars, config["bytes"])
        if window is None
        else WindowLayer(scalars, config["bytes"], window)
        for window in config["windows"]
    )
    return CacheSchema("the exercise's", layers).growth(prefix, rows)


def _dense(case: Growth, rows: int, heads: str = "kv_heads") -> int:
    config = case[2]
    width = config["hidden_size"] // config["heads"]
    return rows * config["layers"] * 2 * config[heads] * width * config["bytes"]


def _bytes_mistake(case: Growth, value: Any, truth: int) -> str | None:
    prefix, rows, config = case
    windowed = [w for w in config["windows"] if w is not None]
    if 2 * value == truth:
        return "half of it is missing: keys and values."
    if value == _dense(case, rows, "heads") != truth and not windowed:
        return "those are the query heads; keys and values have fewer, kv_heads."
    if value == _dense(case, prefix + rows):
        return "you counted the prefix, too. Its rows are there without the tree."
    if windowed and value == _dense(case, rows):
        return "a layer with a window w keeps w - 1 rows at most, old and new together."
    return None


EXERCISES: dict[str, Exercise] = {
    exercise.id: exercise
    for exercise in (
        Exercise(
            id="0x09-residual",
            question=(
                "step(p, q, token): one draft, drawn from q, is tested against p. "
                "Return the probability that it is accepted, and the law of what is "
                "left after a refusal, as a list."
            ),
            cases=_residual_cases,
            oracle=_residual,
            diagnose=_residual_mistake,
        ),
        Exercise(
            id="0x09-in-turn",
            question=(
                "tests(p, drafts): drafts is a list of (token, q), in the order in "
                "which they are tested. Return for each the probability that it is "
                "accepted if all before it were refused. Stop behind one that is "
                "accepted for certain."
            ),
            cases=_turn_cases,
            oracle=_turns,
            diagnose=_turn_mistake,
        ),
        Exercise(
            id="0x09-kv-bytes",
            question=(
                "growth(prefix, rows, config): by how many bytes do `rows` candidate "
                "rows make the cache grow behind `prefix` tokens? config has layers, "
                "heads, kv_heads, hidden_size, bytes (a scalar), and windows: for each "
                "layer None or a window of w tokens, of which w - 1 rows are kept."
            ),
            cases=_bytes_cases,
            oracle=_bytes,
            diagnose=_bytes_mistake,
        ),
    )
}
