"""What one forward costs by the number of its rows: t(n) of section 0x02C.

A drafted token is nearly free where this curve is flat and useless where it is steep,
so the curve is measured on the machine that will decode, and not assumed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from .. import checks
from ..errors import SpecbookError
from ..models.protocol import checked_target
from ..policy import SamplingPolicy
from ..tree import CandidateTree

ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Row counts that are measured; the pending token is one of the rows."""

GREEDY = SamplingPolicy(temperature=0.0)


def measure_row_cost(
    target: Any,
    *,
    rows: Sequence[int] = ROWS,
    prefix: int = 256,
    repeats: int = 7,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[tuple[int, float], ...]:
    """Pairs (rows, median seconds of a forward), ready to be a `DraftLength` cost.

    `rows`: counts increasing from 1. `prefix`: tokens before the candidates. The
    counts take turns, so that a slow moment of the machine falls on all of them alike;
    a larger count never comes out cheaper than a smaller one (what the noise turned
    round is pooled). Raises `ValueError` for bad counts, and for what is
    no target or no clock.
    """
    checked_target(target)
    if not callable(clock):
        raise SpecbookError(f"clock must be a function, got {clock!r}")
    rows = checks.entries(rows, "rows", "row counts")
    counts = [checks.integer(n, f"rows[{i}]", least=1) for i, n in enumerate(rows)]
    if len(counts) < 2 or counts[0] != 1 or sorted(set(counts)) != counts:
        raise SpecbookError(f"rows must be two or more, increasing from 1: {counts}")
    checks.integer(prefix, "prefix", least=1)
    checks.integer(repeats, "repeats", least=1)
    limit = getattr(target, "context_limit", None)
    if limit is not None and prefix + counts[-1] > limit:
        raise SpecbookError(
            f"{counts[-1]} rows behind {prefix} tokens need a longer context than the "
            f"target's {limit}"
        )
    # Any ids will do: a forward's time does not depend on which tokens it reads.
    text = [7 * i % target.vocab_size for i in range(prefix + counts[-1])]
    session = target.start(text[:prefix])
    spent: dict[int, list[float]] = {n: [] for n in counts}
    for turn in range(repeats + 1):
        for n in counts:
            path = text[prefix : prefix + n - 1]
            length = len(session.tokens)
            tree = CandidateTree.from_paths([path] if path else [], length)
            start = clock()
            verified = session.verify(tree)
            # A target may put off its LM head until somebody asks for a row's law.
            # Here every row is asked for, as when every candidate is accepted.
            for row in range(-1, n - 1):
                verified.law(row, GREEDY)
            seconds = clock() - start
            session.commit((), text[0])
            # The first turn fills the cache and warms the machine up.
            if turn:
                spent[n].append(seconds)
    return _never_falling([(n, statistics.median(spent[n])) for n in counts])


def _never_falling(
    points: Sequence[tuple[int, float]],
) -> tuple[tuple[int, float], ...]:
    """The closest curve that does not fall (pool adjacent violators)."""
    pools: list[tuple[float, int]] = []
    for _, value in points:
        pools.append((value, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (low, m), (high, n) = pools[-2:]
            pools[-2:] = [((low * m + high * n) / (m + n), m + n)]
    levels = [value for value, count in pools for _ in range(count)]
    return tuple((n, level) for (n, _), level in zip(points, levels, strict=True))
