"""The one module that touches transformers' cache objects.

Their interface moves between releases (`key_cache` is gone, `crop` takes only
negative numbers now, the argument `past_key_values` is becoming `cache`), and no
call of theirs selects rows along the sequence. So what we need is written here, on
the layers themselves, and nowhere else.

Four operations: make an empty cache, say what a model's own cache would be like
(to refuse what cannot be rolled back), measure its length, and keep chosen rows.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence
from typing import Any

import torch

with warnings.catch_warnings():
    # In a notebook without ipywidgets, a progress bar that we never show would ask
    # for them in red, above the reader's first output.
    warnings.filterwarnings("ignore", message="IProgress not found")
    from transformers import DynamicCache

_ARGUMENT_NAMES = ("cache", "past_key_values")


class TreeCache:
    """A key/value cache of one sequence that keeps scattered rows.

    Every layer holds keys and values [1, heads, length, head_dim]. Always a plain
    cache of full attention layers, never one made from a config: a layer that drops
    old rows by itself could not be rolled back.
    """

    def __init__(self) -> None:
        # Any: what a layer has is exactly what differs between releases.
        self._cache: Any = DynamicCache()

    def arguments(self, argument: str) -> dict[str, Any]:
        """The keyword arguments that hand this cache to a forward."""
        return {argument: self._cache, "use_cache": True}

    def __len__(self) -> int:
        """Rows along the sequence."""
        return int(self._cache.get_seq_length())

    def lengths(self) -> list[int]:
        """Rows along the sequence in each layer; equal unless something is wrong."""
        return [int(layer.get_seq_length()) for layer in self._cache.layers]

    def keep(self, base: int, extra: Sequence[int]) -> None:
        """Keep rows 0 .. base-1 and then `extra` (row numbers, ascending), in every
        layer; drop all others."""
        stop = base + len(extra)
        contiguous = list(extra) == list(range(base, stop))
        index: dict[torch.device, torch.Tensor] = {}
        for layer in self._cache.layers:
            if not layer.is_initialized:
                continue
            keys, values = layer.keys, layer.values
            if contiguous:
                # A prefix of the rows is a view: nothing is copied.
                layer.keys = keys[..., :stop, :]
                layer.values = values[..., :stop, :]
                continue
            device = keys.device
            if device not in index:
                rows = list(range(base)) + list(extra)
                index[device] = torch.tensor(rows, dtype=torch.long, device=device)
            layer.keys = keys.index_select(-2, index[device])
            layer.values = values.index_select(-2, index[device])

    def bytes_per_row(self) -> int:
        """Bytes that one row takes over all layers (0 while the cache is empty)."""
        total = 0
        for layer in self._cache.layers:
            if layer.is_initialized and layer.get_seq_length():
                for tensor in (layer.keys, layer.values):
                    total += tensor[..., :1, :].numel() * tensor.element_size()
        return total


def cache_argument(forward: Any) -> str | None:
    """How `forward` calls its cache argument, or None when it takes none."""
    parameters = inspect.signature(forward).parameters
    for name in _ARGUMENT_NAMES:
        if name in parameters:
            return name
    return None


def rollback_obstacle(config: Any) -> str | None:
    """Why the cache that transformers would build for `config` cannot be rolled back
    to an arbitrary path of rows, or None.

    A sliding layer names its window, so that the caller can decide whether the
    window can be crossed at all.
    """
    try:
        cache: Any = DynamicCache(config=config)
    except Exception as problem:  # any failure means: not a kind that we know
        return f"transformers cannot build a dynamic cache for it ({problem!r})"
    layers = getattr(cache, "layers", [])
    for index, layer in enumerate(layers):
        kind = type(layer).__name__
        if kind.startswith("LinearAttention") or "Linear" in kind:
            return f"layer {index} keeps a recurrent state ({kind})"
        if kind not in ("DynamicLayer", "DynamicSlidingWindowLayer"):
            return f"layer {index} keeps more than keys and values ({kind})"
    return None


def sliding_windows(config: Any) -> dict[int, int]:
    """Window length of every sliding (or chunked) layer that transformers would make
    for `config`: layer number -> tokens."""
    cache: Any = DynamicCache(config=config)
    return {
        index: int(layer.sliding_window)
        for index, layer in enumerate(cache.layers)
        if layer.is_sliding
    }
