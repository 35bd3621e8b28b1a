"""What the tests of the oracles share: instances, and the optimum by every set."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from specbook.chance import law
from specbook.drafts import samplers
from specbook.drafts.samplers import SAMPLERS
from specbook.oracles import RELATIONS
from tests.verifiers.helpers import exact, instances, weights

ARTICLE = exact([5, 3, 2]), exact([4, 4, 2])
TOY = exact([1, 2]), exact([2, 1])

SINGLE = [name for name in RELATIONS if name != "independent"]


def drafted(q: Any, k: int, sampling: str) -> dict[Any, Any]:
    """The law of the ordered drafts, by walking the sampler."""

    def program(chance: Any) -> tuple[int, ...]:
        if sampling == "independent":
            draws = samplers.independent(q, chance)
        else:
            draws = SAMPLERS[RELATIONS[sampling]](q, k, chance)
        return tuple(draw.token for draw in draws)

    return law(program)  # type: ignore[return-value]


def by_every_set(p: Any, q: Any, k: int, sampling: str) -> Fraction:
    """1 + min over H of p(H) - P(all drafts in H), H running over all sets."""
    vectors = drafted(q, k, sampling)
    sets = itertools.chain.from_iterable(
        itertools.combinations(range(len(p)), size) for size in range(len(p) + 1)
    )
    return 1 + min(
        sum(p[x] for x in inside)
        - sum(mass for X, mass in vectors.items() if set(X) <= set(inside))
        for inside in sets
    )


@st.composite
def questions(draw: Any, most: int = 5, deepest: int = 4) -> tuple[Any, Any, int, str]:
    """(p, q, k, sampling), any sampling, within reach of every oracle."""
    p, q, k = draw(instances(most, deepest))
    sampling = draw(st.sampled_from(list(RELATIONS)))
    if sampling == "hub":
        k = 2
    if sampling == "independent":
        rows = draw(st.lists(weights(len(p)), min_size=k, max_size=k))
        q = [exact(row) for row in rows]
    return p, q, k, sampling
