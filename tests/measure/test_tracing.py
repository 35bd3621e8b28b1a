"""What is written down of a run is what happened in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from specbook.drafts.neural.draft_model import DraftModel
from specbook.drafts.prompt_lookup import PromptLookup
from specbook.engine import generate
from specbook.errors import SpecbookError
from specbook.lab import FixedPaths
from specbook.measure import frontier_metrics as metrics
from specbook.measure import tracing
from specbook.measure.frontier_data import BINS, PLAIN, Configuration, Decoded
from specbook.measure.held import held_bytes
from specbook.measure.tracing import Run, spread_over, traced
from specbook.models import TableTarget

LAW = np.array([0.5, 0.3, 0.15, 0.05])
SAYS = TableTarget(lambda told: LAW, vocab_size=4)
GUESSES = TableTarget(lambda told: np.array([0.2, 0.3, 0.3, 0.2]), vocab_size=4)


def run(source: Any, rule: str, **options: Any) -> Run:
    options = {"max_new_tokens": 30, "temperature": 1.0, **options}
    return traced(SAYS, source, rule, [0, 1, 0, 1], **options)


def test_a_trace_adds_up_to_the_rounds_of_the_engine() -> None:
    source = DraftModel(GUESSES, widths=(2, 1))
    made = run(source, "sequoia", seed=3)
    plain = generate(
        SAYS, [0, 1, 0, 1], source, "sequoia",
        max_new_tokens=30, temperature=1.0, seed=3,
    )  # fmt: skip
    trace = made.trace
    assert made.tokens == plain.tokens
    assert trace.round_tokens == tuple(len(r.committed) for r in plain.rounds)
    assert trace.accepted == sum(r.accepted for r in plain.rounds)
    assert trace.drafted == sum(len(r.tree) for r in plain.rounds)
    firsts = [r for r in plain.rounds if r.tree]
    assert trace.made == len(firsts)
    assert trace.first_child == sum(
        r.tree.token_ids[r.tree.draws(-1)[0][0]] == r.committed[0] for r in firsts
    )
    assert trace.covered == sum(
        r.committed[0] in [r.tree.token_ids[c] for c in r.tree.children(-1)]
        for r in firsts
    )
    assert trace.distinct == sum(len(r.tree.children(-1)) for r in firsts)
    assert sum(n for n, _ in trace.draft_seconds_by_depth) == len(plain.rounds)
    terms = sum(trace.cost_terms.values())
    assert sum(trace.round_seconds) == pytest.approx(terms, abs=1e-4)


def test_looking_is_not_on_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that takes an hour: no second of it is told, of the run or of a round."""
    now = 0.0

    def slow(watch: Any, law: Any, token: int) -> None:
        nonlocal now
        now += 3600.0

    def clock() -> float:
        nonlocal now
        now += 1.0
        return now

    monkeypatch.setattr(tracing._Watch, "_token", slow)
    made = run(None, "membership", clock=clock)
    assert now > 3600 * len(made.tokens)
    assert 0 < sum(made.trace.round_seconds) < made.seconds < 3600

    with monkeypatch.context() as patch:
        # A planted fault: the time of looking is forgotten.
        forgets = property(lambda watch: 0.0, lambda watch, value: None)
        patch.setattr(tracing._Watch, "looking", forgets, raising=False)
        assert run(None, "membership", clock=clock).seconds > 3600


def test_greedy_runs_keep_no_likelihood() -> None:
    made = run(None, "greedy", temperature=0.0)
    assert made.trace.likelihood == made.trace.places == ()
    assert made.trace.made == 0 and made.trace.match_lengths == (0, 0)


def test_a_lookup_tells_how_long_its_matches_were() -> None:
    made = run(PromptLookup(max_ngram=2), "greedy", temperature=0.0)
    count, length = made.trace.match_lengths
    assert 0 < count <= made.trace.made and count <= length <= 16 * count
    fixed = run(FixedPaths([0], score=7), "greedy", temperature=0.0)
    assert fixed.trace.match_lengths == (0, 0)  # a score that is no length


