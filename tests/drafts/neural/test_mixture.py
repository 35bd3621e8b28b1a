"""A draft model and a lookup as one drafter: the stated mixture, and nothing else."""

from __future__ import annotations

import dataclasses
from fractions import Fraction as F
from typing import Any

import numpy as np
import pytest

from specbook import drafts
from specbook.chance import Sampler, law
from specbook.drafts import samplers
from specbook.drafts.neural.draft_model import DraftModel
from specbook.drafts.neural.mixture import Mixture
from specbook.drafts.prompt_lookup import PromptLookup
from specbook.drafts.rest import Datastore, Rest
from specbook.engine import generate
from specbook.errors import ContractError, SpecbookError
from specbook.models.table import TableTarget
from specbook.oracles import position_law
from specbook.policy import SamplingPolicy
from tests.core.helpers import must_fail
from tests.core.helpers.laws import table_of
from tests.core.helpers.sources import FixedSource, proposal_of
from tests.verifiers.helpers import check_rounds, constant, exact

TARGET = table_of([[1, 2], [3, 1], [1, 1]], salt=2)
DRAFT = TableTarget(table_of([[2, 1], [1, 3]], salt=5), vocab_size=2)
CORPUS = Rest(Datastore.build([[0, 1, 1, 0], [1, 0, 0, 1, 0]]), max_suffix=2)


def mixed(widths: Any = (1, 1), children: str = "iid", **options: Any) -> Mixture:
    model = DraftModel(DRAFT, widths=widths, children=children)
    return Mixture(model, **{"lookup": CORPUS, "weight": F(2, 3), **options})


def nodes(source: Any, prefix: Any, chance: Any, **options: Any) -> Any:
    session = source.start(prefix, policy=SamplingPolicy(1), **options)
    return session.propose(max_depth=4, max_nodes=9, chance=chance).nodes


def test_every_law_is_the_stated_mixture() -> None:
    """On every branch of a tree: two thirds of the draft model's law, and a third on
    what the corpus says after the path."""

    def program(chance: Any) -> tuple[Any, ...]:
        return nodes(mixed((2, 1)), [0], chance)

    seen = 0
    for made in law(program):
        paths: list[tuple[int, ...]] = []
        for node in made:
            above = () if node.parent < 0 else paths[node.parent]
            paths.append((*above, node.token_id))
            wanted = F(2, 3) * np.array(DRAFT.lookup((0, *above)), dtype=object)
            said = CORPUS.start([0, *above]).propose(max_depth=1, max_nodes=1)
            wanted[said.nodes[0].token_id] += F(1, 3)
            assert node.law.tolist() == wanted.tolist()
            assert node.q == wanted[node.token_id]
            seen += 1
    assert seen > 20


def test_the_tokens_are_drawn_from_the_law_that_they_carry() -> None:
    found = law(lambda chance: nodes(mixed((1,)), [0], chance)[0].token_id)
    (node,) = nodes(mixed((1,)), [0], Sampler(0))
    assert [found[0], found[1]] == node.law.tolist()


def test_where_the_lookup_finds_nothing_the_draft_model_is_alone() -> None:
    (node,) = nodes(mixed((1,), lookup=PromptLookup()), [0], Sampler(0))
    assert node.law.tolist() == DRAFT.lookup((0,)).tolist()


RULES = [
    ("single", (1, 1), "iid"),
    ("block", (1, 1), "iid"),
    ("kseq", (2, 1), "iid"),
    ("specinfer", (2, 1), "iid"),
    ("traversal", (2, 1), "iid"),
    ("traversal", (2, 1), "without_replacement"),
    ("sequoia", (2, 1), "without_replacement"),
    ("greedy_draft", (2, 1), "greedy_plus_one"),
    ("spechub", (2, 2), "hub"),
    ("membership", (2, 1), "iid"),
]


@pytest.mark.parametrize(("rule", "widths", "children"), RULES)
def test_it_meets_every_rule_for_one_q_and_the_output_has_the_plain_law(
    rule: str, widths: Any, children: str
) -> None:
    source = mixed(widths, children)
    for prompt in ((0,), (1, 0)):
        rounds = check_rounds(TARGET, source, rule, 3, 2, prompt)
        # A hub pair holds both tokens, so that nothing is ever refused.
        assert rounds > 1 or rule == "spechub"


class Attached(Mixture):
    """The planted fault: drawn from the mixture, scored with the draft model's q."""

    def start(self, *args: Any, **options: Any) -> Any:
        session = super().start(*args, **options)
        propose = session.propose

        def scored(**limits: Any) -> Any:
            made = propose(**limits)
            paths: list[tuple[int, ...]] = []
            found = []
            for node in made.nodes:
                above = () if node.parent < 0 else paths[node.parent]
                paths.append((*above, node.token_id))
                row = np.array(DRAFT.lookup((*args[0], *above)), dtype=object)
                found.append(dataclasses.replace(node, law=row, q=row[node.token_id]))
            return dataclasses.replace(made, nodes=tuple(found))

        session.propose = scored
        return session


def test_the_same_draws_with_the_draft_models_q_bend_the_law() -> None:
    model = DraftModel(DRAFT, widths=(1,), children="iid")
    for kind, check in ((Mixture, lambda f, *a: f(*a)), (Attached, must_fail)):
        source = kind(model, CORPUS, F(2, 3))
        check(check_rounds, TARGET, source, "single", 2, 2)


