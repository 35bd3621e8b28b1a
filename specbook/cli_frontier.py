"""`specbook measure frontier`: a thin line to `specbook.measure.bench_frontier`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from . import cli_options as option
from .cli_common import console, given, guarded, say


def register(measure_app: typer.Typer) -> None:
    """Adds the command to `specbook measure`."""
    measure_app.command("frontier")(guarded(frontier))


QUICK: dict[str, Any] = {
    "prompts_per_workload": 1,
    "max_new_tokens": 16,
    "screen_tokens": 6,
    "replay_prompts": 2,
    "batches": (),
    "turns": 2,
}


def frontier(
    out: Annotated[
        Path, typer.Option(help="The file to write; one that was begun goes on.")
    ],
    target: option.Target = None,
    draft: option.Draft = None,
    source: Annotated[
        list[str] | None, typer.Option(help="Repeatable. Default: all that can run.")
    ] = None,
    datastore: option.Datastore = None,
    workload: option.Workload = None,
    half: option.Half = "evaluation",
    prompts: option.Prompts = None,
    max_new_tokens: Annotated[
        int | None, typer.Option(help="At most so many each.")
    ] = None,
    dtype: option.Dtypes = None,
    temperature: Annotated[
        list[float] | None, typer.Option(help="Repeatable. Default: 0 and 0.7.")
    ] = None,
    screen_prompts: Annotated[
        int | None, typer.Option(help="Of each workload, to choose finalists by.")
    ] = None,
    finalists: Annotated[int, typer.Option(help="Of each family.")] = 1,
    batch: Annotated[
        list[int] | None, typer.Option(help="Requests in one forward; repeatable.")
    ] = None,
    peers: Annotated[
        bool, typer.Option(help="Whether transformers decodes too.")
    ] = True,
    repeats: option.Repeats = 1,
    clock: option.Clock = "wall",
    quick: option.Quick = False,
    debug: option.Debug = False,
) -> None:
    """Measure which source, topology and rule is the fastest, by workload."""
    from .measure import bench_frontier, frontier_report

    asked = given(
        sources=source,
        workloads=workload,
        prompts_per_workload=prompts,
        max_new_tokens=max_new_tokens,
        dtypes=dtype,
        temperatures=temperature,
        screen_prompts=screen_prompts,
        batches=batch,
    )
    found = bench_frontier.run(
        target,
        draft=draft,
        datastore=datastore,
        half=half,
        each=finalists,
        peers=peers,
        repeats=repeats,
        clock=clock,
        out=out,
        progress=say,
        **{**(QUICK if quick else {}), **asked},
    )
    for value in frontier_report.temperatures(found):
        typer.echo(f"temperature {value:g}")
        console().print(str(frontier_report.winners(found, value)), soft_wrap=True)
    say(f"written to {out}")
