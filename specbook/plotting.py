"""Figures of the book: trees, masks, ledgers, and the frame that every figure gets.

A figure here can be read without its colours (each series also has a marker, a dash
or a hatch), on a dark page (its face is opaque white) and without eyes: `figure`
refuses to frame one that has no alt text or no caption. The same input gives the same
bytes. Needs matplotlib, which comes with the extra `models`.
"""

from __future__ import annotations

import base64
import datetime
import io
import os
import platform
import struct
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from html import escape
from importlib import metadata
from pathlib import Path
from typing import Any

import matplotlib
import networkx as nx
from cycler import cycler
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator

from . import checks
from .errors import SpecbookError, TreeError
from .ledger import COST_TERMS, RoundLedger
from .proposal import PREFIX_FRONTIER
from .tree import CandidateTree

OKABE_ITO = {
    "blue": "#0072B2",
    "orange": "#E69F00",
    "green": "#009E73",
    "purple": "#CC79A7",
    "sky": "#56B4E9",
    "vermilion": "#D55E00",
    "yellow": "#F0E442",
    "black": "#000000",
}
"""The palette of Okabe and Ito (2008), which readers of any colour vision can tell
apart. Yellow comes late: it is too pale for lines."""

COLOURS = tuple(OKABE_ITO.values())
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)), (0, (8, 3)), "-")

# Markers that hold a row number, each with its area and how far the number sits below
# the middle, both in points.
NODES = {
    "o": (430, 0),
    "s": (400, 0),
    "D": (360, 0),
    "^": (640, 3),
    "p": (560, 0),
    "v": (640, -3),
    "h": (520, 0),
    "d": (640, 0),
}

COLUMN_INCHES = 7.5
"""The widest figure that the page shows at its printed size (720 CSS pixels)."""
SMALLEST_TEXT = 8.0
GLYPH_POINTS = 6.6
"""The width of a bold letter of 9 points, a little on the safe side."""
PREFIX_POINTS = 72
"""The room left of a tree's prefix, for its name and length."""
DPI = 192
CSS_DPI = 96
INK = "#1a1a1a"
MUTED = "#595959"

RC: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": INK,
    "axes.facecolor": "white",
    "axes.grid": False,
    "axes.labelcolor": INK,
    "axes.labelsize": 9,
    "axes.prop_cycle": cycler(color=COLOURS)
    + cycler(linestyle=DASHES)
    + cycler(marker=MARKERS),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "figure.dpi": CSS_DPI,
    "figure.edgecolor": "white",
    "figure.facecolor": "white",
    "figure.figsize": (6.4, 3.6),
    "figure.constrained_layout.use": True,
    "figure.titlesize": 10,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "hatch.linewidth": 0.6,
    "image.cmap": "cividis",
    "legend.fontsize": 8,
    "legend.frameon": False,
    "legend.title_fontsize": 8,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "savefig.transparent": False,
    "svg.hashsalt": "specbook",
    "text.color": INK,
    "xtick.color": INK,
    "xtick.labelsize": 8,
    "ytick.color": INK,
    "ytick.labelsize": 8,
}


class PlotError(SpecbookError):
    """A figure that a reader could not read: no alt text, no caption, too wide."""


class _Style(AbstractContextManager):
    """The style, in force from now on; as a context manager, until the block ends."""

    def __init__(self) -> None:
        self._before = {name: matplotlib.rcParams[name] for name in RC}
        matplotlib.rcParams.update(RC)

    def __exit__(self, *exception: object) -> None:
        matplotlib.rcParams.update(self._before)


def style() -> AbstractContextManager:
    """Puts the house style in force: colours with dashes and markers, white face,
    text of 8 points and more. `with style(): ...` ends it with the block."""
    return _Style()


# ---------------------------------------------------------------------- the frame


