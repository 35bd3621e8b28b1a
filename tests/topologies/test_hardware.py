"""The choice for a machine: against every tree, under uncertainty, and as a file."""

from __future__ import annotations

import json
import random
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbook.errors import ArtifactError, SpecbookError
from specbook.topologies import cartesian, chain
from specbook.topologies.acceptance import selected_from_conditional
from specbook.topologies.artifact import TreeArtifact, topology_hash
from specbook.topologies.hardware import Times, choose, decide, plans
from specbook.topologies.observed import Observed
from specbook.topologies.progress import expected_progress
from specbook.topologies.sequoia import optimize_tree
from specbook.tree import CandidateTree

from . import ordered
from .test_recurrence import COUNTEREXAMPLE, slots

TOY_H = [0, Fraction(82, 100), Fraction(48, 100), Fraction(24, 100)]
TOY_T = dict(
    zip(
        range(2, 9),
        [Fraction(t, 100) for t in (100, 103, 108, 116, 128, 143, 162)],
        strict=True,
    )
)


def fastest(p: Any, times: Any, c: Any, deepest: int) -> Any:
    """By looking at every ordered tree, each priced by the depth that it has."""
    return max(
        ordered.progress(tree, [p] * 9) / (times[n] + ordered.depth(tree) * c)
        for n in times
        for tree in ordered.trees(n)
        if ordered.widest(tree) < len(p) and ordered.depth(tree) <= deepest
    )


def test_the_articles_toy_search() -> None:
    choice = choose(
        selected_from_conditional(TOY_H), TOY_T, Fraction(9, 100), max_depth=4
    )
    assert (choice.best.nodes, choice.best.depth) == (5, 4)
    assert choice.tree.parents == (-1, 0, 1, 2)
    assert choice.score == Fraction(349588976, 10**8)
    assert choice.best.time_per_token == Fraction(152, 100) / choice.score
    assert round(float(choice.best.time_per_token), 4) == 0.4348


@settings(max_examples=30, deadline=None)
@given(
    slots(),
    st.lists(st.integers(1, 9), min_size=1, max_size=6),
    st.fractions(0, 1, max_denominator=8),
    st.integers(0, 5),
)
def test_choice_is_the_fastest_of_all_trees(p: Any, t: Any, c: Any, deep: int) -> None:
    """Any staircase, falling ones too, and slots in any order."""
    times = {n + 1: Fraction(time, 4) for n, time in enumerate(t)}
    choice = choose(p, times, c, max_depth=deep)
    assert choice.speedup == fastest(p, times, c, deep)
    speeds = [one.speedup for one in choice.candidates]
    assert speeds == sorted(speeds, reverse=True)
    for one in choice.candidates:
        assert one.nodes == len(one.tree) + 1 and one.depth == one.tree.max_depth
        assert one.progress == expected_progress(one.tree, p)
        assert one.steps == times[one.nodes] + one.depth * c


def test_the_tree_of_most_tokens_is_not_the_fastest() -> None:
    p = selected_from_conditional(TOY_H)
    choice = choose(p, TOY_T, Fraction(9, 100), max_depth=7)
    most = optimize_tree(8, 7, p)
    assert most.score > choice.score
    steps = TOY_T[8] + most.depth * Fraction(9, 100)
    assert most.score / steps < choice.speedup


def test_steps_of_the_clock_move_the_choice() -> None:
    """A kernel padded to 4 and 8 rows: an interpolated t would choose between them."""
    p = [0, Fraction(7, 10), Fraction(2, 10)]
    padded = {n: Fraction(1) if n <= 4 else Fraction(2) for n in range(1, 9)}
    assert choose(p, padded, 0).best.nodes == 4
    smooth = {n: 1 + Fraction(n, 30) for n in range(1, 9)}
    assert choose(p, smooth, 0).best.nodes == 8


