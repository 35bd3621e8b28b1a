"""Reading the book's own files of tables: claims, gate, neighbours, recipes.

Each of them is TOML with one kind of table, `[[claim]]` say, and nothing else. What a
table may hold is the caller's to say; how such a file can be wrong is the same for all,
and is found here once. The error is the caller's, so that whoever catches a
`GateError` catches every fault of a gate's file.
"""

from __future__ import annotations

import os
import tomllib
from collections import Counter
from collections.abc import Set
from pathlib import Path
from typing import Any

from . import checks, paths
from .errors import SpecbookError

Row = tuple[str, dict[str, Any]]
"""Where a table stands ("gate.toml, line 3"), and its fields."""


def load(
    path: Any,
    shipped: str,
    name: str,
    *,
    known: Set[str],
    needed: Set[str],
    error: type[SpecbookError],
) -> list[Row]:
    """The `[[name]]` tables of a TOML file, in its order.

    `path`: of the file; None for the one called `shipped` in `data/`. `known` fields a
    table may have, `needed` ones it must. Raises `error`, naming the file and the
    table, for a path that is none, a file that cannot be read or is no TOML, anything
    beside the tables, a file without one, and fields that are unknown or missing.
    """
    if path is not None and not isinstance(path, (str, os.PathLike)):
        raise error(f"path must be a path, got {path!r}")
    path = paths.data_path(shipped) if path is None else Path(path)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise error(f"{path} cannot be read: {problem.strerror}") from None
    except (ValueError, RecursionError) as problem:
        raise error(f"{path.name} is no TOML file: {problem}") from None
    found = content.get(name)
    if set(content) != {name} or not isinstance(found, list) or not found:
        raise error(f"{path.name} must hold [[{name}]] tables and nothing else")
    rows = [(f"{path.name}, {name} {n}", row) for n, row in enumerate(found, 1)]
    for where, row in rows:
        fields(row, where, known, needed, error)
    return rows


def fields(
    row: Any,
    where: str,
    known: Set[str],
    needed: Set[str],
    error: type[SpecbookError],
) -> None:
    """Raises `error` unless `row` is a table with all `needed` and only `known` fields.
    `where` is told, with the table's id if it has one."""
    if not isinstance(row, dict):
        raise error(f"{where} is no table: {row!r}")
    where = f"{where} ({row['id']!r})" if "id" in row else where
    if unknown := set(row) - known:
        raise error(f"{where}: unknown {sorted(unknown)}")
    if missing := needed - set(row):
        raise error(f"{where}: no {sorted(missing)}")


def text(value: Any, name: str, error: type[SpecbookError]) -> str:
    """`value`, checked to be text that says something."""
    if not checks.text(value, name, error=error).strip():
        raise error(f"{name} is empty")
    return value


def entries(value: Any, name: str, error: type[SpecbookError]) -> list[Any]:
    """`value`, checked to be a list."""
    if not isinstance(value, list):
        raise error(f"{name} must be a list, got {value!r}")
    return value


def texts(value: Any, name: str, error: type[SpecbookError]) -> list[str]:
    """`value`, checked to be a list of texts of which none stands twice."""
    listed = entries(value, name, error)
    found = [text(entry, f"{name}[{i}]", error) for i, entry in enumerate(listed)]
    once(found, f"{name}:", error)
    return found


def once(names: list[str], what: str, error: type[SpecbookError]) -> None:
    """Raises `error` for the first of `names` that stands twice; `what` is told before
    it."""
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise error(f"{what} {twice[0]!r} stands twice")
