"""From a target to an adapter on disk: all of `train kangaroo`."""

import dataclasses
import json
import os

import pytest
import torch

from specbook.errors import ArtifactError, SpecbookError
from specbook.models import kangaroo_storage as storage
from specbook.models import load_target
from specbook.models.checkpoint import load_transformers_model
from specbook.models.target import UnsupportedTargetError
from specbook.models.tiny import tiny_model
from specbook.training import kangaroo_run, making, teacher
from specbook.training.heads import Teacher
from specbook.training.kangaroo import Trunk
from specbook.training.settings import HeadsSettings, KangarooSettings

from .test_heads_run import RECIPE, cached  # noqa: F401
from .test_teacher import short_validation  # noqa: F401

SETTINGS = KangarooSettings(
    1,
    attention_heads=4,
    start="least_squares",
    steps=4,
    rows_per_step=900,
    checkpoint_every=2,
    others=64,
)


def train(out, tiny_folder, **changes):
    settings = dataclasses.replace(SETTINGS, **changes.pop("settings", {}))
    options = {
        "rows": 1000,
        "settings": settings,
        "recipe": RECIPE,
        "command": "specbook train kangaroo",
        **changes,
    }
    return kangaroo_run.train_kangaroo(out, str(tiny_folder), **options)


def test_the_artifact_is_what_was_measured(tiny_folder, tmp_path, cached):  # noqa: F811
    out, told = tmp_path / "data" / "tiny", []
    changes = {"vocabulary": 40, "stored": "float16", "temperature": 1.5}
    manifest = train(out, tiny_folder, settings=changes, progress=told.append)
    assert os.listdir(out.parent) == ["tiny"]
    stored = storage.read(out)
    assert stored.manifest == json.loads(json.dumps(manifest))
    assert (stored.boundary, len(stored.vocabulary)) == (1, 40)
    assert (stored.adapter.width, stored.adapter.heads) == (32, 4)
    for parameter in stored.adapter.parameters():
        assert torch.equal(parameter, parameter.half().float())
        assert bool((parameter != 0).any())
    storage.check_target(stored, load_target(tiny_folder).identity())

    assert manifest["kind"] == storage.KIND and manifest["dtype"] == "float16"
    assert manifest["settings"]["kind"] == "kangaroo"
    assert manifest["settings"]["temperature"] == 1.5
    assert manifest["parameters"] == 4 * 32**2 + 2 * 32
    assert [entry["step"] for entry in manifest["loss_curve"]] == [2, 4]
    assert {"edit_code@1", "source@1"} <= set(manifest["loss_curve"][0])
    assert manifest["data"]["recipe"] == RECIPE.described()
    assert manifest["machine"] == {"processes": 1, "threads": 1, "device": "cpu"}
    assert any("minutes left" in line for line in told)

    data = teacher.make(str(tiny_folder), RECIPE, rows=1000)
    model = load_transformers_model(str(tiny_folder))
    exact = Trunk(Teacher(model, torch.tensor(stored.vocabulary)), 1)
    again = kangaroo_run.measure(stored.adapter, exact, data.validation_sequences())
    assert json.loads(json.dumps(again)) == json.loads(json.dumps(manifest["measured"]))
    assert len(again["chat"]["chain"]) == 6


def test_a_run_again_and_a_resumed_one_write_the_same_files(
    tiny_folder,
    tmp_path,
    cached,  # noqa: F811
    monkeypatch,
):
    whole = train(tmp_path / "a" / "tiny", tiny_folder)
    stored = train(tmp_path / "b" / "tiny", tiny_folder, settings={"states": "stored"})
    out = tmp_path / "c" / "tiny"
    real = kangaroo_run.kangaroo.train

    def stops(*arguments, **options):
        real(*arguments, **options, stop_after=2)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(kangaroo_run.kangaroo, "train", stops)
        with pytest.raises(KeyboardInterrupt):
            train(out, tiny_folder)
    assert not out.exists()
    resumed = train(out, tiny_folder, resume=True)
    assert resumed["files"] == whole["files"]
    assert resumed["measured"] == whole["measured"]
    assert os.listdir(out.parent) == ["tiny"]
    # A target in bfloat16: its rows are rounded the same, not computed the same.
    assert stored["data"]["states"]["documents"] > 1 and not whole["data"]["states"]
    losses = [[e["loss"] for e in m["loss_curve"]] for m in (whole, stored)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-2)


@pytest.mark.parametrize("fault", ["weights", "vocabulary", "boundary"])
def test_what_was_not_written_as_measured_is_refused(
    tiny_folder,
    tmp_path,
    cached,  # noqa: F811
    monkeypatch,
    fault,
):
    """The planted faults: weights that were not rounded before they were measured, and
    a shape that is not that of the run."""
    if fault == "weights":
        monkeypatch.setattr(making, "round_to", lambda model, dtype: None)
    else:
        other = {"vocabulary": None, "boundary": 2}[fault]
        real = storage.write
        monkeypatch.setattr(
            storage, "write", lambda *a, **b: real(*a, **{**b, fault: other})
        )
    settings = {"vocabulary": 40, "steps": 1}
    with pytest.raises(ArtifactError, match="another adapter than was measured"):
        train(tmp_path / "tiny", tiny_folder, settings=settings)
    assert not (tmp_path / "tiny").exists()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"settings": {"vocabulary": 257}}, "vocabulary must be at most 256"),
        ({"settings": {"boundary": 3}}, "boundary must be at most 2"),
        ({"settings": {"attention_heads": 5}}, "into 5 heads"),
        ({"rows": 0}, "rows must be at least 1"),
        ({"source_rows": -1}, "source_rows"),
        ({"resume": 1}, "resume"),
        ({"command": None}, "command"),
        ({"recipe": {}}, "recipe"),
    ],
    ids=[f"case{i}" for i in range(8)],
)
def test_what_cannot_be_is_refused_before_the_data_are_made(
    tiny_folder, tmp_path, monkeypatch, changes, told
):
    monkeypatch.setattr(teacher, "make", lambda *a, **b: pytest.fail("data were made"))
    with pytest.raises(SpecbookError, match=told):
        train(tmp_path / "deep" / "tiny", tiny_folder, **changes)
    with pytest.raises(SpecbookError, match="settings cannot be"):
        kangaroo_run.train_kangaroo(
            tmp_path / "x", rows=1, settings=HeadsSettings("hydra")
        )
    assert os.listdir(tmp_path) == []


def test_a_family_that_cannot_draft_is_refused_before_the_data_are_made(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(teacher, "make", lambda *a, **b: pytest.fail("data were made"))
    tiny_model("mistral").save_pretrained(tmp_path / "other")
    with pytest.raises(UnsupportedTargetError, match="Mistral"):
        train(tmp_path / "tiny", tmp_path / "other")
    assert os.listdir(tmp_path) == ["other"]
