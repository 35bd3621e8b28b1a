"""Independent heads with a Markov correction as a draft source (section 0x06).

Contract: the law of a candidate depends on the candidate right above it and on no
other. The heads keep nothing between rounds.
"""

from __future__ import annotations

from .heads import HeadsSource, contract

CONTRACT = contract(
    "markov",
    cache="none: a round starts from one committed row",
)


class Markov(HeadsSource):
    """The draft source. See `HeadsSource`."""

    kind = "markov"
    contract = base_contract = CONTRACT
