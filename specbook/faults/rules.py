"""Faults of the rule that selects: the shape of the right one, and another law.

The wrong rules themselves are in `specbook.controls`; here they stand with what one
sees of them.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any
from unittest import mock

import numpy as np

from .. import controls
from ..chance import Chance
from ..chance import law as enumerate_law
from ..contract import Selection, Verifier
from ..controls import exact
from ..drafts import samplers
from ..drafts.samplers import Draw
from ..lab import distance
from ..oracles.exactness import check_law
from ..tree import CandidateTree
from ..verifiers import get as rule_named
from ..verifiers.coupling import acceptance, residual
from . import exact as small
from .fault import VARIATION, Fault

EXACT = "specbook.oracles.exactness.check_law"


def control_law(name: str, wrong: bool) -> tuple[Any, Any]:
    """The law of the tokens that a control emits on its instance, and the right law."""
    control = controls.get(name)
    rule = control.wrong if wrong else control.right
    p, q = control.laws()
    found: Any = enumerate_law(lambda chance: rule(chance, p, q))
    return found, small.drawn(p, len(next(iter(found))))


def enumerated(name: str) -> Callable[[bool], Any]:
    """Every branch of a control's rule is walked, and the law compared."""
    return lambda planted: check_law(*control_law(name, planted))


def off(name: str) -> Callable[[bool], Any]:
    """By how much a control's law is off."""
    return lambda planted: controls.get(name).variation(right=not planted)


# ---------------------------------------------------------------------- the bonus


def _bonus_of_the_parent(tree: CandidateTree, law: Any, chance: Chance) -> Selection:
    """Membership, but the token behind a leaf is drawn at the row above the leaf."""
    rows: list[int] = []
    row = -1
    while tree.children(row):
        token = chance.draw(law(row))
        child = tree.child_with_token(row, token)
        if child is None:
            return Selection(tuple(rows), token)
        rows.append(child)
        row = child
    above = rows[-2] if len(rows) > 1 else -1
    return Selection(tuple(rows), chance.draw(law(above if rows else row)))


def _bonus_law(planted: bool) -> Any:
    right = rule_named("membership")
    rule = Verifier(right.contract, _bonus_of_the_parent) if planted else right
    return small.output_law(small.paths(), rule)


# ------------------------------------------------------------ drafts, out of order

_ORDER_P, _ORDER_Q = exact([1, 3, 2]), exact([3, 2, 1])


def _in_row_order(draws: list[Draw]) -> list[Draw]:
    """The siblings as a tree that is sorted by token id lists them."""
    return sorted(draws, key=lambda draw: draw.token)


def _order_law(rule: str, planted: bool) -> Any:
    """Two drafts without replacement. `planted`: tested in the order of their ids."""
    select = rule_named(rule).select

    def program(chance: Chance) -> tuple[int]:
        draws = samplers.without_replacement(_ORDER_Q, 2, chance)
        tree = samplers.position_tree(_in_row_order(draws) if planted else draws)
        found = select(tree, lambda row: _ORDER_P, chance)
        return (tree.token_ids[found.rows[0]] if found.rows else found.token,)

    return enumerate_law(program)


def _order_harm(planted: bool) -> Fraction:
    from ..verifiers import sequoia

    with mock.patch.object(sequoia, "_check_succession", lambda drafts: None):
        return distance(_order_law("sequoia", planted), small.drawn(_ORDER_P))


# ------------------------------------------------------------------ exhausted mass

_SPENT_P, _SPENT_Q = exact([1, 1, 2]), exact([1, 0, 0])


def _next_free(draws: list[Draw], chance: Chance, by_index: bool) -> list[Draw]:
    """A second draft where the first took all of q's mass."""
    law = samplers.rest(draws[0].law, [draws[0].token])  # type: ignore[arg-type]
    assert law is not None
    token = int(np.flatnonzero(law)[0]) if by_index else chance.draw(law)
    return [*draws, Draw(token, law)]


def _spent_law(planted: bool) -> Any:
    select = rule_named("sequoia").select

    def program(chance: Chance) -> tuple[int]:
        first = samplers.iid(_SPENT_Q, 1, chance)
        tree = samplers.position_tree(_next_free(first, chance, planted))
        found = select(tree, lambda row: _SPENT_P, chance)
        return (tree.token_ids[found.rows[0]] if found.rows else found.token,)

    return enumerate_law(program)


def _divided(planted: bool) -> Any:
    """The next q after all mass is drawn: renormalised as it is, 0 / 0."""
    with np.errstate(invalid="ignore"):
        left = _SPENT_Q.astype(float) * np.array([0.0, 1.0, 1.0])
        law = left / left.sum()
    if not planted:
        law = samplers.rest(_SPENT_Q.astype(float), [0])
    return samplers.node(Draw(1, law), -1, 1, "draft")


# -------------------------------------------------------------- hidden randomness


def _own_generator(planted: bool) -> Any:
    """A rule that draws its last token from a generator of its own."""
    generator = np.random.default_rng(0)
    p = exact([1, 1, 1])

    def program(chance: Chance) -> int:
        chance.flip(p[0])
        return int(generator.integers(1 << 62)) if planted else chance.draw(p)

    return enumerate_law(program)


# ------------------------------------------------------------------------- masses

