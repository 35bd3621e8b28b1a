"""Draft heads over a target's hidden states (sections 0x06 and 0x0B).

`build(config_of("hydra", 576))` makes an untrained set; `storage` writes and reads it.
To add an architecture: one module with three functions on rows (see `base`), and a line
in `config.KINDS`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ... import checks
from ...errors import SpecbookError
from .config import KINDS, MOST_SEED, HeadsConfig, config_from_json, config_of

if TYPE_CHECKING:
    from .base import Heads

__all__ = ["KINDS", "HeadsConfig", "build", "config_from_json", "config_of"]


def build(config: HeadsConfig, seed: int = 0) -> Heads:
    """Untrained heads of `config`, float32, on the CPU. What does not start at zero is
    drawn from `seed`; no generator of the caller moves."""
    import torch

    if not isinstance(config, HeadsConfig):
        raise SpecbookError(f"not a HeadsConfig: {config!r}")
    checks.integer(seed, "seed", least=0, most=MOST_SEED)
    name = "".join(part.capitalize() for part in config.kind.split("_"))
    made = getattr(import_module(f".{config.kind}", __name__), name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return made(config)
