"""`specbook export`: the files, what is printed, and what is refused."""

import json

import pytest

from specbook import paths
from specbook.cli import app
from specbook.drafts.rest import Datastore
from specbook.export import choices, llama_cpp, sglang, sources, vllm
from specbook.export.artifact import BESIDE, Export
from specbook.topologies.progress import shape_of
from tests.cli.helpers import alone, refused
from tests.export.making import counts, times

CHAIN = ((100, 80), (80, 60), (60, 50))
CLOCK = {
    1: {1: 1.0, 2: 1.0, 3: 1.0, 4: 1.0},
    2: {1: 1.0, 2: 1.5, 3: 2.0, 4: 3.0},
    8: {1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0},
}
EAGLE = ["--method", "eagle3", "--model", "m"]


@pytest.fixture
def files(tmp_path):
    """Measurements on disk."""
    counted, timed = tmp_path / "counts.json", tmp_path / "times.json"
    counts(*CHAIN).save(counted)
    times(CLOCK).save(timed)
    return {"--from": counted, "--times": timed}


@pytest.fixture
def export(runner, tmp_path):
    """Runs a command; its result and the file that it was to write."""

    def run(*words, out="out"):
        path = tmp_path / out
        command = ["export", *map(str, words), "--out", str(path)]
        return runner.invoke(app, command), path

    return run


def done(result, path):
    assert result.exit_code == 0, result.output + result.stderr
    assert str(path) in result.stderr
    made = Export.load(path)
    assert result.stdout == "\n".join([*made.lines(path), ""])
    return made


def test_vllm_rates(export, files):
    result = export("vllm", "rates", "--from", files["--from"], *EAGLE)
    made = done(*result)
    told = vllm.check(json.loads(made.body))
    assert told["synthetic_acceptance_rates"] == [0.8, 0.6, 0.5]
    assert list(made.inputs) == ["counts.json"]
    # Once more, over itself; and shorter.
    result = export("vllm", "rates", "--from", files["--from"], *EAGLE, "--length", 1)
    assert json.loads(done(*result).body)["synthetic_acceptance_rates"] == [0.8]


def test_vllm_schedule_added_to_a_config(export, files, tmp_path):
    base = tmp_path / "base.json"
    base.write_text('{"method": "ngram", "prompt_lookup_max": 3}', encoding="utf-8")
    words = [word for pair in files.items() for word in pair]
    made = done(*export("vllm", "schedule", *words, "--base", base))
    told = json.loads(made.body)
    assert told["num_speculative_tokens_per_batch_size"] == [
        [1, 1, 3],
        [2, 7, 1],
        [8, 8, 0],
    ]
    assert told["prompt_lookup_max"] == 3 and told["num_speculative_tokens"] == 3
    assert sorted(made.inputs) == ["base.json", "counts.json", "times.json"]


def test_the_schedule_of_the_shipped_measurements(export):
    made = done(
        *export(
            "vllm",
            "schedule",
            *EAGLE,
            "--from",
            paths.data_path("acceptance", "smollm2.json"),
            "--times",
            paths.data_path("profiles", "epyc-2-threads-float32.json"),
            "--draft-seconds",
            0.004,
        )  # fmt: skip
    )
    told = json.loads(made.body)["num_speculative_tokens_per_batch_size"]
    assert told[0][0] == 1 and told[-1][1] == 8


def test_vllm_lookups(export):
    words = ["--set", "max_ngram=3", "--set", "max_candidates=7"]
    told = json.loads(done(*export("vllm", "ngram", *words)).body)
    assert (told["prompt_lookup_max"], told["num_speculative_tokens"]) == (3, 7)
    told = json.loads(done(*export("vllm", "suffix", out="s")).body)
    assert told["method"] == "suffix"


def test_vllm_custom_brings_its_source(export, tmp_path, monkeypatch):
    words = ["--source", "suffix", "--set", "threshold=2", "--length", 9]
    result, path = export("vllm", "custom", *words, out="a ü.json")
    made = done(result, path)
    beside = path.with_name(path.name + ".source.json")
    assert f"SPECBOOK_VLLM_SOURCE='{beside}'" in result.stdout
    assert list(made.inputs) == [beside.name]
    monkeypatch.setenv("SPECBOOK_VLLM_SOURCE", str(beside))
    assert "threshold=2" in sources.load(beside).identity()
    # Not half: where the config may not be written, no source is.
    other = tmp_path / "taken"
    other.write_text("mine", encoding="utf-8")
    refused(export("vllm", "custom", out="taken")[0], "no earlier export")
    assert not other.with_name("taken.source.json").exists()


