"""What a draft source holds in memory beside the target: weights, tables, states.

Memory is counted where it lies: every tensor and array that can be reached from an
object, each storage once, without those that the target has anyway. So borrowed weights
(an embedding, an LM head, shared layers) cost nothing, as they should, and a source
that was added yesterday needs no line here. Tables of plain Python objects, such as the
n-grams of a lookup, are not counted: they grow with the request's own text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..models.protocol import TargetSession


def held_bytes(thing: Any, *, beside: Any = (), shares_state: bool = False) -> int:
    """Bytes of the storages reachable from `thing` and not from anything in `beside`.

    Objects of this package, modules of torch and containers are entered; what belongs
    to other libraries (a tokenizer, say) is not. `shares_state`: sessions of a target
    are passed over, for a source that drafts with the target's own.
    """
    known = {place for one in beside for place, _ in _storages(one, False)}
    found = dict(_storages(thing, shares_state))
    return sum(size for place, size in found.items() if place not in known)


def _storages(thing: Any, shares_state: bool) -> Iterator[tuple[Any, int]]:
    """(place, bytes) of every storage below `thing`."""
    import torch

    seen: set[int] = set()
    waiting = [thing]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or one is None:
            continue
        seen.add(id(one))
        if isinstance(one, torch.Tensor) and one.is_mkldnn:
            # Packed for the processor's kernels: it has no storage to ask, and its
            # blocks hold the numbers once, up to padding.
            yield ("packed", id(one)), one.numel() * one.element_size()
        elif isinstance(one, torch.Tensor):
            storage = one.untyped_storage()
            yield ("torch", storage.data_ptr()), storage.nbytes()
        elif isinstance(one, np.ndarray):
            base = one
            while isinstance(base.base, np.ndarray):
                base = base.base
            yield ("numpy", base.__array_interface__["data"][0]), base.nbytes
        elif isinstance(one, torch.nn.Module):
            waiting += [*one.parameters(), *one.buffers()]
        elif isinstance(one, Mapping):
            waiting += one.values()
        elif isinstance(one, (list, tuple, set, frozenset)):
            waiting += one
        elif type(one).__module__.startswith(__name__.partition(".")[0]):
            if shares_state and isinstance(one, TargetSession):
                continue
            waiting += _fields(one)


def _fields(one: Any) -> list[Any]:
    slots = [
        name
        for kind in type(one).__mro__
        for name in getattr(kind, "__slots__", ())
        if hasattr(one, name)
    ]
    return [*getattr(one, "__dict__", {}).values(), *(getattr(one, n) for n in slots)]
