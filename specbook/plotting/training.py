"""Training as it was watched: losses and agreement over steps, before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from .. import checks
from ..errors import SpecbookError
from .frame import COLOURS, DASHES, MARKERS, RC

MOST = 7
"""More lines than this cannot be told apart."""

Line = Sequence[tuple[float, float]]


def learning(
    panels: Mapping[str, Mapping[str, Line]],
    xlabel: str,
    ylabel: str,
    *,
    percent: bool = False,
) -> Figure:
    """Draws lines over the steps of a training, a panel for each title, side by side.

    `panels`: {title: {name: [(step, value), ...]}}, at most three panels, which share
    the quantity's axis; a name keeps its colour, dash and marker in all of them, and
    the legend below has each once. A line of one point is its marker. `percent`: the
    values are shares. Returns the figure. Raises `SpecbookError` for no panel, an empty
    line, steps that do not rise, and more than `MOST` names.
    """
    checks.text(xlabel, "xlabel")
    checks.text(ylabel, "ylabel")
    checks.boolean(percent, "percent")
    if not isinstance(panels, Mapping) or not 1 <= len(panels) <= 3:
        raise SpecbookError("panels must map one to three titles to their lines")
    checked = {title: _lines(title, lines) for title, lines in panels.items()}
    names = list(dict.fromkeys(name for lines in checked.values() for name in lines))
    if len(names) > MOST:
        raise SpecbookError(f"{len(names)} lines cannot be told apart; at most {MOST}")
    with matplotlib.rc_context(RC):
        width = 6.4 if len(checked) == 1 else 7.0
        fig = Figure((width, 3.7), layout="constrained", facecolor="white")
        FigureCanvasAgg(fig)
        axes = fig.subplots(1, len(checked), sharey=True, squeeze=False)[0]
        for ax, (title, lines) in zip(axes, checked.items(), strict=True):
            for name, line in lines.items():
                _draw(ax, name, line, names.index(name))
            ax.set_title(title, parse_math=False)
            ax.set_xlabel(xlabel)
            ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
            ax.set_xlim(left=0)
        axes[0].set_ylabel(ylabel)
        if percent:
            axes[0].set_ylim(bottom=0)
            axes[0].yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        handles = {
            text: handle
            for ax in axes
            for handle, text in zip(*ax.get_legend_handles_labels(), strict=True)
        }
        legend = fig.legend(
            [handles[name] for name in names],
            names,
            loc="outside lower center",
            ncols=min(len(names), 5),
            handlelength=3,
        )
        for text in legend.get_texts():
            text.set_parse_math(False)
    return fig


def _draw(ax: Axes, name: str, line: Line, number: int) -> None:
    # Open markers: of two that coincide, both can be seen.
    look: dict[str, Any] = {"mfc": "none", "mew": 1.4, "ms": 6}
    ax.plot(
        [step for step, _ in line],
        [value for _, value in line],
        color=COLOURS[number],
        linestyle=DASHES[number],
        marker=MARKERS[number],
        label=name,
        **look,
    )


def _lines(title: Any, lines: Any) -> dict[str, list[tuple[float, float]]]:
    checks.text(title, "a title of panels")
    if not isinstance(lines, Mapping) or not lines:
        raise SpecbookError(f"panels[{title!r}] must map names to points")
    found = {}
    for name, line in lines.items():
        where = f"panels[{title!r}][{name!r}]"
        checks.text(name, f"a name in panels[{title!r}]")
        points = [
            _point(point, f"{where}[{i}]")
            for i, point in enumerate(checks.entries(line, where, "points"))
        ]
        steps = [step for step, _ in points]
        if not points or any(a >= b for a, b in zip(steps, steps[1:], strict=False)):
            raise SpecbookError(f"{where}: steps must rise, got {steps}")
        found[name] = points
    return found


def _point(point: Any, where: str) -> tuple[float, float]:
    pair = checks.entries(point, where, "two numbers")
    if len(pair) != 2:
        raise SpecbookError(f"{where} must be a step and a value, got {point!r}")
    step = float(checks.real(pair[0], f"{where}[0]", least=0))
    return step, float(checks.real(pair[1], f"{where}[1]"))
