"""REST as a draft source: contract, limits, greedy equality and the exact law."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbook import drafts, engine
from specbook.chance import law
from specbook.contract import ContractError, bind
from specbook.drafts.rest import CONTRACT, Datastore, Rest, rest_propose
from specbook.errors import SpecbookError
from specbook.models.table import TableTarget
from specbook.proposal import ProbabilitySemantics, Proposal
from tests.core.helpers import must_fail
from tests.core.helpers.laws import plain_law, table_of, tables
from tests.core.helpers.rules import FAULTY, contract, verifier
from tests.core.helpers.sources import proposal_of
from tests.core.helpers.targets import one_hot_table, plain_greedy
from tests.drafts.rest import plain

ARTICLE = [4, 5, 6, 9, 4, 5, 6, 10, 11]


@pytest.fixture
def store() -> Datastore:
    return Datastore.build([ARTICLE])


def paths_of(proposal: Proposal) -> list[tuple[tuple[int, ...], Any]]:
    made: list[tuple[tuple[int, ...], Any]] = []
    for node in proposal.nodes:
        above = made[node.parent][0] if node.parent >= 0 else ()
        made.append(((*above, node.token_id), node.score))
    return made


# ------------------------------------------------------------- the article's function


def test_the_articles_proposal(store: Datastore) -> None:
    made = rest_propose([1, 2, 4, 5, 6], store, 3, 64)
    found = paths_of(made)
    assert [path for path, _ in found if len(path) == 1] == [(9,), (10,)]
    assert dict(found)[9, 4, 5, 6, 10] == 1
    assert all(score == 1 for _, score in found) and len(found) == 8
    assert all(node.q is None for node in made.nodes)
    assert made.probability_semantics is ProbabilitySemantics.FREQUENCY


@settings(max_examples=100, deadline=None)
@given(plain.corpora(), st.integers(0, 5), st.integers(0, 9))
def test_a_proposal_is_the_best_of_a_scan(corpus: Any, most: int, budget: int) -> None:
    documents, prefix = corpus
    store = Datastore.build(documents, continuation_length=4)
    found = plain.longest(documents, prefix, most, 4)[1]
    made = rest_propose(prefix, store, most, budget)
    assert paths_of(made) == plain.best(found, budget, 4)


def test_a_miss_is_an_empty_proposal(store: Datastore) -> None:
    assert rest_propose([99], store, 16, 64).nodes == ()
    assert rest_propose([], store, 16, 64).nodes == ()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (([1], None, 3, 3), "REST needs a datastore. Make one"),
        (([1], 7, 3, 3), "not a datastore"),
        (([1], [[1, 2]], 3, 3), "not a datastore"),
        (([1], "a path, which would be loaded each time", 3, 3), "not a datastore"),
        ((7, ..., 3, 3), "prefix must be a sequence"),
        (([-1], ..., 3, 3), r"prefix\[0\] = -1 is negative"),
        (([True], ..., 3, 3), r"prefix\[0\] must be an integer"),
        (([1], ..., -1, 3), "max_suffix must be at least 0"),
        (([1], ..., 3, -1), "node_budget must be at least 0"),
        (([1], ..., 3.0, 3), "max_suffix must be an integer"),
        (([1], ..., 3, False), "node_budget must be an integer"),
    ],
    ids=range(11),
)
def test_bad_arguments_are_refused(store: Datastore, arguments: Any, told: str) -> None:
    given_arguments = [store if a is ... else a for a in arguments]
    with pytest.raises(SpecbookError, match=told):
        rest_propose(*given_arguments)


# ------------------------------------------------------------------------- contract


def test_the_registry_knows_it() -> None:
    assert drafts.get("rest") is Rest and Rest.contract is CONTRACT
    assert CONTRACT.name == "rest" and CONTRACT.cost_term == "retrieval"
    for text in (CONTRACT.weights, CONTRACT.state, CONTRACT.cache):
        assert text
    assert "another tokenizer" in CONTRACT.invalidated_by


def test_without_a_datastore_it_says_how_to_make_one() -> None:
    with pytest.raises(SpecbookError, match="build_for_target"):
        drafts.make("rest")


def test_h17_frequencies_never_meet_a_rule_that_reads_q(store: Datastore) -> None:
    made = rest_propose([4, 5, 6], store, 3, 8)
    reads_q = contract(
        "reads q",
        reads_q=True,
        probability=frozenset({ProbabilitySemantics.NORMALIZED_CONDITIONAL}),
    )
    with pytest.raises(ContractError, match="'frequency', needs"):
        bind(made, reads_q)
    # Merged with a source that has a q, it is refused all the same.
    normalised = proposal_of(
        [[4, 5]], semantics="normalized_conditional", relation="iid"
    )
    bind(normalised, reads_q)
    made_for_it = rest_propose([4, 5, 6], store, 3, 8, request="request")
    with pytest.raises(ContractError, match="rest: probability 'frequency', needs"):
        bind([normalised, made_for_it], reads_q)
    by_rank = contract("iid only", sampling=frozenset({"iid"}))
    with pytest.raises(ContractError, match="'deterministic_lookup', needs"):
        bind(made, by_rank)
    assert bind(made, "membership").node_count == 8


def check_acceptance(rule: Any) -> None:
    """H17: a looked-up token of probability 1/4 is accepted with probability 1/4, and
    the first token has the target's law, exactly."""
    row = [Fraction(1, 4), Fraction(1, 2), Fraction(1, 4)]
    target = TableTarget(lambda prefix: row, vocab_size=3)
    source = Rest(Datastore.build([[1, 2]]))

    def program(chance: Any) -> tuple[int, int]:
        made = engine.generate(
            target, [1], source, rule, max_new_tokens=2, temperature=1, chance=chance
        )
        return made.tokens[0], made.rounds[0].accepted

    found = law(program)
    accepted = sum(p for (_, count), p in found.items() if count)
    assert accepted == Fraction(1, 4)
    for token, p in enumerate(row):
        assert sum(q for (first, _), q in found.items() if first == token) == p


