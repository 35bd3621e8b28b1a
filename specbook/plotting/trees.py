"""Candidate trees: where a row is drawn, who proposed it, what became of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib
import networkx as nx
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from .. import checks
from ..errors import TreeError
from ..proposal import PREFIX_FRONTIER
from ..tree import CandidateTree
from .frame import (
    COLOURS,
    COLUMN_INCHES,
    DASHES,
    INK,
    MUTED,
    OKABE_ITO,
    RC,
    figure_of,
    new_figure,
    printable,
)

# Markers that hold a row number, each with its area, how far the number sits below the
# middle, and how far its tips reach above and below it, all in points.
NODES = {
    "o": (430, 0, 10.4),
    "s": (400, 0, 10.0),
    "D": (360, 0, 13.4),
    "^": (640, 3, 12.7),
    "p": (560, 0, 11.8),
    "v": (640, -3, 12.7),
    "h": (520, 0, 11.4),
    "d": (640, 0, 17.9),
}
LABEL_POINTS = 8.0
"""From the tip of a marker to the middle of its label: half a line, and some air."""
FAN = 4
"""From so many children on, straight edges to them would nearly coincide."""

GLYPH_POINTS = 6.6
"""The width of a bold letter of 9 points, a little on the safe side."""
PREFIX_POINTS = 72
"""The room left of a tree's prefix, for its name and length."""


def checked_tree(tree: Any) -> None:
    if not isinstance(tree, CandidateTree):
        raise TreeError(f"not a CandidateTree: {type(tree).__name__}")


def row_labels(tree: CandidateTree, labels: Any) -> list[str]:
    """One label a row: from nothing (the ids), a row sequence, a mapping from token id,
    or a function of the token id such as a tokenizer's decode."""
    checked_tree(tree)
    if labels is None:
        return [str(token) for token in tree.token_ids]
    if callable(labels):
        return [printable(labels(token)) for token in tree.token_ids]
    if isinstance(labels, Mapping):
        return [printable(labels.get(token, token)) for token in tree.token_ids]
    if isinstance(labels, str) or not isinstance(labels, Iterable):
        raise TreeError(f"labels are one a row, a mapping or a function: {labels!r}")
    labels = list(labels)
    if len(labels) != len(tree):
        raise TreeError(f"{len(labels)} labels for {len(tree)} rows")
    return [printable(label) for label in labels]


def layout(tree: CandidateTree) -> dict[int, tuple[float, float]]:
    """Where each row is drawn: {row: (depth, height)}, the frontier at depth 0.

    Leaves get one line each, in depth-first order; a parent stands midway between its
    first and last child. So no two edges cross. Heights fall from 0 downwards. Raises
    `TreeError` for what is no tree.
    """
    checked_tree(tree)
    positions: dict[int, tuple[float, float]] = {}
    leaves = 0

    def place(row: int) -> float:
        nonlocal leaves
        below = [place(child) for child in tree.children(row)]
        if below:
            height = (below[0] + below[-1]) / 2
        else:
            height = -float(leaves)
            leaves += 1
        depth = 0 if row == PREFIX_FRONTIER else tree.depths[row]
        positions[row] = (float(depth), height)
        return height

    place(PREFIX_FRONTIER)
    return positions


def graph(tree: CandidateTree) -> nx.DiGraph:
    """The tree as a networkx graph: nodes are row numbers, `PREFIX_FRONTIER` included,
    with `token`, `depth` and `sources` (names) on each row. Raises `TreeError` for
    what is no tree."""
    checked_tree(tree)
    result = nx.DiGraph()
    result.add_node(PREFIX_FRONTIER)
    for row, parent in enumerate(tree.parents):
        names = tuple(dict.fromkeys(mark.source for mark in tree.sources[row]))
        result.add_node(
            row, token=tree.token_ids[row], depth=tree.depths[row], sources=names
        )
        result.add_edge(parent, row)
    return result


