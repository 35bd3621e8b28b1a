"""The training loop of draft heads: rows, losses, resuming, and several processes."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as budget
from hypothesis import strategies as st

from specbook.errors import ArtifactError, SpecbookError, TargetError
from specbook.models.heads import KINDS, build
from specbook.models.tiny import tiny_llama
from specbook.training import draft, stepping, together
from specbook.training import heads as loop
from specbook.training.decoding import TaughtSequence, continue_all
from specbook.training.rows import hydra_teacher_rows
from specbook.training.settings import HeadsSettings

from .launched import in_two_processes

WIDTH, HEADS = 32, 3
SETTINGS = HeadsSettings(
    "hydra", heads=HEADS, steps=6, rows_per_step=40, checkpoint_every=2, warm_up=2,
    learning_rate=5e-3, seed=3, dtype="float32", others=1000,
)  # fmt: skip
CUT = torch.arange(0, 64, 3)


def settings_of(kind, **changes):
    return dataclasses.replace(SETTINGS, kind=kind, **changes)


def taught(count=9, new_tokens=8):
    generator = torch.Generator().manual_seed(0)
    prompts = torch.randint(0, 64, (count, 4), generator=generator).tolist()
    return continue_all(
        tiny_llama(0),
        [prompt[: 2 + i % 3] for i, prompt in enumerate(prompts)],
        temperatures=[1.0] * count,
        max_new_tokens=new_tokens,
        top_k=4,
        eos_token_id=None,
        generator=generator,
        first_rows=[i % 2 for i in range(count)],
    )


@pytest.fixture(scope="module")
def sequences():
    return taught()


def teacher(vocabulary=None):
    return loop.Teacher(tiny_llama(0).requires_grad_(False), vocabulary)


def untrained(settings=SETTINGS):
    return build(settings.config(WIDTH), 1)


def shaken(settings):
    """Heads of which no part is the identity, so that everything they read counts."""
    heads = untrained(settings)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in heads.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return heads


def run(sequences, heads, settings=SETTINGS, frozen=None, **options):
    frozen = frozen or teacher()
    options = {"data_key": "data", **options}
    return loop.train(heads, frozen, sequences, settings, **options)


def weights(heads):
    return [p.detach().clone() for p in heads.parameters()]


def equal(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


# ---- rows ------------------------------------------------------------------------


def made_up(length, first_row):
    """A sequence whose tokens and laws say where they stand."""
    rows = max(length - 1 - first_row, 0)
    ids = np.arange(first_row + 1, first_row + 1 + rows)[:, None]
    return TaughtSequence(
        np.arange(length), first_row, 1, ids, np.zeros((rows, 1), dtype=np.float32)
    )


@budget(deadline=None, max_examples=80, derandomize=True)
@given(
    st.lists(st.tuples(st.integers(1, 7), st.integers(0, 6)), min_size=1, max_size=5),
    st.integers(1, 4),
)
def test_rows_are_those_of_the_boundary_rule_that_have_a_law(shapes, heads):
    given_rows = [made_up(n, min(first, n - 1)) for n, first in shapes]
    stream = loop.pack(given_rows)
    mask = loop.row_mask(stream, heads)
    n = len(stream.tokens)
    wanted = [
        (int(conditioning[1]), head)
        for head, conditioning, label in hydra_teacher_rows(
            list(range(n)),
            [[j] for j in range(n)],
            heads,
            segment_ids=stream.segments.tolist(),
            valid=[True] * n,
            embed=lambda token: [token],
        )
        if int(stream.tokens[label]) > given_rows[stream.segments[label]].first_row
    ]
    found = [(t, i + 1) for t, i in mask.nonzero().tolist()]
    assert sorted(found) == sorted(wanted)
    assert loop.count_rows(given_rows, heads) == mask.sum(0).tolist()
    # Each law stands at the token that it is the law of.
    for place in (stream.law >= 0).nonzero()[:, 0].tolist():
        law = stream.law[place]
        assert int(stream.top_ids[law, 0]) == int(stream.tokens[place])


# ---- losses ----------------------------------------------------------------------


def plain_loss(heads, frozen, sequences, settings):
    """The loss row by row: plain forwards of single sequences, whole softmaxes."""
    count = heads.config.heads
    sums, rows = [0.0] * count, [0] * count
    embed = frozen.model.get_input_embeddings().weight
    head = frozen.head()
    kept_ids = range(64) if frozen.vocabulary is None else frozen.vocabulary.tolist()
    place = {token: i for i, token in enumerate(kept_ids)}
    for s in sequences:
        tokens = torch.from_numpy(s.tokens)
        hidden = frozen.model.model(input_ids=tokens[None]).last_hidden_state[0]
        base = heads.base(hidden)
        for t in range(1, len(tokens)):
            state = heads.start(base[t - 1 : t], embed[tokens[t]][None])
            for i in range(1, count + 1):
                if t + i >= len(tokens):
                    break
                if i > 1:
                    token = embed[tokens[t + i - 1]][None]
                    state = heads.step(state, torch.tensor([0]), token)
                row = t + i - 1 - s.first_row
                if row < 0:
                    continue
                q = torch.softmax(heads.features(state)[0] @ head.T, -1)
                law = zip(s.top_ids[row], np.exp(s.top_logps[row]), strict=True)
                if settings.loss == "label":
                    law = [(s.tokens[t + i], 1.0)]
                cells = [(place[int(v)], float(p)) for v, p in law if int(v) in place]
                p_rest = max(0.0, 1 - sum(p for _, p in cells))
                other = torch.ones(len(q), dtype=torch.bool)
                other[[c for c, _ in cells]] = False
                q_rest = q[other].sum()
                sums[i - 1] += sum(p * (np.log(p) - q[c].log()) for c, p in cells)
                if p_rest > 1e-6 and cells:
                    sums[i - 1] += p_rest * (np.log(p_rest) - q_rest.log())
                rows[i - 1] += 1
    assert min(rows) > 0 and rows == loop.count_rows(sequences, count)
    return sum(settings.decay**i * sums[i] / rows[i] for i in range(count))


@pytest.mark.parametrize("cut", [False, True], ids=["whole", "cut"])
@pytest.mark.parametrize("loss", ["teacher", "label"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_is_that_of_single_rows(sequences, kind, loss, cut):
    settings = settings_of(kind, loss=loss, decay=0.8)
    frozen = teacher(CUT if cut else None)
    one, other = shaken(settings), shaken(settings)
    fast = loop.batch_loss(one, frozen, sequences[:4], settings)
    slow = plain_loss(other, frozen, sequences[:4], settings)
    # The rest is a difference of sums in float32.
    torch.testing.assert_close(fast, slow, rtol=3e-4, atol=1e-5)
    fast.backward()
    slow.backward()
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        assert (a.grad - b.grad).norm() <= 3e-3 * b.grad.norm() + 1e-5


FAULTS = {
    "one document for all": lambda patch: patch.setattr(
        loop,
        "segment_causal_states",
        lambda model, tokens, segments, real=loop.segment_causal_states: real(
            model, tokens, [0] * len(tokens)
        ),
    ),
    "tokens one late": lambda patch: patch.setattr(
        loop,
        "forced_tokens",
        lambda tokens, positions, heads, real=loop.forced_tokens: real(
            tokens, positions + 1, heads
        ),
    ),
    "the law of the token before": lambda patch: patch.setattr(
        loop,
        "_taught",
        lambda stream, labels, loss, real=loop._taught: real(
            stream, (labels - 1).clamp_min(2), loss
        ),
    ),
    "the cut tokens' mass is lost": lambda patch: patch.setattr(
        loop,
        "_groups",
        lambda columns, is_cut, real=loop._groups: [
            (kept, [(x, i, p - p.logsumexp(1, keepdim=True)) for x, i, p in group])
            for kept, group in real(columns, is_cut)
            if kept
        ],
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_move_the_loss(sequences, fault, monkeypatch):
    frozen, heads = teacher(CUT), shaken(SETTINGS)
    with torch.no_grad():
        right = plain_loss(heads, frozen, sequences[:4], SETTINGS)
        FAULTS[fault](monkeypatch)
        wrong = loop.batch_loss(heads, frozen, sequences[:4], SETTINGS)
    assert abs(float(wrong - right)) > 1e-2


def test_a_batch_in_parts_is_worth_what_it_is_whole(sequences):
    """What several processes do; heads have other rows in each part. The planted
    fault: the mean of the parts' own means."""
    whole, parts = shaken(SETTINGS), shaken(SETTINGS)
    batch = [*sequences[:3], SHORT]
    total = loop.count_rows(batch, HEADS)
    loss = loop.batch_loss(whole, teacher(), batch, SETTINGS)
    loss.backward()
    found = [
        loop.batch_loss(parts, teacher(), batch[i::2], SETTINGS, total=total)
        for i in range(2)
    ]
    sum(found).backward()
    torch.testing.assert_close(sum(found), loss, rtol=1e-5, atol=1e-6)
    for a, b in zip(whole.parameters(), parts.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-6)
    own = [
        loop.batch_loss(parts, teacher(), batch[i::2], SETTINGS).item()
        for i in range(2)
    ]
    assert abs(sum(own) / 2 - loss.item()) > 1e-2


