"""`specbook bench decode`: is our decoding fast, and does prompt lookup pay?

Four systems decode the same prompts from the same weights in one process:
transformers greedy `generate`, its prompt lookup with its default settings, our plain
decoding and our prompt lookup. For every prompt they take turns, in an order that
rotates, so that a slow moment of the machine falls on all of them alike. All decode
greedily, so their tokens must agree; where they first differ, the gap of the two best
logits is reported, since only a tie to rounding excuses it.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from .. import checks, engine, prompts
from ..drafts.prompt_lookup import TUNED, PromptLookup
from ..errors import SpecbookError
from ..ledger import COST_TERMS
from .decode_report import SYSTEMS, DecodeReport, Difference, Sample, loop_tokens
from .report import save
from .row_cost import measure_row_cost
from .setup import MAX_NEW_TOKENS, Clock, Progress, Setup, machine, set_up

DTYPES = ("float32", "bfloat16")
UPSTREAM_CANDIDATES = 10
"""`prompt_lookup_num_tokens` has no default upstream; 10 is its generator's."""

LOOKUP = TUNED
"""Our lookup in this benchmark: that of `specbook decode`, tuned on the development
half only. Its cost table is measured before each run."""


@dataclass(frozen=True)
class Outcome:
    """What a system did with one prompt. `tokens` are the new ones."""

    tokens: list[int]
    rounds: int
    drafted: int | None = None
    accepted: int | None = None
    cost_terms: dict[str, float] | None = None


System = Callable[[list[int], int], Outcome]
"""Decodes prompt ids to at most so many new tokens."""


