"""`specbook export`: what was measured and chosen, for other engines.

One group an engine; each command is a thin line to a function of `specbook.export`. It
writes the engine's file and one beside it that says how it was made, and prints what to
know and the command to paste.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import cli_options as option
from . import reading
from .cli_common import guarded, say
from .errors import SpecbookError

if TYPE_CHECKING:
    from .export.artifact import Export
    from .measure.acceptance import AcceptanceProfile

export_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Write what was measured or chosen in the form that another engine takes.",
)
vllm_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="For vLLM's --speculative-config."
)
sglang_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="For SGLang's server."
)
llama_cpp_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="For llama.cpp's llama-server."
)
export_app.add_typer(vllm_app, name="vllm")
export_app.add_typer(sglang_app, name="sglang")
export_app.add_typer(llama_cpp_app, name="llama-cpp")

Out = Annotated[Path, typer.Option("--out", help="The file to write.")]
Counts = Annotated[
    Path, typer.Option("--from", help="From measure acceptance: what is accepted.")
]
Times = Annotated[Path, typer.Option(help="From measure verify-time: what rows cost.")]
Base = Annotated[
    Path | None,
    typer.Option(help="A speculative config of vLLM to add to: a JSON file."),
]
Method = Annotated[
    str | None, typer.Option(help="Without --base: how vLLM drafts, such as eagle3.")
]
Model = Annotated[
    str | None, typer.Option(help="Without --base: the drafter of that method.")
]
OneWorkload = Annotated[
    str | None, typer.Option(help="Of the counts. Default: all together.")
]
Positions = Annotated[
    int | None, typer.Option(help="So many drafts. Default: as many as were counted.")
]
DraftSeconds = Annotated[
    float | None,
    typer.Option(
        help="Seconds of one draft step, the same at every batch size. Needed unless "
        "the counted source copies."
    ),
]
Prefix = Annotated[
    int | None,
    typer.Option(help="Tokens before the rows, of those timed. Default: the first."),
]
Source = Annotated[
    str, typer.Option(help="A draft source that copies: prompt_lookup, rest, suffix.")
]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="NAME=VALUE of the source, the value in JSON; repeatable."
    ),
]


def write(export: Export, out: Path) -> None:
    """Saves an export, and prints its header, its notes and its command."""
    path = export.save(out)
    for line in export.lines(path):
        typer.echo(line)
    say(f"written to {path}")


# ----------------------------------------------------------------------- transformers


@export_app.command()
@guarded
def transformers(
    out: Out,
    source: Source = "prompt_lookup",
    settings: Options = None,
    datastore: option.Datastore = None,
    debug: option.Debug = False,
) -> None:
    """A source for generate of transformers, as a candidate generator."""
    from .export import sources

    content = sources.described(source, _options(settings, datastore))
    command = (
        "from specbook.export import assisted, sources\n"
        "source = sources.load(<PYFILE>)\n"
        "model.generate(**inputs, custom_generate=assisted.assisted(source))"
    )
    write(sources.export("transformers", command, content), out)


# ------------------------------------------------------------------------------- vLLM


@vllm_app.command("rates")
@guarded
def vllm_rates(
    counts: Counts,
    out: Out,
    base: Base = None,
    method: Method = None,
    model: Model = None,
    workload: OneWorkload = None,
    length: Positions = None,
    debug: option.Debug = False,
) -> None:
    """Measured acceptance, to time a chain in vLLM whatever drafts."""
    from .export import vllm

    rates, notes = _rates(counts, workload, length)
    begun = _base(base, method, model)
    made = vllm.with_rates(begun, rates, reading.digests(filter(None, (counts, base))))
    write(_noted(made, notes), out)


@vllm_app.command("schedule")
@guarded
def vllm_schedule(
    counts: Counts,
    times: Times,
    out: Out,
    base: Base = None,
    method: Method = None,
    model: Model = None,
    workload: OneWorkload = None,
    length: Positions = None,
    draft_seconds: DraftSeconds = None,
    prefix: Prefix = None,
    debug: option.Debug = False,
) -> None:
    """How many drafts at which batch size, from what rows cost."""
    from .export import vllm

    choices, notes = _choices(counts, times, workload, length, draft_seconds, prefix)
    begun = _base(base, method, model)
    inputs = reading.digests(filter(None, (counts, times, base)))
    write(_noted(vllm.with_schedule(begun, choices, inputs), notes), out)


@vllm_app.command("ngram")
@guarded
def vllm_ngram(out: Out, settings: Options = None, debug: option.Debug = False) -> None:
    """vLLM's own n-gram lookup, for a prompt_lookup that does the same."""
    from .export import vllm

    given = {"policy": "transformers", "length": "fixed", **_options(settings)}
    write(vllm.ngram(_made("prompt_lookup", given)), out)


