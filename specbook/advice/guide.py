"""The article's decision guide as questions with answers: which conditions hold here.

Section 0x10 lists seven kinds of proposals and for each three conditions under which to
use it. A condition is no matter of taste: it is asked here of the constraints, of the
contracts and of the estimates of one workload, and where nothing was measured that
could tell, the answer is that it is not known. The list advises nothing: `advise`
compares times. It says why the comparison came out as it did.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import checks, drafts, lab
from ..contract import admitted, contract_of
from ..errors import SpecbookError
from ..proposal import ProbabilitySemantics
from .constraints import Constraints, refusals
from .estimate import Estimate, megabytes
from .needs import needs_of

CHEAP = 0.05
"""Of a plain step: what a lookup may take and still be called cheap."""

BENT = 0.1
"""How far t(n) must leave a straight line to be called nonlinear, in parts of it."""

STEADY = 0.1
"""Half the width of the interval of t(1), in parts of it, that still counts as stable
enough to calibrate on."""

SMALL = 8
"""Rows of a tree that is still called small."""

Answer = tuple[bool | None, str]
"""Whether it holds, None for not known; and what was looked at."""


@dataclass(frozen=True)
class Situation:
    """What the questions are asked of: the estimates of one workload, plain decoding
    among them, the constraints, and `times`, {rows: seconds of a verification}."""

    estimates: Sequence[Estimate]
    constraints: Constraints
    times: Mapping[int, float]

    def __post_init__(self) -> None:
        listed = checks.entries(self.estimates, "estimates", "Estimates")
        for place, one in enumerate(listed):
            checks.instance(one, f"estimates[{place}]", Estimate)
        if sum(one.configuration.family == "plain" for one in listed) != 1:
            raise SpecbookError("plain decoding must be among the estimates, once")
        checks.instance(self.constraints, "constraints", Constraints)
        for n, seconds in checks.instance(self.times, "times", Mapping).items():
            checks.integer(n, "rows of times", least=1)
            if not checks.float64(seconds, f"times[{n}]") > 0:
                raise SpecbookError(f"times[{n}] must be above 0, got {seconds}")

    @property
    def plain(self) -> Estimate:
        """Plain decoding."""
        return next(e for e in self.estimates if e.configuration.family == "plain")

    def best(
        self,
        chosen: Callable[[Estimate], bool],
        by: Callable[[Estimate], Any] = lambda e: e.per_token,
    ) -> Estimate | None:
        """The one with the least `by`, by default the fastest, of those that are chosen
        and that a rule may judge which is asked for; None where there is none. Memory
        and the datastore have conditions of their own, and keep nothing out here."""
        found = [e for e in self.estimates if chosen(e) and self._judged(e)]
        return min(found, key=by, default=None)

    def measured(self, chosen: Callable[[Estimate], bool]) -> Estimate | None:
        """The fastest of those that are chosen, whatever its rule: for what a source is
        and holds. None where there is none."""
        return min(
            filter(chosen, self.estimates), key=lambda e: e.per_token, default=None
        )

    def _judged(self, one: Estimate) -> bool:
        why = {refusal.constraint for refusal in refusals(one, self.constraints)}
        return not why & {"contract", "exact", "temperature"}


@dataclass(frozen=True)
class Condition:
    """One line of the guide. `use`: the kind of proposal; `when`: the condition, in our
    words; `ask`: answers it."""

    use: str
    when: str
    ask: Callable[[Situation], Answer]


def answers(here: Situation) -> list[tuple[Condition, bool | None, str]]:
    """Every condition with its answer, in the article's order."""
    checks.instance(here, "here", Situation)
    return [(one, *one.ask(here)) for one in CONDITIONS]


def table(here: Situation) -> lab.Table:
    """The guide for this machine and this workload."""
    told = {True: "yes", False: "no", None: "not known"}
    rows = [
        [one.use, one.when, told[holds], seen] for one, holds, seen in answers(here)
    ]
    return lab.table(["use", "when", "here", "what was looked at"], rows)


# ------------------------------------------------------------------ what is looked at

UNSEEN: Answer = (None, "none was measured")
_WEIGHTLESS = ("plain", "copying")


def _copies(one: Estimate) -> bool:
    return one.configuration.family == "copying" and not _stored(one)


def _stored(one: Estimate) -> bool:
    return needs_of(one.configuration).datastore


def _family(name: str) -> Callable[[Estimate], bool]:
    return lambda one: one.configuration.family == name


def _heads(independent: bool) -> Callable[[Estimate], bool]:
    def chosen(one: Estimate) -> bool:
        if one.configuration.family != "heads":
            return False
        from ..models import heads

        return heads.independent(one.configuration.source) == independent

    return chosen


