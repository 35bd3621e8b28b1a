"""An artifact is what its manifest says, or it is refused."""

import json
import os

import pytest

from specbook.errors import ArtifactError, SpecbookError
from specbook.training import artifact


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "made"
    made.mkdir()
    (made / "model.safetensors").write_bytes(bytes(range(64)))
    (made / "config.json").write_text("{}", encoding="utf-8")
    final = tmp_path / "deep" / "final"
    manifest = artifact.publish(
        made,
        final,
        {"kind": "draft model", "name": "x", "target": {"tokenizer": "sha256:1"}},
    )
    assert not made.exists() and manifest["name"] == "x"
    return final


def test_what_was_published_loads(folder):
    manifest = artifact.load_manifest(folder)
    assert set(manifest["files"]) == {"model.safetensors", "config.json"}
    assert artifact.load_manifest(str(folder)) == manifest
    (folder / ".system").write_text("", encoding="utf-8")
    artifact.load_manifest(folder)


def test_every_flipped_byte_is_found(folder):
    for name in ("model.safetensors", "config.json"):
        path = folder / name
        data = path.read_bytes()
        for place in range(len(data)):
            damaged = bytearray(data)
            damaged[place] ^= 1
            path.write_bytes(damaged)
            with pytest.raises(ArtifactError, match=f"{name} was changed"):
                artifact.load_manifest(folder)
        path.write_bytes(data)
    artifact.load_manifest(folder)


def rewritten(folder, **changes):
    path = folder / artifact.MANIFEST
    manifest = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**manifest, **changes}), encoding="utf-8")


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("cut", r"model\.safetensors was changed"),
        ("longer", r"model\.safetensors was changed"),
        ("gone", r"config\.json cannot be read"),
        ("more", r"added\.json does not belong"),
        ("format", "format 2"),
        ("true", "format True"),
        ("outside", "no file of its own"),
        ("pickle", "only safetensors"),
        ("fields", "needs format, kind, name, files"),
        ("none", "lists no files"),
        ("json", "cannot be read"),
        ("missing", "no artifact"),
    ],
)
def test_a_changed_folder_is_refused(folder, fault, told):
    weights = folder / "model.safetensors"
    files = artifact.load_manifest(folder)["files"]
    if fault == "cut":
        weights.write_bytes(weights.read_bytes()[:-1])
    elif fault == "longer":
        weights.write_bytes(weights.read_bytes() + b"\0")
    elif fault == "gone":
        (folder / "config.json").unlink()
    elif fault == "more":
        (folder / "added.json").write_text("{}", encoding="utf-8")
    elif fault == "format":
        rewritten(folder, format=2)
    elif fault == "true":
        rewritten(folder, format=True)
    elif fault == "outside":
        rewritten(folder, files={**files, "../x.json": "0"})
    elif fault == "pickle":
        (folder / "state.bin").write_bytes(b"")
        rewritten(folder, files={**files, "state.bin": "0"})
    elif fault == "fields":
        (folder / artifact.MANIFEST).write_text("{}", encoding="utf-8")
    elif fault == "none":
        rewritten(folder, files={})
    elif fault == "json":
        (folder / artifact.MANIFEST).write_text("{", encoding="utf-8")
    else:
        (folder / artifact.MANIFEST).unlink()
    with pytest.raises(ArtifactError, match=told):
        artifact.load_manifest(folder)


def test_it_is_bound_to_the_tokenizer_of_its_target(folder):
    manifest = artifact.load_manifest(folder)
    artifact.check_target(manifest, {"tokenizer": "sha256:1", "checkpoint": "any"})
    with pytest.raises(ArtifactError, match="'x' was trained for the tokenizer"):
        artifact.check_target(manifest, {"tokenizer": "sha256:2"})
    with pytest.raises(ArtifactError, match="does not say"):
        artifact.check_target({"name": "x"}, {"tokenizer": "sha256:1"})


def test_only_an_artifact_is_replaced(folder, tmp_path):
    def made():
        new = tmp_path / "new"
        new.mkdir(exist_ok=True)
        (new / "model.safetensors").write_bytes(b"other")
        return new

    facts = {"kind": "draft model", "name": "y"}
    artifact.publish(made(), folder, facts)
    assert artifact.load_manifest(folder)["name"] == "y"
    assert os.listdir(folder.parent) == ["final"]
    other = tmp_path / "other"
    other.mkdir()
    artifact.publish(made(), other, facts)  # an empty folder is free
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("x", encoding="utf-8")
    with pytest.raises(SpecbookError, match="not replaced"):
        artifact.publish(made(), precious, facts)
    assert os.listdir(precious) == ["thesis.txt"]
    with pytest.raises(SpecbookError, match="is a file"):
        artifact.publish(made(), precious / "thesis.txt", facts)
    for nameless in ({"kind": "draft model"}, {"name": "x"}):
        with pytest.raises(SpecbookError, match="must be text"):
            artifact.publish(made(), tmp_path / "free", nameless)


@pytest.mark.parametrize("there", [True, False], ids=["folder", "nothing"])
def test_a_link_is_not_replaced(tmp_path, there):
    """The folder would get the link's place; the one it names would stay as it was."""
    named, link = tmp_path / "named", tmp_path / "link"
    if there:
        named.mkdir()
    link.symlink_to(named)
    with pytest.raises(SpecbookError, match="link is a symbolic link"):
        artifact.check_free(link)


def test_a_replacement_that_fails_leaves_the_old_one(folder, tmp_path, monkeypatch):
    new = tmp_path / "new"
    new.mkdir()
    (new / "model.safetensors").write_bytes(b"other")
    plain = os.rename

    def rename(source, destination):
        if source == new:
            raise OSError("gone")
        plain(source, destination)

    monkeypatch.setattr(artifact.os, "rename", rename)
    with pytest.raises(OSError, match="gone"):
        artifact.publish(new, folder, {"kind": "draft model", "name": "y"})
    monkeypatch.undo()
    assert artifact.load_manifest(folder)["name"] == "x"
    assert os.listdir(folder.parent) == ["final"]


@pytest.mark.parametrize("folder", [None, 3, b"x"], ids=["none", "number", "bytes"])
def test_a_folder_is_a_path(folder):
    with pytest.raises(ArtifactError, match="a folder"):
        artifact.load_manifest(folder)
