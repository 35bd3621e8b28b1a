"""The proof that a target gives before its first round.

A wrong mask, a shifted position or a wrong row kept after a commit changes logits by
whole units and the text hardly at all. So a target verifies one small tree over
random ids, commits a scattered path of it, verifies again, and every row must agree
with plain forwards over prefix and path. The first tree is also grown from its first
rows, as a draft model grows its own. The token sequences do not depend on the target's
answers: the reference can be computed first, and by another forward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import TargetError
from ..tree import CandidateTree

# Rounds: (parents of the tree, path that is committed). The first has siblings at two
# levels and a path that skips rows; then a fork after a scattered commit; then the
# empty tree after an empty path.
_ROUNDS: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((-1, -1, 0, 1, 1, 3), (1, 3)),
    ((-1, -1), ()),
    ((), ()),
)
_PROMPT = 4
_NEEDED = 10  # positions that a prompt of `_PROMPT` tokens and the rounds take


class SelfTestError(TargetError):
    """A target's rows are not those of plain forwards over prefix and path."""


def plan(vocab_size: int, context_limit: int | None, dtype: Any) -> Plan | Either:
    """What a target in `dtype` is tested by. `vocab_size`, `context_limit`: its."""
    first = Plan(vocab_size, context_limit)
    if str(dtype).removeprefix("torch.") not in _SPREAD:
        return first
    return Either([first, Plan(vocab_size, context_limit, seed=1)])


class Plan:
    """The token sequences of one self-test.

    `vocab_size`, `context_limit`: the target's. Ids come from a generator of the
    plan's own, seeded by `seed`. Raises `TargetError` for a context of fewer than 7
    positions, which no tree would fit.
    """

    def __init__(
        self, vocab_size: int, context_limit: int | None, seed: int = 0
    ) -> None:
        length = _PROMPT
        if context_limit is not None:
            length = min(length, context_limit - (_NEEDED - _PROMPT))
        if length < 1 or vocab_size < 2:
            raise TargetError(
                f"a target of {context_limit} positions and {vocab_size} tokens is too "
                "small for its self-test"
            )
        random = np.random.default_rng(seed)
        self.prompt = random.integers(vocab_size, size=length).tolist()
        self.rounds: list[tuple[CandidateTree, tuple[int, ...], int]] = []
        prefix = list(self.prompt)
        for parents, path in _ROUNDS:
            # Siblings differ: their ids are drawn without replacement.
            ids: list[int] = []
            for row, parent in enumerate(parents):
                taken = {ids[i] for i in range(row) if parents[i] == parent}
                token = int(random.integers(vocab_size))
                while token in taken:
                    token = (token + 1) % vocab_size
                ids.append(token)
            tree = CandidateTree.from_rows(ids, parents, len(prefix))
            token = int(random.integers(vocab_size))
            self.rounds.append((tree, path, token))
            prefix += [ids[row] for row in path] + [token]

    def _sequences(self) -> list[tuple[int, int, tuple[int, ...]]]:
        """(round, row, prefix + path) for every row of every round."""
        found = []
        prefix = tuple(self.prompt)
        for number, (tree, path, token) in enumerate(self.rounds):
            for row in range(-1, len(tree)):
                steps = tree.full_prefixes[row] if row >= 0 else ()
                found.append((number, row, prefix + steps))
            prefix += tuple(tree.token_ids[row] for row in path) + (token,)
        return found

    def reference(
        self, plain: Callable[[Sequence[int]], np.ndarray]
    ) -> dict[Any, np.ndarray]:
        """Logits [V] for each (round, row), by `plain(tokens) -> [len(tokens), V]`.

        Only the longest sequences are run; the rows inside them come along.
        """
        rows = self._sequences()
        whole = [sequence for _, _, sequence in rows]
        leaves = [
            s
            for s in dict.fromkeys(whole)
            if not any(len(t) > len(s) and t[: len(s)] == s for t in whole)
        ]
        runs = {leaf: plain(leaf) for leaf in leaves}
        expected: dict[Any, np.ndarray] = {}
        for number, row, sequence in rows:
            leaf = next(leaf for leaf in leaves if leaf[: len(sequence)] == sequence)
            expected[number, row] = runs[leaf][len(sequence) - 1]
        return expected

    def check(
        self,
        target: Any,
        expected: Mapping[Any, np.ndarray],
        dtype: Any = "float32",
    ) -> float:
        """Run the plan on `target`; the largest difference is returned.

        In float32 and float64 it is of logits, in the 16-bit formats of `spread`.
        Raises `SelfTestError` that names round, row and difference, or what the
        cache holds when its length is wrong.
        """
        name = str(dtype).removeprefix("torch.")
        if name == "float64" and getattr(target, "attention", "") == "eager":
            # The softmax of transformers' eager attention is float32 whatever the
            # model is, and rounds otherwise where a row's columns lie elsewhere.
            name = "float32"
        if name in _SPREAD:
            measure, bound = spread, _SPREAD[name]
        else:
            # Rounding grows with the logits; the bound is for a magnitude of 10.
            scale = max(float(np.abs(logits).max()) for logits in expected.values())
            measure, bound = largest, _LARGEST[name] * max(1.0, scale / 10)
        session = target.start(self.prompt)
        worst = 0.0
        for number, (tree, path, token) in enumerate(self.rounds):
            for how, rows in _ways(session, tree, grows=number == 0):
                for row in range(-1, len(tree)):
                    found, wanted = rows.logits(row), expected[number, row]
                    if found.shape != wanted.shape:
                        raise SelfTestError(
                            f"self-test round {number}, {how}: row {row} has "
                            f"{found.shape} logits, a plain forward {wanted.shape}"
                        )
                    difference = measure(found, wanted)
                    if not difference <= bound:
                        raise SelfTestError(
                            f"self-test round {number}, {how}: the logits of row {row} "
                            f"differ by {difference:.3g} ({measure.__name__}) from a "
                            "plain forward over prefix and path (allowed: "
                            f"{bound:.3g}); mask, positions or the rows kept by a "
                            "commit are wrong for it"
                        )
                    worst = max(worst, difference)
            session.commit(path, token)
            if session.cached != len(session.tokens) - 1:
                raise SelfTestError(
                    f"self-test round {number}: the cache holds {session.cached} rows "
                    f"for {len(session.tokens)} tokens, one of them pending"
                )
        return worst


