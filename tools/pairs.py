"""Keep each notebook's two files together, and keep notebooks in the house's form.

``notebooks/NAME.md`` (MyST Markdown) is the source that people edit and review;
``notebooks/NAME.ipynb`` is made from it and holds no outputs, so that Colab, Binder,
GitHub and a double click find a notebook.

    python tools/pairs.py            check every pair and the house's rules
    python tools/pairs.py --write    make every .ipynb again from its .md
    python tools/pairs.py --table    sizes of every notebook

The comparison is of contents. A time stamp says nothing in a fresh clone, so none is
read. Making a pair twice gives the same bytes: a cell's id comes from its source (and
from how many equal cells stand before it), not from a random number.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import re
import statistics
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "notebooks"

MAX_CELLS = 60
MAX_BYTES = 500_000
MAX_CELL_LINES = 45
MAX_MEDIAN_LINES = 8
MAX_P90_LINES = 25
MAX_COLUMNS = 80
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
KEPT_CELL_KEYS = {"tags", "mystnb"}
BANNED_TAGS = {"skip-execution", "raises-exception"}
BANNED_CODE = {
    r"\bsys\s*\.\s*path\b": "sys.path (install the package instead)",
    r"^\s*[!%]\s*(?:pip|conda|uv)\b": "an install command",
    r"\bgit\+": "git+ (a dependency that no lock covers)",
    r"\bos\s*\.\s*chdir\b|^\s*%cd\b": "a change of folder",
    r"\bpip(?:\._internal)?\s*\.\s*main\b": "an install command",
}
ABSOLUTE = re.compile(
    r"^(?:/[A-Za-z_][\w.\-]*(?:/[\w.\-]*)*|~[/\\].*|[A-Za-z]:[\\/].*)$"
)

Notebook = dict[str, Any]


# ---- from text to notebook -------------------------------------------------------


def cell_id(kind: str, source: str, ordinal: int) -> str:
    """Return a cell id that depends on the cell alone.

    ``ordinal`` counts equal cells before this one, which keeps ids unique.
    """
    text = f"{kind}\n{ordinal}\n{source}"
    return "c" + hashlib.sha256(text.encode("utf-8")).hexdigest()[:11]


def from_text(path: Path) -> Notebook:
    """Return the notebook that a MyST Markdown file describes, in canonical form.

    Raises ValueError, naming the file, where the text cannot be read as a notebook.
    """
    import jupytext

    try:
        raw = jupytext.reads(path.read_text(encoding="utf-8"), fmt="md:myst")
    except Exception as error:  # jupytext raises many kinds; all mean the same here
        raise ValueError(f"{path.name}: cannot be read as MyST: {error}") from error
    seen: Counter[tuple[str, str]] = Counter()
    cells = []
    for cell in raw.cells:
        source = cell.source
        ordinal = seen[cell.cell_type, source]
        seen[cell.cell_type, source] += 1
        entry: Notebook = {
            "cell_type": cell.cell_type,
            "id": cell_id(cell.cell_type, source, ordinal),
            "metadata": json.loads(json.dumps(cell.metadata)),
            "source": re.findall(r"[^\n]*\n|[^\n]+", source),
        }
        if cell.cell_type == "code":
            entry["execution_count"] = None
            entry["outputs"] = []
        cells.append(entry)
    metadata = json.loads(json.dumps(raw.metadata))
    metadata.pop("jupytext", None)
    metadata["jupytext"] = {"formats": "ipynb,md:myst"}
    metadata["language_info"] = {"name": "python"}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def dump(notebook: Notebook) -> str:
    """Return the notebook's file text: sorted keys, one final newline."""
    return json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def write_pair(path: Path) -> bool:
    """Make the .ipynb of a .md again; return whether the file changed."""
    target = path.with_suffix(".ipynb")
    text = dump(from_text(path))
    if target.exists() and target.read_text(encoding="utf-8") == text:
        return False
    part = target.with_name(target.name + f".{os.getpid()}.part")
    part.write_text(text, encoding="utf-8", newline="\n")
    part.replace(target)
    return True


def load(path: Path) -> Notebook:
    """Read a .ipynb file; ValueError names the file when it is not JSON."""
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path.name}: not a notebook: {error}") from error
    if not isinstance(notebook, dict) or "cells" not in notebook:
        raise ValueError(f"{path.name}: not a notebook: no cells")
    return notebook


# ---- checks: each yields one line for each fault ---------------------------------


def source_of(cell: Notebook) -> str:
    """Return a cell's source as one string."""
    source = cell.get("source", "")
    return source if isinstance(source, str) else "".join(source)


