"""What the heads of 0x06 read and hold: teacher rows on a packed stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from .. import checks
from ..errors import SpecbookError
from .frame import INK, MUTED, OKABE_ITO, RC, new_figure

_LOOKS: dict[str, dict[str, Any]] = {
    "state": {"marker": "s", "color": OKABE_ITO["blue"], "ms": 9},
    "embedding": {"marker": "o", "color": OKABE_ITO["orange"], "ms": 8},
    "label": {"marker": "*", "color": OKABE_ITO["green"], "ms": 12},
}
_WORDS = {
    "state": "the target's state after this token",
    "embedding": "this token's embedding",
    "label": "the label",
}


def teacher_rows(
    rows: Sequence[tuple[int, int, Sequence[int], int]],
    segments: Sequence[int],
) -> Figure:
    """Draws which places of a packed stream each teacher row reads (section 0x06B).

    `rows`: (head, place of the state, places of the embeddings, place of the label),
    drawn from top to bottom. `segments`: for each place the number of its document;
    documents are told apart by a line. Returns the figure. Raises `SpecbookError` for a
    place outside the stream and where there is nothing to draw.
    """
    owners = [checks.integer(s, f"segments[{i}]") for i, s in enumerate(segments)]
    if not owners or not rows:
        raise SpecbookError("there is no row or no stream to draw")
    most = len(owners) - 1
    with matplotlib.rc_context(RC):
        fig, ax = new_figure(6.4, 1.4 + 0.3 * len(rows))
        names = []
        for line, (head, state, embedded, label) in enumerate(rows):
            places = [("state", state), *(("embedding", e) for e in embedded)]
            places.append(("label", label))
            for what, place in places:
                checks.integer(place, f"rows[{line}]: {what}", least=0, most=most)
            ax.plot(
                [state, label],
                [line, line],
                "-",
                color=MUTED,
                lw=0.8,
                marker="",
                zorder=1,
            )
            for what, place in places:
                ax.plot([place], [line], ls="", mec=INK, mew=0.6, **_LOOKS[what])
            names.append(f"head {head}")
        for place in range(1, len(owners)):
            if owners[place] != owners[place - 1]:
                ax.axvline(place - 0.5, color=INK, lw=1.2, ls="--", marker="")
        for owner in dict.fromkeys(owners):
            held = [place for place, name in enumerate(owners) if name == owner]
            ax.annotate(
                f"document {owner + 1}",
                (sum(held) / len(held), -0.9),
                ha="center",
                va="center",
                fontsize=8,
            )
        ax.set_yticks(range(len(rows)), names)
        ax.set_ylim(len(rows) - 0.4, -1.4)
        ax.set_xlim(-0.5, most + 0.5)
        ax.set_xticks(range(len(owners)))
        ax.tick_params(axis="y", length=0)
        ax.set_xlabel("place in the packed stream (tokens)")
        ax.set_ylabel("teacher row")
        fig.legend(
            handles=[
                Line2D([], [], ls="", mec=INK, mew=0.6, label=_WORDS[what], **look)
                for what, look in _LOOKS.items()
            ],
            loc="outside lower center",
            ncols=3,
            handletextpad=0.3,
            columnspacing=1.2,
        )
    return fig
