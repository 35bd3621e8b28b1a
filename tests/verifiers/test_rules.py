"""What each rule refuses by hand, its heuristics, and its numbers on real sizes."""

from __future__ import annotations

import warnings
from fractions import Fraction as F
from typing import Any

import numpy as np
import pytest

from specbook import verifiers
from specbook.chance import Sampler
from specbook.drafts import samplers
from specbook.drafts.samplers import Draw, position_tree
from specbook.engine import generate
from specbook.errors import ContractError, LawError, SpecbookError
from specbook.models.table import TableTarget
from specbook.tree import CandidateTree
from specbook.verifiers import ensemble, optimal, typical
from specbook.verifiers.coupling import acceptance, residual
from specbook.verifiers.walk import walk
from tests.core.helpers import must_fail
from tests.core.helpers.laws import table_of

from .helpers import (
    P,
    Q,
    TableDrafts,
    accepted,
    check_position,
    drawing,
    exact,
    output,
    position_law,
)

HALF = exact([1, 1])


def refuse(name: str, draws: Any, told: str, error: Any = ContractError) -> None:
    p = exact([1] * len(draws[0].law))
    with pytest.raises(error, match=told):
        verifiers.get(name).select(position_tree(draws), lambda _: p, Sampler(0))


def test_sequoia_refuses_draws_that_are_not_what_was_left() -> None:
    told = "row 1 was not drawn from what the 1"
    q = exact([2, 1, 1])
    refuse("sequoia", [Draw(1, q), Draw(2, q)], told)
    refuse("sequoia", [Draw(1, q), Draw(2, samplers.rest(q, [0]))], told)
    refuse("sequoia", [Draw(0, HALF), Draw(1, HALF)], told)
    good = [Draw(1, q), Draw(2, samplers.rest(q, [1]))]
    verifiers.get("sequoia").select(position_tree(good), lambda _: q, Sampler(0))


def test_greedy_draft_wants_fixed_tokens_first() -> None:
    refuse("greedy_draft", [Draw(0, HALF), Draw(1, HALF)], "row 0 was drawn")


def test_spechub_wants_a_pair_with_the_hub() -> None:
    q = exact([1, 3, 2])
    for tokens in ([0, 2], [1], [0], [1, 1], [0, 1, 2]):
        draws = [Draw(token, q) for token in tokens]
        refuse("spechub", draws, "spechub")
    refuse("spechub", [Draw(1, exact([1, 3, 0]))], "token 1 came alone")


def test_a_hub_that_is_all_of_q_but_for_rounding_may_come_alone() -> None:
    q = np.array([0.0, 1 - 2.0**-53, 0.0])
    check_floats("spechub", np.array([0.5, 0.25, 0.25]), q, "hub", 2)


def test_optimal_tells_the_two_relations_apart_and_refuses_a_third() -> None:
    q = exact([2, 1, 1])
    other = exact([1, 1, 2])
    refuse("optimal", [Draw(0, q), Draw(1, other)], "neither from")
    assert optimal.plan(q, other, 2) != optimal.plan(q, other, 2, "without_replacement")


def test_optimal_says_how_large_it_may_be() -> None:
    many = np.full(optimal.MOST + 1, 1 / (optimal.MOST + 1))
    for sampling in ("iid", "without_replacement"):
        with pytest.raises(SpecbookError, match=f"at most {optimal.MOST}"):
            optimal.plan(many, many, 2, sampling)
    # Of a truncated law only the tokens that can be drafted count.
    p, q = np.full(1000, 1e-3), np.zeros(1000)
    q[[5, 7, 11]] = 0.5, 0.25, 0.25
    made = optimal.plan(p, q, 3)
    assert float(made.accepted.sum()) == pytest.approx(3e-3)
    for bad in ({"k": 0}, {"k": True}, {"sampling": "beam"}, {"q": [1.0]}):
        with pytest.raises(SpecbookError):
            optimal.plan(**{"p": HALF, "q": HALF, "k": 1, **bad})  # type: ignore[arg-type]


