"""Faults of a tree's buffers: merging, parents, predictor rows (section 0x07)."""

from __future__ import annotations

from contextlib import ExitStack
from fractions import Fraction
from typing import Any
from unittest import mock

from ..chance import Chance
from ..chance import law as enumerate_law
from ..controls import exact
from ..drafts import samplers
from ..drafts.samplers import Draw
from ..lab import distance
from ..merging import check_merge
from ..oracles.tree_round import continued
from ..proposal import (
    PREFIX_FRONTIER,
    ProbabilitySemantics,
    Proposal,
    ProposalNode,
    ProposalStateHandle,
    SamplingRelation,
    Topology,
)
from ..tree import CandidateTree
from ..verifiers import get as rule_named
from . import contracts
from . import exact as small
from .fault import VARIATION, Fault
from .plant import Planted, positions_by_row, table_row_before

PREFIX = 3

# ------------------------------------------------------------------ predictor rows


def _tree() -> CandidateTree:
    return CandidateTree.from_paths(small.PATHS, PREFIX)


def _row_before() -> Planted:
    """The buffer of predictor rows that holds for a chain."""
    late = property(lambda self: tuple(range(-1, len(self) - 1)))
    return mock.patch.object(CandidateTree, "predictor_rows", late)


def _predictors(planted: bool) -> None:
    with _row_before() if planted else ExitStack():
        _tree().validate()


def _predictors_harm(planted: bool) -> Fraction:
    world = table_row_before() if planted else None
    return small.variation(small.output_law(small.paths(), "membership", world))


def _positions(planted: bool) -> None:
    with positions_by_row() if planted else ExitStack():
        _tree().validate()


# ------------------------------------------------------------------------- parents


def _parents(planted: bool) -> CandidateTree:
    return CandidateTree.from_rows([4, 5, 6], [-1, 2, 1] if planted else [-1, 0, 1], 2)


def _depths(planted: bool) -> CandidateTree:
    depths = [1, 1, 2] if planted else [1, 2, 2]
    return CandidateTree.from_rows([4, 5, 6], [-1, 0, 0], 2, depths=depths)


# ------------------------------------------------------------------------- merging

_P = {(): exact([1, 3]), (0,): exact([1, 3]), (1,): exact([2, 1])}
_Q = {(): exact([1, 1]), (0,): exact([3, 1]), (1,): exact([1, 2])}
"""Target and draft laws after each path of a binary tree."""


def _two_chains(chance: Chance) -> Proposal:
    """Two drafts of two tokens each, drawn independently of each other."""
    nodes: list[ProposalNode] = []
    for _ in range(2):
        path: tuple[int, ...] = ()
        for depth in (1, 2):
            q = _Q[path]
            token = chance.draw(q)
            parent = PREFIX_FRONTIER if depth == 1 else len(nodes) - 1
            nodes.append(samplers.node(Draw(token, q), parent, depth, "draft"))
            path = (*path, token)
    return Proposal(
        tuple(nodes),
        ProbabilitySemantics.NORMALIZED_CONDITIONAL,
        SamplingRelation.INDEPENDENT,
        Topology.TREE,
        ProposalStateHandle("draft", "request-0", 0),
        "",
    )


def _by_depth_and_token(proposal: Proposal) -> CandidateTree:
    """The tree in which a candidate's row is found by its depth and token alone."""
    first: dict[tuple[int, int], int] = {}
    moved: list[ProposalNode] = []
    for index, node in enumerate(proposal.nodes):
        same = first.setdefault((node.depth, node.token_id), index)
        parent = node.parent if same == index else moved[same].parent
        if parent != PREFIX_FRONTIER:
            above = proposal.nodes[parent]
            parent = first[above.depth, above.token_id]
        moved.append(
            ProposalNode(
                node.token_id,
                parent,
                node.depth,
                node.q,
                source=node.source,
                law=node.law,
            )
        )
    merged = Proposal(
        tuple(moved),
        proposal.probability_semantics,
        proposal.sampling_relation,
        proposal.topology,
        proposal.state_handle,
        proposal.manifest_hash,
    )
    return CandidateTree.from_proposals(merged, 0)


class _Scripted:
    """A chance that draws these tokens, one after the other."""

    def __init__(self, *tokens: int) -> None:
        self._tokens = list(tokens)

    def flip(self, probability: Any) -> bool:
        return bool(self._tokens.pop(0))

    def draw(self, weights: Any) -> int:
        return self._tokens.pop(0)


def _merge(proposal: Proposal, planted: bool) -> CandidateTree:
    if planted:
        return _by_depth_and_token(proposal)
    return CandidateTree.from_proposals(proposal, 0)


