"""Clover as a draft source (section 0x06C).

Contract: the law of a candidate depends on every candidate above it, by way of a state
that each node of the tree has. The augmenting block keeps keys and values of the
committed rows and reads the newly committed ones once a round.
"""

from __future__ import annotations

from .heads import HeadsSource, contract

CONTRACT = contract(
    "clover",
    cache="keys and values of its augmenting block, of committed rows only",
)


class Clover(HeadsSource):
    """The draft source. See `HeadsSource`."""

    kind = "clover"
    contract = base_contract = CONTRACT
