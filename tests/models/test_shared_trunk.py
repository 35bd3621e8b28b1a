"""Shallow rows computed ahead and reused: equal to a full forward, counted, guarded."""

from __future__ import annotations

import contextlib
import dataclasses

import numpy as np
import pytest
import torch

from specbook.errors import TargetError
from specbook.models import TransformersTarget, lean_trunk
from specbook.models import lean as lean_module
from specbook.models import trunk as trunk_module
from specbook.models.layered import FAMILIES
from specbook.models.lean import LeanTarget
from specbook.models.lean_trunk import LeanTrunkTarget
from specbook.models.protocol import CommitError, ContextLimitError
from specbook.models.selftest import SelfTestError
from specbook.models.shared_trunk import SharedTrunkTarget, sharing
from specbook.models.state import Ownership, StateError, Tag, TaggedRows
from specbook.models.table import TableTarget
from specbook.models.target import UnsupportedTargetError
from specbook.models.tiny import families, tiny_model
from specbook.models.trunk import TrunkSession
from specbook.tree import CandidateTree

from .drive import check_rounds, check_rows, random_path, random_tree

SUPPORTED = ["llama", "qwen2", "qwen3", "gpt2"]
LEAN = "lean"
FORMS = [*SUPPORTED, LEAN]
"""The generic form of each family, and the lean form of Llama."""
BOTH = ["llama", LEAN]
LAYERS, BOUNDARY = 4, 2
PROMPT = [1, 2, 3, 4, 5]
EMPTY = CandidateTree.from_rows([], [], len(PROMPT))


def model_of(family="llama", **changes):
    family = "llama" if family == LEAN else family
    name = "n_layer" if family == "gpt2" else "num_hidden_layers"
    return tiny_model(family, seed=1, **{name: LAYERS}, **changes)


def plain_of(form="llama", **changes):
    """The target that shares nothing. Of the lean one the model is kept beside it, as
    the generic one has it, to compare with."""
    model = model_of(form, **changes)
    generic = TransformersTarget(model)
    if form != LEAN:
        return generic
    plain = LeanTarget(model)
    plain.model, plain.plain_logits = model, generic.plain_logits
    return plain


def target_of(form="llama", boundary=BOUNDARY, **changes):
    target = sharing(plain_of(form, **changes), boundary)
    assert type(target) is (LeanTrunkTarget if form == LEAN else SharedTrunkTarget)
    return target


def path_of(tokens, prefix_len=5):
    return CandidateTree.from_rows(tokens, range(-1, len(tokens) - 1), prefix_len)


def draft_chain(session, tokens):
    """As a drafter does it: the pending tokens, then one token after the other."""
    length = len(session.tokens)
    for count in range(len(tokens) + 1):
        session.draft(path_of(tokens[:count], length))


@contextlib.contextmanager
def counted(target):
    """Rows that each layer was run on within it, its attention and its network."""
    if isinstance(target, LeanTrunkTarget):
        yield from lean_counted(target)
        return
    layers = target.layered._layers
    rows = [0] * len(layers)

    def count(index):
        def hook(module, args, kwargs, output):
            rows[index] += output.shape[1]

        return hook

    hooks = [
        layer.register_forward_hook(count(index), with_kwargs=True)
        for index, layer in enumerate(layers)
    ]
    try:
        yield rows
    finally:
        for hook in hooks:
            hook.remove()


def lean_counted(target):
    """As `counted`, by the matrices that read the rows: in float32 none is padded."""
    layers = target._weights.layers
    places = {}
    for index, ((_, qkv, _), (_, gate_up, _)) in enumerate(layers):
        places[id(qkv)], places[id(gate_up)] = index, index
    seen = [[] for _ in layers]
    rows = [0] * len(layers)
    call = lean_module._Linear.__call__

    def counts(self, x):
        if id(self) in places:
            found = seen[places[id(self)]]
            found.append(len(x))
            if len(found) % 2 == 0:
                assert found[-1] == found[-2]
                rows[places[id(self)]] += len(x)
        return call(self, x)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lean_module._Linear, "__call__", counts)
        yield rows
    assert all(len(found) % 2 == 0 for found in seen)