def test_h17_a_lookup_is_accepted_with_the_targets_probability() -> None:
    check_acceptance("membership")


def test_h17_a_lookup_that_is_always_accepted_is_found() -> None:
    from specbook.contract import Selection

    def trusting(tree: Any, row_law: Any, chance: Any) -> Selection:
        row_law(-1)
        return Selection((0,), chance.draw(row_law(0)))

    must_fail(check_acceptance, verifier(trusting))


# --------------------------------------------------------------------------- session


def test_a_session_is_the_function_round_by_round(store: Datastore) -> None:
    source = Rest(store, 3, 6)
    session = source.start([1, 4])
    prefix = [1, 4]
    for generation, block in enumerate([[5], [6, 9], [4, 5], [77]]):
        made = session.propose(max_depth=4, max_nodes=5, manifest_hash="m")
        alone = rest_propose(
            prefix,
            *(store, 3, 5),
            max_depth=4,
            generation=generation,
            manifest_hash="m",
        )
        assert made == alone
        session.commit(block)
        prefix += block
    assert session.propose(max_depth=4, max_nodes=5).nodes == ()


@settings(max_examples=80, deadline=None)
@given(plain.corpora(), st.integers(0, 5), st.integers(0, 9))
def test_a_smaller_budget_is_the_beginning_of_a_larger(
    corpus: Any, depth: int, nodes: int
) -> None:
    documents, prefix = corpus
    session = Rest(Datastore.build(documents)).start(prefix)
    large = paths_of(session.propose(max_depth=99, max_nodes=99))
    small = paths_of(session.propose(max_depth=depth, max_nodes=nodes))
    assert small == [item for item in large if len(item[0]) <= depth][:nodes]


def test_a_session_keeps_only_the_suffix(store: Datastore) -> None:
    session = Rest(store, 4).start(range(10_000))
    session.commit(list(range(10_000)))
    assert list(session._tail) == list(range(9_996, 10_000))


def test_limits_beyond_all_texts_are_limits(store: Datastore) -> None:
    """No prefix and no tree is so large, so nothing of that size may be made."""
    beyond = 2**70
    wide = Datastore.build([ARTICLE], context_length=beyond, continuation_length=beyond)
    plainly = Rest(store, 5, 64).start([4, 5, 6]).propose(max_depth=9, max_nodes=64)
    for source in (Rest(store, beyond, beyond), Rest(wide), Rest(wide, beyond, beyond)):
        session = source.start([4, 5, 6])
        assert session.propose(max_depth=beyond, max_nodes=beyond) == plainly
    assert rest_propose([4, 5, 6], wide, beyond, beyond, max_depth=beyond) == (
        rest_propose([4, 5, 6], store, 5, 64)
    )


def test_sessions_share_nothing(store: Datastore) -> None:
    source = Rest(store)
    one, two = source.start([4]), source.start([4])
    one.commit([5, 6])
    assert two.propose(max_depth=9, max_nodes=9) == source.start([4]).propose(
        max_depth=9, max_nodes=9
    )


def test_options_by_default(store: Datastore, tmp_path: Path) -> None:
    assert Rest(store).max_suffix == store.release.context_length == 16
    assert Rest(Datastore.build([[1]], context_length=3)).max_suffix == 3
    store.save(tmp_path / "index")
    assert Rest(tmp_path / "index").identity() == Rest(store).identity()
    assert Rest(str(tmp_path / "index")).datastore.tokens == 9


