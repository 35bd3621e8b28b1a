"""The article's errors, as the chapters state them: read from their Errata boxes.

A chapter that departs from the article says so in a box (an admonition whose title
begins with "Errata:") beside the check that shows it. The list is collected from the
chapters' texts, so that none is kept by hand.
"""

from __future__ import annotations

import ast
import os
import re
from dataclasses import dataclass
from pathlib import Path

from .claims import CodeCell, code_cells, literal_id
from .errors import SpecbookError
from .paths import chapters_path

_BOX = re.compile(r":{3,}\{\w+\}\s*(.*?)\s*")
_DIRECTIVE = re.compile(r"\s*(?::{3,}|`{3,}|~{3,})\s*\{")
_TITLE = re.compile(r"Errata: (\S.*)")


@dataclass(frozen=True)
class Erratum:
    """One box. `chapter`: the notebook's name; `line`: where the box begins; `heading`:
    of the section that it stands in; `claims`: ids that this section checks, in order.
    """

    chapter: str
    line: int
    heading: str
    title: str
    text: str
    claims: tuple[str, ...]


def collect(folder: Path | None = None) -> list[Erratum]:
    """Every erratum of the chapters of a folder, in reading order.

    `folder`: of MyST notebooks; the book's own unless given. Raises `SpecbookError`,
    naming chapter and line, for a box that is not closed or says nothing, for one that
    speaks of errata in another form, which would be lost, and for what is no chapter.
    """
    if folder is not None and not isinstance(folder, (str, os.PathLike)):
        raise SpecbookError(f"folder must be a path, got {folder!r}")
    folder = chapters_path() if folder is None else Path(folder)
    chapters = sorted(folder.glob("*.md"))
    if not chapters:
        raise SpecbookError(f"there is no chapter in {folder}")
    return [
        erratum for path in chapters for erratum in _of_chapter(path.stem, _read(path))
    ]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise SpecbookError(f"{path.name} is no chapter: {error}") from None


def _of_chapter(chapter: str, text: str) -> list[Erratum]:
    checked = [
        (cell.line, name)
        for cell in code_cells(text)
        for call in _checks(cell, chapter)
        if (name := literal_id(call)) is not None
    ]
    lines = text.splitlines()
    headings, boxes = _headings_and_boxes(lines)
    found = []
    for start in boxes:
        title, body = _box(lines, start, f"{chapter}.md:{start + 1}")
        first = max((n for n in headings if n < start), default=0)
        last = min((n for n in headings if n > start), default=len(lines))
        shown = (name for line, name in checked if first < line <= last)
        heading = lines[first].lstrip("# ").strip()
        found.append(
            Erratum(
                chapter, start + 1, heading, title, body, tuple(dict.fromkeys(shown))
            )
        )
    return found


def _checks(cell: CodeCell, chapter: str) -> list[ast.Call]:
    try:
        return [call for call, _ in cell.calls("claims.check")]
    except SyntaxError as error:
        raise SpecbookError(f"{chapter}.md:{cell.line}: {error.msg}") from None


def _headings_and_boxes(lines: list[str]) -> tuple[list[int], list[int]]:
    """Line numbers from 0, outside listings, of headings and of boxes about errata."""
    headings, boxes, fence = [], [], ""
    for number, line in enumerate(lines):
        mark = re.match(r"`{3,}|~{3,}", line)
        if fence:
            fence = "" if line.rstrip() == fence else fence
        elif _DIRECTIVE.match(line) and re.search(r"errat", line, re.IGNORECASE):
            # In whatever form: `_box` takes one, and says of the others what it takes.
            boxes.append(number)
        elif mark:
            fence = mark[0]
        elif re.match(r"#{1,6} ", line):
            headings.append(number)
    return headings, boxes


def _box(lines: list[str], start: int, where: str) -> tuple[str, str]:
    opened = _BOX.fullmatch(lines[start])
    title = _TITLE.fullmatch(opened[1]) if opened else None
    if title is None:
        raise SpecbookError(f"{where}: a box is titled 'Errata: what is wrong'")
    end = lines[start].partition("{")[0]
    body = []
    for line in lines[start + 1 :]:
        if line.rstrip() == end:
            break
        body.append(line)
    else:
        raise SpecbookError(f"{where}: this box is not closed")
    while body and re.match(r":[\w-]+:", body[0]):  # options, which stand first
        body.pop(0)
    text = " ".join(" ".join(body).split())
    if not text:
        raise SpecbookError(f"{where}: this box says nothing")
    return title[1], text
