"""Medusa's independent heads as a draft source (section 0x06A).

Contract: every depth has one law, whatever the candidates above it: q is a marginal,
and the joint law of a path their product. A valid q all the same: given its path, a
candidate was drawn from exactly the law that it carries. The heads keep nothing between
rounds.
"""

from __future__ import annotations

from .heads import HeadsSource, contract

CONTRACT = contract(
    "medusa",
    cache="none: a round starts from one committed row",
)


class Medusa(HeadsSource):
    """The draft source. See `HeadsSource`."""

    kind = "medusa"
    contract = base_contract = CONTRACT