@vllm_app.command("suffix")
@guarded
def vllm_suffix(
    out: Out,
    settings: Options = None,
    max_tree_depth: Annotated[int, typer.Option(help="Of vLLM's trees.")] = 24,
    max_cached_requests: Annotated[int, typer.Option(help="In its tree.")] = 10000,
    max_spec_factor: Annotated[float, typer.Option(help="Drafts a match.")] = 1.0,
    min_token_prob: Annotated[float, typer.Option(help="Of a draft.")] = 0.1,
    debug: option.Debug = False,
) -> None:
    """vLLM's own suffix decoding, with as many drafts as our suffix copies."""
    from .export import vllm

    made = vllm.suffix(
        _made("suffix", {"length": "fixed", **_options(settings)}),
        max_tree_depth=max_tree_depth,
        max_cached_requests=max_cached_requests,
        max_spec_factor=max_spec_factor,
        min_token_prob=min_token_prob,
    )
    write(made, out)


@vllm_app.command("custom")
@guarded
def vllm_custom(
    out: Out,
    source: Source = "prompt_lookup",
    settings: Options = None,
    datastore: option.Datastore = None,
    length: Annotated[int, typer.Option(help="The most drafts a round.")] = 16,
    debug: option.Debug = False,
) -> None:
    """A source of ours inside vLLM: writes FILE, and FILE.source.json with it."""
    from .export import artifact, sources, vllm

    content = sources.described(source, _options(settings, datastore))
    beside = out.with_name(out.name + ".source.json")
    made = vllm.custom(str(beside.absolute()), length)
    artifact.replaceable(out, made.engine, made.what)
    sources.export("vllm", made.command, content).save(beside)
    inputs = reading.digests([beside])
    write(vllm.custom(str(beside.absolute()), length, inputs), out)


# ----------------------------------------------------------------------------- SGLang


@sglang_app.command("adaptive")
@guarded
def sglang_adaptive(
    counts: Counts,
    times: Times,
    out: Out,
    draft_model: Annotated[str, typer.Option(help="The EAGLE drafter.")],
    algorithm: Annotated[str, typer.Option(help="EAGLE or EAGLE3.")] = "EAGLE3",
    within: Annotated[
        float, typer.Option(help="Numbers of drafts that are so near the best.")
    ] = 0.05,
    workload: OneWorkload = None,
    length: Positions = None,
    draft_seconds: DraftSeconds = None,
    prefix: Prefix = None,
    debug: option.Debug = False,
) -> None:
    """The numbers of drafts that SGLang may go between, by batch size."""
    from .export import sglang

    choices, notes = _choices(counts, times, workload, length, draft_seconds, prefix)
    made = sglang.adaptive(
        choices,
        draft_model=draft_model,
        algorithm=algorithm,
        within=within,
        inputs=reading.digests([counts, times]),
    )
    write(_noted(made, notes), out)


