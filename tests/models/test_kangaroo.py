"""Kangaroo's adapter, its cache, its second exit, and rounds made of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from specbook.errors import SpecbookError
from specbook.models import kangaroo as kangaroo_module
from specbook.models.kangaroo import (
    Adapter,
    AdapterCache,
    KangarooDraft,
    chain,
    draft_greedily,
)
from specbook.models.shared_trunk import SharedTrunkTarget
from specbook.models.state import Ownership, StateError, publish
from specbook.models.tiny import tiny_model

from .drive import greedy
from .test_shared_trunk import BOUNDARY, FORMS, LAYERS, PROMPT, counted, target_of


def adapter_for(target, seed=0):
    """An adapter whose attention says something."""
    adapter = Adapter.beginning_at(target, 4)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in adapter.parameters():
            if parameter.dim() == 2:
                parameter.normal_(0.0, 0.5, generator=generator)
    return adapter


def plain_draft(target, adapter, tokens):
    """The adapter's logits [V] after `tokens`, with no cache at all."""
    with torch.inference_mode():
        full = target.model(torch.tensor([tokens]), output_hidden_states=True)
        rows = adapter(full.hidden_states[target.boundary][0])
        return target.read_out(rows[-1:])[0]


def assert_near(found, wanted):
    scale = max(1.0, float(wanted.abs().max()))
    assert float((found - wanted).abs().max()) <= 1e-5 * scale


def play(session, draft, tokens, accepted, token, check):
    """One round: a chain drafted, of which the first `accepted` are kept."""
    prefix = list(session.tokens)
    check(draft.begin(), prefix)
    for count, drafted in enumerate(tokens[:-1], start=1):
        check(draft.grow(drafted), [*prefix, *tokens[:count]])
    draft.stop(tokens[-1])
    session.verify(chain(tokens, len(prefix)))
    session.commit(range(accepted), token)
    draft.commit()


# ---------------------------------------------------------------------- the adapter


def test_it_is_one_attention_and_two_norms():
    width = 32
    adapter = Adapter(width, 4)
    shapes = {name: tuple(p.shape) for name, p in adapter.named_parameters()}
    assert shapes == {
        "norm1": (width,),
        "query_key_value.weight": (3 * width, width),
        "output.weight": (width, width),
        "norm2": (width,),
    }


@pytest.mark.parametrize(("width", "heads"), [(32, 5), (32, 32), (1, 1), (32, 0)])
def test_heads_that_do_not_fit_are_refused(width, heads):
    with pytest.raises(ValueError, match=r"width|attention_heads"):
        Adapter(width, heads)


def test_untrained_it_is_the_targets_last_norm():
    """Of Llama, whose last norm is of the same kind."""
    target = target_of()
    with torch.no_grad():
        target.layered.norm_weight.uniform_(0.5, 2.0)
    rows = torch.randn(3, 32, generator=torch.Generator().manual_seed(0))
    adapter = Adapter.beginning_at(target, 4)
    with torch.no_grad():
        assert_near(adapter(rows), target.layered.final(rows))


