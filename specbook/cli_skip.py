"""`specbook train skip`: a thin line to `specbook.measure.skip_search`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from . import cli_options as option
from .cli_common import guarded, say


def register(train_app: typer.Typer) -> None:
    """Adds the command to `specbook train`."""
    train_app.command("skip")(guarded(skip))


def skip(
    out: Annotated[Path, typer.Option(help="Folder of the vector that is found.")],
    target: option.Target = None,
    trials: Annotated[int, typer.Option(help="Vectors to try.")] = 200,
    objective: Annotated[
        str,
        typer.Option(
            help="predicted: counts of this vector times costs that were measured "
            "once. measured: the billed time of its own run."
        ),
    ] = "predicted",
    sampler: Annotated[str, typer.Option(help="tpe, gp or random.")] = "tpe",
    prompts_per_workload: Annotated[
        int, typer.Option("--prompts", help="Development prompts of each workload.")
    ] = 2,
    max_new_tokens: option.Length = 32,
    dtype: Annotated[
        str, typer.Option(help="Of the target: float32 or bfloat16.")
    ] = "float32",
    most: Annotated[int, typer.Option(help="Tokens of a full draft.")] = 8,
    policy: Annotated[
        str, typer.Option(help="How the threshold moves: original or article.")
    ] = "original",
    repeats: option.Repeats = 1,
    clock: option.Clock = "wall",
    seed: Annotated[int, typer.Option(help="Of the search.")] = 0,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an unfinished search.")
    ] = False,
    debug: option.Debug = False,
) -> None:
    """Search the sublayers that a target leaves out when it drafts for itself.

    By Bayesian optimisation of the time per verified token on development prompts
    (Draft & Verify). What was found is printed.
    """
    options = {
        "trials": trials,
        "objective": objective,
        "sampler": sampler,
        "prompts": prompts_per_workload,
        "max-new-tokens": max_new_tokens,
        "dtype": dtype,
        "most": most,
        "policy": policy,
        "repeats": repeats,
        "clock": clock,
        "seed": seed,
    }
    told = " ".join(f"--{name} {value}" for name, value in options.items())

    from .measure import skip_search

    manifest = skip_search.train_skip(
        out,
        target,
        trials=trials,
        objective=objective,
        sampler=sampler,
        prompts_per_workload=prompts_per_workload,
        max_new_tokens=max_new_tokens,
        dtype=dtype,
        most=most,
        policy=policy,
        repeats=repeats,
        clock=clock,
        seed=seed,
        resume=resume,
        command=f"specbook train skip --out NAME {told}",
        progress=say,
    )
    typer.echo(json.dumps(manifest["measured"], indent=1))
