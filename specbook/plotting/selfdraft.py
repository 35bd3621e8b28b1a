"""What a target that drafts for itself does (section 0x05): skip vectors by their cost,
and Kangaroo's rounds with their two exits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from .. import checks
from ..errors import SpecbookError
from .frame import INK, OKABE_ITO, RC, new_figure


def surface(
    points: Sequence[tuple[float, float, float]],
    best: int,
    xlabel: str = "sublayers skipped",
    ylabel: str = "time a token, plain decoding is 1",
) -> Figure:
    """Draws skip vectors by what they are worth (section 0x05A).

    `points`: for each vector (sublayers skipped, time a token in those of plain
    decoding, share of the drafted tokens that was accepted). `best`: which of them is
    ringed. Returns the figure. Raises `SpecbookError` where there is nothing to draw,
    and for what is no number.
    """
    if not points:
        raise SpecbookError("there is no vector to draw")
    checks.integer(best, "best", least=0, most=len(points) - 1)
    rows = []
    for number, point in enumerate(points):
        if len(point) != 3:
            raise SpecbookError(f"points[{number}] has {len(point)} numbers, not 3")
        where = f"points[{number}]"
        skipped, spent, share = (float(checks.real(v, where)) for v in point)
        checks.real(share, f"{where}: the share", least=0, most=1)
        rows.append((skipped, spent, share))
    with matplotlib.rc_context(RC):
        fig, ax = new_figure(6.4, 3.8)
        ax.axhline(1, color=INK, ls="--", lw=1.2, marker="", zorder=0.5)
        drawn = ax.scatter(
            [x for x, _, _ in rows],
            [y for _, y, _ in rows],
            c=[share for _, _, share in rows],
            cmap="cividis",
            vmin=0,
            vmax=1,
            s=34,
            edgecolors=INK,
            linewidths=0.5,
        )
        at = rows[best][:2]
        ax.plot([at[0]], [at[1]], "o", ms=13, mfc="none", mec=OKABE_ITO["vermilion"])
        # The lines are named where no point can be: below all of them.
        lowest = min([1.0, *(y for _, y, _ in rows)])
        highest = max([1.0, *(y for _, y, _ in rows)])
        room = 0.16 * (highest - lowest or 1.0)
        ax.set_ylim(lowest - room, highest + room / 3)
        ax.annotate(
            f"best: {at[1]:.2f}",
            (at[0], lowest),
            (0, -20),
            textcoords="offset points",
            fontsize=8,
            va="top",
            ha="center",
        )
        ax.annotate(
            "plain decoding",
            (1, 1),
            (0, 4),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            fontsize=8,
            ha="right",
        )
        ax.set_xlabel(xlabel)
        ax.set_ylabel(ylabel)
        bar = fig.colorbar(drawn, ax=ax)
        bar.set_label("share of drafted tokens accepted")
    return fig


_ENDS = {
    "sure": "the second exit, behind this token",
    "own": "the target's own token",
}


def exits(rounds: Sequence[Any], threshold: float, most: int) -> Figure:
    """Draws rounds of Kangaroo, one line each, from left to right (section 0x05B).

    `rounds`: each with `tokens`, `confidences` and `accepted`, as
    `measure.self_traces.kangaroo_rounds` gives them. `threshold`, `most`: those that
    they were drafted with. Accepted tokens are filled, refused ones hollow, and a bar
    stands where the draft ended for lack of confidence; the target's own token ends the
    round. Returns the figure. Raises `SpecbookError` where there is nothing to draw.
    """
    if not rounds:
        raise SpecbookError("there is no round to draw")
    threshold = float(checks.real(threshold, "threshold", least=0, most=1))
    checks.integer(most, "most", least=1)
    blue, orange = OKABE_ITO["blue"], OKABE_ITO["orange"]
    with matplotlib.rc_context(RC):
        fig, ax = new_figure(6.4, 1.5 + 0.3 * len(rounds))
        for line, one in enumerate(rounds):
            for place, sure in enumerate(one.confidences, start=1):
                checks.real(sure, f"rounds[{line}]: confidence", least=0, most=1)
                face = blue if place <= one.accepted else "white"
                ax.plot([place], [line], "o", ms=11, color=blue, mfc=face, ls="")
                ax.annotate(
                    f"{100 * sure:.0f}",
                    (place, line),
                    (0, -0.5),
                    textcoords="offset points",
                    ha="center",
                    va="center",
                    fontsize=8,
                    color="white" if place <= one.accepted else INK,
                )
            ended = len(one.tokens)
            if ended and one.confidences[-1] < threshold:
                ax.plot(
                    [ended + 0.4] * 2,
                    [line - 0.36, line + 0.36],
                    "-",
                    color=OKABE_ITO["vermilion"],
                    lw=2.2,
                    marker="",
                )
            ax.plot([most + 1.2], [line], "s", ms=7, color=orange, mec=INK, mew=0.6)
            ax.annotate(
                f"{one.accepted + 1}",
                (most + 1.8, line),
                ha="center",
                va="center",
                fontsize=8,
            )
        ax.set_xlim(0.4, most + 2.2)
        ax.set_ylim(len(rounds) - 0.4, -1.2)
        ax.annotate("tokens", (most + 1.8, -0.85), ha="center", fontsize=8)
        ax.set_xticks(range(1, most + 1))
        ax.set_yticks(range(len(rounds)), [str(n + 1) for n in range(len(rounds))])
        ax.tick_params(axis="y", length=0)
        ax.set_xlabel("place in the draft (tokens), confidence in percent")
        ax.set_ylabel("round")
        fig.legend(
            handles=[
                Line2D([], [], ls="", marker="o", ms=8, color=blue, label="accepted"),
                Line2D(
                    [],
                    [],
                    ls="",
                    marker="o",
                    ms=8,
                    color=blue,
                    mfc="white",
                    label="refused",
                ),
                Line2D(
                    [],
                    [],
                    ls="-",
                    lw=2.2,
                    color=OKABE_ITO["vermilion"],
                    marker="",
                    label=_ENDS["sure"],
                ),
                Line2D(
                    [],
                    [],
                    ls="",
                    marker="s",
                    color=orange,
                    mec=INK,
                    label=_ENDS["own"],
                ),
            ],
            loc="outside lower center",
            ncols=2,
            handletextpad=0.4,
            columnspacing=1.4,
        )
    return fig
