"""Measured numbers: values with intervals, curves, shares of a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from .. import checks
from ..errors import SpecbookError
from .frame import (
    COLOURS,
    INK,
    MARKERS,
    MUTED,
    RC,
    new_figure,
)


def _numbers(rows: Any, name: str, length: int | None = None) -> dict[str, list[float]]:
    """{name: numbers} as plain lists, each of `length` finite numbers if given."""
    if not isinstance(rows, Mapping):
        raise SpecbookError(f"{name} must be a mapping from names, got {rows!r}")
    found = {}
    for key, row in rows.items():
        where = name if key == name else f"{name}[{key!r}]"
        row = checks.entries(row, where, "numbers")
        if length is not None and len(row) != length:
            raise SpecbookError(f"{where} has {len(row)} numbers, not {length}")
        found[key] = [float(checks.real(v, f"{where}[{i}]")) for i, v in enumerate(row)]
    return found


def ranges(
    values: Mapping[str, tuple[float, float, float]],
    xlabel: str,
    *,
    points: Mapping[str, Sequence[float]] | None = None,
    reference: tuple[float, str] | None = None,
) -> Figure:
    """Draws one value with its interval for each name, from top to bottom.

    `values`: {name: (value, low, high)}. `points`: single measurements, drawn small
    above their name's interval, one over the other where they would overlap.
    `reference`: where a dashed line stands, and its name.
    Returns the figure. Raises `SpecbookError` for an interval that misses its value,
    and for what is no number.
    """
    spans = _numbers(values, "values", 3)
    measured = {} if points is None else _numbers(points, "points")
    checks.text(xlabel, "xlabel")
    if not spans:
        raise SpecbookError("there is no value to draw")
    line = None if reference is None else _reference(reference)
    with matplotlib.rc_context(RC):
        swarms = _swarms(spans, measured)
        most = max(map(len, swarms.values()), default=1)
        pitch = 0.52 + most * SWARM_POINTS / 72
        fig, ax = new_figure(6.4, 1.1 + pitch * len(spans))
        for place, (name, (value, low, high)) in enumerate(spans.items()):
            if not low <= value <= high:
                raise SpecbookError(f"{name}: {value} is not in [{low}, {high}]")
            look: dict[str, Any] = {"color": COLOURS[0], "marker": MARKERS[0], "ms": 8}
            ax.plot(
                [low, high], [place, place], "-", color=COLOURS[0], marker="|", ms=9
            )
            ax.plot([value], [place], ls="", **look)
            ax.annotate(
                f"{value:.2f}",
                (value, place),
                (0, -13),
                textcoords="offset points",
                ha="center",
                va="center",
                fontsize=8,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
            )
            for level, singles in enumerate(swarms.get(name, [])):
                up = place - (10 + SWARM_POINTS * level) / (72 * pitch)
                ax.plot(
                    singles,
                    [up] * len(singles),
                    ls="",
                    marker="d",
                    ms=5,
                    color=MUTED,
                    mec="white",
                    mew=0.5,
                )
        top = -0.6 - (most - 1) * SWARM_POINTS / (72 * pitch) - 8 / (72 * pitch)
        if line is not None:
            ax.axvline(line[0], color=INK, ls="--", lw=1.2, marker="", zorder=0.5)
            ax.annotate(
                line[1],
                (line[0], top),
                (4, 0),
                textcoords="offset points",
                fontsize=8,
                va="center",
            )
        ax.set_yticks(range(len(spans)), list(spans), parse_math=False)
        ax.set_ylim(len(spans) - 0.4, top - 8 / (72 * pitch))
        ax.tick_params(axis="y", length=0)
        ax.set_xlabel(xlabel)
    return fig


SWARM_POINTS = 5.0
"""From one level of single measurements to the next; so far apart they also stand side
by side on one level."""
AXIS_POINTS = 340
"""About the width of the axes, for the places of single measurements."""


def _swarms(
    spans: Mapping[str, Sequence[float]], measured: Mapping[str, Sequence[float]]
) -> dict[str, list[list[float]]]:
    """{name: levels of measurements}, each on the lowest level with room for it."""
    every = [*spans.values(), *measured.values()]
    numbers = [number for row in every for number in row]
    room = SWARM_POINTS * (max(numbers) - min(numbers)) / AXIS_POINTS
    swarms: dict[str, list[list[float]]] = {}
    for name, singles in measured.items():
        levels: list[list[float]] = []
        for single in sorted(singles):
            free = [level for level in levels if single - level[-1] >= room]
            if free:
                free[0].append(single)
            else:
                levels.append([single])
        swarms[name] = levels
    return swarms


def grouped_ranges(
    groups: Mapping[str, Mapping[str, tuple[float, float, float]]],
    xlabel: str,
    *,
    reference: tuple[float, str] | None = None,
) -> Figure:
    """Draws one value with its interval for each series within each group.

    `groups`: {group: {series: (value, low, high)}}, the same series in the same order
    in every group; a series keeps its marker and colour, and the legend lists them from
    top to bottom. `reference`: as in `ranges`. Returns the figure. Raises
    `SpecbookError` for an interval that misses its value, for groups of different
    series, and for what is no number.
    """
    if not isinstance(groups, Mapping):
        raise SpecbookError(f"groups must be a mapping from names, got {groups!r}")
    found = {
        name: _numbers(row, f"groups[{name!r}]", 3) for name, row in groups.items()
    }
    checks.text(xlabel, "xlabel")
    names = list(next(iter(found.values()), {}))
    if not names:
        raise SpecbookError("there is no value to draw")
    for group, spans in found.items():
        if list(spans) != names:
            raise SpecbookError(f"groups[{group!r}] has {list(spans)}, not {names}")
        for name, (value, low, high) in spans.items():
            if not low <= value <= high:
                raise SpecbookError(
                    f"{group}, {name}: {value} is not in [{low}, {high}]"
                )
    line = None if reference is None else _reference(reference)
    with matplotlib.rc_context(RC):
        step = len(names) + 1
        fig, ax = new_figure(6.4, 1.3 + 0.2 * step * len(found))
        for index, name in enumerate(names):
            row_spans = [found[group][name] for group in found]
            rows = [index + step * number for number in range(len(found))]
            colour = COLOURS[index % len(COLOURS)]
            # The interval's ends reach over the marker: a narrow one stays visible.
            for row, (_, least, most) in zip(rows, row_spans, strict=True):
                ax.plot(
                    [least, most],
                    [row, row],
                    "-",
                    color=colour,
                    marker="|",
                    ms=11,
                    mew=1.6,
                    lw=2.2,
                    zorder=3,
                )
            ax.plot(
                [span[0] for span in row_spans],
                rows,
                ls="",
                color=colour,
                marker=MARKERS[index % len(MARKERS)],
                ms=6,
                mec=INK,
                mew=0.6,
                label=name,
            )
        for number in range(1, len(found)):
            ax.axhline(step * number - 1, color="#d9d9d9", lw=0.8, ls="-")
        if line is not None:
            ax.axvline(line[0], color=INK, ls="--", lw=1.2)
            ax.annotate(
                line[1],
                (line[0], -1),
                (4, 0),
                textcoords="offset points",
                fontsize=8,
                va="center",
            )
        middles = [step * number + (step - 2) / 2 for number in range(len(found))]
        ax.set_yticks(middles, list(found), parse_math=False)
        ax.set_ylim(step * len(found) - 1, -1.6)
        ax.tick_params(axis="y", length=0)
        ax.set_xlabel(xlabel)
        legend = fig.legend(
            loc="outside right upper", handletextpad=0.3, borderaxespad=0.2
        )
        for text in legend.get_texts():
            text.set_parse_math(False)
    return fig


def _reference(reference: Any) -> tuple[float, str]:
    """A place on the axis, and its name."""
    if not isinstance(reference, (tuple, list)) or len(reference) != 2:
        raise SpecbookError(f"reference is a place and a name, got {reference!r}")
    place, name = reference
    return float(checks.real(place, "reference[0]")), checks.text(name, "reference[1]")


MARKS = 32
"""Markers on one line at most: more of them run together to a band."""


def curves(
    x: Sequence[float],
    series: Mapping[str, Sequence[float]],
    xlabel: str,
    ylabel: str,
) -> Figure:
    """Draws lines over one axis, each named at its right end.

    `series`: {name: values}, as many values as `x`. Counts on the axis are marked by
    whole numbers. Returns the figure. Raises
    `SpecbookError` for a series of another length, and for what is no number.
    """
    x = _numbers({"x": x}, "x")["x"]
    series = _numbers(series, "series")
    checks.text(xlabel, "xlabel")
    checks.text(ylabel, "ylabel")
    if not series or len(x) < 2:
        raise SpecbookError("a curve needs a name and two points or more")
    with matplotlib.rc_context(RC):
        fig, ax = new_figure(6.4, 3.4)
        ends = []
        for index, (name, values) in enumerate(series.items()):
            if len(values) != len(x):
                raise SpecbookError(f"{name}: {len(values)} values over {len(x)}")
            colour = COLOURS[index % len(COLOURS)]
            # Open markers: of two that coincide, both can be seen.
            line: dict[str, Any] = {"color": colour, "mfc": "none", "mew": 1.5, "ms": 6}
            every = -(-len(x) // MARKS)
            ax.plot(x, values, label=name, markevery=every, **line)
            ends.append((values[-1], name))
        low, high = ax.get_ylim()
        least = 0.06 * (high - low)  # the height of a line of text, in the axis' unit
        right = x[-1] + 0.035 * (x[-1] - x[0])
        for (end, name), place in zip(
            sorted(ends), spread([end for end, _ in sorted(ends)], least), strict=True
        ):
            ax.plot(
                [x[-1], right],
                [end, place],
                color=MUTED,
                ls="-",
                lw=0.6,
                marker="",
                clip_on=False,
                zorder=1,
                scalex=False,
                scaley=False,
            )
            # In ink: a name must be readable where its line's colour is too pale.
            ax.annotate(
                name,
                (right, place),
                (3, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
                annotation_clip=False,
                parse_math=False,
            )
        if all(place.is_integer() for place in x):
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set_xlabel(xlabel)
        ax.set_ylabel(ylabel)
    return fig


def spread(places: Sequence[float], least: float) -> list[float]:
    """Sorted places, moved as little as possible until all are `least` apart: those
    that crowd each other are laid out around their common middle."""
    groups: list[list[float]] = []
    for place in places:
        groups.append([place])
        while len(groups) > 1 and _first(groups[-1], least) < (
            _first(groups[-2], least) + least * len(groups[-2])
        ):
            last = groups.pop()
            groups[-1] += last
    return [
        _first(group, least) + least * number
        for group in groups
        for number in range(len(group))
    ]


def _first(group: Sequence[float], least: float) -> float:
    return sum(group) / len(group) - least * (len(group) - 1) / 2


def shares(rows: Mapping[str, Mapping[str, float]], xlabel: str) -> Figure:
    """Draws for each name how a whole divides into parts: one bar, from left to right.

    `rows`: {name: {part: share}}, the same parts in the same order for every name;
    the shares of a name add up to 1. Parts have an order, so they go from dark to
    light and are listed from left to right below. Returns the figure. Raises
    `SpecbookError` for shares that are negative or do not add up, and for what is no
    number.
    """
    if not isinstance(rows, Mapping):
        raise SpecbookError(f"rows must be a mapping from names, got {rows!r}")
    checks.text(xlabel, "xlabel")
    if not rows:
        raise SpecbookError("there is no share to draw")
    parts: list[str] = []
    found = {}
    for name, row in rows.items():
        if not isinstance(row, Mapping):
            raise SpecbookError(f"rows[{name!r}] must be a mapping, got {row!r}")
        parts = parts or list(row)
        if list(row) != parts:
            raise SpecbookError(f"rows[{name!r}] has parts {list(row)}, not {parts}")
        found[name] = _numbers({name: list(row.values())}, "rows", len(parts))[name]
        if min(found[name], default=-1.0) < 0 or abs(sum(found[name]) - 1) > 1e-9:
            raise SpecbookError(f"rows[{name!r}]: shares must add up to 1, got {row}")
    with matplotlib.rc_context(RC):
        fig, ax = new_figure(6.4, 1.2 + 0.42 * len(found))
        span = max(len(parts) - 1, 1)
        faces = [matplotlib.colormaps["cividis"](i / span) for i in range(len(parts))]
        for place, values in enumerate(found.values()):
            left = 0.0
            for share, face in zip(values, faces, strict=True):
                ax.barh(
                    place, share, left=left, height=0.66, color=face, edgecolor="white"
                )
                if share >= 0.05:
                    ax.text(
                        left + share / 2,
                        place,
                        f"{share:.0%}",
                        color=_readable_on(face),
                        fontsize=8,
                        ha="center",
                        va="center",
                    )
                left += share
        ax.set_yticks(range(len(found)), list(found), parse_math=False)
        ax.set_ylim(len(found) - 0.45, -0.55)
        ax.set_xlim(0, 1)
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        ax.tick_params(axis="y", length=0)
        ax.set_xlabel(xlabel)
        legend = fig.legend(
            handles=[
                Patch(facecolor=face, edgecolor=INK, lw=0.6, label=part)
                for part, face in zip(parts, faces, strict=True)
            ],
            loc="outside lower center",
            ncols=len(parts),
            handlelength=1.2,
            columnspacing=1.2,
        )
        for text in legend.get_texts():
            text.set_parse_math(False)
    return fig


def _readable_on(face: tuple[float, ...]) -> str:
    """Black or white, whichever stands out more on `face` (WCAG's luminance): a
    contrast of 4.5 and more. Plain ink would not reach that on a middling grey."""
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in face[:3]
    ]
    luminance = sum(
        w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True)
    )
    return "black" if luminance > 0.179 else "white"
