"""The file of `specbook measure frontier`: its rows, how it grows, how it is read.

One file of JSON lines. The first line says what the file is, with which settings and on
which machine it was measured. Every further line is one row of one of four kinds:

- `skipped`: a source of the registry that could not take part, and why;
- `cost`: what a verification of so many rows takes, for a number format and a batch;
- `screened`: a configuration as a few prompts of the half that is not decoded predict
  it;
- `decoded`: a configuration on one prompt, as it was decoded and timed.

A line ends with the start of a digest over itself and over the settings, so that a
changed number and a row of another run are both refused. The file is written whole, by
way of a temporary name, each time that rows are added; a run that was stopped goes on
where it was, if nothing that matters has changed. Reading needs no torch.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from .. import reading
from ..errors import ArtifactError, SpecbookError
from .frontier_rows import BINS as BINS
from .frontier_rows import FAMILIES as FAMILIES
from .frontier_rows import KINDS, Configuration, Decoded, Row
from .frontier_rows import OWN as OWN
from .frontier_rows import PLAIN as PLAIN
from .frontier_rows import Cost as Cost
from .frontier_rows import Screened as Screened
from .frontier_rows import Skipped as Skipped
from .frontier_rows import Trace as Trace
from .report import read_as, write_whole
from .setup import check_same_machine

KIND = "specbook frontier"
FORMAT = 1


@dataclass
class FrontierFile:
    """The rows of a run, and the file that they are kept in. `path` None keeps them in
    memory only."""

    settings: dict[str, Any]
    machine: dict[str, Any]
    path: Path | None = None
    rows: list[Row] = field(default_factory=list)
    written: str | None = field(default=None, repr=False, compare=False)
    """What `path` holds, as far as this object knows: what it read or wrote last."""

    @classmethod
    def at(
        cls,
        path: str | os.PathLike[str] | None,
        settings: dict[str, Any],
        machine: dict[str, Any],
    ) -> FrontierFile:
        """A file to add to. One that is at `path` goes on if it is of these settings
        and of this machine (`check_same_machine`); otherwise `SpecbookError` names what
        differs. Raises `ArtifactError` for what is no such file."""
        plain = json.loads(json.dumps(settings))
        if path is None or not Path(path).exists():
            return cls(plain, machine, None if path is None else Path(path))
        found = read(path)
        for name in sorted({*plain, *found.settings}):
            if plain.get(name) != found.settings.get(name):
                raise SpecbookError(
                    f"{path} was measured with other settings: {name} was "
                    f"{found.settings.get(name)!r}, now it is {plain.get(name)!r}; "
                    "name another file, or remove it"
                )
        check_same_machine(found.machine, machine, path)
        return found

    def has(self, kind: str, *key: Any) -> bool:
        """Whether a row of the kind with this key is there."""
        return any(isinstance(r, KINDS[kind]) and r.key == key for r in self.rows)

    def of(self, kind: str) -> list[Any]:
        """The rows of one kind, in order."""
        return [row for row in self.rows if isinstance(row, KINDS[kind])]

    def add(self, rows: Iterable[Row]) -> None:
        """Appends rows and writes the file. Raises `SpecbookError` for a row that is
        there already, and `ArtifactError`, before anything is lost, where somebody else
        has written the file since."""
        if self.path is not None:
            self._check_unchanged(self.path)
        new = list(rows)
        keys = {(type(row), row.key) for row in self.rows}
        for row in new:
            if (type(row), row.key) in keys:
                raise SpecbookError(f"a row is there already: {row.key}")
            keys.add((type(row), row.key))
        self.rows += new
        if self.path is not None:
            self.write(self.path)

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Writes the file whole, or not at all. Returns its path."""
        head = {
            "kind": KIND,
            "format": FORMAT,
            "settings": self.settings,
            "machine": self.machine,
        }
        salt = settings_hash(self.settings)
        names = {kind: name for name, kind in KINDS.items()}
        lines = [_line(head, salt)]
        lines += [_line({"row": names[type(r)], **_values(r)}, salt) for r in self.rows]
        text = "".join(lines)
        made = write_whole(Path(path), text)
        if made == self.path:
            self.written = text
        return made

    def _check_unchanged(self, path: Path) -> None:
        """Two runs that write one file would each undo what the other one added."""
        try:
            there = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            raise ArtifactError(f"{path} cannot be read: {error}") from error
        if there != self.written:
            raise ArtifactError(
                f"{path} holds something else than this run wrote: is another run "
                "writing it?"
            )


