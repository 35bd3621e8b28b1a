"""One part of a rule exchanged, at one position: the check of the law finds it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbook import verifiers
from specbook.chance import law
from specbook.drafts import samplers
from specbook.drafts.samplers import Draw
from specbook.verifiers import greedy_draft, kseq, optimal, sequoia, spechub, specinfer
from specbook.verifiers.coupling import acceptance, residual
from specbook.verifiers.walk import walk
from tests.core.helpers import must_fail

from .helpers import check_position, drawing, exact, weights


def rule(choose: Any) -> Any:
    return lambda tree, law, chance: walk(tree, law, chance, choose, name="fault")


def corrects_with_p(p: Any, drafts: Any, chance: Any) -> Any:
    """Greedy drafts, the correction drawn from p."""
    if chance.flip(acceptance(p, drafts[-1].law, drafts[-1].token)):
        return drafts[-1]
    token = chance.draw(p)
    return next((draft for draft in drafts if draft.token == token), token)


def forgets_the_fixed(p: Any, drafts: Any, chance: Any) -> Any:
    """Greedy drafts, the fixed tokens tested with the q that they have: always 1."""
    left = p
    for draft in drafts:
        if chance.flip(left[draft.token]):
            return draft
        left = residual(left, draft.law)
    return chance.draw(p)


def fills_twice(p: Any, drafts: Any, chance: Any) -> Any:
    """Hub pairs, the second stage as if the first had taken nothing."""
    q = drafts[0].law
    hub = int(np.argmax(q))
    centre = next(draft for draft in drafts if draft.token == hub)
    spoke = next((draft for draft in drafts if draft.token != hub), None)
    both = samplers.rest(q, [hub], fallback=False)
    if spoke is not None and both is not None:
        x = spoke.token
        mass = q[x] if spoke is drafts[0] else both[x] * q[hub]
        if chance.flip(1 if p[x] >= mass else p[x] / mass):
            return spoke
        p = residual(p, both)
    token = chance.draw(p)
    return centre if token == hub else token


def follows_one_list(p: Any, drafts: Any, chance: Any) -> Any:
    """The optimal rule with the first list of the mixture alone."""
    made = optimal.plan(p, drafts[0].law, len(drafts))
    for token in made.lists[0]:
        for draft in drafts:
            if draft.token == token:
                return draft
    return chance.draw(made.left)


def draws_p_when_none_is_listed(p: Any, drafts: Any, chance: Any) -> Any:
    made = optimal.plan(p, drafts[0].law, len(drafts))
    order = made.lists[chance.draw(made.weights)]
    for token in order:
        for draft in drafts:
            if draft.token == token:
                return draft
    return chance.draw(p)


def corrects_as_if_tested_once(p: Any, drafts: Any, chance: Any) -> Any:
    """K-SEQ, the correction of one test after k of them."""
    q, k = drafts[0].law, len(drafts)
    rho = kseq.smallest_rho(p, q, k)
    for draft in drafts:
        scaled = rho * q[draft.token]
        if chance.flip(min(1, p[draft.token] / scaled)):
            return draft
    return chance.draw(kseq.correction(p, q, 1, rho))


INSTANCE = exact([4, 3, 2, 1]), exact([1, 2, 3, 4])


@pytest.mark.parametrize(
    ("fault", "right", "relation", "k"),
    [
        (corrects_with_p, greedy_draft.choose, "greedy_plus_one", 2),
        (forgets_the_fixed, greedy_draft.choose, "greedy_plus_one", 3),
        (fills_twice, spechub.choose, "hub", 2),
        (follows_one_list, optimal.choose, "iid", 2),
        (draws_p_when_none_is_listed, optimal.choose, "iid", 2),
        (corrects_as_if_tested_once, kseq.choose, "iid", 2),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_part_exchanged_is_found(
    fault: Any, right: Any, relation: str, k: int
) -> None:
    p, q = INSTANCE
    check_position(rule(right), p, drawing(relation, q, k))
    must_fail(check_position, rule(fault), p, drawing(relation, q, k))


def by_index_order(q: Any, k: int, chance: Any) -> list[Draw]:
    """Sequoia's published drafter where q is exhausted: the next token by index, taken
    for a draw of probability 1."""
    draws = samplers.without_replacement(q, k, chance, fallback=False)
    free = [t for t in range(len(q)) if t not in [draw.token for draw in draws]]
    for token in free[: k - len(draws)]:
        draws.append(Draw(token, samplers.one_hot(q, token)))
    return draws


def accepts_what_has_no_mass(p: Any, drafts: Any, chance: Any) -> Any:
    """A draft whose q has vanished passes its test almost surely."""
    left, seen = p, p * 0
    for draft in drafts:
        if seen[draft.token] == 0 and draft.law[draft.token] == 1 and seen.sum():
            return draft
        if chance.flip(acceptance(left, draft.law, draft.token)):
            return draft
        left = residual(left, draft.law)
        seen = seen + draft.law
    return chance.draw(left)


def test_the_uniform_fallback_is_needed_where_q_is_exhausted() -> None:
    """q = (1, 0, 0) and two children: filled by index, (1/2, 1/2, 0) comes out."""
    p, q = exact([2, 1, 1]), exact([1, 0, 0])
    wrong = rule(accepts_what_has_no_mass)
    must_fail(check_position, wrong, p, lambda c: by_index_order(q, 2, c))
    right = verifiers.get("sequoia")
    taken = check_position(right, p, drawing("without_replacement", q, 2))
    assert taken > p[0], "the fallback's draft is accepted now and then"
    # Ending the draws there is exact too, and accepts what q alone can.
    ended = check_position(
        right, p, lambda c: samplers.without_replacement(q, 2, c, fallback=False)
    )
    assert ended == p[0]


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(st.integers(2, 4).flatmap(lambda size: st.tuples(weights(size), weights(size))))
def test_when_the_whole_vocabulary_is_drafted_every_token_is_accepted(
    rows: Any,
) -> None:
    """More children are asked for than there are tokens: all come, the last ones by
    the fallback where q is exhausted, and one of them passes on every branch."""
    p, q = (exact(row) for row in rows)
    draws = drawing("without_replacement", q, len(p) + 2)
    assert {len(tokens) for tokens in tokens_of(draws)} == {len(p)}
    for name in ("sequoia", "traversal", "optimal"):
        assert check_position(verifiers.get(name), p, draws) == 1


def tokens_of(draws: Any) -> dict[Any, Any]:
    """The law of the drafted tokens."""
    return law(lambda chance: tuple(draw.token for draw in draws(chance)))


def test_sequoia_is_the_residual_update_with_the_laws_that_the_draws_had() -> None:
    """Its proof is SpecInfer's, given the draws before: what differs is the promise of
    how the drafts came about, and that is what `bind` compares."""
    p, q = INSTANCE
    draws = drawing("without_replacement", q, 3)
    assert check_position(rule(sequoia.choose), p, draws) == check_position(
        rule(specinfer.choose), p, draws
    )
