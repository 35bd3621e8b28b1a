"""The register of claims: what the article says, and where the book shows it.

`data/claims.toml` holds one `[[claim]]` table for every statement that a computer can
check. A notebook shows it with a visible call of `check`. Two things must then never
happen: a claim that no notebook checks, and a check that stands for no claim. Both are
found by `register_faults`, from the notebooks' text and without running them.
"""

from __future__ import annotations

import ast
import builtins
import functools
import hashlib
import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, fields
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from . import __version__, display, tables
from .errors import ArtifactError, SpecbookError
from .paths import chapters_path

CLASSES = (
    "source-local",
    "externally-verified",
    "implementation-observed",
    "rewrite-interpretation",
)
"""The article's evidence classes, in our spelling."""

KINDS = ("exact", "statistical", "measured", "cited")
"""Our kinds of evidence: a proof by enumeration or by equality of integers and
fractions; a test with a stated false-alarm rate; a number read on this machine; a
source that we only point to."""

MAX_FALSE_ALARM = 1e-6
RECORDS_VARIABLE = "SPECBOOK_RECORDS"
SECTION = re.compile(r"0x[0-9A-F]{2}[A-Z]{0,2}")
_ID = re.compile(r"(0x[0-9A-F]{2}[A-Z]{0,2})(-[a-z0-9]+)+")
_NOTEBOOK = re.compile(r"0x[0-9A-F]{2}_[a-z0-9_]+")
_shown: set[str] = set()


class ClaimError(SpecbookError):
    """A claim does not hold, is unknown, or its register is malformed."""


@dataclass(frozen=True)
class Claim:
    """One row of the register.

    `id`: section, then words joined by hyphens. `text`: our own wording.
    `evidence_class`: the article's class (`class` in the file). `kind`: our kind of
    evidence. `notebook`: the name of the notebook that shows it, without an ending.
    `false_alarm`: for statistical claims, the chance that a true claim fails.
    """

    id: str
    section: str
    text: str
    evidence_class: str
    kind: str
    notebook: str
    false_alarm: float | None = None

    def __post_init__(self) -> None:
        where = f"claim {self.id!r}"
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "false_alarm":
                continue
            if not isinstance(value, str) or not value.strip():
                raise ClaimError(f"{where}: {field.name} must be text, got {value!r}")
        match = _ID.fullmatch(self.id)
        if match is None:
            raise ClaimError(f"{where}: an id looks like '0x07D-dag-boundary'")
        if not SECTION.fullmatch(self.section) or match[1] != self.section:
            raise ClaimError(f"{where}: its section is given as {self.section!r}")
        if self.evidence_class not in CLASSES:
            raise ClaimError(
                f"{where}: class must be one of {list(CLASSES)}, "
                f"got {self.evidence_class!r}"
            )
        if self.kind not in KINDS:
            raise ClaimError(
                f"{where}: kind must be one of {list(KINDS)}, got {self.kind!r}"
            )
        if not _NOTEBOOK.fullmatch(self.notebook):
            raise ClaimError(f"{where}: no notebook is called {self.notebook!r}")
        self._check_false_alarm(where)

    def _check_false_alarm(self, where: str) -> None:
        rate = self.false_alarm
        if self.kind != "statistical":
            if rate is not None:
                raise ClaimError(f"{where}: only statistical claims have a false_alarm")
            return
        if isinstance(rate, bool) or not isinstance(rate, (int, float)):
            raise ClaimError(f"{where}: a statistical claim needs its false_alarm")
        if not 0 < rate <= MAX_FALSE_ALARM:
            raise ClaimError(
                f"{where}: false_alarm must be above 0 and at most {MAX_FALSE_ALARM}, "
                f"got {rate}"
            )


