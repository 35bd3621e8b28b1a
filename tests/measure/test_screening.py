"""Screening: one run for all rules, counts that price every shape, finalists."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction as F
from typing import Any

import numpy as np
import pytest

from specbook import verifiers
from specbook.contract import Verifier
from specbook.drafts.neural.draft_model import CONTRACT, DraftModel
from specbook.engine import generate
from specbook.errors import SpecbookError
from specbook.measure import screening
from specbook.measure.configurations import Available, Drawing, available, drawings
from specbook.measure.frontier_data import Configuration, Screened
from specbook.measure.recording import Recording
from specbook.measure.screening import (
    counted,
    finalists,
    level_seconds,
    panel,
    priced,
    replayed,
)
from specbook.models import TableTarget
from tests.core.helpers import must_fail

SAYS = TableTarget(lambda told: [F(1, 2), F(1, 4), F(1, 4)], vocab_size=3)
GUESSES = TableTarget(lambda told: [F(1, 4), F(1, 2), F(1, 4)], vocab_size=3)
"""sum of min(p, q) is 3/4: what the rule for one draft accepts."""
VERIFY = ((1, 1.0), (2, 1.1), (4, 1.3), (16, 3.0))


def source(levels: int = 4) -> Available:
    def make(**plan: Any) -> Any:
        return DraftModel(GUESSES, **plan)

    return Available("draft_model", "model", make, CONTRACT, levels)


def drawing(children: str, chain: bool, temperature: float = 1.0) -> Drawing:
    return next(
        one
        for one in drawings(source(), temperature)
        if (one.children, one.chain) == (children, chain)
    )


def count(one: Drawing, prompts: int = 4, tokens: int = 400) -> screening.Counts:
    return counted(SAYS, one, [[0]] * prompts, temperature=1.0, max_new_tokens=tokens)


def test_the_judge_decides_as_if_it_were_alone() -> None:
    def check(make: Any) -> None:
        rule = verifiers.get("single")
        others = {name: verifiers.get(name) for name in ("specinfer", "membership")}
        run = {"max_new_tokens": 60, "temperature": 1.0, "seed": 5}
        chain = DraftModel(GUESSES, widths=(1, 1))
        alone = generate(SAYS, [0], chain, rule, **run)
        seen: Counter[str] = Counter()
        judged = make(rule, others, 0, lambda name, *rest: seen.update([name]))
        beside = generate(SAYS, [0], chain, judged, **run)
        assert alone.tokens == beside.tokens
        assert seen == dict.fromkeys(others, len(beside.rounds))

    def sharing(judge: Any, rules: Any, seed: int, into: Any) -> Verifier:
        """A planted fault: all draw from the judge's chance."""

        def select(tree: Any, law: Any, chance: Any) -> Any:
            for name, rule in rules.items():
                into(name, tree, rule.select(tree, law, chance))
            return judge.select(tree, law, chance)

        return Verifier(judge.contract, select)

    check(panel)
    must_fail(check, sharing)


def test_counts_of_one_run_are_those_of_each_rule() -> None:
    """Acceptance of a chain: 3/4 for the rules that couple p and q in the best way, and
    the chance that two draws agree for the one that does not read q. Six standard
    errors of over a thousand trials, both ways."""
    found = count(drawing("without_replacement", True))
    for rule, truth in (
        ("single", 3 / 4),
        ("specinfer", 3 / 4),
        ("membership", 1 / 2 * 1 / 4 + 1 / 4 * 1 / 2 + 1 / 4 * 1 / 4),
    ):
        slots = found.acceptance(rule)
        assert slots is not None
        trials = sum(
            len(one.selection.rows) + 1 for p in found.played[rule] for one in p
        )
        assert abs(slots[1] - truth) < 6 * np.sqrt(truth * (1 - truth) / trials), rule
        assert len(slots) == 2 and trials > 1000


