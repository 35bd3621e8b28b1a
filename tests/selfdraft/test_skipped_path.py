"""The skipped path: what it computes, what it reads, and that it leaves no trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from specbook.errors import SpecbookError
from specbook.models import skip_layers as module
from specbook.models.protocol import ContextLimitError
from specbook.models.shared_trunk import SharedTrunkTarget
from specbook.models.skip_layers import SKIPPED_PATH, SkippedPath, SkipVector
from specbook.models.state import (
    Ownership,
    StateError,
    StateKey,
    ancestry,
    publish,
)
from specbook.models.table import TableTarget
from specbook.models.target import (
    TransformersTarget,
    UnsupportedTargetError,
    tensors_sha256,
)
from specbook.models.tiny import tiny_model

from .models import (
    FAMILIES,
    KINDS,
    LAYERS,
    chain,
    expected,
    model_of,
    plain_model,
    target_of,
)

PROMPT = [1, 2, 3, 4, 5]
VECTORS = ("-x-", "am-", "max", "xxx", "--m")


def committed_session(target: Any, prompt: Sequence[int] = PROMPT) -> Any:
    """A session whose prompt is in the cache; its pending token is 9."""
    session = target.start(list(prompt))
    session.verify(chain([], len(prompt)))
    session.commit([], 9)
    return session


def drafted(path: SkippedPath, tokens: Sequence[int]) -> list[np.ndarray]:
    """Logits after the pending token and after each of `tokens`."""
    return [path.begin(), *(path.grow(token) for token in tokens)]


def largest(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.abs(found - wanted).max()) / max(1.0, float(np.abs(wanted).max()))


# ------------------------------------------------------------------- what it computes


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [*((k, torch.float32) for k in KINDS), ("lean", torch.bfloat16)],
)
def test_a_vector_that_skips_nothing_gives_the_targets_logits(
    kind: str, dtype: torch.dtype
) -> None:
    """Bit for bit: the target grows by the same rows, one at a time."""
    target = target_of(kind, dtype)
    session = committed_session(target)
    path = SkippedPath(session, SkipVector.nothing(LAYERS))
    tokens = [7, 8, 6]
    found = drafted(path, tokens)
    length = len(session.tokens)
    rows = session.verify(chain([], length))
    for count in range(len(tokens) + 1):
        if count:
            rows = session.grow(chain(tokens[:count], length))
        assert np.array_equal(found[count], rows.logits(count - 1))


@pytest.mark.parametrize("kind", KINDS)
def test_each_round_equals_a_forward_with_silenced_sublayers(kind: str) -> None:
    """Rounds that accept none, some and all of a draft. The reference reads the prefix
    with the whole model and the rest with one whose skipped sublayers add nothing."""
    target, model = target_of(kind), plain_model(kind)
    random = np.random.default_rng(0)
    for text in VECTORS[:4]:
        vector = SkipVector.from_text(text)
        session = committed_session(target)
        path = SkippedPath(session, vector)
        for kept in (1, 0, 3):
            tokens = random.integers(64, size=3).tolist()
            found = drafted(path, tokens[:2])
            committed, pending = session.tokens[:-1], session.tokens[-1:]
            for count, logits in enumerate(found):
                wanted = expected(model, vector, committed, [*pending, *tokens[:count]])
                assert largest(logits, wanted) <= 1e-5
            session.verify(chain(tokens, len(session.tokens)))
            session.commit(list(range(kept)), int(random.integers(64)))


def test_pending_tokens_are_read_in_one_go() -> None:
    for kind in ("llama", "lean"):
        target, vector = target_of(kind), SkipVector.from_text("a-m")
        session = committed_session(target)
        path = SkippedPath(session, vector)
        path.begin()
        session.extend([3, 8])
        wanted = expected(plain_model(kind), vector, PROMPT, [9, 3, 8])
        assert largest(path.begin(), wanted) <= 1e-5
        assert [tag.key.position for tag in path.tags] == [5, 6, 7]


def one_round(session: Any, path: SkippedPath, vector: SkipVector, model: Any) -> None:
    tokens = [7, 8]
    drafted(path, tokens)
    session.verify(chain(tokens, len(session.tokens)))
    session.commit([0], 5)
    wanted = expected(model, vector, session.tokens[:-1], [5])
    assert largest(path.begin(), wanted) <= 1e-5, "another row than the full path's"


@pytest.mark.parametrize("kind", ["gpt2", "lean"])
def test_a_kept_provisional_row_would_be_seen(kind: str, monkeypatch: Any) -> None:
    """The planted fault: an accepted token's row of the skipped path stays in the cache
    instead of the target's own row of that token."""
    target, model = target_of(kind), plain_model(kind)
    vector = SkipVector.from_text("xm-")
    session = committed_session(target)
    one_round(session, SkippedPath(session, vector), vector, model)

    def relabel(self: SkippedPath) -> None:
        keep = min(self.session.committed, self._followed + len(self._tags))
        self._cache.keep(keep, [])
        self._followed, self._tags, self._begun = keep, [], None

    monkeypatch.setattr(module.SkippedPath, "_drop", relabel)
    session = committed_session(target)
    path = SkippedPath(session, vector)
    with pytest.raises(AssertionError, match="another row"):
        one_round(session, path, vector, model)


