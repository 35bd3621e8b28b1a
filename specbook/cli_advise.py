"""`specbook advise`: which source, tree and verifier to run, from what was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from . import cli_options as option
from .cli_common import guarded, say
from .errors import SpecbookError


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(guarded(advise))


def advise(
    workload: Annotated[
        str | None, typer.Option(help="A kind of text. Default: all together.")
    ] = None,
    frontier: Annotated[
        Path | None,
        typer.Option(help="From measure frontier. Default: the one that is shipped."),
    ] = None,
    times: Annotated[
        Path | None,
        typer.Option(help="From measure verify-time: predict, without a frontier."),
    ] = None,
    counts: Annotated[
        list[Path] | None,
        typer.Option(help="From measure acceptance, with --times; repeatable."),
    ] = None,
    temperature: option.Temperature = 0.0,
    batch: Annotated[int, typer.Option(help="Requests that share a forward.")] = 1,
    memory: Annotated[
        float | None, typer.Option(help="MB beside the target. Default: no limit.")
    ] = None,
    datastore: Annotated[
        bool, typer.Option("--datastore", help="A governed datastore is allowed.")
    ] = False,
    fixed_rows: Annotated[
        bool,
        typer.Option("--fixed-rows", help="Every round must have the same rows."),
    ] = False,
    heuristics: Annotated[
        bool, typer.Option("--heuristics", help="Rules that bend the law, too.")
    ] = False,
    speedup: Annotated[
        float, typer.Option(help="Fail if nothing is so many times as fast as plain.")
    ] = 0.0,
    dtype: Annotated[
        str | None, typer.Option(help="Of the frontier. Default: the faster one.")
    ] = None,
    target: option.Target = None,
    draft: option.Draft = None,
    any_machine: Annotated[
        bool, typer.Option("--any-machine", help="Take measurements of another one.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="File for the manifest.")] = None,
    as_json: option.Json = False,
    debug: option.Debug = False,
) -> None:
    """Say which source, tree and verifier to run, how sure that is, and what would
    change the answer."""
    from .advice import answer, command
    from .advice.constraints import Constraints
    from .measure.setup import file

    if memory is not None and not 0 <= memory < 1e9:
        raise SpecbookError(f"memory must be 0 MB or more, got {memory}")
    constraints = Constraints(
        exact=not heuristics,
        extra_bytes=None if memory is None else round(memory * 1e6),
        datastore=datastore,
        fixed_rows=fixed_rows,
        temperature=temperature,
        speedup=speedup,
    )
    if out is not None and file(out).exists():
        answer.load(out)  # another kind of file is not replaced
    if times is None:
        if counts:
            raise SpecbookError("counts belong to times: give --times too")
        if target is not None or draft is not None:
            raise SpecbookError("a frontier was measured: no --target or --draft runs")
        found = command.from_frontier(
            frontier,
            constraints,
            workload=workload,
            dtype=dtype,
            batch=batch,
            any_machine=any_machine,
        )
    else:
        if frontier is not None or dtype is not None:
            raise SpecbookError("give a frontier (and its dtype) or times, not both")
        found = command.from_profiles(
            times,
            counts or [],
            constraints,
            target=target,
            draft=draft,
            workload=workload,
            batch=batch,
            any_machine=any_machine,
            progress=say,
        )
    if out is not None:
        answer.save(found.manifest, out)
    if as_json:
        typer.echo(json.dumps(found.manifest, indent=1))
        return
    for line in found.lines():
        typer.echo(line)
    if out is not None:
        say(f"written to {out}")
