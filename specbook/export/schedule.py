"""How many drafts for how many requests: a schedule chosen from t(B, n).

The more requests share a verification, the sooner a drafted row costs what it brings.
For every batch size that was measured, the speed-up of each chain is its expected
tokens over its time (`topologies.hardware.choose`); the schedule holds the best, and
K = 0, plain decoding, is one of them. A batch size that was not measured takes the
schedule of the largest measured one below it (section 0x0AD).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import checks
from ..errors import SpecbookError
from ..measure.verify_report import VerifyProfile
from ..topologies.hardware import choose
from .rates import acceptance_rows


@dataclass(frozen=True)
class BatchChoice:
    """One batch size. `speedups`: {K: speed-up over plain decoding of that batch}, for
    every chain that was measured, 0 drafts among them."""

    batch: int
    speedups: Mapping[int, Any]

    def __post_init__(self) -> None:
        checks.integer(self.batch, "batch", least=1)
        told = checks.instance(self.speedups, "speedups", Mapping)
        for drafts, speedup in told.items():
            checks.integer(drafts, "drafts of speedups", least=0)
            checks.float64(speedup, f"speedups[{drafts}]", least=0)
        if 0 not in told:
            raise SpecbookError("speedups must hold 0 drafts: plain decoding")

    @property
    def best(self) -> int:
        """The fastest K; of equally fast ones the smallest."""
        return max(self.speedups, key=lambda k: (self.speedups[k], -k))

    def near(self, within: float) -> list[int]:
        """The K whose speed-up is at most `within` (a share) below the best one's."""
        checks.float64(within, "within", least=0, most=1)
        least = self.speedups[self.best] * (1 - within)
        return sorted(k for k, speedup in self.speedups.items() if speedup >= least)


def choose_lengths(
    rates: Iterable[Any],
    times: VerifyProfile,
    *,
    draft_seconds: float,
    prefix: int | None = None,
    longest: int | None = None,
) -> list[BatchChoice]:
    """The best chain for every batch size of a profile, in order.

    `rates`: unconditional, by position. `times`: measured; its batched forwards, and
    for one request the runtime's own. `draft_seconds`: of one draft step; 0 for a
    source that copies. `prefix`: which of the measured lengths of text; by default the
    first. `longest`: the most drafts. Raises `SpecbookError` where a profile holds no
    time to choose by.
    """
    if not isinstance(times, VerifyProfile):
        raise SpecbookError(f"times must be a VerifyProfile, got {times!r}")
    rows = acceptance_rows(rates)
    draft = checks.float64(draft_seconds, "draft_seconds", least=0)
    if longest is not None:
        checks.integer(longest, "longest", least=1)
        rows = rows[:longest]
    if prefix is None:
        prefix = first_prefix(times)
    checks.integer(prefix, "prefix", least=1)
    measured: dict[int, tuple[str, str]] = {}
    # One request is the runtime's own, wherever that was measured. Rows cost by their
    # number; where chains were timed themselves, those it is.
    for forward, batch, before, shape in sorted(
        times.groups(), key=lambda group: (group[0] != "runtime", group[3] != "chain")
    ):
        if before == prefix:
            measured.setdefault(batch, (forward, shape))
    if not measured:
        raise SpecbookError(f"nothing was measured with {prefix} tokens before")
    found = []
    for batch, (forward, shape) in sorted(measured.items()):
        clock = times.times(forward, batch, prefix, shape)
        # The rows of one request; a chain of K drafts has K + 1 with the root.
        fitting = {n: t for n, t in clock.steps().items() if n <= len(rows) + 1}
        choice = choose(rows, fitting, draft / clock.one)
        found.append(
            BatchChoice(
                batch,
                {
                    one.nodes - 1: one.speedup
                    for one in sorted(choice.candidates, key=_n)
                },
            )
        )
    if found[0].batch != 1:
        raise SpecbookError(
            f"no time was measured for 1 request, the smallest batch is "
            f"{found[0].batch}: a schedule begins at 1"
        )
    return found


def first_prefix(times: VerifyProfile) -> int:
    """How many tokens stood before the rows that were timed first. Raises
    `SpecbookError` for a profile without any."""
    groups = checks.instance(times, "times", VerifyProfile).groups()
    if not groups:
        raise SpecbookError("the profile holds no time")
    return int(groups[0][2])


def check_choices(choices: Any) -> list[BatchChoice]:
    """`choices` as a list that begins at 1 and goes up. Raises `SpecbookError`."""
    found = checks.entries(choices, "choices", "BatchChoices")
    for place, one in enumerate(found):
        if not isinstance(one, BatchChoice):
            raise SpecbookError(f"choices[{place}] is no BatchChoice: {one!r:.80}")
        if one.batch != 1 if place == 0 else one.batch <= found[place - 1].batch:
            raise SpecbookError(
                f"choices[{place}] is for batch {one.batch}: they begin at 1 and go up"
            )
    if not found:
        raise SpecbookError("choices is empty")
    return found


def ranges(choices: Sequence[BatchChoice]) -> list[tuple[int, int, int]]:
    """(first, last, K) for consecutive batch sizes with one K, from 1 to the largest
    that was measured."""
    choices = check_choices(choices)
    found: list[tuple[int, int, int]] = []
    for place, choice in enumerate(choices):
        after = choices[place + 1].batch - 1 if place + 1 < len(choices) else None
        last = choice.batch if after is None else after
        if found and found[-1][2] == choice.best:
            found[-1] = (found[-1][0], last, choice.best)
        else:
            found.append((choice.batch, last, choice.best))
    return found


def _n(candidate: Any) -> int:
    return candidate.nodes
