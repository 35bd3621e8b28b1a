"""Rules that check how their drafts were drawn, on float64 laws that round.

Every draw without replacement divides by what is left, so the law of the third draft
is not, to the last digit, what one division by what the first two left would give. A
rule that compares laws must divide as the sampler did.
"""

from __future__ import annotations

import numpy as np
import pytest

from specbook.oracles import position_law


@pytest.mark.parametrize("name", ["optimal", "sequoia", "traversal"])
@pytest.mark.parametrize("k", [3, 4])
def test_drafts_of_a_float_law_are_recognised(name: str, k: int) -> None:
    rng = np.random.default_rng(k)
    for _ in range(3):
        p, q = rng.dirichlet([1.0] * 5, size=2)
        found = position_law(name, p, q, k, "without_replacement")
        np.testing.assert_allclose(found.output, p, rtol=0, atol=1e-12)
