"""The integration matrix and the recipes: what ships, and what the papers report."""

import json
import re
import shutil
from dataclasses import replace

import pytest

from specbook import drafts, paths
from specbook.errors import ArtifactError, SpecbookError
from specbook.models import skip_storage
from specbook.models.heads import build, config_of, storage
from specbook.training import artifact, integration, recipes

TARGET = {"checkpoint": "c", "tokenizer": "t"}
SETTINGS = {
    "kind": "hydra",
    "loss": "teacher",
    "decay": 1.0,
    "self_share": 0.0,
    "steps": 40,
    "learning_rate": 1e-3,
}
FACTS = {
    "target": TARGET,
    "settings": SETTINGS,
    "parameters": 1234,
    "data": {"counts": {"rows": 5000}},
    "loss_curve": [{"step": 20, "epoch": 0, "loss": 2}, {"step": 40, "epoch": 2}],
}


def heads_in(root, **changes):
    """An artifact of small Hydra heads in `root`/heads/hydra."""
    made = root / "made"
    made.mkdir(parents=True)
    storage.write(made, build(config_of("hydra", 8, heads=2)))
    facts = {"kind": storage.KIND, "name": "hydra", **FACTS, **changes}
    return artifact.publish(made, root / "heads" / "hydra", facts)


def test_each_registered_source_has_a_row():
    rows = integration.matrix([])
    assert [row.source for row in rows] == drafts.names()
    for row, name in zip(rows, drafts.names(), strict=True):
        contract = drafts.get(name).contract
        assert row.loaded == contract.weights
        assert row.versioned.split("; ") == list(contract.invalidated_by)
        assert contract.state in row.rolled_back and contract.cache in row.rolled_back
        bare = contract.weights == "none"
        assert row.trained == ("nothing" if bare else "nothing that ships")


def test_an_artifact_stands_in_its_sources_row(tmp_path):
    heads_in(tmp_path)
    found = integration.shipped(tmp_path)
    assert [one.source for one in found] == ["hydra"]
    files = [f for f in found[0].folder.iterdir() if f.name != "manifest.json"]
    assert found[0].size == sum(f.stat().st_size for f in files)
    trained = {row.source: row.trained for row in integration.matrix(found)}
    assert trained.pop("hydra").startswith("hydra: 1,234 weights, ")
    assert set(trained.values()) == {"nothing", "nothing that ships"}


def test_a_damaged_or_unknown_artifact_is_refused(tmp_path):
    heads_in(tmp_path)
    (tmp_path / "heads" / "hydra" / "more.txt").touch()
    with pytest.raises(ArtifactError, match=r"more\.txt"):
        integration.shipped(tmp_path)
    shutil.rmtree(tmp_path)
    unknown = {**SETTINGS, "kind": "eagle"}
    heads_in(tmp_path, settings=unknown, name="eagle")
    with pytest.raises(ArtifactError, match="no registered source"):
        integration.shipped(tmp_path)


@pytest.mark.parametrize("number", ["many", -1, None])
def test_an_artifact_that_does_not_tell_its_size_is_refused(tmp_path, number):
    heads_in(tmp_path)
    path = tmp_path / "heads" / "hydra" / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**manifest, "parameters": number}), encoding="utf-8")
    with pytest.raises(ArtifactError, match="parameters"):
        integration.shipped(tmp_path)


def test_what_the_book_ships_is_found():
    found = integration.shipped()
    folders = sorted(
        path.parent
        for top in ("adapters", "draft", "heads")
        if (paths.data_path() / top).exists()
        for path in (paths.data_path() / top).glob("*/manifest.json")
    )
    assert sorted(one.folder for one in found) == folders
    assert {one.source for one in found} >= {"draft_model", "kangaroo"}
    assert integration.SEARCHED == skip_storage.KIND


# ---- recipes ---------------------------------------------------------------------


