"""How many of each kind: stacked bars of whole numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from .. import checks
from ..errors import SpecbookError
from .frame import INK, OKABE_ITO, RC, new_figure

HATCHES = ("", "///", "...", "xxx", "\\\\\\")
"""One for each part, in order: parts can be told apart without colours."""
FACES = ("sky", "orange", "yellow", "vermilion", "green")


def counts(
    rows: Mapping[str, Mapping[str, int]],
    xlabel: str,
    *,
    faces: Sequence[str] = FACES,
) -> Figure:
    """Draws for each name a bar of its counts, one part after the other.

    `rows`: {name: {part: count}}, the same parts in the same order for every name; at
    the end of a bar stands its sum. A part that is nowhere in the picture is listed all
    the same. `faces`: the parts' colours, names of `OKABE_ITO`. Returns the figure.
    Raises `SpecbookError` for counts that are no whole numbers from 0, for other parts,
    and for more parts than can be told apart.
    """
    checks.text(xlabel, "xlabel")
    for face in checks.entries(faces, "faces", "names of colours"):
        checks.one_of(face, "a face", list(OKABE_ITO))
    most = min(len(faces), len(HATCHES))
    if not isinstance(rows, Mapping) or not rows:
        raise SpecbookError(f"rows must map names to their counts, got {rows!r}")
    found: dict[str, list[int]] = {}
    parts: list[str] | None = None
    for name, row in rows.items():
        if not isinstance(row, Mapping) or not 1 <= len(row) <= most:
            raise SpecbookError(f"rows[{name!r}] must map 1 to {most} parts to counts")
        parts = list(row) if parts is None else parts
        if list(row) != parts:
            raise SpecbookError(f"rows[{name!r}] has {list(row)}, not {parts}")
        found[name] = [
            checks.integer(count, f"rows[{name!r}][{part!r}]", least=0)
            for part, count in row.items()
        ]
    colours = [OKABE_ITO[face] for face in faces]
    looks = list(zip(parts or [], colours, HATCHES, strict=False))
    return _draw(found, looks, xlabel)


def _draw(
    found: Mapping[str, list[int]], looks: list[tuple[str, str, str]], xlabel: str
) -> Figure:
    with matplotlib.rc_context(RC):
        fig, ax = new_figure(6.8, 1.2 + 0.23 * len(found))
        for place, row in enumerate(found.values()):
            left = 0
            for count, (_, face, hatch) in zip(row, looks, strict=True):
                if count:
                    ax.barh(
                        place,
                        count,
                        left=left,
                        height=0.7,
                        facecolor=face,
                        hatch=hatch,
                        edgecolor=INK,
                        lw=0.5,
                    )
                left += count
            ax.annotate(
                str(left),
                (left, place),
                (4, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
            )
        ax.set_yticks(range(len(found)), list(found), parse_math=False)
        ax.set_ylim(len(found) - 0.4, -0.6)
        ax.set_xlim(0, 1.06 * max(1, *map(sum, found.values())))
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.tick_params(axis="y", length=0)
        ax.set_xlabel(xlabel)
        legend = fig.legend(
            handles=[
                Patch(facecolor=face, hatch=hatch, edgecolor=INK, lw=0.5, label=part)
                for part, face, hatch in looks
            ],
            loc="outside lower center",
            ncols=len(looks),
            handlelength=1.6,
        )
        for text in legend.get_texts():
            text.set_parse_math(False)
    return fig
