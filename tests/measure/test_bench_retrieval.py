"""The retrieval benchmark: turns, right and wrong answers, memory, absent peers."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbook.drafts.automaton import BORDER
from specbook.drafts.rest import ContinuationTrie
from specbook.errors import SpecbookError
from specbook.measure import bench_retrieval, retrieval_growth, retrieval_systems
from specbook.measure.bench_retrieval import (
    agrees,
    check_answers,
    draw_contexts,
    measure,
    run,
    time_builds,
    time_queries,
    weigh,
)
from specbook.measure.retrieval_growth import GROWERS, Grower, agreements, grow
from specbook.measure.retrieval_report import RetrievalReport
from specbook.measure.retrieval_systems import (
    NAMES,
    SYSTEMS,
    Answer,
    Limits,
    System,
    load_documents,
    most_frequent,
    named,
    save_documents,
    scan,
)

LIMITS = Limits(max_suffix=4, node_budget=6)
HERE = [system for system in SYSTEMS if system.missing() is None]


def corpus(documents: int, size: int, vocabulary: int = 4) -> list[np.ndarray]:
    rng = random.Random(documents * size)
    return [
        np.array([rng.randrange(vocabulary) for _ in range(size)], np.int64)
        for _ in range(documents)
    ]


def flat(documents: list[Any]) -> list[int]:
    return [int(t) for document in documents for t in (*document, BORDER)]


# What is right.

texts = st.lists(st.lists(st.integers(0, 2), max_size=12), max_size=4)


@settings(max_examples=200, deadline=None)
@given(texts, st.lists(st.integers(0, 2), max_size=5))
def test_the_scan_is_what_it_says(documents: list, suffix: list) -> None:
    text = flat(documents)
    found: dict[int, list[int]] = {}
    for length in range(1, len(suffix) + 1):
        word = suffix[len(suffix) - length :]
        found[length] = [
            end for end in range(length, len(text)) if text[end - length : end] == word
        ]
    followed = [n for n, ends in found.items() if any(text[e] != BORDER for e in ends)]
    best = max(followed, default=0)
    assert scan(text, suffix) == (best, found.get(best, []))


@settings(max_examples=200, deadline=None)
@given(texts, st.integers(0, 2), st.integers(1, 9))
def test_the_most_frequent_are_those_of_the_trie(
    documents: list, token: int, most: int
) -> None:
    text = flat(documents)
    _, ends = scan(text, [token])
    rests = [text[end : text.index(BORDER, end)][:most] for end in ends]
    trie = ContinuationTrie([rest for rest in rests if rest])
    wanted = dict(trie.keep_high_frequency_nodes(most).paths())
    found = most_frequent(text, ends, most)
    assert found == wanted and list(found) == list(wanted)


@pytest.mark.parametrize("system", HERE, ids=lambda s: s.name)
def test_every_index_gives_right_answers(system: System) -> None:
    documents = [*corpus(3, 150), *corpus(20, 6), np.array([3, 3, 3])]
    contexts = draw_contexts(corpus(2, 200), 40, LIMITS, seed=1)
    # What no document holds, and what stands only at an end.
    contexts += [[9] * 5, [0, 1, 2, 3, 9], [*documents[-2][-5:].tolist()]]
    index = system.build(system.prepare(documents), LIMITS)
    [verdicts] = check_answers(
        documents, contexts, LIMITS, [system], {system.index: index}
    ).values()
    assert verdicts == [True] * len(contexts)


TEXT = flat([[1, 2, 5, 6], [1, 2, 5, 7], [1, 2, 8], [1, 2]])
TRUTH = (2, [2, 7, 12, 16])
SHARES = {(5,): 0.5, (5, 6): 0.25, (5, 7): 0.25, (8,): 0.25}
COUNTS = {(5,): 2, (8,): 1, (5, 6): 1, (5, 7): 1}


def told(kind: str, match: int, weights: dict, budget: int = 6) -> bool:
    limits = Limits(4, budget)
    return agrees(Answer(match, weights), kind, TEXT, [9, 1, 2], TRUTH, limits)


def test_right_answers_agree() -> None:
    assert scan(TEXT, [9, 1, 2]) == TRUTH
    assert told("ranked", 2, COUNTS)
    assert told("counts", 2, SHARES)
    assert told("share", 2, {(5,): 0.5})
    assert told("copy", 2, {(5,): 1, (5, 7): 1})
    # Any two of the three single ones will do, unless a rank is promised.
    for rest in ((5, 6), (5, 7), (8,)):
        few = {key: SHARES[key] for key in ((5,), rest)}
        assert told("counts", 2, few, budget=2)
    assert told("ranked", 2, {(5,): 2, (8,): 1}, budget=2)


@pytest.mark.parametrize(
    ("kind", "match", "weights"),
    [
        ("ranked", 1, COUNTS),
        ("ranked", 2, {**COUNTS, (8,): 2}),
        ("ranked", 2, {key: COUNTS[key] for key in ((5,), (8,))}),
        ("ranked", 2, {**COUNTS, (5, 8): 1}),
        ("ranked", 2, {}),
        ("counts", 2, {**SHARES, (8,): 0.26}),
        ("counts", 2, {key: SHARES[key] for key in ((5,), (8,))}),
        ("counts", 3, SHARES),
        ("counts", 2, {(5, 6): 0.25, (5,): 0.5, (8,): 0.25, (5, 7): 0.25}),
        ("share", 2, {(5,): 2 / 3}),
        ("share", 3, {(5,): 0.5}),
        ("share", 2, {(6,): 0.25}),
        ("copy", 1, {(5,): 1}),
        ("copy", 2, {(5,): 1, (8,): 1}),
        ("copy", 2, {(5,): 1, (5, 8): 1}),
        ("copy", 2, {}),
    ],
    ids=[str(number) for number in range(16)],
)
def test_planted_wrong_answers_are_caught(kind: str, match: int, weights: dict) -> None:
    assert not told(kind, match, weights)


def test_a_match_of_its_own_choice_is_held_to_what_follows_it() -> None:
    text = flat([[1, 2, 5], [2, 6], [2, 6]])
    truth = scan(text, [1, 2])
    for weights, right in (({(6,): 2 / 3}, True), ({(6,): 1.0}, False)):
        answer = Answer(1, weights)
        assert agrees(answer, "share", text, [1, 2], truth, LIMITS) is right
        assert not agrees(answer, "counts", text, [1, 2], truth, LIMITS)


# Turns and times.


def fake(name: str, log: list[str], **options: Any) -> System:
    def build(documents: Any, limits: Limits) -> str:
        log.append(name)
        return name

    def ask(index: str, context: Any, limits: Limits) -> None:
        log.append(f"{name} asks {index}")

    return replace(
        named("plain scan"),
        **{"name": name, "build": build, "ask": ask, "slow": False, **options},
    )


def test_builds_and_queries_take_turns_in_a_rotating_order() -> None:
    log: list[str] = []
    systems = [fake(name, log) for name in "abc"]
    ticks = iter(range(10_000))
    seconds, indexes = time_builds(
        corpus(1, 9), LIMITS, systems, 3, lambda: next(ticks)
    )
    assert log == [*"abc", *"bca", *"cab"]
    assert seconds == {name: [1, 1, 1] for name in "abc"}
    log.clear()
    shared = [*systems, fake("d", log, built_as="b")]
    times = time_queries([[1]] * 8, LIMITS, shared, indexes, 2, lambda: next(ticks))
    assert times == {name: dict.fromkeys(range(8), 1) for name in "abcd"}
    assert Counter(log) == dict.fromkeys(
        ["a asks a", "b asks b", "c asks c", "d asks b"], 16
    )
    turns = [log[i : i + 4] for i in range(0, len(log), 4)]
    assert {turn[0][0] for turn in turns} == set("abcd")


def test_the_median_of_the_repeats_counts_and_slow_ones_are_spared() -> None:
    log: list[str] = []
    ticks = iter([0, 5, 10, 11, 20, 29])
    times = time_queries(
        [[1]], LIMITS, [fake("a", log)], {"a": 0}, 3, lambda: next(ticks)
    )
    assert times == {"a": {0: 5}}
    many = [[1]] * (bench_retrieval.SLOW_QUERIES + 7)
    slow = fake("s", log, slow=True)
    times = time_queries(many, LIMITS, [slow], {"s": 0}, 1)
    assert list(times["s"]) == list(range(bench_retrieval.SLOW_QUERIES))


def test_contexts_come_from_inside_the_documents() -> None:
    documents = [np.arange(3), np.arange(100, 107), np.arange(200, 206)]
    drawn = draw_contexts(documents, 300, LIMITS, seed=0)
    # One place more than tokens are needed: two of the second, one of the third.
    starts = Counter(context[0] for context in drawn)
    assert set(starts) == {100, 101, 200}
    assert all(context == [*range(context[0], context[0] + 5)] for context in drawn)
    assert min(starts.values()) > 60
    assert drawn == draw_contexts(documents, 300, LIMITS, seed=0)
    assert drawn != draw_contexts(documents, 300, LIMITS, seed=1)
    with pytest.raises(SpecbookError, match="no held-out document has more than 5"):
        draw_contexts([np.arange(5)], 1, LIMITS, seed=0)


# Growing texts.


def counting(step: int) -> retrieval_growth.Step:
    """Drafts the next three numbers of a count by `step`."""
    return lambda token: [token + step * i for i in (1, 2, 3)]


def test_agreements_are_counted_to_the_first_wrong_token() -> None:
    text = [1, 2, 3, 4, 9, 10, 12]
    assert agreements(text, counting(1)) == [3, 2, 1, 0, 1, 0, 0]
    assert agreements(text, counting(2)) == [0, 0, 0, 0, 0, 1, 0]
    assert agreements([5], counting(1)) == [0]


def test_growing_takes_turns_and_counts() -> None:
    ticks = iter(range(10_000))
    log: list[str] = []

    def start(name: str) -> Any:
        def begin(limits: Limits) -> retrieval_growth.Step:
            log.append(name)
            return counting(1)

        return begin

    growers = [Grower(name, start(name)) for name in "ab"]
    growers.append(Grower("c", start("c"), "no_such_package", "dig"))
    documents = [np.array([1, 2, 3]), np.array([], np.int64), np.array([7, 9])]
    one, other, absent = grow(documents, LIMITS, 2, growers, lambda: next(ticks))
    assert log[:8] == [*"ab", *"ba", *"ba", *"ab"]
    assert one.seconds == other.seconds == (1, 1)
    assert one.tokens == (3, 2) and one.total == 5
    assert (one.first, one.agreed) == (2, 3)
    assert "no_such_package" in absent.absent and absent.absent.endswith("dig")
    assert absent.total == 0


@pytest.mark.parametrize(
    "grower", [g for g in GROWERS if g.missing() is None], ids=lambda g: g.name
)
def test_every_index_of_a_growing_text_drafts_a_loop(grower: Grower) -> None:
    text = [5, 6, 7, 8] * 10
    counts = agreements(text, grower.start(LIMITS))
    # From the second period on the first token is right; the last place has no next.
    assert counts[:4] == [0, 0, 0, 0]
    assert all(counts[8:-1]) and counts[-1] == 0
    assert max(counts) >= 4
    if grower.name == "suffix automaton":
        assert counts[5:30] == [LIMITS.node_budget] * 25


# Memory.


def test_documents_survive_the_way_to_another_process(tmp_path: Path) -> None:
    documents = [np.array([1, 2**40]), np.array([], np.int64), np.array([3])]
    save_documents(tmp_path / "d.npz", documents)
    found = load_documents(tmp_path / "d.npz")
    assert [d.tolist() for d in found] == [[1, 2**40], [], [3]]


def test_memory_is_that_of_the_index(tmp_path: Path) -> None:
    documents = corpus(2, 60_000, vocabulary=900)
    save_documents(tmp_path / "d.npz", documents)
    scan_list = weigh("plain scan", tmp_path / "d.npz", LIMITS)
    automaton = weigh("suffix automaton", tmp_path / "d.npz", LIMITS)
    # A list of n tokens takes eight bytes each; the automaton says what it holds.
    tokens = 120_000
    assert 6 * tokens < scan_list["held"] <= scan_list["peak"] < 40 * tokens
    system = named("suffix automaton")
    nbytes = system.build(system.prepare(documents), LIMITS).nbytes
    assert 0.7 * nbytes < automaton["held"] <= automaton["peak"] < 2.5 * nbytes


def test_a_process_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(SpecbookError, match="plain scan .* ended with status 1: "):
        weigh("plain scan", tmp_path / "nothing.npz", LIMITS)


# The whole.


def test_a_run_reports_every_system(tmp_path: Path) -> None:
    lines: list[str] = []
    report = run(
        documents=corpus(4, 400, vocabulary=30),
        held_out=corpus(2, 300, vocabulary=30),
        queries=25,
        repeats=1,
        max_suffix=4,
        node_budget=6,
        out=tmp_path,
        progress=lines.append,
    )
    assert report.tokens == 1_600 and report.documents == 4
    assert tuple(item.system for item in report.measured) == NAMES
    for item in report.measured:
        if item.absent:
            assert named(item.system) not in HERE
            assert not item.build and not item.queries and not item.checked
            continue
        assert item.wrong == 0 and item.checked == bench_retrieval.SLOW_QUERIES
        assert len(item.build) == 1 and item.build[0] >= 0
        asked = bench_retrieval.SLOW_QUERIES if item.system == "plain scan" else 25
        assert len(item.queries) == asked
        assert item.held is not None and item.peak is not None
        assert item.held <= item.peak
    assert [item.system for item in report.grown] == [g.name for g in GROWERS]
    for grown in report.grown:
        assert grown.absent or (grown.tokens == (300, 300) and grown.first > 0)
    assert RetrievalReport.load(tmp_path / "retrieval.json") == report
    table = (tmp_path / "retrieval.md").read_text(encoding="utf-8")
    assert all(name in table for name in NAMES)
    assert (tmp_path / "retrieval.png").stat().st_size > 10_000
    assert any(line.startswith("weighing") for line in lines)


def test_an_absent_peer_is_told_with_the_way_to_get_it() -> None:
    absent = replace(
        named("Arctic suffix tree"), package="no_such_package_of_a_peer.part"
    )
    unbuilt = replace(named("suffix array"), needs="no_such_sorter")
    assert "no_such_sorter" in str(unbuilt.missing())
    why = absent.missing()
    assert why is not None
    assert "no_such_package_of_a_peer" in why and "pip install --no-deps" in why
    found = measure(
        corpus(1, 80),
        draw_contexts(corpus(1, 60), 3, LIMITS, 0),
        LIMITS,
        [named("suffix automaton"), absent],
        repeats=1,
    )
    assert found[1].absent == why and found[1].build == ()
    assert found[0].absent == "" and found[0].checked == 3 and found[0].wrong == 0
    [alone] = measure(corpus(1, 80), [[1] * 5], LIMITS, [absent], repeats=2)
    assert alone.absent == why


def test_wrong_answers_are_counted() -> None:
    automaton = named("suffix automaton")
    liar = replace(
        automaton,
        answer=lambda *question: replace(automaton.answer(*question), match=1),
    )
    [found] = measure(
        corpus(1, 200), draw_contexts(corpus(1, 90), 9, LIMITS, 0), LIMITS, [liar], 1
    )
    assert found.checked == 9 and found.wrong > 4


@pytest.mark.real
def test_the_default_corpus_is_python_source() -> None:
    documents, held, about = bench_retrieval.python_sources(None, 3_000)
    assert sum(map(len, documents)) >= 3_000 > sum(map(len, documents[:-1]))
    assert held and not {tuple(d) for d in held} & {tuple(d) for d in documents}
    assert "snapshot" in about


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokens": 0}, "tokens must be at least 1"),
        ({"queries": True}, "queries must be an integer"),
        ({"repeats": 1.5}, "repeats must be an integer"),
        ({"max_suffix": -1}, "max_suffix must be"),
        ({"node_budget": None}, "node_budget must be"),
        ({"seed": -1}, "seed must be"),
        ({"clock": "sun"}, "clock must be one of"),
        ({"quick": "no"}, "quick must be True or False"),
        ({"systems": []}, "different names"),
        ({"systems": ["plain scan", "plain scan"]}, "different names"),
        ({"systems": ["trie"]}, "no system is called 'trie'"),
        ({"systems": "plain scan"}, "systems must be"),
        ({"systems": [3]}, "a system must be text"),
        ({"documents": [[1]]}, "go together"),
        ({"documents": [[-1]], "held_out": [[1]]}, r"documents\[0\]\[0\]"),
        ({"documents": [[1]], "held_out": [[2**31]]}, r"held_out\[0\]\[0\] = 2"),
        ({"documents": 3, "held_out": [[1]]}, "documents must be"),
        ({"documents": [[1]], "held_out": [[1]]}, "no held-out document"),
        ({"progress": 3}, "progress must be a function"),
        ({"target": 3}, "target must be a folder"),
        ({"out": 3}, "out must be a folder"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "told",
)
def test_bad_options_are_refused(options: dict, message: str) -> None:
    with pytest.raises(SpecbookError, match=message):
        run(**options)


def test_a_target_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecbookError, match=r"has no tokenizer\.json"):
        run(tmp_path, quick=True)


def test_names_are_unique_and_each_builder_is_known() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert {system.index for system in SYSTEMS} <= set(NAMES)
    assert {system.kind for system in SYSTEMS} <= {"ranked", "counts", "share", "copy"}
    with pytest.raises(SpecbookError, match="no system is called"):
        retrieval_systems.named("grep")
