"""Where faults sit and what they do: figures of the failure lab."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from .. import checks
from ..errors import SpecbookError
from .frame import COLOURS, INK, MARKERS, MUTED, OKABE_ITO, RC, new_figure

SPREAD = 0.17
"""Between dots of one lane that would cover each other, in lanes."""


def fault_map(
    lanes: Sequence[str],
    panels: Mapping[str, Mapping[str, Sequence[Any]]],
    *,
    counts: Mapping[str, int],
    noise: Mapping[str, float] | None = None,
) -> Figure:
    """Draws faults as dots: a lane for each layer, a panel for each unit of damage.

    `lanes`: names, from top to bottom. `panels`: {unit: {lane: values above 0}}, on a
    logarithmic axis each. `counts`: how many faults of a lane have a damage in another
    unit, or none that is a number; told at the right. `noise`: the damage of healthy
    runs, by unit, drawn as a dashed line. Raises `SpecbookError` for an unknown lane
    and for what is not above 0.
    """
    names = [checks.text(lane, "lane") for lane in lanes]
    if not names or not panels:
        raise SpecbookError("a map needs lanes and panels")
    for where in (*panels.values(), counts):
        if unknown := sorted(set(where) - set(names)):
            raise SpecbookError(f"there is no lane {unknown[0]!r}")
    with matplotlib.rc_context(RC):
        fig = Figure((6.9, 0.9 + 0.42 * len(names)), layout="constrained")
        FigureCanvasAgg(fig)
        axes = fig.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for number, (ax, (unit, rows)) in enumerate(
            zip(axes, panels.items(), strict=True)
        ):
            floor = [noise[unit]] if noise and unit in noise else []
            near = _near([*floor, *(v for row in rows.values() for v in row)])
            for place, lane in enumerate(names):
                ax.axhline(place, color=MUTED, lw=0.4, marker="", zorder=0.5)
                values = sorted(float(v) for v in rows.get(lane, ()))
                ax.plot(
                    values,
                    [place + up for up in _apart(values, near)],
                    ls="",
                    marker=MARKERS[number],
                    color=COLOURS[number],
                    mec="white",
                    mew=0.6,
                    ms=8,
                )
            ax.set_xscale("log")
            ax.set_xlabel(unit)
            for at in floor:
                ax.axvline(at, color=INK, ls="--", lw=1.1, marker="")
                ax.annotate(
                    "rounding",
                    (at, len(names) - 0.45),
                    (4, 0),
                    textcoords="offset points",
                    fontsize=8,
                    va="bottom",
                )
        axes[0].set_yticks(range(len(names)), names, parse_math=False)
        axes[0].set_ylim(len(names) - 0.4, -0.6)
        axes[0].set_ylabel("where in a round")
        for ax in axes:
            ax.tick_params(axis="y", length=0)
        for place, lane in enumerate(names):
            if more := counts.get(lane, 0):
                axes[-1].annotate(
                    f"and {more} more",
                    (1.02, place),
                    xycoords=("axes fraction", "data"),
                    fontsize=8,
                    va="center",
                    color=INK,
                )
    return fig


def _near(values: Iterable[Any]) -> float:
    """The ratio below which two dots cover each other, on an axis over `values`."""
    found = [checks.float64(v, "damage") for v in values]
    if low := [value for value in found if not value > 0]:
        raise SpecbookError(f"a damage of {low[0]} is not above 0")
    return (max(found) / min(found)) ** 0.035 * 1.01 if found else 1.0


def _apart(values: Iterable[float], near: float) -> list[float]:
    """Steps up and down for values that lie close together."""
    found: list[float] = []
    before, run = None, 0
    for value in values:
        run = run + 1 if before is not None and value < near * before else 0
        before = value
        found.append(SPREAD * ((run + 1) // 2) * (-1 if run % 2 else 1))
    return found


def two_gaps(
    values: Mapping[str, tuple[float, float]],
    xlabel: str,
    names: tuple[str, str],
    *,
    floor: tuple[float, str],
) -> Figure:
    """Draws two positive numbers for each name, from top to bottom, on a logarithmic
    axis: `names` says what the first and the second are. `floor`: where
    a dashed line stands, and its name. Raises `SpecbookError` for no values and for
    what is not above 0."""
    found = {
        str(name): [checks.float64(v, f"values[{name!r}]") for v in pair]
        for name, pair in values.items()
    }
    if not found or any(len(pair) != 2 or min(pair) <= 0 for pair in found.values()):
        raise SpecbookError(f"values maps names to two numbers above 0, got {values!r}")
    checks.text(xlabel, "xlabel")
    colours = OKABE_ITO["sky"], OKABE_ITO["vermilion"]
    with matplotlib.rc_context(RC):
        fig, ax = new_figure(6.7, 1.3 + 0.42 * len(found))
        for place, pair in enumerate(found.values()):
            ax.plot(pair, [place, place], "-", color=MUTED, lw=1, marker="", zorder=1)
        for number, (name, marker) in enumerate(zip(names, "os", strict=True)):
            ax.plot(
                [pair[number] for pair in found.values()],
                range(len(found)),
                ls="",
                marker=marker,
                ms=11 - 4 * number,  # the second must not cover the first
                color=colours[number],
                mec=INK,
                mew=0.6,
                label=name,
            )
        ax.axvline(floor[0], color=INK, ls="--", lw=1.1, marker="", zorder=0.5)
        ax.annotate(
            floor[1],
            (floor[0], len(found) - 0.55),
            (4, 0),
            textcoords="offset points",
            fontsize=8,
            va="bottom",
        )
        ax.set_xscale("log")
        ax.set_xlabel(xlabel)
        ax.set_yticks(range(len(found)), list(found), parse_math=False)
        ax.set_ylim(len(found) - 0.5, -0.5)
        ax.tick_params(axis="y", length=0)
        fig.legend(loc="outside lower center", ncols=2)
    return fig
