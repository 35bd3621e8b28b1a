"""What the engine asks of a target model, and nothing more.

A target verifies a whole candidate tree in one forward and then keeps one
root-to-node path of it (article, sections 0x0C to 0x0CB). Three small protocols say
this. `TableTarget` answers them from a table of exact laws, `TransformersTarget`
and `LeanTarget` from a real model; the engine cannot tell them apart.

The bookkeeping rule that all of them share: the last token of a session is *pending*.
It has been decided but its key/value row has not been computed; the next `verify`
computes it together with the tree. So after every commit the cache covers exactly
`tokens[:-1]`, whatever was accepted or refused.

A draft model is a target too, with two verbs more (`GrowingSession`): it computes its
own tree level by level, and it may be told tokens for which it has no state.

Draft heads read the target's own hidden states (`HiddenTarget`). Those of the rows that
a commit keeps are handed out after it (`HiddenSession`), if somebody asked before the
first verify; else nothing is kept and nothing is spent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ..errors import SpecbookError, TargetError, TreeError

if TYPE_CHECKING:
    import numpy as np

    from ..policy import SamplingPolicy
    from ..tree import CandidateTree

FRONTIER = -1
"""The row number of the pending token: its children are the tree's roots."""


class ContextLimitError(TargetError):
    """A token would sit at or past the last position that the target has."""


class CommitError(TargetError):
    """A commit does not follow a verify, or does not name a root-to-node path."""


@runtime_checkable
class TargetRows(Protocol):
    """The target's answers at every row of one verified tree."""

    def law(self, row: int, policy: SamplingPolicy) -> np.ndarray:
        """The processed law [V] of the children of `row` (-1: of the frontier).

        float64, or an object array of Fractions. Converted only when asked for.
        Raises `LawError`, naming the row, when the target's row is broken.
        """
        ...

    def prepare(self, row: int) -> None:
        """Finish the target's own work for `row`, if some was put off.

        A target may leave its LM head for the rows that are asked for. `law` would do
        that work too; asked for apart, it can be billed to the forward, where it
        belongs, and not to the selection.
        """
        ...


@runtime_checkable
class TargetSession(Protocol):
    """One request: its tokens, and the target's state that goes with them."""

    tokens: list[int]
    """Prompt and everything committed. The last one is pending."""

    generation: int
    """How many commits there have been."""

    def verify(self, tree: CandidateTree) -> TargetRows:
        """One forward over the uncached tokens and all rows of `tree`.

        `tree.prefix_len` must equal `len(tokens)`. An empty tree is an ordinary
        target step. Raises `ContextLimitError` before any computation when a row
        would be positioned at or past the context limit.
        """
        ...

    def commit(self, rows: Sequence[int], token: int) -> None:
        """Keep the state of `rows`, a root-to-node path of the verified tree, and
        drop every other row; `token` (correction or bonus) becomes pending.

        Raises `CommitError` for anything but a path, and for a second commit after
        one verify. A refused commit changes nothing.
        """
        ...

    def bytes_per_row(self) -> int:
        """Temporary key/value bytes that one candidate row costs."""
        ...


@runtime_checkable
class GrowingSession(TargetSession, Protocol):
    """What a session of a draft model answers besides. The engine asks for none of
    it; `TableTarget`, `TransformersTarget` and `LeanTarget` all have it."""

    def grow(self, tree: CandidateTree) -> TargetRows:
        """One forward over the rows by which `tree` is longer than the open one.

        The open tree, of the last `verify` or `grow`, must be the first rows of
        `tree`; those are not computed again. The answer has the laws of all rows, and
        a later `commit` names rows of `tree`. It is for a drafter, which asks for
        every new row: unlike `verify`, nothing is put off. Raises `CommitError`
        without an open tree, `TreeError` when `tree` does not continue it, and
        `ContextLimitError` as `verify` does; each changes nothing.
        """
        ...

    def extend(self, tokens: Sequence[int]) -> None:
        """Commit tokens for which there is no state: they become pending, behind the
        token that is. An open tree is forgotten. Counts as a commit. Raises ValueError
        for an id outside the vocabulary.
        """
        ...


