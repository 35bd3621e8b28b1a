"""One configuration and what it is thought to cost: the unit of every comparison.

A round drafts, verifies, and does the rest (packing, selection, commit, reading the
prompt); it commits so many tokens. Time a token is the sum over the tokens, whatever
the numbers are: seconds of a machine, or Fractions of a worked example
(section 0x02C).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .. import checks
from ..errors import SpecbookError
from ..measure.frontier_data import Configuration

HOW = ("measured", "predicted", "assumed")
"""Decoded and timed; worked out from counts and times; made up for an example."""


def megabytes(size: int) -> str:
    """Bytes in MB, to the byte: a limit that is typed as it is told does as told."""
    return f"{size / 1e6:.6f}".rstrip("0").rstrip(".") + " MB"


@dataclass(frozen=True)
class Estimate:
    """What a configuration costs and brings.

    `tokens`: committed a round; `draft`, `verify`, `rest`: time of a round, of one
    request; `extra_bytes`: what the source holds beside the target. `how`: of `HOW`;
    `basis`: on what it rests, in words. `worlds` [W]: the time a token in worlds in
    which prompts (and turns of the clock) were drawn again, or None. Entry w of two
    estimates from the same evidence belongs to the same world. Raises `SpecbookError`
    for numbers that no round can have. Section 0x02C.
    """

    configuration: Configuration
    tokens: Any
    draft: Any
    verify: Any
    rest: Any = 0
    extra_bytes: int = 0
    how: str = "assumed"
    basis: str = ""
    worlds: np.ndarray | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.configuration, Configuration):
            raise SpecbookError(f"not a Configuration: {self.configuration!r}")
        if self.configuration.family == "peer":
            raise SpecbookError(
                f"{self.configuration.name} is another library: it cannot be advised"
            )
        # A number that float64 cannot hold has no place in a table or in a file.
        checks.float64(self.tokens, "tokens", least=1)
        for name in ("draft", "verify", "rest"):
            checks.float64(getattr(self, name), name, least=0)
        checks.float64(self.cost, "the time of a round")
        if not self.cost > 0:
            raise SpecbookError(f"{self.name}: a round takes time, got {self.cost}")
        held = checks.integer(self.extra_bytes, "extra_bytes", least=0)
        object.__setattr__(self, "extra_bytes", held)
        if self.configuration.family == "plain" and held:
            raise SpecbookError(
                f"plain decoding holds nothing beside the target, got {held} bytes"
            )
        checks.one_of(self.how, "how", HOW)
        checks.text(self.basis, "basis")
        if self.worlds is not None:
            try:
                worlds = np.asarray(self.worlds, dtype=np.float64)
            except (ValueError, TypeError, OverflowError) as error:
                raise SpecbookError(f"worlds must hold times: {error}") from None
            sound = worlds.ndim == 1 and len(worlds) > 0
            if not sound or not (np.isfinite(worlds) & (worlds > 0)).all():
                raise SpecbookError(f"{self.name}: worlds must hold times above 0")
            object.__setattr__(self, "worlds", worlds)

    @property
    def name(self) -> str:
        """Of the configuration."""
        return self.configuration.name

    @property
    def cost(self) -> Any:
        """Time of a round."""
        return self.draft + self.verify + self.rest

    @property
    def per_token(self) -> Any:
        """Time a committed token."""
        return self.cost / self.tokens

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % of the time a token, None without worlds."""
        if self.worlds is None:
            return None
        low, high = np.quantile(self.worlds, (0.025, 0.975))
        return float(low), float(high)

    def changed(self, *, tokens: Any = 1, draft: Any = 1, verify: Any = 1) -> Estimate:
        """The same with these parts multiplied, without worlds: they were not drawn
        for it. Raises `SpecbookError` for a factor that is negative, and for fewer than
        one token a round."""
        for value, name in ((tokens, "tokens"), (draft, "draft"), (verify, "verify")):
            checks.real(value, name, least=0)
        return replace(
            self,
            tokens=self.tokens * tokens,
            draft=self.draft * draft,
            verify=self.verify * verify,
            worlds=None,
        )
