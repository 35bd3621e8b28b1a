"""A verifier's way through a tree, question by question, for a reader to click through.

The questions are those of the rule that decodes: `select` runs under a `Chance` that
notes what it is asked, and `chance.law` walks every branch. So what is shown is the
program and no drawing of it, for any exact rule by name (sections 0x07 and 0x09A).

On a page it is a form of radio buttons: choose an answer, and the next question opens.
It needs no script. Printed, and where there is no page, it is an outline of all
branches. The tree is fixed here: over the trees that a sampler may draw the output has
the target's law, on one of them it need not.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from html import escape
from typing import Any

import numpy as np

from . import checks, display
from .chance import Chance
from .chance import law as enumerate_law
from .contract import Law, Selection, Verifier
from .errors import SpecbookError, TreeError
from .plotting import INK, MUTED, OKABE_ITO, layout, printable
from .proposal import PREFIX_FRONTIER
from .tree import CandidateTree
from .verifiers import get

MAX_ENDS = 80
"""More ways through a tree than this no reader clicks through."""

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Asked:
    """One question and its answer: a "flip" (True or False) or a "draw" (a token).

    `row`: whose law the rule had asked for last. `weights`: the probability of each
    answer, of True and False for a flip. `plain`: a draw from that row's law itself.
    """

    kind: str
    row: int
    weights: tuple[Any, ...]
    answer: Any
    plain: bool = False

    @property
    def probability(self) -> Any:
        """The probability of the answer."""
        at = self.answer if self.kind == "draw" else 1 - self.answer
        return self.weights[at]


@dataclass(frozen=True)
class Option:
    """An answer of some probability, and what comes after it: a question or the end.
    `path`: the rows that every way behind this answer accepts."""

    answer: Any
    probability: Any
    path: tuple[int, ...]
    below: Step | Selection


@dataclass(frozen=True)
class Step:
    """A question. `candidate`: the row that is tested, where the rule tests the drafts
    of a node in turn. `left`: the law [V] that would be drawn from here if no further
    candidate stood below `row` - the residual, as the rule itself has it. `plain`: a
    draw from the target's law at `row`. `weights`: as in `Asked`."""

    kind: str
    row: int
    options: tuple[Option, ...]
    weights: tuple[Any, ...] = ()
    candidate: int | None = None
    left: tuple[Any, ...] | None = None
    plain: bool = False


class Walkthrough:
    """Every way of one rule through one tree. Shows itself on a page and as text.

    `first`: the first question. `ends`: (selection, probability) of every way.
    """

    def __init__(
        self,
        name: str,
        tree: CandidateTree,
        first: Step | Selection,
        ends: Sequence[tuple[Selection, Any]],
        label: Callable[[int], str],
        caption: str,
    ) -> None:
        self.name = name
        self.tree = tree
        self.first = first
        self.ends = tuple(ends)
        self.label = label
        self.caption = caption

    def law(self) -> dict[tuple[int, ...], Any]:
        """The law of the emitted tokens, from the ends: {tokens: probability}."""
        found: dict[tuple[int, ...], Any] = {}
        for selection, probability in self.ends:
            tokens = self.tokens(selection)
            found[tokens] = found.get(tokens, 0) + probability
        return found

    def tokens(self, selection: Selection) -> tuple[int, ...]:
        """What `selection` emits: the accepted path and the token after it."""
        return (*(self.tree.token_ids[r] for r in selection.rows), selection.token)

    def outline(self) -> str:
        """All branches as indented text."""
        return "\n".join("  " * depth + text for depth, text in _lines(self))

    def __repr__(self) -> str:
        return f"{self.outline()}\n{self.caption}".rstrip()

    def _repr_html_(self) -> str:
        return _page(self, f"specbook-walk-{next(_numbers)}")


