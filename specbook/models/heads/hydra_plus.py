"""Hydra++: Hydra with deeper heads and a prefix-attention layer (section 0x06B).

The third of its changes, teacher distillation, is a loss and not a layer. A head has
four layers by default, four different ones: the official code lists one block several
times. The prefix layer reads the newly committed rows once a round, with a cache of its
own, and all heads start from what it says about the last of them.
"""

from __future__ import annotations

from .hydra import Hydra


class HydraPlus(Hydra):
    """`Hydra` whose config has decoder layers before it and several blocks a head."""
