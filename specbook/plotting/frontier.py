"""Configurations as named points, with those that nothing beats joined by steps; and
acceptance by depth, where lines end at different depths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from .. import checks
from ..errors import SpecbookError
from .charts import spread
from .frame import COLOURS, DASHES, INK, MARKERS, MUTED, RC, new_figure

LINE_POINTS = 11.0
"""Height of a line of text, in points."""
AXES_SHARE = 0.75
"""Of the figure's height, about."""


def scatter(
    points: Mapping[str, tuple[float, float, str]],
    xlabel: str,
    ylabel: str,
    *,
    level: tuple[float, str] | None = None,
    steps: Sequence[str] = (),
) -> Figure:
    """Draws one point a name: `points` {name: (x, y, group)}; a group keeps its colour
    and its marker. Names stand in a column to the right, in the order of the points
    from top to bottom, each joined with its point.

    `level`: a height with a dashed line, and its name in the legend. `steps`: names
    that a stepped line joins, from left to right, as the border of what can be had.
    Returns the figure. Raises `SpecbookError` for no points, and for what is no number.
    """
    if not isinstance(points, Mapping) or not points:
        raise SpecbookError(f"points must map names to places, got {points!r}")
    found: dict[str, tuple[float, float, str]] = {}
    for name, entry in points.items():
        three = checks.entries(entry, f"points[{name!r}]", "x, y and a group")
        if len(three) != 3:
            raise SpecbookError(f"points[{name!r}] must be x, y and a group")
        x, y = (float(checks.real(v, f"points[{name!r}]")) for v in three[:2])
        found[name] = (x, y, checks.text(three[2], f"group of {name!r}"))
    for label, what in ((xlabel, "xlabel"), (ylabel, "ylabel")):
        checks.text(label, what)
    for name in steps:
        checks.one_of(name, "step", list(found))
    groups = list(dict.fromkeys(group for _, _, group in found.values()))
    with matplotlib.rc_context(RC):
        fig, ax = new_figure(7.0, max(3.4, 1.2 + 0.19 * len(found)))
        for group, look in zip(groups, _looks(), strict=False):
            places = [(x, y) for x, y, one in found.values() if one == group]
            ax.plot(
                [x for x, _ in places],
                [y for _, y in places],
                ls="",
                mec=INK,
                mew=0.6,
                ms=7,
                label=group,
                zorder=3,
                **look,
            )
        if steps:
            border = sorted(found[name][:2] for name in steps)
            ax.step(
                [x for x, _ in border],
                [y for _, y in border],
                where="post",
                color=INK,
                ls="-",
                lw=1.2,
                marker="",
                zorder=1,
            )
        if level is not None:
            height, told = level
            # Named in the legend: points and their lines would cross the words.
            ax.axhline(
                float(height), color=MUTED, ls="--", lw=1.2, zorder=0.5, label=told
            )
        ax.margins(0.06)
        ax.set_ylim(bottom=0)
        ax.set_xlabel(xlabel)
        ax.set_ylabel(ylabel)
        # One column of names, each as near its point's height as the others allow:
        # labels beside the points would cover one another.
        order = sorted(found, key=lambda name: found[name][1])
        top = ax.get_ylim()[1]
        least = LINE_POINTS / (72 * AXES_SHARE * fig.get_figheight())
        heights = spread([found[name][1] / top for name in order], least)
        for name, height in zip(order, heights, strict=True):
            x, y, _ = found[name]
            ax.annotate(
                name,
                (x, y),
                (1.03, height),
                textcoords="axes fraction",
                va="center",
                fontsize=8,
                annotation_clip=False,
                parse_math=False,
                arrowprops={
                    "arrowstyle": "-",
                    "color": MUTED,
                    "lw": 0.5,
                    "relpos": (0, 0.5),
                },
            )
        legend = fig.legend(
            loc="outside lower left",
            ncols=len(groups) + (level is not None),
            handletextpad=0.3,
        )
        for text in legend.get_texts():
            text.set_parse_math(False)
    return fig


def _looks() -> list[dict[str, Any]]:
    return [{"color": c, "marker": m} for c, m in zip(COLOURS, MARKERS, strict=True)]


def by_depth(lines: Mapping[str, Sequence[float]]) -> Figure:
    """Draws shares over the depth, from 1; `lines` {name: shares}, of any lengths.
    Returns the figure. Raises `SpecbookError` for no lines, empty ones, and shares
    outside 0 to 1."""
    if not isinstance(lines, Mapping) or not lines:
        raise SpecbookError(f"lines must map names to shares, got {lines!r}")
    with matplotlib.rc_context(RC):
        fig, ax = new_figure(7.0, max(3.4, 1.2 + 0.19 * len(lines)))
        for number, (name, values) in enumerate(lines.items()):
            shares = [
                float(checks.real(v, f"lines[{name!r}][{i}]", least=0, most=1))
                for i, v in enumerate(checks.entries(values, name, "shares"))
            ]
            if not shares:
                raise SpecbookError(f"lines[{name!r}] is empty")
            ax.plot(
                range(1, len(shares) + 1),
                shares,
                color=COLOURS[number % len(COLOURS)],
                ls=DASHES[number % len(DASHES)],
                marker=MARKERS[number % len(MARKERS)],
                mfc="white",
                label=name,
            )
        ax.set_ylim(0, 1.03)
        ax.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1])
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set_xlabel("depth of the candidate, in tokens")
        ax.set_ylabel("share of rounds that published one")
        legend = fig.legend(loc="outside right upper", handlelength=3)
        for text in legend.get_texts():
            text.set_parse_math(False)
    return fig