def test_increasing_slots_take_the_recurrence() -> None:
    flat = {4: Fraction(1)}
    assert choose(COUNTEREXAMPLE, flat, 0).score == Fraction(39, 20)
    (plan, *_) = [p for p in plans(COUNTEREXAMPLE, [4]) if p.depth == 1]
    assert plan.method == "recurrence"
    assert plans([0, Fraction(1, 2)], [3])[0].method == "best-first"


def test_plain_decoding_is_a_candidate() -> None:
    dear = {1: Fraction(1), 2: Fraction(3)}
    assert choose([0, Fraction(1, 2)], dear, 0).best.nodes == 1
    assert choose([0, Fraction(1, 2)], dear, 0).speedup == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (([0, 0.5], {}, 0), "verify_time"),
        (([0, 0.5], [1.0], 0), "verify_time"),
        (([0, 0.5], {0: 1.0}, 0), "n of verify_time"),
        (([0, 0.5], {2: 0.0}, 0), r"t\(2\)"),
        (([0, 0.5], {2: float("nan")}, 0), r"t\(2\)"),
        (([0, 0.5], {2: -1}, 0), r"t\(2\)"),
        (([0, 0.5], {2: 1}, -0.1), "draft_time"),
        (([0, 0.5], {2: 1}, None), "draft_time"),
        (([0, 0.9, 0.9], {2: 1}, 0), "sum to"),
        (([[0, 0.5]], {9: 1}, 0), "no tree of"),
    ],
)
def test_bad_prices(arguments: Any, told: str) -> None:
    with pytest.raises(SpecbookError, match=told):
        choose(*arguments)


# -------------------------------------------------------------------- uncertainty

SIZES = (1, 2, 4, 8, 16, 32)


def full(counts: Any) -> Observed:
    """From histograms [prompts, depths, 1 + slots] of nodes that had every child;
    entry 0 counts those where none was selected."""
    selected = np.asarray(counts)[:, :, 1:]
    after = np.cumsum(selected, axis=2) - selected
    return Observed(np.asarray(counts).sum(axis=2)[..., None] - after, selected)


def measured(
    prompts: int, spread: float, *, seed: int = 0, nodes: int = 60
) -> tuple[Observed, Times]:
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(nodes, [0.25, 0.6, 0.1, 0.05], size=(prompts, 6))
    observed = full(counts)
    base = 0.02 * np.array([1, 1.02, 1.1, 1.3, 1.9, 3.2])
    verify = base * rng.lognormal(0, spread, (15, len(SIZES)))
    steps = {n: 0.003 * rng.lognormal(0, spread, 15) for n in (1, 4)}
    return observed, Times(SIZES, verify, steps)


def test_a_decision_says_how_sure_it_is() -> None:
    exact = decide(*measured(200, 1e-6, nodes=2000), seed=1)
    vague = decide(*measured(4, 0.3), seed=1)
    assert exact.standing.wins == 1 and exact.near_ties == ()
    assert vague.standing.wins < 0.9 and vague.near_ties
    low, high = vague.standing.speedup
    assert low < high and exact.standing.speedup[1] - exact.standing.speedup[0] < (
        high - low
    )
    assert vague.standing.against_best == (1.0, 1.0)
    for one in vague.near_ties:
        assert one.candidate.speedup <= vague.choice.speedup
        assert one.against_best[1] >= 1


def test_worlds_are_priced_as_choose_prices() -> None:
    """With one prompt and one turn every world is the measured one."""
    counts, times = measured(1, 0.1)
    first = {n: steps[:1] for n, steps in times.draft.items()}
    times = Times(SIZES, times.verify[:1], first)
    found = decide(counts, times, worlds=20)
    assert found.worlds == 20
    assert found.standing.wins == 1
    for bound in found.standing.speedup:
        assert bound == pytest.approx(found.choice.speedup, rel=1e-12)
    same = choose(counts.acceptance(), times.steps(), times.draft_steps)
    assert same.tree == found.choice.tree and same.speedup == found.choice.speedup


