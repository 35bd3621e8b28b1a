"""Commands that measure: `specbook bench ...`, `specbook measure ...`, and `index`.

Each is a thin line to the function of the same name in `specbook.measure` or
`specbook.drafts.rest`, which does the work and checks the options.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from . import drafts
from .cli_common import DebugOption, TargetOption, console, guarded, say

bench_app = typer.Typer(help="Time things on this machine.", no_args_is_help=True)
measure_app = typer.Typer(
    help="Record a target's answers, and replay draft sources on them.",
    no_args_is_help=True,
)


@bench_app.command("decode")
@guarded
def bench_decode(
    target: TargetOption = None,
    workload: Annotated[
        list[str] | None, typer.Option(help="Repeatable. Default: all four.")
    ] = None,
    half: Annotated[
        str, typer.Option(help="development or evaluation prompts.")
    ] = "evaluation",
    prompts_per_workload: Annotated[
        int | None, typer.Option("--prompts", help="The first so many of each.")
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(help="At most so many each.")] = 128,
    dtype: Annotated[
        list[str] | None,
        typer.Option(help="Repeatable. Default: float32 and bfloat16."),
    ] = None,
    repeats: Annotated[int, typer.Option(help="Runs of each prompt.")] = 1,
    clock: Annotated[
        str,
        typer.Option(
            help="wall, or cpu: processor time, for a machine that others use too "
            "(with OMP_NUM_THREADS=1)."
        ),
    ] = "wall",
    quick: Annotated[
        bool, typer.Option("--quick", help="Only see that it works.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the JSON, the table, the figure.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the JSON.")] = False,
    debug: DebugOption = False,
) -> None:
    """Time transformers and specbook on the same prompts and weights, interleaved."""
    from .measure import bench_decode as bench

    chosen: dict[str, Any] = {}
    if workload:
        chosen["workloads"] = tuple(workload)
    if dtype:
        chosen["dtypes"] = tuple(dtype)
    report = bench.run(
        target,
        half=half,
        prompts_per_workload=prompts_per_workload,
        max_new_tokens=max_new_tokens,
        repeats=repeats,
        clock=clock,
        quick=quick,
        out=out,
        progress=say,
        **chosen,
    )
    _print_report(report, out, as_json=as_json)


@bench_app.command("retrieval")
@guarded
def bench_retrieval(
    target: TargetOption = None,
    tokens: Annotated[
        int | None, typer.Option(help="About so many in the index.")
    ] = None,
    queries: Annotated[int | None, typer.Option(help="Contexts to look up.")] = None,
    repeats: Annotated[int, typer.Option(help="Builds, and rounds of queries.")] = 3,
    seed: Annotated[int, typer.Option(help="Of the contexts.")] = 0,
    clock: Annotated[str, typer.Option(help="wall, or cpu.")] = "wall",
    quick: Annotated[
        bool, typer.Option("--quick", help="Only see that it works.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the JSON, the table, the figure.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the JSON.")] = False,
    debug: DebugOption = False,
) -> None:
    """Compare retrieval indexes on the installed packages' sources."""
    from .measure import bench_retrieval as bench

    given: dict[str, Any] = {"tokens": tokens, "queries": queries}
    report = bench.run(
        target,
        repeats=repeats,
        seed=seed,
        clock=clock,
        quick=quick,
        out=out,
        progress=say,
        **{name: value for name, value in given.items() if value is not None},
    )
    _print_report(report, out, as_json=as_json)


