"""Commands about trees: what rows cost, what is accepted, which tree to run.

`specbook measure verify-time`, `specbook measure acceptance`, `specbook measure tree`
and `specbook bench trees`; each a thin line to the function that does the work.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from . import cli_options as option
from .cli_common import guarded, print_report, say
from .errors import SpecbookError


def register(bench_app: typer.Typer, measure_app: typer.Typer) -> None:
    """Adds the commands to `specbook bench` and `specbook measure`."""
    bench_app.command("trees")(guarded(trees))
    measure_app.command("verify-time")(guarded(verify_time))
    measure_app.command("acceptance")(guarded(acceptance))
    measure_app.command("tree")(guarded(tree))


POOLED_DEPTH = 8
"""How deep `measure tree --pooled` looks, where no count says how deep it may."""

DtypeOption = Annotated[str, typer.Option(help="float32 or bfloat16.")]
FileOption = Annotated[Path, typer.Option("--out", help="The JSON file to write.")]
TemperatureOption = Annotated[float, typer.Option(help="Of target and draft.")]


def verify_time(
    out: FileOption,
    target: option.Target = None,
    dtype: DtypeOption = "float32",
    full: Annotated[
        bool, typer.Option("--full", help="Batches, prefixes, shapes: for hours.")
    ] = False,
    device: Annotated[
        str | None,
        typer.Option(help="Where the batched forward runs: cpu or cuda."),
    ] = None,
    temperature: TemperatureOption = 0.0,
    nodes: Annotated[
        list[int] | None, typer.Option(help="Rows with the root; repeatable; with 1.")
    ] = None,
    prefix: Annotated[
        list[int] | None, typer.Option(help="Tokens before them; repeatable.")
    ] = None,
    shape: Annotated[
        list[str] | None, typer.Option(help="chain, star, sequoia; repeatable.")
    ] = None,
    batch: Annotated[
        list[int] | None, typer.Option(help="Requests in one forward; repeatable.")
    ] = None,
    as_json: option.Json = False,
    debug: option.Debug = False,
) -> None:
    """Time verifications by their rows. A file that was begun is continued."""
    from .measure import verify_time as measuring

    profile = measuring.run(
        target,
        out=out,
        full=full,
        dtype=dtype,
        device=device,
        temperature=temperature,
        nodes=nodes,
        prefixes=prefix,
        shapes=shape,
        batches=batch,
        progress=say,
    )
    print_report(profile, out, as_json=as_json)


def acceptance(
    out: FileOption,
    target: option.Target = None,
    source: Annotated[
        str, typer.Option(help="A draft source of the registry.")
    ] = "draft_model",
    draft: option.Draft = None,
    datastore: option.Datastore = None,
    children: Annotated[
        str | None,
        typer.Option(
            help="How siblings are drawn; see the draft model. Default: without "
            "replacement."
        ),
    ] = None,
    verifier: Annotated[
        str | None,
        typer.Option(
            help="A name of the registry. Default: sequoia for a source that draws, "
            "membership for one that copies."
        ),
    ] = None,
    width: Annotated[int, typer.Option(help="Slots of a node that are counted.")] = 6,
    depth: Annotated[int, typer.Option(help="Levels that are counted.")] = 4,
    workload: option.Workload = None,
    half: option.Half = "development",
    prompts_per_workload: option.Prompts = 4,
    max_new_tokens: option.Length = 64,
    dtype: DtypeOption = "float32",
    temperature: TemperatureOption = 0.7,
    seed: int = 0,
    as_json: option.Json = False,
    debug: option.Debug = False,
) -> None:
    """Count which child of a source's tree is selected, by rank and depth."""
    from .measure import acceptance as measuring

    profile = measuring.run(
        target,
        draft,
        out=out,
        source=source,
        datastore=datastore,
        children=children,
        verifier=verifier,
        width=width,
        depth=depth,
        workloads=workload,
        half=half,
        prompts_per_workload=prompts_per_workload,
        max_new_tokens=max_new_tokens,
        dtype=dtype,
        temperature=temperature,
        seed=seed,
        progress=say,
    )
    print_report(profile, out, as_json=as_json)


def tree(
    times: Annotated[Path, typer.Option(help="From measure verify-time.")],
    counts: Annotated[Path, typer.Option(help="From measure acceptance.")],
    draft: option.Draft = None,
    max_depth: Annotated[
        int | None,
        typer.Option(
            help="The deepest tree. Default: as deep as was counted, "
            f"{POOLED_DEPTH} with --pooled."
        ),
    ] = None,
    pooled: Annotated[
        bool, typer.Option("--pooled", help="One row of slots for all depths.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="File for the tree.")] = None,
    debug: option.Debug = False,
) -> None:
    """Choose the tree that this machine should run, and say how sure that is."""
    from .drafts.neural.draft_model import DraftModel
    from .measure import setup
    from .measure.acceptance import AcceptanceProfile
    from .measure.choose_tree import choose_tree
    from .measure.verify_report import VerifyProfile
    from .measure.verify_time import measure_draft_step
    from .topologies.artifact import TreeArtifact

    measured, counted = VerifyProfile.load(times), AcceptanceProfile.load(counts)
    if out is not None and setup.file(out).exists():
        TreeArtifact.load(out)  # another kind of file is not replaced
    setup.check_checkpoints(draft=draft)
    setup.check_same_machine(measured.machine, setup.machine(), times)
    if max_depth is None and pooled:
        max_depth = POOLED_DEPTH
    chosen: dict[str, Any] = {"max_depth": max_depth, "pooled": pooled}
    # Without draft times first: what does not fit is refused before a model is loaded.
    choose_tree(measured, counted, {}, worlds=1, **chosen)
    drafter = DraftModel(draft).model
    checkpoint = drafter.identity()["checkpoint"]
    if f"checkpoint={checkpoint} " not in counted.settings["source"]:
        raise SpecbookError(
            f"{counts} counts {counted.settings['source']}, and the draft model is "
            f"{checkpoint}"
        )
    # A draft step where the target was timed: behind as many tokens.
    runtime = [group for group in measured.groups() if group[:2] == ("runtime", 1)]
    prefix = runtime[0][2]
    steps = measure_draft_step(drafter, prefix=prefix)
    found = choose_tree(measured, counted, steps, prefix=prefix, **chosen)
    for line in found.lines():
        typer.echo(line)
    if out is not None:
        found.artifact.save(out)
        say(f"written to {out}")


def trees(
    repeats: Annotated[int, typer.Option(help="Turns.")] = 5,
    seed: int = 0,
    clock: option.Clock = "wall",
    quick: option.Quick = False,
    out: option.Out = None,
    as_json: option.Json = False,
    debug: option.Debug = False,
) -> None:
    """Time the ways to find the best tree."""
    from .measure import bench_trees as bench

    report = bench.run(
        repeats=repeats, seed=seed, clock=clock, quick=quick, out=out, progress=say
    )
    print_report(report, out, as_json=as_json)
