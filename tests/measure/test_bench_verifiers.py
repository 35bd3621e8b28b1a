"""The verifiers' benchmark: who is timed with what, in turns, and what is refused."""

from __future__ import annotations

import itertools
from collections import Counter
from fractions import Fraction as F
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specbook import verifiers
from specbook.contract import Selection, Verifier
from specbook.errors import FetchError, LawError, SpecbookError
from specbook.measure import bench_verifiers as bench
from specbook.measure.report import Report
from specbook.measure.verifiers_report import VerifiersReport
from specbook.models.table import TableTarget
from specbook.proposal import SamplingRelation
from specbook.verifiers import membership

VOCAB = 40


def ticking() -> Any:
    ticks = itertools.count()
    return lambda: float(next(ticks))


def test_every_rule_is_timed_with_what_its_contract_admits() -> None:
    rows = bench.synthetic_rows(VOCAB, 2)
    found = bench.time_nodes(rows, children=3, repeats=2, seed=0, clock=ticking())
    assert {item.verifier for item in found} >= set(verifiers.names())
    asked = {(item.verifier, item.sampling): item.children for item in found}
    assert asked["specinfer", "iid"] == asked["sequoia", "without_replacement"] == 3
    assert asked["single", "iid"] == 1 and asked["spechub", "hub"] == 2
    assert asked["membership", "top_k"] == 3
    assert ("specinfer", "without_replacement") not in asked
    for item in found:
        if item.verifier == "optimal":
            assert not item.seconds and f"these are {VOCAB}" in item.refused
        else:
            # One tick a choice, one median a row: nothing else is inside the time.
            assert item.seconds == (1.0, 1.0) and not item.refused


def test_rules_take_turns_and_the_first_turn_warms_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order: list[str] = []

    def rule(name: str) -> Verifier:
        real = membership.VERIFIER

        def select(*given: Any) -> Selection:
            order.append(name)
            return real.select(*given)

        return Verifier(real.contract, select)

    monkeypatch.setattr(bench.verifiers, "names", lambda: ["a", "b", "c"])
    monkeypatch.setattr(bench.verifiers, "get", rule)
    rows = bench.synthetic_rows(VOCAB, 2)
    found = bench.time_nodes(rows, children=2, repeats=3, seed=0, clock=ticking())
    turns = ["".join(order[i : i + 3]) for i in range(0, len(order), 3)]
    assert len(turns) == 2 * (1 + 3) and len(found) == 3
    assert all(sorted(turn) == list("abc") for turn in turns)
    assert {turn[0] for turn in turns} == set("abc")


def test_a_rule_that_leaves_the_tree_and_a_fault_of_a_rule_are_no_refusals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    contract = verifiers.get("membership").contract
    rows = bench.synthetic_rows(VOCAB, 1)

    def timed(select: Any) -> Any:
        monkeypatch.setattr(bench.verifiers, "names", lambda: ["x"])
        monkeypatch.setattr(
            bench.verifiers, "get", lambda name: Verifier(contract, select)
        )
        return bench.time_nodes(rows, children=2, repeats=1, seed=0, clock=ticking())

    def broken(*given: Any) -> Selection:
        raise LawError("a broken row")

    with pytest.raises(LawError, match="broken row"):
        timed(broken)
    with pytest.raises(SpecbookError):
        timed(lambda *given: Selection((7,), 0))


def test_the_optimum_is_asked_of_the_oracle_and_slow_questions_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = bench.synthetic_rows(VOCAB, 3)
    asked: Counter[Any] = Counter()

    def oracle(p: Any, q: Any, k: int, sampling: str) -> float:
        row = next(i for i, pair in enumerate(rows) if pair[0] is p and pair[1] is q)
        asked[sampling, k, row] += 1
        return 0.5

    monkeypatch.setattr(bench.oracles, "optimal_acceptance", oracle)
    found = bench.time_optima(rows, repeats=2, slow=1, clock=ticking())
    assert [(item.sampling, item.drafts) for item in found] == list(bench.OPTIMA)
    for item in found:
        slow = (item.sampling, item.drafts) == ("without_replacement", 8)
        assert item.seconds == (1.0,) * (1 if slow else 3)
        times = [asked[item.sampling, item.drafts, row] for row in range(3)]
        assert times == ([1, 0, 0] if slow else [2, 2, 2])


def test_the_graph_of_networkx_is_the_problem_of_transport() -> None:
    found = bench.time_flow(problems=2, repeats=1, seed=1, clock=ticking())
    assert (found.tokens, found.drafts, found.method) == (*bench.FLOW, "scipy")
    assert found.agreed == 2 and found.seconds == (1.0, 1.0)
    assert set(found.networkx) == {"default", "fastest"}