def test_the_plan_of_the_articles_instance() -> None:
    """Three lists; their masses mix to p, so that some draft is always accepted."""
    made = optimal.plan(exact(P), exact(Q), 2)
    assert made.lists == ((0, 1, 2), (2, 0, 1), (2, 1, 0))
    assert made.weights.tolist() == [F(1, 2), F(5, 16), F(3, 16)]
    assert made.accepted.tolist() == exact(P).tolist()
    masses = []
    for order in made.lists:
        seen, mass = F(0), [F(0)] * 3
        for token in order:
            inside = seen + exact(Q)[token]
            mass[token] = (1 - (1 - inside) ** 2) - (1 - (1 - seen) ** 2)
            seen = inside
        masses.append(mass)
    assert masses[0] == [F(16, 25), F(8, 25), F(1, 25)]
    mixed = sum(
        w * np.array(m, dtype=object) for w, m in zip(made.weights, masses, strict=True)
    )
    assert mixed.tolist() == exact(P).tolist()


def test_the_plan_in_floats_is_the_plan_in_fractions() -> None:
    p, q = exact([5, 3, 1, 1]), exact([1, 2, 3, 4])
    for sampling in ("iid", "without_replacement"):
        one = optimal.plan(p, q, 3, sampling)
        other = optimal.plan(p.astype(float), q.astype(float), 3, sampling)
        assert float(one.accepted.sum()) == pytest.approx(
            float(other.accepted.sum()), abs=1e-15
        )


@pytest.mark.parametrize(
    ("rows", "error", "told"),
    [
        ([0.5, 0.4], LawError, "target's law at row -1 sums"),
        ([np.nan, 1.0], LawError, "NaN"),
        ([1.0], LawError, r"law \[2\]"),
        ([], LawError, "row -1"),
        ([-0.5, 1.5], LawError, "negative"),
    ],
    ids=["sum", "nan", "short", "empty", "negative"],
)
@pytest.mark.parametrize("name", verifiers.names())
def test_h18_a_broken_target_row_is_never_a_token(
    name: str, rows: Any, error: Any, told: str
) -> None:
    if len(rows) == 1 and not verifiers.get(name).contract.reads_q:
        return  # it has no q to compare the length with; the engine compares
    if name in ("membership", "single"):
        return  # proved beside these rules
    tree = position_tree([Draw(0, HALF)])
    with pytest.raises(error, match=told):
        verifiers.get(name).select(tree, lambda _: np.array(rows), Sampler(0))


def test_exact_and_float_rows_may_meet() -> None:
    floats = np.array([0.25, 0.75])
    for name in ("specinfer", "sequoia", "kseq", "optimal", "block", "traversal"):
        for p, q in ((HALF, floats), (floats, HALF)):
            tree = position_tree([Draw(1, q)])
            found = verifiers.get(name).select(tree, lambda _, p=p: p, Sampler(1))
            assert found.rows in ((), (0,))


def test_h15_the_correction_after_a_refusal_is_certain() -> None:
    p, q = exact([5, 3, 2]), exact([1, 3, 1])
    for name in ("specinfer", "sequoia", "kseq", "block", "traversal", "greedy_draft"):
        found = position_law(verifiers.get(name).select, p, lambda chance: [Draw(1, q)])
        assert {token for taken, token in found if not taken} == {0}


def test_h14_every_rule_updates_what_is_left() -> None:
    for p, q in ((HALF, exact([1, 0])), (exact(P), exact(Q))):
        for name in ("specinfer", "kseq", "traversal"):
            check_position(verifiers.get(name), p, drawing("iid", q, 2))


# ---------------------------------------------------------------------- heuristics


def test_typical_acceptance_emits_the_law_of_the_drafts() -> None:
    """Every token of the article's instance clears the bar: one draft is always taken,
    and the output is q. Of two drafts the likelier one is, which is no better."""
    p, q = exact(P), exact(Q)
    assert min(p) > typical.threshold(p)
    one = position_law(typical.VERIFIER.select, p, drawing("iid", q, 1))
    assert output(one, 3) == q.tolist() and accepted(one) == 1
    two = position_law(typical.VERIFIER.select, p, drawing("iid", q, 2))
    assert output(two, 3) == [F(16, 25), F(8, 25), F(1, 25)]
    assert accepted(two) == 1


