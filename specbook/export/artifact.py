"""An export on disk: the file that the engine reads, and beside it how it was made.

The engine's file holds nothing but what the engine knows. Everything else, which
version it is valid for, what it was made from, the command to paste, stands in a second
file, named after the first: `FILE.export.json`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from .. import __version__, checks, reading
from ..errors import ArtifactError, SpecbookError
from ..measure.report import write_whole
from ..measure.setup import file
from . import schema

FORMAT = 2
BESIDE = ".export.json"


@dataclass(frozen=True, kw_only=True)
class Export:
    """What is written. `engine`, `what`: for whom, and which of its settings. `body`:
    the engine's file, as text. `command`: how the engine is told of it; `<FILE>` stands
    for the file's name in a shell, `<PYFILE>` in Python. `schema`: the one that the
    settings were checked against. `inputs`: {what it is: its SHA-256}. `notes`: what to
    know before it is used.
    """

    engine: str
    what: str
    schema: str
    body: str
    command: str
    inputs: Mapping[str, str]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("engine", "what", "body", "command"):
            if not checks.text(getattr(self, name), name):
                raise SpecbookError(f"{name} of an export is empty")
        schema.origin(self.schema)
        made_from = checks.instance(self.inputs, "inputs", Mapping)
        for name, digest in made_from.items():
            checks.text(digest, f"inputs[{checks.text(name, 'a name in inputs')!r}]")
        notes = checks.entries(self.notes, "notes", "texts")
        for place, note in enumerate(notes):
            checks.text(note, f"notes[{place}]")
        object.__setattr__(self, "inputs", dict(made_from))
        object.__setattr__(self, "notes", tuple(notes))

    def header(self) -> dict[str, str]:
        """What anybody must know who finds the file: whose it is, valid for which
        version, by which source, made by what from what."""
        stated = schema.origin(self.schema)
        made_from = "; ".join(f"{name} sha256:{h}" for name, h in self.inputs.items())
        return {
            "engine": stated.engine,
            "valid for": stated.version,
            "schema": f"{self.schema}, from {stated.source}",
            "made by": f"specbook {__version__}",
            "made from": made_from or "options alone",
        }

    def told(self, path: str | os.PathLike[str]) -> str:
        """The command, with the file's name in it."""
        name = os.fspath(path)
        # A shell's command would take a name that begins with a dash for an option.
        shown = f"./{name}" if name.startswith("-") else name
        marks = {"<FILE>": shlex.quote(shown), "<PYFILE>": repr(name)}
        # At once: a name may look like a mark itself.
        return re.sub("|".join(marks), lambda mark: marks[mark[0]], self.command)

    def lines(self, path: str | os.PathLike[str]) -> list[str]:
        """The header, the notes and the command, for a reader."""
        told = [f"{name}: {value}" for name, value in self.header().items()]
        return [*told, *(f"note: {note}" for note in self.notes), "", self.told(path)]

    def save(self, out: str | os.PathLike[str]) -> Path:
        """Writes the engine's file and the one beside it; returns the first's path. An
        earlier export of the same kind is replaced, any other file is not: it raises
        `ArtifactError`."""
        path = replaceable(out, self.engine, self.what)
        told = {name: value for name, value in asdict(self).items() if name != "body"}
        beside = {
            "format": FORMAT,
            "kind": "export",
            "header": self.header(),
            "export": told,
            "sha256": hashlib.sha256(self.body.encode()).hexdigest(),
        }
        beside["digest"] = _digest(beside)
        text = json.dumps(beside, indent=1, allow_nan=False) + "\n"
        try:
            # The explanation first: an engine's file is never without one.
            write_whole(_beside(path), text)
            write_whole(path, self.body)
        except OSError as problem:
            raise ArtifactError(f"{path} cannot be written: {problem}") from problem
        return path

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Export:
        """The export that `save` wrote to `path`. Raises `ArtifactError` for one that
        is missing, or where the file or what explains it was changed since."""
        found = Path(path)
        stated = reading.json_object(_beside(found), "an export")
        if stated.get("kind") != "export" or stated.get("format") != FORMAT:
            raise ArtifactError(f"{_beside(found)} tells of no export of this version")
        digest = stated.pop("digest", None)
        if digest != _digest(stated):
            raise ArtifactError(f"{_beside(found)} was changed since it was written")
        try:
            named = {item.name for item in fields(cls)}
            values = {**stated["export"], "body": reading.text(found)}
            if values.keys() != named:
                raise ArtifactError(f"other fields: {sorted(values.keys() ^ named)}")
            made = cls(**values)
        except (SpecbookError, KeyError, TypeError) as problem:
            raise ArtifactError(f"{_beside(found)} is damaged: {problem}") from problem
        if hashlib.sha256(made.body.encode()).hexdigest() != stated.get("sha256"):
            raise ArtifactError(f"{found} was changed since it was exported")
        return made


def made_from(inputs: Mapping[str, str] | None) -> Mapping[str, str]:
    """The inputs of an export; None is none: options alone."""
    told: Mapping[str, str] = checks.instance(
        {} if inputs is None else inputs, "inputs", Mapping
    )
    return told


def replaceable(out: Any, engine: str, what: str) -> Path:
    """`out` as a file that may be written: new, or an earlier export of the same kind.
    Raises `SpecbookError` for a folder or one that takes no files, `ArtifactError` for
    another file, which is not ours to replace."""
    path = file(out)
    if not path.name:
        raise SpecbookError(f"out must be the name of a file, got {out!r}")
    beside = _beside(path)
    if not path.exists() and not beside.exists():
        return path
    try:
        stated = reading.json_object(beside, "an export")["export"]
        ours = (stated["engine"], stated["what"]) == (engine, what)
    except (ArtifactError, KeyError, TypeError):
        ours = False
    if not ours:
        raise ArtifactError(
            f"{path} is there and is no earlier export of {engine} {what}: give "
            "another name"
        )
    return path


def _digest(beside: Mapping[str, Any]) -> str:
    told = json.dumps(beside, sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()


def _beside(path: Path) -> Path:
    return path.with_name(path.name + BESIDE)