def keys_values(state):
    """Keys and values of all layers of a trunk's state, or of a plain cache."""
    caches = [state.shallow, state.deep] if hasattr(state, "deep") else [state]
    if hasattr(caches[0], "buffer"):
        return [layer[:, : len(one)] for one in caches for layer in one.buffer]
    return [
        tensor
        for cache in caches
        for layer in cache._cache.layers
        if layer.is_initialized
        for tensor in (layer.keys, layer.values)
    ]


def assert_near(found, wanted):
    """Within 1e-5 of the largest number of the tensor."""
    scale = max(1.0, float(wanted.abs().max()))
    assert found.shape == wanted.shape
    assert float((found - wanted).abs().max()) <= 1e-5 * scale


# ------------------------------------------------------------ equal to a full forward


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", SUPPORTED)
def test_rows_and_commits_equal_plain_forwards(family, attention):
    # float64: logits of these models are large, and rounding depends on the threads.
    model = model_of(family, attn_implementation=attention).double()
    target = SharedTrunkTarget(model, BOUNDARY)
    check_rounds(target, target.plain_logits, seed=2)


def test_lean_rows_and_commits_equal_plain_forwards():
    target = target_of(LEAN)
    # float32: the logits are as large as 30, and a fault is off by whole units.
    check_rounds(target, target.plain_logits, seed=2, tolerance=1e-3)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("form", FORMS)
def test_blocks_of_one_shape_are_equal_bit_for_bit(form, dtype):
    """Nothing drafted, or the whole block drafted in one call: the same products."""
    model = model_of(form).to(getattr(torch, dtype))
    plain = (LeanTarget if form == LEAN else TransformersTarget)(model)
    trunk = sharing(plain, BOUNDARY)
    tree = CandidateTree.from_rows([9, 8, 7, 6], [-1, -1, 0, 2], len(PROMPT))
    for drafted in (False, True):
        session, wanted = trunk.start(PROMPT), plain.start(PROMPT)
        if drafted:
            session.draft(tree)
        rows, full = session.verify(tree), wanted.verify(tree)
        for row in range(-1, len(tree)):
            assert np.array_equal(rows.logits(row), full.logits(row))
        for found, other in zip(
            keys_values(session._state), keys_values(wanted._state), strict=True
        ):
            assert torch.equal(found, other)


def test_a_long_prompt_is_read_in_the_same_blocks(monkeypatch):
    """Of the lean form, with blocks of a few rows."""
    monkeypatch.setattr(lean_module, "PREFILL", 4)
    monkeypatch.setattr(lean_trunk, "PREFILL", 4)
    plain = plain_of(LEAN)
    trunk = sharing(plain, BOUNDARY)
    prompt = list(range(13))
    session = trunk.start(prompt)
    draft_chain(session, [9, 8])
    tree = path_of([9, 8], len(prompt))
    rows, wanted = session.verify(tree), plain.start(prompt).verify(tree)
    for row in range(-1, 2):
        assert_near(torch.tensor(rows.logits(row)), torch.tensor(wanted.logits(row)))
    check_rows(rows, tree, prompt, plain.plain_logits, 1e-3)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("boundary", [1, LAYERS - 1])
def test_a_chain_drafted_token_by_token_is_a_full_forward_tensor_by_tensor(
    form, boundary
):
    plain = plain_of(form)
    target = sharing(plain, boundary)
    chain = [9, 8, 7, 6]
    session = target.start(PROMPT)
    draft_chain(session, chain)
    features = session._state.drafted.tensor
    rows = session.verify(path_of(chain))
    text = torch.tensor([[*PROMPT, *chain]])
    with torch.inference_mode():
        full = target.model(text, output_hidden_states=True, use_cache=True)
    assert_near(features, full.hidden_states[boundary][0])
    # Keys and values, which the lean form has in an order of its own, of one block.
    whole = plain.start([*PROMPT, *chain, 0])
    whole.verify(CandidateTree.from_rows([], [], len(PROMPT) + len(chain) + 1))
    whole._state.keep(len(PROMPT) + len(chain), [])
    wanted = keys_values(whole._state)
    for found, other in zip(keys_values(session._state), wanted, strict=True):
        assert_near(found, other)
    for row in range(-1, len(chain)):
        place = len(PROMPT) + row
        assert_near(torch.tensor(rows.logits(row)), full.logits[0, place])


