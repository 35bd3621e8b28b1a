"""The walk that the rules for one node share: from the prefix down, a choice a node.

A rule that decides node by node is one function `choose(p, drafts, chance)`. It answers
with the draft that it accepts, and the walk goes on below it; or with a token, and the
walk ends there. Below the last accepted draft the children are drawn given the path
alone, so what was decided above says nothing about them, and a rule that is exact at
one node is exact on a tree (section 0x09A).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from .. import checks
from ..chance import Chance
from ..contract import Law, Selection
from ..errors import ContractError, LawError
from ..proposal import PREFIX_FRONTIER
from ..tree import CandidateTree


class Draft(NamedTuple):
    """One draw below a node: its row, its token, and the law [V] that it came from.

    `recorded`: that law as the source gave it, where `law` is its rounding to float64.
    How drafts were drawn shows in what was recorded: rounded, the laws of a succession
    of draws no longer follow from one another to the last digit.
    """

    row: int
    token: int
    law: np.ndarray
    recorded: np.ndarray


Choose = Callable[[np.ndarray, Sequence[Draft], Chance], Draft | int]


def walk(
    tree: CandidateTree, law: Law, chance: Chance, choose: Choose, *, name: str
) -> Selection:
    """The path that `choose` takes, then its token, or a target draw after a leaf.

    Raises `LawError` for a broken target row and `ContractError`, naming the rule
    `name`, for a candidate that comes without its law.
    """
    rows: list[int] = []
    row = PREFIX_FRONTIER
    while True:
        p, drafts = position(tree, law, row, name=name)
        if not drafts:
            return Selection(tuple(rows), chance.draw(p))
        answer = choose(p, drafts, chance)
        if not isinstance(answer, Draft):
            return Selection(tuple(rows), answer)
        rows.append(answer.row)
        row = answer.row


def target_law(tree: CandidateTree, law: Law, row: int) -> np.ndarray:
    """The target's law [V] at `row`, checked; it must know the tokens below."""
    p = checks.law(law(row), f"the target's law at row {row}")
    for child in tree.children(row):
        if tree.token_ids[child] >= len(p):
            raise LawError(
                f"row {child} has token {tree.token_ids[child]}, the target's law at "
                f"row {row} is [{len(p)}]"
            )
    return p


def position(
    tree: CandidateTree, law: Law, row: int, *, name: str
) -> tuple[np.ndarray, list[Draft]]:
    """The target's law [V] at `row`, and the drafts below it in the order of drawing.

    All rows are of one kind: exact if all of them are, else float64.
    """
    p = target_law(tree, law, row)
    drafts = []
    for child, mark in tree.draws(row):
        if mark.law is None:
            raise ContractError(
                f"{name}: row {child} comes without the law that it was drawn from"
            )
        if len(mark.law) != len(p):
            raise LawError(
                f"row {child} was drawn from a law [{len(mark.law)}], the target's at "
                f"row {row} is [{len(p)}]"
            )
        drafts.append(Draft(child, tree.token_ids[child], mark.law, mark.law))
    if len({draft.row for draft in drafts}) < len(tree.children(row)):
        raise ContractError(f"{name}: a child of row {row} was drawn by no source")
    if any(draft.law.dtype != p.dtype for draft in drafts):
        # Where one side rounds, the other's exactness is of no use.
        p = p.astype(np.float64)
        drafts = [d._replace(law=d.law.astype(np.float64)) for d in drafts]
    return p, drafts