def test_only_pending_and_drafted_tokens_run_and_each_once() -> None:
    """There is no second prefill: counted by hooks on every sublayer."""
    target = target_of("llama")
    assert isinstance(target, TransformersTarget)
    session = committed_session(target, list(range(20)))
    path = SkippedPath(session, SkipVector.from_text("ax-"))
    rows: dict[str, int] = {}
    hooks = []
    for layer, block in enumerate(target.model.model.layers):
        for name, part in (("attention", block.self_attn), ("mlp", block.mlp)):

            def count(_: Any, __: Any, output: Any, step: str = f"{layer}.{name}"):
                out = output[0] if isinstance(output, tuple) else output
                rows[step] = rows.get(step, 0) + out.shape[1]

            hooks.append(part.register_forward_hook(count))
    drafted(path, [3, 4, 5])
    assert rows == {"0.mlp": 4, "2.attention": 4, "2.mlp": 4}
    for hook in hooks:
        hook.remove()


# ------------------------------------------------------------- it leaves no trace


def cached(session: Any) -> list[torch.Tensor]:
    state = session._state
    if hasattr(state, "buffer"):
        return [state.buffer[:, :, : len(state)].clone()]
    return [
        tensor.clone()
        for layer in state._cache.layers
        for tensor in (layer.keys, layer.values)
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_the_target_is_the_same_bit_for_bit(kind: str) -> None:
    target = target_of(kind)
    sessions = [committed_session(target) for _ in range(2)]
    # Two vectors in turn, on one of the sessions: nothing is global.
    paths = [SkippedPath(sessions[0], SkipVector.from_text(t)) for t in VECTORS[:2]]
    alone = [drafted(path, [7, 8]) for path in paths]
    both = [[path.begin() for path in paths]]
    both += [[path.grow(token) for path in paths] for token in (7, 8)]
    for number, found in enumerate(zip(*both, strict=True)):
        for logits, wanted in zip(found, alone[number], strict=True):
            assert np.array_equal(logits, wanted)
    for one, other in zip(*map(cached, sessions), strict=True):
        assert torch.equal(one, other)
    answers = [s.verify(chain([7, 8], 6)) for s in sessions]
    for row in range(-1, 2):
        assert np.array_equal(answers[0].logits(row), answers[1].logits(row))


def test_no_weight_is_copied_or_changed() -> None:
    target = target_of("qwen3")
    assert isinstance(target, TransformersTarget)
    before = tensors_sha256(target.config, target.model.state_dict())
    path = SkippedPath(committed_session(target), SkipVector.from_text("-x-"))
    drafted(path, [1, 2])
    part: Any = path._part
    assert part._layers._layers is target.model.model.layers
    assert tensors_sha256(target.config, target.model.state_dict()) == before
    lean: Any = target_of("lean")
    lean_path: Any = SkippedPath(committed_session(lean), SkipVector.from_text("-x-"))
    for mine, whole in zip(
        lean_path._part._weights.layers, lean._weights.layers, strict=True
    ):
        for one, other in zip(mine, whole, strict=True):
            assert one is None or one is other


def test_the_cache_holds_the_attentions_that_are_kept() -> None:
    for kind in ("llama", "lean"):
        session = committed_session(target_of(kind))
        sizes = {}
        for text in ("---", "-a-", "xxx"):
            path = SkippedPath(session, SkipVector.from_text(text))
            drafted(path, [7])
            sizes[text] = path._cache.payload_bytes()
        assert sizes["---"] * 2 == sizes["-a-"] * 3 > 0 == sizes["xxx"]


# ------------------------------------------------------- provisional rows have tags


def needs(session: Any, tokens: Sequence[int]) -> list[StateKey]:
    target, text = session.target, [*session.tokens, *tokens]
    return [
        StateKey(
            checkpoint=target._checkpoint_identity,
            layer_boundary=LAYERS,
            token_id=text[place],
            position=place,
            ancestry_hash=ancestry(text[:place]),
            dtype="float32",
            cache_generation=session.generation,
        )
        for place in range(session.committed, len(text))
    ]


@pytest.mark.parametrize("kind", ["llama", "lean"])
def test_a_row_of_the_skipped_path_is_refused_by_publish(kind: str) -> None:
    """All seven fields agree, and the row is still not the target's."""
    session = committed_session(target_of(kind))
    path = SkippedPath(session, SkipVector.from_text("-x-"))
    drafted(path, [7, 8])
    wanted = needs(session, [7, 8])
    assert [tag.key for tag in path.tags] == wanted
    assert {tag.owner for tag in path.tags} == {SKIPPED_PATH}
    assert {tag.ownership for tag in path.tags} == {Ownership.PROVISIONAL}
    with pytest.raises(StateError, match="left out 1.attention, 1.mlp"):
        publish(path.tags, wanted)
    whole = SkippedPath(session, SkipVector.nothing(LAYERS))
    drafted(whole, [7, 8])
    # Its rows went through every step of the target: that is what the tags say.
    assert len(publish(whole.tags, wanted)) == 3


def test_a_planted_row_of_the_skipped_path_is_refused_by_a_commit() -> None:
    """The planted fault "skipped KV published": a tagged session finds a row of the
    skipped path, its keys and values included, where the target's should be."""
    model = model_of("llama")
    plain = TransformersTarget(model, self_test=False)
    tagged = SharedTrunkTarget(model, 1, self_test=False)
    session, mirror = committed_session(tagged), committed_session(plain)
    path = SkippedPath(mirror, SkipVector.from_text("--m"))
    drafted(path, [7])
    session.verify(chain([7], len(session.tokens)))
    for place, tag in enumerate(path.tags, start=mirror.committed):
        session._state.tags[place] = tag
    with pytest.raises(StateError, match=f"provisional state of '{SKIPPED_PATH}'"):
        session.commit([0], 3)
    assert session.tokens == [*PROMPT, 9]
    session.verify(chain([7], len(session.tokens)))
    session.commit([0], 3)  # the target's own rows are published


def test_tags_live_for_a_round() -> None:
    session = committed_session(target_of("llama"))
    path = SkippedPath(session, SkipVector.from_text("-x-"))
    assert path.tags == () and path.followed == 0
    drafted(path, [7, 8])
    assert [t.key.token_id for t in path.tags] == [9, 7, 8] and path.followed == 5
    session.verify(chain([7], len(session.tokens)))
    session.commit([0], 4)
    path.begin()
    assert [t.key.token_id for t in path.tags] == [4] and path.followed == 7
    assert path.tags[0].key == needs(session, [])[0]


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize("family", ["gpt_neox", "opt"])
def test_a_family_that_is_not_known_is_refused_by_name(family: str) -> None:
    target = TransformersTarget(tiny_model(family), self_test=False)
    with pytest.raises(UnsupportedTargetError, match="ForCausalLM is not one of"):
        SkippedPath(target.start([1]), SkipVector.nothing(2))


def test_a_table_has_no_layers() -> None:
    table = TableTarget({(0,): [1, 0]})
    with pytest.raises(UnsupportedTargetError, match="TableSession has no layers"):
        SkippedPath(table.start([0]), SkipVector.nothing(2))  # type: ignore[arg-type]
    with pytest.raises(UnsupportedTargetError, match="TableTarget has no sublayers"):
        module.check_vector(SkipVector.nothing(2), table)


@pytest.mark.parametrize("kind", ["gpt2", "lean"])
def test_a_vector_of_another_depth_is_refused(kind: str) -> None:
    session = target_of(kind).start([1])
    with pytest.raises(SpecbookError, match="for 2 layers, the target has 3"):
        SkippedPath(session, SkipVector.nothing(2))
    with pytest.raises(SpecbookError, match="not a skip vector"):
        SkippedPath(session, "---")  # type: ignore[arg-type]


def test_it_is_driven_in_order() -> None:
    target = target_of("llama")
    session = target.start(PROMPT)
    path = SkippedPath(session, SkipVector.from_text("-x-"))
    assert not path.ready
    with pytest.raises(SpecbookError, match="before the target's first commit"):
        path.begin()
    session.verify(chain([], 5))
    session.commit([], 9)
    assert path.ready
    with pytest.raises(SpecbookError, match="grow without a begin"):
        path.grow(1)
    path.begin()
    with pytest.raises(SpecbookError, match="outside 0 .. 63"):
        path.grow(64)
    session.verify(chain([], 6))
    session.commit([], 9)
    with pytest.raises(SpecbookError, match="grow without a begin in this round"):
        path.grow(1)


def test_the_last_position_is_the_targets() -> None:
    target = TransformersTarget(
        model_of("llama", max_position_embeddings=7), self_test=False
    )
    path = SkippedPath(committed_session(target), SkipVector.from_text("-x-"))
    drafted(path, [1])
    with pytest.raises(ContextLimitError, match="position 7; the target's last"):
        path.grow(1)


@pytest.mark.parametrize("kind", ["llama", "lean"])
def test_a_broken_forward_leaves_nothing_behind(kind: str, monkeypatch: Any) -> None:
    path = SkippedPath(committed_session(target_of(kind)), SkipVector.from_text("-x-"))
    wanted = drafted(path, [7])
    part: Any = type(path._part)
    right = part.run

    def breaks(self: Any, state: Any, first: int, ids: list[int]) -> Any:
        right(self, state, first, ids)
        raise RuntimeError("no memory")

    monkeypatch.setattr(part, "run", breaks)
    with pytest.raises(RuntimeError):
        path.grow(8)
    monkeypatch.undo()
    assert path.tags == ()
    for found, other in zip(drafted(path, [7]), wanted, strict=True):
        assert np.array_equal(found, other)


def test_the_families_are_those_that_run_layer_by_layer() -> None:
    from specbook.models.layered import FAMILIES as KNOWN

    assert {type(model_of(family)).__name__ for family in FAMILIES} == set(KNOWN)
