"""What a rule accepts, by a formula: for many drafts, and for whole vocabularies.

`position_law` walks every branch of a rule and ends at a handful of tokens. Some rules
let their acceptance be written down, and are held against the walk by tests.

- Membership of independent drafts: the target's token x is covered with probability
  1 - (1 - q(x))^k. Of a ranked set: all of p on it.
- K-SEQ: 1 - (1 - beta)^k, at its own rho.
- The residual updates: one less the product of what every test refuses, which is
  1 - sum of min(R, q). With independent drafts R does not depend on the tokens that
  were refused, and nothing is random. Draws without replacement change q by the token
  that was taken out; given its refusal that token has the law (q - R)+ / its sum. So
  the product is averaged over these tokens: by walking through them, or by sampling.
- Rules that attain the optimum of their drafts accept that (sections 0x08C, 0x0AB).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from .. import checks
from ..chance import Chance, law
from ..drafts.samplers import rest
from ..errors import SpecbookError
from ..verifiers import kseq
from ..verifiers.coupling import residual
from .drafted import RELATIONS, Position, ask, check_reach
from .optimum import optimal_acceptance

REPEATS, MOST_REPEATS = 4, 1 << 16


@dataclass(frozen=True)
class Curve:
    """`values[k]`: the probability that a draft is accepted, of k drafts. `errors[k]`:
    the standard error of a sampled value, 0 for a value that was computed."""

    values: Mapping[int, Any]
    errors: Mapping[int, float]


def acceptance_curve(
    verifier: str,
    p: Any,
    q: Any,
    ks: Iterable[int],
    sampling: str = "iid",
    *,
    chance: Chance | None = None,
    repeats: int = REPEATS,
) -> Curve:
    """The acceptance of `verifier` with k drafts of q [V], for every k of `ks`.

    `p` [V]: the target's law. Pairs of verifier and `sampling`: `PAIRS`; "optimal"
    stands for the best possible rule and takes any sampling of one q. On Fractions the
    values are Fractions, equal to those of `position_law`; floats are right to about
    1e-12. `chance`: with it, what draws without replacement do to "sequoia" is sampled,
    `repeats` times; without it every way is walked through, which only small
    vocabularies allow. Raises `SpecbookError` for another pair, and without a `chance`
    for more ways than `MAX_VECTORS`.
    """
    counts = sorted(
        {
            checks.integer(k, f"ks[{i}]", least=1)
            for i, k in enumerate(checks.entries(ks, "ks", "integers"))
        }
    )
    if not counts:
        raise SpecbookError("ks names no number of drafts")
    checks.integer(repeats, "repeats", least=2, most=MOST_REPEATS)
    checks.one_of(sampling, "sampling", list(RELATIONS))
    known = isinstance(verifier, str) and (
        verifier == "optimal" or (verifier, sampling) in PAIRS
    )
    if not known:
        raise SpecbookError(
            f"no formula for {verifier!r} with {sampling!r} drafts; there are "
            f"{list(PAIRS)}, and 'optimal'"
        )
    if sampling == "independent":
        # Each row of q is one draft, so fewer drafts would be another question.
        raise SpecbookError(
            "independent drafts have a law each, and no curve over their number; "
            "optimal_acceptance answers for all of them"
        )
    if chance is not None and not hasattr(chance, "draw"):
        raise SpecbookError(f"chance must answer `draw`, got {chance!r}")
    asked = ask(p, q, counts[-1], sampling)
    none = dict.fromkeys(counts, 0.0)
    if (verifier, sampling) == ("sequoia", "without_replacement"):
        if chance is None:
            check_reach(asked)
            return Curve(_walked(asked, counts), none)
        return _sampled(asked, counts, chance, repeats)
    if (verifier, sampling) == ("specinfer", "iid"):
        refused = _refused(asked, counts[-1], None)
        return Curve({k: 1 - refused[k] for k in counts}, none)
    formula = PAIRS.get((verifier, sampling)) or _optimum
    return Curve({k: formula(asked, k) for k in counts}, none)


def _covered(asked: Position, k: int) -> Any:
    return (asked.p * (1 - (1 - asked.q) ** k)).sum()


def _kseq(asked: Position, k: int) -> Any:
    p, q = asked.p, asked.q
    beta = np.minimum(q, p / kseq.smallest_rho(p, q, k)).sum()
    return 1 - (1 - beta) ** k


def _optimum(asked: Position, k: int) -> Any:
    return optimal_acceptance(asked.p, asked.q, k, asked.sampling)


def _refused(asked: Position, most: int, chance: Chance | None) -> tuple[Any, ...]:
    """P(the first k drafts are all refused) for k = 0 .. `most`. With a `chance` the
    drafts are taken out of q, on one way of drawing them."""
    left, q = asked.p, asked.q
    taken: list[int] = []
    products: list[Any] = [Fraction(1) if asked.exact else 1.0]
    for _ in range(most):
        missed = 1 - np.minimum(left, q).sum()
        # Float rounding may find more than everything accepted.
        products.append(products[-1] * max(missed, 0 * missed))
        if not products[-1] > 0:
            # Nothing is ever refused so far, so no refused draft has a law.
            products += [products[-1]] * (most + 1 - len(products))
            break
        gone = residual(q, left)
        left = residual(left, q)
        if chance is not None:
            taken.append(chance.draw(gone))
            fewer = rest(q, taken)
            if fewer is None:  # every token has been drawn, and there is no next draft
                products += [products[-1]] * (most + 1 - len(products))
                break
            q = fewer
    return tuple(products)


def _walked(asked: Position, counts: list[int]) -> dict[int, Any]:
    ways: dict[Any, Any] = law(lambda chance: _refused(asked, counts[-1], chance))
    return {k: 1 - sum(mass * way[k] for way, mass in ways.items()) for k in counts}


def _sampled(asked: Position, counts: list[int], chance: Chance, repeats: int) -> Curve:
    ways = np.array([_refused(asked, counts[-1], chance) for _ in range(repeats)])
    means = 1 - ways.astype(np.float64).mean(axis=0)
    errors = ways.astype(np.float64).std(axis=0, ddof=1) / np.sqrt(repeats)
    return Curve(
        {k: float(means[k]) for k in counts}, {k: float(errors[k]) for k in counts}
    )


PAIRS: Mapping[tuple[str, str], Callable[[Position, int], Any] | None] = {
    ("membership", "iid"): _covered,
    ("membership", "top_k"): _optimum,
    ("kseq", "iid"): _kseq,
    ("specinfer", "iid"): None,
    ("sequoia", "without_replacement"): None,
    ("greedy_draft", "greedy_draft"): _optimum,
    ("spechub", "hub"): _optimum,
}
"""The verifiers with a formula, each with its way of drawing; the two residual updates
have one for all k at once."""
