"""The optimum of one position, without listing the vectors of drafts.

By max-flow and min-cut, the largest probability of emitting a draft is

    1 + min over sets H of tokens of  p(H) - f(H),    f(H) = P(all drafts lie in H).

For independent draws of one q, and for draws without replacement while q lasts, the
best H is found by one sort: it holds the tokens of smallest p/q. For this it is enough
that f gains no less per unit of q when x joins H than it loses when y leaves, whatever
x outside and y inside. Let x have the smallest p/q outside and y the largest inside. If
p(x)/q(x) < p(y)/q(y), then taking x in or leaving y out does not increase p(H) - f(H),
and after some such steps H is a beginning of the sorted tokens.

- Independent: f = q(H)^k is convex in q(H), so it gains no less than it loses.
- Without replacement: draw by a race, each token x at an exponential time of rate q(x).
  The gain, divided by q(x), is the integral over t of `exp(-q(x) t)` times the chance
  that fewer than k of H came before t, and that the rest of the first k come from H
  before anybody outside. What y loses, divided by q(y), is the same integral for H
  without y, where the outside is faster by q(x): the `exp(-q(x) t)` more than makes up
  for that. The factor `exp(-q(y) t)` of y says that y came after t; on this event H has
  the same arrivals before t as H without y, and no fewer after.

When q runs out, the uniform fallback draws among the tokens of q = 0. Then only an H
with all of q's support counts, and it holds the other tokens of smallest p: their
order is p's, not p/q's (and not their ids').

Hu et al. 2025, "Towards Optimal Multi-draft Speculative Decoding", for independent
draws and greedy drafts; the race is Vieira's 2014, "Gumbel-max trick and weighted
reservoir sampling".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from .. import checks
from ..chance import Chance, law
from ..drafts.samplers import Draw, most_probable, position_tree, rest
from ..errors import SpecbookError
from . import arrivals
from .drafted import Position, ask

MOST = 12
"""Up to so many tokens of q, all sets of draws without replacement are looked at."""

MOST_INDEPENDENT = 16
"""Up to so many tokens, all sets are looked at for drafts of different laws."""


def optimal_acceptance(p: Any, q: Any, k: int, sampling: str = "iid") -> Any:
    """The largest probability with which any lossless rule emits one of the drafts.

    Arguments as in `position_law`. A Fraction, exactly, for Fractions; for float rows
    (each is divided by its sum) to 1e-12, and to `arrivals.ERROR` where k > 2 tokens
    are drawn without replacement from more than `MOST`. O(V log V), but for these and
    for `independent` laws that differ. Raises `SpecbookError` for Fractions where only
    the quadrature could answer, and for differing laws of more than `MOST_INDEPENDENT`
    tokens.
    """
    asked = ask(p, q, k, sampling).summing_to_one()
    value = _SOLVERS[sampling](asked)
    if asked.exact:
        return Fraction(value)
    # The optimum is in [0, 1]; what float64 misses is its rounding.
    return min(max(float(value), 0.0), 1.0)


def optimum_of(draws: Callable[[Chance], Iterable[Draw]], p: Any) -> Any:
    """The same optimum for drafts of any kind, by all sets of the tokens drafted.

    `draws(chance)`: the `Draw`s of one position, whatever law they claim. `p` [V]: the
    target's law. A Fraction where both are. Raises `SpecbookError` for more than
    `MOST_INDEPENDENT` tokens that can be drafted.
    """
    p = checks.law(p, "p")
    if not callable(draws) or isinstance(draws, type):
        raise SpecbookError(f"draws must be callable, got {draws!r}")

    def program(chance: Chance) -> frozenset[int]:
        tree = position_tree(draws(chance))
        tree.validate(vocab_size=len(p))
        return frozenset(tree.token_ids)

    found: dict[Any, Any] = law(program)
    drafted = sorted(frozenset().union(*found))
    if len(drafted) > MOST_INDEPENDENT:
        raise SpecbookError(
            f"every set of the {len(drafted)} tokens would have to be looked at; at "
            f"most {MOST_INDEPENDENT} are allowed"
        )
    inside = np.array([0] * (1 << len(drafted)), dtype=object)
    for tokens, mass in found.items():
        inside[sum(1 << i for i, x in enumerate(drafted) if x in tokens)] += mass
    sets = np.arange(len(inside))
    for i in range(len(drafted)):
        above = (sets >> i & 1).astype(bool)
        inside[above] += inside[~above]
    return 1 + min(_sums(p[drafted]) - inside) if drafted else p[0] * 0


def _iid(asked: Position) -> Any:
    order = _by_ratio(asked.p, asked.q)
    return _best(asked.p[order], np.cumsum(asked.q[order]) ** asked.k)


def _independent(asked: Position) -> Any:
    first = asked.rows[0]
    if all(np.array_equal(row, first) for row in asked.rows):
        order = _by_ratio(asked.p, first)
        return _best(asked.p[order], np.cumsum(first[order]) ** asked.k)
    drafted = np.flatnonzero(sum(asked.rows)).tolist()
    if len(drafted) > MOST_INDEPENDENT:
        raise SpecbookError(
            f"drafts of different laws: every set of the {len(drafted)} tokens would "
            f"have to be looked at; at most {MOST_INDEPENDENT} are allowed"
        )
    inside: Any = 1
    for row in asked.rows:
        inside = inside * _sums(row[drafted])
    return 1 + min(_sums(asked.p[drafted]) - inside)


def _without_replacement(asked: Position) -> Any:
    p, q, k = asked.p, asked.q, asked.k
    tokens = int(np.count_nonzero(q))
    if tokens <= k:
        return _exhausted(p, q, k)
    if tokens <= MOST:
        support = np.flatnonzero(q)
        return 1 + min(_sums(p[support]) - _within_sets(q[support], k))
    order = _by_ratio(p, q)
    p, q = p[order], q[order]
    if k == 1:
        return _best(p, np.cumsum(q))
    if k == 2:
        return _best(p, _pairs(q))
    if asked.exact:
        raise SpecbookError(
            f"{k} draws without replacement from {tokens} tokens: above {MOST} the "
            "value is an integral, and only float64 rows are answered"
        )
    return _best(p, arrivals.within(q, k))


def _exhausted(p: np.ndarray, q: np.ndarray, k: int) -> Any:
    """All of q's support is drafted, and what is missing to k comes uniformly from the
    other tokens."""
    support = q > 0
    others = np.sort(p[~support])
    count = len(others)
    missing = min(k - int(support.sum()), count)
    held = np.arange(count + 1)
    inside = p[:1] * 0 + np.ones(count + 1, dtype=int)  # C(held, .) / C(count, .)
    for i in range(missing):
        inside = inside * (held - i) / (count - i)
    spent = p[support].sum() + np.concatenate([p[:1] * 0, np.cumsum(others)])
    return 1 + min(0, min(spent - inside))


def _top_k(asked: Position) -> Any:
    return asked.p[most_probable(asked.q, asked.k)].sum()


def _greedy_draft(asked: Position) -> Any:
    """All of p on the fixed tokens, and what one draw among the others can carry."""
    fixed = most_probable(asked.q, asked.k - 1)
    last = rest(asked.q, fixed, fallback=False) if fixed else asked.q
    carried = asked.p[fixed].sum() if fixed else 0
    return carried if last is None else carried + np.minimum(asked.p, last).sum()


_SOLVERS: Mapping[str, Callable[[Position], Any]] = {
    "iid": _iid,
    "independent": _independent,
    "without_replacement": _without_replacement,
    "top_k": _top_k,
    "greedy_draft": _greedy_draft,
    # The same sets with the same law as a greedy draft of two (`ask` holds k to 2).
    "hub": _greedy_draft,
}


# -------------------------------------------------------------- beginnings and sets


def _by_ratio(p: np.ndarray, q: np.ndarray) -> Any:
    """The tokens that can be drafted, by p/q, smallest first."""
    drafted = np.flatnonzero(q)
    if p.dtype == object:
        return sorted(drafted.tolist(), key=lambda x: p[x] / q[x])
    with np.errstate(over="ignore"):  # a ratio above all numbers comes last
        return drafted[np.argsort(p[drafted] / q[drafted])]


def _best(p: np.ndarray, inside: np.ndarray) -> Any:
    """The optimum over the beginnings of a row: `inside[m]` is P(all drafts are among
    the first m + 1 tokens)."""
    return 1 + min(0, (np.cumsum(p) - inside).min())


def _sums(x: Iterable[Any]) -> np.ndarray:
    """x(H) for every set H of tokens, sets as bits."""
    values = np.asarray(x)
    sums = values[:1] * 0
    for value in values:
        sums = np.concatenate([sums, sums + value])
    return sums


def _pairs(q: np.ndarray) -> np.ndarray:
    """P(both of two draws without replacement are among the first m + 1), for all m.

    The sum over x and y != x, both inside, of q(x) q(y) / (1 - q(x)). The largest q may
    be close to 1: its 1 - q is the sum of the others, and it is kept out of the sums of
    squares, where it would cancel.
    """
    largest = int(np.argmax(q))
    small = q.copy()
    small[largest] = 0 * small[largest]
    inside = np.cumsum(small)
    odds = small / (1 - small)
    total = np.cumsum(odds)
    pairs = inside * total - np.cumsum(small * odds)
    after = slice(largest, None)
    pairs[after] += q[largest] * (inside[after] / small.sum() + total[after])
    return pairs


def _within_sets(q: np.ndarray, k: int) -> np.ndarray:
    """P(k draws without replacement all lie in H), for every H; q has more than k
    tokens, none of them 0."""
    size = len(q)
    masses = np.zeros(1 << size, dtype=q.dtype) * q[0]
    masses[0] = masses[0] + 1
    level = [0]
    for _ in range(k):
        below: dict[int, None] = {}
        for drawn in level:
            left = q.copy()
            left[[x for x in range(size) if drawn >> x & 1]] = 0
            left = masses[drawn] * left / left.sum()
            for x in np.flatnonzero(left).tolist():
                masses[drawn | 1 << x] += left[x]
                below[drawn | 1 << x] = None
            masses[drawn] = masses[drawn] * 0
        level = list(below)
    # Only sets of k tokens are left; a set contains all that its subsets do.
    sets = np.arange(1 << size)
    for x in range(size):
        above = (sets >> x & 1).astype(bool)
        masses[above] += masses[~above]
    return masses
