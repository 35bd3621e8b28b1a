"""Shards: whole or not at all, and of this teacher only."""

import json
import os

import numpy as np
import pytest

from specbook.errors import ArtifactError, SpecbookError
from specbook.training import shards
from specbook.training.decoding import TaughtSequence


def sequence(length=6, first=2, k=3, largest=50, seed=0):
    generator = np.random.default_rng(seed)
    rows = length - 1 - first
    return TaughtSequence(
        generator.integers(largest, size=length),
        first,
        3,
        generator.integers(largest, size=(rows, k)),
        -generator.random((rows, k)).astype(np.float32),
    )


def same(one, other):
    assert (one.tokens == other.tokens).all()
    assert (one.top_ids == other.top_ids).all()
    assert one.tokens.dtype == one.top_ids.dtype == np.int64
    assert (one.first_row, one.prompt_length) == (other.first_row, other.prompt_length)
    # float16 keeps eleven bits.
    assert np.abs(one.top_logps - other.top_logps).max() <= 2**-11


@pytest.mark.parametrize("largest", [50, 1 << 16, 1 << 20])
def test_what_is_read_is_what_was_written(tmp_path, largest):
    path = tmp_path / "deep" / "one.safetensors"
    written = [sequence(seed=i, length=4 + i, largest=largest) for i in range(5)]
    sha256 = shards.write(path, written, key="k", about={"kind": "chat"})
    found, about = shards.read(path, key="k")
    assert about == {"kind": "chat"} and len(found) == 5
    for one, other in zip(found, written, strict=True):
        same(one, other)
    assert sha256 == shards.file_sha256(path)
    # The same bytes every time: their hash is what a manifest binds.
    assert sha256 == shards.write(path, written, key="k", about={"kind": "chat"})
    assert os.listdir(path.parent) == ["one.safetensors"]


def test_a_write_that_breaks_off_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "one.safetensors"
    before = shards.write(path, [sequence()], key="k")

    def fails(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shards.os, "fsync", fails)
    with pytest.raises(ArtifactError, match="one.* cannot be written: .*No space left"):
        shards.write(path, [sequence(seed=1)], key="k")
    with pytest.raises(ArtifactError, match="below cannot be written"):
        shards.write(path / "below", [sequence(seed=1)], key="k")
    assert os.listdir(tmp_path) == ["one.safetensors"]
    assert shards.file_sha256(path) == before


def test_another_teacher_is_refused(tmp_path):
    path = tmp_path / "one.safetensors"
    shards.write(path, [sequence()], key="one")
    with pytest.raises(ArtifactError, match="another teacher or recipe.*'one'"):
        shards.read(path, key="two")


@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "header", "foreign"])
def test_a_damaged_shard_is_refused(tmp_path, damage):
    path = tmp_path / "one.safetensors"
    shards.write(path, [sequence()], key="k")
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "cut":
        path.write_bytes(data[:-1])
    elif damage == "header":
        path.write_bytes(data[:8] + b"\0" + data[9:])
    else:
        path.write_bytes(data.replace(b"teacher rows 1", b"teacher rows 2"))
    with pytest.raises(ArtifactError, match=r"one\.safetensors"):
        shards.read(path, key="k")


def test_lengths_that_do_not_add_up_are_refused(tmp_path):
    from safetensors.numpy import load, save

    path = tmp_path / "one.safetensors"
    shards.write(path, [sequence()], key="k")
    tensors = load(path.read_bytes())
    tensors["lengths"] = tensors["lengths"] + 1
    noted = json.dumps({"format": shards.FORMAT, "key": "k", "about": {}})
    path.write_bytes(save(tensors, metadata={"specbook": noted}))
    with pytest.raises(ArtifactError, match="do not add up"):
        shards.read(path, key="k")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("first_rows", lambda a: a[:0]),
        ("prompt_lengths", lambda a: a[:0]),
        ("lengths", lambda a: a[:, None]),
        ("first_rows", lambda a: a - 3),
        ("tokens", lambda a: a.astype(np.float32)),
        ("top_logps", lambda a: a.astype(np.int32)),
        ("top_ids", lambda a: a[:, :1]),
        ("top_ids", lambda a: a.reshape(-1)),
    ],
    ids=[f"case{i}" for i in range(8)],
)
def test_arrays_of_another_shape_are_refused(tmp_path, name, change):
    from safetensors.numpy import load, save

    path = tmp_path / "one.safetensors"
    shards.write(path, [sequence()], key="k")
    tensors = load(path.read_bytes())
    tensors[name] = np.ascontiguousarray(change(tensors[name]))
    noted = json.dumps({"format": shards.FORMAT, "key": "k", "about": {}})
    path.write_bytes(save(tensors, metadata={"specbook": noted}))
    with pytest.raises(ArtifactError, match=r"one\.safetensors: "):
        shards.read(path, key="k")


def test_bad_sequences_are_refused(tmp_path):
    path = tmp_path / "one.safetensors"
    short = sequence()
    short = TaughtSequence(short.tokens, 2, 3, short.top_ids[1:], short.top_logps[1:])
    negative = sequence()
    negative.tokens[0] = -1
    for given, told in (
        ([], "at least one"),
        ([short], r"sequences\[0\] has 2 rows"),
        ([sequence(), sequence(k=2)], "one top_k"),
        ([negative], "negative"),
    ):
        with pytest.raises(SpecbookError, match=told):
            shards.write(path, given, key="k")
    assert not path.exists()
