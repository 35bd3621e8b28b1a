"""Draft heads over a target's hidden states (sections 0x06 and 0x0B).

`build(config_of("hydra", 576))` makes an untrained set; `storage` writes and reads it.
To add an architecture: one module with three functions on rows (see `base`), and a line
in `config.KINDS`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ... import checks
from ...errors import SpecbookError
from .config import KINDS, MOST_SEED, HeadsConfig, config_from_json, config_of

if TYPE_CHECKING:
    from .base import Heads

__all__ = [
    "KINDS",
    "HeadsConfig",
    "build",
    "config_from_json",
    "config_of",
    "independent",
]


def build(config: HeadsConfig, seed: int = 0) -> Heads:
    """Untrained heads of `config`, float32, on the CPU. What does not start at zero is
    drawn from `seed`; no generator of the caller moves."""
    import torch

    if not isinstance(config, HeadsConfig):
        raise SpecbookError(f"not a HeadsConfig: {config!r}")
    checks.integer(seed, "seed", least=0, most=MOST_SEED)
    made = _class(config.kind)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return made(config)


def independent(kind: str) -> bool:
    """Whether the heads called `kind` draft all levels at once, each without the tokens
    of the levels above it (section 0x06A)."""
    checks.one_of(kind, "kind", KINDS)
    return bool(_class(kind).independent)


def _class(kind: str) -> Any:
    name = "".join(part.capitalize() for part in kind.split("_"))
    return getattr(import_module(f".{kind}", __name__), name)
