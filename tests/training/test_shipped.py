"""The drafts that are shipped: whole, bound to their target, made by their command."""

import shutil
from importlib import import_module

import pytest
import torch
from typer.testing import CliRunner

from specbook import paths, prompts
from specbook.cli import app
from specbook.errors import ArtifactError
from specbook.models import load_target
from specbook.models.checkpoint import load_transformers_model
from specbook.training import artifact, run
from specbook.training.settings import CYCLE, Recipe, Settings

ROOT = paths.data_path("draft")
NAMES = sorted(path.name for path in ROOT.iterdir() if path.is_dir())
target_dir = import_module("specbook.models.fetch").target_dir


@pytest.fixture(params=NAMES)
def folder(request):
    return ROOT / request.param


def test_there_is_a_draft_for_the_default_target():
    assert "smollm2" in NAMES


def test_it_is_what_its_manifest_says(folder):
    manifest = artifact.load_manifest(folder)
    assert (manifest["kind"], manifest["name"]) == ("draft model", folder.name)
    assert manifest["licence"] == "Apache-2.0"
    settings = Settings(**manifest["settings"])
    model = load_transformers_model(folder)
    config = model.config
    assert config.num_hidden_layers == settings.layers
    assert config.hidden_size == settings.width
    assert sum(p.numel() for p in model.parameters()) == manifest["parameters"]
    # Ready for the lean forward, which proves itself against this one.
    assert load_target(folder).forward_name == "lean"


def test_one_flipped_byte_is_refused(folder, tmp_path):
    copy = tmp_path / folder.name
    shutil.copytree(folder, copy)
    path = copy / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(ArtifactError, match=r"model\.safetensors was changed"):
        artifact.load_manifest(copy)


def test_its_command_asks_for_its_settings(folder, monkeypatch):
    manifest = artifact.load_manifest(folder)
    seen = {}

    def train_draft(out, target, **options):
        seen.update(options)
        return {"measured": {}}

    monkeypatch.setattr(run, "train_draft", train_draft)
    done = CliRunner().invoke(app, manifest["command"].split()[1:])
    assert done.exit_code == 0, done.output
    assert seen["settings"].described() == manifest["settings"]
    assert seen["command"] == manifest["command"]
    data = manifest["data"]
    assert seen["recipe"].described() == data["recipe"]
    # As many shards as that command makes: without the last there are too few rows.
    last = data["counts"]["rows"] - seen["rows"]
    assert 0 <= last < data["counts"]["rows"] / len(data["files"]) * 3


def test_the_defaults_are_those_of_the_main_draft():
    manifest = artifact.load_manifest(ROOT / "smollm2")
    assert Settings().described() == manifest["settings"]
    assert Recipe().described() == manifest["data"]["recipe"]


def test_its_numbers_add_up(folder):
    manifest = artifact.load_manifest(folder)
    counts = manifest["data"]["counts"]
    assert set(counts["by_kind"]) == set(CYCLE)
    assert sum(c["rows"] for c in counts["by_kind"].values()) == counts["rows"]
    steps = [entry["step"] for entry in manifest["loss_curve"]]
    assert steps == sorted(set(steps)) and steps[-1] == manifest["settings"]["steps"]
    measured = manifest["measured"]
    assert set(measured) == {*prompts.WORKLOADS, "source"}
    for workload in prompts.WORKLOADS:
        found = measured[workload]
        assert found["by_depth"][0] == [found["agreed"], found["rows"]]
        assert found["top1"] == found["agreed"] / found["rows"]
        for (agreed, _), (_, tried) in zip(
            found["by_depth"], found["by_depth"][1:], strict=False
        ):
            assert tried <= agreed


def test_nothing_of_one_machine_is_told(folder):
    for path in folder.glob("*.json"):
        text = path.read_text(encoding="utf-8")
        if path.name != "tokenizer.json":
            assert not any(f"/{name}/" in text for name in ("home", "root", "tmp"))


@pytest.mark.real
def test_transformers_takes_it_as_the_targets_assistant(folder):
    target = load_target(target_dir())
    artifact.check_target(artifact.load_manifest(folder), target.identity())
    model = target.transformers_model()
    ids = torch.tensor([target.encode_chat("Repeat: one two three, one two three.")])
    options = {
        "attention_mask": torch.ones_like(ids), "max_new_tokens": 16,
        "do_sample": False, "pad_token_id": target.eos_token_id,
    }  # fmt: skip
    alone = model.generate(ids, **options)
    draft = load_transformers_model(folder)
    assert torch.equal(alone, model.generate(ids, assistant_model=draft, **options))


@pytest.mark.real
def test_it_still_says_what_the_target_says(folder):
    """On one answer, so only roughly: the manifest has the shares of all."""
    from specbook.training.agreement import greedy_agreement
    from specbook.training.decoding import continue_all

    target = load_target(target_dir())
    prompt = prompts.load("edit_code", "development")[0]
    (answer,) = continue_all(
        target.transformers_model(),
        [target.encode_chat(prompt.text)],
        temperatures=[0.0],
        max_new_tokens=48,
        top_k=1,
        eos_token_id=target.eos_token_id,
        generator=torch.Generator(),
    )
    found = greedy_agreement(load_transformers_model(folder), [answer])
    assert found["top1"] > 0.3


def test_together_they_stay_small():
    whole = sum(path.stat().st_size for path in ROOT.rglob("*") if path.is_file())
    assert whole <= 50_000_000
