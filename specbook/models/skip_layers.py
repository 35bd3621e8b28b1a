"""A target that drafts with some of its own sublayers left out (section 0x05A).

Which ones a `SkipVector` says: an entry for the attention and one for the feed-forward
network of each layer. The *skipped path* runs the others, in their order, on the
target's own modules. Nothing is copied, patched or set aside: a path is an object
beside the target, so any number of vectors can be used at once, and the target's own
forward knows nothing of them.

The path has a cache of its own. Where it attends to committed tokens it reads what the
*full* path computed of them: at the start of a round it follows the target's session,
whose newly committed rows are copied for the attentions that the vector keeps. So
there is no second prefill. Rows that the path itself has computed are provisional: each
has a `Tag` that names the steps it went through, `state.publish` refuses it, and all of
them are dropped when the next round begins. Only the committed prefix is shared, and
verification computes every layer of every token (as the official code does).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from .. import checks
from ..errors import SpecbookError
from ..tree import CandidateTree
from .cache import TreeCache
from .layered import Layered
from .lean import LeanTarget, _State, _Weights
from .protocol import ContextLimitError
from .state import EMBEDDING, StateKey, Tag, ancestry, descend, layer_steps
from .target import (
    ModelSession,
    ModelTarget,
    TransformersTarget,
    UnsupportedTargetError,
    visibility,
)

SKIPPED_PATH = "skipped path"
"""The owner of the rows that a skipped path computes."""

MOST_LAYERS = 10_000
"""More than any target has: a damaged artifact must not ask for all the memory."""

MARKS = {
    (False, False): "-",
    (True, False): "a",
    (False, True): "m",
    (True, True): "x",
}
"""What the text form of a vector says of a layer's attention and its feed-forward
network: which of them are skipped."""


@dataclass(frozen=True)
class SkipVector:
    """Which sublayers are left out: z of section 0x05A, with 2L entries.

    `attention`, `mlp`: an entry for each of the L layers, True where the sublayer is
    skipped. The article gives z one entry a layer; the official code has two, and a
    whole layer is skipped where both are True. Raises `SpecbookError` for anything but
    two sequences of booleans, of one length of at least 1.
    """

    attention: tuple[bool, ...]
    mlp: tuple[bool, ...]

    def __post_init__(self) -> None:
        for name in ("attention", "mlp"):
            entries = checks.entries(getattr(self, name), name, "booleans")
            found = tuple(
                checks.boolean(entry, f"{name}[{layer}]")
                for layer, entry in enumerate(entries)
            )
            object.__setattr__(self, name, found)
        if len(self.attention) != len(self.mlp) or not self.attention:
            raise SpecbookError(
                f"a skip vector needs two entries a layer, got {len(self.attention)} "
                f"for attentions and {len(self.mlp)} for feed-forward networks"
            )

    @classmethod
    def nothing(cls, layers: int) -> SkipVector:
        """The vector that skips nothing: the path is the target itself."""
        checks.integer(layers, "layers", least=1, most=MOST_LAYERS)
        return cls((False,) * layers, (False,) * layers)

    @classmethod
    def whole_layers(cls, layers: int, skipped: Iterable[int]) -> SkipVector:
        """The vector that skips the layers of these numbers, both sublayers of each."""
        checks.integer(layers, "layers", least=1, most=MOST_LAYERS)
        entries = checks.entries(skipped, "skipped", "layer numbers")
        numbers = {
            checks.integer(entry, f"skipped[{place}]", least=0, most=layers - 1)
            for place, entry in enumerate(entries)
        }
        bits = tuple(layer in numbers for layer in range(layers))
        return cls(bits, bits)

    @classmethod
    def from_bits(cls, bits: Sequence[bool]) -> SkipVector:
        """The vector of 2L entries: attention and feed-forward network of the first
        layer, then those of the second, and so on."""
        found = checks.entries(bits, "bits", "booleans")
        if len(found) % 2:
            raise SpecbookError(
                f"a skip vector has two entries a layer, got {len(found)} in all"
            )
        return cls(tuple(found[::2]), tuple(found[1::2]))

    @classmethod
    def from_text(cls, text: str) -> SkipVector:
        """The vector that `str` gave."""
        pairs = {mark: pair for pair, mark in MARKS.items()}
        checks.text(text, "text")
        for layer, mark in enumerate(text):
            if mark not in pairs:
                raise SpecbookError(
                    f"layer {layer} of the skip vector {text!r} is {mark!r}, not one "
                    f"of {''.join(pairs)}"
                )
        found = [pairs[mark] for mark in text]
        return cls(tuple(a for a, _ in found), tuple(m for _, m in found))

    @classmethod
    def from_json(cls, told: Any) -> SkipVector:
        """The vector that `to_json` gave."""
        fields = {"layers", "attention", "mlp"}
        if not isinstance(told, Mapping) or set(told) != fields:
            raise SpecbookError(
                f"a skip vector has the fields {sorted(fields)}, got {told!r}"
            )
        layers = checks.integer(told["layers"], "layers", least=1)
        return cls(
            cls.whole_layers(layers, told["attention"]).attention,
            cls.whole_layers(layers, told["mlp"]).mlp,
        )

    def to_json(self) -> dict[str, Any]:
        """The number of layers, and those whose attention or whose feed-forward network
        is skipped."""
        return {
            "layers": self.layers,
            "attention": [i for i, skipped in enumerate(self.attention) if skipped],
            "mlp": [i for i, skipped in enumerate(self.mlp) if skipped],
        }

    def __str__(self) -> str:
        """One mark a layer: ``-`` for nothing skipped, ``a`` for the attention, ``m``
        for the feed-forward network, ``x`` for both."""
        return "".join(
            MARKS[pair] for pair in zip(self.attention, self.mlp, strict=True)
        )

    @property
    def layers(self) -> int:
        """L: how many layers the target has."""
        return len(self.attention)

    @property
    def bits(self) -> tuple[bool, ...]:
        """The 2L entries in the order of `from_bits`."""
        pairs = zip(self.attention, self.mlp, strict=True)
        return tuple(bit for pair in pairs for bit in pair)

    @property
    def skipped(self) -> int:
        """How many sublayers are left out."""
        return sum(self.bits)

    @property
    def attentions(self) -> tuple[int, ...]:
        """The layers whose attention is kept."""
        return tuple(i for i, skipped in enumerate(self.attention) if not skipped)

    @property
    def path(self) -> tuple[str, ...]:
        """The steps of the skipped path, as a `Tag` names them."""
        steps = layer_steps(0, self.layers)
        return (
            EMBEDDING,
            *(
                step
                for step, skipped in zip(steps, self.bits, strict=True)
                if not skipped
            ),
        )


def layer_count(target: Any) -> int:
    """How many layers `target` has. Raises `UnsupportedTargetError`, saying why, for a
    target none of whose sublayers can be left out."""
    if isinstance(target, LeanTarget):
        return len(target._weights.layers)
    if isinstance(target, TransformersTarget):
        return Layered(target.model).count
    raise UnsupportedTargetError(
        f"a {type(target).__name__} has no sublayers that could be left out"
    )


def check_vector(vector: Any, target: Any) -> None:
    """Raise `SpecbookError` unless `vector` is a skip vector for as many layers as
    `target` has, and as `layer_count` does."""
    if not isinstance(vector, SkipVector):
        raise SpecbookError(f"not a skip vector: {vector!r}")
    count = layer_count(target)
    if vector.layers != count:
        raise SpecbookError(
            f"the skip vector is for {vector.layers} layers, the target has {count}"
        )


class SkippedPath:
    """The drafting side of one request: `session` and the path that `vector` leaves.

    In a round: `begin`, then `grow` with each drafted token but the last. Both give the
    path's logits [V] after what it has read, float32 (float64 if the model is). The
    session's own rows, tokens and logits are left as they are. Raises as
    `check_vector`, and `UnsupportedTargetError` for a session whose committed rows do
    not lie in one cache.
    """

    def __init__(self, session: ModelSession, vector: SkipVector) -> None:
        if not isinstance(session, ModelSession):
            raise UnsupportedTargetError(
                f"a {type(session).__name__} has no layers of its own to leave out"
            )
        target = session.target
        check_vector(vector, target)
        self.session, self.vector = session, vector
        self._part = _part(target, vector)
        self._cache = self._part.new_state()
        if type(session._state) is not type(self._cache):
            raise UnsupportedTargetError(
                "the skipped path reads the committed rows of a plain session; a "
                f"{type(session).__name__} keeps them elsewhere"
            )
        self._dtype = str(target.dtype).removeprefix("torch.")
        self._path = vector.path
        self._followed = 0
        self._ancestry = ancestry([])
        """Of the rows that were followed."""
        self._before = self._ancestry
        """Of the next row."""
        self._tags: list[Tag] = []
        self._begun: int | None = None

    @property
    def ready(self) -> bool:
        """Whether there are committed rows to read. Before the first commit there are
        none: the prompt is the target's to read, once."""
        return self.session.committed > 0

    @property
    def followed(self) -> int:
        """Rows of the target that were copied."""
        return self._followed

    @property
    def tags(self) -> tuple[Tag, ...]:
        """Of the provisional rows of this round, in the order of their tokens. The path
        of a vector that skips nothing is the target's, and they say that too."""
        return tuple(self._tags)

    @torch.inference_mode()
    def begin(self) -> np.ndarray:
        """The path's logits after the pending token. The provisional rows of the last
        round are dropped, and the rows that the target has committed since are copied.
        Raises `SpecbookError` before the session's first commit."""
        session = self.session
        if not self.ready:
            raise SpecbookError(
                "the skipped path has no committed rows to read before the target's "
                "first commit"
            )
        self._drop()
        committed = session.committed
        if committed > self._followed:
            self._cache.append_from(
                session._state, self.vector.attentions, self._followed, committed
            )
            for token in session.tokens[self._followed : committed]:
                self._ancestry = descend(self._ancestry, token)
            self._followed = committed
        self._before, self._begun = self._ancestry, session.generation
        return self._read(session.tokens[committed:])

    @torch.inference_mode()
    def grow(self, token: int) -> np.ndarray:
        """The path's logits after one more drafted token. Raises `SpecbookError` when
        the round was not begun, and `ContextLimitError` for a token that would sit at
        or past the last position."""
        if self._begun != self.session.generation:
            raise SpecbookError("grow without a begin in this round")
        vocab = self.session.target.vocab_size
        return self._read(checks.token_ids([token], "token", vocab_size=vocab))

    def _read(self, ids: list[int]) -> np.ndarray:
        target = self.session.target
        first = self._followed + len(self._tags)
        limit = target.context_limit
        if limit is not None and first + len(ids) > limit:
            raise ContextLimitError(
                f"the skipped path would read a token at position "
                f"{first + len(ids) - 1}; the target's last position is {limit - 1}"
            )
        try:
            logits = self._part.run(self._cache, first, ids)
        except BaseException:
            # It may have written to some layers only.
            self._drop()
            raise
        for position, token in enumerate(ids, start=first):
            key = StateKey(
                checkpoint=target._checkpoint_identity,
                layer_boundary=self.vector.layers,
                token_id=token,
                position=position,
                ancestry_hash=self._before,
                dtype=self._dtype,
                cache_generation=self.session.generation,
            )
            self._before = descend(self._before, token)
            self._tags.append(Tag(key, self.vector.layers, SKIPPED_PATH, self._path))
        if logits.dtype not in (torch.float32, torch.float64):
            logits = logits.float()
        return logits.cpu().numpy()

    def _drop(self) -> None:
        self._cache.keep(self._followed, [])
        self._tags, self._begun = [], None