def test_sglang(export, files, tmp_path):
    words = [word for pair in files.items() for word in pair]
    made = done(*export("sglang", "adaptive", *words, "--draft-model", "m"))
    assert json.loads(made.body) == {
        "1": {"candidate_steps": [3]},
        "2": {"candidate_steps": [1, 2]},
        "8": {"candidate_steps": [0]},
    }
    text = tmp_path / "t.txt"
    text.write_text("one\ntwo", encoding="utf-8")
    result, corpus = export("sglang", "corpus", "--text", text, out="c.jsonl")
    assert sglang.read_corpus(done(result, corpus).body) == ["one\ntwo"]
    made = done(*export("sglang", "ngram", "--corpus", corpus, out="n"))
    told = sglang.read_ngram(made.body)
    assert told["speculative-ngram-external-corpus-path"] == str(corpus)
    store = tmp_path / "x.rest"
    Datastore.build([[1, 2, 3]]).save(store)
    words = ["--source", "rest", "--datastore", store, "--set", "node_budget=5"]
    told = sglang.read_ngram(done(*export("sglang", "ngram", *words, out="r")).body)
    assert told["speculative-num-draft-tokens"] == 6


def test_two_files_of_one_name_are_both_told(export, files, tmp_path):
    (tmp_path / "b").mkdir()
    other = tmp_path / "b" / "counts.json"
    other.write_bytes(files["--times"].read_bytes())
    words = ["--from", files["--from"], "--times", other, *EAGLE]
    made = done(*export("vllm", "schedule", *words))
    assert sorted(made.inputs) == sorted([str(files["--from"]), str(other)])
    assert len(set(made.inputs.values())) == 2


def test_an_export_says_what_its_rates_hold_for(export, files):
    words = ["vllm", "rates", "--from", files["--from"], *EAGLE, "--workload", "chat"]
    note = done(*export(*words)).notes[-1]
    for wanted in ("prompt_lookup", "membership", "temperature 0.0", "on chat"):
        assert wanted in note


def test_a_corpus_of_a_package(export):
    made = done(*export("sglang", "corpus", "--package", "platformdirs"))
    assert len(sglang.read_corpus(made.body)) > 3
    assert list(made.inputs) == ["sources of platformdirs"]


def test_llama_cpp(export, files):
    words = ["--from", files["--from"], "--spec-type", "draft-mtp"]
    told = llama_cpp.read(done(*export("llama-cpp", "rates", *words)).body)
    assert told["spec-synth-rates"] == [0.8, 0.6, 0.5]
    told = llama_cpp.read(done(*export("llama-cpp", "ngram", out="n")).body)
    assert told["spec-type"] == "ngram-simple"


def test_transformers(export):
    result, path = export("transformers", "--source", "suffix", out="it's.json")
    done(result, path)
    assert f"sources.load({str(path)!r})" in result.stdout
    assert sources.load(path).identity().startswith("suffix")


def test_trees(export, tmp_path, planned):
    path, shape = planned
    for kind, words in (
        ("paths", []),
        ("medusa", ["--heads", shape.max_depth]),
        ("eagle_choices", ["--speculative-model", "m"]),
        ("token_tree", []),
    ):
        words = ["tree", "--from", path, "--kind", kind, *words]
        made = done(*export(*words, out=kind))
        assert choices.import_tree(made.body) == shape_of(
            shape.parents, shape.token_ids
        )
    refused(
        export("tree", "--from", path, "--kind", "medusa", "--heads", 1, out="x")[0],
        "is deeper than 1 heads",
    )


