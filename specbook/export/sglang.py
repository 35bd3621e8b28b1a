"""SGLang: the adaptive schedule, the n-gram options, and a corpus for them.

The schedule is for EAGLE and EAGLE3 with one candidate a step (topk 1), the only form
that SGLang adapts. Its drafts are counted in *steps*: K steps are K drafts and K + 1
verified tokens. The n-gram trie is SGLang's own and is shared by all requests, so its
options are settings of that method, not our source in another place.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .. import checks
from ..drafts.prompt_lookup import PromptLookup
from ..drafts.rest import Rest
from ..errors import SpecbookError
from . import arguments, schema
from .artifact import Export, made_from
from .schedule import BatchChoice, check_choices

_LAUNCH = "python -m sglang.launch_server --model-path MODEL"
CORPUS_TOKENS = 10_000_000
"""SGLang's default of --speculative-ngram-external-corpus-max-tokens."""


def adaptive(
    choices: Sequence[BatchChoice],
    *,
    draft_model: str,
    algorithm: str = "EAGLE3",
    within: float = 0.05,
    inputs: Mapping[str, str] | None = None,
) -> Export:
    """`--speculative-adaptive-config` from a schedule.

    For each batch size SGLang may go between the numbers of drafts whose predicted
    speed-up is at most `within` (a share) below the best one's; with `within` 0 it has
    no choice. It begins with the best of one request. `draft_model`: the drafter.
    Raises `SpecbookError` where one request pays for no draft.
    """
    checks.one_of(algorithm, "algorithm", ("EAGLE", "EAGLE3"))
    if not checks.text(draft_model, "draft_model"):
        raise SpecbookError("draft_model is empty: SGLang adapts a drafter's steps")
    steps = check_choices(choices)[0].best
    if steps == 0:
        raise SpecbookError(
            "for one request no draft pays: SGLang has no steps to begin with"
        )
    made = {str(one.batch): {"candidate_steps": one.near(within)} for one in choices}
    schema.check(made, "sglang_adaptive")
    flags = {
        "speculative-algorithm": algorithm,
        "speculative-draft-model-path": draft_model,
        "speculative-num-steps": steps,
        "speculative-eagle-topk": 1,
        "speculative-num-draft-tokens": steps + 1,
    }
    return Export(
        engine="sglang",
        what="adaptive",
        schema="sglang_adaptive",
        body=json.dumps(made) + "\n",
        command=(
            f"{_LAUNCH} {arguments.line(flags)} --speculative-adaptive "
            "--speculative-adaptive-config <FILE>"
        ),
        inputs=made_from(inputs),
        notes=(
            "A batch size between two entries takes one of them: SGLang pads it to a "
            "captured size and picks the nearest.",
            "Adapts EAGLE and EAGLE3 with topk 1 only, which verifies one token more "
            "than it has steps.",
            "Steps are those whose predicted speed is at most a share of "
            f"{float(within):g} below the best one's.",
        ),
    )


def check_ngram(options: Mapping[str, Any]) -> dict[str, Any]:
    """`options` ({name without dashes: value}) as ones that SGLang takes. Raises
    `SpecbookError`, also for breadths that cross and for more nodes from the corpus
    than drafts."""
    if not isinstance(options, Mapping):
        raise SpecbookError(f"options must be a mapping, got {options!r:.80}")
    found = dict(options)
    schema.check(found, "sglang_ngram")
    least = found.get("speculative-ngram-min-bfs-breadth", 1)
    most = found.get("speculative-ngram-max-bfs-breadth", 10)
    if least > most:
        raise SpecbookError(f"the least breadth {least} is above the largest, {most}")
    nodes = found["speculative-num-draft-tokens"] - 1
    budget = found.get("speculative-ngram-external-sam-budget", 0)
    if budget > nodes:
        raise SpecbookError(
            f"the corpus may not propose more than the {nodes} drafts, got {budget}"
        )
    if "speculative-ngram-external-corpus-path" in found and budget == 0:
        raise SpecbookError("a corpus needs a budget of at least one node")
    return found


