"""What the book leaves to the others of the article's series (section 0x13).

`data/neighbours.toml` names for each neighbour what it owns, which of our claims build
on it, and what a source of its kind would have to declare to come in here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import tables
from .contract import SourceContract
from .errors import SpecbookError

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
    rows = tables.load(
        path,
        "neighbours.toml",
        "neighbour",
        known=_FIELDS,
        needed={"id", "owns"},
        error=NeighbourError,
    )
    found = [_neighbour(row, where) for where, row in rows]
    tables.once([one.id for one in found], "neighbour", NeighbourError)
    return {one.id: one for one in found}


def _neighbour(row: Mapping[str, Any], where: str) -> Neighbour:
    told = {
        name: tables.text(row[name], f"{where}: {name}", NeighbourError)
        for name in ("id", "owns")
    }
    names = tables.texts(row.get("claims", []), f"{where}: claims", NeighbourError)
    listed = tables.entries(row.get("source", []), f"{where}: source", NeighbourError)
    if not names and not listed:
        raise NeighbourError(f"{where}: nothing ties it to this book")
    sources = [_source(s, f"{where}, source {i}") for i, s in enumerate(listed, 1)]
    return Neighbour(**told, claims=tuple(names), sources=tuple(sources))


def _source(row: Any, where: str) -> SourceContract:
    tables.fields(row, where, _SOURCE, _SOURCE, NeighbourError)
    try:
        return SourceContract(
            row["name"], row["semantics"], row["relation"], row["topology"]
        )
    except SpecbookError as error:
        raise NeighbourError(f"{where}: {error}") from None
