"""Whatever is handed to advice and export, it works or says so by name.

Every argument of every public function is replaced by every hostile value in turn, as
in `tests.core.test_hostile`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from specbook.advice import (
    Constraints,
    Estimate,
    advise,
    answer,
    flips,
    guide,
    measured,
    predicted,
    regret,
    sweep,
)
from specbook.advice.constraints import refusals
from specbook.advice.needs import needs_of
from specbook.drafts.prompt_lookup import PromptLookup
from specbook.export import (
    arguments,
    choices,
    llama_cpp,
    rates,
    schedule,
    schema,
    sglang,
    sources,
    vllm,
)
from specbook.export.artifact import Export
from specbook.measure import recording
from specbook.measure.frontier_data import PLAIN
from specbook.measure.verify_report import shipped
from specbook.topologies.progress import shape_of
from tests.advice.making import CHAIN, LOOKUP, plain, several
from tests.core.test_hostile import HOSTILE, check_says_so
from tests.export.making import counts, times
from tests.measure.frontiers import frontier

ESTIMATE = {
    "configuration": LOOKUP,
    "tokens": 2,
    "draft": 0.5,
    "verify": 1.0,
    "rest": 0.1,
    "extra_bytes": 3,
    "how": "assumed",
    "basis": "",
    "worlds": [1.0, 2.0],
}
RUNS = {
    PLAIN: [measured.Run("a", 2, 2, 2.0, 0.0, 2.0)],
    LOOKUP: [measured.Run("a", 2, 1, 1.0, 0.0, 1.0)],
}
PROFILE = times({1: {1: 1.0, 2: 1.5, 4: 2.0}, 2: {1: 1.0, 2: 2.0}})
COUNTS = counts((9, 6), (6, 3), source="draft_model children=top_k")
ROWS = predicted.Rows(PROFILE, worlds=5)
BY_HAND = recording.Recording.of([([1, 2, 3, 1, 2], [3, 1, 2, 3])])
BATCHES = [schedule.BatchChoice(1, {0: 1.0, 1: 1.5})]
MADE = vllm.ngram(PromptLookup(policy="transformers", length="fixed"))
ADVICE = advise(several())

CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "Estimate": (Estimate, ESTIMATE),
    "changed": (several()[3].changed, {"tokens": 2, "draft": 2, "verify": 2}),
    "Constraints": (
        Constraints,
        {
            "exact": True,
            "extra_bytes": 1,
            "datastore": True,
            "fixed_rows": True,
            "temperature": 0.5,
            "speedup": 1,
        },
    ),
    "refusals": (refusals, {"estimate": plain(), "constraints": Constraints()}),
    "needs_of": (needs_of, {"one": LOOKUP}),
    "advise": (advise, {"estimates": several(), "constraints": Constraints()}),
    "constraint_flips": (
        flips.constraint_flips,
        {"estimates": several(), "constraints": Constraints()},
    ),
    "nearest_flips": (
        flips.nearest_flips,
        {"estimates": several(), "advice": ADVICE},
    ),
    "Situation": (
        guide.Situation,
        {"estimates": several(), "constraints": Constraints(), "times": {1: 1, 2: 2}},
    ),
    "answers": (
        guide.answers,
        {"here": guide.Situation(several(), Constraints(), {1: 1})},
    ),
    "Run": (
        measured.Run,
        {
            "prompt": "a",
            "tokens": 2,
            "rounds": 2,
            "seconds": 1.0,
            "draft": 0.1,
            "verify": 0.2,
        },
    ),
    "estimates_of": (
        measured.estimates_of,
        {
            "runs": RUNS,
            "extra_bytes": {LOOKUP: 1},
            "basis": "x",
            "how": "measured",
            "worlds": 3,
            "seed": 0,
        },
    ),
    "from_frontier": (
        measured.from_frontier,
        {
            "file": frontier(),
            "workload": "edit",
            "dtype": "float32",
            "temperature": 0.0,
            "prompts": ["edit-1"],
            "worlds": 3,
        },
    ),
    "Rows": (
        predicted.Rows,
        {
            "profile": PROFILE,
            "batch": 1,
            "prefix": 64,
            "shape": "chain",
            "worlds": 3,
            "seed": 0,
        },
    ),
    "replayed": (
        predicted.replayed,
        {
            "name": "prompt_lookup",
            "source": PromptLookup(),
            "recorded": BY_HAND,
            "rows": ROWS,
            "most": 2,
            "extra_bytes": 0,
        },
    ),
    "planned": (
        predicted.planned,
        {
            "counts": COUNTS,
            "rows": ROWS,
            "levels": [0.1, 0.2],
            "workload": "chat",
            "max_depth": 2,
            "extra_bytes": 1,
        },
    ),
    "regret": (
        regret.regret,
        {"workload": "a", "advised": LOOKUP, "measured": several()},
    ),
    "sources": (
        sweep.sources,
        {"estimates": several(), "drafting": [1, 2], "gains": [1]},
    ),
    "changed by": (sweep.changed, {"one": several()[3], "draft": 2, "gain": 2}),
    "manifest": (
        answer.manifest,
        {
            "advice": ADVICE,
            "flips": [],
            "settings": {"a": 1},
            "machine": {"a": 1},
            "inputs": {"a": "00"},
            "here": None,
        },
    ),
    "lines": (answer.lines, {"advice": ADVICE}),
    "load": (answer.load, {"path": "there is none"}),
    "Export": (
        Export,
        {
            "engine": "vllm",
            "what": "ngram",
            "schema": "vllm",
            "body": "{}",
            "command": "x",
            "inputs": {"a": "00"},
            "notes": ("a",),
        },
    ),
    "line": (arguments.line, {"options": {"a": 1}}),
    "parse": (arguments.parse, {"text": "--spec-type draft-mtp", "name": "llama_cpp"}),
    "schema.check": (schema.check, {"value": [[0]], "name": "paths"}),
    "choices_of": (choices.choices_of, {"shape": shape_of([-1], [0])}),
    "shape_from_choices": (choices.shape_from_choices, {"paths": [[0]]}),
    "export_tree": (
        choices.export_tree,
        {"shape": shape_of([-1], [0]), "kind": "medusa", "heads": 2, "inputs": {}},
    ),
    "import_tree": (choices.import_tree, {"text": "[[0]]"}),
    "llama_cpp.check": (
        llama_cpp.check,
        {"options": {"spec-type": "draft-mtp"}},
    ),
    "llama_cpp.rates": (
        llama_cpp.rates,
        {
            "values": [0.5],
            "spec_type": "draft-simple",
            "draft_model": "m",
            "inputs": {},
        },
    ),
    "chain_rates": (rates.chain_rates, {"observed": COUNTS.observed(), "length": 2}),
    "of_a_tree": (rates.of_a_tree, {"observed": COUNTS.observed()}),
    "unconditional": (rates.unconditional, {"rates": [0.5, 1]}),
    "acceptance_rows": (rates.acceptance_rows, {"rates": [0.5, 0.25]}),
    "BatchChoice": (schedule.BatchChoice, {"batch": 1, "speedups": {0: 1.0}}),
    "choose_lengths": (
        schedule.choose_lengths,
        {
            "rates": [0.5, 0.25],
            "times": PROFILE,
            "draft_seconds": 0.1,
            "prefix": 64,
            "longest": 2,
        },
    ),
    "ranges": (schedule.ranges, {"choices": BATCHES}),
    "first_prefix": (schedule.first_prefix, {"times": PROFILE}),
    "adaptive": (
        sglang.adaptive,
        {
            "choices": BATCHES,
            "draft_model": "m",
            "algorithm": "EAGLE",
            "within": 0.1,
            "inputs": {},
        },
    ),
    "sglang.ngram": (
        sglang.ngram,
        {"source": PromptLookup(length="fixed"), "corpus": "c", "corpus_nodes": 1},
    ),
    "corpus": (sglang.corpus, {"documents": ["a"], "inputs": {}}),
    "read_corpus": (sglang.read_corpus, {"text": '"a"\n'}),
    "described": (sources.described, {"name": "suffix", "options": {"threshold": 2}}),
    "vllm.check": (
        vllm.check,
        {"settings": {"method": "ngram", "num_speculative_tokens": 2}},
    ),
    "with_rates": (
        vllm.with_rates,
        {"base": {"method": "ngram"}, "rates": [0.5], "inputs": {}},
    ),
    "with_schedule": (
        vllm.with_schedule,
        {"base": {"method": "ngram"}, "choices": BATCHES, "inputs": {}},
    ),
    "vllm.suffix": (
        vllm.suffix,
        {"source": PromptLookup(), "max_tree_depth": 3, "min_token_prob": 0.5},
    ),
    "custom": (vllm.custom, {"source_file": "s", "length": 2, "inputs": {}}),
}
NEVER_GOOD = {"load", "vllm.suffix"}
"""What is handed over is refused for another reason: only the error's kind counts."""

LEFT_OUT = {
    (name, argument, label)
    for name, argument in (
        ("estimates_of", "worlds"),
        ("from_frontier", "worlds"),
        ("Rows", "worlds"),
    )
    for label in ("10**30", "10**400")
}
"""So many worlds are asked for, and no memory holds them."""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", CALLS)
def test_hostile_values_work_or_are_refused_by_name(name: str) -> None:
    call, good = CALLS[name]
    if name not in NEVER_GOOD:
        call(**good)
    for argument in good:
        for label, value in HOSTILE.items():
            if (name, argument, label) in LEFT_OUT:
                continue
            try:
                check_says_so(call, {**good, argument: value})
            except AssertionError as error:
                raise AssertionError(f"{argument} = {label}: {error}") from error


def test_configurations_that_are_planned_or_copied_have_prices():
    """The stand-ins above are what the package works with."""
    assert needs_of(CHAIN).fixed_rows and not needs_of(LOOKUP).fixed_rows
    assert ADVICE.best.configuration == LOOKUP
    assert MADE.what == "ngram" and shipped()
