"""`specbook bench heads`: the options reach the benchmark, a wrong one is one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from specbook.cli import app
from specbook.measure import bench_heads
from tests.cli.helpers import refused


def test_the_options_reach_the_benchmark(runner, calls_of):
    calls = calls_of(bench_heads)
    command = ["bench", "heads", "--heads", "hydra", "--heads", "medusa"]
    command += ["--folder", "here", "--workload", "chat", "--dtype", "float32"]
    command += ["--nodes", "8", "--tree-of", "hydra", "--calibration", "2"]
    command += ["--times", "a.json", "--prompts", "3", "--quick"]
    done = runner.invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "Times" in done.stdout and "ours" in done.stdout
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
def test_a_wrong_option_is_refused(
    runner, monkeypatch, tmp_path, no_model, options, told
):
    monkeypatch.chdir(tmp_path)
    refused(runner.invoke(app, ["bench", "heads", *options]), told)
