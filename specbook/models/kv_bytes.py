"""What the candidate rows of a tree cost in key/value memory (section 0x09B).

Homogeneous dense rows cost N L 2 H_kv d_h b: N rows, L layers, keys and values of H_kv
heads of width d_h, b bytes a scalar. That is one schema of a cache. The same N rows
cost something else where the cache is quantised (scales, and rows that wait in full
width), latent (one compressed row a layer), windowed (rows that are not kept) or paged
(whole pages, of which branches may share some). So a schema is data here, `held` says
what a schema holds, and what it holds is compared with the bytes of real caches
(`payload_bytes` in `specbook.models.cache`).

Payload is what the rows themselves take. What is allocated for it can be more: a slice
keeps the tensor that it was cut from, and buffers and pages grow in steps.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .. import checks
from ..errors import SpecbookError
from ..tree import CandidateTree

BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of one scalar, by the name of its dtype."""

MOST_LAYERS = 1 << 16
"""More layers are a mistake in a config."""


def dense_bytes(
    rows: int, *, layers: int, kv_heads: int, head_dim: int, scalar_bytes: int
) -> int:
    """N L 2 H_kv d_h b: the payload of `rows` candidate rows in dense full attention.

    Raises `SpecbookError` for what is no count."""
    checks.integer(rows, "rows", least=0)
    shape = {"layers": layers, "kv_heads": kv_heads, "head_dim": head_dim}
    product = 2 * checks.integer(scalar_bytes, "scalar_bytes", least=1)
    for name, value in shape.items():
        product *= checks.integer(value, name, least=1)
    return rows * product


def _keep_counts(layer: Any, **least: int) -> None:
    """Checks the counts of a frozen schema and keeps them as plain integers: numpy's
    would wrap in a product, and spell another identity."""
    for name, bound in least.items():
        value = checks.integer(getattr(layer, name), name, least=bound)
        object.__setattr__(layer, name, value)


def _asked(prefix: Any, rows: Any) -> tuple[int, int]:
    return (
        checks.integer(prefix, "prefix", least=0),
        checks.integer(rows, "rows", least=0),
    )


# ----------------------------------------------------------------------- one layer


@dataclass(frozen=True)
class FullLayer:
    """Every row is kept: `scalars` numbers a row (keys and values together) of
    `scalar_bytes` each, and `fixed_bytes` once, such as a scale for a whole tensor."""

    scalars: int
    scalar_bytes: int
    fixed_bytes: int = 0

    def __post_init__(self) -> None:
        _keep_counts(self, scalars=1, scalar_bytes=1, fixed_bytes=0)

    def held(self, prefix: int, rows: int) -> int:
        """Bytes after a prompt of `prefix` tokens and `rows` rows behind it."""
        count = sum(_asked(prefix, rows))
        return count * self.scalars * self.scalar_bytes + bool(count) * self.fixed_bytes


@dataclass(frozen=True)
class WindowLayer:
    """The last `window` - 1 rows are kept: the next token sees them and itself.

    They are counted in the order in which they were written. A tree writes rivals, so
    its rows can push out committed ones. With `records` nothing is dropped before the
    round is over, which is what a roll-back needs.
    """

    scalars: int
    scalar_bytes: int
    window: int
    records: bool = False

    def __post_init__(self) -> None:
        _keep_counts(self, scalars=1, scalar_bytes=1, window=2)
        records = checks.boolean(self.records, "records")
        object.__setattr__(self, "records", records)

    def kept(self, prefix: int, rows: int) -> int:
        """Rows that are there after `prefix` tokens and `rows` rows behind them."""
        prefix, rows = _asked(prefix, rows)
        most = self.window - 1
        return min(prefix, most) + rows if self.records else min(prefix + rows, most)

    def held(self, prefix: int, rows: int) -> int:
        """Bytes after a prompt of `prefix` tokens and `rows` rows behind it."""
        return self.kept(prefix, rows) * self.scalars * self.scalar_bytes


