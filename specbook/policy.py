"""The sampling policy: from a model's raw row to the law that is decoded.

Target, draft and verifier must agree on it, so it exists once. Temperature first,
then top-k, then top-p, each renormalised: the *processed* law is the one that the
output must have, and the one that a proposal records as q.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from . import checks
from .errors import LawError, SpecbookError


@dataclass(frozen=True)
class SamplingPolicy:
    """Temperature (0 is the argmax, lowest id on ties) and optional truncations."""

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        temperature = checks.float64(self.temperature, "temperature", least=0)
        object.__setattr__(self, "temperature", temperature)
        if self.top_k is not None:
            checks.integer(self.top_k, "top_k", least=1)
        if self.top_p is not None:
            checks.real(self.top_p, "top_p", least=0, most=1)
            if self.top_p == 0:
                raise SpecbookError("top_p must be above 0, got 0")

    @property
    def greedy(self) -> bool:
        """True when every law is one-hot, so that decoding is deterministic."""
        return self.temperature == 0

    def law_from_logits(self, logits: Any, where: str = "row") -> np.ndarray:
        """The processed law, float64 [V], of one row of logits [V].

        Minus infinity is a forbidden token. NaN, plus infinity and a row of nothing
        but minus infinity raise `LawError` naming `where`.
        """
        logits = np.asarray(logits)
        if logits.ndim != 1 or len(logits) == 0:
            raise LawError(f"{where}: one row of logits expected, got {logits.shape}")
        if np.issubdtype(logits.dtype, np.integer):
            logits = logits.astype(np.float64)
        elif not np.issubdtype(logits.dtype, np.floating):
            raise LawError(f"{where}: logits of type {logits.dtype}")
        best = int(logits.argmax())  # the position of a NaN, if there is one
        top = float(logits[best])
        if not np.isfinite(top):
            kind = "NaN" if np.isnan(top) else "no finite entry" if top < 0 else "+inf"
            raise LawError(f"{where}: the target's logits have {kind} (token {best})")
        if self.greedy:
            return _one_hot(len(logits), best)
        # Subtracting first keeps the largest at exactly 0, whatever the temperature;
        # a difference too large for float64 is minus infinity, whose weight is 0.
        scaled = logits.astype(np.float64)
        with np.errstate(over="ignore"):
            scaled -= top
            scaled /= self.temperature
        np.exp(scaled, out=scaled)
        return self._truncate(scaled / scaled.sum())

    def law_from_probabilities(self, law: Any, where: str = "row") -> np.ndarray:
        """The processed law of a row [V] that already is a law.

        Fractions stay Fractions at temperatures 0 and 1; a power of a Fraction is not
        rational in general, so other temperatures give float64.
        """
        law = checks.law(law, where)
        if self.greedy:
            return _one_hot(len(law), int(np.argmax(law)), exact=law.dtype == object)
        if self.temperature == 1:
            return self._truncate(law)
        with np.errstate(divide="ignore"):
            return self.law_from_logits(np.log(law.astype(np.float64)), where)

    def _truncate(self, law: np.ndarray) -> np.ndarray:
        if self.top_k is not None and self.top_k < len(law):
            # A stable order, so that the lowest id wins a tie for the last place.
            law = _keep(law, np.argsort(-law, kind="stable")[: self.top_k])
        if self.top_p is not None and self.top_p < 1:
            order = np.argsort(-law, kind="stable")
            # Of the tokens before each one only: adding and then subtracting a
            # token's own share would round a float sum across the threshold.
            before = np.concatenate([law[:1] * 0, np.cumsum(law[order])[:-1]])
            law = _keep(law, order[before < self.top_p])
        return law


def _one_hot(size: int, index: int, exact: bool = False) -> np.ndarray:
    if exact:
        return np.array([Fraction(int(i == index)) for i in range(size)], dtype=object)
    law = np.zeros(size)
    law[index] = 1.0
    return law


def _keep(law: np.ndarray, indices: np.ndarray) -> np.ndarray:
    kept = law * 0
    kept[indices] = law[indices]
    return kept / kept.sum()
