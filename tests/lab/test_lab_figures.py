"""The shared figures and intervals: what is drawn is what was given."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from specbook import lab
from specbook.errors import SpecbookError

plotting = pytest.importorskip("specbook.plotting")


def texts(fig):
    return [t.get_text() for ax in fig.axes for t in ax.texts]


def test_an_interval_is_a_ratio_of_sums_and_holds_its_value():
    value, low, high = lab.interval([10, 20, 60], [10, 10, 10], seed=3)
    assert value == 3.0 and low <= value <= high
    assert (low, high) != (value, value)
    assert lab.interval([10, 20, 60], [10, 10, 10], seed=3) == (value, low, high)
    # The mean of ratios would be another number on unequal denominators.
    assert lab.interval([1, 1], [1, 3])[0] == 0.5


@pytest.mark.parametrize(
    "bad", [([1], [1]), ([], []), ([1, 2], [1, 0]), ([1, 2], [1, float("nan")])]
)
def test_an_interval_needs_prompts_and_denominators(bad):
    with pytest.raises((SpecbookError, ValueError)):
        lab.interval(*bad)


def test_ranges_draw_value_interval_points_and_reference():
    fig = plotting.ranges(
        {"edit": (4.0, 3.0, 5.0), "chat": (1.1, 1.0, 1.2)},
        "tokens a round",
        points={"edit": [3.5, 4.5]},
        reference=(1.0, "plain"),
    )
    (ax,) = fig.axes
    assert [t.get_text() for t in ax.get_yticklabels()] == ["edit", "chat"]
    assert {"4.00", "1.10", "plain"} <= set(texts(fig))
    drawn = [list(line.get_xdata()) for line in ax.lines]
    assert [3.0, 5.0] in drawn and [3.5, 4.5] in drawn
    with pytest.raises(SpecbookError, match="chat"):
        plotting.ranges({"chat": (2.0, 0.0, 1.0)}, "x")
    with pytest.raises(SpecbookError):
        plotting.ranges({}, "x")


def test_curves_are_named_at_their_ends_without_overlap():
    fig = plotting.curves([1, 2, 3], {"a": [1, 2, 3], "b": [1, 2, 3.01]}, "x", "y")
    (ax,) = fig.axes
    assert set(texts(fig)) == {"a", "b"}
    heights = sorted(t.xy[1] for t in ax.texts)
    assert heights[1] - heights[0] > 0.05
    with pytest.raises(SpecbookError, match="b"):
        plotting.curves([1, 2], {"a": [1, 2], "b": [1]}, "x", "y")


def test_copied_text_marks_copies_and_never_splits_a_character():
    letters = "<é>".encode()
    rounds = [
        SimpleNamespace(committed=(0, 1), accepted=1),
        SimpleNamespace(committed=(2, 3), accepted=1),
    ]

    def decode(ids):
        return bytes(letters[i] for i in ids).decode("utf-8", errors="replace")

    shown = lab.CopiedText(rounds, decode, "one & two")
    assert shown.pieces == [("<", True), ("é", True), (">", False)]
    assert repr(shown) == "[<][é]>\none & two"
    html = shown._repr_html_()
    assert "&lt;" in html and "one &amp; two" in html and "underline" not in html
    assert html.count("border-bottom") == 2


def test_single_measurements_that_would_overlap_stand_over_each_other():
    spans = {"edit": (4.0, 1.0, 9.0), "chat": (1.1, 1.0, 1.2)}
    points = {"chat": [1.02, 1.03, 1.04, 5.0], "edit": [2.0, 4.0]}
    (ax,) = plotting.ranges(spans, "x", points=points).axes
    heights = {}
    for line in ax.lines:
        if line.get_marker() == "d":
            for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True):
                heights[x] = y
    assert heights[2.0] == heights[4.0]
    assert len({heights[x] for x in points["chat"][:3]}) == 3
    assert heights[5.0] == heights[1.02], "there is room beside the lowest"
    highest = min(heights[x] for x in points["chat"])
    assert highest > 0.5, "and below the number of the row before"


@pytest.mark.parametrize("points", [2, 32, 33, 300])
def test_markers_of_a_long_curve_do_not_run_together(points):
    fig = plotting.curves(range(points), {"a": [0.5] * points}, "x", "y")
    line = next(line for line in fig.axes[0].lines if line.get_label() == "a")
    drawn = len(range(points)[:: line.get_markevery()])
    assert min(points, 16) <= drawn <= 32
    assert len(line.get_xdata()) == points


def test_names_of_curves_stay_at_their_ends_where_there_is_room():
    lines = {"a": [1, 5], "b": [1, 3], "c": [1, 1.01], "d": [1, 1.0]}
    (ax,) = plotting.curves([1, 2], lines, "x", "y").axes
    places = {text.get_text(): text.xy[1] for text in ax.texts}
    assert places["a"] == 5 and places["b"] == 3
    assert places["c"] > 1.01 > 1.0 > places["d"], "each moves by half, not one by all"


def test_an_interval_narrower_than_its_marker_can_be_seen():
    (ax,) = plotting.grouped_ranges({"g": {"s": (1.0, 0.999, 1.001)}}, "x").axes
    ends = next(line for line in ax.lines if len(line.get_xdata()) == 2)
    dot = next(line for line in ax.lines if line.get_label() == "s")
    assert ends.get_marker() == "|" and ends.get_markersize() > dot.get_markersize() + 3
    assert ends.get_zorder() > dot.get_zorder()
