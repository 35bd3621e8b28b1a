"""Every metric of section 0x0D: what exactly it counts, and its value in a file.

A name like "acceptance" has a dozen meanings. Here each has one, in words that stand
beside its number. A metric that cannot be had says why: some need a GPU, some a source
of a certain kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .. import lab
from ..contract import contract_of
from ..drafts.draft_length import DraftLength
from ..errors import SpecbookError
from .frontier_data import (
    BINS,
    PLAIN,
    Configuration,
    Cost,
    Decoded,
    FrontierFile,
    Trace,
)
from .frontier_report import decoded, depths, faster_dtype
from .report import Ratio, resampled

NO_GPU = "not measured: no profile of a GPU"
NONE = "does not apply"
GREEDY = "asked above temperature 0"
NO_Q = "its rule reads no q"
UNSEEN = "not seen: another library's"
REASONS = (NO_GPU, NONE, GREEDY, NO_Q, UNSEEN)
"""What stands where there is no value."""


@dataclass(frozen=True)
class Metric:
    """One metric. `part`: the article's heading; `value(file, rows)`: in words.
    `outside`: it can be told of another library, whose rounds nobody saw."""

    part: str
    name: str
    definition: str
    value: Callable[[FrontierFile, Sequence[Decoded]], str]
    outside: bool = False

    def told(self, file: FrontierFile, rows: Sequence[Decoded]) -> str:
        """The value, or the reason why there is none."""
        if not self.outside and any(row.trace is None for row in rows):
            return UNSEEN
        return self.value(file, rows)


def table(
    file: FrontierFile,
    configuration: Configuration,
    workload: str | None = None,
    dtype: str | None = None,
    temperature: float = 0.0,
    *,
    parts: Sequence[str] | None = None,
) -> lab.Table:
    """All metrics of one configuration, or those of some of the article's `parts`.
    Raises `SpecbookError` where it was not decoded."""
    dtype = faster_dtype(file, temperature) if dtype is None else dtype
    rows = decoded(file, configuration, workload, dtype, temperature)
    if not rows:
        raise SpecbookError(
            f"{configuration.name} was not decoded: workload {workload!r}, "
            f"{dtype}, temperature {temperature:g}"
        )
    return lab.table(
        ["part", "metric", "counted as", "value"],
        [
            [one.part, one.name, one.definition, one.told(file, rows)]
            for one in METRICS
            if parts is None or one.part in parts
        ],
    )


# --------------------------------------------------------------------------- quality


def likelihood_excess(rows: Sequence[Decoded]) -> Ratio | None:
    """Nats a token by which the output is more likely than the target's own would be:
    the mean of log p(token) plus the entropy of p, over tokens whose law was asked for.
    0 in expectation for tokens of the law itself, at every prefix; with its interval.
    None for greedy decoding."""
    counted = [t.likelihood for t in _traces(rows) if t.likelihood and t.likelihood[0]]
    if not counted:
        return None
    return resampled(counted, lambda s: (s[:, 1] + s[:, 2]) / s[:, 0])


def log_likelihood(rows: Sequence[Decoded]) -> Ratio | None:
    """Mean log p(token) in nats, p the target's processed law; None for greedy."""
    counted = [t.likelihood for t in _traces(rows) if t.likelihood and t.likelihood[0]]
    if not counted:
        return None
    return resampled(counted, lambda s: s[:, 1] / s[:, 0])


def divergence(rows: Sequence[Decoded]) -> Ratio | None:
    """How far the tokens' places in the target's law are from uniform, as a total
    variation over `BINS` parts: 0 for the law itself, and never more than the mean
    distance between what is emitted and the law. Few tokens give some by chance, so it
    stands beside plain decoding's. None for greedy decoding."""
    counted = [t.places for t in _traces(rows) if t.places]
    if not counted:
        return None

    def distance(sums: np.ndarray) -> np.ndarray:
        shares = sums / sums.sum(axis=1, keepdims=True)
        found: np.ndarray = abs(shares - 1 / BINS).sum(axis=1) / 2
        return found

    return resampled(counted, distance)


