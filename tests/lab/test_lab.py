import sys
from fractions import Fraction

import pytest

from specbook.chance import law
from specbook.engine import generate
from specbook.errors import SpecbookError
from specbook.lab import (
    Disguised,
    FixedPaths,
    call_order,
    decoded_law,
    distance,
    interval,
    refusal,
    table,
)
from specbook.models import TableTarget


def test_a_cell_of_several_lines_stays_in_its_row():
    """Decoded text has line ends of many kinds; one would end the table."""
    made = table(
        ["run", "text"], [["a", "def f():\n\n    pass\r\n```"], ["b", "x\u2028y"]]
    )
    lines = made._repr_markdown_().split("\n")
    assert len(lines) == 4 and all(line.splitlines() == [line] for line in lines)
    assert lines[2] == "| a | def f():      pass ``` |"


def test_a_table_is_markdown_and_text():
    made = table(["a", "b"], [[1, "x|y"], [Fraction(1, 2), ""]])
    assert made._repr_markdown_().splitlines() == [
        "| a | b |",
        "| --- | --- |",
        "| 1 | x\\|y |",
        "| 1/2 |  |",
    ]
    assert repr(made).splitlines() == ["a    b", "1    x|y", "1/2"]


def test_a_ragged_table_is_refused():
    with pytest.raises(SpecbookError, match="row 1 has 3 cells under 2"):
        table(["a", "b"], [[1, 2], [1, 2, 3]])


def test_refusal_returns_the_message_and_lets_other_errors_through():
    assert refusal(lambda: int("x")).startswith("invalid literal")
    assert refusal(lambda: int("7")) == ""
    with pytest.raises(ZeroDivisionError):
        refusal(lambda: 1 / 0)


def test_call_order_sees_each_call_and_lets_go():
    def first():
        second()

    def second():
        return 1

    def broken():
        second()
        raise ZeroDivisionError

    named = {"one": first, "two": second}
    assert call_order(lambda: [second(), first()], named) == ["two", "one", "two"]
    assert call_order(lambda: None, named) == []
    before = sys.getprofile()
    with pytest.raises(ZeroDivisionError):
        call_order(broken, named)
    assert sys.getprofile() is before
    with pytest.raises(SpecbookError, match="'length' is no Python function"):
        call_order(first, {"length": len})


def test_distance_is_total_variation():
    half = Fraction(1, 2)
    assert distance({0: half, 1: half}, {0: half, 1: half}) == 0
    assert distance({0: Fraction(1)}, {1: Fraction(1)}) == 1
    assert distance({0: half, 1: half}, {1: Fraction(1)}) == half


LAWS = [[Fraction(1, 2), Fraction(1, 2)], [Fraction(1, 3), Fraction(2, 3)]]


def test_fixed_paths_keep_the_law():
    target = TableTarget(lambda prefix: LAWS[prefix[-1]], vocab_size=2)

    def decode(source):
        return law(
            lambda chance: (
                generate(
                    target,
                    [0],
                    source,
                    "membership",
                    max_new_tokens=3,
                    temperature=1.0,
                    chance=chance,
                ).tokens
            )
        )

    assert decode(FixedPaths((0, 1), (1,), (0, 0))) == decode(None)
    assert decode(FixedPaths((0, 1), score=2.5)) == decode(None)


def test_a_decoded_law_is_the_targets_and_counts_rounds():
    half = Fraction(1, 2)
    target = TableTarget(lambda prefix: [half, half], vocab_size=2)
    plain, rounds = decoded_law(target, [0], None, "membership", 2)
    assert plain == {(a, b): half * half for a in (0, 1) for b in (0, 1)}
    assert rounds == 2
    # Token 0 is accepted every other time, and then one round is enough.
    tokens, fewer = decoded_law(target, [0], FixedPaths((0,)), "membership", 2)
    assert tokens == plain and fewer == half * 1 + half * 2


def test_a_score_changes_the_contract_and_reaches_the_nodes():
    def propose(source):
        session = source.start([0], request="r", vocab_size=2)
        return session.propose(max_depth=2, max_nodes=2, chance=None, manifest_hash="m")

    assert propose(FixedPaths((0, 1))).probability_semantics == "absent"
    scored = propose(FixedPaths((0, 1), score=2.5))
    assert scored.probability_semantics == "score_only"
    assert [node.score for node in scored.nodes] == [2.5, 2.5]
    assert FixedPaths((0,)).contract.probability_semantics == "absent"


def test_fixed_paths_are_checked():
    target = TableTarget(lambda prefix: LAWS[prefix[-1]], vocab_size=2)
    for paths, limits in (([(0, 5)], {}), ([(0, 1), (1, 1)], {"max_nodes": 2})):
        with pytest.raises(SpecbookError, match=r"paths\[0\]|nodes of the paths"):
            generate(
                target,
                [0],
                FixedPaths(*paths),
                "greedy",
                max_new_tokens=4,
                **limits,
            )


def test_a_disguised_target_answers_alike_and_says_otherwise():
    target = TableTarget({(0,): [Fraction(1), Fraction(0)]})
    other = Disguised(target, checkpoint="another")
    assert other.lookup((0,)).tolist() == [1, 0] and other.vocab_size == 2
    changed = {**target.identity(), "checkpoint": "another"}
    assert other.identity() == changed != target.identity()
    for wrong in ({"colour": "red"}, {"checkpoint": None}):
        with pytest.raises(SpecbookError):
            Disguised(target, **wrong)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([float("nan"), 1], [1, 1]), {}, r"numerators\[0\] must be finite"),
        (([1, 1], [1, float("inf")]), {}, r"denominators\[1\] must be finite"),
        (([1, "2"], [1, 1]), {}, r"numerators\[1\] must be a real number"),
        ((5, [1, 1]), {}, "numerators must be a sequence"),
        (([1, 1, 1], [1, 1]), {}, "do not go with"),
        (([1], [1]), {}, "two prompts"),
        (([1, 1], [1, 0]), {}, "denominators above 0"),
        (([1, 1], [1, 1]), {"resamples": 0}, "resamples must be at least 1"),
        (([1, 1], [1, 1]), {"seed": -1}, "seed"),
    ],
)
def test_an_interval_is_made_of_numbers(arguments, options, message):
    with pytest.raises(SpecbookError, match=message):
        interval(*arguments, **options)