def test_a_graph_that_lost_an_edge_does_not_agree(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = bench._graph

    def broken(*given: Any) -> Any:
        graph = real(*given)
        graph.remove_edge(0, "q")
        return graph

    monkeypatch.setattr(bench, "_graph", broken)
    assert bench.time_flow(problems=2, repeats=1, seed=1, clock=ticking()).agreed == 0


def test_a_law_of_tenths_is_one() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        law = bench._tenths(rng, 5)
        assert sum(law) == 1 and min(law) >= F(1, 10)


def test_the_rule_optimal_grows_until_it_costs_too_much() -> None:
    rows = bench.synthetic_rows(VOCAB, 2)
    found = bench.time_lists(rows, children=4, budget=0.5, seed=0, clock=ticking())
    # One tick is over the budget at once: one size of each sampling.
    assert [(item.sampling, item.tokens) for item in found] == [
        ("iid", 2),
        ("without_replacement", 2),
    ]
    found = bench.time_lists(
        [(p[:4] / p[:4].sum(), q[:4] / q[:4].sum()) for p, q in rows],
        children=4,
        budget=5.0,
        seed=0,
        clock=ticking(),
    )
    assert Counter(item.tokens for item in found) == {2: 2, 3: 2, 4: 2}


def test_rows_of_models_are_their_laws_along_the_targets_own_answer() -> None:
    table = [[0.1, 0.9, 0.0], [0.0, 0.2, 0.8], [1.0, 0.0, 0.0]]
    other = [[0.3, 0.3, 0.4]] * 3
    target, draft = (
        TableTarget(lambda prefix, rows=rows: rows[prefix[-1]], vocab_size=3)
        for rows in (table, other)
    )
    rows = bench.law_rows(target, draft, [[0], [0, 1]], per_prompt=3, seed=4)
    assert len(rows) == 6
    first = [p.tolist() for p, _ in rows]
    assert first[0] == table[0] and first[3] == table[1]
    for before, after in ((0, 1), (1, 2), (3, 4), (4, 5)):
        # The next law is that of a token that the one before gives mass to.
        assert any(
            mass > 0 and first[after] == table[token]
            for token, mass in enumerate(first[before])
        )
    assert all(q.tolist() == other[0] for _, q in rows)
    cold = bench.law_rows(target, draft, [[0]], per_prompt=1, temperature=0.5)
    np.testing.assert_allclose(cold[0][0], [0.01 / 0.82, 0.81 / 0.82, 0], atol=1e-12)


def test_synthetic_rows_repeat_and_are_laws() -> None:
    rows = bench.synthetic_rows(VOCAB, 2, seed=3)
    again = bench.synthetic_rows(VOCAB, 2, seed=3)
    for pair, same in zip(rows, again, strict=True):
        for law, copy in zip(pair, same, strict=True):
            assert law.sum() == pytest.approx(1) and (law == copy).all()
    assert not (rows[0][0] == rows[1][0]).all()


def test_a_quick_run_gives_a_report_that_reads_back(tmp_path: Path) -> None:
    told: list[str] = []
    made = bench.run(
        vocabulary=VOCAB, quick=True, clock="cpu", out=tmp_path, progress=told.append
    )
    assert isinstance(made, Report) and made.vocabulary == VOCAB
    assert "synthetic Zipf rows" in made.options()[0] and "quick" in made.options()[1]
    assert len(made.nodes[0].seconds) == bench.QUICK_ROWS
    assert {path.name for path in tmp_path.iterdir()} == {
        "verifiers.json",
        "verifiers.md",
        "verifiers.png",
    }
    assert VerifiersReport.load(tmp_path / "verifiers.json") == made
    assert any("optimum" in line for line in told)


def test_rows_of_the_caller_are_said_to_be_theirs() -> None:
    p, q = np.array([0.5, 0.3, 0.2]), [F(1, 2), F(1, 4), F(1, 4)]
    made = bench.bench_verifiers([(p, q)], quick=True)
    assert made.options()[0] == "Rows: 1 rows that the caller gave."
    assert made.vocabulary == 3
    # With so few tokens `optimal` serves them all: it has its own table.
    assert "optimal" not in {item.verifier for item in made.nodes}
    assert {item.tokens for item in made.lists} == {2, 3}


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"vocabulary": 1}, SpecbookError, "vocabulary must be at least 2"),
        ({"children": 0}, SpecbookError, "children must be at least 1"),
        ({"children": True}, SpecbookError, "children must be an integer"),
        ({"repeats": 0}, SpecbookError, "repeats"),
        ({"seed": -1}, SpecbookError, "seed"),
        ({"clock": "sun"}, SpecbookError, "clock must be one of"),
        ({"quick": 1}, SpecbookError, "quick must be True or False"),
        ({"progress": 3}, SpecbookError, "progress must be a function"),
        ({"about": 3}, SpecbookError, "about must be text"),
        ({"rows": 5}, SpecbookError, "rows must be a sequence of pairs"),
        ({"rows": []}, SpecbookError, "rows is empty"),
        ({"rows": [[0.5, 0.3, 0.2]]}, SpecbookError, r"rows\[0\] must be a pair"),
        ({"rows": [([1.0], [0.5, 0.5])]}, SpecbookError, r"p has 1 tokens and q 2"),
        ({"rows": [([0.5, 0.6], [1, 0])]}, LawError, r"rows\[0\]\[0\] sums to"),
        (
            {"rows": [([1, 0], [1, 0]), ([1, 0, 0], [1, 0, 0])]},
            LawError,
            r"rows\[1\]\[0\] has 3 entries, expected 2",
        ),
    ],
)
def test_bad_options_are_named(options: Any, error: Any, told: str) -> None:
    with pytest.raises(error, match=told):
        bench.bench_verifiers(**{"rows": None, "quick": True, **options})


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"target": 5}, "target must be a folder or a hub id"),
        ({"draft": 5}, "draft must be a folder or a hub id"),
        ({"target": "x", "synthetic": True}, "belong to no model"),
        ({"draft": "x", "vocabulary": 50}, "belong to no model"),
        ({"synthetic": "no"}, "synthetic must be True or False"),
        ({"temperature": 0}, "temperature must be above 0"),
        ({"temperature": float("nan")}, "temperature must be finite"),
        ({"children": 0}, "children"),
        ({"vocabulary": 0}, "vocabulary"),
        ({"out": __file__}, "takes no files"),
    ],
)
def test_bad_options_are_refused_before_anything_is_loaded(
    monkeypatch: pytest.MonkeyPatch, options: Any, told: str
) -> None:
    def never(*given: Any) -> Any:
        raise AssertionError("something was loaded or timed")

    monkeypatch.setattr(bench, "_rows_of_models", never)
    monkeypatch.setattr(bench, "bench_verifiers", never)
    with pytest.raises(SpecbookError, match=told):
        bench.run(**options)