def walkthrough(
    verifier: str | Verifier,
    tree: CandidateTree,
    law: Law,
    *,
    labels: Mapping[int, Any] | Callable[[int], Any] | None = None,
    caption: str = "",
) -> Walkthrough:
    """Every way of `verifier` (a name or an object) through `tree`.

    `law(row)`: the target's law [V] for the children of `row`, -1 for the frontier;
    with Fractions every number shown is exact. `labels`: text of a token, a mapping
    from its id or a function of it. Raises `SpecbookError` for a rule with more than
    `MAX_ENDS` ways, and what the rule raises for a tree that it cannot read.
    """
    rule = get(verifier) if isinstance(verifier, str) else verifier
    if not isinstance(rule, Verifier):
        raise SpecbookError(f"not a verifier: {verifier!r}")
    if not isinstance(tree, CandidateTree):
        raise TreeError(f"not a CandidateTree: {tree!r}")
    # A class is callable, but calling one makes an object and says no law.
    if not callable(law) or isinstance(law, type):
        raise SpecbookError(f"law must be a function of the row, got {law!r}")
    label = _labels(labels)
    checks.text(caption, "caption")

    def program(chance: Chance) -> tuple[tuple[Asked, ...], Selection]:
        noted = _Notes(law, chance)
        selection = rule.select(tree, noted.law, noted)
        tree.check_path(selection.rows)
        return tuple(noted.asked), selection

    ways: Any = enumerate_law(program, max_branches=MAX_ENDS + 1)
    first = _grown(list(ways), 0)
    if _in_turn(first, tree):
        first = _explained(first, rule, tree, law, ())
    ends = [(selection, mass) for (_, selection), mass in ways.items()]
    return Walkthrough(rule.contract.name, tree, first, ends, label, caption)


def _labels(labels: Any) -> Callable[[int], str]:
    if labels is None:
        return str
    if isinstance(labels, Mapping):
        return lambda token: printable(labels.get(token, token))
    if callable(labels) and not isinstance(labels, type):
        return lambda token: printable(labels(token))
    raise SpecbookError(f"labels must be a mapping or a function, got {labels!r}")


# ---------------------------------------------------------------------- the record


class _Notes:
    """A `Chance` that notes what it is asked, and which row's law was asked for."""

    def __init__(self, law: Law, chance: Chance) -> None:
        self._law, self._chance = law, chance
        self._row = PREFIX_FRONTIER
        self._given: np.ndarray | None = None
        self.asked: list[Asked] = []

    def law(self, row: int) -> np.ndarray:
        self._row = row
        self._given = checks.law(self._law(row), f"the target's law at row {row}")
        return self._given

    def flip(self, probability: Any) -> bool:
        weights = (probability, 1 - probability)
        return self._note("flip", weights, self._chance.flip(probability))

    def draw(self, weights: Any) -> int:
        weights = checks.law(weights, "weights")
        return self._note("draw", tuple(weights), self._chance.draw(weights))

    def _note(self, kind: str, weights: tuple[Any, ...], answer: Any) -> Any:
        plain = self._given is not None and np.array_equal(self._given, weights)
        self.asked.append(Asked(kind, self._row, weights, answer, plain))
        return answer


Way = tuple[tuple[Asked, ...], Selection]


def _grown(ways: list[Way], depth: int) -> Step | Selection:
    """The ways, which agree in their first `depth` answers, as a tree of questions."""
    asked, selection = ways[0]
    if len(asked) == depth:
        return selection
    groups: dict[Any, list[Way]] = {}
    for way in ways:
        groups.setdefault(way[0][depth].answer, []).append(way)
    question = asked[depth]
    options = tuple(
        Option(
            answer,
            group[0][0][depth].probability,
            _shared([selection.rows for _, selection in group]),
            _grown(group, depth + 1),
        )
        for answer, group in groups.items()
    )
    return Step(
        question.kind, question.row, options, question.weights, plain=question.plain
    )


def _shared(paths: list[tuple[int, ...]]) -> tuple[int, ...]:
    """The rows with which all paths begin."""
    steps = itertools.takewhile(
        lambda rows: len(set(rows)) == 1, zip(*paths, strict=False)
    )
    return tuple(rows[0] for rows in steps)


# ------------------------------------------------- rules that test the drafts in turn


def _drafts(tree: CandidateTree, row: int) -> list[int]:
    """The candidates below `row` in the order of drawing, one that came twice twice."""
    return [child for child, _ in tree.draws(row)] or list(tree.children(row))


