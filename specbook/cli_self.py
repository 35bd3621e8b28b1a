"""`specbook bench self`: a thin line to `specbook.measure.bench_self`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import cli_options as option
from .cli_common import given, guarded, print_report, say


def register(bench_app: typer.Typer) -> None:
    """Adds the command to `specbook bench`."""
    bench_app.command("self")(guarded(bench_self))


def bench_self(
    target: option.Target = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help="draft_verify or kangaroo; repeatable. Default: both."),
    ] = None,
    skip: Annotated[
        Path | None, typer.Option(help="Folder of a skip vector. Default: the shipped.")
    ] = None,
    adapter: Annotated[
        Path | None, typer.Option(help="Folder of an adapter. Default: the shipped.")
    ] = None,
    workload: option.Workload = None,
    half: option.Half = "evaluation",
    prompts_per_workload: option.Prompts = None,
    max_new_tokens: option.Length = 128,
    dtype: option.Dtypes = None,
    repeats: option.Repeats = 1,
    clock: option.Clock = "wall",
    quick: option.Quick = False,
    out: option.Out = None,
    as_json: option.Json = False,
    debug: option.Debug = False,
) -> None:
    """Measure a target that drafts for itself: speed, tokens a round, what it costs."""
    from .measure import bench_self as bench

    report = bench.run(
        target,
        skip=skip,
        adapter=adapter,
        half=half,
        prompts_per_workload=prompts_per_workload,
        max_new_tokens=max_new_tokens,
        repeats=repeats,
        clock=clock,
        quick=quick,
        out=out,
        progress=say,
        **given(methods=method, workloads=workload, dtypes=dtype),
    )
    print_report(report, out, as_json=as_json)