def test_typical_acceptance_by_hand() -> None:
    p = np.array([0.6, 0.3, 0.05, 0.05])
    entropy = -sum(x * np.log(x) for x in p)
    assert typical.threshold(p) == pytest.approx(min(0.09, 0.3 * np.exp(-entropy)))
    assert typical.threshold(np.eye(3)[1]) == 0.09
    laws = {-1: p, 0: p, 1: p, 2: p, 3: p}
    tree = CandidateTree.from_paths([[1, 2], [0, 1], [2, 0, 0]], 0)
    found = typical.select(tree, lambda row: laws.get(row, p), Sampler(0))
    assert [tree.token_ids[row] for row in found.rows] == [0, 1]
    loose = typical.verifier(0.0, 0.0)
    found = loose.select(tree, lambda row: p, Sampler(0))
    assert [tree.token_ids[row] for row in found.rows] == [2, 0, 0]
    # Of eight equals the other bar is the lower one: delta exp(-log 8).
    assert typical.threshold(np.full(8, 1 / 8)) == pytest.approx(0.3 / 8)
    # A token at the bar does not clear it.
    edge = typical.verifier(0.3, 9.0).select(tree, lambda row: p, Sampler(0))
    assert [tree.token_ids[row] for row in edge.rows] == [0]
    strict = typical.verifier(1.0, 9.0)
    assert strict.select(tree, lambda row: p, Sampler(0)).rows == ()
    for bad in (-1, True, "x", float("nan"), None):
        for name in ("epsilon", "delta"):
            with pytest.raises(SpecbookError, match=name):
                typical.verifier(**{name: bad})  # type: ignore[arg-type]


@pytest.mark.parametrize("weight", [F(1, 2), F(1, 4), F(9, 10)], ids=str)
def test_ensemble_emits_the_blend(weight: Any) -> None:
    p, q = exact(P), exact(Q)
    rule = ensemble.verifier(weight)
    found = position_law(rule.select, p, drawing("iid", q, 1))
    blend = weight * p + (1 - weight) * q
    assert output(found, 3) == blend.tolist()
    assert accepted(found) == 1 - weight * sum(abs(p - q)) / 2
    must_fail(check_position, rule, p, drawing("iid", q, 1))
    default = position_law(ensemble.VERIFIER.select, p, drawing("iid", q, 1))
    assert output(default, 3) == [F(9, 20), F(7, 20), F(1, 5)]


@pytest.mark.parametrize("bad", [0, 1, -0.5, 2, True, None, "x"], ids=repr)
def test_a_weight_is_between_zero_and_one(bad: Any) -> None:
    with pytest.raises(SpecbookError, match="weight"):
        ensemble.verifier(bad)
    refuse("ensemble", [Draw(0, HALF), Draw(1, HALF)], "one candidate")


def test_exact_mode_refuses_the_heuristics_before_anything_runs() -> None:
    source = TableDrafts(table_of([[1, 2]]), (1, 1))
    target = TableTarget(table_of([[1, 1]]), vocab_size=2)
    for name in ("typical", "ensemble"):
        options: dict[str, Any] = {"max_new_tokens": 4, "temperature": 1}
        with pytest.raises(ContractError, match="heuristic"):
            generate(target, [0], source, name, **options)
        made = generate(target, [0], source, name, exact=False, **options)
        assert len(made.tokens) == 4


# ------------------------------------------------------- temperature 0, and floats


GREEDY_PAIRS = [
    ("specinfer", "iid"),
    ("sequoia", "without_replacement"),
    ("kseq", "iid"),
    ("one_hot", "beam"),
    ("greedy_draft", "greedy_plus_one"),
    ("spechub", "hub"),
    ("traversal", "iid"),
    ("traversal", "without_replacement"),
    ("block", "iid"),
    ("single", "iid"),
    ("typical", "iid"),
]


