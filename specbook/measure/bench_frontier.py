"""`specbook measure frontier`: which source, which topology and which rule, measured.

In three steps. The costs: what rows of a verification take, for each number format. The
screening: every configuration that the contracts admit gets a prediction, on prompts of
the half that is not decoded (`screening`). The decoding: the finalists of every family,
plain decoding, the best finalist behind a switch and the ways of transformers decode
the prompts of the other half, taking turns (`frontier_systems`). Everything goes into
one file as it is found, so a run that was stopped goes on (`frontier_data`);
`frontier_report` reads it.

Greedy decoding is measured in every number format that is asked for, sampling in the
one in which a step is faster: there the tokens differ from run to run, so what can be
compared is the time, and the law is left to the proofs of the rules.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from .. import __version__, checks, drafts, prompts
from ..drafts.rest.datastore import Datastore
from ..errors import ArtifactError, SpecbookError
from ..policy import SamplingPolicy
from . import frontier_systems, recording
from .bench_decode import DTYPES
from .configurations import BUDGETS, Available, available, every_pair
from .frontier_data import Configuration, Cost, FrontierFile, Screened
from .screening import Counts, counted, finalists, level_seconds, priced, replayed
from .setup import Progress, Setup, file, machine, set_up
from .verify_time import Grid, measure_verify_time

TEMPERATURES = (0.0, 0.7)
BATCHES = (2, 4, 8)
NODES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
BATCH_NODES = (1, 2, 4, 8)
TURNS = 5
PREFIX = 256
PROMPTS = 4
MAX_NEW_TOKENS = 64
SCREEN_PROMPTS = 1
"""Of each workload, the shortest ones: reading a prompt takes longer than a round."""
SCREEN_TOKENS = 12


@dataclass(frozen=True)
class Plan:
    """What is asked for beside the prompts; see `run`."""

    target: Any
    sources: tuple[str, ...] | None
    draft: Any
    datastore: Any
    temperatures: tuple[float, ...]
    screen_prompts: int
    screen_tokens: int
    replay_prompts: int | None
    each: int
    batches: tuple[int, ...]
    turns: int
    peers: bool
    seed: int
    screened_half: str


def run(
    target: str | os.PathLike[str] | None = None,
    *,
    sources: Sequence[str] | None = None,
    draft: str | os.PathLike[str] | None = None,
    datastore: str | os.PathLike[str] | None = None,
    workloads: Sequence[str] = prompts.WORKLOADS,
    half: str = "evaluation",
    prompts_per_workload: int | None = PROMPTS,
    max_new_tokens: int = MAX_NEW_TOKENS,
    dtypes: Sequence[str] = DTYPES,
    temperatures: Sequence[float] = TEMPERATURES,
    screen_prompts: int = SCREEN_PROMPTS,
    screen_tokens: int = SCREEN_TOKENS,
    replay_prompts: int | None = None,
    each: int = 1,
    batches: Sequence[int] = BATCHES,
    turns: int = TURNS,
    peers: bool = True,
    repeats: int = 1,
    seed: int = 0,
    clock: str = "wall",
    out: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> FrontierFile:
    """Measures the frontier and returns its file.

    `target`, `draft`: folders or hub ids, by default the book's own; `sources`: names
    of the registry, None for all; `datastore`: an index for REST, which is skipped
    without one. `workloads`, `half`, `prompts_per_workload`, `max_new_tokens`,
    `dtypes`, `repeats`, `clock`: as in `bench_decode.run`; `half` is what is decoded,
    and the other one is screened. `temperatures`: 0 is greedy. `screen_prompts`: of
    each workload, `screen_tokens` new tokens each; `replay_prompts`: the first so many
    recorded answers of each, None for all. `each`: finalists of a family. `batches`:
    sizes of the batched forward, none for one request alone. `turns`: how often each
    size of a verification is timed. `peers`: whether transformers decodes too. `out`:
    the file, which goes on if it is of the same settings and machine. Raises
    `ValueError` for bad options before a model is loaded.
    """
    setup = set_up(
        target=target,
        draft=draft,
        workloads=workloads,
        half=half,
        prompts_per_workload=prompts_per_workload,
        max_new_tokens=max_new_tokens,
        dtypes=dtypes,
        repeats=repeats,
        quick=False,
        clock=clock,
        out=None,
        progress=progress,
    )
    if sources is not None:
        sources = tuple(checks.entries(sources, "sources", "names"))
        for name in sources:
            checks.one_of(name, "source", drafts.names())
    if replay_prompts is not None:
        checks.integer(replay_prompts, "replay_prompts", least=1)
    plan = Plan(
        target,
        sources,
        draft,
        None if datastore is None else Datastore.load(datastore),
        _temperatures(temperatures),
        checks.integer(screen_prompts, "screen_prompts", least=1),
        checks.integer(screen_tokens, "screen_tokens", least=2),
        replay_prompts,
        checks.integer(each, "each", least=1),
        tuple(
            checks.integer(n, f"batches[{i}]", least=2)
            for i, n in enumerate(checks.entries(batches, "batches", "integers"))
        ),
        checks.integer(turns, "turns", least=1),
        checks.boolean(peers, "peers"),
        checks.integer(seed, "seed", least=0),
        _other(half),
    )
    path = None if out is None else file(out)
    return _Frontier(setup, plan, path).run()


def _other(half: Any) -> str:
    """What chooses must not have seen what judges."""
    checks.one_of(half, "half", prompts.HALVES)
    return next(name for name in prompts.HALVES if name != half)


def _temperatures(values: Any) -> tuple[float, ...]:
    found = tuple(
        SamplingPolicy(value).temperature
        for value in checks.entries(values, "temperatures", "numbers")
    )
    if not found or len(set(found)) != len(found):
        raise SpecbookError(f"temperatures must be some that differ, got {found}")
    return found


def _checkpoint(draft: Any) -> str:
    from ..models.loading import load_target

    return str(load_target(draft).identity()["checkpoint"])


class _Frontier:
    """One run, step by step."""

    def __init__(self, setup: Setup, plan: Plan, path: Any) -> None:
        self.setup, self.plan = setup, plan
        self.tell = setup.tell
        self._target: tuple[str, Any] = ("", None)
        self._sources: tuple[str, list[Available]] = ("", [])
        self._counts: dict[tuple[float, tuple[str, str, bool]], Counts] = {}
        ours = self.ours(setup.dtypes[0])
        about = ours.identity()
        here = machine()
        settings = {
            "versions": {"specbook": __version__, **here["versions"]},
            "target": {name: about[name] for name in ("checkpoint", "tokenizer")},
            **setup.settings,
            "dtypes": list(setup.dtypes),
            "temperatures": list(plan.temperatures),
            "screen_prompts": plan.screen_prompts,
            "screen_tokens": plan.screen_tokens,
            "replay_prompts": plan.replay_prompts,
            "sources": None if plan.sources is None else list(plan.sources),
            "finalists": plan.each,
            "batches": list(plan.batches),
            "turns": plan.turns,
            "peers": plan.peers,
            "seed": plan.seed,
            # What they hold, not where they lie: the same file is also found elsewhere.
            "draft": None if plan.draft is None else _checkpoint(plan.draft),
            "datastore": None if plan.datastore is None else plan.datastore.hash,
        }
        self.file = FrontierFile.at(path, settings, here)

    def run(self) -> FrontierFile:
        """All steps; what the file has is not done again."""
        for dtype in self.setup.dtypes:
            if not any(cost.dtype == dtype for cost in self.file.of("cost")):
                self.tell(f"{dtype}: timing verifications by their rows")
                self.file.add(self.costs(dtype))
        self.tell(self.estimate())
        order = sorted(self.setup.dtypes, key=lambda name: self.verify(name)[0][1])
        for dtype in order:
            for temperature in self.plan.temperatures:
                if temperature and dtype != order[0]:
                    continue
                self.screen(dtype, temperature)
                self.decode(dtype, temperature)
        return self.file

    # ------------------------------------------------------------------ what is there

    def ours(self, dtype: str) -> Any:
        """The target in one number format; one at a time is in memory."""
        if self._target[0] != dtype:
            from ..models.loading import load_target

            self._target = ("", None)
            gc.collect()
            self.tell(f"{dtype}: loading the target")
            self._target = (dtype, load_target(self.plan.target, dtype=dtype))
        return self._target[1]

    def verify(self, dtype: str) -> list[tuple[int, float]]:
        """Pairs (rows, seconds) of a verification, rising."""
        found = sorted(
            (cost.nodes, cost.seconds)
            for cost in self.file.of("cost")
            if (cost.dtype, cost.batch) == (dtype, 1)
        )
        # A larger size is never taken for cheaper: what is faster is the noise.
        rising: list[tuple[int, float]] = []
        for nodes, seconds in found:
            rising.append((nodes, max([seconds, *(s for _, s in rising[-1:])])))
        return rising

    def costs(self, dtype: str) -> list[Cost]:
        """Of the runtime's forward, and of batches where they are asked for."""
        plan = self.plan
        grid = Grid(NODES, (PREFIX,), ("sequoia",), (), plan.turns)
        about = machine()
        profiles = [
            measure_verify_time(
                self.ours(dtype), grid, machine=about, clock=self.setup.now
            )
        ]
        if plan.batches:
            from ..models.loading import load_target

            generic = load_target(plan.target, dtype=dtype, forward="transformers")
            grid = Grid(
                BATCH_NODES, (PREFIX,), ("sequoia",), plan.batches, min(plan.turns, 3)
            )
            profiles.append(
                measure_verify_time(
                    self.ours(dtype),
                    grid,
                    batched=generic,
                    machine=about,
                    clock=self.setup.now,
                ).of("batch")
            )
            del generic
            gc.collect()
        return [
            Cost(
                dtype,
                cell.batch,
                cell.nodes,
                round(median(cell.seconds), 7),
                round(cell.mask_seconds, 9),
                round(cell.transfer_seconds, 9),
                cell.kv_bytes,
            )
            for profile in profiles
            for cell in profile.cells
        ]

    def sources(self, dtype: str) -> list[Available]:
        """Those that can take part; the others are noted once."""
        if self._sources[0] == dtype:
            return self._sources[1]
        found, skipped = available(
            self.ours(dtype),
            names=self.plan.sources,
            draft=self.plan.draft,
            datastore=self.plan.datastore,
            dtype=dtype,
            cost=self.verify(dtype),
        )
        self._sources = (dtype, found)
        new = [one for one in skipped if not self.file.has("skipped", *one.key)]
        if new:
            self.file.add(new)
        return found

    def estimate(self) -> str:
        """A line: how long the rest will take, by the measured rows."""
        plan, setup = self.plan, self.setup
        step = {dtype: self.verify(dtype)[0][1] for dtype in setup.dtypes}
        tree = {dtype: self.verify(dtype)[-3][1] for dtype in setup.dtypes}
        first = min(step, key=lambda name: step[name])
        sources = self.sources(first)
        seconds = 0.0
        read = 6 * tree[first]  # of a prompt: some hundreds of rows, many at once
        for temperature in plan.temperatures:
            pairs = len(every_pair(temperature, sources))
            for dtype in setup.dtypes if temperature == 0 else (first,):
                if self._screened(dtype, temperature):
                    pass
                elif dtype == first:
                    asked = plan.screen_prompts * len(setup.settings["workloads"])
                    rounds = 0.7 * plan.screen_tokens
                    seconds += pairs * asked * (read / 2 + rounds * tree[dtype])
                else:
                    seconds += pairs * (read / 2 + 4 * tree[dtype])
                families = len({source.family for source in sources})
                systems = 2 + plan.each * families
                peers = len(frontier_systems.PEERS) * plan.peers
                systems += 2 if temperature else peers
                left = len(setup.chosen) - len(self._done(dtype, temperature))
                one = 6 * tree[dtype] + setup.max_new_tokens * step[dtype]
                seconds += left * systems * one * setup.repeats
        return f"about {seconds / 60:.0f} minutes by these times, if nothing else runs"

    def _screened(self, dtype: str, temperature: float) -> list[Screened]:
        return [
            row
            for row in self.file.of("screened")
            if (row.dtype, row.temperature) == (dtype, temperature)
        ]

    def _done(self, dtype: str, temperature: float) -> set[str]:
        """Prompts that were decoded: all their rows were written at once."""
        return {
            row.prompt
            for row in self.file.of("decoded")
            if (row.dtype, row.temperature) == (dtype, temperature)
        }

    # ---------------------------------------------------------------------- screening

    def screen(self, dtype: str, temperature: float) -> None:
        """Predicts every configuration and marks the finalists."""
        if self._screened(dtype, temperature):
            return
        verify = self.verify(dtype)
        sources = self.sources(dtype)
        pairs = every_pair(temperature, sources)
        asked = self.asked(self.ours(dtype))
        rows: list[Screened] = []
        began = self.setup.now()
        for number, drawing in enumerate(pairs, 1):
            found: list[Screened] = []
            name = drawing.source.name
            recorded = self.recorded(temperature)
            if drawing.source.family == "copying" and recorded is not None:
                found += replayed(
                    drawing,
                    recorded,
                    verify,
                    BUDGETS,
                    dtype=dtype,
                    clock=self.setup.now,
                )
            known = {row.configuration.verifier for row in found}
            if set(drawing.rules) - known:
                key = (temperature, drawing.key)
                level = None
                if key not in self._counts:
                    self._counts[key] = counted(
                        self.ours(dtype),
                        drawing,
                        asked,
                        temperature=temperature,
                        max_new_tokens=self.plan.screen_tokens,
                        seed=self.plan.seed,
                        clock=self.setup.now,
                    )
                else:
                    level = level_seconds(
                        self.ours(dtype),
                        drawing,
                        asked[0],
                        temperature,
                        clock=self.setup.now,
                    )
                # The counts hold no model, but their drawing's source does.
                counts = replace(self._counts[key], drawing=drawing)
                found += [
                    row
                    for row in priced(
                        counts,
                        verify,
                        dtype=dtype,
                        temperature=temperature,
                        level=level,
                    )
                    if row.configuration.verifier not in known
                ]
            rows += found
            spent = self.setup.now() - began
            self.tell(
                f"{dtype}, {temperature:g}: screened {name} {drawing.children} "
                f"({number} of {len(pairs)}), {len(found)} configurations; "
                f"{spent / number * (len(pairs) - number):.0f} s left"
            )
        chosen = {
            id(row)
            for row in finalists(rows, each=self.plan.each, heuristics=temperature > 0)
        }
        self.file.add(replace(row, finalist=id(row) in chosen) for row in rows)

    def asked(self, ours: Any) -> list[list[int]]:
        """Ids of the shortest prompts of each workload of the half that is screened."""
        found = []
        for workload in self.setup.settings["workloads"]:
            listed = prompts.load(workload, self.plan.screened_half)
            encoded = replace(self.setup, chosen=tuple(listed)).encoded(ours)
            ids = sorted((ids for _, ids in encoded), key=len)
            found += ids[: self.plan.screen_prompts]
        return found

    def recorded(self, temperature: float) -> recording.Recording | None:
        """The shipped answers of this target to the prompts that are screened, if there
        are any at this temperature. Damaged ones raise."""
        if recording.file_name(temperature) not in recording.manifest()["files"]:
            return None
        found = recording.load(temperature, half=self.plan.screened_half)
        theirs = found.about.get("target", {})
        about = self._target[1].identity()
        if any(theirs.get(n) != about[n] for n in ("checkpoint", "tokenizer")):
            return None
        outputs = [
            output
            for workload in self.setup.settings["workloads"]
            for output in found.select(workload).outputs[: self.plan.replay_prompts]
        ]
        return replace(found, outputs=tuple(outputs))

    # ----------------------------------------------------------------------- decoding

    def decode(self, dtype: str, temperature: float) -> None:
        """Plain decoding, the finalists and the peers take turns on the prompts."""
        done = self._done(dtype, temperature)
        left = [prompt for prompt in self.setup.chosen if prompt.id not in done]
        if not left:
            return
        ours = self.ours(dtype)
        systems = self.systems(dtype, temperature)
        encoded = replace(self.setup, chosen=tuple(left)).encoded(ours)
        self._check_same(systems, dtype, temperature)
        for decode in systems.values():
            decode(encoded[0][1][:64], 4)  # warm
        began = self.setup.now()
        for number, (prompt, ids) in enumerate(encoded, 1):
            self.file.add(
                frontier_systems.turns(
                    systems,
                    ours,
                    prompt,
                    ids,
                    number=number,
                    dtype=dtype,
                    temperature=temperature,
                    max_new_tokens=self.setup.max_new_tokens,
                    repeats=self.setup.repeats,
                )
            )
            spent = self.setup.now() - began
            self.tell(
                f"{dtype}, {temperature:g}: {prompt.id} ({number} of {len(encoded)}); "
                f"{spent / number * (len(encoded) - number):.0f} s left"
            )
        del systems
        gc.collect()

    def systems(
        self, dtype: str, temperature: float
    ) -> dict[Configuration, frontier_systems.System]:
        """What decodes, by its configuration; plain decoding first."""
        ours = self.ours(dtype)
        found = frontier_systems.ours(
            ours,
            [row for row in self._screened(dtype, temperature) if row.finalist],
            self.sources(dtype),
            self.verify(dtype),
            temperature=temperature,
            seed=self.plan.seed,
            clock=self.setup.now,
        )
        if self.plan.peers and temperature == 0:
            found |= frontier_systems.peers(
                ours, self.plan.draft, dtype=dtype, clock=self.setup.now
            )
        return found

    def _check_same(
        self, systems: dict[Configuration, Any], dtype: str, temperature: float
    ) -> None:
        """What goes on must decode with what it began with: a file that lost a screened
        line names other finalists than it was decoded with."""
        there = {
            row.configuration
            for row in self.file.of("decoded")
            if (row.dtype, row.temperature) == (dtype, temperature)
        }
        if there and there != set(systems):
            names = sorted(one.name for one in there ^ set(systems))
            raise ArtifactError(
                f"{self.file.path}: {dtype}, temperature {temperature:g}: some prompts "
                f"were decoded by others than are chosen now: {names}"
            )
