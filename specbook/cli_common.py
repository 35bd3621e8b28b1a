"""What every command shares: options, one-line errors, where output goes."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from .errors import FetchError

TargetOption = Annotated[
    str | None,
    typer.Option(
        help="A folder or hub id of a causal language model. Default: "
        "$SPECBOOK_TARGET, or else the book's own target."
    ),
]
DebugOption = Annotated[
    bool, typer.Option("--debug", help="Show the traceback of an error.")
]


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


def console() -> Any:
    """A rich console on standard output."""
    from rich.console import Console

    return Console(file=sys.stdout, highlight=False)


def say(line: str) -> None:
    """A line of progress, on standard error."""
    typer.echo(line, err=True)