def code_lines(source: str) -> int:
    """Count a cell's lines of code: neither blank nor only a comment."""
    lines = (line.strip() for line in source.splitlines())
    return sum(1 for line in lines if line and not line.startswith("#"))


def code_cells(notebook: Notebook) -> list[tuple[int, str]]:
    """Return (number of the cell counted from 1, source) of every code cell."""
    return [
        (number, source_of(cell))
        for number, cell in enumerate(notebook["cells"], 1)
        if cell.get("cell_type") == "code"
    ]


def pair_faults(folder: Path) -> Iterator[str]:
    """Name every pair whose two files differ in content, or that lacks one file."""
    texts = {path.stem for path in folder.glob("*.md")}
    books = {path.stem for path in folder.glob("*.ipynb")}
    for stem in sorted(texts - books):
        yield f"{stem}.md has no {stem}.ipynb: run make pairs"
    for stem in sorted(books - texts):
        yield f"{stem}.ipynb has no {stem}.md, which should be its source"
    for stem in sorted(texts & books):
        try:
            made = from_text(folder / f"{stem}.md")
            kept = load(folder / f"{stem}.ipynb")
        except ValueError as error:
            yield str(error)
            continue
        difference = first_difference(made, kept)
        if difference:
            yield f"pair {stem}: {difference}: run make pairs if the .md is right"


def first_difference(made: Notebook, kept: Notebook) -> str | None:
    """Say where two notebooks first differ in what a reader or a kernel would see."""
    for number, (a, b) in enumerate(zip(made["cells"], kept["cells"], strict=False), 1):
        if a["cell_type"] != b.get("cell_type"):
            kinds = a["cell_type"], b.get("cell_type")
            return f"cell {number} is {kinds[0]} in .md, {kinds[1]} in .ipynb"
        if source_of(a) != source_of(b):
            pairs = zip(
                source_of(a).splitlines() + [""],
                source_of(b).splitlines() + [""],
                strict=False,
            )
            line, texts = next(
                ((n, ab) for n, ab in enumerate(pairs, 1) if ab[0] != ab[1]),
                (1, ("", "")),
            )
            return (
                f"cell {number} line {line} is {texts[0]!r} in .md, "
                f"{texts[1]!r} in .ipynb"
            )
        if a.get("metadata", {}) != b.get("metadata", {}):
            return f"cell {number} has other metadata"
        if a["id"] != b.get("id"):
            return f"cell {number} has another id"
    if len(made["cells"]) != len(kept["cells"]):
        return f"{len(made['cells'])} cells in .md, {len(kept['cells'])} in .ipynb"
    if made["metadata"] != kept.get("metadata"):
        return "other notebook metadata"
    return None


def kernel_faults(notebook: Notebook) -> Iterator[str]:
    """A private kernel name stops every other reader (case H28)."""
    kernel = notebook.get("metadata", {}).get("kernelspec")
    if kernel != KERNEL:
        yield f"kernelspec is {kernel}, not {KERNEL}"


def metadata_faults(notebook: Notebook) -> Iterator[str]:
    """No outputs, no widget state, no private time limit, no way out of a run."""
    metadata = notebook.get("metadata", {})
    if "widgets" in metadata:
        yield "widget state in the metadata (GitHub refuses such notebooks)"
    if "execution" in metadata or "nbmake" in metadata:
        yield "metadata sets its own time limit or mocks (it would override the run's)"
    ids: Counter[str] = Counter()
    for number, cell in enumerate(notebook["cells"], 1):
        ids[cell.get("id", "")] += 1
        if cell.get("outputs"):
            yield f"cell {number} holds outputs"
        if cell.get("execution_count") is not None:
            yield f"cell {number} holds an execution count"
        extra = set(cell.get("metadata", {})) - KEPT_CELL_KEYS
        if extra:
            yield f"cell {number} has metadata {sorted(extra)}"
        banned = BANNED_TAGS & set(cell.get("metadata", {}).get("tags", []))
        if banned:
            yield f"cell {number} is tagged {sorted(banned)}"
    if "" in ids:
        yield "a cell has no id"
    if any(count > 1 for count in ids.values()):
        yield "two cells share an id"


def string_constants(source: str) -> Iterator[str]:
    """Yield the string literals of a code cell; magics are left out."""
    plain = "\n".join(
        "" if re.match(r"\s*[%!?]", line) else line for line in source.splitlines()
    )
    try:
        tree = ast.parse(plain)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def code_faults(notebook: Notebook) -> Iterator[str]:
    """A notebook runs from any folder, in the environment that the lock describes."""
    for number, source in code_cells(notebook):
        for pattern, what in BANNED_CODE.items():
            if re.search(pattern, source, re.MULTILINE):
                yield f"cell {number} uses {what}"
        for text in string_constants(source):
            if ABSOLUTE.match(text):
                yield f"cell {number} names an absolute path: {text!r}"


