"""Sharing the lowest layers of a target with whoever drafts for it (section 0x05B).

The rows of the lowest l layers may be computed while drafting: `TrunkSession.draft`.
Verification then runs the layers above on the whole block and takes the shallow rows as
they are: their keys and values lie in the shallow layers' cache already, and their
features are what layer l reads. No shallow layer runs twice for a row.

Each row carries a `Tag`. A drafted row is taken only if all seven fields of what
verification needs agree (its own token, position, ancestry, ...) and its path is the
target's; any row that is needed and was not drafted is computed now, so a tree that
was cut, reordered or merged with another source's costs a little and changes nothing.
A commit publishes the kept rows by their tags, or is refused (section 0x05C).

This is written once, for any target whose layers come in two halves: `shared_trunk` has
the generic target's, `lean_trunk` the lean one's.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from .. import checks
from ..errors import SpecbookError
from .protocol import (
    FRONTIER,
    CommitError,
    check_growth,
    check_path,
    check_prompt,
    check_tree,
)
from .state import (
    StateKey,
    Tag,
    TaggedRows,
    ancestry,
    check_reuse,
    descend,
    full_path,
    layer_steps,
    may_reuse,
    publish,
    taint_of,
)
from .target import ModelSession, ModelTarget, visibility

if TYPE_CHECKING:
    from ..tree import CandidateTree

TRUNK, TARGET = "shared trunk", "target"
"""Owners of rows at the boundary, and of rows that went through all layers."""


class RowCache(Protocol):
    """Keys and values of some layers, of one request."""

    def __len__(self) -> int: ...
    def keep(self, base: int, extra: Sequence[int]) -> None:
        """As `TreeCache.keep`."""
        ...

    def payload_bytes(self) -> int:
        """Of the rows that hold."""
        ...

    def allocated_bytes(self) -> int:
        """Of the memory behind them."""
        ...


class Half(Protocol):
    """The layers below the boundary, or those above it."""

    def cache(self) -> Any:
        """An empty `RowCache` for these layers."""
        ...

    def run(
        self, rows: torch.Tensor, positions: np.ndarray, visible: np.ndarray, cache: Any
    ) -> torch.Tensor:
        """Rows [n, d] above the layers from those below them. Their keys and values are
        appended to `cache`. `positions` [n]; `visible`: boolean [n, cached + n]."""
        ...


class TrunkTarget(ModelTarget):
    """A target whose first `boundary` layers can be run ahead of the others.

    `layer_count`: of the whole target. `feature_dtype`: of the rows between layers.
    `norm_weight` [d]: of the final norm. A form calls `_share` with its two halves and
    supplies `_embed`; the rest of it is the target that it is a form of.
    """

    boundary: int
    layer_count: int
    feature_dtype: torch.dtype
    norm_weight: torch.Tensor
    shallow: Half
    deep: Half

    def start(self, prompt_ids: Sequence[int]) -> TrunkSession:
        """As `Target.start`."""
        tokens = check_prompt(prompt_ids, self.vocab_size, self.context_limit)
        return TrunkSession(self, tokens)

    def _new_state(self) -> Any:
        return TrunkState(self)

    def _embed(self, ids: list[int], positions: np.ndarray) -> torch.Tensor:
        """Rows [n, d] below the first layer."""
        raise NotImplementedError

    def key(
        self, token: int, position: int, before: str, generation: int, boundary: int
    ) -> StateKey:
        """What a row at `boundary` of this target is for."""
        return StateKey(
            checkpoint=self._checkpoint_identity,
            layer_boundary=boundary,
            token_id=token,
            position=position,
            ancestry_hash=before,
            dtype=str(self.feature_dtype).removeprefix("torch."),
            cache_generation=generation,
        )

    def run_block(
        self, state: TrunkState, pending: list[int], tree: CandidateTree, done: int
    ) -> torch.Tensor:
        """Rows [n, d] above the last layer, of `pending` and of the rows of `tree` from
        `done` on; the rows before them lie in `state`."""
        block = _Block(self, len(state), pending, tree, done, state)
        shallow = self._shallow(state, block)
        rows = self.deep.run(shallow.tensor, block.positions, block.visible, state.deep)
        state.verified(shallow, block, new=bool(pending))
        return rows

    def run_trunk(
        self, state: TrunkState, pending: list[int], tree: CandidateTree, done: int
    ) -> TaggedRows:
        """The shallow rows of `pending` and of the rows of `tree` from `done` on, put
        behind those that `state` has."""
        block = _Block(self, len(state.shallow), pending, tree, done, state)
        everything = list(range(len(block)))
        known = [*state.tags, *state.drafted.tags]
        new = self._compute(state, block, everything, block.visible, known)
        state.drafted = _join(state.drafted, new)
        return new

    def _shallow(self, state: TrunkState, block: _Block) -> TaggedRows:
        """The shallow rows of a block, drafted or computed now, in its order. The
        shallow layers' cache holds these behind the deep rows, and no others."""
        base, drafted = len(state), state.drafted
        places = {_name(tag.key): place for place, tag in enumerate(drafted.tags)}
        found: list[int] = []  # rows of the block
        taken: list[int] = []  # and their places among the drafted
        missing: list[int] = []
        for row, need in enumerate(block.needs):
            place = places.get(_name(need))
            if place is None or not may_reuse(drafted.tags[place].key, need):
                missing.append(row)
                continue
            check_reuse(drafted.tags[place], need)
            found.append(row)
            taken.append(place)
        state.shallow.keep(base, [base + place for place in taken])
        reused = drafted.take(taken)
        state.drafted = TaggedRows.none(drafted)
        if not missing:
            return reused
        # The missing rows lie behind the found ones for now, so their columns do, too.
        order = [*found, *missing]
        columns = [*range(base), *(base + row for row in order)]
        known: list[Any] = [*state.tags, *([None] * len(block))]
        for row, tag in zip(found, reused.tags, strict=True):
            known[base + row] = tag
        visible = block.visible[missing][:, columns]
        both = _join(reused, self._compute(state, block, missing, visible, known))
        back = [order.index(row) for row in range(len(block))]
        state.shallow.keep(base, [base + place for place in back])
        return both.take(back)

    def _compute(
        self,
        state: TrunkState,
        block: _Block,
        rows: list[int],
        visible: np.ndarray,
        known: list[Any],
    ) -> TaggedRows:
        """The shallow rows `rows` of the block, computed. `known`: the tags of the rows
        that they may have as parents; the new ones are put in, too."""
        if not rows:
            return TaggedRows.none(state.drafted)
        positions = block.positions[rows]
        embedded = self._embed([block.ids[row] for row in rows], positions)
        features = self.shallow.run(embedded, positions, visible, state.shallow)
        known += [None] * (block.base + len(block) - len(known))
        tags = []
        for row in rows:
            parent = block.parents[row]
            attended = [] if parent is None else [known[parent]]
            tag = Tag(
                block.at(row, self.boundary),
                self.layer_count,
                TRUNK,
                full_path(self.boundary),
                taint_of(attended),
            )
            known[block.base + row] = tag
            tags.append(tag)
        return TaggedRows(features, tags)


