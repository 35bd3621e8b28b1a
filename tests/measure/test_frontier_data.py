"""The file of the frontier: it comes back as it was, and nothing else is read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specbook.errors import ArtifactError, SpecbookError
from specbook.measure.frontier_data import (
    OWN,
    PLAIN,
    Configuration,
    Decoded,
    FrontierFile,
    read,
)
from tests.measure.frontiers import (
    CHAIN,
    LOOKUP,
    MACHINE,
    SETTINGS,
    TYPICAL,
    frontier,
    row,
    trace,
)


def test_a_file_comes_back_as_it_was_written(tmp_path: Path) -> None:
    made = frontier()
    path = made.write(tmp_path / "f.jsonl")
    found = read(path)
    assert found.rows == made.rows
    assert (found.settings, found.machine) == (made.settings, made.machine)
    assert [p.name for p in tmp_path.iterdir()] == ["f.jsonl"]  # no temporary is left


def test_a_run_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    first = FrontierFile.at(path, dict(SETTINGS), dict(MACHINE))
    first.add([row(PLAIN, "edit-1", 0.8, 8)])
    again = FrontierFile.at(path, dict(SETTINGS), {**MACHINE, "date": "later"})
    assert again.has("decoded", PLAIN, "float32", 0.0, "edit-1")
    assert not again.has("decoded", PLAIN, "float32", 0.0, "edit-2")
    again.add([row(PLAIN, "edit-2", 0.8, 8)])
    assert [r.prompt for r in read(path).of("decoded")] == ["edit-1", "edit-2"]


@pytest.mark.parametrize(
    ("settings", "machine", "named"),
    [
        ({"clock": "cpu"}, {}, "clock"),
        ({"more": 1}, {}, "more"),
        ({}, {"threads": 1}, "threads"),
        ({}, {"instructions": "AVX2"}, "instructions"),
    ],
)
def test_a_run_with_other_settings_does_not_go_on(
    tmp_path: Path, settings: Any, machine: Any, named: str
) -> None:
    path = tmp_path / "f.jsonl"
    FrontierFile.at(path, dict(SETTINGS), dict(MACHINE)).add(
        [row(PLAIN, "edit-1", 0.8, 8)]
    )
    with pytest.raises(SpecbookError, match=named):
        FrontierFile.at(path, {**SETTINGS, **settings}, {**MACHINE, **machine})


def _changed_number(lines: list[str]) -> list[str]:
    lines[-1] = lines[-1].replace('"seconds": 1.0', '"seconds": 0.1')
    return lines


def _cut_off(lines: list[str]) -> list[str]:
    lines[-1] = lines[-1][:-9]
    return lines


def _foreign_row(lines: list[str]) -> list[str]:
    text = [json.loads(line) for line in lines]
    text[0]["settings"]["clock"] = "cpu"
    return [json.dumps(entry) + "\n" for entry in text]


def _twice(lines: list[str]) -> list[str]:
    return [*lines, lines[-1]]


def _other_version(lines: list[str]) -> list[str]:
    return [lines[0].replace('"format": 1', '"format": 2'), *lines[1:]]


def _no_last_end(lines: list[str]) -> list[str]:
    return [*lines[:-1], lines[-1][:-1]]


def _no_kind(lines: list[str]) -> list[str]:
    return lines[1:]


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (_changed_number, "digest"),
        (_cut_off, "cut off"),
        (_foreign_row, "digest"),
        (_twice, "there before"),
        (_other_version, "format is 2"),
        (_no_last_end, "cut off"),
        (_no_kind, "no specbook frontier"),
        (lambda lines: [], "cut off"),
        (lambda lines: ["{}\n", *lines[1:]], "no specbook frontier"),
        (lambda lines: [*lines, "[1]\n"], "no object"),
        (lambda lines: [*lines, "no\n"], "no JSON"),
    ],
)
def test_a_damaged_or_foreign_file_is_refused(
    tmp_path: Path, damage: Any, told: str
) -> None:
    path = frontier().write(tmp_path / "f.jsonl")
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(damage(lines)), encoding="utf-8")
    with pytest.raises(ArtifactError, match=told):
        read(path)


def test_what_is_not_there_is_an_artifact_error(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="no specbook frontier"):
        read(tmp_path / "none.jsonl")


def test_a_row_enters_once() -> None:
    made = frontier()
    with pytest.raises(SpecbookError, match="there already"):
        made.add([row(PLAIN, "edit-1", 0.7, 8)])
    one = row(LOOKUP, "edit-9", 0.7, 8)
    with pytest.raises(SpecbookError, match="there already"):
        made.add([one, one])
    # The same proposal under another rule is another configuration.
    made.add([row(TYPICAL, "edit-1", 0.7, 8)])


@pytest.mark.parametrize(
    "changes",
    [
        {"family": "other"},
        {"source": ""},
        {"topology": "chain 2"},
        {"parents": (-1,), "ranks": (0,)},
        {"topology": "chain 1", "parents": (-1,), "ranks": ()},
        {"exact": 1},
        {"parents": None},
    ],
)
def test_a_configuration_that_contradicts_itself_is_refused(changes: Any) -> None:
    with pytest.raises(SpecbookError):
        replace(LOOKUP, **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"path_lengths": (1,)},
        {"covered": 9},
        {"first_child": 3},
        {"cost_terms": {}},
        {"accepted_by_depth": (0, 0)},
        {"round_seconds": (1.0,)},
    ],
)
def test_a_trace_that_does_not_add_up_is_refused(changes: Any) -> None:
    with pytest.raises(SpecbookError):
        trace(4, 2, 0.5, **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"seconds": 0.0},
        {"seconds": float("nan")},
        {"rounds": 7},
        {"new_tokens": True},
        {"temperature": -1.0},
    ],
)
def test_a_decoded_row_that_does_not_add_up_is_refused(changes: Any) -> None:
    one = row(PLAIN, "edit-1", 0.8, 8)
    with pytest.raises(SpecbookError):
        replace(one, **changes)
    assert isinstance(one, Decoded)


def test_names_tell_configurations_apart() -> None:
    assert CHAIN.name == "hydra, chain 2, top k / greedy"
    switched = replace(CHAIN, switched=True)
    assert switched.name == "switch(hydra, chain 2, top k) / greedy"
    assert PLAIN.name == "plain" and LOOKUP.name == "prompt_lookup / greedy"
    assert Configuration("a", "self", "single").topology == OWN