def test_pooled_counts_may_plan_deeper() -> None:
    counts, times = measured(8, 0.01)
    flat = Times(SIZES, np.full((3, len(SIZES)), 0.02), {})
    assert decide(counts, flat, worlds=5).choice.best.depth <= 6
    assert decide(counts.pooled(), flat, worlds=5).choice.best.depth > 6
    assert flat.draft_steps(chain(3)) == 0
    assert times.steps()[1] == 1


def test_decisions_repeat() -> None:
    one, other = (decide(*measured(4, 0.3), seed=5, worlds=50) for _ in range(2))
    assert one.standing == other.standing


def test_bad_decisions() -> None:
    observed, times = measured(4, 0.1)
    for arguments, told in (
        (([[[1, 2]]], times), "observed"),
        ((observed, {1: 0.1}), "times"),
    ):
        with pytest.raises(SpecbookError, match=told):
            decide(*arguments, worlds=5)  # type: ignore[arg-type]
    for options in ({"worlds": 0}, {"worlds": True}, {"seed": -1}, {"max_depth": -1}):
        with pytest.raises(SpecbookError, match=next(iter(options))):
            decide(observed, times, **{"worlds": 5, **options})


def test_bad_times() -> None:
    good = np.full((2, 2), 0.1)
    for nodes, verify, draft, told in (
        ((2, 4), good, {}, "hold 1"),
        ((1, 1), good, {}, "differ"),
        ((1, 2), good[:, :1], {}, "shape"),
        ((1, 2), good[:0], {}, "shape"),
        ((1, 2), -good, {}, "verify"),
        ((1, 2), good * np.nan, {}, "verify"),
        ((1, 2), good, {1: [0.0]}, r"draft\[1\]"),
        ((1, 2), good, {1: []}, r"draft\[1\]"),
        ((1, 2), good, {0: [1.0]}, "rows of draft"),
        ((1, 2), good, [0.1], "draft must map"),
        ((1, True), good, {}, r"nodes\[1\]"),
        ((1, 2), "fast", {}, "verify must hold seconds"),
        ((1, 2), [[0.1, 0.1], [0.1]], {}, "verify must hold seconds"),
        ((1, 2), [[10**400, 1]], {}, "verify must hold seconds"),
        ((1, 2), good, {1: {}}, r"draft\[1\] must hold seconds"),
    ):
        with pytest.raises(SpecbookError, match=told):
            Times(nodes, verify, draft)  # type: ignore[arg-type]
    with pytest.raises(SpecbookError, match="batch must be at least 1"):
        Times((1, 2), good, {}, batch=0)
    for shape in (None, "", [], 3):
        with pytest.raises(SpecbookError, match="CandidateTree"):
            Times((1, 2), good, {}).draft_steps(shape)  # type: ignore[arg-type]


def test_numbers_beyond_floats_and_one_way_iterators() -> None:
    p, times = [0, 0.5, 0.2, 0.3], {1: 1.0, 3: 1.2}
    assert choose(iter(p), times, 0.1).speedup == choose(p, times, 0.1).speedup
    assert len(plans(iter(p), iter([1, 2]))) == len(plans(p, [1, 2]))
    with pytest.raises(SpecbookError, match=r"t\(3\) is too large"):
        choose(p, {1: 1.0, 3: 10**400}, 0.1)
    with pytest.raises(SpecbookError, match="draft_time is too large"):
        choose(p, times, 10**400)
    exact = choose([0, Fraction(1, 2)], {1: 1, 2: 10**400}, 0)
    assert exact.candidates[1].speedup == Fraction(3, 2 * 10**400)
    for sizes in (None, 3, b"x", "12", {1: 2}):
        with pytest.raises(SpecbookError, match="sizes"):
            plans(p, sizes)  # type: ignore[arg-type]