def calibration(rows: Sequence[Decoded]) -> float | None:
    """Mean distance of q and p over bins of q, weighted by candidates. A q is
    conditional on the siblings before it, as the rule reads it; p is not. None without
    candidates that have a q and a law beside it."""
    bins = np.zeros((BINS, 3))
    for trace in _traces(rows):
        bins += np.array(trace.q_bins)
    count = bins[:, 0].sum()
    return float(abs(bins[:, 1] - bins[:, 2]).sum() / count) if count else None


def latencies(rows: Sequence[Decoded]) -> np.ndarray:
    """Milliseconds before each token but those of the first round: the tokens of a
    round appear together, so the first waits for the round and the others for
    nothing."""
    waits: list[float] = []
    for trace in _traces(rows):
        for count, seconds in list(
            zip(trace.round_tokens, trace.round_seconds, strict=True)
        )[1:]:
            waits += [1000 * seconds, *[0.0] * (count - 1)]
    return np.array(waits)


def throughput(file: FrontierFile, rows: Sequence[Decoded]) -> dict[int, float]:
    """{requests in a forward: predicted tokens a second of all}: the rounds as they
    were, each at the measured time of so many rows for so many requests, and their
    drafting once a request. The first round is one of them: what the drafter takes to
    read the prompt is in, what the target takes is not. Only for batches of which two
    or more row counts were timed; {} for another library.
    """
    traces = _traces(rows)
    if not traces:
        return {}
    costs: list[Cost] = [c for c in file.of("cost") if c.dtype == rows[0].dtype]
    found = {}
    for batch in sorted({cost.batch for cost in costs}):
        points = sorted((c.nodes, c.seconds) for c in costs if c.batch == batch)
        if len(points) < 2:
            continue
        rising = [(n, max(s for m, s in points if m <= n)) for n, s in points]
        clock = DraftLength(rising)
        seconds = sum(
            count * clock.time(1 + nodes)
            for trace in traces
            for nodes, count in enumerate(trace.rounds_by_nodes)
            if count
        )
        drafting = sum(s for t in traces for _, s in t.draft_seconds_by_depth)
        tokens = sum(row.new_tokens for row in rows)
        found[batch] = batch * tokens / (seconds + batch * drafting)
    return found


# ------------------------------------------------------------------------- the values


def _traces(rows: Sequence[Decoded]) -> list[Trace]:
    return [row.trace for row in rows if row.trace is not None]


def _share(above: float, below: float) -> str:
    return f"{above / below:.0%} of {below:,.0f}" if below else NONE


def _sum(rows: Sequence[Decoded], name: str) -> int:
    return int(sum(getattr(trace, name) for trace in _traces(rows)))


def _by_depth(file: FrontierFile, rows: Sequence[Decoded]) -> str:
    return ", ".join(f"{share:.2f}" for share in depths(rows)[:8]) or NONE


def _lengths(file: FrontierFile, rows: Sequence[Decoded]) -> str:
    total: list[int] = []
    for trace in _traces(rows):
        total += [0] * (len(trace.path_lengths) - len(total))
        for length, count in enumerate(trace.path_lengths):
            total[length] += count
    rounds = sum(total)
    told = [f"{n}: {count / rounds:.0%}" for n, count in enumerate(total) if count]
    return ", ".join(told[:8]) or NONE


def _first(file: FrontierFile, rows: Sequence[Decoded]) -> str:
    return _share(_sum(rows, "first_child"), _sum(rows, "made"))


def _covered(file: FrontierFile, rows: Sequence[Decoded]) -> str:
    made = _sum(rows, "made")
    if not made:
        return NONE
    each = _sum(rows, "distinct") / made
    return f"{_share(_sum(rows, 'covered'), made)}, by {each:.1f} a round"


def _calibrated(file: FrontierFile, rows: Sequence[Decoded]) -> str:
    if not contract_of(rows[0].configuration.verifier).reads_q:
        return NO_Q
    found = calibration(rows)
    return GREEDY if found is None else f"{found:.3f}"


