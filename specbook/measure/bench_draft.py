"""Is a draft model worth its forwards, and is ours faster than transformers' own?

Five systems decode the same prompts greedily, from the same two checkpoints, in one
process: transformers `generate` alone and with `assistant_model=`, our plain decoding,
our draft model and our staged one. They take turns as in `bench_decode`. transformers
runs with its defaults for assisted generation (up to 20 drafted tokens, stopped by its
confidence threshold); ours with `draft_model.TUNED`. Both verify greedily, so all
tokens must agree.

Acceptance by depth is measured apart, with drafts of one length and no stop: greedy,
and at temperature 0.7 with the rule for one draft (`single`).
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from .. import checks, engine, prompts
from ..drafts.neural.draft_model import SHIPPED, TUNED, TUNED_BY, DraftModel
from ..drafts.neural.staged import Staged
from ..errors import SpecbookError
from ..models.table import TableTarget
from ..paths import data_path
from .bench_decode import compare, contest, our_system, transformers_system
from .decode_report import Difference, Sample, speed_ratio
from .draft_report import SYSTEMS, Depth, DraftReport, by_depth
from .report import Ratio, save
from .setup import MAX_NEW_TOKENS, Clock, Progress, machine, set_up

DEPTHS = 6
"""Length of the drafts on which acceptance by depth is counted."""

TEMPERATURES = (0.0, 0.7)

ASSISTED = (
    "num_assistant_tokens",
    "num_assistant_tokens_schedule",
    "assistant_confidence_threshold",
)
"""The settings of assisted generation that the report names."""


def run(
    target: str | os.PathLike[str] | None = None,
    draft: str | os.PathLike[str] | None = None,
    *,
    workloads: Sequence[str] = prompts.WORKLOADS,
    half: str = "evaluation",
    prompts_per_workload: int | None = None,
    max_new_tokens: int = MAX_NEW_TOKENS,
    dtypes: Sequence[str] = ("float32",),
    repeats: int = 1,
    depths: int = DEPTHS,
    options: Mapping[str, Any] | None = None,
    quick: bool = False,
    clock: str = "wall",
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> DraftReport:
    """Runs the benchmark and returns its report.

    `target`, `draft`: folders or hub ids of two checkpoints with one vocabulary
    (default: the book's target and the draft model that is shipped for it). `options`:
    those of our `DraftModel` that differ from `TUNED`. `depths`: length of the drafts
    on which acceptance by depth is counted; 0 leaves that out. `seed`: of the draws at
    temperature 0.7. The others are those of `bench_decode.run`; `out` gets
    `draft.json`, `draft.md` and `draft.png`.
    Raises `ValueError` for bad options, before anything is loaded.
    """
    checks.integer(depths, "depths", least=0)
    checks.integer(seed, "seed", least=0)
    changes = _checked_options(options or {})
    setup = set_up(
        target=target,
        draft=draft,
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
    if draft is None:
        draft = data_path(*SHIPPED)
    samples: list[Sample] = []
    differences: list[Difference] = []
    counted: list[Depth] = []
    about: dict[str, Any] = {}
    for dtype in setup.dtypes:
        setup.tell(f"{dtype}: loading both checkpoints, for transformers and for us")
        ours, drafter, model, assistant = load(target, draft, dtype)
        source = DraftModel.tuned(drafter, **changes)
        source.check_target(ours)
        about = {
            "target": ours.identity(),
            "draft": drafter.identity(),
            "transformers_assisted": assisted_settings(assistant),
        }
        encoded = setup.encoded(ours)
        systems = systems_of(ours, model, assistant, source, clock=setup.now)
        found = contest(setup, systems, encoded, dtype, model)
        samples += found[0]
        differences += found[1]
        del model, assistant, systems
        gc.collect()
        if depths:
            counted += acceptance(
                ours,
                DraftModel(drafter, widths=(1,) * depths),
                encoded,
                dtype=dtype,
                max_new_tokens=setup.max_new_tokens,
                seed=seed,
                progress=setup.tell,
            )
        del ours, drafter, source
        gc.collect()
    report = DraftReport(
        samples=tuple(samples),
        differences=tuple(differences),
        depths=tuple(counted),
        settings={
            **about,
            **setup.settings,
            "seed": seed,
            "depths": depths,
            "options": {k: str(v) for k, v in {**TUNED, **changes}.items()},
            "chosen": _chosen_by(changes, half),
        },
        machine=machine(),
    )
    if setup.out is not None:
        save(report, setup.out)
    return report


def systems_of(
    target: Any,
    model: Any,
    assistant: Any,
    source: DraftModel,
    *,
    clock: Clock = time.perf_counter,
) -> dict[str, Any]:
    """The five systems by name. `target` and the model of `source` are ours; `model`
    and `assistant` are transformers' own models of the same two checkpoints."""
    return dict(
        zip(
            SYSTEMS,
            (
                transformers_system(model),
                transformers_system(model, assistant_model=assistant),
                our_system(target, None, clock=clock),
                our_system(target, source, clock=clock),
                our_system(target, Staged(source), clock=clock),
            ),
            strict=True,
        )
    )


def sweep(
    target: Any,
    drafter: Any,
    grid: Sequence[Mapping[str, Any]],
    encoded: Sequence[tuple[prompts.Prompt, list[int]]],
    *,
    dtype: str = "float32",
    max_new_tokens: int = MAX_NEW_TOKENS,
    progress: Progress | None = None,
    clock: Clock = time.perf_counter,
) -> list[tuple[Mapping[str, Any], Ratio]]:
    """How many times as fast as plain decoding each set of options in `grid` is, best
    first: greedy, all taking turns on every prompt. For choosing options, so on
    prompts of the development half. `target`, `drafter`: two of our targets."""
    checks.entries(grid, "grid", "mappings of options")
    systems = {"plain": our_system(target, None, clock=clock)}
    for number, options in enumerate(grid):
        source = DraftModel.tuned(drafter, **_checked_options(options))
        systems[str(number)] = our_system(target, source, clock=clock)
    samples, _ = compare(
        systems, encoded, dtype, max_new_tokens, progress=progress, clock=clock
    )
    plain = [s for s in samples if s.system == "plain"]
    found = []
    for number, options in enumerate(grid):
        ratio = speed_ratio([s for s in samples if s.system == str(number)], plain)
        assert ratio is not None, "every prompt was decoded"
        found.append((options, ratio))
    return sorted(found, key=lambda pair: -pair[1].value)


def acceptance(
    target: Any,
    source: DraftModel,
    encoded: Sequence[tuple[prompts.Prompt, list[int]]],
    *,
    dtype: str,
    max_new_tokens: int,
    temperatures: Sequence[float] = TEMPERATURES,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[Depth]:
    """Acceptance by depth of a chain source on prompts: greedy at temperature 0, by the
    rule for one draft above it. One seeded sampler a prompt."""
    if not source.is_chain:
        raise SpecbookError("acceptance by depth is counted on chains")
    found: list[Depth] = []
    for temperature in temperatures:
        rounds: dict[str, list[engine.Round]] = {}
        for number, (prompt, ids) in enumerate(encoded):
            result = engine.generate(
                target,
                ids,
                source,
                "greedy" if temperature == 0 else "single",
                max_new_tokens=max_new_tokens,
                temperature=temperature,
                seed=seed + number,
                eos_token_id=target.eos_token_id,
            )
            rounds.setdefault(prompt.workload, []).extend(result.rounds)
        for workload, done in rounds.items():
            found += by_depth(
                done, dtype=dtype, workload=workload, temperature=temperature
            )
        if progress is not None:
            progress(f"{dtype}: acceptance at temperature {temperature:g} counted")
    return found


def assisted_settings(assistant: Any) -> dict[str, Any]:
    """What `generate` will take from the assistant's own configuration, with the
    library's defaults where that says nothing."""
    config = assistant.generation_config
    defaults = config._get_default_generation_params()
    return {
        name: value
        if (value := getattr(config, name, None)) is not None
        else defaults.get(name)
        for name in ASSISTED
    }


def _checked_options(options: Any) -> dict[str, Any]:
    """`options`, tried out: a wrong one is told before an hour is spent."""
    if not isinstance(options, Mapping):
        raise SpecbookError(f"options must be a mapping, got {options!r}")
    changes = {checks.text(k, "an option"): v for k, v in options.items()}
    DraftModel.tuned(TableTarget(lambda prefix: [1], vocab_size=1), **changes)
    return changes


def _chosen_by(changes: Mapping[str, Any], half: str) -> str:
    if {**TUNED, **changes} != TUNED:
        return "the caller's choice"
    measured = half == "development" and "development" in TUNED_BY
    return TUNED_BY + (", which was measured here" if measured else "")


def load(
    target: str | os.PathLike[str] | None, draft: str | os.PathLike[str], dtype: str
) -> tuple[Any, Any, Any, Any]:
    """Our two models, and transformers' own of the same weights: target, draft, model,
    assistant."""
    from ..models.checkpoint import load_transformers_model
    from ..models.loading import load_target

    ours, drafter = load_target(target, dtype=dtype), load_target(draft, dtype=dtype)
    assert ours.source is not None, "what was loaded by name has a source"
    model = load_transformers_model(ours.source, dtype=dtype)
    assistant = load_transformers_model(draft, dtype=dtype)
    return ours, drafter, model, assistant