def ngram(
    source: PromptLookup | Rest,
    *,
    corpus: str | None = None,
    corpus_nodes: int | None = None,
    inputs: Mapping[str, str] | None = None,
) -> Export:
    """`--speculative-algorithm NGRAM` of the size of a source.

    A `PromptLookup` becomes a chain (breadth 1) of its `max_candidates`; a `Rest` a
    tree of its `node_budget`. The root counts as one of the engine's draft tokens. The
    trie is as deep as the longest suffix and the longest copy together. `corpus`: a
    file that `corpus_lines` made, from which `corpus_nodes` of the drafts come; by
    default all. Raises `SpecbookError` for another source.
    """
    if isinstance(source, PromptLookup):
        if source.length != "fixed":
            raise SpecbookError("SGLang's NGRAM has no adaptive length of ours")
        nodes, breadth = source.max_candidates, 1
        depth = source.max_ngram + source.max_candidates
    elif isinstance(source, Rest):
        nodes, breadth = source.node_budget, None
        depth = source.max_suffix + source.datastore.release.continuation_length
    else:
        raise SpecbookError(
            f"source must be a PromptLookup or a Rest, got {type(source).__name__}"
        )
    options: dict[str, Any] = {
        "speculative-algorithm": "NGRAM",
        "speculative-num-draft-tokens": nodes + 1,
        "speculative-ngram-max-trie-depth": depth,
    }
    if breadth is not None:
        options["speculative-ngram-min-bfs-breadth"] = breadth
        options["speculative-ngram-max-bfs-breadth"] = breadth
    if corpus is not None:
        options["speculative-ngram-external-corpus-path"] = checks.text(
            corpus, "corpus"
        )
        options["speculative-ngram-external-sam-budget"] = (
            nodes if corpus_nodes is None else corpus_nodes
        )
    elif corpus_nodes is not None:
        raise SpecbookError("corpus_nodes without a corpus")
    told = arguments.line(check_ngram(options))
    return Export(
        engine="sglang",
        what="ngram",
        schema="sglang_ngram",
        body=told + "\n",
        command=f"{_LAUNCH} {told}",
        inputs=made_from(inputs),
        notes=(
            "SGLang's trie holds what all requests said, and ranks by its own rule: "
            "these are sizes for it, not the same source.",
        ),
    )


def read_ngram(text: str) -> dict[str, Any]:
    """The options in an exported line."""
    return check_ngram(arguments.parse(text, "sglang_ngram"))


def corpus(
    documents: Iterable[str], *, inputs: Mapping[str, str] | None = None
) -> Export:
    """Documents for SGLang's n-gram corpus: one JSON string a line. Empty ones are left
    out, as SGLang does. Raises `SpecbookError` where none is left, and for text that no
    UTF-8 can hold."""
    kept = []
    for place, text in enumerate(checks.entries(documents, "documents", "texts")):
        try:
            checks.text(text, f"documents[{place}]").encode("utf-8")
        except UnicodeEncodeError as problem:
            raise SpecbookError(
                f"documents[{place}] is no text: {problem.reason}"
            ) from None
        if text:
            kept.append(text)
    if not kept:
        raise SpecbookError("no document holds any text")
    schema.check(kept, "sglang_corpus")
    # A token of a byte tokenizer is a byte or more, and a border stands between two.
    most = sum(len(text.encode("utf-8")) for text in kept) + len(kept) - 1
    notes = [f"{len(kept)} documents, at most {most:,} tokens with their borders."]
    flags = ""
    if most > CORPUS_TOKENS:
        flags = f" --speculative-ngram-external-corpus-max-tokens {most}"
        notes.append(
            f"SGLang refuses more than {CORPUS_TOKENS:,} tokens unless it is told to "
            "take them: the command does."
        )
    return Export(
        engine="sglang",
        what="corpus",
        schema="sglang_corpus",
        # ASCII: a line separator inside a document must not end its line.
        body="".join(json.dumps(text, ensure_ascii=True) + "\n" for text in kept),
        command=(
            f"{_LAUNCH} --speculative-algorithm NGRAM --speculative-num-draft-tokens "
            "12 --speculative-ngram-external-sam-budget 11 "
            f"--speculative-ngram-external-corpus-path <FILE>{flags}"
        ),
        inputs=made_from(inputs),
        notes=tuple(notes),
    )


def read_corpus(text: str) -> list[str]:
    """The documents in an exported corpus. Raises `SpecbookError` with the line."""
    found = []
    for number, told in enumerate(checks.text(text, "text").split("\n"), 1):
        if not told.strip():
            continue
        try:
            document = json.loads(told)
        except (ValueError, RecursionError) as problem:
            raise SpecbookError(f"line {number} is no JSON: {problem}") from None
        found.append(checks.text(document, f"line {number}"))
    schema.check(found, "sglang_corpus")
    return found
