"""The draft model as a source: what it draws, what it says about it, what it keeps.

Tables stand for the models here, so that laws are exact; `test_real_drafts` drives real
caches the same way.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from specbook import drafts, paths
from specbook.chance import Sampler, law
from specbook.drafts.neural import draft_model as module
from specbook.drafts.neural.draft_model import DraftModel
from specbook.drafts.neural.own_tree import OwnTree
from specbook.drafts.neural.planned import CHILDREN
from specbook.drafts.samplers import most_probable
from specbook.engine import generate
from specbook.errors import ArtifactError, ContractError, SpecbookError
from specbook.models.table import TableTarget
from specbook.policy import SamplingPolicy
from tests.core.helpers import must_fail, named
from tests.core.helpers.laws import counts, fractions, plain_law, table_of, tables

from .drafting import GREEDY, PLAIN, Counting, check_rounds, path_to

TARGET = table_of([[1, 2], [3, 1], [1, 1]], salt=2)
DRAFT = table_of([[2, 1], [1, 3]], salt=5)
THREE = table_of([[1, 2, 3], [2, 0, 1], [1, 4, 1]], salt=3)


ANY_WIDTH = [kind for kind in CHILDREN if kind != "hub"]
"""Hub children come in pairs."""


def table(rows: Any = DRAFT, vocab: int = 2, **options: Any) -> TableTarget:
    return TableTarget(rows, vocab_size=vocab, **options)


def exact(rows: Any, policy: SamplingPolicy = PLAIN) -> Any:
    """The reference of `check_rounds`."""
    return lambda prefix: policy.law_from_probabilities(rows(tuple(prefix)))


# ----------------------------------------------------------------- what it draws


def proposals(source: DraftModel, prefix: Sequence[int] = (0,), **budget: int) -> Any:
    """The law of the proposal after `prefix`, as (token, parent) of every node."""
    budget = {"max_depth": 9, "max_nodes": 99, **budget}

    def program(chance: Any) -> tuple[tuple[int, int], ...]:
        made = source.start(list(prefix)).propose(chance=chance, **budget)
        return tuple((node.token_id, node.parent) for node in made.nodes)

    return law(program)


def check_chain_law(source: DraftModel, rows: Any, depth: int) -> None:
    """A chain has the law of plain sampling from the draft model."""
    found = {
        tuple(token for token, _ in nodes): p for nodes, p in proposals(source).items()
    }
    assert found == plain_law(rows, (0,), depth)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_a_chain_has_the_law_of_plain_sampling(data: Any) -> None:
    vocab, rows = data.draw(tables(data.draw(st.integers(2, 3))))
    depth = data.draw(st.integers(1, 3))
    source = DraftModel(table(rows, vocab), widths=(1,) * depth)
    check_chain_law(source, rows, depth)
    must_fail(check_chain_law, source, table_of([[1] * (vocab + 1)]), depth)


def test_siblings_without_replacement_are_drawn_from_what_is_left() -> None:
    row = fractions([1, 2, 3])
    source = DraftModel(table(lambda prefix: row, 3), widths=(2,))
    expected = {
        ((a, -1), (b, -1)): row[a] * row[b] / (1 - row[a])
        for a, b in itertools.permutations(range(3), 2)
    }
    assert proposals(source) == expected


def test_iid_siblings_are_drawn_independently_and_may_repeat() -> None:
    row = fractions([1, 2, 3])
    source = DraftModel(table(lambda prefix: row, 3), widths=(2,), children="iid")
    expected = {
        ((a, -1), (b, -1)): row[a] * row[b]
        for a, b in itertools.product(range(3), repeat=2)
    }
    assert proposals(source) == expected


def test_fixed_siblings_come_first_and_one_is_drawn_among_the_others() -> None:
    row = fractions([1, 2, 3, 2])
    source = DraftModel(
        table(lambda prefix: row, 4), widths=(3,), children="greedy_plus_one"
    )
    assert proposals(source) == {
        ((2, -1), (1, -1), (last, -1)): row[last] / (row[0] + row[3]) for last in (0, 3)
    }
    made = source.start([0]).propose(max_depth=1, max_nodes=9, chance=Sampler(0))
    assert [n.q for n in made.nodes[:2]] == [1, 1]


def test_hub_siblings_are_pairs_with_the_most_probable_token() -> None:
    row = fractions([1, 2, 3])
    source = DraftModel(table(lambda prefix: row, 3), widths=(2,), children="hub")
    assert proposals(source) == {
        **{((x, -1), (2, -1)): row[x] for x in (0, 1)},
        **{((2, -1), (x, -1)): row[2] * row[x] / (1 - row[2]) for x in (0, 1)},
    }
    assert proposals(source, max_nodes=1) == {(): 1}
    for widths in ((1,), (2, 1), (3,)):
        with pytest.raises(SpecbookError, match="pairs"):
            DraftModel(table(), widths=widths, children="hub")


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        ("iid", "specinfer"),
        ("iid", "kseq"),
        ("iid", "traversal"),
        ("without_replacement", "sequoia"),
        ("without_replacement", "traversal"),
        ("greedy_plus_one", "greedy_draft"),
        ("hub", "spechub"),
        ("top_k", "one_hot"),
    ],
)
def test_every_kind_meets_its_rule(kind: str, rule: str) -> None:
    check_output(lambda: DraftModel(table(), widths=(2, 2), children=kind), rule, 3)


def test_a_token_that_was_drawn_twice_is_drafted_further_once() -> None:
    certain = table(lambda prefix: [0, 1])
    source = DraftModel(certain, widths=(3, 2), children="iid")
    twice = source.start([0]).propose(max_depth=9, max_nodes=99, chance=Sampler(0))
    assert [(n.token_id, n.parent) for n in twice.nodes] == [
        *[(1, -1)] * 3,
        *[(1, 0)] * 2,
    ]


def test_the_most_probable_children_come_in_order_and_ties_to_the_lowest_id() -> None:
    rows = table_of([[3, 1, 4, 4, 0]])
    source = DraftModel(table(rows, 5), widths=(3, 1), children="top_k")
    for policy in (PLAIN, GREEDY):
        made = source.start([0], policy=policy).propose(max_depth=9, max_nodes=99)
        assert [n.token_id for n in made.nodes[:3]] == [2, 3, 0]
        assert [(n.token_id, n.parent) for n in made.nodes[3:]] == [
            (2, 0),
            (2, 1),
            (2, 2),
        ]
        assert made.nodes[0].score == Fraction(1, 3)
        assert all(n.q is None and n.law is None for n in made.nodes)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=9), st.integers(0, 9))
def test_most_probable_is_the_head_of_a_stable_sort(row: list[int], count: int) -> None:
    assume(any(row))
    ranked = [i for i in sorted(range(len(row)), key=lambda i: (-row[i], i)) if row[i]]
    law = [Fraction(weight, sum(row)) for weight in row]
    for kind in (float, object):
        assert most_probable(np.array(law, dtype=kind), count) == ranked[:count]


def test_fewer_possible_tokens_give_fewer_children() -> None:
    rows = table_of([[0, 2, 1]])
    for kind in ("without_replacement", "top_k"):
        source = DraftModel(table(rows, 3), widths=(3,), children=kind)
        made = source.start([0]).propose(max_depth=9, max_nodes=9, chance=Sampler(1))
        assert sorted(n.token_id for n in made.nodes) == [1, 2]


def test_at_temperature_zero_a_sampled_tree_is_the_greedy_chain_with_q_one() -> None:
    for kind in ("without_replacement", "iid"):
        source = DraftModel(table(THREE, 3), widths=(1, 1, 1), children=kind)
        made = source.start([0], policy=GREEDY).propose(max_depth=9, max_nodes=9)
        prefix = [0]
        for node in made.nodes:
            row = THREE(tuple(prefix))
            assert node.token_id == row.index(max(row)) and node.q == 1
            prefix.append(node.token_id)
    wide = DraftModel(table(THREE, 3), widths=(2, 2))
    made = wide.start([0], policy=GREEDY).propose(max_depth=9, max_nodes=9)
    assert [n.parent for n in made.nodes] == [-1, 0]


# ------------------------------------------------------------- what it says of it


@pytest.mark.parametrize(
    ("widths", "kind", "stated"),
    [
        ((1, 1), "without_replacement", ("normalized_conditional", "iid", "sequence")),
        ((1, 1), "iid", ("normalized_conditional", "iid", "sequence")),
        ((1, 1), "top_k", ("score_only", "beam", "sequence")),
        ((1, 1), "greedy_plus_one", ("normalized_conditional", "iid", "sequence")),
        (
            (2, 1),
            "greedy_plus_one",
            ("normalized_conditional", "greedy_plus_one", "tree"),
        ),
        ((2, 2), "hub", ("normalized_conditional", "hub", "tree")),
        ((2, 1), "iid", ("normalized_conditional", "iid", "tree")),
        ((2, 1), "top_k", ("score_only", "beam", "tree")),
        (
            (1, 2),
            "without_replacement",
            ("normalized_conditional", "without_replacement", "tree"),
        ),
    ],
    ids=named,
)
def test_the_contract_follows_the_options(
    widths: tuple[int, ...], kind: str, stated: tuple[str, ...]
) -> None:
    source = DraftModel(table(), widths=widths, children=kind)
    made = source.start([0]).propose(max_depth=9, max_nodes=9, chance=Sampler(0))
    for part in (source.contract, made):
        found = (part.probability_semantics, part.sampling_relation, part.topology)
        assert found == stated
    assert source.contract.name == "draft_model"


def test_h17_only_a_sampled_chain_meets_the_rule_for_one_draft() -> None:
    target = table(TARGET)
    for widths, kind, told in (
        ((1, 1), "top_k", "score_only"),
        ((2,), "iid", "tree"),
        ((2,), "without_replacement", "without_replacement"),
    ):
        with pytest.raises(ContractError, match=told):
            generate(
                target,
                [0],
                DraftModel(table(), widths=widths, children=kind),
                "single",
                max_new_tokens=2,
                temperature=1,
            )


def test_the_identity_names_checkpoint_and_options() -> None:
    rows = {(0,): [0.5, 0.5], (0, 1): [0.25, 0.75]}
    one = DraftModel(TableTarget(rows))
    texts = {
        source.identity()
        for source in (
            one,
            DraftModel(TableTarget(dict(rows))),
            DraftModel(TableTarget({(0,): [0.25, 0.75]})),
            DraftModel(TableTarget(rows), widths=(2,)),
            DraftModel(TableTarget(rows), children="iid"),
            DraftModel(TableTarget(rows), stop_below=0.5),
        )
    }
    assert len(texts) == 5
    assert one.identity().startswith("draft_model widths=(1, 1, 1, 1)")


def test_it_is_registered() -> None:
    assert "draft_model" in drafts.names() and drafts.get("draft_model") is DraftModel


# ------------------------------------------------------------ what comes out of it

RULES = {
    "chain, single": ((1, 1), "without_replacement", "single"),
    "chain, membership": ((1, 1), "without_replacement", "membership"),
    "wide, membership": ((2, 1), "without_replacement", "membership"),
    "deep and wide": ((1, 2), "without_replacement", "membership"),
    "iid tree": ((2, 1), "iid", "membership"),
    "beam": ((2, 1), "top_k", "membership"),
}


def check_output(
    source: Callable[[], Any], rule: Any, length: int = 4, target: Any = TARGET
) -> None:
    """All outputs of the engine have the plain law."""
    model = table(target)
    found = law(
        lambda chance: (
            generate(
                model,
                [0],
                source(),
                rule,
                max_new_tokens=length,
                temperature=1,
                chance=chance,
                clock=lambda: 0.0,
            ).tokens
        )
    )
    assert found == plain_law(target, (0,), length)


@pytest.mark.parametrize("name", RULES)
def test_two_rounds_have_the_plain_law(name: str) -> None:
    widths, kind, rule = RULES[name]
    source = DraftModel(table(), widths=widths, children=kind)
    check_output(lambda: source, rule)


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_two_rounds_with_any_pair_of_laws(data: Any) -> None:
    rows = [
        table_of(data.draw(st.lists(counts(2), min_size=2, max_size=4)), salt)
        for salt in (3, 8)
    ]
    stop = data.draw(st.sampled_from([0, 0.3, 0.7]))
    source = DraftModel(table(rows[0]), widths=(1, 1), stop_below=stop)
    check_output(lambda: source, "single", target=rows[1])


class Drops(DraftModel):
    """Leaves out a drawn token that it is not sure of: what it keeps is no longer drawn
    from the law that it says."""

    def start(self, *arguments: Any, **options: Any) -> Any:
        session = super().start(*arguments, **options)
        propose = session.propose

        def proposes(**budget: Any) -> Any:
            import dataclasses

            made = propose(**budget)
            kept = itertools.takewhile(lambda node: node.q > 0.5, made.nodes)
            return dataclasses.replace(made, nodes=tuple(kept))

        session.propose = proposes
        return session


def test_dropping_an_unsure_token_bends_the_output_and_stopping_before_does_not() -> (
    None
):
    check_output(lambda: DraftModel(table(), widths=(1, 1), stop_below=0.6), "single")
    must_fail(check_output, lambda: Drops(table(), widths=(1, 1)), "single")


def greedy_tokens(rows: Any, prompt: Sequence[int], length: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(length):
        row = rows(tuple(tokens))
        tokens.append(row.index(max(row)))
    return tokens[len(prompt) :]


@pytest.mark.parametrize("prompt", [[1], [0, 2, 1]], ids=named)
@pytest.mark.parametrize("kind", ANY_WIDTH)
@pytest.mark.parametrize("widths", [(1,), (1, 1, 1, 1), (3, 1, 1), (2, 2)], ids=named)
def test_h20_greedy_equality(
    widths: tuple[int, ...], kind: str, prompt: list[int]
) -> None:
    """Drafts from the target itself, from another law, and always wrong ones."""

    def wrong(prefix: tuple[int, ...]) -> list[int]:
        row = THREE(prefix)
        best = row.index(max(row))
        return [int(i == (best + 1) % 3) for i in range(3)]

    expected = greedy_tokens(THREE, prompt, 25)
    for rows in (THREE, table_of([[1, 5, 2], [3, 1, 0]], salt=7), wrong):
        source = DraftModel(table(rows, 3), widths=widths, children=kind)
        for rule in ("greedy", "membership"):
            found = generate(table(THREE, 3), prompt, source, rule, max_new_tokens=25)
            assert found.tokens == expected


def test_a_draft_that_is_the_target_is_accepted_whole_in_every_round() -> None:
    model = table(TARGET)
    source = DraftModel(model, widths=(1, 1))
    options: dict[str, Any] = {"max_new_tokens": 6, "clock": lambda: 0.0}

    def shape(result: Any) -> tuple[Any, ...]:
        return tuple((r.accepted, r.ending) for r in result.rounds)

    whole = ((2, "bonus"), (2, "bonus"))
    assert shape(generate(model, [0], source, "greedy", **options)) == whole
    found = law(
        lambda chance: shape(
            generate(
                model, [0], source, "single", temperature=1, chance=chance, **options
            )
        )
    )
    assert found == {whole: 1}
    other = DraftModel(table(DRAFT), widths=(1, 1))
    assert shape(generate(model, [0], other, "greedy", **options)) != whole


# -------------------------------------------------------------------- what it keeps


@pytest.mark.parametrize("kind", ["without_replacement", "iid"])
@pytest.mark.parametrize("widths", [(1, 1, 1), (2, 1, 2), (1,)], ids=named)
def test_laws_follow_the_published_path(widths: tuple[int, ...], kind: str) -> None:
    for seed in range(4):
        source = DraftModel(table(THREE, 3), widths=widths + (1,), children=kind)
        check_rounds(source, exact(THREE), seed=seed)


def forgets_the_bonus(self: OwnTree, published: Sequence[int]) -> None:
    """Takes what it had a row for and one token more, as if that were all."""
    before = len(self._session.tokens)
    commit(self, published)
    path = 0 if self.tree is None else len(published)
    del self._session.tokens[before + max(1, path - 1) :]


def keeps_the_draft(self: OwnTree, published: Sequence[int]) -> None:
    """Goes on from its own draft, whatever was published."""
    if self.tree is None or not len(self.tree):
        return commit(self, published)
    path = list(self.tree.path_rows(len(self.tree) - 1))
    self._session.commit(path, published[-1])
    self.tree = None


def never_rolls_back(self: OwnTree, published: Sequence[int]) -> None:
    """Puts what was published behind all that was drafted."""
    if self.tree is not None:
        self._session.extend(list(self.tree.token_ids))
        self.tree = None
    commit(self, published)


commit = OwnTree.commit


@pytest.mark.parametrize(
    "fault", [forgets_the_bonus, keeps_the_draft, never_rolls_back]
)
def test_a_wrong_roll_back_is_found(fault: Any, monkeypatch: Any) -> None:
    source = DraftModel(table(THREE, 3), widths=(1, 1, 1))
    check_rounds(source, exact(THREE))
    monkeypatch.setattr(OwnTree, "commit", fault)
    must_fail(check_rounds, source, exact(THREE))


@pytest.mark.parametrize("widths", [(1, 1, 1, 1), (2, 2, 1), (3,)], ids=named)
def test_a_round_costs_a_forward_a_level_and_no_row_twice(
    widths: tuple[int, ...],
) -> None:
    model = Counting(THREE, vocab_size=3)
    session = DraftModel(model, widths=widths).start([0])
    for seed in range(3):
        model.forwards = model.rows = 0
        made = session.propose(max_depth=99, max_nodes=99, chance=Sampler(seed))
        assert model.forwards == len(widths)
        # The deepest candidates have no children, so nothing is computed for them.
        assert model.rows == sum(n.depth < len(widths) for n in made.nodes)
        session.commit([*path_to(made, 0), 1])


def test_two_requests_do_not_disturb_each_other() -> None:
    source = DraftModel(table(THREE, 3), widths=(2, 1))
    one, two = source.start([0]), source.start([1, 2])
    for number in range(4):
        for session in (one, two):
            session.propose(max_depth=9, max_nodes=9, chance=Sampler(number))
            session.commit([number % 3])
    for session, prefix in ((one, [0, 0, 1, 2, 0]), (two, [1, 2, 0, 1, 2, 0])):
        made = session.propose(max_depth=1, max_nodes=1, chance=Sampler(0))
        assert made.nodes[0].law.tolist() == THREE(tuple(prefix))


# --------------------------------------------------------------------- its limits


@pytest.mark.parametrize("kind", ANY_WIDTH)
def test_the_budget_is_kept_and_cuts_level_by_level(kind: str) -> None:
    source = DraftModel(table(THREE, 3), widths=(2, 2, 1), children=kind)
    for depth, most in itertools.product(range(5), range(8)):
        session = source.start([0])
        made = session.propose(max_depth=depth, max_nodes=most, chance=Sampler(0))
        assert len(made.nodes) <= most
        assert max((n.depth for n in made.nodes), default=0) <= depth
        assert bool(made.nodes) == bool(depth and most)
        depths = [n.depth for n in made.nodes]
        assert depths == sorted(depths)
        session.commit([1])
        again = session.propose(max_depth=1, max_nodes=1, chance=Sampler(0))
        if kind != "top_k":
            assert again.nodes[0].law.tolist() == THREE((0, 1))


def test_a_budget_never_costs_a_draw_that_is_not_used() -> None:
    """A node that the budget leaves no room for asks the chance nothing: the law of
    what is proposed is that of a smaller tree."""
    rows = table_of([[1, 2], [1, 1]])
    wide = DraftModel(table(rows), widths=(2, 1))
    assert proposals(wide, max_nodes=1) == proposals(
        DraftModel(table(rows), widths=(1,))
    )


@pytest.mark.parametrize("limit", range(1, 9))
def test_where_the_drafts_context_ends_it_falls_silent(limit: int) -> None:
    """The target goes on alone; no exception in mid-sentence."""
    draft = table(THREE, 3, context_limit=limit)
    source = DraftModel(draft, widths=(1, 1, 1))
    result = generate(table(THREE, 3), [0, 1, 2], source, "greedy", max_new_tokens=9)
    assert result.tokens == greedy_tokens(THREE, [0, 1, 2], 9)
    for done in result.rounds:
        held = done.tree.prefix_len
        # It predicts the token after each position that it has; the last of the nine
        # tokens needs no draft. A prompt that it cannot read silences it altogether.
        room = limit + 1 - held if limit >= 3 else 0
        assert len(done.tree) == max(0, min(3, 12 - held - 1, room))


def test_nothing_is_drafted_where_the_model_is_not_sure_enough() -> None:
    # After an odd number of tokens the draft is sure to 9/10, else to 6/10.
    def by_length(prefix: tuple[int, ...]) -> list[Fraction]:
        return fractions([9, 1] if len(prefix) % 2 else [6, 4])

    for policy in (PLAIN, GREEDY):
        for stop, expected in ((0, 4), (0.5, 2), (0.53, 2), (0.55, 1), (0.91, 0)):
            source = DraftModel(table(by_length), stop_below=stop, children="top_k")
            made = source.start([0], policy=policy).propose(max_depth=9, max_nodes=9)
            # 0.9, then 0.9 * 0.6, then * 0.9 = 0.486, then 0.2916
            assert len(made.nodes) == expected


def test_a_table_of_floats_serves_too() -> None:
    rows = {
        key: [0.5, 0.25, 0.25]
        for n in range(1, 4)
        for key in itertools.product(range(3), repeat=n)
    }
    source = DraftModel(TableTarget(rows), widths=(2, 1))
    made = source.start([0]).propose(max_depth=2, max_nodes=9, chance=Sampler(0))
    assert all(math.isclose(n.law.sum(), 1) for n in made.nodes)


# --------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    "options",
    [
        {"widths": ()},
        {"widths": (0,)},
        {"widths": (1, -1)},
        {"widths": (1.0,)},
        {"widths": (True,)},
        {"widths": 3},
        {"widths": "11"},
        {"widths": {1, 2}},
        {"children": "beam"},
        {"children": None},
        {"stop_below": -0.1},
        {"stop_below": 1.5},
        {"stop_below": math.nan},
        {"stop_below": True},
        {"stop_below": "0.5"},
        {"model": 3},
        {"model": TableTarget},
        {"model": object()},
        {"model": []},
    ],
    ids=named,
)
def test_bad_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(SpecbookError):
        DraftModel(**{"model": table(), **options})


def test_tuned_options_can_be_changed_by_name() -> None:
    tuned = DraftModel.tuned(table())
    assert {name: getattr(tuned, name) for name in module.TUNED} == module.TUNED
    changed = DraftModel.tuned(table(), stop_below=0.5, children="top_k")
    assert (changed.widths, changed.stop_below) == (tuned.widths, 0.5)
    with pytest.raises(SpecbookError, match="option of the draft model"):
        DraftModel.tuned(table(), depth=3)


def test_options_in_other_forms_mean_the_same() -> None:
    for widths in ([2, 1], np.array([2, 1]), (np.int64(2), 1), (w for w in (2, 1))):
        assert DraftModel(table(), widths=widths).widths == (2, 1)


@pytest.mark.parametrize("prefix", [[], [2], [-1], [0.0], [True], "0", None, 5])
def test_a_bad_prompt_is_refused(prefix: Any) -> None:
    with pytest.raises(SpecbookError):
        DraftModel(table()).start(prefix)


@pytest.mark.parametrize(
    "options",
    [{"vocab_size": 3}, {"vocab_size": 0}, {"policy": 1.0}, {"policy": "greedy"}],
    ids=named,
)
def test_a_start_that_does_not_fit_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(SpecbookError):
        DraftModel(table()).start([0], **options)


@pytest.mark.parametrize("budget", [-1, 1.0, True, None, "1"])
@pytest.mark.parametrize("name", ["max_depth", "max_nodes"])
def test_a_bad_budget_is_refused(name: str, budget: Any) -> None:
    session = DraftModel(table()).start([0])
    with pytest.raises(SpecbookError, match=name):
        session.propose(**{"max_depth": 1, "max_nodes": 1, name: budget})


@pytest.mark.parametrize("tokens", [[2], [-1], [0.0], [True], "0", 5, None])
def test_published_tokens_that_are_none_are_refused(tokens: Any) -> None:
    session = DraftModel(table()).start([0])
    session.propose(max_depth=2, max_nodes=2, chance=Sampler(0))
    with pytest.raises(SpecbookError):
        session.commit(tokens)


def test_a_draw_needs_a_chance_and_a_certain_one_does_not() -> None:
    source = DraftModel(table())
    with pytest.raises(SpecbookError, match="chance is needed"):
        source.start([0]).propose(max_depth=1, max_nodes=1)
    made = source.start([0], policy=GREEDY).propose(max_depth=1, max_nodes=1)
    assert len(made.nodes) == 1


def test_a_target_with_another_vocabulary_is_refused_before_any_call() -> None:
    asked: list[Any] = []

    def rows(prefix: tuple[int, ...]) -> list[int]:
        asked.append(prefix)
        return [1, 0, 0]

    with pytest.raises(ContractError, match="head has 3 rows, the draft's 2"):
        generate(table(rows, 3), [0], DraftModel(table()), "greedy", max_new_tokens=3)
    assert not asked


def test_what_is_not_shipped_is_said_and_how_to_make_it(monkeypatch: Any) -> None:
    def missing(*parts: str) -> Any:
        assert parts == module.SHIPPED
        raise ArtifactError("no such file")

    monkeypatch.setattr(paths, "data_path", missing)
    with pytest.raises(ArtifactError, match="specbook train draft"):
        DraftModel()