def _values(row: Row) -> dict[str, Any]:
    """A row as plain values. A shape is told once and what is not there is left out:
    most rows of a file are short then."""
    values = asdict(row)
    kept = {f.name: f.default for f in fields(Configuration)}
    if "configuration" in values:
        values["configuration"] = {
            name: value
            for name, value in values["configuration"].items()
            if value != kept[name]
        }
    return values


def settings_hash(settings: Mapping[str, Any]) -> str:
    """SHA-256 of the settings, hex."""
    return _digest(settings, "")


def _digest(values: Any, salt: str) -> str:
    told = json.dumps(values, sort_keys=True, allow_nan=False)
    return hashlib.sha256(f"{salt}{told}".encode()).hexdigest()


def _line(values: Mapping[str, Any], salt: str) -> str:
    plain = json.loads(json.dumps(values, allow_nan=False))
    return json.dumps({**plain, "digest": _digest(plain, salt)[:16]}) + "\n"


def read(path: str | os.PathLike[str]) -> FrontierFile:
    """The file at `path`. Raises `ArtifactError`, naming the line, for a file that is
    missing, damaged, of another kind or version, or with rows of another run."""
    path = Path(path)
    try:
        text = reading.text(path)
    except ArtifactError as error:
        raise ArtifactError(f"{path} is no {KIND} file: {error}") from error
    lines = text.split("\n")
    if lines.pop() != "" or not lines:
        raise ArtifactError(f"{path}: the file is cut off")
    head = _parsed(path, 1, lines[0])
    if head.get("kind") != KIND:
        raise ArtifactError(f"{path} is no {KIND} file")
    if head.get("format") != FORMAT:
        raise ArtifactError(
            f"{path}: format is {head.get('format')!r}, this version reads {FORMAT}"
        )
    for name in ("settings", "machine"):
        if not isinstance(head.get(name), dict):
            raise ArtifactError(f"{path}: {name} must be an object")
    try:
        salt = settings_hash(head["settings"])
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{path}: settings: {error}") from error
    _check_digest(path, 1, head, salt)
    made = FrontierFile(head["settings"], head["machine"], path)
    keys: set[Any] = set()
    for number, line in enumerate(lines[1:], 2):
        values = _parsed(path, number, line)
        _check_digest(path, number, values, salt)
        told = values.pop("row", None)
        kind = KINDS.get(told) if isinstance(told, str) else None
        if kind is None:
            raise ArtifactError(f"{path}, line {number}: a row of no known kind")
        try:
            row = read_as(kind, values, "")
        except (ValueError, TypeError) as error:
            raise ArtifactError(f"{path}, line {number}: {error}") from error
        if (kind, row.key) in keys:
            raise ArtifactError(f"{path}, line {number}: a row that was there before")
        keys.add((kind, row.key))
        made.rows.append(row)
    if told := _incomplete(made.of("decoded")):
        raise ArtifactError(f"{path}: {told}")
    made.written = text
    return made


def _incomplete(rows: Iterable[Decoded]) -> str:
    """Which prompt lacks a configuration that another one has; "" where none does. The
    rows of a prompt are written at once, so a line was taken out then."""
    groups: dict[tuple[str, float], dict[str, set[Configuration]]] = {}
    for row in rows:
        group = groups.setdefault((row.dtype, row.temperature), {})
        group.setdefault(row.prompt, set()).add(row.configuration)
    for (dtype, temperature), prompts in groups.items():
        every = set[Configuration]().union(*prompts.values())
        for prompt, there in prompts.items():
            for one in sorted(lost.name for lost in every - there):
                where = f"{prompt}, {dtype}, temperature {temperature:g}"
                return f"{where}: a row of {one} is missing"
    return ""


def _parsed(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{path}, line {number}: no JSON: {error}") from error
    if not isinstance(values, dict):
        raise ArtifactError(f"{path}, line {number}: no object")
    return values


def _check_digest(path: Path, number: int, values: dict[str, Any], salt: str) -> None:
    told = values.pop("digest", None)
    try:
        wanted = _digest(values, salt)[:16]
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{path}, line {number}: {error}") from error
    if told != wanted:
        raise ArtifactError(
            f"{path}, line {number}: changed, or a row of another run: its digest is "
            f"{told!r}"
        )
