"""Self-drafting watched: what is counted, what is compared, and the planted faults."""

from __future__ import annotations

from fractions import Fraction as F

import numpy as np
import pytest

from specbook.drafts.neural.draft_verify import DraftVerify
from specbook.drafts.stop_threshold import ThresholdPolicy
from specbook.engine import generate
from specbook.errors import SpecbookError
from specbook.lab import decoded_law, distance
from specbook.measure import self_traces as watching
from specbook.measure.self_vectors import FULL_DRAFTS, every_vector, fading_target
from specbook.measure.skip_objective import SkipCosts
from specbook.models import TransformersTarget
from specbook.models.kangaroo import Adapter
from specbook.models.shared_trunk import sharing
from specbook.models.state import StateError, publish
from specbook.models.tiny import tiny_llama
from specbook.plotting import figure
from specbook.plotting.selfdraft import exits, surface

TEXT = [1, 2, 3, 4, 5]
PRICES = SkipCosts(F(4), F(1), F(3), ((1, F(16)), (5, F(18))), F(0))


@pytest.fixture(scope="module")
def form():
    return sharing(watching.tiny_target("llama", 4), 2)


@pytest.fixture(scope="module")
def rounds(form):
    adapter = Adapter.beginning_at(form, 4)
    return watching.kangaroo_rounds(form, adapter, TEXT, 4, most=3, threshold=0)


def tiny_double(vocab_size=3):
    sizes = {"hidden_size": 8, "num_heads": 2, "num_kv_heads": 1}
    return TransformersTarget(tiny_llama(vocab_size=vocab_size, **sizes).double())


# -------------------------------------------------------------------------- counted


@pytest.mark.parametrize("family", watching.FAMILIES)
def test_every_layer_runs_once_for_each_verified_row(family):
    rows, verified = watching.kangaroo_work(family, TEXT)
    assert rows == [verified] * 4


def test_kept_layers_run_again_where_nothing_is_shared():
    rows, verified, drafted = watching.skipping_work("llama", "-xx-", TEXT)
    assert drafted and rows == [verified + drafted, verified, verified, rows[0]]


def test_hooks_are_gone_when_the_count_is_over(form):
    with watching.layer_rows(form) as rows:
        form.plain_logits(TEXT)
    before = list(rows)
    form.plain_logits(TEXT)
    assert rows == before == [len(TEXT)] * 4


def test_rounds_by_hand_say_what_plain_decoding_says(form, rounds):
    tokens = [t for r in rounds for t in (*r.tokens[: r.accepted], r.token)]
    plain = generate(form, TEXT, None, "greedy", max_new_tokens=len(tokens))
    assert tokens == plain.tokens
    assert all(r.behind == int(r.whole) for r in rounds)


def test_a_draft_that_ends_elsewhere_is_seen():
    def one(*sure):
        return watching.KangarooRound((1,) * len(sure), sure, 0, 1, 0)

    assert one(0.9, 0.5).ends_as_it_should(0.6, 6)
    assert one(0.9, 0.6).ends_as_it_should(0.6, 2)
    assert not one(0.9, 0.9).ends_as_it_should(0.6, 6)
    assert not one(0.5, 0.9).ends_as_it_should(0.6, 2)
    assert not one().ends_as_it_should(0.6, 2)


def test_confidence_is_judged_up_to_the_first_refusal():
    made = watching.KangarooRound((1, 2, 3), (0.9, 0.9, 0.2), 1, 5, 0)
    assert watching.judged([made], 0.6) == {False: 0.5, True: 0.0}


# ------------------------------------------------------------------------- compared


@pytest.mark.parametrize("family", watching.FAMILIES)
def test_a_path_that_skips_nothing_is_the_target(family):
    target = watching.tiny_target(family, 3)
    assert watching.two_rows(target, TEXT, "---").gap == 0
    assert watching.two_rows(target, TEXT, "-x-").gap > 0.1


def test_only_the_adapter_is_reached_by_gradients():
    moved, still = watching.learning_tensors()
    assert moved == [True] * 4 and still and not any(still)


def test_every_vector_is_worth_something_else_than_its_count():
    worths = every_vector(
        fading_target((0.6, 0.1)), [[1, 2, 3]], PRICES, most=3, max_new_tokens=8
    )
    by_name = {str(w.vector): w for w in worths}
    assert len(by_name) == 16 and by_name["--"].share == 1
    assert by_name["--"].time == F(27, 32)  # 3 (4 + 2 (1 + 3)) + 18, for 4 tokens of 16
    assert len({w.time for w in worths if w.vector.skipped == 1}) > 1
    with pytest.raises(SpecbookError):
        every_vector(fading_target((1,) * 6), [[1]], PRICES, most=1, max_new_tokens=4)


