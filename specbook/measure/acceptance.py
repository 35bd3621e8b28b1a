"""Which child is selected, how often: h and p by rank and depth, on the real target.

A run of the engine is read round by round: at every node that the verification reached,
the children in the order in which they were drawn, and the one that was selected. That
is all that a tree's expected progress rests on, for any source and any rule. It holds
for what it was measured with: another drafter, rule, temperature or kind of text has
other numbers (sections 0x0AA, 0x0AE).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .. import checks, drafts, prompts, verifiers
from ..contract import negotiate
from ..engine import Round, generate
from ..errors import SpecbookError
from ..policy import SamplingPolicy
from ..topologies.observed import Observed
from ..topologies.progress import shape_of
from ..tree import CandidateTree
from .calibrated import calibrated
from .report import Report, Table
from .setup import Progress, file, machine, set_up

if TYPE_CHECKING:
    from ..plotting import FramedFigure

WORLDS = 1000
"""How often prompts are drawn again for an interval."""

MAX_ROWS = 4096
"""Of a calibration shape: a wide and deep one grows beyond any verification."""

MAX_CANDIDATES = 64
"""Of a round of a source that follows no plan."""

NAMED = ("target", "tokenizer", "dtype", "source", "proposal", "verifier")
"""The settings that say what was measured."""


@dataclass(frozen=True)
class PromptCounts:
    """One prompt's counts, [depths][slots] each."""

    workload: str
    prompt: str
    tokens: int
    rounds: int
    tried: tuple[tuple[int, ...], ...]
    selected: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class AcceptanceProfile(Report):
    """Measured acceptance by depth and slot."""

    settings: dict[str, Any]
    machine: dict[str, Any]
    prompts: tuple[PromptCounts, ...]

    KIND: ClassVar[str] = "calibration profile"
    STEM: ClassVar[str] = "acceptance"

    def __post_init__(self) -> None:
        for name in NAMED:
            value = self.settings.get(name)
            if not isinstance(value, str) or not value:
                raise SpecbookError(f"settings.{name} must be text, got {value!r}")
        temperature = self.settings.get("temperature")
        checks.float64(temperature, "settings.temperature", least=0)
        for number, prompt in enumerate(self.prompts):
            place = f"prompts[{number}]"
            checks.integer(prompt.rounds, f"{place}.rounds", least=1)
            checks.integer(prompt.tokens, f"{place}.tokens", least=0)
            for name in ("tried", "selected"):
                table, first = getattr(prompt, name), self.prompts[0].tried
                if list(map(len, table)) != list(map(len, first)):
                    raise SpecbookError(f"{place}.{name} is not shaped as the others")
            if prompt.tried and prompt.tried[0] and prompt.tried[0][0] > prompt.rounds:
                raise SpecbookError(
                    f"{place} tried more first slots than it has rounds"
                )
        self.observed()  # raises for counts that no run can give

    def workloads(self) -> list[str]:
        """In the order in which they were measured."""
        return list(dict.fromkeys(prompt.workload for prompt in self.prompts))

    def observed(self, workload: str | None = None) -> Observed:
        """The counts of one workload, or of all, as far down as any prompt reached.
        Raises `SpecbookError` for a workload that was not measured."""
        if workload is not None:
            checks.text(workload, "workload")
        chosen = [p for p in self.prompts if workload in (None, p.workload)]
        if not chosen:
            raise SpecbookError(
                f"no prompt of workload {workload!r} was measured; there are "
                f"{self.workloads()}"
            )
        tried = np.array([prompt.tried for prompt in chosen])
        selected = np.array([prompt.selected for prompt in chosen])
        reached = tried[:, :, 0].sum(axis=0) > 0
        depths = len(reached) if reached.all() else int(np.argmin(reached))
        if depths == 0:
            raise SpecbookError("no round had a candidate: there is nothing to count")
        return Observed(tried[:, :depths], selected[:, :depths])

    @property
    def tokens_per_round(self) -> float:
        """Committed tokens a round, the correction or bonus token among them."""
        rounds = sum(prompt.rounds for prompt in self.prompts)
        return sum(prompt.tokens for prompt in self.prompts) / rounds

    # ----------------------------------------------------------------- the report

    def options(self) -> list[str]:
        """What was measured, with what."""
        names = ("source", "verifier", "temperature", "target", "dtype")
        told = "; ".join(f"{name} {self.settings.get(name)}" for name in names)
        return [
            f"{told}; {len(self.prompts)} prompts; {self.where()}.",
            "Intervals: prompts drawn again. One prompt alone has none.",
        ]

    def derived(self) -> dict[str, Any]:
        """A hash of all that was measured: a flipped digit is found."""
        return {"sha256": self.sha256()}

    def tables(self) -> Iterable[Table]:
        """By depth and slot, then the slots of each workload with depths pooled."""
        yield (
            "By depth and slot, all workloads",
            ["depth", "slot", "trials", "h", "p", "95 % of p"],
            [
                row
                for depth in range(self.observed().tried.shape[1])
                for row in self._slots(self.observed(), depth)
            ],
        )
        yield (
            "By workload, depths together",
            ["workload", "slot", "trials", "h", "p", "95 % of p"],
            [
                [workload, *row[1:]]
                for workload in self.workloads()
                for row in self._slots(self.observed(workload).pooled(), 0)
            ],
        )

    def _slots(self, observed: Observed, depth: int) -> list[list[str]]:
        rates = observed.rates()[depth]
        rows = observed.acceptance()
        slots = rows[depth] if observed.every_depth else rows
        worlds = observed.drawn_again(np.random.default_rng(0), WORLDS)[:, depth]
        low, high = np.quantile(worlds, (0.025, 0.975), axis=0)
        trials = observed.tried[:, depth].sum(axis=0)
        prompts = (observed.tried[:, depth] > 0).sum(axis=0)
        return [
            [
                str(depth + 1),
                str(slot),
                str(trials[slot - 1]),
                f"{rates[slot]:.3f}",
                f"{slots[slot]:.3f}",
                # Drawn again, one prompt is always the same: no spread, not a sure one.
                f"{low[slot]:.3f} to {high[slot]:.3f}"
                if prompts[slot - 1] > 1
                else "one prompt",
            ]
            for slot in range(1, len(slots))
            if trials[slot - 1]
        ]

    def figure(self) -> FramedFigure:
        """p of each slot over the depth."""
        from .. import plotting

        observed = self.observed()
        rows = np.array(observed.acceptance())
        depths = list(range(1, len(rows) + 1))
        lines = {
            f"slot {slot}": rows[:, slot].tolist()
            for slot in range(1, min(rows.shape[1], 5))
        }
        first, last = rows[0, 1], rows[-1, 1]
        return plotting.figure(
            plotting.curves(
                depths, lines, "depth of the candidate, in edges", "P(selected)"
            )
            if len(depths) > 1
            else plotting.ranges(
                {name: (row[0],) * 3 for name, row in lines.items()}, "P(selected)"
            ),
            "For each child slot, the probability that it is the selected child, by "
            "the depth of the child.",
            f"The first slot is selected with probability {first:.2f} at depth 1 and "
            f"{last:.2f} at depth {len(rows)}. Measured on {self.where()}.",
        )


