"""`specbook gate`: the state of every line, and a status that a script can use."""

import json

import pytest

from specbook import claims, gate
from specbook.cli import app
from tests.book.recorded import write_records
from tests.cli.helpers import alone, refused


@pytest.fixture
def records(tmp_path):
    """A folder in which every claim was shown by this version."""
    write_records(tmp_path)
    return tmp_path


def test_a_green_run_has_status_0(runner, records):
    done = runner.invoke(app, ["gate", "--records", str(records)])
    assert done.exit_code == 0, done.output
    assert done.stdout.count("green") == len(gate.load()) + 1
    count = len(claims.load())
    assert f"{count} claims: {count} green, 0 missing, 0 stale, 0 red" in done.stdout


def test_what_is_open_is_listed_and_has_status_1(runner, records):
    first, second = list(claims.load())[:2]
    (records / f"{first}.json").unlink()
    path = records / f"{second}.json"
    row = json.loads(path.read_text(encoding="utf-8"))[0]
    path.write_text(json.dumps([{**row, "held": False}, row]), encoding="utf-8")
    done = runner.invoke(app, ["gate", "--records", str(records)])
    assert done.exit_code == 1
    told = [line for line in done.stdout.splitlines() if ": 0x" in line]
    assert told == [f"red: {second}", f"missing: {first}"]
    done = runner.invoke(app, ["gate", "--records", str(records), "--json"])
    assert done.exit_code == 1
    seen = json.loads(done.stdout)
    assert not seen["green"] and seen["unknown"] == []
    assert (seen["claims"][first], seen["claims"][second]) == ("missing", "red")
    assert list(seen["lines"]) == list(gate.load())


def test_without_a_run_it_says_what_to_do(runner, monkeypatch):
    monkeypatch.setattr(gate, "records_folder", lambda: None)
    refused(runner.invoke(app, ["gate"]), "make book")


def test_the_last_run_is_the_default(runner, records, monkeypatch):
    monkeypatch.setattr(gate, "records_folder", lambda: records)
    assert runner.invoke(app, ["gate"]).exit_code == 0


def test_what_is_no_folder_and_what_is_damaged_is_refused(runner, records, tmp_path):
    done = runner.invoke(app, ["gate", "--records", str(tmp_path / "nowhere")])
    refused(done, "does not exist")
    name = next(iter(claims.load()))
    (records / f"{name}.json").write_text("{", encoding="utf-8")
    done = runner.invoke(app, ["gate", "--records", str(records)])
    refused(done, f"{name}.json is damaged")


def test_it_needs_no_torch(records):
    status, heavy = alone("gate", "--records", str(records))
    assert status == 0 and not {"torch", "transformers", "matplotlib"} & heavy
