"""A key/value cache over one round: which rows are there, which stay, which go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from .. import checks
from ..errors import SpecbookError
from .frame import COLUMN_INCHES, INK, MUTED, OKABE_ITO, RC, new_figure, printable

LOOKS = {
    "committed": (OKABE_ITO["sky"], ""),
    "kept": (OKABE_ITO["green"], ".."),
    "dropped": ("white", "xx"),
}
"""What becomes of a row: its colour and its hatch."""


def draw_cache(
    stages: Mapping[str, Sequence[tuple[str, str]]], prefix_len: int, row_bytes: int
) -> Figure:
    """Draws the rows that a cache holds at each stage of a round, a strip a stage.

    `stages`: {name: rows behind the prefix}, each (label, look), look one of `LOOKS`.
    The `prefix_len` rows before them are one wide cell. Behind each strip stand its
    rows and bytes, `row_bytes` a row. Returns the figure. Raises `SpecbookError`.
    """
    if not isinstance(stages, Mapping) or not stages:
        raise SpecbookError(f"stages must map names to rows, got {stages!r}")
    checks.integer(prefix_len, "prefix_len", least=1)
    checks.integer(row_bytes, "row_bytes", least=1)
    strips = {}
    for name, rows in stages.items():
        strips[name] = checks.entries(rows, f"stages[{name!r}]", "(label, look) pairs")
        for cell in strips[name]:
            if not isinstance(cell, tuple) or len(cell) != 2:
                raise SpecbookError(f"stages[{name!r}]: no (label, look): {cell!r}")
            checks.text(cell[0], "a label")
            checks.one_of(cell[1], "look", list(LOOKS))
    wide = 2.0  # cells that the prefix takes, however long it is
    most = max(map(len, strips.values()))
    with matplotlib.rc_context(RC):
        fig, ax = new_figure(COLUMN_INCHES - 0.3, 1.3 + 0.62 * len(strips))
        used = {"committed"}
        for at, rows in enumerate(strips.values()):
            cells = [(f"prefix 0..{prefix_len - 1}", "committed", -wide, wide)]
            for place, (label, look) in enumerate(rows):
                cells.append((printable(label), look, place, 1))
            for label, look, left, width in cells:
                used.add(look)
                face, hatch = LOOKS[look]
                ax.add_patch(
                    Rectangle(
                        (left, at - 0.36),
                        width,
                        0.72,
                        facecolor=face,
                        edgecolor=INK if look != "dropped" else MUTED,
                        hatch=hatch,
                        lw=1,
                    )
                )
                ax.text(
                    left + width / 2,
                    at,
                    label,
                    ha="center",
                    va="center",
                    fontsize=8,
                    parse_math=False,
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.2},
                )
            count = prefix_len + len(rows)
            told = f"{count} rows, {count * row_bytes / 1e3:.0f} kB"
            ax.text(len(rows) + 0.15, at, told, va="center", fontsize=8)
        ax.set_xlim(-wide - 0.1, most + 2.4)
        ax.set_ylim(len(strips) - 0.45, -0.6)
        ax.set_yticks(range(len(strips)), list(strips), parse_math=False)
        places = range(most)
        ax.set_xticks([p + 0.5 for p in places], [str(prefix_len + p) for p in places])
        ax.set_xlabel("row of the cache")
        ax.set_ylabel("stage")
        ax.tick_params(length=0)
        ax.grid(False)
        for spine in ax.spines.values():
            spine.set_visible(False)
        handles = [
            Patch(facecolor=face, edgecolor=INK, hatch=hatch, label=look)
            for look, (face, hatch) in LOOKS.items()
            if look in used
        ]
        fig.legend(handles=handles, loc="outside upper right", ncols=len(handles))
    return fig
