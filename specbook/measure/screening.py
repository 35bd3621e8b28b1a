"""Screening: what each configuration promises, from few rounds that all of them share.

To decode every configuration would take days. But in one verified tree every rule finds
all that it asks for, the candidates and the target's laws. So one run serves all rules:
an exact one decides what is published, and the others walk the same tree beside it,
each with a sampler of its own (`panel`). What they select is counted by slot. With the
measured time of rows, those counts price every shape, those that were not drafted too:
tokens a round over seconds a round (sections 0x0AA, 0x0AD). A source that copies needs
no model at all: recorded answers tell its rounds (`replay`).

A prediction chooses what is decoded in full and is never reported as a result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from .. import checks, verifiers
from ..chance import Chance, Sampler
from ..contract import Selection, Verifier
from ..drafts.draft_length import DraftLength
from ..engine import Round, generate
from ..errors import SpecbookError
from ..ledger import RoundLedger
from ..topologies.hardware import choose
from ..topologies.observed import Observed
from ..topologies.progress import expected_progress
from ..tree import CandidateTree
from .acceptance import calibration_shape, count
from .configurations import SLOTS, Drawing, configuration, shapes
from .frontier_data import Screened
from .recording import Recording
from .replay import decode_again
from .setup import Clock

DEPTH = 3
"""Levels of the tree that is counted on, and `CHAIN_DEPTH` of the chain."""
CHAIN_DEPTH = 6
MOST_ROWS = 16
"""Rows of the largest planned tree, the root included."""


@dataclass(frozen=True)
class Played:
    """A tree and what one rule selected in it."""

    tree: CandidateTree
    selection: Selection


@dataclass
class Counts:
    """One drawing on the screening prompts. `played`: {rule: its rounds, a list a
    prompt}; `rows`: of each round, with the root; `drafting`: seconds of each round
    that drafted, and how deep."""

    drawing: Drawing
    played: dict[str, list[list[Played]]] = field(default_factory=dict)
    rows: list[int] = field(default_factory=list)
    drafting: list[tuple[float, int]] = field(default_factory=list)

    @property
    def prompts(self) -> int:
        """Prompts that were decoded."""
        return max(map(len, self.played.values()), default=0)

    def tokens_per_round(self, rule: str) -> float:
        """Of the rounds as they were drafted."""
        rounds = [one for listed in self.played[rule] for one in listed]
        return sum(len(one.selection.rows) + 1 for one in rounds) / len(rounds)

    def acceptance(self, rule: str) -> list[float] | None:
        """The slots of one row for all depths, [0, p_1, ...]; None where no round had a
        candidate."""
        slots = max(
            (len(one.tree.draws(-1)) for p in self.played[rule] for one in p), default=0
        )
        if not slots:
            return None
        rounds: list[Any] = self.played[rule]  # with all that is read of a round
        counted = [
            count(listed, depths=CHAIN_DEPTH, slots=min(slots, SLOTS))
            for listed in rounds
        ]
        tried, selected = (np.array([one[i] for one in counted]) for i in (0, 1))
        reached = tried[:, :, 0].sum(axis=0) > 0
        deep = len(reached) if reached.all() else int(np.argmin(reached))
        observed = Observed(tried[:, :deep], selected[:, :deep]).pooled()
        found: list[float] = observed.acceptance()
        return found

    def level_seconds(self) -> float:
        """Seconds that a level of a draft takes; the median round's."""
        return median([s / depth for s, depth in self.drafting] or [0.0])


def panel(
    judge: Verifier, rules: Mapping[str, Verifier], seed: int, into: Callable[..., None]
) -> Verifier:
    """A verifier that decides as `judge` does, and lets the others walk the same tree.

    `into(rule, tree, selection)` is told what each selected, the judge too. The others
    draw from samplers of their own, so the judge's draws are those that it would have
    had alone.
    """
    samplers = {name: Sampler(seed + 1 + i) for i, name in enumerate(rules)}

    def select(
        tree: CandidateTree, law: Callable[[int], np.ndarray], chance: Chance
    ) -> Selection:
        chosen = judge.select(tree, law, chance)
        bare = tree.without_laws()
        for name, rule in rules.items():
            same = rule.contract == judge.contract
            found = chosen if same else rule.select(tree, law, samplers[name])
            into(name, bare, found)
        return chosen

    return Verifier(judge.contract, select)


