"""`specbook advise --times --counts`: from two profiles and a target to an answer."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from specbook import checks, paths, reading
from specbook.advice import answer, command
from specbook.cli import app
from specbook.drafts.neural.draft_model import DraftModel
from specbook.measure import acceptance, recording, setup
from specbook.measure.verify_report import Cell, VerifyProfile
from specbook.models.loading import load_target
from specbook.topologies import chain
from tests.cli.conftest import save_tiny
from tests.cli.helpers import refused

PROMPTS = {"chat": [("chat-a", [5, 6, 7, 8]), ("chat-b", [9, 1, 9, 1])]}
SHIPPED = paths.data_path("profiles", "xeon-2-threads-float32.json")
runner = CliRunner()


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder with a tiny target, which drafts for itself: every candidate is right.
    Long enough for the first prompt of a workload, in bytes."""
    return save_tiny(tmp_path_factory.mktemp("advise") / "tiny", max_positions=4096)


@pytest.fixture(scope="module")
def target(models):
    return load_target(str(models), dtype="float32")


def cells(seconds, batch=1):
    return [
        Cell(
            "runtime" if batch == 1 else "batch",
            batch,
            32,
            "chain",
            n,
            n - 1,
            (spent, spent, spent),
            0.0,
            0.0,
            0,
            0,
        )
        for n, spent in seconds.items()
    ]


@pytest.fixture
def times(target, tmp_path):
    """Rows are nearly free for one request, and dear for four."""
    made = VerifyProfile(
        {"target": target.identity()["checkpoint"], "dtype": "float32"},
        setup.machine(),
        (
            *cells({1: 10.0, 2: 10.1, 4: 10.2}),
            *cells({1: 10.0, 2: 40.0, 4: 90.0}, batch=4),
        ),
    )
    return made.save(tmp_path / "times.json")


@pytest.fixture(scope="module")
def measured(target, models):
    source = DraftModel(str(models), shape=chain(3), children="top_k")
    return acceptance.measure_acceptance(
        target, source, "greedy", PROMPTS, depths=3, slots=1, max_new_tokens=12
    )


@pytest.fixture
def counts(measured, tmp_path):
    return measured.save(tmp_path / "counts.json")


def advise(*words):
    return runner.invoke(app, ["advise", *map(str, words)])


def test_the_command_answers_from_profiles(times, counts, models, tmp_path):
    out = tmp_path / "advice.json"
    words = [
        "--times",
        times,
        "--counts",
        counts,
        "--target",
        models,
        "--draft",
        models,
    ]
    done = advise(*words, "--workload", "chat", "--out", out)
    assert done.exit_code == 0, done.output
    assert "advised: draft_model, chain 3, top k / greedy" in done.stdout
    assert "predicted, 2 counted prompts" in done.stdout
    # The recordings are of the book's own target: they say nothing of this one.
    assert "note: sources that copy are left out" in done.stdout
    assert "timing the drafts of draft_model" in done.stderr
    kept = answer.load(out)
    assert kept["inputs"] == reading.digests([times, counts])
    assert kept["configuration"]["parents"] == [-1, 0, 1]
    assert kept["machine"]["processor"] == kept["here"]["processor"]
    asked = kept["settings"]
    assert (asked["prefix"], asked["shape"]) == (32, "chain")
    assert asked["workload"] == "chat" and asked["notes"]
    assert checks.entries(asked["proposals"], "proposals", "texts")[0].startswith(
        "draft_model"
    )
    # Rows that four requests share are dear: then nothing pays.
    done = advise(*words, "--workload", "chat", "--batch", "4", "--json")
    assert json.loads(done.stdout)["advised"] == "plain"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--workload", "edit_code"], "no prompt of workload 'edit_code'"),
        (["--workload", "poems"], "workload must be one of"),
        (["--temperature", "0.7"], "temperature 0, and 0.7 is asked for"),
        (["--batch", "2"], "batch 2"),
        (["--dtype", "float32"], "not both"),
        (["--workload", "chat", "--speedup", "99"], "is 99.00 times as fast"),
        (["--workload", "chat", "--memory", "nan"], "memory must be"),
    ],
)
def test_what_cannot_be_answered_is_refused(times, counts, models, words, told):
    files = [
        "--times",
        times,
        "--counts",
        counts,
        "--target",
        models,
        "--draft",
        models,
    ]
    refused(last_line(advise(*files, *words)), told)