@pytest.fixture
def planned(tmp_path):
    """A tree of `measure tree` on disk."""
    from specbook.topologies.artifact import TreeArtifact

    shape = shape_of([-1, -1, 0], [0, 1, 0])
    text = {
        name: "x"
        for name in (
            "target_checkpoint",
            "tokenizer",
            "proposal_artifact",
            "verifier",
            "sampling_policy",
            "calibration_data",
            "calibration_date",
            "batch_regime",
            "hardware",
            "kernel",
            "method",
        )  # fmt: skip
    }
    made = TreeArtifact(
        **text,
        temperatures=(0.0, 0.7),
        verify_curve=((1, 1.0), (4, 1.5)),
        draft_step=0.1,
        acceptance=((0.0, 0.5, 0.2),),
        parents=shape.parents,
        ranks=shape.token_ids,
    )
    return made.save(tmp_path / "tree.json"), shape


# --------------------------------------------------------------------- what is refused


def test_files_of_another_kind(export, files, planned, tmp_path):
    """Each file where another one belongs, and things that are no file of ours."""
    tree, _ = planned
    odd = tmp_path / "odd"
    for content in (b"", b"\xff\x00", b"[]", b"{}", b'{"a": NaN}', b"[" * 99_999):
        odd.write_bytes(content)
        wrong = [odd, tmp_path, tmp_path / "none", tree]
        for path in [*wrong, files["--times"]]:
            result, out = export("vllm", "rates", "--from", path, *EAGLE)
            refused(result, str(path))
            assert not out.exists()
        for path in [*wrong, files["--from"]]:
            words = ["--from", files["--from"], "--times", path]
            refused(export("vllm", "schedule", *words, *EAGLE)[0], str(path))
        for path in [odd, tmp_path, tmp_path / "none", *files.values()]:
            refused(export("tree", "--from", path)[0], str(path))
        for path in (odd, tmp_path, tmp_path / "none"):
            words = ["--from", files["--from"], "--base", path]
            refused(export("vllm", "rates", *words)[0], "")
        for path in (odd, tmp_path, files["--from"]):
            refused(export("sglang", "ngram", "--corpus", path)[0], "")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["vllm", "rates"], "give --base or --method"),
        (["vllm", "rates", "--method", "eagle3"], "'model' is a required property"),
        (["vllm", "rates", *EAGLE, "--length", "4"], "4 positions are asked for"),
        (["vllm", "rates", *EAGLE, "--length", "0"], "at least 1"),
        (["vllm", "rates", *EAGLE, "--workload", "edit"], "no prompt of workload"),
        (["llama-cpp", "rates", "--spec-type", "draft-simple"], "required"),
        (["llama-cpp", "rates", "--spec-type", "x"], "must be a drafting model's"),
    ],
)
def test_options_that_do_not_fit(export, files, words, told):
    refused(export(*words, "--from", files["--from"])[0], told)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["vllm", "ngram", "--set", "policy=latest"], "export it as a custom class"),
        (["vllm", "ngram", "--set", "max_ngram"], "takes NAME=VALUE"),
        (["vllm", "ngram", "--set", "=3"], "takes NAME=VALUE"),
        (["vllm", "ngram", "--set", "nonsense=3"], "option of"),
        (["vllm", "ngram", "--set", "max_ngram=NaN"], "integer"),
        (["vllm", "ngram", "--set", "max_ngram=3", "--set", "max_ngram=4"], "twice"),
        (["vllm", "suffix", "--min-token-prob", "nan"], "is nan"),
        (["vllm", "suffix", "--set", "threshold=2"], "custom class"),
        (["vllm", "custom", "--length", "0"], "length"),
        (["vllm", "custom", "--source", "draft_model"], "draws its candidates"),
        (["transformers", "--source", "medusa"], "draws its candidates"),
        (["transformers", "--source", "x"], "must be one of"),
        (["transformers", "--source", "rest"], "needs a datastore"),
        (["transformers", "--source", "rest", "--datastore", "none"], "none"),
        (["transformers", "--datastore", "none"], "option of prompt_lookup"),
        (["sglang", "corpus"], "give --text or --package"),
        (["sglang", "corpus", "--text", "none.txt"], "there is no file none.txt"),
        (["sglang", "corpus", "--text", "."], "cannot be read"),
        (["vllm", "ngram", "--set", "cost=[[1,1e999]]"], "finite"),
        (["vllm", "ngram", "--set", "prior=null"], "prior"),
        (["sglang", "corpus", "--package", "no-such-package"], "no-such-package"),
        (["sglang", "ngram", "--source", "suffix"], "PromptLookup or a Rest"),
        (["sglang", "ngram", "--source", "kangaroo"], "draws its candidates"),
        (["sglang", "ngram", "--corpus-nodes", "3"], "without a corpus"),
        (["llama-cpp", "ngram", "--set", "max_ngram=2000"], "1024"),
    ],
)
def test_sources_that_do_not_fit(export, words, told):
    result, out = export(*words)
    refused(result, told)
    assert not out.exists()


