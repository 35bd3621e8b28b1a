"""Whose state a row is, and when it may stand in for the target's (section 0x05C).

A target that drafts for itself leaves rows behind that look like its own: hidden
states, keys and values, of the right shape and type. Two things are asked of a row
before the target may use it.

What it is *for*: seven fields, which `may_reuse` compares. That is necessary and never
enough, for two paths through the same layers can agree in all seven and differ in every
number.

What it *is*: the sublayers that it went through, one by one, and what it attended to.
Whoever computes a row writes that into its `Tag`; nobody can set the ownership, which
follows from it. `publish` is the one step that makes rows authoritative, and it refuses
whatever is not the target's own full path.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from .. import checks
from ..errors import TargetError

EMBEDDING = "embedding"
"""The first step of every path."""

_ROOT = hashlib.sha256(b"specbook ancestry").hexdigest()


class StateError(TargetError):
    """A row of state would be used or published as something that it is not."""


class Ownership(StrEnum):
    """The three kinds of state of section 0x05C."""

    AUTHORITATIVE = "authoritative"
    """Published: the committed cache."""
    VERIFICATION = "verification"
    """Computed by the full path of the target, and not decided on yet."""
    PROVISIONAL = "provisional"
    """Anything else: a shallow row, a row of a skipped path, a row of an adapter."""


def ancestry(tokens: Iterable[int]) -> str:
    """The hash of all the tokens before a row, in order."""
    found = _ROOT
    for token in checks.token_ids(tokens, "tokens"):
        found = descend(found, token)
    return found


def descend(before: str, token: int) -> str:
    """The hash of the tokens behind `before` and `token`. Link by link, so that a new
    row costs one hash and not one for each token before it."""
    return hashlib.sha256(f"{before} {token}".encode()).hexdigest()


@dataclass(frozen=True)
class StateKey:
    """What a row of state is for: the seven fields of section 0x05C.

    `layer_boundary`: how many layers lie below it (0: the embedding; the number of
    layers: what the final norm reads). `token_id`, `position`: the row's own.
    `ancestry_hash`: `ancestry` of the tokens before it. `cache_generation`: how many
    commits the committed cache had seen when the row attended to it.
    """

    checkpoint: str
    layer_boundary: int
    token_id: int
    position: int
    ancestry_hash: str
    dtype: str
    cache_generation: int

    def __post_init__(self) -> None:
        for name in ("checkpoint", "ancestry_hash", "dtype"):
            checks.text(getattr(self, name), name, error=StateError)
        for name in ("layer_boundary", "token_id", "position", "cache_generation"):
            value = getattr(self, name)
            # The exact type first: each row has several keys in a round, and the check
            # for any integer type costs more than all else about one.
            if type(value) is not int or value < 0:
                checks.integer(value, name, least=0, error=StateError)

    def at(self, boundary: int) -> StateKey:
        """The key of the same row at another layer boundary."""
        return StateKey(
            self.checkpoint,
            boundary,
            self.token_id,
            self.position,
            self.ancestry_hash,
            self.dtype,
            self.cache_generation,
        )


FIELDS = tuple(field.name for field in dataclasses.fields(StateKey))


def differences(candidate: StateKey, need: StateKey) -> list[str]:
    """The fields in which `candidate` is not what is needed, as texts."""
    for name, key in (("candidate", candidate), ("need", need)):
        if not isinstance(key, StateKey):
            raise StateError(f"{name} must be a StateKey, got {key!r}")
    return [
        f"{name} is {getattr(candidate, name)!r}, needed is {getattr(need, name)!r}"
        for name in FIELDS
        if getattr(candidate, name) != getattr(need, name)
    ]


def may_reuse(candidate: StateKey, need: StateKey) -> bool:
    """Whether all seven fields agree: a necessary check and not a proof. That the two
    were computed by the same path is for `Tag.path` to say."""
    return not differences(candidate, need)


def layer_steps(first: int, last: int) -> tuple[str, ...]:
    """The sublayers of layers `first` to `last` - 1, in the order in which they run.
    Raises `StateError` unless both are layer numbers, `last` not below `first`."""
    first = checks.integer(first, "first", least=0, error=StateError)
    return _steps(first, checks.integer(last, "last", least=first, error=StateError))


def full_path(boundary: int) -> tuple[str, ...]:
    """The path of the target itself up to a layer boundary. Raises `StateError` for
    what is none."""
    # The exact type first: it is asked several times for each row of a round.
    if type(boundary) is not int or boundary < 0:
        boundary = checks.integer(boundary, "boundary", least=0, error=StateError)
    return _full_path(boundary)


@functools.cache
def _steps(first: int, last: int) -> tuple[str, ...]:
    return tuple(
        f"{layer}.{part}"
        for layer in range(first, last)
        for part in ("attention", "mlp")
    )


@functools.cache
def _full_path(boundary: int) -> tuple[str, ...]:
    return (EMBEDDING, *_steps(0, boundary))


@dataclass(frozen=True)
class Tag:
    """What is known of one row of state, from whoever computed it.

    `layers`: how many the whole target has. `owner`: the name of who computed it.
    `path`: the steps that it went through, `full_path` or another. `taint`: empty, or
    why a row that it attended to was not the target's; its own path may be full then,
    and its numbers are still not the target's. `published`: set by `publish` alone.
    """

    key: StateKey
    layers: int
    owner: str
    path: tuple[str, ...]
    taint: str = ""
    published: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.key, StateKey):
            raise StateError(f"key must be a StateKey, got {self.key!r}")
        layers = self.layers
        if type(layers) is not int or layers < 1:
            checks.integer(layers, "layers", least=1, error=StateError)
        boundary = self.key.layer_boundary
        if boundary > layers:
            raise StateError(
                f"a row at layer boundary {boundary} of a model with {layers} layers"
            )
        for name in ("owner", "taint"):
            checks.text(getattr(self, name), name, error=StateError)
        # That one tuple is all rows' of the target: not looked through for each.
        if self.path is not full_path(boundary):
            _check_path(self.path)
        checks.boolean(self.published, "published", error=StateError)
        if self.published and (why := self._unpublishable):
            raise StateError(f"a row of {self.owner!r} cannot be published: {why}")

    @property
    def deviation(self) -> str:
        """Why the row is not the target's own at its boundary; empty if it is."""
        wanted = full_path(self.key.layer_boundary)
        if self.path == wanted:
            return self.taint
        if missing := [step for step in wanted if step not in self.path]:
            return f"its path left out {', '.join(missing)}"
        if extra := [step for step in self.path if step not in wanted]:
            return f"its path went through {', '.join(extra)}, too"
        return "its path ran the target's steps in another order"

    @property
    def _unpublishable(self) -> str:
        """Why the row is no whole row of the target; empty if it is."""
        if self.key.layer_boundary < self.layers:
            return self.deviation or (
                f"it ends at layer boundary {self.key.layer_boundary} of {self.layers}"
            )
        return self.deviation

    @property
    def ownership(self) -> Ownership:
        """It follows from what was computed; there is no way to claim it."""
        if self.published:
            return Ownership.AUTHORITATIVE
        return Ownership.PROVISIONAL if self._unpublishable else Ownership.VERIFICATION

    def through(
        self,
        steps: Sequence[str],
        boundary: int,
        owner: str,
        attended: Iterable[Tag] = (),
    ) -> Tag:
        """The tag of the row after more steps, up to `boundary`, having attended to the
        rows of `attended`. Raises `StateError` for steps that are no texts, and for
        rows that are no tags."""
        more = checks.entries(steps, "steps", "texts", StateError)
        path, full = (*self.path, *more), full_path(boundary)
        return Tag(
            self.key.at(boundary),
            self.layers,
            owner,
            full if path == full else path,  # one tuple for all such rows
            self.taint or taint_of(attended),
        )


