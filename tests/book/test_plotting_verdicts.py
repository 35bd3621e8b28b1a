"""Verdicts in a grid: a mark for each, told apart without colour."""

from __future__ import annotations

import pytest

from specbook import plotting
from specbook.errors import SpecbookError

NAMES = ("held", "refused", "nothing to ask")
GRID = {"honest": ["held", "nothing to ask"], "a fault": ["refused", "held"]}


def test_there_is_a_mark_for_each_verdict():
    fig = plotting.verdicts(GRID, ["one", "two"], NAMES, "check", "case")
    marks = [
        (line.get_xydata()[0].tolist(), line.get_marker())
        for line in fig.axes[0].get_lines()
    ]
    assert marks == [
        ([0, 0], "."),
        ([1, 0], "_"),
        ([0, 1], "X"),
        ([1, 1], "."),
    ]
    assert [t.get_text() for t in fig.legends[0].get_texts()] == list(NAMES)
    plotting.figure(fig, alt="a", caption="b")


@pytest.mark.parametrize(
    ("grid", "columns", "names", "message"),
    [
        ({}, ["one"], NAMES, "map cases to verdicts"),
        ({"a": ["held"]}, ["one", "two"], NAMES, "1 verdicts of 2 checks"),
        ({"a": ["lost"]}, ["one"], NAMES, "a verdict of 'a'"),
        ({"a": ["held"]}, ["one"], ("held", *NAMES), "4 verdicts; there are 3"),
        ({"a": ["held"]}, [1], NAMES, "a name"),
    ],
)
def test_nonsense_is_refused(grid, columns, names, message):
    with pytest.raises(SpecbookError, match=message):
        plotting.verdicts(grid, columns, names, "check", "case")