def test_prices_follow_from_counts_and_times_by_hand() -> None:
    found = count(drawing("without_replacement", True), 1, 60)
    rows = priced(found, VERIFY, dtype="float32", temperature=1.0, level=0.25)
    by = {(r.configuration.verifier, r.configuration.topology): r for r in rows}
    slots = found.acceptance("single")
    assert slots is not None
    one = by["single", "chain 3"]
    p = slots[1]
    assert one.tokens_per_round == pytest.approx(1 + p + p**2 + p**3)
    assert (one.draft_seconds, one.verify_seconds) == (0.75, pytest.approx(1.3))
    assert one.per_token == pytest.approx(2.05 / one.tokens_per_round)
    names = {"chain 1", "chain 2", "chain 3", "chain 4"}
    assert {topology for _, topology in by} == names
    assert {rule for rule, _ in by} == set(found.drawing.rules)


def test_a_tree_is_planned_where_rows_are_free_and_not_where_they_are_dear() -> None:
    found = count(drawing("top_k", False), 2, 200)
    free = ((1, 1.0), (16, 1.0001))
    dear = ((1, 1.0), (16, 60.0))
    for times, wanted in ((free, True), (dear, False)):
        rows = priced(found, times, dtype="float32", temperature=1.0, level=0.0)
        planned = [r for r in rows if "planned" in r.configuration.topology]
        assert bool(planned) == wanted
        if planned:
            rule = planned[0].configuration.verifier
            same = [r for r in rows if r.configuration.verifier == rule]
            assert min(same, key=lambda r: r.per_token) == planned[0]


def test_a_source_that_copies_is_replayed_without_a_model() -> None:
    recorded = Recording.of([([1, 2, 3, 1, 2], [3, 1, 2, 3, 1, 2, 3])])
    (lookup,), _ = available(SAYS, names=["prompt_lookup"])
    (one,) = drawings(lookup, 0.0)
    rows = replayed(one, recorded, VERIFY, (0, 1), dtype="float32")
    assert {r.configuration.most for r in rows} == {0, 1}
    assert all(r.configuration.exact for r in rows)
    own = next(r for r in rows if not r.configuration.most)
    few = next(r for r in rows if r.configuration.most)
    assert own.tokens_per_round >= few.tokens_per_round > 1
    assert few.tokens_per_round <= 2 and few.verify_seconds <= 1.1


def rowof(
    source: str, family: str, rule: str, tokens: float, **changes: Any
) -> Screened:
    one = Configuration(source, family, rule, **changes)
    return Screened(one, "float32", 0.7, 1, tokens, 0.0, 1.0)


def test_finalists_are_the_best_of_each_family_and_each_heuristic() -> None:
    rows = [
        rowof("a", "heads", "single", 1.5),
        rowof("a", "heads", "block", 1.5),
        rowof("b", "heads", "single", 2.0),
        rowof("b", "heads", "block", 2.1),
        rowof("c", "copying", "membership", 1.1),
        rowof("b", "heads", "typical", 3.0, exact=False),
        rowof("c", "copying", "typical", 2.5, exact=False),
    ]
    names = [row.configuration.name for row in finalists(rows)]
    assert names == ["b / block", "c / membership", "b / typical"]
    two = [row.configuration.name for row in finalists(rows, each=2, heuristics=False)]
    assert two == ["b / block", "a / single", "c / membership"]


def test_bad_input_is_refused() -> None:
    one = drawing("without_replacement", True)
    with pytest.raises(SpecbookError, match="max_new_tokens"):
        count(one, 1, 1)
    with pytest.raises(SpecbookError, match="exact"):
        count(replace(one, rules=("typical",)), 1, 4)


def test_drafting_is_timed_by_the_clock_that_times_the_rows() -> None:
    """Each reading of this clock takes a second: no real draft is so slow."""
    seconds = iter(range(10**9))

    def clock() -> float:
        return float(next(seconds))

    one = drawing("without_replacement", True)
    few: dict[str, Any] = {"temperature": 1.0, "max_new_tokens": 12}
    found = counted(SAYS, one, [[0]], clock=clock, **few)
    assert min(spent for spent, _ in found.drafting) >= 1
    assert level_seconds(SAYS, one, [0], 1.0, clock=clock) > 0.1
    recorded = Recording.of([([1, 2, 3, 1, 2], [3, 1, 2, 3, 1, 2, 3])])
    (lookup,), _ = available(SAYS, names=["prompt_lookup"])
    (copies,) = drawings(lookup, 0.0)
    rows = replayed(copies, recorded, VERIFY, (0,), dtype="float32", clock=clock)
    assert min(row.draft_seconds for row in rows) >= 1