_MIXED = (Fraction(3, 5), Fraction(1, 2))
"""Weights of two drafters, 11/10 together."""


def _mixture(planted: bool) -> Any:
    first, second = exact([4, 4, 2]), exact([1, 1, 8])
    one, other = _MIXED if planted else (_MIXED[0], 1 - _MIXED[0])
    return samplers.mixture([first, second], [one, other])


def _mixture_harm(planted: bool) -> Fraction:
    """One draft from the right mixture, tested with the one that sums to 11/10."""
    p = exact([5, 3, 2])
    first, second = exact([4, 4, 2]), exact([1, 1, 8])
    q = _MIXED[0] * first + (1 - _MIXED[0]) * second
    said = _MIXED[0] * first + _MIXED[1] * second if planted else q

    def program(chance: Chance) -> tuple[int]:
        token = chance.draw(q)
        if chance.flip(acceptance(p, said, token)):
            return (token,)
        return (chance.draw(residual(p, said)),)

    return distance(enumerate_law(program), small.drawn(p))


def _control(fault_id: str, name: str, symptom: str, shapes: str, *seen: str) -> Fault:
    control = controls.get(name)
    return Fault(
        fault_id,
        "rule",
        control.section,
        control.mistake,
        symptom,
        shapes,
        EXACT,
        enumerated(name),
        "total variation",
        off(name),
        VARIATION,
        seen,
    )


FAULTS: tuple[Fault, ...] = (
    _control(
        "residual-not-updated",
        "tests each draft against the original p",
        "tokens that the drafts like come out too often, the more drafts the more",
        "p is a row [V] before the update and after it",
        "flexflow/flexflow-train #1302",
    ),
    _control(
        "one-draft-test-repeated",
        "repeats the one-draft test",
        "acceptance that looks too good",
        "the same test is asked k times; each answer is a boolean",
    ),
    _control(
        "residual-through-softmax",
        "residual through softmax",
        "impossible tokens appear after a refusal",
        "a row [V] that sums to 1",
        "huggingface/transformers #28508",
    ),
    _control(
        "fresh-draw-after-a-mismatch",
        "a fresh draw after a mismatch",
        "candidates come out too often: the target was asked twice",
        "a draw is a token, whichever draw it is",
    ),
    _control(
        "a-draw-for-each-path",
        "one target draw a path",
        "the more paths, the more of them match",
        "the best of several matches is a path of the tree",
    ),
    _control(
        "longer-of-two-answers",
        "the longer of two answers",
        "more tokens a round than either rule accepts",
        "both answers are selections of the same tree",
    ),
    _control(
        "noise-reused",
        "noise reused across rounds",
        "each round alone is right; together they repeat themselves",
        "a round cannot see what another round drew",
    ),
    Fault(
        "bonus-from-the-wrong-row",
        "rule",
        "0x07E",
        "the token behind a leaf is drawn at the row above the leaf",
        "the last token of each lucky round follows its grandparent",
        "every row has a law [V], and every law gives a token",
        EXACT,
        lambda planted: check_law(_bonus_law(planted), small.plain_law()),
        "total variation",
        lambda planted: small.variation(_bonus_law(planted)),
        VARIATION,
        blind="a token that both rows make equally probable",
    ),
    Fault(
        "siblings-in-row-order",
        "rule",
        "0x0AB",
        "drafts without replacement are tested in the order of their rows",
        "low token ids are favoured",
        "the same siblings, each with its own law",
        "specbook.verifiers.sequoia._check_succession",
        lambda planted: _order_law("sequoia", planted),
        "was not drawn from what",
        _order_harm,
        VARIATION,
    ),
    Fault(
        "exhausted-by-index",
        "rule",
        "0x0AB",
        "where q is spent, the next candidate is the first free token id",
        "low token ids are favoured, where the draft was sure and wrong",
        "a token that was not drawn yet, as it should be",
        EXACT,
        lambda planted: check_law(_spent_law(planted), small.drawn(_SPENT_P)),
        "total variation",
        lambda planted: distance(_spent_law(planted), small.drawn(_SPENT_P)),
        VARIATION,
    ),
    Fault(
        "exhausted-to-nan",
        "rule",
        "0x0AB",
        "a q whose mass is all drawn is divided by its sum",
        "NaN that a comparison turns into a refusal, silently",
        "a row [V] of floats",
        "specbook.checks.law",
        _divided,
        "is NaN",
    ),
    Fault(
        "mass-above-one",
        "rule",
        "0x02A",
        "two drafters are mixed with weights of more than 1 in all",
        "drafts are refused a little too often, and corrected with too much",
        "a row [V], nowhere above 1",
        "specbook.checks.law",
        _mixture,
        "sums to 11/10",
        _mixture_harm,
        VARIATION,
        ("vllm-project/vllm #45060",),
    ),
    Fault(
        "a-generator-of-its-own",
        "rule",
        "0x02B",
        "the rule draws from a generator that the caller did not give it",
        "a seed repeats the tokens on one day and not on the next",
        "a token is a token, whoever drew it",
        "specbook.chance.law",
        _own_generator,
        "not a function of its chance",
        seen=("vllm-project/vllm #6038", "vllm-project/vllm #13196"),
        blind="a stray draw that comes out alike both times that a branch is run",
    ),
)
