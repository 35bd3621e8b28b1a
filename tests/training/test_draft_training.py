"""The training loop: order, masks, and a run that was interrupted."""

import dataclasses
import json
from fractions import Fraction
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as budget
from hypothesis import strategies as st

from specbook.errors import ArtifactError, SpecbookError
from specbook.models.tiny import tiny_llama
from specbook.training import draft
from specbook.training.decoding import TaughtSequence, continue_all
from specbook.training.settings import Recipe, Settings

SETTINGS = Settings(
    steps=6,
    rows_per_step=24,
    checkpoint_every=2,
    warm_up=2,
    seed=3,
    dtype="float32",
    others=20,
)


@pytest.fixture(scope="module")
def sequences():
    generator = torch.Generator().manual_seed(0)
    prompts = torch.randint(0, 64, (9, 4), generator=generator).tolist()
    return continue_all(
        tiny_llama(0),
        [prompt[: 2 + i % 3] for i, prompt in enumerate(prompts)],
        temperatures=[1.0] * 9,
        max_new_tokens=8,
        top_k=4,
        eos_token_id=None,
        generator=generator,
        first_rows=[i % 2 for i in range(9)],
    )


def student():
    return tiny_llama(5, hidden_size=16, tied=True)


def run(sequences, model, settings=SETTINGS, **options):
    return draft.train(model, sequences, settings, data_key="data", **options)


def weights(model):
    return [p.detach().clone() for p in model.parameters()]


