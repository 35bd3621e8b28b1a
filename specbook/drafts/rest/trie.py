"""The continuation trie: what was retrieved, merged by prefix and counted (0x04B).

A node is a full prefix of some continuation, and its count is how many continuations
begin with it. A count ranks; it is never a probability q of the draft.

The rank of a node: higher count, then shallower, then smaller ids along its path. A
parent counts at least as often as its child and is shallower, so it ranks before it:
the best n nodes are closed under prefixes for every n, whatever was inserted first.
Siblings follow by count, then by id.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ... import checks
from ...proposal import PREFIX_FRONTIER, Proposal
from ...tree import CandidateTree
from .nodes import TrieNode, proposal_of


class _Node:
    __slots__ = ("children", "count")

    def __init__(self) -> None:
        self.children: dict[int, _Node] = {}
        self.count = 0


class ContinuationTrie:
    """Prefix counts of continuations, in the article's words.

    It is the plain way, one continuation at a time. A datastore finds the same best
    nodes without enumerating its matches; the tests hold the two together.
    """

    def __init__(self, continuations: Iterable[Sequence[int]] = ()) -> None:
        self._root = _Node()
        for index, continuation in enumerate(
            checks.entries(continuations, "continuations", "continuations")
        ):
            self._insert(checks.token_ids(continuation, f"continuations[{index}]"), 1)

    def insert(
        self, continuation: Iterable[int], *, increment_frequency: bool = True
    ) -> None:
        """Adds one continuation (token ids) and counts it once at each of its prefixes;
        with `increment_frequency=False` its nodes are made and not counted."""
        counted = checks.boolean(increment_frequency, "increment_frequency")
        self._insert(checks.token_ids(continuation, "continuation"), int(counted))

    def _insert(self, tokens: list[int], count: int) -> None:
        node = self._root
        for token in tokens:
            node = node.children.setdefault(token, _Node())
            node.count += count

    def __len__(self) -> int:
        return sum(1 for _ in self._ranked())

    def count(self, prefix: Iterable[int]) -> int:
        """How many continuations begin with `prefix` (token ids, not empty); 0 for a
        prefix that is no node."""
        tokens = checks.token_ids(prefix, "prefix")
        checks.integer(len(tokens), "the length of prefix", least=1)
        node = self._find(tokens)
        return 0 if node is None else node.count

    def children(self, prefix: Iterable[int] = ()) -> list[int]:
        """The ids that follow `prefix`, by descending count and then ascending id."""
        node = self._find(checks.token_ids(prefix, "prefix"))
        below = {} if node is None else node.children
        return sorted(below, key=lambda token: (-below[token].count, token))

    def nodes(self) -> list[TrieNode]:
        """All nodes by rank; parents come before their children."""
        return [node for _, node in self._ranked()]

    def paths(self) -> list[tuple[tuple[int, ...], int]]:
        """`(full prefix, count)` of all nodes, by rank."""
        return [(path, node.frequency) for path, node in self._ranked()]

    def keep_high_frequency_nodes(self, node_budget: int) -> ContinuationTrie:
        """A new trie of the `node_budget` nodes of highest rank, or of all."""
        checks.integer(node_budget, "node_budget", least=0)
        kept = ContinuationTrie()
        placed = [kept._root]
        for _, node in zip(range(node_budget), self._ranked(), strict=False):
            token, parent, _, count = node[1]
            made = _Node()
            made.count = count
            placed[parent + 1].children[token] = made
            placed.append(made)
        return kept

    def proposal(self, **options: Any) -> Proposal:
        """The nodes as a proposal; `options` as in `proposal_of`."""
        return proposal_of(self.nodes(), **options)

    def tree(self, prefix_len: int, order: str = "breadth") -> CandidateTree:
        """The candidate tree over a committed prefix of `prefix_len` tokens."""
        return CandidateTree.from_proposals(self.proposal(), prefix_len, order)

    def _find(self, tokens: Sequence[int]) -> _Node | None:
        node: _Node | None = self._root
        for token in tokens:
            node = None if node is None else node.children.get(token)
        return node

    def _ranked(self) -> Iterator[tuple[tuple[int, ...], TrieNode]]:
        # Best first: whatever is reachable next is in the heap, under its rank.
        heap: list[tuple[int, int, tuple[int, ...], int, _Node]] = []

        def push(node: _Node, path: tuple[int, ...], place: int) -> None:
            for token, child in node.children.items():
                key = (*path, token)
                heapq.heappush(heap, (-child.count, len(key), key, place, child))

        push(self._root, (), PREFIX_FRONTIER)
        place = 0
        while heap:
            _, depth, path, parent, node = heapq.heappop(heap)
            yield path, TrieNode(path[-1], parent, depth, node.count)
            push(node, path, place)
            place += 1
