"""What the reports of all benchmarks share: ratios, tables, pages and files.

A report is data, and what follows from the data (ratios, verdicts) is worked out from
it. The JSON file tells both, for readers without Python. On loading, the second is
worked out again and must agree with the file: where somebody changed one of the two,
the place is named and the file refused.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from html import escape
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Self,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

from .. import checks, lab, reading
from ..errors import ArtifactError

if TYPE_CHECKING:
    from ..plotting import FramedFigure

RESAMPLES = 2000
FACE = "color:#1a1a1a;background:#ffffff"
_AGREES = 1e-9
"""How far a recorded ratio may be from the one worked out again, relatively: other
versions of numpy add in another order."""

Table = tuple[str, list[str], list[list[str]]]
"""Title, head and rows."""


@dataclass(frozen=True)
class Ratio:
    """A ratio of sums with its 95 % interval, from `prompts` prompts (or rows, or
    queries: whatever was drawn again)."""

    value: float
    low: float
    high: float
    prompts: int

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


def percent(value: float | None) -> str:
    """A share in whole percent; nothing where there is none."""
    return "" if value is None else f"{value:.0%}"


def resampled(
    table: Any, of: Callable[[np.ndarray], np.ndarray], *, seed: int = 0
) -> Ratio:
    """`of` the column sums of `table` [n, C], with an interval from drawing its rows
    again (bootstrap). `of` takes sums [m, C] and returns [m] values."""
    table = np.asarray(table, dtype=np.float64)
    count = len(table)
    drawn = np.random.default_rng(seed).integers(count, size=(RESAMPLES, count))
    values = of(np.vstack([table.sum(axis=0), table[drawn].sum(axis=1)]))
    low, high = np.quantile(values[1:], (0.025, 0.975))
    return Ratio(float(values[0]), float(low), float(high), count)


class Report:
    """The base of a report, which is a frozen dataclass with `settings` and `machine`
    among its fields. It says what `KIND` of report it is and, in `STEM`, how its files
    are called; `FORMAT` counts the versions of the JSON."""

    KIND: ClassVar[str] = "report"
    STEM: ClassVar[str] = "report"
    FORMAT: ClassVar[int] = 1

    settings: dict[str, Any]
    machine: dict[str, Any]

    # ------------------------------------------------------ what a report tells

    def tables(self) -> Iterable[Table]:
        """Title, head and rows of each table."""
        raise NotImplementedError

    def options(self) -> list[str]:
        """Sentences that must stand above the tables: how things were set."""
        return []

    def strengths(self) -> list[str]:
        """Sentences that follow from the tables."""
        return []

    def figure(self) -> FramedFigure:
        """The picture of what was measured."""
        raise NotImplementedError

    @property
    def drawable(self) -> bool:
        """Whether there is enough to draw."""
        return True

    def derived(self) -> dict[str, Any]:
        """What follows from the fields and is told in the JSON too, as plain values."""
        return {}

    # ----------------------------------------------------------------- showing it

    def table(self, number: int = 0) -> lab.Table:
        """One of the tables, for a notebook."""
        listed = list(self.tables())
        checks.integer(number, "number", least=0, most=len(listed) - 1)
        return lab.table(*listed[number][1:])

    def markdown(self) -> str:
        """The tables as Markdown, between what was set and what follows."""
        tables = [
            f"**{title}**\n\n{markdown_table(head, rows)}"
            for title, head, rows in self.tables()
        ]
        lines = "\n".join(f"- {line}" for line in self.strengths())
        return "\n\n".join([*self.options(), *tables, *filter(None, [lines])])

    def _repr_html_(self) -> str:
        parts = [f"<p>{escape(line)}</p>" for line in self.options()]
        for title, head, rows in self.tables():
            sides = [f'style="text-align:{side};{FACE}"' for side in aligned(rows)]
            lines = [("th", head), *(("td", row) for row in rows)]
            body = "".join(
                "<tr>"
                + "".join(
                    f"<{tag} {side}>{escape(cell)}</{tag}>"
                    for cell, side in zip(line, sides or [""] * len(head), strict=True)
                )
                + "</tr>"
                for tag, line in lines
            )
            parts.append(
                f'<table style="{FACE}"><caption style="{FACE}">{escape(title)}'
                f"</caption>{body}</table>"
            )
        parts += [f"<p>{escape(line)}</p>" for line in self.strengths()]
        return f'<div style="overflow-x:auto;{FACE}">{"".join(parts)}</div>'

    def where(self) -> str:
        """What it was measured on, for a caption."""
        line = self.machine.get("line", "machine not recorded")
        clock = self.settings.get("clock", "wall")
        return line if clock == "wall" else f"{line}, {clock} time"

    # ---------------------------------------------------------------------- files

    def as_dict(self) -> dict[str, Any]:
        """The report as plain values; `from_dict` reads it back."""
        values = self._fields()
        head = {"format": self.FORMAT}
        head |= {name: values.pop(name) for name in ("machine", "settings")}
        return head | self.derived() | values

    def _fields(self) -> dict[str, Any]:
        return asdict(self)  # type: ignore[call-overload]

    def sha256(self) -> str:
        """Of the fields, for measurements that nothing else would show to be changed
        (`derived`): hex."""
        told = json.dumps(self._fields(), sort_keys=True)
        return hashlib.sha256(told.encode()).hexdigest()

    @classmethod
    def from_dict(cls, values: Any) -> Self:
        """The report that `as_dict` gave. Raises `ArtifactError`, naming the place, for
        anything else, and for ratios that are not those of the data."""
        if not isinstance(values, dict):
            raise ArtifactError(f"not a {cls.KIND}: {_short(values)} is no object")
        if values.get("format") != cls.FORMAT:
            raise ArtifactError(
                f"a {cls.KIND} of another version: format is "
                f"{_short(values.get('format'))}, this version reads {cls.FORMAT}"
            )
        names = {item.name for item in fields(cls)}  # type: ignore[arg-type]
        try:
            values = json.loads(json.dumps(values))
            made = read_as(cls, {n: v for n, v in values.items() if n in names}, "")
            again = json.loads(json.dumps(made.as_dict()))
        except (ValueError, ArithmeticError, LookupError, TypeError) as error:
            raise ArtifactError(f"a damaged {cls.KIND}: {error}") from error
        if told := _difference(again, values, ""):
            raise ArtifactError(f"a damaged {cls.KIND}: {told}")
        return made

    def save(self, path: str | Path) -> Path:
        """Writes the JSON to a temporary name, then renames it."""
        return write_whole(
            path, json.dumps(self.as_dict(), indent=1, allow_nan=False) + "\n"
        )

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Reads what `save` wrote. Raises `ArtifactError` for anything else."""
        try:
            values = json.loads(reading.text(path))
        except (ValueError, RecursionError) as error:
            raise ArtifactError(f"{path} is not a {cls.KIND}: {error}") from error
        try:
            return cls.from_dict(values)
        except ArtifactError as error:
            raise ArtifactError(f"{path}: {error}") from error