# A sequence that has one row, of the first head.
SHORT = TaughtSequence(
    np.array([7, 5, 9]), 0, 1,
    np.array([[5, 6, 7, 8], [9, 8, 7, 6]]),
    np.log(np.array([[0.4, 0.3, 0.1, 0.1]] * 2, dtype=np.float32)),
)  # fmt: skip


@pytest.mark.parametrize("ids", [[3, 3, 5], [5, 3], [], [-1, 2], [2, 64], [1.0]])
def test_a_cut_vocabulary_is_of_ids_that_are_there_once(ids):
    kept = torch.tensor(ids, dtype=None if ids else torch.int64)
    with pytest.raises(SpecbookError, match="ascending and none twice"):
        loop.Teacher(teacher().model, kept)
    loop.Teacher(teacher().model, torch.tensor([0, 3, 63]))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"kind": "medusa"}, "the settings are of"),
        ({"heads": HEADS + 1}, "the settings are of"),
        ({"data_key": 3}, "data_key"),
        ({"stop_after": -1}, "stop_after"),
    ],
)
def test_heads_that_are_not_those_of_the_settings_are_not_trained(
    sequences, changes, told
):
    heads = build(SETTINGS.config(WIDTH), 0)
    told_by = {n: changes[n] for n in changes if n in ("kind", "heads")}
    options = {"data_key": "k", **{n: changes[n] for n in changes if n not in told_by}}
    with pytest.raises(SpecbookError, match=told):
        loop.train(
            heads,
            teacher(),
            sequences,
            dataclasses.replace(SETTINGS, **told_by),
            **options,
        )


