"""Hydra's dependent heads as a draft source (section 0x06B).

Contract: the law of a candidate depends on every candidate above it. The heads keep
nothing between rounds.
"""

from __future__ import annotations

from .heads import HeadsSource, contract

CONTRACT = contract(
    "hydra",
    cache="none: a round starts from one committed row",
)


class Hydra(HeadsSource):
    """The draft source. See `HeadsSource`."""

    kind = "hydra"
    contract = base_contract = CONTRACT
