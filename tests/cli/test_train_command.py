"""`specbook train draft`: what it refuses, and what it passes on."""

import pytest

from specbook.cli import app
from tests.cli.helpers import refused


def test_options_are_passed_on(runner, monkeypatch, tmp_path):
    from specbook.training import run

    seen = {}

    def train_draft(out, target, **options):
        seen.update(options, out=out, target=target)
        options["progress"]("step 1")
        return {"measured": {"chat": {"top1": 0.25}}}

    monkeypatch.setattr(run, "train_draft", train_draft)
    out = str(tmp_path / "x")
    options = ["--steps", "7", "--layers", "3", "--width", "64", "--seed", "5"]
    done = runner.invoke(app, ["train", "draft", "--out", out, *options, "--resume"])
    assert done.exit_code == 0, done.output
    assert '"top1": 0.25' in done.stdout and done.stderr == "step 1\n"
    assert str(seen["out"]) == out and seen["resume"] is True
    settings = seen["settings"]
    assert (settings.steps, settings.layers, settings.width) == (7, 3, 64)
    assert settings.seed == seen["recipe"].seed == 5
    # The manifest's command says every option, also those left out.
    for part in ("--steps 7", "--layers 3", "--width 64", "--seed 5", "--rows "):
        assert part in seen["command"]
    assert f"--inner {settings.inner}" in seen["command"]
    assert str(tmp_path) not in seen["command"]


def test_the_command_of_a_manifest_asks_for_the_same_run(runner, monkeypatch):
    from specbook.training import run

    seen = []

    def train_draft(out, target, **options):
        seen.append(options)
        return {"measured": {}}

    monkeypatch.setattr(run, "train_draft", train_draft)
    runner.invoke(app, ["train", "draft", "--out", "x", "--width", "96"])
    command = seen[0]["command"].split()
    assert command[:3] == ["specbook", "train", "draft"]
    done = runner.invoke(app, command[1:])
    assert done.exit_code == 0, done.output
    for name in ("rows", "settings", "recipe", "command"):
        assert seen[0][name] == seen[1][name]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--rows", "0"], "rows"),
        (["--steps", "0"], "steps"),
        (["--layers", "0"], "layers"),
        (["--width", "0"], "width"),
        (["--start", "magic"], "start"),
        (["--seed", "-1"], "seed"),
    ],
    ids=[f"case{i}" for i in range(6)],
)
def test_bad_options_are_one_line_and_status_2(runner, options, told):
    refused(runner.invoke(app, ["train", "draft", "--out", "x", *options]), told)
