"""Which ids draft heads are to predict, when not all: those that the target says most.

Counting the tokens of a text would rank some thousands of ids and leave the others
equal, at nought. The stored laws know more: they give a share to tokens that the text
happens not to have. Ids are ranked by the probability that the target gives them over
all taught rows together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .. import checks
from ..errors import SpecbookError
from .decoding import TaughtSequence
from .heads import taught_sequences


def likely_ids(sequences: Sequence[TaughtSequence], count: int) -> list[int]:
    """The `count` ids with the most probability over all rows of `sequences`,
    ascending; the lowest id first where two have as much. Raises `SpecbookError` when
    the rows keep fewer ids."""
    checks.integer(count, "count", least=1)
    sequences = taught_sequences(sequences)
    if not any(len(s.top_ids) for s in sequences):
        raise SpecbookError(f"{count} ids are asked for, there is no row")
    ids = np.concatenate([s.top_ids.reshape(-1) for s in sequences])
    mass = np.exp(
        np.concatenate([s.top_logps.reshape(-1) for s in sequences]).astype(np.float64)
    )
    kept, places = np.unique(ids, return_inverse=True)
    if len(kept) < count:
        raise SpecbookError(f"{count} ids are asked for, {len(kept)} occur in the laws")
    total = np.bincount(places.reshape(-1), weights=mass)
    # A stable sort of ascending ids: the lowest id first on ties.
    ranked = np.argsort(-total, kind="stable")[:count]
    return sorted(kept[ranked].tolist())
