"""Candidate trees: merge by full prefix, flatten, mask, address (sections 0x07, 0x0F).

Three coordinates must not be confused. A candidate's *own row* is where the target
reads its token and writes its KV; its *predictor row* is its parent's row, whose
output is the law that scores it; its *position* follows its depth, not its row.

Depth counts edges from the committed prefix, so a first candidate has depth 1. The
prefix itself is no row; as a parent it is `PREFIX_FRONTIER`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from . import checks
from .errors import TreeError
from .proposal import PREFIX_FRONTIER, Proposal

ORDERS = ("breadth", "depth")
MAX_MASK = 1 << 34
"""Entries of a mask (16 GiB). A larger one is a mistake, and no machine's memory should
be what finds it."""


@dataclass(frozen=True)
class SourceMark:
    """One source's claim on a row. A merged row keeps one for each claim, so no
    source's q or score is lost or averaged away.

    `law` is the proposal node's; `draw` counts the nodes of all merged proposals, so
    that the order in which siblings were drawn outlives the merge.
    """

    source: str
    q: Any = None
    score: Any = None
    state_owner: str = ""
    origin_request: str = ""
    law: Any = field(default=None, repr=False, compare=False)
    draw: int = field(default=0, repr=False, compare=False)


@dataclass(frozen=True)
class CandidateTree:
    """N candidate rows over a committed prefix; immutable and always valid.

    `token_ids`, `parents`, `depths`: N entries each, parents before their children.
    `prefix_len`: tokens committed before the tree, at least 0. `sources`: a tuple of
    `SourceMark`s for each row. Build one with `from_paths`, `from_proposals` or
    `from_rows`. A malformed tree raises `TreeError` here, before any target call.
    """

    token_ids: tuple[int, ...]
    parents: tuple[int, ...]
    depths: tuple[int, ...]
    prefix_len: int
    sources: tuple[tuple[SourceMark, ...], ...] = field(default=())

    def __post_init__(self) -> None:
        tokens = checks.token_ids(self.token_ids, "token_ids", error=TreeError)
        object.__setattr__(self, "token_ids", tuple(tokens))
        for name in ("parents", "depths"):
            values = _integers(getattr(self, name), name)
            if len(values) != len(tokens):
                raise TreeError(f"{len(values)} {name} for {len(tokens)} rows")
            object.__setattr__(self, name, values)
        prefix_len = checks.integer(
            self.prefix_len, "prefix_len", least=0, error=TreeError
        )
        object.__setattr__(self, "prefix_len", prefix_len)
        marks = checks.entries(self.sources, "sources", "source lists", TreeError)
        marks = marks or [()] * len(tokens)
        if len(marks) != len(tokens):
            raise TreeError(f"{len(marks)} source lists for {len(tokens)} rows")
        for row, claims in enumerate(marks):
            if not isinstance(claims, tuple) or not all(
                isinstance(claim, SourceMark) for claim in claims
            ):
                raise TreeError(f"sources[{row}] is no tuple of SourceMarks")
        object.__setattr__(self, "sources", tuple(marks))
        self._check_structure()

    def _check_structure(self) -> None:
        seen: set[tuple[int, int]] = set()
        for row, (token, parent, depth) in enumerate(
            zip(self.token_ids, self.parents, self.depths, strict=True)
        ):
            # One comparison rules out cycles, later parents and stray numbers, and
            # bounds every ancestor walk.
            if not PREFIX_FRONTIER <= parent < row:
                raise TreeError(
                    f"row {row} has parent {parent}; it must be {PREFIX_FRONTIER} or "
                    f"a row before {row}"
                )
            expected = 1 if parent == PREFIX_FRONTIER else self.depths[parent] + 1
            if depth != expected:
                raise TreeError(f"row {row} has depth {depth}, expected {expected}")
            if (parent, token) in seen:
                raise TreeError(
                    f"row {row} repeats token {token} under parent {parent}: rows "
                    "with one full prefix must be merged"
                )
            seen.add((parent, token))

    # ---------------------------------------------------------------- builders

    @classmethod
    def from_rows(
        cls,
        token_ids: Sequence[int],
        parents: Sequence[int],
        prefix_len: int,
        *,
        depths: Sequence[int] | None = None,
    ) -> CandidateTree:
        """A tree from rows that are already flat; depths follow from the parents."""
        parents = _integers(parents, "parents")
        if depths is None:
            depths = []
            for row, parent in enumerate(parents):
                if not PREFIX_FRONTIER <= parent < row:
                    raise TreeError(
                        f"row {row} has parent {parent}; it must be "
                        f"{PREFIX_FRONTIER} or a row before {row}"
                    )
                depths.append(1 if parent == PREFIX_FRONTIER else depths[parent] + 1)
        # __post_init__ turns any sequence into the tuple that the field holds.
        return cls(token_ids, parents, depths, prefix_len)  # type: ignore[arg-type]

    @classmethod
    def from_paths(
        cls,
        paths: Iterable[Sequence[int]],
        prefix_len: int,
        order: str = "breadth",
        *,
        sources: Sequence[str] | None = None,
    ) -> CandidateTree:
        """Merges token paths by full prefix and flattens the result.

        `paths`: token sequences that start right after the prefix. `sources`: one
        source name a path, or None. `order`: "breadth" (level by level, the
        article's `flatten_tree`) or "depth" (its printed trace); children keep their
        order of first appearance. Two paths share a row only while *all* tokens
        before it agree: `A B` and `X B` have two rows for B (section 0x07D).
        """
        paths = checks.entries(paths, "paths", "paths", TreeError)
        if sources is not None:
            sources = checks.entries(sources, "sources", "source names", TreeError)
            if len(sources) != len(paths):
                raise TreeError(f"{len(sources)} sources for {len(paths)} paths")
        root = _Node()
        for index, path in enumerate(paths):
            tokens = checks.token_ids(path, f"paths[{index}]", error=TreeError)
            mark = None if sources is None else SourceMark(sources[index])
            node = root
            for token in tokens:
                node = node.child(token)
                # A path claims a shared row once, however often its source comes by.
                if mark is not None and mark not in node.marks:
                    node.marks.append(mark)
        return cls._flatten(root, prefix_len, order)

    @classmethod
    def from_proposals(
        cls,
        proposals: Proposal | Iterable[Proposal],
        prefix_len: int,
        order: str = "breadth",
    ) -> CandidateTree:
        """Merges typed proposals (or one) by full prefix; every node leaves its own
        mark."""
        if isinstance(proposals, Proposal):
            proposals = [proposals]
        root = _Node()
        draws = 0
        for index, proposal in enumerate(
            checks.entries(proposals, "proposals", "Proposals", TreeError)
        ):
            if not isinstance(proposal, Proposal):
                raise TreeError(f"proposals[{index}] is not a Proposal: {proposal!r}")
            placed: list[_Node] = []
            for item in proposal.nodes:
                # A frozen node can still be forced; a wrong parent must not be
                # followed, and -2 would even find a node.
                checks.integer(
                    item.parent,
                    f"parent of proposals[{index}].nodes[{len(placed)}]",
                    least=PREFIX_FRONTIER,
                    most=len(placed) - 1,
                    error=TreeError,
                )
                above = root if item.parent == PREFIX_FRONTIER else placed[item.parent]
                node = above.child(item.token_id)
                node.marks.append(
                    SourceMark(
                        item.source,
                        item.q,
                        item.score,
                        item.state_owner,
                        item.origin_request,
                        item.law,
                        draws,
                    )
                )
                placed.append(node)
                draws += 1
        return cls._flatten(root, prefix_len, order)

    @classmethod
    def _flatten(cls, root: _Node, prefix_len: int, order: str) -> CandidateTree:
        checks.one_of(order, "order", ORDERS)
        tokens: list[int] = []
        parents: list[int] = []
        depths: list[int] = []
        marks: list[tuple[SourceMark, ...]] = []
        queue = deque((t, n, PREFIX_FRONTIER, 1) for t, n in root.children.items())
        while queue:
            token, node, parent, depth = queue.popleft()
            row = len(tokens)
            tokens.append(token)
            parents.append(parent)
            depths.append(depth)
            marks.append(tuple(node.marks))
            below = [(t, n, row, depth + 1) for t, n in node.children.items()]
            if order == "breadth":
                queue.extend(below)
            else:
                queue.extendleft(reversed(below))
        return cls(
            tuple(tokens), tuple(parents), tuple(depths), prefix_len, tuple(marks)
        )

    # -------------------------------------------------------------- coordinates

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def node_count(self) -> int:
        """N, the number of candidate rows."""
        return len(self.token_ids)

    @property
    def max_depth(self) -> int:
        """Depth of the deepest row, in edges; 0 for an empty tree."""
        return max(self.depths, default=0)

    @cached_property
    def position_ids(self) -> tuple[int, ...]:
        """Absolute target position of each row: prefix_len + depth - 1."""
        return tuple(self.prefix_len + depth - 1 for depth in self.depths)

    @property
    def predictor_rows(self) -> tuple[int, ...]:
        """The row whose output scores each row: its parent, or the frontier."""
        return self.parents

    @cached_property
    def full_prefixes(self) -> tuple[tuple[int, ...], ...]:
        """The canonical key of each row: all candidate tokens from the prefix to it."""
        prefixes: list[tuple[int, ...]] = []
        for token, parent in zip(self.token_ids, self.parents, strict=True):
            above = () if parent == PREFIX_FRONTIER else prefixes[parent]
            prefixes.append((*above, token))
        return tuple(prefixes)

    @cached_property
    def tree_mask(self) -> np.ndarray:
        """Boolean [N, N]: row u may attend to row v, which is u or its ancestor."""
        mask = np.zeros((len(self), len(self)), dtype=bool)
        for row, parent in enumerate(self.parents):
            if parent != PREFIX_FRONTIER:
                mask[row] = mask[parent]
            mask[row, row] = True
        mask.flags.writeable = False
        return mask

    @cached_property
    def ancestor_mask(self) -> np.ndarray:
        """Boolean [N, prefix_len + N]: the whole prefix, then self and ancestors.
        Raises `TreeError` where that is more than `MAX_MASK` entries."""
        entries = len(self) * (self.prefix_len + len(self))
        if entries > MAX_MASK:
            raise TreeError(
                f"a mask of {len(self)} rows over a prefix of {self.prefix_len} tokens "
                f"has {entries} entries, more than {MAX_MASK}"
            )
        prefix = np.ones((len(self), self.prefix_len), dtype=bool)
        mask = np.concatenate([prefix, self.tree_mask], axis=1)
        mask.flags.writeable = False
        return mask

    @cached_property
    def _children(self) -> dict[int, tuple[int, ...]]:
        children: dict[int, list[int]] = {}
        for row, parent in enumerate(self.parents):
            children.setdefault(parent, []).append(row)
        return {parent: tuple(rows) for parent, rows in children.items()}

    def children(self, row: int) -> tuple[int, ...]:
        """Rows of the children of `row` (`PREFIX_FRONTIER` for the first tokens)."""
        row = self._check_row(row, least=PREFIX_FRONTIER)
        return self._children.get(row, ())

    def child_with_token(self, row: int, token: int) -> int | None:
        """The child of `row` that carries `token`, or None."""
        token = checks.integer(token, "token", error=TreeError)
        for child in self.children(row):
            if self.token_ids[child] == token:
                return child
        return None

    def without_laws(self) -> CandidateTree:
        """The same tree without the laws that its candidates were drawn from: a law
        [V] is needed by the rule that reads it, and no longer."""
        marks = [[replace(m, law=None) for m in found] for found in self.sources]
        return replace(self, sources=tuple(map(tuple, marks)))

    def draws(self, row: int) -> tuple[tuple[int, SourceMark], ...]:
        """The candidates under `row` in the order in which they were drawn: (child row,
        mark) for every claim. A token that was drawn twice is there twice; a rule that
        tests one draft after the other must follow this order and no other."""
        found = [(c, mark) for c in self.children(row) for mark in self.sources[c]]
        return tuple(sorted(found, key=lambda item: item[1].draw))

    def path_rows(self, row: int) -> tuple[int, ...]:
        """Rows from the first token down to `row`, inclusive; () for the frontier."""
        row = self._check_row(row, least=PREFIX_FRONTIER)
        rows = []
        while row != PREFIX_FRONTIER:
            rows.append(row)
            row = self.parents[row]
        return tuple(reversed(rows))

    def paths(self) -> list[tuple[int, ...]]:
        """The token path of every leaf, in row order."""
        inner = set(self.parents)
        return [p for row, p in enumerate(self.full_prefixes) if row not in inner]

    def _check_row(self, row: int, least: int = 0) -> int:
        most = len(self) - 1
        return checks.integer(row, "row", least=least, most=most, error=TreeError)

    # --------------------------------------------------------------- validation

    def validate(self, vocab_size: int | None = None) -> None:
        """Every assertion of section 0x0F, each checked by another way than the one
        that built the buffer. `vocab_size` also bounds the token ids. Raises
        `TreeError` naming the row."""
        checks.token_ids(
            self.token_ids, "token_ids", vocab_size=vocab_size, error=TreeError
        )
        self._check_structure()
        mask = self.ancestor_mask
        if mask.dtype != bool or mask.shape != (
            len(self),
            self.prefix_len + len(self),
        ):
            raise TreeError(f"the mask has shape {mask.shape}, type {mask.dtype}")
        if not np.array_equal(self.tree_mask, mask[:, self.prefix_len :]):
            raise TreeError("tree_mask and ancestor_mask differ")
        for name in ("position_ids", "full_prefixes", "sources"):
            if len(getattr(self, name)) != len(self):
                raise TreeError(f"{name} and token_ids differ in length")
        keys = set()
        for row in range(len(self)):
            path = self.path_rows(row)
            key = tuple(self.token_ids[r] for r in path)
            if key != self.full_prefixes[row] or key in keys:
                raise TreeError(f"row {row} does not own the full prefix {key}")
            keys.add(key)
            if self.position_ids[row] != self.prefix_len + len(path) - 1:
                raise TreeError(f"row {row} has position {self.position_ids[row]}")
            above = path[-2] if len(path) > 1 else PREFIX_FRONTIER
            if self.predictor_rows[row] != above:
                raise TreeError(
                    f"row {row} has predictor row {self.predictor_rows[row]}"
                )
            if row not in self.children(above):
                raise TreeError(f"row {row} is no child of row {above}")
            visible = set(np.flatnonzero(mask[row]).tolist())
            allowed = set(range(self.prefix_len)) | {self.prefix_len + r for r in path}
            if visible != allowed:
                wrong = sorted(visible ^ allowed)
                raise TreeError(f"row {row} sees the wrong columns: {wrong[:5]}")
            for mark in self.sources[row]:
                if mark.q is not None:
                    name = f"q of row {row} from {mark.source!r}"
                    checks.real(mark.q, name, least=0, most=1, error=TreeError)
                token = self.token_ids[row]
                if mark.law is not None and not (
                    token < len(mark.law) and mark.law[token] == mark.q
                ):
                    raise TreeError(
                        f"q of row {row} from {mark.source!r} is not its law's entry"
                    )
        if sum(len(rows) for rows in self._children.values()) != len(self):
            raise TreeError("some row is listed as a child twice")

    def check_path(self, rows: Sequence[int]) -> tuple[int, ...]:
        """`rows` as a tuple, if they are one path from a first token downwards (what
        may be committed). Siblings, gaps and stray rows raise `TreeError`."""
        path = []
        above = PREFIX_FRONTIER
        for row in checks.entries(rows, "rows", "row numbers", TreeError):
            row = self._check_row(row)
            if self.parents[row] != above:
                raise TreeError(
                    f"rows {list(rows)} are no root-to-node path: row {row} has parent "
                    f"{self.parents[row]}, not {above}"
                )
            path.append(row)
            above = row
        return tuple(path)


def _integers(values: Any, name: str) -> tuple[int, ...]:
    """`values` as a tuple of ints, or an error that names the entry."""
    return tuple(
        value
        if type(value) is int
        else checks.integer(value, f"{name}[{row}]", error=TreeError)
        for row, value in enumerate(checks.entries(values, name, "integers", TreeError))
    )


class _Node:
    """A trie node during merging; dict order is order of first appearance."""

    __slots__ = ("children", "marks")

    def __init__(self) -> None:
        self.children: dict[int, _Node] = {}
        self.marks: list[SourceMark] = []

    def child(self, token: int) -> _Node:
        if token not in self.children:
            self.children[token] = _Node()
        return self.children[token]
