"""The exercises of 0x0E_failure_lab: find the fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from .. import controls
from ..chance import law
from ..oracles.position import position_law
from . import Exercise

Row = list[Fraction]
Parents = list[int]
Mask = list[list[bool]]


# ------------------------------------------------------------------ 0x0E-witness


def ancestors(parents: Sequence[int]) -> Mask:
    """Entry [u][v]: whether row u sees row v, itself or an ancestor."""
    lines: Mask = []
    for row, parent in enumerate(parents):
        line = list(lines[parent]) if parent >= 0 else [False] * len(parents)
        line[row] = True
        lines.append(line)
    return lines


def _chain(parents: Sequence[int]) -> Mask:
    """A lower triangle."""
    size = len(parents)
    return [[v <= u for v in range(size)] for u in range(size)]


def _no_self(parents: Sequence[int]) -> Mask:
    """Ancestors alone."""
    return [
        [seen and u != v for v, seen in enumerate(line)]
        for u, line in enumerate(ancestors(parents))
    ]


def _parent_alone(parents: Sequence[int]) -> Mask:
    """Itself and its parent, and nothing above."""
    size = len(parents)
    return [[v in (u, parents[u]) for v in range(size)] for u in range(size)]


def _two_above(parents: Sequence[int]) -> Mask:
    """Itself, its parent and its grandparent, and nothing above."""
    lines = []
    for row, parent in enumerate(parents):
        seen = {row, parent, parents[parent] if parent >= 0 else -1}
        lines.append([v in seen for v in range(len(parents))])
    return lines


def _first_root(parents: Sequence[int]) -> Mask:
    """All rows see row 0, as if there were one root."""
    lines = ancestors(parents)
    for line in lines:
        line[0] = True
    return lines


def _last_sibling(parents: Sequence[int]) -> Mask:
    """A row with an elder sibling sees that one, too."""
    lines = ancestors(parents)
    for row, parent in enumerate(parents):
        for elder in range(row):
            if parents[elder] == parent and parent >= 0:
                lines[row][elder] = True
    return lines


BROKEN: tuple[Callable[[Sequence[int]], Mask], ...] = (
    _chain,
    _no_self,
    _parent_alone,
    _two_above,
    _first_root,
    _last_sibling,
)
"""Masks that are wrong, each on some trees."""


def _witness_cases(rng: np.random.Generator) -> Iterator[Callable[..., Mask]]:
    for place in (0, *rng.permutation(len(BROKEN)).tolist()):
        yield BROKEN[place]


def _forests(size: int) -> Iterator[Parents]:
    """Every list of parents of so many rows."""
    if size == 0:
        yield []
        return
    for parents in _forests(size - 1):
        for parent in range(-1, size - 1):
            yield [*parents, parent]


def _witness(broken: Callable[..., Mask]) -> Parents:
    for size in range(1, 6):
        for parents in _forests(size):
            if broken(parents) != ancestors(parents):
                return parents
    raise AssertionError("a mask of the table is right on all small trees")


def _parents_of(value: Any) -> Parents:
    parents = [int(parent) for parent in value]
    for row, parent in enumerate(parents):
        if not -1 <= parent < row:
            raise ValueError(f"row {row} has parent {parent}")
    return parents


def _is_witness(broken: Callable[..., Mask], value: Any, truth: Any) -> bool:
    parents = _parents_of(value)
    return broken(parents) != ancestors(parents)


def _witness_mistake(broken: Callable[..., Mask], value: Any, truth: Any) -> str | None:
    try:
        parents = _parents_of(value)
    except ValueError as error:
        return f"{error}; a parent must be -1 or a row that comes before."
    except TypeError:
        return "return a list of parents."
    told = f"on {parents} this mask is right"
    if all(parent == row - 1 for row, parent in enumerate(parents)):
        return f"{told}: a chain has no siblings to leak. Let rows share a parent."
    if max(parents, default=-1) < 0:
        return f"{told}: no row has a parent, so nothing above it can be lost."
    return f"{told}. Try every small tree until one differs."


# ---------------------------------------------------------------- 0x0E-which-rule

RULES = (
    "tests each draft against the original p",
    "repeats the one-draft test",
    "draws without replacement to the rule for independent ones",
)
"""Wrong rules for two drafts of one q, by their names in `controls`."""

RIGHT = "right"


def first_token(name: str, p: Sequence[Fraction], q: Sequence[Fraction]) -> Row:
    """The law of the first token under the control called `name` (or "right"), with two
    drafts of one q."""
    return list(_first_token(name, tuple(p), tuple(q)))


@cache
def _first_token(
    name: str, p: tuple[Fraction, ...], q: tuple[Fraction, ...]
) -> tuple[Fraction, ...]:
    rows = [np.array(list(q), dtype=object)] * 2
    if name == RIGHT:
        return tuple(position_law("specinfer", p, q, 2, "iid").output)
    control = controls.get(name)
    target = np.array(list(p), dtype=object)
    found: Any = law(lambda chance: control.wrong(chance, target, rows))
    return tuple(Fraction(found.get((token,), 0)) for token in range(len(p)))


def _law(rng: np.random.Generator, size: int) -> Row:
    counts = rng.integers(1, 10, size=size).tolist()
    return [Fraction(count, sum(counts)) for count in counts]


Observed = tuple[Row, Row, Row]


def _rule_cases(rng: np.random.Generator) -> Iterator[Observed]:
    names = [*RULES, RIGHT]
    found = 0
    while found < 6:
        name = names[found] if found < 4 else names[int(rng.integers(4))]
        p, q = _law(rng, 3), _law(rng, 3)
        laws = [tuple(first_token(other, p, q)) for other in names]
        if len(set(laws)) == len(names):
            found += 1
            yield p, q, first_token(name, p, q)


def _rule(case: Observed) -> str:
    p, q, seen = case
    return next(name for name in (*RULES, RIGHT) if first_token(name, p, q) == seen)


def _rule_mistake(case: Observed, value: Any, truth: str) -> str | None:
    p, _, seen = case
    if value not in (*RULES, RIGHT):
        return f"answer with one of {[*RULES, RIGHT]}."
    if value == RIGHT:
        off = sum(abs(a - b) for a, b in zip(p, seen, strict=True)) / 2
        return f"the law is off by {off}: some rule is wrong."
    if truth == RIGHT:
        return "the law is p itself: nothing is wrong with it."
    return f"`{value}` gives another law for these p and q. Enumerate all of them."


# ------------------------------------------------------------------- 0x0E-publish

Block = tuple[list[int], int, list[int]]


def _publish_cases(rng: np.random.Generator) -> Iterator[Block]:
    yield [5, 6, 7], 9, [0]
    yield [5, 0, 7], 9, [0]
    yield [5, 6, 7], 2, [0]
    yield [5, 6, 0, 7], 2, [0]
    yield [5, 1, 0], 9, [0, 1]
    yield [0], 1, [0]
    yield [5, 6], 9, []
    for _ in range(12):
        block = rng.integers(0, 6, size=rng.integers(1, 7)).tolist()
        ends = rng.permutation(6)[: rng.integers(0, 3)].tolist()
        yield block, int(rng.integers(1, 8)), ends


def _publish(case: Block) -> list[int]:
    # Token by token, as plain decoding would have published them.
    block, room, ends = case
    out: list[int] = []
    for token in block:
        if len(out) == room or (out and out[-1] in ends):
            break
        out.append(token)
    return out


def _publish_mistake(case: Block, value: Any, truth: list[int]) -> str | None:
    block, room, ends = case
    value = list(value)
    if len(value) > room:
        return f"there is room for {room}, and {len(value)} tokens came out."
    inside = [token for token in value[:-1] if token in ends]
    if inside:
        return f"token {inside[0]} ends the text, and more came behind it."
    if len(value) < len(truth) and truth[-1] in ends and value == truth[:-1]:
        return "the end token itself is published, too."
    if value != block[: len(value)]:
        return "what is published is the beginning of the block, as it is."
    return f"of {block}, {len(truth)} tokens may be published."


EXERCISES = {
    exercise.id: exercise
    for exercise in (
        Exercise(
            id="0x0E-witness",
            question=(
                "witness(broken): a list of parents on which broken(parents) is not "
                "the mask of ancestors; the fewer rows the better."
            ),
            cases=_witness_cases,
            oracle=_witness,
            diagnose=_witness_mistake,
            right=_is_witness,
            cost=lambda broken, value: len(value),
            cost_unit="rows",
        ),
        Exercise(
            id="0x0E-which-rule",
            question=(
                "which_rule(p, q, seen): the name of the rule that put out the law "
                'seen, or "right".'
            ),
            cases=_rule_cases,
            oracle=_rule,
            diagnose=_rule_mistake,
        ),
        Exercise(
            id="0x0E-publish",
            question=(
                "publish(block, room, ends): the tokens of the accepted block that "
                "may be published."
            ),
            cases=_publish_cases,
            oracle=_publish,
            diagnose=_publish_mistake,
        ),
    )
}
