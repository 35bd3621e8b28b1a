"""How candidates are drawn: the exact law of what each sampler returns."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbook.chance import Sampler, law
from specbook.drafts import samplers
from specbook.errors import LawError, SpecbookError
from specbook.proposal import SamplingRelation
from specbook.tree import CandidateTree
from tests.core.helpers import must_fail

from .helpers import constant, exact, instances, weights

ZERO, ONE = Fraction(0), Fraction(1)


def tokens_law(draws: Any) -> dict[Any, Any]:
    return law(lambda chance: tuple(draw.token for draw in draws(chance)))


def check_laws_are_those_of_the_draws(draws: Any) -> None:
    """Given the draws before it, each drawn token has the law that it carries."""
    found = law(lambda chance: tuple((d.token, tuple(d.law)) for d in draws(chance)))
    begun: dict[Any, Any] = {}
    for drawn, mass in found.items():
        for length in range(len(drawn)):
            key = (tuple(t for t, _ in drawn[:length]), drawn[length][1])
            row = begun.setdefault(key, {})
            token = drawn[length][0]
            row[token] = row.get(token, ZERO) + mass
    for (_, stated), masses in begun.items():
        total = sum(masses.values())
        for token, probability in enumerate(stated):
            assert masses.get(token, ZERO) / total == probability


@settings(max_examples=80, deadline=None, derandomize=True, database=None)
@given(instances(), st.sampled_from(list(samplers.SAMPLERS)))
def test_every_draw_carries_the_law_that_it_was_made_from(
    instance: Any, relation: Any
) -> None:
    _, q, k = instance
    if relation is SamplingRelation.BEAM:
        return
    k = 2 if relation is SamplingRelation.HUB else k
    sampler = samplers.SAMPLERS[relation]
    check_laws_are_those_of_the_draws(lambda chance: sampler(q, k, chance))


def test_a_sampler_that_states_another_law_is_found() -> None:
    q = exact([3, 2, 1])

    def lies(chance: Any) -> Any:
        """Draws without replacement, and says that each came from q."""
        return [d._replace(law=q) for d in samplers.without_replacement(q, 2, chance)]

    check_laws_are_those_of_the_draws(lambda c: samplers.without_replacement(q, 2, c))
    must_fail(check_laws_are_those_of_the_draws, lies)


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(instances())
def test_iid_draws_have_the_product_law(instance: Any) -> None:
    _, q, k = instance
    wanted = {}
    for tokens in itertools.product(np.flatnonzero(q).tolist(), repeat=k):
        wanted[tokens] = np.prod([q[t] for t in tokens])
    assert tokens_law(lambda chance: samplers.iid(q, k, chance)) == wanted


def race(q: Any, k: int) -> dict[Any, Any]:
    """Successive sampling with the uniform fallback, by recursion."""
    found: dict[Any, Any] = {}

    def step(drawn: tuple[int, ...], mass: Any) -> None:
        if len(drawn) == min(k, len(q)):
            found[drawn] = mass
            return
        others = [t for t in range(len(q)) if t not in drawn]
        total = sum(q[t] for t in others)
        for t in others:
            share = q[t] / total if total else Fraction(1, len(others))
            if share:
                step((*drawn, t), mass * share)

    step((), ONE)
    return found


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(instances())
def test_without_replacement_is_successive_sampling(instance: Any) -> None:
    _, q, k = instance
    draws = tokens_law(lambda chance: samplers.without_replacement(q, k, chance))
    assert draws == race(q, k)


def test_the_fallback_is_uniform_over_the_tokens_that_were_not_drawn() -> None:
    q = exact([1, 0, 0, 0])
    found = tokens_law(lambda chance: samplers.without_replacement(q, 3, chance))
    orders = itertools.permutations([1, 2, 3], 2)
    assert found == {(0, *order): Fraction(1, 6) for order in orders}
    bare = tokens_law(
        lambda chance: samplers.without_replacement(q, 3, chance, fallback=False)
    )
    assert bare == {(0,): 1}
    every = tokens_law(lambda chance: samplers.without_replacement(q, 9, chance))
    assert {len(order) for order in every} == {4}


def test_the_fallback_on_floats() -> None:
    q = np.array([1.0, 0.0, 0.0, 0.0])
    draws = samplers.without_replacement(q, 4, Sampler(0))
    assert sorted(d.token for d in draws) == [0, 1, 2, 3]
    assert draws[1].law is not None and draws[1].law.tolist() == [0, *[1 / 3] * 3]
    tiny = np.array([1.0, 5e-324, 0.0])  # what is left of it is one denormal
    assert [d.token for d in samplers.without_replacement(tiny, 2, Sampler(0))] == [
        0,
        1,
    ]


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(instances())
def test_greedy_plus_one_fixes_all_but_one(instance: Any) -> None:
    _, q, k = instance
    order = sorted(range(len(q)), key=lambda t: (-q[t], t))
    fixed = [t for t in order if q[t] > 0][: k - 1]
    left = {t: q[t] for t in order if q[t] > 0 and t not in fixed}
    total = sum(left.values())
    wanted = {(*fixed, t): mass / total for t, mass in left.items()}
    found = tokens_law(lambda chance: samplers.greedy_plus_one(q, k, chance))
    assert found == (wanted or {tuple(fixed): 1})


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(instances())
def test_hub_pairs(instance: Any) -> None:
    _, q, _ = instance
    hub = q.tolist().index(max(q))
    wanted: dict[Any, Any] = {}
    for t in np.flatnonzero(q).tolist():
        if t != hub:
            wanted[t, hub] = q[t]
            wanted[hub, t] = q[hub] * q[t] / (1 - q[hub])
    found = tokens_law(lambda chance: samplers.hub(q, 2, chance))
    assert found == (wanted or {(hub,): 1})


def test_independent_draws_come_from_their_own_laws() -> None:
    rows = [exact([1, 1, 0]), exact([0, 1, 3])]
    found = tokens_law(lambda chance: samplers.independent(rows, chance))
    assert found == {(a, b): rows[0][a] * rows[1][b] for a in (0, 1) for b in (1, 2)}
    floats = np.array([[0.5, 0.5], [0.0, 1.0]])
    assert len(samplers.independent(floats, Sampler(0))) == 2
    assert samplers.independent([], Sampler(0)) == []


def test_top_k_ranks_and_draws_nothing() -> None:
    q = exact([2, 3, 3, 0])
    draws = samplers.top_k(q, 9)
    assert [(d.token, d.law, d.score) for d in draws] == [
        (1, None, q[1]),
        (2, None, q[2]),
        (0, None, q[0]),
    ]
    assert [d.token for d in samplers.top_k([0.1, 0.7, 0.2], 2)] == [1, 2]


def test_a_mixture_is_one_law_again() -> None:
    rows = [exact([1, 1, 0]), exact([0, 1, 3])]
    mixed = samplers.mixture(rows, exact([1, 2]))
    assert mixed.tolist() == [Fraction(1, 6), Fraction(1, 3), Fraction(1, 2)]
    assert samplers.mixture([[0.5, 0.5]], [1.0]).tolist() == [0.5, 0.5]
    for rows, shares, error in (
        ([], [1], LawError),
        ([[1, 0]], [0.5], LawError),
        ([[1, 0], [1, 0, 0]], exact([1, 1]), LawError),
        ([[1, 0]], exact([1, 1]), LawError),
        (["ab"], [1], LawError),
        ({0: [1]}, [1], SpecbookError),
    ):
        with pytest.raises(error):
            samplers.mixture(rows, shares)


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(weights(4), st.integers(0, 6))
def test_most_probable_is_a_stable_sort(counts: Any, most: int) -> None:
    for row in (exact(counts), np.array(counts) / sum(counts)):
        order = sorted(np.flatnonzero(row).tolist(), key=lambda t: (-row[t], t))
        assert samplers.most_probable(row, most) == order[:most]


@pytest.mark.parametrize("bad", [-1, 1.0, True, None, "2"], ids=repr)
@pytest.mark.parametrize("relation", list(samplers.SAMPLERS))
def test_k_is_a_count(relation: Any, bad: Any) -> None:
    with pytest.raises(SpecbookError, match="k must be"):
        samplers.SAMPLERS[relation](exact([1, 1]), bad, Sampler(0))


@pytest.mark.parametrize(
    "bad",
    [[], [0.5, 0.4], [float("nan"), 1.0], [-0.5, 1.5], "ab", 0.5, {0: 1.0}, [[1.0]]],
    ids=repr,
)
@pytest.mark.parametrize("relation", list(samplers.SAMPLERS))
def test_q_is_a_law(relation: Any, bad: Any) -> None:
    with pytest.raises(LawError):
        samplers.SAMPLERS[relation](bad, 2, Sampler(0))


def test_bad_rows_are_named() -> None:
    with pytest.raises(LawError, match=r"laws\[1\]"):
        samplers.independent([[1.0, 0.0], [0.5, 0.4]], Sampler(0))
    with pytest.raises(SpecbookError, match="laws"):
        samplers.independent({0: [1.0]}, Sampler(0))
    for k in (0, 1, 3):
        with pytest.raises(SpecbookError, match="two candidates"):
            samplers.hub(exact([1, 1]), k, Sampler(0))


def test_nothing_is_drawn_for_k_zero() -> None:
    q = exact([1, 1])
    for relation, sampler in samplers.SAMPLERS.items():
        if relation not in (SamplingRelation.HUB,):
            assert len(sampler(q, 0, Sampler(0))) == 0


# --------------------------------------------------------------------------- trees


def test_a_width_vector_expands_level_by_level() -> None:
    asked: list[Any] = []

    def conditional(path: tuple[int, ...]) -> Any:
        asked.append(path)
        return exact([1, 2, 3])

    nodes = samplers.expand(conditional, [2, 2, 1], samplers.top_k, Sampler(0))
    tree = CandidateTree.from_rows(
        [n.token_id for n in nodes], [n.parent for n in nodes], 0
    )
    assert tree.paths() == [(2, 2, 2), (2, 1, 2), (1, 2, 2), (1, 1, 2)]
    assert asked == [(), (2,), (1,), (2, 2), (2, 1), (1, 2), (1, 1)]
    assert [n.depth for n in nodes] == list(tree.depths)


def test_a_token_drawn_twice_has_one_family() -> None:
    nodes = samplers.expand(
        lambda path: exact([1, 0]), [2, 2], samplers.iid, Sampler(0), source="me"
    )
    assert [(n.token_id, n.parent) for n in nodes] == [(0, -1), (0, -1), (0, 0), (0, 0)]
    assert {n.source for n in nodes} == {"me"} and all(n.q == 1 for n in nodes)


@pytest.mark.parametrize(("most", "made"), [(0, 0), (1, 0), (2, 2), (5, 4), (6, 6)])
def test_a_family_that_does_not_fit_is_not_begun(most: int, made: int) -> None:
    table = constant([1, 2, 3])
    nodes = samplers.expand(table, (2, 2), samplers.top_k, Sampler(0), max_nodes=most)
    assert len(nodes) == made


@pytest.mark.parametrize(
    "widths", [[0], [1, -1], [1.0], [True], 3, "12", None, {1: 2}], ids=repr
)
def test_widths_are_counts(widths: Any) -> None:
    with pytest.raises(SpecbookError, match="widths"):
        samplers.expand(constant([1, 1]), widths, samplers.iid, Sampler(0))


def test_one_position_is_a_tree_of_depth_one() -> None:
    q = exact([1, 1])
    draws = [samplers.Draw(t, q) for t in (1, 0, 1)]
    tree = samplers.position_tree(iter(draws), prefix_len=3)
    tree.validate(2)
    assert tree.token_ids == (1, 0) and tree.position_ids == (3, 3)
    assert [tree.token_ids[row] for row, _ in tree.draws(-1)] == [1, 0, 1]
    assert len(samplers.position_tree([])) == 0
    for bad in (3, None, "ab"):
        with pytest.raises(SpecbookError, match="draws"):
            samplers.position_tree(bad)  # type: ignore[arg-type]


def test_a_mixture_of_fractions_and_floats_is_float() -> None:
    """Where one side rounds, the other's exactness is of no use."""
    mixed = samplers.mixture([[0.5, 0.5], exact([1, 3])], [Fraction(1, 2)] * 2)
    assert mixed.dtype == np.float64 and mixed.tolist() == [0.375, 0.625]


def test_a_tree_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samplers, "MOST_NODES", 100)
    row = exact([1, 1, 1])
    with pytest.raises(SpecbookError, match="more than 100 nodes"):
        samplers.expand(
            lambda path: row, [3] * 9, samplers.without_replacement, Sampler(0)
        )
    few = samplers.expand(
        lambda path: row,
        [3] * 9,
        samplers.without_replacement,
        Sampler(0),
        max_nodes=99,
    )
    assert len(few) == 99
