"""One round taken apart: its tables, its buffers, and what a wrong one does (0x0C).

The article's tables of flattened rows and of target coordinates are lost. `flattened`
and `coordinates` make them from a tree, so they cannot go stale. `handed` looks at what
a model really gets. The rest plants faults: a buffer of another row order (`mixed`), a
proposal that is not for this round (`Untrue`), a row that is kept under a wrong name
(`kept_as`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from . import checks
from .errors import SpecbookError, TargetError, TreeError
from .lab import FixedPaths, Table, table
from .tree import CandidateTree, SourceMark

Names = Mapping[int, str] | Callable[[int], str]


def flattened(tree: CandidateTree, names: Names) -> Table:
    """The table of a tree's rows: token, parent, depth, full prefix, and what each
    source claims about the row. `names`: token ids to text, a mapping or a function."""
    told = _named(tree, names)
    rows = []
    for row, path in enumerate(tree.full_prefixes):
        claims = ", ".join(map(_claim, tree.sources[row]))
        above = tree.parents[row], tree.depths[row]
        rows.append((row, told(path[-1]), *above, " ".join(map(told, path)), claims))
    heads = ["row", "token", "parent", "depth", "full prefix", "claims"]
    return table(heads, rows)


def coordinates(tree: CandidateTree, names: Names) -> Table:
    """The table of target coordinates: where a row is read, which row scores it, where
    its key and value go in the cache, and which rows of the tree it sees."""
    told = _named(tree, names)
    rows = []
    for row, token in enumerate(tree.token_ids):
        sees = " ".join(map(str, np.flatnonzero(tree.tree_mask[row])))
        where = tree.position_ids[row], tree.predictor_rows[row], tree.prefix_len + row
        rows.append((row, told(token), *where, sees))
    heads = ["row", "token", "position", "predictor row", "KV slot", "sees rows"]
    return table(heads, rows)


def _named(tree: Any, names: Any) -> Callable[[int], str]:
    if not isinstance(tree, CandidateTree):
        raise TreeError(f"not a CandidateTree: {tree!r}")
    if isinstance(names, Mapping):
        return lambda token: str(names.get(token, token))
    if not callable(names):
        raise SpecbookError(f"names must be a mapping or a function, got {names!r}")
    return names


def _claim(mark: SourceMark) -> str:
    numbers = (("q", mark.q), ("score", mark.score))
    told = [f"{name} {value}" for name, value in numbers if value is not None]
    return f"{mark.source}: {', '.join(told) or 'no number'}"


# ------------------------------------------------------------------ what a model gets


@dataclass(frozen=True)
class Handed:
    """The arguments of one forward: `ids` and `positions` [n], `sees` bool [n, n]: row
    u may attend to row v. The prompt's rows come first, then the tree's."""

    ids: list[int]
    positions: list[int]
    sees: np.ndarray


def handed(target: Any, prompt: Sequence[int], tree: CandidateTree) -> Handed:
    """What the model of `target` is handed when it verifies `tree` right behind
    `prompt`. Raises `TargetError` for a target that runs no forward of transformers."""
    model: Any = getattr(target, "model", None)
    if not hasattr(model, "register_forward_pre_hook"):
        raise TargetError(f"{type(target).__name__} hands nothing to a torch module")
    found: dict[str, Any] = {}
    hook = model.register_forward_pre_hook(
        lambda module, args, named: found.update(named), with_kwargs=True
    )
    try:
        target.start(prompt).verify(tree)
    finally:
        hook.remove()
    if missing := {"input_ids", "position_ids", "attention_mask"} - set(found):
        raise TargetError(f"{type(target).__name__} hands over no {sorted(missing)}")
    return Handed(
        found["input_ids"][0].tolist(),
        found["position_ids"][0].tolist(),
        (found["attention_mask"][0, 0] == 0).cpu().numpy(),
    )


def wanted(prompt: Sequence[int], tree: CandidateTree) -> Handed:
    """What it should be handed: the prompt causally, then the tree as compiled."""
    size = len(prompt)
    causal = np.tri(size, size + len(tree), dtype=bool)
    return Handed(
        [*prompt, *tree.token_ids],
        [*range(size), *tree.position_ids],
        np.concatenate([causal, tree.ancestor_mask]),
    )


def guesses(target: Any, prompt: Sequence[int]) -> dict[str, int]:
    """The article's seven tokens, from the target's own guesses behind `prompt`.

    A, B and D are what it says next; C and E are its next choices in place of D, F in
    place of B, and X in place of A. All seven differ. Raises `TargetError` for a target
    of fewer tokens.
    """
    found: dict[str, int] = {}
    if (size := getattr(target, "vocab_size", 0)) < len("ABCDEFX"):
        raise TargetError(f"seven tokens are asked for, the target has {size}")

    def best(letter: str, *before: str) -> None:
        path = [*prompt, *(found[name] for name in before)]
        ranked = np.argsort(-target.plain_logits(path)[-1], kind="stable")[:8].tolist()
        found[letter] = next(t for t in ranked if t not in found.values())

    best("A")
    best("B", "A")
    for letter in "DCE":
        best(letter, "A", "B")
    best("F", "A")
    best("X")
    return found


# --------------------------------------------------------------------- planted faults


def mixed(buffer: str, other: CandidateTree) -> type[CandidateTree]:
    """A class of trees with one buffer of `other`: what a runtime has that sorted its
    rows again and forgot one of them. `buffer`: a property of `CandidateTree`."""
    checks.one_of(buffer, "buffer", ["tree_mask", "position_ids", "predictor_rows"])
    if not isinstance(other, CandidateTree):
        raise TreeError(f"not a CandidateTree: {other!r}")
    stale = property(lambda self: getattr(other, buffer))
    return type("Mixed", (CandidateTree,), {buffer: stale})


class Untrue(FixedPaths):
    """A source of fixed paths that says one thing about its proposals that is not so.

    `lies`: fields of `Proposal`, with the values that stand there instead.
    """

    def __init__(self, *paths: Sequence[int], **lies: Any) -> None:
        super().__init__(*paths)
        self.lies = lies

    def start(self, *given: Any, **options: Any) -> Any:
        """As `FixedPaths.start`."""
        session = super().start(*given, **options)
        honest = session.propose

        def propose(**asked: Any) -> Any:
            return replace(honest(**asked), **self.lies)

        session.propose = propose  # type: ignore[method-assign]
        return session


def kept_as(
    target: Any,
    prompt: Sequence[int],
    tree: CandidateTree,
    last: int,
    published: Sequence[int],
    steps: int = 8,
) -> tuple[float, list[int]]:
    """Keeps the rows of the path that ends in row `last`, says that they hold the
    tokens `published`, and lets the target go on by itself.

    Every count is right: as many rows as tokens. Returns how far the next logits are
    from a fresh forward over what was published (the largest difference), and the
    published tokens with `steps` more behind them. Raises `TreeError` where the path
    and the tokens differ in number.
    """
    if not isinstance(tree, CandidateTree):
        raise TreeError(f"not a CandidateTree: {tree!r}")
    published = checks.token_ids(published, "published")
    path = tree.path_rows(last)
    if len(path) != len(published):
        raise TreeError(f"{len(path)} rows cannot be kept as {len(published)} tokens")
    checks.integer(steps, "steps", least=1)
    start = len(prompt)
    after = int(target.plain_logits([*prompt, *published])[-1].argmax())
    session = target.start(prompt)
    session.verify(tree)
    session.commit(path, after)
    session.tokens[start:-1] = published
    gaps: list[float] = []
    for _ in range(steps):
        empty = CandidateTree.from_rows([], [], len(session.tokens))
        logits = session.verify(empty).logits(-1)
        if not gaps:
            fresh = target.plain_logits(session.tokens)[-1]
            gaps.append(float(np.abs(logits - fresh).max()))
        session.commit([], int(logits.argmax()))
    return gaps[0], session.tokens[start:]
