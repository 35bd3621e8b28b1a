"""The decoding loop itself, enumerated: what it emits has the target's law, exactly.

`generate` runs under `chance.law`, with a law that depends on the whole history. Two
checks: the joint law of all outputs equals plain sampling; and, stronger where rounds
could share state, the first token of every round has the target's law given all that
was published in the rounds before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbook import engine, verifiers
from specbook.chance import law
from specbook.contract import Selection
from specbook.engine import generate
from specbook.errors import ChanceError
from specbook.models.table import TableTarget
from specbook.tree import CandidateTree

from .helpers import must_fail
from .helpers.laws import counts, fractions, plain_law, table_of, tables
from .helpers.rules import FAULTY, stops_early, verifier
from .helpers.sources import FixedSource

Parts = Callable[[], tuple[Any, Any]]
"""Makes the source and the verifier of one run, so that their state starts anew."""


def rounds_of(
    vocab: int, table: Any, prompt: Sequence[int], parts: Parts, **options: Any
) -> dict[Any, Fraction]:
    """The joint law of the rounds' blocks: `{((block 1), (block 2), ...): p}`."""
    target = TableTarget(table, vocab_size=vocab)

    def program(chance: Any) -> tuple[tuple[int, ...], ...]:
        source, rule = parts()
        result = generate(
            target,
            prompt,
            source,
            rule,
            temperature=1,
            chance=chance,
            clock=lambda: 0.0,
            **options,
        )
        assert [t for r in result.rounds for t in r.committed] == result.tokens
        return tuple(r.committed for r in result.rounds)

    return law(program)