def test_what_is_no_batch_is_refused(sequences):
    heads = build(SETTINGS.config(WIDTH), 0)
    torn = dataclasses.replace(sequences[0], top_ids=sequences[0].top_ids[:-1])
    for batch, told in (
        ([], "nothing to pack"),
        (None, "sequences must be"),
        ([3], r"sequences\[0\] is no TaughtSequence"),
        ([torn], r"sequences\[0\] has \d+ tokens and \d+ laws"),
    ):
        with pytest.raises(SpecbookError, match=told):
            loop.batch_loss(heads, teacher(), batch, SETTINGS)
    with pytest.raises(SpecbookError, match="total has 1 numbers"):
        loop.batch_loss(heads, teacher(), sequences, SETTINGS, total=[1])
    for place, told in enumerate(("heads must be", "teacher must", "settings must")):
        parts = [heads, teacher(), sequences, SETTINGS]
        parts[(0, 1, 3)[place]] = None
        with pytest.raises(SpecbookError, match=told):
            loop.batch_loss(*parts)
    with pytest.raises(TargetError, match="a transformers model is needed"):
        loop.Teacher(None)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        # Its first label would have the stream's last token for a row.
        ({"first_row": -1}, "first_row must be at least 0"),
        ({"first_row": None}, "first_row must be an integer"),
        ({"prompt_length": None}, "prompt_length must be an integer"),
        ({"tokens": np.arange(5.0)}, "tokens must be an array"),
        ({"tokens": [0, 1, 2, 3, 4]}, "tokens must be an array"),
        ({"tokens": np.arange(5) - 1}, "tokens has the negative id -1"),
        ({"top_ids": np.zeros((4, 2))}, "top_ids must be an array"),
        ({"top_logps": np.zeros((4, 1))}, "laws of"),
        ({"top_logps": None}, "top_logps must be an array"),
    ],
    ids=[f"case{i}" for i in range(9)],
)
def test_a_taught_sequence_of_other_columns_is_refused(changes, told):
    laws = 5 if changes.get("first_row") == -1 else 4  # so that the counts agree
    columns = {
        "tokens": np.arange(5),
        "first_row": 0,
        "prompt_length": 1,
        "top_ids": np.zeros((laws, 2), dtype=np.int64),
        "top_logps": np.full((laws, 2), -1.0, dtype=np.float32),
    }
    with pytest.raises(SpecbookError, match=told):
        loop.pack([TaughtSequence(**{**columns, **changes})])


def test_a_stream_without_rows_has_a_loss_of_zero():
    heads = untrained()
    loss = loop.batch_loss(heads, teacher(), [made_up(2, 0)], SETTINGS)
    loss.backward()
    assert loss.item() == 0
    with pytest.raises(SpecbookError, match="nothing to train on"):
        run([made_up(2, 0)], heads)