@pytest.mark.parametrize("seed", range(7))
def test_whatever_was_drafted_the_verified_tree_is_right(seed):
    """Random trees drafted, and others verified that share some rows with them."""
    target = target_of(FORMS[seed % 5])
    random = np.random.default_rng(seed)
    session, tokens = target.start(PROMPT), list(PROMPT)
    reused = 0
    for number in range(4):
        # Few tokens, so that rows meet; first rows of one tree are drafted before it.
        whole = random_tree(random, 3, len(tokens), 10)
        half = len(whole) // 2
        session.draft(
            CandidateTree.from_rows(
                whole.token_ids[:half], whole.parents[:half], len(tokens)
            )
        )
        session.draft(whole)
        if number % 2:
            tree = random_tree(random, 3, len(tokens), 10)
        else:
            tree = whole
        with counted(target) as rows:
            verified = session.verify(tree)
        reused += rows[-1] - rows[0]
        check_rows(verified, tree, tokens, target.plain_logits, 1e-3)
        path = random_path(random, tree)
        session.commit(path, int(random.integers(3)))
        tokens += [tree.token_ids[row] for row in path] + session.tokens[-1:]
        assert session.tokens == tokens and session.cached == len(tokens) - 1
    assert reused > 12


# ------------------------------------------------------------------------ counted


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("accepted", [0, 2, 3])
def test_no_layer_runs_twice_for_a_row(form, accepted):
    target = target_of(form)
    session = target.start(PROMPT)
    for pending in (len(PROMPT), 1):
        chain = [9, 8, 7]
        with counted(target) as rows:
            draft_chain(session, chain)
        drafted = pending + len(chain)
        assert rows == [drafted] * BOUNDARY + [0] * (LAYERS - BOUNDARY)
        with counted(target) as rows:
            session.verify(path_of(chain, len(session.tokens)))
        assert rows == [0] * BOUNDARY + [drafted] * (LAYERS - BOUNDARY)
        session.commit(range(accepted), 3)


@pytest.mark.parametrize("form", BOTH)
def test_a_row_that_was_not_drafted_is_computed_and_one_too_many_is_dropped(form):
    target = target_of(form)
    session = target.start(PROMPT)
    draft_chain(session, [9, 8, 7])
    with counted(target) as rows:
        session.verify(path_of([9, 8]))
    assert rows == [0, 0, 7, 7]
    assert len(session._state.shallow) == session.cached == 7
    session = target.start(PROMPT)
    draft_chain(session, [9])
    with counted(target) as rows:
        session.verify(path_of([9, 8]))
    assert rows == [1, 1, 7, 7]


@pytest.mark.parametrize("form", BOTH)
def test_features_of_committed_rows_are_given_in_the_order_of_their_tokens(form):
    target = target_of(form)
    session = target.start(PROMPT)
    with pytest.raises(CommitError):
        session.committed_shallow()
    tree = CandidateTree.from_rows([9, 8, 7, 6], [-1, -1, 1, 0], len(PROMPT))
    session.verify(tree)
    session.commit([1, 2], 0)
    kept = session.committed_shallow()
    assert [tag.key.token_id for tag in kept.tags] == [*PROMPT, 8, 7]
    with torch.inference_mode():
        full = target.model(torch.tensor([[*PROMPT, 8, 7]]), output_hidden_states=True)
    assert_near(kept.tensor, full.hidden_states[BOUNDARY][0])
    session.extend([5])
    assert len(session.committed_shallow()) == 0


# -------------------------------------------------------------- sessions, in any order


@pytest.mark.parametrize("form", BOTH)
def test_a_draft_may_be_given_up_anywhere(form):
    target = target_of(form)

    def rows_after(drive):
        session = target.start(PROMPT)
        drive(session)
        tree = path_of([9, 8], len(session.tokens))
        check_rows(
            session.verify(tree), tree, session.tokens, target.plain_logits, 1e-3
        )
        session.commit([0], 3)
        assert session.cached == len(session.tokens) - 1

    rows_after(lambda s: (s.draft(EMPTY), s.draft(EMPTY)))
    rows_after(lambda s: (s.draft(path_of([4])), s.extend([7])))
    rows_after(lambda s: (s.verify(path_of([4])), s.draft(path_of([9]))))
    rows_after(lambda s: (s.draft(path_of([4])), s.verify(EMPTY)))
    rows_after(lambda s: (s.draft(path_of([9])), s.verify(EMPTY), s.commit([], 6)))


