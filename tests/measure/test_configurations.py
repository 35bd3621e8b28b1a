"""Configurations come from the registry and from contracts, and from nowhere else."""

from __future__ import annotations

from fractions import Fraction as F
from typing import Any

import pytest

from specbook import registry, verifiers
from specbook.contract import bind, contract_of, negotiate
from specbook.drafts.neural.planned import CHILDREN, PlannedSource
from specbook.errors import ContractError, SpecbookError
from specbook.measure import configurations
from specbook.measure.configurations import Available, available, drawings, shapes
from specbook.measure.frontier_data import OWN
from specbook.models import TableTarget

COPYING = ("prompt_lookup", "suffix")


@pytest.fixture
def target() -> TableTarget:
    return TableTarget(lambda told: [F(1, 2), F(1, 2)], vocab_size=2)


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line each in the registries."""
    monkeypatch.setitem(registry.DRAFTS, "echo", "tests.measure.echo:Echo")  # type: ignore[arg-type]
    monkeypatch.setitem(  # type: ignore[arg-type]
        registry.VERIFIERS, "membership_too", "tests.measure.echo:RULE"
    )


def test_what_is_added_by_a_line_appears_by_itself(target: Any, added: None) -> None:
    found, _ = available(target, names=["suffix", "echo"])
    assert [(one.name, one.family) for one in found] == [
        ("suffix", "copying"),
        ("echo", "copying"),
    ]
    for one in found:
        (drawing,) = drawings(one, 0.7)
        assert {"membership", "membership_too"} <= set(drawing.rules)
    assert configurations.configuration(drawing, "membership_too").source == "echo"


def test_nothing_of_it_is_there_without_the_line(target: Any) -> None:
    with pytest.raises(SpecbookError, match="echo"):
        available(target, names=["echo"])
    (one,), _ = available(target, names=["suffix"])
    assert "membership_too" not in drawings(one, 0.7)[0].rules


def test_who_takes_no_part_is_named_with_the_reason(target: Any) -> None:
    found, skipped = available(target)
    assert tuple(one.name for one in found) == COPYING
    reasons = {one.source: one.why for one in skipped}
    assert reasons.keys() | set(COPYING) == set(registry.DRAFTS)
    assert "datastore" in reasons["rest"] and "shipped" in reasons["markov"]
    # Artifacts of another target, and a target without states to read.
    assert "vocabulary" in reasons["draft_model"]
    assert "hidden states" in reasons["hydra"]


def planned(levels: int = 4) -> Available:
    from specbook.drafts.neural.draft_model import CONTRACT, DraftModel

    model = TableTarget(lambda told: [F(1, 2), F(1, 2)], vocab_size=2)

    def make(**plan: Any) -> Any:
        return DraftModel(model, **plan)

    return Available("draft_model", "model", make, CONTRACT, levels)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_every_rule_of_a_drawing_may_meet_it_and_no_other(temperature: float) -> None:
    for drawing in drawings(planned(), temperature):
        for name in verifiers.names():
            rule = contract_of(name)
            fits = temperature == 0 or not rule.greedy_only
            try:
                negotiate([drawing.contract], name, exact=False)
            except ContractError:
                fits = False
            assert (name in drawing.rules) == fits, (drawing.key, name)
        exact = [contract_of(name).exact for name in drawing.rules]
        assert exact == sorted(exact, reverse=True)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_what_is_made_binds_to_its_rule(temperature: float) -> None:
    """The source of every configuration proposes what its contract was asked for."""
    source = planned()
    target = TableTarget(lambda told: [F(1, 3), F(2, 3)], vocab_size=2)
    from specbook.chance import Sampler
    from specbook.policy import SamplingPolicy

    for drawing in drawings(source, temperature):
        for name, shape in shapes(drawing).items():
            one = configurations.configuration(drawing, drawing.rules[0], name, shape)
            made = configurations.source_of(one, [source])
            assert made.contract == drawing.contract
            session = made.start([0], vocab_size=2, policy=SamplingPolicy(temperature))
            proposal = session.propose(
                max_depth=8, max_nodes=64, chance=Sampler(0), manifest_hash="m"
            )
            for rule in drawing.rules:
                bind(proposal, rule, exact=contract_of(rule).exact)
    assert target.vocab_size == 2


def test_at_temperature_0_only_ranked_siblings_are_siblings() -> None:
    keys = {(one.children, one.chain) for one in drawings(planned(), 0.0)}
    assert keys == {
        ("without_replacement", True),
        ("top_k", True),
        ("top_k", False),
    }
    warm = {(one.children, one.chain) for one in drawings(planned(), 0.7)}
    assert {children for children, _ in warm} == set(CHILDREN) and keys <= warm


def test_shapes_are_as_deep_and_as_wide_as_they_may_be() -> None:
    for one in drawings(planned(2), 0.7):
        for name, shape in shapes(one).items():
            widths = [len(shape.children(row)) for row in range(-1, len(shape))]
            assert shape.max_depth <= 2 and max(widths) <= configurations.SLOTS, name
            assert (max(widths) == 1) == one.chain
            if one.children == "hub":
                assert set(widths) <= {0, 2}
    (own,) = drawings(Available("x", "self", object, planned().contract), 0.7)
    assert shapes(own) == {} and own.children == ""


def test_a_configuration_comes_back_as_its_source(target: Any) -> None:
    (lookup,), _ = available(target, names=["prompt_lookup"])
    (drawing,) = drawings(lookup, 0.0)
    one = configurations.configuration(drawing, "greedy", most=4)
    assert (one.topology, one.most) == (OWN, 4) and "at most 4" in one.name
    assert configurations.source_of(one, [lookup]) is lookup.make()
    with pytest.raises(SpecbookError, match="available"):
        configurations.source_of(one, [])
    assert issubclass(type(planned().make(widths=(1,))), PlannedSource)