def _match(file: FrontierFile, rows: Sequence[Decoded]) -> str:
    count, total = np.sum([t.match_lengths for t in _traces(rows)] or [(0, 0)], axis=0)
    return f"{total / count:.1f} tokens" if count else NONE


def _missed(file: FrontierFile, rows: Sequence[Decoded]) -> str:
    rounds = sum(row.rounds for row in rows)
    return _share(rounds - _sum(rows, "made"), rounds)


def _latency(file: FrontierFile, rows: Sequence[Decoded]) -> str:
    spent: dict[int, list[float]] = {}
    for trace in _traces(rows):
        for depth, (count, seconds) in enumerate(trace.draft_seconds_by_depth):
            if depth and count:
                one = spent.setdefault(depth, [0.0, 0.0])
                one[0] += count
                one[1] += seconds
    told = [f"{d}: {1000 * s / n:.1f} ms" for d, (n, s) in sorted(spent.items())]
    return ", ".join(told[:8]) or NONE


def _term(name: str) -> Callable[[FrontierFile, Sequence[Decoded]], str]:
    def value(file: FrontierFile, rows: Sequence[Decoded]) -> str:
        spent = sum(trace.cost_terms[name] for trace in _traces(rows))
        rounds = sum(row.rounds for row in rows if row.trace is not None)
        return f"{1000 * spent / rounds:.2f} ms" if rounds else NONE

    return value


def _costs(file: FrontierFile, rows: Sequence[Decoded]) -> list[Cost]:
    return [c for c in file.of("cost") if (c.dtype, c.batch) == (rows[0].dtype, 1)]


def _transfer(file: FrontierFile, rows: Sequence[Decoded]) -> str:
    most = max((cost.transfer_seconds for cost in _costs(file, rows)), default=0.0)
    return f"{1000 * most:.2f} ms" if most else "none: all is on the CPU"


def _memory(file: FrontierFile, rows: Sequence[Decoded]) -> str:
    weights = max((t.weight_bytes for t in _traces(rows)), default=0)
    state = max((t.state_bytes for t in _traces(rows)), default=0)
    return f"{weights / 1e6:.1f} and {state / 1e6:.1f} MB"


def _rows_time(file: FrontierFile, rows: Sequence[Decoded]) -> str:
    return ", ".join(
        f"{cost.nodes}: {1000 * cost.seconds:.0f} ms" for cost in _costs(file, rows)
    )


def _mask(file: FrontierFile, rows: Sequence[Decoded]) -> str:
    costs = _costs(file, rows)
    if not costs:
        return "not measured"
    last = max(costs, key=lambda cost: cost.nodes)
    return f"{1000 * last.mask_seconds:.3f} ms for {last.nodes} rows"


def _tree_bytes(file: FrontierFile, rows: Sequence[Decoded]) -> str:
    return f"{max((t.tree_bytes for t in _traces(rows)), default=0) / 1e6:.2f} MB"


def _gpu(file: FrontierFile, rows: Sequence[Decoded]) -> str:
    return NO_GPU


def _per_token(file: FrontierFile, rows: Sequence[Decoded]) -> str:
    tokens = sum(row.new_tokens for row in rows)
    return f"{1000 * sum(row.seconds for row in rows) / tokens:.1f} ms"


def _waits(file: FrontierFile, rows: Sequence[Decoded]) -> str:
    found = latencies(rows)
    if not len(found):
        return NONE
    half, most, longest = np.quantile(found, (0.5, 0.95, 1.0))
    return f"{half:.0f}, {most:.0f}, {longest:.0f} ms"


def _served(file: FrontierFile, rows: Sequence[Decoded]) -> str:
    found = throughput(file, rows)
    told = ", ".join(f"{b}: {rate:.0f} a second" for b, rate in found.items())
    return told or NONE


