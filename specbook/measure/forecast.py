"""What a choice of a tree promised, beside what decoding with it gave.

A choice promises tokens a round and the time of a round. Both come true or not for
reasons of their own, so they are set side by side part by part: acceptance depends on
the text, verification and drafting on the machine, and what else a round does (packing,
the walk, the commit) was not planned at all (sections 0x02C, 0x0AD).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import checks
from ..engine import Generation, Round
from ..errors import SpecbookError
from ..topologies.hardware import Candidate, Times

WORLDS = 1000

HEAD = ("", "predicted", "measured", "range", "measured / predicted")


@dataclass(frozen=True)
class Part:
    """One quantity. `predicted` is None where nothing was promised. `low`, `high`: for
    tokens a round 95 %, prompts drawn again; for times the middle 80 % of rounds; None
    for a quotient of the others."""

    name: str
    predicted: float | None
    measured: float
    low: float | None = None
    high: float | None = None

    @property
    def ratio(self) -> float | None:
        """Measured over predicted."""
        return self.measured / self.predicted if self.predicted else None

    def row(self) -> list[str]:
        """The cells of a table with the columns `HEAD`."""
        low, high = self.low, self.high
        return [
            self.name,
            "" if self.predicted is None else f"{self.predicted:.2f}",
            f"{self.measured:.2f}",
            "" if low is None or high is None else f"{low:.2f} to {high:.2f}",
            "" if self.ratio is None else f"{self.ratio:.2f}",
        ]


def forecast(
    chosen: Candidate,
    times: Times,
    plain: Sequence[Generation],
    trees: Sequence[Generation],
    *,
    max_new_tokens: int,
    seed: int = 0,
) -> list[Part]:
    """The parts of a prediction and what became of them; times in milliseconds.

    `chosen`, `times`: the tree and the measurements that it was chosen by. `plain`,
    `trees`: runs without a source and with the tree, one prompt each, all asked for
    `max_new_tokens`. A run's first round reads the prompt and is left out; so are the
    rounds near the end that had no room for the whole tree. A path counts as it was
    selected, also where an end token cut it. Raises `SpecbookError` where no round is
    left.
    """
    if not isinstance(chosen, Candidate):
        raise SpecbookError(f"chosen must be a Candidate, got {chosen!r}")
    if not isinstance(times, Times):
        raise SpecbookError(f"times must be Times, got {times!r}")
    checks.integer(max_new_tokens, "max_new_tokens", least=1)
    checks.integer(seed, "seed", least=0)
    alone = [_whole(run, 0, max_new_tokens, "plain") for run in _runs(plain, "plain")]
    grown = [
        _whole(run, chosen.depth, max_new_tokens, "trees")
        for run in _runs(trees, "trees")
    ]
    if not any(alone) or not any(grown):
        raise SpecbookError(
            "no round is left: each run needs a second round with room for the tree"
        )
    one = 1000 * times.one
    drafting = 1000 * times.one * times.draft_steps(chosen.tree)
    tokens = _tokens(float(chosen.progress), grown, seed)
    step = _milliseconds("a plain step, ms", one, alone, "round_cost")
    verify = _milliseconds(
        "verification, ms", one * chosen.steps - drafting, grown, "target_verify"
    )
    draft = _milliseconds("drafting, ms", drafting, grown, "proposal", "retrieval")
    rest = _milliseconds(
        "the rest of a round, ms",
        None,
        grown,
        "packing",
        "selection",
        "temporary_state",
    )
    whole = _milliseconds("a round, ms", one * chosen.steps, grown, "round_cost")
    token = Part(
        "a token, ms",
        one * chosen.steps / chosen.progress,
        whole.measured / tokens.measured,
    )
    speed = Part("speed-up", chosen.speedup, step.measured / token.measured)
    return [tokens, step, verify, draft, rest, whole, token, speed]


def _runs(runs: Any, name: str) -> list[Generation]:
    found = checks.entries(runs, name, "generations")
    for index, run in enumerate(found):
        if not isinstance(run, Generation):
            raise SpecbookError(f"{name}[{index}] is not a Generation: {run!r}")
    return found


def _whole(run: Generation, depth: int, most: int, name: str) -> list[Round]:
    """The rounds after the first that had room for `depth` candidates and one more.

    Whether a round has room is known before it begins, so leaving out the others does
    not prefer short paths or long ones.
    """
    if len(run.tokens) > most:
        raise SpecbookError(
            f"{name}: a run has {len(run.tokens)} tokens, max_new_tokens is {most}"
        )
    kept: list[Round] = []
    done = 0
    for number, played in enumerate(run.rounds):
        if number and most - done > depth:
            kept.append(played)
        done += len(played.committed)
    return kept


def _tokens(predicted: float, grown: Sequence[Sequence[Round]], seed: int) -> Part:
    counts = np.array(
        [(sum(len(r.selection.rows) + 1 for r in run), len(run)) for run in grown]
    )
    rng = np.random.default_rng(seed)
    # Prompts without a round say nothing, and a world of only those has no quotient.
    counts = counts[counts[:, 1] > 0]
    drawn = counts[rng.integers(len(counts), size=(WORLDS, len(counts)))].sum(axis=1)
    low, high = np.quantile(drawn[:, 0] / drawn[:, 1], (0.025, 0.975)).tolist()
    total, rounds = counts.sum(axis=0).tolist()
    return Part("tokens a round", predicted, total / rounds, low, high)


def _milliseconds(
    name: str, predicted: float | None, runs: Sequence[Sequence[Round]], *terms: str
) -> Part:
    spent = [
        1000 * float(sum(getattr(played.ledger, term) for term in terms))
        for run in runs
        for played in run
    ]
    low, middle, high = np.quantile(spent, (0.1, 0.5, 0.9)).tolist()
    return Part(name, predicted, middle, low, high)