def equal(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_interrupted_run_ends_with_the_same_bits(sequences, tmp_path, dtype):
    settings = dataclasses.replace(SETTINGS, dtype=dtype)
    whole = student()
    curve = run(sequences, whole, settings)
    assert [entry["step"] for entry in curve] == [2, 4, 6]
    path = tmp_path / "checkpoint.safetensors"
    first = student()
    run(sequences, first, settings, checkpoint=path, stop_after=3)
    assert not equal(weights(whole), weights(first))
    second = student()
    told = []
    resumed = run(
        sequences, second, settings, checkpoint=path, resume=True, progress=told.append
    )
    assert equal(weights(whole), weights(second))
    assert [entry["step"] for entry in resumed] == [2, 3, 4, 6]
    assert told[0] == "resumed at step 3 of 6" and "rows a second" in told[-1]


def test_moments_that_are_lost_would_be_seen(sequences, tmp_path, monkeypatch):
    """The planted fault: a checkpoint without the optimizer's moments."""
    whole = student()
    run(sequences, whole)
    path = tmp_path / "checkpoint.safetensors"
    run(sequences, student(), checkpoint=path, stop_after=3)
    real = draft.resuming.load

    def forgetful(path, model, optimizer, **bound):
        found = real(path, model, optimizer, **bound)
        optimizer.state.clear()
        return found

    monkeypatch.setattr(draft.resuming, "load", forgetful)
    second = student()
    run(sequences, second, checkpoint=path, resume=True)
    assert not equal(weights(whole), weights(second))


def test_a_finished_run_that_is_resumed_does_nothing(sequences, tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    whole, again = student(), student()
    curve = run(sequences, whole, checkpoint=path)
    assert run(sequences, again, checkpoint=path, resume=True) == curve
    assert equal(weights(whole), weights(again))


def test_a_checkpoint_is_not_run_over_nor_mixed_up(sequences, tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    run(sequences, student(), checkpoint=path, stop_after=2)
    with pytest.raises(SpecbookError, match="earlier run"):
        run(sequences, student(), checkpoint=path)
    other = dataclasses.replace(SETTINGS, seed=4)
    with pytest.raises(ArtifactError, match="other settings or other data"):
        run(sequences, student(), other, checkpoint=path, resume=True)
    with pytest.raises(ArtifactError, match="other settings or other data"):
        draft.train(
            student(), sequences, SETTINGS, data_key="x", checkpoint=path, resume=True
        )
    with pytest.raises(ArtifactError, match="other tensors"):
        run(
            sequences,
            tiny_llama(5, hidden_size=16, tied=True, num_layers=1),
            checkpoint=path,
            resume=True,
        )
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ArtifactError, match="cannot be read"):
        run(sequences, student(), checkpoint=path, resume=True)


def test_every_changed_byte_of_a_checkpoint_is_refused(sequences, tmp_path):
    """Weights and moments too: what goes on from a flipped bit ends elsewhere."""
    path = tmp_path / "run.safetensors"
    run(sequences, student(), checkpoint=path, stop_after=2)
    data = path.read_bytes()
    header = 8 + int.from_bytes(data[:8], "little")
    model = student()
    before = [parameter.clone() for parameter in model.parameters()]
    for place in [*range(0, header, 23), *range(header, len(data), len(data) // 50)]:
        for bit in (1, 64):
            damaged = bytearray(data)
            damaged[place] ^= bit
            path.write_bytes(damaged)
            with pytest.raises(ArtifactError, match=r"run\.safetensors"):
                run(sequences, model, checkpoint=path, resume=True)
    for damaged in (data[:-1], data[: len(data) // 2], b"", data + b"\0"):
        path.write_bytes(damaged)
        with pytest.raises(ArtifactError, match=r"run\.safetensors"):
            run(sequences, model, checkpoint=path, resume=True)
    for parameter, same in zip(model.parameters(), before, strict=True):
        assert torch.equal(parameter, same), "a refused checkpoint changes nothing"


def test_a_checkpoint_that_breaks_off_leaves_the_last_one(
    sequences, tmp_path, monkeypatch
):
    path = tmp_path / "checkpoint.safetensors"
    run(sequences, student(), checkpoint=path, stop_after=2)
    before = path.read_bytes()

    def fails(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(draft.shards.os, "fsync", fails)
    with pytest.raises(ArtifactError, match=r"cannot be written: .*No space"):
        run(sequences, student(), checkpoint=path, resume=True)
    assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 1


def test_training_lowers_the_loss(sequences):
    settings = dataclasses.replace(
        SETTINGS, steps=60, checkpoint_every=20, learning_rate=0.02
    )
    curve = run(sequences, student(), settings)
    assert curve[-1]["loss"] < 0.7 * curve[0]["loss"]


def test_validation_numbers_go_into_the_curve(sequences):
    seen = []

    def validate(model):
        seen.append(model.training)
        return {"chat": 0.5}

    curve = run(sequences, student(), validate=validate)
    assert [entry["chat"] for entry in curve] == [0.5] * 3 and seen == [False] * 3


# ---- masks -----------------------------------------------------------------------


def changed(sequence, position):
    """Another token at `position`, the teacher's rows as they were."""
    tokens = sequence.tokens.copy()
    tokens[position] = (tokens[position] + 1) % 64
    return dataclasses.replace(sequence, tokens=tokens)


def test_padding_and_untaught_tokens_carry_no_loss(sequences):
    """A batch is worth what its sequences are worth one by one, weighed by rows."""
    model = student()
    batch = draft.collate(sequences[:4])
    assert (batch.ids.shape[1] > np.array([len(s.tokens) - 1 for s in sequences])).any()
    together = draft.batch_loss(model, batch, torch.float32)
    rows = [len(s.top_ids) for s in sequences[:4]]
    alone = [
        draft.batch_loss(model, draft.collate([s]), torch.float32)
        for s in sequences[:4]
    ]
    mean = sum(r * a.item() for r, a in zip(rows, alone, strict=True)) / sum(rows)
    assert float(together.detach()) == pytest.approx(mean, rel=1e-5)
    assert int(batch.taught.sum()) == sum(rows) == len(batch.top_ids)


def test_the_last_token_is_only_predicted(sequences):
    model = student()
    one = draft.batch_loss(model, draft.collate([sequences[0]]), torch.float32)
    last = changed(sequences[0], len(sequences[0].tokens) - 1)
    other = draft.batch_loss(model, draft.collate([last]), torch.float32)
    assert torch.equal(one, other)
    # A token that is read does matter.
    first = changed(sequences[0], 0)
    assert not torch.equal(
        one, draft.batch_loss(model, draft.collate([first]), torch.float32)
    )


def test_a_mask_shifted_by_one_would_be_seen(sequences):
    """The planted fault: rows taught one position too late."""
    model = student()
    batch = draft.collate([sequences[0]])
    shifted = dataclasses.replace(batch, taught=batch.taught.roll(1, dims=1))
    if shifted.taught.sum() == batch.taught.sum() and batch.taught.all():
        batch = draft.collate([sequences[1]])
        shifted = dataclasses.replace(batch, taught=batch.taught.roll(1, dims=1))
    right = draft.batch_loss(model, batch, torch.float32)
    wrong = draft.batch_loss(model, shifted, torch.float32)
    assert abs(float((right - wrong).detach())) > 1e-3


# ---- order -----------------------------------------------------------------------


@budget(deadline=None, max_examples=60, derandomize=True)
@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=60),
    st.integers(1, 200),
    st.integers(0, 3),
)
def test_an_epoch_holds_every_sequence_once_within_the_budget(lengths, most, epoch):
    order = draft.epoch_order(lengths, most, 0, epoch)
    assert sorted(i for batch in order for i in batch) == list(range(len(lengths)))
    for batch in order:
        padded = max(lengths[i] for i in batch) * len(batch)
        assert padded <= most or len(batch) == 1
    assert order == draft.epoch_order(lengths, most, 0, epoch)


def test_a_run_goes_on_where_it_was_in_any_epoch(sequences):
    lengths = [len(s.tokens) - 1 for s in sequences]
    first = draft.epoch_order(lengths, SETTINGS.rows_per_step, SETTINGS.seed, 0)
    count = 3 * len(first)
    whole = list(islice(draft._batches(sequences, SETTINGS, 0), count))
    assert len(first) > 1 and whole[-1][0] >= 2, "several batches, several epochs"
    for skip, (epoch, batch) in enumerate(whole):
        found, same = next(draft._batches(sequences, SETTINGS, skip))
        assert found == epoch
        assert torch.equal(same.ids, batch.ids)
        assert torch.equal(same.top_ids, batch.top_ids)


def test_epochs_and_seeds_differ():
    lengths = list(range(1, 60))
    orders = [
        draft.epoch_order(lengths, 100, seed, epoch)
        for seed in (0, 1)
        for epoch in (0, 1)
    ]
    assert len({str(order) for order in orders}) == 4


# ---- settings --------------------------------------------------------------------


def test_the_rate_warms_up_and_falls_to_a_tenth():
    settings = Settings(steps=100, warm_up=10)
    rates = [settings.rate(step) for step in range(101)]
    assert rates[:10] == sorted(rates[:10]) and max(rates) == rates[10] == 1.0
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[100] == pytest.approx(0.1)


@pytest.mark.parametrize(
    "changes",
    [
        {"steps": 0},
        {"steps": True},
        {"width": 1.5},
        {"layers": 0},
        {"layers": (0, 1)},
        {"heads": 0},
        {"kv_heads": True},
        {"others": 0},
        {"start": "none"},
        {"dtype": "float16"},
        {"learning_rate": float("nan")},
        {"learning_rate": -1},
        {"clip": 0},
        {"warm_up": -1},
        {"kv_heads": 4, "heads": 6},
        {"learning_rate": 10**400},
    ],
    ids=[f"case{i}" for i in range(16)],
)
def test_bad_settings_are_refused(changes):
    with pytest.raises(SpecbookError, match=next(iter(changes))):
        Settings(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"packages": "sympy"},
        {"packages": 5},
        {"packages": ["sympy", 1]},
        {"held_out": 2},
        {"held_out": "half"},
        {"held_out": float("nan")},
        {"top_k": 0},
        {"seed": -1},
        {"window_tokens": 1},
    ],
    ids=[f"case{i}" for i in range(9)],
)
def test_bad_recipes_are_refused(changes):
    with pytest.raises(SpecbookError, match=next(iter(changes))):
        Recipe(**changes)


def test_what_is_told_is_plain_json():
    """The key of a run and its manifest are JSON: whatever numbers were given."""
    settings = Settings(
        steps=np.int64(7), learning_rate=Fraction(1, 8), clip=np.float32(0.5)
    )
    plain = Settings(steps=7, learning_rate=0.125, clip=0.5)
    assert json.dumps(settings.described()) == json.dumps(plain.described())
    recipe = Recipe(seed=np.int64(3), packages=["rich"])
    assert recipe == Recipe(seed=3, packages=("rich",))
    assert json.loads(json.dumps(recipe.described()))["packages"] == ["rich"]


def test_nothing_to_train_on_and_a_head_of_its_own_are_refused(sequences):
    with pytest.raises(SpecbookError, match="nothing"):
        run([], student())
    with pytest.raises(SpecbookError, match="tied"):
        run(sequences, tiny_llama(5))


def test_a_loss_that_is_not_finite_stops_the_run(sequences):
    model = student()
    with torch.no_grad():
        model.model.norm.weight.fill_(float("nan"))
    with pytest.raises(SpecbookError, match="loss is nan at step 0"):
        run(sequences, model)


def test_a_gradient_that_is_not_finite_stops_the_run_before_its_step(sequences):
    """Its loss may be a number: then the weights would not, nor the checkpoint's."""
    model = student()
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    model.model.norm.weight.register_hook(lambda grad: grad * float("nan"))
    with pytest.raises(SpecbookError, match="norm of the gradient is nan at step 0"):
        run(sequences, model)
    for name, weight in model.named_parameters():
        assert torch.equal(weight, before[name])


def test_a_sequence_is_what_it_says(sequences):
    assert isinstance(sequences[0], TaughtSequence)
    assert {s.first_row for s in sequences} == {0, 1}
