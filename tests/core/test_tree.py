"""Candidate trees against a brute force (sections 0x07D, 0x0C, 0x0F; H09 to H12)."""

from __future__ import annotations

import dataclasses
import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbook.errors import TreeError
from specbook.proposal import ProposalNode
from specbook.tree import ORDERS, PREFIX_FRONTIER, CandidateTree, SourceMark

from .helpers import must_fail, named
from .helpers.sources import proposal_of

A, B, C, D, E, F, X = range(7)
NAMES = "ABCDEFX"

GRAPH = [[A, B, C], [A, B, D], [A, B, E], [A, F], [X, B]]
"""Section 0x0C's drawing: five leaf paths, eight rows."""

FIXTURE = [[A, B, C], [A, B, D], [A, F], [X, B]]
"""The fixture that 0x0CA counts: four paths, seven rows. Any four of the five leaf
paths that keep X B give seven; here E is left out. `specbook.fixture` leaves out A F,
for the rows that the article says share a predictor."""


def letters(tree: CandidateTree) -> str:
    return "".join(NAMES[token] for token in tree.token_ids)


# ------------------------------------------------------------ the brute force


def brute(paths: Any, prefix_len: int) -> dict[tuple[int, ...], dict[str, Any]]:
    """What each row must be, told by its full prefix alone and without any row."""
    prefixes = {tuple(p[: i + 1]) for p in paths for i in range(len(p))}
    return {
        key: {
            "depth": len(key),
            "position": prefix_len + len(key) - 1,
            "parent": key[:-1],
            "sees": {key[: i + 1] for i in range(len(key))},
        }
        for key in prefixes
    }


def described(tree: CandidateTree, mask: Any = None) -> dict[tuple[int, ...], Any]:
    """The same of a built tree, read from its buffers."""
    mask = tree.ancestor_mask if mask is None else mask
    found: dict[tuple[int, ...], Any] = {}
    for row, key in enumerate(tree.full_prefixes):
        parent = tree.predictor_rows[row]
        assert key not in found, "two rows own one full prefix"
        assert mask[row, : tree.prefix_len].all()
        seen = np.flatnonzero(mask[row, tree.prefix_len :])
        found[key] = {
            "depth": tree.depths[row],
            "position": tree.position_ids[row],
            "parent": () if parent == PREFIX_FRONTIER else tree.full_prefixes[parent],
            "sees": {tree.full_prefixes[v] for v in seen},
        }
    return found


def check_tree(paths: Any, tree: CandidateTree, mask: Any = None) -> None:
    assert described(tree, mask) == brute(paths, tree.prefix_len)


PATHS = st.lists(st.lists(st.integers(0, 3), max_size=4), max_size=8)


@settings(max_examples=200, deadline=None)
@given(PATHS, st.integers(0, 5), st.sampled_from(ORDERS))
def test_merging_is_the_set_of_full_prefixes(paths: Any, n: int, order: str) -> None:
    tree = CandidateTree.from_paths(paths, n, order)
    check_tree(paths, tree)
    tree.validate(vocab_size=4)
    assert len(tree) == tree.node_count == len(brute(paths, n))
    assert tree.max_depth == max(map(len, paths), default=0)
    assert tree.ancestor_mask.shape == (len(tree), n + len(tree))
    assert tree.tree_mask.dtype == tree.ancestor_mask.dtype == bool
    leaves = {tuple(p) for p in paths if p} - {
        key[:i] for key in brute(paths, n) for i in range(1, len(key))
    }
    assert sorted(tree.paths()) == sorted(leaves)
    rebuilt = CandidateTree.from_rows(
        tree.token_ids, tree.parents, n, depths=tree.depths
    )
    assert rebuilt == CandidateTree.from_rows(tree.token_ids, tree.parents, n) == tree


