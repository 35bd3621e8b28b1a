"""Commands that measure: `specbook bench ...`, `specbook measure ...`, and `index`.

Each is a thin line to the function of the same name in `specbook.measure` or
`specbook.drafts.rest`, which does the work and checks the options.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import checks, drafts
from . import cli_options as option
from .cli_common import given, guarded, print_report, say
from .errors import SpecbookError
from .policy import SamplingPolicy

bench_app = typer.Typer(help="Time things on this machine.", no_args_is_help=True)
measure_app = typer.Typer(
    help="Measure a target: its answers, its times, what it accepts, which tree fits.",
    no_args_is_help=True,
)


@bench_app.command("decode")
@guarded
def bench_decode(
    target: option.Target = None,
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
    """Time transformers and specbook on the same prompts and weights, interleaved."""
    from .measure import bench_decode as bench

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
        **given(workloads=workload, dtypes=dtype),
    )
    print_report(report, out, as_json=as_json)


@bench_app.command("retrieval")
@guarded
def bench_retrieval(
    target: option.Target = None,
    tokens: Annotated[
        int | None, typer.Option(help="About so many in the index.")
    ] = None,
    queries: Annotated[int | None, typer.Option(help="Contexts to look up.")] = None,
    repeats: Annotated[int, typer.Option(help="Builds, and rounds of queries.")] = 3,
    seed: Annotated[int, typer.Option(help="Of the contexts.")] = 0,
    clock: option.Clock = "wall",
    quick: option.Quick = False,
    out: option.Out = None,
    as_json: option.Json = False,
    debug: option.Debug = False,
) -> None:
    """Compare retrieval indexes on the installed packages' sources."""
    from .measure import bench_retrieval as bench

    report = bench.run(
        target,
        repeats=repeats,
        seed=seed,
        clock=clock,
        quick=quick,
        out=out,
        progress=say,
        **given(tokens=tokens, queries=queries),
    )
    print_report(report, out, as_json=as_json)


@bench_app.command("draft")
@guarded
def bench_draft(
    target: option.Target = None,
    draft: option.Draft = None,
    workload: option.Workload = None,
    half: option.Half = "evaluation",
    prompts_per_workload: option.Prompts = None,
    max_new_tokens: option.Length = 128,
    repeats: option.Repeats = 1,
    clock: option.Clock = "wall",
    quick: option.Quick = False,
    out: option.Out = None,
    as_json: option.Json = False,
    debug: option.Debug = False,
) -> None:
    """Time a draft model here and in transformers, and count what is accepted."""
    from .measure import bench_draft as bench

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
        **given(workloads=workload),
    )
    print_report(report, out, as_json=as_json)


@bench_app.command("verifiers")
@guarded
def bench_verifiers(
    target: option.Target = None,
    draft: option.Draft = None,
    synthetic: Annotated[
        bool, typer.Option("--synthetic", help="Zipf rows instead of two models'.")
    ] = False,
    vocabulary: Annotated[
        int | None, typer.Option(help="Tokens of a row; then the rows are synthetic.")
    ] = None,
    children: Annotated[int, typer.Option(help="Drafts a node.")] = 4,
    temperature: Annotated[float, typer.Option(help="Of both models.")] = 1.0,
    repeats: Annotated[int, typer.Option(help="Choices a row.")] = 5,
    seed: Annotated[int, typer.Option(help="Of rows and drafts.")] = 0,
    clock: option.Clock = "wall",
    quick: option.Quick = False,
    out: option.Out = None,
    as_json: option.Json = False,
    debug: option.Debug = False,
) -> None:
    """Time every verifier's own choice at a real vocabulary, and the optimum."""
    from .measure import bench_verifiers as bench

    report = bench.run(
        target,
        draft,
        synthetic=synthetic,
        vocabulary=vocabulary,
        children=children,
        temperature=temperature,
        repeats=repeats,
        seed=seed,
        clock=clock,
        quick=quick,
        out=out,
        progress=say,
    )
    print_report(report, out, as_json=as_json)


@measure_app.command("record")
@guarded
def record(
    out: Annotated[Path, typer.Option(help="Folder of the recordings.")],
    target: option.Target = None,
    temperature: option.Temperature = 0.0,
    max_new_tokens: option.Length = 128,
    debug: option.Debug = False,
) -> None:
    """Record what the target says to the frozen prompts; a second run goes on."""
    from .measure.setup import folder

    SamplingPolicy(temperature)
    checks.integer(max_new_tokens, "max_new_tokens", least=1)
    folder(out)

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
    debug: option.Debug = False,
) -> None:
    """Tokens a round of a source on recorded answers; no model is run."""
    from .measure import recording
    from .measure import replay as replay_on

    made = drafts.make(source, **given(datastore=datastore))
    found = replay_on(made, recording.load(temperature, folder=recordings, half=half))
    for row in found.rows():
        low, high = row["interval"] or (row["tokens_per_round"],) * 2
        typer.echo(
            f"{row['workload']:18} {row['tokens_per_round']:.2f} tokens a round "
            f"[{low:.2f}, {high:.2f}], {row['missed']} of {row['rounds']} rounds missed"
        )


def index(
    out: Annotated[Path, typer.Option(help="The index file to write.")],
    target: option.Target = None,
    package: Annotated[
        list[str] | None,
        typer.Option(help="Installed package; repeatable. Default: the book's list."),
    ] = None,
    debug: option.Debug = False,
) -> None:
    """Build a REST datastore of installed packages' Python sources."""
    from . import corpora
    from .measure.setup import folder

    packages = tuple(package) if package else corpora.PACKAGES
    corpora.check_installed(packages)
    if out.is_dir():
        raise SpecbookError(f"out must be the name of a file, {out} is a folder")
    folder(out.parent)

    from . import models
    from .drafts.rest import build_for_target

    made = build_for_target(out, models.load_target(target), packages=packages)
    typer.echo(f"{out}: {made.documents:,} documents, {made.tokens:,} tokens")
    typer.echo(f"hash {made.hash}")
