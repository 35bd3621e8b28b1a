"""Verifiers with a planted fault, each a mistake that was made in real code."""

from __future__ import annotations

from typing import Any

import numpy as np

from specbook.contract import Selection, Verifier, VerifierContract
from specbook.proposal import ProbabilitySemantics, SamplingRelation
from specbook.tree import CandidateTree


def contract(name: str, **changes: Any) -> VerifierContract:
    """A contract that admits everything and claims to be exact."""
    fields: dict[str, Any] = {
        "reads_q": False,
        "exact": True,
        "probability": frozenset(ProbabilitySemantics),
        "sampling": frozenset(SamplingRelation),
        **changes,
    }
    return VerifierContract(name, **fields)


def verifier(select: Any, **changes: Any) -> Verifier:
    """`select` under such a contract."""
    return Verifier(contract(select.__name__, **changes), select)


def fresh_draw(tree: CandidateTree, law: Any, chance: Any) -> Selection:
    """After a mismatch the correction is drawn anew."""
    rows: list[int] = []
    row = -1
    while True:
        child = tree.child_with_token(row, chance.draw(law(row)))
        if child is None:
            return Selection(tuple(rows), chance.draw(law(row)))
        rows.append(child)
        row = child


def draw_a_path(tree: CandidateTree, law: Any, chance: Any) -> Selection:
    """Every leaf path gets target draws of its own; the longest match wins."""
    best: list[int] = []
    token = chance.draw(law(-1))
    for leaf in range(len(tree)):
        if tree.children(leaf):
            continue
        rows: list[int] = []
        row = -1
        for step in tree.path_rows(leaf):
            drawn = chance.draw(law(row))
            if drawn != tree.token_ids[step]:
                break
            rows.append(step)
            row = step
        else:
            drawn = chance.draw(law(row))
        if len(rows) > len(best):
            best, token = rows, drawn
    return Selection(tuple(best), token)


def child_against_p(tree: CandidateTree, law: Any, chance: Any) -> Selection:
    """Each child is accepted with its own p, one after the other."""
    rows: list[int] = []
    row = -1
    while True:
        for child in tree.children(row):
            if chance.flip(law(row)[tree.token_ids[child]]):
                break
        else:
            return Selection(tuple(rows), chance.draw(law(row)))
        rows.append(child)
        row = child


def stops_early(tree: CandidateTree, law: Any, chance: Any) -> Selection:
    """Lossless, but never takes a second candidate: a rule may be lazy and exact."""
    child = tree.child_with_token(-1, token := chance.draw(law(-1)))
    if child is None:
        return Selection((), token)
    return Selection((child,), chance.draw(law(child)))


def argmax_highest(tree: CandidateTree, law: Any, chance: Any) -> Selection:
    """Greedy with ties to the highest id."""
    rows: list[int] = []
    row = -1
    while True:
        p = np.asarray(law(row))
        token = len(p) - 1 - int(np.argmax(p[::-1]))
        child = tree.child_with_token(row, token)
        if child is None:
            return Selection(tuple(rows), token)
        rows.append(child)
        row = child


def first_child_only(tree: CandidateTree, law: Any, chance: Any) -> Selection:
    """Greedy that commits the first child whenever it has one."""
    rows: list[int] = []
    row = -1
    while children := tree.children(row):
        rows.append(children[0])
        row = children[0]
    return Selection(tuple(rows), int(np.argmax(law(row))))


def off_by_one_row(tree: CandidateTree, law: Any, chance: Any) -> Selection:
    """Greedy that scores a candidate with its own row, not its predictor's."""
    rows: list[int] = []
    row = -1
    while True:
        for child in tree.children(row):
            if int(np.argmax(law(child))) == tree.token_ids[child]:
                break
        else:
            return Selection(tuple(rows), int(np.argmax(law(row))))
        rows.append(child)
        row = child


FAULTY = (fresh_draw, draw_a_path, child_against_p)
FAULTY_GREEDY = (argmax_highest, first_child_only, off_by_one_row)
