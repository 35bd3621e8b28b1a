"""The measured answer on the README: a picture and a table, from what is shipped.

    python tools/readme.py            check that both are what the data say
    python tools/readme.py --write    make them again

Where a measured frontier is shipped (``data/frontier``), they tell which configuration
is the fastest for each kind of text, and by how much. Until then they tell what copies
bring on the recorded answers. No number of either is typed by hand.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from specbook import drafts, lab  # noqa: E402
from specbook.errors import ArtifactError  # noqa: E402
from specbook.measure import frontier_report as report  # noqa: E402
from specbook.measure import recording, replay  # noqa: E402

README = ROOT / "README.md"
PICTURE = ROOT / "docs" / "answer.svg"
BEGIN = "<!-- from here to the end mark: python tools/readme.py --write -->"
END = "<!-- end mark -->"

COPYING = ("prompt_lookup", "suffix")
SIDES = {"plain": "over plain decoding", "peer": "over the best of transformers"}
WORDS = {
    "edit_code": "edit given code",
    "continue_code": "continue code",
    "answer_from_text": "answer from a text",
    "chat": "conversation",
}

Interval = tuple[float, float, float]


@dataclass(frozen=True)
class Answer:
    """What the README tells.

    `unit`: of the numbers, whose 1 is plain decoding. `groups`: {kind of text: {series:
    (value, low, high)}}. `caption`: the conclusion. `header`, `rows`: a table of what
    the picture does not say, if there is one.
    """

    unit: str
    groups: Mapping[str, Mapping[str, Interval]]
    caption: str
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


def told(span: Interval) -> str:
    """Return a value with its interval, for people."""
    return "{:.2f} [{:.2f}, {:.2f}]".format(*span)


# ---- from data to an answer ------------------------------------------------------


def answer() -> Answer:
    """Return the answer that the shipped data give."""
    try:
        return of_frontier(report.load())
    except ArtifactError as error:
        if "no frontier" not in str(error) and "no data file" not in str(error):
            raise  # it is there, and damaged
    return of_recordings()


def of_frontier(file: Any) -> Answer:
    """Return the fastest exact greedy configuration of each workload, and its lead."""
    groups: dict[str, dict[str, Interval]] = {}
    rows = []
    for workload in report.workloads(file):
        name = WORDS.get(workload, workload.replace("_", " "))
        spans, best = {}, None
        for side, words in SIDES.items():
            best, _, ratio = report.against(file, workload, side)
            spans[words] = (ratio.value, ratio.low, ratio.high)
        assert best is not None
        groups[name] = spans
        rows.append((name, f"`{best.configuration.name}`", best.dtype))
    machine = file.machine["line"]
    return Answer(
        "tokens a second: how many times as many as the other side",
        groups,
        "The fastest configuration that keeps the target's output, greedy, for each "
        f"kind of text. Measured on {machine}.",
        ("text", "what to run there", "numbers"),
        tuple(rows),
    )


def of_recordings() -> Answer:
    """Return what the two copying sources bring on the recorded evaluation answers."""
    known = recording.load(0.0, half="evaluation")
    found = {
        name: {row["workload"]: row for row in replay(drafts.make(name), known).rows()}
        for name in COPYING
    }
    groups = {
        words: {name: span(found[name][workload]) for name in COPYING}
        for workload, words in WORDS.items()
    }
    return Answer(
        "tokens a round; plain decoding has 1",
        groups,
        "How much copied drafts bring depends on the text: tokens for each pass of "
        "the target, on its recorded answers. Times, and the other sources, are "
        "measured by `specbook bench` and in the chapters.",
    )


def span(row: Mapping[str, Any]) -> Interval:
    """Return the interval of one row of a replay."""
    low, high = row["interval"]
    return float(row["tokens_per_round"]), float(low), float(high)


# ---- the picture -----------------------------------------------------------------

WIDTH, LEFT, RIGHT, ROW, TOP = 720, 150, 120, 22, 46
LOOKS = (("#56B4E9", ""), ("#E69F00", "url(#lines)"))


def svg(found: Answer) -> str:
    """Return the answer as a picture: a bar and its interval for each series."""
    every = [span_ for spans in found.groups.values() for span_ in spans.values()]
    most = max(span_[2] for span_ in every)
    scale = (WIDTH - LEFT - RIGHT) / (1.05 * most)
    parts, y = [], TOP
    for name, spans in found.groups.items():
        middle = y + ROW * len(spans) / 2
        parts.append(_text(LEFT - 10, middle + 4, name, "end"))
        for (face, lines), span_ in zip(LOOKS, spans.values(), strict=False):
            parts += _bar(y, span_, scale, face, lines)
            y += ROW
        y += ROW // 2
    bottom = y - ROW // 4
    one = LEFT + scale
    series = list(next(iter(found.groups.values())))
    legend, x = [], LEFT
    for (face, lines), name in zip(LOOKS, series, strict=False):
        legend += _face(x, 14, 18, 12, face, lines)
        legend.append(_text(x + 26, 25, name))
        x += 60 + 8 * len(name)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{WIDTH}" '
            f'height="{bottom + 44}" viewBox="0 0 {WIDTH} {bottom + 44}" '
            'font-family="DejaVu Sans, Verdana, sans-serif" font-size="13">',
            f"<title>{escape(found.caption)}</title>",
            f"<desc>{escape(alt(found))}</desc>",
            '<defs><pattern id="lines" width="6" height="6" '
            'patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
            '<path d="M0 0V6" stroke="#1a1a1a" stroke-width="2"/></pattern></defs>',
            f'<rect width="{WIDTH}" height="{bottom + 44}" fill="#ffffff"/>',
            *legend,
            *parts,
            f'<path d="M{one:.1f} {TOP - 8}V{bottom}" stroke="#1a1a1a" '
            'stroke-dasharray="5 4"/>',
            _text(one, bottom + 16, "1", "middle"),
            _text(LEFT, bottom + 34, found.unit),
            "</svg>",
            "",
        ]
    )


def _bar(y: float, span_: Interval, scale: float, face: str, lines: str) -> list[str]:
    value, low, high = (LEFT + scale * number for number in span_)
    middle = y + ROW / 2
    return [
        *_face(LEFT, y + 3, value - LEFT, ROW - 6, face, lines),
        f'<path d="M{low:.1f} {middle}H{high:.1f}M{low:.1f} {middle - 4}v8'
        f'M{high:.1f} {middle - 4}v8" stroke="#1a1a1a" stroke-width="1.6"/>',
        _text(high + 8, middle + 4, told(span_)),
    ]


def _face(
    x: float, y: float, width: float, height: float, face: str, lines: str
) -> list[str]:
    shape = f'<rect x="{x}" y="{y}" width="{width:.1f}" height="{height}"'
    faces = [f'{shape} fill="{face}"/>']
    return [*faces, f'{shape} fill="{lines}"/>'] if lines else faces


def _text(x: float, y: float, words: str, anchor: str = "start") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} fill="#1a1a1a">{escape(words)}</text>'


def alt(found: Answer) -> str:
    """Return what the picture shows, in words."""
    bars = "; ".join(
        f"{name}: "
        + ", ".join(f"{series} {span_[0]:.2f}" for series, span_ in spans.items())
        for name, spans in found.groups.items()
    )
    return f"Bars with intervals, {found.unit}. {bars}."


# ---- the README ------------------------------------------------------------------


def block(found: Answer) -> str:
    """Return the README's part, marks included."""
    parts = [f"![{alt(found)}]({PICTURE.relative_to(ROOT).as_posix()})"]
    parts.append(textwrap.fill(found.caption, 88))
    if found.rows:
        parts.append(lab.table(found.header, found.rows)._repr_markdown_())
    return "\n\n".join([BEGIN, *parts, END])


def replaced(text: str, part: str) -> str:
    """Return the README's text with another part; ValueError where it has no marks."""
    marks = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    if len(marks.findall(text)) != 1:
        raise ValueError(f"{README.name} needs the two marks of tools/readme.py once")
    return marks.sub(lambda _: part, text)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="make them again")
    options = parser.parse_args(arguments)
    found = answer()
    text = README.read_text(encoding="utf-8")
    wanted = {README: replaced(text, block(found)), PICTURE: svg(found)}
    stale = [
        path
        for path, content in wanted.items()
        if not path.exists() or path.read_text(encoding="utf-8") != content
    ]
    for path in stale:
        if options.write:
            path.write_text(wanted[path], encoding="utf-8", newline="\n")
        said = "made" if options.write else "is not what the data say: --write it"
        print(f"{path.relative_to(ROOT)}: {said}")
    return 1 if stale and not options.write else 0


if __name__ == "__main__":
    sys.exit(main())