@pytest.mark.parametrize("form", BOTH)
def test_a_refused_draft_or_verify_leaves_the_drafted_rows(form):
    target = target_of(form, max_position_embeddings=8)
    session = target.start(PROMPT)
    draft_chain(session, [9, 8])
    with pytest.raises(ContextLimitError):
        session.draft(path_of([9, 8, 7, 6]))
    with pytest.raises(ValueError, match="a tree grows behind its rows"):
        session.draft(path_of([8, 8, 7]))
    with pytest.raises(ContextLimitError):
        session.verify(path_of([9, 8, 7, 6]))
    session.draft(path_of([9, 8, 7]))
    with counted(target) as rows:
        session.verify(path_of([9, 8, 7]))
    assert rows[0] == 0


@pytest.mark.parametrize("form", BOTH)
def test_a_forward_that_broke_off_leaves_nothing_behind(form, monkeypatch):
    target = target_of(form)
    session = target.start(PROMPT)
    run = type(target.shallow).run

    def breaks(self, *arguments):
        run(self, *arguments)
        raise RuntimeError("out of memory")

    for broken in (session.draft, session.verify):
        with monkeypatch.context() as patch:
            patch.setattr(type(target.shallow), "run", breaks)
            with pytest.raises(RuntimeError):
                broken(path_of([9]))
        assert session.cached == len(session._state.shallow) == 0
    tree = path_of([9, 8])
    check_rows(session.verify(tree), tree, PROMPT, target.plain_logits, 1e-3)


# ----------------------------------------------------------------------- the contract


@pytest.mark.parametrize("form", BOTH)
def test_tags_say_whose_rows_they_are(form):
    session = target_of(form).start(PROMPT)
    rows = session.draft(path_of([9]))
    assert {tag.ownership for tag in rows.tags} == {Ownership.PROVISIONAL}
    session.verify(path_of([9]))
    state = session._state
    assert {tag.ownership for tag in state.tags} == {Ownership.VERIFICATION}
    session.commit([0], 3)
    assert {tag.ownership for tag in state.tags} == {Ownership.AUTHORITATIVE}
    assert [tag.key.token_id for tag in state.tags] == session.tokens[:-1]
    assert len(state.tags) == session.cached == len(state.shallow)
    draft_chain(session, [4])
    assert {tag.key.cache_generation for tag in state.drafted.tags} == {1}


@contextlib.contextmanager
def attention_adds_nothing(target, layer):
    if isinstance(target, LeanTrunkTarget):
        layers = target.shallow.weights.layers
        before = layers[layer]
        (norm, qkv, out), mlp = before
        zero = lean_module._Linear(torch.zeros_like(out.weight()), None, out.packed)
        layers[layer] = ((norm, qkv, zero), mlp)
        yield
        layers[layer] = before
        return
    hook = target.layered._layers[layer].self_attn.register_forward_hook(
        lambda module, args, output: (torch.zeros_like(output[0]), *output[1:])
    )
    yield
    hook.remove()


def draft_skipping(session, tree, *, honest):
    """Drafts the row of one token with attention 0 skipped. Whoever is `honest` says so
    in the tag; all seven fields agree either way."""
    session.draft(EMPTY)
    with attention_adds_nothing(session.target, 0):
        session.draft(tree)
    drafted = session._state.drafted
    if honest:
        *rest, last = drafted.tags
        path = tuple(step for step in last.path if step != "0.attention")
        last = dataclasses.replace(last, owner="draft_verify", path=path)
        session._state.drafted = TaggedRows(drafted.tensor, [*rest, last])


@pytest.mark.parametrize("form", BOTH)
def test_a_planted_row_of_a_skipped_path_is_refused_by_verification(form):
    session = target_of(form).start(PROMPT)
    draft_skipping(session, path_of([9]), honest=True)
    with pytest.raises(StateError, match=r"draft_verify.*left out 0\.attention"):
        session.verify(path_of([9]))
    # What was refused is gone, and the next round is clean.
    tree = path_of([9])
    rows = session.verify(tree)
    check_rows(rows, tree, PROMPT, session.target.plain_logits, 1e-3)


