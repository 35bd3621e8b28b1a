"""`specbook bench retrieval`: is our index fast and small, and what is it good for?

The same corpus is indexed and the same contexts are looked up by several systems (see
`retrieval_systems`): our suffix array, the suffix tree of ArcticInference as engines
ship it, our suffix automaton and a plain Python scan. Builds and queries take turns, in
an order that rotates. Memory is measured in a fresh process for each. The answers are
compared with the scan's, on what both define: the length of the longest match, and how
often each continuation follows it. Held-out documents then grow by a token at a time in
those indexes that can, see `retrieval_growth`. A peer that is not installed is reported
as absent.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from .. import checks, corpora
from ..drafts.automaton import BORDER
from ..errors import SpecbookError
from . import retrieval_growth, retrieval_systems
from .report import save
from .retrieval_report import Measured, RetrievalReport
from .retrieval_systems import (
    IDS,
    Answer,
    Documents,
    Index,
    Limits,
    Prefix,
    System,
    most_frequent,
    scan,
)
from .setup import Progress, check_checkpoints, clock_of, folder, machine, teller

TOKENS = 1_000_000
QUERIES = 500
SLOW_QUERIES = 20
QUICK = {"tokens": 50_000, "queries": 40, "repeats": 1}
MAX_SUFFIX = 16
NODE_BUDGET = 48
"""With the longest match, as deep as ArcticInference's trees are by default."""

SHARE_TOLERANCE = 1e-5
"""A share is a product of float32 quotients, one a branching on the way."""

Contexts = Sequence[Sequence[int]]


