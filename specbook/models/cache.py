"""The one module that touches transformers' cache objects.

Their interface moves between releases (`key_cache` is gone, `crop` takes only
negative numbers now, the argument `past_key_values` is becoming `cache`), and no
call of theirs selects rows along the sequence. So what we need is written here, on
the layers themselves, and nowhere else.

Four operations: make an empty cache, say what a model's own cache would be like
(to refuse what cannot be rolled back), measure its length, and keep chosen rows.

And to measure: caches of other kinds than a target of this book may use, and the bytes
that any of them holds (section 0x09B).
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
    from transformers.cache_utils import Cache, QuantizedCache, QuantizedLayer

from .. import checks
from ..errors import SpecbookError

KINDS = ("plain", "own", "recording", "fp8", "grouped")
"""Caches that `measured_growth` makes: every row in full width; what the model's own
config asks for; the same, dropping nothing before the round is over; one byte a scalar;
packed integers in groups."""

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
        """Keep rows 0 .. base-1 and then `extra` (row numbers, in the order in which
        they shall lie), in every layer; drop all others."""
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

    def append_from(
        self, other: TreeCache, layers: Sequence[int], start: int, stop: int
    ) -> None:
        """Copy rows `start` to `stop` - 1 of `other` behind one's own, in `layers`
        alone; `other` stays as it is."""
        for index in layers:
            rows = other._cache.layers[index]
            self._cache.update(
                rows.keys[..., start:stop, :], rows.values[..., start:stop, :], index
            )

    def repeat(self, copies: int) -> None:
        """Makes every layer hold `copies` sequences instead of one, all alike."""
        for layer in self._cache.layers:
            if layer.is_initialized:
                layer.keys = layer.keys.repeat_interleave(copies, dim=0)
                layer.values = layer.values.repeat_interleave(copies, dim=0)

    def bytes_per_row(self) -> int:
        """Bytes that one row takes over all layers (0 while the cache is empty)."""
        total = 0
        for layer in self._cache.layers:
            if layer.is_initialized and layer.get_seq_length():
                for tensor in (layer.keys, layer.values):
                    total += tensor[..., :1, :].numel() * tensor.element_size()
        return total

    def payload_bytes(self) -> int:
        """As `payload_bytes`."""
        return payload_bytes(self._cache)

    def allocated_bytes(self) -> int:
        """As `allocated_bytes`."""
        return allocated_bytes(self._cache)


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


# ------------------------------------------------------------------- to be measured


def payload_bytes(cache: Any) -> int:
    """Bytes of what a transformers cache holds: keys and values in whatever form, with
    their scales. Counters, the 64-bit integers among its tensors, are no payload."""
    return sum(t.numel() * t.element_size() for t in _tensors(cache))


def allocated_bytes(cache: Any) -> int:
    """Bytes of the memory behind it, each allocation once. A slice keeps the whole
    tensor that it was cut from, so this can be more than the payload."""
    storages = [tensor.untyped_storage() for tensor in _tensors(cache)]
    return sum({s.data_ptr(): s.nbytes() for s in storages}.values())


def _tensors(cache: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    waiting: list[Any] = [
        value for layer in cache.layers for value in vars(layer).values()
    ]
    while waiting:
        item = waiting.pop()
        if isinstance(item, torch.Tensor):
            if item.dtype != torch.long:
                found.append(item)
        elif isinstance(item, (tuple, list)):
            waiting += item
    return found


@torch.inference_mode()
def measured_growth(
    model: Any,
    prefix: int,
    rows: int,
    kind: str = "plain",
    *,
    group: int = 64,
    residual: int = 128,
) -> tuple[int, int]:
    """(payload, allocated) bytes that one forward of `rows` rows adds to the cache of
    `model`, a causal LM of transformers, behind a prompt of `prefix` tokens.

    `kind`: one of `KINDS`. `group`, `residual`: of the kind "grouped", four bits a
    scalar. The rows are a chain: bytes do not depend on who may look at whom. Raises
    `SpecbookError` for bad arguments.
    """
    checks.integer(prefix, "prefix", least=1)
    checks.integer(rows, "rows", least=1)
    checks.one_of(kind, "kind", KINDS)
    cache = _empty(model.config, kind, group, residual)
    if kind == "recording":
        for layer in cache.layers:
            if layer.is_sliding:
                layer.activate_past_recording()
    argument = cache_argument(model.forward)
    if argument is None:
        raise SpecbookError(f"{type(model).__name__} takes no cache")
    sizes: list[tuple[int, int]] = []
    for count in (prefix, rows):
        ids = torch.zeros((1, count), dtype=torch.long, device=model.device)
        model(input_ids=ids, use_cache=True, **{argument: cache})
        if kind == "recording" and not sizes:
            cache.crop(0)  # the prompt's round is over: only the window is kept of it
        sizes.append((payload_bytes(cache), allocated_bytes(cache)))
    before, after = sizes
    return after[0] - before[0], after[1] - before[1]


def _empty(config: Any, kind: str, group: int, residual: int) -> Any:
    if kind == "plain":
        return DynamicCache()
    if kind == "fp8":
        return QuantizedCache("fp8", config)
    if kind == "grouped":
        count = config.get_text_config(decoder=True).num_hidden_layers
        return Cache(layers=[_Grouped(group, residual) for _ in range(count)])
    return DynamicCache(config=config)


class _Grouped(QuantizedLayer):
    """Two numbers a byte, with a scale and a zero for every group. When rows are
    quantised and when they wait is transformers' own doing; its two quantisers come
    with libraries that the book does not need, so this is a plain one of ours."""

    def __init__(self, group: int, residual: int) -> None:
        super().__init__(
            nbits=4,
            q_group_size=checks.integer(group, "group", least=2),
            residual_length=checks.integer(residual, "residual", least=1),
        )

    def _quantize(self, tensor: Any, axis: int = 0) -> Any:
        if tensor.numel() % self.q_group_size:
            raise SpecbookError(
                f"{tensor.numel()} numbers do not fall into groups of "
                f"{self.q_group_size}"
            )
        groups = tensor.reshape(-1, self.q_group_size)
        zero = groups.amin(dim=1, keepdim=True)
        scale = (groups.amax(dim=1, keepdim=True) - zero) / 15
        codes = ((groups - zero) / scale.clamp(min=1e-9)).round().to(torch.uint8)
        packed = codes[:, ::2] * 16 + codes[:, 1::2]
        return [packed, scale, zero, tuple(tensor.shape)]

    def _dequantize(self, quantised: Any) -> torch.Tensor:
        packed, scale, zero, shape = quantised
        codes = torch.stack([packed // 16, packed % 16], dim=2).reshape(len(packed), -1)
        return (codes * scale + zero).to(scale.dtype).reshape(shape)
