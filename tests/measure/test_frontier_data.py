"""The file of the frontier: it comes back as it was, and nothing else is read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specbook.errors import ArtifactError, SpecbookError
from specbook.ledger import COST_TERMS
from specbook.measure.frontier_data import (
    BINS,
    OWN,
    PLAIN,
    Configuration,
    Decoded,
    FrontierFile,
    _line,
    read,
    settings_hash,
)
from tests.measure.frontiers import (
    CHAIN,
    LOOKUP,
    MACHINE,
    PEER,
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


def _endless_setting(lines: list[str]) -> list[str]:
    return [lines[0].replace('"wall"', "NaN"), *lines[1:]]


def _signed(lines: list[str], **values: Any) -> str:
    """A line with the digest that it ought to have: whoever can read can sign."""
    return _line(values, settings_hash(json.loads(lines[0])["settings"]))


def _one_row_less(lines: list[str]) -> list[str]:
    """No line that is left was changed, and a prompt passes for decoded."""
    (lost,) = [
        line
        for line in lines[1:]
        if (told := json.loads(line)).get("prompt") == "edit-2"
        and told["configuration"]["source"] == "prompt_lookup"
    ]
    return [line for line in lines if line != lost]


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
        (lambda lines: [*lines, '{"row": NaN}\n'], "line 22: .*JSON"),
        (_endless_setting, "settings: .*JSON"),
        (lambda lines: [*lines, _signed(lines, row=["cost"])], "no known kind"),
        (lambda lines: [*lines, _signed(lines, row={})], "no known kind"),
        (lambda lines: [*lines, _signed(lines)], "no known kind"),
        (_one_row_less, "edit-2.*a row of prompt_lookup . greedy is missing"),
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


def test_two_runs_do_not_write_one_file(tmp_path: Path) -> None:
    """Each writes the file whole, so the later one would drop the rows of the other."""
    path = tmp_path / "f.jsonl"
    one = FrontierFile.at(path, dict(SETTINGS), dict(MACHINE))
    other = FrontierFile.at(path, dict(SETTINGS), dict(MACHINE))
    one.add([row(PLAIN, "edit-1", 0.8, 8)])
    with pytest.raises(ArtifactError, match="another run"):
        other.add([row(PLAIN, "edit-2", 0.8, 8)])
    again = FrontierFile.at(path, dict(SETTINGS), dict(MACHINE))
    again.add([row(PLAIN, "edit-2", 0.8, 8)])
    with pytest.raises(ArtifactError, match="another run"):
        one.add([row(PLAIN, "edit-3", 0.8, 8)])
    assert [r.prompt for r in read(path).of("decoded")] == ["edit-1", "edit-2"]
    path.write_bytes(b"\xff")
    with pytest.raises(ArtifactError, match="cannot be read"):
        again.add([row(PLAIN, "edit-3", 0.8, 8)])


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
        {"round_tokens": (4, 0)},
        {"round_tokens": (), "round_seconds": ()},
        {"round_seconds": (1.5, -1.0)},
        {"path_lengths": (3, -1)},
        {"first_child": -1},
        {"state_bytes": -1},
        {"drafted_by_depth": (1,)},
        {"drafted_by_depth": (2, 1)},
        {"drafted_by_depth": (1, 1, 0)},
        {"accepted_by_depth": (2, 0)},
        {"draft_seconds_by_depth": ((2.0, 0.0),)},
        {"draft_seconds_by_depth": ((1.0, 0.0), (0.0, 0.0), (2.0, 0.1))},
        {"draft_seconds_by_depth": ((1.0, 0.0), (1.0, 0.1), (0.0, 0.0))},
        {"draft_seconds_by_depth": ((1.0,), (0.0,), (1.0,))},
        {"q_bins": ()},
        {"q_bins": ((0.0, 0.0, -1.0),) * BINS},
        {"match_lengths": (1,)},
        {"likelihood": (1.0, -1.0)},
        {"likelihood": ()},
        {"places": (1.0,)},
        {"cost_terms": dict.fromkeys(COST_TERMS, -1.0)},
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
        {"same": None},
        {"same": False},
        {"gap": 0.5},
        {"temperature": 0.7},
        {"trace": None},
        {"configuration": PEER},
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