def test_in_pieces_and_after_a_rollback_it_reads_as_at_once():
    adapter = adapter_for(target_of())
    rows = torch.randn(9, 32, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        whole, cache = adapter(rows), AdapterCache(adapter)
        found = [cache.extend(rows[:4])]
        cache.extend(rows[[7, 8]])  # refused
        cache.keep(4)
        found += [cache.extend(rows[4:5]), cache.extend(rows[5:])]
        assert_near(torch.cat(found), whole)
    with pytest.raises(ValueError, match="at most 9"):
        cache.keep(10)


# ----------------------------------------------------------------- rounds, and the lag


@pytest.mark.parametrize("family", FORMS)
def test_laws_are_those_of_a_draft_without_caches(family):
    target = target_of(family)
    adapter = adapter_for(target)
    session = target.start(PROMPT)
    draft = KangarooDraft(session, adapter)
    random = np.random.default_rng(0)
    checked = 0

    def check(logits, tokens):
        nonlocal checked
        assert_near(logits, plain_draft(target, adapter, tokens))
        checked += 1

    for accepted in (1, 3, 0, 2, 3, 3):
        tokens = random.integers(64, size=3).tolist()
        play(session, draft, tokens, accepted, int(random.integers(64)), check)
    assert checked == 18


def test_the_adapter_is_one_row_behind_after_full_acceptance_and_then_reads_two(
    monkeypatch,
):
    target = target_of()
    session = target.start(PROMPT)
    draft = KangarooDraft(session, adapter_for(target))
    read = []
    extend = AdapterCache.extend

    def counts(self, features):
        read.append(len(features))
        return extend(self, features)

    monkeypatch.setattr(AdapterCache, "extend", counts)
    behind = []
    for accepted in (2, 3, 0, 3):
        read.clear()
        play(session, draft, [9, 8, 7], accepted, 5, lambda *a: None)
        behind.append((read[0], draft.behind))
    #        rows read first: the prompt; the correction; last draft and bonus; ...
    assert behind == [(len(PROMPT), 0), (1, 1), (2, 0), (1, 1)]


def test_a_round_without_a_draft_is_caught_up_with():
    target = target_of()
    adapter = adapter_for(target)
    session = target.start(PROMPT)
    draft = KangarooDraft(session, adapter)
    for token in (9, 8):
        session.verify(chain([], len(session.tokens)))
        session.commit([], token)
        draft.commit()
    assert_near(draft.begin(), plain_draft(target, adapter, session.tokens))
    # Begun twice, and with drafts of its own that nobody verified.
    draft.grow(4)
    draft.stop(3)
    assert_near(draft.begin(), plain_draft(target, adapter, session.tokens))
    assert_near(draft.grow(2), plain_draft(target, adapter, [*session.tokens, 2]))


def test_a_commit_that_was_not_told_is_noticed():
    target = target_of()
    session = target.start(PROMPT)
    draft = KangarooDraft(session, adapter_for(target))
    session.verify(chain([], len(PROMPT)))
    session.commit([], 9)
    with pytest.raises(StateError, match="row 0 would be that of position 5"):
        draft.begin()


def test_planted_rows_of_refused_tokens_kept_are_found(monkeypatch):
    """The adapter's cache rolled back to its length alone, not to its tokens."""
    target = target_of()
    adapter = adapter_for(target)

    def rounds():
        session = target.start(PROMPT)
        draft = KangarooDraft(session, adapter)
        play(session, draft, [9, 8, 7], 0, 5, lambda *a: None)
        wanted = plain_draft(target, adapter, session.tokens)
        assert_near(draft.begin(), wanted)

    rounds()
    monkeypatch.setattr(KangarooDraft, "_keep", lambda self, rows: None)
    with pytest.raises(StateError, match="would be that of position"):
        rounds()


# --------------------------------------------------------------------- the second exit


def saying(confidences):
    """An adapter of these confidences, its tokens 0, 1, 2, ...; and what is asked."""
    asked = []

    class Script:
        def __init__(self):
            self.count = 0

        def _next(self):
            rest = (1 - confidences[self.count]) / 3
            law = torch.full((4,), rest, dtype=torch.float64)
            law[self.count] = confidences[self.count]
            self.count += 1
            return law.log()

        def begin(self):
            asked.append("begin")
            return self._next()

        def grow(self, token):
            asked.append(("grow", token))
            return self._next()

        def stop(self, token):
            asked.append(("stop", token))

    return Script(), asked


@pytest.mark.parametrize(
    ("threshold", "most", "kept"),
    [(0.6, 4, 3), (0.95, 4, 1), (0.0, 4, 4), (0.6, 2, 2), (0.75, 4, 2), (0.6, 0, 0)],
)
def test_the_token_that_falls_short_is_kept_and_is_the_last(threshold, most, kept):
    confidences = [0.9, 0.7, 0.4, 0.8]
    script, asked = saying(confidences)
    tokens, found = draft_greedily(script, most, threshold)
    assert tokens == list(range(kept))
    assert found == pytest.approx(confidences[:kept])
    if kept:
        grown = [("grow", token) for token in range(kept - 1)]
        assert asked == ["begin", *grown, ("stop", kept - 1)]


@pytest.mark.parametrize(
    ("most", "threshold"), [(-1, 0.6), (2, 1.1), (2, float("nan"))]
)
def test_bad_limits_are_refused(most, threshold):
    with pytest.raises(ValueError, match="most|threshold"):
        draft_greedily(None, most, threshold)


# --------------------------------------------------------------------- whole decodings


@pytest.mark.parametrize("family", FORMS)
def test_greedy_rounds_give_the_targets_own_text_and_count_their_layer_rows(family):
    target = target_of(family)
    session = target.start(PROMPT)
    draft = KangarooDraft(session, adapter_for(target))
    wanted = greedy(target, PROMPT, 12)
    known = [*PROMPT, *wanted]
    accepted = 0
    with counted(target) as rows:
        block = 0
        for number in range(4):
            length = len(session.tokens)
            if number % 2:
                tokens, _ = draft_greedily(draft, 3, 0.0)
            else:  # an adapter that happens to be right
                tokens = known[length : length + 2]
                draft.begin()
                draft.grow(tokens[0])
                draft.stop(tokens[1])
            block += length - session.cached + len(tokens)
            verified = session.verify(chain(tokens, length))
            kept = 0
            while kept < len(tokens) and verified.argmax(kept - 1) == tokens[kept]:
                kept += 1
            session.commit(range(kept), verified.argmax(kept - 1))
            draft.commit()
            accepted += kept
    assert session.tokens == known[: len(session.tokens)]
    assert accepted >= 4
    # Shallow and deep layers alike: once for every row of every block, never twice.
    assert rows == [block] * LAYERS


def test_rows_of_the_adapter_are_not_published():
    target = target_of()
    draft = KangarooDraft(target.start(PROMPT), adapter_for(target))
    draft.begin()
    assert {tag.ownership for tag in draft.tags} == {Ownership.PROVISIONAL}
    last = draft.tags[-1]
    assert last.key.layer_boundary == LAYERS and last.owner == kangaroo_module.ADAPTER
    with pytest.raises(StateError, match=rf"'adapter'.*left out {BOUNDARY}\.attention"):
        publish([last], [last.key])


def test_what_does_not_fit_together_is_refused():
    target = target_of()
    with pytest.raises(ValueError, match="rows of 16, the target's have 32"):
        KangarooDraft(target.start(PROMPT), Adapter(16, 2))
    with pytest.raises(StateError, match="needs a session of a target that shares"):
        KangarooDraft(object(), adapter_for(target))
    with pytest.raises(ValueError, match="outside 0 .. 63"):
        draft = KangarooDraft(target.start(PROMPT), adapter_for(target))
        draft.begin()
        draft.grow(64)


@pytest.mark.parametrize(
    "call",
    [
        lambda target, draft: Adapter.beginning_at(None, 4),
        lambda target, draft: AdapterCache(None),
        lambda target, draft: KangarooDraft(target.start(PROMPT), None),
        lambda target, draft: KangarooDraft(
            target.start(PROMPT), adapter_for(target), 3
        ),
        lambda target, draft: draft_greedily(None),
        lambda target, draft: kangaroo_module.draft_chain(draft, None),
        lambda target, draft: chain(None, 3),
    ],
    ids=[f"case{i}" for i in range(7)],
)
def test_nothing_in_the_place_of_a_part_is_refused(call):
    target = target_of()
    draft = KangarooDraft(target.start(PROMPT), adapter_for(target))
    with pytest.raises(SpecbookError, match="must be a|token ids"):
        call(target, draft)


def test_the_adapter_is_the_only_thing_that_is_trained():
    model = tiny_model("llama", seed=1, num_hidden_layers=LAYERS)
    target = SharedTrunkTarget(model, BOUNDARY)
    adapter = adapter_for(target)
    features = torch.randn(5, 32, generator=torch.Generator().manual_seed(2))
    head = target.model.get_output_embeddings().weight
    loss = torch.nn.functional.linear(adapter(features), head.detach()).square().sum()
    loss.backward()
    assert all(bool(p.grad.abs().sum() > 0) for p in adapter.parameters())
    assert all(p.grad is None for p in model.parameters())