def save(report: Report, folder: str | os.PathLike[str]) -> Path:
    """Writes the JSON, the tables and, where there is enough to draw, the figure; each
    whole or not at all. Returns the folder."""
    folder = Path(folder)
    report.save(folder / f"{report.STEM}.json")
    write_whole(folder / f"{report.STEM}.md", report.markdown() + "\n")
    if report.drawable:
        report.figure().save(folder / f"{report.STEM}.png")
    return folder


def write_whole(path: str | Path, text: str) -> Path:
    """Writes a file by way of a temporary name, which a failure does not leave behind.
    Returns the path."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return path


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The side of each column: numbers to the right, words to the left."""
    return [
        "right" if any(cell[:1].isdigit() for cell in column) else "left"
        for column in zip(*rows, strict=True)
    ]


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    sides = aligned(rows) or ["left"] * len(head)
    rule = ["---:" if side == "right" else "---" for side in sides]
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *rows))


# ----------------------------------------------------------------------- reading back


def read_as(kind: Any, value: Any, where: str) -> Any:
    """`value`, from a JSON file, as the type `kind`; `where` names its place."""
    if is_dataclass(kind) and isinstance(kind, type):
        value = _of(dict, value, where)
        inside = f"{where}." if where else ""
        listed = {item.name: item for item in fields(kind)}
        for name in sorted(value.keys() - listed.keys()):
            raise ArtifactError(f"{inside}{name} is no field of this version")
        for name, item in listed.items():
            needed = item.default is MISSING and item.default_factory is MISSING
            if needed and name not in value:
                raise ArtifactError(f"{inside}{name} is missing")
        hints = get_type_hints(kind)
        return kind(**{n: read_as(hints[n], v, inside + n) for n, v in value.items()})
    arguments = get_args(kind)
    if isinstance(kind, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        return read_as(arguments[0], value, where)
    if get_origin(kind) in (tuple, list):
        found = [
            read_as(arguments[0], item, f"{where}[{index}]")
            for index, item in enumerate(_of(list, value, where))
        ]
        return get_origin(kind)(found)
    if get_origin(kind) is dict:
        return {
            arguments[0](key): read_as(arguments[1], item, f"{where}.{key}")
            for key, item in _of(dict, value, where).items()
        }
    if kind is Any:
        return value
    if kind is float and type(value) is int:
        value = float(value)
    value = _of(kind, value, where)
    if kind is float and not math.isfinite(value):
        raise ArtifactError(f"{where} is {value}")
    return value


def _of(kind: type, value: Any, where: str) -> Any:
    if type(value) is not kind:
        raise ArtifactError(f"{where} must be {kind.__name__}, not {_short(value)}")
    return value


def _difference(made: Any, found: Any, where: str) -> str:
    """Where and how `found` differs from what it should be; "" if it does not."""
    if isinstance(made, dict) and isinstance(found, dict):
        inside = f"{where}." if where else ""
        for name in [*made, *(found.keys() - made.keys())]:
            if name not in found:
                return f"{inside}{name} is missing"
            if name not in made:
                return f"{inside}{name} is no field of this version"
            if told := _difference(made[name], found[name], inside + name):
                return told
        return ""
    if isinstance(made, list) and isinstance(found, list) and len(made) == len(found):
        for index, (one, other) in enumerate(zip(made, found, strict=True)):
            if told := _difference(one, other, f"{where}[{index}]"):
                return told
        return ""
    numbers = [type(value) in (int, float) for value in (made, found)]
    if all(numbers) and math.isclose(made, found, rel_tol=_AGREES, abs_tol=1e-12):
        return ""
    if made == found and type(made) is type(found):
        return ""
    return f"{where} is {_short(found)}, and by the data {_short(made)}"


def _short(value: Any) -> str:
    told = repr(value)
    return told if len(told) <= 60 else f"{told[:57]}..."
