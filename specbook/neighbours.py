"""What the book leaves to the others of the article's series (section 0x13).

`data/neighbours.toml` names for each neighbour what it owns, which of our claims build
on it, and what a source of its kind would have to declare to come in here.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import checks
from .contract import SourceContract
from .errors import SpecbookError
from .paths import data_path

_FIELDS = {"id", "owns", "claims", "source"}
_SOURCE = {"name", "semantics", "relation", "topology"}


class NeighbourError(SpecbookError):
    """The file of neighbours is malformed."""


@dataclass(frozen=True)
class Neighbour:
    """`id`: its number in the series. `owns`: what it derives. `claims`: ids of ours
    that build on it. `sources`: contracts of its drafts, as our interface has them.
    """

    id: str
    owns: str
    claims: tuple[str, ...]
    sources: tuple[SourceContract, ...]


def load(path: Path | None = None) -> dict[str, Neighbour]:
    """The neighbours as {id: Neighbour}, in the article's order.

    `path`: another file than the shipped one. Raises `NeighbourError` naming the entry
    for an unknown or missing field, a wrong value, a repeated id, and a neighbour that
    neither claims nor sources tie to this book.
    """
    if path is not None and not isinstance(path, (str, os.PathLike)):
        raise NeighbourError(f"path must be a path, got {path!r}")
    path = data_path("neighbours.toml") if path is None else Path(path)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NeighbourError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise NeighbourError(f"{path.name} is no TOML file: {error}") from None
    if set(table) != {"neighbour"}:
        raise NeighbourError(f"{path.name}: [[neighbour]] tables and nothing else")
    found: dict[str, Neighbour] = {}
    rows = _entries(table["neighbour"], f"{path.name}: neighbour")
    for number, row in enumerate(rows, 1):
        made = _neighbour(row, f"{path.name}, neighbour {number}")
        if made.id in found:
            raise NeighbourError(f"neighbour {made.id!r} stands twice")
        found[made.id] = made
    return found


def _neighbour(row: Any, where: str) -> Neighbour:
    _fields(row, where, _FIELDS, {"id", "owns"})
    names = _entries(row.get("claims", []), f"{where}: claims")
    sources = _entries(row.get("source", []), f"{where}: source")
    if not names and not sources:
        raise NeighbourError(f"{where}: nothing ties it to this book")
    return Neighbour(
        _text(row["id"], f"{where}: id"),
        _text(row["owns"], f"{where}: owns"),
        tuple(_text(name, f"{where}: claims[{i}]") for i, name in enumerate(names)),
        tuple(_source(s, f"{where}, source {i}") for i, s in enumerate(sources, 1)),
    )


def _source(row: Any, where: str) -> SourceContract:
    _fields(row, where, _SOURCE, _SOURCE)
    try:
        return SourceContract(
            row["name"], row["semantics"], row["relation"], row["topology"]
        )
    except SpecbookError as error:
        raise NeighbourError(f"{where}: {error}") from None


def _fields(row: Any, where: str, known: set[str], needed: set[str]) -> None:
    if not isinstance(row, Mapping):
        raise NeighbourError(f"{where}: not a table: {row!r}")
    if unknown := set(row) - known:
        raise NeighbourError(f"{where}: unknown {sorted(unknown)}")
    if missing := needed - set(row):
        raise NeighbourError(f"{where}: no {sorted(missing)}")


def _entries(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise NeighbourError(f"{name} must be a list, got {value!r}")
    return value


def _text(value: Any, name: str) -> str:
    if not checks.text(value, name, error=NeighbourError).strip():
        raise NeighbourError(f"{name} is empty")
    return value
