"""`specbook train skip`: its options reach the search, and its errors the reader."""

from __future__ import annotations

import inspect
import json
from typing import Any

import pytest
from typer.testing import CliRunner

from specbook import cli_skip
from specbook.cli import app
from specbook.measure import skip_search

RUN = CliRunner()


def test_every_option_reaches_the_search(monkeypatch: Any, tmp_path: Any) -> None:
    seen: dict[str, Any] = {}

    def search(out: Any, target: Any, **options: Any) -> Any:
        seen.update(options, out=out, target=target)
        return {"measured": {"vector": "-x"}}

    monkeypatch.setattr(skip_search, "train_skip", search)
    words = (
        "--trials 7 --objective measured --sampler random --prompts 3 "
        "--max-new-tokens 9 --dtype bfloat16 --most 5 --policy article --repeats 2 "
        "--clock cpu --seed 4"
    )
    found = RUN.invoke(
        app,
        ["train", "skip", "--out", str(tmp_path / "x"), "--target", "y"]
        + [*words.split(), "--resume"],
    )
    assert found.exit_code == 0, found.output
    assert json.loads(found.output) == {"vector": "-x"}
    assert seen.pop("command") == f"specbook train skip --out NAME {words}"
    assert callable(seen.pop("progress"))
    assert seen == {
        "out": tmp_path / "x",
        "target": "y",
        "trials": 7,
        "objective": "measured",
        "sampler": "random",
        "prompts_per_workload": 3,
        "max_new_tokens": 9,
        "dtype": "bfloat16",
        "most": 5,
        "policy": "article",
        "repeats": 2,
        "clock": "cpu",
        "seed": 4,
        "resume": True,
    }


def test_the_defaults_are_those_of_the_function() -> None:
    command = inspect.signature(cli_skip.skip).parameters
    function = inspect.signature(skip_search.train_skip).parameters
    for name in set(command) & set(function) - {"out"}:
        assert command[name].default == function[name].default, name


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--sampler grid", "sampler must be one of"),
        ("--objective speed", "objective must be one of"),
        ("--trials 0", "trials must be at least 1"),
        ("--policy best", "rule must be one of"),
    ],
)
def test_a_bad_option_is_one_line(words: str, told: str, tmp_path: Any) -> None:
    found = RUN.invoke(
        app, ["train", "skip", "--out", str(tmp_path / "x"), *words.split()]
    )
    assert found.exit_code == 2 and told in found.output