def test_a_draft_is_paid_level_by_level() -> None:
    """Levels of 1, 2 and 3 rows that have children; sizes 1, 2 and 4 were measured."""
    times = Times((1,), np.full((3, 1), 2.0), {1: [1.0], 2: [3.0], 4: [7.0]})  # type: ignore[arg-type,list-item]
    assert times.draft_steps(chain(3)) == 3 * 1.0 / 2
    shape = CandidateTree.from_paths([(0, 0, 0), (0, 1, 0), (1, 0, 0)], 0)
    assert times.draft_steps(shape) == (1.0 + 3.0 + 7.0) / 2
    wide = cartesian([8, 1])
    assert times.draft_steps(wide) == (1.0 + 7.0 * 8 / 4) / 2
    assert times.draft_steps(CandidateTree.from_paths([], 0)) == 0
    # The article's formula is the case of equal steps.
    p = [0, Fraction(1, 2), Fraction(1, 4)]
    prices = {n: Fraction(n + 9, 10) for n in range(1, 9)}
    by_depth = choose(p, prices, lambda tree: tree.max_depth * Fraction(1, 5))
    assert by_depth.speedup == choose(p, prices, Fraction(1, 5)).speedup


# ------------------------------------------------------------------------- a file


def artifact(**changes: Any) -> TreeArtifact:
    plan = optimize_tree(5, None, [0, 0.5, 0.2])
    about: dict[str, Any] = {
        "target_checkpoint": "sha256:1",
        "tokenizer": "sha256:2",
        "proposal_artifact": "sha256:3",
        "verifier": "sequoia",
        "sampling_policy": "temperature 0.7",
        "temperatures": (0.6, 0.8),
        "calibration_data": "development prompts sha256:4",
        "calibration_date": "2026-11-30",
        "batch_regime": "one request",
        "hardware": "a machine",
        "kernel": "torch 2.13.0, float32, 2 threads",
        "verify_curve": ((1, 1.0), (5, 1.2)),
        "draft_step": 0.1,
        "acceptance": ((0, 0.5, 0.2),),
        "method": plan.method,
        "parents": plan.tree.parents,
        "ranks": plan.tree.token_ids,
    }
    return TreeArtifact(**{**about, **changes})


CHANGES = {
    "temperatures": (0.1, 0.8),
    "verify_curve": ((1, 1.0), (5, 1.3)),
    "draft_step": 0.2,
    "acceptance": ((0, 0.4, 0.2),),
    "parents": (-1, -1, 0, 0),
    "ranks": (0, 1, 0, 1),
}


def test_each_changed_field_is_named() -> None:
    made = artifact()
    names = {field.name for field in fields(TreeArtifact)}
    same = {name: getattr(made, name) for name in names}
    assert made.stale(**same) == {}
    for name in names:
        other = CHANGES.get(name, "something else")
        assert made.stale(**{**same, name: other}) == {
            name: (getattr(made, name), other)
        }
    other_shape = artifact(parents=(-1, -1, 0, 0), ranks=(0, 1, 0, 1))
    assert set(made.stale(topology_hash=other_shape.topology_hash)) == {"topology_hash"}
    # The two temperatures themselves were calibrated, too.
    assert all(made.stale(temperature=t) == {} for t in (0.6, 0.7, 0.8))
    assert made.stale(temperature=0) == {"temperature": ((0.6, 0.8), 0.0)}
    with pytest.raises(ArtifactError, match="has no colour"):
        made.stale(colour="red")


def test_files_keep_everything(tmp_path: Path) -> None:
    made = artifact()
    path = made.save(tmp_path / "deep" / "tree.json")
    again = TreeArtifact.load(path)
    assert again == made
    assert again.tree() == made.tree()
    assert topology_hash(again.tree()) == made.topology_hash
    assert [p.name for p in path.parent.iterdir()] == ["tree.json"]