class Either:
    """Several plans, of which one must hold.

    In 16 bits two right forwards round apart, and over some tokens by as much as a
    fault: on a processor without bfloat16 arithmetic the book's own target differs by
    a spread of 0.35 there and by 0.13 over others, while its own forward in float32 is
    nearer to it than to what it is compared with. A fault differs over all tokens.
    """

    def __init__(self, plans: Sequence[Plan]) -> None:
        self._plans = list(plans)

    def reference(
        self, plain: Callable[[Sequence[int]], np.ndarray]
    ) -> dict[Any, np.ndarray]:
        """As `Plan.reference`; the keys begin with the number of the plan."""
        return {
            (number, *key): logits
            for number, plan in enumerate(self._plans)
            for key, logits in plan.reference(plain).items()
        }

    def check(
        self,
        target: Any,
        expected: Mapping[Any, np.ndarray],
        dtype: Any = "float32",
    ) -> float:
        """As `Plan.check`, by the first plan that holds; the refusal is the last's."""
        refused: SelfTestError | None = None
        for number, plan in enumerate(self._plans):
            own = {
                (key[1], key[2]): logits
                for key, logits in expected.items()
                if key[0] == number
            }
            try:
                return plan.check(target, own, dtype)
            except SelfTestError as error:
                refused = error
        assert refused is not None
        raise refused


def _ways(
    session: Any, tree: CandidateTree, *, grows: bool
) -> Iterator[tuple[str, Any]]:
    """The rows of `tree`: grown behind its first half, then verified at once."""
    if grows:
        half = len(tree) // 2
        session.verify(
            CandidateTree.from_rows(
                tree.token_ids[:half], tree.parents[:half], tree.prefix_len
            )
        )
        yield "grown", session.grow(tree)
    yield "verified", session.verify(tree)


def largest(found: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference of two rows of logits [V]."""
    return float(np.abs(found - wanted).max())


def spread(found: np.ndarray, wanted: np.ndarray) -> float:
    """The root mean square difference of two rows [V], in standard deviations of
    `wanted`. One of 49,152 bfloat16 logits may well be off by 1; all of them are not.
    """
    difference = np.sqrt(np.mean(np.square(found - wanted, dtype=np.float64)))
    return float(difference / max(float(np.std(wanted)), 1e-30))


# Two orders of summation in float32 differ by 1e-5 at logits of 10. In bfloat16 thirty
# layers of rounding come to a spread of 0.15; leaks, shifts and wrong rows to 0.6 to 2.
_LARGEST = {"float64": 1e-9, "float32": 1e-4}
_SPREAD = {"float16": 0.05, "bfloat16": 0.3}
