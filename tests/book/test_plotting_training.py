"""Figures of training: what is drawn is what was given."""

import math

import pytest

from specbook import plotting
from specbook.errors import SpecbookError
from specbook.plotting.training import MOST, learning

PANELS = {
    "depth 1": {"medusa": [(5, 0.1), (10, 0.2)], "hydra": [(5, 0.15), (20, 0.4)]},
    "depth 4": {"hydra": [(5, 0.1)], "$x$": [(1, 0.0), (2, 0.3)]},
}


def drawn(fig):
    return {
        ax.get_title(): {
            line.get_label(): list(
                zip(
                    map(float, line.get_xdata()),
                    map(float, line.get_ydata()),
                    strict=True,
                )
            )
            for line in ax.get_lines()
        }
        for ax in fig.axes
    }


def test_each_panel_holds_its_lines():
    fig = learning(PANELS, "step", "agreement", percent=True)
    assert drawn(fig) == {
        title: {
            name: [tuple(map(float, p)) for p in line] for name, line in row.items()
        }
        for title, row in PANELS.items()
    }
    assert [ax.get_xlabel() for ax in fig.axes] == ["step", "step"]
    assert fig.axes[0].get_ylabel() == "agreement"
    (legend,) = fig.legends
    assert [t.get_text() for t in legend.get_texts()] == ["medusa", "hydra", "$x$"]
    fig.canvas.draw()
    ticks = [t.get_text() for t in fig.axes[0].get_yticklabels() if t.get_text()]
    assert ticks and all(text.endswith("%") for text in ticks)


def test_a_name_looks_the_same_in_all_panels():
    fig = learning(PANELS, "step", "agreement")
    looks = [
        [
            (line.get_color(), line.get_marker(), line.get_linestyle())
            for line in ax.get_lines()
            if line.get_label() == "hydra"
        ]
        for ax in fig.axes
    ]
    assert looks[0] == looks[1]
    every = {(line.get_color(), line.get_marker()) for line in fig.axes[0].get_lines()}
    assert len(every) == 2


def test_it_fits_the_page_and_repeats_its_bytes():
    texts = {"alt": "Two panels.", "caption": "They rise."}
    framed = [
        plotting.figure(learning(PANELS, "step", "agreement"), **texts)
        for _ in range(2)
    ]
    assert framed[0].png == framed[1].png
    assert framed[0].width <= plotting.COLUMN_INCHES * plotting.CSS_DPI


LINE = [(1, 0.5)]


@pytest.mark.parametrize(
    ("panels", "told"),
    [
        ({}, "one to three"),
        ({str(i): {"a": LINE} for i in range(4)}, "one to three"),
        ([("a", {"b": LINE})], "one to three"),
        ({"t": {}}, "must map names"),
        ({"t": {"a": []}}, "steps must rise"),
        ({"t": {"a": [(2, 1.0), (2, 1.0)]}}, "steps must rise"),
        ({"t": {"a": [(1, math.nan)]}}, "finite"),
        ({"t": {"a": [(-1, 1.0)]}}, "at least 0"),
        ({"t": {str(i): LINE for i in range(MOST + 1)}}, "cannot be told apart"),
        ({"t": {"a": [3]}}, "two numbers"),
    ],
    ids=[f"case{i}" for i in range(10)],
)
def test_what_cannot_be_drawn_is_refused(panels, told):
    with pytest.raises(SpecbookError, match=told):
        learning(panels, "step", "loss")
