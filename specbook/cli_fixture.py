"""`specbook fixture`: a thin line to `specbook.fixture`."""

from __future__ import annotations

import json

import typer

from . import cli_options as option
from .cli_common import guarded


def register(app: typer.Typer) -> None:
    """Adds the command to `specbook`."""
    app.command("fixture")(guarded(fixture))


def fixture(as_json: option.Json = False, debug: option.Debug = False) -> None:
    """Run the article's fixture: each step, what it found, and the hash at the end.

    The exit status is 1 if anything is not as published.
    """
    from . import fixture as steps

    found = steps.run()
    if as_json:
        typer.echo(json.dumps(found.as_dict(), indent=1))
    else:
        for step in found.steps:
            verdict = "ok  " if step.held else "FAIL"
            typer.echo(f"{verdict}  {step.name}: {step.checked}: {step.found}")
            if not step.held:
                typer.echo(f"      should be: {step.wanted}")
        typer.echo(found.hash)
    if not found.held:
        raise typer.Exit(1)
