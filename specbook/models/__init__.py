"""Target models behind one protocol: real ones, and a table for exact proofs.

Importing this package imports neither torch nor transformers; `TableTarget` never
does. The torch-backed names load when they are first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# Not lazily: importing the submodule of that name later would hide the function.
from .fetch import fetch, is_fetched
from .protocol import Target, TargetRows, TargetSession
from .table import TableTarget

if TYPE_CHECKING:
    from .lean import LeanTarget
    from .loading import load_target
    from .target import TransformersTarget
    from .tiny import tiny_llama

__all__ = [
    "LeanTarget",
    "TableTarget",
    "Target",
    "TargetRows",
    "TargetSession",
    "TransformersTarget",
    "fetch",
    "is_fetched",
    "load_target",
    "tiny_llama",
]

_LAZY = {
    "LeanTarget": "lean",
    "TransformersTarget": "target",
    "load_target": "loading",
    "tiny_llama": "tiny",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
