"""The benchmark of tree optimisers: turns, equal scores, aims, files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specbook.errors import ArtifactError, SpecbookError
from specbook.measure import bench_trees
from specbook.measure.bench_trees import (
    Solved,
    TreesReport,
    falling_slots,
    plain_loops,
    run,
)
from specbook.topologies.acceptance import increasing_slots
from specbook.topologies.sequoia import solve
from tests.topologies import ordered


@pytest.fixture(scope="module")
def report() -> TreesReport:
    return run(repeats=2, quick=True)


def test_plain_loops_are_the_recurrence() -> None:
    p = [0, 0.3, 0.05, 0.6]
    best = ordered.best(6, [p] * 6)
    for n in range(1, 7):
        for d in range(n - 1, 5):
            assert plain_loops(n, d, p) == pytest.approx(best[n][d], abs=1e-12)
    assert plain_loops(3, 1, [0, 0.5]) == float("-inf")


def test_slots_fall_and_leave_a_stop(report: TreesReport) -> None:
    slots = falling_slots(32, 0)
    assert increasing_slots(slots) == [] and sum(slots) < 1
    for item in report.solved:
        if item.way == "recurrence":
            wanted = solve(item.nodes, bench_trees.DEPTH, slots)
            assert item.score == float(wanted.score(item.nodes, bench_trees.DEPTH))


def test_every_way_takes_every_turn(report: TreesReport) -> None:
    asked = {(way, n) for way, sizes in bench_trees.QUICK.items() for n in sizes}
    assert {(item.way, item.nodes) for item in report.solved} == asked
    assert all(len(item.seconds) == 2 for item in report.solved)


def test_aims_count_where_they_were_measured(report: TreesReport) -> None:
    assert report.aims() == []
    one = Solved("recurrence", 512, (2.0, 4.0, 5.0), 3.0)
    other = Solved("best-first", 100_000, (0.5,), 4.0)
    told = TreesReport((one, other)).aims()
    assert [(row["measured"], row["kept"]) for row in told] == [
        (4.0, False),
        (0.5, True),
    ]


def test_another_answer_is_not_timed() -> None:
    with pytest.raises(SpecbookError, match="64 nodes"):
        TreesReport(
            (
                Solved("recurrence", 64, (1.0,), 3.0),
                Solved("plain loops", 64, (1.0,), 3.1),
            )
        )


@pytest.mark.parametrize(
    ("solved", "told"),
    [
        ((), "nothing was timed"),
        ((Solved("recurrence", 64, (), 3.0),), "above 0"),
        ((Solved("recurrence", 64, (1.0, float("nan")), 3.0),), "above 0"),
        ((Solved("recurrence", 64, (1.0,), float("nan")),), "score of recurrence"),
        ((Solved("recurrence", 64, (1.0,), 0.5),), "score of recurrence"),
        ((Solved("recurrence", 0, (1.0,), 3.0),), "nodes of recurrence"),
    ],
)
def test_a_report_that_no_run_gives(solved: Any, told: str) -> None:
    with pytest.raises(SpecbookError, match=told):
        TreesReport(solved)


def test_bad_arguments_of_the_plain_ways() -> None:
    for arguments, told in (
        ((0, 1, [0, 0.5]), "max_nodes"),
        ((3, -1, [0, 0.5]), "max_depth"),
        ((3, 1, [0, 0.9, 0.9]), "sum to"),
        ((3, 1, []), "acceptance"),
    ):
        with pytest.raises(SpecbookError, match=told):
            plain_loops(*arguments)  # type: ignore[arg-type]
    for arguments, told in (((0, 0), "count"), ((3, -1), "seed"), ((1.5, 0), "count")):
        with pytest.raises(SpecbookError, match=told):
            falling_slots(*arguments)  # type: ignore[arg-type]


def test_files(report: TreesReport, tmp_path: Path) -> None:
    from specbook.measure.report import save

    save(report, tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "trees.json",
        "trees.md",
        "trees.png",
    ]
    path = tmp_path / "trees.json"
    assert TreesReport.load(path) == report
    values = json.loads(path.read_text(encoding="utf-8"))
    values["solved"][0]["score"] += 1
    path.write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(ArtifactError, match=r"trees\.json"):
        TreesReport.load(path)


@pytest.mark.parametrize(
    "options",
    [{"repeats": 0}, {"seed": -1}, {"clock": "sun"}, {"quick": 1}, {"out": 3}],
)
def test_bad_options_are_refused_before_anything_is_timed(
    options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*arguments: Any) -> Any:
        raise AssertionError("timed")

    monkeypatch.setattr(bench_trees, "solve", never)
    with pytest.raises(SpecbookError, match=next(iter(options))):
        run(**options)
