"""Bars of counts: what is drawn is what was counted."""

import pytest

from specbook import plotting
from specbook.errors import SpecbookError
from specbook.plotting.counts import FACES, HATCHES

ROWS = {"one": {"a": 2, "b": 0, "c": 3}, "$two$": {"a": 0, "b": 1, "c": 0}}


def test_bars_are_as_long_as_their_counts_and_end_with_the_sum():
    (ax,) = plotting.counts(ROWS, "claims").axes
    bars = [(b.get_x(), b.get_width(), b.get_hatch()) for b in ax.patches]
    assert bars == [(0, 2, ""), (2, 3, HATCHES[2]), (0, 1, HATCHES[1])]
    assert [t.get_text() for t in ax.texts] == ["5", "1"]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["one", "$two$"]
    assert ax.get_xlabel() == "claims"


def test_every_part_is_in_the_legend_and_has_a_look_of_its_own():
    fig = plotting.counts(ROWS, "claims")
    (legend,) = fig.legends
    assert [t.get_text() for t in legend.get_texts()] == ["a", "b", "c"]
    assert len(set(FACES)) == len(set(HATCHES)) == 5
    faces = ("green", "sky", "vermilion")
    (ax,) = plotting.counts(ROWS, "claims", faces=faces).axes
    drawn = [b.get_facecolor() for b in ax.patches]
    assert len(set(drawn)) == 3


def test_it_fits_the_page_and_repeats_its_bytes():
    texts = {"alt": "Two bars.", "caption": "One is longer."}
    framed = [
        plotting.figure(plotting.counts(ROWS, "claims"), **texts) for _ in range(2)
    ]
    assert framed[0].png == framed[1].png
    assert framed[0].width <= plotting.COLUMN_INCHES * plotting.CSS_DPI


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ({}, "must map names"),
        ([("a", {"b": 1})], "must map names"),
        ({"a": {}}, "1 to 5 parts"),
        ({"a": 3}, "1 to 5 parts"),
        ({"a": {str(i): 1 for i in range(6)}}, "1 to 5 parts"),
        ({"a": {"x": 1}, "b": {"y": 1}}, r"has \['y'\]"),
        ({"a": {"x": -1}}, "at least 0"),
        ({"a": {"x": 1.0}}, "must be an integer"),
        ({"a": {"x": True}}, "must be an integer"),
        ({"a": {"x": None}}, "must be an integer"),
    ],
)
def test_what_cannot_be_drawn_is_refused(rows, told):
    with pytest.raises(SpecbookError, match=told):
        plotting.counts(rows, "claims")


@pytest.mark.parametrize(
    ("faces", "told"),
    [
        (("pink", "sky", "green"), "must be one of"),
        (("sky",), "1 to 1 parts"),
        (3, "faces"),
    ],
)
def test_colours_are_names_of_the_palette_one_for_each_part(faces, told):
    with pytest.raises(SpecbookError, match=told):
        plotting.counts(ROWS, "claims", faces=faces)
