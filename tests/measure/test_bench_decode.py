"""The benchmark's own machinery: turns, agreement, and counts, on tiny models."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from specbook import prompts
from specbook.drafts.prompt_lookup import TUNED, PromptLookup
from specbook.errors import SpecbookError
from specbook.measure import bench_decode
from specbook.measure.bench_decode import Outcome, compare, first_difference
from specbook.measure.decode_report import SYSTEMS, DecodeReport
from specbook.measure.row_cost import measure_row_cost
from specbook.models import TableTarget

PROMPTS = [(p, [1, 2, 3, 1, 2]) for p in prompts.load("chat", "development")[:5]]


def counting_target() -> TableTarget:
    """Counts upwards modulo 5, so that every lookup hits."""
    rows = [[int(i == (last + 1) % 5) for i in range(5)] for last in range(5)]
    return TableTarget(lambda prefix: rows[prefix[-1]], vocab_size=5)


def test_systems_take_turns_in_a_rotating_order() -> None:
    order: list[str] = []

    def system(name: str, tokens: list[int]) -> bench_decode.System:
        def decode(ids: list[int], count: int) -> Outcome:
            order.append(name)
            return Outcome(tokens, 1)

        return decode

    systems = {name: system(name, [4]) for name in SYSTEMS}
    ticks = iter(range(10_000))
    samples, differences = compare(
        systems, PROMPTS, "float32", 8, repeats=3, clock=lambda: next(ticks)
    )
    assert len(samples) == len(SYSTEMS) * len(PROMPTS) and not differences
    assert {s.seconds for s in samples} == {1}
    turns = [order[i : i + 4] for i in range(0, len(order), 4)]
    assert all(sorted(turn) == sorted(SYSTEMS) for turn in turns)
    for name in SYSTEMS:
        places = {turn.index(name) for turn in turns}
        assert places == {0, 1, 2, 3}, "each system stands in each place"


def test_the_median_of_the_repeats_counts() -> None:
    times = iter([0, 5, 10, 11, 20, 29])
    samples, _ = compare(
        {SYSTEMS[0]: lambda ids, count: Outcome([1], 1)},
        PROMPTS[:1],
        "float32",
        8,
        repeats=3,
        clock=lambda: next(times),
    )
    assert samples[0].seconds == 5


def test_a_wrong_token_is_found_and_its_gap_reported() -> None:
    asked: list[list[int]] = []

    def gap(ids: list[int]) -> float:
        asked.append(ids)
        return 0.25

    systems = {
        SYSTEMS[0]: lambda ids, count: Outcome([4, 5, 6], 3),
        SYSTEMS[1]: lambda ids, count: Outcome([4, 5, 6], 3),
        SYSTEMS[2]: lambda ids, count: Outcome([4, 9, 6], 3),
        SYSTEMS[3]: lambda ids, count: Outcome([4, 5], 2),
    }
    _, found = compare(systems, PROMPTS[:1], "bfloat16", 8, gap=gap)
    assert [(d.system, d.position, d.token, d.expected, d.gap) for d in found] == [
        (SYSTEMS[2], 1, 9, 5, 0.25),
        (SYSTEMS[3], 2, None, 6, 0.25),
    ]
    assert asked == [[1, 2, 3, 1, 2, 4], [1, 2, 3, 1, 2, 4, 5]]


def test_first_difference() -> None:
    assert first_difference([1, 2], [1, 2]) is None
    assert first_difference([1, 2], [1, 3]) == (1, 2, 3)
    assert first_difference([], [3]) == (0, None, 3)


def test_our_systems_count_what_they_did() -> None:
    target = counting_target()
    plain = bench_decode.our_system(target, None)([0, 1, 2, 3, 4, 0], 12)
    lookup = bench_decode.our_system(target, PromptLookup(2, 4))([0, 1, 2, 3, 4, 0], 12)
    assert plain.tokens == lookup.tokens == [i % 5 for i in range(1, 13)]
    assert (plain.rounds, plain.drafted, plain.accepted) == (12, 0, 0)
    assert lookup.rounds < 6
    assert lookup.accepted == 12 - lookup.rounds
    assert set(plain.cost_terms) == set(lookup.cost_terms)


def test_the_row_cost_is_a_cost_table() -> None:
    # The clock makes row counts 1, 2, 4, 8 take 1, 3, 2, 5 units: 3 and 2 are pooled.
    spans = iter([1, 3, 2, 5] * 4)
    now = 0
    asked = 0

    def clock() -> float:
        nonlocal now, asked
        asked += 1
        if asked % 2 == 0:
            now += next(spans)
        return now

    cost = measure_row_cost(
        counting_target(), rows=(1, 2, 4, 8), prefix=9, repeats=3, clock=clock
    )
    assert cost == ((1, 1), (2, 2.5), (4, 2.5), (8, 5))
    assert PromptLookup(length="adaptive", cost=cost).cost == cost
    assert all(a[1] <= b[1] for a, b in pairwise(measure_row_cost(counting_target())))
    for rows in ((1,), (2, 3), (1, 3, 3), (1, True)):
        with pytest.raises(SpecbookError, match="rows"):
            measure_row_cost(counting_target(), rows=rows)


def test_both_libraries_agree_on_a_tiny_model() -> None:
    pytest.importorskip("transformers")
    from specbook.models import TransformersTarget, tiny_llama

    model = tiny_llama()
    target = TransformersTarget(model)
    systems = {
        SYSTEMS[0]: bench_decode.transformers_system(model),
        SYSTEMS[1]: bench_decode.transformers_system(
            model, prompt_lookup_num_tokens=10
        ),
        SYSTEMS[2]: bench_decode.our_system(target, None),
        SYSTEMS[3]: bench_decode.our_system(target, PromptLookup(3, 8)),
    }
    encoded = [(p, [5, 6, 7 + n, 5, 6]) for n, (p, _) in enumerate(PROMPTS)]
    samples, differences = compare(
        systems,
        encoded,
        "float32",
        24,
        gap=lambda ids: bench_decode.top_two_gap(model, ids),
    )
    assert [d for d in differences if d.gap > 1e-3] == []
    greedy = [s for s in samples if s.system == SYSTEMS[0]]
    plain = [s for s in samples if s.system == SYSTEMS[2]]
    assert [s.rounds for s in greedy] == [s.rounds for s in plain]
    assert all(s.new_tokens <= 24 for s in samples)
    assert bench_decode.top_two_gap(model, [1, 2, 3]) >= 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workloads": ["poems"]}, "workload must be one of"),
        ({"workloads": []}, "at least one workload"),
        ({"dtypes": ["int8"]}, "dtype must be one of"),
        ({"half": "both"}, "half must be one of"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"repeats": True}, "repeats"),
        ({"clock": "sun"}, "clock must be one of"),
        ({"prompts_per_workload": -1}, "prompts_per_workload"),
        ({"workloads": None}, "workloads must be a sequence"),
        ({"workloads": "chat"}, "workloads must be a sequence"),
        ({"workloads": [5]}, "workload must be one of"),
        ({"dtypes": 5}, "dtypes must be a sequence"),
        ({"quick": "no"}, "quick must be True or False"),
        ({"progress": 5}, "progress must be a function"),
        ({"target": 5}, "target must be a folder"),
        ({"lookup": 5}, "lookup must be a mapping"),
        ({"lookup": {"policy": "zz"}}, "policy must be one of"),
        ({"lookup": {"max_gram": 3}}, "option of the lookup must be one of"),
        ({"lookup": {5: 3}}, "lookup option must be text"),
        ({"out": 5}, "out must be a folder"),
        ({"out": __file__}, "out: .* takes no files"),
        ({"out": "a\0b"}, "out: .* takes no files"),
    ],
)
def test_bad_options_are_refused_before_anything_is_loaded(
    monkeypatch: pytest.MonkeyPatch, options: dict, message: str
) -> None:
    loaded: list[object] = []
    monkeypatch.setattr(bench_decode, "_load", lambda *given: loaded.append(given))
    with pytest.raises(SpecbookError, match=message):
        bench_decode.run(**options)
    assert loaded == []


def test_decode_and_benchmark_use_the_same_lookup() -> None:
    """One constant: whoever changes one of the two changes both."""
    from specbook import cli, drafts

    chosen = cli._checked_decode("prompt_lookup", None, 0.0, 0, 8, "float32")
    ours = PromptLookup.tuned()
    assert chosen["source"].identity() == ours.identity()
    assert drafts.make("prompt_lookup").identity() == ours.identity()
    assert bench_decode.LOOKUP is TUNED
    assert ours.identity() != PromptLookup().identity()
    assert {name: getattr(ours, name) for name in TUNED} == TUNED


def test_a_report_that_cannot_be_made_leaves_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = DecodeReport(())
    monkeypatch.setattr(DecodeReport, "markdown", lambda self: "half a \ud800")
    with pytest.raises(UnicodeEncodeError):
        bench_decode.save(report, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["decode.json"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": 5}, "target must be a target"),
        ({"rows": 5}, "rows must be a sequence"),
        ({"rows": "12"}, "rows must be a sequence"),
        ({"clock": 5}, "clock must be a function"),
        ({"prefix": 0}, "prefix"),
        ({"repeats": 0}, "repeats"),
    ],
)
def test_bad_arguments_of_the_row_cost_are_named(options: dict, message: str) -> None:
    with pytest.raises(SpecbookError, match=message):
        measure_row_cost(**{"target": counting_target(), **options})
