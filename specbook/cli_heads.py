"""`specbook bench heads`: a thin line to `specbook.measure.bench_heads`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .cli_common import DebugOption, TargetOption, guarded, say
from .cli_measure import (
    ClockOption,
    HalfOption,
    JsonOption,
    LengthOption,
    OutOption,
    PromptsOption,
    QuickOption,
    WorkloadOption,
    print_report,
)


def register(bench_app: typer.Typer) -> None:
    """Adds the command to `specbook bench`."""
    bench_app.command("heads")(guarded(heads))


def heads(
    target: TargetOption = None,
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
    workload: WorkloadOption = None,
    half: HalfOption = "evaluation",
    prompts_per_workload: PromptsOption = None,
    max_new_tokens: LengthOption = 128,
    dtype: Annotated[
        list[str] | None,
        typer.Option(help="Repeatable. Default: float32 and bfloat16."),
    ] = None,
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
    repeats: Annotated[int, typer.Option(help="Runs of each prompt.")] = 1,
    clock: ClockOption = "wall",
    quick: QuickOption = False,
    out: OutOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Measure draft heads: agreement, tokens a round, speed, and where time goes."""
    from .measure import bench_heads as bench

    given: dict[str, Any] = {
        name: tuple(value)
        for name, value in (
            ("workloads", workload),
            ("dtypes", dtype),
            ("heads", kinds),
            ("times", times),
        )
        if value
    }
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
        **given,
    )
    print_report(report, out, as_json=as_json)
