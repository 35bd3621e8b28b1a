"""Did a merge lose a candidate, or give it to another? (section 0x07D)

A tree can be valid and still not be the tree of its proposals: if rows are merged by
depth and token, a candidate lands under a parent that its source never saw. Every
buffer of such a tree agrees with every other, so `CandidateTree.validate` has nothing
to object. Only the proposals can tell.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from . import checks
from .errors import TreeError
from .proposal import PREFIX_FRONTIER, Proposal
from .tree import CandidateTree

Path = tuple[int, ...]
Claims = dict[Path, list[tuple[str, Any, Any]]]


def check_merge(tree: CandidateTree, proposals: Proposal | Iterable[Proposal]) -> None:
    """Raises `TreeError` unless `tree` is `proposals` merged by full prefix: a row for
    every distinct path and no other, each with its own candidates' source, q and score.

    The order of the rows is free. Section 0x07D.
    """
    if not isinstance(tree, CandidateTree):
        raise TreeError(f"not a CandidateTree: {tree!r}")
    if isinstance(proposals, Proposal):
        proposals = [proposals]
    wanted = _claims(checks.entries(proposals, "proposals", "Proposals", TreeError))
    rows = {path: row for row, path in enumerate(tree.full_prefixes)}
    if lost := sorted(set(wanted) - set(rows)):
        raise TreeError(f"the candidate path {lost[0]} has no row")
    for path, row in rows.items():
        if path not in wanted:
            raise TreeError(f"row {row} stands for {path}, which nobody proposed")
        marks = [(mark.source, mark.q, mark.score) for mark in tree.sources[row]]
        if sorted(map(repr, marks)) != sorted(map(repr, wanted[path])):
            raise TreeError(
                f"row {row} stands for {path} and has the candidates {marks}; proposed "
                f"there were {wanted[path]}"
            )


def _claims(proposals: list[Any]) -> Claims:
    """{full prefix: (source, q, score) of every candidate that ends there}."""
    found: Claims = {}
    for index, proposal in enumerate(proposals):
        if not isinstance(proposal, Proposal):
            raise TreeError(f"proposals[{index}] is not a Proposal: {proposal!r}")
        paths: list[Path] = []
        for node in proposal.nodes:
            above = () if node.parent == PREFIX_FRONTIER else paths[node.parent]
            paths.append((*above, node.token_id))
            claim = (node.source, node.q, node.score)
            found.setdefault(paths[-1], []).append(claim)
    return found