def _in_turn(step: Step | Selection, tree: CandidateTree, refused: int = 0) -> bool:
    """Whether the i-th flip at a node accepts its i-th draft or goes on: then a flip
    can be said to test that draft."""
    if isinstance(step, Selection):
        return True
    if step.kind == "draw":
        return all(_in_turn(o.below, tree) for o in step.options)
    drafts = _drafts(tree, step.row)
    if refused >= len(drafts):
        return False
    for option in step.options:
        taken = tree.path_rows(drafts[refused])
        if option.answer and option.path[: len(taken)] != taken:
            return False
        if not _in_turn(option.below, tree, 0 if option.answer else refused + 1):
            return False
    return True


def _explained(
    step: Step | Selection,
    rule: Verifier,
    tree: CandidateTree,
    law: Law,
    before: tuple[tuple[Any, Any], ...],
    refused: int = 0,
) -> Step | Selection:
    """The same questions, each flip with the draft it tests and with what is left."""
    if isinstance(step, Selection):
        return step
    flip = step.kind == "flip"
    options = []
    for option in step.options:
        count = refused + 1 if flip and not option.answer else 0
        below = _explained(
            option.below,
            rule,
            tree,
            law,
            (*before, (step.weights, option.answer)),
            count,
        )
        options.append(Option(option.answer, option.probability, option.path, below))
    candidate = _drafts(tree, step.row)[refused] if flip else None
    left = _left(rule, tree, law, step.row, before, refused) if flip else None
    return replace(step, options=tuple(options), candidate=candidate, left=left)


class _Reached(Exception):
    """A script has come to its end: the next question's kind and weights."""


class _OtherQuestion(Exception):
    """Without the later candidates the rule asks something else."""


class _Script:
    """A `Chance` that gives known answers to known questions, then stops the program.

    `known`: (weights, answer) of each."""

    def __init__(self, known: Sequence[tuple[Any, Any]]) -> None:
        self._known = list(known)

    def flip(self, probability: Any) -> Any:
        return self._next("flip", (probability, 1 - probability))

    def draw(self, weights: Any) -> Any:
        return self._next("draw", tuple(weights))

    def _next(self, kind: str, weights: tuple[Any, ...]) -> Any:
        if not self._known:
            raise _Reached(kind, weights)
        expected, answer = self._known.pop(0)
        if weights != expected:
            raise _OtherQuestion
        return answer


def _left(
    rule: Verifier,
    tree: CandidateTree,
    law: Law,
    row: int,
    before: Sequence[tuple[Any, Any]],
    refused: int,
) -> tuple[Any, ...] | None:
    """What the rule itself would draw from at `row` after `refused` refusals, if there
    were no more candidates: it is asked, on the tree without them. None for a rule
    that would have asked other questions there."""
    short, rows = _cut(tree, row, refused)
    try:
        rule.select(short, lambda r: law(r if r < 0 else rows[r]), _Script(before))
    except _Reached as reached:
        kind, weights = reached.args
        return weights if kind == "draw" else None
    except _OtherQuestion:
        return None
    return None


def _cut(
    tree: CandidateTree, row: int, drafts: int
) -> tuple[CandidateTree, tuple[int, ...]]:
    """The tree with the first `drafts` drafts below `row` only, and which of the old
    rows its rows are."""
    marks = {mark.draw for _, mark in tree.draws(row)[:drafts]}
    kept: list[int] = []
    sources = []
    for r, parent in enumerate(tree.parents):
        if parent != PREFIX_FRONTIER and parent not in kept:
            continue
        claims = tree.sources[r]
        if parent == row:
            if claims:
                claims = tuple(c for c in claims if c.draw in marks)
                if not claims:
                    continue
            elif r not in tree.children(row)[:drafts]:
                continue
        kept.append(r)
        sources.append(claims)
    number = {PREFIX_FRONTIER: PREFIX_FRONTIER, **{r: i for i, r in enumerate(kept)}}
    short = CandidateTree(
        tuple(tree.token_ids[r] for r in kept),
        tuple(number[tree.parents[r]] for r in kept),
        tuple(tree.depths[r] for r in kept),
        tree.prefix_len,
        tuple(sources),
    )
    return short, tuple(kept)


