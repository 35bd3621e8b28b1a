"""Kangaroo's adapter on disk: what is read is what was written, or it is refused."""

import json
import os

import pytest
import torch
from safetensors.torch import load_file, save_file

from specbook.errors import ArtifactError, SpecbookError
from specbook.models import kangaroo_storage as storage
from specbook.models.kangaroo import Adapter
from specbook.training import artifact

TARGET = {"checkpoint": "c", "tokenizer": "t"}


def adapter_of(seed=0):
    adapter = Adapter(16, 4)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in adapter.parameters():
            parameter.normal_(generator=generator).copy_(parameter.bfloat16())
    return adapter


def written(root, adapter=None, **options):
    made = root / "made"
    made.mkdir()
    adapter = adapter or adapter_of()
    storage.write(made, adapter, **{"boundary": 3, "vocabulary": [5, 2], **options})
    told = {"kind": storage.KIND, "name": "x", "target": TARGET}
    artifact.publish(made, root / "x", told)
    return root / "x"


def changed(folder, change):
    """The config of `folder` after `change`, with a manifest that agrees."""
    path = folder / storage.CONFIG
    told = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(change(told)), encoding="utf-8")
    bind(folder)


def bind(folder):
    path = folder / artifact.MANIFEST
    manifest = json.loads(path.read_text(encoding="utf-8"))
    for name in manifest["files"]:
        manifest["files"][name] = artifact.file_sha256(folder / name)
    path.write_text(json.dumps(manifest), encoding="utf-8")


def test_what_is_read_is_what_was_written(tmp_path):
    adapter = adapter_of()
    before = torch.random.get_rng_state()
    folder = written(tmp_path, adapter)
    found = storage.read(folder)
    assert torch.equal(before, torch.random.get_rng_state())
    assert storage.digest(found.adapter) == storage.digest(adapter)
    assert storage.digest(found.adapter) != storage.digest(adapter_of(1))
    assert (found.boundary, found.vocabulary) == (3, (2, 5))
    assert not found.adapter.training
    assert sorted(os.listdir(folder)) == [
        storage.CONFIG,
        storage.WEIGHTS,
        artifact.MANIFEST,
    ]
    storage.check_target(found, TARGET)
    for other in ({**TARGET, "checkpoint": "d"}, {**TARGET, "tokenizer": "d"}):
        with pytest.raises(ArtifactError, match="was trained for"):
            storage.check_target(found, other)
    again = tmp_path / "again"
    again.mkdir()
    other = storage.read(written(again, adapter, boundary=2, vocabulary=None))
    assert (other.boundary, other.vocabulary) == (2, None)
    assert other.sha256 != found.sha256


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda told: {**told, "boundary": 0}, "boundary"),
        (lambda told: {**told, "boundary": True}, "boundary"),
        (lambda told: {**told, "vocabulary": [3, 3]}, "twice"),
        (lambda told: {**told, "attention_heads": 3}, "3 heads"),
        (lambda told: {**told, "width": 8}, "its config needs"),
        (lambda told: {**told, "more": 1}, "its fields"),
        (lambda told: {n: told[n] for n in told if n != "width"}, "its fields"),
        (lambda told: [1], "no config"),
        (lambda told: {**told, "width": 10**9 * 8}, r"config"),
    ],
    ids=[f"case{i}" for i in range(9)],
)
def test_a_config_that_is_none_is_refused(tmp_path, change, told):
    folder = written(tmp_path)
    changed(folder, change)
    with pytest.raises(ArtifactError, match=told):
        storage.read(folder)


def test_other_weights_are_refused(tmp_path):
    folder = written(tmp_path)
    path = folder / storage.WEIGHTS
    tensors = load_file(path)
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    with pytest.raises(ArtifactError, match="was changed"):
        storage.read(folder)
    save_file({**tensors, "norm3": tensors["norm1"].clone()}, path)
    bind(folder)
    with pytest.raises(ArtifactError, match="norm3"):
        storage.read(folder)
    path.write_bytes(b"no tensors")
    bind(folder)
    with pytest.raises(ArtifactError, match="cannot be read"):
        storage.read(folder)


def test_another_kind_of_artifact_is_refused(tmp_path):
    folder = written(tmp_path)
    path = folder / artifact.MANIFEST
    manifest = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**manifest, "kind": "draft heads"}), encoding="utf-8")
    with pytest.raises(ArtifactError, match="holds a draft heads"):
        storage.read(folder)
    del manifest["files"][storage.CONFIG]
    (folder / storage.CONFIG).unlink()
    path.write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(ArtifactError, match="an artifact of this kind is"):
        storage.read(folder)
    for nothing in (tmp_path / "none", 3):
        with pytest.raises(ArtifactError):
            storage.read(nothing)


def test_what_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(SpecbookError, match="adapter must be an Adapter"):
        storage.write(tmp_path, torch.nn.Linear(2, 2), boundary=1)
    for options in ({"boundary": 0}, {"vocabulary": []}, {"dtype": "int8"}):
        with pytest.raises(SpecbookError, match=next(iter(options))):
            storage.write(tmp_path, adapter_of(), **{"boundary": 1, **options})
    large = adapter_of()
    with torch.no_grad():
        large.norm1[0] = 1e6
    with pytest.raises(SpecbookError, match="norm1 has a number that float16"):
        storage.write(tmp_path, large, boundary=1, dtype="float16")
    with pytest.raises(ArtifactError, match="cannot be written to"):
        storage.write(tmp_path / "none", adapter_of(), boundary=1)
