"""The mask of a candidate tree: which columns each row may attend to."""

from __future__ import annotations

from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ..errors import TreeError
from ..tree import CandidateTree
from .frame import (
    COLUMN_INCHES,
    INK,
    OKABE_ITO,
    RC,
    figure_of,
    new_figure,
)
from .trees import row_labels


def draw_mask(
    tree: CandidateTree,
    labels: Any = None,
    title: str | None = None,
    *,
    ax: Axes | None = None,
) -> Figure:
    """Draws which key columns each query row of a tree may attend to.

    Rows are the tree's rows; columns are the committed prefix, abbreviated to one when
    it is longer than three tokens, and then the tree's rows again. A filled square with
    a dot is an allowed pair. `labels` as in `draw_tree`. Returns the figure.
    """
    texts = row_labels(tree, labels)
    if not len(tree):
        raise TreeError("an empty tree has no mask to draw")
    short = tree.prefix_len > 3
    shown = 1 if short else tree.prefix_len
    heads = [f"0..{tree.prefix_len - 1}"] if short else list(map(str, range(shown)))
    heads += [f"{row}\n{text}" for row, text in enumerate(texts)]
    with matplotlib.rc_context(RC):
        longest = max(len(text) for text in texts)
        cell = min(0.75, max(0.4, 0.085 * longest + 0.12))
        cell = min(cell, (COLUMN_INCHES - 1.6) / len(heads))
        if ax is None:
            width = max(3.2, 1.3 + cell * len(heads))
            fig, ax = new_figure(width, 1.2 + 0.34 * len(tree))
        else:
            fig = figure_of(ax)
        for row in range(len(tree)):
            for column in range(len(heads)):
                in_prefix = column < shown
                allowed = in_prefix or tree.tree_mask[row, column - shown]
                _mask_cell(ax, row, column, bool(allowed), in_prefix)
        if shown:
            ax.axvline(shown - 0.5, color=INK, lw=1.6)
        _mask_axes(ax, tree, texts, heads, shown, title)
    return fig


def _mask_cell(ax: Axes, row: int, column: int, allowed: bool, prefix: bool) -> None:
    colour = OKABE_ITO["sky"] if prefix else OKABE_ITO["blue"]
    ax.add_patch(
        Rectangle(
            (column - 0.5, row - 0.5),
            1,
            1,
            facecolor=colour if allowed else "white",
            edgecolor="#8c8c8c",
            lw=0.8,
        )
    )
    if allowed:
        ax.plot([column], [row], "o", color=INK if prefix else "white", ms=4)


def _mask_axes(
    ax: Axes,
    tree: CandidateTree,
    texts: list[str],
    heads: list[str],
    shown: int,
    title: str | None,
) -> None:
    ax.set_xlim(-0.5, len(heads) - 0.5)
    ax.set_ylim(len(tree) - 0.5, -0.5)
    turn = 90 if max(len(t) for t in texts) > 6 and len(heads) > 8 else 0
    if turn:
        heads = [head.replace("\n", "  ") for head in heads]
    ax.set_xticks(range(len(heads)), heads, rotation=turn, parse_math=False)
    ax.set_yticks(
        range(len(tree)),
        [f"{row}  {text}" for row, text in enumerate(texts)],
        parse_math=False,
    )
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")
    ax.tick_params(length=0)
    told = "tree rows" if not shown else "prefix tokens, then tree rows"
    ax.set_xlabel(f"key column: {told}")
    ax.set_ylabel("query row")
    for spine in ax.spines.values():
        spine.set_visible(False)
    if title:
        ax.set_title(title, loc="left", parse_math=False)