class FramedFigure:
    """A picture with its alt text and caption, which shows itself in notebooks.

    `png`: the bytes, at twice the size it is shown. `width`, `height`: CSS pixels.
    The HTML carries the picture within it, so that page, notebook and site keep all
    three together (other ways lose the alt text in JupyterLab's export or in Sphinx).
    """

    def __init__(self, png: bytes, alt: str, caption: str) -> None:
        self.png = png
        self.alt = alt
        self.caption = caption
        width, height = struct.unpack(">II", png[16:24])
        self.width = round(width * CSS_DPI / DPI)
        self.height = round(height * CSS_DPI / DPI)

    def _repr_html_(self) -> str:
        data = base64.b64encode(self.png).decode("ascii")
        # Picture and caption stand on one opaque white face, whatever the page's theme
        # does to outputs; "dark-light" asks the site's not to filter the picture.
        face = "color:#1a1a1a;background:#ffffff"
        return (
            f'<figure class="specbook-figure" style="margin:1em 0;{face}">'
            f'<img class="dark-light" src="data:image/png;base64,{data}" '
            f'alt="{escape(self.alt)}" width="{self.width}" height="{self.height}" '
            f'style="max-width:100%;height:auto;{face}">'
            f'<figcaption style="padding:0 .5em .5em;{face}">{escape(self.caption)}'
            "</figcaption></figure>"
        )

    def _repr_mimebundle_(
        self, include: Any = None, exclude: Any = None
    ) -> dict[str, str]:
        return {"text/html": self._repr_html_(), "text/plain": repr(self)}

    def __repr__(self) -> str:
        return f"[Figure: {self.alt}]\n{self.caption}"

    def save(self, path: Path) -> Path:
        """Writes the PNG (to a temporary name first) and returns its path."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.tmp")
        try:
            temporary.write_bytes(self.png)
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        return path


def figure(
    fig: Figure, alt: str, caption: str, *, measured: bool = False
) -> FramedFigure:
    """Frames a matplotlib figure for display, and closes it.

    `alt`: what is drawn, for somebody who cannot see it. `caption`: the conclusion.
    `measured`: adds to the caption on which machine and day (`machine`).

    Raises `PlotError` when a text is missing, when the two are the same, when a text
    of the picture is smaller than 8 points, or when the figure is wider than the page
    (it would be scaled down, and its text with it).
    """
    if not isinstance(fig, Figure):
        raise PlotError(f"figure needs a matplotlib Figure, got {type(fig).__name__}")
    texts = []
    for name, text in (("alt", alt), ("caption", caption)):
        if not isinstance(text, str) or not text.strip():
            raise PlotError(f"a figure needs its {name} text")
        texts.append(" ".join(text.split()))
    if texts[0] == texts[1]:
        raise PlotError("alt says what is drawn, the caption what follows from it")
    if measured:
        texts[1] += f" Measured on {machine()}."
    for part in fig.findobj(Text):
        shown = part.get_visible() and part.get_text().strip()
        if shown and float(part.get_fontsize()) < SMALLEST_TEXT:
            raise PlotError(
                f"{part.get_text()!r} is {part.get_fontsize():g} points small; "
                f"{SMALLEST_TEXT:g} is the least"
            )
    framed = FramedFigure(_png(fig), *texts)
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close(fig)
    if framed.width > COLUMN_INCHES * CSS_DPI + 1:
        inches = framed.width / CSS_DPI
        raise PlotError(f"{inches:.1f} inches wide; the page holds {COLUMN_INCHES}")
    return framed


def _png(fig: Figure) -> bytes:
    """The same bytes each time: no date, no version, an opaque white face."""
    canvas = FigureCanvasAgg(fig)
    fig.patch.set_alpha(None)
    stream = io.BytesIO()
    canvas.figure.savefig(
        stream,
        format="png",
        dpi=DPI,
        facecolor="white",
        edgecolor="white",
        transparent=False,
        bbox_inches="tight",
        pad_inches=0.08,
        metadata={"Software": None},
    )
    return stream.getvalue()


def _new_figure(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure outside pyplot's own list: nothing to leak, nothing shown twice."""
    fig = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(fig)
    return fig, fig.add_subplot()


def _figure_of(ax: Axes) -> Figure:
    fig = ax.get_figure(root=True)
    if fig is None:
        raise PlotError("these axes belong to no figure")
    return fig


