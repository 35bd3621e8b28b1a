r"""When a chain stops by confidence, and how the threshold follows acceptance (0x05A).

Behind a drafted token whose confidence is below the threshold gamma nothing is drafted.
The token itself is kept and verified: it was drawn, and to drop a draw because the
draft was unsure of it would bend q. The confidence is the draft's probability of the
token at temperature 1, whatever temperature it was drawn at.

After each round an estimate of the acceptance rate moves, and gamma with it:

    ema   = beta1 ema + (1 - beta1) accepted / drafted
    gamma = beta2 gamma + (1 - beta2) (gamma + step)

Two rules say what the step is:

article
    epsilon while ema is at most the target rate, otherwise -epsilon.
original
    epsilon while ema is below the target rate; at or above it -epsilon, but 0 after a
    draft of full length, which the threshold did not cut short (official code of Draft
    & Verify, Zhang et al. 2024).

It is a heuristic and no part of exactness, which verification alone gives. Nothing is
clipped: a gamma above 1 stops behind every token, one below 0 behind none. Fractions
stay exact.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any

from .. import checks
from ..errors import SpecbookError

RULES = ("original", "article")
"""The rules by name."""

START_GREEDY, START_SAMPLING = 0.8, 0.5
"""The first gamma in the official code, at temperature 0 and above it."""

MOST = 8
"""Tokens of a full draft, in the same."""


@dataclass(frozen=True)
class ThresholdPolicy:
    """A rule and its constants, by default those of the official code.

    `rule`: one of `RULES`. `start`: the first gamma; None is `START_GREEDY` or
    `START_SAMPLING`. `target`: the acceptance rate to steer to. `epsilon`: the step.
    `beta1`, `beta2`: how slowly the estimate and gamma move, 0 to 1. Floats or
    Fractions. Raises `SpecbookError` for anything else.
    """

    rule: str = "original"
    start: Any = None
    target: Any = 0.9
    epsilon: Any = 0.01
    beta1: Any = 0.5
    beta2: Any = 0.9

    def __post_init__(self) -> None:
        checks.one_of(self.rule, "rule", RULES)
        if self.start is not None:
            checks.real(self.start, "start", least=0, most=1)
        for name in ("target", "beta1", "beta2"):
            checks.real(getattr(self, name), name, least=0, most=1)
        checks.real(self.epsilon, "epsilon", least=0)

    def __str__(self) -> str:
        return " ".join(f"{f.name}={getattr(self, f.name)}" for f in fields(self))


class StopThreshold:
    """Gamma over the rounds of one request.

    `policy`: the rule. `most`: tokens of a full draft. `greedy`: whether the request is
    decoded at temperature 0, which says where gamma starts. The estimate starts at 0.
    """

    def __init__(
        self,
        policy: ThresholdPolicy | None = None,
        most: int = MOST,
        *,
        greedy: bool = True,
    ) -> None:
        policy = ThresholdPolicy() if policy is None else policy
        if not isinstance(policy, ThresholdPolicy):
            raise SpecbookError(f"not a ThresholdPolicy: {policy!r}")
        self.policy = policy
        self.most = checks.integer(most, "most", least=1)
        usual = START_GREEDY if checks.boolean(greedy, "greedy") else START_SAMPLING
        self.gamma: Any = usual if policy.start is None else policy.start
        self.ema: Any = 0
        self._round = -1

    def stops(self, confidence: Any) -> bool:
        """Whether nothing is drafted behind a token of this confidence, 0 to 1. At
        gamma itself drafting goes on."""
        return bool(checks.real(confidence, "confidence", least=0, most=1) < self.gamma)

    def learn(self, number: int, accepted: int, drafted: int) -> None:
        """What became of the draft of round `number`: `accepted` of `drafted` tokens. A
        round without a draft says nothing, and nothing moves.

        Raises `SpecbookError` for more accepted tokens than drafted, more drafted than
        `most`, and for a round that is not after the last one: an estimate that moves
        twice a round forgets twice as fast.
        """
        number = checks.integer(number, "round", least=0)
        if number <= self._round:
            raise SpecbookError(
                f"the threshold was moved in round {self._round} already, and moves "
                f"once a round; got round {number}"
            )
        checks.integer(drafted, "drafted", least=0, most=self.most)
        checks.integer(accepted, "accepted", least=0, most=drafted)
        self._round = number
        if not drafted:
            return
        policy = self.policy
        rate = Fraction(accepted, drafted)
        self.ema = policy.beta1 * self.ema + (1 - policy.beta1) * rate
        moved = self.gamma + self._step(drafted)
        self.gamma = policy.beta2 * self.gamma + (1 - policy.beta2) * moved

    def _step(self, drafted: int) -> Any:
        policy = self.policy
        if policy.rule == "article":
            return policy.epsilon if self.ema <= policy.target else -policy.epsilon
        if self.ema < policy.target:
            return policy.epsilon
        return 0 if drafted == self.most else -policy.epsilon
