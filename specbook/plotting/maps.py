"""A plane that is divided among choices: which one wins where."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from .. import checks
from ..errors import SpecbookError
from .frame import COLOURS, INK, MUTED, RC, new_figure

PALE = 0.45
"""How much of a colour is left in a face, so that text is readable on it."""

ROOM = 0.15
"""Of the picture: what a mark keeps free around it."""


def choice_map(
    x: Sequence[float],
    y: Sequence[float],
    choices: Sequence[Sequence[str]],
    xlabel: str,
    ylabel: str,
    *,
    here: tuple[float, float] | None = None,
) -> Figure:
    """Draws which choice wins at each place: `choices[row][column]` at (`x[column]`,
    `y[row]`), on logarithmic axes. Each region carries its name, and borders are drawn,
    so that no colour is needed. `here`: a place that is marked. Returns the figure.
    Raises `SpecbookError` for a table of another size, and for places that do not rise
    above 0.
    """
    places = []
    for row, name in ((x, "x"), (y, "y")):
        found = [
            checks.float64(v, f"{name}[{i}]")
            for i, v in enumerate(checks.entries(row, name, "numbers"))
        ]
        if len(found) < 2 or found[0] <= 0 or sorted(set(found)) != found:
            raise SpecbookError(f"{name} must rise from above 0, got {found}")
        places.append(found)
    table = [checks.entries(r, "choices", "names") for r in choices]
    if len(table) != len(y) or any(len(r) != len(x) for r in table):
        raise SpecbookError(f"choices must be {len(y)} rows of {len(x)} names")
    names = list(dict.fromkeys(checks.text(v, "choice") for r in table for v in r))
    if len(names) > len(COLOURS):
        raise SpecbookError(f"more than {len(COLOURS)} choices cannot be told apart")
    number = np.array([[names.index(v) for v in r] for r in table])
    faces = [
        tuple(1 - PALE * (1 - part) for part in to_rgb(COLOURS[i]))
        for i in range(len(names))
    ]
    with matplotlib.rc_context(RC):
        fig, ax = new_figure(6.4, 4.2)
        across, along = _edges(places[0]), _edges(places[1])
        ax.pcolormesh(
            across,
            along,
            number,
            cmap=ListedColormap(faces),
            vmin=-0.5,
            vmax=len(names) - 0.5,
            rasterized=True,
        )
        ax.add_collection(
            LineCollection(_borders(number, across, along), colors=INK, linewidths=1.2)
        )
        ax.set_xscale("log")
        ax.set_yscale("log")
        for axis, edges in ((ax.xaxis, across), (ax.yaxis, along)):
            axis.set_major_locator(FixedLocator(_powers(edges)))
            axis.set_major_formatter(FuncFormatter(_told))
            axis.set_minor_locator(NullLocator())
        free = np.ones(number.shape, dtype=bool)
        if here is not None:
            free = _away(places, here)
        for index in range(len(names)):
            inside = number == index
            open_to = inside & free
            right, up = _middle(open_to if open_to.any() else inside)
            ax.text(
                places[0][right],
                places[1][up],
                names[index].replace("_", " "),
                ha="center",
                va="center",
                color=INK,
                fontsize=10,
                parse_math=False,
            )
        if here is not None:
            ax.plot(*here, ls="", marker="*", ms=13, color="white", mec=INK, mew=1.2)
            ax.annotate(
                "as measured", here, (7, 6), textcoords="offset points", fontsize=8
            )
        for side in ax.spines.values():
            side.set_color(MUTED)
        ax.set_xlabel(checks.text(xlabel, "xlabel"))
        ax.set_ylabel(checks.text(ylabel, "ylabel"))
    return fig


def _edges(places: Sequence[float]) -> np.ndarray:
    """The borders of cells around `places`, halfway between them on a log axis."""
    logs = np.log(places)
    inner = (logs[1:] + logs[:-1]) / 2
    ends = 2 * logs[0] - inner[0], 2 * logs[-1] - inner[-1]
    return np.exp(np.array([ends[0], *inner, ends[1]]))


def _borders(
    number: np.ndarray, across: np.ndarray, along: np.ndarray
) -> list[list[tuple[float, float]]]:
    """The sides of cells that differ from the next one."""
    found = []
    for line, column in np.argwhere(number[:, 1:] != number[:, :-1]).tolist():
        x = across[column + 1]
        found.append([(x, along[line]), (x, along[line + 1])])
    for line, column in np.argwhere(number[1:] != number[:-1]).tolist():
        y = along[line + 1]
        found.append([(across[column], y), (across[column + 1], y)])
    return found


def _powers(edges: np.ndarray) -> list[float]:
    """The powers of two between the first and the last edge."""
    low, high = np.log2(edges[0]), np.log2(edges[-1])
    return [2.0**n for n in range(math.ceil(low), math.floor(high) + 1)]


def _told(value: float, _: Any) -> str:
    return f"{value:g}" if value >= 1 else f"1/{1 / value:g}"


def _away(places: Sequence[Sequence[float]], here: tuple[float, float]) -> np.ndarray:
    """Cells far enough from a mark for a name."""
    near = []
    for row, place in zip(places, here, strict=True):
        logs = np.log(row)
        near.append(abs(logs - np.log(place)) < ROOM * (logs[-1] - logs[0]))
    return ~(near[1][:, None] & near[0][None, :])


def _middle(inside: np.ndarray) -> tuple[int, int]:
    """(column, row) of the cell of a region that lies deepest within it."""
    depth = np.zeros(inside.shape)
    left = np.pad(inside, 1)
    while left.any():
        depth += left[1:-1, 1:-1]
        left = (
            left
            & np.roll(left, 1, 0)
            & np.roll(left, -1, 0)
            & np.roll(left, 1, 1)
            & np.roll(left, -1, 1)
        )
    row, column = np.unravel_index(int(depth.argmax()), depth.shape)
    return int(column), int(row)