def counted(
    target: Any,
    drawing: Drawing,
    asked: Sequence[Sequence[int]],
    *,
    temperature: float,
    max_new_tokens: int,
    seed: int = 0,
    clock: Clock = time.perf_counter,
) -> Counts:
    """Decodes the prompts once and counts for every rule of the drawing.

    `asked`: ids of prompts. The source drafts a shape that shows all slots, or, where
    it follows no plans, its own. `clock` times the drafting. Raises what `generate`
    raises, and `SpecbookError` where the drawing has no exact rule.
    """
    checks.integer(max_new_tokens, "max_new_tokens", least=2)
    rules = {name: verifiers.get(name) for name in drawing.rules}
    judges = [rule for rule in rules.values() if rule.contract.exact]
    if not judges:
        raise SpecbookError(f"no exact rule may meet {drawing.key}")
    found = Counts(drawing)
    source = _calibrating(drawing)
    for number, ids in enumerate(asked):
        into: dict[str, list[Played]] = {name: [] for name in rules}

        def keep(
            name: str, tree: CandidateTree, selection: Selection, kept: Any = into
        ) -> None:
            kept[name].append(Played(tree, selection))

        made = generate(
            target,
            ids,
            source,
            panel(judges[0], rules, seed + number, keep),
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            seed=seed + number,
            eos_token_id=target.eos_token_id,
            clock=clock,
        )
        # What had no candidate for want of a state says nothing about any shape.
        first = int(not into[drawing.rules[0]][0].tree)
        for name, played in into.items():
            found.played.setdefault(name, []).append(played[first:] or played)
        _note(found, made.rounds[first:] or made.rounds)
    return found


def _calibrating(drawing: Drawing) -> Any:
    source = drawing.source
    if not source.levels:
        return source.make()
    if drawing.chain:
        length = min(CHAIN_DEPTH, source.levels)
        return source.make(widths=(1,) * length, children=drawing.children)
    if drawing.children == "hub":
        return source.make(widths=(2,) * 2, children="hub")
    shape = calibration_shape(SLOTS, min(DEPTH, source.levels))
    return source.make(shape=shape, children=drawing.children)


def _note(found: Counts, rounds: Sequence[Round]) -> None:
    for played in rounds:
        found.rows.append(1 + len(played.tree))
        if len(played.tree):
            spent = played.ledger.proposal + played.ledger.retrieval
            found.drafting.append((float(spent), played.tree.max_depth))


def level_seconds(
    target: Any,
    drawing: Drawing,
    ids: Sequence[int],
    temperature: float,
    *,
    clock: Clock = time.perf_counter,
) -> float:
    """Seconds of a level of a draft on this target: the median of few rounds."""
    made = counted(
        target,
        drawing,
        [ids],
        temperature=temperature,
        max_new_tokens=6,
        clock=clock,
    )
    return made.level_seconds()


