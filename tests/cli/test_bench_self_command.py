"""`specbook bench self`: the options reach the benchmark, a wrong one is one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from specbook.cli import app
from specbook.measure import bench_self
from tests.cli.helpers import refused


def test_the_options_reach_the_benchmark(runner, calls_of):
    calls = calls_of(bench_self)
    command = ["bench", "self", "--method", "kangaroo", "--adapter", "here"]
    command += ["--skip", "there", "--workload", "chat", "--dtype", "float32"]
    command += ["--prompts", "3", "--quick"]
    done = runner.invoke(app, command)
    assert done.exit_code == 0, done.output
    ((arguments, options),) = calls
    assert arguments == (None,)
    wanted = {
        "methods": ("kangaroo",),
        "adapter": Path("here"),
        "skip": Path("there"),
        "workloads": ("chat",),
        "dtypes": ("float32",),
        "prompts_per_workload": 3,
        "quick": True,
        "clock": "wall",
    }
    assert wanted.items() <= options.items()
    # What was not given is left to the function.
    runner.invoke(app, ["bench", "self", "--json"])
    assert not {"methods", "workloads", "dtypes"} & calls[1][1].keys()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--method", "medusa"], "method must be one of"),
        (["--skip", "nowhere"], "nowhere"),
        (["--method", "kangaroo", "--adapter", "nowhere"], "nowhere"),
        (["--dtype", "int8"], "dtype must be one of"),
        (["--prompts", "0"], "prompts_per_workload must be at least 1"),
    ],
)
def test_a_wrong_option_is_refused(
    runner, monkeypatch, tmp_path, no_model, options, told
):
    monkeypatch.chdir(tmp_path)
    refused(runner.invoke(app, ["bench", "self", *options]), told)
