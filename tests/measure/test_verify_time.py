"""Verification times on tiny models: what is timed, in which order, what is kept."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specbook.errors import ArtifactError, SpecbookError
from specbook.measure import verify_time
from specbook.measure.verify_report import VerifyProfile, profiles_figure
from specbook.measure.verify_time import (
    Grid,
    measure_draft_step,
    measure_verify_time,
    shape_of_size,
)
from specbook.models import LeanTarget, TransformersTarget, tiny_llama
from specbook.topologies import chain

MACHINE = {
    "line": "a machine",
    "processor": "one",
    "instructions": "AVX2",
    "threads": 1,
}
GRID = Grid(
    nodes=(1, 2, 5), prefixes=(6, 9), shapes=("chain", "star"), batches=(2,), turns=3
)


class Clock:
    """Every reading a millisecond later than the one before."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


@pytest.fixture(scope="module")
def targets() -> tuple[Any, Any]:
    return LeanTarget(tiny_llama()), TransformersTarget(tiny_llama())


def measured(targets: Any, **options: Any) -> VerifyProfile:
    target, batched = targets
    return measure_verify_time(
        target, GRID, batched=batched, machine=MACHINE, clock=Clock(), **options
    )


def test_every_group_and_size_is_there(targets: Any) -> None:
    profile = measured(targets)
    assert profile.groups() == GRID.groups() and len(profile.groups()) == 8
    row = targets[0].start([1]).bytes_per_row()
    for cell in profile.cells:
        assert len(cell.seconds) == GRID.turns
        assert cell.kv_bytes == cell.nodes * cell.batch * row
        assert cell.depth == (
            cell.nodes - 1 if cell.shape == "chain" else min(1, cell.nodes - 1)
        )
        sent = cell.nodes * 16 + 4 * cell.nodes * (cell.prefix - 1 + cell.nodes)
        assert cell.sent_bytes == (0 if cell.forward == "runtime" else sent)
        # With this clock everything that is timed takes a thousandth.
        assert cell.seconds == pytest.approx([0.001] * GRID.turns)
        assert cell.mask_seconds == pytest.approx(0.001)


