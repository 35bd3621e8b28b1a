"""Estimates from counts and times, without decoding what is advised.

Three things are known apart: what rows cost (a profile of the machine), how often a
candidate is accepted (counts of a source, or recorded answers that a lookup can be run
on), and how long the source drafts. A round of any shape then has its tokens and its
time. What else a round does is not planned, so a prediction is a little too good for
all alike (sections 0x0AA, 0x0AD).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import checks
from ..contract import contract_of
from ..engine import generate
from ..errors import SpecbookError
from ..measure.acceptance import AcceptanceProfile
from ..measure.frontier_data import PLAIN, Configuration
from ..measure.recording import Recording
from ..measure.replay import decode_again
from ..measure.verify_report import VerifyProfile
from ..topologies.hardware import plans, progress_in_worlds
from ..topologies.progress import expected_progress
from .estimate import Estimate
from .needs import family_of

WORLDS = 2000
DEEPEST = 6
"""Levels that a plan may have where no count says how deep it may be."""


class Rows:
    """What a verification of n rows costs one request, now and in every world.

    `profile`, `batch`: a profile of `measure verify-time` and the requests that share a
    forward, of which each pays its share. `prefix`, `shape`: the tokens before the rows
    and their arrangement; by default those that were measured first, and the attributes
    say which. Between measured sizes the next larger one is taken: kernels pad. Raises
    `SpecbookError` beyond the largest, and for what was not measured. Section 0x0AD.
    """

    def __init__(
        self,
        profile: VerifyProfile,
        *,
        batch: int = 1,
        prefix: int | None = None,
        shape: str | None = None,
        worlds: int = WORLDS,
        seed: int = 0,
    ) -> None:
        if not isinstance(profile, VerifyProfile):
            raise SpecbookError(f"not a verification profile: {profile!r}")
        checks.integer(batch, "batch", least=1)
        checks.integer(worlds, "worlds", least=1)
        checks.integer(seed, "seed", least=0)
        forward = "runtime" if batch == 1 else "batch"
        times = profile.times(forward, batch, prefix, shape)
        self.prefix, self.shape = next(
            group[2:]
            for group in profile.groups()
            if group[:2] == (forward, batch)
            and prefix in (None, group[2])
            and shape in (None, group[3])
        )
        order = np.argsort(times.nodes)
        self.profile, self.worlds, self.seed = profile, worlds, seed
        self.sizes = [times.nodes[i] for i in order]
        turns = times.verify[:, order] / batch
        self._now = np.maximum.accumulate(np.median(turns, axis=0))
        rng = np.random.default_rng(seed)
        drawn = rng.integers(len(turns), size=(worlds, len(turns)))
        self._worlds = np.maximum.accumulate(np.median(turns[drawn], axis=1), axis=1)

    def place(self, rows: int) -> int:
        """The index of the size that `rows` rows are priced by."""
        checks.integer(rows, "rows", least=1)
        for place, size in enumerate(self.sizes):
            if size >= rows:
                return place
        raise SpecbookError(
            f"{rows} rows were not measured, the largest size is {self.sizes[-1]}"
        )

    def now(self, rows: int) -> float:
        """Seconds, the median of the turns."""
        return float(self._now[self.place(rows)])

    def in_worlds(self, rows: int) -> np.ndarray:
        """Seconds [W], turns drawn again."""
        found: np.ndarray = self._worlds[:, self.place(rows)]
        return found

    def drawn(self, count: int, *, salt: int) -> np.ndarray:
        """Which of `count` prompts each world draws [W, count]. `salt`: other evidence,
        other draws."""
        rng = np.random.default_rng((self.seed, salt))
        return rng.integers(count, size=(self.worlds, count))


def plain(rows: Rows) -> Estimate:
    """Plain decoding: a row a token."""
    return Estimate(
        PLAIN,
        1.0,
        0.0,
        rows.now(1),
        how="predicted",
        basis=f"the time of one row behind {rows.prefix} tokens",
        worlds=rows.in_worlds(1),
    )


def replayed(
    name: str,
    source: Any,
    recorded: Recording,
    rows: Rows,
    *,
    most: int | None = None,
    extra_bytes: int = 0,
) -> Estimate:
    """A source that copies, run on recorded answers; no model is asked.

    `source`: it, ready made, and `name` in the registry. `most`: candidates of a round;
    by default as many as were measured in `rows`. The configuration names it, since
    without that limit its rounds would be others. Raises `SpecbookError` for answers of
    another target than the times, and what `replay` raises, as for a source that reads
    q.
    """
    checks.instance(rows, "rows", Rows)
    if not isinstance(recorded, Recording) or not recorded.outputs:
        raise SpecbookError("a Recording with outputs is needed")
    if not of_target(recorded, rows.profile):
        raise SpecbookError(
            f"the answers are of {recorded.about['target'].get('checkpoint')}, the "
            f"times of {rows.profile.settings.get('target')}: they do not belong "
            "together"
        )
    if rows.sizes[-1] < 2:
        raise SpecbookError("only one row was timed: there is no price of a candidate")
    limit = rows.sizes[-1] - 1 if most is None else most
    checks.integer(limit, "most", least=1, most=rows.sizes[-1] - 1)
    made = [
        decode_again(source, o, recorded, max_nodes=limit) for o in recorded.outputs
    ]
    counts = np.zeros((len(made), len(rows.sizes)))
    for number, run in enumerate(made):
        for played in run.rounds:
            counts[number, rows.place(1 + len(played.tree))] += 1
    seconds = [float(run.ledger.proposal + run.ledger.retrieval) for run in made]
    tokens = np.array([len(run.tokens) for run in made])
    drafting = np.array(seconds)
    drawn = rows.drawn(len(made), salt=1)
    prices = np.stack([rows.in_worlds(n) for n in rows.sizes], axis=1)
    spent = drafting[drawn].sum(axis=1) + (counts[drawn].sum(axis=1) * prices).sum(
        axis=1
    )
    total = counts.sum()
    verify = sum(
        count * rows.now(n)
        for n, count in zip(rows.sizes, counts.sum(axis=0), strict=True)
    )
    one = Configuration(name, family_of(name), _rule(recorded.temperature), most=limit)
    return Estimate(
        one,
        float(tokens.sum() / total),
        float(drafting.sum() / total),
        float(verify / total),
        extra_bytes=extra_bytes,
        how="predicted",
        basis=f"{len(made)} recorded answers{_format(recorded, rows.profile)}",
        worlds=spent / tokens[drawn].sum(axis=1) if len(made) > 1 else None,
    )


def of_target(recorded: Recording, profile: VerifyProfile) -> bool:
    """Whether answers and times are of one target. Answers that say of none, because
    somebody made them by hand, are taken for this one's."""
    checks.instance(recorded, "recorded", Recording)
    checks.instance(profile, "profile", VerifyProfile)
    about = recorded.about.get("target")
    return about is None or about.get("checkpoint") == profile.settings.get("target")


