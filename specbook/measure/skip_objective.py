r"""What a skip vector is worth: time per verified token, measured or predicted (0x05A).

    f(z) = (T_draft + T_verify + T_state) / N_verified

over development prompts. T_draft is what a ledger bills to the proposal, T_verify what
it bills to the target, T_state all the rest of a round. N_verified counts every
committed token. The round that reads the prompt drafts nothing, is the same for each
vector, and is left out.

Two things make up f. How many tokens are drafted and accepted follows from the vector
alone: a decoding counts it, and counts it again the same. What they cost is a matter of
the machine: a drafted token runs the sublayers that are kept, so its time is nearly
linear in their numbers, and a verification depends on its rows. `measured` takes the
times as they were billed; `predicted` puts counts and separately measured costs
together, so that a slow moment of the machine does not decide between two vectors.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import checks
from ..drafts.draft_length import DraftLength, checked_cost
from ..drafts.neural.draft_verify import DraftVerify
from ..drafts.stop_threshold import MOST, ThresholdPolicy
from ..engine import generate
from ..errors import SpecbookError
from ..ledger import RoundLedger
from ..models.protocol import checked_target
from ..models.skip_layers import SkippedPath, SkipVector, layer_count
from ..tree import CandidateTree
from .row_cost import measure_row_cost

Clock = Callable[[], float]


@dataclass(frozen=True)
class SkipCounts:
    """What was counted over the rounds that drafted: of the target and the vector, not
    of the machine. `rows`: pairs (rows of a verification, rounds that had so many), the
    pending token among the rows. Raises `SpecbookError` for what is no count."""

    rounds: int
    drafted: int
    accepted: int
    committed: int
    rows: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        for name in ("rounds", "drafted", "accepted", "committed"):
            checks.integer(getattr(self, name), name, least=0)
        pairs = []
        for place, pair in enumerate(checks.entries(self.rows, "rows", "pairs")):
            found = checks.entries(pair, f"rows[{place}]", "two counts")
            if len(found) != 2:
                raise SpecbookError(f"rows[{place}] must be two counts, got {pair!r}")
            rows, rounds = (
                checks.integer(count, f"rows[{place}]", least=1) for count in found
            )
            pairs.append((rows, rounds))
        object.__setattr__(self, "rows", tuple(pairs))

    def as_dict(self) -> dict[str, Any]:
        """The five entries by name, as JSON has them and `from_dict` reads them."""
        return {**dataclasses.asdict(self), "rows": [list(pair) for pair in self.rows]}

    @classmethod
    def from_dict(cls, told: Any) -> SkipCounts:
        """The counts that `as_dict` gave. Raises `SpecbookError` for anything else."""
        return cls(**_entries_of(cls, told))


@dataclass(frozen=True)
class SkipCosts:
    """What parts of a round cost, in one unit of time; Fractions stay exact.

    A step of the skipped path: `base` (embedding, LM head and the rest), `attention`
    and `mlp` for each of them that is kept. `verify`: pairs (rows, time of a forward),
    as for `drafts.draft_length`. `state`: the rest of a round. Raises `SpecbookError`
    for a negative time and for a malformed table.
    """

    base: Any
    attention: Any
    mlp: Any
    verify: tuple[tuple[int, Any], ...]
    state: Any

    def __post_init__(self) -> None:
        for name in ("base", "attention", "mlp", "state"):
            checks.real(getattr(self, name), name, least=0)
        object.__setattr__(self, "verify", checked_cost(self.verify))

    def draft_step(self, vector: SkipVector) -> Any:
        """The time of one token on the path of `vector`."""
        checks.instance(vector, "vector", SkipVector)
        kept = vector.layers - sum(vector.attention)
        fed = vector.layers - sum(vector.mlp)
        return self.base + kept * self.attention + fed * self.mlp

    def plain(self) -> Any:
        """The time of a token without drafts."""
        return DraftLength(self.verify).time(1) + self.state

    def as_dict(self) -> dict[str, Any]:
        """The five entries by name, as JSON has them and `from_dict` reads them."""
        table = [list(pair) for pair in self.verify]
        return {**dataclasses.asdict(self), "verify": table}

    @classmethod
    def from_dict(cls, told: Any) -> SkipCosts:
        """The costs that `as_dict` gave. Raises `SpecbookError` for anything else."""
        return cls(**_entries_of(cls, told))


def _entries_of(kind: type[Any], told: Any) -> dict[str, Any]:
    """`told`, if it has the fields of `kind` and no others."""
    fields = sorted(field.name for field in dataclasses.fields(kind))
    if not isinstance(told, Mapping) or sorted(map(str, told)) != fields:
        raise SpecbookError(f"a {kind.__name__} has the fields {fields}, got {told!r}")
    return dict(told)


def predicted(vector: SkipVector, counts: SkipCounts, costs: SkipCosts) -> Any:
    """f(z) from counts and costs. Raises `SpecbookError` when nothing was committed."""
    checks.instance(counts, "counts", SkipCounts)
    checks.instance(costs, "costs", SkipCosts)
    if not counts.committed:
        raise SpecbookError("no token was committed, so no time per token exists")
    verify = DraftLength(costs.verify)
    spent = counts.drafted * costs.draft_step(vector) + counts.rounds * costs.state
    spent += sum(rounds * verify.time(rows) for rows, rounds in counts.rows)
    return spent / counts.committed


@dataclass(frozen=True)
class SkipEvaluation:
    """One vector on the development prompts. `draft`, `verify`, `state`: the billed
    times, added up over the prompts."""

    vector: SkipVector
    counts: SkipCounts
    draft: Any
    verify: Any
    state: Any

    @property
    def measured(self) -> Any:
        """f(z) by the ledger. Raises `SpecbookError` when nothing was committed."""
        if not self.counts.committed:
            raise SpecbookError("no token was committed, so no time per token exists")
        return (self.draft + self.verify + self.state) / self.counts.committed


def evaluate(
    target: Any,
    prompts: Sequence[Sequence[int]],
    vector: SkipVector,
    *,
    max_new_tokens: int,
    most: int = MOST,
    policy: ThresholdPolicy | None = None,
    repeats: int = 1,
    clock: Clock = time.perf_counter,
) -> SkipEvaluation:
    """Greedy answers to `prompts` (lists of ids) with `vector`, counted and timed.

    `max_new_tokens`: at most so many each; at least 2, for the first comes from the
    round that reads the prompt. `repeats`: runs of each prompt; of each billed time the
    median counts. Raises `SpecbookError` for no prompts, for runs of one prompt that do
    not count the same, and what decoding raises.
    """
    texts = checks.entries(prompts, "prompts", "lists of ids")
    if not texts:
        raise SpecbookError("prompts is empty: there is nothing to decode")
    checks.integer(max_new_tokens, "max_new_tokens", least=2)
    checks.integer(repeats, "repeats", least=1)
    checks.function(clock, "clock")
    checked_target(target, "eos_token_id")
    policy = ThresholdPolicy() if policy is None else policy
    source = DraftVerify(vector, most=most, policy=policy)
    total: Counter[int] = Counter()
    rounds = drafted = accepted = committed = 0
    parts = [0.0, 0.0, 0.0]
    for place, ids in enumerate(texts):
        runs = [
            generate(
                target,
                ids,
                source,
                "greedy",
                max_new_tokens=max_new_tokens,
                eos_token_id=target.eos_token_id,
                clock=clock,
            ).rounds[1:]
            for _ in range(repeats)
        ]
        shapes = [[(len(r.tree), r.committed) for r in run] for run in runs]
        if any(shape != shapes[0] for shape in shapes):
            raise SpecbookError(f"prompt {place} was not answered alike in two runs")
        for record in runs[0]:
            rounds += 1
            drafted += len(record.tree)
            accepted += record.accepted
            committed += len(record.committed)
            total[1 + len(record.tree)] += 1
        bills = [_parts(RoundLedger.total(r.ledger for r in run)) for run in runs]
        for number, times in enumerate(zip(*bills, strict=True)):
            parts[number] += statistics.median(times)
    counts = SkipCounts(
        rounds, drafted, accepted, committed, tuple(sorted(total.items()))
    )
    return SkipEvaluation(vector, counts, *parts)


def _parts(ledger: RoundLedger) -> tuple[float, float, float]:
    """Draft, verification, and the rest."""
    rest = ledger.round_cost - ledger.proposal - ledger.target_verify
    return ledger.proposal, ledger.target_verify, rest


def measure_costs(
    target: Any,
    *,
    most: int = MOST,
    prefix: int = 256,
    repeats: int = 7,
    clock: Clock = time.perf_counter,
) -> SkipCosts:
    """The costs on this machine, as medians over `repeats` turns, behind a prefix of so
    many tokens.

    A step is timed for four paths (whole, without attentions, without feed-forward
    networks, with neither), which take turns; a kind of sublayer costs the mean of the
    two differences that show it. Raises as `measure_row_cost` and `layer_count`.
    """
    checks.integer(most, "most", least=1)
    checks.integer(prefix, "prefix", least=1)
    layers = layer_count(target)
    rows = [n for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32) if n <= most] + [most + 1]
    verify = measure_row_cost(
        target, rows=rows, prefix=prefix, repeats=repeats, clock=clock
    )
    text = [7 * i % target.vocab_size for i in range(prefix)]
    session = target.start(text)
    session.verify(CandidateTree.from_rows([], [], prefix))
    session.commit([], text[0])
    none, every = (False,) * layers, (True,) * layers
    paths = {
        (attention, mlp): SkippedPath(session, SkipVector(attention, mlp))
        for attention in (none, every)
        for mlp in (none, every)
    }
    spent: dict[Any, list[float]] = {key: [] for key in paths}
    for turn in range(repeats + 1):
        for key, path in paths.items():
            path.begin()
            start = clock()
            path.grow(text[turn % prefix])
            seconds = clock() - start
            if turn:  # the first warms the machine up
                spent[key].append(seconds)
    step = {key: statistics.median(times) for key, times in spent.items()}
    base = step[every, every]
    attention = step[none, every] - base + step[none, none] - step[every, none]
    mlp = step[every, none] - base + step[none, none] - step[none, every]
    return SkipCosts(
        base=base,
        attention=max(0.0, attention / (2 * layers)),
        mlp=max(0.0, mlp / (2 * layers)),
        verify=verify,
        state=_state_cost(target, text[: max(1, prefix // 2)], most, repeats, clock),
    )


def _state_cost(
    target: Any, ids: list[int], most: int, repeats: int, clock: Clock
) -> float:
    """The median of what a round costs besides draft and verification."""
    nothing = SkipVector.nothing(layer_count(target))
    source = DraftVerify(nothing, most=most, policy=ThresholdPolicy(start=0))
    found = generate(
        target,
        ids,
        source,
        "greedy",
        max_new_tokens=1 + min(repeats, 3) * (most + 1),
        clock=clock,
    )
    return statistics.median(_parts(r.ledger)[2] for r in found.rounds[1:])