@settings(max_examples=100, deadline=None)
@given(PATHS)
def test_the_two_orders_are_the_same_tree(paths: Any) -> None:
    breadth, depth = (CandidateTree.from_paths(paths, 3, order) for order in ORDERS)
    assert described(breadth) == described(depth)
    assert list(breadth.depths) == sorted(breadth.depths)
    # Depth first: a row's subtree is one run of rows.
    for row in range(len(depth)):
        below = np.flatnonzero(depth.tree_mask[:, row])
        assert below.tolist() == list(range(row, row + len(below)))
    # Children keep their order of first appearance, in both.
    first = list(dict.fromkeys(tuple(p[: i + 1]) for p in paths for i in range(len(p))))
    for tree in (breadth, depth):
        for row in range(-1, len(tree)):
            keys = [tree.full_prefixes[c] for c in tree.children(row)]
            assert keys == sorted(keys, key=first.index)


def by_depth_and_token(paths: Any, prefix_len: int) -> CandidateTree:
    """The planted fault: merges by (depth, token), so that X B joins A B."""
    rows: dict[tuple[int, int], int] = {}
    tokens: list[int] = []
    parents: list[int] = []
    for path in paths:
        above = -1
        for depth, token in enumerate(path):
            if (depth, token) not in rows:
                rows[depth, token] = len(tokens)
                tokens.append(token)
                parents.append(above)
            above = rows[depth, token]
    return CandidateTree.from_rows(tokens, parents, prefix_len)


def test_a_dag_merge_fails_the_same_check() -> None:
    check_tree(GRAPH, CandidateTree.from_paths(GRAPH, 2))
    must_fail(check_tree, GRAPH, by_depth_and_token(GRAPH, 2))


def test_a_lower_triangular_mask_fails_the_same_check() -> None:
    for order in ORDERS:
        tree = CandidateTree.from_paths(FIXTURE, 2, order)
        check_tree(FIXTURE, tree)
        must_fail(check_tree, FIXTURE, tree, np.tri(7, 9, 2, dtype=bool))


def test_positions_by_row_number_fail_the_same_check() -> None:
    tree = CandidateTree.from_paths(FIXTURE, 2)
    check_tree(FIXTURE, tree)
    object.__setattr__(tree, "position_ids", tuple(range(2, 9)))
    must_fail(check_tree, FIXTURE, tree)


# -------------------------------------------------------- the article's example


def test_the_graph_of_0x0c_in_its_printed_order() -> None:
    tree = CandidateTree.from_paths(GRAPH, 4, order="depth")
    assert letters(tree) == "ABCDEFXB"
    assert tree.parents == (-1, 0, 1, 1, 1, 0, -1, 6)
    assert tree.depths == (1, 2, 3, 3, 3, 2, 1, 2)
    assert tree.position_ids == (4, 5, 6, 6, 6, 5, 4, 5)
    # Rows 1 and 7 hold one token, but differ in parent row and mask.
    assert tree.token_ids[1] == tree.token_ids[7] == B
    assert tree.parents[1] != tree.parents[7]
    assert tree.tree_mask[1].tolist() != tree.tree_mask[7].tolist()
    # Rows 3 and 4 share predictor row 1 and nothing else.
    assert tree.predictor_rows[3] == tree.predictor_rows[4] == 1
    assert tree.token_ids[3] != tree.token_ids[4]
    assert not tree.tree_mask[3, 4] and not tree.tree_mask[4, 3]


def test_the_graph_of_0x0c_level_by_level() -> None:
    tree = CandidateTree.from_paths(GRAPH, 4)
    assert letters(tree) == "AXBFBCDE"
    assert tree.parents == (-1, -1, 0, 0, 1, 2, 2, 2)
    assert tree.position_ids == (4, 4, 5, 5, 5, 6, 6, 6)


def test_the_fixture_has_four_paths_and_seven_rows() -> None:
    for order in ORDERS:
        tree = CandidateTree.from_paths(FIXTURE, 4, order)
        assert len(tree) == 7 and len(tree.paths()) == 4
        assert letters(tree).count("B") == 2
    assert letters(CandidateTree.from_paths(FIXTURE, 4, "depth")) == "ABCDFXB"
    assert len(CandidateTree.from_paths(GRAPH, 4)) == 8


