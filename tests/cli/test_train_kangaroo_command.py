"""`specbook train kangaroo`: what it refuses, and what it passes on."""

import pytest

from specbook.cli import app
from tests.cli.helpers import refused


@pytest.fixture
def seen(monkeypatch):
    from specbook.training import kangaroo_run

    found = []

    def train_kangaroo(out, target, **options):
        options["progress"]("step 1")
        found.append({"out": str(out), **options})
        return {"measured": {"chat": {"top1": [0.25]}}}

    monkeypatch.setattr(kangaroo_run, "train_kangaroo", train_kangaroo)
    return found


def test_options_are_passed_on(runner, seen, tmp_path):
    out = str(tmp_path / "x")
    given = {
        "boundary": 3, "attention_heads": 4, "start": "least_squares",
        "temperature": 2.0, "vocabulary": 9, "steps": 7, "rows_per_step": 50,
        "learning_rate": 0.01, "warm_up": 6, "others": 5, "dtype": "float32",
        "states": "stored", "stored": "float16", "seed": 5,
    }  # fmt: skip
    told = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    more = ["--out", out, "--rows", "70", "--source-rows", "7", "--resume"]
    done = runner.invoke(app, ["train", "kangaroo", *told, *more])
    assert done.exit_code == 0, done.output
    assert '"top1": [' in done.stdout and done.stderr == "step 1\n"
    one = seen[0]
    assert one["out"] == out and one["resume"] is True and one["recipe"].seed == 5
    assert (one["rows"], one["source_rows"]) == (70, 7)
    settings = one["settings"].described()
    for name, value in given.items():
        assert settings[name] == value
        assert f"--{name.replace('_', '-')} {value}" in one["command"]
    assert str(tmp_path) not in one["command"]


def test_the_command_of_a_manifest_asks_for_the_same_run(runner, seen):
    runner.invoke(app, ["train", "kangaroo", "--boundary", "4", "--out", "x"])
    command = seen[0]["command"].split()
    assert command[:3] == ["specbook", "train", "kangaroo"]
    done = runner.invoke(app, command[1:])
    assert done.exit_code == 0, done.output
    for name in ("rows", "source_rows", "settings", "recipe", "command"):
        assert seen[0][name] == seen[1][name]


def test_another_process_prints_nothing(runner, monkeypatch):
    from specbook.training import kangaroo_run

    monkeypatch.setattr(kangaroo_run, "train_kangaroo", lambda *a, **b: {})
    done = runner.invoke(app, ["train", "kangaroo", "--boundary", "4", "--out", "x"])
    assert done.exit_code == 0 and done.output == ""


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--boundary", "0"], "boundary"),
        (["--rows", "0"], "rows"),
        (["--source-rows", "-1"], "source-rows"),
        (["--steps", "0"], "steps"),
        (["--attention-heads", "0"], "attention_heads"),
        (["--start", "zero"], "start"),
        (["--temperature", "0"], "temperature"),
        (["--vocabulary", "0"], "vocabulary"),
        (["--rows-per-step", "0"], "rows_per_step"),
        (["--learning-rate", "-1"], "learning_rate"),
        (["--warm-up", "-1"], "warm_up"),
        (["--others", "0"], "others"),
        (["--dtype", "int8"], "dtype"),
        (["--states", "kept"], "states"),
        (["--stored", "float32"], "stored"),
        (["--seed", "-1"], "seed"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_cannot_be_is_refused_in_one_line(runner, seen, options, told):
    command = ["train", "kangaroo", "--boundary", "3", "--out", "x", *options]
    refused(runner.invoke(app, command), told)
    assert not seen