def flat(blocks: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(token for block in blocks for token in block)


def check_law(
    vocab: int,
    table: Any,
    parts: Parts,
    length: int,
    prompt: Sequence[int] = (0,),
    ends: Sequence[int] = (),
    **options: Any,
) -> int:
    """Both checks of this module. Returns the most rounds that a run took."""
    found = rounds_of(
        vocab,
        table,
        prompt,
        parts,
        max_new_tokens=length,
        eos_token_id=tuple(ends),
        **options,
    )
    outputs: dict[Any, Fraction] = {}
    for blocks, p in found.items():
        outputs[flat(blocks)] = outputs.get(flat(blocks), Fraction(0)) + p
    assert outputs == plain_law(table, prompt, length, ends)

    # Given the blocks of the rounds so far, what does the next round begin with?
    begins: dict[Any, dict[int, Fraction]] = {}
    for blocks, p in found.items():
        for index, block in enumerate(blocks):
            after = begins.setdefault(blocks[:index], {})
            after[block[0]] = after.get(block[0], Fraction(0)) + p
    for history, firsts in begins.items():
        expected = table((*prompt, *flat(history)))
        total = sum(firsts.values())
        for token, weight in enumerate(expected):
            assert firsts.get(token, Fraction(0)) == weight * total
    return max(map(len, found))


def fixed(paths: Any, rule: Any = "membership") -> Parts:
    return lambda: (FixedSource(paths), rule)


SHAPES: dict[str, list[list[int]]] = {
    "nothing": [],
    "one": [[1]],
    "chain": [[0, 1, 0]],
    "star": [[0], [1]],
    "two levels": [[0, 0], [0, 1], [1, 0]],
    "lopsided": [[1, 1, 1], [0]],
    "full": [[0, 0], [0, 1], [1, 0], [1, 1]],
}


# -------------------------------------------------------------------- the proof


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_all_outputs_have_the_plain_law(data: Any) -> None:
    """Trees that depend on the history, misses among them, V = 2 or 3."""
    vocab, table = data.draw(tables(data.draw(st.integers(2, 3))))
    path = st.lists(st.integers(0, vocab - 1), min_size=1, max_size=3)
    forests = data.draw(st.lists(st.lists(path, max_size=4), min_size=1, max_size=3))
    length = 4 if vocab == 2 else 3
    order = data.draw(st.sampled_from(["breadth", "depth"]))
    ends = data.draw(st.sampled_from([(), (0,)]))

    def paths(prefix: tuple[int, ...], chance: Any) -> Any:
        return forests[(3 * len(prefix) + prefix[-1]) % len(forests)]

    check_law(
        vocab,
        table,
        fixed(paths),
        length,
        ends=ends,
        order=order,
        max_nodes=data.draw(st.integers(0, 9)),
        max_depth=data.draw(st.integers(0, 4)),
    )


@pytest.mark.parametrize("first", SHAPES)
@pytest.mark.parametrize("then", ["nothing", "chain", "star", "two levels"])
def test_two_rounds_of_every_pair_of_shapes(first: str, then: str) -> None:
    table = table_of([[1, 2], [3, 1], [1, 1], [1, 4]], salt=2)
    turns = [SHAPES[first], SHAPES[then]]
    rounds = check_law(
        2, table, fixed(lambda prefix, chance: turns[len(prefix) > 1]), 4
    )
    assert rounds >= 2


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_drafts_drawn_from_the_same_chance_change_nothing(data: Any) -> None:
    """A sampling drafter: its candidates are random, and enumerated too."""
    table = table_of(data.draw(st.lists(counts(2), min_size=2, max_size=5)))
    drafts = table_of(data.draw(st.lists(counts(2), min_size=2, max_size=5)), salt=9)

    def paths(prefix: tuple[int, ...], chance: Any) -> Any:
        first = chance.draw(drafts(prefix))
        return [[first, chance.draw(drafts((*prefix, first)))]]

    check_law(2, table, fixed(paths), 3)


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_merged_sources_change_nothing(data: Any) -> None:
    table = table_of(data.draw(st.lists(counts(3), min_size=2, max_size=5)))

    def parts() -> tuple[Any, Any]:
        return [
            FixedSource([[0, 1], [2]], name="fixed"),
            "prompt_lookup",
            FixedSource(
                lambda prefix, chance: [[chance.draw(fractions([1, 0, 1]))]],
                name="random",
                relation="iid",
            ),
        ], "membership"

    check_law(
        3, table, parts, 2, prompt=(0, 1, 0), max_nodes=data.draw(st.integers(0, 5))
    )


def test_the_context_limit_shortens_the_output_and_leaves_its_law() -> None:
    target = TableTarget(SKEWED, vocab_size=2, context_limit=4)
    found = law(
        lambda chance: (
            generate(
                target,
                [0],
                FixedSource(SHAPES["full"]),
                "membership",
                max_new_tokens=9,
                temperature=1,
                chance=chance,
            ).tokens
        )
    )
    assert found == plain_law(SKEWED, [0], 3)


def test_another_lossless_rule_passes_too() -> None:
    """`stops_early` never follows a path to its end: lazy, and exact."""
    check_law(2, SKEWED, fixed(SHAPES["two levels"], verifier(stops_early)), 4)


def test_temperature_and_truncation_give_the_processed_law() -> None:
    def table(prefix: tuple[int, ...]) -> list[Fraction]:
        return fractions([2, 1, 3] if len(prefix) % 2 else [4, 1, 4])

    def processed(prefix: tuple[int, ...]) -> list[Fraction]:
        return fractions([2, 0, 3] if len(prefix) % 2 else [1, 0, 1])

    target = TableTarget(table, vocab_size=3)
    found = law(
        lambda chance: (
            generate(
                target,
                [0],
                FixedSource([[1, 1], [2, 0]]),
                "membership",
                max_new_tokens=3,
                temperature=1,
                top_k=2,
                chance=chance,
            ).tokens
        )
    )
    assert found == plain_law(processed, [0], 3)


# --------------------------------------------------------------- planted faults

SKEWED = table_of([[1, 2], [3, 1], [1, 1]], salt=2)
FAIR = table_of([[1, 1]])


@pytest.mark.parametrize("rule", FAULTY, ids=lambda rule: rule.__name__)
def test_a_verifier_that_draws_again_fails_the_check(rule: Any) -> None:
    shape = SHAPES["lopsided"]
    check_law(2, SKEWED, fixed(shape), 3)
    must_fail(check_law, 2, SKEWED, fixed(shape, verifier(rule)), 3)


class Remembers:
    """A verifier whose draws are kept and used again wherever the law looks the same:
    right in a round, wrong over two."""

    def __init__(self) -> None:
        self.kept: dict[Any, int] = {}

    def __call__(self, tree: CandidateTree, law: Any, chance: Any) -> Selection:
        rows: list[int] = []
        row = -1
        while True:
            weights = tuple(law(row))
            if weights not in self.kept or rows:
                self.kept[weights] = chance.draw(weights)
            child = tree.child_with_token(row, self.kept[weights])
            if child is None:
                return Selection(tuple(rows), self.kept[weights])
            rows.append(child)
            row = child


def remembering() -> tuple[Any, Any]:
    remembers = Remembers()

    def select(*arguments: Any) -> Selection:
        return remembers(*arguments)

    return FixedSource([[0, 1]]), verifier(select)


def test_a_verifier_that_reuses_its_noise_fails_over_two_rounds_only() -> None:
    check_law(2, FAIR, remembering, 1)  # one round: nothing to see
    must_fail(check_law, 2, FAIR, remembering, 3)
    check_law(2, FAIR, fixed([[0, 1]]), 3)


def trusting(tree: CandidateTree, law: Any, chance: Any) -> Selection:
    """Takes the drafted chain as it is. Exact if, and only if, the drafter draws it
    afresh from the target's own law."""
    rows = tree.path_rows(len(tree) - 1)
    return Selection(rows, chance.draw(law(rows[-1] if rows else -1)))


def perfect_drafter(table: Any, *, reuses: bool) -> Parts:
    """Draws its chain from the target's law; a bad one keeps its first draws."""

    def parts() -> tuple[Any, Any]:
        kept: list[int] = []

        def paths(prefix: tuple[int, ...], chance: Any) -> Any:
            if reuses and kept:
                return [[kept[0]]]
            kept[:] = [chance.draw(table(prefix))]
            return [kept]

        return FixedSource(paths, relation="iid"), verifier(trusting)

    return parts


def test_a_drafter_that_reuses_its_noise_fails_the_check() -> None:
    # max_depth is met only while there is room, so an even length ends on a draft.
    check_law(2, FAIR, perfect_drafter(FAIR, reuses=False), 4)
    check_law(2, SKEWED, perfect_drafter(SKEWED, reuses=False), 4)
    must_fail(check_law, 2, FAIR, perfect_drafter(FAIR, reuses=True), 4)


def test_state_that_leaks_from_run_to_run_is_noticed() -> None:
    """The same drafter made once for all runs is no function of its chance."""
    shared = perfect_drafter(FAIR, reuses=True)()
    with pytest.raises(ChanceError, match="not a function of its chance"):
        check_law(2, FAIR, lambda: shared, 4)


def test_membership_does_not_mind_what_a_drafter_keeps() -> None:
    """Under membership the candidates can only save steps, so even a drafter that
    never draws anew leaves the law alone."""

    def parts() -> tuple[Any, Any]:
        source, _ = perfect_drafter(SKEWED, reuses=True)()
        return source, "membership"

    check_law(2, SKEWED, parts, 3)


def second_round_only(rule: Any) -> Parts:
    """Right in the first round, faulty from the second on."""

    def parts() -> tuple[Any, Any]:
        calls: list[int] = []
        right = verifiers.get("membership").select

        def select(*arguments: Any) -> Selection:
            calls.append(0)
            return (right if len(calls) == 1 else rule)(*arguments)

        return FixedSource([[0, 0], [1]]), verifier(select)

    return parts


@pytest.mark.parametrize("rule", FAULTY, ids=lambda rule: rule.__name__)
def test_a_fault_in_the_second_round_alone_is_found(rule: Any) -> None:
    assert check_law(2, SKEWED, second_round_only(rule), 1) == 1
    must_fail(check_law, 2, SKEWED, second_round_only(rule), 5)


def test_a_block_that_is_cut_by_what_it_holds_fails_the_check(monkeypatch: Any) -> None:
    """An engine that drops a block's last token, but tells the target it was said."""
    check_law(2, SKEWED, fixed(SHAPES["chain"]), 3)
    cut = engine._cut

    def drops_repeats(block: list[int], *rest: Any) -> list[int]:
        kept = cut(block, *rest)
        return kept[:-1] if len(kept) > 1 and kept[-1] == kept[-2] else kept

    monkeypatch.setattr(engine, "_cut", drops_repeats)
    must_fail(check_law, 2, SKEWED, fixed(SHAPES["chain"]), 3)