@pytest.mark.parametrize(
    ("low", "high", "filled"),
    [(0.0, 1.0, 10), (0.0, 0.1, 1), (0.25, 0.35, 2), (0.95, 1.0 + 1e-12, 1)],
)
def test_a_place_is_spread_over_its_interval(
    low: float, high: float, filled: int
) -> None:
    shares = spread_over(low, high)
    assert shares.sum() == pytest.approx(1) and (shares > 1e-9).sum() == filled
    assert spread_over(0.25, 0.25)[2] == 1  # of no width: where it stands


def test_the_law_fills_all_places_alike() -> None:
    order = np.argsort(-LAW)
    ends = np.cumsum(LAW[order])
    total = sum(
        LAW[token] * spread_over(end - LAW[token], end)
        for token, end in zip(order, ends, strict=True)
    )
    assert total == pytest.approx(np.full(BINS, 1 / BINS))


def rows(source: Any, rule: str, count: int = 12) -> list[Decoded]:
    one = PLAIN if source is None else Configuration("x", "heads", rule, exact=False)
    found = []
    for seed in range(count):
        made = run(source, rule, max_new_tokens=200, seed=seed, exact=False)
        trace = made.trace
        found.append(
            Decoded(
                one, "float32", 1.0, "w", f"p{seed}", 4, 200, 1.0,
                len(trace.round_tokens), 0, None, None, trace,
            )
        )  # fmt: skip
    return found


def test_quality_finds_a_heuristic_and_acquits_exact_rules() -> None:
    """2400 tokens each. One token of `SAYS` has a log p of standard deviation 0.73
    around minus the entropy, so 0.1 is more than six standard errors."""
    drafter = DraftModel(GUESSES, widths=(1, 1))
    for rule, source in (("membership", None), ("single", drafter)):
        found = rows(source, rule)
        excess, far = metrics.likelihood_excess(found), metrics.divergence(found)
        assert excess is not None and abs(excess.value) < 0.1, rule
        assert far is not None and far.value < 0.06, rule
    # Half of what this rule emits comes from the drafter's law.
    loose = rows(drafter, "ensemble")
    excess, far = metrics.likelihood_excess(loose), metrics.divergence(loose)
    assert excess is not None and excess.high < -0.05
    assert far is not None and far.value > 0.08
    entropy = -(LAW * np.log(LAW)).sum()
    told = metrics.log_likelihood(rows(None, "membership"))
    assert told is not None and abs(told.value + entropy) < 0.1


def test_q_is_compared_with_p_where_both_are_known() -> None:
    found = rows(DraftModel(GUESSES, widths=(1,)), "single", 4)
    # Every q is 0.2 or 0.3: bins 2 and 3, or 1 and 2 by rounding; p says otherwise.
    far = metrics.calibration(found)
    assert far is not None and far > 0.02
    honest = rows(DraftModel(SAYS, widths=(1,)), "single", 4)
    assert metrics.calibration(honest) == pytest.approx(0, abs=1e-9)
    assert metrics.calibration(rows(None, "membership", 1)) is None


class Holder:
    """Of this package's kind, as far as `held_bytes` looks."""

    __module__ = "specbook.test"

    def __init__(self, **parts: Any) -> None:
        vars(self).update(parts)


def test_memory_is_counted_once_and_without_what_is_borrowed() -> None:
    shared, own = torch.zeros(100), torch.zeros(10)
    table = np.zeros(7, dtype=np.int64)
    module = torch.nn.Linear(3, 2, bias=False)
    target = Holder(weights=[shared])
    source = Holder(
        borrowed=shared, view=shared[:3], own={"a": own, "b": own[2:]},
        tables=(table, table[1:]), heads=module, again=None,
    )  # fmt: skip
    source.again = source
    assert held_bytes(source, beside=(target,)) == 40 + 56 + 24
    assert held_bytes(source) == 400 + 40 + 56 + 24
    assert held_bytes(None) == 0


@pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="torch packs no weights here"
)
def test_packed_weights_are_counted_once_and_not_where_the_target_has_them() -> None:
    """A processor with AVX-512 holds 16-bit weights so; they have no storage to ask."""
    packed, other = torch.zeros(6, 4).to_mkldnn(), torch.zeros(5).to_mkldnn()
    source = Holder(packed=packed, again=[packed], other=other)
    assert held_bytes(source) == 96 + 20
    assert held_bytes(source, beside=(Holder(weight=packed),)) == 20


def test_the_tables_of_metrics_have_a_value_or_a_reason() -> None:
    from tests.measure.frontiers import CHAIN, LOOKUP, PEER, frontier

    file = frontier()
    for one in (PLAIN, LOOKUP, CHAIN, PEER):
        told = metrics.table(file, one, "edit")
        assert len(told.rows) == len(metrics.METRICS)
        assert all(row[2] and row[3] for row in told.rows)
    parts = {
        row[0] for row in metrics.table(file, LOOKUP, parts=("proposal cost",)).rows
    }
    assert parts == {"proposal cost"}
    by = {row[1]: row[3] for row in metrics.table(file, LOOKUP, "edit").rows}
    assert by["fallback frequency"] == "67% of 6" and by["miss rate"] == "67% of 6"
    assert by["first-child coverage"] == "100% of 2"
    assert "2 of 2" in by["exact output"] and "GPU" in by["kernel occupancy"]
    # Nobody saw the rounds of another library: no count of them is told as if it were.
    theirs = {row[1]: row[3] for row in metrics.table(file, PEER, "edit").rows}
    known = {name for name, value in theirs.items() if value != metrics.UNSEEN}
    assert known == {"time per committed token", "exact output"}
    with pytest.raises(SpecbookError, match="was not decoded"):
        metrics.table(file, LOOKUP, "another workload")


def test_quality_stands_beside_what_chance_gives_plain_decoding() -> None:
    from tests.measure.frontiers import LOOKUP, TYPICAL, frontier, row

    file = frontier()
    hot: dict[str, Any] = {"temperature": 0.7}
    said: dict[str, Any] = {"likelihood": (7.0, -10.5, 10.5, 1.0)}
    said["places"] = (7.0, *[0.0] * 9)
    for i in (1, 2):
        file.add([row(PLAIN, f"edit-{i}", 0.8, 8, **hot)])
        file.add([row(LOOKUP, f"edit-{i}", 0.8, 8, **hot)])
        file.add([row(TYPICAL, f"edit-{i}", 0.8, 8, **hot, **said)])

    def told(one: Configuration) -> str:
        found = metrics.table(file, one, "edit", temperature=0.7).rows
        return next(r[3] for r in found if r[1] == "quality of the output")

    assert told(LOOKUP).endswith("nats; 0.00 (plain 0.00)")
    assert "nats; 0.90 (plain 0.00); 2 tokens that" in told(TYPICAL)


def test_waiting_counts_rounds_and_throughput_takes_batches() -> None:
    from specbook.measure.frontier_data import Cost
    from tests.measure.frontiers import LOOKUP, frontier, row

    one = row(LOOKUP, "edit-1", 0.4, 4)  # five tokens, then one at a time
    assert metrics.latencies([one]).tolist() == [100.0] * 3
    file = frontier()
    file.add([Cost("float32", 1, 8, 0.08), Cost("float32", 2, 1, 0.1)])
    file.add([Cost("float32", 2, 8, 0.2)])
    plain = row(PLAIN, "edit-1", 0.8, 8)  # eight rounds, a millisecond of drafting each
    found = metrics.throughput(file, [plain])
    assert found == pytest.approx({1: 1 / 0.081, 2: 2 / 0.102})
    file.add([Cost("float32", 4, 1, 0.1)])  # one row count says nothing of others
    assert set(metrics.throughput(file, [plain])) == {1, 2}
