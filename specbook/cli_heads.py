"""`specbook bench heads`: a thin line to `specbook.measure.bench_heads`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import cli_options as option
from .cli_common import given, guarded, print_report, say


def register(bench_app: typer.Typer) -> None:
    """Adds the command to `specbook bench`."""
    bench_app.command("heads")(guarded(heads))


def heads(
    target: option.Target = None,
    kinds: Annotated[
        list[str] | None,
        typer.Option(
            "--heads", help="A kind; repeatable. Default: all that are there."
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(help="Holds a folder of each kind. Default: those shipped."),
    ] = None,
    workload: option.Workload = None,
    half: option.Half = "evaluation",
    prompts_per_workload: option.Prompts = None,
    max_new_tokens: option.Length = 128,
    dtype: option.Dtypes = None,
    nodes: Annotated[
        int, typer.Option(help="Rows of the tree that all share, root included.")
    ] = 16,
    tree_of: Annotated[
        str | None,
        typer.Option(help="The kind that it is planned for. Default: the best."),
    ] = None,
    calibration: Annotated[
        int,
        typer.Option(help="Development prompts a workload that trees are chosen by."),
    ] = 4,
    times: Annotated[
        list[Path] | None,
        typer.Option(help="From measure verify-time, one a dtype. Default: measured."),
    ] = None,
    repeats: option.Repeats = 1,
    clock: option.Clock = "wall",
    quick: option.Quick = False,
    out: option.Out = None,
    as_json: option.Json = False,
    debug: option.Debug = False,
) -> None:
    """Measure draft heads: agreement, tokens a round, speed, and where time goes."""
    from .measure import bench_heads as bench

    report = bench.run(
        target,
        folder=folder,
        half=half,
        prompts_per_workload=prompts_per_workload,
        max_new_tokens=max_new_tokens,
        nodes=nodes,
        tree_of=tree_of,
        calibration=calibration,
        repeats=repeats,
        clock=clock,
        quick=quick,
        out=out,
        progress=say,
        **given(workloads=workload, dtypes=dtype, heads=kinds, times=times),
    )
    print_report(report, out, as_json=as_json)
