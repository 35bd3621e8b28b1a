"""Slots counted from rounds: by hand, against the exact law, and as a report."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from specbook.contract import Selection
from specbook.engine import generate
from specbook.errors import ArtifactError, SpecbookError
from specbook.lab import FixedPaths
from specbook.measure.acceptance import (
    MAX_ROWS,
    AcceptanceProfile,
    calibration_shape,
    count,
    measure_acceptance,
)
from specbook.models import TableTarget
from specbook.proposal import (
    ProbabilitySemantics,
    Proposal,
    ProposalNode,
    ProposalStateHandle,
    SamplingRelation,
    Topology,
)
from specbook.topologies.acceptance import selected_from_conditional
from specbook.tree import CandidateTree

MACHINE = {"line": "a machine"}
LAW = [Fraction(1, 2), Fraction(3, 10), Fraction(1, 5)]


class Played:
    """The two parts of a round that are read."""

    def __init__(self, tree: CandidateTree, rows: tuple[int, ...]) -> None:
        self.tree, self.selection = tree, Selection(rows, 0)


def drawn_tree(nodes: list[tuple[int, int, int]]) -> CandidateTree:
    """(token, parent, depth) nodes in the order in which they were drawn."""
    proposal = Proposal(
        tuple(
            ProposalNode(token, parent, depth, source="s")
            for token, parent, depth in nodes
        ),
        ProbabilitySemantics.ABSENT,
        SamplingRelation.BEAM,
        Topology.TREE,
        ProposalStateHandle("s", "request-0", 0),
        "",
    )
    return CandidateTree.from_proposals(proposal, 3)


def counted(played: list[Any], depths: int, slots: int) -> tuple[Any, Any]:
    tried, selected = count(played, depths=depths, slots=slots)
    return tried.tolist(), selected.tolist()


def test_counts_by_hand() -> None:
    """Children 5 and 7 of the frontier, 6 and 8 below 7."""
    tree = drawn_tree([(5, -1, 1), (7, -1, 1), (6, 1, 2), (8, 1, 2)])
    eight = tree.child_with_token(1, 8)
    assert eight is not None
    rounds = [
        Played(tree, ()),  # both refused
        Played(tree, (0,)),  # the first slot; a leaf
        Played(tree, (1, eight)),  # twice the second slot
        Played(tree, (1,)),  # nothing below
    ]
    tried, selected = counted(rounds, 3, 3)
    assert tried == [[4, 3, 0], [2, 2, 0], [0, 0, 0]]
    assert selected == [[1, 2, 0], [0, 1, 0], [0, 0, 0]]
    assert counted(rounds, 1, 1) == ([[4]], [[1]])


def test_what_is_no_round_is_named() -> None:
    for rounds, told in ((3, "rounds must be"), ([Played(drawn_tree([]), ()), 3], "1")):
        with pytest.raises(SpecbookError, match=told):
            count(rounds, depths=1, slots=1)  # type: ignore[arg-type]
    for options in ({"depths": 10**9, "slots": 1}, {"depths": 1, "slots": 0}):
        with pytest.raises(SpecbookError, match="depths|slots"):
            count([], **options)


def test_a_token_drawn_twice_takes_two_slots() -> None:
    tree = drawn_tree([(5, -1, 1), (5, -1, 1), (7, -1, 1)])
    assert counted([Played(tree, (1,))], 1, 3) == ([[1, 1, 1]], [[0, 0, 1]])


def test_rates_are_those_of_the_law() -> None:
    """Membership with two fixed candidates: slot 1 is selected with p(1), slot 2 with
    p(2) of what is left. Some 2,700 rounds, within 6 standard errors."""
    target = TableTarget(lambda prefix: LAW, vocab_size=3)
    made = generate(
        target,
        [0],
        FixedPaths([1], [2]),
        "membership",
        max_new_tokens=4000,
        temperature=1,
        seed=4,
    )
    tried, selected = count(made.rounds, depths=1, slots=2)
    h = [float(LAW[1]), float(LAW[2] / (1 - LAW[1]))]
    for rate, trials, found in zip(h, tried[0], selected[0], strict=True):
        error = (rate * (1 - rate) / trials) ** 0.5
        assert abs(found / trials - rate) < 6 * error
    assert selected_from_conditional([0, *h])[2] == pytest.approx(float(LAW[2]))
    assert abs(selected[0, 1] / tried[0, 0] - h[1]) > 6 * error  # trials, not rounds


@pytest.fixture(scope="module")
def profile() -> AcceptanceProfile:
    target = TableTarget(lambda prefix: LAW, vocab_size=3)
    prompts = {"one": [("a", [0]), ("b", [1])], "two": [("c", [2])]}
    return measure_acceptance(
        target,
        FixedPaths([1, 0], [2]),
        "membership",
        prompts,
        depths=4,
        slots=3,
        max_new_tokens=60,
        temperature=1.0,
        about_machine=MACHINE,
    )


def test_a_report_of_all_prompts(profile: AcceptanceProfile) -> None:
    assert profile.workloads() == ["one", "two"]
    assert [prompt.prompt for prompt in profile.prompts] == ["a", "b", "c"]
    whole = profile.observed()
    assert whole.tried.shape == (3, 2, 3)  # the source drafts two deep
    assert profile.observed("two").tried.shape[0] == 1
    _, head, rows = next(iter(profile.tables()))
    assert head[:2] == ["depth", "slot"]
    assert {row[0] for row in rows} == {"1", "2"}
    assert 1 < profile.tokens_per_round < 2
    assert "depth" in profile.figure().alt
    with pytest.raises(SpecbookError, match="three"):
        profile.observed("three")


def test_every_prompt_has_a_seed_of_its_own(profile: AcceptanceProfile) -> None:
    first, second = profile.prompts[:2]
    assert first.selected != second.selected


def test_files(profile: AcceptanceProfile, tmp_path: Path) -> None:
    path = profile.save(tmp_path / "a.json")
    assert AcceptanceProfile.load(path) == profile
    values = json.loads(path.read_text(encoding="utf-8"))
    values["prompts"][0]["selected"][0][0] = 10**6
    path.write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(ArtifactError, match="more selected than tried"):
        AcceptanceProfile.load(path)


def test_what_cannot_be_counted_is_refused() -> None:
    target = TableTarget(lambda prefix: [1, 0], vocab_size=2)
    good: Any = {"w": [("a", [0])]}
    prompts: Any
    for prompts in ({}, {"w": []}, [], None):
        with pytest.raises(SpecbookError, match="asked"):
            measure_acceptance(
                target, FixedPaths([0]), "greedy", prompts, about_machine=MACHINE
            )
    with pytest.raises(SpecbookError, match="no round had a candidate"):
        measure_acceptance(target, FixedPaths(), "greedy", good, about_machine=MACHINE)
    for prompts, told in (
        ({"w": "ab"}, "asked"),
        ({"w": [3]}, r"asked\['w'\]\[0\]"),
        ({"w": [("a", [0]), ("b",)]}, r"asked\['w'\]\[1\]"),
        ({"w": [("a", [0.5])]}, r"ids of asked\['w'\]\[0\]"),
        ({"w": [(1, [0])]}, "name of asked"),
        ({1: [("a", [0])]}, "workload"),
    ):
        with pytest.raises(SpecbookError, match=told):
            measure_acceptance(
                target, FixedPaths([0]), "greedy", prompts, about_machine=MACHINE
            )
    for source in (None, [], [None]):
        with pytest.raises(SpecbookError, match="source is None"):
            measure_acceptance(target, source, "greedy", good, about_machine=MACHINE)
    options: Any
    for options in ({"depths": 0}, {"slots": 0}, {"slots": 10**9}, {"seed": -1}):
        with pytest.raises(SpecbookError, match=next(iter(options))):
            measure_acceptance(
                target,
                FixedPaths([0]),
                "greedy",
                good,
                about_machine=MACHINE,
                **options,
            )


def test_a_source_by_name_and_two_merged_are_counted_too() -> None:
    """What `generate` takes is named afterwards, as it was made."""
    target = TableTarget(lambda prefix: LAW, vocab_size=3)
    prompts = {"w": [("a", [0, 1, 2, 0, 1])]}
    options: Any = {"max_new_tokens": 20, "temperature": 1, "about_machine": MACHINE}
    named = measure_acceptance(
        target, "prompt_lookup", "membership", prompts, **options
    )
    assert "prompt_lookup" in named.settings["source"]
    merged = measure_acceptance(
        target, ["prompt_lookup", FixedPaths([1])], "membership", prompts, **options
    )
    assert merged.settings["source"].startswith(named.settings["source"] + " + ")


def test_one_prompt_has_no_interval(profile: AcceptanceProfile) -> None:
    """Drawn again, a single prompt is always the same: 0.387 to 0.387 would look like
    the surest number of all."""
    alone = replace(profile, prompts=profile.prompts[:1])
    for _, head, rows in alone.tables():
        assert head[-1] == "95 % of p"
        assert {row[-1] for row in rows} == {"one prompt"}
    (_, _, rows), (_, _, by_workload) = profile.tables()
    assert all(" to " in row[-1] for row in rows)
    told = {row[0]: row[-1] for row in by_workload}
    assert " to " in told["one"] and told["two"] == "one prompt"


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (lambda v: v["settings"].pop("temperature"), "settings.temperature"),
        (lambda v: v["settings"].update(temperature=-1), "settings.temperature"),
        (lambda v: v["settings"].pop("source"), "settings.source"),
        (lambda v: v["settings"].update(tokenizer=""), "settings.tokenizer"),
        (lambda v: v["prompts"][1].update(rounds=0), r"prompts\[1\].rounds"),
        (lambda v: v["prompts"][1].update(rounds=1), "than it has rounds"),
        (lambda v: v["prompts"][1].update(tokens=-3), r"prompts\[1\].tokens"),
        (lambda v: v["prompts"][2]["tried"].pop(), r"prompts\[2\].tried"),
        (lambda v: v["prompts"][2]["selected"][0].pop(), r"prompts\[2\].selected"),
        (lambda v: v["prompts"].clear(), "no prompt"),
    ],
)
def test_a_profile_that_no_run_gives_is_refused(
    profile: AcceptanceProfile, tmp_path: Path, edit: Any, told: str
) -> None:
    values = profile.as_dict()
    values = json.loads(json.dumps(values))
    edit(values)
    path = tmp_path / "a.json"
    path.write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(ArtifactError, match=told) as caught:
        AcceptanceProfile.load(path)
    assert "a.json" in str(caught.value)


def test_a_calibration_shape_has_a_size() -> None:
    shape = calibration_shape(6, 4)
    assert len(shape) == 6 * 4 + 5 * (1 + 2 + 3)
    for width, depth in ((MAX_ROWS + 1, 1), (2, 10**5), (10**30, 10**30)):
        with pytest.raises(SpecbookError, match="rows, more than"):
            calibration_shape(width, depth)
    for width, depth, told in ((0, 1, "width"), (1, 0, "depth"), (1, 1.5, "depth")):
        with pytest.raises(SpecbookError, match=told):
            calibration_shape(width, depth)  # type: ignore[arg-type]