# ---- the loop --------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_training_lowers_the_loss_and_leaves_the_target_alone(sequences, kind):
    settings = settings_of(kind, steps=30, checkpoint_every=10)
    frozen = teacher()
    before = [p.clone() for p in frozen.model.parameters()]
    heads = untrained(settings)
    curve = run(sequences, heads, settings, frozen)
    assert curve[-1]["loss"] < 0.95 * curve[0]["loss"]
    assert equal(before, frozen.model.parameters())
    assert all(p.grad is None for p in frozen.model.parameters())


@pytest.mark.parametrize(
    "changes", [{}, {"dtype": "bfloat16", "others": 20}, {"self_share": 0.5}]
)
def test_an_interrupted_run_ends_with_the_same_bits(sequences, tmp_path, changes):
    settings = settings_of("hydra_plus", **changes)
    whole, again = untrained(settings), untrained(settings)
    curve = run(sequences, whole, settings)
    assert run(sequences, again, settings) == curve and [e["step"] for e in curve] == [
        2, 4, 6
    ]  # fmt: skip
    assert equal(weights(whole), weights(again))
    path = tmp_path / "checkpoint.safetensors"
    first, second = untrained(settings), untrained(settings)
    run(sequences, first, settings, checkpoint=path, stop_after=3)
    assert not equal(weights(whole), weights(first))
    told = []
    options = {"checkpoint": path, "resume": True, "progress": told.append}
    resumed = run(sequences, second, settings, **options)
    assert equal(weights(whole), weights(second))
    assert [entry["step"] for entry in resumed] == [2, 3, 4, 6]
    assert told[0] == "resumed at step 3 of 6" and "minutes left" in told[-1]


@pytest.mark.parametrize("fault", ["moments", "order"])
def test_what_a_resumed_run_forgets_would_be_seen(
    sequences, tmp_path, monkeypatch, fault
):
    """The planted faults: moments that are lost, and batches from the first again."""
    whole, second = untrained(), untrained()
    run(sequences, whole)
    path = tmp_path / "checkpoint.safetensors"
    run(sequences, untrained(), checkpoint=path, stop_after=3)
    if fault == "moments":
        real = loop.resuming.load

        def forgetful(path, model, optimizer, **bound):
            found = real(path, model, optimizer, **bound)
            optimizer.state.clear()
            return found

        monkeypatch.setattr(loop.resuming, "load", forgetful)
    else:
        order = draft.batch_order
        monkeypatch.setattr(draft, "batch_order", lambda *a: order(*a[:3]))
    run(sequences, second, checkpoint=path, resume=True)
    assert not equal(weights(whole), weights(second))


def test_a_checkpoint_is_not_run_over_nor_mixed_up(sequences, tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    run(sequences, untrained(), checkpoint=path, stop_after=2)
    with pytest.raises(SpecbookError, match="earlier run"):
        run(sequences, untrained(), checkpoint=path)
    options = {"checkpoint": path, "resume": True}
    other = dataclasses.replace(SETTINGS, loss="label")
    for changes in (
        {"settings": other},
        {"data_key": "x"},
        {"frozen": teacher(CUT)},
    ):
        with pytest.raises(ArtifactError, match="other settings or other data"):
            run(sequences, untrained(), **{**options, **changes})
    wider = build(dataclasses.replace(SETTINGS.config(WIDTH), bent=5), 1)
    before = weights(wider)
    with pytest.raises(ArtifactError, match="other tensors"):
        run(sequences, wider, **options)
    assert equal(weights(wider), before)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ArtifactError, match="cannot be read"):
        run(sequences, untrained(), **options)


def test_a_loss_that_is_not_finite_stops_the_run(sequences):
    heads = untrained()
    with torch.no_grad():
        next(heads.parameters()).fill_(float("nan"))
    with pytest.raises(SpecbookError, match="loss is nan at step 0"):
        run(sequences, heads)


def test_validation_numbers_go_into_the_curve(sequences):
    modes = []

    def validate(heads):
        modes.append(heads.training)
        return {"chat@1": 0.5}

    heads = untrained()
    curve = run(sequences, heads, validate=validate)
    assert [entry["chat@1"] for entry in curve] == [0.5] * 3
    assert modes == [False] * 3 and not heads.training