def machine() -> str:
    """One line for captions of measured figures: processor, threads, torch, date."""
    torch = sys.modules.get("torch")
    threads = torch.get_num_threads() if torch is not None else os.cpu_count() or 1
    try:
        version = f"torch {metadata.version('torch')}"
    except metadata.PackageNotFoundError:
        version = "no torch"
    count = f"{threads} thread{'s' if threads != 1 else ''}"
    date = datetime.date.today().isoformat()
    return f"{processor()}, {count}, {version}, {date}"


def processor() -> str:
    """The processor's own name, as far as the system tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return " ".join(line.split(":", 1)[1].split())
    except OSError:
        pass
    return platform.processor() or platform.machine() or "unknown processor"


# ------------------------------------------------------------------------- labels


def printable(text: Any) -> str:
    """A token's text as a label: spaces as `·`, line ends as `↵`, and what the book's
    font cannot draw as its code point."""
    told = str(text).replace(" ", "·").replace("\n", "↵").replace("\t", "→")
    path = font_manager.findfont("DejaVu Sans")
    charmap = font_manager.get_font(path).get_charmap()
    shown = "".join(
        c if ord(c) in charmap and c.isprintable() else f"U+{ord(c):04X}" for c in told
    )
    return shown if len(shown) <= 14 else shown[:13] + "…"


def _checked_tree(tree: Any) -> None:
    if not isinstance(tree, CandidateTree):
        raise TreeError(f"not a CandidateTree: {type(tree).__name__}")


def _labels(tree: CandidateTree, labels: Any) -> list[str]:
    """One label a row: from nothing (the ids), a row sequence, a mapping from token id,
    or a function of the token id such as a tokenizer's decode."""
    _checked_tree(tree)
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


# -------------------------------------------------------------------------- trees