class _Part(Protocol):
    """A target without some of its sublayers."""

    def new_state(self) -> Any:
        """An empty cache for the attentions that are left."""

    def run(self, state: Any, first: int, ids: list[int]) -> torch.Tensor:
        """Logits [V] after the last of `ids`, which follow the `first` rows of `state`
        one after the other; their rows are appended."""


def _part(target: ModelTarget, vector: SkipVector) -> _Part:
    if isinstance(target, LeanTarget):
        return _LeanPart(target, vector)
    assert isinstance(target, TransformersTarget)  # `layer_count` knows these two
    return _LayeredPart(target, vector)


def _kept(skipped: Sequence[bool]) -> list[bool]:
    return [not entry for entry in skipped]


class _LayeredPart:
    def __init__(self, target: TransformersTarget, vector: SkipVector) -> None:
        self._target = target
        whole = Layered(target.model)
        self._layers = whole.only(_kept(vector.attention), _kept(vector.mlp))

    def new_state(self) -> TreeCache:
        return TreeCache()

    def run(self, state: TreeCache, first: int, ids: list[int]) -> torch.Tensor:
        target, layers = self._target, self._layers
        none = CandidateTree.from_rows([], [], first + len(ids))
        positions = target.position_rows(first, len(ids), none).to(target.device)
        mask = target.additive_mask(first, len(ids), none).to(target.device)
        tokens = torch.tensor([ids], device=target.device)
        rows = layers.embed(tokens, positions)
        rows = layers.run(rows, 0, layers.count, positions, mask, state)
        return layers.head(layers.final(rows)[:, -1:])[0, 0]


class _LeanPart:
    def __init__(self, target: LeanTarget, vector: SkipVector) -> None:
        self._weights: _Weights = target._weights.only(
            _kept(vector.attention), _kept(vector.mlp)
        )

    def new_state(self) -> _State:
        return _State(self._weights)

    def run(self, state: _State, first: int, ids: list[int]) -> torch.Tensor:
        visible = None
        if len(ids) > 1:
            visible = visibility(first, len(ids), np.zeros((0, 0), dtype=bool))
        positions = np.arange(first, first + len(ids))
        hidden = self._weights.run(state, ids, positions, visible)
        return self._weights.head_logits(hidden[-1:])[0]
