"""Hydra++ as a draft source (section 0x06B).

Contract: as Hydra's. The prefix-attention layer keeps keys and values of the committed
rows and reads the newly committed ones once a round.
"""

from __future__ import annotations

from .heads import HeadsSource, contract

CONTRACT = contract(
    "hydra_plus",
    cache="keys and values of its prefix layer, of committed rows only",
)


class HydraPlus(HeadsSource):
    """The draft source. See `HeadsSource`."""

    kind = "hydra_plus"
    contract = base_contract = CONTRACT