def test_numbers_of_numpy_are_kept_as_plain_ones(tmp_path: Path) -> None:
    made = artifact()
    same = {
        "acceptance": np.array(made.acceptance, dtype=np.float64),
        "verify_curve": [[np.int64(n), np.float64(t)] for n, t in made.verify_curve],
        "parents": np.array(made.parents),
        "ranks": np.array(made.ranks),
    }
    assert TreeArtifact.load(artifact(**same).save(tmp_path / "tree.json")) == made
    assert made.stale(**same) == {}
    changed = np.array(made.acceptance) / 2
    assert set(made.stale(acceptance=changed)) == {"acceptance"}
    assert made.stale(acceptance=[[0, Fraction(1, 2), Fraction(1, 5)]]) == {}


def test_what_cannot_be_written_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here first", encoding="utf-8")
    (tmp_path / "folder" / "inside").mkdir(parents=True)
    for name in ("file/tree.json", "folder", "n" * 300):
        with pytest.raises(ArtifactError, match=name[:40]):
            artifact().save(tmp_path / name)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]
    assert (tmp_path / "file").read_text(encoding="utf-8") == "here first"


def test_a_full_disk_is_named_and_not_the_file_that_was_never_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(ArtifactError, match="cannot be written: no space left"):
        artifact().save(tmp_path / "tree.json")


def test_every_damaged_byte_is_refused(tmp_path: Path) -> None:
    path = artifact().save(tmp_path / "tree.json")
    whole = path.read_bytes()
    told = json.loads(whole)
    rng = random.Random(0)
    for place in range(len(whole)):
        data = bytearray(whole)
        data[place] ^= 1 << rng.randrange(8)
        path.write_bytes(bytes(data))
        try:
            same = json.loads(bytes(data)) == told  # white space may change
        except ValueError:
            same = False
        if same:
            assert TreeArtifact.load(path) == artifact()
        else:
            with pytest.raises(ArtifactError, match="tree.json"):
                TreeArtifact.load(path)
    for data in (b"", whole[:-40], whole + b"x", b"[]", b"{}", b"nul"):
        path.write_bytes(data)
        with pytest.raises(ArtifactError, match="tree.json"):
            TreeArtifact.load(path)
    with pytest.raises(ArtifactError, match="no tree artifact"):
        TreeArtifact.load(tmp_path / "other.json")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"hardware": ""}, "hardware"),
        ({"hardware": 3}, "hardware"),
        ({"temperatures": (0.8, 0.6)}, "lowest"),
        ({"temperatures": (0.8,)}, "lowest"),
        ({"temperatures": (-1, 0.6)}, "temperatures"),
        ({"verify_curve": ((1,),)}, "pair"),
        ({"verify_curve": ((1, float("nan")),)}, "verify_curve"),
        ({"draft_step": float("inf")}, "draft_step"),
        ({"acceptance": ((0, 0.9, 0.9),)}, "sum to"),
        ({"parents": (0, 0)}, "malformed"),
        ({"ranks": (0, 0)}, "malformed"),
        ({"parents": None}, "parents"),
        ({"verify_curve": ()}, "verify_curve"),
        ({"verify_curve": ((1, 1.0), (1, 2.0))}, "sizes that differ"),
        ({"verify_curve": ((1, 0.0),)}, "takes 0"),
        ({"verify_curve": ((0, 1.0),)}, r"verify_curve\[0\]\[0\] must be at least 1"),
        ({"acceptance": np.array(0.5)}, "acceptance"),
        # A slot, or a depth, that nothing was measured for.
        ({"parents": (-1, -1, -1), "ranks": (0, 1, 2)}, "child 3"),
        ({"acceptance": ((0, 0.5, 0.2), (0, 0.5))}, "deep"),
    ],
)
def test_bad_artifacts(changes: Any, told: str) -> None:
    with pytest.raises(ArtifactError, match=told):
        artifact(**changes)