def test_commit_keeps_a_b_d_and_nothing_else() -> None:
    """Section 0x0CB; its discard list omits X and that row's B."""
    tree = CandidateTree.from_paths(GRAPH, 4, order="depth")
    kept = tree.check_path(tree.path_rows(3))
    assert [NAMES[tree.token_ids[r]] for r in kept] == ["A", "B", "D"]
    discarded = set(range(8)) - set(kept)
    assert "".join(NAMES[tree.token_ids[r]] for r in sorted(discarded)) == "CEFXB"


def test_h09_positions_follow_depth() -> None:
    tree = CandidateTree.from_rows([A, B, C, D], [-1, 0, 0, 1], 10)
    assert tree.position_ids == (10, 11, 11, 12)
    assert tree.predictor_rows == (PREFIX_FRONTIER, 0, 0, 1)


def test_h10_siblings_are_invisible() -> None:
    tree = CandidateTree.from_rows([A, B, C, D], [-1, 0, 0, 1], 3)
    drawn = ["".join("01"[int(x)] for x in row) for row in tree.tree_mask]
    assert drawn == ["1000", "1100", "1010", "1101"]
    assert tree.ancestor_mask[:, :3].all() and tree.ancestor_mask.shape == (4, 7)


@pytest.mark.parametrize(
    "paths, rows, leaves",
    [([], 0, 0), ([[]], 0, 0), ([[1]], 1, 1), ([[1], [2], [3], [4]], 4, 4)],
    ids=named,
)
def test_h12_the_smallest_trees(paths: Any, rows: int, leaves: int) -> None:
    for order in ORDERS:
        tree = CandidateTree.from_paths(paths, 0, order)
        tree.validate()
        assert len(tree) == rows and bool(tree) is (rows > 0)
        assert tree.max_depth == min(rows, 1)
        assert len(tree.children(PREFIX_FRONTIER)) == len(tree.paths()) == leaves
        assert tree.tree_mask.tolist() == np.eye(rows, dtype=bool).tolist()
        assert tree.path_rows(PREFIX_FRONTIER) == tree.check_path([]) == ()


# ---------------------------------------------------------------- walking a tree


@settings(max_examples=50, deadline=None)
@given(PATHS, st.sampled_from(ORDERS))
def test_children_paths_and_tokens_agree(paths: Any, order: str) -> None:
    tree = CandidateTree.from_paths(paths, 1, order)
    seen = []
    for row in range(-1, len(tree)):
        for child in tree.children(row):
            assert tree.parents[child] == row
            assert tree.path_rows(child) == (*tree.path_rows(row), child)
            assert tree.check_path(tree.path_rows(child)) == tree.path_rows(child)
            assert tree.child_with_token(row, tree.token_ids[child]) == child
            seen.append(child)
        assert tree.child_with_token(row, 99) is None
    assert sorted(seen) == list(range(len(tree)))


@pytest.mark.parametrize("row", [8, 99, -2, 1.0, None, True, "1", 10**30])
def test_a_row_that_does_not_exist_is_refused(row: Any) -> None:
    tree = CandidateTree.from_paths(GRAPH, 0)
    for ask in (tree.children, tree.path_rows, lambda r: tree.child_with_token(r, A)):
        with pytest.raises(TreeError, match="row"):
            ask(row)
    with pytest.raises(TreeError):
        tree.check_path([row])


@pytest.mark.parametrize(
    "rows",
    [
        [1],
        [0, 0],
        [0, 3],
        [0, 1, 2, 3],
        [1, 0],
        [0, 6],
        [0, 1, 7],
        [6, 1],
        [-1],
        [-1, 0],
        [8],
        [0, 1.0],
        [0, True],
        None,
        7,
        "01",
        {0, 1},
        {0: 1},
    ],
    ids=named,
)
def test_what_is_no_root_to_node_path_is_refused(rows: Any) -> None:
    """Gaps, siblings, repeats, the wrong B, stray rows, and things of another type."""
    tree = CandidateTree.from_paths(GRAPH, 4, order="depth")
    with pytest.raises(TreeError):
        tree.check_path(rows)


