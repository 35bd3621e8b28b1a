"""Flows and acceptance: what is drawn is what was given, and nonsense is refused."""

from __future__ import annotations

from fractions import Fraction

import matplotlib
import pytest
from matplotlib.patches import PathPatch, Rectangle

from specbook import plotting
from specbook.controls import exact
from specbook.errors import SpecbookError
from specbook.oracles import transport

NAMES = dict(enumerate("abc"))
ARTICLE = transport(exact([5, 3, 2]), exact([4, 4, 2]), 2).coupling
REFUSING = transport(exact([1, 3, 6]), exact([3, 1, 1]), 2).coupling


def texts(fig):
    return [
        text.get_text()
        for text in fig.findobj(matplotlib.text.Text)
        if text.get_visible() and text.get_text().strip()
    ]


def framed(fig):
    """The frame refuses small text and too wide a figure."""
    return plotting.figure(fig, alt="a", caption="b")


# ---- flows -----------------------------------------------------------------------


def test_bars_are_as_high_as_supplies_and_demands():
    fig = plotting.draw_flow(ARTICLE, NAMES)
    bars = [bar.get_height() for bar in fig.axes[0].findobj(Rectangle)]
    for height in (0.16, 0.08, 0.04, 0.5, 0.3, 0.2):
        assert any(abs(bar - height) < 1e-12 for bar in bars), height
    assert {"a a   0.16", "c c   0.04", "a   0.5", "b   0.3"} <= set(texts(fig))
    framed(fig)


@pytest.mark.parametrize("coupling", [ARTICLE, REFUSING])
def test_there_is_one_ribbon_for_each_pair_as_high_as_its_mass(coupling):
    fig = plotting.draw_flow(coupling, NAMES)
    ribbons = [
        patch for patch in fig.axes[0].findobj(PathPatch) if len(patch.get_path()) == 8
    ]
    heights = [
        ribbon.get_path().vertices[0, 1] - ribbon.get_path().vertices[-1, 1]
        for ribbon in ribbons
    ]
    assert sorted(round(h, 9) for h in heights) == sorted(
        round(float(m), 9) for m in coupling.values()
    )


def test_ribbons_of_a_bar_leave_no_gap_and_do_not_overlap():
    fig = plotting.draw_flow(REFUSING, NAMES)
    ends = sorted(
        (v[3, 1], v[4, 1])
        for patch in fig.axes[0].findobj(PathPatch)
        if len(v := patch.get_path().vertices) == 8
    )
    for (top, _), (_, low) in zip(ends, ends[1:], strict=False):
        assert low > top - 1e-9


def test_a_correction_is_told_apart_and_named():
    inside, outside = (
        " ".join(texts(plotting.draw_flow(c, NAMES))) for c in (ARTICLE, REFUSING)
    )
    assert "correction" not in inside and "correction" in outside
    dashed = [
        patch
        for patch in plotting.draw_flow(REFUSING).axes[0].findobj(PathPatch)
        if patch.get_linestyle() == "--"
    ]
    assert len(dashed) == sum(y not in X for X, y in REFUSING)


def test_labels_are_printed_as_text_and_ids_stand_in_for_missing_ones():
    told = texts(plotting.draw_flow(REFUSING, {0: "$x^2$", 1: " is"}))
    assert any("$x^2$" in text for text in told)
    assert any("·is" in text for text in told)
    assert any(text.startswith("2 ") for text in told)


@pytest.mark.parametrize(
    ("coupling", "words"),
    [
        ({}, "a plan maps"),
        ([((0,), 1)], "a plan maps"),
        ({(0, 1): 1}, "a key is"),
        ({((0,), 0): Fraction(1, 2)}, "add up to 1"),
        ({((0,), 0): Fraction(3, 2), ((0,), 1): Fraction(-1, 2)}, "coupling"),
        ({((i,), i): Fraction(1, 40) for i in range(40)}, "40 vectors"),
    ],
)
def test_what_is_no_plan_is_refused(coupling, words):
    with pytest.raises(SpecbookError, match=words):
        plotting.draw_flow(coupling)


# ---- acceptance ------------------------------------------------------------------

