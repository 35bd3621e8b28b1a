"""A lean forward for Llama-like checkpoints on the CPU.

A small model at batch one is bound by reading its weights, so speed is lost wherever
they are read badly or the processor waits for Python. Against the generic target:

- query, key and value projections are one matrix, gate and up projections another;
- matrices are packed once into the block layout of oneDNN. Plain layout reads the
  weights at a third of the memory's speed for one to sixteen rows, packed layout at
  nearly all of it; short blocks are padded where that is no slower (`LEAST_ROWS`);
- keys and values of all layers lie in one buffer, written in place. A commit moves
  the accepted rows and sets a length, a refusal only sets a length;
- rotation is one complex product over queries and keys: the rows of their matrices
  are permuted so that the two halves of a pair are neighbours (scores do not change),
  and value heads ride along with angle zero;
- the LM head is run on eight rows at a time, in the order in which a walk down the
  tree can ask for them. A row that no verifier looks at costs nothing.

It is trusted only because it is checked: before its first round its rows must equal
those of transformers' own forward on the same weights (`selftest`).
"""

from __future__ import annotations

import copy
import functools
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import safe_open

from .. import checks
from ..errors import LawError, TargetError
from . import selftest
from .checkpoint import load_transformers_model
from .protocol import FRONTIER
from .target import (
    LogitRows,
    ModelTarget,
    Seen,
    UnsupportedTargetError,
    check_config,
    check_model,
    check_source,
    checked_ids,
    context_limit,
    describe_head,
    end_tokens,
    visibility,
)

if TYPE_CHECKING:
    from ..tree import CandidateTree

LEAST_ROWS = {torch.float32: 1, torch.bfloat16: 4}
"""Blocks shorter than this are padded. In bfloat16 a packed matrix is no slower on four
rows than on one, and often quicker; in float32 a row that nobody asked for costs as
soon as the memory is the slower part."""

HEAD_GROUP = 8
"""Rows that one run of the LM head computes."""

PREFILL = 512
"""Prompts are read in blocks of this many tokens, so that masks stay small."""

GROWTH = 256
"""Rows by which a key/value buffer grows."""

_EMBEDDING = "model.embed_tokens.weight"
_CLASSES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM")
_STATIC_ROPE = ("default", "linear", "llama3", "yarn")


def obstacle(model: Any) -> str | None:
    """Why the lean forward does not fit `model` (of transformers), or None."""
    config = model.config
    if type(model).__name__ not in _CLASSES:
        return f"{type(model).__name__} is not one of {', '.join(_CLASSES)}"
    parameter = next(model.parameters())
    if parameter.device.type != "cpu":
        return f"it is on {parameter.device}, the lean forward runs on the CPU"
    if parameter.dtype not in (torch.float32, torch.bfloat16):
        return f"its dtype is {parameter.dtype}, not float32 or bfloat16"
    if config.hidden_act != "silu":
        return f"its activation is {config.hidden_act}, not silu"
    rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    if rope not in _STATIC_ROPE:
        return f"its rotary frequencies ({rope}) change with the length"
    if getattr(config, "quantization_config", None) is not None:
        return "its weights are quantised"
    return None


