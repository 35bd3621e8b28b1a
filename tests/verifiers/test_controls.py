"""The negative controls: each is wrong, shown to be, and kept out of decoding."""

from __future__ import annotations

from fractions import Fraction as F
from typing import Any

import numpy as np
import pytest

from specbook import controls, verifiers
from specbook.contract import bind
from specbook.controls import ARTICLE, CONTROLS, ONE_POSITION, TWO_ROUNDS
from specbook.errors import ContractError, SpecbookError
from specbook.oracles import measure
from tests.core.helpers.sources import proposal_of

BY_NAME = {control.name: control for control in CONTROLS}


@pytest.mark.parametrize("name", BY_NAME)
def test_the_mistake_shows_on_its_instance_and_the_right_rule_is_right(
    name: str,
) -> None:
    control = BY_NAME[name]
    wrong = control.variation()
    # Above rounding by far where it is not a Fraction.
    assert wrong > F(1, 100)
    assert isinstance(wrong, F) or name == "residual through softmax"
    assert control.variation(right=True) == 0


def test_the_figures_of_the_known_instances() -> None:
    variation = {name: control.variation() for name, control in BY_NAME.items()}
    # p = (1/2, 1/2), two sure drafts of token 0: it comes out with 1 - 2^-2 (0x08B).
    assert variation["repeats the one-draft test"] == 1 - F(1, 4) - F(1, 2)
    assert variation["tests each draft against the original p"] == F(1, 20)
    # H16: (.75, .25, 0) in place of (.3, .5, .2).
    assert variation["argmax draft with the whole q"] == F(45, 100)
    assert variation["top-k set as independent draws"] == F(1, 2)
    # H15: after the refusal .403 .299 .299 in place of 1 0 0.
    softened = 1 - np.exp(0.3) / (np.exp(0.3) + 2)
    refused = F(3, 5) - F(3, 10)
    assert variation["residual through softmax"] == pytest.approx(
        float(refused) * softened
    )
    # A redraw: .5 .3 .2 becomes .6 .36 .04, as the two children hold .8 of p.
    fresh = F(2, 10) * np.array([F(5, 10), F(3, 10)]).sum()
    assert variation["a fresh draw after a mismatch"] == fresh


def test_which_mistakes_the_articles_instance_hides() -> None:
    """Whatever goes wrong after the first refusal, one token alone is left there."""
    hidden = {name for name, control in BY_NAME.items() if control.hidden()}
    assert hidden == {
        "draws without replacement to the rule for independent ones",
        "independent draws to the rule for draws without replacement",
        "second draft scored with the first one's q",
        "the longer of two answers",
    }


def test_more_tests_against_p_are_worse() -> None:
    """k sure drafts: token 0 comes out with probability 1 - 2^-k."""
    control = BY_NAME["repeats the one-draft test"]
    for k in (1, 2, 3, 4):
        expected = (1 - F(1, 2) ** k) - F(1, 2)
        assert control.variation((1, 1), ((1, 0),) * k) == expected


def test_one_round_does_not_show_reused_noise() -> None:
    """The first two tokens alone have the right law: only rounds together are wrong."""
    from specbook.chance import law

    control = BY_NAME["noise reused across rounds"]
    assert control.caught_by == TWO_ROUNDS
    p, q = control.laws()
    found = law(lambda chance: control.wrong(chance, p, q)[:2])
    assert found == {(a, b): p[a] * p[b] for a in (0, 1) for b in (0, 1)}


@pytest.mark.parametrize("name", BY_NAME)
def test_what_a_control_accepts_is_measured_with_its_own_rule_and_drafts(
    name: str,
) -> None:
    control = BY_NAME[name]
    position = control.position
    if control.caught_by == TWO_ROUNDS:
        assert position is None
        return
    assert position is not None and position is control.wrong
    p, q = control.laws()
    found = measure(position.select, lambda chance: position.draw(q, chance), p)
    off = sum(abs(a - b) for a, b in zip(found.output, p, strict=True)) / 2
    assert off == pytest.approx(control.variation(), abs=1e-12)
    assert 0 < found.acceptance <= found.membership


def test_every_control_says_how_it_is_caught() -> None:
    assert len(CONTROLS) == len(BY_NAME) == 12
    for control in CONTROLS:
        assert control.caught_by in (ONE_POSITION, TWO_ROUNDS)
        assert control.mistake and control.section.startswith("0x0")
        assert controls.get(control.name) is control
    assert controls.names() == list(BY_NAME)
    with pytest.raises(SpecbookError, match="softmax"):
        controls.get("nope")


@pytest.mark.parametrize(
    "name", [name for name, control in BY_NAME.items() if control.refused]
)
def test_a_wrong_pair_is_refused_before_it_can_decode(name: str) -> None:
    refused = BY_NAME[name].refused
    assert refused is not None
    relation, rule = refused
    made: Any = proposal_of(
        [[0]], semantics="normalized_conditional", relation=relation
    )
    with pytest.raises(ContractError, match=f"sampling '{relation}'"):
        bind(made, rule)


def test_no_control_is_a_verifier() -> None:
    assert not set(verifiers.names()) & set(BY_NAME)


@pytest.mark.parametrize("bad", [[], [0, 0], [1, -1], [1.0], [True], "12", 3], ids=repr)
def test_weights_are_counts(bad: Any) -> None:
    with pytest.raises(SpecbookError, match="weights"):
        BY_NAME["one target draw a path"].variation(bad, [ARTICLE[1]] * 2)


@pytest.mark.parametrize("bad", [[], [[1, 1]], [[1, 1, 1], [1]], 3, "ab"], ids=repr)
@pytest.mark.parametrize("name", BY_NAME)
def test_every_draft_has_a_row_of_weights(name: str, bad: Any) -> None:
    with pytest.raises(SpecbookError, match="q |weights"):
        BY_NAME[name].variation((1, 1, 1), bad)