class _Block:
    """The rows of one forward: what they are for, where they lie, whom they follow.

    `base`: rows cached before them. `parents`: for each row the number, in the cache,
    of the row that it follows (None: it begins the text).
    """

    def __init__(
        self,
        target: TrunkTarget,
        base: int,
        pending: list[int],
        tree: CandidateTree,
        done: int,
        state: TrunkState,
    ) -> None:
        self.base, self._target, self._state = base, target, state
        self.ids = [*pending, *tree.token_ids[done:]]
        first, count = base - done, len(pending)
        self.positions = np.array(
            [*range(first, first + count), *tree.position_ids[done:]], int
        )
        self.visible = visibility(first, count, tree.tree_mask[done:])
        frontier = first + count - 1
        self.parents: list[int | None] = [
            row - 1 if row else None for row in range(first, first + count)
        ]
        before = [state.hashes[first + row] for row in range(count)]
        paths: list[str] = []
        for row, parent in enumerate(tree.parents):
            if parent == FRONTIER:
                paths.append(state.hashes[-1])
            else:
                paths.append(descend(paths[parent], tree.token_ids[parent]))
            if row >= done:
                self.parents.append(
                    frontier if parent == FRONTIER else frontier + 1 + parent
                )
        self._before = [*before, *paths[done:]]

    def __len__(self) -> int:
        return len(self.ids)

    @functools.cached_property
    def needs(self) -> list[StateKey]:
        """What verification needs at the boundary, row by row."""
        return [self.at(row, self._target.boundary) for row in range(len(self))]

    def at(self, row: int, boundary: int) -> StateKey:
        """What row `row` is for at a layer boundary."""
        return self._target.key(
            self.ids[row],
            int(self.positions[row]),
            self._before[row],
            self._state.generation,
            boundary,
        )