def draw_tree(
    tree: CandidateTree,
    labels: Any = None,
    committed: Sequence[int] = (),
    refused: Iterable[int] = (),
    title: str | None = None,
    *,
    refused_label: str = "refused",
    notes: Any = None,
    ax: Axes | None = None,
) -> Figure:
    """Draws a candidate tree from the prefix (left) to its leaves (right).

    Each row is a marker with its row number inside and its token below. Marker, colour
    and dash tell which source proposed it; a row with several sources has a style of
    its own. `labels`: one a row, a mapping from token id, or a function of it.
    `committed`: rows of one root-to-node path, drawn thick and named. `refused`: rows
    that the verifier looked at and turned down, crossed out; `refused_label` is their
    name in the legend. `notes`: a short text a row, such as a count, written behind its
    label. In a tree with a wide fan all edges have corners. Returns the figure; give it
    to `figure` with its alt text and caption. Raises `TreeError` for a committed set
    that is no path and for rows that do not exist.
    """
    texts = row_labels(tree, labels)
    noted = texts
    if notes is not None:
        pairs = zip(texts, row_labels(tree, notes), strict=True)
        noted = [f"{text}{note}" for text, note in pairs]
    for name, rows in (("committed", committed), ("refused", refused)):
        if isinstance(rows, str) or not isinstance(rows, Iterable):
            raise TreeError(f"{name} must be row numbers, got {rows!r}")
    path = tree.check_path(list(committed))
    crossed = {
        checks.integer(row, "refused row", least=0, most=len(tree) - 1, error=TreeError)
        for row in refused
    }
    if crossed & set(path):
        raise TreeError(f"rows {sorted(crossed & set(path))} are committed and refused")
    net, spots = graph(tree), layout(tree)
    groups = list(dict.fromkeys(net.nodes[row]["sources"] for row in range(len(tree))))
    with matplotlib.rc_context(RC):
        if ax is None:
            lines = 1 - min(height for _, height in spots.values())
            width = min(COLUMN_INCHES - 0.3, 1.9 + 1.25 * max(1, tree.max_depth))
            each = 0.62 if lines <= 8 else 0.58
            fig, ax = new_figure(max(4.2, width), 1.1 + each * lines)
        else:
            fig = figure_of(ax)
            width = ax.get_position().width * fig.get_figwidth()
        _draw_edges(ax, net, spots, groups, path)
        _draw_rows(ax, net, spots, groups, path, crossed)
        points = 72 * max(4.2, width) - PREFIX_POINTS
        step = points / (max(1, tree.max_depth) + 0.45)
        _draw_texts(ax, tree, net, spots, groups, noted, step)
        _tree_legend(ax, groups, path, crossed, texts, refused_label)
        if not tree.token_ids:
            ax.text(1, 0, "no candidates", ha="center", va="center", color=MUTED)
        if title:
            ax.set_title(title, loc="left", parse_math=False)
        bottom = min(height for _, height in spots.values())
        ax.set_xlim(-PREFIX_POINTS / step, max(1, tree.max_depth) + 0.45)
        ax.set_ylim(bottom - 0.75, 0.6)
        ax.set_axis_off()
    return fig


def _look(groups: list[tuple[str, ...]], group: tuple[str, ...]) -> dict[str, Any]:
    index = groups.index(group) % len(NODES)
    return {
        "color": COLOURS[index],
        "marker": tuple(NODES)[index],
        "style": DASHES[index],
    }


def _draw_edges(
    ax: Axes, net: nx.DiGraph, spots: dict, groups: list, path: tuple[int, ...]
) -> None:
    fan = max((count for _, count in net.out_degree), default=0) >= FAN
    for parent, child in sorted(net.edges, key=lambda edge: edge[1] in path):
        look, thick = _look(groups, net.nodes[child]["sources"]), child in path
        (left, above), (right, below) = spots[parent], spots[child]
        middle = (left + right) / 2
        corners = [(left, above), (middle, above), (middle, below), (right, below)]
        places = corners if fan else [corners[0], corners[-1]]
        ax.plot(
            *zip(*places, strict=True),
            color=INK if thick else look["color"],
            linestyle="-" if thick else look["style"],
            linewidth=4.5 if thick else 1.6,
            marker="",
            solid_joinstyle="miter",
            zorder=1.2 if thick else 1,
        )


