"""What a committed token costs over the size of the tree, one line a kind of heads."""

from __future__ import annotations

from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

from .. import checks
from ..errors import SpecbookError
from .frame import COLOURS, DASHES, INK, MARKERS, MUTED, RC, new_figure

MOST = 6
"""More kinds than this cannot be told apart."""


def tradeoff(
    lines: dict[str, tuple[list[int], list[float]]],
    ylabel: str,
    *,
    plain: float | None = None,
) -> Figure:
    """Draws each kind's time a token over the rows of its tree; its least is filled.

    `lines`: {kind: (rows, times)}, rows rising and all above 0. `plain`: the time of a
    plain step, a dotted line. Returns the figure. Raises `SpecbookError` for other
    numbers and for more than `MOST` kinds.
    """
    checks.text(ylabel, "ylabel")
    if not isinstance(lines, dict) or not 1 <= len(lines) <= MOST:
        raise SpecbookError(f"lines must map 1 to {MOST} kinds to rows and times")
    found = {kind: _line(kind, pair) for kind, pair in lines.items()}
    if plain is not None:
        plain = float(checks.real(plain, "plain", least=0))
    with matplotlib.rc_context(RC):
        fig, ax = new_figure(6.4, 3.6)
        for index, (kind, (rows, times)) in enumerate(found.items()):
            colour = COLOURS[index % len(COLOURS)]
            marker = MARKERS[index % len(MARKERS)]
            ax.plot(
                rows,
                times,
                color=colour,
                linestyle=DASHES[index % len(DASHES)],
                marker=marker,
                ms=5,
                mfc="white",
                label=kind,
            )
            least = times.index(min(times))
            ax.plot(
                [rows[least]],
                [times[least]],
                color=colour,
                marker=marker,
                ms=9,
                mec=INK,
                mew=0.8,
                zorder=3,
            )
        if plain is not None:
            # Named in the legend: beside the line, others may cross the words.
            ax.axhline(plain, color=MUTED, ls=":", lw=1.6, label="plain decoding")
        ax.set_xscale("log", base=2)
        ticks = sorted({n for rows, _ in found.values() for n in rows})
        while len(ticks) > 9:
            ticks = ticks[::2]
        ax.set_xticks(ticks)
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.set_ylim(bottom=0)
        ax.set_xlabel("rows of a verification, N, root included")
        ax.set_ylabel(ylabel)
        legend = fig.legend(loc="outside lower center", ncols=3, handlelength=3)
        for text in legend.get_texts():
            text.set_parse_math(False)
    return fig


def _line(kind: str, pair: Any) -> tuple[list[int], list[float]]:
    columns = checks.entries(pair, f"lines[{kind!r}]", "rows and times")
    if len(columns) != 2:
        raise SpecbookError(f"lines[{kind!r}] must be rows and times")
    rows = [
        checks.integer(n, f"rows of {kind}[{i}]", least=1)
        for i, n in enumerate(checks.entries(columns[0], f"rows of {kind}", "integers"))
    ]
    times = [
        float(checks.real(t, f"times of {kind}[{i}]", least=0))
        for i, t in enumerate(checks.entries(columns[1], f"times of {kind}", "numbers"))
    ]
    if len(rows) != len(times) or not rows or sorted(set(rows)) != rows:
        raise SpecbookError(
            f"lines[{kind!r}]: {len(rows)} rows, which must rise, and {len(times)} "
            "times"
        )
    return rows, times
