"""Staged drafting: the draft model's own law, from fewer draft forwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbook import drafts
from specbook.chance import Sampler, law
from specbook.drafts.neural.draft_model import DraftModel, DraftModelSession
from specbook.drafts.neural.staged import Staged
from specbook.drafts.prompt_lookup import PromptLookup
from specbook.engine import generate
from specbook.errors import ContractError, SpecbookError, TreeError
from specbook.models.table import TableTarget
from tests.core.helpers import must_fail, named
from tests.core.helpers.laws import plain_law, tables
from tests.core.helpers.sources import FixedSource

from .drafting import GREEDY, Counting, check_rounds, path_to
from .test_draft_model import DRAFT, TARGET, THREE, check_output, exact, table

GUESSES: dict[str, Any] = {
    "nothing": [],
    "a chain": [[0, 1, 0]],
    "another": [[1]],
    "a tree": [[0, 0], [0, 1], [1, 0]],
}


def proposed(source: Any, rounds: int = 2, **start: Any) -> Any:
    """The law of everything that `rounds` proposals say, laws included; between them a
    drafted token and another one are published."""

    def program(chance: Any) -> tuple[Any, ...]:
        session = source.start([0, 1], vocab_size=2, **start)
        said = []
        for _ in range(rounds):
            made = session.propose(max_depth=3, max_nodes=5, chance=chance)
            said.append(
                tuple((n.token_id, n.parent, n.q, tuple(n.law)) for n in made.nodes)
            )
            session.commit([*path_to(made, 0), 1])
        return tuple(said)

    return law(program)


def helper_of(paths: Any) -> FixedSource:
    return FixedSource(paths, name="helper")


@pytest.mark.parametrize("kind", ["without_replacement", "iid"])
@pytest.mark.parametrize("widths", [(1, 1, 1), (2, 1)], ids=named)
@pytest.mark.parametrize("guess", GUESSES)
def test_what_is_proposed_has_the_plain_draft_models_law(
    guess: str, widths: tuple[int, ...], kind: str
) -> None:
    plain = DraftModel(table(), widths=widths, children=kind)
    staged = Staged(plain, helper_of(GUESSES[guess]))
    assert proposed(staged) == proposed(plain)


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_any_guess_leaves_the_law_alone(data: Any) -> None:
    _, rows = data.draw(tables(2))
    path = st.lists(st.integers(0, 1), min_size=1, max_size=2)
    guesses = data.draw(st.lists(st.lists(path, max_size=3), min_size=1, max_size=3))
    plain = DraftModel(table(rows), widths=(1, 1, 1))
    helper = FixedSource(
        lambda prefix, chance: guesses[len(prefix) % len(guesses)], name="helper"
    )
    assert proposed(Staged(plain, helper)) == proposed(plain)


def test_a_helper_that_samples_leaves_the_law_alone() -> None:
    plain = DraftModel(table(), widths=(1, 1, 1))
    helper = DraftModel(table(TARGET), widths=(1, 1))
    assert proposed(Staged(plain, helper), 1) == proposed(plain, 1)


def test_a_guess_that_is_taken_for_a_draw_is_found(monkeypatch: Any) -> None:
    """The draft model says its own law and takes the helper's token all the same."""
    plain = DraftModel(table(), widths=(1, 1))
    staged = Staged(plain, helper_of([[0, 0]]))
    expected = proposed(plain)

    def check() -> None:
        assert proposed(staged) == expected

    check()
    children = DraftModelSession._children

    def trusting(self: Any, row: int, count: int, chance: Any) -> Any:
        for draw in children(self, row, count, chance):
            below = self._own.tree.children(row)
            taken = self._own.tree.token_ids[below[0]] if below else draw.token
            yield draw._replace(token=taken) if draw.law[taken] else draw

    monkeypatch.setattr(DraftModelSession, "_children", trusting)
    must_fail(check)


@pytest.mark.parametrize("guess", GUESSES)
def test_two_rounds_have_the_plain_law(guess: str) -> None:
    source = Staged(DraftModel(table(), widths=(1, 1)), helper_of(GUESSES[guess]))
    check_output(lambda: source, "single")


def test_two_rounds_with_a_lookup_have_the_plain_law() -> None:
    model = table(TARGET)
    source = Staged(DraftModel(table(DRAFT), widths=(1, 1)), PromptLookup(2, 3))
    found = law(
        lambda chance: (
            generate(
                model,
                [0, 1, 0],
                source,
                "single",
                max_new_tokens=4,
                temperature=1,
                chance=chance,
                clock=lambda: 0.0,
            ).tokens
        )
    )
    assert found == plain_law(TARGET, (0, 1, 0), 4)


def test_laws_follow_the_published_path() -> None:
    for helper in (PromptLookup(2, 5), helper_of([[0, 1, 2], [0, 2], [2, 0]])):
        for seed in range(4):
            source = Staged(DraftModel(table(THREE, 3), widths=(1, 1, 2)), helper)
            check_rounds(source, exact(THREE), seed=seed)


# -------------------------------------------------------------------------- forwards


def forwards(source: Callable[[Any], Any], rows: Any, vocab: int = 3) -> Counting:
    """Greedy decoding of 24 tokens with a draft model that is counted."""
    counted = Counting(rows, vocab_size=vocab)
    target = TableTarget(rows, vocab_size=vocab)
    result = generate(
        target, [0, 1, 2, 0], source(counted), "greedy", max_new_tokens=24
    )
    plain = generate(target, [0, 1, 2, 0], None, "greedy", max_new_tokens=24)
    assert result.tokens == plain.tokens
    return counted