# ------------------------------------------------------------------------- in words


def _number(value: Any) -> str:
    if isinstance(value, (Fraction, int)):
        return str(value)
    return f"{float(value):.4g}"


def _path(walk: Walkthrough, rows: Sequence[int]) -> str:
    return " ".join(walk.label(walk.tree.token_ids[r]) for r in rows)


def _place(walk: Walkthrough, row: int) -> str:
    if row == PREFIX_FRONTIER:
        return "after the prefix"
    return f"after {_path(walk, walk.tree.path_rows(row))}"


def _told_law(walk: Walkthrough, law: Sequence[Any]) -> str:
    return ", ".join(
        f"{walk.label(token)} {_number(mass)}" for token, mass in enumerate(law) if mass
    )


def _question(walk: Walkthrough, step: Step, refused: int) -> str:
    place = _place(walk, step.row)
    if step.kind == "draw":
        source = "p" if step.plain else "what is left of p"
        return f"{place[0].upper()}{place[1:]}, a token is drawn from {source}."
    if step.candidate is None:
        rows = next((o.path for o in step.options if o.answer), ())
        told = _path(walk, rows) or "the path"
        return f"{place[0].upper()}{place[1:]}: is {told} accepted?"
    token = walk.tree.token_ids[step.candidate]
    told = f"{place[0].upper()}{place[1:]}: is {walk.label(token)} accepted?"
    facts = []
    draws = walk.tree.draws(step.row)
    if draws and draws[refused][1].q is not None:
        mark = draws[refused][1]
        by = f" by {printable(mark.source)}" if mark.source else ""
        facts.append(f"drawn{by} with q = {_number(mark.q)}")
    if step.left is not None:
        what = "left of p" if refused else "p"
        facts.append(f"{what} = {_number(step.left[token])}")
    return f"{told} ({'; '.join(facts)})" if facts else told


def _answer(walk: Walkthrough, step: Step, option: Option) -> str:
    sure = (
        ", certain" if option.probability == 1 else f", {_number(option.probability)}"
    )
    if step.kind == "draw":
        told = walk.label(option.answer)
        depth = 0 if step.row == PREFIX_FRONTIER else walk.tree.depths[step.row]
        return f"{told}{sure}{': in the tree' if len(option.path) > depth else ''}"
    return ("accept" if option.answer else "refuse") + sure


def _remains(walk: Walkthrough, step: Step, refused: int) -> str:
    """What is left, in words; before the first refusal that is p itself."""
    if step.left is None:
        return ""
    what = "What is left of p" if refused else "p"
    return f"{what}: {_told_law(walk, step.left)}"


def _end(walk: Walkthrough, selection: Selection, mass: Any) -> str:
    tokens = " ".join(walk.label(token) for token in walk.tokens(selection))
    return f"emits {tokens}; the whole way has probability {_number(mass)}"


def _next_refused(step: Step, option: Option, refused: int) -> int:
    return refused + 1 if step.kind == "flip" and not option.answer else 0


def _lines(walk: Walkthrough) -> Iterator[tuple[int, str]]:
    """(depth, text) of every line of the outline."""

    def lines(
        step: Step | Selection, depth: int, mass: Any, refused: int
    ) -> Iterator[tuple[int, str]]:
        if isinstance(step, Selection):
            yield depth, _end(walk, step, mass)
            return
        yield depth, _question(walk, step, refused)
        if remains := _remains(walk, step, refused):
            yield depth, remains
        for option in step.options:
            yield depth + 1, f"- {_answer(walk, step, option)}"
            below = mass * option.probability
            count = _next_refused(step, option, refused)
            yield from lines(option.below, depth + 2, below, count)

    yield from lines(walk.first, 0, Fraction(1), 0)


# ------------------------------------------------------------------------- as a page

