"""Rules that check how their drafts were drawn, on float64 laws that round.

Every draw without replacement divides by what is left, so the law of the third draft
is not, to the last digit, what one division by what the first two left would give. A
rule that compares laws must divide as the sampler did.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from specbook.oracles import continued, position_law, round_law


@pytest.mark.parametrize("name", ["optimal", "sequoia", "traversal"])
@pytest.mark.parametrize("k", [3, 4])
def test_drafts_of_a_float_law_are_recognised(name: str, k: int) -> None:
    rng = np.random.default_rng(k)
    for _ in range(3):
        p, q = rng.dirichlet([1.0] * 5, size=2)
        found = position_law(name, p, q, k, "without_replacement")
        np.testing.assert_allclose(found.output, p, rtol=0, atol=1e-12)


def exact(*weights: int) -> list[Fraction]:
    return [Fraction(weight, sum(weights)) for weight in weights]


@pytest.mark.parametrize("name", ["optimal", "sequoia", "traversal"])
def test_a_draft_of_fractions_may_meet_a_target_of_floats(name: str) -> None:
    """The rule rounds the drafts' laws to the target's kind. How they were drawn shows
    in what was recorded: rounded, they do not follow from one another."""
    floats, fractions = [0.1, 0.2, 0.3, 0.4], exact(1, 2, 1, 3)
    rounded = [float(x) for x in fractions]
    for p, q in ((floats, fractions), (exact(1, 2, 3, 4), rounded)):
        found = continued(round_law(name, p, q, [4], "without_replacement"), p, 1)
        output = np.array([found[(token,)] for token in range(4)], dtype=np.float64)
        np.testing.assert_allclose(output, floats, rtol=0, atol=1e-12)


def test_the_hub_is_the_one_that_was_drafted() -> None:
    """Its lead over the next token is lost when q is rounded."""
    third, little = Fraction(1, 3), Fraction(1, 10**30)
    p, q = [0.2, 0.3, 0.5], [third, third + little, third - little]
    assert float(q[0]) == float(q[1])
    found = continued(round_law("spechub", p, q, [2], "hub"), p, 1)
    output = [found[(token,)] for token in range(3)]
    np.testing.assert_allclose(output, p, rtol=0, atol=1e-12)
