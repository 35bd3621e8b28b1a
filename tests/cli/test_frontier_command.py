"""`specbook measure frontier`: from the command line to a file."""

from __future__ import annotations

from typing import Any

import pytest

from specbook.cli import app
from specbook.measure import bench_frontier
from specbook.measure.frontier_report import configurations, load
from tests.cli.helpers import alone, refused


def test_a_quick_run_leaves_a_file_and_says_who_won(
    runner: Any, tiny: Any, tmp_path: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(bench_frontier, "NODES", (1, 2, 4, 8))
    monkeypatch.setattr(bench_frontier, "PREFIX", 8)
    out = tmp_path / "frontier.jsonl"
    command = [
        "measure", "frontier", "--quick", "--target", tiny, "--draft", tiny,
        "--workload", "chat", "--source", "prompt_lookup", "--no-peers",
        "--dtype", "float32", "--temperature", "0", "--max-new-tokens", "8",
        "--out", out,
    ]  # fmt: skip
    done = runner.invoke(app, list(map(str, command)))
    assert done.exit_code == 0, done.output + done.stderr
    assert "winner" in done.stdout and str(out) in done.stderr
    assert "minutes" in done.stderr
    assert [one.family for one in configurations(load(out))] == ["plain", "copying"]
    # A second run has nothing left to do, and another one is not mixed in.
    again = runner.invoke(app, list(map(str, command)))
    assert again.exit_code == 0 and "chat-" not in again.stderr
    other = runner.invoke(app, [*map(str, command), "--repeats", "2"])
    assert other.exit_code == 2 and "repeats was 1, now it is 2" in other.stderr


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--source", "none"], "source"),
        (["--workload", "none"], "workload"),
        (["--dtype", "int8"], "dtype"),
        (["--temperature", "-1"], "temperature"),
        (["--screen-prompts", "0"], "screen_prompts"),
        (["--finalists", "0"], "each"),
        (["--batch", "1"], "batches"),
        (["--prompts", "0"], "prompts_per_workload"),
        (["--clock", "sun"], "clock"),
    ],
)
def test_bad_options_are_refused_before_a_model_is_loaded(
    runner: Any, no_model: Any, tmp_path: Any, options: Any, told: str
) -> None:
    command = ["measure", "frontier", "--out", str(tmp_path / "f.jsonl"), *options]
    refused(runner.invoke(app, command), told)


def test_help_needs_no_model() -> None:
    assert alone("measure", "frontier", "--help") == (0, set())