def test_siblings_are_no_path() -> None:
    tree = CandidateTree.from_paths(GRAPH, 4, order="depth")
    for parent in range(-1, len(tree)):
        above = tree.path_rows(parent)
        for pair in itertools.permutations(tree.children(parent), 2):
            tree.check_path((*above, pair[0]))
            with pytest.raises(TreeError):
                tree.check_path((*above, *pair))


def test_every_path_that_is_one_is_accepted_as_plain_ints() -> None:
    tree = CandidateTree.from_paths(GRAPH, 4, order="depth")
    good = {tree.path_rows(row) for row in range(-1, 8)}
    from itertools import permutations

    for size in range(4):
        for rows in permutations(range(8), size):
            try:
                assert tree.check_path(rows) == rows and rows in good
            except TreeError:
                assert rows not in good
    path = tree.check_path(np.array([0, 1]))
    assert path == (0, 1) and {type(row) for row in path} == {int}


# --------------------------------------------------------------------- sources


@settings(max_examples=100, deadline=None)
@given(st.lists(PATHS, max_size=3), st.sampled_from(ORDERS))
def test_from_proposals_keeps_every_mark(many: Any, order: str) -> None:
    made = []
    for index, paths in enumerate(many):
        base = proposal_of(paths, semantics="normalized_conditional", owner=f"s{index}")
        nodes = tuple(
            dataclasses.replace(
                node,
                q=Fraction(1, 2 + i),
                score=float(i),
                state_owner=f"owner {index}",
                origin_request=f"request {index}",
            )
            for i, node in enumerate(base.nodes)
        )
        made.append(dataclasses.replace(base, nodes=nodes))
    tree = CandidateTree.from_proposals(made, 2, order)
    check_tree([p for paths in many for p in paths], tree)
    tree.validate()
    expected: dict[tuple[int, ...], list[SourceMark]] = {}
    for proposal in made:
        keys: list[tuple[int, ...]] = []
        for node in proposal.nodes:
            above = () if node.parent == -1 else keys[node.parent]
            keys.append((*above, node.token_id))
            mark = SourceMark(
                node.source, node.q, node.score, node.state_owner, node.origin_request
            )
            expected.setdefault(keys[-1], []).append(mark)
    assert {
        key: list(marks)
        for key, marks in zip(tree.full_prefixes, tree.sources, strict=True)
    } == expected


def test_a_token_drawn_twice_leaves_two_marks() -> None:
    nodes = (ProposalNode(3, q=0.5, source="s"), ProposalNode(3, q=0.5, source="s"))
    twice = proposal_of([], semantics="normalized_conditional", relation="iid")
    twice = dataclasses.replace(twice, nodes=nodes, topology="set")
    tree = CandidateTree.from_proposals(twice, 0)
    assert tree.token_ids == (3,) and tree.sources[0] == (SourceMark("s", 0.5),) * 2


def test_one_proposal_needs_no_list() -> None:
    one = proposal_of(GRAPH)
    assert CandidateTree.from_proposals(one, 1) == CandidateTree.from_proposals(
        [one], 1
    )


def test_named_paths_leave_one_mark_for_each_source() -> None:
    tree = CandidateTree.from_paths(GRAPH, 0, "depth", sources=list("hhrrx"))
    names = ["".join(mark.source for mark in marks) for marks in tree.sources]
    assert names == ["hr", "hr", "h", "h", "r", "r", "x", "x"]


def test_without_sources_there_are_no_marks() -> None:
    assert CandidateTree.from_paths(GRAPH, 0).sources == ((),) * 8