def test_the_models_of_the_rows_are_named_and_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from specbook.models import loading

    class Model(TableTarget):
        def __init__(self, name: str, rows: Any) -> None:
            super().__init__(lambda prefix: rows, vocab_size=3)
            self.name = name

        def identity(self) -> dict[str, str]:
            return {**super().identity(), "checkpoint": f"{self.name} sha256:12ab"}

        def encode(self, text: str) -> list[int]:
            return [len(text) % 3]

        def encode_chat(self, messages: Any) -> list[int]:
            return [0]

    made = [Model("large", [0.5, 0.25, 0.25]), Model("small", [0.2, 0.3, 0.5])]
    monkeypatch.setattr(loading, "load_target", lambda *given: made.pop(0))
    found = bench.run("one", "two", quick=True)
    told = found.options()[0]
    assert "4 positions in sampled answers to 4 development prompts" in told
    assert "target large, draft model small" in told and "sha256" not in told
    assert found.settings["draft"]["checkpoint"] == "small sha256:12ab"
    assert found.vocabulary == 3


def test_without_a_target_the_rows_are_synthetic_and_said_to_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_network(*given: Any) -> Any:
        raise FetchError("no network")

    monkeypatch.setattr(bench, "_rows_of_models", no_network)
    monkeypatch.setattr(bench, "VOCABULARY", VOCAB)
    told: list[str] = []
    made = bench.run(quick=True, progress=told.append)
    assert "synthetic" in made.settings["rows"] and "no network" in told[0]
    # A target that was named is not replaced in silence.
    with pytest.raises(FetchError):
        bench.run("somewhere", quick=True)


def test_the_samplers_cover_what_the_rules_are_timed_with() -> None:
    for rule, sampling, _ in bench._asked(4):
        relation = bench.RELATIONS[sampling]
        assert relation in bench.SAMPLERS
        assert rule.contract.supports_sampling_relation(relation)
        assert relation is not SamplingRelation.INDEPENDENT


def test_rows_too_small_for_a_question_and_sizes_of_no_model() -> None:
    """Two tokens leave no number of drafts below them to ask the optimum about."""
    for tokens in (1, 2):
        row = np.full(tokens, 1 / tokens)
        report = bench.bench_verifiers([(row, row)], quick=True)
        assert report.optima == () and report.nodes
    for change, words in (
        ({"vocabulary": 10**13}, "vocabulary must be at most"),
        ({"children": 10**6}, "children must be at most"),
    ):
        with pytest.raises(SpecbookError, match=words):
            bench.bench_verifiers(quick=True, **change)