@pytest.mark.parametrize(
    "call",
    [
        lambda s: Rest(s, -1),
        lambda s: Rest(s, True),
        lambda s: Rest(s, 3, -1),
        lambda s: Rest(s, 3, 2.0),
        lambda s: Rest(3),
        lambda s: Rest(s).start([-1]),
        lambda s: Rest(s).start([12], vocab_size=12),
        lambda s: Rest(s).start([0], vocab_size=11),
        lambda s: Rest(s).start([1], request=None),
        lambda s: Rest(s).start([1], vocab_size=12).commit([12]),
        lambda s: Rest(s).start([1]).commit([True]),
        lambda s: Rest(s).start([1]).propose(max_depth=-1, max_nodes=1),
        lambda s: Rest(s).start([1]).propose(max_depth=1, max_nodes=True),
    ],
    ids=range(13),
)
def test_bad_options_are_refused(store: Datastore, call: Callable[..., Any]) -> None:
    with pytest.raises(SpecbookError):
        call(store)


# ---------------------------------------------------------------------- other targets


def table(vocab_size: int) -> TableTarget:
    return TableTarget(
        lambda prefix: [1] + [0] * (vocab_size - 1), vocab_size=vocab_size
    )


def test_a_target_with_another_tokenizer_is_refused() -> None:
    target = table(12)
    ours = target.identity()["tokenizer"]
    Rest(Datastore.build([ARTICLE], tokenizer=ours)).check_target(target)
    Rest(Datastore.build([ARTICLE])).check_target(target)
    foreign = Rest(Datastore.build([ARTICLE], tokenizer="another"))
    with pytest.raises(ContractError, match="tokenizer 'another', the target's is"):
        engine.generate(target, [4], foreign, max_new_tokens=1)


def test_a_target_with_a_smaller_vocabulary_is_refused(store: Datastore) -> None:
    with pytest.raises(ContractError, match=r"token id 11, .* 0 \.\. 10"):
        engine.generate(table(11), [4], Rest(store), max_new_tokens=1)


# -------------------------------------------------------------------------- decoding


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 4), max_size=30), max_size=3),
    st.lists(st.integers(0, 4), min_size=1, max_size=6),
    st.integers(1, 7),
    st.sampled_from([None, [0]]),
)
def test_greedy_equality(
    documents: Any, prompt: list[int], salt: int, ends: list[int] | None
) -> None:
    def choose(prefix: tuple[int, ...]) -> int:
        # Half of the time what a cycle says, so that there is much to accept.
        mixed = sum((i % 3 + salt) * t for i, t in enumerate(prefix[-3:]))
        return (prefix[-1] + 1) % 5 if mixed % 2 else mixed % 5

    target = TableTarget(one_hot_table(choose, 5), vocab_size=5)
    source = Rest(Datastore.build([*documents, [0, 1, 2, 3, 4] * 2]), 3, 12)
    made = engine.generate(target, prompt, source, max_new_tokens=12, eos_token_id=ends)
    assert made.tokens == plain_greedy(choose, prompt, 12, ends or ())


def check_two_rounds(
    vocab: int, laws: Any, documents: Any, rule: Any = "membership"
) -> int:
    """Every output of at least two rounds has the target's law, exactly. Returns how
    many tokens were accepted in the branches together."""
    target = TableTarget(laws, vocab_size=vocab)
    source = Rest(Datastore.build(documents), 2, 3)
    accepted = 0

    def program(chance: Any) -> tuple[int, ...]:
        nonlocal accepted
        made = engine.generate(
            *(target, [0], source, rule),
            max_new_tokens=3,
            temperature=1,
            chance=chance,
            max_depth=1,
            clock=lambda: 0.0,
        )
        assert len(made.rounds) >= 2
        accepted += sum(r.accepted for r in made.rounds)
        return tuple(made.tokens)

    assert law(program) == plain_law(laws, [0], 3)
    return accepted


@settings(max_examples=40, deadline=None)
@given(tables(), st.data())
def test_the_law_of_two_rounds_is_the_targets(case: Any, data: Any) -> None:
    vocab, laws = case
    documents = data.draw(
        st.lists(st.lists(st.integers(0, vocab - 1), max_size=8), max_size=2)
    )
    check_two_rounds(vocab, laws, documents)


TWO_ROUNDS = (3, table_of([[1, 2, 1], [3, 1, 2]]), [[0, 1, 2, 0, 1]])


def test_two_rounds_that_accept() -> None:
    assert check_two_rounds(*TWO_ROUNDS) > 0


@pytest.mark.parametrize("rule", FAULTY, ids=lambda rule: rule.__name__)
def test_a_rule_with_a_fault_is_found(rule: Any) -> None:
    must_fail(check_two_rounds, *TWO_ROUNDS, verifier(rule))
