"""`specbook fixture`: the steps, the hash at the end, and a status that means it."""

from __future__ import annotations

import json

import pytest

from specbook import fixture
from specbook.cli import app
from tests.cli.helpers import alone


def test_it_prints_every_step_and_ends_with_the_hash(runner):
    done = runner.invoke(app, ["fixture"])
    assert done.exit_code == 0, done.output
    *steps, last = done.stdout.splitlines()
    assert last == fixture.HASH
    names = [step.name for step in fixture.run().steps]
    assert [line.partition(":")[0] for line in steps] == [f"ok    {n}" for n in names]


def test_json(runner):
    done = runner.invoke(app, ["fixture", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["held"] and found["hash"] == fixture.HASH
    assert fixture.digest(found["artifact"]) == found["hash"]


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["text", "json"])
def test_what_differs_is_told_and_makes_the_status_1(runner, monkeypatch, options):
    monkeypatch.setattr(fixture, "HASH", "0" * 64)
    done = runner.invoke(app, ["fixture", *options])
    assert done.exit_code == 1
    assert "0" * 64 in done.stdout
    assert ("FAIL  artifact" in done.stdout) == (not options)


def test_it_needs_no_torch():
    status, loaded = alone("fixture")
    assert status == 0 and "torch" not in loaded
