"""What commands do alike: errors in one line, options left out, where output goes."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from .errors import FetchError

if TYPE_CHECKING:
    # By its whole name: the API page links it, and there are two classes Report.
    import specbook.measure.report


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """Errors of the input and of the machine become one message and a status."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="replace")
        try:
            command(*arguments, **options)
        except (ValueError, OSError, ModuleNotFoundError) as error:
            if options.get("debug") or isinstance(error, BrokenPipeError):
                raise
            typer.echo(f"specbook: {_told(error)}", err=True)
            user_error = isinstance(error, ValueError)
            machine_error = isinstance(error, FetchError) or not user_error
            raise typer.Exit(1 if machine_error else 2) from None
        except KeyboardInterrupt:
            typer.echo("specbook: interrupted", err=True)
            raise typer.Exit(130) from None

    return run


def _told(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError):
        return f"{error.name} is not installed: pip install 'specbook[models]'"
    # Several lines only where each of them says what to do.
    text = str(error) or type(error).__name__
    return text if isinstance(error, FetchError) else " ".join(text.split())


def given(**options: Any) -> dict[str, Any]:
    """Those options that were given; the others keep the function's own defaults.

    A repeatable option comes as a list, empty or None where it was not given, and
    goes on as a tuple.
    """
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in options.items()
        if value is not None and value != []
    }


def console() -> Any:
    """A rich console on standard output."""
    from rich.console import Console

    return Console(file=sys.stdout, highlight=False)


def say(line: str) -> None:
    """A line of progress, on standard error."""
    typer.echo(line, err=True)


def print_report(
    report: specbook.measure.report.Report, out: Path | None, *, as_json: bool
) -> None:
    """What was measured: how, then tables of numbers, then what follows from them."""
    if as_json:
        typer.echo(json.dumps(report.as_dict(), indent=1))
        return
    from rich.table import Table

    from .measure.report import aligned

    for line in report.options():
        console().print(line)
    for title, head, rows in report.tables():
        table = Table(title=title)
        for name, side in zip(head, aligned(rows) or ["left"] * len(head), strict=True):
            # Where a table is too wide, cells go on in the next line: none is cut.
            table.add_column(
                name, justify="right" if side == "right" else "left", overflow="fold"
            )
        for row in rows:
            table.add_row(*row)
        console().print(table)
    for line in report.strengths():
        console().print(line)
    if out is not None:
        say(f"written to {out}")
