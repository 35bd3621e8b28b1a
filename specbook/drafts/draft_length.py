r"""How long a copied draft pays: the round-cost equation, solved every round.

A round that verifies K copied tokens costs t(1 + K) and commits, besides the target's
own token, as many copies as agree. With a_i the probability that copy i agrees when
those before it did, the tokens per second (section 0x02C) are

    E[N_commit] / C_round = (1 + a_1 + a_1 a_2 + ... + a_1 ... a_K) / t(1 + K)

and the best K maximises that. t is measured. a is learned from the request itself:
copies that follow a long match agree more often, so agreements are counted by match
length, each count starting from a Beta prior.

K = 0 does not end the learning. The source still looks its copy up, which is nearly
free, and the token that the target then commits tells whether the first copied token
would have agreed. So a draft that stopped paying returns when copies agree again,
after a number of such rounds that depends on the counts alone, and no target row is
ever spent on a probe.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import checks
from ..errors import SpecbookError

BUCKETS = (1, 2, 3, 4, 6, 9, 16)
"""The least match length, in tokens, of each class of agreement counts."""

MATCH_CAP = BUCKETS[-1]
"""Longer matches are not told apart."""

PRIOR = ((1, 3), (2, 2), (2, 2), (3, 1), (3, 1), (8, 1), (16, 1))
"""For each class, the agreements and disagreements that a request starts with: the
`prior_of` what `specbook.measure.agreement` counts in the default target's greedy
answers to the development prompts. A test holds the two together."""

PRIOR_WEIGHT = 4
PRIOR_LARGEST = 16
"""What `prior_of` holds a count to."""

COST = ((1, 1.0), (6, 1.1), (8, 1.35), (16, 2.0), (32, 3.3))
"""Time of one forward over so many rows, in forwards over one row: the default target
with the lean forward on a processor with AVX-512. Measure your own:
`specbook.measure.row_cost.measure_row_cost`."""


class DraftLength:
    """Chooses K for one request.

    `cost`: pairs (rows, time) with rows increasing from 1, in any unit of time; between
    the pairs it is linear, beyond the last it continues with the last slope. `prior`:
    a pair of positive numbers (agreements, disagreements) for each of `BUCKETS`.
    Deterministic; raises `ValueError` for a malformed table. Section 0x02C.
    """

    def __init__(
        self,
        cost: Sequence[tuple[int, float]] = COST,
        prior: Sequence[tuple[float, float]] = PRIOR,
    ) -> None:
        self._cost = checked_cost(cost)
        self._counts = [list(pair) for pair in checked_prior(prior)]
        self._times: list[float] = []

    def agreement(self, match_length: int) -> float:
        """The estimated probability that the next copied token agrees: the posterior
        mean (agreements + prior) / (trials + prior) of the match's class. Raises
        `ValueError` for a negative match."""
        checks.integer(match_length, "match_length", least=0)
        agreed, refused = self._counts[bucket(match_length)]
        return agreed / (agreed + refused)

    def time(self, rows: int) -> float:
        """The time of a forward over `rows` rows, in the unit of the cost table. Raises
        `ValueError` for fewer than one row."""
        checks.integer(rows, "rows", least=1)
        while len(self._times) < rows:
            self._times.append(_interpolate(self._cost, len(self._times) + 1))
        return self._times[rows - 1]

    def choose(self, match_length: int, most: int) -> int:
        """The number of copied tokens, 0 to `most`, with the most tokens per time.

        `match_length`: how many tokens before the copy agree with its source. Each
        agreeing copy makes the match one longer. Ties go to the shorter draft. Raises
        `ValueError` for a negative match or `most`.
        """
        checks.integer(match_length, "match_length", least=0)
        checks.integer(most, "most", least=0)
        best, best_rate = 0, 1.0 / self.time(1)
        expected = survive = 1.0
        for length in range(1, most + 1):
            survive *= self.agreement(match_length + length - 1)
            expected += survive
            rate = expected / self.time(1 + length)
            if rate > best_rate:
                best, best_rate = length, rate
        return best

    def learn(
        self, match_length: int, copied: Sequence[int], committed: Sequence[int]
    ) -> None:
        """Counts where a copy, drafted or only looked up, met the committed tokens.

        Counting stops at the first disagreement: what follows it has another prefix.
        Raises `ValueError` for what is no token id, and for a negative match.
        """
        copied = checks.token_ids(copied, "copied")
        committed = checks.token_ids(committed, "committed")
        checks.integer(match_length, "match_length", least=0)
        for index, (copy, token) in enumerate(zip(copied, committed, strict=False)):
            counts = self._counts[bucket(match_length + index)]
            if copy != token:
                counts[1] += 1
                return
            counts[0] += 1


def prior_of(counts: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The prior of (agreements, disagreements) that were counted in each of `BUCKETS`:
    their shares, held lightly, since a request must be able to outvote them.

    A pair has whole numbers, in the nearest proportion, that add up to `PRIOR_WEIGHT`.
    Where that leaves one side nothing, its rarer outcome counts once and the other as
    often as the odds say, at most `PRIOR_LARGEST` times. A class without counts starts
    undecided. Raises `ValueError` for malformed counts.
    """
    table = _pairs(counts, "counts")
    if len(table) != len(BUCKETS):
        raise SpecbookError(f"counts needs {len(BUCKETS)} pairs, got {len(table)}")
    found = []
    for index, pair in enumerate(table):
        agreed, refused = (
            checks.integer(value, f"counts[{index}]", least=0) for value in pair
        )
        share = _nearest(PRIOR_WEIGHT * agreed, agreed + refused, PRIOR_WEIGHT // 2)
        if 0 < share < PRIOR_WEIGHT:
            found.append((share, PRIOR_WEIGHT - share))
        elif share:
            found.append((min(PRIOR_LARGEST, _nearest(agreed, refused, agreed)), 1))
        else:
            found.append((1, min(PRIOR_LARGEST, _nearest(refused, agreed, refused))))
    return tuple(found)


def _nearest(top: int, bottom: int, otherwise: int) -> int:
    """The whole number nearest to top / bottom, halves up; `otherwise` over 0."""
    return (2 * top + bottom) // (2 * bottom) if bottom else otherwise


def checked_cost(cost: Any) -> tuple[tuple[int, float], ...]:
    """`cost` as a table of (rows, time), or a `ValueError` that says what is wrong."""
    table = _pairs(cost, "cost")
    for index, (rows, seconds) in enumerate(table):
        # Times are divided as floats, and so must be numbers that a float can hold.
        checks.integer(rows, f"cost[{index}] rows", least=1)
        checks.float64(rows, f"cost[{index}] rows")
        if checks.float64(seconds, f"cost[{index}] time") <= 0:
            raise SpecbookError(f"cost[{index}] has the time {seconds}, not above 0")
    rows = [pair[0] for pair in table]
    if len(table) < 2 or rows[0] != 1 or sorted(set(rows)) != rows:
        raise SpecbookError(
            f"cost needs two or more row counts, increasing from 1, got {rows}"
        )
    if table[-1][1] < table[-2][1]:
        raise SpecbookError("cost falls at its end, so it cannot be continued")
    return table


def checked_prior(prior: Any) -> tuple[tuple[float, float], ...]:
    """`prior` as one pair a class, or a `ValueError` that says what is wrong."""
    table = _pairs(prior, "prior")
    if len(table) != len(BUCKETS):
        raise SpecbookError(f"prior needs {len(BUCKETS)} pairs, got {len(table)}")
    for index, pair in enumerate(table):
        for value in pair:
            if checks.real(value, f"prior[{index}]") <= 0:
                raise SpecbookError(f"prior[{index}] = {pair} must be above 0")
    return table


def _pairs(value: Any, name: str) -> tuple[tuple[Any, Any], ...]:
    try:
        table = tuple(tuple(pair) for pair in value)
    except TypeError as error:
        raise SpecbookError(f"{name} must hold pairs, got {value!r}") from error
    for index, pair in enumerate(table):
        if len(pair) != 2:
            raise SpecbookError(f"{name}[{index}] must be a pair, got {pair!r}")
    return table


def bucket(match_length: int) -> int:
    """The class of a match of so many tokens: an index of `BUCKETS`."""
    for index in range(len(BUCKETS) - 1, 0, -1):
        if match_length >= BUCKETS[index]:
            return index
    return 0


def _interpolate(table: Sequence[tuple[int, float]], rows: int) -> float:
    """The table's time at `rows`; outside its range the end slopes continue."""
    segment = 1
    while segment < len(table) - 1 and rows > table[segment][0]:
        segment += 1
    (x0, y0), (x1, y1) = table[segment - 1], table[segment]
    return y0 + (y1 - y0) * (rows - x0) / (x1 - x0)
