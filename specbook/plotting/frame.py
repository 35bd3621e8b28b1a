"""The frame that every figure gets: its style, alt text, caption and size."""

from __future__ import annotations

import base64
import datetime
import io
import os
import platform
import struct
import sys
from contextlib import AbstractContextManager
from html import escape
from importlib import metadata
from pathlib import Path
from typing import Any

import matplotlib
from cycler import cycler
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from ..errors import SpecbookError

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

COLUMN_INCHES = 7.5
"""The widest figure that the page shows at its printed size (720 CSS pixels)."""
SMALLEST_TEXT = 8.0
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


def new_figure(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure outside pyplot's own list: nothing to leak, nothing shown twice."""
    fig = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(fig)
    return fig, fig.add_subplot()


def figure_of(ax: Axes) -> Figure:
    fig = ax.get_figure(root=True)
    if fig is None:
        raise PlotError("these axes belong to no figure")
    return fig


def machine() -> str:
    """One line for captions of measured figures: processor, the instructions that
    torch's kernels use on it, threads, torch, date."""
    torch = sys.modules.get("torch")
    threads, using = os.cpu_count() or 1, ""
    if torch is not None:
        threads = torch.get_num_threads()
        using = f" with {torch.backends.cpu.get_cpu_capability()}"
    try:
        version = f"torch {metadata.version('torch')}"
    except metadata.PackageNotFoundError:
        version = "no torch"
    count = f"{threads} thread{'s' if threads != 1 else ''}"
    date = datetime.date.today().isoformat()
    return f"{processor()}{using}, {count}, {version}, {date}"


def processor() -> str:
    """The processor's own name, as far as the system tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return " ".join(line.split(":", 1)[1].split())
    except OSError:
        pass
    return platform.processor() or platform.machine() or "unknown processor"


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