def size_faults(notebook: Notebook, size: int) -> Iterator[str]:
    """Cells short enough to read: median 8 lines, nine of ten 25, none over 45."""
    if len(notebook["cells"]) > MAX_CELLS:
        yield f"{len(notebook['cells'])} cells, more than {MAX_CELLS}"
    if size > MAX_BYTES:
        yield f"{size} bytes, more than {MAX_BYTES}"
    counts = [(number, code_lines(text)) for number, text in code_cells(notebook)]
    for number, count in counts:
        if count > MAX_CELL_LINES:
            yield f"cell {number} has {count} lines of code, more than {MAX_CELL_LINES}"
    lines = sorted(count for _, count in counts if count)
    if not lines:
        return
    median = statistics.median(lines)
    if median > MAX_MEDIAN_LINES:
        yield f"median code cell has {median:g} lines, more than {MAX_MEDIAN_LINES}"
    p90 = percentile90(lines)
    if p90 > MAX_P90_LINES:
        yield f"one code cell in ten has over {MAX_P90_LINES} lines ({p90})"


def percentile90(lines: list[int]) -> int:
    """Return the smallest count that nine cells in ten do not exceed."""
    ordered = sorted(lines)
    return ordered[-(-9 * len(ordered) // 10) - 1]


def width_faults(text: str) -> Iterator[str]:
    """Yield the lines of a .md over 80 columns. Tables and addresses may be longer."""
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > MAX_COLUMNS:
            if line.lstrip().startswith("|") or re.search(r"https?://\S{20,}", line):
                continue
            yield f"line {number} has {len(line)} columns, more than {MAX_COLUMNS}"


def heading_faults(notebook: Notebook) -> Iterator[str]:
    """One title, first; no level is skipped on the way down."""
    level, titles = 0, 0
    for number, cell in enumerate(notebook["cells"], 1):
        if cell.get("cell_type") != "markdown":
            continue
        fence = False
        for line in source_of(cell).splitlines():
            if re.match(r"\s*(```|~~~)", line):
                fence = not fence
            match = None if fence else re.match(r"(#{1,6})\s", line)
            if not match:
                continue
            new = len(match[1])
            titles += new == 1
            if new > level + 1:
                yield f"cell {number}: heading {line.strip()!r} skips a level"
            level = new
    if titles != 1:
        yield f"{titles} titles (a notebook has one line that starts with '# ')"


def faults(folder: Path = FOLDER) -> list[str]:
    """Return every fault of every notebook of a folder, each naming its notebook."""
    found = list(pair_faults(folder))
    for path in sorted(folder.glob("*.ipynb")):
        try:
            notebook = load(path)
        except ValueError as error:
            found.append(str(error))
            continue
        checks = [
            kernel_faults(notebook),
            metadata_faults(notebook),
            code_faults(notebook),
            heading_faults(notebook),
            size_faults(notebook, path.stat().st_size),
        ]
        found += [f"{path.name}: {fault}" for check in checks for fault in check]
    for path in sorted(folder.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        found += [f"{path.name}: {fault}" for fault in width_faults(text)]
    return found


# ---- command line ----------------------------------------------------------------


def table(folder: Path) -> Iterator[str]:
    """Yield one line for each notebook: its size and its share of prose."""
    yield f"{'notebook':34} cells  code  median  p90  max  words/line"
    for path in sorted(folder.glob("*.ipynb")):
        notebook = load(path)
        lines = [n for n in (code_lines(s) for _, s in code_cells(notebook)) if n]
        words = sum(
            len(source_of(cell).split())
            for cell in notebook["cells"]
            if cell["cell_type"] == "markdown"
        )
        if lines:
            yield (
                f"{path.name:34} {len(notebook['cells']):5} {len(lines):5} "
                f"{statistics.median(lines):7g} {percentile90(lines):4} "
                f"{max(lines):4} {words / sum(lines):11.1f}"
            )


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="make the .ipynb files")
    parser.add_argument("--table", action="store_true", help="print sizes")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    options = parser.parse_args(arguments)
    if options.write:
        for path in sorted(options.folder.glob("*.md")):
            if write_pair(path):
                print(f"made {path.with_suffix('.ipynb').name}")
    if options.table:
        print(*table(options.folder), sep="\n")
    found = faults(options.folder)
    for fault in found:
        print(fault, file=sys.stderr)
    count = len(list(options.folder.glob("*.md")))
    if not found:
        print(f"{count} notebook pairs agree")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
