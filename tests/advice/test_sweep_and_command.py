"""The map of choices, and the command from a file to an answer."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction as F

import pytest
from typer.testing import CliRunner

from specbook import plotting
from specbook.advice import Constraints
from specbook.advice.sweep import changed, sources
from specbook.cli import app
from specbook.errors import SpecbookError
from specbook.measure import setup
from tests.advice.making import CHAIN, LOOKUP, TREE, several
from tests.cli.helpers import alone, refused
from tests.measure.frontiers import frontier


def test_a_better_drafter_wins_and_a_worse_one_does_not():
    found = sources(several(), [F(1, 4), 1, 4], [F(1, 2), 1, 2])
    assert found[1][1] == LOOKUP.source
    assert found[2][0] in (CHAIN.source, TREE.source)
    # Copies draft with no model, so they take over where drafting is dear.
    assert {found[0][2], found[1][2]} == {LOOKUP.source}
    held = sources(several(), [1], [1], Constraints(fixed_rows=True))
    assert held == [[TREE.source]]
    with pytest.raises(SpecbookError):
        sources(several(), [-1], [1])


def test_gain_is_of_what_a_round_brings_beyond_its_first_token():
    one = several()[3]
    assert changed(one, 2, F(1, 3)).tokens == 1 + F(3, 2) / 3
    assert changed(one, 2, 1).draft == 2 * one.draft
    assert changed(one, 1, 0).tokens == 1
    assert changed(several()[1], 9, 9) == several()[1]


def test_a_gain_of_nothing_leaves_a_whole_token():
    """1/49 of 49 tokens is a little less than one in float64."""
    one = replace(several()[3], tokens=49.0)
    assert 49.0 * (1 / 49.0) < 1
    assert changed(one, 1, 0).tokens == 1
    assert sources([several()[0], one], [1], [0]) == [["plain"]]


def test_a_map_names_its_regions():
    fig = plotting.choice_map(
        [0.5, 1, 2], [0.5, 1], [["a", "b_c", "b_c"], ["a", "a", "b_c"]], "x", "y",
        here=(1, 1),
    )  # fmt: skip
    texts = {text.get_text() for text in fig.axes[0].texts}
    assert texts == {"a", "b c", "as measured"}
    for wrong in (
        ([1], [1, 2], [["a"], ["a"]]),
        ([0, 1], [1, 2], [["a", "a"]] * 2),
        ([2, 1], [1, 2], [["a", "a"]] * 2),
        ([1, 2], [1, 2], [["a", "a"]]),
        ([1, 2], [1, 2], [["a", None]] * 2),
    ):
        with pytest.raises(SpecbookError):
            plotting.choice_map(*wrong, "x", "y")


@pytest.fixture
def here(tmp_path):
    """A frontier of this machine."""
    file = frontier()
    file.machine.update(setup.machine())
    return file.write(tmp_path / "here.jsonl")


runner = CliRunner()


def test_the_command_answers_from_a_frontier(here, tmp_path):
    out = tmp_path / "advice.json"
    done = runner.invoke(
        app,
        ["advise", "--frontier", str(here), "--workload", "edit", "--out", str(out)],
    )
    assert done.exit_code == 0, done.output
    assert "advised: prompt_lookup / greedy" in done.stdout
    assert "100%" in done.stdout
    values = json.loads(out.read_text(encoding="utf-8"))
    assert list(values["inputs"]) == ["here.jsonl"]
    again = runner.invoke(
        app, ["advise", "--frontier", str(here), "--workload", "chat", "--json"]
    )
    assert json.loads(again.stdout)["advised"] == "plain"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--workload", "poems"], "no workload 'poems'"),
        (["--temperature", "0.7"], "temperature 0, and 0.7 is asked for"),
        (["--batch", "4"], "batch of 4"),
        (["--memory", "-1"], "memory must be"),
        (["--speedup", "9"], "nothing that may run is 9.00 times"),
        (["--counts", "x"], "give --times too"),
        (["--times", "x"], "not both"),
        (["--dtype", "float64"], "no dtype 'float64'"),
    ],
)
def test_what_cannot_be_answered_is_refused(here, options, told):
    refused(runner.invoke(app, ["advise", "--frontier", str(here), *options]), told)


def test_another_machine_is_refused_unless_told(tmp_path):
    path = frontier().write(tmp_path / "there.jsonl")
    refused(
        runner.invoke(app, ["advise", "--frontier", str(path)]), "was measured with"
    )
    done = runner.invoke(app, ["advise", "--frontier", str(path), "--any-machine"])
    assert done.exit_code == 0, done.output


def test_another_file_is_not_replaced(here, tmp_path):
    out = tmp_path / "notes.json"
    out.write_text("{}", encoding="utf-8")
    done = runner.invoke(app, ["advise", "--frontier", str(here), "--out", str(out)])
    refused(done, "is no specbook advice")
    assert out.read_text(encoding="utf-8") == "{}"


def test_help_needs_no_torch():
    assert alone("advise", "--help") == (0, set())