def _same(file: FrontierFile, rows: Sequence[Decoded]) -> str:
    asked = [row.same for row in rows if row.same is not None]
    if asked:
        return f"{sum(asked)} of {len(asked)} equal plain decoding's"
    exact = rows[0].configuration.exact
    return "proved for the rule (0x08, 0x09)" if exact else "claims none"


def _quality(file: FrontierFile, rows: Sequence[Decoded]) -> str:
    excess, far = likelihood_excess(rows), divergence(rows)
    if excess is None or far is None:
        return GREEDY
    here = {row.workload for row in rows}
    plain = [
        row
        for row in decoded(file, PLAIN, None, rows[0].dtype, rows[0].temperature)
        if row.workload in here
    ]
    chance = divergence(plain)
    beside = "" if chance is None else f" (plain {chance.value:.2f})"
    refused = sum(t.likelihood[3] for t in _traces(rows) if t.likelihood)
    lost = f"; {refused:.0f} tokens that the target never says" if refused else ""
    return f"{excess} nats; {far.value:.2f}{beside}{lost}"


PROPOSAL = "proposal quality"
COST = "proposal cost"
VERIFY = "target verification"
SERVING = "output and serving"
PARTS = (PROPOSAL, COST, VERIFY, SERVING)

METRICS = (
    Metric(
        PROPOSAL,
        "acceptance by depth",
        "of the rounds with a candidate at depth 1, 2, ..., those that published one",
        _by_depth,
    ),
    Metric(
        PROPOSAL,
        "accepted path length",
        "rounds by published candidates; the token after the path is not counted",
        _lengths,
    ),
    Metric(
        PROPOSAL,
        "first-child coverage",
        "of the rounds with a candidate, those that began with the first one",
        _first,
    ),
    Metric(
        PROPOSAL,
        "distinct-candidate coverage",
        "the same for any candidate at depth 1; equal tokens count once",
        _covered,
    ),
    Metric(
        PROPOSAL,
        "calibration of q",
        "mean distance of q from the target's p over tenths of q",
        _calibrated,
    ),
    Metric(PROPOSAL, "match length", "tokens that agreed before a copy, mean", _match),
    Metric(PROPOSAL, "miss rate", "rounds without a candidate", _missed),
    Metric(
        COST,
        "draft latency by depth",
        "proposal and retrieval of the rounds that drafted so deep, mean; a first "
        "round that drafts reads the prompt in it",
        _latency,
    ),
    Metric(COST, "retrieval latency", "a round, mean", _term("retrieval")),
    Metric(
        COST, "tree construction", "bind, merge, flatten; a round", _term("packing")
    ),
    Metric(COST, "transfer CPU to GPU", "of ids and mask, the largest size", _transfer),
    Metric(COST, "weights and state", "beside the target, the most", _memory),
    Metric(VERIFY, "time by rows", "root included, alone with the target", _rows_time),
    Metric(VERIFY, "mask construction", "the largest size that was timed", _mask),
    Metric(VERIFY, "temporary target KV", "of the largest round", _tree_bytes),
    Metric(VERIFY, "kernel occupancy", "of a GPU's kernels", _gpu),
    Metric(VERIFY, "graph-capture hits", "rounds that replayed a captured graph", _gpu),
    Metric(
        SERVING,
        "time per committed token",
        "from ids to last token, prompt included; every published token counts",
        _per_token,
        outside=True,
    ),
    Metric(
        SERVING,
        "inter-token latency",
        "median, 95 % and longest after the first round, which reads the prompt; the "
        "tokens of a round appear together",
        _waits,
    ),
    Metric(
        SERVING,
        "throughput by batch",
        "predicted tokens of all requests, from row times and these rounds; the "
        "target's reading of the prompt is left out",
        _served,
    ),
    Metric(
        SERVING,
        "exact output",
        "prompts with the tokens of plain decoding",
        _same,
        outside=True,
    ),
    Metric(
        SERVING,
        "quality of the output",
        "nats a token above the target's own; distance from its law, beside what "
        "chance gives plain decoding",
        _quality,
    ),
    Metric(SERVING, "fallback frequency", "rounds that were an ordinary step", _missed),
)