def _check_path(path: Any) -> None:
    """Raise `StateError` unless `path` is a tuple of texts: any other could not be
    compared with the target's."""
    if not isinstance(path, tuple):
        raise StateError(f"path must be a tuple of steps, got {path!r}")
    for place, step in enumerate(path):
        checks.text(step, f"path[{place}]", error=StateError)


def _check_tag(tag: Any, name: str) -> None:
    if not isinstance(tag, Tag):
        raise StateError(f"{name} must be a Tag, got {tag!r}")


def taint_of(attended: Iterable[Tag]) -> str:
    """Why a row that attends to these rows cannot be the target's; empty if it can.

    It may refuse too much: a row that deviates in its last sublayer has keys and values
    below that are the target's. It never refuses too little.
    """
    for place, tag in enumerate(
        checks.entries(attended, "attended", "tags", StateError)
    ):
        _check_tag(tag, f"attended[{place}]")
        if deviation := tag.deviation:
            return (
                f"it attended to token {tag.key.token_id} at position "
                f"{tag.key.position}, a row of {tag.owner!r}: {deviation}"
            )
    return ""


def check_reuse(tag: Tag, need: StateKey) -> None:
    """Raise `StateError` unless the row of `tag` is the one that is needed, by its
    seven fields and by its path."""
    _check_tag(tag, "tag")
    unlike = differences(tag.key, need)
    where = f"the row of token {need.token_id} at position {need.position}"
    if unlike:
        raise StateError(f"{where} cannot be reused: {'; '.join(unlike)}")
    if deviation := tag.deviation:
        raise StateError(
            f"{where}, of {tag.owner!r}, cannot be reused: all seven fields agree, but "
            f"{deviation}"
        )