def load(path: Path | None = None) -> dict[str, Claim]:
    """The register as {id: Claim}, in file order.

    `path`: another register than the shipped one. Raises `ClaimError` naming the claim
    for a missing or unknown entry, a wrong value or a repeated id, and for a register
    without a claim: nothing at all is no register.
    """
    names = {"evidence_class": "class"}
    known = {names.get(f.name, f.name): f.name for f in fields(Claim)}
    rows = tables.load(
        path,
        "claims.toml",
        "claim",
        known=set(known),
        needed=set(known) - {"false_alarm"},
        error=ClaimError,
    )
    found = [Claim(**{known[n]: value for n, value in row.items()}) for _, row in rows]
    tables.once([claim.id for claim in found], "claim", ClaimError)
    return {claim.id: claim for claim in found}


def _path(value: Any, name: str) -> Path:
    if not isinstance(value, (str, os.PathLike)):
        raise ClaimError(f"{name} must be a path, got {value!r}")
    return Path(value)


def check(claim_id: str, condition: bool, evidence: str) -> None:
    """Shows that a claim holds, in one visible line.

    `condition`: a bool that was computed just now (a numpy bool will do). `evidence`:
    what was looked at, with its numbers, for example "12 of 12 mask rows equal".
    A notebook gets an HTML badge, everything else a line of text. When the
    environment variable SPECBOOK_RECORDS names a folder, a record is added to
    `<claim id>.json` there, also of a claim that failed.

    Raises `ClaimError` when the condition is false or no bool, when the id is not in
    the register, and when the evidence is empty.
    """
    register = load()
    if not isinstance(claim_id, str) or claim_id not in register:
        raise ClaimError(f"no claim {claim_id!r} stands in data/claims.toml")
    claim = register[claim_id]
    if not isinstance(condition, (bool, np.bool_)):
        raise ClaimError(
            f"claim {claim_id!r}: the condition must be a bool, got "
            f"{type(condition).__name__}"
        )
    if not isinstance(evidence, str) or not evidence.strip():
        raise ClaimError(f"claim {claim_id!r}: say what the evidence is")
    evidence = " ".join(evidence.split())
    held = bool(condition)
    _record(claim, held, evidence)
    if not held:
        raise ClaimError(f"claim {claim_id!r} does not hold: {claim.text} ({evidence})")
    display.show(_badge(claim, evidence), _line(claim, evidence))


def _kind(claim: Claim) -> str:
    if claim.false_alarm is None:
        return claim.kind
    return f"{claim.kind}, false alarm at most {claim.false_alarm:g}"


def _line(claim: Claim, evidence: str) -> str:
    return f"Shown [{claim.id}] {claim.text} | {_kind(claim)}: {evidence}"


def _badge(claim: Claim, evidence: str) -> str:
    # An id may stand only once on a page, and a claim may be shown again further down.
    anchor = "" if claim.id in _shown else f' id="claim-{claim.id}"'
    _shown.add(claim.id)
    box = display.LIGHT_BOX.format(edge="#0072B2")
    return (
        f'<div{anchor} class="specbook-claim" data-claim="{claim.id}" style="{box}">'
        f'<strong style="color:#00527f">Shown</strong> '
        f'<span style="{display.MONO}">[{claim.id}]</span> '
        f"{display.marked(claim.text)} "
        '<span style="color:#4a4a4a">'
        f"({escape(_kind(claim))}: {display.marked(evidence)})</span></div>"
    )


def link(claim: Claim, words: str = "") -> str:
    """A link in HTML, for a notebook, to the place where a claim is shown. `words`:
    what it reads, the claim's id unless given. The site makes it a link to the page."""
    place = f"{claim.notebook}.ipynb#claim-{claim.id}"
    return f'<a href="{place}">{escape(words or claim.id)}</a>'


# ------------------------------------------------------------------------- records