class LeanTarget(ModelTarget):
    """A Llama-like causal LM with its own forward. See `Target`.

    `model`: a transformers model that `obstacle` finds nothing against. With `take`
    it gives its weights up and is unusable afterwards: they are read again from the
    folder `source`, one at a time, so that there is never more than one copy in memory
    (and the plain embedding, when it is tied to the packed head). `pack=False` keeps
    the plain layout of the matrices. Raises `SelfTestError` when the rows differ from
    those of the model's own forward.
    """

    forward_name = "lean"
    attention = "sdpa"

    def __init__(
        self,
        model: Any,
        *,
        source: str | None = None,
        take: bool = False,
        pack: bool = True,
        self_test: bool = True,
    ) -> None:
        check_model(model)
        check_config(model.config)
        for name, value in (("take", take), ("pack", pack), ("self_test", self_test)):
            checks.boolean(value, name)
        if why := obstacle(model):
            raise UnsupportedTargetError(f"no lean forward for this model: {why}")
        model.eval()
        config = model.config
        self.config = config
        self.source = source = check_source(source)
        self.context_limit = context_limit(config)
        self.eos_token_id = end_tokens(model)
        head = model.get_output_embeddings().weight
        self.vocab_size = int(head.shape[0])
        self.dtype = head.dtype
        self.device = head.device
        self._head = describe_head(head, head is model.get_input_embeddings().weight)
        self.hidden_width = int(head.shape[1])
        self._loaded_attention = str(config._attn_implementation)
        # Once, and before the weights move. The packed ones are copies: no change to
        # `model` reaches them, so this stays their identity.
        self._bind(model)
        plan = expected = None
        if self_test:
            # Before the weights move: the reference is the model's own forward.
            plan = selftest.plan(self.vocab_size, self.context_limit, self.dtype)
            expected = plan.reference(functools.partial(_plain_logits, model))
        read = _reader(model, source if take else None)
        if take:
            for parameter in model.parameters():
                parameter.data = torch.empty(0, dtype=parameter.dtype)
        self._weights = _Weights(model, read, pack)
        self._cut: tuple[tuple[int, ...], _Linear] | None = None
        self._bytes_per_row = self._weights.bytes_per_row
        if plan is not None and expected is not None:
            plan.check(self, expected, self.dtype)

    def transformers_model(self) -> Any:
        """The same checkpoint as a plain transformers model, read again from its
        folder: a second copy in memory, for comparisons. Drop it afterwards."""
        if self.source is None:
            raise TargetError("this target was made in memory; keep its model yourself")
        self._check_unchanged()
        return load_transformers_model(
            self.source, dtype=self.dtype, attn_implementation=self._loaded_attention
        )

    def _new_state(self) -> _State:
        return _State(self._weights)

    def _forward(
        self,
        state: _State,
        pending: list[int],
        tree: CandidateTree,
        seen: Seen = None,
    ) -> LeanRows:
        rows = LeanRows(self._weights, self._run(state, pending, tree, 0, seen), tree)
        # The frontier's law is always needed; its group belongs to the forward.
        rows.prepare(FRONTIER)
        return rows

    def _grow(
        self,
        state: _State,
        tree: CandidateTree,
        done: int,
        rows: LeanRows,
        seen: Seen = None,
    ) -> LeanRows:
        hidden = torch.cat([rows._hidden, self._run(state, [], tree, done, seen)])
        grown = LeanRows(self._weights, hidden, tree, rows._ready)
        for first in range(done, len(tree), HEAD_GROUP):
            grown._heads(list(range(first, min(first + HEAD_GROUP, len(tree)))))
        return grown

    def _run(
        self,
        state: _State,
        pending: list[int],
        tree: CandidateTree,
        done: int = 0,
        seen: Seen = None,
    ) -> torch.Tensor:
        """Last hidden states of the last pending token, if there is one, and of the
        tree's rows from `done` on; the rows before it lie in `state`."""
        weights = self._weights
        base = len(state) - done
        # The head of a long prompt, block by block; nobody asks for its logits.
        while len(pending) > PREFILL:
            block, pending = pending[:PREFILL], pending[PREFILL:]
            positions = np.arange(base, base + PREFILL)
            mask = visibility(base, PREFILL, np.zeros((0, 0), dtype=bool))
            hidden = weights.run(state, block, positions, mask)
            if seen is not None:
                seen.append(hidden)
            base += PREFILL
        positions = np.concatenate(
            [
                np.arange(base, base + len(pending)),
                np.array(tree.position_ids[done:], int),
            ]
        )
        visible: np.ndarray | None = visibility(
            base, len(pending), tree.tree_mask[done:]
        )
        if len(positions) == 1 and visible is not None and visible.all():
            visible = None
        ids = [*pending, *tree.token_ids[done:]]
        hidden = weights.run(state, ids, positions, visible)
        if seen is not None:
            seen.append(hidden)
        return hidden[max(0, len(pending) - 1) :]

    def _read(self, states: torch.Tensor) -> torch.Tensor:
        return self._weights.normed(states, self._weights.final_norm)

    @torch.inference_mode()
    def embed_tokens(self, ids: torch.Tensor) -> torch.Tensor:
        """As `HiddenTarget.embed_tokens`."""
        return self._weights.embedding[checked_ids(ids, self.vocab_size)]

    @torch.inference_mode()
    def read_out(self, features: torch.Tensor) -> torch.Tensor:
        """As `HiddenTarget.read_out`."""
        return self._weights.read_out(features.to(self.dtype))

    @torch.inference_mode()
    def cut_head(self, ids: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
        """As `HiddenTarget.cut_head`. The last one is kept: it is asked for at the
        start of each request, and packing takes longer than a step of decoding."""
        key = tuple(checked_ids(ids, self.vocab_size).tolist())
        if self._cut is None or self._cut[0] != key:
            self._cut = (key, self._weights.cut_head(ids))
        head = self._cut[1]
        return lambda features: self._weights.read_out(features.to(self.dtype), head)


@torch.inference_mode()
def _plain_logits(model: Any, tokens: Sequence[int]) -> np.ndarray:
    output = model(input_ids=torch.tensor([list(tokens)]), use_cache=False)
    return output.logits[0].float().numpy()


class LeanRows(LogitRows):
    """Last hidden states of the frontier and the tree's rows; logits on demand.

    Logits are computed for a group of rows at a time: the row asked for and those
    that follow below it, breadth first. `ready`: rows that are computed already.
    """

    def __init__(
        self,
        weights: _Weights,
        hidden: torch.Tensor,
        tree: CandidateTree,
        ready: Mapping[int, torch.Tensor] | None = None,
    ) -> None:
        self._weights = weights
        self._hidden = hidden
        self._tree = tree
        self._ready = dict(ready or {})

    def __len__(self) -> int:
        """Rows of the tree (the frontier is not counted)."""
        return len(self._tree)

    def _row(self, row: int) -> torch.Tensor:
        row = checks.integer(
            row, "row", least=FRONTIER, most=len(self) - 1, error=LawError
        )
        if row not in self._ready:
            self._compute(row)
        return self._ready[row]

    def _compute(self, row: int) -> None:
        group: list[int] = []
        queue = deque([row])
        while queue and len(group) < HEAD_GROUP:
            item = queue.popleft()
            if item not in self._ready:
                group.append(item)
            queue.extend(self._tree.children(item))
        self._heads(group)

    @torch.inference_mode()
    def _heads(self, group: list[int]) -> None:
        if group == list(range(-1, len(self._hidden) - 1)):
            hidden = self._hidden
        else:
            hidden = self._hidden[[item + 1 for item in group]]
        logits = self._weights.head_logits(hidden)
        for item, line in zip(group, logits, strict=False):
            self._ready[item] = line


class _State:
    """Keys and values of one request: a buffer [layers, 2 * kv_heads, capacity,
    head_dim], keys' heads before values', of which the first `len` rows hold."""

    def __init__(self, weights: _Weights) -> None:
        self._shape = weights.cache_shape
        self._dtype = weights.dtype
        self._length = 0
        self.buffer = self._allocate(0)

    def _allocate(self, rows: int) -> torch.Tensor:
        layers, heads, width = self._shape
        rows = -(-rows // GROWTH) * GROWTH
        return torch.empty((layers, heads, rows, width), dtype=self._dtype)

    def __len__(self) -> int:
        return self._length

    def extend(self, rows: int) -> tuple[int, int]:
        """Room for `rows` more; their first and past-the-last row number."""
        start, stop = self._length, self._length + rows
        capacity = self.buffer.shape[2]
        if stop > capacity:
            # A half more at least: growth stays linear over a request.
            grown = self._allocate(max(stop, capacity + capacity // 2))
            grown[:, :, :start] = self.buffer[:, :, :start]
            self.buffer = grown
        self._length = stop
        return start, stop

    def append_from(
        self, other: _State, layers: Sequence[int], start: int, stop: int
    ) -> None:
        """Copy rows `start` to `stop` - 1 of `other` behind one's own: slot i here is
        slot `layers[i]` there."""
        first, last = self.extend(stop - start)
        rows = other.buffer[:, :, start:stop]
        self.buffer[:, :, first:last] = rows[list(layers)]

    def keep(self, base: int, extra: Sequence[int]) -> None:
        """Keep rows 0 .. base-1 and then `extra`; in place, for all layers at once."""
        moved = [(base + i, row) for i, row in enumerate(extra) if row != base + i]
        if moved:
            first = moved[0][0]
            rows = torch.tensor([row for _, row in moved])
            # index_select copies first, so overlapping rows are safe.
            self.buffer[:, :, first : first + len(moved)] = self.buffer.index_select(
                2, rows
            )
        self._length = base + len(extra)

    def payload_bytes(self) -> int:
        """Bytes of the rows that hold."""
        layers, heads, width = self._shape
        return self._length * layers * heads * width * self._dtype.itemsize

    def allocated_bytes(self) -> int:
        """Bytes of the buffer."""
        return self.buffer.numel() * self.buffer.element_size()


class _Weights:
    """The checkpoint in the form that the lean forward reads, and that forward."""

    def __init__(self, model: Any, read: _Read, pack: bool) -> None:
        config = model.config
        self.dtype = model.dtype
        self.least_rows = LEAST_ROWS[self.dtype]
        self.heads = int(config.num_attention_heads)
        self.kv_heads = int(config.num_key_value_heads)
        self.width = int(config.hidden_size)
        self.head_dim = int(
            getattr(config, "head_dim", None) or self.width // self.heads
        )
        self.inner = int(config.intermediate_size)
        self.scale = float(self.head_dim**-0.5)
        count = int(config.num_hidden_layers)
        self.epsilon = torch.tensor(float(config.rms_norm_eps), dtype=torch.float64)

        def norm(name: str) -> torch.Tensor:
            weight = read(f"{name}.weight")
            assert weight is not None
            return weight.float()

        def linear(*names: str, order: torch.Tensor | None = None) -> _Linear:
            """One matrix of several that read the same input."""
            parts = []
            for kind in ("weight", "bias"):
                found = [read(f"{name}.{kind}") for name in names]
                tensors = [tensor for tensor in found if tensor is not None]
                joined = tensors[0] if tensors else None
                if len(tensors) > 1:
                    joined = torch.cat(tensors)
                parts.append(
                    joined if joined is None or order is None else joined[order]
                )
            return _Linear(parts[0], parts[1], pack)

        turned = self.heads + self.kv_heads
        order = torch.arange((turned + self.kv_heads) * self.head_dim)
        order[: turned * self.head_dim] = self._neighbours(turned)
        self.layers: list[tuple[_Sublayer | None, _Sublayer | None]] = []
        for index in range(count):
            block = f"model.layers.{index}"
            attention, mlp = f"{block}.self_attn", f"{block}.mlp"
            self.layers.append(
                (
                    (
                        norm(f"{block}.input_layernorm"),
                        linear(
                            *(f"{attention}.{part}_proj" for part in "qkv"), order=order
                        ),
                        linear(f"{attention}.o_proj"),
                    ),
                    (
                        norm(f"{block}.post_attention_layernorm"),
                        linear(f"{mlp}.gate_proj", f"{mlp}.up_proj"),
                        linear(f"{mlp}.down_proj"),
                    ),
                )
            )
        self.final_norm = norm("model.norm")
        embedding = read(_EMBEDDING)
        assert embedding is not None
        self.embedding = embedding
        self.tied = "lm_head.weight" not in dict(model.named_parameters())
        self.head = _Linear(embedding, None, pack) if self.tied else linear("lm_head")
        rotary = model.model.rotary_emb
        self._inverse_frequencies = rotary.inv_freq.detach().float().clone()
        self._rope_scale = float(rotary.attention_scaling)
        self._rotations = torch.empty(0)

    def _neighbours(self, heads: int) -> torch.Tensor:
        """Row order that puts the pair (i, i + head_dim / 2) of each head together."""
        half = self.head_dim // 2
        pairs = torch.stack([torch.arange(half), torch.arange(half) + half], dim=1)
        starts = torch.arange(heads)[:, None] * self.head_dim
        return (starts + pairs.reshape(1, -1)).reshape(-1)

    def rotation(self, positions: np.ndarray) -> torch.Tensor:
        """Complex factors [rows, heads + 2 kv_heads, head_dim / 2] for `positions`;
        1 for the value heads."""
        needed = int(positions.max()) + 1
        if len(self._rotations) < needed:
            table = torch.arange(-(-needed // 1024) * 1024, dtype=torch.float32)
            angles = table[:, None] * self._inverse_frequencies
            self._rotations = torch.complex(
                angles.cos() * self._rope_scale, angles.sin() * self._rope_scale
            )
        turned = self._rotations[torch.from_numpy(positions)][:, None]
        rows, half = len(positions), self.head_dim // 2
        return torch.cat(
            [
                turned.expand(rows, self.heads + self.kv_heads, half),
                torch.ones((rows, self.kv_heads, half), dtype=turned.dtype),
            ],
            dim=1,
        )

    def normed(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """RMS norm of float32 rows, in the model's dtype."""
        # The one number a row is divided by is taken in float64: that costs a few
        # microseconds, and halves the distance from transformers' rows.
        size = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float64)
        scale = torch.addcmul(self.epsilon, size, size, value=1 / self.width).rsqrt_()
        result = (x * scale.float()).mul_(weight)
        return result if self.dtype == torch.float32 else result.to(self.dtype)

    def run(
        self,
        state: _State,
        token_ids: Sequence[int],
        positions: np.ndarray,
        visible: np.ndarray | None,
    ) -> torch.Tensor:
        """Last hidden states [rows, width] of `token_ids` at `positions`, after
        writing their keys and values to `state`.

        `visible`: boolean [rows, cached + rows], None when every row sees everything.
        The residual stream is float32 whatever the dtype.
        """
        return self.through(
            self.embedding[torch.tensor(token_ids)], state, positions, visible
        )

    def through(
        self,
        features: torch.Tensor,
        state: _State,
        positions: np.ndarray,
        visible: np.ndarray | None,
    ) -> torch.Tensor:
        """Rows [rows, width] in float32 above the layers, from those below them.
        The rest is as in `run`; `features` stays as it is."""
        rows = len(features)
        start, stop = state.extend(rows)
        kv_heads, group, width = (
            self.kv_heads,
            self.heads // self.kv_heads,
            self.head_dim,
        )
        exact = self.dtype == torch.float32
        x = torch.zeros((max(rows, self.least_rows), self.width))
        x[:rows] = features
        padded = len(x)
        # The heads of one group share keys and values: their rows are stacked, so
        # that each key is read once.
        mask = None
        if visible is not None:
            mask = torch.zeros(visible.shape, dtype=self.dtype)
            mask.masked_fill_(torch.from_numpy(~visible), torch.finfo(self.dtype).min)
            mask = mask.repeat(group, 1)
        turn = self.rotation(positions)
        attended = torch.zeros((padded, self.heads * width), dtype=self.dtype)
        attended_heads = attended[:rows].view(rows, kv_heads, group, width)
        slots = iter(state.buffer)
        for attention, mlp in self.layers:
            if attention is not None:
                norm, qkv, out = attention
                y = qkv(self.normed(x, norm))[:rows]
                if not exact:
                    y = y.float()
                pairs = torch.view_as_complex(y.view(rows, -1, width // 2, 2))
                turned = torch.view_as_real(pairs * turn).view(rows, -1, width)
                layer = next(slots)
                layer[:, start:stop] = turned[:, self.heads :].transpose(0, 1)
                queries = turned[:, : self.heads].view(rows, kv_heads, group, width)
                queries = queries.permute(1, 2, 0, 3).reshape(
                    1, kv_heads, group * rows, width
                )
                seen = F.scaled_dot_product_attention(
                    queries if exact else queries.to(self.dtype),
                    layer[None, :kv_heads, :stop],
                    layer[None, kv_heads:, :stop],
                    attn_mask=mask,
                    scale=self.scale,
                )
                attended_heads.copy_(
                    seen.view(kv_heads, group, rows, width).permute(2, 0, 1, 3)
                )
                x = out.add_to(x, attended)
            if mlp is not None:
                norm, gate_up, down = mlp
                y = gate_up(self.normed(x, norm))
                gated = F.silu(y[:, : self.inner]).mul_(y[:, self.inner :])
                x = down.add_to(x, gated)
        return x[:rows]

    def only(self, attention: Sequence[bool], mlp: Sequence[bool]) -> _Weights:
        """The same weights with some sublayers alone: those where the entry of their
        layer is true. Nothing is copied. A state for them has a slot for each
        attention that is left."""
        part = copy.copy(self)
        part.layers = [
            (layer[0] if has_attention else None, layer[1] if has_mlp else None)
            for layer, has_attention, has_mlp in zip(
                self.layers, attention, mlp, strict=True
            )
        ]
        return part

    @property
    def cache_shape(self) -> tuple[int, int, int]:
        """Attention layers, heads of keys and of values, and their width."""
        count = sum(attention is not None for attention, _ in self.layers)
        return count, 2 * self.kv_heads, self.head_dim

    @property
    def bytes_per_row(self) -> int:
        """Of keys and values."""
        return math.prod(self.cache_shape) * self.dtype.itemsize

    def head_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits [at least len(hidden), V] of last hidden states (padding included)."""
        if len(hidden) < self.least_rows:
            padded = torch.zeros((self.least_rows, self.width))
            padded[: len(hidden)] = hidden
            hidden = padded
        return self.head(self.normed(hidden, self.final_norm))

    def cut_head(self, ids: torch.Tensor) -> _Linear:
        """The LM head of some tokens alone."""
        # The embedding is in the plain layout already.
        weight = self.embedding if self.tied else self.head.weight()
        bias = self.head.bias
        rows = None if bias is None else bias[ids]
        return _Linear(weight[ids], rows, self.head.packed)

    def read_out(
        self, features: torch.Tensor, head: _Linear | None = None
    ) -> torch.Tensor:
        """Logits [len(features), V] of rows that are normed already, in the model's
        dtype; those of another `head` than the model's if one is given."""
        count = len(features)
        if count < self.least_rows:
            padded = torch.zeros((self.least_rows, self.width), dtype=self.dtype)
            padded[:count] = features
            features = padded
        return (head or self.head)(features)[:count]


_Sublayer = tuple[torch.Tensor, "_Linear", "_Linear"]
"""A norm, the matrices that read it (joined), and the one that adds to the residual."""

_Read = Callable[[str], "torch.Tensor | None"]
"""The tensor of a name, a copy of one's own; None for a bias that is not there."""


def _reader(model: Any, folder: str | None) -> _Read:
    """How to read the weights of `model` one at a time, by transformers' names.

    From the safetensors files of `folder`, where they hold the very names and shapes
    of the model: a file is mapped for one tensor and let go again, so the model can
    give up its own copy first. Otherwise from the model, which is kept until the end.
    """
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    dtype = model.dtype
    files: dict[str, Path] = {}
    if folder is not None and Path(folder).is_dir():
        for path in sorted(Path(folder).glob("*.safetensors")):
            with safe_open(path, framework="pt") as stored:
                for name in stored.keys():
                    shape = tuple(stored.get_slice(name).get_shape())
                    if name in parameters and shape == tuple(parameters[name].shape):
                        files[name] = path
    if files.keys() == parameters.keys():
        known = frozenset(files)
        del parameters

        def read_file(name: str) -> torch.Tensor | None:
            if name not in known:
                return None
            with safe_open(files[name], framework="pt") as stored:
                return stored.get_tensor(name).to(dtype, copy=True)

        return read_file

    def read_model(name: str) -> torch.Tensor | None:
        tensor = parameters.get(name)
        return None if tensor is None else tensor.clone()

    return read_model


class _Linear:
    """y = x W^T + b with the matrix in oneDNN's block layout where torch has it."""

    def __init__(
        self, weight: torch.Tensor | None, bias: torch.Tensor | None, pack: bool
    ) -> None:
        if weight is None:
            raise TargetError("a matrix of the model is missing")
        self.bias = bias
        self._exact = weight.dtype == torch.float32
        kernel = _packed_kernel() if pack else None
        self.packed = kernel is not None
        if kernel is None:
            self._weight = weight.contiguous()
            return
        reorder, self._apply, self._apply_add = kernel
        self._weight = reorder(weight.contiguous(), 16)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self.packed:
            return self._apply(x, self._weight, self.bias, "none", [], "")
        return F.linear(x, self._weight, self.bias)

    def weight(self) -> torch.Tensor:
        """W in the plain layout."""
        return self._weight.to_dense() if self.packed else self._weight

    def add_to(self, residual: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """residual + (x W^T + b); the residual is float32."""
        if self.packed and self._exact:
            return self._apply_add(x, residual, self._weight, self.bias, "add")
        return residual.add_(self(x))


@functools.cache
def _packed_kernel() -> tuple[Callable[..., Any], ...] | None:
    """oneDNN's (reorder, linear, linear-and-add), or None where this build of torch
    has them not, or where they give another result than a plain product."""
    try:
        reorder = torch.ops.mkldnn._reorder_linear_weight.default
        linear = torch.ops.mkldnn._linear_pointwise.default
        linear_add = torch.ops.mkldnn._linear_pointwise.binary
        for dtype, allowed in ((torch.float32, 1e-5), (torch.bfloat16, 0.1)):
            weight = (torch.arange(48 * 32) % 7 - 3).view(48, 32).to(dtype) / 4
            x = (torch.arange(5 * 32) % 5 - 2).view(5, 32).to(dtype)
            wanted = F.linear(x, weight).float()
            packed = reorder(weight, 16)
            found = linear(x, packed, None, "none", [], "").float()
            twice = linear_add(x, wanted.to(dtype), packed, None, "add").float()
            if (found - wanted).abs().max() > allowed:
                return None
            if dtype == torch.float32 and (twice - 2 * wanted).abs().max() > allowed:
                return None
    except (AttributeError, RuntimeError, NotImplementedError, TypeError):
        return None
    return reorder, linear, linear_add
