"""The figures of the failure lab draw what they were given."""

from __future__ import annotations

import pytest

from specbook import plotting
from specbook.errors import SpecbookError
from specbook.plotting.faults import fault_map, two_gaps

PANELS = {"variation": {"a": [0.5, 0.01, 0.5], "b": [0.2]}, "gap": {"b": [3.0]}}


def dots(ax):
    return sorted(
        float(x)
        for line in ax.lines
        if line.get_linestyle() == "None"
        for x in line.get_xdata()
    )


def test_every_fault_is_a_dot_in_its_panel():
    fig = fault_map(["a", "b", "c"], PANELS, counts={"c": 4}, noise={"gap": 1e-5})
    assert [dots(ax) for ax in fig.axes] == [[0.01, 0.2, 0.5, 0.5], [3.0]]
    assert [ax.get_xlabel() for ax in fig.axes] == ["variation", "gap"]
    assert [t.get_text() for t in fig.axes[1].texts] == ["rounding", "and 4 more"]
    assert [t.get_text() for t in fig.axes[0].get_yticklabels()] == ["a", "b", "c"]
    plotting.figure(fig, "two panels of dots", "every layer has some")


def test_dots_of_one_place_do_not_cover_each_other():
    fig = fault_map(["a"], {"x": {"a": [0.5, 0.5, 0.5]}}, counts={})
    (heights,) = (
        line.get_ydata() for line in fig.axes[0].lines if line.get_linestyle() == "None"
    )
    assert len(set(heights)) == 3


@pytest.mark.parametrize(
    ("lanes", "panels", "counts"),
    [
        ([], PANELS, {}),
        (["a", "b"], {}, {}),
        (["a"], PANELS, {}),
        (["a", "b"], PANELS, {"z": 1}),
        (["a", "b"], {"x": {"a": [0.0]}}, {}),
        (["a", "b"], {"x": {"a": ["1"]}}, {}),
        ([None], {"x": {}}, {}),
    ],
)
def test_a_bad_map_is_refused(lanes, panels, counts):
    with pytest.raises(SpecbookError):
        fault_map(lanes, panels, counts=counts)


def test_two_gaps_are_drawn_a_line_each():
    fig = two_gaps(
        {"leak": (1e-5, 3.0), "row": (2e-5, 4.0)},
        "gap",
        ("right", "wrong"),
        floor=(1e-4, "equal"),
    )
    assert dots(fig.axes[0]) == [1e-5, 2e-5, 3.0, 4.0]
    assert [t.get_text() for t in fig.axes[0].texts] == ["equal"]
    (legend,) = fig.legends
    assert [t.get_text() for t in legend.get_texts()] == ["right", "wrong"]
    plotting.figure(fig, "two dots a line", "far apart")


@pytest.mark.parametrize("values", [{}, {"a": (0, 1)}, {"a": (1,)}, {"a": (1, "x")}])
def test_bad_gaps_are_refused(values):
    with pytest.raises(SpecbookError):
        two_gaps(values, "gap", ("one", "other"), floor=(1.0, "equal"))
