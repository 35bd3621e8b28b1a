"""How a quantity grows with a size that doubles: lines with bands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from .. import checks
from ..errors import SpecbookError
from .frame import COLOURS, DASHES, MARKERS, RC, new_figure

SPAN = 8
MOST = 7
"""More lines than this cannot be told apart."""


def growth(
    lines: Mapping[str, Sequence[Sequence[float]]], xlabel: str, ylabel: str
) -> Figure:
    """Draws each line with its band, and names them in a legend beside the axes.

    `lines`: {name: (x, middle, low, high)}, four rows of equal length, all above 0 and
    low <= middle <= high. Sizes are on a logarithmic axis, and so is the quantity where
    it spans more than `SPAN`. Returns the figure. Raises `SpecbookError` for other rows
    and for more than `MOST` lines.
    """
    checks.text(xlabel, "xlabel")
    checks.text(ylabel, "ylabel")
    if not isinstance(lines, Mapping) or not 1 <= len(lines) <= MOST:
        raise SpecbookError(f"lines must map 1 to {MOST} names to their rows")
    found = {name: _rows(name, rows) for name, rows in lines.items()}
    with matplotlib.rc_context(RC):
        fig, ax = new_figure(6.8, 3.8)
        for index, (name, (x, middle, low, high)) in enumerate(found.items()):
            colour = COLOURS[index % len(COLOURS)]
            ax.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0)
            ax.plot(
                x,
                middle,
                color=colour,
                linestyle=DASHES[index % len(DASHES)],
                marker=MARKERS[index % len(MARKERS)],
                ms=4.5,
                label=name,
            )
        ax.set_xscale("log", base=2)
        logarithmic = [ax.xaxis]
        middles = [value for _, row, _, _ in found.values() for value in row]
        if max(middles) > SPAN * min(middles):
            ax.set_yscale("log", base=2)
            logarithmic.append(ax.yaxis)  # type: ignore[arg-type]
        for axis in logarithmic:
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_formatter(NullFormatter())
        ax.set_xlabel(xlabel)
        ax.set_ylabel(ylabel)
        if len(found) > 1 or next(iter(found)):
            legend = fig.legend(loc="outside lower center", ncols=2, handlelength=3)
            for text in legend.get_texts():
                text.set_parse_math(False)
    return fig


def _rows(name: Any, rows: Any) -> list[list[float]]:
    four = checks.entries(rows, f"lines[{name!r}]", "rows")
    if len(four) != 4:
        raise SpecbookError(f"lines[{name!r}] has {len(four)} rows, not 4")
    made = []
    for which, row in zip(("x", "middle", "low", "high"), four, strict=True):
        where = f"lines[{name!r}].{which}"
        made.append(
            [
                float(checks.real(value, f"{where}[{i}]"))
                for i, value in enumerate(checks.entries(row, where, "numbers"))
            ]
        )
    if len({len(row) for row in made}) != 1 or not made[0]:
        raise SpecbookError(f"lines[{name!r}]: rows of {[len(row) for row in made]}")
    for x, middle, low, high in zip(*made, strict=True):
        if not 0 < low <= middle <= high or not x > 0:
            raise SpecbookError(
                f"lines[{name!r}] at {x}: needs 0 < {low} <= {middle} <= {high}"
            )
    return made
