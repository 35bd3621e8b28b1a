"""Acceptance against the number of drafts, and how far wrong rules go wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from .. import checks
from ..errors import SpecbookError
from .frame import INK, OKABE_ITO, RC

FAMILY_COLOURS = ("blue", "vermilion", "green", "purple")
"""One a way of drawing the drafts; yellow and sky are too pale for lines."""

RULE_DASHES = ("--", ":", "-.", (0, (1, 3)))
RULE_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
"""A dash for each rule of a family; a marker for each rule of the figure, since lines
of different families may lie on each other."""

Panel = Mapping[str, Mapping[int, float]]


def acceptance(
    panels: Mapping[str, Panel],
    families: Mapping[str, Sequence[str]],
    *,
    guide: tuple[str, Mapping[int, float]] | None = None,
) -> Figure:
    """Draws acceptance against the number of drafts k, a panel for each title.

    `panels`: {title: {name: {k: acceptance}}}; a name may lack some k. `families`: for
    each way of drawing the drafts, the names that belong to it: first their optimum,
    drawn as a thick line, then the rules, dashed and with markers. `guide`: a bound, as
    a thin dotted line, with its name. Returns the figure. Raises `SpecbookError` for a
    name that no panel has or no family holds, and for what is no probability.
    """
    checked = _panels(panels)
    held = _families(families)
    named = {name for rows in checked.values() for name in rows}
    listed = [name for names in held.values() for name in names]
    if set(listed) != named or len(set(listed)) != len(listed):
        raise SpecbookError(
            f"families hold {listed}, the panels {sorted(named)}: each name once"
        )
    if len(held) > len(FAMILY_COLOURS):
        raise SpecbookError(f"at most {len(FAMILY_COLOURS)} families, got {len(held)}")
    bound = None if guide is None else (str(guide[0]), _line(guide[1], guide[0]))
    with matplotlib.rc_context(RC):
        fig = Figure(
            (6.9, 4.4 if len(held) > 1 else 3.5),
            layout="constrained",
            facecolor="white",
        )
        FigureCanvasAgg(fig)
        axes = fig.subplots(1, len(checked), sharey=True, squeeze=False)[0]
        handles: dict[str, Line2D] = {}
        for ax, (title, rows) in zip(axes, checked.items(), strict=True):
            handles |= _panel(ax, rows, held)
            if bound is not None:
                _guide(ax, *bound)
            ax.set_title(title, loc="left", parse_math=False)
            ax.set_xlabel("drafts k")
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes[0].set_ylabel("probability that a draft is accepted")
        _legend(fig, held, handles)
    return fig


def _line(points: Any, name: Any) -> dict[int, float]:
    if not isinstance(points, Mapping) or not points:
        raise SpecbookError(f"{name} maps k to a probability, got {points!r}")
    return {
        checks.integer(k, f"{name}: k", least=1): float(
            # What rounding added to a probability is no fault of the caller's.
            checks.real(value, f"{name}[{k}]", least=0, most=1 + 1e-9)
        )
        for k, value in points.items()
    }


def _panels(panels: Any) -> dict[str, dict[str, dict[int, float]]]:
    if not isinstance(panels, Mapping) or not panels:
        raise SpecbookError(f"panels maps titles to lines, got {panels!r}")
    found = {}
    for title, rows in panels.items():
        if not isinstance(rows, Mapping) or not rows:
            raise SpecbookError(f"panel {title!r} holds no lines: {rows!r}")
        found[str(title)] = {
            str(name): _line(points, name) for name, points in rows.items()
        }
    return found


def _families(families: Any) -> dict[str, list[str]]:
    if not isinstance(families, Mapping) or not families:
        raise SpecbookError(f"families maps names to lists, got {families!r}")
    found = {}
    for family, names in families.items():
        names = checks.entries(names, f"families[{family!r}]", "names")
        if not names or len(names) > 1 + len(RULE_DASHES):
            raise SpecbookError(
                f"families[{family!r}] has {len(names)} names; an optimum and at most "
                f"{len(RULE_DASHES)} rules are drawn"
            )
        found[str(family)] = names
    return found


def _panel(
    ax: Axes, rows: Mapping[str, dict[int, float]], held: Mapping[str, list[str]]
) -> dict[str, Line2D]:
    handles = {}
    rules = [name for names in held.values() for name in names[1:]]
    for colour, names in zip(FAMILY_COLOURS, held.values(), strict=False):
        for place, name in enumerate(names):
            if name not in rows:
                continue
            look: dict[str, Any] = {"ls": "-", "lw": 2.6, "marker": "", "zorder": 2}
            if place:
                marker = RULE_MARKERS[rules.index(name) % len(RULE_MARKERS)]
                look = {"ls": RULE_DASHES[place - 1], "lw": 1.4, "zorder": 3}
                look |= {"marker": marker, "ms": 5}
            elif len(rows[name]) < max(map(len, rows.values())):
                # Where not every k was computed, the line must not hide that.
                look |= {"marker": "o", "ms": 5}
            ks = sorted(rows[name])
            (handles[name],) = ax.plot(
                ks,
                [rows[name][k] for k in ks],
                color=OKABE_ITO[colour],
                mfc="white",
                label=name,
                **look,
            )
    return handles


def _guide(ax: Axes, name: str, points: Mapping[int, float]) -> None:
    ks = sorted(points)
    ax.plot(ks, [points[k] for k in ks], ls=":", lw=1.2, color=INK, marker="")
    ax.annotate(
        name,
        (ks[0], points[ks[0]]),
        (0, -5),
        textcoords="offset points",
        ha="left",
        va="top",
        fontsize=8,
        parse_math=False,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
    )


def _legend(
    fig: Figure, held: Mapping[str, list[str]], handles: Mapping[str, Line2D]
) -> None:
    """One column a family, its name on top; a single family needs no name."""
    place: Any = {"loc": "outside lower center", "handlelength": 3.2}
    if len(held) == 1:
        names = next(iter(held.values()))
        legend = fig.legend([handles[n] for n in names], names, ncols=4, **place)
        for text in legend.get_texts():
            text.set_parse_math(False)
        return
    longest = max(map(len, held.values()))
    blank = Line2D([], [], ls="", marker="")
    columns: list[tuple[Any, str]] = []
    for family, names in held.items():
        columns.append((blank, family))
        columns += [(handles[name], name) for name in names]
        columns += [(blank, "")] * (longest - len(names))
    legend = fig.legend(
        [handle for handle, _ in columns],
        [text for _, text in columns],
        ncols=len(held),
        columnspacing=1.2,
        **place,
    )
    for number, text in enumerate(legend.get_texts()):
        text.set_parse_math(False)
        if number % (longest + 1) == 0:
            text.set_fontweight("bold")


def variations(
    values: Mapping[str, Any],
    xlabel: str,
    *,
    marked: Iterable[str] = (),
    mark: str = "",
    plain: str = "",
) -> Figure:
    """Draws a bar for each wrong rule: the total variation to the right law.

    `values`: {name: number in [0, 1]}. `marked`: names whose bars are hatched; `mark`
    says in the legend what they have in common, `plain` what the others have. Returns
    the figure. Raises `SpecbookError` for a marked name without a bar, for marked bars
    without their legend, and for what is no number in [0, 1].
    """
    if not isinstance(values, Mapping) or not values:
        raise SpecbookError(f"values maps names to numbers, got {values!r}")
    found = {
        str(name): float(checks.real(value, f"values[{name!r}]", least=0, most=1))
        for name, value in values.items()
    }
    checks.text(xlabel, "xlabel")
    hatched = checks.entries(marked, "marked", "names")
    for name in hatched:
        if name not in found:
            raise SpecbookError(f"marked: there is no bar {name!r}")
    if hatched and not (mark and plain):
        raise SpecbookError("marked bars need the words of their legend: mark, plain")
    colours = {True: OKABE_ITO["orange"], False: OKABE_ITO["sky"]}
    with matplotlib.rc_context(RC):
        fig = Figure((6.9, 1.1 + 0.34 * len(found)), layout="constrained")
        FigureCanvasAgg(fig)
        ax = fig.add_subplot()
        for place, (name, value) in enumerate(found.items()):
            inside = name in hatched
            ax.barh(
                place,
                value,
                height=0.66,
                color=colours[inside],
                edgecolor=INK,
                hatch="///" if inside else "",
                lw=0.6,
            )
            ax.annotate(
                f"{value:.3f}",
                (value, place),
                (4, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
            )
        ax.set_yticks(range(len(found)), list(found), parse_math=False)
        ax.set_ylim(len(found) - 0.45, -0.55)
        ax.set_xlim(0, 1.14 * max(*found.values(), 1e-9))
        ax.tick_params(axis="y", length=0)
        ax.set_xlabel(xlabel)
        if hatched:
            fig.legend(
                handles=[
                    Patch(
                        facecolor=colours[inside],
                        edgecolor=INK,
                        hatch="///" if inside else "",
                        lw=0.6,
                        label=words,
                    )
                    for inside, words in ((False, plain), (True, mark))
                ],
                loc="outside lower center",
                ncols=2,
            )
    return fig