def layout(tree: CandidateTree) -> dict[int, tuple[float, float]]:
    """Where each row is drawn: {row: (depth, height)}, the frontier at depth 0.

    Leaves get one line each, in depth-first order; a parent stands midway between its
    first and last child. So no two edges cross. Heights fall from 0 downwards. Raises
    `TreeError` for what is no tree.
    """
    _checked_tree(tree)
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
    _checked_tree(tree)
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
    ax: Axes | None = None,
) -> Figure:
    """Draws a candidate tree from the prefix (left) to its leaves (right).

    Each row is a marker with its row number inside and its token below. Marker, colour
    and dash tell which source proposed it; a row with several sources has a style of
    its own. `labels`: one a row, a mapping from token id, or a function of it.
    `committed`: rows of one root-to-node path, drawn thick and named. `refused`: rows
    that the verifier looked at and turned down, crossed out; `refused_label` is their
    name in the legend. Returns the figure; give it to `figure` with its alt text and
    caption. Raises `TreeError` for a committed set
    that is no path and for rows that do not exist.
    """
    texts = _labels(tree, labels)
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
            fig, ax = _new_figure(max(4.2, width), 1.1 + each * lines)
        else:
            fig = _figure_of(ax)
            width = ax.get_position().width * fig.get_figwidth()
        _draw_edges(ax, net, spots, groups, path)
        _draw_rows(ax, net, spots, groups, path, crossed)
        points = 72 * max(4.2, width) - PREFIX_POINTS
        step = points / (max(1, tree.max_depth) + 0.45)
        _draw_texts(ax, tree, net, spots, groups, texts, step)
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
    for group in groups:
        look = _look(groups, group)
        for thick in (False, True):
            edges = [
                edge
                for edge in net.edges
                if net.nodes[edge[1]]["sources"] == group and (edge[1] in path) == thick
            ]
            if edges:
                nx.draw_networkx_edges(
                    net,
                    spots,
                    edgelist=edges,
                    ax=ax,
                    arrows=False,
                    width=4.5 if thick else 1.6,
                    edge_color=INK if thick else look["color"],
                    style="-" if thick else look["style"],
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
        ax.annotate(
            text,
            spots[row],
            (0, 18 if above else -18),
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
            Line2D(
                [], [], color=INK, lw=4.5, label=f"committed: {told} ({word} {rows})"
            )
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


# -------------------------------------------------------------------------- masks


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
    texts = _labels(tree, labels)
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
            fig, ax = _new_figure(width, 1.2 + 0.34 * len(tree))
        else:
            fig = _figure_of(ax)
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


# ------------------------------------------------------------------------ ledgers

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


def ledger_bars(
    ledgers: Mapping[str, Iterable[RoundLedger]] | Iterable[RoundLedger],
    title: str | None = None,
) -> Figure:
    """Draws the six cost terms as stacked bars: per committed token and per round.

    `ledgers`: {name of a run: its ledgers in seconds, one a round}, or the ledgers of
    one run. Both panels are in milliseconds, sums over sums. Returns the figure; its
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
        for index, (ax, what) in enumerate(zip(axes, panels, strict=True)):
            _ledger_panel(ax, rows, index, what)
        axes[0].set_yticks(range(len(rows)), list(map(str, rows)), parse_math=False)
        axes[0].set_ylim(len(rows) - 0.45, -0.55)
        handles = [
            Patch(facecolor=c, edgecolor=INK, hatch=h, lw=0.6, label=TERM_NAMES[t])
            for t, (c, h) in TERM_LOOKS.items()
        ]
        fig.legend(
            handles=handles,
            loc="outside lower center",
            ncols=6,
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
) -> None:
    longest = max(sum(row[index]) for row in rows.values()) or 1.0
    for place, row in enumerate(rows.values()):
        left = 0.0
        looks = TERM_LOOKS.values()
        for value, (colour, hatch) in zip(row[index], looks, strict=True):
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
        told = f"{left:,.0f}" if left >= 100 else f"{left:.3g}"
        ax.text(left + 0.02 * longest, place, told, va="center", fontsize=8)
    ax.set_xlim(0, 1.18 * longest)
    ax.set_xlabel(f"ms {what}")
    ax.tick_params(axis="y", length=0)


# ---------------------------------------------------------------- measured numbers


def _numbers(rows: Any, name: str, length: int | None = None) -> dict[str, list[float]]:
    """{name: numbers} as plain lists, each of `length` finite numbers if given."""
    if not isinstance(rows, Mapping):
        raise SpecbookError(f"{name} must be a mapping from names, got {rows!r}")
    found = {}
    for key, row in rows.items():
        where = name if key == name else f"{name}[{key!r}]"
        row = checks.entries(row, where, "numbers")
        if length is not None and len(row) != length:
            raise SpecbookError(f"{where} has {len(row)} numbers, not {length}")
        found[key] = [float(checks.real(v, f"{where}[{i}]")) for i, v in enumerate(row)]
    return found


def ranges(
    values: Mapping[str, tuple[float, float, float]],
    xlabel: str,
    *,
    points: Mapping[str, Sequence[float]] | None = None,
    reference: tuple[float, str] | None = None,
) -> Figure:
    """Draws one value with its interval for each name, from top to bottom.

    `values`: {name: (value, low, high)}. `points`: single measurements, drawn small
    above their name's interval. `reference`: where a dashed line stands, and its name.
    Returns the figure. Raises `SpecbookError` for an interval that misses its value,
    and for what is no number.
    """
    spans = _numbers(values, "values", 3)
    measured = {} if points is None else _numbers(points, "points")
    checks.text(xlabel, "xlabel")
    if not spans:
        raise SpecbookError("there is no value to draw")
    line = None if reference is None else _reference(reference)
    with matplotlib.rc_context(RC):
        fig, ax = _new_figure(6.4, 1.1 + 0.52 * len(spans))
        for place, (name, (value, low, high)) in enumerate(spans.items()):
            if not low <= value <= high:
                raise SpecbookError(f"{name}: {value} is not in [{low}, {high}]")
            look: dict[str, Any] = {"color": COLOURS[0], "marker": MARKERS[0], "ms": 8}
            ax.plot(
                [low, high], [place, place], "-", color=COLOURS[0], marker="|", ms=9
            )
            ax.plot([value], [place], ls="", **look)
            ax.annotate(
                f"{value:.2f}",
                (value, place),
                (0, -13),
                textcoords="offset points",
                ha="center",
                va="center",
                fontsize=8,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
            )
            singles = measured.get(name, [])
            above = [place - 0.28] * len(singles)
            ax.plot(singles, above, ls="", marker="d", ms=4.5, color=MUTED)
        if line is not None:
            ax.axvline(line[0], color=INK, ls="--", lw=1.2)
            ax.annotate(
                line[1],
                (line[0], -0.75),
                (4, 0),
                textcoords="offset points",
                fontsize=8,
                va="center",
            )
        ax.set_yticks(range(len(spans)), list(spans), parse_math=False)
        ax.set_ylim(len(spans) - 0.4, -0.95)
        ax.tick_params(axis="y", length=0)
        ax.set_xlabel(xlabel)
    return fig


def grouped_ranges(
    groups: Mapping[str, Mapping[str, tuple[float, float, float]]],
    xlabel: str,
    *,
    reference: tuple[float, str] | None = None,
) -> Figure:
    """Draws one value with its interval for each series within each group.

    `groups`: {group: {series: (value, low, high)}}, the same series in the same order
    in every group; a series keeps its marker and colour, and the legend lists them from
    top to bottom. `reference`: as in `ranges`. Returns the figure. Raises
    `SpecbookError` for an interval that misses its value, for groups of different
    series, and for what is no number.
    """
    if not isinstance(groups, Mapping):
        raise SpecbookError(f"groups must be a mapping from names, got {groups!r}")
    found = {
        name: _numbers(row, f"groups[{name!r}]", 3) for name, row in groups.items()
    }
    checks.text(xlabel, "xlabel")
    names = list(next(iter(found.values()), {}))
    if not names:
        raise SpecbookError("there is no value to draw")
    for group, spans in found.items():
        if list(spans) != names:
            raise SpecbookError(f"groups[{group!r}] has {list(spans)}, not {names}")
        for name, (value, low, high) in spans.items():
            if not low <= value <= high:
                raise SpecbookError(
                    f"{group}, {name}: {value} is not in [{low}, {high}]"
                )
    line = None if reference is None else _reference(reference)
    with matplotlib.rc_context(RC):
        step = len(names) + 1
        fig, ax = _new_figure(6.4, 1.3 + 0.2 * step * len(found))
        for index, name in enumerate(names):
            row_spans = [found[group][name] for group in found]
            rows = [index + step * number for number in range(len(found))]
            colour = COLOURS[index % len(COLOURS)]
            for row, (_, least, most) in zip(rows, row_spans, strict=True):
                ax.plot([least, most], [row, row], "-", color=colour, marker="", lw=2.2)
            ax.plot(
                [span[0] for span in row_spans],
                rows,
                ls="",
                color=colour,
                marker=MARKERS[index % len(MARKERS)],
                ms=7,
                mec=INK,
                mew=0.6,
                label=name,
            )
        for number in range(1, len(found)):
            ax.axhline(step * number - 1, color="#d9d9d9", lw=0.8, ls="-")
        if line is not None:
            ax.axvline(line[0], color=INK, ls="--", lw=1.2)
            ax.annotate(
                line[1],
                (line[0], -1),
                (4, 0),
                textcoords="offset points",
                fontsize=8,
                va="center",
            )
        middles = [step * number + (step - 2) / 2 for number in range(len(found))]
        ax.set_yticks(middles, list(found), parse_math=False)
        ax.set_ylim(step * len(found) - 1, -1.6)
        ax.tick_params(axis="y", length=0)
        ax.set_xlabel(xlabel)
        legend = fig.legend(
            loc="outside right upper", handletextpad=0.3, borderaxespad=0.2
        )
        for text in legend.get_texts():
            text.set_parse_math(False)
    return fig


def _reference(reference: Any) -> tuple[float, str]:
    """A place on the axis, and its name."""
    if not isinstance(reference, (tuple, list)) or len(reference) != 2:
        raise SpecbookError(f"reference is a place and a name, got {reference!r}")
    place, name = reference
    return float(checks.real(place, "reference[0]")), checks.text(name, "reference[1]")


def curves(
    x: Sequence[float],
    series: Mapping[str, Sequence[float]],
    xlabel: str,
    ylabel: str,
) -> Figure:
    """Draws lines over one axis, each named at its right end.

    `series`: {name: values}, as many values as `x`. Counts on the axis are marked by
    whole numbers. Returns the figure. Raises
    `SpecbookError` for a series of another length, and for what is no number.
    """
    x = _numbers({"x": x}, "x")["x"]
    series = _numbers(series, "series")
    checks.text(xlabel, "xlabel")
    checks.text(ylabel, "ylabel")
    if not series or len(x) < 2:
        raise SpecbookError("a curve needs a name and two points or more")
    with matplotlib.rc_context(RC):
        fig, ax = _new_figure(6.4, 3.4)
        ends = []
        for index, (name, values) in enumerate(series.items()):
            if len(values) != len(x):
                raise SpecbookError(f"{name}: {len(values)} values over {len(x)}")
            colour = COLOURS[index % len(COLOURS)]
            ax.plot(x, values, color=colour, label=name)
            ends.append((values[-1], name))
        low, high = ax.get_ylim()
        least = 0.07 * (high - low)  # the height of a line of text, in the axis' unit
        place = low - least
        for end, name in sorted(ends):
            place = max(end, place + least)
            # In ink: a name must be readable where its line's colour is too pale.
            ax.annotate(
                name,
                (x[-1], place),
                (7, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
                annotation_clip=False,
                parse_math=False,
            )
        if all(place.is_integer() for place in x):
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set_xlabel(xlabel)
        ax.set_ylabel(ylabel)
    return fig


def shares(rows: Mapping[str, Mapping[str, float]], xlabel: str) -> Figure:
    """Draws for each name how a whole divides into parts: one bar, from left to right.

    `rows`: {name: {part: share}}, the same parts in the same order for every name;
    the shares of a name add up to 1. Parts have an order, so they go from dark to
    light and are listed from left to right below. Returns the figure. Raises
    `SpecbookError` for shares that are negative or do not add up, and for what is no
    number.
    """
    if not isinstance(rows, Mapping):
        raise SpecbookError(f"rows must be a mapping from names, got {rows!r}")
    checks.text(xlabel, "xlabel")
    if not rows:
        raise SpecbookError("there is no share to draw")
    parts: list[str] = []
    found = {}
    for name, row in rows.items():
        if not isinstance(row, Mapping):
            raise SpecbookError(f"rows[{name!r}] must be a mapping, got {row!r}")
        parts = parts or list(row)
        if list(row) != parts:
            raise SpecbookError(f"rows[{name!r}] has parts {list(row)}, not {parts}")
        found[name] = _numbers({name: list(row.values())}, "rows", len(parts))[name]
        if min(found[name], default=-1.0) < 0 or abs(sum(found[name]) - 1) > 1e-9:
            raise SpecbookError(f"rows[{name!r}]: shares must add up to 1, got {row}")
    with matplotlib.rc_context(RC):
        fig, ax = _new_figure(6.4, 1.2 + 0.42 * len(found))
        span = max(len(parts) - 1, 1)
        faces = [matplotlib.colormaps["cividis"](i / span) for i in range(len(parts))]
        for place, values in enumerate(found.values()):
            left = 0.0
            for share, face in zip(values, faces, strict=True):
                ax.barh(
                    place, share, left=left, height=0.66, color=face, edgecolor="white"
                )
                if share >= 0.05:
                    ax.text(
                        left + share / 2,
                        place,
                        f"{share:.0%}",
                        color=_readable_on(face),
                        fontsize=8,
                        ha="center",
                        va="center",
                    )
                left += share
        ax.set_yticks(range(len(found)), list(found), parse_math=False)
        ax.set_ylim(len(found) - 0.45, -0.55)
        ax.set_xlim(0, 1)
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        ax.tick_params(axis="y", length=0)
        ax.set_xlabel(xlabel)
        legend = fig.legend(
            handles=[
                Patch(facecolor=face, edgecolor=INK, lw=0.6, label=part)
                for part, face in zip(parts, faces, strict=True)
            ],
            loc="outside lower center",
            ncols=len(parts),
            handlelength=1.2,
            columnspacing=1.2,
        )
        for text in legend.get_texts():
            text.set_parse_math(False)
    return fig


def _readable_on(face: tuple[float, ...]) -> str:
    """Black or white, whichever stands out more on `face` (WCAG's luminance): a
    contrast of 4.5 and more. Plain ink would not reach that on a middling grey."""
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in face[:3]
    ]
    luminance = sum(
        w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True)
    )
    return "black" if luminance > 0.179 else "white"
