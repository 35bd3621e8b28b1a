"""The most that any lossless rule can accept on a small tree: one linear program.

A rule sees the drawn tree T, accepts a path v in it (or nothing) and emits one token y
more; what follows is drawn from the target. It is lossless if the tokens so written
have the target's law. With a(T, v, y) for the probability of all this,

    sum over v, y of a(T, v, y) = P(T)                          for every tree T,
    sum over T, v, y of a(T, v, y) p(rest of s | v y) = p(s)    for every s,

s running over the continuations one longer than the tree is deep. Maximal is the sum of
a(T, v, y) times the length of v. Nothing is assumed about how the rule decides; it may
even know p everywhere in the tree. So the value bounds every rule, and it may lie above
the optimal coupling node by node: a first token can be chosen for what was drafted
below it (section 0x08C, one position is not a tree).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array

from .. import checks
from ..chance import Chance
from ..chance import law as chance_law
from ..drafts.samplers import SAMPLERS
from ..errors import SpecbookError
from .drafted import RELATIONS, ask, check_reach

Path = tuple[int, ...]
Conditional = Callable[[Path], Any]

MAX_ENTRIES = 2_000_000
"""A program with more coefficients is refused."""

MAX_TEXTS = 1 << 16
"""Texts one longer than the tree is deep."""

MAX_DRAWS = 100_000
"""Pairs of subtrees that are put together at one place."""

TOLERANCE = 1e-10
"""What HiGHS may miss a constraint by."""


@dataclass(frozen=True)
class TreeOptimum:
    """`accepted`: the expected number of accepted drafts in one round, of the best
    lossless rule; the solver's float64, to about 1e-9. `trees` and `variables` tell the
    size of the program."""

    accepted: float
    trees: int
    variables: int


def tree_optimum(
    target: Any,
    draft: Any,
    widths: Iterable[int],
    sampling: str = "iid",
    *,
    families: str = "apart",
) -> TreeOptimum:
    """The optimum for trees of `widths[d]` drafts below every draft of depth d.

    `target`, `draft`: a law [V], the same after every path, or a function of the path
    (a tuple of tokens) that returns one. `sampling`: how siblings are drawn, any of
    `RELATIONS` but `independent`. `families`: whether a token that was drawn twice has
    two families of children, "apart" as in independent chains, or "one", as
    `samplers.expand` draws them; from trees of the first kind one gets those of the
    second by leaving out, so the first bounds both. Raises `SpecbookError` for a
    program out of reach, and what `checks.law` raises.
    """
    checks.one_of(sampling, "sampling", [s for s in RELATIONS if s != "independent"])
    checks.one_of(families, "families", ("apart", "one"))
    widths = [
        checks.integer(width, f"widths[{i}]", least=1)
        for i, width in enumerate(checks.entries(widths, "widths", "integers"))
    ]
    p, q = _conditional(target, "target"), _conditional(draft, "draft")
    size = len(checks.law(p(()), "target after ()"))
    trees = _drawn(q, size, widths, sampling, families)
    return _solve(trees, _Target(p, size), len(widths))


def _drawn(
    draft: Conditional, size: int, widths: list[int], sampling: str, families: str
) -> dict[frozenset[Path], Any]:
    """The law of the tree, as the set of its paths.

    Order and number of the draws of one set say nothing about what p needs: a rule that
    looks at them does no better than one that draws them for itself.
    """
    sampler = SAMPLERS[RELATIONS[sampling]]
    if size ** (len(widths) + 1) > MAX_TEXTS:
        raise _too_large()

    @cache
    def siblings(path: Path) -> dict[Path, Any]:
        row = checks.law(draft(path), f"draft after {path}", size=size)
        check_reach(ask(row, row, widths[len(path)], sampling))

        def program(chance: Chance) -> Path:
            drawn = [d.token for d in sampler(row, widths[len(path)], chance)]
            return tuple(sorted(set(drawn) if families == "one" else drawn))

        found: dict[Any, Any] = chance_law(program)
        return found

    @cache
    def below(path: Path) -> dict[frozenset[Path], Any]:
        """The law of what is drawn below `path`."""
        if len(path) == len(widths):
            return {frozenset(): Fraction(1)}
        found: dict[frozenset[Path], Any] = {}
        for tokens, mass in siblings(path).items():
            trees = {frozenset((*path, x) for x in tokens): mass}
            for x in tokens:
                trees = _both(trees, below((*path, x)))
            for tree, part in trees.items():
                found[tree] = found.get(tree, 0) + part
        return found

    return below(())


def _both(
    ours: dict[frozenset[Path], Any], theirs: dict[frozenset[Path], Any]
) -> dict[frozenset[Path], Any]:
    """The law of two independent trees taken together."""
    if len(ours) * len(theirs) > MAX_DRAWS:
        raise _too_large()
    found: dict[frozenset[Path], Any] = {}
    for (one, mine), (other, more) in product(ours.items(), theirs.items()):
        found[one | other] = found.get(one | other, 0) + mine * more
    return found


class _Target:
    """Probabilities of continuations, each looked up once."""

    def __init__(self, p: Conditional, size: int) -> None:
        self._p = p
        self.size = size
        self._rows: dict[Path, list[float]] = {}

    def row(self, path: Path) -> list[float]:
        if path not in self._rows:
            row = checks.law(self._p(path), f"target after {path}", size=self.size)
            self._rows[path] = row.astype(np.float64).tolist()
        return self._rows[path]

    def after(self, path: Path, length: int) -> list[tuple[Path, float]]:
        """Every possible continuation of `path` by `length` tokens, as the whole of
        it, with its probability given `path`."""
        found = [(path, 1.0)]
        for _ in range(length):
            found = [
                ((*s, y), mass * step)
                for s, mass in found
                for y, step in enumerate(self.row(s))
                if step > 0
            ]
        return found


def _solve(trees: dict[Any, Any], target: _Target, depth: int) -> TreeOptimum:
    whole = target.after((), depth + 1)
    rows = {s: len(trees) + i for i, (s, _) in enumerate(whole)}
    sums = [float(mass) for mass in trees.values()] + [mass for _, mass in whole]
    values: list[float] = []
    at: list[int] = []
    bounds = [0]
    gains: list[float] = []
    ends: dict[Path, list[tuple[Path, float]]] = {}
    for number, tree in enumerate(trees):
        for v, y in product(((), *sorted(tree)), range(target.size)):
            written = (*v, y)
            if written not in ends:
                ends[written] = [
                    (s, mass)
                    for s, mass in target.after(written, depth - len(v))
                    if s in rows
                ]
            if not ends[written]:
                continue  # the target never writes this
            at += [number, *(rows[s] for s, _ in ends[written])]
            values += [1.0, *(mass for _, mass in ends[written])]
            bounds.append(len(at))
            gains.append(float(len(v)))
            if len(at) > MAX_ENTRIES:
                raise _too_large()
    equations = csr_array((values, at, bounds), shape=(len(gains), len(sums))).T
    solved = linprog(
        -np.array(gains),
        A_eq=equations,
        b_eq=np.array(sums),
        method="highs",
        options={
            "primal_feasibility_tolerance": TOLERANCE,
            "dual_feasibility_tolerance": TOLERANCE,
        },
    )
    if not solved.success:
        raise SpecbookError(f"the linear program was not solved: {solved.message}")
    return TreeOptimum(0.0 - float(solved.fun), len(trees), len(gains))


def _too_large() -> SpecbookError:
    return SpecbookError(f"a linear program of more than {MAX_ENTRIES} coefficients")


def _conditional(given: Any, name: str) -> Conditional:
    # A class is callable, but calling one makes an object and says no law.
    if callable(given) and not isinstance(given, type):
        return given
    row = checks.law(given, name)
    return lambda path: row
