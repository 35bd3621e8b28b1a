"""What rules accept on a real model's laws, and what the best of them could.

The laws are read where the target really was: along answers that it gave. At each place
the acceptance of a rule is a number that `oracles.acceptance_curve` knows without any
decoding, so a handful of places tells the rules apart. Places of one answer are alike;
intervals are drawn over answers (article, section 0x08C).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import checks
from ..chance import Sampler
from ..errors import SpecbookError
from ..lab import interval
from ..oracles import Curve, acceptance_curve
from ..policy import SamplingPolicy
from ..tree import CandidateTree

Laws = list[list[tuple[np.ndarray, np.ndarray]]]
Line = tuple[str, Iterable[int], str]


def paired_laws(
    target: Any,
    draft: Any,
    answers: Iterable[Any],
    places: Iterable[int],
    temperatures: Iterable[float] = (1.0,),
) -> dict[float, Laws]:
    """{temperature: for each answer, for each place, (p, q)}, float64 laws [V].

    `target`, `draft`: two `Target`s of one vocabulary. `answers`: with `prompt_ids` and
    `tokens`, as recordings hold them. `places`: how many tokens of the answer stand
    before the row, at least one and less than the shortest answer has. Raises
    `SpecbookError` for models of different vocabularies and for a short answer.
    """
    if target.vocab_size != draft.vocab_size:
        raise SpecbookError(
            f"the draft has {draft.vocab_size} tokens, the target {target.vocab_size}"
        )
    rows = [
        checks.integer(place, f"places[{i}]", least=1)
        for i, place in enumerate(checks.entries(places, "places", "integers"))
    ]
    if not rows:
        raise SpecbookError("places names no place")
    policies = {float(heat): SamplingPolicy(heat) for heat in temperatures}
    found: dict[float, Laws] = {heat: [] for heat in policies}
    for number, answer in enumerate(checks.entries(answers, "answers", "answers")):
        if len(answer.tokens) <= max(rows):
            raise SpecbookError(
                f"answers[{number}] has {len(answer.tokens)} tokens, and place "
                f"{max(rows)} is asked for"
            )
        chain = CandidateTree.from_paths(
            [answer.tokens[: max(rows)]], len(answer.prompt_ids)
        )
        both = [
            model.start(answer.prompt_ids).verify(chain) for model in (target, draft)
        ]
        for heat, policy in policies.items():
            found[heat].append(
                [
                    (both[0].law(row - 1, policy), both[1].law(row - 1, policy))
                    for row in rows
                ]
            )
    return found


@dataclass(frozen=True)
class AcceptanceRows:
    """`curves[i][j][name]`: the `Curve` of a line at place j of answer i."""

    curves: Sequence[Sequence[Mapping[str, Curve]]]

    @property
    def places(self) -> int:
        """Pairs of laws in all."""
        return sum(map(len, self.curves))

    @property
    def means(self) -> dict[str, dict[int, float]]:
        """{name: {k: mean acceptance over all places}}."""
        flat = [place for answer in self.curves for place in answer]
        return {
            name: {
                k: float(np.mean([float(place[name].values[k]) for place in flat]))
                for k in curve.values
            }
            for name, curve in flat[0].items()
        }

    @property
    def sampling_error(self) -> float:
        """The largest standard error that sampling leaves in any of the means."""
        flat = [place for answer in self.curves for place in answer]
        return max(
            float(np.linalg.norm([place[name].errors[k] for place in flat])) / len(flat)
            for name, curve in flat[0].items()
            for k in curve.values
        )

    def below(self, name: str, ceiling: str, k: int) -> tuple[float, float, float]:
        """How far line `name` stays below line `ceiling` with k drafts: the mean over
        places, and its 95 % bootstrap interval over answers."""
        gaps = [
            sum(
                float(place[ceiling].values[k] - place[name].values[k])
                for place in answer
            )
            for answer in self.curves
        ]
        return interval(gaps, [len(answer) for answer in self.curves])

    def needed(self, name: str, wanted: float) -> int | None:
        """The smallest k with which line `name` reaches `wanted` on average; None if
        none of its k does."""
        enough = [k for k, mean in self.means[name].items() if mean >= wanted]
        return min(enough, default=None)


def acceptance_on(
    laws: Laws, lines: Mapping[str, Line], *, seed: int = 0
) -> AcceptanceRows:
    """Every line at every place of `laws` (as `paired_laws` gives them for one
    temperature). `lines`: {name: (verifier, numbers of drafts, sampling)}, as
    `acceptance_curve` takes them. `seed`: for what is sampled. Raises `SpecbookError`
    for no laws or no lines."""
    chance = Sampler(seed)
    asked = {
        name: (rule, checks.entries(ks, f"lines[{name!r}]", "integers"), way)
        for name, (rule, ks, way) in lines.items()
    }
    if not asked or not laws or not all(map(len, laws)):
        raise SpecbookError("acceptance needs a line and a pair of laws at least")
    return AcceptanceRows(
        [
            [
                {
                    name: acceptance_curve(rule, p, q, ks, way, chance=chance)
                    for name, (rule, ks, way) in asked.items()
                }
                for p, q in answer
            ]
            for answer in laws
        ]
    )