def test_the_rate_of_each_step_is_that_of_the_settings(sequences):
    """AdamW's first step is as long as its rate, whatever the gradient: after a warm-up
    of two steps begins with a third of it."""
    moved = []
    for warm_up in (0, 2):
        settings = settings_of("hydra", warm_up=warm_up, weight_decay=0.0)
        heads = untrained(settings)
        before = weights(heads)
        run(sequences, heads, settings, stop_after=1)
        pairs = zip(weights(heads), before, strict=True)
        moved.append(torch.cat([(a - b).flatten() for a, b in pairs]))
    longest = [float(m.abs().max()) for m in moved]
    assert longest == pytest.approx([5e-3, 5e-3 / 3], rel=1e-3)


@pytest.mark.parametrize(("size", "norm"), [(100.0, 0.5), (0.01, 0.02)])
def test_a_step_is_taken_with_gradients_that_were_clipped(size, norm):
    """Four entries of `size` have twice the norm; at most 0.5 is let through."""
    model = torch.nn.Linear(2, 2, bias=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    seen = []
    optimizer.register_step_pre_hook(
        lambda *_: seen.append(float(model.weight.grad.norm()))
    )

    def learn(step, batch):
        model.weight.grad = torch.full((2, 2), size)
        return 1.0, 1

    settings = settings_of("hydra", clip=0.5, steps=2)
    stepping.take(
        model,
        optimizer,
        settings,
        lambda begin: iter([(0, None)] * 2),
        learn,
        stepping.Checkpoint("form", "key"),
    )
    assert seen == pytest.approx([norm] * 2, rel=1e-4)


# ---- several processes -----------------------------------------------------------

SCRIPT = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from training import test_heads_training as here
from specbook.models.heads import storage
heads = here.untrained()
curve = here.run(here.taught(4), heads, checkpoint=Path(sys.argv[2], "run"))
world = here.loop.processes()
told = {"curve": curve, "processes": world.num_processes, "digest":
    storage.digest(heads), "first": heads.networks[0].mix.linear.weight.tolist(),
    "gradient": here.gradient(world)}
Path(sys.argv[2], f"{world.process_index}.json").write_text(json.dumps(told))
"""


def gradient(world):
    """Of head 1 over one batch: AdamW hides a wrong scale of all gradients."""
    heads = untrained()
    whole = taught(4)
    loss, total = (
        loop.loss_of(heads, teacher(), SETTINGS),
        loop.count_rows(whole, HEADS),
    )
    together.backward(heads, loss, whole, total, SETTINGS.seed, 0, world)
    return heads.networks[0].mix.linear.weight.grad.tolist()


def test_two_processes_learn_what_one_learns(tmp_path):
    """Batches of three sequences and of one, which leaves a process without any. The
    tolerance is that of sums rounded in another order."""
    alone = untrained()
    curve = run(taught(4), alone)
    found = in_two_processes(SCRIPT, tmp_path)
    assert found[0]["digest"] == found[1]["digest"]
    for mine, theirs in zip(curve, found[0]["curve"], strict=True):
        assert theirs == pytest.approx(mine, rel=1e-5)
    first = alone.networks[0].mix.linear.weight
    torch.testing.assert_close(
        torch.tensor(found[0]["first"]), first.detach(), rtol=1e-3, atol=1e-5
    )
    whole = torch.tensor(gradient(loop.processes()))
    torch.testing.assert_close(torch.tensor(found[1]["gradient"]), whole)


# ---- settings --------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "eagle"},
        {"heads": 0},
        {"layers": 0},
        {"loss": "hard"},
        {"decay": -1},
        {"decay": 1e200},
        {"self_share": 1.1},
        {"self_share": 0.1, "loss": "label"},
        {"vocabulary": 0},
        {"vocabulary": True},
        {"steps": 0},
        {"rows_per_step": 1.5},
        {"learning_rate": float("nan")},
        {"clip": 0},
        {"seed": -1},
        {"seed": 2**64},
        {"dtype": "float16"},
        {"stored": "float32"},
        {"others": 0},
    ],
    ids=[f"case{i}" for i in range(19)],
)
def test_bad_settings_are_refused(changes):
    with pytest.raises(SpecbookError, match=next(iter(changes))):
        HeadsSettings(**{"kind": "hydra", **changes})


def test_settings_are_plain_json_and_make_a_config():
    settings = HeadsSettings("hydra", heads=np.int64(3), layers=np.int64(2))
    plain = HeadsSettings("hydra", heads=3, layers=2)
    assert json.dumps(settings.described()) == json.dumps(plain.described())
    assert settings.config(12).layers == 2
    assert HeadsSettings("hydra_plus").config(64).layers == 4
