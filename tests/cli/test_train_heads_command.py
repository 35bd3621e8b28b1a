"""`specbook train heads`: what it refuses, and what it passes on."""

import pytest

from specbook.cli import app
from tests.cli.helpers import refused


@pytest.fixture
def seen(monkeypatch):
    from specbook.training import heads_run

    found = []

    def train_heads(out, target, **options):
        options["progress"]("step 1")
        found.append({"out": str(out), **options})
        return {"measured": {"chat": {"top1": [0.25]}}}

    monkeypatch.setattr(heads_run, "train_heads", train_heads)
    return found


def test_options_are_passed_on(runner, seen, tmp_path):
    out = str(tmp_path / "x")
    options = (
        "--steps 7 --heads 3 --layers 2 --loss label --decay 0.8 --vocabulary 9 "
        "--rows-per-step 50 --learning-rate 0.01 --others 5 --dtype float32 "
        "--stored float16 --seed 5 --rows 70 --source-rows 7 --resume"
    ).split()
    done = runner.invoke(app, ["train", "heads", "clover", "--out", out, *options])
    assert done.exit_code == 0, done.output
    assert '"top1": [' in done.stdout and done.stderr == "step 1\n"
    told = seen[0]
    assert told["out"] == out and told["resume"] is True and told["rows"] == 70
    assert told["source_rows"] == 7
    settings = told["settings"].described()
    assert settings["kind"] == "clover" and told["recipe"].seed == 5
    for name, value in {
        "steps": 7, "heads": 3, "layers": 2, "loss": "label", "decay": 0.8,
        "vocabulary": 9, "rows_per_step": 50, "learning_rate": 0.01, "others": 5,
        "dtype": "float32", "stored": "float16", "seed": 5,
    }.items():  # fmt: skip
        assert settings[name] == value
        assert f"--{name.replace('_', '-')} {value}" in told["command"]
    assert str(tmp_path) not in told["command"]


@pytest.mark.parametrize("options", [[], ["--vocabulary", "8", "--self-share", "0.5"]])
def test_the_command_of_a_manifest_asks_for_the_same_run(runner, seen, options):
    runner.invoke(app, ["train", "heads", "hydra", "--out", "x", *options])
    command = seen[0]["command"].split()
    assert command[:4] == ["specbook", "train", "heads", "hydra"]
    done = runner.invoke(app, command[1:])
    assert done.exit_code == 0, done.output
    for name in ("rows", "source_rows", "settings", "recipe", "command"):
        assert seen[0][name] == seen[1][name]


def test_another_process_prints_nothing(runner, monkeypatch):
    from specbook.training import heads_run

    monkeypatch.setattr(heads_run, "train_heads", lambda *a, **b: {})
    done = runner.invoke(app, ["train", "heads", "hydra", "--out", "x"])
    assert done.exit_code == 0 and done.output == ""


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["eagle"], "kind"),
        (["hydra", "--rows", "0"], "rows"),
        (["hydra", "--source-rows", "-1"], "source-rows"),
        (["hydra", "--steps", "0"], "steps"),
        (["hydra", "--heads", "0"], "heads"),
        (["hydra", "--layers", "0"], "layers"),
        (["hydra", "--loss", "hard"], "loss"),
        (["hydra", "--self-share", "1.5"], "self_share"),
        (["hydra", "--self-share", "0.5", "--loss", "label"], "self_share"),
        (["hydra", "--vocabulary", "0"], "vocabulary"),
        (["hydra", "--dtype", "int8"], "dtype"),
        (["hydra", "--stored", "int8"], "stored"),
        (["hydra", "--decay", "nan"], "decay"),
        (["hydra", "--seed", "-1"], "seed"),
    ],
    ids=[f"case{i}" for i in range(14)],
)
def test_bad_options_are_one_line_and_status_2(runner, options, told):
    refused(runner.invoke(app, ["train", "heads", *options, "--out", "x"]), told)
