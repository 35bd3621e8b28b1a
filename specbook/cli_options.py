"""The options of the command line that several modules use: each says its help once.

What only the commands of one module share stands in that module. A default may differ
from command to command, and stands with the command. What a value may be is checked by
the function that gets it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

# -------------------------------------------------------------------- every command

Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Target = Annotated[
    str | None,
    typer.Option(
        help="A folder or hub id of a causal language model. Default: "
        "$SPECBOOK_TARGET, or else the book's own target."
    ),
]

# ---------------------------------------------------------------- sources and decoding

Draft = Annotated[
    str | None,
    typer.Option(help="A folder or hub id. Default: the draft that is shipped."),
]
Datastore = Annotated[
    Path | None, typer.Option(help="For the source rest: a file that index wrote.")
]
Temperature = Annotated[float, typer.Option(help="0 takes the argmax.")]

# ------------------------------------------------------------------- the frozen prompts

Workload = Annotated[
    list[str] | None, typer.Option(help="Repeatable. Default: all four.")
]
Half = Annotated[str, typer.Option(help="development or evaluation prompts.")]
Prompts = Annotated[
    int | None, typer.Option("--prompts", help="The first so many of each.")
]
Length = Annotated[int, typer.Option(help="At most so many each.")]

# --------------------------------------------------------------------------- benchmarks

Dtypes = Annotated[
    list[str] | None, typer.Option(help="Repeatable. Default: float32 and bfloat16.")
]
Repeats = Annotated[int, typer.Option(help="Runs of each prompt.")]
Clock = Annotated[
    str,
    typer.Option(
        help="wall, or cpu: processor time, for a machine that others use too "
        "(with OMP_NUM_THREADS=1)."
    ),
]
Quick = Annotated[bool, typer.Option("--quick", help="Only see that it works.")]
Out = Annotated[
    Path | None, typer.Option(help="Folder for the JSON, the table, the figure.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the JSON.")]