def test_sizes_take_turns_and_the_first_turn_is_not_counted(
    targets: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    class Watched(verify_time._Runtime):
        def once(self, tree: Any) -> Any:
            asked.append(len(tree) + 1)
            length = len(self._session.tokens)
            timed = super().once(tree)
            assert len(self._session.tokens) == length  # the prefix stays as it is
            return (float(len(asked)), *timed[1:])

    monkeypatch.setattr(verify_time, "_Runtime", Watched)
    grid = Grid(nodes=(1, 2, 5), prefixes=(6,), shapes=("star",), batches=(), turns=3)
    profile = measure_verify_time(targets[0], grid, machine=MACHINE)
    assert asked == [1, 2, 5] * 4
    assert [cell.seconds for cell in profile.cells] == [
        (4, 7, 10),
        (5, 8, 11),
        (6, 9, 12),
    ]


def test_the_runtime_verifies_what_it_says(
    targets: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of the trees that the target is handed, and the laws that are asked for."""
    seen: Counter[Any] = Counter()
    target = targets[1]
    session_class = type(target.start([1]))
    verify = session_class.verify

    class Rows:
        def __init__(self, rows: Any, size: int) -> None:
            self.rows, self.size = rows, size

        def law(self, row: int, policy: Any) -> Any:
            seen[self.size, row] += 1
            return self.rows.law(row, policy)

    def watched(self: Any, tree: Any) -> Any:
        return Rows(verify(self, tree), len(tree) + 1)

    monkeypatch.setattr(session_class, "verify", watched)
    grid = Grid(
        nodes=(1, 4), prefixes=(5,), shapes=("chain",), batches=(), turns=1, visited=2
    )
    measure_verify_time(target, grid, machine=MACHINE)
    assert seen == {(1, -1): 2, (4, -1): 2, (4, 0): 2, (4, 1): 2}


def test_it_goes_on_where_it_was_stopped(targets: Any, tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    told: list[str] = []

    def stop(line: str) -> None:
        told.append(line)
        if len(told) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measured(targets, path=path, say=stop)
    assert len(VerifyProfile.load(path).groups()) == 3
    began = len(told)
    whole = measured(targets, path=path, say=told.append)
    assert len(told) - began == 5
    assert whole.groups() == GRID.groups()
    assert VerifyProfile.load(path) == whole
    assert measured(targets, path=path, say=told.append) == whole
    assert [entry.name for entry in tmp_path.iterdir()] == ["profile.json"]


def test_a_file_of_other_circumstances_is_refused(targets: Any, tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    measured(targets, path=path)
    before = path.read_bytes()
    target, batched = targets
    other = Grid(nodes=(1, 2), prefixes=(6,), shapes=("chain",), batches=(2,), turns=3)
    with pytest.raises(ArtifactError, match="nodes"):
        measure_verify_time(target, other, batched=batched, machine=MACHINE, path=path)
    for field in ("processor", "instructions", "threads"):
        with pytest.raises(ArtifactError, match=field):
            measure_verify_time(
                target,
                GRID,
                batched=batched,
                machine={**MACHINE, field: "other"},
                path=path,
            )
    seeded = TransformersTarget(tiny_llama(seed=5))
    with pytest.raises(ArtifactError, match="target"):
        measure_verify_time(seeded, GRID, batched=seeded, machine=MACHINE, path=path)
    assert path.read_bytes() == before


def test_a_group_that_was_cut_is_not_taken_for_measured(
    targets: Any, tmp_path: Path
) -> None:
    """A group is written whole. One with fewer sizes would never be completed."""
    path = tmp_path / "profile.json"
    whole = measured(targets, path=path)
    cut = whole.cells[0].group
    for cells in (
        whole.cells[:2] + whole.cells[3:],
        tuple(replace(c, seconds=c.seconds[:2]) for c in whole.cells),
        whole.cells + tuple(replace(c, prefix=77) for c in whole.cells[:3]),
    ):
        replace(whole, cells=cells).save(path)
        before = path.read_bytes()
        with pytest.raises(ArtifactError, match="do not ask for") as caught:
            measured(targets, path=path)
        assert str(cut) in str(caught.value) or "77" in str(caught.value)
        assert path.read_bytes() == before


def test_times_for_a_choice(targets: Any) -> None:
    profile = measured(targets)
    times = profile.times("batch", 2, 9, "star", draft={1: [0.002, 0.001]})
    assert times.nodes == (1, 2, 5) and times.verify.shape == (3, 3)
    # Two requests have two rows, and one was measured: in proportion.
    assert times.draft_steps(chain(1)) == pytest.approx(2 * 1.5)
    with pytest.raises(SpecbookError, match="batch 7"):
        profile.times("batch", 7)


def test_damaged_profiles_are_refused(targets: Any, tmp_path: Path) -> None:
    path = measured(targets).save(tmp_path / "p.json")
    values = json.loads(path.read_text(encoding="utf-8"))
    for change in (
        lambda v: v["cells"][0].update(seconds=[0.0, 1.0, 1.0]),
        lambda v: v["cells"][0].update(seconds=[1.0]),
        lambda v: v["cells"][0].update(nodes=2),
        lambda v: v["cells"][0].pop("depth"),
        lambda v: v["cells"][0].update(seconds=["fast"]),
        lambda v: v["cells"][0].update(sent_bytes=-1),
        lambda v: v["cells"][0].update(mask_seconds=-1e-9),
        lambda v: v["cells"][0].update(depth=9),
        lambda v: v["cells"][0].update(prefix=0),
        lambda v: v["cells"][0].update(batch=0),
        lambda v: v.update(format=99),
    ):
        damaged = json.loads(json.dumps(values))
        change(damaged)
        path.write_text(json.dumps(damaged), encoding="utf-8")
        with pytest.raises(ArtifactError, match="p.json"):
            VerifyProfile.load(path)


def test_tables_and_figures(targets: Any) -> None:
    profile = measured(targets)
    tables = list(profile.tables())
    assert len(tables) == 8 and [row[0] for row in tables[0][2]] == ["1", "2", "5"]
    one = Grid(nodes=(1, 2, 5), prefixes=(6,), shapes=("star",), batches=(2,), turns=3)
    small = measure_verify_time(
        targets[0], one, batched=targets[1], machine=MACHINE, clock=Clock()
    )
    framed = profiles_figure({"mine": small})
    assert "5 rows cost 1.0 times" in framed.caption and "a machine" in framed.caption


@pytest.mark.parametrize("kind", ["chain", "star", "sequoia"])
def test_shapes_have_the_size_they_are_asked_for(kind: str) -> None:
    for nodes in (1, 2, 3, 17, 256):
        assert len(shape_of_size(kind, nodes)) == nodes - 1


def test_a_draft_step_is_one_level(targets: Any) -> None:
    found = measure_draft_step(
        targets[0], rows=(4, 1), prefix=5, turns=2, clock=Clock()
    )
    assert list(found) == [1, 4]
    assert all(np.allclose(seconds, [0.001] * 2) for seconds in found.values())
    limit = targets[0].context_limit
    for options in (
        {"rows": ()},
        {"rows": (0,)},
        {"prefix": 0},
        {"turns": 0},
        {"prefix": limit - 1},
    ):
        with pytest.raises(SpecbookError):
            measure_draft_step(targets[0], **options)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"nodes": (2, 3)}, "hold 1"),
        ({"nodes": (1,)}, "hold 1"),
        ({"nodes": ()}, "hold 1"),
        ({"nodes": (1, 2.0)}, "nodes"),
        ({"prefixes": ()}, "prefixes"),
        ({"prefixes": (0,)}, "prefixes"),
        ({"shapes": ()}, "shapes"),
        ({"shapes": ("ring",)}, "shapes"),
        ({"turns": 0}, "turns"),
        ({"visited": -1}, "visited"),
        ({"temperature": float("nan")}, "temperature"),
    ],
)
def test_bad_grids(changes: Any, told: str) -> None:
    good = {"nodes": (1, 2), "prefixes": (5,), "shapes": ("star",), "batches": ()}
    with pytest.raises(SpecbookError, match=told):
        Grid(**{**good, **changes})


def test_what_cannot_be_measured_is_refused_at_once(targets: Any) -> None:
    target, batched = targets
    limit = target.context_limit
    long = Grid(nodes=(1, 2), prefixes=(limit,), shapes=("star",), batches=())
    for arguments, options, told in (
        ((target, GRID), {}, "batched target"),
        ((target, long), {}, "positions"),
        ((target, "quick"), {}, "grid"),
        ((object(), GRID), {"batched": batched}, "target"),
        (
            (target, GRID),
            {"batched": TransformersTarget(tiny_llama(seed=5))},
            "another checkpoint",
        ),
    ):
        with pytest.raises(SpecbookError, match=told):
            measure_verify_time(*arguments, machine=MACHINE, **options)


def test_other_kinds_of_input_are_refused(targets: Any) -> None:
    target, batched = targets
    grid = Grid(nodes=(1, 2), prefixes=(6,), shapes=("chain",), batches=(), turns=1)
    for options, told in (
        ({"batched": 3}, "batched must be"),
        ({"batched": target}, "batched must be"),
        ({"path": 3}, "path must be a file"),
    ):
        with pytest.raises(SpecbookError, match=told):
            measure_verify_time(target, grid, machine=MACHINE, **options)
    with pytest.raises(SpecbookError, match="model must be"):
        measure_draft_step(None)
    with pytest.raises(SpecbookError, match="vocabulary"):
        measure_draft_step(target, rows=(1, 10**9), prefix=8)
    profile = measure_verify_time(target, grid, machine=MACHINE)
    for draft in (3, [0.1], "fast"):
        with pytest.raises(SpecbookError, match="draft must map"):
            profile.times(draft=draft)  # type: ignore[arg-type]
    for name, value in (
        ("forward", 3),
        ("batch", np.array([1, 2])),
        ("prefix", np.array([1, 2])),
        ("prefix", "8"),
        ("shape", np.array(["chain", "star"])),
    ):
        wanted = {"forward": "runtime", "batch": 1, "prefix": 6, "shape": "chain"}
        for call in (profile.group, profile.times):
            with pytest.raises(SpecbookError, match=f"{name} must be"):
                call(**{**wanted, name: value})  # type: ignore[arg-type]
    for cells in ((None,), (1, 2), 3):
        with pytest.raises(SpecbookError, match="cells"):
            VerifyProfile({}, {}, cells)  # type: ignore[arg-type]
    for profiles in ({}, None, {"a": 3}, {"a": VerifyProfile({}, {}, ())}):
        with pytest.raises(SpecbookError, match="profiles must map"):
            profiles_figure(profiles)  # type: ignore[arg-type]


def test_the_shipped_profiles_are_whole() -> None:
    from specbook.measure.verify_report import shipped

    found = shipped()
    assert found
    for profile in found.values():
        times = profile.times()
        assert times.steps()[1] == 1 and len(times.nodes) > 8


def test_a_profile_by_one_forward_alone() -> None:
    """Of a profile with batches the curve of one request can be drawn by itself."""
    from specbook.measure.verify_report import shipped

    batched = [p for p in shipped().values() if p.settings["batches"]]
    assert batched
    for profile in batched:
        alone = profile.of("runtime")
        assert {cell.forward for cell in alone.cells} == {"runtime"}
        assert alone.times().steps() == profile.times().steps()
        rest = profile.of("batch")
        assert len(alone.cells) + len(rest.cells) == len(profile.cells)
        with pytest.raises(SpecbookError, match="nothing was measured by 'batch'"):
            alone.of("batch")
