"""Driving a target through rounds, and the checks that every row must pass.

Each check has a name and raises `AssertionError`; a planted fault must make it do so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from specbook.tree import CandidateTree

TOLERANCE = 1e-4


def random_tree(
    random: np.random.Generator, vocab: int, prefix_len: int, rows: int
) -> CandidateTree:
    """A tree of up to `rows` rows, parents anywhere before their children."""
    tokens: list[int] = []
    parents: list[int] = []
    for _ in range(rows):
        parent = int(random.integers(-1, len(tokens)))
        taken = {t for t, p in zip(tokens, parents, strict=True) if p == parent}
        token = int(random.integers(vocab))
        if token in taken:
            continue
        tokens.append(token)
        parents.append(parent)
    return CandidateTree.from_rows(tokens, parents, prefix_len)


def random_path(random: np.random.Generator, tree: CandidateTree) -> tuple[int, ...]:
    """A root-to-node path of the tree, now and then the empty one."""
    return tree.path_rows(int(random.integers(-1, len(tree))))


def check_rows(
    rows: Any,
    tree: CandidateTree,
    prefix: Sequence[int],
    plain: Callable[[Sequence[int]], np.ndarray],
    tolerance: float = TOLERANCE,
) -> float:
    """Every row's logits equal a plain forward over prefix and path."""
    worst = 0.0
    for row in range(-1, len(tree)):
        path = [tree.token_ids[r] for r in tree.path_rows(row)]
        wanted = plain([*prefix, *path])[-1]
        difference = float(np.abs(rows.logits(row) - wanted).max())
        assert difference <= tolerance, f"row {row} is off by {difference:.3g}"
        worst = max(worst, difference)
    return worst


def check_rounds(
    target: Any,
    plain: Callable[[Sequence[int]], np.ndarray],
    *,
    seed: int = 0,
    rounds: int = 5,
    rows: int = 9,
    prompt: Sequence[int] | None = None,
    tolerance: float = TOLERANCE,
) -> float:
    """Random trees, random scattered paths; the cache is always all but the last."""
    random = np.random.default_rng(seed)
    if prompt is None:
        prompt = random.integers(target.vocab_size, size=5).tolist()
    session = target.start(prompt)
    tokens = list(prompt)
    worst = 0.0
    for number in range(rounds):
        # Round 1 commits an empty path, round 2 verifies an empty tree.
        count = 0 if number == 2 else rows
        tree = random_tree(random, target.vocab_size, len(tokens), count)
        verified = session.verify(tree)
        worst = max(worst, check_rows(verified, tree, tokens, plain, tolerance))
        path = () if number == 1 else random_path(random, tree)
        token = int(random.integers(target.vocab_size))
        session.commit(path, token)
        tokens += [tree.token_ids[row] for row in path] + [token]
        assert session.tokens == tokens
        assert session.cached == len(tokens) - 1
        assert session.generation == number + 1
    return worst


def greedy(target: Any, prompt: Sequence[int], count: int) -> list[int]:
    """Plain greedy decoding through empty trees."""
    session = target.start(prompt)
    for _ in range(count):
        rows = session.verify(CandidateTree.from_rows([], [], len(session.tokens)))
        session.commit((), rows.argmax(-1))
    return session.tokens[len(prompt) :]