class TrunkState:
    """Two caches of one request: of the shallow layers and of those above.

    `tags`: of the rows of the deep cache, which are the first rows of the shallow one.
    `drafted`: features and tags of the rows behind them in the shallow cache.
    `block`: the shallow features of the rows that were verified last, or kept of them.
    `generation`, `hashes`: the session's; entry i of `hashes` is the ancestry of
    token i, and there is one more than tokens.
    """

    def __init__(self, target: TrunkTarget) -> None:
        self.shallow: RowCache = target.shallow.cache()
        self.deep: RowCache = target.deep.cache()
        self.boundary, self.layers = target.boundary, target.layer_count
        self.tags: list[Tag] = []
        empty = torch.empty(
            (0, target.hidden_width), dtype=target.feature_dtype, device=target.device
        )
        self.drafted = self.block = TaggedRows(empty, [])
        self.generation = 0
        self.hashes: list[str] = []

    def __len__(self) -> int:
        """Rows that went through all layers."""
        return len(self.tags)

    def verified(self, shallow: TaggedRows, block: _Block, *, new: bool) -> None:
        """The rows of a block have gone through the layers above. `new`: they begin
        another block, otherwise they continue the last."""
        known: list[Tag] = [*self.tags]
        for row, tag in enumerate(shallow.tags):
            parent = block.parents[row]
            known.append(
                tag.through(
                    layer_steps(self.boundary, self.layers),
                    self.layers,
                    TARGET,
                    attended=[] if parent is None else [known[parent]],
                )
            )
        self.tags = known
        self.block = shallow if new else _join(self.block, shallow)

    def keep(self, base: int, extra: Sequence[int]) -> None:
        """As `TreeCache.keep`; drafted rows are dropped."""
        start = len(self.tags) - len(self.block)
        self.shallow.keep(base, extra)
        self.deep.keep(base, extra)
        self.tags = self.tags[:base] + [self.tags[row] for row in extra]
        self.block = self.block.take([row - start for row in extra])
        self.drafted = TaggedRows.none(self.drafted)

    def payload_bytes(self) -> int:
        """As `TreeCache.payload_bytes`."""
        return self.shallow.payload_bytes() + self.deep.payload_bytes()

    def allocated_bytes(self) -> int:
        """As `TreeCache.allocated_bytes`."""
        return self.shallow.allocated_bytes() + self.deep.allocated_bytes()