def test_times_of_another_target(export, files, tmp_path):
    profile = times(CLOCK)
    profile.settings["target"] = "another"
    profile.save(files["--times"])
    words = [word for pair in files.items() for word in pair]
    told = "of target some-target sha256:00, the times of another"
    refused(export("vllm", "schedule", *words, *EAGLE)[0], told)


def test_times_of_another_number_format(export, files, tmp_path):
    profile = times(CLOCK)
    profile.settings["dtype"] = "bfloat16"
    profile.save(files["--times"])
    words = [word for pair in files.items() for word in pair]
    told = "of dtype float32, the times of bfloat16"
    refused(export("vllm", "schedule", *words, *EAGLE)[0], told)
    refused(export("sglang", "adaptive", *words, "--draft-model", "m")[0], told)


def test_a_schedule_says_all_that_it_rests_on(export, files):
    """Two schedules of the same files may differ by what was typed: it is written."""
    words = [word for pair in files.items() for word in pair]
    more = ["--draft-seconds", "0.25"]
    note = done(*export("vllm", "schedule", *words, *EAGLE, *more)).notes[-1]
    for wanted in ("behind 64 tokens", "float32", "0.25 s", "machine not recorded"):
        assert wanted in note
    words += ["--draft-model", "m", "--within", "0.125"]
    notes = " ".join(done(*export("sglang", "adaptive", *words, out="a")).notes)
    assert "0.125" in notes and "behind 64 tokens" in notes


def test_rates_that_were_counted_on_trees_say_so(export, files):
    file = paths.data_path("acceptance", "smollm2.json")
    words = ["vllm", "rates", *EAGLE, "--from"]
    assert "Counted on trees" in " ".join(done(*export(*words, file)).notes)
    made = done(*export(*words, files["--from"], out="c"))
    assert "Counted on trees" not in " ".join(made.notes)


@pytest.mark.parametrize("source", [" ", " x", "x  + ", " + "])
def test_a_source_without_a_name(export, files, source):
    counts(*CHAIN, source=source).save(files["--from"])
    words = [word for pair in files.items() for word in pair]
    refused(export("vllm", "schedule", *words, *EAGLE)[0], "")


def test_a_drafter_takes_time(export, files):
    counts(*CHAIN, source="draft_model shape=x").save(files["--from"])
    words = [word for pair in files.items() for word in pair]
    refused(export("vllm", "schedule", *words, *EAGLE)[0], "give --draft-seconds")
    for bad in ("nan", "-1", "inf"):
        more = ["--draft-seconds", bad]
        refused(export("vllm", "schedule", *words, *EAGLE, *more)[0], "draft_seconds")


def test_a_method_and_a_base(export, files, tmp_path):
    base = tmp_path / "base.json"
    base.write_text('{"method": "ngram"}', encoding="utf-8")
    words = ["--from", files["--from"], "--base", base]
    refused(export("vllm", "rates", *words, *EAGLE)[0], "already says")


def test_where_nothing_may_be_written(export, files, tmp_path):
    words = ["vllm", "rates", "--from", files["--from"], *EAGLE]
    (tmp_path / "folder").mkdir()
    refused(export(*words, out="folder")[0], "is a folder")
    refused(export(*words, out="counts.json")[0], "no earlier export")
    refused(export(*words, out="counts.json/below")[0], "takes no files")
    assert not (tmp_path / f"counts.json{BESIDE}").exists()


def test_no_model_is_needed():
    assert alone("export", "vllm", "ngram", "--out", "/dev/null/x") == (2, set())
