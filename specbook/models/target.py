"""A causal language model of transformers as a target for candidate trees.

One forward verifies a tree: the rows see the committed prefix and their own
ancestors, nothing else, and sit at the position that their depth gives them
(article, section 0x0C). Afterwards one root-to-node path is kept, wherever its rows
lie, and every sibling is dropped (section 0x0CB).

Wrong masks and positions are silent: the output stays fluent. So a target proves
itself before its first round. What its config says is checked first (a state that
cannot be rolled back, a window, alibi); then a small tree over random ids must give,
row for row and after every commit, the logits of plain forwards (`selftest`).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F

from .. import checks
from ..errors import ArtifactError, LawError, SpecbookError, TargetError
from . import selftest
from .cache import TreeCache, cache_argument, rollback_obstacle, sliding_windows
from .fetch import (
    file_sha256,
)
from .protocol import (
    FRONTIER,
    CommitError,
    check_eos,
    check_growth,
    check_path,
    check_policy,
    check_prompt,
    check_tree,
)

if TYPE_CHECKING:
    from ..policy import SamplingPolicy
    from ..tree import CandidateTree

_LIMIT_NAMES = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_sequence_length",
)


class UnsupportedTargetError(TargetError):
    """The model cannot verify trees exactly: its state cannot be rolled back, its
    attention is windowed, or its positions are not per row."""


# --------------------------------------------------------------- what is refused


def check_config(config: Any) -> None:
    """Raise `UnsupportedTargetError` for a config that this target cannot serve.

    Looked at before any weight is read: encoder-decoder models, recurrent or hybrid
    state, alibi (its bias follows the column, not the position), attention that is
    not causal, and windows that the context limit lets a request cross.
    """
    kind = getattr(config, "model_type", type(config).__name__)

    def refuse(why: str) -> UnsupportedTargetError:
        return UnsupportedTargetError(f"target of type {kind!r} is refused: {why}")

    if getattr(config, "is_encoder_decoder", False):
        raise refuse("it is an encoder-decoder, the book's targets are decoders")
    if getattr(config, "is_causal", True) is False:
        raise refuse("its attention is not causal")
    attention = getattr(config, "attn_config", None)
    nested = (
        attention.get("alibi")
        if isinstance(attention, Mapping)
        else getattr(attention, "alibi", False)
    )
    if kind == "bloom" or getattr(config, "alibi", False) or nested:
        raise refuse(
            "its alibi bias follows the column of a key, and in a tree a row's "
            "column is not its position"
        )
    if why := rollback_obstacle(config):
        raise refuse(f"{why}; refused candidates could not be rolled back")
    limit = context_limit(config)
    windows = sliding_windows(config)
    # GPT-Neo keeps its local layers to itself: its cache does not know of them.
    for layer, name in enumerate(getattr(config, "attention_layers", None) or ()):
        if name == "local":
            windows[layer] = int(config.window_size)
    for layer, window in sorted(windows.items()):
        if limit is None or window < limit:
            raise refuse(
                f"layer {layer} attends to a sliding window of {window} tokens, which "
                f"a context of {'any number of' if limit is None else limit} tokens "
                "can cross"
            )


def check_model(model: Any) -> None:
    """Raise `TargetError` for what is no model of transformers at all."""
    if not isinstance(model, torch.nn.Module) or not hasattr(model, "config"):
        raise TargetError(
            f"a transformers model is needed, got {type(model).__name__}; a name or a "
            "folder goes to load_target"
        )


def context_limit(config: Any) -> int | None:
    """How many positions the model has, from whichever field its family uses.

    A model whose rotary frequencies switch with the length ("longrope") is limited to
    the length of its first regime: rows cached before the switch would not fit those
    computed after it.
    """
    found = [
        value
        for name in _LIMIT_NAMES
        if isinstance(value := getattr(config, name, None), int) and value > 0
    ]
    rope = getattr(config, "rope_parameters", None) or {}
    if isinstance(rope, Mapping) and rope.get("rope_type") == "longrope":
        original = rope.get(
            "original_max_position_embeddings",
            getattr(config, "original_max_position_embeddings", None),
        )
        if original:
            found.append(int(original))
    return min(found, default=None)


# ------------------------------------------------------------------- the target


Seen = list[torch.Tensor] | None
"""Hidden rows that somebody wants to have, or None if nobody does."""


class ModelTarget:
    """What the generic and the lean target share: identity, text, sessions.

    A subclass supplies `_new_state()` (an empty cache with `keep(base, extra)`,
    `len()`), `_forward(state, pending, tree, seen) -> rows` and `_grow(state, tree,
    done, rows, seen) -> rows`, which computes the rows of `tree` from row `done` on.
    `seen`: None, or a list to which the states of all computed rows are appended, in
    order; `_read(states)` makes of them what the LM head reads.
    """

    gives_hidden = True

    config: Any
    vocab_size: int
    context_limit: int | None
    eos_token_id: int | tuple[int, ...] | None
    dtype: torch.dtype
    device: torch.device
    forward_name: str
    attention: str
    source: str | None = None
    """Folder or hub id that the weights came from, or None for a model in memory."""

    _bytes_per_row: int
    _head: str
    _checkpoint_identity: str
    _tokenizer_identity: str
    _in_memory: bool

    def start(self, prompt_ids: Sequence[int]) -> ModelSession:
        """A new request. ValueError: empty prompt, an id outside the vocabulary, or
        more tokens than the context limit."""
        tokens = check_prompt(prompt_ids, self.vocab_size, self.context_limit)
        return ModelSession(self, tokens)

    def _new_state(self) -> Any:
        raise NotImplementedError

    def _forward(
        self, state: Any, pending: list[int], tree: CandidateTree, seen: Seen = None
    ) -> Any:
        raise NotImplementedError

    def _grow(
        self,
        state: Any,
        tree: CandidateTree,
        done: int,
        rows: Any,
        seen: Seen = None,
    ) -> Any:
        raise NotImplementedError

    def _read(self, states: torch.Tensor) -> torch.Tensor:
        return states

    # ------------------------------------------------------------- for draft heads

    hidden_width: int

    def embed_tokens(self, ids: torch.Tensor) -> torch.Tensor:
        """As `HiddenTarget.embed_tokens`."""
        raise NotImplementedError

    def read_out(self, features: torch.Tensor) -> torch.Tensor:
        """As `HiddenTarget.read_out`."""
        raise NotImplementedError

    def cut_head(self, ids: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
        """As `HiddenTarget.cut_head`."""
        raise NotImplementedError

    # ---------------------------------------------------------------- identity

    def identity(self) -> dict[str, str]:
        """As `Target.identity`. Weights and tokenizer are bound by the content that
        was loaded: sha256 of their files at that time (a hub revision for a hub id,
        the tensors for a model in memory)."""
        import transformers

        return {
            "checkpoint": self._checkpoint_identity,
            "tokenizer": self._tokenizer_identity,
            "output_head": self._head,
            "dtype": str(self.dtype).removeprefix("torch."),
            "backend": (
                f"torch {torch.__version__}; transformers {transformers.__version__}; "
                f"forward {self.forward_name}; attention {self.attention}; "
                f"device {self.device}; threads {torch.get_num_threads()}"
            ),
        }

    def _bind(self, model: Any) -> None:
        """Say now what was loaded: a file that is overwritten later is another one."""
        revision = getattr(self.config, "_commit_hash", None)
        found = files_identity(self.source, revision)
        self._in_memory = found is None
        if found is None:
            found = (in_memory(self.config, model.state_dict()), "none")
        self._checkpoint_identity, self._tokenizer_identity = found

    def _check_unchanged(self) -> None:
        """Before something more is read from the source: is it still the same?"""
        revision = getattr(self.config, "_commit_hash", None)
        found = files_identity(self.source, revision)
        bound = (self._checkpoint_identity, self._tokenizer_identity)
        if found is not None and found != bound:
            raise ArtifactError(
                f"the files of {self.source} have changed since the target was loaded"
            )

    # -------------------------------------------------------------------- text

    @functools.cached_property
    def tokenizer(self) -> Any:
        """The checkpoint's own tokenizer, loaded on first use."""
        if self.source is None:
            raise TargetError("this target was made in memory; it has no tokenizer")
        from transformers import AutoTokenizer

        self._check_unchanged()
        try:
            return AutoTokenizer.from_pretrained(self.source, trust_remote_code=False)
        except (OSError, ValueError, ImportError) as problem:
            raise TargetError(
                f"{self.source} has no usable tokenizer: {problem}"
            ) from problem

    def encode(self, text: str) -> list[int]:
        """The ids of plain text, without special tokens added."""
        if not isinstance(text, str):
            raise SpecbookError(f"text must be a string, got {type(text).__name__}")
        _check_text(text, "text")
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def encode_chat(self, messages: Sequence[Mapping[str, str]] | str) -> list[int]:
        """The ids of a conversation, up to where the assistant's answer begins.

        `messages`: dicts with "role" and "content", or a string for one user turn.
        Raises `TargetError` when the tokenizer has no chat template.
        """
        if not isinstance(messages, Sequence):
            raise SpecbookError(f"messages must be a list of turns, got {messages!r}")
        turns: list[Any] = (
            [{"role": "user", "content": messages}]
            if isinstance(messages, str)
            else list(messages)
        )
        if not turns:
            raise SpecbookError("messages is empty")
        for index, message in enumerate(turns):
            if not isinstance(message, Mapping) or not {"role", "content"} <= set(
                message
            ):
                raise SpecbookError(
                    f"messages[{index}] needs 'role' and 'content', got {message!r}"
                )
            for key in ("role", "content"):
                _check_text(message[key], f"messages[{index}]'s {key}")
        if not getattr(self.tokenizer, "chat_template", None):
            raise TargetError(f"{self.source} has no chat template; use encode(text)")
        ids = self.tokenizer.apply_chat_template(
            turns, add_generation_prompt=True, tokenize=True, return_dict=True
        )["input_ids"]
        return [int(token) for token in ids]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens shown. Joined ids, never one by one: a
        character may span several tokens (case H08)."""
        ids = checks.token_ids(ids, "ids", vocab_size=self.vocab_size)
        return self.tokenizer.decode(ids, skip_special_tokens=False)


_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
)


def weight_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


def _files_sha256(folder: Path, names: Sequence[str]) -> str:
    """One digest over several files: of their names and digests, in order."""
    lines = [f"{name} {file_sha256(folder / name)}" for name in names]
    return "sha256:" + hashlib.sha256("\n".join(lines).encode("utf-8")).hexdigest()


def files_identity(source: str | None, revision: str | None) -> tuple[str, str] | None:
    """Identities of checkpoint and tokenizer as they are on disk, or at the hub. None
    where neither can say: a model in memory, or a hub id without a revision."""
    folder = None if source is None else Path(source)
    if folder is None or not folder.is_dir():
        return None if revision is None else (f"{source}@{revision}",) * 2
    names = ["config.json", *sorted(path.name for path in weight_files(folder))]
    try:
        checkpoint = f"{folder.name} {_files_sha256(folder, names)}"
        names = [name for name in _TOKENIZER_FILES if (folder / name).is_file()]
        tokenizer = _files_sha256(folder, names) if names else "none"
    except OSError as problem:
        raise ArtifactError(f"{folder} cannot be read: {problem}") from problem
    return checkpoint, tokenizer


def _check_text(value: Any, name: str) -> None:
    """Text that a tokenizer can read: half of a surrogate pair is none."""
    try:
        checks.text(value, name).encode("utf-8")
    except UnicodeEncodeError as problem:
        raise SpecbookError(f"{name} is not UTF-8 text: {problem.reason}") from None


def check_source(source: Any) -> str | None:
    """`source` as text: None, or the folder or hub id that a model came from."""
    if source is None:
        return None
    text = os.fspath(source) if isinstance(source, (str, os.PathLike)) else None
    if not isinstance(text, str) or not text.strip():
        raise SpecbookError(f"source must be a folder or a hub id, got {source!r}")
    return text


class ModelSession:
    """One request to a model. See `TargetSession`, `GrowingSession` and
    `HiddenSession`."""

    def __init__(self, target: ModelTarget, tokens: list[int]) -> None:
        self.target = target
        self.tokens = tokens
        self.generation = 0
        self._state = target._new_state()
        self._base = 0
        """Rows of committed tokens in the cache; `tokens[_base:]` is pending."""
        self._open: tuple[CandidateTree, Any] | None = None
        self._watched = False
        self._seen: Seen = None
        """States of the rows computed since the last commit, if they are watched."""
        self._committed: torch.Tensor | None = None

    @property
    def cached(self) -> int:
        """Rows in the cache: after a commit, always `len(tokens) - 1`. Between a
        verify and its commit it counts the tree's rows, too; an `extend` adds tokens
        and no rows."""
        return len(self._state)

    @property
    def committed(self) -> int:
        """Rows of the cache that are committed; they never change again."""
        return self._base

    @torch.inference_mode()
    def verify(self, tree: CandidateTree) -> Any:
        """As `TargetSession.verify`. A verify that was not followed by a commit is
        forgotten: the next one starts from the same prefix."""
        target = self.target
        check_tree(tree, len(self.tokens), target.vocab_size, target.context_limit)
        self._forget()
        self._seen = [] if self._watched else None
        pending = self.tokens[self._base :]
        try:
            rows = target._forward(self._state, pending, tree, self._seen)
        except BaseException:
            # A forward that broke off half-way has written to some layers only.
            self._state.keep(self._base, [])
            raise
        self._open = (tree, rows)
        return rows

    @torch.inference_mode()
    def grow(self, tree: CandidateTree) -> Any:
        """As `GrowingSession.grow`."""
        target = self.target
        opened, rows = self._open or (None, None)
        done = check_growth(opened, tree)
        check_tree(tree, len(self.tokens), target.vocab_size, target.context_limit)
        if len(tree) > done:
            before = len(self._state)
            seen: Seen = [] if self._watched else None
            try:
                rows = target._grow(self._state, tree, done, rows, seen)
            except BaseException:
                self._state.keep(before, [])
                raise
            if self._seen is not None and seen is not None:
                self._seen += seen
        self._open = (tree, rows)
        return rows

    @torch.inference_mode()
    def commit(self, rows: Sequence[int], token: int) -> None:
        """As `TargetSession.commit`."""
        if self._open is None:
            raise CommitError("commit without a verify before it")
        tree, _ = self._open
        path, token = check_path(tree, rows, token, self.target.vocab_size)
        length = len(self.tokens)
        kept = self._kept_rows(self._base, length, path)
        if self._seen is not None:
            # States were appended in the order in which rows were written.
            states = torch.cat(self._seen)
            places = [row - self._base for row in kept]
            self._committed = self.target._read(states[places])
            self._seen = None
        self._state.keep(self._base, kept)
        self.tokens.extend(tree.token_ids[row] for row in path)
        self._base = len(self.tokens)
        self.tokens.append(token)
        self.generation += 1
        self._open = None

    @torch.inference_mode()
    def extend(self, tokens: Sequence[int]) -> None:
        """As `GrowingSession.extend`."""
        found = checks.token_ids(tokens, vocab_size=self.target.vocab_size)
        self._forget()
        self.tokens += found
        self.generation += 1
        if self._committed is not None:
            self._committed = self._committed[:0]  # no row was added

    def watch_hidden(self) -> None:
        """As `HiddenSession.watch_hidden`."""
        if not self._watched and (self._base or self._open is not None):
            raise TargetError(
                "hidden states are asked for too late: rows have been computed"
            )
        self._watched = True

    def committed_hidden(self) -> torch.Tensor:
        """As `HiddenSession.committed_hidden`."""
        if not self._watched:
            raise TargetError("nobody asked to watch the hidden states")
        if self._committed is None:
            raise CommitError("hidden states of a commit before the first one")
        return self._committed

    def _forget(self) -> None:
        """Drop the rows of an open tree, if there is one, and of what was pending."""
        if self._open is not None:
            self._state.keep(self._base, [])
            self._open = None
        self._seen = None

    @staticmethod
    def _kept_rows(base: int, length: int, path: Sequence[int]) -> list[int]:
        """Cache rows to keep after the first `base`: those of the pending tokens,
        then the path's. Tree row r was written behind the prefix, at length + r."""
        return [*range(base, length), *(length + row for row in path)]

    def bytes_per_row(self) -> int:
        """As `TargetSession.bytes_per_row`."""
        return self.target._bytes_per_row

    def kv_bytes(self) -> tuple[int, int]:
        """Bytes of the keys and values held now, an open tree's among them, and of the
        memory that is allocated for them (section 0x09B)."""
        return self._state.payload_bytes(), self._state.allocated_bytes()


