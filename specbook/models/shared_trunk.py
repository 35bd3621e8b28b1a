"""A target that shares its lowest layers with whoever drafts for it (section 0x05B).

The rows of the lowest l layers may be computed while drafting: `TrunkSession.draft`.
Verification then runs the layers above on the whole block and takes the shallow rows as
they are: their keys and values lie in the shallow layers' cache already, and their
features are what layer l reads. No shallow layer runs twice for a row.

Each row carries a `Tag`. A drafted row is taken only if all seven fields of what
verification needs agree (its own token, position, ancestry, ...) and its path is the
target's; any row that is needed and was not drafted is computed now, so a tree that
was cut, reordered or merged with another source's costs a little and changes nothing.
A commit publishes the kept rows by their tags, or is refused (section 0x05C).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from .. import checks
from ..errors import SpecbookError
from .cache import TreeCache
from .layered import Layered
from .protocol import (
    FRONTIER,
    CommitError,
    check_growth,
    check_path,
    check_prompt,
    check_tree,
)
from .state import (
    EMBEDDING,
    StateKey,
    Tag,
    TaggedRows,
    ancestry,
    check_reuse,
    descend,
    layer_steps,
    may_reuse,
    publish,
)
from .target import ModelSession, Seen, TransformersTarget

if TYPE_CHECKING:
    from ..tree import CandidateTree

TRUNK, TARGET = "shared trunk", "target"
"""Owners of rows at the boundary, and of rows that went through all layers."""


class SharedTrunkTarget(TransformersTarget):
    """A causal LM of transformers whose first `boundary` layers can be run ahead.

    `boundary`: 1 to the number of layers less one. The rest is as in
    `TransformersTarget`, self-test included. Raises `UnsupportedTargetError`, by name,
    for a family that `models.layered` does not know.
    """

    def __init__(
        self,
        model: Any,
        boundary: int,
        *,
        source: str | None = None,
        self_test: bool = True,
    ) -> None:
        self.layered = Layered(model)
        if self.layered.count < 2:
            raise SpecbookError("a model of one layer has no trunk to share")
        self.boundary = checks.integer(
            boundary, "boundary", least=1, most=self.layered.count - 1
        )
        self.forward_name = f"transformers, layer by layer, trunk of {boundary}"
        super().__init__(model, source=source, self_test=self_test)

    def start(self, prompt_ids: Sequence[int]) -> TrunkSession:
        """As `Target.start`."""
        tokens = check_prompt(prompt_ids, self.vocab_size, self.context_limit)
        return TrunkSession(self, tokens)

    def _new_state(self) -> Any:
        return TrunkState(self)

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
            dtype=str(self.dtype).removeprefix("torch."),
            cache_generation=generation,
        )

    def _run(
        self,
        state: Any,
        pending: list[int],
        tree: CandidateTree,
        done: int = 0,
        seen: Seen = None,
    ) -> torch.Tensor:
        needed = bool(pending) + len(tree) - done
        block = _Block(self, len(state), pending, tree, done, state)
        shallow = self._shallow(state, block)
        rows = self.layered.run(
            shallow.tensor[None],
            self.boundary,
            self.layered.count,
            block.positions.to(self.device),
            block.mask.to(self.device),
            state.deep,
        )
        state.verified(shallow, block, new=bool(pending))
        normed = self.layered.final(rows)
        if seen is not None:
            seen.append(normed[0])
        return self.layered.head(normed[:, -needed:])[0]

    def run_trunk(
        self, state: TrunkState, pending: list[int], tree: CandidateTree, done: int
    ) -> TaggedRows:
        """The shallow rows of `pending` and of the rows of `tree` from `done` on, put
        behind those that `state` has."""
        block = _Block(self, len(state.shallow), pending, tree, done, state)
        everything = list(range(len(block)))
        known = [*state.tags, *state.drafted.tags]
        new = self._compute(state, block, everything, block.mask, known)
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
        columns = torch.tensor([*range(base), *(base + row for row in order)])
        known: list[Any] = [*state.tags, *([None] * len(block))]
        for row, tag in zip(found, reused.tags, strict=True):
            known[base + row] = tag
        mask = block.mask[:, :, missing][..., columns]
        both = _join(reused, self._compute(state, block, missing, mask, known))
        back = [order.index(row) for row in range(len(block))]
        state.shallow.keep(base, [base + place for place in back])
        return both.take(back)

    def _compute(
        self,
        state: TrunkState,
        block: _Block,
        rows: list[int],
        mask: torch.Tensor,
        known: list[Any],
    ) -> TaggedRows:
        """The shallow rows `rows` of the block, computed. `known`: the tags of the rows
        that they may have as parents; the new ones are put in, too."""
        if not rows:
            return TaggedRows.none(state.drafted)
        positions = block.positions[:, rows].to(self.device)
        ids = torch.tensor([[block.ids[row] for row in rows]], device=self.device)
        features = self.layered.run(
            self.layered.embed(ids, positions),
            0,
            self.boundary,
            positions,
            mask.to(self.device),
            state.shallow,
        )[0]
        known += [None] * (block.base + len(block) - len(known))
        tags = []
        for row in rows:
            parent = block.parents[row]
            start = Tag(block.at(row, 0), self.layered.count, TARGET, (EMBEDDING,))
            tag = start.through(
                layer_steps(0, self.boundary),
                self.boundary,
                TRUNK,
                attended=[] if parent is None else [known[parent]],
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
        target: SharedTrunkTarget,
        base: int,
        pending: list[int],
        tree: CandidateTree,
        done: int,
        state: TrunkState,
    ) -> None:
        self.base, self._target, self._state = base, target, state
        self.ids = [*pending, *tree.token_ids[done:]]
        first, count = base - done, len(pending)
        self.positions = target.position_rows(first, count, tree, done)
        self.mask = target.additive_mask(first, count, tree, done)
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
        self.needs = [self.at(row, target.boundary) for row in range(len(self))]

    def __len__(self) -> int:
        return len(self.ids)

    def at(self, row: int, boundary: int) -> StateKey:
        """What row `row` is for at a layer boundary."""
        return self._target.key(
            self.ids[row],
            int(self.positions[0, row]),
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

    def __init__(self, target: SharedTrunkTarget) -> None:
        self.shallow, self.deep = TreeCache(), TreeCache()
        self.boundary, self.layers = target.boundary, target.layered.count
        self.tags: list[Tag] = []
        empty = torch.empty(
            (0, target.hidden_width), dtype=target.dtype, device=target.device
        )
        self.drafted = self.block = TaggedRows(empty, [])
        self.generation = 0
        self.hashes: list[str] = []

    def __len__(self) -> int:
        """Rows that went through all layers."""
        return self.deep.lengths()[-1] if self.deep.lengths() else 0

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
    """One request to a `SharedTrunkTarget`. See `ModelSession`."""

    target: SharedTrunkTarget

    def __init__(self, target: SharedTrunkTarget, tokens: list[int]) -> None:
        super().__init__(target, tokens)
        self._drafted: CandidateTree | None = None
        self._hashes = [ancestry([])]
        self._kept: TaggedRows | None = None

    @property
    def committed(self) -> int:
        """Rows of the cache that are published."""
        return self._base

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
                target.layered.count,
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
    tensor = torch.cat([first.tensor, second.tensor])
    return TaggedRows(tensor, [*first.tags, *second.tags])