_STYLE = """
.{id} fieldset {{ border: 0; border-left: 3px solid #0072B2; margin: .6em 0 0;
  padding: 0 0 0 .6em; min-width: 0 }}
.{id} legend {{ font-size: 1em; font-weight: 600; padding: 0; margin: 0 0 .3em;
  float: none; width: auto; color: #1a1a1a }}
.{id} p {{ margin: .2em 0 .4em; color: #1a1a1a }}
.{id} label {{ display: inline-block; margin: 0 .9em .3em .25em; padding: .3em .6em;
  border: 1px solid #6b6b6b; border-radius: .3em; cursor: pointer;
  background: #f4f7fa; color: #1a1a1a }}
.{id} form {{ color-scheme: light }}
.{id} input {{ accent-color: #0072B2 }}
.{id} input:checked + label {{ background: #00527f; color: #ffffff }}
.{id} .walk-next {{ display: none }}
{open}
.{id} svg {{ max-width: 100%; height: auto; display: block; background: #ffffff }}
.{id} ul {{ margin: .2em 0 .4em; padding-left: 1.2em; color: #1a1a1a }}
.{id} button {{ font: inherit; margin-top: .6em; padding: .3em .6em; color: #1a1a1a;
  background: #ffffff; border: 1px solid #6b6b6b; border-radius: .3em;
  cursor: pointer }}
.{id} .walk-print {{ display: none }}
@media print {{
  .{id} form {{ display: none }}
  .{id} .walk-print {{ display: block; font-size: .85em }}
}}
"""


def _page(walk: Walkthrough, name: str) -> str:
    """The form, its style, and the outline that is printed in its place."""
    width = max(_widths(walk.first), default=1)
    opened = ",\n".join(
        f".{name} input:nth-of-type({n}):checked ~ .walk-next:nth-of-type({n})"
        for n in range(1, width + 1)
    )
    style = _STYLE.format(id=name, open=opened + " { display: block }")
    numbers = itertools.count(1)
    body = _panel(walk, walk.first, (), set(), Fraction(1), 0, name, numbers)
    box = display.LIGHT_BOX.format(edge=OKABE_ITO["blue"])
    caption = f"<figcaption>{escape(walk.caption)}</figcaption>" if walk.caption else ""
    rule = escape(printable(walk.name))
    return (
        f'<figure class="specbook-figure specbook-walk {name}" style="margin:1em 0">'
        f"<style>{style}</style>"
        f'<div style="{box}">'
        f'<form method="dialog" aria-label="The rule {rule}, question by question">'
        f'{body}<button type="reset">Start again</button></form>'
        f'<div class="walk-print">{_printed(walk)}</div></div>{caption}</figure>'
    )


def _printed(walk: Walkthrough) -> str:
    """The tree, and the outline of all branches."""
    lines = "".join(
        f'<div style="margin-left:{1.2 * depth:g}em">{escape(text)}</div>'
        for depth, text in _lines(walk)
    )
    return f"{_picture(walk, (), set(), None)}{lines}"


def _widths(step: Step | Selection) -> Iterator[int]:
    if isinstance(step, Step):
        yield len(step.options)
        for option in step.options:
            yield from _widths(option.below)


def _panel(
    walk: Walkthrough,
    step: Step | Selection,
    path: tuple[int, ...],
    refused_rows: set[int],
    mass: Any,
    refused: int,
    name: str,
    numbers: Iterator[int],
) -> str:
    """What is shown at one point: the tree, and a question or the end."""
    if isinstance(step, Selection):
        drawn = _picture(walk, step.rows, refused_rows, None)
        return f"{drawn}<p>The rule {escape(_end(walk, step, mass))}.</p>"
    drawn = _picture(walk, path, refused_rows, step.candidate)
    asked = escape(_question(walk, step, refused))
    remains = escape(_remains(walk, step, refused))
    told = f"<p>{remains}</p>" if remains else ""
    if all(isinstance(option.below, Selection) for option in step.options):
        # Nothing is asked behind these answers, so they are told and not chosen.
        items = "".join(
            f"<li>{escape(_answer(walk, step, o))}: "
            f"{escape(_end(walk, o.below, mass * o.probability))}</li>"
            for o in step.options
            if isinstance(o.below, Selection)
        )
        return f"{drawn}<p><strong>{asked}</strong></p>{told}<ul>{items}</ul>"
    group = f"{name}-{next(numbers)}"
    buttons, panels = [], []
    for index, option in enumerate(step.options):
        own = f"{group}-{index}"
        buttons.append(
            f'<input type="radio" name="{group}" id="{own}">'
            f'<label for="{own}">{escape(_answer(walk, step, option))}</label>'
        )
        crossed = set(refused_rows)
        if step.candidate is not None and not option.answer:
            crossed.add(step.candidate)
        taken = _taken(walk, step, option, path)
        inside = _panel(
            walk,
            option.below,
            taken,
            crossed - set(taken),
            mass * option.probability,
            _next_refused(step, option, refused),
            name,
            numbers,
        )
        panels.append(f'<div class="walk-next">{inside}</div>')
    return (
        f"{drawn}<fieldset><legend>{asked}</legend>{told}"
        f"{''.join(buttons)}{''.join(panels)}</fieldset>"
    )


