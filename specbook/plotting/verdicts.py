"""Verdicts in a grid: what each check says of each case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from .. import checks
from ..errors import SpecbookError
from .frame import COLUMN_INCHES, MUTED, OKABE_ITO, RC, new_figure

LOOKS = (
    {"marker": ".", "color": MUTED, "ms": 6.0},
    {"marker": "X", "color": OKABE_ITO["vermilion"], "ms": 10.0},
    {"marker": "_", "color": MUTED, "ms": 8.0},
)
"""Of the first, second and third verdict; told apart without colour."""


def verdicts(
    grid: Mapping[str, Sequence[str]],
    columns: Sequence[str],
    names: Sequence[str],
    xlabel: str,
    ylabel: str,
) -> Figure:
    """Draws one line of marks a case: `grid` is {case: one verdict a column}.

    `columns`: the checks. `names`: up to three verdicts; the second is the one to be
    seen. Returns the figure. Raises `SpecbookError` for lines of another length and for
    other verdicts.
    """
    if not isinstance(grid, Mapping) or not grid:
        raise SpecbookError(f"grid must map cases to verdicts, got {grid!r}")
    heads = checks.entries(columns, "columns", "names")
    known = checks.entries(names, "names", "verdicts")
    if not 1 <= len(known) <= len(LOOKS):
        raise SpecbookError(f"{len(known)} verdicts; there are {len(LOOKS)} looks")
    for text in (*heads, *known, xlabel, ylabel):
        checks.text(text, "a name")
    for case, line in grid.items():
        found = checks.entries(line, f"grid[{case!r}]", "verdicts")
        if len(found) != len(heads):
            raise SpecbookError(f"{case}: {len(found)} verdicts of {len(heads)} checks")
        for verdict in found:
            checks.one_of(verdict, f"a verdict of {case!r}", known)
    with matplotlib.rc_context(RC):
        fig, ax = new_figure(COLUMN_INCHES - 0.3, 2.9 + 0.27 * len(grid))
        for row, line in enumerate(grid.values()):
            for column, verdict in enumerate(line):
                look = LOOKS[known.index(verdict)]
                ax.plot([column], [row], ls="", **look)  # type: ignore[arg-type]
        ax.set_xticks(range(len(heads)), heads, rotation=40, ha="left", fontsize=8)
        ax.set_yticks(range(len(grid)), list(grid), fontsize=8)
        ax.xaxis.tick_top()
        ax.xaxis.set_label_position("top")
        ax.set_xlim(-0.5, len(heads) - 0.5)
        ax.set_ylim(len(grid) - 0.5, -0.5)
        ax.set_xlabel(xlabel)
        ax.set_ylabel(ylabel)
        ax.tick_params(length=0)
        ax.grid(True, color="#e0e0e0", lw=0.6)
        ax.set_axisbelow(True)
        handles = [
            Line2D([], [], ls="", label=name, **look)  # type: ignore[arg-type]
            for name, look in zip(known, LOOKS, strict=False)
        ]
        fig.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return fig
