"""The rule for one draft, and the laws that a proposal carries for rules that read q.

Exact: with Fractions, over whole grids of small laws and over chains whose laws depend
on everything before. With float64: near-equal laws, denormals, and rows that differ by
their rounding.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbook import verifiers
from specbook.chance import Sampler, law
from specbook.contract import Selection, bind
from specbook.drafts.neural.draft_model import DraftModel
from specbook.engine import generate
from specbook.errors import (
    ChanceError,
    ContractError,
    LawError,
    ProposalError,
    SpecbookError,
    TreeError,
)
from specbook.models.table import TableTarget
from specbook.proposal import ProposalNode
from specbook.tree import CandidateTree, SourceMark
from specbook.verifiers.coupling import acceptance, residual
from specbook.verifiers.single import select

from .helpers import must_fail
from .helpers.laws import fractions, plain_law, table_of, tables
from .helpers.sources import FixedSource, proposal_of

Rule = Callable[..., Selection]


def exact(weights: Any) -> np.ndarray:
    return np.array(fractions(weights), dtype=object)


def sequence(tokens: list[int], laws: list[Any], **options: Any) -> Any:
    """A proposal of one chain whose tokens were drawn from `laws`."""
    nodes = tuple(
        ProposalNode(token, index - 1, index + 1, q=row[token], source="fixed", law=row)
        for index, (token, row) in enumerate(zip(tokens, laws, strict=True))
    )
    made = proposal_of(
        [],
        semantics="normalized_conditional",
        relation="iid",
        topology="sequence",
        **options,
    )
    return dataclasses.replace(made, nodes=nodes)


def chain(tokens: list[int], laws: list[Any], length: int = 1) -> CandidateTree:
    return CandidateTree.from_proposals(sequence(tokens, laws), length)


# ------------------------------------------------------------------ one position


def grid(vocab: int, most: int) -> Iterator[np.ndarray]:
    """Every law with weights 0 .. `most`, each once."""
    seen = set()
    for weights in itertools.product(range(most + 1), repeat=vocab):
        if any(weights):
            key = tuple(fractions(weights))
            if key not in seen:
                seen.add(key)
                yield exact(weights)


def check_one_position(p: np.ndarray, q: np.ndarray, rule: Rule = select) -> None:
    """The first token has the law p, and the draft is accepted as often as any
    coupling can: with probability 1 - TV(p, q)."""
    after = exact([1, *[0] * (len(p) - 1)])

    def program(chance: Any) -> tuple[bool, int]:
        tree = chain([chance.draw(q)], [q])
        found = rule(tree, lambda row: p if row < 0 else after, chance)
        accepted = bool(found.rows)
        return accepted, tree.token_ids[0] if accepted else found.token

    found = law(program)
    for token, weight in enumerate(p):
        mass = sum(found.get((accepted, token), 0) for accepted in (True, False))
        assert mass == weight, f"token {token} has {mass}, not {weight}"
    accepted = sum(weight for (taken, _), weight in found.items() if taken)
    assert accepted == 1 - sum(abs(p - q)) / 2


@pytest.mark.parametrize(("vocab", "most"), [(1, 1), (2, 4), (3, 2)])
def test_every_small_instance_is_exact_and_maximal(vocab: int, most: int) -> None:
    laws = list(grid(vocab, most))
    for p, q in itertools.product(laws, repeat=2):
        check_one_position(p, q)


def test_the_articles_instance_accepts_nine_in_ten() -> None:
    p, q = exact([5, 3, 2]), exact([4, 4, 2])
    check_one_position(p, q)
    assert sum(np.minimum(p, q)) == Fraction(9, 10)
    assert residual(p, q).tolist() == [1, 0, 0]


# ----------------------------------------------------------------- planted faults


def variant(
    *,
    test: Callable[..., Any] = acceptance,
    rest: Callable[..., Any] = residual,
    goes_on: bool = False,
) -> Rule:
    """The rule with one part exchanged; `goes_on` looks past a refusal (case H13)."""

    def rule(tree: CandidateTree, law: Any, chance: Any) -> Selection:
        rows: list[int] = []
        refused = False
        row = -1
        correction = None
        while draws := tree.draws(row):
            child, mark = draws[0]
            p = law(row)
            if chance.flip(test(p, mark.law, tree.token_ids[child])):
                if not refused:
                    rows.append(child)
            elif correction is None:
                correction = chance.draw(rest(p, mark.law))
                refused = True
                if not goes_on:
                    return Selection(tuple(rows), correction)
            row = child
        if correction is not None:
            return Selection(tuple(rows), correction)
        return Selection(tuple(rows), chance.draw(law(row)))

    return rule


FAULTS: dict[str, Rule] = {
    "draws from p again (H15)": variant(rest=lambda p, q: p),
    "draws from q after a refusal": variant(rest=lambda p, q: q),
    "tests q / p": variant(test=lambda p, q, x: min(1, q[x] / p[x]) if p[x] else 0),
    "accepts with p": variant(test=lambda p, q, x: p[x]),
    "accepts with q": variant(test=lambda p, q, x: q[x]),
    "accepts all": variant(test=lambda p, q, x: 1),
    "accepts none": variant(test=lambda p, q, x: 0, rest=lambda p, q: p),
    "spreads the residual evenly": variant(
        rest=lambda p, q: np.array(
            [Fraction(int(a > b), int(sum(p > q))) for a, b in zip(p, q, strict=True)],
            dtype=object,
        )
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_rule_with_one_part_exchanged_is_found(name: str) -> None:
    p, q = exact([5, 3, 1]), exact([1, 3, 5])
    check_one_position(p, q, variant())
    p, q = exact([5, 3, 2, 2]), exact([2, 3, 4, 1])
    check_one_position(p, q, variant())
    must_fail(check_one_position, p, q, FAULTS[name])


# ------------------------------------------------------------------------- chains


def check_chain(
    target: Any, draft: Any, vocab: int, depth: int, rule: Rule = select
) -> None:
    """Blocks of a drawn chain, continued by plain sampling, have the plain law; and the
    expected number of accepted drafts is the sum over positions of the probability that
    all tests so far were passed."""
    prompt = (0,)

    def program(chance: Any) -> tuple[tuple[int, ...], int]:
        tokens: list[int] = []
        laws = []
        for _ in range(depth):
            laws.append(np.array(draft((*prompt, *tokens)), dtype=object))
            tokens.append(chance.draw(laws[-1]))
        tree = chain(tokens, laws)
        paths = {row: tree.full_prefixes[row] for row in range(depth)} | {-1: ()}
        answer = rule(
            tree,
            lambda row: np.array(target((*prompt, *paths[row])), dtype=object),
            chance,
        )
        rows = tree.check_path(answer.rows)
        block = (*(tree.token_ids[row] for row in rows), answer.token)
        return block, len(rows)

    outputs: dict[tuple[int, ...], Fraction] = {}
    accepted = Fraction(0)
    for (begun, count), probability in law(program).items():
        accepted += count * probability
        rest = plain_law(target, (*prompt, *begun), depth + 1 - len(begun))
        for more, weight in rest.items():
            output = (*begun, *more)
            outputs[output] = outputs.get(output, Fraction(0)) + probability * weight
    assert outputs == plain_law(target, prompt, depth + 1)

    # Passing every test of a path has the probability of min(p, q), multiplied along.
    reached = {prompt: Fraction(1)}
    expected = Fraction(0)
    for _ in range(depth):
        deeper: dict[tuple[int, ...], Fraction] = {}
        for path, mass in reached.items():
            pairs = zip(target(path), draft(path), strict=True)
            for token, both in enumerate(map(min, pairs)):
                deeper[(*path, token)] = mass * both
        reached = deeper
        expected += sum(reached.values())
    assert accepted == expected


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_chains_are_exact_whatever_the_laws_depend_on(data: Any) -> None:
    vocab, target = data.draw(tables(data.draw(st.integers(2, 3))))
    _, draft = data.draw(tables(vocab))
    check_chain(target, draft, vocab, data.draw(st.integers(1, 3 if vocab == 2 else 2)))


def test_h13_a_later_match_after_a_refusal_does_not_count() -> None:
    one_hot = [exact([int(i == t) for i in range(9)]) for t in range(9)]
    tree = chain([1, 2, 3, 4], [one_hot[t] for t in (1, 2, 3, 4)])
    wanted = [1, 7, 3, 4, 5]  # yes, no, yes, yes
    found = law(
        lambda chance: select(tree, lambda row: one_hot[wanted[row + 1]], chance)
    )
    assert found == {Selection((0,), 7): 1}


LEFT = table_of([[1, 2], [3, 1], [1, 1]], salt=2)
RIGHT = table_of([[2, 1], [1, 3]], salt=5)


def test_chains_with_one_part_exchanged_are_found() -> None:
    check_chain(LEFT, RIGHT, 2, 2)
    check_chain(LEFT, RIGHT, 2, 2, variant())
    for name in ("draws from p again (H15)", "accepts none", "accepts all"):
        must_fail(check_chain, LEFT, RIGHT, 2, 2, FAULTS[name])


# --------------------------------------------------------------------- the engine


@dataclasses.dataclass
class Drafts:
    """Draws chains from a table, each token with its law. `lie` changes the nodes."""

    table: Any
    depth: int = 2
    lie: Callable[[ProposalNode], ProposalNode] = lambda node: node

    def __post_init__(self) -> None:
        self.contract = FixedSource(
            [],
            name="drafts",
            semantics="normalized_conditional",
            relation="iid",
            topology="sequence",
        ).contract

    def identity(self) -> str:
        return "drafts from a table"

    def start(self, prefix: Any, **about: Any) -> Any:
        return DraftsSession(self, list(prefix), about["request"])


@dataclasses.dataclass
class DraftsSession:
    source: Drafts
    tokens: list[int]
    request: str
    generation: int = 0

    def propose(
        self, *, max_depth: int, max_nodes: int, chance: Any, manifest_hash: str
    ) -> Any:
        drawn: list[int] = []
        laws = []
        for _ in range(min(max_depth, max_nodes, self.source.depth)):
            laws.append(np.array(self.source.table((*self.tokens, *drawn))))
            drawn.append(chance.draw(laws[-1]))
        made = sequence(
            drawn,
            laws,
            owner="drafts",
            request=self.request,
            generation=self.generation,
            manifest_hash=manifest_hash,
        )
        nodes = tuple(
            self.source.lie(dataclasses.replace(node, source="drafts"))
            for node in made.nodes
        )
        return dataclasses.replace(made, nodes=nodes)

    def commit(self, tokens: Any) -> None:
        self.tokens += tokens
        self.generation += 1


def decoded(draft: Any, length: int, target: Any = LEFT) -> dict[Any, Any]:
    model = TableTarget(target, vocab_size=2)
    return law(
        lambda chance: (
            generate(
                model,
                [0],
                Drafts(draft),
                "single",
                max_new_tokens=length,
                temperature=1,
                chance=chance,
                clock=lambda: 0.0,
            ).tokens
        )
    )


def test_two_rounds_have_the_plain_law() -> None:
    # Chains of two: every output of four tokens takes two rounds at least.
    assert decoded(RIGHT, 4) == plain_law(LEFT, (0,), 4)


def test_a_draft_that_is_the_target_is_always_accepted() -> None:
    model = TableTarget(LEFT, vocab_size=2)
    found = law(
        lambda chance: [
            (r.accepted, r.ending)
            for r in generate(
                model,
                [0],
                Drafts(LEFT),
                "single",
                max_new_tokens=6,
                temperature=1,
                chance=chance,
                clock=lambda: 0.0,
            ).rounds
        ]
    )
    assert found == {((2, "bonus"), (2, "bonus")): 1}


def test_at_temperature_zero_it_is_greedy_decoding() -> None:
    def one_hot(prefix: tuple[int, ...]) -> list[int]:
        row = RIGHT(prefix)
        return [int(i == row.index(max(row))) for i in range(2)]

    model = TableTarget(LEFT, vocab_size=2)
    plain = generate(model, [0], None, "greedy", max_new_tokens=9)
    found = generate(model, [0], Drafts(one_hot), "single", max_new_tokens=9)
    assert found.tokens == plain.tokens
    assert any(r.ending == "correction" for r in found.rounds)
    assert any(r.accepted for r in found.rounds)


class CountsCalls(TableTarget):
    """How often a tree was verified."""

    calls = 0

    def start(self, prompt_ids: Any) -> Any:
        session = super().start(prompt_ids)
        verify = session.verify

        def counted(tree: CandidateTree) -> Any:
            self.calls += 1
            return verify(tree)

        session.verify = counted  # type: ignore[method-assign]
        return session


def check_refused_first(error: Any, told: str, source: Any) -> None:
    target = CountsCalls(RIGHT, vocab_size=2)
    with pytest.raises(error, match=told):
        generate(target, [0], source, "single", max_new_tokens=4, temperature=1)
    assert target.calls == 0, "the target was called first"


def test_a_chain_without_its_laws_is_refused_before_any_target_call() -> None:
    no_law = Drafts(RIGHT, lie=lambda node: dataclasses.replace(node, law=None))
    check_refused_first(
        ContractError, r"drafts's nodes\[0\] comes without the law", no_law
    )
    forgets_one = Drafts(
        RIGHT,
        lie=lambda node: (
            node if node.depth < 2 else dataclasses.replace(node, law=None)
        ),
    )
    check_refused_first(ContractError, r"nodes\[1\] comes without", forgets_one)


def test_a_law_over_another_vocabulary_is_refused_before_any_target_call() -> None:
    wide = Drafts(lambda prefix: [*RIGHT(prefix), Fraction(0)])
    check_refused_first(ProposalError, r"law \[3\].*vocabulary has 2", wide)


@pytest.mark.parametrize(
    "changes",
    [
        {"semantics": "absent"},
        {"semantics": "frequency"},
        {"semantics": "score_only"},
        {"relation": "deterministic_lookup"},
        {"relation": "beam"},
        {"relation": "without_replacement"},
        {"topology": "tree"},
        {"topology": "set"},
        {"topology": "metadata_graph"},
    ],
    ids=lambda changes: "".join(changes.values()),
)
def test_h17_whatever_is_no_sampled_chain_is_refused(changes: dict[str, str]) -> None:
    good = {
        "semantics": "normalized_conditional",
        "relation": "iid",
        "topology": "sequence",
    }
    bind(proposal_of([[1]], **good), "single")
    told = next(iter(changes.values()))
    with pytest.raises(ContractError, match=f"'{told}'"):
        bind(proposal_of([[1]], **{**good, **changes}), "single")
    check_refused_first(ContractError, told, FixedSource([[1]], **{**good, **changes}))


def test_merged_chains_are_refused() -> None:
    check_refused_first(ContractError, "merged", [Drafts(RIGHT), Drafts(LEFT)])


def test_by_hand_it_refuses_what_is_no_chain_and_what_has_no_law() -> None:
    half = exact([1, 1])
    for tree in (
        CandidateTree.from_paths([[0], [1]], 1),
        CandidateTree.from_paths([[0]], 1),
        CandidateTree((0,), (-1,), (1,), 1, ((SourceMark("s", Fraction(1, 2)),),)),
        CandidateTree.from_proposals([sequence([0], [half])] * 2, 1),
    ):
        with pytest.raises(ContractError, match="single: (a child of )?row (-1|0)"):
            select(tree, lambda row: half, Sampler(0))


# ------------------------------------------------------------------------- floats


def float_law(p: Any, q: Any) -> dict[Any, float]:
    """The law of (accepted, first token) with float64 rows; warnings are errors."""
    p, q = np.array(p, dtype=np.float64), np.array(q, dtype=np.float64)
    after = np.eye(len(p))[0]

    def program(chance: Any) -> tuple[bool, int]:
        tree = chain([chance.draw(q)], [q])
        found = select(tree, lambda row: p if row < 0 else after, chance)
        return bool(found.rows), tree.token_ids[0] if found.rows else found.token

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return law(program)


def check_float(p: Any, q: Any) -> float:
    """The first token has the law p, to rounding. Returns the acceptance."""
    found = float_law(p, q)
    assert all(math.isfinite(weight) and weight >= 0 for weight in found.values())
    total = math.fsum(p)
    # A q that does not sum to 1 loses as much on the way.
    tolerance = 4e-15 + abs(1 - math.fsum(q))
    for token, weight in enumerate(p):
        mass = sum(found.get((accepted, token), 0.0) for accepted in (True, False))
        assert mass == pytest.approx(weight / total, abs=tolerance)
    return sum(weight for (accepted, _), weight in found.items() if accepted)


TINY = 5e-324
"""The smallest denormal."""


@pytest.mark.parametrize(
    ("p", "q"),
    [
        ([0.5, 0.5], [0.5, 0.5]),
        ([1.0, 0.0], [1.0, TINY]),
        ([1.0, TINY], [1.0, TINY]),
        ([1.0, TINY], [1.0, 1e-310]),
        ([1.0, 1e-310], [1.0, TINY]),
        ([TINY, 1.0], [1.0, TINY]),
        ([1e-310, 1.0], [1.0, 0.0]),
        ([0.0, 1.0], [1.0, 0.0]),
        ([0.25, 0.75], [TINY, 1.0]),
        ([0.1 + 0.2, 0.7], [0.3, 0.7]),
        ([0.3, 0.7], [0.1 + 0.2, 0.7]),
        ([0.3, 0.7 - 1e-10], [0.3, 0.7]),
        ([0.0, 1 - 1e-10], [1e-10, 1 - 1e-10]),
        ([0.3, 0.7], [0.3, 0.7 - 1e-10]),
    ],
)
def test_float_rows_give_p_with_neither_warning_nor_nan(p: Any, q: Any) -> None:
    accepted = check_float(p, q)
    assert accepted == pytest.approx(sum(map(min, p, q)), abs=1e-9)


def test_a_ratio_that_rounding_lifts_above_one_is_a_sure_acceptance() -> None:
    p, q = np.array([0.1 + 0.2, 0.7]), np.array([0.3, 0.7])
    assert p[0] > q[0] and acceptance(p, q, 0) == 1
    # Written as a quotient it overflows instead.
    assert acceptance(np.array([1.0, 0.0]), np.array([TINY, 1.0]), 0) == 1


def test_laws_that_differ_by_rounding_alone_never_leave_a_residual_of_nothing() -> None:
    q = np.array([1e-10, 1 - 1e-10])
    p = np.array([0.0, 1 - 1e-10])
    assert residual(p, q) is p
    # Token 0 is impossible under p: a draft of it is refused, and p speaks.
    found = float_law(p, q)
    assert not any(token == 0 for _, token in found)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_float_rows_of_any_scale(data: Any) -> None:
    vocab = data.draw(st.integers(2, 6))
    rows = []
    for _ in range(2):
        exponents = data.draw(
            st.lists(st.floats(-700, 0), min_size=vocab, max_size=vocab)
        )
        weights = np.exp(np.array(exponents) - max(exponents))
        rows.append((weights / weights.sum()).tolist())
    check_float(*rows)


def test_fractions_and_floats_may_meet() -> None:
    p, q = exact([5, 3, 2]), np.array([0.4, 0.4, 0.2])
    left = residual(p, q)
    assert left.dtype == np.float64 and left.tolist() == [1, 0, 0]
    with pytest.raises(LawError, match="shape"):
        residual(p, q[:2])
    with pytest.raises(LawError, match="q = 0"):
        acceptance(p, exact([1, 0, 0]), 1)


@pytest.mark.parametrize(
    "row", [[math.nan] * 2, [math.nan, 1.0], [], [-0.5, 1.5], [0.4, 0.5], [math.inf, 0]]
)
def test_h18_a_broken_target_row_is_named_and_never_a_token(row: Any) -> None:
    tree = chain([0], [exact([1, 1])])
    with pytest.raises((LawError, ChanceError), match="row -1"):
        select(tree, lambda _: np.array(row), Sampler(0))


# ------------------------------------------------- the laws that a proposal carries


def test_a_node_keeps_its_law_and_protects_it() -> None:
    row = np.array([0.25, 0.75])
    node = ProposalNode(1, q=0.75, law=row)
    assert node.law.tolist() == [0.25, 0.75]
    with pytest.raises(ValueError, match="read-only"):
        node.law[0] = 1
    row[:] = row  # the drafter's own array stays its own
    assert ProposalNode(1, q=0.75) == node and hash(node) == hash(
        ProposalNode(1, q=0.75)
    )
    exact_node = ProposalNode(0, q=Fraction(1, 3), law=exact([1, 2]))
    assert exact_node.law.tolist() == fractions([1, 2])


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"q": None}, ProposalError),
        ({"q": 0.5}, ProposalError),
        ({"token_id": 2}, ProposalError),
        ({"token_id": 0}, ProposalError),
        ({"law": [0.25, 0.5]}, LawError),
        ({"law": [0.25, 0.75, math.nan]}, LawError),
        ({"law": [-0.25, 1.25]}, LawError),
        ({"law": []}, LawError),
        ({"law": [[0.25, 0.75]]}, LawError),
        ({"law": "law"}, LawError),
        ({"law": 0.75}, LawError),
        ({"law": {0: 0.25, 1: 0.75}}, LawError),
        ({"law": [True, False]}, LawError),
    ],
    ids=str,
)
def test_a_law_that_contradicts_its_node_is_refused(
    changes: dict[str, Any], error: Any
) -> None:
    good = {"token_id": 1, "q": 0.75, "law": [0.25, 0.75]}
    ProposalNode(**good)  # type: ignore[arg-type]
    with pytest.raises(error):
        ProposalNode(**{**good, **changes})


def test_the_order_of_the_draws_outlives_the_merge() -> None:
    """a, b, a from one source, b from another: a rule that tests drafts in turn must
    see them so, although the merged tree has one row for each token."""
    first, second = exact([1, 1, 0]), exact([0, 3, 1])
    one = proposal_of([], semantics="normalized_conditional", relation="iid")
    two = dataclasses.replace(one)
    nodes = [ProposalNode(t, q=first[t], source="one", law=first) for t in (0, 1, 0)]
    nodes.append(ProposalNode(1, 0, 2, q=first[1], source="one", law=first))
    one = dataclasses.replace(one, nodes=tuple(nodes))
    two = dataclasses.replace(
        two, nodes=(ProposalNode(1, q=second[1], source="two", law=second),)
    )
    for order in ("breadth", "depth"):
        tree = CandidateTree.from_proposals([one, two], 0, order)
        drawn = [
            (tree.token_ids[child], mark.source, mark.law.tolist())
            for child, mark in tree.draws(-1)
        ]
        assert drawn == [
            (0, "one", first.tolist()),
            (1, "one", first.tolist()),
            (0, "one", first.tolist()),
            (1, "two", second.tolist()),
        ]
        below = tree.draws(tree.draws(-1)[0][0])
        assert [tree.token_ids[child] for child, _ in below] == [1]
        assert tree.draws(below[0][0]) == ()
        tree.validate()
    for row in (-2, 9, 1.0, True, None):
        with pytest.raises(TreeError):
            tree.draws(row)


def test_validate_finds_a_mark_whose_q_is_not_its_laws() -> None:
    good = SourceMark("s", 0.75, law=np.array([0.25, 0.75]))
    CandidateTree((1,), (-1,), (1,), 0, ((good,),)).validate()
    for bad in (
        dataclasses.replace(good, q=0.5),
        dataclasses.replace(good, law=np.array([1.0])),
    ):
        with pytest.raises(TreeError, match="row 0 from 's'"):
            CandidateTree((1,), (-1,), (1,), 0, ((bad,),)).validate()


def test_what_the_rule_states_about_itself() -> None:
    rule = verifiers.get("single").contract
    assert rule.exact and rule.reads_q and not rule.merges_q and not rule.greedy_only
    with pytest.raises(SpecbookError):
        generate(
            TableTarget(LEFT, vocab_size=2),
            [0],
            "prompt_lookup",
            "single",
            max_new_tokens=1,
            temperature=1,
        )


def test_a_record_of_rounds_keeps_no_law_of_a_draft() -> None:
    draft = TableTarget(lambda prefix: [Fraction(1, 2)] * 2, vocab_size=2)
    target = TableTarget(lambda prefix: [Fraction(1, 3), Fraction(2, 3)], vocab_size=2)
    result = generate(
        target, [0], DraftModel(draft), "single", max_new_tokens=6, temperature=1.0
    )
    marks = [m for r in result.rounds for found in r.tree.sources for m in found]
    assert marks and all(m.law is None and m.q == Fraction(1, 2) for m in marks)
