"""Figures of the book: trees, masks, flows, ledgers, and the frame that each gets.

A figure here can be read without its colours (each series also has a marker, a dash
or a hatch), on a dark page (its face is opaque white) and without eyes: `figure`
refuses to frame one that has no alt text or no caption. The same input gives the same
bytes. Needs matplotlib, which comes with the extra `models`.
"""

from __future__ import annotations

from .acceptance import acceptance, variations
from .cache import draw_cache
from .charts import curves, grouped_ranges, ranges, shares
from .counts import counts
from .flows import draw_flow
from .frame import (
    COLOURS,
    COLUMN_INCHES,
    CSS_DPI,
    DASHES,
    DPI,
    INK,
    MARKERS,
    MUTED,
    OKABE_ITO,
    RC,
    SMALLEST_TEXT,
    FramedFigure,
    PlotError,
    figure,
    machine,
    printable,
    processor,
    style,
)
from .frontier import by_depth, scatter
from .growth import growth
from .ledgers import TERM_LOOKS, ledger_bars
from .maps import choice_map
from .masks import draw_mask
from .tradeoffs import tradeoff
from .trees import draw_tree, graph, layout
from .verdicts import verdicts

__all__ = [
    "COLOURS",
    "COLUMN_INCHES",
    "CSS_DPI",
    "DASHES",
    "DPI",
    "FramedFigure",
    "INK",
    "MARKERS",
    "MUTED",
    "OKABE_ITO",
    "PlotError",
    "RC",
    "SMALLEST_TEXT",
    "TERM_LOOKS",
    "acceptance",
    "by_depth",
    "counts",
    "choice_map",
    "curves",
    "draw_cache",
    "draw_flow",
    "draw_mask",
    "draw_tree",
    "figure",
    "graph",
    "growth",
    "grouped_ranges",
    "layout",
    "ledger_bars",
    "machine",
    "printable",
    "processor",
    "ranges",
    "scatter",
    "shares",
    "style",
    "tradeoff",
    "variations",
    "verdicts",
]
