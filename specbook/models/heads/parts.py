"""What several architectures of draft heads are built from.

Everything starts as the identity: what is added to the state comes out of a matrix of
zeros. So untrained heads say what the target's own head says after the committed text,
and training begins from there.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

ROTARY_BASE = 10_000.0
_EPSILON = 1e-6


def unit(x: torch.Tensor) -> torch.Tensor:
    """Rows [..., d] at root mean square 1. Embeddings may be much smaller than hidden
    states (of SmolLM2-135M 0.12 against 2.2); in one input they must count alike."""
    return F.rms_norm(x, (x.shape[-1],), eps=_EPSILON)


class ResidualBlock(nn.Module):
    """x + SiLU(W x + b) on rows [R, d]: Medusa's block. W starts at zero."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + F.silu(self.linear(x))


class Mix(nn.Module):
    """state + A u + C SiLU(B u), where u [R, parts d] is the concatenation of the state
    and `parts` - 1 embeddings, each at unit size, and A and B have a bias.

    Two ways, a linear and a bent one: what a single earlier token says about the next
    one is mostly linear in its embedding, so the bent way is narrow, `bent` numbers
    wide. With `bent` = 0 there is none. A and C start at zero.
    """

    def __init__(self, parts: int, width: int, bent: int) -> None:
        super().__init__()
        self.linear = nn.Linear(parts * width, width)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        self.bent = None
        if bent:
            out = nn.Linear(bent, width, bias=False)
            nn.init.zeros_(out.weight)
            self.bent = nn.Sequential(nn.Linear(parts * width, bent), nn.SiLU(), out)

    def forward(self, state: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        straight = state + self.linear(inputs)
        return straight if self.bent is None else straight + self.bent(inputs)


class Network(nn.Module):
    """The network of one head: `Mix`, then `layers` - 1 residual blocks, every one a
    block of its own."""

    def __init__(self, parts: int, width: int, layers: int, bent: int) -> None:
        super().__init__()
        self.mix = Mix(parts, width, bent)
        # Never `[block] * n`: that is one block, used n times.
        self.blocks = nn.ModuleList(ResidualBlock(width) for _ in range(layers - 1))

    def forward(self, state: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        x = self.mix(state, inputs)
        for block in self.blocks:
            x = block(x)
        return x


class KeysValues(NamedTuple):
    """Keys and values [heads, n, head_dim] of one layer."""

    keys: torch.Tensor
    values: torch.Tensor


class LayerCache:
    """Keys and values of one layer, of one request, with room for more."""

    def __init__(self) -> None:
        self._held: KeysValues | None = None

    def put(self, first: int, key: torch.Tensor, value: torch.Tensor) -> KeysValues:
        """Put new rows [heads, n, head_dim] behind the `first` old; all of both."""
        heads, n, width = key.shape
        held = self._held
        if held is None or held.keys.shape[1] < first + n:
            # Twice as much each time: a row is copied once on average.
            grown = KeysValues(
                *(key.new_empty(heads, 2 * (first + n), width) for _ in "kv")
            )
            if held is not None:
                for old, new in zip(held, grown, strict=True):
                    new[:, :first] = old[:, :first]
            held = self._held = grown
        held.keys[:, first : first + n] = key
        held.values[:, first : first + n] = value
        return KeysValues(held.keys[:, : first + n], held.values[:, : first + n])


class DecoderLayer(nn.Module):
    """Pre-norm attention with rotated queries and keys, then a gated network.

    Positions are relative, so a row may be counted from the start of its stream or of
    its segment. Both outputs start at zero.
    """

    def __init__(self, width: int, attention_heads: int, inner: int) -> None:
        super().__init__()
        self.heads = attention_heads
        self.norm1 = nn.Parameter(torch.ones(width))
        self.norm2 = nn.Parameter(torch.ones(width))
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)
        self.gate_up = nn.Linear(width, 2 * inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.down.weight)

    def project(
        self, x: torch.Tensor, first: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries, keys and values, each [heads, n, head_dim], of rows [n, d] at the
        positions from `first` on."""
        normed = unit(x) * self.norm1
        return projected(normed, self.query_key_value, self.heads, first)

    def finish(self, x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        """The layer's output rows, from its input x [n, d] and what attention read,
        [heads, n, head_dim]."""
        x = x + self.output(seen.transpose(0, 1).reshape(x.shape))
        gate, up = self.gate_up(unit(x) * self.norm2).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class PrefixLayers(nn.Module):
    """Decoder layers over the target's hidden states of the committed rows.

    `forward` reads a whole packed stream, for training; a `PrefixCache` reads the same
    rows as they are committed. With no layers both give the rows back.
    """

    def __init__(
        self, layers: int, width: int, attention_heads: int, inner: int
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            DecoderLayer(width, attention_heads, inner) for _ in range(layers)
        )

    def forward(
        self, hidden: torch.Tensor, segments: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Rows [n, d] from hidden rows [n, d]. A row sees itself and earlier rows of
        its own segment. `segments`: integers [n], of which equal neighbours are one
        segment; None is one segment."""
        if not len(self.layers):
            return hidden
        n = len(hidden)
        visible = torch.ones(n, n, dtype=torch.bool, device=hidden.device).tril()
        if segments is not None:
            # By stretches, as everywhere: an id that comes back is another document.
            run = segments.unique_consecutive(return_inverse=True)[1]
            visible &= run[:, None] == run
        for layer in self.layers:
            assert isinstance(layer, DecoderLayer)
            query, key, value = layer.project(hidden, 0)
            seen = F.scaled_dot_product_attention(query, key, value, attn_mask=visible)
            hidden = layer.finish(hidden, seen)
        return hidden


class PrefixCache:
    """The committed rows of one request as `layers` has read them.

    Only committed rows come in, so nothing is ever rolled back.
    """

    def __init__(self, layers: PrefixLayers) -> None:
        self._layers = layers
        self._seen = [LayerCache() for _ in layers.layers]
        self._length = 0

    def __len__(self) -> int:
        """Rows read so far."""
        return self._length

    def extend(self, hidden: torch.Tensor) -> torch.Tensor:
        """Read the rows [n, d] that were committed, n at least 1; their output rows."""
        first, n = self._length, len(hidden)
        self._length += n
        visible = torch.ones(
            n, self._length, dtype=torch.bool, device=hidden.device
        ).tril(first)
        for layer, held in zip(self._layers.layers, self._seen, strict=True):
            assert isinstance(layer, DecoderLayer)
            query, key, value = layer.project(hidden, first)
            keys, values = held.put(first, key, value)
            seen = F.scaled_dot_product_attention(
                query, keys, values, attn_mask=visible
            )
            hidden = layer.finish(hidden, seen)
        return hidden


def projected(
    normed: torch.Tensor, query_key_value: nn.Linear, heads: int, first: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries, keys and values, each [heads, n, head_dim], of normed rows [n, d] at the
    positions from `first` on; queries and keys are rotated."""
    n, width = normed.shape
    y = query_key_value(normed).view(n, 3, heads, width // heads).permute(1, 2, 0, 3)
    return _rotated(y[0], first), _rotated(y[1], first), y[2]


def _rotated(x: torch.Tensor, first: int) -> torch.Tensor:
    """Rows [heads, n, head_dim], rotated by the positions from `first` on."""
    half = x.shape[-1] // 2
    steps = torch.arange(half, dtype=torch.float64, device=x.device) / half
    places = torch.arange(first, first + x.shape[1], device=x.device)
    angles = places.double()[:, None] * ROTARY_BASE**-steps
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    left, right = x[..., :half], x[..., half:]
    return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)