def test_the_mixture_accepts_no_less_than_a_source_that_was_picked() -> None:
    """1 - TV(p, q) is concave in q; strictly more where the two err apart."""
    p, q, sure = exact([5, 3, 2]), exact([1, 1, 8]), exact([0, 1, 0])
    for weight in (F(1, 4), F(1, 2), F(3, 4)):
        together = samplers.mixture([q, sure], [weight, 1 - weight])
        picked = sum(
            share * position_law("single", p, row, 1).acceptance
            for share, row in ((weight, q), (1 - weight, sure))
        )
        assert position_law("single", p, together, 1).acceptance > picked


def test_greedy_decoding_is_what_the_target_says() -> None:
    target = TableTarget(TARGET, vocab_size=2)
    plain = generate(target, [0, 1], None, "greedy", max_new_tokens=12)
    for rule in ("single", "membership", "greedy"):
        for seed in range(4):
            made = generate(target, [0, 1], mixed(), rule, max_new_tokens=12, seed=seed)
            assert made.tokens == plain.tokens


def test_the_published_tokens_are_followed() -> None:
    source = mixed((1,))
    session = source.start([0])
    session.propose(max_depth=1, max_nodes=1, chance=Sampler(0))
    session.commit([1, 1])
    fresh = source.start([0, 1, 1])
    there, here = (
        one.propose(max_depth=1, max_nodes=1, chance=Sampler(3)).nodes[0]
        for one in (session, fresh)
    )
    assert there == here and there.law.tolist() == here.law.tolist()


def test_a_law_of_floats_is_mixed_too() -> None:
    floats = TableTarget(lambda prefix: [0.25, 0.75], vocab_size=2)
    source = Mixture(DraftModel(floats, widths=(1,)), CORPUS, 0.5)
    (node,) = nodes(source, [0], Sampler(0))
    said = CORPUS.start([0]).propose(max_depth=1, max_nodes=1).nodes[0].token_id
    assert node.law.tolist() == [0.125 + 0.5 * (said == 0), 0.375 + 0.5 * (said == 1)]


def drawing(prefix: Any, chance: Any) -> Any:
    return [[chance.draw([F(1, 2), F(1, 2)])]]


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"weight": 0}, SpecbookError, "between 0 and 1, got 0"),
        ({"weight": 1.0}, SpecbookError, "between 0 and 1"),
        ({"weight": 1.5}, SpecbookError, "weight must be at most 1"),
        ({"weight": float("nan")}, SpecbookError, "weight must be finite"),
        ({"weight": True}, SpecbookError, "weight must be a real number"),
        ({"weight": None}, SpecbookError, "weight must be a real number"),
        ({"lookup": "nobody"}, SpecbookError, "nobody"),
        ({"lookup": Rest}, SpecbookError, "no draft source"),
        ({"lookup": None}, SpecbookError, "no draft source"),
        ({"lookup": DraftModel(DRAFT)}, ContractError, "none of them is certain"),
        ({"children": "top_k"}, ContractError, "ranked, not drawn"),
    ],
)
def test_bad_options_are_refused_by_name(options: Any, error: Any, told: str) -> None:
    with pytest.raises(error, match=told):
        mixed(**options)


@pytest.mark.parametrize("name", ["draft_model", "hydra", "medusa"])
def test_a_drawn_lookup_is_refused_before_a_model_is_loaded(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafter = DraftModel(DRAFT)
    source = drafts.get(name)
    monkeypatch.setattr(source, "__init__", lambda *_: pytest.fail("it was made"))
    with pytest.raises(ContractError, match="none of them is certain"):
        Mixture(drafter, name)


class Answers:
    """A lookup whose session answers with anything."""

    def __init__(self, answer: Any) -> None:
        self.contract = dataclasses.replace(PromptLookup.contract, name="liar")
        self.answer = answer

    def identity(self) -> str:
        return "liar"

    def start(self, prefix: Any, **about: Any) -> Answers:
        return self

    def propose(self, **limits: Any) -> Any:
        return self.answer


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (None, "liar returned no Proposal"),
        (5, "liar returned no Proposal"),
        (proposal_of([[7]]), "token that liar names must be at most 1, got 7"),
    ],
)
def test_a_lookup_that_answers_nonsense_is_named(answer: Any, told: str) -> None:
    with pytest.raises(ContractError, match=told):
        nodes(mixed((1,), lookup=Answers(answer)), [0], Sampler(0), vocab_size=2)


@pytest.mark.parametrize("weight", [np.float32(0.5), 0.5, F(1, 2)])
def test_a_weight_of_any_kind_mixes_fractions_exactly(weight: Any) -> None:
    first, *_ = nodes(mixed((1,), weight=weight), [0, 1, 0], Sampler(0), vocab_size=2)
    assert all(type(x) is F for x in first.law) and sum(first.law) == 1


def test_a_lookup_that_draws_is_found_out() -> None:
    source = mixed((1,), lookup=FixedSource(drawing))
    with pytest.raises(ContractError, match="asked for a random event"):
        nodes(source, [0], Sampler(0), vocab_size=2)


def test_what_it_says_of_itself_and_of_the_target() -> None:
    source = mixed()
    for part in ("weight=2/3", "draft_model widths=(1, 1)", "rest max_suffix=2"):
        assert part in source.identity()
    assert source.contract.name == "mixture" == Mixture.contract.name
    assert mixed((2, 1)).contract.topology != source.contract.topology
    with pytest.raises(ContractError, match="vocabulary"):
        source.check_target(TableTarget(constant([1, 1, 1]), vocab_size=3))
    with pytest.raises(SpecbookError, match="2 tokens, vocab_size is 3"):
        source.start([0], vocab_size=3)
    with pytest.raises(SpecbookError, match="not a SamplingPolicy"):
        source.start([0], policy="hot")  # type: ignore[arg-type]
