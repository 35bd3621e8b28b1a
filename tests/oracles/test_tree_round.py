"""One round on a tree: the known numbers, the output's law, and a planted fault."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from specbook import verifiers
from specbook.contract import Verifier
from specbook.errors import LawError, SpecbookError
from specbook.oracles import continued, round_law
from tests.verifiers.helpers import constant, exact, expected_drafts

P, Q = exact([5, 3, 2]), exact([4, 4, 2])
TOY = exact([1, 2]), exact([2, 1])


def expected(found: dict[Any, Any]) -> Any:
    return sum(len(path) * mass for (path, _), mass in found.items())


@pytest.mark.parametrize(
    ("rule", "sampling", "laws", "widths", "value"),
    [
        ("specinfer", "iid", (P, Q), (2, 1), Fraction(893, 500)),
        ("traversal", "iid", (P, Q), (2, 1), Fraction(227, 125)),
        ("sequoia", "without_replacement", (P, Q), (2, 1), Fraction(551, 300)),
        ("traversal", "without_replacement", (P, Q), (2, 1), Fraction(28, 15)),
        ("specinfer", "iid", TOY, (2, 2), Fraction(112, 81)),
        ("traversal", "iid", TOY, (2, 2), Fraction(118, 81)),
    ],
)
def test_the_known_numbers_of_accepted_drafts(
    rule: str, sampling: str, laws: Any, widths: Any, value: Fraction
) -> None:
    assert expected(round_law(rule, *laws, widths, sampling)) == value


def test_it_is_what_the_helpers_of_the_rules_find() -> None:
    for rule in ("membership", "specinfer", "kseq"):
        found = expected(round_law(rule, P, Q, (2, 1)))
        select = verifiers.get(rule).select
        assert found == expected_drafts(
            select, constant([5, 3, 2]), constant([4, 4, 2]), (2, 1)
        )


def plain(target: Any, length: int) -> dict[Any, Any]:
    """The law of `length` tokens of plain sampling."""
    laws: dict[Any, Any] = {(): Fraction(1)}
    for _ in range(length):
        laws = {
            (*text, token): mass * step
            for text, mass in laws.items()
            for token, step in enumerate(target(text))
            if step
        }
    return laws


STICKY = {(): exact([1, 1]), (0,): exact([4, 1]), (1,): exact([1, 4])}
LEANING = {(): exact([2, 1]), (0,): exact([1, 2]), (1,): exact([3, 1])}


def after(table: Any) -> Any:
    return lambda path: table[tuple(path[-1:])]


@pytest.mark.parametrize(
    ("rule", "sampling"),
    [
        ("membership", "top_k"),
        ("specinfer", "iid"),
        ("kseq", "iid"),
        ("optimal", "iid"),
        ("sequoia", "without_replacement"),
        ("traversal", "iid"),
        ("greedy_draft", "greedy_draft"),
        ("spechub", "hub"),
    ],
)
def test_the_output_has_the_law_of_plain_sampling(rule: str, sampling: str) -> None:
    target = after(STICKY)
    widths = (2, 2) if sampling == "hub" else (2, 1)
    found = round_law(rule, target, after(LEANING), widths, sampling)
    assert sum(found.values()) == 1
    assert continued(found, target, 3) == plain(target, 3)


def test_one_plan_for_all_nodes_is_seen() -> None:
    target = after(STICKY)
    found = round_law("optimal", lambda path: STICKY[()], after(LEANING), (2, 1))
    assert continued(found, target, 2) != plain(target, 2)


def test_a_rule_that_is_handed_over_is_measured() -> None:
    rule = verifiers.get("membership")
    assert round_law(Verifier(rule.contract, rule.select), P, Q, [1]) == round_law(
        "membership", P, Q, [1]
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sampling": "independent"}, "sampling"),
        ({"widths": [0]}, "widths"),
        ({"widths": 2}, "widths"),
        ({"target": [0.5, 0.1]}, "target"),
        ({"draft": [0.5, float("nan")]}, "draft"),
        ({"verifier": "no such"}, "no such"),
    ],
)
def test_what_makes_no_round_is_refused(change: dict[str, Any], words: str) -> None:
    asked = {"verifier": "membership", "target": P, "draft": Q, "widths": [1]} | change
    with pytest.raises(SpecbookError, match=words):
        round_law(**asked)


def test_a_tree_out_of_reach_is_refused_before_the_walk() -> None:
    with pytest.raises(SpecbookError, match="more than 16384 ways"):
        round_law("specinfer", P, Q, [2] * 6)
    with pytest.raises(SpecbookError, match="outputs of 40 tokens"):
        continued({((), 0): Fraction(1)}, P, 40)


def test_laws_of_two_sizes_are_refused() -> None:
    with pytest.raises(LawError, match="draft has 2 entries, expected 3"):
        round_law("membership", P, exact([1, 1]), [2])
    with pytest.raises(LawError, match=r"draft after \(0,\) has 2 entries"):
        round_law(
            "membership", P, lambda path: exact([1, 1] if path else [1, 1, 1]), [1, 1]
        )


@pytest.mark.parametrize(
    ("blocks", "words"),
    [
        (5, "blocks must be a mapping"),
        ({5: 1}, "not a block"),
        ({(5, 1): 1}, "the path of"),
        ({((), 3): 1}, "outside 0 .. 2"),
        ({((), "a"): 1}, "must be an integer"),
        ({((), 0): float("nan")}, "must be finite"),
    ],
)
def test_what_is_no_block_is_refused_by_name(blocks: Any, words: str) -> None:
    with pytest.raises(SpecbookError, match=words):
        continued(blocks, P, 2)


@pytest.mark.parametrize("length", [0, -1])
def test_a_text_has_at_least_one_token(length: int) -> None:
    with pytest.raises(SpecbookError, match="length must be at least 1"):
        continued({((), 0): Fraction(1)}, P, length)
