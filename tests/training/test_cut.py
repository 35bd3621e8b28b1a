"""The cut vocabulary: ids by the probability that the target gives them."""

import math

import numpy as np
import pytest

from specbook.errors import SpecbookError
from specbook.training.cut import likely_ids
from specbook.training.decoding import TaughtSequence


def sequence(*rows):
    """A text whose tokens are all 0, with laws given as {id: probability}."""
    ids = np.array([list(row) for row in rows])
    logps = np.array([[math.log(p) for p in row.values()] for row in rows])
    return TaughtSequence(np.zeros(len(rows) + 1, np.int64), 0, 1, ids, logps)


LAWS = [
    sequence({5: 0.6, 2: 0.3}, {5: 0.5, 9: 0.4}),
    sequence({2: 0.125, 1: 0.0625}, {7: 0.0625, 5: 0.03125}),
]


def test_ids_are_ranked_by_their_mass_over_all_rows():
    assert likely_ids(LAWS, 1) == [5]
    assert likely_ids(LAWS, 2) == [2, 5]  # 0.425 against 0.4 of token 9
    assert likely_ids(LAWS, 3) == [2, 5, 9]
    assert likely_ids(LAWS, 4) == [1, 2, 5, 9]  # 1 and 7 have as much
    assert likely_ids(LAWS, 5) == [1, 2, 5, 7, 9]


def test_a_token_of_the_text_counts_nothing_by_itself():
    assert 0 not in likely_ids(LAWS, 5)


@pytest.mark.parametrize(
    ("laws", "count", "told"),
    [
        (LAWS, 6, "6 ids are asked for, 5 occur"),
        ([], 1, "there is no row"),
        (LAWS, 0, "count"),
        (LAWS, 1.5, "count"),
        (None, 1, "sequences must be"),
        ([1], 1, r"sequences\[0\] is no TaughtSequence"),
    ],
)
def test_what_cannot_be_ranked_is_refused(laws, count, told):
    with pytest.raises(SpecbookError, match=told):
        likely_ids(laws, count)