def test_what_is_reported_cites_the_bibliography():
    told = recipes.reported()
    text = paths.data_path("references.bib").read_text(encoding="utf-8")
    keys = set(re.findall(r"@\w+\{([^,]+),", text))
    assert len(told) > 5 and len({one.name for one in told}) == len(told)
    for one in told:
        assert set(one.said_in) <= keys, one.name
    assert {one.source for one in told} >= {"medusa", "hydra", "hydra_plus", "clover"}


def test_our_own_recipe_is_read_from_a_manifest(tmp_path):
    manifest = heads_in(tmp_path)
    told = recipes.of_manifest(manifest, "hydra")
    assert told.makes.startswith("1,234 weights")
    assert told.learns == "the target's law, 5,000 rows" and told.passes == "3"
    assert told.steps.endswith("from 0.001, 40 steps") and told.said_in == ()
    changed = {**SETTINGS, "loss": "label", "decay": 0.8, "self_share": 0.25}
    told = recipes.of_manifest({**manifest, "settings": changed}, "hydra")
    assert told.learns.startswith("hard labels, head i weighs 0.8")
    assert "25% of the rows" in told.learns
    changed = {**SETTINGS, "state_weight": 0.1, "start": "least_squares"}
    told = recipes.of_manifest({**manifest, "settings": changed}, "hydra")
    assert told.learns.startswith("the target's law and its next state, ")
    assert told.steps.startswith("least squares, then AdamW, ")


@pytest.mark.parametrize("field", ["settings", "loss_curve", "data", "parameters"])
def test_a_manifest_without_a_recipe_is_refused(tmp_path, field):
    manifest = heads_in(tmp_path)
    for broken in ({}, [], None):
        with pytest.raises(SpecbookError, match="tells no recipe"):
            recipes.of_manifest({**manifest, field: broken}, "hydra")


@pytest.mark.parametrize(
    "changes",
    [
        {"steps": float("inf")},
        {"decay": "x"},
        {"decay": [1]},
        {"self_share": "half"},
        {"self_share": {}},
        {"state_weight": "no"},
    ],
)
def test_settings_that_are_no_numbers_tell_no_recipe(tmp_path, changes):
    manifest = heads_in(tmp_path)
    with pytest.raises(SpecbookError, match="tells no recipe"):
        recipes.of_manifest({**manifest, "settings": {**SETTINGS, **changes}}, "hydra")
    with pytest.raises(SpecbookError, match="tells no recipe"):
        recipes.of_manifest({**manifest, "name": None}, "hydra")
    endless = [{**manifest["loss_curve"][-1], "epoch": float("inf")}]
    with pytest.raises(SpecbookError, match="tells no recipe"):
        recipes.of_manifest({**manifest, "loss_curve": endless}, "hydra")


@pytest.mark.parametrize(
    "fault", ["nothing cited", "unknown field", "no name", "no list"]
)
def test_a_broken_file_of_recipes_is_refused(tmp_path, monkeypatch, fault):
    row = {
        name: json.dumps(getattr(recipes.reported()[0], name))
        for name in ("name", "source", "makes", "learns", "passes", "steps")
    }
    row["said_in"] = '["hydra-code"]'
    if fault == "nothing cited":
        row["said_in"] = "[]"
    elif fault == "unknown field":
        row["speed"] = "2"
    elif fault == "no name":
        del row["name"]
    head = "[recipe]" if fault == "no list" else "[[recipe]]"
    lines = [head, *(f"{name} = {value}" for name, value in row.items())]
    path = tmp_path / "recipes.toml"
    path.write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.setattr(paths, "data_path", lambda *parts: path)
    with pytest.raises(ArtifactError, match=r"recipes\.toml"):
        recipes.reported()


def test_a_recipe_is_of_plain_texts():
    one = recipes.reported()[0]
    with pytest.raises(SpecbookError, match="learns"):
        replace(one, learns=3)
    with pytest.raises(SpecbookError, match="said_in"):
        replace(one, said_in="cai2024medusa")