class TransformersTarget(ModelTarget):
    """Any full-attention causal LM of transformers. See `Target`.

    `model`: the loaded model; it is put into eval mode. `source`: the folder or hub
    id it came from, if any. `self_test`: compare a small tree with plain forwards now
    (a few short forwards), and raise `SelfTestError` when they differ.
    """

    forward_name = "transformers"

    def __init__(
        self, model: Any, *, source: str | None = None, self_test: bool = True
    ) -> None:
        check_model(model)
        check_config(model.config)
        checks.boolean(self_test, "self_test")
        self.model = model.eval()
        self.config = model.config
        self.source = check_source(source)
        if getattr(model, "_is_stateful", False):
            raise UnsupportedTargetError(
                f"{type(model).__name__} keeps a state that cannot be rolled back"
            )
        parameters = inspect.signature(model.forward).parameters
        argument = cache_argument(model.forward)
        if argument is None or "position_ids" not in parameters:
            raise UnsupportedTargetError(
                f"{type(model).__name__} takes no cache or no position_ids: rows of a "
                "tree could not be placed"
            )
        self._cache_argument = argument
        self._slices_head = "logits_to_keep" in parameters
        head = model.get_output_embeddings()
        if head is None:
            raise UnsupportedTargetError(f"{type(model).__name__} has no LM head")
        self.vocab_size = int(head.weight.shape[0])
        self.context_limit = context_limit(model.config)
        self.eos_token_id = end_tokens(model)
        self.dtype = head.weight.dtype
        self.device = head.weight.device
        self.attention = str(getattr(model.config, "_attn_implementation", "unknown"))
        embedding = model.get_input_embeddings()
        tied = embedding is not None and embedding.weight is head.weight
        self._head = describe_head(head.weight, tied)
        self.hidden_width = int(head.weight.shape[1])
        self.gives_hidden = embedding is not None and (
            embedding.weight.shape[1] == self.hidden_width
        )
        self._bytes_per_row = self._measure_row()
        self._bind(model)
        self._bound_stamp = tensors_stamp(model.state_dict())
        if self_test:
            plan = selftest.plan(self.vocab_size, self.context_limit, self.dtype)
            plan.check(self, plan.reference(self.plain_logits), self.dtype)

    @torch.inference_mode()
    def plain_logits(self, tokens: Sequence[int]) -> np.ndarray:
        """Logits [len(tokens), V], float32, of one forward with neither tree nor
        cache: the reference that every verified row must agree with."""
        tokens = check_prompt(tokens, self.vocab_size, self.context_limit)
        ids = torch.tensor([tokens], device=self.device)
        output = self.model(input_ids=ids, use_cache=False)
        return _to_numpy(output.logits[0])

    def _new_state(self) -> TreeCache:
        return TreeCache()

    def _forward(
        self,
        state: TreeCache,
        pending: list[int],
        tree: CandidateTree,
        seen: Seen = None,
    ) -> LogitRows:
        return LogitRows(self._run(state, pending, tree, 0, seen))

    def _grow(
        self,
        state: TreeCache,
        tree: CandidateTree,
        done: int,
        rows: LogitRows,
        seen: Seen = None,
    ) -> LogitRows:
        new = self._run(state, [], tree, done, seen)
        return LogitRows(torch.cat([rows._logits, new]))

    def _run(
        self,
        state: TreeCache,
        pending: list[int],
        tree: CandidateTree,
        done: int = 0,
        seen: Seen = None,
    ) -> torch.Tensor:
        """Logits of the last pending token, if there is one, and of the tree's rows
        from `done` on; the rows before it lie in `state`."""
        base = len(state) - done
        needed = bool(pending) + len(tree) - done
        arguments: dict[str, Any] = {
            "input_ids": torch.tensor(
                [[*pending, *tree.token_ids[done:]]], device=self.device
            ),
            "attention_mask": self._mask(base, len(pending), tree, done),
            **state.arguments(self._cache_argument),
        }
        positions = self._positions(base, len(pending), tree, done)
        if positions is not None:
            arguments["position_ids"] = positions
        if seen is not None:
            with head_inputs(self.model, needed, seen):
                return self.model(**arguments).logits[0, -needed:]
        if self._slices_head:
            # The head is the widest matrix of a small model: only the rows whose law
            # somebody may ask for, the pending token's and the tree's.
            arguments["logits_to_keep"] = needed
        return self.model(**arguments).logits[0, -needed:]

    @torch.inference_mode()
    def embed_tokens(self, ids: torch.Tensor) -> torch.Tensor:
        """As `HiddenTarget.embed_tokens`."""
        found = checked_ids(ids, self.vocab_size).to(self.device)
        return self.model.get_input_embeddings().weight[found]

    @torch.inference_mode()
    def read_out(self, features: torch.Tensor) -> torch.Tensor:
        """As `HiddenTarget.read_out`."""
        head = self.model.get_output_embeddings()
        return head(features.to(self.device, self.dtype))

    @torch.inference_mode()
    def cut_head(self, ids: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
        """As `HiddenTarget.cut_head`: the rows as they are now."""
        head = self.model.get_output_embeddings()
        rows = checked_ids(ids, self.vocab_size).to(self.device)
        weight, bias = head.weight[rows], getattr(head, "bias", None)
        bias = None if bias is None else bias[rows]
        return lambda features: F.linear(features.to(weight), weight, bias)

    def _positions(
        self, base: int, pending: int, tree: CandidateTree, done: int = 0
    ) -> torch.Tensor | None:
        return self.position_rows(base, pending, tree, done).to(self.device)

    def position_rows(
        self, base: int, pending: int, tree: CandidateTree, done: int = 0
    ) -> torch.Tensor:
        """Position ids [1, pending + N] on the CPU: by depth, never by row number
        (case H09)."""
        rows = [*range(base, base + pending), *tree.position_ids[done:]]
        return torch.tensor([rows])

    def _mask(
        self, base: int, pending: int, tree: CandidateTree, done: int = 0
    ) -> torch.Tensor:
        return self.additive_mask(base, pending, tree, done).to(self.device)

    def additive_mask(
        self, base: int, pending: int, tree: CandidateTree, done: int = 0
    ) -> torch.Tensor:
        """The mask [1, 1, pending + N - done, base + pending + N] on the CPU.

        Additive and in the model's dtype: under eager attention a boolean mask is
        added as 0 and 1, and the tree silently leaks.
        """
        return additive(visibility(base, pending, tree.tree_mask[done:]), self.dtype)

    def _measure_row(self) -> int:
        """Bytes of one cache row, read off a one-token forward."""
        state = TreeCache()
        with torch.inference_mode():
            self.model(
                input_ids=torch.zeros((1, 1), dtype=torch.long, device=self.device),
                **state.arguments(self._cache_argument),
            )
        return state.bytes_per_row()

    def identity(self) -> dict[str, str]:
        """As `Target.identity`. The model stays within the caller's reach, so its
        tensors are looked at each time. Those of a model in memory are hashed; of one
        from a folder, torch's counters of changes in place are compared (hashing
        would cost a second a request), which changes by way of `.data` or of a numpy
        view escape."""
        config, state = self.config, self.model.state_dict()
        self.attention = str(getattr(config, "_attn_implementation", "unknown"))
        about = super().identity()
        if self._in_memory:
            about["checkpoint"] = in_memory(config, state)
        elif tensors_stamp(state) != self._bound_stamp:
            changed = tensors_sha256(config, state)
            about["checkpoint"] += f", changed in memory: {changed}"
        return about

    def transformers_model(self) -> Any:
        """The transformers model that this target runs on."""
        return self.model


@contextlib.contextmanager
def head_inputs(model: Any, needed: int, seen: list[torch.Tensor]) -> Iterator[None]:
    """Within it, a forward of `model` over one sequence appends to `seen` what its LM
    head is about to read, all rows [n, d], and the head gets the last `needed` alone.

    So where a family norms its states, and what it calls them, need not be known.
    Raises `TargetError` when the head was not called on them once.
    """
    before = len(seen)

    def keep(module: Any, inputs: tuple[torch.Tensor, ...]) -> Any:
        if not inputs:
            return None  # a family that hands its states over by name
        seen.append(inputs[0][0])
        return (inputs[0][:, -needed:], *inputs[1:])

    hook = model.get_output_embeddings().register_forward_pre_hook(keep)
    try:
        yield
    finally:
        hook.remove()
    if len(seen) != before + 1:
        raise TargetError(
            f"{type(model).__name__} does not call its LM head on the hidden states "
            "once a forward, so they cannot be read there"
        )


def checked_ids(ids: Any, vocab_size: int) -> torch.Tensor:
    """`ids`, checked to be an int64 tensor of ids below `vocab_size`: a negative one
    would count rows from the end, silently. Raises `TargetError`."""
    if not isinstance(ids, torch.Tensor) or ids.dtype != torch.int64:
        raise TargetError(f"ids must be an int64 tensor, got {ids!r}")
    if ids.numel():
        least, most = (int(one) for one in torch.aminmax(ids))
        if least < 0 or most >= vocab_size:
            raise TargetError(
                f"ids has {least if least < 0 else most}, the target's are 0 .. "
                f"{vocab_size - 1}"
            )
    return ids


class LogitRows:
    """Raw logits [1 + N, V] of the frontier and the tree's rows. See `TargetRows`."""

    def __init__(self, logits: torch.Tensor) -> None:
        self._logits = logits

    def __len__(self) -> int:
        """Rows of the tree (the frontier is not counted)."""
        return self._logits.shape[0] - 1

    def _row(self, row: int) -> torch.Tensor:
        row = checks.integer(
            row, "row", least=FRONTIER, most=len(self) - 1, error=LawError
        )
        return self._logits[row + 1]

    def prepare(self, row: int) -> None:
        """As `TargetRows.prepare`."""
        self._row(row)

    def logits(self, row: int) -> np.ndarray:
        """Logits [V] of the children of `row`, float32 (float64 if the model is)."""
        return _to_numpy(self._row(row))

    def law(self, row: int, policy: SamplingPolicy) -> np.ndarray:
        """As `TargetRows.law`. At temperature 0 it is the argmax, and no exponential
        is computed."""
        return check_policy(policy).law_from_logits(self.logits(row), _where(row))

    def argmax(self, row: int) -> int:
        """The greedy token after `row`, lowest id on ties, with no law made of it.
        A broken row raises `LawError` like `law` does."""
        logits = self._row(row)
        best = int(torch.argmax(logits))
        # NaN and plus infinity win an argmax; minus infinity wins only if alone.
        if not bool(torch.isfinite(logits[best])):
            raise LawError(
                f"{_where(row)}: the target's logits have {float(logits[best])} at "
                f"token {best}"
            )
        return best


def _where(row: int) -> str:
    return "the frontier row" if row == FRONTIER else f"row {row}"


def _to_numpy(tensor: torch.Tensor) -> np.ndarray:
    if tensor.dtype not in (torch.float32, torch.float64):
        tensor = tensor.float()
    return tensor.cpu().numpy()


def visibility(base: int, pending: int, tree_mask: np.ndarray) -> np.ndarray:
    """Boolean [pending + n, base + pending + N]: which columns each row may see.

    Pending tokens are a causal chain behind `base` cached rows; tree rows see all of
    both, themselves and their ancestors (article, section 0x0C). `tree_mask` [n, N]:
    the last n rows of the tree's own mask, where the first N - n are cached too.
    """
    rows, columns = tree_mask.shape
    visible = np.zeros((pending + rows, base + pending + columns), dtype=bool)
    visible[:, :base] = True
    visible[:pending, base : base + pending] = np.tri(pending, dtype=bool)
    visible[pending:, base : base + pending] = True
    visible[pending:, base + pending :] = tree_mask
    return visible


def additive(visible: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    """What `visible` [n, columns] adds to the scores: [1, 1, n, columns], 0 or the
    least number of `dtype`."""
    seen = torch.from_numpy(visible)
    mask = torch.zeros(seen.shape, dtype=dtype)
    mask.masked_fill_(~seen, torch.finfo(dtype).min)
    return mask[None, None]


def describe_head(weight: torch.Tensor, tied: bool) -> str:
    """The output head as the manifest names it."""
    kind = "tied to the embeddings" if tied else "own weights"
    return f"{weight.shape[0]} x {weight.shape[1]}, {kind}"


def in_memory(config: Any, state: Mapping[str, torch.Tensor]) -> str:
    """The checkpoint identity of a model that no file or revision stands for."""
    return f"in memory: {type(config).__name__} {tensors_sha256(config, state)}"


def tensors_stamp(state: Mapping[str, torch.Tensor]) -> list[tuple[Any, ...]]:
    """What changes with a tensor, short of reading it: where it lies, its form, and
    how often it was written to. Inference tensors do not count their changes."""
    return [
        (
            name,
            tensor.data_ptr(),
            tensor.dtype,
            tuple(tensor.shape),
            None if tensor.is_inference() else tensor._version,
        )
        for name, tensor in state.items()
    ]


def tensors_sha256(config: Any, state: Mapping[str, torch.Tensor]) -> str:
    """A digest of a model in memory: its config and every tensor, by name."""
    digest = hashlib.sha256(
        json.dumps(config.to_dict(), sort_keys=True, default=str).encode("utf-8")
    )
    for name, tensor in sorted(state.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().tobytes())
    return f"sha256:{digest.hexdigest()}"


def end_tokens(model: Any) -> int | tuple[int, ...] | None:
    config = getattr(model, "generation_config", None)
    value = getattr(config, "eos_token_id", None)
    if value is None:
        value = getattr(model.config, "eos_token_id", None)
    return check_eos(value, None)