def _taken(
    walk: Walkthrough, step: Step, option: Option, path: tuple[int, ...]
) -> tuple[int, ...]:
    """The rows that are accepted by this answer. What is certain to be accepted later
    is not accepted yet."""
    if option.answer is False:
        return path
    row = step.candidate
    if step.kind == "draw":
        row = walk.tree.child_with_token(step.row, option.answer)
    if row is None:
        return option.path if step.kind == "flip" else path
    return walk.tree.path_rows(row) if row in option.path else path


_ACROSS, _DOWN, _RADIUS = 78, 42, 15


def _picture(
    walk: Walkthrough,
    path: Sequence[int],
    refused: set[int],
    candidate: int | None,
) -> str:
    """The tree as SVG: accepted rows filled, refused ones crossed, the tested one with
    a second ring. What the drawing says is said in its label, too."""
    spots = layout(walk.tree)
    width = int(_ACROSS * (walk.tree.max_depth + 0.9))
    lines = 1 - min(height for _, height in spots.values())
    height = int(_DOWN * lines + 4)

    def place(row: int) -> tuple[float, float]:
        depth, down = spots[row]
        return 22 + _ACROSS * depth, _DOWN * (0.5 - down)

    parts = []
    for row, parent in enumerate(walk.tree.parents):
        (x1, y1), (x2, y2) = place(parent), place(row)
        thick = 4 if row in path else 1.5
        parts.append(
            f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" '
            f'stroke="{INK if row in path else MUTED}" stroke-width="{thick}"/>'
        )
    for row in (PREFIX_FRONTIER, *range(len(walk.tree))):
        x, y = place(row)
        known = row == PREFIX_FRONTIER
        text = "P" if known else walk.label(walk.tree.token_ids[row])
        fill, ink, edge = "#ffffff", INK, MUTED
        if row in path:
            fill, ink, edge = "#00527f", "#ffffff", "#00527f"
        shape = f'<circle cx="{x:g}" cy="{y:g}" r="{_RADIUS}" '
        parts.append(f'{shape}fill="{fill}" stroke="{edge}" stroke-width="1.5"/>')
        if row == candidate:
            ring = f'r="{_RADIUS + 4}" fill="none" stroke="{OKABE_ITO["vermilion"]}"'
            parts.append(f'<circle cx="{x:g}" cy="{y:g}" {ring} stroke-width="2.5"/>')
        if row in refused:
            out = _RADIUS
            parts.append(
                f'<path d="M{x - out:g} {y + out:g}L{x + out:g} {y - out:g}" '
                f'stroke="{OKABE_ITO["vermilion"]}" stroke-width="3"/>'
            )
        size = 13 if len(text) < 3 else 10 if len(text) < 5 else 8
        parts.append(
            f'<text x="{x:g}" y="{y + 4:g}" text-anchor="middle" font-size="{size}" '
            f'font-family="sans-serif" font-weight="600" fill="{ink}">'
            f"{escape(text)}</text>"
        )
    told = [f"Accepted: {_path(walk, path) or 'nothing yet'}"]
    if candidate is not None:
        told.append(f"tested: {_path(walk, walk.tree.path_rows(candidate))}")
    told += [
        f"refused: {_path(walk, walk.tree.path_rows(row))}" for row in sorted(refused)
    ]
    return (
        f'<svg role="img" aria-label="{escape("; ".join(told))}" '
        f'viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
        f"{''.join(parts)}</svg>"
    )