@pytest.mark.parametrize(("name", "relation"), GREEDY_PAIRS)
def test_h19_at_temperature_zero_every_rule_is_greedy_decoding(
    name: str, relation: str
) -> None:
    table = table_of([[2, 1, 3], [1, 5, 1], [4, 3, 2]], salt=3)

    def hot(prefix: tuple[int, ...]) -> Any:
        row = table_of([[1, 2, 3], [3, 2, 1]], salt=7)(prefix)
        return [F(int(i == row.index(max(row)))) for i in range(3)]

    target = TableTarget(table, vocab_size=3)
    chain = name in ("block", "single")
    source = TableDrafts(hot, (1, 1) if chain else (2, 2), relation)
    options: dict[str, Any] = {"max_new_tokens": 12, "exact": name != "typical"}
    plain = generate(target, [0], None, "greedy", **options)
    assert generate(target, [0], source, name, **options).tokens == plain.tokens


def float_rows(rng: np.random.Generator, size: int) -> Any:
    """Rows of every kind that a policy makes: flat, sharp, truncated, one-hot,
    denormal tails."""
    logits = rng.normal(size=size) * rng.choice([0.0, 1.0, 30.0, 500.0])
    row = np.exp(logits - logits.max())
    if rng.random() < 0.4:
        row[row < np.sort(row)[-max(1, size // 3)]] = 0
    return row / row.sum()


FLOAT_PAIRS = [
    *GREEDY_PAIRS[:-1],
    ("optimal", "iid"),
    ("optimal", "without_replacement"),
]


def check_floats(rule: Any, p: Any, q: Any, relation: str, k: int) -> None:
    """The float64 output is p to 1e-12, with neither warning nor NaN."""
    select = verifiers.get(rule).select if isinstance(rule, str) else rule
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = position_law(select, p, drawing(relation, q, k))
    assert all(0 <= weight <= 1 + 1e-12 for weight in found.values())
    assert np.abs(np.array(output(found, len(p)), dtype=float) - p).max() <= 1e-12


@pytest.mark.parametrize(("name", "relation"), FLOAT_PAIRS)
def test_float_rows_give_p_to_rounding(name: str, relation: str) -> None:
    rng = np.random.default_rng(5)
    for number in range(30):
        size = int(rng.integers(2, 5))
        p, q = float_rows(rng, size), float_rows(rng, size)
        if number % 5 == 0:
            p = q
        elif number % 5 == 1:  # all but equal
            p = q * (1 + rng.normal(size=size) * 1e-15)
            p = p / p.sum()
        k = 1 if name in ("block", "single") else 2 if relation == "hub" else 3
        check_floats(name, p, q, relation, min(k, 2 if size > 3 else 3))


TINY = 5e-324


@pytest.mark.parametrize(("name", "relation"), FLOAT_PAIRS)
def test_float_rows_at_their_limits(name: str, relation: str) -> None:
    k = 1 if name in ("block", "single") else 2
    rows = [[1.0, TINY], [TINY, 1.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1e-310]]
    rows += [[0.5, 0.5], [0.1 + 0.2, 0.7], [0.3, 0.7], [1e-17, 1.0]]
    for p in rows:
        for q in rows:
            check_floats(name, np.array(p), np.array(q), relation, k)


def test_the_float_check_finds_a_small_fault() -> None:
    """A residual that is off by some parts in 10^9."""

    def choose(p: Any, drafts: Any, chance: Any) -> Any:
        draft = drafts[0]
        if chance.flip(acceptance(p, draft.law, draft.token)):
            return draft
        left = residual(p, draft.law)
        return chance.draw(left * (1 - 1e-8) + 1e-8 * draft.law)

    def select(tree: Any, law: Any, chance: Any) -> Any:
        return walk(tree, law, chance, choose, name="fault")

    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.6, 0.2])
    check_floats("specinfer", p, q, "iid", 1)
    must_fail(check_floats, select, p, q, "iid", 1)
