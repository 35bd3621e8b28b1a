"""The skip vector and the adapter that are shipped: whole, bound to their target, made
by their commands."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from specbook import drafts, paths, prompts
from specbook.cli import app
from specbook.engine import generate
from specbook.errors import ArtifactError
from specbook.measure import skip_search
from specbook.measure.skip_objective import SkipCosts, SkipCounts, predicted
from specbook.models import kangaroo_storage, load_target, skip_storage
from specbook.models.skip_layers import SkipVector
from specbook.training import kangaroo_run
from specbook.training.settings import KangarooSettings

SKIP = paths.data_path("skip", "smollm2")
ADAPTER = paths.data_path("adapters", "smollm2")
READ: dict[Path, Callable[[Any], Any]] = {
    SKIP: skip_storage.read,
    ADAPTER: kangaroo_storage.read,
}
target_dir = import_module("specbook.models.fetch").target_dir


def asked(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, command: str
) -> dict[str, Any]:
    """The options that reach a training when `command` is run."""
    seen: dict[str, Any] = {}

    def train(out: Any, target: Any, **options: Any) -> dict[str, Any]:
        seen.update(options)
        return {"measured": {}}

    monkeypatch.setattr(module, name, train)
    done = CliRunner().invoke(app, command.split()[1:])
    assert done.exit_code == 0, done.output
    assert seen["command"] == command
    return seen


def test_the_adapter_is_what_its_manifest_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored = kangaroo_storage.read(ADAPTER)
    manifest = stored.manifest
    told = dict(manifest["settings"])
    assert told.pop("kind") == "kangaroo"
    settings = KangarooSettings(**told)
    assert stored.boundary == settings.boundary
    assert stored.adapter.heads == settings.attention_heads
    assert stored.vocabulary is not None
    assert len(stored.vocabulary) == settings.vocabulary
    numbers = sum(p.numel() for p in stored.adapter.parameters())
    assert numbers == manifest["parameters"]
    # Two bytes a number: neither a layer of the target nor its LM head is among them.
    size = (ADAPTER / "adapter.safetensors").stat().st_size
    assert 2 * numbers < size < 2 * numbers + 10_000
    seen = asked(monkeypatch, kangaroo_run, "train_kangaroo", manifest["command"])
    assert seen["settings"] == settings
    assert seen["recipe"].described() == manifest["data"]["recipe"]


def test_the_adapter_was_taught_what_the_heads_were() -> None:
    told = kangaroo_storage.read(ADAPTER).manifest
    heads = json.loads(
        paths.data_path("heads", "hydra", "manifest.json").read_text(encoding="utf-8")
    )
    for name in ("recipe", "corpus", "key", "counts", "files", "validation"):
        assert told["data"][name] == heads["data"][name], name
    assert told["target"] == heads["target"]


def test_the_vector_is_the_best_of_its_history(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every value follows from what was counted and what was measured once."""
    stored = skip_storage.read(SKIP)
    settings = stored.manifest["settings"]
    costs = SkipCosts.from_dict(stored.manifest["costs"])
    values = {}
    for entry in stored.history:
        vector = SkipVector.from_text(entry["vector"])
        counts = entry["counts"]
        rows = tuple((n, rounds) for n, rounds in counts["rows"])
        value = predicted(vector, SkipCounts(**{**counts, "rows": rows}), costs)
        assert entry["predicted"] == pytest.approx(value, rel=1e-12)
        values[vector] = entry[settings["objective"]]
        assert entry["value"] == values[vector]
    assert len(values) == len(stored.history) == settings["trials"]
    assert stored.vector.skipped
    assert values[stored.vector] == min(v for z, v in values.items() if z.skipped)
    assert stored.choice["plain"] == pytest.approx(costs.plain(), rel=1e-12)
    seen = asked(monkeypatch, skip_search, "train_skip", stored.manifest["command"])
    assert {name: seen[name] for name in ("objective", "sampler", "seed", "most")} == {
        name: settings[name] for name in ("objective", "sampler", "seed", "most")
    }
    assert seen["trials"] == settings["trials"]


@pytest.mark.parametrize("folder", READ, ids=["skip", "adapter"])
def test_one_flipped_byte_is_refused(folder: Path, tmp_path: Path) -> None:
    for name in READ[folder](folder).manifest["files"]:
        copy = tmp_path / name / folder.name
        shutil.copytree(folder, copy)
        data = bytearray((copy / name).read_bytes())
        data[len(data) // 2] ^= 1
        (copy / name).write_bytes(data)
        with pytest.raises(ArtifactError, match="was changed"):
            READ[folder](copy)


@pytest.mark.parametrize("folder", READ, ids=["skip", "adapter"])
def test_nothing_of_one_machine_is_told(folder: Path) -> None:
    for path in folder.glob("*.json"):
        text = path.read_text(encoding="utf-8")
        json.loads(text)
        assert not any(f"/{name}/" in text for name in ("home", "root", "tmp"))


@pytest.mark.real
def test_the_target_says_the_same_with_them() -> None:
    """One code prompt: greedy tokens are those of plain steps, in fewer rounds; also
    with both merged, and with a lookup beside them."""
    target = load_target(target_dir())
    prompt = prompts.load("edit_code", "development")[0]
    ids = target.encode_chat(prompt.text)
    options = {"max_new_tokens": 32, "temperature": 0, "seed": 0}
    plain = generate(target, ids, None, "greedy", **options)
    for names in (
        ["draft_verify"],
        ["kangaroo"],
        ["kangaroo", "prompt_lookup"],
    ):
        sources = [drafts.make(name) for name in names]
        found = generate(target, ids, sources, "greedy", **options)
        assert found.tokens == plain.tokens, names
        assert len(found.rounds) < len(plain.rounds), names