def publish(tags: Sequence[Tag], needs: Sequence[StateKey]) -> list[Tag]:
    """The tags of the same rows as authoritative state, or `StateError`.

    `needs`: what the committed cache needs next, row by row, as the committed tokens
    say it. A row is refused when it is provisional (a shallow row, a skipped path, an
    adapter), when it attended to such a row, or when it is the row of another token,
    position, ancestry, checkpoint, type or generation. All rows or none.
    """
    tags = checks.entries(tags, "tags", "tags", StateError)
    needs = checks.entries(needs, "needs", "keys", StateError)
    if len(tags) != len(needs):
        raise StateError(f"{len(tags)} rows for {len(needs)} places of the cache")
    for row, (tag, need) in enumerate(zip(tags, needs, strict=True)):
        _check_tag(tag, f"tags[{row}]")
        if tag.ownership is not Ownership.VERIFICATION:
            why = tag._unpublishable or "it is published already"
            raise StateError(
                f"row {row} of {len(tags)} is {tag.ownership} state of {tag.owner!r} "
                f"and cannot be published: {why}"
            )
        if unlike := differences(tag.key, need):
            raise StateError(
                f"row {row} of {len(tags)} cannot be published: {'; '.join(unlike)}"
            )
    return [dataclasses.replace(tag, published=True) for tag in tags]


class TaggedRows:
    """A tensor [n, ...] of provisional rows with one tag each. The two never part:
    rows are chosen and joined together with their tags."""

    def __init__(self, tensor: Any, tags: Sequence[Tag]) -> None:
        if not getattr(tensor, "shape", None):
            raise StateError(f"tensor must be a tensor [n, ...], got {tensor!r}")
        self.tensor = tensor
        self.tags = tuple(checks.entries(tags, "tags", "tags", StateError))
        for place, tag in enumerate(self.tags):
            _check_tag(tag, f"tags[{place}]")
        if len(tensor) != len(self.tags):
            raise StateError(
                f"{len(tensor)} rows of a tensor have {len(self.tags)} tags"
            )

    def __len__(self) -> int:
        """How many rows."""
        return len(self.tags)

    def take(self, rows: Sequence[int]) -> TaggedRows:
        """The rows of these numbers, in this order. Raises `StateError` for one that
        there is not: from the end, none is counted."""
        last = len(self) - 1
        places = [
            checks.integer(row, f"rows[{place}]", least=0, most=last, error=StateError)
            for place, row in enumerate(
                checks.entries(rows, "rows", "numbers", StateError)
            )
        ]
        return TaggedRows(self.tensor[places], [self.tags[place] for place in places])

    @classmethod
    def none(cls, like: TaggedRows) -> TaggedRows:
        """No rows, of the width and type of others."""
        return cls(like.tensor[:0], [])
