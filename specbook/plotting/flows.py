"""A transport plan as a flow: which vector of drafts pays for which token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, PathPatch, Rectangle
from matplotlib.path import Path

from .. import checks
from ..errors import SpecbookError
from .frame import COLOURS, INK, MUTED, RC, new_figure, printable

MAX_VECTORS = 30
"""More are too thin to be told apart."""

HATCHES = ("", "///", "...", "\\\\\\", "xxx", "---", "ooo", "+++")
_GAP = 0.022
"""Between two bars, as a share of the whole height."""
_BAR = 0.035
_LABELLED = 0.028
"""A ribbon of at least this mass has room for its number."""

Vector = tuple[int, ...]


def draw_flow(
    coupling: Mapping[tuple[Vector, int], Any],
    labels: Mapping[int, Any] | None = None,
) -> Figure:
    """Draws a plan: vectors of drafts on the left, emitted tokens on the right.

    `coupling[(X, y)]`: the probability that the drafts are X and the token is y, as
    `oracles.transport` gives it. A bar is as high as its probability, and so is each
    ribbon; a ribbon has the colour and the hatch of its token, and a dashed grey one is
    a correction, whose token is not among the drafts. `labels`: a token's text.
    Returns the figure. Raises `SpecbookError` for masses that are negative or do not
    add up to 1, and for more than `MAX_VECTORS` vectors.
    """
    masses = _masses(coupling)
    vectors = sorted({X for X, _ in masses})
    tokens = sorted({y for _, y in masses})
    if len(vectors) > MAX_VECTORS:
        raise SpecbookError(f"{len(vectors)} vectors; at most {MAX_VECTORS} are drawn")
    names = {t: printable((labels or {}).get(t, t)) for t in _all_tokens(masses)}
    supply = {X: sum(m for (v, _), m in masses.items() if v == X) for X in vectors}
    demand = {y: sum(m for (_, t), m in masses.items() if t == y) for y in tokens}
    left, right = _stacked(supply), _stacked(demand)
    looks = {
        y: (COLOURS[i % len(COLOURS)], HATCHES[i % len(HATCHES)])
        for i, y in enumerate(tokens)
    }
    with matplotlib.rc_context(RC):
        fig, ax = new_figure(6.4, max(2.6, 0.9 + 0.36 * len(vectors)))
        ax.set_axis_off()
        ax.set_xlim(-0.28, 1.2)
        low = min(left[vectors[-1]] - supply[vectors[-1]], *_bottoms(right, demand))
        ax.set_ylim(low - 0.03, 1.0 + 3.2 * _GAP)
        _ribbons(ax, masses, left, right, looks)
        for X in vectors:
            _bar(ax, -_BAR, left[X], supply[X], "#d9d9d9", "")
            text = " ".join(names[x] for x in X)
            middle = left[X] - supply[X] / 2
            told = f"{text}   {_number(supply[X])}"
            ax.text(-_BAR - 0.015, middle, told, ha="right", va="center", **_PLAIN)
        for y in tokens:
            _bar(ax, 1.0, right[y], demand[y], *looks[y])
            middle = right[y] - demand[y] / 2
            told = f"{names[y]}   {_number(demand[y])}"
            ax.text(1 + _BAR + 0.015, middle, told, ha="left", va="center", **_PLAIN)
        _heads(ax)
        if any(y not in X for X, y in masses):
            edge = Patch(facecolor="white", edgecolor=MUTED, ls="--", lw=1.2)
            edge.set_label("correction: the token is not among the drafts")
            fig.legend(handles=[edge], loc="outside lower center")
    return fig


_PLAIN: Any = {"fontsize": 8.5, "parse_math": False}


def _masses(coupling: Any) -> dict[tuple[Vector, int], float]:
    """The plan as floats, without what is zero."""
    if not isinstance(coupling, Mapping) or not coupling:
        raise SpecbookError(f"a plan maps (drafts, token) to a mass, got {coupling!r}")
    found: dict[tuple[Vector, int], float] = {}
    for key, mass in coupling.items():
        if not isinstance(key, tuple) or len(key) != 2 or not isinstance(key[0], tuple):
            raise SpecbookError(f"a key is (vector of drafts, token), got {key!r}")
        mass = float(checks.real(mass, f"coupling[{key!r}]", least=0))
        if mass:
            found[key] = mass
    total = sum(found.values())
    if abs(total - 1) > 1e-9:
        raise SpecbookError(f"the masses of a plan add up to 1, these to {total}")
    return found


def _all_tokens(masses: Mapping[tuple[Vector, int], float]) -> set[int]:
    return {t for X, y in masses for t in (*X, y)}


def _stacked(heights: Mapping[Any, float]) -> dict[Any, float]:
    """The upper edge of every bar, from the top down."""
    tops, at = {}, 1.0
    for key, height in heights.items():
        tops[key] = at
        at -= height + _GAP
    return tops


def _bottoms(tops: Mapping[Any, float], heights: Mapping[Any, float]) -> list[float]:
    return [tops[key] - heights[key] for key in tops]


def _ribbons(
    ax: Axes,
    masses: Mapping[tuple[Vector, int], float],
    left: Mapping[Vector, float],
    right: Mapping[int, float],
    looks: Mapping[int, tuple[str, str]],
) -> None:
    # At each bar the ribbons leave in the order of their other ends: fewer crossings.
    out, into = dict(left), dict(right)
    ends: dict[tuple[Vector, int], list[float]] = {}
    for X, y in sorted(masses):
        ends[X, y] = [out[X]]
        out[X] -= masses[X, y]
    for y, X in sorted((y, X) for X, y in masses):
        ends[X, y].append(into[y])
        into[y] -= masses[X, y]
    for (X, y), (start, end) in ends.items():
        mass = masses[X, y]
        colour, hatch = looks[y]
        inside = y in X
        # A curve's upper edge, and back along the lower one.
        points = [(0, start), (0.5, start), (0.5, end), (1, end)]
        back = [(x, height - mass) for x, height in reversed(points)]
        codes = [Path.MOVETO, *[Path.CURVE4] * 3, Path.LINETO, *[Path.CURVE4] * 3]
        ax.add_patch(
            PathPatch(
                Path([*points, *back], codes),
                facecolor=colour if inside else "white",
                edgecolor=INK if inside else MUTED,
                ls="-" if inside else "--",
                lw=0.6 if inside else 1.2,
                hatch=hatch if inside else "",
                alpha=0.55 if inside else 1.0,
            )
        )
        if mass >= _LABELLED:
            ax.text(
                0.03,
                start - mass / 2,
                _number(mass),
                ha="left",
                va="center",
                fontsize=8,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
            )


def _bar(
    ax: Axes, x: float, top: float, height: float, colour: str, hatch: str
) -> None:
    ax.add_patch(
        Rectangle(
            (x, top - height),
            _BAR,
            height,
            facecolor=colour,
            edgecolor=INK,
            hatch=hatch,
            lw=0.8,
        )
    )


def _heads(ax: Axes) -> None:
    for x, text, side in (
        (-_BAR - 0.015, "drafts: supply", "right"),
        (1 + _BAR + 0.015, "token: demand", "left"),
    ):
        ax.text(
            x,
            1 + 1.4 * _GAP,
            text,
            ha=side,
            va="bottom",
            fontsize=8,
            color=MUTED,
        )


def _number(mass: float) -> str:
    return f"{mass:.3g}"