@pytest.mark.parametrize("form", BOTH)
def test_a_row_drafted_behind_a_row_of_a_skipped_path_is_refused(form):
    session = target_of(form).start(PROMPT)
    draft_skipping(session, path_of([9]), honest=True)
    session.draft(path_of([9, 8]))
    assert "attended to token 9" in session._state.drafted.tags[-1].deviation


@pytest.mark.parametrize("form", BOTH)
def test_equal_metadata_does_not_make_rows_equal(form):
    """Why a predicate on fields is no proof: a false tag passes, and the logits of
    this round and of all later ones are wrong."""
    target = target_of(form)
    session = target.start(PROMPT)
    draft_skipping(session, path_of([9]), honest=False)
    rows = session.verify(path_of([9]))
    with pytest.raises(AssertionError, match="row 0 is off"):
        check_rows(rows, path_of([9]), PROMPT, target.plain_logits, 1e-3)
    session.commit([0], 8)
    tree = path_of([7], len(session.tokens))
    with pytest.raises(AssertionError, match="row -1 is off"):
        check_rows(
            session.verify(tree), tree, session.tokens, target.plain_logits, 1e-3
        )


@pytest.mark.parametrize("form", BOTH)
def test_a_row_of_a_skipped_path_is_refused_by_the_commit_and_changes_nothing(form):
    session = target_of(form).start(PROMPT)
    session.verify(path_of([9, 8]))
    state = session._state
    path = tuple(step for step in state.tags[5].path if step != "3.mlp")
    honest = state.tags[5]
    state.tags[5] = dataclasses.replace(honest, owner="draft_verify", path=path)
    with pytest.raises(StateError, match=r"row 5.*provisional.*left out 3\.mlp"):
        session.commit([0, 1], 7)
    assert session.tokens == PROMPT and session.generation == 0
    session.commit([], 7)  # the refused row is none of those that this one keeps
    assert {tag.ownership for tag in state.tags} == {Ownership.AUTHORITATIVE}


class KeepsWrongRows(TrunkSession):
    """Keeps the first rows of the tree, as if its path were a chain."""

    @staticmethod
    def _kept_rows(base, length, path):
        return [*range(base, length), *(length + i for i in range(len(path)))]


@pytest.mark.parametrize("form", BOTH)
def test_rows_of_other_tokens_or_positions_are_refused_by_the_commit(form):
    target = target_of(form)
    session = target.start(PROMPT)
    session.__class__ = KeepsWrongRows
    session.verify(CandidateTree.from_rows([9, 8, 7], [-1, -1, 1], len(PROMPT)))
    with pytest.raises(StateError, match=r"row 5.*token_id is 9, needed is 8"):
        session.commit([1], 3)
    session.verify(CandidateTree.from_rows([9, 9, 9], [-1, 0, 1], len(PROMPT)))
    session._state.tags[6:8] = session._state.tags[7:5:-1]
    with pytest.raises(StateError, match=r"row 6.*position is 7, needed is 6"):
        session.commit([0, 1, 2], 3)


@pytest.mark.parametrize("form", BOTH)
def test_a_shallow_row_of_another_position_is_not_taken(form, monkeypatch):
    """The same token at two depths; planted: the search looks at the token alone."""
    target = target_of(form)
    tree = path_of([9, 9, 9])

    def rows():
        session = target.start(PROMPT)
        draft_chain(session, [9, 9, 9])
        return session.verify(tree)

    check_rows(rows(), tree, PROMPT, target.plain_logits, 1e-3)
    with monkeypatch.context() as patch:
        patch.setattr(trunk_module, "_name", lambda key: key.token_id)
        # The seven fields are still compared: the row is computed, not taken.
        check_rows(rows(), tree, PROMPT, target.plain_logits, 1e-3)
        patch.setattr(trunk_module, "may_reuse", lambda candidate, need: True)
        with pytest.raises(StateError, match="position is 7, needed is 5"):
            rows()
        patch.setattr(trunk_module, "check_reuse", lambda tag, need: None)
        with pytest.raises(AssertionError, match="is off by"):
            check_rows(rows(), tree, PROMPT, target.plain_logits, 1e-3)


