"""What a source holds beside the target is what an advice prices memory by."""

from __future__ import annotations

import numpy as np
import torch

from specbook.measure.held import held_bytes


def test_each_storage_counts_once_and_the_targets_own_not_at_all():
    shared, mine = torch.zeros(100), torch.zeros(10)
    thing = {"view": shared[:5], "again": [mine, mine.view(2, 5)], "x": np.zeros(3)}
    assert held_bytes(thing) == 400 + 40 + 24
    assert held_bytes(thing, beside=([shared],)) == 40 + 24
    assert held_bytes(None) == 0


def test_modules_are_entered():
    layer = torch.nn.Linear(4, 2, bias=False)
    assert held_bytes([layer, layer.weight]) == 32
