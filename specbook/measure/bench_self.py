"""`specbook bench self`: does a target that drafts for itself get anywhere?

Three systems decode every prompt in turns, greedily: plain decoding, Draft & Verify
with a searched vector of layers to skip, and Kangaroo with a trained adapter. Plain
decoding is the reference for the tokens. Beside the speed stands what decides it: what
a drafted token costs in target steps, timed apart and while decoding, against how often
one is accepted; and what the search for layers promised against what decoding gave.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from .. import checks, engine, paths, prompts
from ..errors import ArtifactError, SpecbookError
from ..policy import SamplingPolicy
from ..tree import CandidateTree
from .bench_decode import DTYPES, compare, our_system
from .bench_heads import top_two_gap
from .decode_report import Difference, Sample
from .plain_report import PLAIN
from .report import save
from .self_report import METHODS, Costs, Objective, SelfReport
from .setup import MAX_NEW_TOKENS, Progress, Setup, machine, set_up

TURNS, QUICK_TURNS = 9, 3
PREFIX = 256
"""Tokens before the rows whose cost is timed."""

LENGTHS = (1, 5)
"""Of the two drafts whose difference is what a further token costs."""


def run(
    target: str | os.PathLike[str] | None = None,
    *,
    methods: Sequence[str] | None = None,
    skip: str | os.PathLike[str] | None = None,
    adapter: str | os.PathLike[str] | None = None,
    workloads: Sequence[str] = prompts.WORKLOADS,
    half: str = "evaluation",
    prompts_per_workload: int | None = None,
    max_new_tokens: int = MAX_NEW_TOKENS,
    dtypes: Sequence[str] = DTYPES,
    repeats: int = 1,
    quick: bool = False,
    clock: str = "wall",
    out: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> SelfReport:
    """Runs the benchmark and returns its report.

    `methods`: of `METHODS`; None is both. `skip`, `adapter`: folders of the artifacts,
    by default those that are shipped. The others are those of `bench_decode.run`; `out`
    gets `self.json`, `self.md` and `self.png`. Raises `ValueError` for bad options, and
    `ArtifactError` for an artifact that is missing or damaged; both before a model is
    loaded.
    """
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
    stored = artifacts(methods, skip=skip, adapter=adapter)
    samples: list[Sample] = []
    differences: list[Difference] = []
    costs: list[Costs] = []
    objectives: list[Objective] = []
    about: dict[str, Any] = {}
    for dtype in setup.dtypes:
        setup.tell(f"{dtype}: loading the target")
        from ..models.loading import load_target

        ours = load_target(target, dtype=dtype)
        about = ours.identity()
        setup.tell(f"{dtype}: timing steps, the LM head and drafted tokens")
        turns = QUICK_TURNS if quick else TURNS
        costs.append(costs_of(ours, stored, dtype, turns=turns, clock=setup.now))
        if "draft_verify" in stored:
            objectives += promised(stored["draft_verify"], dtype)
        found = _decoded(setup, stored, ours, dtype)
        samples += found[0]
        differences += found[1]
        del ours
        gc.collect()
    report = SelfReport(
        samples=tuple(samples),
        differences=tuple(differences),
        costs=tuple(costs),
        objectives=tuple(objectives),
        settings={
            "target": about,
            **setup.settings,
            "methods": {
                name: source_of(name, stored[name]).identity() for name in stored
            },
        },
        machine=machine(),
    )
    if setup.out is not None:
        save(report, setup.out)
    return report


def artifacts(
    methods: Sequence[str] | None,
    *,
    skip: str | os.PathLike[str] | None = None,
    adapter: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """{method: its artifact, read and checked}. The arguments are those of `run`."""
    from ..drafts.neural import draft_verify, kangaroo
    from ..models import kangaroo_storage, skip_storage

    asked = (
        list(METHODS)
        if methods is None
        else checks.entries(methods, "methods", "names")
    )
    if not asked:
        raise SpecbookError("methods is empty: there is nothing to measure")
    for name in asked:
        checks.one_of(name, "method", METHODS)
    folders: dict[str, tuple[Any, tuple[str, ...], Callable[[Any], Any]]] = {
        "draft_verify": (skip, draft_verify.SHIPPED, skip_storage.read),
        "kangaroo": (adapter, kangaroo.SHIPPED, kangaroo_storage.read),
    }
    found: dict[str, Any] = {}
    for name in METHODS:
        if name not in asked:
            continue
        folder, shipped, read = folders[name]
        if folder is None:
            try:
                folder = paths.data_path(*shipped)
            except ArtifactError as error:
                raise ArtifactError(
                    f"no artifact of {name} is shipped with this specbook: name one"
                ) from error
        elif not isinstance(folder, (str, os.PathLike)):
            raise SpecbookError(
                f"the artifact of {name} must be a folder, got {folder!r}"
            )
        found[name] = read(Path(folder))
    return found


def source_of(method: str, stored: Any, *, most: int | None = None) -> Any:
    """The source of a method with an artifact that was read. With `most` it always
    drafts so many tokens, however unsure it is: for timing."""
    from ..drafts.neural.draft_verify import DraftVerify
    from ..drafts.neural.kangaroo import Kangaroo
    from ..drafts.stop_threshold import ThresholdPolicy

    checks.one_of(method, "method", METHODS)
    if method == "draft_verify":
        if most is None:
            return DraftVerify(stored)
        return DraftVerify(stored, most=most, policy=ThresholdPolicy(start=0))
    if most is None:
        return Kangaroo(stored)
    return Kangaroo(stored, most=most, threshold=0)


# --------------------------------------------------------------------------- one dtype


def costs_of(
    target: Any,
    stored: Mapping[str, Any],
    dtype: str,
    *,
    turns: int = TURNS,
    clock: Callable[[], float] = time.perf_counter,
) -> Costs:
    """Seconds of one row: a plain step, the LM head, and a drafted token of each method
    in `stored`; medians over `turns` in which they take turns. Raises `SpecbookError`
    for what is no target with hidden states, and for an unknown method."""
    import torch

    from ..models.protocol import checked_target

    checked_target(target, "hidden_width", "read_out", "config")
    for name in checks.instance(stored, "stored", Mapping):
        checks.one_of(name, "method", METHODS)
    checks.text(dtype, "dtype")
    checks.integer(turns, "turns", least=1)
    checks.function(clock, "clock")
    ids = [(7 * place) % target.vocab_size for place in range(PREFIX)]
    session = target.start(ids)
    empty = CandidateTree.from_paths([], PREFIX)
    _step(session, empty)
    after = CandidateTree.from_paths([], PREFIX + 1)
    row = torch.zeros((1, target.hidden_width))
    actions: dict[str, Callable[[], Any]] = {
        "step": lambda: session.verify(after).law(-1, SamplingPolicy()),
        "lm_head": lambda: target.read_out(row),
    }
    for name, artifact in stored.items():
        drafter = _joined(target, source_of(name, artifact, most=max(LENGTHS)), ids)
        for length in LENGTHS:
            actions[f"{name} {length}"] = partial(
                drafter.propose, max_depth=length, max_nodes=length
            )
    spent: dict[str, list[float]] = {name: [] for name in actions}
    for turn in range(turns + 1):
        for name, action in actions.items():
            begun = clock()
            action()
            if turn:  # the first turn fills caches and warms the machine up
                spent[name].append(clock() - begun)
    seconds = {name: median(found) for name, found in spent.items()}
    few, many = LENGTHS
    return Costs(
        dtype,
        seconds["step"],
        seconds["lm_head"],
        int(target.config.num_hidden_layers),
        {
            name: max(0.0, seconds[f"{name} {many}"] - seconds[f"{name} {few}"])
            / (many - few)
            for name in stored
        },
        {name: runs_of(name, artifact) for name, artifact in stored.items()},
    )


def promised(stored: Any, dtype: str) -> list[Objective]:
    """What the search for a skip vector promised in this dtype, over plain decoding; []
    where it was made in another one, or says nothing."""
    checks.text(dtype, "dtype")
    value, plain = (stored.choice.get(name) for name in ("value", "plain"))
    settings, on = (stored.manifest.get(name) for name in ("settings", "machine"))
    searched_in = settings.get("dtype") if isinstance(settings, Mapping) else None
    if searched_in != dtype or not value or not plain:
        return []
    value, plain = (
        checks.float64(one, f"{name} of the search")
        for one, name in ((value, "value"), (plain, "plain"))
    )
    line = on.get("line", "") if isinstance(on, Mapping) else ""
    return [Objective(dtype, value / plain, str(line))]


def runs_of(method: str, stored: Any) -> str:
    """What of the target runs for a drafted token, in words."""
    if method == "draft_verify":
        vector = stored.vector
        kept = [
            sum(not skipped for skipped in part)
            for part in (vector.attention, vector.mlp)
        ]
        return (
            f"{kept[0]} of {len(vector.attention)} attentions, {kept[1]} of "
            f"{len(vector.mlp)} MLPs, the LM head"
        )
    head = "the LM head"
    if stored.vocabulary is not None:
        head = f"{len(stored.vocabulary)} rows of the LM head"
    layers = "1 layer" if stored.boundary == 1 else f"{stored.boundary} layers"
    return f"{layers}, the adapter, {head}"


def _step(session: Any, tree: CandidateTree) -> int:
    """One greedy step without candidates; its token, which is committed."""
    rows = session.verify(tree)
    token = int(rows.law(-1, SamplingPolicy(0.0)).argmax())
    session.commit([], token)
    return token


def _joined(target: Any, source: Any, ids: list[int]) -> Any:
    """A drafter in its second round, when it has rows of the prompt to draft from."""
    fitted = engine.fitted_target(target, source)
    source.check_target(fitted)
    session = fitted.start(ids)
    drafter = source.start(
        ids, vocab_size=target.vocab_size, policy=SamplingPolicy(0.0)
    )
    drafter.join(session)
    drafter.propose(max_depth=1, max_nodes=1)
    drafter.commit([_step(session, CandidateTree.from_paths([], len(ids)))])
    return drafter


def _decoded(
    setup: Setup, stored: Mapping[str, Any], ours: Any, dtype: str
) -> tuple[list[Sample], list[Difference]]:
    systems = {PLAIN: our_system(ours, None, clock=setup.now)}
    for name, artifact in stored.items():
        systems[name] = our_system(ours, source_of(name, artifact), clock=setup.now)
    encoded = setup.encoded(ours)
    for decode in systems.values():
        decode(encoded[0][1][:64], 4)  # warm
    return compare(
        systems,
        encoded,
        dtype,
        setup.max_new_tokens,
        repeats=setup.repeats,
        gap=partial(top_two_gap, ours),
        progress=setup.tell,
        clock=setup.now,
    )
