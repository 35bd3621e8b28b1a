"""An export on disk: with its explanation, changed by nobody, over nothing else."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace

import pytest

from specbook.errors import ArtifactError, SpecbookError
from specbook.export import schema
from specbook.export.artifact import BESIDE, Export, _digest

MADE = Export(
    engine="vllm",
    what="ngram",
    schema="vllm",
    body='{"a": "ä"}\n',
    command='run "$(cat <FILE>)"',
    inputs={"counts.json": "00"},
    notes=("one", "two"),
)


def test_there_and_back(tmp_path):
    path = MADE.save(tmp_path / "a folder" / "ü.json")
    assert path.read_text(encoding="utf-8") == MADE.body
    assert Export.load(path) == MADE
    assert MADE.save(path) == path  # its own kind is replaced
    assert sorted(p.name for p in path.parent.iterdir()) == [
        "ü.json",
        "ü.json" + BESIDE,
    ]


def test_the_header_says_what_it_is_valid_for():
    told = "\n".join(MADE.lines("x y.json"))
    stated = schema.origin("vllm")
    for wanted in (stated.engine, stated.version, stated.source, "counts.json", "one"):
        assert wanted in told
    assert told.endswith("run \"$(cat 'x y.json')\"")
    python = replace(MADE, command="open(<PYFILE>)")
    assert python.told("it's.json") == 'open("it\'s.json")'


def test_another_file_is_not_replaced(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text("mine", encoding="utf-8")
    with pytest.raises(ArtifactError, match="is there and is no earlier export"):
        MADE.save(path)
    other = replace(MADE, what="suffix").save(tmp_path / "other.json")
    with pytest.raises(ArtifactError, match="no earlier export of vllm ngram"):
        MADE.save(other)
    beside = tmp_path / ("new.json" + BESIDE)
    beside.write_text("somebody's", encoding="utf-8")
    with pytest.raises(ArtifactError, match="no earlier export"):
        MADE.save(tmp_path / "new.json")
    assert path.read_text(encoding="utf-8") == "mine"
    assert beside.read_text(encoding="utf-8") == "somebody's"


def test_a_folder_and_one_that_takes_no_files(tmp_path):
    with pytest.raises(SpecbookError, match="is a folder"):
        MADE.save(tmp_path)
    file = tmp_path / "file"
    file.write_text("x", encoding="utf-8")
    with pytest.raises(SpecbookError, match="takes no files"):
        MADE.save(file / "below.json")
    for bad in (None, 3, b"x"):
        with pytest.raises(SpecbookError):
            MADE.save(bad)


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root writes")
def test_a_folder_that_is_read_only(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(SpecbookError, match="takes no files"):
        MADE.save(tmp_path / "x.json")


def test_a_name_may_look_like_a_mark_or_an_option():
    python = replace(MADE, command="open(<PYFILE>); cat <FILE>")
    assert python.told("<FILE>") == "open('<FILE>'); cat '<FILE>'"
    assert python.told("<PYFILE>") == "open('<PYFILE>'); cat '<PYFILE>'"
    assert MADE.told("-rf.json") == 'run "$(cat ./-rf.json)"'


def test_a_changed_file_is_found(tmp_path):
    path = MADE.save(tmp_path / "x.json")
    path.write_text('{"a": 2}\n', encoding="utf-8")
    with pytest.raises(ArtifactError, match="was changed since"):
        Export.load(path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda told: told.pop("export"),
        lambda told: told["export"].pop("command"),
        lambda told: told["export"].update(extra=1),
        lambda told: told["export"].update(notes=None),
        lambda told: told["export"].update(notes="abc"),
        lambda told: told["export"].update(notes=[3]),
        lambda told: told["export"].update(inputs=5),
        lambda told: told["export"].update(inputs={"a": 5}),
        lambda told: told["export"].update(schema="nothing"),
        lambda told: told.update(format=1),
        lambda told: told.update(kind="tree"),
        lambda told: told.update(sha256=None),
        lambda told: told.update(export=[]),
    ],
)
def test_a_damaged_explanation(tmp_path, damage):
    path = MADE.save(tmp_path / "x.json")
    beside = path.with_name(path.name + BESIDE)
    told = json.loads(beside.read_text(encoding="utf-8"))
    digest = told.pop("digest")
    assert digest == _digest(told)
    damage(told)
    # With a digest that is right: each of these is found for itself.
    told["digest"] = _digest(told)
    beside.write_text(json.dumps(told), encoding="utf-8")
    with pytest.raises(ArtifactError):
        Export.load(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda told: told["export"].update(command="another"),
        lambda told: told["export"].update(notes=[]),
        lambda told: told["export"].update(inputs={}),
        lambda told: told["header"].update({"valid for": "9"}),
        lambda told: told.pop("digest"),
    ],
)
def test_a_changed_explanation_is_found(tmp_path, change):
    """What an export was made from, and for which version, is bound as the file is."""
    path = MADE.save(tmp_path / "x.json")
    beside = path.with_name(path.name + BESIDE)
    told = json.loads(beside.read_text(encoding="utf-8"))
    change(told)
    beside.write_text(json.dumps(told), encoding="utf-8")
    with pytest.raises(ArtifactError, match="was changed since it was written"):
        Export.load(path)


def test_an_export_is_whole():
    for name in ("engine", "what", "body", "command"):
        for bad in ("", None):
            with pytest.raises(SpecbookError, match=name):
                replace(MADE, **{name: bad})
    with pytest.raises(SpecbookError, match="schema must be one of"):
        replace(MADE, schema="none")