@runtime_checkable
class Target(Protocol):
    """A model that can verify candidate trees."""

    vocab_size: int
    context_limit: int | None
    eos_token_id: int | tuple[int, ...] | None

    def identity(self) -> dict[str, str]:
        """What a round manifest binds (article, section 0x02B): `checkpoint`,
        `tokenizer`, `output_head`, `dtype` and `backend`."""
        ...

    def start(self, prompt_ids: Sequence[int]) -> TargetSession:
        """A new request. Raises ValueError for an empty prompt, an id outside the
        vocabulary, or a prompt longer than the context limit."""
        ...


@runtime_checkable
class HiddenSession(TargetSession, Protocol):
    """A session that can give the target's hidden states."""

    def watch_hidden(self) -> None:
        """Keep hidden states from now on. Raises `TargetError` when rows have been
        computed already, whose states are lost, or when the target has none."""
        ...

    def committed_hidden(self) -> Any:
        """The hidden states [n, d] of the rows that the last commit added to the
        cache, in the order of their tokens: the whole prompt after the first, and each
        time all committed tokens but the pending one. They are the states as the LM
        head reads them, after the final norm. Raises `CommitError` before the first
        commit, `TargetError` when nobody asked for them."""
        ...


@runtime_checkable
class HiddenTarget(Target, Protocol):
    """A target whose hidden states, embedding and LM head draft heads can use."""

    hidden_width: int
    """d: of a state that the LM head reads, and of an embedding."""

    def embed_tokens(self, ids: Any) -> Any:
        """Embeddings [..., d] of an int64 tensor of ids, as stored. Raises
        `TargetError` for an id that the target does not have."""
        ...

    def read_out(self, features: Any) -> Any:
        """Logits [n, V] that the LM head gives for rows [n, d] like hidden states."""
        ...

    def cut_head(self, ids: Any) -> Callable[[Any], Any]:
        """The LM head of some tokens alone: as `read_out`, with logits [n, len(ids)]
        in the order of `ids` (an int64 tensor). Raises as `embed_tokens`."""
        ...


def checked_target(target: Any, *more: str, name: str = "target") -> Any:
    """`target`, checked to be a model: what every target has, and `more` of it by name.
    Raises `SpecbookError` that names the argument."""
    wanted = ("vocab_size", "start", *more)
    if isinstance(target, type) or not all(hasattr(target, part) for part in wanted):
        told = f" with {', '.join(more)}" if more else ""
        raise SpecbookError(f"{name} must be a target model{told}, got {target!r:.80}")
    return target


def gives_hidden(target: Any) -> bool:
    """Whether sessions of `target` give hidden states. A table may or may not."""
    return bool(getattr(target, "gives_hidden", False))


def check_path(
    tree: CandidateTree, rows: Sequence[int], token: Any, vocab_size: int
) -> tuple[list[int], int]:
    """`rows` and `token` as ints, checked to be a path of `tree` and a token.

    A path starts at a root and steps from parent to child. Raises `CommitError`
    that names the row at which it stops being one.
    """
    from .. import checks

    asked = checks.entries(rows, "rows", "row numbers", CommitError)
    path: list[int] = []
    expected = FRONTIER
    for step, row in enumerate(asked):
        row = checks.integer(row, f"rows[{step}]", error=CommitError)
        if not 0 <= row < len(tree):
            raise CommitError(
                f"rows[{step}] = {row} is not a row of the verified tree, "
                f"which has {len(tree)}"
            )
        if tree.parents[row] != expected:
            raise CommitError(
                f"rows[{step}] = {row} has parent {tree.parents[row]}, not "
                f"{expected}: {asked} is not a root-to-node path"
            )
        path.append(row)
        expected = row
    return path, checks.token_ids([token], "token", vocab_size=vocab_size)[0]


