"""`specbook train draft | heads | kangaroo | skip`, checked before torch loads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from . import checks, cli_skip
from . import cli_options as option
from .cli_common import given, guarded, say

train_app = typer.Typer(help="Train a draft for a target.", no_args_is_help=True)
cli_skip.register(train_app)

LAUNCH = (
    "accelerate launch --multi_gpu --num_processes 2 --num_machines 1 "
    "--mixed_precision no --dynamo_backend no -m specbook"
)
"""What stands in place of `specbook` to train in two processes. Without a GPU the
launcher's "several GPUs" are several CPU processes."""

RowsOption = Annotated[
    int, typer.Option(help="Teacher rows to train on; made once, then cached.")
]
StepsOption = Annotated[int | None, typer.Option(help="Of the optimizer.")]
SeedOption = Annotated[int, typer.Option(help="Of data and training.")]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Go on with an unfinished run.")
]
SourceRowsOption = Annotated[
    int, typer.Option(help="As many more on package sources, which are made quicker.")
]
VocabularyOption = Annotated[
    int | None,
    typer.Option(
        help="Predict only the tokens, so many, that the target says most. "
        "Default: all."
    ),
]
BatchOption = Annotated[int | None, typer.Option(help="Tokens in a batch, at most.")]
RateOption = Annotated[float | None, typer.Option(help="Its largest.")]
OthersOption = Annotated[
    int | None, typer.Option(help="Columns of the LM head that are sampled.")
]
DtypeOption = Annotated[
    str | None, typer.Option(help="Of the frozen target: float32 or bfloat16.")
]
StoredOption = Annotated[
    str | None, typer.Option(help="Of what is written: float16 or bfloat16.")
]


@train_app.command("draft")
@guarded
def train_draft(
    out: Annotated[Path, typer.Option(help="Folder of the trained draft.")],
    target: option.Target = None,
    rows: RowsOption = 440_000,
    steps: StepsOption = None,
    layers: Annotated[int | None, typer.Option(help="Of the draft.")] = None,
    width: Annotated[int | None, typer.Option(help="Of the draft's stream.")] = None,
    inner: Annotated[
        int | None, typer.Option(help="Width of its feed-forward blocks.")
    ] = None,
    heads: Annotated[int | None, typer.Option(help="Of its attention.")] = None,
    kv_heads: Annotated[
        int | None, typer.Option(help="Of its keys and values.")
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(help="What it begins with: random, embeddings or copying."),
    ] = None,
    seed: SeedOption = 0,
    resume: ResumeOption = False,
    debug: option.Debug = False,
) -> None:
    """Train a small draft model by distillation and write it as a checkpoint.

    The defaults are those of the draft that is shipped. Data lies in the cache, so
    that an interrupted run loses nothing. The measured agreement is printed.
    """
    from .training.settings import Recipe, Settings

    checks.integer(rows, "rows", least=1)
    chosen = given(
        steps=steps,
        width=width,
        inner=inner,
        heads=heads,
        kv_heads=kv_heads,
        start=start,
        layers=layers,
    )
    settings = Settings(**chosen, seed=seed)
    recipe = Recipe(seed=seed)

    from .training import run

    manifest = run.train_draft(
        out,
        target,
        rows=rows,
        settings=settings,
        recipe=recipe,
        resume=resume,
        command=_command("draft", settings, _DRAFT, rows=rows),
        progress=say,
    )
    typer.echo(json.dumps(manifest["measured"], indent=1))


@train_app.command(
    "heads",
    epilog=f"In several processes, one for each GPU, or on the CPU where there is "
    f"none: {LAUNCH} train heads ...",
)
@guarded
def train_heads(
    kind: Annotated[
        str, typer.Argument(help="medusa, hydra, hydra_plus, clover or markov.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the trained heads.")],
    target: option.Target = None,
    rows: RowsOption = 440_000,
    source_rows: SourceRowsOption = 0,
    steps: StepsOption = None,
    heads: Annotated[int | None, typer.Option(help="How many tokens ahead.")] = None,
    layers: Annotated[int | None, typer.Option(help="Of each head.")] = None,
    start: Annotated[
        str | None,
        typer.Option(
            help="least_squares is the best linear guess of the target's next state, "
            "identity what it said a token earlier. Default: the former where there is "
            "one."
        ),
    ] = None,
    loss: Annotated[
        str | None,
        typer.Option(
            help="teacher learns the target's law where each token stands, label the "
            "token alone."
        ),
    ] = None,
    state_weight: Annotated[
        float | None,
        typer.Option(help="Of the distance to the target's states, added to the loss."),
    ] = None,
    decay: Annotated[
        float | None, typer.Option(help="Head i weighs decay to the power i - 1.")
    ] = None,
    self_share: Annotated[
        float | None,
        typer.Option(
            help="Share of positions where heads are given their own tokens, not the "
            "text's."
        ),
    ] = None,
    vocabulary: VocabularyOption = None,
    rows_per_step: BatchOption = None,
    learning_rate: RateOption = None,
    others: OthersOption = None,
    dtype: DtypeOption = None,
    states: Annotated[
        str | None,
        typer.Option(
            help="The target's hidden states: computed for each batch anew, or stored "
            "once in the cache for all passes and kinds (2 bytes a number in bfloat16)."
        ),
    ] = None,
    stored: StoredOption = None,
    seed: SeedOption = 0,
    resume: ResumeOption = False,
    debug: option.Debug = False,
) -> None:
    """Train draft heads on a frozen target and write them as an artifact.

    The target's states are computed batch by batch, or stored once and read batch by
    batch; its answers and laws are the teacher rows of train draft. The measured
    agreement is printed.
    """
    from .training.settings import HeadsSettings, Recipe

    checks.integer(rows, "rows", least=1)
    checks.integer(source_rows, "source-rows", least=0)
    chosen = given(
        steps=steps,
        heads=heads,
        layers=layers,
        start=start,
        loss=loss,
        state_weight=state_weight,
        decay=decay,
        self_share=self_share,
        vocabulary=vocabulary,
        rows_per_step=rows_per_step,
        learning_rate=learning_rate,
        others=others,
        dtype=dtype,
        states=states,
        stored=stored,
    )
    settings = HeadsSettings(kind, **chosen, seed=seed)
    recipe = Recipe(seed=seed)

    from .training import heads_run

    manifest = heads_run.train_heads(
        out,
        target,
        rows=rows,
        source_rows=source_rows,
        settings=settings,
        recipe=recipe,
        resume=resume,
        command=_command(
            f"heads {kind}", settings, _HEADS, rows=rows, source_rows=source_rows
        ),
        progress=say,
    )
    if manifest:  # the first of several processes
        typer.echo(json.dumps(manifest["measured"], indent=1))


