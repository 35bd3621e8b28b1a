"""`specbook bench heads`: what draft heads are worth on this machine.

For every kind whose artifact is there, greedily, on prompts that nothing was tuned on:

- how often its heads say what the target says, by depth, and whether q can be believed;
- tokens a round with one tree that all kinds share, so that only the heads differ;
- speed over plain decoding with the tree that suits the kind and this machine, chosen
  from acceptance on the development half, the measured time of a verification by its
  rows, and the measured stages of its drafts;
- where the time of a round goes, and which kind wins at which tree size.

All systems of one dtype decode every prompt in turns, in an order that rotates
(`bench_decode.compare`). Plain decoding is the reference for the tokens: in float32
every answer must equal it, in bfloat16 the gap of the two best logits is reported where
one does not.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .. import checks, drafts, paths, prompts
from ..drafts.neural.heads import SHIPPED, HeadsSource
from ..errors import ArtifactError, SpecbookError
from ..models.heads import KINDS, storage
from ..policy import SamplingPolicy
from ..topologies.hardware import Times, choose
from ..topologies.progress import PlannedTree, expected_progress
from ..topologies.sequoia import solve
from ..training import artifact
from ..tree import CandidateTree
from .bench_decode import DTYPES, Outcome, System, compare, our_system
from .decode_report import Difference, Sample
from .head_costs import stage_costs
from .head_ranks import SLOTS, accepted, agreement, plain_answers, rank_answers
from .heads_report import OWN, PLAIN, SHARED, Agreement, HeadsReport, Measured, Planned
from .heads_report import system as system_name
from .recording import RecordedOutput
from .report import save
from .setup import (
    MAX_NEW_TOKENS,
    Progress,
    Setup,
    check_same_machine,
    machine,
    set_up,
)
from .verify_report import VerifyProfile
from .verify_time import Grid, measure_verify_time

NODES = 16
"""Rows of the shared tree, the root included."""

CALIBRATION = 4
"""Prompts a workload of the development half that trees are chosen by."""

CALIBRATION_TOKENS = 64
"""New tokens of their answers."""

MOST_NODES = 64
"""Rows of the largest own tree; the engine's own limit is 64 candidates."""

GRID = Grid(
    nodes=(1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64),
    prefixes=(256,),
    shapes=("sequoia",),
    batches=(),
)
QUICK_TURNS = 3


@dataclass(frozen=True)
class _Plans:
    """What is asked for beside the prompts."""

    folders: Mapping[str, Path]
    nodes: int
    tree_of: str | None
    calibration: int
    times: Mapping[str, VerifyProfile]
    grid: Grid
    turns: int


@dataclass
class _Found:
    """What is measured so far."""

    samples: list[Sample]
    differences: list[Difference]
    agreements: list[Agreement]
    trees: list[Planned]
    measured: list[Measured]
    verify: dict[str, list[list[float]]]
    shared: CandidateTree | None = None
    tree_of: str = ""


