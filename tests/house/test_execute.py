"""The one way in which notebooks are executed: what fails there fails the run."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.book.recorded import write_records
from tools import execute, pairs, progress

HEAD = """\
---
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---

# A notebook
"""


def write(folder: Path, name: str, *cells: str) -> Path:
    blocks = [f"\n```{{code-cell}} ipython3\n{cell}\n```\n" for cell in cells]
    text = folder / f"{name}.md"
    text.write_text(HEAD + "".join(blocks), encoding="utf-8")
    pairs.write_pair(text)
    return text.with_suffix(".ipynb")


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory):
    """One pytest run over five notebooks, four of them with a planted fault."""
    folder = tmp_path_factory.mktemp("executed")
    records = tmp_path_factory.mktemp("records")
    write(
        folder,
        "good",
        "import os, pathlib\nfolder = pathlib.Path(os.environ['SPECBOOK_RECORDS'])",
        "(folder / 'seen').write_text(os.getcwd(), encoding='utf-8')",
    )
    write(folder, "fails", "1 / 0")
    write(folder, "endless", "while True: pass")
    write(folder, "hungry", "block = bytearray(1_700_000_000)")
    kernel = write(folder, "private", "print('ran')")
    notebook = json.loads(kernel.read_text(encoding="utf-8"))
    notebook["metadata"]["kernelspec"]["name"] = "somebodys-own"
    kernel.write_text(json.dumps(notebook), encoding="utf-8")
    words = execute.command(sorted(folder.glob("*.ipynb")), folder)
    words = [
        "--nbmake-timeout=20" if word.startswith("--nbmake-timeout") else word
        for word in words
    ]
    run = subprocess.run(
        words,
        cwd=execute.ROOT,
        env=execute.environment(records),
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    timings = json.loads((folder / "timings.json").read_text(encoding="utf-8"))
    return run, timings, records, folder


def test_faults_fail_the_run_and_good_ones_pass(outcome):
    run, timings, _, _ = outcome
    assert run.returncode == 1
    passed = {name: record["passed"] for name, record in timings["notebooks"].items()}
    assert passed == {
        "good": True,
        "private": True,  # the run's kernel is used, whatever a notebook names
        "fails": False,
        "endless": False,
        "hungry": False,
    }


def test_each_notebook_has_its_progress_line(outcome):
    run, timings, _, _ = outcome
    for name, record in timings["notebooks"].items():
        (line,) = [
            part
            for part in run.stdout.splitlines()
            if f" {name} " in f"{part} " and part.startswith("[")
        ]
        assert ("ok" if record["passed"] else "FAIL") in line
        assert line.endswith("MB") and " s " in line


def test_the_report_names_the_failing_notebook_and_cell(outcome):
    run, _, _, _ = outcome
    assert "ZeroDivisionError" in run.stdout
    assert "while True: pass" in run.stdout
    assert "hungry.ipynb: peak memory" in run.stdout


def test_memory_is_that_of_the_kernel(outcome):
    _, timings, _, _ = outcome
    peaks = {n: r["peak_mb"] for n, r in timings["notebooks"].items()}
    assert 1600 < peaks["hungry"] < 2500
    assert 20 < peaks["good"] < 400


def test_kernels_get_the_records_folder_and_run_beside_their_notebook(outcome):
    _, _, records, folder = outcome
    seen = (records / "seen").read_text(encoding="utf-8")
    assert Path(seen).resolve() == folder.resolve()


def test_executed_copies_hold_their_outputs(outcome):
    _, _, _, folder = outcome
    notebook = json.loads((folder / "private.ipynb").read_text(encoding="utf-8"))
    assert notebook["cells"][-1]["outputs"][0]["text"] == ["ran\n"]


def test_no_notebook_is_no_success(tmp_path):
    with pytest.raises(ValueError, match="no notebook to execute"):
        execute.execute(tmp_path, tmp_path / "out", tmp_path / "records")


def test_a_run_takes_its_final_name_only_when_it_ends(tmp_path, monkeypatch):
    write(tmp_path, "a", "1 + 1")
    out, records = tmp_path / "out", tmp_path / "records"

    def finish(chosen, folder, kept, complete):
        assert folder != out and folder.parent == out.parent
        (folder / "new").write_text("", encoding="utf-8")
        return 0

    def stop(*_: object, **__: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(execute, "run", finish)
    assert execute.execute(tmp_path, out, records) == 0
    assert [path.name for path in out.iterdir()] == ["new"]
    monkeypatch.setattr(execute, "run", stop)
    with pytest.raises(KeyboardInterrupt):
        execute.execute(tmp_path, out, records)
    assert [path.name for path in out.iterdir()] == ["new"]
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"a.md", "a.ipynb", "out", "records"}


def test_the_command_has_limits_and_one_kernel():
    words = execute.command([Path("a.ipynb")], Path("x"))
    assert "--nbmake-kernel=python3" in words
    assert any(word.startswith("--timeout=") for word in words)
    assert any(word.startswith("--nbmake-timeout=") for word in words)


def test_a_users_own_target_keeps_the_hub(monkeypatch, tmp_path):
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.delenv("SPECBOOK_TARGET", raising=False)
    assert execute.environment(tmp_path)["HF_HUB_OFFLINE"] == "1"
    monkeypatch.setenv("SPECBOOK_TARGET", "somebody/some-model")
    assert "HF_HUB_OFFLINE" not in execute.environment(tmp_path)


@pytest.mark.parametrize("name", execute.SOURCES)
def test_the_source_hash_sees_every_source(tmp_path, name):
    for source in execute.SOURCES:
        path = tmp_path / source
        if "." in source:
            path.write_text("1", encoding="utf-8")
        else:
            path.mkdir()
            (path / "file.py").write_text("1", encoding="utf-8")
    before = execute.source_hash(tmp_path)
    os.utime(tmp_path / "constraints.txt", (1, 1))
    (tmp_path / "specbook" / "x.pyc").write_text("junk", encoding="utf-8")
    assert execute.source_hash(tmp_path) == before
    changed = tmp_path / name if "." in name else tmp_path / name / "file.py"
    changed.write_text("2", encoding="utf-8")
    assert execute.source_hash(tmp_path) != before


def test_a_run_line_says_what_a_time_needs_to_be_read():
    machine = progress.machine()
    assert machine["cores"] >= 1 and machine["memory_gb"] >= 1
    assert {"cpu", "python", "system", "versions"} <= set(machine)


# ---- the gate at the end of a whole run ------------------------------------------


def whole_run(tmp_path, monkeypatch, complete=True, **held):
    """A run of which pytest says that it passed, with these records: its status, and
    its stamp."""
    out, records = tmp_path / "out", tmp_path / "records"
    for folder in (out, records):
        folder.mkdir()
    chosen = [write(tmp_path, "a", "1 + 1")]

    def passed(*_: object, **__: object) -> subprocess.CompletedProcess:
        write_records(records, **held)
        return subprocess.CompletedProcess([], 0)

    monkeypatch.setattr(execute.subprocess, "run", passed)
    status = execute.run(chosen, out, records, complete)
    return status, json.loads((out / "stamp.json").read_text(encoding="utf-8"))


def test_a_whole_run_with_every_claim_shown_passes(tmp_path, monkeypatch, capsys):
    status, stamp = whole_run(tmp_path, monkeypatch)
    assert status == 0 and stamp["complete"]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("held", "word"), [(None, "missing"), (False, "red")])
def test_a_claim_that_was_not_shown_fails_a_whole_run(
    tmp_path, monkeypatch, capsys, held, word
):
    name = "0x07D-key"
    status, stamp = whole_run(tmp_path, monkeypatch, **{name: held})
    assert status == execute.GATE_CLOSED and not stamp["complete"]
    assert capsys.readouterr().err.splitlines() == [
        "the gate is not green:",
        f"  {word}: {name}",
    ]


def test_a_damaged_record_fails_a_whole_run(tmp_path, monkeypatch, capsys):
    (tmp_path / "x.json").write_text("{", encoding="utf-8")
    assert "x.json is damaged" in execute.open_claims(tmp_path)[0]


def test_a_run_of_some_notebooks_is_not_judged(tmp_path, monkeypatch, capsys):
    status, stamp = whole_run(
        tmp_path, monkeypatch, complete=False, **{"0x07D-key": None}
    )
    assert status == 0 and not stamp["complete"]
    assert capsys.readouterr().err == ""