def priced(
    counts: Counts,
    verify: Sequence[tuple[int, float]],
    *,
    dtype: str,
    temperature: float,
    level: float | None = None,
) -> list[Screened]:
    """Every rule and every shape of a drawing with its predicted tokens and times.

    `verify`: pairs (rows, seconds) of a verification. `level`: seconds of a level of a
    draft, by default as it was counted. Beside the fixed shapes stands the one that is
    the fastest by these very numbers, where there is one.
    """
    clock = DraftLength(verify)
    level = counts.level_seconds() if level is None else level
    drawing = counts.drawing
    found = []
    for rule in drawing.rules:
        row = partial(
            Screened, dtype=dtype, temperature=temperature, prompts=counts.prompts
        )
        if not drawing.source.levels:
            deep = sum(depth for _, depth in counts.drafting) / len(counts.rows)
            found.append(
                row(
                    configuration(drawing, rule),
                    tokens_per_round=counts.tokens_per_round(rule),
                    draft_seconds=level * deep,
                    verify_seconds=_mean([clock.time(n) for n in counts.rows]),
                    draft_depth=deep,
                )
            )
            continue
        slots = counts.acceptance(rule)
        if slots is None:
            continue
        tried = shapes(drawing) | _planned(drawing, slots, clock, level)
        for name, shape in tried.items():
            found.append(
                row(
                    configuration(drawing, rule, name, shape),
                    tokens_per_round=float(expected_progress(shape, slots)),
                    draft_seconds=level * shape.max_depth,
                    verify_seconds=clock.time(1 + len(shape)),
                    draft_depth=float(shape.max_depth),
                )
            )
    return found


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _planned(
    drawing: Drawing, slots: list[float], clock: DraftLength, level: float
) -> dict[str, CandidateTree]:
    """The fastest tree of up to `MOST_ROWS` rows by these slots; {} where a chain, a
    fixed shape or no draft is the answer, and for pairs, which are never planned."""
    if drawing.chain or drawing.children == "hub":
        return {}
    one = clock.time(1)
    times = {n: clock.time(n) / one for n in range(2, MOST_ROWS + 1)}
    deepest = min(drawing.source.levels, MOST_ROWS - 1)
    best = choose(slots, times, level / one, max_depth=deepest).best
    shape = best.tree
    widths = [len(shape.children(row)) for row in range(-1, len(shape))]
    fixed = [(f.parents, f.token_ids) for f in shapes(drawing).values()]
    if max(widths) == 1 or (shape.parents, shape.token_ids) in fixed:
        return {}
    return {f"planned {len(shape)} x {shape.max_depth}": shape}


def replayed(
    drawing: Drawing,
    recorded: Recording,
    verify: Sequence[tuple[int, float]],
    budgets: Sequence[int],
    *,
    dtype: str,
    clock: Clock = time.perf_counter,
) -> list[Screened]:
    """A source without q on recorded answers, for every exact rule and every budget of
    candidates (0 is none). `clock` times the drafting. Raises as `replay`."""
    rows_time = DraftLength(verify)
    found = []
    for most in budgets:
        limit = {"max_nodes": most} if most else {}
        made = [
            decode_again(drawing.source.make(), output, recorded, clock=clock, **limit)
            for output in recorded.outputs
        ]
        rounds = [one for run in made for one in run.rounds]
        ledger = RoundLedger.total(one.ledger for one in rounds)
        for rule in drawing.rules:
            if not verifiers.get(rule).contract.exact:
                continue
            found.append(
                Screened(
                    configuration(drawing, rule, most=most),
                    dtype,
                    recorded.temperature,
                    len(made),
                    ledger.committed_tokens / len(rounds),
                    (ledger.proposal + ledger.retrieval) / len(rounds),
                    _mean([rows_time.time(1 + len(one.tree)) for one in rounds]),
                    _mean([one.tree.max_depth for one in rounds]),
                )
            )
    return found


def finalists(
    rows: Sequence[Screened], *, each: int = 1, heuristics: bool = True
) -> list[Screened]:
    """Who is decoded in full: of every family the `each` exact proposals with the least
    predicted time a token, under their best rule; and of every heuristic rule the best,
    if `heuristics`. Of equals the first, in the order of the registry."""
    best = sorted(rows, key=lambda row: row.per_token)
    chosen: list[Screened] = []
    for family in dict.fromkeys(row.configuration.family for row in rows):
        seen: list[str] = []
        for row in best:
            one = row.configuration
            if one.family != family or not one.exact or one.proposal in seen:
                continue
            if len(seen) < each:
                seen.append(one.proposal)
                chosen.append(row)
    if heuristics:
        for rule in dict.fromkeys(
            r.configuration.verifier for r in rows if not r.configuration.exact
        ):
            chosen.append(next(r for r in best if r.configuration.verifier == rule))
    return chosen