def run(
    target: str | os.PathLike[str] | None = None,
    *,
    documents: Iterable[Iterable[int]] | None = None,
    held_out: Iterable[Iterable[int]] | None = None,
    tokens: int = TOKENS,
    queries: int = QUERIES,
    repeats: int = 3,
    max_suffix: int = MAX_SUFFIX,
    node_budget: int = NODE_BUDGET,
    systems: Sequence[str] = retrieval_systems.NAMES,
    quick: bool = False,
    seed: int = 0,
    clock: str = "wall",
    out: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> RetrievalReport:
    """Runs the benchmark and returns its report.

    `documents`: token ids (below 2**31) to index; by default about `tokens` tokens of
    Python source (`specbook.corpora`, its files in an order of their hashes), in the
    ids of `target` (a folder with a `tokenizer.json`; default: the book's target).
    `held_out`: documents from which `queries` contexts are drawn with `seed`, and which
    grow; by default the held-out files of the same packages. `repeats`: builds, and
    rounds of queries; their medians count. `max_suffix`, `node_budget`: the size of a
    question, see `Limits`. `systems`: some of `retrieval_systems.NAMES`. `quick`: a
    small corpus, to see that it works; nothing can be concluded from it. `clock`:
    "wall" or "cpu". `out`: a folder for `retrieval.json`, `retrieval.md` and
    `retrieval.png`. `progress` is called with a line of text now and then.

    Raises `ValueError` for bad options, before anything is built, and where there is
    no context to draw.
    """
    tell = teller(progress)
    check_checkpoints(target=target)
    if checks.boolean(quick, "quick"):
        tokens, queries, repeats = QUICK["tokens"], QUICK["queries"], QUICK["repeats"]
    for name, value in (
        ("tokens", tokens),
        ("queries", queries),
        ("repeats", repeats),
        ("max_suffix", max_suffix),
        ("node_budget", node_budget),
    ):
        checks.integer(value, name, least=1)
    checks.integer(seed, "seed", least=0)
    now = clock_of(clock)
    chosen = [
        retrieval_systems.named(checks.text(name, "a system"))
        for name in checks.entries(systems, "systems", "names")
    ]
    if not chosen or len(set(chosen)) < len(chosen):
        raise SpecbookError(f"systems must be different names, got {list(systems)}")
    if (documents is None) != (held_out is None):
        raise SpecbookError("documents and held_out go together")
    if out is not None:
        out = folder(out)
    corpus = "given"
    if documents is None or held_out is None:
        tell(f"reading about {tokens:,} tokens of source")
        documents, held_out, corpus = python_sources(target, tokens)
    indexed = _arrays(documents, "documents")
    limits = Limits(max_suffix, node_budget)
    growing = _arrays(held_out, "held_out")
    contexts = draw_contexts(growing, queries, limits, seed)
    measured = measure(indexed, contexts, limits, chosen, repeats, now, tell)
    tell("letting held-out documents grow")
    grown = retrieval_growth.grow(growing, limits, repeats, clock=now)
    report = RetrievalReport(
        measured=tuple(measured),
        grown=tuple(grown),
        tokens=sum(map(len, indexed)),
        documents=len(indexed),
        settings={
            "corpus": corpus,
            "queries": len(contexts),
            "repeats": repeats,
            "max_suffix": max_suffix,
            "node_budget": node_budget,
            "quick": quick,
            "seed": seed,
            "clock": clock,
        },
        machine=machine(),
    )
    if out is not None:
        save(report, out)
    return report


def measure(
    documents: Documents,
    contexts: Contexts,
    limits: Limits,
    systems: Sequence[System],
    repeats: int,
    clock: Callable[[], float] = time.perf_counter,
    progress: Progress = lambda line: None,
) -> list[Measured]:
    """Builds, asks, checks and weighs each system on the same documents (int64 ids)
    and contexts. A system that is built as another shares its index and its build."""
    absent = {s.name: why for s in systems if (why := s.missing()) is not None}
    running = [s for s in systems if s.name not in absent]
    # The first of those that share a build makes it.
    builders = list({s.index: s for s in reversed(running)}.values())[::-1]
    seconds, indexes = time_builds(
        documents, limits, builders, repeats, clock, progress
    )
    progress(f"asking {len(contexts)} queries, {repeats} times")
    asked = time_queries(contexts, limits, running, indexes, repeats, clock)
    progress("checking the answers against a scan")
    few = contexts[: max(SLOW_QUERIES, len(contexts) // 10)]
    verdicts = check_answers(documents, few, limits, running, indexes)
    del indexes
    gc.collect()
    weights: dict[str, dict[str, int]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "documents.npz"
        retrieval_systems.save_documents(path, documents)
        for system in builders:
            progress(f"weighing {system.name}")
            weights[system.index] = weigh(system.name, path, limits)
    found = []
    for system in systems:
        if system.name in absent:
            found.append(Measured(system.name, absent=absent[system.name]))
            continue
        weight = weights[system.index]
        found.append(
            Measured(
                system=system.name,
                version=system.version(),
                better=system.better,
                build=tuple(seconds[system.index]),
                held=weight["held"],
                peak=weight["peak"],
                queries=asked[system.name],
                checked=len(verdicts[system.name]),
                wrong=verdicts[system.name].count(False),
            )
        )
    return found


def time_builds(
    documents: Documents,
    limits: Limits,
    systems: Sequence[System],
    repeats: int,
    clock: Callable[[], float] = time.perf_counter,
    progress: Progress = lambda line: None,
) -> tuple[dict[str, list[float]], dict[str, Index]]:
    """Seconds of each build, and the last index of each, by what it is built as."""
    seconds: dict[str, list[float]] = {s.index: [] for s in systems}
    indexes: dict[str, Index] = {}
    prepared = {system.name: system.prepare(documents) for system in systems}
    for turn in range(repeats):
        for system in _rotated(systems, turn):
            progress(f"building {system.name} ({turn + 1} of {repeats})")
            indexes.pop(system.index, None)
            gc.collect()
            start = clock()
            indexes[system.index] = system.build(prepared[system.name], limits)
            seconds[system.index].append(clock() - start)
    return seconds, indexes


def time_queries(
    contexts: Contexts,
    limits: Limits,
    systems: Sequence[System],
    indexes: Mapping[str, Index],
    repeats: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, dict[int, float]]:
    """Seconds of each query, the median of its repeats, for each system."""
    times: dict[str, dict[int, list[float]]] = {s.name: {} for s in systems}
    for turn in range(repeats):
        for number, context in enumerate(contexts):
            for system in _rotated(systems, turn + number):
                if system.slow and number >= SLOW_QUERIES:
                    continue
                index = indexes[system.index]
                start = clock()
                system.ask(index, context, limits)
                spent = clock() - start
                times[system.name].setdefault(number, []).append(spent)
    return {
        name: {number: median(spent) for number, spent in by_query.items()}
        for name, by_query in times.items()
    }


def check_answers(
    documents: Documents,
    contexts: Contexts,
    limits: Limits,
    systems: Sequence[System],
    indexes: Mapping[str, Index],
) -> dict[str, list[bool]]:
    """For each system and context, whether its answer is right by the plain scan."""
    text = [t for document in documents for t in (*document.tolist(), BORDER)]
    verdicts: dict[str, list[bool]] = {system.name: [] for system in systems}
    for context in contexts:
        truth = scan(text, context[-limits.max_suffix :])
        for system in systems:
            answer = system.answer(indexes[system.index], context, limits)
            verdicts[system.name].append(
                agrees(answer, system.kind, text, context, truth, limits)
            )
    return verdicts


def agrees(
    answer: Answer,
    kind: str,
    text: Sequence[int],
    context: Sequence[int],
    truth: tuple[int, list[int]],
    limits: Limits,
) -> bool:
    """Whether an answer is right for its `kind`, see `System`.

    `text`: all documents with their borders. `truth`: what `scan` says about `context`,
    the longest match and where it ends.
    """
    length, ends = truth
    if kind == "share" and answer.match != length:
        # It chose a shorter match, so it is held to what follows that.
        length, ends = answer.match, []
        if 0 < length < truth[0]:
            ends = scan(text, context[-length:])[1]
    if answer.match != length:
        return False
    standing: dict[Prefix, list[int]] = {(): ends}
    for prefix, weight in answer.weights.items():
        if prefix[:-1] not in standing:
            return False
        places = standing[prefix] = [
            end
            for end in standing[prefix[:-1]]
            if text[end + len(prefix) - 1] == prefix[-1]
        ]
        share = len(places) / max(1, len(ends))
        if not places:
            return False
        if (
            kind in ("counts", "share")
            and abs(weight - share) > SHARE_TOLERANCE * share
        ):
            return False
    if kind == "share":
        return len(answer.weights) <= limits.node_budget
    if kind == "copy":
        depths = sorted(map(len, answer.weights))
        return depths == list(range(1, len(depths) + 1)) and bool(depths) == bool(ends)
    best = most_frequent(text, ends, limits.node_budget)
    if kind == "ranked":
        return answer.weights == best
    counts = sorted(len(standing[prefix]) for prefix in answer.weights)
    return counts == sorted(best.values())


def weigh(name: str, path: Path, limits: Limits) -> dict[str, int]:
    """The memory of one index, measured in a process of its own: see
    `retrieval_systems.memory`. Raises `SpecbookError` with what it said if it fails."""
    finished = subprocess.run(
        [
            sys.executable,
            "-m",
            retrieval_systems.__name__,
            name,
            str(path),
            str(limits.max_suffix),
            str(limits.node_budget),
        ],
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    if finished.returncode:
        raise SpecbookError(
            f"{name} could not be weighed: its process ended with status "
            f"{finished.returncode}: {finished.stderr[-2000:]}"
        )
    return json.loads(finished.stdout)


def draw_contexts(
    held_out: Documents, count: int, limits: Limits, seed: int
) -> list[list[int]]:
    """`count` places in documents with enough tokens before them, all equally likely:
    the last tokens before each."""
    rooms = [max(0, len(document) - limits.context) for document in held_out]
    if not sum(rooms):
        raise SpecbookError(
            f"no held-out document has more than {limits.context} tokens"
        )
    edges = np.cumsum(rooms)
    drawn = np.random.default_rng(seed).integers(edges[-1], size=count)
    contexts = []
    for place in drawn.tolist():
        number = int(np.searchsorted(edges, place, side="right"))
        start = place - int(edges[number]) + rooms[number]
        contexts.append(held_out[number][start : start + limits.context].tolist())
    return contexts


def python_sources(
    target: str | os.PathLike[str] | None, tokens: int
) -> tuple[list[list[int]], list[list[int]], str]:
    """Documents of about `tokens` tokens, held-out documents, and what they are."""
    from tokenizers import Tokenizer

    from ..models import fetch

    folder = Path(fetch() if target is None else target)
    if not (folder / "tokenizer.json").is_file():
        raise SpecbookError(f"target: {folder} has no tokenizer.json")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    files = corpora.package_sources()
    kept, held = corpora.split(files)

    def encoded(sources: list[corpora.SourceFile], most: int) -> list[list[int]]:
        made: list[list[int]] = []
        size = 0
        # By hash, so that a part of the corpus is a fair sample of all packages.
        for file in sorted(sources, key=lambda file: file.sha256):
            if size >= most:
                break
            ids = tokenizer.encode(file.text, add_special_tokens=False).ids
            made.append(ids)
            size += len(ids)
        return made

    about = f"Python sources, snapshot {corpora.snapshot(files)}"
    return encoded(kept, tokens), encoded(held, max(1, tokens // 5)), about


def _arrays(documents: Any, name: str) -> list[np.ndarray]:
    listed = checks.entries(documents, name, "token sequences")
    return [
        np.array(checks.token_ids(document, f"{name}[{i}]", vocab_size=IDS), np.int64)
        for i, document in enumerate(listed)
    ]


def _rotated(systems: Sequence[System], turn: int) -> list[System]:
    first = turn % max(1, len(systems))
    return [*systems[first:], *systems[:first]]
