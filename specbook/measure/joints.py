"""Laws over whole texts, small enough to write down, and chains drafted for them.

A joint law says how probable each continuation is as a whole. Its marginals are what
independent heads learn (section 0x06A): what stands at each place, whatever stands
before it. What that costs is counted by the engine itself, on all branches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from .. import checks
from ..chance import Chance, law
from ..controls import exact
from ..drafts.neural.draft_model import DraftModel
from ..engine import generate
from ..errors import SpecbookError
from ..models import TableTarget

PROMPT = (0,)


class Joint:
    """A law over texts of one length.

    `weights`: {text: integer weight}; a text is a tuple of token ids or a string of
    letters, of which `a` is token 0. Raises `SpecbookError` for texts of different
    lengths, a text that is there twice, an empty law, and weights that are no counts.
    """

    def __init__(self, weights: Mapping[Any, int]) -> None:
        if not isinstance(weights, Mapping):
            raise SpecbookError(f"weights must map texts, got {weights!r}")
        found: dict[tuple[int, ...], int] = {}
        for text, weight in weights.items():
            key = _ids(text)
            if key in found:
                raise SpecbookError(f"text {text!r} is there twice, once as {key}")
            if checks.integer(weight, f"weight of {text!r}", least=0):
                found[key] = weight
        lengths = {len(text) for text in found}
        if len(lengths) != 1 or not min(lengths):
            raise SpecbookError(f"texts need one length above 0, got {sorted(lengths)}")
        self.weights = found
        self.depth = min(lengths)
        self.size = 1 + max(token for text in found for token in text)

    def mass(self, text: Sequence[int] | str) -> Fraction:
        """The probability of a whole text, a Fraction. Raises `SpecbookError` for a
        text of another length or of other tokens."""
        return Fraction(
            self.weights.get(self._whole(text), 0), sum(self.weights.values())
        )

    def _whole(self, text: Any) -> tuple[int, ...]:
        """`text` as token ids, which could be one of the texts."""
        ids = _ids(text, self.size)
        if len(ids) != self.depth:
            raise SpecbookError(
                f"text {text!r} has {len(ids)} tokens, a whole one {self.depth}"
            )
        return ids

    def marginals(self) -> list[np.ndarray]:
        """The law [size] of the token at each place, Fractions."""
        found = [[0] * self.size for _ in range(self.depth)]
        for text, weight in self.weights.items():
            for place, token in enumerate(text):
                found[place][token] += weight
        return [exact(row) for row in found]

    def product(self, text: Sequence[int] | str) -> Any:
        """The probability of a text under the product of the marginals. Raises as
        `mass`."""
        found: Any = 1
        for row, token in zip(self.marginals(), self._whole(text), strict=True):
            found = found * row[token]
        return found

    def likelihood(self, rows: Sequence[Any]) -> Any:
        """How probable the product of the laws `rows`, one a place, makes all texts
        together, each as often as its weight says. Raises `SpecbookError` for rows that
        are not as many, and `LawError` for one that is no law over the tokens."""
        given = checks.entries(rows, "rows", "laws")
        if len(given) != self.depth:
            raise SpecbookError(f"{len(given)} laws for texts of {self.depth} tokens")
        laws = [
            checks.law(row, f"rows[{place}]", size=self.size)
            for place, row in enumerate(given)
        ]
        found: Any = 1
        for text, weight in self.weights.items():
            for row, token in zip(laws, text, strict=True):
                found = found * row[token] ** weight
        return found

    def target(self) -> TableTarget:
        """A target that writes texts by this law behind `PROMPT`; what comes after
        them, and behind texts that it never writes, is uniform."""

        def says(prefix: tuple[int, ...]) -> Any:
            told = tuple(prefix[len(PROMPT) :])
            after = [0] * self.size
            for text, weight in self.weights.items():
                if len(told) < self.depth and text[: len(told)] == told:
                    after[text[len(told)]] += weight
            return exact(after if any(after) else [1] * self.size)

        return TableTarget(says, vocab_size=self.size)

    def independent(self) -> TableTarget:
        """A drafter that says the marginal of each place, whatever was drafted."""
        rows = self.marginals()

        def says(prefix: tuple[int, ...]) -> Any:
            return rows[min(len(prefix) - len(PROMPT), self.depth - 1)]

        return TableTarget(says, vocab_size=self.size)

    def accepted(self, drafter: Any, verifier: Any = "single") -> Any:
        """How many tokens of a chain over the whole text are accepted on average in the
        first round, a Fraction: drafted by `drafter`, tested by an exact rule."""
        source = DraftModel(drafter, widths=(1,) * self.depth)
        target = self.target()

        def program(chance: Chance) -> int:
            made = generate(
                target,
                PROMPT,
                source,
                verifier,
                max_new_tokens=self.depth + 1,
                temperature=1.0,
                chance=chance,
            )
            return made.rounds[0].accepted

        found: Any = law(program)
        return sum(count * mass for count, mass in found.items())


def _ids(text: Any, size: int | None = None) -> tuple[int, ...]:
    """A text as token ids: letters count from `a`."""
    ids = [ord(x) - ord("a") for x in text] if isinstance(text, str) else text
    return tuple(checks.token_ids(ids, f"text {text!r}", vocab_size=size))