@sglang_app.command("ngram")
@guarded
def sglang_ngram(
    out: Out,
    source: Annotated[str, typer.Option(help="prompt_lookup or rest.")] = (
        "prompt_lookup"
    ),
    settings: Options = None,
    datastore: option.Datastore = None,
    corpus: Annotated[
        Path | None, typer.Option(help="A file of export sglang corpus.")
    ] = None,
    corpus_nodes: Annotated[
        int | None, typer.Option(help="So many drafts from it. Default: all.")
    ] = None,
    debug: option.Debug = False,
) -> None:
    """SGLang's n-gram trie, of the size of a source."""
    from .export import sglang
    from .export.artifact import Export

    given = _options(settings, datastore)
    if source == "prompt_lookup":
        given = {"length": "fixed", **given}
    inputs = reading.digests(filter(None, (datastore, corpus)))
    if corpus is not None and Export.load(corpus).what != "corpus":
        raise SpecbookError(f"{corpus} is no exported corpus")
    made = sglang.ngram(
        _made(source, given),
        corpus=None if corpus is None else str(corpus.absolute()),
        corpus_nodes=corpus_nodes,
        inputs=inputs,
    )
    write(made, out)


@sglang_app.command("corpus")
@guarded
def sglang_corpus(
    out: Out,
    text: Annotated[
        list[Path] | None, typer.Option(help="A text file, one document; repeatable.")
    ] = None,
    package: Annotated[
        list[str] | None,
        typer.Option(help="An installed package's Python sources; repeatable."),
    ] = None,
    debug: option.Debug = False,
) -> None:
    """Texts for SGLang's n-gram corpus: one JSON string a line."""
    from . import corpora
    from .export import sglang

    if not text and not package:
        raise SpecbookError("nothing to write: give --text or --package")
    documents = [reading.text(path) for path in text or ()]
    inputs = reading.digests(text or ())
    if package:
        corpora.check_installed(package)
        files = corpora.package_sources(package)
        documents += [item.text for item in files]
        inputs[f"sources of {', '.join(package)}"] = corpora.snapshot(files)
    write(sglang.corpus(documents, inputs=inputs), out)


# -------------------------------------------------------------------------- llama.cpp


@llama_cpp_app.command("rates")
@guarded
def llama_cpp_rates(
    counts: Counts,
    out: Out,
    spec_type: Annotated[str, typer.Option(help="How it drafts: draft-simple, ...")],
    draft_model: Annotated[
        str | None, typer.Option(help="The drafter's GGUF file.")
    ] = None,
    workload: OneWorkload = None,
    length: Positions = None,
    debug: option.Debug = False,
) -> None:
    """Measured acceptance, to time a chain in llama-server."""
    from .export import llama_cpp

    rates, notes = _rates(counts, workload, length)
    made = llama_cpp.rates(
        rates,
        spec_type=spec_type,
        draft_model=draft_model,
        inputs=reading.digests([counts]),
    )
    write(_noted(made, notes), out)


@llama_cpp_app.command("ngram")
@guarded
def llama_cpp_ngram(
    out: Out, settings: Options = None, debug: option.Debug = False
) -> None:
    """llama.cpp's ngram-simple, for a prompt_lookup that does the same."""
    from .export import llama_cpp

    given = {"policy": "llama_cpp", "length": "fixed", **_options(settings)}
    write(llama_cpp.ngram(_made("prompt_lookup", given)), out)


# ------------------------------------------------------------------------------ trees


@export_app.command()
@guarded
def tree(
    artifact: Annotated[
        Path, typer.Option("--from", help="A tree file of measure tree.")
    ],
    out: Out,
    kind: Annotated[
        str,
        typer.Option(
            help="paths, medusa, eagle_choices (TensorRT-LLM), or token_tree (vLLM of "
            "July 2025 to May 2026)."
        ),
    ] = "paths",
    heads: Annotated[
        int | None, typer.Option(help="For medusa: how many heads it has.")
    ] = None,
    speculative_model: Annotated[
        str | None, typer.Option(help="For eagle_choices: the drafter's folder.")
    ] = None,
    debug: option.Debug = False,
) -> None:
    """A planned tree as a list of paths of ranks."""
    from .export import choices
    from .topologies.artifact import TreeArtifact

    made = choices.export_tree(
        TreeArtifact.load(artifact).tree(),
        kind,
        heads=heads,
        speculative_model=speculative_model,
        inputs=reading.digests([artifact]),
    )
    write(made, out)


# ------------------------------------------------------------------------ what is read