class TrunkSession(ModelSession):
    """One request to a `TrunkTarget`. See `ModelSession`."""

    target: TrunkTarget

    def __init__(self, target: TrunkTarget, tokens: list[int]) -> None:
        super().__init__(target, tokens)
        self._drafted: CandidateTree | None = None
        self._hashes = [ancestry([])]
        self._kept: TaggedRows | None = None

    @torch.inference_mode()
    def draft(self, tree: CandidateTree) -> TaggedRows:
        """Shallow features [n, d], with their tags, of the rows that are new: of the
        pending tokens the first time in a round, and of the rows by which `tree` is
        longer than the last one drafted. A drafter has the whole tree's rows computed
        so, the last one's too: verification needs them all.

        An open tree is forgotten. Raises as `GrowingSession.grow` does.
        """
        target = self.target
        check_tree(tree, len(self.tokens), target.vocab_size, target.context_limit)
        pending, done = self.tokens[self._base :], 0
        if self._drafted is not None and self._open is None:
            pending, done = [], check_growth(self._drafted, tree)
        self._forget()
        try:
            rows = target.run_trunk(self._current(), pending, tree, done)
        except BaseException:
            # It may have written to some layers only.
            self._state.keep(self._base, [])
            self._drafted = None
            raise
        self._drafted = tree
        return rows

    def forget_draft(self) -> None:
        """Drop the drafted rows, if there are any. The pending tokens' are dropped with
        them: the next `draft` begins anew."""
        if self._drafted is not None:
            self._state.keep(self._base, [])
        self._drafted = None

    @torch.inference_mode()
    def verify(self, tree: CandidateTree) -> Any:
        """As `TargetSession.verify`, with the drafted rows reused."""
        state = self._current()
        try:
            return super().verify(tree)
        finally:
            # A tree that is refused beforehand leaves the drafted rows as they were.
            if not len(state.drafted):
                self._drafted = None

    @torch.inference_mode()
    def commit(self, rows: Sequence[int], token: int) -> None:
        """As `TargetSession.commit`. The kept rows are published: `StateError` if one
        of them is not the target's own row of its token, and nothing is changed."""
        if self._open is None:
            raise CommitError("commit without a verify before it")
        tree, _ = self._open
        path, token = check_path(tree, rows, token, self.target.vocab_size)
        state, base, length = self._state, self._base, len(self.tokens)
        kept = self._kept_rows(base, length, path)
        published = publish([state.tags[row] for row in kept], self._needs(tree, path))
        super().commit(path, token)
        state.tags[base:] = published
        self._kept = state.block

    @torch.inference_mode()
    def extend(self, tokens: Sequence[int]) -> None:
        """As `GrowingSession.extend`; drafted rows are forgotten."""
        super().extend(tokens)
        self.forget_draft()
        if self._kept is not None:
            self._kept = TaggedRows.none(self._kept)

    def committed_shallow(self) -> TaggedRows:
        """Shallow features [n, d] of the rows that the last commit added to the cache,
        in the order of their tokens. Raises `CommitError` before the first commit."""
        if self._kept is None:
            raise CommitError("shallow rows of a commit before the first one")
        return self._kept

    def _needs(self, tree: CandidateTree, path: Sequence[int]) -> list[StateKey]:
        """What the committed cache needs behind its rows: said by the tokens alone, so
        that it does not rest on what it is compared with."""
        target = self.target
        tokens = [*self.tokens, *(tree.token_ids[row] for row in path)]
        hashes = list(self._hashes)
        _link(hashes, tokens)
        return [
            target.key(
                tokens[place],
                place,
                hashes[place],
                self.generation,
                target.layer_count,
            )
            for place in range(self._base, len(tokens))
        ]

    def _current(self) -> Any:
        """The state, told what the session is at."""
        _link(self._hashes, self.tokens)
        self._state.generation = self.generation
        self._state.hashes = self._hashes
        return self._state


def _link(hashes: list[str], tokens: Sequence[int]) -> None:
    """Make `hashes` one longer than `tokens`."""
    for token in tokens[len(hashes) - 1 :]:
        hashes.append(descend(hashes[-1], token))


def _name(key: StateKey) -> tuple[int, int, str]:
    """What tells the rows of one round apart."""
    return key.token_id, key.position, key.ancestry_hash


def _join(first: TaggedRows, second: TaggedRows) -> TaggedRows:
    if not len(first) or not len(second):
        return first if len(first) else second
    tensor = torch.cat([first.tensor, second.tensor])
    return TaggedRows(tensor, [*first.tags, *second.tags])


def checked_boundary(boundary: int, count: int) -> int:
    """`boundary`, if it leaves at least one of `count` layers on both sides."""
    if checks.integer(count, "count", least=0) < 2:
        raise SpecbookError("a model of one layer has no trunk to share")
    return checks.integer(boundary, "boundary", least=1, most=count - 1)
