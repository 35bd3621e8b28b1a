"""Draft models with a real cache: tiny ones, under both forwards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from specbook import verifiers
from specbook.contract import Selection, Verifier
from specbook.drafts.neural.draft_model import DraftModel
from specbook.drafts.neural.own_tree import OwnTree
from specbook.drafts.neural.staged import Staged
from specbook.drafts.prompt_lookup import PromptLookup
from specbook.engine import generate
from specbook.models import LeanTarget, TransformersTarget, tiny_llama
from specbook.models.tiny import tiny_model
from specbook.policy import SamplingPolicy
from specbook.tree import CandidateTree
from tests.core.helpers import must_fail, named

from .drafting import PLAIN, check_rounds
from .test_draft_model import keeps_the_draft, never_rolls_back

COOL = SamplingPolicy(0.7)

KINDS: dict[str, Any] = {
    "llama, lean": lambda: LeanTarget(tiny_llama(1)),
    "llama": lambda: TransformersTarget(tiny_llama(1)),
    "gpt2": lambda: TransformersTarget(tiny_model("gpt2", 1)),
    "qwen2, lean": lambda: LeanTarget(tiny_model("qwen2", 1)),
    "falcon, eager": lambda: TransformersTarget(
        tiny_model("falcon", 1, attn_implementation="eager")
    ),
}


def plain_of(name: str) -> Any:
    """Plain forwards of the same weights."""
    if name == "llama, lean":
        name = "llama"
    if name == "qwen2, lean":
        return TransformersTarget(tiny_model("qwen2", 1)).plain_logits
    return KINDS[name]().plain_logits


def reference(plain: Any, policy: SamplingPolicy) -> Any:
    return lambda prefix: policy.law_from_logits(plain(prefix)[-1])


@pytest.mark.parametrize("widths", [(1, 1, 1), (2, 1, 2)], ids=named)
@pytest.mark.parametrize("name", KINDS)
def test_laws_are_those_of_plain_forwards_whatever_was_published(
    name: str, widths: tuple[int, ...]
) -> None:
    model, plain = KINDS[name](), plain_of(name)
    for policy in (PLAIN, COOL):
        source = DraftModel(model, widths=widths)
        check_rounds(source, reference(plain, policy), policy=policy)


def test_laws_of_a_staged_model_are_those_of_plain_forwards() -> None:
    plain = plain_of("llama")
    for name in ("llama", "llama, lean"):
        source = Staged(DraftModel(KINDS[name](), widths=(1, 1, 1)), PromptLookup(1, 5))
        check_rounds(source, reference(plain, PLAIN), rounds=30)


def checked_cache(self: OwnTree, published: Any) -> None:
    """After every commit the cache holds no row too many, and lacks only what the
    model never computed."""
    session, tree = self._session, self.tree
    held = session.cached - (0 if tree is None else len(tree))
    commit(self, published)
    assert held <= session.cached < len(session.tokens)
    if tree is not None:
        assert session.cached >= len(session.tokens) - len(published)


commit = OwnTree.commit


@pytest.mark.parametrize("name", ["llama", "llama, lean"])
def test_the_cache_is_rolled_back_to_the_published_path(
    name: str, monkeypatch: Any
) -> None:
    monkeypatch.setattr(OwnTree, "commit", checked_cache)
    source = DraftModel(KINDS[name](), widths=(2, 1, 1))
    check_rounds(source, reference(plain_of(name), PLAIN), rounds=20)


@pytest.mark.parametrize("fault", [keeps_the_draft, never_rolls_back])
def test_a_wrong_roll_back_of_a_real_cache_is_found(
    fault: Any, monkeypatch: Any
) -> None:
    source, plain = DraftModel(KINDS["llama"](), widths=(1, 1, 1)), plain_of("llama")
    check_rounds(source, reference(plain, PLAIN))
    monkeypatch.setattr(OwnTree, "commit", fault)
    must_fail(check_rounds, source, reference(plain, PLAIN))


@pytest.mark.parametrize("draft", ["llama, lean", "llama", "gpt2"])
@pytest.mark.parametrize(
    "options",
    [
        {"widths": (1, 1, 1, 1)},
        {"widths": (3, 1, 1), "children": "top_k"},
        {"widths": (1,) * 6, "stop_below": 0.2},
    ],
    ids=["chain", "tree", "stops"],
)
def test_h20_greedy_equality(draft: str, options: dict[str, Any]) -> None:
    target = LeanTarget(tiny_llama(5))
    source = DraftModel(KINDS[draft](), **options)
    for prompt in ([7], [7, 8, 9, 7, 8]):
        plain = generate(target, prompt, None, max_new_tokens=40).tokens
        for kind in (source, Staged(source, PromptLookup(2, 5))):
            assert generate(target, prompt, kind, max_new_tokens=40).tokens == plain


def watched(name: str) -> tuple[Verifier, list[CandidateTree]]:
    """A rule of the registry, and the trees that it is given, with their laws."""
    rule, trees = verifiers.get(name), []

    def select(tree: CandidateTree, law: Any, chance: Any) -> Selection:
        trees.append(tree)
        return rule.select(tree, law, chance)

    return Verifier(rule.contract, select), trees


@pytest.mark.parametrize("wrap", [LeanTarget, TransformersTarget])
def test_a_draft_that_is_the_target_is_accepted_whole(wrap: Any) -> None:
    target = wrap(tiny_llama(5))
    source = DraftModel(wrap(tiny_llama(5)), widths=(1,) * 5)
    result = generate(target, [7, 8], source, max_new_tokens=36)
    assert [r.accepted for r in result.rounds] == [5] * 6

    # Sampled: p and q differ by rounding alone, so the rule accepts with a probability
    # that rounding alone keeps from 1.
    rule, trees = watched("single")
    drawn = generate(
        target, [7, 8], source, rule, max_new_tokens=36, temperature=0.7, seed=3
    )
    prefix = [7, 8]
    plain = TransformersTarget(tiny_llama(5)).plain_logits
    for done, tree in zip(drawn.rounds, trees, strict=True):
        for row in range(len(tree)):
            mark = tree.sources[row][0]
            path = tree.full_prefixes[row][:-1]
            p = SamplingPolicy(0.7).law_from_logits(plain([*prefix, *path])[-1])
            assert np.minimum(p, mark.law).sum() >= 1 - 1e-5
        prefix += done.committed


def test_the_draft_is_sampled_by_the_targets_policy() -> None:
    target = LeanTarget(tiny_llama(5))
    source = DraftModel(LeanTarget(tiny_llama(1)), widths=(1, 1, 1))
    rule, trees = watched("single")
    generate(
        target,
        [7, 8],
        source,
        rule,
        max_new_tokens=30,
        temperature=0.7,
        top_k=3,
        seed=1,
    )
    marks = [mark for tree in trees for claims in tree.sources for mark in claims]
    assert marks and all(np.count_nonzero(mark.law) == 3 for mark in marks)


def test_a_folder_is_loaded_once(tmp_path: Any, monkeypatch: Any) -> None:
    tiny_llama(1).save_pretrained(tmp_path / "draft")
    source = DraftModel(tmp_path / "draft", widths=(1, 1))
    assert isinstance(source.model, LeanTarget)
    assert "draft" in source.identity()
    from specbook.models import checkpoint

    monkeypatch.setattr(checkpoint, "read_model", None)
    target = LeanTarget(tiny_llama(5))
    for _ in range(2):
        assert generate(target, [7], source, max_new_tokens=6).tokens


@pytest.mark.parametrize("temperature", [0, 1e-6, 1e-3])
def test_h19_cold_drafts_and_cold_targets_agree_with_the_argmax(
    temperature: float,
) -> None:
    """Draft, target and rule divide by the same temperature, or by none."""
    target = LeanTarget(tiny_llama(5))
    source = DraftModel(LeanTarget(tiny_llama(1)), widths=(1, 1, 1))
    plain = generate(target, [7, 8], None, max_new_tokens=20).tokens
    with np.errstate(all="raise", under="ignore"):
        found = generate(
            target,
            [7, 8],
            source,
            "single",
            max_new_tokens=20,
            temperature=temperature,
            seed=2,
        )
    assert found.tokens == plain