def calibration_shape(width: int, depth: int) -> CandidateTree:
    """A shape that shows `width` slots at every depth down to `depth`, without the rows
    of a full tree.

    The root and the path of first children have `width` children at every node, all
    other nodes have one, so that a path that turns aside goes on. Slots are counted
    over trials, which is why families of different sizes do no harm; the later slots
    are seen on the path of first children only. Raises `SpecbookError` for more rows
    than `MAX_ROWS`.
    """
    width = checks.integer(width, "width", least=1)
    depth = checks.integer(depth, "depth", least=1)
    rows = width * depth + (width - 1) * depth * (depth - 1) // 2
    if rows > MAX_ROWS:
        raise SpecbookError(
            f"width {width} and depth {depth} make a shape of {rows} rows, more than "
            f"{MAX_ROWS}"
        )
    parents: list[int] = []
    ranks: list[int] = []
    spine = -1
    others: list[int] = []
    for _ in range(depth):
        below = [(spine, rank) for rank in range(width)] + [(row, 0) for row in others]
        start = len(parents)
        parents += [row for row, _ in below]
        ranks += [rank for _, rank in below]
        spine, others = start, list(range(start + 1, start + len(below)))
    return shape_of(parents, ranks)


def count(
    rounds: Iterable[Round], *, depths: int, slots: int
) -> tuple[np.ndarray, np.ndarray]:
    """(tried, selected), [depths, slots] each, of the rounds of one run.

    A node's slots are its candidates in the order in which they were drawn: a token
    that was drawn twice takes two slots, of which the second can only be refused.
    What lies beyond `depths` and `slots` is not counted; a selection beyond `slots`
    counts as a refusal of those before it.
    """
    checks.integer(depths, "depths", least=1, most=MAX_ROWS)
    checks.integer(slots, "slots", least=1, most=MAX_ROWS)
    tried = np.zeros((depths, slots), dtype=np.int64)
    selected = np.zeros((depths, slots), dtype=np.int64)
    for number, played in enumerate(checks.entries(rounds, "rounds", "rounds")):
        if not hasattr(played, "selection") or not hasattr(played, "tree"):
            raise SpecbookError(f"rounds[{number}] is no round: {played!r}")
        path = list(played.selection.rows)
        for depth, node in enumerate([-1, *path][:depths]):
            offered = [child for child, _ in played.tree.draws(node)]
            chosen = path[depth] if depth < len(path) else None
            for slot, child in enumerate(offered[:slots]):
                tried[depth, slot] += 1
                if child == chosen:
                    selected[depth, slot] += 1
                    break
    return tried, selected