@dataclass(frozen=True)
class GroupedLayer:
    """Scalars of `bits` each; every `group` of them brings `group_bytes` (a scale and a
    zero). New rows wait in full width, `wide_bytes` a scalar, until there are
    `residual` of them; then everything is quantised again.

    `scalars`: keys and values together, half of them each.
    """

    scalars: int
    bits: int
    group: int
    group_bytes: int
    residual: int
    wide_bytes: int

    def __post_init__(self) -> None:
        _keep_counts(
            self, scalars=1, bits=1, group=1, group_bytes=0, residual=1, wide_bytes=1
        )
        if self.scalars % 2:
            raise SpecbookError(f"scalars are keys and values, got {self.scalars}")

    def held(self, prefix: int, rows: int) -> int:
        """Bytes after a prompt of `prefix` tokens and `rows` rows behind it. A prompt
        is quantised at once."""
        prefix, rows = _asked(prefix, rows)
        waiting = rows if rows < self.residual else 0
        narrow = (prefix + rows - waiting) * self.scalars // 2
        each = -(-narrow * self.bits // 8) + -(-narrow // self.group) * self.group_bytes
        return 2 * each + waiting * self.scalars * self.wide_bytes


Layer = FullLayer | WindowLayer | GroupedLayer


# -------------------------------------------------------------------- a whole cache


@dataclass(frozen=True)
class CacheSchema:
    """How a cache keeps its rows, layer by layer; `name` is for readers."""

    name: str
    layers: tuple[Layer, ...]

    def __post_init__(self) -> None:
        checks.text(self.name, "name")
        layers = tuple(checks.entries(self.layers, "layers", "layers"))
        for index, layer in enumerate(layers):
            if not isinstance(layer, Layer):
                raise SpecbookError(f"layers[{index}] is no layer schema: {layer!r}")
        if not layers:
            raise SpecbookError("layers is empty: a cache has one layer at least")
        object.__setattr__(self, "layers", layers)

    def held(self, prefix: int, rows: int = 0) -> int:
        """Payload bytes after a prompt of `prefix` tokens and one forward of `rows`
        candidate rows behind it."""
        prefix, rows = _asked(prefix, rows)
        return sum(layer.held(prefix, rows) for layer in self.layers)

    def growth(self, prefix: int, rows: int) -> int:
        """Bytes that `rows` candidate rows add behind a prompt of `prefix` tokens. Can
        be 0, and below 0 where they make the cache quantise what was waiting."""
        return self.held(prefix, rows) - self.held(prefix)

    def identity(self) -> str:
        """A digest of the layers, for the identity of a measured profile: bytes that
        were measured under one schema say nothing about another."""
        return f"sha256:{hashlib.sha256(repr(self.layers).encode()).hexdigest()}"


def attention_shape(config: Any) -> tuple[int, int, int]:
    """(layers, key/value heads, head width) of a transformers config with plain keys
    and values. Falcon's newer models share key/value heads and cache them repeated.

    Raises `SpecbookError` for a config that lacks them or compresses them."""
    if getattr(config, "kv_lora_rank", None):
        raise SpecbookError("its keys and values are compressed: see latent_scalars")
    heads = _field(config, "num_attention_heads")
    # A config may leave either of them open.
    if getattr(config, "head_dim", None) is None:
        width = _field(config, "hidden_size") // heads
        if not width:
            raise SpecbookError(f"hidden_size is below num_attention_heads = {heads}")
    else:
        width = _field(config, "head_dim")
    open_groups = getattr(config, "num_key_value_heads", None) is None
    groups = heads if open_groups else _field(config, "num_key_value_heads")
    if getattr(config, "model_type", "") == "falcon":
        flags = ("multi_query", "new_decoder_architecture")
        multi, newer = (
            checks.boolean(getattr(config, name, None), name) for name in flags
        )
        groups = 1 if multi and not newer else heads
    return _layers(config), groups, width


def latent_scalars(config: Any) -> tuple[int, int]:
    """What one layer keeps of a row under latent attention (MLA), in scalars: (as a
    latent and one rotated key, expanded to keys and values of every head)."""
    heads = _field(config, "num_attention_heads")
    latent, rotated = (_field(config, f) for f in ("kv_lora_rank", "qk_rope_head_dim"))
    plain, value = (_field(config, f) for f in ("qk_nope_head_dim", "v_head_dim"))
    return latent + rotated, heads * (plain + rotated + value)


def dense_schema(config: Any, dtype: str) -> CacheSchema:
    """Every row in every layer, full width: what a target of this book keeps. `dtype`:
    one of `BYTES`."""
    layers, heads, width = attention_shape(config)
    layer = FullLayer(2 * heads * width, _bytes(dtype))
    return CacheSchema("dense", (layer,) * layers)


def latent_schema(config: Any, dtype: str, *, expanded: bool = False) -> CacheSchema:
    """Latent attention: the compressed rows, or with `expanded` what they stand for."""
    scalars = latent_scalars(config)[checks.boolean(expanded, "expanded")]
    layer = FullLayer(scalars, _bytes(dtype))
    name = "latent, expanded" if expanded else "latent"
    return CacheSchema(name, (layer,) * _layers(config))


def window_schema(
    config: Any, dtype: str, windows: Any, *, records: bool = False
) -> CacheSchema:
    """Dense, but for the layers in `windows` (layer number -> tokens, as
    `specbook.models.cache.sliding_windows` finds them)."""
    dense = dense_schema(config, dtype)
    layers: list[Layer] = list(dense.layers)
    if not isinstance(windows, Mapping):
        raise SpecbookError(f"windows must map layers to tokens, got {windows!r}")
    for index, window in windows.items():
        index = checks.integer(index, "layer", least=0, most=len(layers) - 1)
        scalars = 2 * attention_shape(config)[1] * attention_shape(config)[2]
        layers[index] = WindowLayer(scalars, _bytes(dtype), window, records)
    name = "window, recording" if records else "window"
    return CacheSchema(name, tuple(layers))


def fp8_schema(config: Any) -> CacheSchema:
    """One byte a scalar, and for the keys and the values of a layer one float32 scale
    each, fixed by the prompt."""
    layers, heads, width = attention_shape(config)
    return CacheSchema("fp8", (FullLayer(2 * heads * width, 1, 8),) * layers)


def grouped_schema(
    config: Any, dtype: str, *, bits: int, group: int, residual: int
) -> CacheSchema:
    """Group-wise integers with a scale and a zero of `dtype` each, and a residual
    window of rows in full width."""
    layers, heads, width = attention_shape(config)
    wide = _bytes(dtype)
    layer = GroupedLayer(2 * heads * width, bits, group, 2 * wide, residual, wide)
    return CacheSchema(f"{bits} bits, residual", (layer,) * layers)


def _layers(config: Any) -> int:
    """A schema lists its layers one by one, so their number must be one of a model."""
    layers = _field(config, "num_hidden_layers")
    return checks.integer(layers, "num_hidden_layers", most=MOST_LAYERS)


def _field(config: Any, name: str) -> int:
    if getattr(config, name, None) is None:
        raise SpecbookError(f"{type(config).__name__} has no {name}")
    return checks.integer(getattr(config, name), name, least=1)


def _bytes(dtype: str) -> int:
    return BYTES[checks.one_of(dtype, "dtype", tuple(BYTES))]


# --------------------------------------------------------------------------- pages


@dataclass(frozen=True)
class Pages:
    """Pages that a tree needs beyond those of the prefix.

    `flat`: all rows behind the prefix in one sequence. `branches`: one sequence a leaf,
    pages with the same tokens from the start counted once. `copies`: the same without
    sharing: the prefix's open page and all rows, leaf by leaf.
    """

    flat: int
    branches: int
    copies: int


def pages(tree: CandidateTree, page_rows: int) -> Pages:
    """How many pages of `page_rows` rows the tree adds to its prefix.

    A page is taken whole, and one that holds other tokens is another page. The first
    branch may go on in the prefix's last page where that has room; every other needs a
    copy of it. Raises `SpecbookError` for a page that holds nothing.
    """
    if not isinstance(tree, CandidateTree):
        raise SpecbookError(f"not a CandidateTree: {tree!r}")
    checks.integer(page_rows, "page_rows", least=1)
    start = tree.prefix_len // page_rows  # full pages of the prefix, which all share
    opened = bool(tree.prefix_len % page_rows)
    keys: set[tuple[int, ...]] = set()
    copies = 0
    leaves = tree.paths()
    for path in leaves:
        stop = tree.prefix_len + len(path)
        ends = range((start + 1) * page_rows, stop + page_rows, page_rows)
        # A page is known by every candidate from the prefix to the page's end.
        found = {path[: min(end, stop) - tree.prefix_len] for end in ends}
        keys |= found
        copies += len(found)
    flat = _ceil(tree.prefix_len + len(tree), page_rows) - start - opened
    taken = opened and bool(leaves)
    return Pages(flat, len(keys) - taken, copies - taken)


def _ceil(count: int, step: int) -> int:
    return -(-count // step)