@train_app.command(
    "kangaroo",
    epilog=f"In several processes, one for each GPU, or on the CPU where there is "
    f"none: {LAUNCH} train kangaroo ...",
)
@guarded
def train_kangaroo(
    boundary: Annotated[
        int, typer.Option(help="How many of the target's layers draft.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the trained adapter.")],
    target: option.Target = None,
    rows: RowsOption = 440_000,
    source_rows: SourceRowsOption = 0,
    steps: StepsOption = None,
    attention_heads: Annotated[
        int | None, typer.Option(help="Of the adapter's attention.")
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            help="least_squares is the best linear guess of the target's last state, "
            "norm reads shallow rows as if they were the last. Default: norm."
        ),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(help="Of both laws in the loss, which its square multiplies."),
    ] = None,
    vocabulary: VocabularyOption = None,
    rows_per_step: BatchOption = None,
    learning_rate: RateOption = None,
    warm_up: Annotated[
        int | None, typer.Option(help="Steps until the rate is at its largest.")
    ] = None,
    others: OthersOption = None,
    dtype: DtypeOption = None,
    states: Annotated[
        str | None,
        typer.Option(
            help="The rows that the adapter reads: computed for each batch anew, or "
            "stored once in the cache for all passes (2 bytes a number in bfloat16)."
        ),
    ] = None,
    stored: StoredOption = None,
    seed: SeedOption = 0,
    resume: ResumeOption = False,
    debug: option.Debug = False,
) -> None:
    """Train the adapter with which a target's first layers draft for it (Kangaroo).

    Its rows are computed batch by batch, or stored once; what it is taught are the
    teacher rows of train draft. The measured agreement is printed.
    """
    from .training.settings import KangarooSettings, Recipe

    checks.integer(rows, "rows", least=1)
    checks.integer(source_rows, "source-rows", least=0)
    chosen = given(
        attention_heads=attention_heads,
        start=start,
        temperature=temperature,
        vocabulary=vocabulary,
        steps=steps,
        rows_per_step=rows_per_step,
        learning_rate=learning_rate,
        warm_up=warm_up,
        others=others,
        dtype=dtype,
        states=states,
        stored=stored,
    )
    settings = KangarooSettings(boundary, **chosen, seed=seed)
    recipe = Recipe(seed=seed)

    from .training import kangaroo_run

    manifest = kangaroo_run.train_kangaroo(
        out,
        target,
        rows=rows,
        source_rows=source_rows,
        settings=settings,
        recipe=recipe,
        resume=resume,
        command=_command(
            "kangaroo", settings, _KANGAROO, rows=rows, source_rows=source_rows
        ),
        progress=say,
    )
    if manifest:  # the first of several processes
        typer.echo(json.dumps(manifest["measured"], indent=1))


def _command(what: str, settings: Any, names: list[str], **data: int) -> str:
    """The command with every option spelled out: defaults may change later."""
    options = {**data, **{name: getattr(settings, name) for name in names}}
    told = (
        f"--{name.replace('_', '-')} {value}"
        for name, value in options.items()
        if value is not None
    )
    return f"specbook train {what} --out NAME {' '.join(told)}"


_DRAFT = "steps layers width inner heads kv_heads start seed".split()
_HEADS = (
    "steps heads layers start loss state_weight decay self_share vocabulary "
    "rows_per_step learning_rate others dtype states stored seed"
).split()
_KANGAROO = (
    "steps boundary attention_heads start temperature vocabulary rows_per_step "
    "learning_rate warm_up others dtype states stored seed"
).split()