def check_policy(policy: Any) -> SamplingPolicy:
    """`policy`, if it is a `SamplingPolicy`."""
    from ..policy import SamplingPolicy

    if not isinstance(policy, SamplingPolicy):
        raise SpecbookError(f"a law needs a SamplingPolicy, got {policy!r}")
    return policy


def check_prompt(
    prompt_ids: Any, vocab_size: int | None, context_limit: int | None
) -> list[int]:
    """The prompt as a list of ids, or the error that `Target.start` promises."""
    from .. import checks

    tokens = checks.token_ids(prompt_ids, "prompt_ids", vocab_size=vocab_size)
    if not tokens:
        raise SpecbookError("prompt_ids is empty; a target needs at least one token")
    if context_limit is not None and len(tokens) > context_limit:
        raise ContextLimitError(
            f"prompt_ids has {len(tokens)} tokens; the target's context limit is "
            f"{context_limit}"
        )
    return tokens


def check_eos(value: Any, vocab_size: int | None) -> int | tuple[int, ...] | None:
    """`value` as `Target.eos_token_id`: None, one id, or several as a tuple.

    With `vocab_size` None only the type is checked: a checkpoint's own config may
    name an id that its vocabulary never reaches.
    """
    from .. import checks

    least, most = (None, None) if vocab_size is None else (0, vocab_size - 1)
    if value is None:
        return None
    if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
        return checks.integer(value, "eos_token_id", least=least, most=most)
    return tuple(
        checks.integer(token, f"eos_token_id[{place}]", least=least, most=most)
        for place, token in enumerate(
            checks.entries(value, "eos_token_id", "token ids")
        )
    )


def check_growth(open_tree: CandidateTree | None, tree: CandidateTree) -> int:
    """How many first rows of `tree` are those of `open_tree`: all of them, or
    `TreeError`. Without an open tree `CommitError`."""
    from ..tree import CandidateTree

    if not isinstance(tree, CandidateTree):
        raise TreeError(f"grow needs a CandidateTree, got {tree!r}")
    if open_tree is None:
        raise CommitError("grow without a verify before it")
    done = len(open_tree)
    if len(tree) < done:
        raise TreeError(f"the tree has {len(tree)} rows, the open one has {done}")
    for name in ("token_ids", "parents"):
        old, new = getattr(open_tree, name), getattr(tree, name)[:done]
        if old != new:
            row = next(i for i in range(done) if old[i] != new[i])
            raise TreeError(
                f"row {row} of the tree has {name} {new[row]}, in the open tree it is "
                f"{old[row]}: a tree grows behind its rows"
            )
    return done


def check_tree(
    tree: CandidateTree, length: int, vocab_size: int | None, context_limit: int | None
) -> None:
    """What every `verify` checks before it computes anything.

    `length` is the session's number of tokens. Raises `TreeError` when the tree was
    built for another prefix or holds an id outside the vocabulary, and
    `ContextLimitError` when a row (or the pending token) has no position left.
    """
    from ..tree import CandidateTree

    if not isinstance(tree, CandidateTree):
        raise TreeError(f"verify needs a CandidateTree, got {tree!r}")
    if tree.prefix_len != length:
        raise TreeError(
            f"the tree was built for a prefix of {tree.prefix_len} tokens; "
            f"the session has {length}"
        )
    if vocab_size is not None:
        for row, token in enumerate(tree.token_ids):
            if not 0 <= token < vocab_size:
                raise TreeError(
                    f"row {row} holds token {token}; the target's vocabulary is "
                    f"0 .. {vocab_size - 1}"
                )
    if context_limit is None:
        return
    if length > context_limit:
        raise ContextLimitError(
            f"the session holds {length} tokens; the context limit is {context_limit}"
        )
    for row, position in enumerate(tree.position_ids):
        if position >= context_limit:
            raise ContextLimitError(
                f"row {row} would sit at position {position}; the target's last "
                f"position is {context_limit - 1}"
            )