def _draw_rows(
    ax: Axes,
    net: nx.DiGraph,
    spots: dict,
    groups: list,
    path: tuple[int, ...],
    crossed: set[int],
) -> None:
    nx.draw_networkx_nodes(
        net,
        spots,
        nodelist=[PREFIX_FRONTIER],
        ax=ax,
        node_shape="8",
        node_size=620,
        node_color="white",
        edgecolors=INK,
        linewidths=1.6,
    )
    for group in groups:
        look = _look(groups, group)
        for kept in (False, True):
            rows = [
                row
                for row in net.nodes
                if row != PREFIX_FRONTIER
                and net.nodes[row]["sources"] == group
                and (row in path) == kept
            ]
            if rows:
                nx.draw_networkx_nodes(
                    net,
                    spots,
                    nodelist=rows,
                    ax=ax,
                    node_shape=look["marker"],
                    node_size=NODES[look["marker"]][0],
                    node_color="white",
                    edgecolors=look["color"],
                    linewidths=3.4 if kept else 1.8,
                )
    for row in sorted(crossed):
        # Beside the marker, so that the row number stays readable.
        ax.annotate(
            "\N{MULTIPLICATION X}",
            spots[row],
            (15, 9),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=15,
            fontweight="bold",
            color=OKABE_ITO["vermilion"],
            zorder=6,
        )


def _draw_texts(
    ax: Axes,
    tree: CandidateTree,
    net: nx.DiGraph,
    spots: dict,
    groups: list,
    texts: list[str],
    step: float,
) -> None:
    """Row numbers into the markers, tokens below them. `step`: points from one depth to
    the next; where a label is wider, odd and even depths take turns above and below."""
    centred: dict[str, Any] = {"ha": "center", "va": "center", "parse_math": False}
    free: dict[str, Any] = {
        "textcoords": "offset points",
        "xycoords": "data",
        **centred,
    }
    box: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
    place = spots[PREFIX_FRONTIER]
    ax.text(
        place[0], place[1], "P", fontsize=10, fontweight="bold", zorder=5, **centred
    )
    count = f"prefix\n{tree.prefix_len} token{'s' if tree.prefix_len != 1 else ''}"
    # To the left of it, where no edge can run.
    beside = {**free, "ha": "right"}
    ax.annotate(count, place, (-17, 0), fontsize=8, color=MUTED, **beside)
    crowded = max(map(len, texts), default=0) * GLYPH_POINTS > step
    room = max(3, int((2 * step if crowded else step) / GLYPH_POINTS))
    for row, text in enumerate(texts):
        look = _look(groups, net.nodes[row]["sources"])
        down = -NODES[look["marker"]][1]
        ax.annotate(str(row), spots[row], (0, down), fontsize=9, zorder=5, **free)
        if len(text) > room:
            text = text[: room - 1] + "…"
        above = crowded and tree.depths[row] % 2 == 0
        reach = NODES[look["marker"]][2] + LABEL_POINTS
        ax.annotate(
            text,
            spots[row],
            (0, reach if above else -reach),
            fontsize=9,
            fontweight="bold",
            bbox=box,
            zorder=1.5,  # over the edges, under the markers
            **free,
        )


def _tree_legend(
    ax: Axes,
    groups: list[tuple[str, ...]],
    path: tuple[int, ...],
    crossed: set[int],
    texts: list[str],
    refused_label: str,
) -> None:
    handles = []
    for group in groups:
        if not group and len(groups) == 1:
            continue  # a shape without sources needs no legend for them
        look = _look(groups, group)
        handles.append(
            Line2D(
                [],
                [],
                color=look["color"],
                linestyle=look["style"],
                marker=look["marker"],
                markerfacecolor="white",
                markersize=8,
                label=" + ".join(name or "unnamed" for name in group) or "no source",
            )
        )
    if path:
        told = " ".join(texts[row] for row in path)
        rows = ", ".join(map(str, path))
        word = "row" if len(path) == 1 else "rows"
        handles.append(
            Line2D([], [], color=INK, lw=4.5, label=f"committed {word} {rows}: {told}")
        )
    if crossed:
        handles.append(
            Line2D(
                [],
                [],
                color=OKABE_ITO["vermilion"],
                ls="",
                marker="x",
                ms=8,
                mew=1.8,
                label=refused_label,
            )
        )
    if handles:
        legend = ax.legend(
            handles=handles,
            loc="upper left",
            bbox_to_anchor=(0, 0),
            ncols=1 if len(handles) < 4 else 2,
            handlelength=3.2,
            borderaxespad=0,
        )
        for text in legend.get_texts():
            text.set_parse_math(False)