def cycle(prefix: tuple[int, ...]) -> list[int]:
    return [int(i == (prefix[-1] + 1) % 3) for i in range(3)]


def test_a_good_guess_saves_forwards_and_a_bad_one_costs_none() -> None:
    def plain(model: Any) -> Any:
        return DraftModel(model, widths=(1,) * 5)

    def with_helper(helper: Any) -> Callable[[Any], Any]:
        return lambda model: Staged(plain(model), helper)

    without = forwards(plain, cycle)
    assert without.forwards == 20  # four rounds of six tokens, five forwards each
    # The earliest occurrence has the longest continuation: one token short of what is
    # of use in the first round, and all of it from then on.
    good = forwards(with_helper(PromptLookup(3, 9, "transformers")), cycle)
    assert good.forwards == 5
    bad = forwards(with_helper(helper_of([[0, 0, 0], [1, 1], [2, 2]])), cycle)
    # One candidate of the three is right each time, and saves one forward.
    assert bad.forwards == 16
    wrong = forwards(
        with_helper(FixedSource(lambda prefix, chance: [[prefix[-1]]], name="helper")),
        cycle,
    )
    assert wrong.forwards == without.forwards
    assert wrong.rows > without.rows


def test_the_guess_is_never_deeper_than_rows_of_it_are_of_use() -> None:
    helper = helper_of([[0] * 9])
    source = Staged(DraftModel(table(), widths=(1, 1, 1)), helper)
    session = source.start([0])
    for depth in (3, 2, 1, 0):
        session.propose(max_depth=depth, max_nodes=9, chance=Sampler(0))
        session.commit([0])
    assert [most for _, most, _ in helper.log] == [2, 1]


def test_the_helper_is_told_what_was_published() -> None:
    helper = helper_of([])
    session = Staged(DraftModel(table(), widths=(1, 1)), helper).start([0])
    for published in ([1], [0, 1], [1, 1, 0]):
        session.propose(max_depth=9, max_nodes=9, chance=Sampler(0))
        session.commit(published)
    session.propose(max_depth=9, max_nodes=9, chance=Sampler(0))
    assert [prefix for prefix, _, _ in helper.log] == [
        (0,),
        (0, 1),
        (0, 1, 0, 1),
        (0, 1, 0, 1, 1, 1, 0),
    ]


def test_where_the_drafts_context_ends_it_falls_silent() -> None:
    for limit in range(1, 12):
        draft = DraftModel(table(THREE, 3, context_limit=limit), widths=(1, 1, 1))
        result = generate(
            table(THREE, 3),
            [0, 1, 2, 0],
            Staged(draft, PromptLookup(1, 9)),
            "greedy",
            max_new_tokens=9,
        )
        plain = generate(table(THREE, 3), [0, 1, 2, 0], None, max_new_tokens=9)
        assert result.tokens == plain.tokens


# --------------------------------------------------------------- contract, bad input


def test_the_contract_is_the_draft_models_under_its_own_name() -> None:
    for options in ({}, {"widths": (2, 1)}, {"children": "top_k"}):
        plain = DraftModel(table(), **options)
        staged = Staged(plain, helper_of([]))
        made = staged.start([0]).propose(max_depth=1, max_nodes=1, chance=Sampler(0))
        for part in (staged.contract, made):
            for name in ("probability_semantics", "sampling_relation", "topology"):
                assert getattr(part, name) == getattr(plain.contract, name)
        assert staged.contract.name == made.state_handle.owner == "staged"
        assert {n.source for n in made.nodes} == {"staged"}
    assert drafts.get("staged") is Staged


def test_the_identity_names_both_sources() -> None:
    plain = DraftModel(table())
    text = Staged(plain, PromptLookup(2, 5)).identity()
    assert plain.identity() in text and PromptLookup(2, 5).identity() in text
    assert text.startswith("staged ")


def test_a_draft_model_is_made_of_what_makes_one_and_a_helper_of_its_name() -> None:
    model = table()
    source = Staged(model)
    assert source.draft_model.model is model
    assert isinstance(source.helper, PromptLookup)
    tuned = Staged.tuned(model).draft_model
    assert tuned.identity() == DraftModel.tuned(model).identity()
    assert tuned.identity() != source.draft_model.identity()


@pytest.mark.parametrize("helper", [None, 3, "nope", PromptLookup, object()], ids=named)
def test_what_is_no_helper_is_refused(helper: Any) -> None:
    with pytest.raises(SpecbookError):
        Staged(table(), helper)


def test_a_metadata_graph_cannot_help() -> None:
    with pytest.raises(ContractError, match="metadata_graph"):
        Staged(table(), FixedSource([], topology="metadata_graph"))


def test_a_guess_outside_the_vocabulary_is_an_error_and_no_token() -> None:
    session = Staged(DraftModel(table(), widths=(1, 1)), helper_of([[7]])).start([0])
    with pytest.raises(TreeError, match="row 0 holds token 7"):
        session.propose(max_depth=9, max_nodes=9, chance=Sampler(0))


def test_both_parts_look_at_what_they_serve() -> None:
    looked: list[Any] = []

    class Looks(FixedSource):
        def check_target(self, target: Any) -> None:
            looked.append(target)

    draft = table()
    source = Staged(draft, Looks([]))
    source.check_target(table(TARGET))
    assert looked == [draft]
    with pytest.raises(ContractError, match="staged|draft_model"):
        source.check_target(table(THREE, 3))


def test_greedy_needs_no_chance() -> None:
    session = Staged(table(), helper_of([[0, 1]])).start([0], policy=GREEDY)
    assert len(session.propose(max_depth=9, max_nodes=9).nodes) == 4