def last_line(done):
    """The result without the lines of progress that came before the refusal."""
    lines = done.stderr.splitlines(keepends=True)

    class Told:
        exit_code, stdout, output = done.exit_code, done.stdout, done.output
        stderr = lines[-1]

    return Told


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"target": "another"}, "of target another"),
        ({"dtype": "bfloat16"}, "of dtype bfloat16"),
        ({"tokenizer": "another"}, "another tokenizer"),
        ({"proposal": "draft_model another"}, "would draft"),
        ({"source": "suffix x"}, "follows no plans"),
        ({"verifier": "no-such-rule"}, "no-such-rule"),
    ],
)
def test_counts_of_something_else(
    times, measured, models, tmp_path, monkeypatch, change, told
):
    settings = {**measured.settings, **change}
    path = type(measured)(settings, measured.machine, measured.prompts).save(
        tmp_path / "other.json"
    )
    words = ["--times", times, "--counts", path, "--target", models]
    words += [] if "suffix" in str(change) else ["--draft", models]
    refused(last_line(advise(*words, "--workload", "chat")), told)


def test_a_profile_of_another_machine(times, counts, models, tmp_path):
    profile = VerifyProfile.load(times)
    profile.machine["processor"] = profile.machine["line"] = "a machine far away"
    profile.save(times)
    words = [
        "--times",
        times,
        "--counts",
        counts,
        "--target",
        models,
        "--draft",
        models,
    ]
    words += ["--workload", "chat"]
    refused(advise(*words), "measured with processor 'a machine far away'")
    out = tmp_path / "out.json"
    done = advise(*words, "--any-machine", "--out", out)
    assert done.exit_code == 0, done.output
    # Whose times they are is told, and kept.
    assert "of another machine than this one: a machine far away" in done.stdout
    kept = answer.load(out)
    assert kept["machine"]["processor"] == "a machine far away"
    assert kept["here"]["processor"] != "a machine far away"


def test_models_that_nothing_would_load_are_refused(times, models):
    """They would be passed over in silence."""
    refused(advise("--times", times, "--target", models), "a target belongs to counts")
    refused(advise("--times", times, "--draft", models), "a draft belongs to counts")
    told = "no --target or --draft"
    refused(advise("--target", models), told)
    refused(advise("--draft", models), told)


def test_without_counts_or_recordings_there_is_nothing_to_compare(times):
    refused(advise("--times", times), "give --counts")
    refused(
        advise("--times", SHIPPED, "--any-machine", "--temperature", "0.3"),
        "nothing is recorded at temperature 0.3",
    )


def test_the_shipped_profile_and_the_recordings(tmp_path):
    """No model is loaded: copies are run along the recorded answers."""
    out = tmp_path / "advice.json"
    done = advise(
        "--times", SHIPPED, "--any-machine", "--workload", "edit_code", "--out", out
    )
    assert done.exit_code == 0, done.output
    assert "advised: plain" not in done.stdout
    kept = answer.load(out)
    recorded = paths.data_path("recordings") / recording.file_name(0.0)
    assert kept["inputs"] == reading.digests([SHIPPED, recorded])
    assert kept["configuration"]["most"] > 0


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff\xfe", b'{"format": 1}'])
def test_files_that_are_no_profiles(times, models, tmp_path, content):
    odd = tmp_path / "odd.json"
    odd.write_bytes(content)
    for path in (odd, tmp_path, tmp_path / "none", "/dev/zero"):
        refused(advise("--times", path), str(path))
        words = ["--times", times, "--counts", path, "--target", models]
        refused(advise(*words), str(path))
        refused(advise("--frontier", path), str(path))


def test_counts_of_some_workloads_are_not_compared_with_recordings_of_all(measured):
    with pytest.raises(ValueError, match="name one workload"):
        command._same_texts("counts.json", measured, None)
    command._same_texts("counts.json", measured, "chat")


def test_an_advice_is_not_written_over_another_file(times, counts, models):
    words = [
        "--times",
        times,
        "--counts",
        counts,
        "--target",
        models,
        "--draft",
        models,
    ]
    before = counts.read_bytes()
    refused(advise(*words, "--out", counts), "is no specbook advice")
    assert counts.read_bytes() == before