def _pays(chosen: Callable[[Estimate], bool]) -> Callable[[Situation], Answer]:
    """Whether the tokens of a round are worth its time."""

    def ask(here: Situation) -> Answer:
        one = here.best(chosen)
        if one is None:
            return UNSEEN
        needed = one.cost / here.plain.per_token
        return bool(one.tokens > needed), (
            f"{float(one.tokens):.2f} tokens a round, {float(needed):.2f} are needed"
        )

    return ask


def _free_draft_pays(
    chosen: Callable[[Estimate], bool],
) -> Callable[[Situation], Answer]:
    """Whether the tokens would be worth the verification, were drafting free."""

    def ask(here: Situation) -> Answer:
        one = here.best(chosen, lambda e: (e.cost - e.draft) / e.tokens)
        if one is None:
            return UNSEEN
        needed = (one.cost - one.draft) / here.plain.per_token
        return bool(one.tokens > needed), (
            f"{float(one.tokens):.2f} tokens a round, the verification alone needs "
            f"{float(needed):.2f}"
        )

    return ask


def _no_memory(here: Situation) -> Answer:
    limit = here.constraints.extra_bytes
    # What copies may keep an index, but no weights.
    held = [e for e in here.estimates if e.configuration.family not in _WEIGHTLESS]
    least = min((e.extra_bytes for e in held if e.extra_bytes), default=None)
    if limit is None:
        return False, "no limit is set"
    if least is None:
        return None, "no source with weights was measured"
    return bool(limit < least), (
        f"{megabytes(limit)} allowed, the least with weights needs {megabytes(least)}"
    )


def _cheap(chosen: Callable[[Estimate], bool]) -> Callable[[Situation], Answer]:
    """Whether looking up costs little of a step, found or not."""

    def ask(here: Situation) -> Answer:
        one = here.best(chosen)
        if one is None:
            return UNSEEN
        part = float(one.draft / here.plain.cost)
        return part <= CHEAP, f"a lookup takes {part:.2%} of a plain step"

    return ask


def _datastore(here: Situation) -> Answer:
    allowed = here.constraints.datastore
    return allowed, "allowed" if allowed else "not allowed"


def _fits(here: Situation) -> Answer:
    one = here.measured(_family("model"))
    if one is None:
        return UNSEEN
    limit = here.constraints.extra_bytes
    told = megabytes(one.extra_bytes)
    if limit is None:
        return True, f"{told}, no limit is set"
    return one.extra_bytes <= limit, f"{told}, {megabytes(limit)} are allowed"


def _native_q(here: Situation) -> Answer:
    one = here.measured(_family("model"))
    if one is None:
        return UNSEEN
    if here.constraints.temperature == 0:
        return False, "at temperature 0 no rule divides by q"
    # Of a chain: however the measured trees were filled, the source can draw one.
    contract = drafts.get(one.configuration.source).contract  # type: ignore[attr-defined]
    normal = ProbabilitySemantics.NORMALIZED_CONDITIONAL
    rules = [n for n in admitted([contract]) if contract_of(n).reads_q]
    holds = contract.probability_semantics == normal and bool(rules)
    return holds, f"{len(rules)} exact rules that read q admit it"


def _memory_binds(here: Situation) -> Answer:
    limit = here.constraints.extra_bytes
    one = here.measured(_family("model"))
    if one is None:
        return UNSEEN
    if limit is None:
        return False, "no limit is set"
    return bool(one.extra_bytes > limit), (
        f"a second model takes {megabytes(one.extra_bytes)}, "
        f"{megabytes(limit)} are allowed"
    )


def _apart(here: Situation) -> Answer:
    names = [
        e.configuration.source
        for e in here.estimates
        if e.configuration.family == "self"
    ]
    if not names:
        return UNSEEN
    kinds: list[Any] = [drafts.get(name) for name in dict.fromkeys(names)]
    caches = [kind.contract.cache for kind in kinds]
    return all(caches), "; ".join(caches)


def _pair(
    here: Situation,
) -> tuple[Estimate | None, Estimate | None]:
    return here.best(_heads(True)), here.best(_heads(False))


def _latency(here: Situation) -> Answer:
    alone, chained = _pair(here)
    if alone is None or chained is None:
        return UNSEEN
    return bool(alone.draft < chained.draft), (
        f"{1000 * float(alone.draft):.1f} ms a round, dependent heads "
        f"{1000 * float(chained.draft):.1f}"
    )


def _small(here: Situation) -> Answer:
    alone, _ = _pair(here)
    if alone is None:
        return UNSEEN
    rows = 1 + len(alone.configuration.parents)
    return rows <= SMALL, f"the fastest shape has {rows} rows"


