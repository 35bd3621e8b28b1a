"""`specbook bench heads`: the options reach the benchmark, a wrong one is one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specbook.cli import app
from specbook.measure import bench_heads


class Report:
    """What a benchmark returns, as far as the command line looks."""

    def tables(self) -> list[Any]:
        return [("Speed", ["heads", "ratio"], [["hydra", "1.5"]])]

    def as_dict(self) -> dict[str, float]:
        return {"ratio": 1.5}


def test_the_options_reach_the_benchmark(
    runner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[Any, dict[str, Any]]] = []

    def run(*arguments: Any, **options: Any) -> Report:
        calls.append((arguments, options))
        return Report()

    monkeypatch.setattr(bench_heads, "run", run)
    command = ["bench", "heads", "--heads", "hydra", "--heads", "medusa"]
    command += ["--folder", "here", "--workload", "chat", "--dtype", "float32"]
    command += ["--nodes", "8", "--tree-of", "hydra", "--calibration", "2"]
    command += ["--times", "a.json", "--prompts", "3", "--quick"]
    done = runner.invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "Speed" in done.stdout and "hydra" in done.stdout
    ((arguments, options),) = calls
    assert arguments == (None,)
    wanted = {
        "heads": ("hydra", "medusa"),
        "folder": Path("here"),
        "workloads": ("chat",),
        "dtypes": ("float32",),
        "nodes": 8,
        "tree_of": "hydra",
        "calibration": 2,
        "times": (Path("a.json"),),
        "prompts_per_workload": 3,
        "quick": True,
        "clock": "wall",
    }
    assert wanted.items() <= options.items()
    # What was not given is left to the function.
    runner.invoke(app, ["bench", "heads", "--json"])
    assert not {"heads", "workloads", "dtypes", "times"} & calls[1][1].keys()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--heads", "eagle"], "kind of heads must be one of"),
        (["--folder", "nowhere"], "has no folder of medusa"),
        (["--nodes", "1"], "nodes must be at least 2"),
        (["--calibration", "0"], "calibration must be at least 1"),
        (["--dtype", "int8"], "dtype must be one of"),
        (["--prompts", "0"], "prompts_per_workload must be at least 1"),
    ],
)
def test_a_wrong_option_is_refused_in_one_line(
    runner: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    options: list[str],
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bench_heads, "load", lambda *given: pytest.fail("loaded"))
    done = runner.invoke(app, ["bench", "heads", *options])
    assert done.exit_code == 2
    assert told in done.stderr and len(done.stderr.splitlines()) == 1
