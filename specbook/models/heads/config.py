"""The shape of a set of draft heads, as plain numbers: frozen, and JSON on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from ... import checks
from ...errors import SpecbookError

KINDS = ("medusa", "hydra", "hydra_plus", "clover", "markov")
"""The architectures; each is the module of that name in this package."""

MOST_SEED = 2**64 - 1
"""What torch's generator can be seeded with."""

MIXING = ("hydra", "hydra_plus", "clover")
"""Kinds whose first block reads state and tokens side by side (`parts.Mix`)."""

_DEFAULTS: Mapping[str, Mapping[str, int]] = {
    "medusa": {},
    "hydra": {},
    "hydra_plus": {"layers": 4, "prefix_layers": 1},
    "clover": {"prefix_layers": 1},
    "markov": {"rank": 64},
}


@dataclass(frozen=True)
class HeadsConfig:
    """What a set of heads is made of (sections 0x06B and 0x06C).

    `width`: the target's hidden width d. `heads`: K, how many tokens ahead. `layers`:
    blocks of each head's network. `bent`: width of the nonlinear way in the first block
    of Hydra's and Clover's (`parts.Mix`), 0 for a linear one. `prefix_layers`: decoder
    layers over the committed rows, the prefix attention of Hydra++ and the augmenting
    block of Clover. `attention_heads`: of these and of Clover's gate. `inner`: width of
    their networks. `rank`: of the Markov correction. A field that a kind has no use for
    is 0. Raises `SpecbookError` for numbers that do not fit together.
    """

    kind: str
    width: int
    heads: int = 4
    layers: int = 1
    bent: int = 0
    prefix_layers: int = 0
    attention_heads: int = 0
    inner: int = 0
    rank: int = 0

    def __post_init__(self) -> None:
        checks.one_of(self.kind, "kind", KINDS)
        for name in ("width", "heads", "layers"):
            self._keep(name, checks.integer(getattr(self, name), name, least=1))
        attends = self.kind in ("hydra_plus", "clover")
        self._check("bent", False, self.kind in MIXING)
        self._check("prefix_layers", self.kind == "hydra_plus", attends)
        self._check("attention_heads", attends, attends)
        self._check("inner", self.prefix_layers > 0, self.prefix_layers > 0)
        self._check("rank", self.kind == "markov", self.kind == "markov")
        # Rotation turns pairs, so each attention head has an even width.
        if attends and self.width % (2 * self.attention_heads):
            raise SpecbookError(
                f"width {self.width} does not split into {self.attention_heads} "
                "attention heads of an even width"
            )

    def _check(self, name: str, needed: bool, used: bool) -> None:
        least, most = int(needed), None if used else 0
        what, value = f"{name} of {self.kind}", getattr(self, name)
        self._keep(name, checks.integer(value, what, least=least, most=most))

    def _keep(self, name: str, value: int) -> None:
        """A number of numpy's is no plain JSON, and a shape is written as JSON."""
        object.__setattr__(self, name, value)

    def to_json(self) -> dict[str, Any]:
        """The fields as plain values."""
        return asdict(self)


def config_of(kind: str, width: int, **changes: int) -> HeadsConfig:
    """The config of a kind with its usual numbers, but for `changes`.

    Attention heads are 64 wide where the width allows, and as wide as it allows where
    it does not; the networks of decoder layers are twice as wide as the state.
    """
    checks.one_of(kind, "kind", KINDS)
    checks.integer(width, "width", least=1)
    known = [field.name for field in fields(HeadsConfig)]
    for name in changes:
        checks.one_of(name, f"field of {kind}", known)
    given: dict[str, int] = {**_DEFAULTS[kind], **changes}
    if kind in MIXING:
        given.setdefault("bent", width // 4)
    if kind in ("hydra_plus", "clover"):
        given.setdefault("attention_heads", _attention_heads(width))
        if given.get("prefix_layers"):
            given.setdefault("inner", 2 * width)
    return HeadsConfig(kind, width, **given)


def _attention_heads(width: int) -> int:
    """The most heads of an even width of at least 64, or one."""
    fitting = [n for n in range(1, width // 64 + 1) if width % (2 * n) == 0]
    return max(fitting, default=1)


def config_from_json(value: Any) -> HeadsConfig:
    """The config that `to_json` wrote. Raises `SpecbookError` for anything else."""
    known = {field.name for field in fields(HeadsConfig)}
    if not isinstance(value, Mapping) or set(value) != known:
        raise SpecbookError(f"heads need exactly {sorted(known)}, got {value!r}")
    return HeadsConfig(**value)