def run(
    target: str | os.PathLike[str] | None = None,
    *,
    heads: Sequence[str] | None = None,
    folder: str | os.PathLike[str] | None = None,
    workloads: Sequence[str] = prompts.WORKLOADS,
    half: str = "evaluation",
    prompts_per_workload: int | None = None,
    max_new_tokens: int = MAX_NEW_TOKENS,
    dtypes: Sequence[str] = DTYPES,
    repeats: int = 1,
    nodes: int = NODES,
    tree_of: str | None = None,
    calibration: int = CALIBRATION,
    times: Sequence[str | os.PathLike[str]] = (),
    grid: Grid = GRID,
    quick: bool = False,
    clock: str = "wall",
    out: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> HeadsReport:
    """Runs the benchmark and returns its report.

    `heads`: kinds; None is every kind that `folder` has. `folder`: holds a folder of
    each kind, by default those that are shipped. `nodes`: rows of the shared tree, root
    included; it is planned with the acceptance of the kind `tree_of`, by default of the
    one that it promises most for. `calibration`: prompts a workload of the development
    half for acceptance. `times`: files of `measure verify-time`, at most one a dtype
    and of this machine; without one t(n) is measured on `grid`. The others are those of
    `bench_decode.run`; `out` gets `heads.json`, `heads.md` and `heads.png`.
    Raises `ValueError` for bad options and `ArtifactError` for heads that are missing
    or damaged, before a model is loaded.
    """
    checks.integer(nodes, "nodes", least=2, most=MOST_NODES)
    checks.integer(calibration, "calibration", least=1)
    if not isinstance(grid, Grid):
        raise SpecbookError(f"grid must be a Grid, got {grid!r}")
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
    folders = artifacts(heads, folder)
    if tree_of is not None:
        checks.one_of(tree_of, "tree_of", list(folders))
    plans = _Plans(
        folders,
        nodes,
        tree_of,
        min(calibration, 2) if quick else calibration,
        _profiles(times, setup.dtypes),
        replace(grid, turns=QUICK_TURNS) if quick else grid,
        QUICK_TURNS if quick else grid.turns,
    )
    found = _Found([], [], [], [], [], {})
    about: dict[str, Any] = {}
    for dtype in setup.dtypes:
        setup.tell(f"{dtype}: loading the target")
        ours = load(target, dtype)
        about = ours.identity()
        _one_dtype(setup, plans, ours, dtype, found)
        del ours
        gc.collect()
    report = HeadsReport(
        samples=tuple(found.samples),
        differences=tuple(found.differences),
        agreements=tuple(found.agreements),
        trees=tuple(found.trees),
        measured=tuple(found.measured),
        verify=found.verify,
        settings={
            "target": about,
            **setup.settings,
            "heads": {kind: _told(folders[kind]) for kind in folders},
            "nodes": nodes,
            "tree_of": found.tree_of,
            "calibration": plans.calibration,
            "times": sorted(plans.times),
        },
        machine=machine(),
    )
    if setup.out is not None:
        save(report, setup.out)
    return report


def artifacts(
    heads: Sequence[str] | None, folder: str | os.PathLike[str] | None
) -> dict[str, Path]:
    """{kind: folder of its artifact}, each checked against its manifest.

    `heads`, `folder` as for `run`. Raises `ArtifactError` for what is missing or
    damaged, and where there is none at all."""
    if folder is not None and not isinstance(folder, (str, os.PathLike)):
        raise SpecbookError(f"folder must be a folder, got {folder!r}")
    asked = None if heads is None else checks.entries(heads, "heads", "kinds")
    for kind in asked or ():
        checks.one_of(kind, "kind of heads", KINDS)
    if asked is not None and not asked:
        raise SpecbookError("heads is empty: there is nothing to measure")
    try:
        root = paths.data_path(SHIPPED) if folder is None else Path(folder)
    except ArtifactError as error:
        raise ArtifactError(
            "no draft heads are shipped with this specbook; name a folder of artifacts"
        ) from error
    names = dict.fromkeys(
        asked or [kind for kind in KINDS if (root / kind / artifact.MANIFEST).is_file()]
    )
    if not names:
        raise ArtifactError(f"{root} has no folder of {', '.join(KINDS)} heads")
    for kind in names:
        artifact.load_manifest(root / kind)
    return {kind: root / kind for kind in names}


def _profiles(times: Any, dtypes: Sequence[str]) -> dict[str, VerifyProfile]:
    """{dtype: profile} of files that were measured on this machine."""
    found: dict[str, VerifyProfile] = {}
    listed = checks.entries(times, "times", "files")
    here = machine() if listed else {}
    for path in listed:
        if not isinstance(path, (str, os.PathLike)):
            raise SpecbookError(f"times must be files, got {path!r}")
        profile = VerifyProfile.load(Path(path))
        dtype = profile.settings.get("dtype")
        if dtype not in dtypes or dtype in found:
            why = "twice" if dtype in found else f"not asked for, but {list(dtypes)}"
            raise SpecbookError(f"{path} is of dtype {dtype}, which is {why}")
        check_same_machine(profile.machine, here, path)
        profile.times()  # raises where the runtime was not timed
        found[str(dtype)] = profile
    return found


def load(target: str | os.PathLike[str] | None, dtype: str) -> Any:
    """The target."""
    from ..models.loading import load_target

    return load_target(target, dtype=dtype)


def _told(folder: Path) -> str:
    """What the manifest says of an artifact, in a line."""
    manifest = artifact.load_manifest(folder)
    number = manifest.get("parameters")
    size = f"{number:,} parameters, " if isinstance(number, int) else ""
    digest = str(manifest["files"].get(storage.WEIGHTS))[:12]
    return f"{manifest['name']}, {size}sha256 of the weights {digest}..."


# --------------------------------------------------------------------------- one dtype


def _one_dtype(
    setup: Setup, plans: _Plans, ours: Any, dtype: str, found: _Found
) -> None:
    """Measures everything in one dtype and adds it to `found`."""
    stored = {kind: storage.read(path) for kind, path in plans.folders.items()}
    sources = {kind: source_of(kind, one) for kind, one in stored.items()}
    for source in sources.values():
        source.check_target(ours)
    setup.tell(f"{dtype}: timing verifications by their rows")
    times = _times(setup, plans, ours, dtype)
    medians = np.median(times.verify, axis=0).tolist()
    found.verify[dtype] = [
        [float(n), seconds]
        for n, seconds in sorted(zip(times.nodes, medians, strict=True))
        if n <= MOST_NODES
    ]
    setup.tell(f"{dtype}: counting acceptance on the development half")
    developed = _developed(setup, plans, ours)
    for kind, source in sources.items():
        ranked = rank_answers(ours, source, developed, max_new_tokens=_tokens(setup))
        rows = accepted(ours, source, ranked, slots=SLOTS, about_machine={})
        slots = tuple(map(tuple, rows.observed().acceptance()))
        setup.tell(f"{dtype}: timing the stages of {kind}")
        costs = stage_costs(
            source,
            ours,
            prefix=plans.grid.prefixes[0],
            turns=plans.turns,
            clock=setup.now,
        )
        found.measured.append(Measured(dtype, kind, slots, costs))
    measured = {one.kind: one for one in found.measured if one.dtype == dtype}
    first = found.shared is None
    if first:
        found.tree_of, found.shared = shared_tree(
            {kind: one.acceptance for kind, one in measured.items()},
            plans.nodes,
            plans.tree_of,
        )
    planned = []
    for one in measured.values():
        if first:
            assert found.shared is not None
            planned.append(_shared(one, found.shared, times))
        if (chosen := own_tree(one, times)) is not None:
            planned.append(chosen)
    found.trees += planned
    answers: dict[tuple[int, ...], list[int]] = {}
    systems = {
        PLAIN: _kept(our_system(ours, None, clock=setup.now), answers),
        **{
            system_name(item.kind, item.use): our_system(
                ours,
                source_of(item.kind, stored[item.kind], item.shape()),
                clock=setup.now,
            )
            for item in planned
        },
    }
    encoded = setup.encoded(ours)
    for decode in systems.values():
        decode(encoded[0][1][:64], 4)  # warm
    samples, differences = compare(
        systems,
        encoded,
        dtype,
        setup.max_new_tokens,
        repeats=setup.repeats,
        gap=partial(top_two_gap, ours),
        progress=setup.tell,
        clock=setup.now,
    )
    found.samples += samples
    found.differences += differences
    if first:
        setup.tell(f"{dtype}: agreement along the answers")
        said = [
            _recorded(ours, prompt, ids, answers[tuple(ids)]) for prompt, ids in encoded
        ]
        for kind, source in sources.items():
            ranked = rank_answers(
                ours, source, said, max_new_tokens=setup.max_new_tokens
            )
            found.agreements += agreements(kind, ranked)


def _times(setup: Setup, plans: _Plans, ours: Any, dtype: str) -> Times:
    profile = plans.times.get(dtype)
    if profile is None:
        profile = measure_verify_time(ours, plans.grid, machine={}, clock=setup.now)
    elif profile.settings.get("target") != ours.identity()["checkpoint"]:
        raise SpecbookError(
            f"the {dtype} profile is of {profile.settings.get('target')}, the target "
            f"is {ours.identity()['checkpoint']}"
        )
    return profile.times()


def _developed(setup: Setup, plans: _Plans, ours: Any) -> list[RecordedOutput]:
    """The target's answers to the first development prompts of each workload."""
    listed = [
        prompt
        for workload in dict.fromkeys(prompt.workload for prompt in setup.chosen)
        for prompt in prompts.load(workload, "development")[: plans.calibration]
    ]
    asked = replace(setup, chosen=tuple(listed)).encoded(ours)
    return plain_answers(
        ours,
        [(prompt.workload, prompt.id, ids) for prompt, ids in asked],
        _tokens(setup),
    )


def _tokens(setup: Setup) -> int:
    """Of an answer to a development prompt, at most."""
    return min(CALIBRATION_TOKENS, setup.max_new_tokens)


def source_of(
    kind: str, stored: storage.StoredHeads, shape: CandidateTree | None = None
) -> HeadsSource:
    """Heads that were read, as a source with a planned tree: no second copy of them,
    and their hash is known, so that no request waits for it."""
    made: HeadsSource = drafts.get(kind)(stored, shape=shape, children="top_k")
    return made


def shared_tree(
    acceptance: Mapping[str, Any], nodes: int, tree_of: str | None = None
) -> tuple[str, CandidateTree]:
    """The kind that a tree for all is planned for, and that tree.

    `acceptance`: {kind: rows of slots}. `nodes`: rows with the root; fewer only where
    the slots do not make so many. `tree_of`: the kind, by default the one whose best
    tree commits the most; of equal ones the first. Raises `SpecbookError` for no
    kind, and for a kind without slots.
    """
    if not isinstance(acceptance, Mapping) or not acceptance:
        raise SpecbookError(f"acceptance must map kinds, got {acceptance!r}")
    checks.integer(nodes, "nodes", least=2)
    if tree_of is not None:
        checks.one_of(tree_of, "tree_of", list(acceptance))
    names = list(acceptance) if tree_of is None else [tree_of]
    plans = {kind: _largest(nodes, acceptance[kind]) for kind in names}
    best = max(names, key=lambda kind: plans[kind].score)
    return best, plans[best].tree


def _largest(nodes: int, rows: Any) -> PlannedTree:
    """The best tree of exactly `nodes` nodes, or of the most that there can be."""
    table = solve(nodes, None, rows)
    sizes = [
        n for n in range(1, nodes + 1) if table.score(n, table.max_depth) != -np.inf
    ]
    return table.tree(sizes[-1], table.max_depth)


def own_tree(one: Measured, times: Times) -> Planned | None:
    """The quickest tree of a kind by its acceptance, its stages and the times of this
    machine; None where plain decoding is quicker than any."""
    steps = {n: t for n, t in times.steps().items() if n <= MOST_NODES}
    choice = choose(
        list(map(list, one.acceptance)),
        steps,
        lambda shape: one.costs.drafting(shape) / times.one,
    )
    best = choice.best
    if best.nodes == 1:
        return None
    return Planned(
        one.dtype,
        one.kind,
        OWN,
        best.tree.parents,
        best.tree.token_ids,
        float(best.progress),
        one.costs.drafting(best.tree),
        steps[best.nodes] * times.one,
        times.one,
    )


def _shared(one: Measured, shape: CandidateTree, times: Times) -> Planned:
    """What the shared tree promises for one kind. A size that was not timed is set
    between its neighbours."""
    rows = [list(row) for row in one.acceptance]
    known = len(rows)
    if shape.max_depth > known:
        # A kind that never got so deep in calibration: nothing is expected there.
        rows += [[0.0] * len(rows[0])] * (shape.max_depth - known)
    verify = np.interp(
        len(shape) + 1,
        sorted(times.nodes),
        [times.steps()[n] for n in sorted(times.nodes)],
    )
    return Planned(
        one.dtype,
        one.kind,
        SHARED,
        shape.parents,
        shape.token_ids,
        float(expected_progress(shape, rows)),
        one.costs.drafting(shape),
        float(verify) * times.one,
        times.one,
    )


def agreements(kind: str, ranked: Sequence[Any]) -> list[Agreement]:
    """The agreement of one kind by workload and depth."""
    found = []
    for workload in dict.fromkeys(one.workload for one in ranked):
        told = agreement([one for one in ranked if one.workload == workload])
        for place, (forced, chain, bins) in enumerate(
            zip(told["forced"], told["chain"], told["calibration"], strict=True)
        ):
            found.append(
                Agreement(
                    kind,
                    workload,
                    place + 1,
                    tuple(forced),
                    tuple(chain),
                    tuple((float(n), q, share) for n, q, share in bins),
                )
            )
    return found


def top_two_gap(target: Any, ids: Sequence[int]) -> float:
    """The distance of the two largest logits after `ids`: that of the logarithms of the
    two largest probabilities."""
    session = target.start(ids)
    rows = session.verify(CandidateTree.from_paths([], len(ids)))
    best = np.sort(rows.law(-1, SamplingPolicy()))[-2:]
    return float(np.log(best[1]) - np.log(best[0]))


def _kept(decode: System, answers: dict[tuple[int, ...], list[int]]) -> System:
    """`decode`, which leaves its answers in `answers`."""

    def keeping(ids: list[int], max_new_tokens: int) -> Outcome:
        outcome = decode(ids, max_new_tokens)
        answers[tuple(ids)] = outcome.tokens
        return outcome

    return keeping


def _recorded(
    target: Any, prompt: prompts.Prompt, ids: Sequence[int], tokens: Sequence[int]
) -> RecordedOutput:
    ends = target.eos_token_id
    ends = (ends,) if isinstance(ends, int) else ends or ()
    stop = "eos" if tokens[-1] in ends else "length"
    return RecordedOutput(tuple(ids), tuple(tokens), stop, prompt.id, prompt.workload)
