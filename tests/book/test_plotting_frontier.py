"""Named points and lines that end at different depths."""

from __future__ import annotations

from typing import Any

import pytest

from specbook import plotting
from specbook.errors import SpecbookError

POINTS = {
    "plain": (1.0, 80.0, "plain"),
    "lookup": (2.0, 50.0, "copying"),
    "heads": (2.5, 51.0, "heads"),
    "more heads": (3.0, 90.0, "heads"),
}


def test_every_point_is_named_and_no_two_names_meet() -> None:
    fig = plotting.scatter(POINTS, "tokens", "ms", level=(80.0, "level"))
    fig.canvas.draw()
    (ax,) = fig.axes
    renderer = fig.canvas.get_renderer()  # type: ignore[attr-defined]
    names = [text for text in ax.texts if text.get_text() in POINTS]
    assert sorted(text.get_text() for text in names) == sorted(POINTS)
    boxes = [text.get_window_extent(renderer) for text in names]
    for i, one in enumerate(boxes):
        assert not any(one.overlaps(other) for other in boxes[i + 1 :])
    assert {text.get_text() for text in fig.legends[0].get_texts()} == {
        "plain", "copying", "heads", "level",
    }  # fmt: skip
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("tokens", "ms")


def test_names_that_crowd_are_found_to_meet() -> None:
    """The check above can fail: names at the points' own heights would overlap."""
    fig = plotting.scatter(POINTS, "tokens", "ms")
    fig.canvas.draw()
    (ax,) = fig.axes
    for text in ax.texts:
        if text.get_text() in ("lookup", "heads"):
            text.set_position((1.03, 0.5))
    renderer = fig.canvas.get_renderer()  # type: ignore[attr-defined]
    one, other = (
        text.get_window_extent(renderer)
        for text in ax.texts
        if text.get_text() in ("lookup", "heads")
    )
    assert one.overlaps(other)


def test_steps_join_the_border_from_left_to_right() -> None:
    fig = plotting.scatter(POINTS, "MB", "ms", steps=["heads", "plain", "lookup"])
    drawn = [line for line in fig.axes[0].lines if line.get_drawstyle() == "steps-post"]
    assert drawn[0].get_xdata().tolist() == [1.0, 2.0, 2.5]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("points", "options"),
    [
        ({}, {}),
        (None, {}),
        ({"a": (1.0, 2.0)}, {}),
        ({"a": (1.0, float("nan"), "g")}, {}),
        ({"a": (True, 2.0, "g")}, {}),
        ({"a": (1.0, 2.0, 3)}, {}),
        ({"a": (1.0, 2.0, "g")}, {"steps": ["b"]}),
    ],
)
def test_what_cannot_be_drawn_is_refused(points: Any, options: Any) -> None:
    with pytest.raises(SpecbookError):
        plotting.scatter(points, "x", "y", **options)


def test_lines_may_end_at_different_depths() -> None:
    fig = plotting.by_depth({"short": [0.5], "long": [0.9, 0.6, 0.4]})
    first, second = fig.axes[0].lines
    assert list(first.get_xdata()) == [1] and list(second.get_xdata()) == [1, 2, 3]  # type: ignore[arg-type]
    assert fig.axes[0].get_ylim()[0] == 0
    assert [text.get_text() for text in fig.legends[0].get_texts()] == ["short", "long"]


@pytest.mark.parametrize(
    "lines", [{}, None, {"a": []}, {"a": [1.1]}, {"a": [None]}, {"a": "0.5"}]
)
def test_lines_that_are_none_are_refused(lines: Any) -> None:
    with pytest.raises(SpecbookError):
        plotting.by_depth(lines)