# ------------------------------------------------------------------- malformed


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "parents, depths",
    [
        ([-1, 2, 1], None),
        ([0], None),
        ([-1, 5], None),
        ([-1, -2], None),
        ([-1, 0], [1, 3]),
        ([-1, 0], [1, 1]),
        ([-1, 0], [0, 1]),
        ([-1, -1], [1, 2]),
        ([-1, 0], [1]),
        ([-1, 0.0], None),
        ([-1, None], None),
        ([-1, True], None),
        ([-1, "0"], None),
        ([-1, 10**30], None),
        ([-1, math.nan], None),
        ([300_000] * 300_000, None),
        ([-1, *range(1, 300_000)], None),
        ([*range(-1, 299_998), 300_000], None),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_h11_malformed_graphs_are_refused_quickly(parents: Any, depths: Any) -> None:
    tokens = tuple(range(len(parents)))
    with pytest.raises(TreeError):
        CandidateTree.from_rows(tokens, parents, 0, depths=depths)
    depths = [1] * len(parents) if depths is None else depths
    with pytest.raises(TreeError):
        CandidateTree(tokens, tuple(parents), tuple(depths), 0)


@pytest.mark.parametrize("parents", [[-1], [-1, 0, 1], [], None, "ab", 7, {-1, 0}])
def test_parents_are_one_a_row(parents: Any) -> None:
    with pytest.raises(TreeError):
        CandidateTree.from_rows([1, 2], parents, 0)


def test_rows_of_one_full_prefix_must_be_merged() -> None:
    with pytest.raises(TreeError, match="row 2 repeats token 5 under parent -1"):
        CandidateTree.from_rows([5, 6, 5], [-1, 0, -1], 0)
    with pytest.raises(TreeError, match="row 2 repeats token 6 under parent 0"):
        CandidateTree.from_rows([5, 6, 6], [-1, 0, 0], 0)
    assert len(CandidateTree.from_rows([5, 5, 5], [-1, 0, 1], 0)) == 3


@pytest.mark.parametrize("token", [-1, 1.0, None, True, "1", [1]])
def test_tokens_are_ids(token: Any) -> None:
    with pytest.raises(TreeError, match=r"paths\[1\]\[1\]"):
        CandidateTree.from_paths([[0], [0, token]], 0)
    with pytest.raises(TreeError, match=r"token_ids\[1\]"):
        CandidateTree.from_rows([0, token], [-1, 0], 0)


@pytest.mark.parametrize("prefix_len", [-1, 1.0, None, True, "3"])
def test_a_prefix_has_a_length(prefix_len: Any) -> None:
    with pytest.raises(TreeError, match="prefix_len"):
        CandidateTree.from_paths([[1]], prefix_len)


@pytest.mark.parametrize("order", ["", "width", None, 1, "Breadth"])
def test_there_are_two_orders(order: Any) -> None:
    with pytest.raises(ValueError, match="breadth"):
        CandidateTree.from_paths([[1]], 0, order)


@pytest.mark.parametrize("paths", [None, 3, "ab", [1], ["ab"], [None], {1: [2]}, {1}])
def test_paths_are_sequences_of_sequences(paths: Any) -> None:
    with pytest.raises(TreeError, match="paths"):
        CandidateTree.from_paths(paths, 0)


def test_sources_are_one_a_path_and_marks_are_marks() -> None:
    for sources in (["a"], [], ["a", "b", "c"], 3):
        with pytest.raises(TreeError, match="sources"):
            CandidateTree.from_paths([[1], [2]], 0, sources=sources)  # type: ignore
    for marks in ((), ((),), (("a",),), ([SourceMark("a")],), (None,)):
        if marks in ((), ((),)):
            CandidateTree((1,), (-1,), (1,), 0, marks)
            continue
        with pytest.raises(TreeError, match="sources"):
            CandidateTree((1,), (-1,), (1,), 0, marks)  # type: ignore[arg-type]
    with pytest.raises(TreeError, match="2 source lists for 1 rows"):
        CandidateTree((1,), (-1,), (1,), 0, ((), ()))


@pytest.mark.parametrize("thing", [None, 3, [None], ["ab"], [[1, 2]]])
def test_proposals_are_proposals(thing: Any) -> None:
    with pytest.raises(TreeError, match="proposals"):
        CandidateTree.from_proposals(thing, 0)


def test_arrays_become_plain_ints() -> None:
    tree = CandidateTree.from_rows(
        np.array([4, 5]), np.array([-1, 0]), np.int64(3), depths=np.array([1, 2])
    )
    assert tree == CandidateTree.from_rows([4, 5], [-1, 0], 3)
    for values in (tree.token_ids, tree.parents, tree.depths, tree.position_ids):
        assert {type(v) for v in values} == {int}


@pytest.mark.timeout(60)
def test_a_very_deep_and_a_very_wide_tree_are_built_and_dropped() -> None:
    deep = CandidateTree.from_paths([[0] * 20_000], 0, "depth")
    wide = CandidateTree.from_paths([[i] for i in range(20_000)], 0)
    assert deep.max_depth == len(wide) == 20_000 == len(deep.path_rows(19_999))


# ------------------------------------------------------------------- tampering


def check_is_caught(tamper: Any) -> None:
    """`validate` passes an untouched tree whose buffers were all built, and refuses it
    after `tamper(tree, put)` changed one of them."""
    tree = CandidateTree.from_paths(FIXTURE, 2, "depth", sources=list("hhrx"))
    for name in (
        "position_ids",
        "full_prefixes",
        "tree_mask",
        "ancestor_mask",
        "_children",
    ):
        getattr(tree, name)
    tree.validate(vocab_size=7)
    tamper(tree, lambda name, value: object.__setattr__(tree, name, value))
    try:
        tree.validate(vocab_size=7)
    except ValueError:
        return
    raise AssertionError("a changed buffer passed validation")


def at(values: Any, index: Any, value: Any) -> Any:
    if isinstance(values, tuple):
        return (*values[:index], value, *values[index + 1 :])
    values = values.copy()
    values[index] = value
    return values


TAMPER = {
    "a parent that comes later": lambda t, put: put("parents", at(t.parents, 1, 4)),
    "a row that is its own parent": lambda t, put: put("parents", at(t.parents, 1, 1)),
    "a parent below -1": lambda t, put: put("parents", at(t.parents, 0, -2)),
    "another parent of equal depth": lambda t, put: put("parents", at(t.parents, 3, 4)),
    "a depth": lambda t, put: put("depths", at(t.depths, 2, 2)),
    "a position": lambda t, put: put("position_ids", at(t.position_ids, 6, 8)),
    "positions too few": lambda t, put: put("position_ids", t.position_ids[:-1]),
    "a full prefix": lambda t, put: put(
        "full_prefixes", at(t.full_prefixes, 6, (A, B))
    ),
    "full prefixes too many": lambda t, put: put(
        "full_prefixes", (*t.full_prefixes, ())
    ),
    "a token": lambda t, put: put("token_ids", at(t.token_ids, 4, E)),
    "a token outside the vocabulary": lambda t, put: put(
        "token_ids", at(t.token_ids, 4, 7)
    ),
    "a token that repeats its sibling": lambda t, put: put(
        "token_ids", at(t.token_ids, 3, C)
    ),
    "a negative token": lambda t, put: put("token_ids", at(t.token_ids, 4, -1)),
    "a hidden prefix column": lambda t, put: put(
        "ancestor_mask", at(t.ancestor_mask, (3, 1), False)
    ),
    "a row that does not see itself": lambda t, put: put(
        "ancestor_mask", at(t.ancestor_mask, (3, 5), False)
    ),
    "a hidden ancestor": lambda t, put: put(
        "ancestor_mask", at(t.ancestor_mask, (3, 2), False)
    ),
    "a sibling that leaks": lambda t, put: put(
        "ancestor_mask", at(t.ancestor_mask, (3, 4), True)
    ),
    "the other B's ancestor": lambda t, put: put(
        "ancestor_mask", at(t.ancestor_mask, (6, 2), True)
    ),
    "a descendant that leaks": lambda t, put: put(
        "ancestor_mask", at(t.ancestor_mask, (1, 4), True)
    ),
    "a mask without the prefix": lambda t, put: put("ancestor_mask", t.tree_mask),
    "a mask of numbers": lambda t, put: put(
        "ancestor_mask", t.ancestor_mask.astype(float)
    ),
    "the tree mask alone": lambda t, put: put(
        "tree_mask", at(t.tree_mask, (3, 2), True)
    ),
    "the prefix length": lambda t, put: put("prefix_len", 3),
    "a negative prefix length": lambda t, put: put("prefix_len", -1),
    "a child list that forgets": lambda t, put: put("_children", {-1: (0, 5)}),
    "a child list that repeats": lambda t, put: put(
        "_children", {**t._children, 1: (2, 3, 3)}
    ),
    "child lists that swap two rows": lambda t, put: put(
        "_children", {-1: (0, 5), 0: (1, 4), 1: (2, 6), 5: (3,)}
    ),
    "a source list too few": lambda t, put: put("sources", t.sources[:-1]),
    "a q above one": lambda t, put: put(
        "sources", at(t.sources, 0, (SourceMark("h", 1.5),))
    ),
    "a q below zero": lambda t, put: put(
        "sources", at(t.sources, 0, (SourceMark("h", Fraction(-1, 2)),))
    ),
    "a q that is NaN": lambda t, put: put(
        "sources", at(t.sources, 0, (SourceMark("h", math.nan),))
    ),
}


@pytest.mark.parametrize("name", TAMPER)
def test_validate_catches_each_changed_buffer(name: str) -> None:
    check_is_caught(TAMPER[name])


def test_an_untouched_tree_is_not_caught() -> None:
    must_fail(check_is_caught, lambda tree, put: None)


def test_predictor_rows_cannot_be_set_apart_from_the_parents() -> None:
    tree = CandidateTree.from_paths(FIXTURE, 2)
    with pytest.raises(AttributeError):
        object.__setattr__(tree, "predictor_rows", (0,) * 7)
    assert tree.predictor_rows is tree.parents


def test_predictor_rows_of_another_order_are_caught() -> None:
    class Late(CandidateTree):
        predictor_rows = property(lambda self: tuple(range(-1, len(self) - 1)))

    chain = Late.from_paths([[1, 2, 3]], 2)
    chain.validate()  # in a chain the row before is the parent
    with pytest.raises(TreeError, match="predictor row"):
        Late.from_paths(FIXTURE, 2).validate()


def test_a_tree_is_frozen_and_its_masks_are_read_only() -> None:
    tree = CandidateTree.from_paths(FIXTURE, 2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        tree.parents = ()  # type: ignore[misc]
    for mask in (tree.tree_mask, tree.ancestor_mask):
        with pytest.raises(ValueError, match="read-only"):
            mask[0, 0] = False


def test_validate_bounds_the_vocabulary() -> None:
    tree = CandidateTree.from_paths(FIXTURE, 2)
    tree.validate(vocab_size=7)
    with pytest.raises(TreeError, match="outside 0 .. 5"):
        tree.validate(vocab_size=6)


def test_a_tree_can_be_a_key() -> None:
    one, two = (CandidateTree.from_paths(FIXTURE, 2) for _ in range(2))
    assert one == two and hash(one) == hash(two) and len({one, two}) == 1
    assert one != CandidateTree.from_paths(FIXTURE, 3)


@pytest.mark.parametrize("prefix_len", [10**12, 10**30])
def test_a_mask_that_no_memory_holds_is_refused(prefix_len):
    tree = CandidateTree.from_paths([[1]], prefix_len)
    assert tree.position_ids == (prefix_len,)
    with pytest.raises(TreeError, match="a mask of 1 rows over a prefix of"):
        _ = tree.ancestor_mask
    with pytest.raises(TreeError, match="entries, more than"):
        tree.validate()