def measure_acceptance(
    target: Any,
    source: Any,
    verifier: Any,
    asked: Mapping[str, Sequence[tuple[str, Sequence[int]]]],
    *,
    depths: int = 6,
    slots: int = 8,
    max_new_tokens: int = 64,
    temperature: float = 0.0,
    seed: int = 0,
    max_nodes: int = MAX_CANDIDATES,
    about_machine: dict[str, Any] | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> AcceptanceProfile:
    """Decodes every prompt and counts which candidates were selected.

    `asked`: {workload: [(name, token ids), ...]}. `source`, `verifier` and the other
    options as for `generate`; the seed of prompt i is `seed` + i. A tree that is wider
    than a planned one shows more slots. Raises what `generate` raises, and
    `SpecbookError` for no prompts and for no source.
    """
    checks.integer(seed, "seed", least=0)
    checks.integer(depths, "depths", least=1, most=MAX_ROWS)
    checks.integer(slots, "slots", least=1, most=MAX_ROWS)
    # Made once: what is measured is what is named afterwards.
    source = [
        drafts.get(item)() if isinstance(item, str) else item
        for item in (source if isinstance(source, (list, tuple)) else [source])
        if item is not None
    ]
    if not source:
        raise SpecbookError("source is None: without candidates nothing is selected")
    found: list[PromptCounts] = []
    for workload, listed in _asked(asked).items():
        say(workload)
        for name, ids in listed:
            made = generate(
                target,
                ids,
                source,
                verifier,
                max_new_tokens=max_new_tokens,
                temperature=temperature,
                seed=seed + len(found),
                max_nodes=max_nodes,
                max_depth=depths,
            )
            tried, selected = count(made.rounds, depths=depths, slots=slots)
            found.append(
                PromptCounts(
                    workload,
                    name,
                    len(made.tokens),
                    len(made.rounds),
                    tuple(map(tuple, tried.tolist())),
                    tuple(map(tuple, selected.tolist())),
                )
            )
    about = target.identity()
    settings: dict[str, Any] = {
        "target": about["checkpoint"],
        "tokenizer": about["tokenizer"],
        "dtype": about["dtype"],
        "source": " + ".join(item.identity() for item in source),
        "proposal": " + ".join(map(_artifact, source)),
        "verifier": verifier if isinstance(verifier, str) else verifier.contract.name,
        "temperature": float(temperature),
        "max_new_tokens": max_new_tokens,
        "seed": seed,
        "depths": depths,
        "slots": slots,
    }
    where = machine() if about_machine is None else about_machine
    return AcceptanceProfile(settings, where, tuple(found))


def _artifact(source: Any) -> str:
    """What proposes, whatever the plan: another plan is what the counts are for."""
    return getattr(source, "artifact_identity", source.identity)()


def _asked(asked: Any) -> dict[str, list[tuple[str, Any]]]:
    """The prompts, all looked at before the first is decoded."""
    if not isinstance(asked, Mapping):
        raise SpecbookError(f"asked must map workloads to prompts, got {asked!r}")
    found: dict[str, list[tuple[str, Any]]] = {}
    for workload, entries in asked.items():
        place = f"asked[{checks.text(workload, 'workload')!r}]"
        found[workload] = []
        for number, entry in enumerate(checks.entries(entries, place, "prompts")):
            pair = checks.entries(entry, f"{place}[{number}]", "a name and token ids")
            if len(pair) != 2:
                raise SpecbookError(f"{place}[{number}] must be a name and token ids")
            checks.text(pair[0], f"the name of {place}[{number}]")
            checks.token_ids(pair[1], f"the ids of {place}[{number}]")
            found[workload].append((pair[0], pair[1]))
    if not any(found.values()):
        raise SpecbookError("asked has no prompt")
    return found


def run(
    target: str | os.PathLike[str] | None = None,
    draft: str | os.PathLike[str] | None = None,
    *,
    out: str | os.PathLike[str],
    source: str = "draft_model",
    datastore: str | os.PathLike[str] | None = None,
    children: str | None = None,
    verifier: str | None = None,
    width: int = 6,
    depth: int = 4,
    workloads: Sequence[str] | None = None,
    half: str = "development",
    prompts_per_workload: int | None = 4,
    max_new_tokens: int = 64,
    dtype: str = "float32",
    temperature: float = 0.7,
    seed: int = 0,
    progress: Progress | None = None,
) -> AcceptanceProfile:
    """Measures a draft source on the frozen prompts and writes the profile to `out`.

    `target`, `draft`: folders or hub ids; None are the book's own. `source`: a name of
    the registry; `datastore`, `children`: as `calibrated` takes them. `verifier`: None
    is `sequoia` for a source that draws, `membership` for one that copies. `width`,
    `depth`: the slots and depths that are counted, which a source that follows plans is
    made to show. `workloads`: None is all. `prompts_per_workload`: the first
    so many of `half`; None is all. A profile that is at `out` is replaced, another file
    is not. Raises `ValueError` for bad options, before a model is loaded.
    """
    from ..models.loading import load_target

    setup = set_up(
        workloads=prompts.WORKLOADS if workloads is None else workloads,
        half=half,
        prompts_per_workload=prompts_per_workload,
        max_new_tokens=max_new_tokens,
        dtypes=(dtype,),
        repeats=1,
        quick=False,
        clock="wall",
        out=None,
        progress=progress,
        target=target,
        draft=draft,
    )
    shape = calibration_shape(width, depth)
    policy = SamplingPolicy(temperature)
    checks.integer(seed, "seed", least=0)
    chosen = calibrated(
        source, shape, children=children, draft=draft, datastore=datastore
    )
    if verifier is None:
        verifier = "membership" if chosen.most is None else "sequoia"
    if verifiers.get(verifier).contract.greedy_only and not policy.greedy:
        raise SpecbookError(f"verifier {verifier!r} belongs to temperature 0")
    negotiate([chosen.contract], verifier)
    path = file(out)
    if path.exists():
        AcceptanceProfile.load(path)
    made = chosen.make()
    ours = load_target(target, dtype=dtype)
    encoded: dict[str, list[tuple[str, list[int]]]] = {}
    for prompt, ids in setup.encoded(ours):
        encoded.setdefault(prompt.workload, []).append((prompt.id, ids))
    profile = measure_acceptance(
        ours,
        made,
        verifier,
        encoded,
        depths=depth,
        slots=width,
        max_new_tokens=max_new_tokens,
        temperature=policy.temperature,
        seed=seed,
        max_nodes=MAX_CANDIDATES if chosen.most is None else chosen.most,
        say=setup.tell,
    )
    profile.save(path)
    return profile