def code(notebook: str) -> str:
    """A SHA-256 (hex) of what a check in this notebook rests on: every module of the
    package and, where the chapters are at hand, the notebook's text."""
    digest = hashlib.sha256(_package_digest())
    try:
        text = (chapters_path() / f"{notebook}.md").read_bytes()
    except (ArtifactError, OSError):  # a wheel without chapters; no such notebook
        text = b""
    digest.update(text)
    return digest.hexdigest()


@functools.cache
def _package_digest() -> bytes:
    """Of the modules as they are when they are first asked for: what runs was loaded
    from these, and a later edit does not change it."""
    digest = hashlib.sha256()
    root = Path(__file__).resolve().parent
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.digest()


def record(
    claim: Claim, held: bool, evidence: str, *, version: str = __version__
) -> dict[str, Any]:
    """What is written down of one check: the claim as it stood, what was seen, and by
    which version and which code."""
    return {
        "id": claim.id,
        "section": claim.section,
        "class": claim.evidence_class,
        "kind": claim.kind,
        "notebook": claim.notebook,
        "text": claim.text,
        "held": held,
        "evidence": evidence,
        "specbook": version,
        "code": code(claim.notebook),
    }


def _record(claim: Claim, held: bool, evidence: str) -> None:
    """Adds one record, by way of a temporary file: a reader sees all or nothing."""
    folder = os.environ.get(RECORDS_VARIABLE)
    if not folder:
        return
    path = Path(folder) / f"{claim.id}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ClaimError(
            f"{RECORDS_VARIABLE}={folder} is no folder: {error.strerror}"
        ) from None
    records = read_records(path.parent).get(claim.id, [])
    records.append(record(claim, held, evidence))
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump(records, stream, ensure_ascii=False, indent=1)
            stream.write("\n")
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read_records(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """What the checks of a run recorded, as {claim id: records in order}. Raises
    `ClaimError` for a folder that is none and for a damaged record."""
    folder = _path(folder, "folder")
    if not folder.is_dir():
        raise ClaimError(f"folder {folder} does not exist")
    found = {}
    for path in sorted(folder.glob("*.json")):
        try:
            records = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise ClaimError(f"record {path.name} is damaged: {error}") from None
        if not isinstance(records, list) or not all(
            isinstance(r, dict) and r.get("id") == path.stem for r in records
        ):
            raise ClaimError(f"record {path.name} is not one of claim {path.stem!r}")
        found[path.stem] = records
    return found


# ------------------------------------------------------- notebooks against register


@dataclass(frozen=True)
class CodeCell:
    """A code cell of a MyST notebook: its first line's number, tags and source."""

    line: int
    tags: tuple[str, ...]
    source: str

    def parsed(self) -> ast.Module:
        """The cell's program, without lines for the shell. Raises `SyntaxError`."""
        plain = "\n".join(
            "" if re.match(r"\s*[%!?]", line) else line
            for line in self.source.splitlines()
        )
        return ast.parse(plain)

    def calls(self, function: str) -> Iterator[tuple[ast.Call, bool]]:
        """Calls of `function` ("claims.check") in the cell, and for each whether it
        stands inside an `assert`. Comments and strings are no calls. Raises
        `SyntaxError`."""
        tree = self.parsed()
        asserted = {
            id(inner)
            for node in ast.walk(tree)
            if isinstance(node, ast.Assert)
            for inner in ast.walk(node.test)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _dotted(node.func).endswith(function):
                yield node, id(node) in asserted


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def code_cells(text: str) -> list[CodeCell]:
    """The code cells of a MyST notebook's text."""
    cells = []
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        opened = re.match(r"(`{3,})\{code-cell\}", lines[number])
        number += 1
        if not opened:
            continue
        first = number
        while number < len(lines) and lines[number].rstrip() != opened[1]:
            number += 1
        body = lines[first:number]
        tags: list[str] = []
        options = 0
        # Options stand at the top, as ":name: value" or between two "---" lines.
        if body and body[0].strip() == "---":
            options = body[1:].index("---") + 2 if "---" in body[1:] else 0
        else:
            while options < len(body) and re.match(r":[\w-]+:", body[options]):
                options += 1
        for line in body[:options]:
            if match := re.match(r":?tags:\s*\[(.*)\]", line):
                tags += [tag.strip(" '\"") for tag in match[1].split(",")]
        source = "\n".join(body[options:])
        cells.append(CodeCell(first + options + 1, tuple(tags), source))
    return cells


def _argument(call: ast.Call, place: int, name: str) -> ast.expr | None:
    """An argument of a call, given by its place or by its name."""
    if place < len(call.args):
        return call.args[place]
    return next((k.value for k in call.keywords if k.arg == name), None)


def _cannot_fail(condition: ast.expr | None, constants: Set[str] = frozenset()) -> bool:
    """Whether nothing that was computed is looked at: all names are of built-in
    functions or of `constants`. Of an `or`, one such side is enough."""
    if condition is None:
        return False
    if isinstance(condition, ast.BoolOp) and isinstance(condition.op, ast.Or):
        return any(_cannot_fail(value, constants) for value in condition.values)
    names = {node.id for node in ast.walk(condition) if isinstance(node, ast.Name)}
    return names <= {*dir(builtins), *constants}


def _constants(trees: Iterable[ast.Module]) -> set[str]:
    """The names of a notebook that are only ever set to what cannot fail. (A list that
    begins empty may be filled, so containers do not count, and no result of a call.)"""
    filled = ast.List, ast.Dict, ast.Set, ast.Call
    nodes = [node for tree in trees for node in ast.walk(tree)]
    # A loop, an import, `held &= ...` and the like set a name to something computed.
    bound = Counter(
        node.id
        for node in nodes
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
    fixed = Counter(
        node.targets[0].id
        for node in nodes
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and _cannot_fail(node.value)
        and not any(isinstance(inner, filled) for inner in ast.walk(node.value))
    )
    return {name for name, count in fixed.items() if count == bound[name]}


def literal_id(call: ast.Call) -> str | None:
    """The call's claim id, if it is written out as a string."""
    first = _argument(call, 0, "claim_id")
    if isinstance(first, ast.Constant) and isinstance(first.value, str):
        return first.value
    return None


def register_faults(
    notebooks: Path, register: Mapping[str, Claim] | None = None
) -> list[str]:
    """Where the register and the MyST notebooks of a folder disagree.

    Every check names a claim of its own notebook, with an id that can be read in the
    text and a condition that could be false; every claim of a notebook that exists is
    checked in it. (A claim whose notebook is yet to come is not a fault.)
    """
    register = load() if register is None else register
    faults = []
    for path in sorted(notebooks.glob("*.md")):
        checked: set[str] = set()
        cells = []
        for cell in code_cells(path.read_text(encoding="utf-8")):
            try:
                cells.append((cell, cell.parsed()))
            except SyntaxError as error:
                faults.append(f"{path.name}:{cell.line}: {error.msg}")
        constants = _constants(tree for _, tree in cells)
        for cell, _ in cells:
            calls = list(cell.calls("claims.check"))
            for call, _ in calls:
                where = f"{path.name}:{cell.line + call.lineno - 1}"
                name = literal_id(call)
                if name is None:
                    faults.append(f"{where}: write the claim's id out as a string")
                    continue
                checked.add(name)
                if name not in register:
                    faults.append(f"{where}: no claim {name!r} is registered")
                elif register[name].notebook != path.stem:
                    owner = register[name].notebook
                    faults.append(f"{where}: claim {name!r} belongs to {owner}")
                if _cannot_fail(_argument(call, 1, "condition"), constants):
                    faults.append(f"{where}: the condition of {name!r} cannot fail")
        faults += [
            f"{path.name}: claim {claim.id!r} is not checked"
            for claim in register.values()
            if claim.notebook == path.stem and claim.id not in checked
        ]
    return faults
