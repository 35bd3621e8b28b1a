"""The six cost terms of a run, as stacked bars."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ..errors import SpecbookError
from ..ledger import COST_TERMS, RoundLedger
from .frame import (
    INK,
    OKABE_ITO,
    RC,
)

TERM_NAMES = {term: term.replace("_", " ") for term in COST_TERMS}
TERM_LOOKS = {
    # The target's share is mostly the longest, so it gets the calmest face.
    "proposal": (OKABE_ITO["orange"], "///"),
    "retrieval": (OKABE_ITO["yellow"], "..."),
    "packing": (OKABE_ITO["purple"], "xxx"),
    "target_verify": (OKABE_ITO["sky"], ""),
    "selection": (OKABE_ITO["green"], "\\\\\\"),
    "temporary_state": (OKABE_ITO["vermilion"], "---"),
}


THIN = 0.025
"""A term of a smaller share of the panel's longest bar would be a line without a face:
such terms stand together at the bar's end."""
THIN_NAME = "thin terms, together"
THIN_LOOK = ("#8a8a8a", "")


def ledger_bars(
    ledgers: Mapping[str, Iterable[RoundLedger]] | Iterable[RoundLedger],
    title: str | None = None,
) -> Figure:
    """Draws the six cost terms as stacked bars: per committed token and per round.

    `ledgers`: {name of a run: its ledgers in seconds, one a round}, or the ledgers of
    one run. Both panels are in milliseconds, sums over sums. Terms that are too thin to
    be told apart are drawn as one piece, in grey. Returns the figure; its
    caption should hold `machine()`. Raises `SpecbookError` for a run without rounds or
    without committed tokens.
    """
    runs: Mapping[str, Any]
    runs = ledgers if isinstance(ledgers, Mapping) else {"this run": ledgers}
    rows = {name: _ledger_row(str(name), run) for name, run in runs.items()}
    if not rows:
        raise SpecbookError("there is no ledger to draw")
    with matplotlib.rc_context(RC):
        height = 1.5 + 0.42 * len(rows)
        fig = Figure((7.0, height), layout="constrained", facecolor="white")
        FigureCanvasAgg(fig)
        axes = fig.subplots(1, 2, sharey=True)
        panels = ("per committed token", "per round")
        drawn = set().union(
            *(
                _ledger_panel(ax, rows, index, what)
                for index, (ax, what) in enumerate(zip(axes, panels, strict=True))
            )
        )
        axes[0].set_yticks(range(len(rows)), list(map(str, rows)), parse_math=False)
        axes[0].set_ylim(len(rows) - 0.45, -0.55)
        looks = {TERM_NAMES[term]: look for term, look in TERM_LOOKS.items()}
        looks[THIN_NAME] = THIN_LOOK
        handles = [
            Patch(facecolor=face, edgecolor=INK, hatch=hatch, lw=0.6, label=name)
            for name, (face, hatch) in looks.items()
            if name in drawn
        ]
        fig.legend(
            handles=handles,
            loc="outside lower center",
            ncols=min(len(handles), 6),
            handlelength=1.6,
            columnspacing=1.2,
        )
        if title:
            fig.suptitle(title, x=0.01, ha="left", parse_math=False)
    return fig


def _ledger_row(name: str, run: Any) -> tuple[list[float], list[float]]:
    rounds = list(run) if isinstance(run, Iterable) else [run]
    if not rounds or not all(isinstance(entry, RoundLedger) for entry in rounds):
        raise SpecbookError(f"{name}: give one RoundLedger a round, at least one")
    total = RoundLedger.total(rounds)
    if total.committed_tokens == 0:
        raise SpecbookError(f"{name}: no token was committed, so none has a cost")
    spent = [1000.0 * float(getattr(total, term)) for term in COST_TERMS]
    return (
        [term / total.committed_tokens for term in spent],
        [term / len(rounds) for term in spent],
    )


def _ledger_panel(
    ax: Axes, rows: Mapping[str, tuple[list[float], list[float]]], index: int, what: str
) -> set[str]:
    """Draws one panel; returns the names of what it drew."""
    longest = max(sum(row[index]) for row in rows.values()) or 1.0
    drawn = set()
    for place, row in enumerate(rows.values()):
        left = 0.0
        values = dict(zip(TERM_LOOKS, row[index], strict=True))
        pieces = [
            (TERM_NAMES[term], value, *TERM_LOOKS[term])
            for term, value in values.items()
            if value >= THIN * longest
        ]
        rest = sum(value for value in values.values() if value < THIN * longest)
        if rest > 0:
            pieces.append((THIN_NAME, rest, *THIN_LOOK))
        for name, value, colour, hatch in pieces:
            drawn.add(name)
            ax.barh(
                place,
                value,
                left=left,
                height=0.62,
                color=colour,
                edgecolor=INK,
                hatch=hatch,
                lw=0.6,
            )
            left += value
        # Three digits, a zero at the end too: 63.0 beside 55.1.
        told = f"{left:,.0f}" if left >= 100 else f"{left:#.3g}"
        ax.text(left + 0.02 * longest, place, told, va="center", fontsize=8)
    ax.set_xlim(0, 1.18 * longest)
    ax.set_xlabel(f"ms {what}")
    ax.tick_params(axis="y", length=0)
    return drawn
