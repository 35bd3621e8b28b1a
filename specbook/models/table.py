"""A target whose law after every prefix is written down: for exact proofs.

No torch, no logits, no cache. What it has in common with a real target is the
protocol, down to the refusal of a commit that is not a path, so that what is proved
with it is the engine's own code (design: one program, two readings).
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import __version__, checks
from ..errors import LawError, SpecbookError, TargetError
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

Law = Sequence[Any]
Table = Mapping[tuple[int, ...], Law] | Callable[[tuple[int, ...]], Law]


class TableTarget:
    """A stub with a fixed law per prefix.

    `table`: a mapping from prefix (tuple of ids) to law, or a function of the
    prefix. A law is a sequence [V] of Fractions (kept exact) or floats, summing to 1.
    `vocab_size` may be left out for a mapping that is not empty. `context_limit`:
    positions that the pretend model has, or None. `eos_token_id`: an id, several, or
    None. `hidden`: a function of the prefix that stands for a model's hidden state
    after its last token, a vector of anything; without it the table has no states. The
    keys of a mapping are checked now, laws at every look-up: a wrong one raises
    `LawError`, an unknown prefix `TargetError`, both naming the prefix.
    """

    def __init__(
        self,
        table: Table,
        *,
        vocab_size: int | None = None,
        context_limit: int | None = None,
        eos_token_id: int | tuple[int, ...] | None = None,
        hidden: Callable[[tuple[int, ...]], Sequence[Any]] | None = None,
    ) -> None:
        if not callable(table) and not isinstance(table, Mapping):
            raise SpecbookError(
                f"table must be a mapping from prefixes or a function, got {table!r}"
            )
        if vocab_size is None:
            if callable(table) or not table:
                raise SpecbookError(
                    "vocab_size is needed when the table is a function or empty"
                )
            prefix, row = next(iter(table.items()))
            vocab_size = len(
                checks.entries(
                    row, f"the law after prefix {prefix}", "probabilities", LawError
                )
            )
        self.vocab_size = checks.integer(vocab_size, "vocab_size", least=1)
        self.context_limit = (
            None
            if context_limit is None
            else checks.integer(context_limit, "context_limit", least=1)
        )
        self.eos_token_id = check_eos(eos_token_id, self.vocab_size)
        if not callable(table):
            _check_entries(table, self.vocab_size)
        if hidden is not None and not callable(hidden):
            raise SpecbookError(
                f"hidden must be a function of a prefix, got {hidden!r}"
            )
        self._hidden = hidden
        self.gives_hidden = hidden is not None
        self._table = table
        self._unique = uuid.uuid4().hex

    def lookup(self, prefix: Sequence[int]) -> np.ndarray:
        """The checked law [V] after `prefix`: float64, or Fractions."""
        ids = checks.token_ids(prefix, "prefix", vocab_size=self.vocab_size)
        key = tuple(ids)
        if callable(self._table):
            try:
                row = self._table(key)
            except KeyError:
                row = None
            if row is None:
                raise TargetError(f"the table has no law for prefix {key}")
        else:
            try:
                row = self._table[key]
            except KeyError:
                raise TargetError(f"the table has no law for prefix {key}") from None
        return checks.law(row, f"the law after prefix {key}", size=self.vocab_size)

    def identity(self) -> dict[str, str]:
        """As `Target.identity`. Tables given as a mapping are bound by content. What
        a function would answer cannot be hashed, so a target made from one carries a
        number that no other target has, be it made from the same function."""
        if callable(self._table):
            name = getattr(self._table, "__qualname__", type(self._table).__qualname__)
            checkpoint = f"table:function {name} {self._unique}"
        else:
            # The mapping is the caller's, who may have changed it since.
            _check_entries(self._table, self.vocab_size)
            entries = sorted(
                (tuple(prefix), tuple(str(p) for p in row))
                for prefix, row in self._table.items()
            )
            digest = hashlib.sha256(repr(entries).encode("utf-8")).hexdigest()
            checkpoint = f"table:sha256:{digest}"
        return {
            "checkpoint": checkpoint,
            "tokenizer": f"ids 0..{self.vocab_size - 1}",
            "output_head": f"table of {self.vocab_size}",
            "dtype": "as given",
            "backend": f"specbook {__version__} table",
        }

    def hidden_state(self, prefix: Sequence[int]) -> list[Any]:
        """The state after the last token of `prefix`. `TargetError` without one."""
        if self._hidden is None:
            raise TargetError("this table has no hidden states")
        return checks.entries(
            self._hidden(tuple(prefix)), f"the state after {tuple(prefix)}", "numbers"
        )

    def start(self, prompt_ids: Sequence[int]) -> TableSession:
        """As `Target.start`."""
        tokens = check_prompt(prompt_ids, self.vocab_size, self.context_limit)
        return TableSession(self, tokens)


def _check_entries(table: Mapping[Any, Any], vocab_size: int) -> None:
    """Keys must be prefixes, and what they lead to must be rows of something."""
    for prefix, row in table.items():
        if not isinstance(prefix, tuple):
            raise SpecbookError(
                f"the keys of table must be prefixes (tuples of ids), got {prefix!r}"
            )
        checks.token_ids(prefix, f"table's prefix {prefix}", vocab_size=vocab_size)
        if isinstance(row, (str, bytes)) or not hasattr(row, "__len__"):
            raise LawError(
                f"the law after prefix {prefix} must be a sequence of probabilities, "
                f"got {row!r}"
            )


class TableSession:
    """One request to a `TableTarget`. See `GrowingSession` and `HiddenSession`."""

    def __init__(self, target: TableTarget, tokens: list[int]) -> None:
        self.target = target
        self.tokens = tokens
        self.generation = 0
        self._open: CandidateTree | None = None
        self._watched = False
        self._added: tuple[int, int] | None = None
        """The first and past-the-last token that the last commit would have cached."""
        self._cached = 0

    def verify(self, tree: CandidateTree) -> TableRows:
        """As `TargetSession.verify`; looks nothing up until a law is asked for."""
        target = self.target
        check_tree(tree, len(self.tokens), target.vocab_size, target.context_limit)
        self._open = tree
        return TableRows(target, tuple(self.tokens), tree)

    def commit(self, rows: Sequence[int], token: int) -> None:
        """As `TargetSession.commit`."""
        if self._open is None:
            raise CommitError("commit without a verify before it")
        path, token = check_path(self._open, rows, token, self.target.vocab_size)
        self.tokens.extend(self._open.token_ids[row] for row in path)
        self._added = (self._cached, len(self.tokens))
        self._cached = len(self.tokens)
        self.tokens.append(token)
        self.generation += 1
        self._open = None

    def grow(self, tree: CandidateTree) -> TableRows:
        """As `GrowingSession.grow`."""
        check_growth(self._open, tree)
        return self.verify(tree)

    def extend(self, tokens: Sequence[int]) -> None:
        """As `GrowingSession.extend`."""
        self.tokens += checks.token_ids(tokens, vocab_size=self.target.vocab_size)
        self.generation += 1
        self._open = None
        if self._added is not None:
            self._added = (self._cached, self._cached)

    def watch_hidden(self) -> None:
        """As `HiddenSession.watch_hidden`."""
        if not self.target.gives_hidden:
            raise TargetError("this table has no hidden states")
        self._watched = True

    def committed_hidden(self) -> list[list[Any]]:
        """As `HiddenSession.committed_hidden`, as a list of lists."""
        if not self._watched:
            raise TargetError("nobody asked to watch the hidden states")
        if self._added is None:
            raise CommitError("hidden states of a commit before the first one")
        return [
            self.target.hidden_state(self.tokens[: place + 1])
            for place in range(*self._added)
        ]

    def bytes_per_row(self) -> int:
        """Zero: a table keeps no state."""
        return 0


class TableRows:
    """The laws at the rows of one verified tree. See `TargetRows`."""

    def __init__(
        self, target: TableTarget, prefix: tuple[int, ...], tree: CandidateTree
    ) -> None:
        self._target = target
        self._prefix = prefix
        self._tree = tree

    def prepare(self, row: int) -> None:
        """As `TargetRows.prepare`: a table puts nothing off."""

    def law(self, row: int, policy: SamplingPolicy) -> np.ndarray:
        """As `TargetRows.law`; Fractions stay Fractions where the policy allows."""
        row = checks.integer(
            row, "row", least=FRONTIER, most=len(self._tree) - 1, error=LawError
        )
        path = [] if row == FRONTIER else self._tree.path_rows(row)
        prefix = self._prefix + tuple(self._tree.token_ids[r] for r in path)
        where = f"row {row} (prefix {prefix})"
        law = self._target.lookup(prefix)
        return check_policy(policy).law_from_probabilities(law, where)
