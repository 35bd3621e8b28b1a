"""A source as a file: the same one again, or a refusal."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest

from specbook import reading
from specbook.drafts.rest import Datastore
from specbook.errors import ArtifactError, ContractError, SpecbookError
from specbook.export import sources


@pytest.fixture
def store(tmp_path):
    path = tmp_path / "a störe.rest"
    Datastore.build([[1, 2, 3, 4], [1, 2, 5]]).save(path)
    return path


def saved(tmp_path, name, options):
    content = sources.described(name, options)
    return sources.export("transformers", "run", content).save(tmp_path / "s.json")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("prompt_lookup", {}),
        ("prompt_lookup", {"policy": "transformers", "length": "fixed"}),
        ("prompt_lookup", {"cost": [[1, 1.0], [8, 1.5]]}),
        ("suffix", {"threshold": 3}),
        ("rest", {"node_budget": 9}),
    ],
)
def test_there_and_back(tmp_path, store, name, options):
    from specbook import drafts

    if name == "rest":
        options = {**options, "datastore": store}
    path = saved(tmp_path, name, options)
    again = sources.load(path)
    assert again.identity() == drafts.make(name, **options).identity()
    text = [1, 2, 3, 4, 1, 2, 3, 4, 1, 2] if name != "rest" else [1, 2]
    one = again.start(text).propose(max_depth=4, max_nodes=9)
    other = drafts.make(name, **options).start(text).propose(max_depth=4, max_nodes=9)
    assert one.nodes == other.nodes and one.nodes


def test_a_datastore_is_bound_by_its_hash(tmp_path, store):
    content = sources.described("rest", {"datastore": os.path.relpath(store)})
    assert content["options"]["datastore"] == os.path.abspath(store)
    made = sources.export("vllm", "run", content)
    assert made.inputs == {store.name: reading.sha256(store)}
    path = made.save(tmp_path / "s.json")
    store.unlink()
    Datastore.build([[1, 2, 9]]).save(store)
    with pytest.raises(ArtifactError, match="its options now make"):
        sources.load(path)
    store.unlink()
    with pytest.raises(ArtifactError):
        sources.load(path)


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("nothing", {}, "source must be one of"),
        (None, {}, "source must be one of"),
        ("prompt_lookup", {"nonsense": 1}, "option of"),
        ("prompt_lookup", {"max_ngram": -1}, "at least 0"),
        ("prompt_lookup", {"max_ngram": "3"}, "integer"),
        ("prompt_lookup", {"length": None}, "length must be"),
        ("suffix", {"corpus": [[1, 2]]}, "corpus of the source is in memory only"),
        ("rest", {}, "needs a datastore"),
        ("rest", {"datastore": "not there"}, "not there"),
    ],
)
def test_what_no_file_can_hold(name, options, told):
    with pytest.raises(SpecbookError, match=told):
        sources.described(name, options)


@pytest.mark.parametrize("name", ["draft_model", "staged", "medusa", "kangaroo"])
def test_a_source_that_draws_is_refused_before_its_model_is_loaded(
    tmp_path, monkeypatch, name
):
    from specbook import drafts

    def never(*arguments, **options):
        raise AssertionError("the source was made")

    monkeypatch.setattr(drafts, "make", never)
    with pytest.raises(ContractError, match="draws its candidates"):
        sources.described(name, {})
    path = tmp_path / "x.json"
    content = {
        "format": 1, "kind": "source", "source": name, "options": {}, "identity": "x"
    }  # fmt: skip
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ArtifactError, match="draws its candidates"):
        sources.load(path)


@pytest.mark.parametrize(
    "change",
    [
        {"identity": "another"},
        {"options": {"max_ngram": 9}},
        {"options": {"nonsense": 9}},
        {"options": {"self": 9}},
        {"options": []},
        {"format": 2},
        {"kind": "tree"},
        {"source": "nothing"},
        {"source": None},
        {"more": 1},
    ],
)
def test_a_file_that_was_changed(tmp_path, change):
    content = sources.described("prompt_lookup", {})
    path = tmp_path / "s.json"
    path.write_text(json.dumps({**content, **change}), encoding="utf-8")
    with pytest.raises(ArtifactError, match="s.json"):
        sources.load(path)


def test_other_files(tmp_path):
    path = tmp_path / "x"
    for content in (b"", b"[]", b"\xff", b"{}", b'{"a": NaN}'):
        path.write_bytes(content)
        with pytest.raises(ArtifactError):
            sources.load(path)
    for bad in (tmp_path, tmp_path / "none"):
        with pytest.raises(ArtifactError):
            sources.load(bad)


def test_the_export_keeps_what_it_was_given():
    made = sources.export("vllm", "run", sources.described("suffix", {}))
    assert made.inputs == {} and replace(made).what == "source"