@pytest.mark.parametrize("form", BOTH)
def test_a_row_of_an_earlier_generation_is_not_taken(form):
    target = target_of(form)
    session = target.start(PROMPT)
    draft_chain(session, [9])
    state = session._state
    old = [
        Tag(dataclasses.replace(t.key, cache_generation=7), t.layers, t.owner, t.path)
        for t in state.drafted.tags
    ]
    state.drafted = TaggedRows(state.drafted.tensor, old)
    with counted(target) as rows:
        session.verify(path_of([9]))
    assert rows == [6, 6, 6, 6]


# --------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("family", sorted(set(families()) - set(SUPPORTED)))
def test_other_families_are_refused_by_name(family):
    model = tiny_model(family)
    with pytest.raises(UnsupportedTargetError, match=type(model).__name__):
        SharedTrunkTarget(model, 1)


def test_the_supported_classes_are_those_that_are_tested():
    assert {type(tiny_model(family)).__name__ for family in SUPPORTED} == set(FAMILIES)


@pytest.mark.parametrize("boundary", [0, LAYERS, -1, 1.0, True])
def test_a_boundary_leaves_a_layer_on_both_sides(boundary):
    with pytest.raises(ValueError, match="boundary"):
        SharedTrunkTarget(model_of(), boundary)
    for form in BOTH:
        with pytest.raises(ValueError, match="boundary"):
            sharing(plain_of(form), boundary)


@pytest.mark.parametrize("make", [SharedTrunkTarget.of, LeanTrunkTarget])
def test_a_form_of_nothing_is_refused(make):
    with pytest.raises(ValueError, match=r"target must be a \w+Target, got None"):
        make(None, BOUNDARY)


@pytest.mark.parametrize("form", BOTH)
def test_a_form_is_itself_at_its_boundary_and_refused_at_another(form):
    target = target_of(form, 2)
    assert sharing(target, 2) is target
    with pytest.raises(TargetError, match=r"first 2 layers already.*share 3 as well"):
        sharing(target, 3)


@pytest.mark.parametrize("form", BOTH)
def test_a_form_is_the_same_model_and_copies_nothing(form):
    plain = plain_of(form)
    about = plain.identity()
    target = sharing(plain, BOUNDARY)
    after = target.identity()
    assert after.pop("backend") != about.pop("backend")
    assert (
        after == about and plain.identity()["backend"] != target.identity()["backend"]
    )
    if form == LEAN:
        halves = [half.weights.layers for half in (target.shallow, target.deep)]
        for index, layer in enumerate(plain._weights.layers):
            (sublayers,) = [h[index] for h in halves if h[index][0] is not None]
            assert sublayers[0] is layer[0] and sublayers[1] is layer[1]
    else:
        assert target.model is plain.model


def test_layers_that_cannot_be_reached_are_not_shared():
    table = TableTarget(lambda prefix: [1], vocab_size=1)
    with pytest.raises(UnsupportedTargetError, match="a TableTarget has no layers"):
        sharing(table, 1)


@pytest.mark.parametrize("form", BOTH)
def test_a_form_whose_rows_are_not_the_targets_does_not_pass_its_self_test(
    form, monkeypatch
):
    """Planted: the layers above the boundary see what they must not."""
    plain = plain_of(form)
    half = type(sharing(plain, BOUNDARY).deep)
    run = half.run
    monkeypatch.setattr(
        half,
        "run",
        lambda self, rows, positions, visible, cache: run(
            self, rows, positions, np.ones_like(visible), cache
        ),
    )
    with pytest.raises(SelfTestError, match="mask, positions or the rows kept"):
        sharing(plain, BOUNDARY)


def test_rotation_that_changes_with_the_length_is_refused():
    rope = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    with pytest.raises(UnsupportedTargetError, match="dynamic"):
        SharedTrunkTarget(model_of(rope_parameters=rope), 1)


def test_the_weights_and_the_config_are_as_they_were():
    model = model_of()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    config = model.config.to_dict()
    session = SharedTrunkTarget(model, BOUNDARY).start(PROMPT)
    draft_chain(session, [9, 8])
    session.verify(path_of([9, 8]))
    assert model.config.to_dict() == config
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])