LINES = {"best": {1: 0.3, 2: 0.6}, "rule": {1: 0.3, 2: 0.5}, "other": {2: 0.55}}
FAMILIES = {"independent": ["best", "rule"], "ranked": ["other"]}


def test_every_line_is_drawn_in_every_panel_at_its_values():
    fig = plotting.acceptance({"warm": LINES, "cold": LINES}, FAMILIES)
    assert [ax.get_title(loc="left") for ax in fig.axes] == ["warm", "cold"]
    for ax in fig.axes:
        drawn = {
            line.get_label(): dict(zip(*line.get_data(), strict=True))
            for line in ax.lines
        }
        assert drawn == LINES
    framed(fig)


def test_an_optimum_is_thick_and_a_rule_has_a_marker_of_its_own():
    lines = {**LINES, "third": {1: 0.2, 2: 0.3}}
    families = {"independent": ["best", "rule"], "ranked": ["other", "third"]}
    drawn = {
        line.get_label(): line
        for line in plotting.acceptance({"": lines}, families).axes[0].lines
    }
    assert drawn["best"].get_linewidth() > drawn["rule"].get_linewidth()
    assert drawn["best"].get_color() == drawn["rule"].get_color()
    assert drawn["best"].get_color() != drawn["third"].get_color()
    assert drawn["rule"].get_marker() != drawn["third"].get_marker()


def test_an_optimum_that_lacks_some_k_shows_the_ones_it_has():
    lines = {**LINES, "best": {1: 0.3, 3: 0.7}, "rule": {1: 0.3, 2: 0.5, 3: 0.6}}
    drawn = {
        line.get_label(): line
        for line in plotting.acceptance({"": lines}, FAMILIES).axes[0].lines
    }
    assert drawn["best"].get_marker() == "o"
    whole = plotting.acceptance({"": LINES}, FAMILIES).axes[0].lines
    assert whole[0].get_marker() == ""


def test_families_and_a_guide_are_named():
    told = texts(
        plotting.acceptance({"": LINES}, FAMILIES, guide=("a bound", {1: 0.1, 2: 0.2}))
    )
    assert {"independent", "ranked", "best", "rule", "a bound"} <= set(told)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"panels": {}}, "panels maps"),
        ({"panels": {"": {}}}, "holds no lines"),
        ({"panels": {"": {**LINES, "best": {}}}}, "maps k"),
        ({"panels": {"": {**LINES, "best": {0: 0.1}}}}, "k must be at least 1"),
        ({"panels": {"": {**LINES, "best": {1: 1.2}}}}, "at most 1"),
        ({"families": {"independent": ["best", "rule"]}}, "each name once"),
        ({"families": {**FAMILIES, "more": ["rule"]}}, "each name once"),
        ({"families": {**FAMILIES, "more": []}}, "0 names"),
        ({"families": [("a", "b")]}, "families maps"),
    ],
)
def test_lines_that_make_no_figure_are_refused(change, words):
    asked = {"panels": {"": LINES}, "families": FAMILIES} | change
    with pytest.raises(SpecbookError, match=words):
        plotting.acceptance(**asked)


# ---- variations ------------------------------------------------------------------


def test_a_bar_for_each_rule_with_its_number_and_the_marked_ones_hatched():
    fig = plotting.variations(
        {"one": Fraction(1, 4), "two": 0.5}, "x", marked=["two"], mark="m", plain="p"
    )
    bars = fig.axes[0].patches
    assert [bar.get_width() for bar in bars] == [0.25, 0.5]
    assert [bool(bar.get_hatch()) for bar in bars] == [False, True]
    assert {"0.250", "0.500", "one", "two", "m", "p"} <= set(texts(fig))
    framed(fig)


@pytest.mark.parametrize(
    ("values", "marks", "words"),
    [
        ({}, {}, "values maps"),
        ({"a": 1.5}, {}, "at most 1"),
        ({"a": 0.5}, {"marked": ["b"], "mark": "m", "plain": "p"}, "no bar 'b'"),
        ({"a": 0.5}, {"marked": ["a"]}, "need the words"),
    ],
)
def test_bars_that_say_nothing_are_refused(values, marks, words):
    with pytest.raises(SpecbookError, match=words):
        plotting.variations(values, "x", **marks)
