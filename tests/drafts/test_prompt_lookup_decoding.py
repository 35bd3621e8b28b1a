"""Prompt lookup inside the engine: caps, end tokens (H03, H04) and exact laws."""

from __future__ import annotations

from fractions import Fraction

import pytest

from specbook import engine
from specbook.chance import law
from specbook.drafts.prompt_lookup import POLICIES, PromptLookup
from specbook.models import TableTarget

CYCLE = [7, 8, 5, 6]


def certain(vocab_size: int, follow: dict) -> TableTarget:
    """A target that always says one token: `follow[prefix length]` or the cycle."""

    def row(prefix: tuple[int, ...]) -> list[int]:
        token = follow[len(prefix)] if len(prefix) in follow else follow["then"]
        if token is None:
            token = 5 + (prefix[-1] - 4) % 4
        return [int(token == i) for i in range(vocab_size)]

    return TableTarget(row, vocab_size=vocab_size)


@pytest.mark.parametrize("count", range(1, 10))
@pytest.mark.parametrize("length", ["fixed", "adaptive"])
@pytest.mark.parametrize("policy", POLICIES)
def test_h03_neither_more_nor_fewer_tokens(
    count: int, length: str, policy: str
) -> None:
    target = certain(10, {"then": None})
    result = engine.generate(
        target,
        [5, 6, 7, 8, 5, 6],
        PromptLookup(2, 3, policy, length=length),
        max_new_tokens=count,
    )
    assert result.tokens == [7, 8, 5, 6, 7, 8, 5, 6, 7][:count]
    assert result.stop_reason == "length"


@pytest.mark.parametrize(
    ("prompt", "follow", "expected"),
    [
        # in the middle of an accepted block
        ([11, 12, 0, 13, 11, 12], {6: 0, 7: 13, "then": 11}, [0]),
        # as the correction token: 2 was looked up, the target says 0
        ([11, 12, 2, 13, 11, 12], {6: 0, "then": 1}, [0]),
        # as the bonus token after the accepted 2, 13, 11
        (
            [11, 12, 2, 13, 11, 12],
            {6: 2, 7: 13, 8: 11, 9: 0, "then": 1},
            [2, 13, 11, 0],
        ),
    ],
)
def test_h04_the_first_end_token_ends_the_output(
    prompt: list[int], follow: dict, expected: list[int]
) -> None:
    target = certain(14, follow)
    arguments = {"max_new_tokens": 12, "eos_token_id": 0}
    result = engine.generate(target, prompt, PromptLookup(2, 3), **arguments)
    assert result.tokens == expected
    assert result.stop_reason == "eos"
    assert result.tokens == engine.generate(target, prompt, **arguments).tokens
    # Without an end token the same run goes on to its length.
    longer = engine.generate(target, prompt, PromptLookup(2, 3), max_new_tokens=12)
    assert len(longer.tokens) == 12 and longer.stop_reason == "length"


def test_the_law_of_the_output_does_not_depend_on_the_draft_length() -> None:
    rows = [
        [Fraction(1, 2), Fraction(1, 3), Fraction(1, 6)],
        [Fraction(1, 5), Fraction(3, 5), Fraction(1, 5)],
        [Fraction(1, 4), Fraction(1, 4), Fraction(1, 2)],
    ]
    target = TableTarget(
        lambda prefix: rows[(prefix[-1] + len(prefix)) % 3], vocab_size=3
    )

    def decoded(source: PromptLookup | None) -> dict:
        return law(
            lambda chance: tuple(
                engine.generate(
                    target,
                    [0, 1, 0],
                    source,
                    "membership",
                    max_new_tokens=4,
                    temperature=1.0,
                    chance=chance,
                ).tokens
            )
        )

    plain = decoded(None)
    assert sum(plain.values()) == 1
    assert decoded(PromptLookup(2, 3)) == plain
    for cost in (((1, 1.0), (64, 1.0)), ((1, 1.0), (64, 30.0))):
        assert decoded(PromptLookup(2, 3, length="adaptive", cost=cost)) == plain
