"""Faults that can be put into any target, for as long as a block lasts.

Each takes the place of one function that every forward of the package goes through, so
that the same line plants it in a tiny random model and in a real one:

    with plant.siblings_leak():
        session.verify(tree)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any
from unittest import mock

import numpy as np
import torch

from ..models import lean, shared_trunk, skip_layers, target, trunk
from ..models.selftest import Plan, largest
from ..models.table import TableRows
from ..models.target import LogitRows, ModelSession, visibility
from ..tree import CandidateTree

Planted = AbstractContextManager[Any]

FORWARDS = (target, lean, trunk, shared_trunk, skip_layers)
"""The modules with a forward of their own. They are imported here: one that was first
imported while a fault is planted would keep it."""


def nothing() -> Planted:
    """No fault."""
    return ExitStack()


def _everywhere(name: str, right: Any, wrong: Any) -> Planted:
    """`wrong` in the place of the function `right`, which every forward that uses it
    has taken over under this `name`."""
    stack = ExitStack()
    for module in FORWARDS:
        if getattr(module, name, None) is right:
            stack.enter_context(mock.patch.object(module, name, wrong))
    return stack


def siblings_leak() -> Planted:
    """Candidates are masked as a chain: each row sees all rows before it."""

    def leaky(base: int, pending: int, tree_mask: np.ndarray) -> np.ndarray:
        rows, columns = tree_mask.shape
        triangle = np.tri(columns, dtype=bool)[columns - rows :]
        return visibility(base, pending, triangle)

    return _everywhere("visibility", visibility, leaky)


def mask_of_numbers() -> Planted:
    """A mask of True and False is *added* to the scores, as 1 and 0 (what eager
    attention does with it). The generic forwards alone add a mask."""

    def added(visible: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
        return torch.from_numpy(visible).to(dtype)[None, None]

    return _everywhere("additive", target.additive, added)


def positions_by_row() -> Planted:
    """Candidates stand where their row number says, not where their depth does."""

    def by_row(self: CandidateTree) -> tuple[int, ...]:
        return tuple(self.prefix_len + row for row in range(len(self)))

    return mock.patch.object(CandidateTree, "position_ids", property(by_row))


def row_before() -> Planted:
    """Every row is scored by the output of the row before it."""
    right = LogitRows.logits

    def late(self: LogitRows, row: int) -> np.ndarray:
        return right(self, max(row - 1, -1))

    return mock.patch.object(LogitRows, "logits", late)


def table_row_before() -> Planted:
    """The same for a target that is a table."""
    right = TableRows.law

    def late(self: TableRows, row: int, policy: Any) -> Any:
        return right(self, max(row - 1, -1), policy)

    return mock.patch.object(TableRows, "law", late)


def _kept(rows: Callable[[int, int, Sequence[int]], list[int]]) -> Planted:
    return mock.patch.object(ModelSession, "_kept_rows", staticmethod(rows))


def first_rows_kept() -> Planted:
    """A commit of m rows keeps the first m of the tree, as if it were a chain."""
    return _kept(
        lambda base, length, path: [
            *range(base, length),
            *(length + place for place in range(len(path))),
        ]
    )


def pending_dropped() -> Planted:
    """A commit forgets that the pending token has a row, too."""
    return _kept(lambda base, length, path: [length + row for row in path])


def refused_row_kept() -> Planted:
    """The row behind the accepted ones, a refused candidate's, is kept as the row of
    the correction token that was emitted in its place."""
    right = ModelSession._kept_rows

    def one_more(base: int, length: int, path: Sequence[int]) -> list[int]:
        kept = right(base, length, path)
        return [*kept, length + path[-1] + 1] if path else kept

    return _kept(one_more)


Plain = Callable[[Sequence[int]], np.ndarray]
"""A plain forward: the logits [n, V] of n tokens."""


def row_pairs(
    made: Any, plain: Plain, planted: Planted, plan: Plan | None = None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The logits [V] of every row on the trees and commits of `plan`, with `planted` in
    force, each beside those of a plain forward over prefix and path.

    `made`: a target that gives logits. `plan`: by default the self-test's.
    """
    plan = Plan(made.vocab_size, made.context_limit) if plan is None else plan
    wanted = plan.reference(plain)
    found = []
    with planted:
        session = made.start(plan.prompt)
        for number, (tree, path, token) in enumerate(plan.rounds):
            rows = session.verify(tree)
            for row in range(-1, len(tree)):
                found.append((rows.logits(row), wanted[number, row]))
            session.commit(path, token)
    return found


def gap(made: Any, plain: Plain, planted: Planted, plan: Plan | None = None) -> float:
    """The largest difference of the logits of `row_pairs`."""
    return max(largest(*pair) for pair in row_pairs(made, plain, planted, plan))


def chains_only(made: Any) -> Plan:
    """The self-test's rounds as somebody would write them who tests with chains: in
    each round the longest path of its tree, of which the accepted rows are the first.
    """
    plan = Plan(made.vocab_size, made.context_limit)
    prefix, rounds = len(plan.prompt), []
    for tree, path, token in plan.rounds:
        ids = max(tree.paths(), key=len, default=())
        chain = CandidateTree.from_rows(ids, range(-1, len(ids) - 1), prefix)
        kept = tuple(range(min(len(path), len(ids))))
        rounds.append((chain, kept, token))
        prefix += len(kept) + 1
    plan.rounds = rounds
    return plan


def chain_logits(made: Any) -> Plain:
    """A plain forward of a target that was proved right: the logits [n, V] of a text as
    one chain, in which no row has a sibling. For targets that have no other."""

    def plain(tokens: Sequence[int]) -> np.ndarray:
        first, *others = tokens
        parents = range(-1, len(others) - 1)
        rows = made.start([first]).verify(CandidateTree.from_rows(others, parents, 1))
        return np.stack([rows.logits(row) for row in range(-1, len(others))])

    return plain


def check(made: Any, plain: Plain, planted: Planted) -> float:
    """The self-test of `made` against `plain`, with `planted` in force: the largest
    difference, or `SelfTestError`."""
    plan = Plan(made.vocab_size, made.context_limit)
    wanted = plan.reference(plain)
    with planted:
        return plan.check(made, wanted, made.dtype)
