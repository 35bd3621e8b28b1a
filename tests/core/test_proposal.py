"""The typed result of a draft source (section 0x02)."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from specbook import proposal as proposal_module
from specbook.errors import ProposalError, SpecbookError
from specbook.proposal import (
    ProbabilitySemantics,
    Proposal,
    ProposalNode,
    ProposalStateHandle,
    SamplingRelation,
    Topology,
)

from .helpers import must_fail, named
from .helpers.sources import proposal_of

HANDLE = ProposalStateHandle("owner", "request", 0)


def proposal(*nodes: Any, **changes: Any) -> Proposal:
    fields: dict[str, Any] = {
        "nodes": nodes,
        "probability_semantics": "absent",
        "sampling_relation": "iid",
        "topology": "tree",
        "state_handle": HANDLE,
        "manifest_hash": "m",
        **changes,
    }
    return Proposal(**fields)


def test_the_articles_fields_are_all_there() -> None:
    assert [f.name for f in dataclasses.fields(Proposal)] == [
        "nodes",
        "probability_semantics",
        "sampling_relation",
        "topology",
        "state_handle",
        "manifest_hash",
    ]
    node = ProposalNode(3, q=Fraction(1, 2), score=-7.5, source="s")
    assert (node.q, node.score) == (Fraction(1, 2), -7.5)
    assert {f.name for f in dataclasses.fields(node)} >= {
        "token_id",
        "parent",
        "depth",
        "q",
        "score",
        "source",
        "state_owner",
        "origin_request",
    }


def test_names_become_members_and_everything_is_frozen() -> None:
    made = proposal(ProposalNode(1))
    assert made.probability_semantics is ProbabilitySemantics.ABSENT
    assert made.sampling_relation is SamplingRelation.IID
    assert made.topology is Topology.TREE
    for thing in (made, made.nodes[0], HANDLE):
        field = dataclasses.fields(thing)[0].name
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(thing, field, None)


def test_a_miss_is_a_proposal_without_nodes() -> None:
    for semantics in ProbabilitySemantics:
        for topology in Topology:
            empty = proposal(probability_semantics=semantics, topology=topology)
            assert empty.nodes == () and empty.source_names == ()


def test_source_names_in_order_of_first_appearance() -> None:
    nodes = [ProposalNode(i, source=s) for i, s in enumerate("baab")]
    assert proposal(*nodes).source_names == ("b", "a")


@pytest.mark.parametrize(
    "changes, told",
    [
        ({"token_id": -1}, "token_id"),
        ({"token_id": 1.0}, "token_id"),
        ({"token_id": True}, "token_id"),
        ({"token_id": None}, "token_id"),
        ({"parent": -2}, "parent"),
        ({"parent": 0.0}, "parent"),
        ({"depth": 0}, "depth"),
        ({"depth": False}, "depth"),
        ({"q": -0.1}, "q"),
        ({"q": 1.1}, "q"),
        ({"q": math.nan}, "q"),
        ({"q": "0.5"}, "q"),
        ({"q": True}, "q"),
        ({"score": math.inf}, "score"),
        ({"score": math.nan}, "score"),
        ({"score": "9"}, "score"),
        ({"source": None}, "source"),
        ({"state_owner": 1}, "state_owner"),
        ({"origin_request": b"r"}, "origin_request"),
    ],
    ids=named,
)
def test_a_node_names_its_bad_field(changes: Any, told: str) -> None:
    with pytest.raises(ProposalError, match=told):
        ProposalNode(**{"token_id": 1, **changes})


@pytest.mark.parametrize(
    "changes, told",
    [
        ({"owner": None}, "owner"),
        ({"request": 7}, "request"),
        ({"generation": -1}, "generation"),
        ({"generation": 1.5}, "generation"),
        ({"generation": True}, "generation"),
    ],
    ids=named,
)
def test_a_state_handle_names_its_bad_field(changes: Any, told: str) -> None:
    with pytest.raises(ProposalError, match=told):
        ProposalStateHandle(
            **{"owner": "o", "request": "r", "generation": 0, **changes}
        )


@pytest.mark.parametrize(
    "changes, told",
    [
        ({"nodes": None}, "nodes"),
        ({"nodes": "ab"}, "nodes"),
        ({"nodes": {1}}, "nodes"),
        ({"nodes": [5]}, r"nodes\[0\] is not a ProposalNode"),
        ({"probability_semantics": "q"}, "probability_semantics.*score_only"),
        ({"probability_semantics": None}, "probability_semantics"),
        ({"sampling_relation": "argmax"}, "sampling_relation.*beam"),
        ({"topology": "dag"}, "topology.*metadata_graph"),
        ({"topology": ["tree"]}, "topology"),
        ({"state_handle": None}, "state_handle"),
        ({"state_handle": "owner"}, "state_handle"),
        ({"manifest_hash": None}, "manifest_hash"),
        ({"manifest_hash": b"m"}, "manifest_hash"),
    ],
    ids=named,
)
def test_a_proposal_names_its_bad_field(changes: Any, told: str) -> None:
    with pytest.raises(ProposalError, match=told):
        proposal(**changes)


@pytest.mark.parametrize(
    "nodes, told",
    [
        ([ProposalNode(1, parent=0, depth=2)], "is not before"),
        ([ProposalNode(1, parent=1, depth=2), ProposalNode(2)], "is not before"),
        ([ProposalNode(1, parent=9, depth=2)], "is not before"),
        ([ProposalNode(1, depth=2)], "depth 2 under a parent of depth 0"),
        ([ProposalNode(1), ProposalNode(2, 0, 3)], "depth 3 under a parent of depth 1"),
    ],
    ids=named,
)
def test_parents_come_first_and_depths_follow(nodes: Any, told: str) -> None:
    with pytest.raises(ProposalError, match=told):
        proposal(*nodes)


@pytest.mark.parametrize(
    "semantics, node, told",
    [
        ("normalized_conditional", ProposalNode(1), "no q"),
        ("normalized_conditional", ProposalNode(1, score=0.9), "no q"),
        ("normalized_conditional", ProposalNode(1, q=0), "q = 0"),
        ("score_only", ProposalNode(1), "no score"),
        ("frequency", ProposalNode(1), "no score"),
        ("score_only", ProposalNode(1, q=0.5, score=1), "belongs in score"),
        ("frequency", ProposalNode(1, q=0.5, score=1), "belongs in score"),
        ("absent", ProposalNode(1, q=0.5), "belongs in score"),
    ],
    ids=named,
)
def test_q_and_score_cannot_stand_in_for_each_other(
    semantics: str, node: Any, told: str
) -> None:
    with pytest.raises(ProposalError, match=told):
        proposal(node, probability_semantics=semantics)


def test_q_is_kept_exactly() -> None:
    third = Fraction(1, 3)
    made = proposal(
        ProposalNode(1, q=third), probability_semantics="normalized_conditional"
    )
    assert made.nodes[0].q == third and type(made.nodes[0].q) is Fraction


def test_shapes_are_checked() -> None:
    chain = proposal_of([[1, 2, 3]], topology="sequence")
    assert [node.parent for node in chain.nodes] == [-1, 0, 1]
    proposal_of([[1], [2]], topology="set")
    for paths, topology, told in (
        ([[1], [2]], "sequence", "in a sequence"),
        ([[1, 2]], "set", "in a set"),
    ):
        with pytest.raises(ProposalError, match=told):
            proposal_of(paths, topology=topology)


def test_every_error_is_a_value_error() -> None:
    assert issubclass(ProposalError, SpecbookError) and issubclass(
        SpecbookError, ValueError
    )


def test_a_huge_proposal_is_checked_in_one_pass() -> None:
    chain = [ProposalNode(i % 7, i - 1, i + 1) for i in range(100_000)]
    assert len(proposal(*chain, topology="sequence").nodes) == 100_000


# ------------------------------------------------------------------------ in columns

COLUMNS = ([5, 6, 7, 8], [-1, 0, -1, 1], [1, 2, 1, 3], [9, 4, 4, 1])


def told(make: Any) -> Any:
    """What a call makes, or how it refuses."""
    try:
        return make()
    except ProposalError as problem:
        return str(problem)


def both_ways(columns: Any, **fields: Any) -> tuple[Any, Any]:
    """The same proposal from columns and node by node, or the two refusals."""
    shared = {"source": "s", "state_owner": "o", "origin_request": "r"}
    header: dict[str, Any] = {
        "probability_semantics": "frequency",
        "sampling_relation": "deterministic_lookup",
        "topology": "tree",
        "state_handle": HANDLE,
        "manifest_hash": "m",
        **fields,
    }

    def node_by_node() -> Any:
        rows = zip(*columns, strict=True)
        nodes = [ProposalNode(t, p, d, score=s, **shared) for t, p, d, s in rows]
        return Proposal(nodes=tuple(nodes), **header)

    made = told(lambda: Proposal.from_columns(*columns, **shared, **header))
    return made, told(node_by_node)


def check_columns(columns: Any, **fields: Any) -> Any:
    made, slowly = both_ways(columns, **fields)
    assert type(made) is type(slowly) and made == slowly
    if isinstance(made, Proposal):
        assert [vars(node) for node in made.nodes] == [vars(n) for n in slowly.nodes]
        assert type(made.nodes) is tuple
    return made


def test_columns_make_the_same_proposal() -> None:
    assert len(check_columns(COLUMNS).nodes) == 4
    assert check_columns([[], [], [], []]).nodes == ()
    for semantics in ProbabilitySemantics:
        for topology in Topology:
            check_columns(COLUMNS, probability_semantics=semantics, topology=topology)
            check_columns([[1], [-1], [1], [1]], topology=topology)
    with pytest.raises(dataclasses.FrozenInstanceError):
        check_columns(COLUMNS).nodes[0].score = 1


@pytest.mark.parametrize("column", range(4))
@pytest.mark.parametrize("row", range(4))
@pytest.mark.parametrize(
    "value", [-2, -1, 0, 1, 2, 3, 4, True, None, "1", 1.0, math.nan, Fraction(1, 2)]
)
def test_columns_are_refused_as_their_nodes_are(
    column: int, row: int, value: Any
) -> None:
    columns = [list(values) for values in COLUMNS]
    columns[column][row] = value
    check_columns(columns)


@pytest.mark.parametrize(
    ("column", "row", "value"),
    [(0, 1, -1), (1, 0, -2), (1, 2, 3), (2, 3, 2), (2, 0, 2), (3, 0, None)],
)
def test_columns_that_are_taken_unseen_are_found(
    monkeypatch: pytest.MonkeyPatch, column: int, row: int, value: Any
) -> None:
    columns = [list(values) for values in COLUMNS]
    columns[column][row] = value
    check_columns(columns)
    monkeypatch.setattr(
        proposal_module, "_rows", lambda *columns: zip(*columns, strict=True)
    )
    must_fail(check_columns, columns)


def test_columns_need_not_be_lists() -> None:
    made = check_columns(COLUMNS)
    assert check_columns([tuple(values) for values in COLUMNS]) == made
    assert both_ways([np.array(values) for values in COLUMNS])[0] == made


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([[1], [-1], [1], []], r"columns of \[1, 1, 1, 0\] entries"),
        (["1", [-1], [1], [1]], "token_ids must be a sequence of numbers"),
        ([[1], [-1], [1], {1: 2}], "scores must be a sequence of numbers"),
    ],
    ids=named,
)
def test_what_are_no_columns_is_refused(columns: Any, message: str) -> None:
    with pytest.raises(ProposalError, match=message):
        Proposal.from_columns(
            *columns,
            probability_semantics="frequency",
            sampling_relation="deterministic_lookup",
            topology="tree",
            state_handle=HANDLE,
            manifest_hash="m",
        )


@pytest.mark.parametrize("name", ["source", "state_owner", "origin_request"])
def test_what_columns_share_is_checked(name: str) -> None:
    with pytest.raises(ProposalError, match=name):
        Proposal.from_columns(
            *COLUMNS,
            **{name: 3},  # type: ignore[arg-type]
            probability_semantics="frequency",
            sampling_relation="deterministic_lookup",
            topology="tree",
            state_handle=HANDLE,
            manifest_hash="m",
        )
