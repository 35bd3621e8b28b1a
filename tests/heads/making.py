"""Heads whose parameters are all different from zero, in float64."""

from __future__ import annotations

from typing import Any

import torch

from specbook.models.heads import KINDS, build, config_of

WIDTH = 12
CONFIGS = {
    "medusa": {"layers": 2},
    "hydra": {"layers": 1},
    "hydra_plus": {"layers": 3, "prefix_layers": 2, "attention_heads": 2, "inner": 10},
    "clover": {"layers": 2, "prefix_layers": 1, "attention_heads": 3, "inner": 8},
    "markov": {"rank": 3},
}
assert set(CONFIGS) == set(KINDS)


def shaken(kind: str, seed: int = 0, *, width: int = WIDTH, **changes: Any) -> Any:
    """Heads of `kind` with normal(0, 0.4) added to every parameter."""
    heads = build(config_of(kind, width, **{**CONFIGS[kind], **changes}), seed).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in heads.parameters():
            parameter += 0.4 * torch.randn(
                parameter.shape, generator=generator, dtype=torch.float64
            )
    return heads.eval()


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)
