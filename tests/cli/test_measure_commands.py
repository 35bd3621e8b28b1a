"""`specbook bench retrieval | draft`, `measure record | replay`, `index`."""

import json
from pathlib import Path

import pytest

from specbook import models, prompts
from specbook.cli import app
from specbook.drafts import make
from specbook.drafts.rest import Datastore
from specbook.errors import SpecbookError
from specbook.measure import (
    bench_draft,
    bench_retrieval,
    bench_verifiers,
    recording,
    replay,
)
from tests.cli.helpers import refused


@pytest.mark.parametrize(
    ("command", "module", "given"),
    [
        (
            ["retrieval", "--tokens", "500", "--queries", "7", "--repeats", "2"],
            bench_retrieval,
            {"tokens": 500, "queries": 7, "repeats": 2, "quick": False},
        ),
        (
            ["draft", "--draft", "here", "--workload", "chat", "--prompts", "3"],
            bench_draft,
            {"workloads": ("chat",), "prompts_per_workload": 3, "quick": False},
        ),
        (
            ["verifiers", "--draft", "here", "--children", "3", "--temperature", "2"],
            bench_verifiers,
            {"children": 3, "temperature": 2.0, "vocabulary": None, "repeats": 5},
        ),
    ],
    ids=["retrieval", "draft", "verifiers"],
)
def test_a_benchmark_gets_the_options(runner, calls_of, command, module, given):
    calls = calls_of(module)
    done = runner.invoke(app, ["bench", *command])
    assert done.exit_code == 0, done.output
    for told in ("measured so and so", "Times", "theirs", "3.0", "ours is smaller"):
        assert told in done.stdout
    ((arguments, options),) = calls
    assert given.items() <= options.items()
    assert arguments == ((None,) if module is bench_retrieval else (None, "here"))
    done = runner.invoke(app, ["bench", *command, "--json"])
    assert json.loads(done.stdout) == {"ms": 1.5}


def test_replay_prints_what_the_function_gives(runner):
    command = ["measure", "replay", "--source", "suffix", "--half", "evaluation"]
    done = runner.invoke(app, command)
    assert done.exit_code == 0, done.output
    found = replay(make("suffix"), recording.load(0.0, half="evaluation"))
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == [*prompts.WORKLOADS, "all"]
    for line, row in zip(lines, found.rows(), strict=True):
        assert f" {row['tokens_per_round']:.2f} tokens a round" in line
        assert f" {row['missed']} of {row['rounds']} rounds" in line


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--source", "prompt_lookup", "--half", "x"], "half must be one of"),
        (["--source", "nothing"], "no draft source is called 'nothing'"),
        (["--source", "rest"], "REST needs a datastore"),
        (["--source", "suffix", "--datastore", "x"], "option of suffix must be one of"),
        (["--source", "suffix", "--temperature", "0.5"], "0.5"),
    ],
)
def test_a_wrong_replay_is_refused_in_one_line(runner, options, told):
    refused(runner.invoke(app, ["measure", "replay", *options]), told)


class Target:
    """Encodes a text as its bytes."""

    def encode(self, text):
        return list(text.encode("utf-8"))

    def identity(self):
        return {"checkpoint": "none at all", "tokenizer": "bytes"}


def test_index_writes_a_datastore_of_a_package(runner, monkeypatch, tmp_path):
    monkeypatch.setattr(models, "load_target", lambda name: Target())
    path = tmp_path / "sources.idx"
    command = ["index", "--out", str(path), "--package", "networkx"]
    done = runner.invoke(app, command)
    assert done.exit_code == 0, done.output
    store = Datastore.load(path, tokenizer="bytes")
    assert done.stdout.splitlines() == [
        f"{path}: {store.documents:,} documents, {store.tokens:,} tokens",
        f"hash {store.hash}",
    ]
    assert store.count(list(b"import networkx as nx")) > 10
    assert "networkx" in store.release.licence