def test_a_stream_moves_the_threshold_round_by_round():
    exact = {"start": F(4, 5), "target": F(9, 10), "epsilon": F(1, 100)}
    policy = ThresholdPolicy(**exact, beta1=F(1, 2), beta2=F(9, 10))
    stream = [(1, 4), (0, 2)]
    assert watching.thresholds(policy, stream, 8) == [F(801, 1000), F(802, 1000)]


def test_the_threshold_is_read_after_each_round_with_a_draft():
    target, source = watching.tiny_target("llama", 3), DraftVerify("-x-", most=3)
    found = watching.threshold_rounds(target, source, TEXT, 8)
    assert found and all(1 <= r.drafted <= 3 >= r.accepted for r in found)
    assert "start" not in vars(source)


# ------------------------------------------------------------------- planted faults


def test_published_rows_of_a_skipped_path_move_the_law():
    target = tiny_double()
    plain, _ = decoded_law(target, [0, 1], None, "membership", 3)
    off = []
    for kind in (DraftVerify, watching.PublishesSkippedRows):
        source = kind("m-", most=1, policy=FULL_DRAFTS)
        found, _ = decoded_law(target, [0, 1], source, "single", 3)
        off.append(float(distance(found, plain)))
    assert off[0] < 1e-12 and off[1] > 1e-3


def test_published_rows_bend_the_text_of_the_lean_forward():
    target = fading_target((0.6, 0.4, 0.4))
    plain, honest, faulty = (
        generate(target, TEXT, source, "greedy", max_new_tokens=32).tokens
        for source in (
            None,
            DraftVerify("mm-", most=4, policy=FULL_DRAFTS),
            watching.PublishesSkippedRows("mm-", most=4, policy=FULL_DRAFTS),
        )
    )
    assert plain == honest != faulty


def test_the_last_feed_forward_network_has_no_keys_to_spoil():
    """The fault is in keys and values: a vector that changes none does no harm."""
    target = tiny_double()
    plain, _ = decoded_law(target, [0, 1], None, "membership", 3)
    source = watching.PublishesSkippedRows("-m", most=1, policy=FULL_DRAFTS)
    found, _ = decoded_law(target, [0, 1], source, "single", 3)
    assert float(distance(found, plain)) < 1e-12


def test_the_publishing_drafter_needs_every_attention():
    with pytest.raises(SpecbookError, match="keep all attentions"):
        watching.PublishesSkippedRows("-x")


def test_publish_refuses_what_the_faulty_drafter_publishes():
    tag = watching.two_rows(watching.tiny_target("llama", 3), TEXT, "-m-").tag
    with pytest.raises(StateError, match=r"left out 1\.mlp"):
        publish([tag], [tag.key])


def test_rows_that_are_taken_by_their_token_alone_are_wrong(form):
    assert max(watching.chain_gaps(form, TEXT, [9, 9, 9])) < 1e-5
    with watching.reuse_by_token_alone():
        assert max(watching.chain_gaps(form, TEXT, [9, 9, 9])) > 1e-2
    assert max(watching.chain_gaps(form, TEXT, [9, 9, 9])) < 1e-5


# --------------------------------------------------------------------------- figures


def test_the_surface_is_drawn_with_its_best_ringed():
    points = [(0, 1.1, 1.0), (2, 0.8, 0.7), (4, F(3, 2), 0)]
    fig = surface(points, 1)
    ring = fig.axes[0].lines[-1]
    assert (ring.get_xdata()[0], ring.get_ydata()[0]) == (2, 0.8)
    assert np.allclose(fig.axes[0].collections[0].get_array(), [1, 0.7, 0])
    figure(fig, "three dots", "the middle is best")
    for bad in ([], [(0, 1)], [(0, 1, 2)]):
        with pytest.raises(SpecbookError):
            surface(bad, 0)
    with pytest.raises(SpecbookError):
        surface(points, 3)


def test_an_exit_is_drawn_where_confidence_fell_short():
    rounds = [
        watching.KangarooRound((1, 2), (0.9, 0.3), 1, 5, 0),
        watching.KangarooRound((1, 2), (0.9, 0.9), 2, 5, 1),
    ]
    fig = exits(rounds, 0.6, 2)
    bars = [line for line in fig.axes[0].lines if len(line.get_xdata()) == 2]
    assert [bar.get_xdata()[0] for bar in bars] == [2.4]
    figure(fig, "two rounds", "one ended early")
    with pytest.raises(SpecbookError):
        exits([], 0.6, 2)
