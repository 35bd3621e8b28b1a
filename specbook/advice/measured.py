"""Estimates from prompts that were decoded and timed.

A run is one prompt under one configuration; the runs of a workload give the estimate,
sums over sums, and the worlds in which other prompts of the same kind had come. All
configurations must have seen the same prompts, and every world draws the same prompts
for all of them: what is hard for one is then hard for all (section 0x0D).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import checks
from ..engine import Generation
from ..errors import SpecbookError
from ..ledger import RoundLedger
from ..measure.frontier_data import PLAIN, Configuration, Decoded, FrontierFile
from ..measure.frontier_report import dtypes, temperatures, workloads
from .estimate import HOW, Estimate

WORLDS = 2000


@dataclass(frozen=True)
class Run:
    """One prompt: tokens, rounds and seconds; `draft` and `verify` are the parts of
    `seconds` that drafting (with retrieval) and target verification took."""

    prompt: str
    tokens: int
    rounds: int
    seconds: float
    draft: float
    verify: float

    def __post_init__(self) -> None:
        checks.text(self.prompt, "prompt")
        checks.integer(self.tokens, "tokens", least=1)
        checks.integer(self.rounds, "rounds", least=1, most=self.tokens)
        for name in ("seconds", "draft", "verify"):
            checks.float64(getattr(self, name), name, least=0)
        if not self.seconds > 0 or self.draft + self.verify > self.seconds * (1 + 1e-6):
            raise SpecbookError(
                f"{self.prompt}: {self.seconds} s, of which {self.draft} s drafting "
                f"and {self.verify} s verification"
            )


def run_of(made: Generation, prompt: str, *, first: bool = True) -> Run:
    """The run of a generation, timed by its own ledgers. `first`: the round that reads
    the prompt counts; a prediction knows nothing of it. Raises `SpecbookError` where no
    round is left."""
    if not isinstance(made, Generation):
        raise SpecbookError(f"not a Generation: {made!r}")
    played = made.rounds[0 if checks.boolean(first, "first") else 1 :]
    if not played:
        raise SpecbookError(f"{prompt}: no round is left")
    ledger = RoundLedger.total(one.ledger for one in played)
    return Run(
        prompt,
        sum(len(one.committed) for one in played),
        len(played),
        float(ledger.round_cost),
        float(ledger.proposal + ledger.retrieval),
        float(ledger.target_verify),
    )


def estimates_of(
    runs: Mapping[Configuration, Sequence[Run]],
    *,
    extra_bytes: Mapping[Configuration, int] | None = None,
    basis: str = "",
    how: str = "measured",
    worlds: int = WORLDS,
    seed: int = 0,
) -> list[Estimate]:
    """An estimate of every configuration of `runs`, with worlds where there are two
    prompts or more. `extra_bytes`: memory of each beside the target, 0 where it is not
    told; `how`: of `estimate.HOW`. Raises `SpecbookError` for no runs, and where the
    prompts are not the same."""
    if not isinstance(runs, Mapping) or not runs:
        raise SpecbookError(f"runs must map configurations to runs, got {runs!r}")
    checks.integer(worlds, "worlds", least=1)
    checks.text(basis, "basis")
    held = checks.instance(
        {} if extra_bytes is None else extra_bytes, "extra_bytes", Mapping
    )
    for one in (*runs, *held):
        checks.instance(one, "a configuration", Configuration)
    tables = {one: _by_prompt(one, listed) for one, listed in runs.items()}
    names = list(next(iter(tables.values())))
    rng = np.random.default_rng(checks.integer(seed, "seed", least=0))
    drawn = rng.integers(len(names), size=(worlds, len(names)))
    found = []
    for one, table in tables.items():
        if table.keys() != set(names):
            raise SpecbookError(
                f"{one.name} ran on other prompts than {next(iter(tables)).name}"
            )
        rows = np.array(
            [[getattr(table[n], f) for n in names] for f in ("seconds", "tokens")]
        )
        again = rows[:, drawn].sum(axis=2)
        rounds = sum(table[n].rounds for n in names)
        seconds, tokens = rows.sum(axis=1).tolist()
        draft, verify = (
            sum(getattr(table[n], f) for n in names) / rounds
            for f in ("draft", "verify")
        )
        found.append(
            Estimate(
                one,
                tokens / rounds,
                draft,
                verify,
                max(0.0, seconds / rounds - draft - verify),
                held.get(one, 0),
                checks.one_of(how, "how", HOW),
                basis or f"{len(names)} prompts",
                again[0] / again[1] if len(names) > 1 else None,
            )
        )
    return found


def _by_prompt(one: Configuration, listed: Sequence[Run]) -> dict[str, Run]:
    found: dict[str, Run] = {}
    for run in checks.entries(listed, f"runs of {one.name}", "runs"):
        if not isinstance(run, Run):
            raise SpecbookError(f"{one.name}: not a Run: {run!r}")
        if run.prompt in found:
            raise SpecbookError(f"{one.name} decoded {run.prompt!r} twice")
        found[run.prompt] = run
    if not found:
        raise SpecbookError(f"{one.name} has no run")
    return found


# --------------------------------------------------------------- of a frontier's file


def from_frontier(
    file: FrontierFile,
    workload: str | None,
    dtype: str,
    temperature: float = 0.0,
    *,
    prompts: Collection[str] | None = None,
    batch: int = 1,
    worlds: int = WORLDS,
    seed: int = 0,
) -> list[Estimate]:
    """The estimates of a frontier that was measured: every configuration of ours that
    was decoded. `workload` None is all together; `prompts`: only these, by name.

    `batch`: so many requests share a forward. Then the verifications are priced again
    by the measured times of that batch, each request's share of them; drafting stays as
    it was, one request after another, and the rest too: nobody decoded so, and the
    estimates are told as predicted. Raises `SpecbookError` for what was not measured: a
    temperature, a number format, a workload, a batch, a prompt.
    """
    if not isinstance(file, FrontierFile):
        raise SpecbookError(f"not a FrontierFile: {file!r}")
    checks.float64(temperature, "temperature", least=0)
    for told, name in ((dtype, "dtype"), (workload, "workload")):
        if told is not None:
            checks.text(told, name)
    for value, name, there in (
        (temperature, "temperature", temperatures(file)),
        (dtype, "dtype", dtypes(file, temperature)),
        (workload, "workload", [None, *workloads(file)]),
    ):
        if value not in there:
            raise SpecbookError(
                f"the frontier has no {name} {value!r}; it was measured at {there}"
            )
    checks.integer(batch, "batch", least=1)
    only = None if prompts is None else _named(file, prompts)
    shared = None if batch == 1 else _shared(file, dtype, batch)
    chosen: dict[Configuration, list[Run]] = {}
    memory: dict[Configuration, int] = {}
    for row in file.of("decoded"):
        if row.configuration.family == "peer" or row.trace is None:
            continue
        if (row.dtype, row.temperature) != (dtype, temperature):
            continue
        if workload not in (None, row.workload):
            continue
        if only is not None and row.prompt not in only:
            continue
        one = row.configuration
        chosen.setdefault(one, []).append(_run(row, shared))
        if one.family != "plain":  # which has nothing that drafts
            held = row.trace.weight_bytes + row.trace.state_bytes
            memory[one] = max(memory.get(one, 0), held)
    if not chosen:
        raise SpecbookError("no prompt of the frontier is among those that were named")
    of = workload or "all workloads"
    count = len(chosen[PLAIN]) if PLAIN in chosen else 0
    return estimates_of(
        chosen,
        extra_bytes=memory,
        basis=f"{count} decoded prompts, {of}"
        + (f", priced for {batch} requests" if shared else ""),
        how="predicted" if shared else "measured",
        worlds=worlds,
        seed=seed,
    )


def _named(file: FrontierFile, prompts: Collection[str]) -> set[str]:
    known = {row.prompt for row in file.of("decoded")}
    names = checks.entries(
        list(prompts) if isinstance(prompts, Set) else prompts, "prompts", "names"
    )
    for place, name in enumerate(names):
        if checks.text(name, f"prompts[{place}]") not in known:
            raise SpecbookError(f"the frontier has no prompt {name!r}")
    return set(names)


def _shared(file: FrontierFile, dtype: str, batch: int) -> dict[int, float]:
    """{rows: seconds of one request's share} of a verification for `batch`."""
    found = {
        cost.nodes: cost.seconds / batch
        for cost in file.of("cost")
        if (cost.dtype, cost.batch) == (dtype, batch)
    }
    if 1 not in found:
        raise SpecbookError(f"no time of one row for a batch of {batch} was measured")
    return found


def _run(row: Decoded, shared: Mapping[int, float] | None) -> Run:
    trace: Any = row.trace
    terms = trace.cost_terms
    draft = terms["proposal"] + terms["retrieval"]
    run = Run(
        row.prompt,
        row.new_tokens,
        row.rounds,
        # The ledger's clock and the one around it may differ by a rounding.
        max(row.seconds, draft + terms["target_verify"]),
        draft,
        terms["target_verify"],
    )
    if shared is None:
        return run
    sizes = sorted(shared)
    largest = sizes[-1]
    verify = sum(
        # The next size that was measured: a forward that is padded costs that.
        count * shared[next((s for s in sizes if s > n), largest)]
        for n, count in enumerate(trace.rounds_by_nodes)
    )
    if count := sum(trace.rounds_by_nodes[largest:]):
        raise SpecbookError(
            f"{row.configuration.name} has {count} rounds of more than {largest} rows, "
            "the most that this batch was measured with"
        )
    rest = run.seconds - run.draft - run.verify
    return replace(run, seconds=draft + verify + rest, verify=verify)
