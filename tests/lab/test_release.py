"""The assertions of 0x0F: each is linked to a test that is there, and a deployment with
one fault is told so by the assertion that the fault breaks."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from specbook import assertions, release
from specbook.drafts.neural.draft_model import DraftModel
from specbook.drafts.neural.staged import Staged
from specbook.drafts.prompt_lookup import PromptLookup
from specbook.drafts.rest import Datastore, Rest
from specbook.drafts.suffix import Suffix
from specbook.drafts.switch import Switch
from specbook.errors import ArtifactError, SpecbookError
from specbook.lab import Disguised
from specbook.measure import setup
from specbook.measure.verify_time import Grid, measure_verify_time
from specbook.models import TransformersTarget, tiny_llama
from specbook.paths import data_path
from specbook.policy import SamplingPolicy
from specbook.topologies import chain, kary
from specbook.topologies.artifact import TreeArtifact, kernel_text
from specbook.training.artifact import load_manifest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "assertion", assertions.ASSERTIONS, ids=lambda found: found.text
)
def test_every_assertion_is_held_and_linked(assertion):
    file, _, name = assertion.test.partition("::")
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    functions = [n.name for n in tree.body if isinstance(n, ast.FunctionDef)]
    assert functions.count(name) == 1, assertion.test
    assert assertion.group in assertions.GROUPS
    assert all(map(callable, assertion.held_by))


def test_the_release_group_is_what_a_review_asks():
    texts = [a.text for a in assertions.ASSERTIONS if a.group == "release"]
    assert texts == list(release.RELEASE) and len(texts) == 10
    for found in assertions.ASSERTIONS:
        if found.group == "release":
            assert release.RELEASE[found.text] in found.held_by
    groups = [len(assertions.overview(g).rows) for g in assertions.GROUPS]
    assert groups == [9, 3, 10]
    with pytest.raises(SpecbookError, match="no group 'x'"):
        assertions.overview("x")


# ------------------------------------------------------------------------- a review


@pytest.fixture(scope="module")
def target():
    return TransformersTarget(tiny_llama())


@pytest.fixture(scope="module")
def planned(target):
    """A deployment of a small draft model with a plan and measured times."""
    shape = kary(2, 2)
    drafter = TransformersTarget(tiny_llama(seed=2))
    source = DraftModel(drafter, shape=shape)
    profile = measure_verify_time(target, Grid((1, 2), (4,), ("chain",), (), turns=1))
    about, machine = target.identity(), setup.machine()
    plan = TreeArtifact(
        target_checkpoint=about["checkpoint"],
        tokenizer=about["tokenizer"],
        proposal_artifact=source.artifact_identity(),
        verifier="sequoia",
        sampling_policy="temperature 0.7",
        temperatures=(0.7, 0.7),
        calibration_data="none",
        calibration_date="today",
        batch_regime="one request",
        hardware=machine["processor"],
        kernel=kernel_text(about["backend"], machine["threads"]),
        verify_curve=((1, 1.0),),
        draft_step=0.1,
        acceptance=((0.0, 0.5, 0.2),),
        method="by hand",
        parents=shape.parents,
        ranks=shape.token_ids,
    )
    policy = SamplingPolicy(0.7)
    frozen = release.freeze(target, source, "sequoia", policy, profile=profile)
    return release.Deployment(
        target, source, "sequoia", policy, frozen, plan, profile, machine
    )


def statuses(deployment):
    return {found.name: found.status for found in release.review(deployment)}


def test_an_honest_deployment_holds(planned):
    found = statuses(planned)
    nothing = {name for name, status in found.items() if status == release.NOTHING}
    assert nothing == {"protected material is kept out"}
    assert set(found.values()) == {release.HELD, release.NOTHING}


def refrozen(d, **changes):
    """`d` with `changes`, and a manifest that was frozen for it."""
    d = replace(d, **changes)
    frozen = release.freeze(
        d.target, d.source, d.verifier, d.policy, profile=d.profile, mode="heuristic"
    )
    return replace(d, manifest=frozen.replace(mode=d.manifest.mode))


def larger_vocabulary(d):
    return refrozen(d, source=DraftModel(TransformersTarget(tiny_llama(vocab_size=99))))


FAULTS = {
    "a draft model of another vocabulary": (
        larger_vocabulary,
        "tokenizers are equal",
    ),
    "a new checkpoint": (
        lambda d: refrozen(d, target=Disguised(d.target, checkpoint="new")),
        "checkpoint fits the target",
    ),
    "a rule for other semantics": (
        lambda d: refrozen(d, source=PromptLookup(), plan=None),
        "probability semantics accepted",
    ),
    "a rule for other draws": (
        lambda d: refrozen(d, verifier="specinfer"),
        "sampling relation accepted",
    ),
    "no room for the rows": (
        lambda d: replace(d, manifest=d.manifest.replace(temporary_state_bytes=64)),
        "nodes fit the temporary state",
    ),
    "a tree for a rule of chains": (
        lambda d: refrozen(d, verifier="single"),
        "every kind of proposal supported",
    ),
    "a heuristic": (
        lambda d: refrozen(d, verifier="typical"),
        "exact mode, no heuristic",
    ),
    "another machine": (
        lambda d: replace(d, machine={**d.machine, "threads": 99}),
        "profile is of what is deployed",
    ),
    "another batch": (
        lambda d: replace(d, batch_regime="8 requests in one forward"),
        "profile is of what is deployed",
    ),
    "no times": (
        lambda d: refrozen(d, profile=None),
        "profile is of what is deployed",
    ),
    "another dtype": (
        lambda d: refrozen(d, target=Disguised(d.target, dtype="float16")),
        "profile is of what is deployed",
    ),
    "another tree": (
        lambda d: refrozen(d, source=DraftModel(d.source.model, shape=chain(2))),
        "hash binds tree, profile, policy",
    ),
    "another temperature": (
        lambda d: replace(d, policy=SamplingPolicy(0.5)),
        "hash binds tree, profile, policy",
    ),
    "another profile": (
        lambda d: replace(d, manifest=d.manifest.replace(hardware_profile="x")),
        "hash binds tree, profile, policy",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_told_by_its_own_assertion(planned, fault):
    plant, name = FAULTS[fault]
    assert statuses(plant(planned))[name] == release.REFUSED


def test_what_is_shipped_is_whole_and_for_one_target():
    found = release.shipped()
    kinds = {name.partition(" ")[0] for name in found}
    assert kinds == {"heads", "adapters", "skip", "draft"}
    about = load_manifest(data_path("heads", "hydra"))["target"]
    for name, ask in found.items():
        ask(about)
        with pytest.raises(ArtifactError, match="tokenizer"):
            ask({**about, "tokenizer": "another"})
        if name.startswith("draft "):
            ask({**about, "checkpoint": "another"})
            continue
        with pytest.raises(ArtifactError, match="checkpoint"):
            ask({**about, "checkpoint": "another"})


TEXT = [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], [5, 4, 3, 2, 1]]


@pytest.mark.parametrize(
    ("protected", "exclusions", "status"),
    [
        ({"p": [9, 9, 9, 8, 8, 8, 7, 7, 7]}, "p", release.HELD),
        ({"p": TEXT[0][1:11]}, "p", release.REFUSED),
        ({}, "p", release.REFUSED),
        ({"p": [9, 9, 9, 8, 8, 8, 7, 7, 7]}, None, release.REFUSED),
    ],
    ids=["clean", "leaked", "unnamed", "undeclared"],
)
def test_a_corpus_is_asked_for_protected_material(
    target, protected, exclusions, status
):
    about = {"tokenizer": target.identity()["tokenizer"]}
    about |= {} if exclusions is None else {"exclusions": exclusions}
    source, policy = Rest(Datastore.build(TEXT, **about), 4, 8), SamplingPolicy(0.0)
    frozen = release.freeze(target, source, "membership", policy)
    made = release.Deployment(
        target, source, "membership", policy, frozen, protected=protected
    )
    found = statuses(made)
    assert found.pop("protected material is kept out") == status
    assert found["tokenizers are equal"] == release.HELD
    assert release.REFUSED not in found.values()


def deployed(target, source, verifier, **more):
    policy = SamplingPolicy(0.0)
    frozen = release.freeze(target, source, verifier, policy, mode="heuristic")
    return release.Deployment(target, source, verifier, policy, frozen, **more)


def test_a_corpus_says_whose_ids_it_holds(target):
    """An undeclared tokenizer is equal to none, and a foreign one to another."""
    for about in ({}, {"tokenizer": "sha256:another"}):
        source = Rest(Datastore.build(TEXT, **about), 4, 8)
        found = statuses(deployed(target, source, "membership"))
        assert found["tokenizers are equal"] == release.REFUSED


def test_what_a_source_is_made_of_is_asked_too(target):
    leaky = Rest(Datastore.build(TEXT, exclusions="p"), 4, 8)
    other = DraftModel(TransformersTarget(tiny_llama(vocab_size=99)))
    ask = {"protected": {"p": TEXT[0][1:11]}}
    for source in (Switch(leaky), [PromptLookup(), leaky], [Switch(leaky)]):
        found = statuses(deployed(target, source, "membership", **ask))
        assert found["protected material is kept out"] == release.REFUSED
        assert found["tokenizers are equal"] == release.REFUSED
    for source, rule in ((Switch(other), "sequoia"), (Staged(other), "membership")):
        found = statuses(deployed(target, source, rule))
        assert found["tokenizers are equal"] == release.REFUSED
        assert found["checkpoint fits the target"] == release.REFUSED


def test_several_sources_are_asked_together_and_none_is_asked_nothing(target):
    both = [PromptLookup(), Suffix()]
    found = statuses(deployed(target, both, "membership"))
    assert release.REFUSED not in found.values()
    found = statuses(deployed(target, None, "membership"))
    assert release.REFUSED not in found.values()
    assert found["sampling relation accepted"] == release.NOTHING
    # Each alone may meet a rule that reads q; of the two that are merged it knows one.
    drawn = [DraftModel(TransformersTarget(tiny_llama(seed=n))) for n in (2, 3)]
    name = "every kind of proposal supported"
    assert statuses(deployed(target, drawn[0], "single"))[name] == release.HELD
    assert statuses(deployed(target, drawn, "single"))[name] == release.REFUSED


def test_times_are_asked_for_without_a_plan_and_a_plan_without_a_checkpoint(planned):
    """What is given is looked at: neither waits for the other."""
    bare = replace(planned, plan=None, machine={**planned.machine, "threads": 99})
    assert statuses(bare)["profile is of what is deployed"] == release.REFUSED
    copied = replace(planned, source=PromptLookup())
    assert statuses(copied)["checkpoint fits the target"] == release.REFUSED


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda d: release.review(None), "not a Deployment"),
        (lambda d: replace(d, plan="tree"), "plan must be a TreeArtifact"),
        (lambda d: replace(d, manifest=None), "manifest must be a RoundManifest"),
        (lambda d: replace(d, policy=0.7), "policy must be a SamplingPolicy"),
        (lambda d: replace(d, source="prompt_lookup"), "no draft source"),
        (lambda d: replace(d, source=[PromptLookup]), "no draft source"),
        (lambda d: replace(d, source=3), "no draft source"),
        (lambda d: replace(d, target=None), "target has no identity"),
    ],
    ids=[
        *("review", "plan", "manifest", "policy"),
        *("name", "class", "number", "target"),
    ],
)
def test_bad_input_is_refused(planned, wrong, message):
    with pytest.raises(SpecbookError, match=message):
        wrong(planned)
