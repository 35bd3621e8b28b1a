"""The heads that are shipped: whole, bound to their target, made by their command."""

from __future__ import annotations

import json
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from specbook import drafts, paths, prompts
from specbook.cli import app
from specbook.engine import generate
from specbook.errors import ArtifactError
from specbook.models import load_target
from specbook.models.heads import storage
from specbook.training import heads_run
from specbook.training.settings import CYCLE, HeadsSettings, Recipe

ROOT = paths.data_path("heads")
SHIPPED = "medusa", "hydra", "hydra_plus", "clover"
target_dir = import_module("specbook.models.fetch").target_dir


@pytest.fixture(params=SHIPPED)
def folder(request: pytest.FixtureRequest) -> Path:
    return ROOT / str(request.param)


@pytest.fixture
def manifest(folder: Path) -> dict[str, Any]:
    return dict(storage.read(folder).manifest)


def test_there_is_one_set_of_each_kind_that_ships() -> None:
    assert {path.name for path in ROOT.iterdir() if path.is_dir()} == set(SHIPPED)


def test_they_are_what_the_manifest_says(
    folder: Path, manifest: dict[str, Any]
) -> None:
    settings = HeadsSettings(**manifest["settings"])
    stored = storage.read(folder)
    assert (settings.kind, settings.heads) == (folder.name, 4)
    assert manifest["licence"] == "Apache-2.0"
    assert stored.heads.config == settings.config(stored.heads.config.width)
    numbers = sum(p.numel() for p in stored.heads.parameters())
    assert numbers == manifest["parameters"]
    assert stored.vocabulary is not None
    assert len(stored.vocabulary) == settings.vocabulary
    # Two bytes a number: no copy of the embedding or of the LM head is among them.
    size = (folder / "heads.safetensors").stat().st_size
    assert 2 * numbers < size < 2 * numbers + 10_000


def test_one_flipped_byte_is_refused(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / folder.name
    shutil.copytree(folder, copy)
    path = copy / "heads.safetensors"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(ArtifactError, match=r"heads\.safetensors was changed"):
        storage.read(copy)


def test_their_command_asks_for_their_settings(
    manifest: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Any] = {}

    def train_heads(out: Any, target: Any, **options: Any) -> dict[str, Any]:
        seen.update(options)
        return {"measured": {}}

    monkeypatch.setattr(heads_run, "train_heads", train_heads)
    done = CliRunner().invoke(app, manifest["command"].split()[1:])
    assert done.exit_code == 0, done.output
    assert seen["settings"].described() == manifest["settings"]
    assert seen["command"] == manifest["command"]
    assert seen["recipe"].described() == manifest["data"]["recipe"]
    data = manifest["data"]
    last = data["counts"]["rows"] - seen["rows"]
    assert 0 <= last < data["counts"]["rows"] / len(data["files"]) * 3


def test_all_kinds_were_taught_the_same_by_the_same() -> None:
    """What differs between their numbers is their architecture."""
    every = [storage.read(ROOT / kind).manifest for kind in SHIPPED]
    for name in ("data", "target", "versions", "machine"):
        assert all(one[name] == every[0][name] for one in every), name
    kept = [
        {k: v for k, v in one["settings"].items() if k not in ("kind", "start")}
        for one in every
    ]
    assert all(settings == kept[0] for settings in kept)
    assert every[0]["data"]["recipe"] == Recipe().described()


def test_their_numbers_add_up(manifest: dict[str, Any]) -> None:
    counts = manifest["data"]["counts"]
    assert set(counts["by_kind"]) == set(CYCLE)
    assert sum(c["rows"] for c in counts["by_kind"].values()) == counts["rows"]
    steps = [entry["step"] for entry in manifest["loss_curve"]]
    assert steps == sorted(set(steps)) and steps[-1] == manifest["settings"]["steps"]
    assert set(manifest["measured"]) == {*prompts.WORKLOADS, "source"}
    for found in manifest["measured"].values():
        assert found["top1"] == [agreed / tried for agreed, tried in found["forced"]]
        assert found["chain"][0] == found["forced"][0]
        for (agreed, _), (_, tried) in zip(
            found["chain"], found["chain"][1:], strict=False
        ):
            assert tried <= agreed


def test_nothing_of_one_machine_is_told(folder: Path) -> None:
    for path in folder.glob("*.json"):
        text = path.read_text(encoding="utf-8")
        json.loads(text)
        assert not any(f"/{name}/" in text for name in ("home", "root", "tmp"))


def test_all_that_is_shipped_stays_small() -> None:
    data = paths.data_path("heads").parent
    whole = sum(path.stat().st_size for path in data.rglob("*") if path.is_file())
    assert whole <= 90_000_000


@pytest.mark.real
def test_the_target_says_the_same_with_them() -> None:
    """One code prompt, every kind, as a tree: greedy tokens are those of plain steps,
    in fewer rounds."""
    target = load_target(target_dir())
    prompt = prompts.load("edit_code", "development")[0]
    ids = target.encode_chat(prompt.text)
    options = {"max_new_tokens": 32, "temperature": 0, "seed": 0}
    plain = generate(target, ids, None, "greedy", **options)
    for kind in SHIPPED:
        source = drafts.make(kind, widths=(3, 2, 1), children="top_k")
        found = generate(target, ids, source, "greedy", **options)
        assert found.tokens == plain.tokens, kind
        assert len(found.rounds) < len(plain.rounds), kind