def _format(recorded: Recording, profile: VerifyProfile) -> str:
    """In which number format it answered, where the times are of another one."""
    told = recorded.about.get("target", {}).get("dtype")
    return "" if told in (None, profile.settings.get("dtype")) else f" in {told}"


def _rule(temperature: float) -> str:
    return "greedy" if temperature == 0 else "membership"


def planned(
    counts: AcceptanceProfile,
    rows: Rows,
    levels: Sequence[float],
    *,
    workload: str | None = None,
    max_depth: int = DEEPEST,
    extra_bytes: int = 0,
) -> list[Estimate]:
    """The fastest chain and the fastest tree of a source that follows plans.

    `counts`: what `measure acceptance` found, on `workload` or all. `levels`: seconds
    of a level of its drafts, measured several times (`draft_levels`). Slots of all
    depths are taken together, so that deeper plans can be priced than were counted.
    Raises `SpecbookError` for counts of another target or number format than the times,
    and for a source that follows no plans.
    """
    if not isinstance(rows, Rows):
        raise SpecbookError(f"rows must be Rows, got {rows!r}")
    check_together(counts, rows.profile)
    spent = [
        checks.float64(s, f"levels[{i}]", least=0)
        for i, s in enumerate(checks.entries(levels, "levels", "seconds"))
    ]
    if not spent:
        raise SpecbookError("levels is empty: what drafting takes must be measured")
    checks.integer(max_depth, "max_depth", least=1)
    name, children = drawing_of(counts)
    level = float(np.median(spent))
    observed = counts.observed(workload).pooled()
    slots = observed.acceptance()
    # The same draws of prompts for every shape, so that shapes are compared in pairs.
    rng = np.random.default_rng((rows.seed, 2))
    again = observed.drawn_again(rng, rows.worlds)
    turns = np.random.default_rng((rows.seed, 3)).integers(
        len(spent), size=(rows.worlds, len(spent))
    )
    drafting = np.median(np.array(spent)[turns], axis=1)
    several = observed.tried.shape[0] > 1
    best: dict[bool, Estimate] = {}
    rule = str(counts.settings["verifier"])
    for plan in plans(slots, rows.sizes, max_depth):
        shape = plan.tree
        if not len(shape):
            continue
        chain = plan.depth == len(shape)
        told = "chain" if chain else "planned"
        one = Configuration(
            name,
            family_of(name),
            rule,
            contract_of(rule).exact,
            f"{told} {plan.depth if chain else f'{len(shape)} x {plan.depth}'}",
            children,
            parents=shape.parents,
            ranks=shape.token_ids,
        )
        progress = progress_in_worlds(shape, again, every_depth=False)
        made = Estimate(
            one,
            float(expected_progress(shape, slots)),
            plan.depth * level,
            rows.now(plan.nodes),
            extra_bytes=extra_bytes,
            how="predicted",
            basis=f"{observed.tried.shape[0]} counted prompts",
            worlds=(plan.depth * drafting + rows.in_worlds(plan.nodes)) / progress
            if several
            else None,
        )
        if chain not in best or made.per_token < best[chain].per_token:
            best[chain] = made
    if not best:
        raise SpecbookError(f"no shape of {name} has a measured size: {rows.sizes}")
    return list(best.values())