def run(
    target: str | os.PathLike[str] | None = None,
    *,
    workloads: Sequence[str] = prompts.WORKLOADS,
    half: str = "evaluation",
    prompts_per_workload: int | None = None,
    max_new_tokens: int = MAX_NEW_TOKENS,
    dtypes: Sequence[str] = DTYPES,
    repeats: int = 1,
    quick: bool = False,
    lookup: Mapping[str, Any] = LOOKUP,
    clock: str = "wall",
    out: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> DecodeReport:
    """Runs the benchmark and returns its report.

    `target`: a folder or hub id (default: the book's target). `workloads`, `half`,
    `prompts_per_workload` (the first so many; None for all) choose the prompts.
    `max_new_tokens`: the length of each answer unless its end comes first. `repeats`:
    runs of each prompt; their median counts. `quick`: two prompts a workload and 32
    tokens, to see that it works; nothing can be concluded from it. `lookup`: options
    of our `PromptLookup` that differ from `TUNED`. `clock`: "wall", or "cpu" for the
    processor time of this process, on a machine that others use too (set one thread
    then: waiting threads burn processor time). `out`: a folder for `decode.json`,
    `decode.md` and `decode.png`. `progress` is called with a line of text now and then.
    Raises `ValueError` for bad options, and for an `out` that is no folder or cannot be
    written to; both before anything is loaded.
    """
    lookup = _lookup_options(lookup)
    setup = set_up(
        target=target,
        workloads=workloads,
        half=half,
        prompts_per_workload=prompts_per_workload,
        max_new_tokens=max_new_tokens,
        dtypes=dtypes,
        repeats=repeats,
        quick=quick,
        clock=clock,
        out=out,
        progress=progress,
    )
    samples: list[Sample] = []
    differences: list[Difference] = []
    row_cost: dict[str, list[list[float]]] = {}
    about: dict[str, str] = {}
    for dtype in setup.dtypes:
        setup.tell(f"{dtype}: loading the target twice, for transformers and for us")
        ours, model = _load(target, dtype)
        about = ours.identity()
        setup.tell(f"{dtype}: measuring the cost of a forward by its rows")
        cost = measure_row_cost(ours, clock=setup.now)
        row_cost[dtype] = [list(pair) for pair in cost]
        tuned = PromptLookup.tuned(**{"cost": cost, **lookup})
        systems = {
            SYSTEMS[0]: transformers_system(model),
            SYSTEMS[1]: transformers_system(
                model, prompt_lookup_num_tokens=UPSTREAM_CANDIDATES
            ),
            SYSTEMS[2]: our_system(ours, None, clock=setup.now),
            SYSTEMS[3]: our_system(ours, tuned, clock=setup.now),
        }
        found = contest(setup, systems, setup.encoded(ours), dtype, model)
        samples += found[0]
        differences += found[1]
        del ours, model, systems
        gc.collect()
    report = DecodeReport(
        samples=tuple(samples),
        differences=tuple(differences),
        row_cost=row_cost,
        settings={
            "target": about,
            **setup.settings,
            "lookup": {**TUNED, **lookup},
            "transformers_lookup": {"prompt_lookup_num_tokens": UPSTREAM_CANDIDATES},
        },
        machine=machine(),
    )
    if setup.out is not None:
        save(report, setup.out)
    return report


def contest(
    setup: Setup,
    systems: Mapping[str, System],
    encoded: Sequence[tuple[prompts.Prompt, list[int]]],
    dtype: str,
    model: Any,
) -> tuple[list[Sample], list[Difference]]:
    """Warms every system up, then lets them take turns as `setup` says. `model`: of
    transformers, to tell the gap of the two best logits."""
    for system in systems.values():
        system(encoded[0][1][:64], 4)
    return compare(
        systems,
        encoded,
        dtype,
        setup.max_new_tokens,
        repeats=setup.repeats,
        gap=partial(top_two_gap, model),
        progress=setup.tell,
        clock=setup.now,
    )


def compare(
    systems: Mapping[str, System],
    encoded: Sequence[tuple[prompts.Prompt, list[int]]],
    dtype: str,
    max_new_tokens: int,
    *,
    repeats: int = 1,
    gap: Callable[[list[int]], float] | None = None,
    progress: Progress | None = None,
    clock: Clock = time.perf_counter,
) -> tuple[list[Sample], list[Difference]]:
    """Decodes every prompt with every system, taking turns.

    The first system is the reference for the tokens. `gap` gives the distance of the
    two best logits after some ids; without it differences carry none.
    """
    names = list(systems)
    samples: list[Sample] = []
    differences: list[Difference] = []
    for number, (prompt, ids) in enumerate(encoded):
        seconds: dict[str, list[float]] = {name: [] for name in names}
        outcomes: dict[str, Outcome] = {}
        for turn in range(repeats):
            first = (number + turn) % len(names)
            for name in names[first:] + names[:first]:
                start = clock()
                outcomes[name] = systems[name](ids, max_new_tokens)
                seconds[name].append(clock() - start)
        for name in names:
            samples.append(
                _sample(prompt, ids, dtype, name, outcomes[name], seconds[name])
            )
            found = first_difference(outcomes[names[0]].tokens, outcomes[name].tokens)
            if found is not None:
                position, expected, token = found
                before = ids + outcomes[names[0]].tokens[:position]
                differences.append(
                    Difference(
                        prompt_id=prompt.id,
                        dtype=dtype,
                        system=name,
                        position=position,
                        token=token,
                        expected=expected,
                        gap=None if gap is None else gap(before),
                    )
                )
        if progress is not None:
            times = ", ".join(f"{median(seconds[name]):.1f}" for name in names)
            progress(
                f"{dtype}: {prompt.id} ({number + 1} of {len(encoded)}): {times} s"
            )
    return samples, differences


def first_difference(
    expected: Sequence[int], tokens: Sequence[int]
) -> tuple[int, int | None, int | None] | None:
    """Position, expected token and token of the first difference; None if equal. A
    token is None where its sequence has ended."""
    for position in range(max(len(expected), len(tokens))):
        wanted = expected[position] if position < len(expected) else None
        found = tokens[position] if position < len(tokens) else None
        if wanted != found:
            return position, wanted, found
    return None


def our_system(target: Any, source: Any, *, clock: Clock = time.perf_counter) -> System:
    """Our engine, greedy, with `source` (None for plain decoding)."""

    def decode(ids: list[int], max_new_tokens: int) -> Outcome:
        result = engine.generate(
            target,
            ids,
            source,
            "greedy",
            max_new_tokens=max_new_tokens,
            eos_token_id=target.eos_token_id,
            clock=clock,
        )
        terms = result.ledger.as_dict()
        return Outcome(
            tokens=result.tokens,
            rounds=len(result.rounds),
            drafted=sum(len(r.tree) for r in result.rounds),
            accepted=sum(r.accepted for r in result.rounds),
            cost_terms={term: terms[term] for term in COST_TERMS},
        )

    return decode


def transformers_system(model: Any, **options: Any) -> System:
    """Greedy `generate` of transformers with further `options`. Its rounds are counted
    by a hook, since `generate` does not tell them."""
    import torch

    forwards = 0

    def count(*ignored: Any) -> None:
        nonlocal forwards
        forwards += 1

    def decode(ids: list[int], max_new_tokens: int) -> Outcome:
        nonlocal forwards
        forwards = 0
        hook = model.register_forward_hook(count)
        try:
            prompt = torch.tensor([ids], device=model.device)
            with torch.inference_mode():
                output = model.generate(
                    prompt,
                    attention_mask=torch.ones_like(prompt),
                    do_sample=False,
                    max_new_tokens=max_new_tokens,
                    **options,
                )
        finally:
            hook.remove()
        return Outcome(output[0, len(ids) :].tolist(), forwards)

    return decode


def top_two_gap(model: Any, ids: Sequence[int]) -> float:
    """The distance of the two largest logits after `ids`, by a plain forward."""
    import torch

    with torch.inference_mode():
        logits = model(torch.tensor([list(ids)], device=model.device)).logits[0, -1]
    best = torch.topk(logits.float(), 2).values
    return float(best[0] - best[1])


def _lookup_options(lookup: Any) -> dict[str, Any]:
    """`lookup`, tried out: a wrong option is told before an hour is spent."""
    if not isinstance(lookup, Mapping):
        raise SpecbookError(f"lookup must be a mapping of options, got {lookup!r}")
    PromptLookup.tuned(**{checks.text(k, "a lookup option"): lookup[k] for k in lookup})
    return dict(lookup)


def _load(target: str | os.PathLike[str] | None, dtype: str) -> tuple[Any, Any]:
    """Our target, and transformers' own model of the same weights."""
    from ..models.checkpoint import load_transformers_model
    from ..models.loading import load_target

    ours = load_target(target, dtype=dtype)
    assert ours.source is not None, "what was loaded by name has a source"
    return ours, load_transformers_model(ours.source, dtype=dtype)


def _sample(
    prompt: prompts.Prompt,
    ids: Sequence[int],
    dtype: str,
    system: str,
    outcome: Outcome,
    seconds: Sequence[float],
) -> Sample:
    return Sample(
        prompt_id=prompt.id,
        workload=prompt.workload,
        dtype=dtype,
        system=system,
        seconds=median(seconds),
        prompt_tokens=len(ids),
        new_tokens=len(outcome.tokens),
        rounds=outcome.rounds,
        loop_tokens=loop_tokens(outcome.tokens),
        drafted=outcome.drafted,
        accepted=outcome.accepted,
        cost_terms=outcome.cost_terms,
    )
