"""`specbook gate`: a thin line to `specbook.gate`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from . import cli_options as option
from . import gate as gates
from .cli_common import console, guarded
from .errors import SpecbookError


def register(app: typer.Typer) -> None:
    """Adds the command to `specbook`."""
    app.command("gate")(guarded(gate))


def gate(
    records: Annotated[
        Path | None,
        typer.Option(help="Folder of a run's records. Default: the last run's."),
    ] = None,
    as_json: option.Json = False,
    debug: option.Debug = False,
) -> None:
    """Say of each line of the publish gate whether the last run has shown it.

    Green: shown; missing: not checked in that run; stale: shown by another version, by
    other code or in other words; red: checked, and it did not hold. The exit status is
    1 unless all is green.
    """
    folder = gates.records_folder() if records is None else records
    if folder is None:
        raise SpecbookError("no run has left records yet: make book")
    lines = gates.load()
    verdict = gates.judge(folder, lines=lines)
    if as_json:
        told = {
            "green": verdict.green,
            "lines": verdict.lines,
            "claims": verdict.claims,
            "unknown": list(verdict.unknown),
        }
        typer.echo(json.dumps(told, indent=1))
    else:
        _print(lines, verdict)
    if not verdict.green:
        raise typer.Exit(1)


def _print(lines: Mapping[str, gates.Line], verdict: gates.Verdict) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("line of the gate", overflow="fold")
    table.add_column("claims shown", justify="right")
    table.add_column("state")
    for line in lines.values():
        count = f"{verdict.counts(line)['green']} of {len(line.claims)}"
        table.add_row(line.text, count, verdict.lines[line.id])
    console().print(table)
    for fault in verdict.faults():
        typer.echo(fault)
    counts = ", ".join(f"{n} {state}" for state, n in verdict.counts().items())
    typer.echo(f"{len(verdict.claims)} claims: {counts}")