def drawing_of(counts: AcceptanceProfile) -> tuple[str, str]:
    """(name, children): of the source that was counted. Raises `SpecbookError` for one
    that follows no plans."""
    told = str(counts.settings["source"])
    drawn = re.search(r"children=(\w+)", told)
    if drawn is None or " + " in told:
        raise SpecbookError(
            f"{told!r} follows no plans: replay it, or measure it whole"
        )
    return told.split()[0], drawn[1]


def check_together(counts: AcceptanceProfile, profile: VerifyProfile) -> None:
    """Raises `SpecbookError` where counts and times are of two targets, two number
    formats, or not of a kind that says so."""
    for value, kind in ((counts, AcceptanceProfile), (profile, VerifyProfile)):
        if not isinstance(value, kind):
            raise SpecbookError(f"a {kind.KIND} is needed, got {value!r}")
    for name in ("target", "dtype"):
        one, other = counts.settings.get(name), profile.settings.get(name)
        if one != other:
            raise SpecbookError(
                f"the counts are of {name} {one}, the times of {other}: they do not "
                "belong together"
            )


def draft_levels(
    target: Any,
    source: Any,
    ids: Sequence[int],
    *,
    temperature: float = 0.0,
    max_new_tokens: int = 24,
    seed: int = 0,
    verifier: str = "membership",
    clock: Callable[[], float] | None = None,
) -> list[float]:
    """Seconds of a level of the drafts of `source`: a round's drafting over its depth,
    for every round after the first with a candidate. `verifier`: any rule that may meet
    it. Raises what `generate` raises, and `SpecbookError` where nothing was drafted."""
    made = generate(
        target,
        ids,
        source,
        verifier,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        seed=seed,
        clock=time.perf_counter if clock is None else clock,
    )
    found = [
        float(played.ledger.proposal + played.ledger.retrieval) / played.tree.max_depth
        for played in made.rounds[1:]
        if len(played.tree)
    ]
    if not found:
        raise SpecbookError("nothing was drafted: there is no time of a level")
    return found