def _options(told: list[str] | None, datastore: Path | None = None) -> dict[str, Any]:
    """NAME=VALUE texts as options; a value that is no JSON is text."""
    found: dict[str, Any] = {}
    for text in told or ():
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise SpecbookError(f"--set takes NAME=VALUE, got {text!r}")
        if name in found or (name == "datastore" and datastore is not None):
            raise SpecbookError(f"option {name!r} is given twice")
        try:
            found[name] = json.loads(value)
        except (ValueError, RecursionError):
            found[name] = value
    if datastore is not None:
        found["datastore"] = datastore
    return found


def _made(name: str, options: Mapping[str, Any]) -> Any:
    """A source that copies, with these options."""
    from . import drafts
    from .export.chains import check_free

    check_free(drafts.get(name))
    return drafts.make(name, **options)


def _base(path: Path | None, method: str | None, model: str | None) -> dict[str, Any]:
    """The config that is added to."""
    if path is not None:
        if method is not None or model is not None:
            raise SpecbookError("--base already says method and model")
        return reading.json_object(path, "a speculative config")
    if method is None:
        raise SpecbookError("vLLM must be told how it drafts: give --base or --method")
    told = {"method": method, "model": model}
    return {name: value for name, value in told.items() if value is not None}


def _rates(
    counts: Path, workload: str | None, length: int | None
) -> tuple[list[Any], tuple[str, ...]]:
    """A chain's rates, and the notes of what they hold for."""
    from .measure.acceptance import AcceptanceProfile

    return _rates_of(AcceptanceProfile.load(counts), workload, length)


def _rates_of(
    profile: AcceptanceProfile, workload: str | None, length: int | None
) -> tuple[list[Any], tuple[str, ...]]:
    from .export.rates import chain_rates, of_a_tree

    observed, about = profile.observed(workload), profile.settings
    notes = [
        f"Counted with source {_first_word(about['source'])}, verifier "
        f"{about['verifier']}, temperature {about['temperature']}, on "
        f"{workload or ', '.join(profile.workloads())}, of {about['target']}: another "
        "drafter, temperature or kind of text has other rates."
    ]
    if of_a_tree(observed):
        notes.append(
            "Counted on trees: the rate of a depth is over all paths that got there, "
            "through whichever candidates. A chain's own may be others."
        )
    return chain_rates(observed, length), tuple(notes)


def _choices(
    counts: Path,
    times: Path,
    workload: str | None,
    length: int | None,
    draft_seconds: float | None,
    prefix: int | None,
) -> tuple[list[Any], tuple[str, ...]]:
    """The choice for each batch size, and the notes of all that it rests on."""
    from .advice.predicted import check_together
    from .export.schedule import choose_lengths, first_prefix
    from .measure.acceptance import AcceptanceProfile
    from .measure.verify_report import VerifyProfile

    profile = AcceptanceProfile.load(counts)
    rates, notes = _rates_of(profile, workload, length)
    clock = VerifyProfile.load(times)
    check_together(profile, clock)
    if draft_seconds is None:
        if not _copied(profile.settings["proposal"]):
            raise SpecbookError(
                f"{counts} counts {_first_word(profile.settings['source'])}, which "
                "takes time to draft: give --draft-seconds"
            )
        draft_seconds = 0.0
    if prefix is None:
        prefix = first_prefix(clock)
    choices = choose_lengths(rates, clock, draft_seconds=draft_seconds, prefix=prefix)
    timed = (
        f"Timed behind {prefix} tokens in {clock.settings.get('dtype')} on "
        f"{clock.where()}; a draft step is taken to last {draft_seconds:g} s."
    )
    return choices, (*notes, timed)


def _noted(export: Export, notes: tuple[str, ...]) -> Export:
    """The export with notes of what its rates hold for."""
    return replace(export, notes=(*export.notes, *notes))


def _copied(proposal: str) -> bool:
    """Whether all sources of a profile copy."""
    from . import drafts, registry
    from .export.chains import check_free

    for told in proposal.split(" + "):
        name = _first_word(told)
        if name not in registry.DRAFTS:
            return False
        try:
            check_free(drafts.get(name))
        except SpecbookError:
            return False
    return True


def _first_word(told: str) -> str:
    """The name of a source in what it says of itself."""
    return told.partition(" ")[0]