def _merging(planted: bool) -> None:
    proposal = _two_chains(_Scripted(0, 1, 1, 1))
    tree = _merge(proposal, planted)
    tree.validate()  # which has nothing to object
    check_merge(tree, proposal)


def _merging_harm(planted: bool) -> Fraction:
    """Of two tokens, decoded by the residual rule."""
    select = rule_named("specinfer").select

    def program(chance: Chance) -> tuple[tuple[int, ...], int]:
        tree = _merge(_two_chains(chance), planted)
        paths = {PREFIX_FRONTIER: (), **dict(enumerate(tree.full_prefixes))}
        # What comes behind two tokens does not count: any law will do.
        found = select(tree, lambda row: _P.get(paths[row], _P[()]), chance)
        return tuple(tree.token_ids[row] for row in found.rows), found.token

    blocks: Any = enumerate_law(program)
    plain: Any = enumerate_law(lambda c: _plain_pair(c))
    made: Any = continued(blocks, lambda path: _P.get(path, _P[()]), 2)
    return distance(made, plain)


# ---------------------------------------------------------------- the smallest trees


def _single_candidates() -> Proposal:
    """Three candidates for one position, with nothing behind them."""
    return contracts.proposal(
        SamplingRelation.DETERMINISTIC_LOOKUP,
        ProbabilitySemantics.SCORE_ONLY,
        ("draft",) * 3,
    )


def _layered(planted: bool) -> CandidateTree:
    """`planted`: the first layer is read off the parents of the second one."""
    tree = CandidateTree.from_proposals(_single_candidates(), PREFIX)
    if not planted:
        return tree
    kept = {row for row, parent in enumerate(tree.parents) if parent >= 0}
    kept |= {parent for parent in tree.parents if parent >= 0}
    paths = [tree.full_prefixes[row] for row in sorted(kept)]
    return CandidateTree.from_paths(paths, PREFIX)


def _small_tree(planted: bool) -> None:
    tree = _layered(planted)
    tree.validate()  # an empty tree is a tree
    check_merge(tree, _single_candidates())


def _small_tree_harm(planted: bool) -> int:
    return len(_single_candidates().nodes) - len(_layered(planted))


def _plain_pair(chance: Chance) -> tuple[int, int]:
    one = chance.draw(_P[()])
    return one, chance.draw(_P[one,])


FAULTS: tuple[Fault, ...] = (
    Fault(
        "merged-by-depth-and-token",
        "tree",
        "0x07D",
        "rows are merged by depth and token, not by the whole path",
        "a candidate stands under a parent that its drafter never saw",
        "fewer rows, all of them valid: every buffer agrees with every other",
        "specbook.merging.check_merge",
        _merging,
        "has no row",
        _merging_harm,
        VARIATION,
        blind="two proposals that were mixed up before they were merged",
    ),
    Fault(
        "first-layer-of-the-second",
        "tree",
        "0x07E",
        "the rows of the first layer are found as the parents of the second",
        "exact text; candidates without a child are lost, small trees as a whole",
        "what is left is a valid tree, if need be an empty one",
        "specbook.merging.check_merge",
        _small_tree,
        "the candidate path (0,) has no row",
        _small_tree_harm,
        "candidates lost",
        ("NVIDIA/TensorRT-LLM #10323",),
    ),
    Fault(
        "parent-behind-its-child",
        "tree",
        "0x0F",
        "a parent is a later row",
        "a walk to the root never ends, or reads another row's memory",
        "a list of integers of the right length",
        "specbook.tree.CandidateTree",
        _parents,
        "row 1 has parent 2",
        seen=("sgl-project/sglang #36201",),
    ),
    Fault(
        "depth-of-another-row",
        "tree",
        "0x0F",
        "depths are filled in apart from the parents, and one is wrong",
        "one candidate stands at its parent's own position",
        "as many depths as rows, each of them a depth that occurs",
        "specbook.tree.CandidateTree",
        _depths,
        "row 1 has depth 1, expected 2",
        seen=("sgl-project/sglang #36201",),
    ),
    Fault(
        "predictor-one-row-off",
        "tree",
        "0x07E",
        "a row is scored by the output of the row before it",
        "text that reads well and follows another law",
        "one predictor a row, and for a chain the numbers are right",
        "specbook.tree.CandidateTree.validate",
        _predictors,
        "row 1 has predictor row 0",
        _predictors_harm,
        VARIATION,
    ),
    Fault(
        "position-buffer-by-row",
        "tree",
        "0x07E",
        "position ids count rows",
        "right up to the first sibling, and unlike plain decoding from there",
        "one position a row, ascending; a chain's are right",
        "specbook.tree.CandidateTree.validate",
        _positions,
        "row 1 has position 4",
        seen=("lablup/mlxcel #1214",),
    ),
)