@bench_app.command("draft")
@guarded
def bench_draft(
    target: TargetOption = None,
    draft: Annotated[
        str | None,
        typer.Option(help="A folder or hub id. Default: the draft that is shipped."),
    ] = None,
    workload: Annotated[
        list[str] | None, typer.Option(help="Repeatable. Default: all four.")
    ] = None,
    half: Annotated[
        str, typer.Option(help="development or evaluation prompts.")
    ] = "evaluation",
    prompts_per_workload: Annotated[
        int | None, typer.Option("--prompts", help="The first so many of each.")
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(help="At most so many each.")] = 128,
    repeats: Annotated[int, typer.Option(help="Runs of each prompt.")] = 1,
    clock: Annotated[str, typer.Option(help="wall, or cpu.")] = "wall",
    quick: Annotated[
        bool, typer.Option("--quick", help="Only see that it works.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the JSON, the table, the figure.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the JSON.")] = False,
    debug: DebugOption = False,
) -> None:
    """Time a draft model here and in transformers, and count what is accepted."""
    from .measure import bench_draft as bench

    chosen: dict[str, Any] = {"workloads": tuple(workload)} if workload else {}
    report = bench.run(
        target,
        draft,
        half=half,
        prompts_per_workload=prompts_per_workload,
        max_new_tokens=max_new_tokens,
        repeats=repeats,
        clock=clock,
        quick=quick,
        out=out,
        progress=say,
        **chosen,
    )
    _print_report(report, out, as_json=as_json)


@measure_app.command("record")
@guarded
def record(
    out: Annotated[Path, typer.Option(help="Folder of the recordings.")],
    target: TargetOption = None,
    temperature: Annotated[float, typer.Option(help="0 takes the argmax.")] = 0.0,
    max_new_tokens: Annotated[int, typer.Option(help="At most so many each.")] = 128,
    debug: DebugOption = False,
) -> None:
    """Record what the target says to the frozen prompts; a second run goes on."""
    from . import models
    from .measure import record as recorder

    recorder.record(
        models.load_target(target),
        out,
        temperature=temperature,
        max_new_tokens=max_new_tokens,
        progress=say,
    )
    say(f"written to {out}")


@measure_app.command("replay")
@guarded
def replay(
    source: Annotated[str, typer.Option(help="Draft source without a model.")],
    temperature: Annotated[float, typer.Option(help="Of the recording.")] = 0.0,
    half: Annotated[
        str | None, typer.Option(help="development or evaluation; default: both.")
    ] = None,
    recordings: Annotated[
        Path | None, typer.Option(help="Folder; default: those that are shipped.")
    ] = None,
    datastore: Annotated[
        Path | None, typer.Option(help="An index file, for the source rest.")
    ] = None,
    debug: DebugOption = False,
) -> None:
    """Tokens a round of a source on recorded answers; no model is run."""
    from .measure import recording
    from .measure import replay as replay_on

    given = {} if datastore is None else {"datastore": datastore}
    made = drafts.make(source, **given)
    found = replay_on(made, recording.load(temperature, folder=recordings, half=half))
    for row in found.rows():
        low, high = row["interval"] or (row["tokens_per_round"],) * 2
        typer.echo(
            f"{row['workload']:18} {row['tokens_per_round']:.2f} tokens a round "
            f"[{low:.2f}, {high:.2f}], {row['missed']} of {row['rounds']} rounds missed"
        )


def index(
    out: Annotated[Path, typer.Option(help="The index file to write.")],
    target: TargetOption = None,
    package: Annotated[
        list[str] | None,
        typer.Option(help="Installed package; repeatable. Default: the book's list."),
    ] = None,
    debug: DebugOption = False,
) -> None:
    """Build a REST datastore of installed packages' Python sources."""
    from . import models
    from .drafts.rest import build_for_target

    chosen: dict[str, Any] = {"packages": tuple(package)} if package else {}
    made = build_for_target(out, models.load_target(target), **chosen)
    typer.echo(f"{made!r}, {made.hash}")


def _print_report(report: Any, out: Path | None, *, as_json: bool) -> None:
    """What was measured: how, then tables of numbers, then what follows from them."""
    if as_json:
        typer.echo(json.dumps(report.as_dict(), indent=1))
        return
    from rich.table import Table

    for line in getattr(report, "options", list)():
        console().print(line)
    for title, head, rows in report.tables():
        table = Table(title=title)
        for name in head:
            words = name in ("dtype", "workload", "system", "over", "index")
            table.add_column(name, justify="left" if words else "right")
        for row in rows:
            table.add_row(*row)
        console().print(table)
    for line in getattr(report, "strengths", list)():
        console().print(line)
    if out is not None:
        say(f"written to {out}")