def _consistent(here: Situation) -> Answer:
    alone, chained = _pair(here)
    if alone is None or chained is None:
        return UNSEEN
    return bool(alone.per_token <= chained.per_token), (
        f"{1000 * float(alone.per_token):.1f} ms a token, dependent heads "
        f"{1000 * float(chained.per_token):.1f}"
    )


def _deeper(here: Situation) -> Answer:
    alone, chained = _pair(here)
    if alone is None or chained is None:
        return UNSEEN
    return bool(chained.tokens > alone.tokens), (
        f"{float(chained.tokens):.2f} tokens a round, independent heads "
        f"{float(alone.tokens):.2f}"
    )


def _path_pays(here: Situation) -> Answer:
    alone, chained = _pair(here)
    if alone is None or chained is None:
        return UNSEEN
    more = chained.draft - alone.draft
    worth = (chained.tokens - alone.tokens) * here.plain.per_token
    return bool(more < worth), (
        f"{1000 * float(more):.1f} ms more drafting a round, for tokens worth "
        f"{1000 * float(worth):.1f} ms of plain decoding"
    )


def _smaller(here: Situation) -> Answer:
    alone, chained = _pair(here)
    if alone is None or chained is None:
        return UNSEEN
    mine, theirs = (1 + len(e.configuration.parents) for e in (chained, alone))
    return mine <= theirs, f"{mine} rows, independent heads {theirs}"


def _steady(here: Situation) -> Answer:
    worlds = here.plain.worlds
    if worlds is None:
        return None, "plain decoding was timed once"
    low, high = np.quantile(worlds, (0.025, 0.975))
    part = float((high - low) / (high + low))
    return part <= STEADY, f"a plain token is known to {part:.1%}"


def _nonlinear(here: Situation) -> Answer:
    sizes = sorted(here.times)
    if len(sizes) < 3:
        return None, f"{len(sizes)} sizes were timed"
    first, last = sizes[0], sizes[-1]
    slope = (here.times[last] - here.times[first]) / (last - first)
    off = {
        n: here.times[n] / (here.times[first] + slope * (n - first)) - 1 for n in sizes
    }
    worst = max(off, key=lambda n: abs(off[n]))
    return bool(abs(off[worst]) > BENT), (
        f"at {worst} rows {float(off[worst]):+.0%} off the line from {first} to {last}"
    )


def _shapes(here: Situation) -> Answer:
    tried = {e.configuration.parents for e in here.estimates if e.configuration.parents}
    if here.constraints.fixed_rows:
        return len(tried) > 1, f"rows are fixed, {len(tried)} shapes were tried"
    return True, "rows may change from round to round"


CONDITIONS: tuple[Condition, ...] = (
    Condition("prompt lookup", "the answer repeats its prompt", _pays(_copies)),
    Condition("prompt lookup", "no memory for a model is left", _no_memory),
    Condition("prompt lookup", "a miss costs little", _cheap(_copies)),
    Condition("retrieval", "the library has what requests ask", _pays(_stored)),
    Condition("retrieval", "a governed datastore is allowed", _datastore),
    Condition("retrieval", "a lookup fits a round", _cheap(_stored)),
    Condition(
        "draft model", "it agrees with the target", _free_draft_pays(_family("model"))
    ),
    Condition("draft model", "its memory fits", _fits),
    Condition("draft model", "a native q serves exact rules", _native_q),
    Condition("self-speculation", "a second model does not fit", _memory_binds),
    Condition(
        "self-speculation", "a cheap path agrees", _free_draft_pays(_family("self"))
    ),
    Condition("self-speculation", "states are kept apart", _apart),
    Condition("independent heads", "their drafts are the quicker ones", _latency),
    Condition("independent heads", "a small tree is enough", _small),
    Condition("independent heads", "loose later heads do not matter", _consistent),
    Condition("dependent heads", "later depths limit the path", _deeper),
    Condition("dependent heads", "the steps along it are cheap", _path_pays),
    Condition("dependent heads", "they need no larger tree", _smaller),
    Condition("planned trees", "times hold still", _steady),
    Condition("planned trees", "time is not linear in rows", _nonlinear),
    Condition("planned trees", "several shapes can run", _shapes),
)
"""The guide, three conditions for each of its seven kinds."""


def tally(found: Iterable[tuple[Condition, bool | None, str]]) -> dict[str, str]:
    """{kind: "2 of 3"}: how many of its conditions hold."""
    rows = list(found)
    return {
        use: f"{sum(h is True for c, h, _ in rows if c.use == use)} of "
        f"{sum(c.use == use for c, _, _ in rows)}"
        for use in dict.fromkeys(c.use for c, _, _ in rows)
    }
