"""From a target to an artifact that a draft source loads: all of `train heads`."""

import dataclasses
import json
import os

import pytest
import torch

from specbook.errors import ArtifactError, SpecbookError
from specbook.models import load_target
from specbook.models.checkpoint import load_transformers_model
from specbook.models.heads import KINDS, storage
from specbook.training import heads_run, making, teacher
from specbook.training.heads import Teacher
from specbook.training.settings import HeadsSettings, Recipe

from .test_teacher import short_validation  # noqa: F401

RECIPE = Recipe(
    sequences=2, top_k=4, prompt_tokens=700, window_tokens=60, packages=("rich",)
)
SETTINGS = HeadsSettings(
    "hydra", heads=2, steps=4, rows_per_step=900, checkpoint_every=2, others=64
)


@pytest.fixture
def cached(monkeypatch, tmp_path_factory, short_validation):  # noqa: F811
    monkeypatch.setenv("SPECBOOK_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def train(out, tiny_folder, **changes):
    settings = dataclasses.replace(SETTINGS, **changes.pop("settings", {}))
    options = {
        "rows": 1000,
        "settings": settings,
        "recipe": RECIPE,
        "command": "specbook train heads",
        **changes,
    }
    return heads_run.train_heads(out, str(tiny_folder), **options)


@pytest.mark.parametrize("kind", KINDS)
def test_an_artifact_is_what_a_source_loads(tiny_folder, tmp_path, cached, kind):
    out = tmp_path / "data" / "tiny"
    manifest = train(out, tiny_folder, settings={"kind": kind})
    assert os.listdir(out.parent) == ["tiny"]
    stored = storage.read(out)
    assert stored.manifest == json.loads(json.dumps(manifest))
    assert stored.heads.config == SETTINGS.__class__(kind, heads=2).config(32)
    for parameter in stored.heads.parameters():
        assert torch.equal(parameter, parameter.bfloat16().float())
    assert any(bool((p != 0).all()) for p in stored.heads.parameters())

    from specbook import drafts, engine

    target = load_target(tiny_folder)
    storage.check_target(manifest, target.identity())
    ids = target.encode("import os")
    options = {"max_new_tokens": 8, "temperature": 0, "seed": 0, "eos_token_id": None}
    source = drafts.make(kind, heads=out)
    drafted = engine.generate(target, ids, source, "greedy", **options)
    assert sum(len(r.tree) for r in drafted.rounds) > 0
    plain = engine.generate(target, ids, None, "greedy", **options)
    assert drafted.tokens == plain.tokens


def test_states_may_be_stored_once(tiny_folder, tmp_path, cached):
    settings = {"kind": "medusa", "states": "stored"}
    first = train(tmp_path / "first", tiny_folder, settings=settings)
    again = train(tmp_path / "again", tiny_folder, settings=settings)
    kept = first["data"]["states"]
    assert kept == again["data"]["states"] and kept["documents"] > 1
    assert first["files"]["heads.safetensors"] == again["files"]["heads.safetensors"]
    settings["states"] = "computed"
    other = train(tmp_path / "other", tiny_folder, settings=settings)
    assert other["data"]["states"] is None
    losses = [[e["loss"] for e in m["loss_curve"]] for m in (first, other)]
    # A target in bfloat16: its states are rounded the same, not computed the same.
    assert losses[0] == pytest.approx(losses[1], rel=1e-2)


def test_the_manifest_tells_how_it_was_made(tiny_folder, tmp_path, cached):
    told = []
    manifest = train(
        tmp_path / "tiny",
        tiny_folder,
        settings={"vocabulary": 40, "stored": "float16"},
        progress=told.append,
    )
    assert manifest["kind"] == storage.KIND and manifest["dtype"] == "float16"
    assert manifest["command"] == "specbook train heads"
    assert manifest["settings"]["vocabulary"] == 40
    assert [entry["step"] for entry in manifest["loss_curve"]] == [2, 4]
    assert {"edit_code@1", "source@2"} <= set(manifest["loss_curve"][0])
    assert manifest["data"]["recipe"] == RECIPE.described()
    assert manifest["data"]["counts"]["rows"] >= 1000
    assert manifest["machine"] == {"processes": 1, "threads": 1, "device": "cpu"}
    assert set(manifest["versions"]) >= {"torch", "accelerate", "specbook"}
    assert any("minutes left" in line for line in told)

    # What is written is what was measured.
    stored = storage.read(tmp_path / "tiny")
    data = teacher.make(str(tiny_folder), RECIPE, rows=1000)
    ids = torch.tensor(stored.vocabulary)
    mass = torch.zeros(256, dtype=torch.float64)
    for sequence in data.sequences():
        for row, logps in zip(sequence.top_ids, sequence.top_logps, strict=True):
            mass[row] += torch.from_numpy(logps).double().exp()
    left_out = mass.clone()
    left_out[ids] = 0
    assert len(ids) == 40 and float(mass[ids].min()) >= float(left_out.max())
    exact = Teacher(load_transformers_model(str(tiny_folder)), ids)
    again = heads_run.measure(stored.heads, exact, data.validation_sequences())
    assert json.loads(json.dumps(again)) == json.loads(json.dumps(manifest["measured"]))


def test_a_run_again_and_a_resumed_one_write_the_same_files(
    tiny_folder, tmp_path, cached, monkeypatch
):
    whole = train(tmp_path / "a" / "tiny", tiny_folder)
    out = tmp_path / "b" / "tiny"
    assert train(out, tiny_folder)["files"] == whole["files"]
    out = tmp_path / "c" / "tiny"
    real = heads_run.heads.train

    def stops(*arguments, **options):
        real(*arguments, **options, stop_after=2)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(heads_run.heads, "train", stops)
        with pytest.raises(KeyboardInterrupt):
            train(out, tiny_folder)
    assert not out.exists()
    with monkeypatch.context() as patch:
        patch.setattr(teacher, "make", lambda *a, **b: pytest.fail("data were made"))
        with pytest.raises(ArtifactError, match="--resume"):
            train(out, tiny_folder)
    resumed = train(out, tiny_folder, resume=True)
    assert resumed["files"] == whole["files"]
    assert resumed["measured"] == whole["measured"]
    assert os.listdir(out.parent) == ["tiny"]


@pytest.mark.parametrize("fault", ["weights", "vocabulary"])
def test_what_was_not_written_as_measured_is_refused(
    tiny_folder, tmp_path, cached, monkeypatch, fault
):
    """The planted faults: weights that were not rounded before they were measured, and
    a vocabulary that was not written."""
    if fault == "weights":
        monkeypatch.setattr(making, "round_to", lambda model, dtype: None)
    else:
        real = storage.write
        monkeypatch.setattr(storage, "write", lambda *a, vocabulary, **b: real(*a, **b))
    with pytest.raises(ArtifactError, match="other heads than were measured"):
        train(tmp_path / "tiny", tiny_folder, settings={"vocabulary": 40})
    assert not (tmp_path / "tiny").exists()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"settings": {"vocabulary": 257}}, "vocabulary must be at most 256"),
        ({"rows": 0}, "rows must be at least 1"),
        ({"resume": 1}, "resume"),
        ({"command": None}, "command"),
    ],
    ids=["vocabulary", "rows", "resume", "command"],
)
def test_what_cannot_be_is_refused_before_the_data_are_made(
    tiny_folder, tmp_path, monkeypatch, changes, told
):
    monkeypatch.setattr(teacher, "make", lambda *a, **b: pytest.fail("data were made"))
    with pytest.raises(SpecbookError, match=told):
        train(tmp_path / "deep" / "tiny", tiny_folder, **changes)
    for bad in ({"out": 3}, {"settings": "hydra"}, {"recipe": {}}):
        given = {"out": tmp_path / "x", "settings": HeadsSettings("hydra"), **bad}
        with pytest.raises(SpecbookError, match=next(iter(bad))):
            heads_run.train_heads(given.pop("out"), rows=1, **given)
    assert os.listdir(tmp_path) == []


def test_a_place_that_is_taken_or_closed_is_refused_before_the_work(
    tiny_folder, tmp_path, monkeypatch
):
    monkeypatch.setattr(teacher, "make", lambda *a, **b: pytest.fail("data were made"))
    (tmp_path / "thesis.txt").write_text("x", encoding="utf-8")
    with pytest.raises(SpecbookError, match="not replaced"):
        train(tmp_path, tiny_folder)
    with pytest.raises(ArtifactError, match="thesis.* cannot be written to"):
        train(tmp_path / "thesis.txt" / "tiny", tiny_folder)


def test_other_processes_write_nothing(tiny_folder, tmp_path, cached, monkeypatch):
    class Second:
        """As accelerate's state in the second process of two that do not meet."""

        is_main_process, num_processes, process_index = False, 1, 0
        device = torch.device("cpu")

        def wait_for_everyone(self):
            pass

        def main_process_first(self):
            import contextlib

            return contextlib.nullcontext()

    monkeypatch.setattr(heads_run.heads, "processes", Second)
    told = []
    assert train(tmp_path / "x" / "tiny", tiny_folder, progress=told.append) == {}
    assert os.listdir(tmp_path / "x") == [] and told == []
