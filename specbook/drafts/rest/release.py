"""The release record: everything that an index was made from and by (0x04C).

An index is only as good as what is known about it. The record binds the corpus, its
licence, what was kept out of it, the tokenizer, the two lengths, every convention that
a reader of the bytes relies on, and the builder. Its hash goes into the round manifest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from ... import __version__, checks
from ...errors import ArtifactError, SpecbookError

UNDECLARED = "undeclared"
"""What stands where the maker of an index said nothing."""

KEY_ENCODING = (
    "suffix array over codes; a code is the rank of the id among the shard's distinct "
    "ids, counted from 1; 0 ends a document"
)
BYTE_ORDER = "little"
COUNTER = "none stored: a count is the width of an interval, in 64 bits"
PRUNING = "nodes by higher count, then less depth, then smaller ids along the path"


@dataclass(frozen=True, kw_only=True)
class Release:
    """What an index binds, apart from the checksums of its shards.

    The maker declares `corpus` (its name), `corpus_snapshot` (a digest of its files),
    `licence` (and the terms of its use), `exclusions` (a digest of what was kept out,
    see `leakage.manifest`), `tokenizer` (the identity of its files, as the target
    states it), `normalisation` (what was done to the text first) and `calibrated_for`
    (the target family that the options were chosen with). `context_length` is the
    longest suffix that is looked up by default and `continuation_length` the most
    tokens of a continuation. `cross_borders`: matches and continuations run from one
    document into the next. The rest is what this version does; an index that was made
    under other conventions is refused. Raises `SpecbookError`.
    """

    corpus: str = UNDECLARED
    corpus_snapshot: str = UNDECLARED
    licence: str = UNDECLARED
    exclusions: str = UNDECLARED
    tokenizer: str = UNDECLARED
    normalisation: str = UNDECLARED
    calibrated_for: str = UNDECLARED
    context_length: int = 16
    continuation_length: int = 32
    cross_borders: bool = False
    key_encoding: str = KEY_ENCODING
    byte_order: str = BYTE_ORDER
    counter: str = COUNTER
    pruning: str = PRUNING
    builder: str = f"specbook {__version__}"

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "str":
                if not checks.text(value, field.name):
                    raise SpecbookError(
                        f"{field.name} must not be empty; what is not declared is "
                        f"{UNDECLARED!r}"
                    )
                _check_unicode(value, field.name)
            elif field.type == "int":
                value = checks.integer(value, field.name, least=1)
            else:
                value = checks.boolean(value, field.name)
            object.__setattr__(self, field.name, value)
        for name, ours in _CONVENTIONS.items():
            theirs = getattr(self, name)
            if theirs != ours:
                raise SpecbookError(
                    f"{name} is {theirs!r}; this specbook's is {ours!r}"
                )

    @property
    def undeclared(self) -> tuple[str, ...]:
        """The items that nobody declared. A release that is published has none."""
        return tuple(
            f.name for f in fields(self) if getattr(self, f.name) == UNDECLARED
        )

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, for the record in the file."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Any, where: str) -> Release:
        """The release that `to_dict` wrote. Raises `ArtifactError` that names what is
        missing, unknown or made under other conventions."""
        if not isinstance(values, Mapping):
            raise ArtifactError(f"{where}: the release is no table of items")
        if wrong := sorted({f.name for f in fields(cls)} ^ set(values)):
            raise ArtifactError(f"{where}: missing or unknown release items: {wrong}")
        try:
            return cls(**values)
        except SpecbookError as problem:
            raise ArtifactError(f"{where}: {problem}") from problem


_CONVENTIONS = {
    "key_encoding": KEY_ENCODING,
    "byte_order": BYTE_ORDER,
    "counter": COUNTER,
    "pruning": PRUNING,
}


def declared(items: Mapping[str, Any]) -> Release:
    """The release of a new index, from what its maker says. Raises `SpecbookError` for
    an item that is unknown, or that is not the maker's to say."""
    known = {f.name for f in fields(Release)} - {*_CONVENTIONS, "builder"}
    for name in items:
        checks.one_of(name, "an item of the release", sorted(known))
    return Release(**items)


def _check_unicode(value: str, name: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError as problem:
        raise SpecbookError(f"{name} is not Unicode text: {problem}") from problem
