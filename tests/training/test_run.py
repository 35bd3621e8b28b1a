"""From a target to a folder that transformers loads: the whole of `train draft`."""

import dataclasses
import json
import os

import pytest
import torch

from specbook.errors import ArtifactError, SpecbookError
from specbook.models import load_target
from specbook.models.checkpoint import load_transformers_model
from specbook.training import artifact, run, teacher
from specbook.training.settings import Recipe, Settings

from .test_teacher import short_validation  # noqa: F401

RECIPE = Recipe(
    sequences=2, top_k=4, prompt_tokens=700, window_tokens=60, packages=("rich",)
)
SETTINGS = Settings(
    layers=2, width=24, inner=32, heads=4, kv_heads=2, start="embeddings", steps=4,
    rows_per_step=900, checkpoint_every=2,
)  # fmt: skip


@pytest.fixture
def cached(monkeypatch, tmp_path_factory, short_validation):  # noqa: F811
    monkeypatch.setenv("SPECBOOK_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def train(out, tiny_folder, **changes):
    options = {
        "rows": 1000,
        "settings": SETTINGS,
        "recipe": RECIPE,
        "command": "specbook train draft",
        **changes,
    }
    return run.train_draft(out, str(tiny_folder), **options)


def test_a_draft_is_an_ordinary_checkpoint(tiny_folder, tmp_path, cached):
    out = tmp_path / "data" / "tiny"
    manifest = train(out, tiny_folder)
    assert artifact.load_manifest(out) == json.loads(json.dumps(manifest))
    assert os.listdir(out.parent) == ["tiny"]

    plain = load_transformers_model(out)
    assert plain.config.num_hidden_layers == 2 and plain.config.hidden_size == 24
    weights = [p for p in plain.parameters()]
    assert all(torch.equal(p, p.bfloat16().float()) for p in weights)
    lean = load_target(out)
    assert lean.forward_name == "lean"
    assert lean.encode("abc") == load_target(tiny_folder).encode("abc")

    # As transformers' own assistant: greedy text stays the target's.
    target = load_transformers_model(tiny_folder)
    ids = torch.tensor([[5, 9, 1, 7]])
    options = {
        "attention_mask": torch.ones_like(ids), "max_new_tokens": 12,
        "do_sample": False, "pad_token_id": 0,
    }  # fmt: skip
    alone = target.generate(ids, **options)
    assert torch.equal(alone, target.generate(ids, assistant_model=plain, **options))


def test_the_manifest_tells_how_it_was_made(tiny_folder, tmp_path, cached):
    manifest = train(tmp_path / "tiny", tiny_folder)
    target = load_target(tiny_folder).identity()
    artifact.check_target(manifest, target)
    assert manifest["target"]["checkpoint"] == target["checkpoint"]
    assert manifest["command"] == "specbook train draft"
    assert manifest["settings"] == SETTINGS.described()
    assert [entry["step"] for entry in manifest["loss_curve"]] == [2, 4]
    assert manifest["data"]["recipe"] == RECIPE.described()
    assert manifest["data"]["counts"]["rows"] >= 1000
    assert set(manifest["versions"]) >= {"torch", "transformers", "specbook"}
    measured = manifest["measured"]
    for workload in ("edit_code", "continue_code", "answer_from_text", "chat"):
        found = measured[workload]
        assert found["by_depth"][0] == [found["agreed"], found["rows"]]
        assert 0 <= found["shared_mass_at_0.7"] <= 1
    # What is written is what was measured.
    model = load_transformers_model(tmp_path / "tiny")
    data = teacher.make(str(tiny_folder), RECIPE, rows=1000)
    again = run.measure(model, str(tiny_folder), data.validation_sequences())
    assert json.loads(json.dumps(again)) == json.loads(json.dumps(measured))


def test_an_interrupted_run_writes_nothing_and_asks_for_resume(
    tiny_folder, tmp_path, cached, monkeypatch
):
    real = run.validation_numbers
    calls = []

    def breaks(model, validation):
        calls.append(0)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(model, validation)

    out = tmp_path / "b" / "tiny"
    monkeypatch.setattr(run, "validation_numbers", breaks)
    with pytest.raises(KeyboardInterrupt):
        train(out, tiny_folder)
    assert not out.exists()
    monkeypatch.undo()
    monkeypatch.setenv("SPECBOOK_CACHE", str(tmp_path / "nothing"))
    with pytest.raises(ArtifactError, match="--resume"):
        train(out, tiny_folder)
    assert not (tmp_path / "nothing").exists()


def test_resumed_weights_are_the_same(tiny_folder, tmp_path, cached, monkeypatch):
    whole = train(tmp_path / "a" / "tiny", tiny_folder)
    out = tmp_path / "b" / "tiny"
    real = run.draft.train

    def stops(*arguments, **options):
        real(*arguments, **options, stop_after=2)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(run.draft, "train", stops)
        with pytest.raises(KeyboardInterrupt):
            train(out, tiny_folder)
    resumed = train(out, tiny_folder, resume=True)
    assert resumed["files"] == whole["files"]
    assert os.listdir(out.parent) == ["tiny"]


def test_weights_that_were_not_written_as_measured_are_refused(
    tiny_folder, tmp_path, cached, monkeypatch
):
    """The planted fault: the folder is written before the weights are rounded."""
    monkeypatch.setattr(run, "_round", lambda model: None)
    with pytest.raises(ArtifactError, match="other logits"):
        train(tmp_path / "tiny", tiny_folder)
    assert not (tmp_path / "tiny").exists()


def test_a_folder_that_is_in_the_way_is_refused_before_the_work(tiny_folder, tmp_path):
    (tmp_path / "thesis.txt").write_text("x", encoding="utf-8")
    with pytest.raises(SpecbookError, match="not replaced"):
        train(tmp_path, tiny_folder)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"width": 36}, "width must be at most 32"),
        ({"heads": 10, "kv_heads": 5}, "no such student"),
        ({"start": "copying"}, "copying start needs"),
    ],
    ids=["width", "heads", "copying"],
)
def test_a_draft_that_cannot_be_is_refused_before_the_data_are_made(
    tiny_folder, tmp_path, monkeypatch, changes, told
):
    monkeypatch.setattr(teacher, "make", lambda *a, **b: pytest.fail("data were made"))
    with pytest.raises(SpecbookError, match=told):
        train(
            tmp_path / "deep" / "tiny",
            tiny_folder,
            settings=dataclasses.replace(SETTINGS, **changes),
        )
    assert os.listdir(tmp_path) == []


def test_a_place_that_cannot_be_written_is_refused_before_the_data_are_made(
    tiny_folder, tmp_path, monkeypatch
):
    monkeypatch.setattr(teacher, "make", lambda *a, **b: pytest.fail("data were made"))
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(ArtifactError, match="file.* cannot be written to"):
        train(tmp_path / "file" / "tiny", tiny_folder)