def test_record_hands_the_target_over(runner, monkeypatch, tmp_path):
    from specbook.measure import record

    target, calls = Target(), []
    monkeypatch.setattr(models, "load_target", lambda name: target)
    monkeypatch.setattr(record, "record", lambda *a, **o: calls.append((a, o)))
    out = tmp_path / "recordings"
    command = ["measure", "record", "--out", str(out), "--temperature", "0.7"]
    assert runner.invoke(app, command).exit_code == 0
    (((found, folder), options),) = calls
    assert found is target and folder == out
    assert options["temperature"] == 0.7 and options["max_new_tokens"] == 128


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["measure", "record", "--temperature", "-1"], "temperature must be at least"),
        (["measure", "record", "--temperature", "nan"], "temperature must be finite"),
        (["measure", "record", "--max-new-tokens", "0"], "max_new_tokens must be"),
        (["measure", "record", "--out", __file__], "takes no files"),
        (["index", "--package", "no-such-package"], "'no-such-package', which is not"),
        (["index", "--out", str(Path(__file__).parent)], "is a folder"),
        (["index", "--out", f"{__file__}/x.idx"], "takes no files"),
        (["bench", "decode", "--half", "x"], "half must be one of"),
        (["bench", "decode", "--max-new-tokens", "0"], "max_new_tokens must be"),
        (["bench", "draft", "--clock", "sun"], "clock must be one of"),
        (["bench", "draft", "--out", __file__], "takes no files"),
        (["bench", "verifiers", "--children", "0"], "children must be at least 1"),
        (["bench", "verifiers", "--temperature", "0"], "temperature must be above 0"),
        (["bench", "verifiers", "--out", __file__], "takes no files"),
        (["bench", "retrieval", "--queries", "0"], "queries must be at least 1"),
        (["train", "draft", "--out", "x", "--rows", "0"], "rows must be at least 1"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_no_command_loads_a_model_for_bad_options(
    runner, no_model, tmp_path, command, told
):
    if "--out" not in command and command[0] != "bench":
        command = [*command, "--out", str(tmp_path / "out")]
    refused(runner.invoke(app, command), told)
    # And nothing is left where the output would have been.
    assert not (tmp_path / "out").exists()


def test_the_loader_that_fails_is_the_one_that_good_options_call(
    runner, monkeypatch, tmp_path
):
    called = []

    def load(name=None, **options):
        called.append(name)
        raise SpecbookError("stop here")

    monkeypatch.setattr(models, "load_target", load)
    out = str(tmp_path / "out")
    for command in (
        ["measure", "record", "--out", out],
        ["index", "--out", f"{out}.idx", "--package", "networkx"],
        ["decode", "--prompt", "x"],
    ):
        assert "stop here" in runner.invoke(app, command).stderr
    assert called == [None] * 3


def test_a_source_is_made_with_options_that_it_has():
    assert make("prompt_lookup", max_ngram=2).max_ngram == 2
    assert make("prompt_lookup").length == "adaptive"
    with pytest.raises(SpecbookError, match="option of prompt_lookup"):
        make("prompt_lookup", depth=3)


def test_rest_is_decoded_with_a_datastore_only(runner):
    done = runner.invoke(app, ["decode", "--prompt", "x", "--source", "rest"])
    refused(done, "--datastore FILE; specbook index --out FILE makes one")


def test_the_default_rule_uses_q_where_there_is_one():
    from specbook import cli
    from specbook.drafts.neural.draft_model import DraftModel
    from specbook.models import TableTarget

    draft = TableTarget(lambda prefix: [0.5, 0.5], vocab_size=2)
    assert cli._sampling_rule(None) == "membership"
    assert cli._sampling_rule(make("prompt_lookup")) == "membership"
    assert cli._sampling_rule(DraftModel(draft)) == "single"
    assert cli._sampling_rule(DraftModel(draft, widths=(2, 1))) == "membership"
