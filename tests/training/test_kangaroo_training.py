"""The training of Kangaroo's adapter: rows, loss, gradients, resuming, agreement."""

import dataclasses
import json
import os

import numpy as np
import pytest
import torch

from specbook.errors import ArtifactError, SpecbookError
from specbook.models.kangaroo import Adapter, KangarooDraft, draft_greedily
from specbook.models.shared_trunk import SharedTrunkTarget
from specbook.models.target import UnsupportedTargetError
from specbook.models.tiny import tiny_model
from specbook.training import kangaroo as loop
from specbook.training import kangaroo_agreement as agreement
from specbook.training import kangaroo_start, packed, states, together
from specbook.training.decoding import TaughtSequence
from specbook.training.heads import Teacher
from specbook.training.settings import KangarooSettings

from .launched import in_two_processes

FAMILIES = ["llama", "qwen2", "qwen3", "gpt2"]
LAYERS, BOUNDARY, K = 3, 1, 4
SETTINGS = KangarooSettings(
    BOUNDARY, attention_heads=4, steps=6, rows_per_step=40, checkpoint_every=2,
    warm_up=2, learning_rate=5e-3, seed=3, dtype="float32", others=1000,
)  # fmt: skip
CUT = torch.arange(0, 64, 3)


def settings_of(**changes):
    return dataclasses.replace(SETTINGS, **changes)


def model_of(family="llama"):
    name = "n_layer" if family == "gpt2" else "num_hidden_layers"
    return tiny_model(family, seed=1, **{name: LAYERS}).requires_grad_(False)


def trunk_of(model=None, vocabulary=None, boundary=BOUNDARY):
    model = model_of() if model is None else model
    return loop.Trunk(Teacher(model, vocabulary), boundary)


@torch.inference_mode()
def taught(model, count=9, new_tokens=8, seed=0, greedy=False):
    """Prompts and what the model says behind them, with its laws: by plain forwards."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for number in range(count):
        prompt = 2 + number % 3
        tokens = torch.randint(0, 64, (prompt,), generator=generator).tolist()
        for _ in range(new_tokens):
            law = torch.softmax(model(torch.tensor([tokens])).logits[0, -1], -1)
            token = law.argmax() if greedy else law.multinomial(1, generator=generator)
            tokens.append(int(token))
        laws = torch.log_softmax(model(torch.tensor([tokens])).logits[0], -1)
        first = number % 2
        top = laws[first:-1].topk(4, -1)
        found.append(
            TaughtSequence(
                np.array(tokens),
                first,
                prompt,
                top.indices.numpy(),
                top.values.numpy(),
            )
        )
    return found


@pytest.fixture(scope="module")
def sequences():
    return taught(model_of())


def shaken(trunk, seed=2):
    """An adapter of which no part is the identity, so that all that it reads counts."""
    adapter = loop.untrained(trunk, SETTINGS)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in adapter.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    return adapter


def run(sequences, adapter, settings=SETTINGS, trunk=None, **options):
    options = {"data_key": "data", **options}
    return loop.train(adapter, trunk or trunk_of(), sequences, settings, **options)


def weights(module):
    return [p.detach().clone() for p in module.parameters()]


def equal(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


# ---- the loss ----------------------------------------------------------------------


def plain_loss(adapter, trunk, sequences, settings):
    """Row by row: plain forwards of single texts, whole laws, the others in the
    student's own proportions."""
    frozen, heat = trunk.teacher, settings.temperature
    ids = range(64) if frozen.vocabulary is None else frozen.vocabulary.tolist()
    place = {token: i for i, token in enumerate(ids)}
    total, rows = 0.0, 0
    for s in sequences:
        with torch.no_grad():
            seen = frozen.model(
                torch.from_numpy(s.tokens)[None], output_hidden_states=True
            )
        said = adapter(seen.hidden_states[trunk.boundary][0])
        for row in range(len(s.top_ids)):
            rows += 1
            logits = said[s.first_row + row] @ frozen.head().T
            q = torch.softmax(logits, -1).detach()
            law = torch.zeros(len(place))
            for token, logp in zip(s.top_ids[row], s.top_logps[row], strict=True):
                if int(token) in place:
                    law[place[int(token)]] = float(np.exp(logp))
            if not bool(law.any()):
                continue
            others = law == 0
            law[others] = (1 - law.sum()) * q[others] / q[others].sum()
            hot = torch.softmax(law.log() / heat, -1)
            logs = torch.log_softmax(logits / heat, -1)
            total = total + heat**2 * (hot * (hot.log() - logs)).sum()
    return total / rows


@pytest.mark.parametrize("cut", [False, True], ids=["whole", "cut"])
@pytest.mark.parametrize("temperature", [1.0, 2.0])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_loss_is_that_of_single_rows(family, temperature, cut):
    trunk = trunk_of(model_of(family), CUT if cut else None)
    batch = taught(trunk.teacher.model, 4)
    settings = settings_of(temperature=temperature)
    one, other = shaken(trunk), shaken(trunk)
    fast = loop.batch_loss(one, trunk, batch, settings)
    slow = plain_loss(other, trunk, batch, settings)
    # The rest is a difference of sums in float32.
    torch.testing.assert_close(fast, slow, rtol=1e-3, atol=1e-4)
    fast.backward()
    slow.backward()
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        assert (a.grad - b.grad).norm() <= 3e-3 * b.grad.norm() + 1e-5


def replaced(module, name, changed):
    return lambda patch: patch.setattr(module, name, changed(getattr(module, name)))


def law_one_late(real):
    def shifted(sequences):
        stream = real(sequences)
        law = torch.where(stream.law > 0, stream.law - 1, stream.law)
        return dataclasses.replace(stream, law=law)

    return shifted


FAULTS = {
    "the law of the token before": replaced(loop, "pack", law_one_late),
    "rows one early": replaced(
        loop,
        "stream_features",
        lambda real: lambda *a: real(*a).roll(1, 0),
    ),
    "one document for the layers": replaced(
        loop,
        "trunk_states",
        lambda real: lambda m, b, tokens, s: real(m, b, tokens, [0] * len(tokens)),
    ),
    "one document for the adapter": replaced(
        loop, "lengths_of", lambda real: lambda stream: [len(stream.tokens)]
    ),
    "positions of the stream": replaced(
        packed,
        "_runs",
        lambda real: lambda segments: (real(segments)[0], torch.arange(len(segments))),
    ),
    "one layer more": replaced(
        loop, "trunk_states", lambda real: lambda m, b, *rest: real(m, b + 1, *rest)
    ),
    "the temperature is forgotten": replaced(
        loop,
        "taught_losses",
        lambda real: lambda *a, temperature, **b: real(*a, **b),
    ),
    "its square is forgotten": replaced(
        loop,
        "taught_losses",
        lambda real: lambda *a, **b: (t / b["temperature"] ** 2 for t in real(*a, **b)),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_move_the_loss(fault, monkeypatch):
    """On GPT-2, whose positions are absolute: rotated ones would hide a fault."""
    trunk, settings = trunk_of(model_of("gpt2")), settings_of(temperature=2.0)
    batch, adapter = taught(trunk.teacher.model, 4), shaken(trunk)
    with torch.no_grad():
        right = plain_loss(adapter, trunk, batch, settings)
        found = loop.batch_loss(adapter, trunk, batch, settings)
        FAULTS[fault](monkeypatch)
        wrong = loop.batch_loss(adapter, trunk, batch, settings)
    assert abs(float(found - right)) < 1e-3 < 1e-2 < abs(float(wrong - right))


def test_a_batch_in_parts_is_worth_what_it_is_whole(sequences):
    """What several processes do. The planted fault: the mean of the parts' means."""
    trunk = trunk_of()
    whole, parts = shaken(trunk), shaken(trunk)
    batch = [*taught(trunk.teacher.model, 1, new_tokens=20, seed=4), *sequences[:2]]
    total = loop.count_rows(batch)
    loss = loop.batch_loss(whole, trunk, batch, SETTINGS)
    loss.backward()
    found = [
        loop.batch_loss(parts, trunk, batch[i::2], SETTINGS, total=total)
        for i in range(2)
    ]
    sum(found).backward()
    torch.testing.assert_close(sum(found), loss, rtol=1e-5, atol=1e-6)
    for a, b in zip(whole.parameters(), parts.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-5)
    own = [loop.batch_loss(parts, trunk, batch[i::2], SETTINGS) for i in range(2)]
    assert abs(sum(own).item() / 2 - loss.item()) > 1e-2
    with pytest.raises(SpecbookError, match="total has 2 numbers"):
        loop.batch_loss(parts, trunk, batch, SETTINGS, total=[1, 2])


def test_rows_may_be_stored_once(sequences, tmp_path):
    """The planted fault: the rows of another boundary under the same name."""
    trunk = trunk_of()
    model, adapter = trunk.teacher.model, shaken(trunk)
    documents = [s.tokens.tolist() for s in sequences]
    options = {"folder": tmp_path, "key": "weights"}
    kept = [states.store(model, documents, boundary=b, **options) for b in (1, 2, None)]
    assert len({one.sha256 for one in kept}) == 3 and len(os.listdir(tmp_path)) == 3
    with torch.no_grad():
        wanted = loop.batch_loss(adapter, trunk, sequences, SETTINGS)
        found, other, _ = [
            loop.batch_loss(
                adapter, dataclasses.replace(trunk, stored=one), sequences, SETTINGS
            )
            for one in kept
        ]
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    assert abs(float(other - wanted)) > 1e-2


# ---- the loop ----------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_training_teaches_the_adapter_alone_and_beats_an_untrained_one(family):
    """On rows that were held out. The planted fault, a rate of nothing, does not."""
    trunk = trunk_of(model_of(family))
    lessons = taught(trunk.teacher.model, 12, new_tokens=12)
    held_out = taught(trunk.teacher.model, 6, new_tokens=12, seed=5)
    settings = settings_of(steps=50, checkpoint_every=10, learning_rate=1e-2)
    before = weights(trunk.teacher.model)
    adapter = loop.untrained(trunk, settings)
    curve = run(lessons, adapter, settings, trunk)
    assert curve[-1]["loss"] < 0.8 * curve[0]["loss"]
    assert equal(before, trunk.teacher.model.parameters())
    assert all(p.grad is None for p in trunk.teacher.model.parameters())
    losses, first = [], loop.untrained(trunk, settings)
    assert not any(
        torch.equal(a, b) for a, b in zip(weights(adapter), weights(first), strict=True)
    )
    still = loop.untrained(trunk, settings)
    idle = dataclasses.replace(settings, learning_rate=0.0, weight_decay=0.0, steps=2)
    run(lessons, still, idle, trunk)
    for one in (first, adapter, still):
        with torch.no_grad():
            losses.append(float(loop.batch_loss(one, trunk, held_out, settings)))
    assert losses[1] < 0.9 * losses[0] and losses[2] == losses[0]


def test_an_untrained_adapter_is_the_targets_last_norm_and_moves_no_generator():
    trunk = trunk_of()
    norm = trunk.teacher.model.model.norm
    norm.weight.uniform_(0.5, 2.0, generator=torch.Generator().manual_seed(0))
    before = torch.random.get_rng_state()
    one, other = loop.untrained(trunk, SETTINGS), loop.untrained(trunk, SETTINGS)
    assert torch.equal(before, torch.random.get_rng_state())
    assert equal(weights(one), weights(other))
    rows = torch.randn(3, 32, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(one(rows), norm(rows), rtol=1e-4, atol=1e-5)
    seeded = loop.untrained(trunk, settings_of(seed=4))
    assert not equal(weights(one), weights(seeded))


def least_squares_of(adapter, trunk, sequences):
    """The matrix by a solver for tall systems, with the ridge as further rows."""
    read, wanted = [], []
    for s in sequences:
        with torch.no_grad():
            seen = trunk.teacher.model(
                torch.from_numpy(s.tokens)[None], output_hidden_states=True
            )
            shallow = seen.hidden_states[trunk.boundary][0]
            query, key, value = adapter.project(shallow, 0)
            scores = query @ key.mT / query.shape[-1] ** 0.5
            scores += torch.full_like(scores, -torch.inf).triu(1)
            mixed = torch.softmax(scores, -1) @ value
        read.append(mixed.transpose(0, 1).reshape(shallow.shape))
        last = seen.hidden_states[-1][0] / adapter.norm2
        wanted.append(kangaroo_start.SIZE * last - shallow)
    x, y = torch.cat(read).double(), torch.cat(wanted).double()
    ridge = (kangaroo_start.RIDGE * len(x)) ** 0.5 * torch.eye(32).double()
    x, y = torch.cat([x, ridge]), torch.cat([y, torch.zeros(32, 32)])
    return torch.linalg.lstsq(x, y).solution.T.float()


def test_a_linear_start_is_the_least_squares_of_each_row_itself(sequences, monkeypatch):
    """The planted fault, heads that look anywhere, says less on texts held out."""
    trunk = trunk_of()
    held_out = taught(trunk.teacher.model, 6, new_tokens=12, seed=5)
    adapter = loop.untrained(trunk, SETTINGS)
    kangaroo_start.start(adapter, trunk, sequences)
    wanted = least_squares_of(adapter, trunk, sequences)
    torch.testing.assert_close(adapter.output.weight, wanted, rtol=1e-2, atol=1e-2)
    monkeypatch.setattr(kangaroo_start, "SHARPNESS", 0.0)
    blind = loop.untrained(trunk, SETTINGS)
    kangaroo_start.start(blind, trunk, sequences)
    with torch.no_grad():
        losses = [
            float(loop.batch_loss(one, trunk, held_out, SETTINGS))
            for one in (adapter, blind)
        ]
    assert losses[0] < 0.9 * losses[1]
    monkeypatch.setattr(kangaroo_start, "TOKENS", 1)
    one, other = (loop.untrained(trunk, SETTINGS) for _ in range(2))
    kangaroo_start.start(one, trunk, sequences)
    kangaroo_start.start(other, trunk, sequences[:1])
    assert equal(weights(one), weights(other))
    with pytest.raises(SpecbookError, match="no text to start from"):
        kangaroo_start.start(adapter, trunk, [])


@pytest.mark.parametrize("changes", [{}, {"dtype": "bfloat16", "others": 20}])
def test_an_interrupted_run_ends_with_the_same_bits(sequences, tmp_path, changes):
    settings, trunk = settings_of(temperature=1.5, **changes), trunk_of()
    whole, again, first, second = (loop.untrained(trunk, settings) for _ in range(4))
    curve = run(sequences, whole, settings)
    assert run(sequences, again, settings) == curve
    assert equal(weights(whole), weights(again))
    path = tmp_path / "checkpoint.safetensors"
    run(sequences, first, settings, checkpoint=path, stop_after=3)
    assert not equal(weights(whole), weights(first))
    told = []
    options = {"checkpoint": path, "resume": True, "progress": told.append}
    resumed = run(sequences, second, settings, **options)
    assert equal(weights(whole), weights(second))
    assert [entry["step"] for entry in resumed] == [2, 3, 4, 6]
    assert told[0] == "resumed at step 3 of 6" and "minutes left" in told[-1]


def test_what_a_resumed_run_forgets_would_be_seen(sequences, tmp_path, monkeypatch):
    """The planted fault: draws of the sampled columns that begin anew."""
    settings, trunk = settings_of(others=8), trunk_of()
    whole, second = loop.untrained(trunk, settings), loop.untrained(trunk, settings)
    run(sequences, whole, settings)
    path = tmp_path / "checkpoint.safetensors"
    options = {"checkpoint": path}
    run(sequences, loop.untrained(trunk, settings), settings, stop_after=3, **options)
    real = together.resuming.step_seed
    monkeypatch.setattr(
        together.resuming, "step_seed", lambda s, step, i: real(s, step - 3, i)
    )
    run(sequences, second, settings, resume=True, **options)
    assert not equal(weights(whole), weights(second))


def test_a_checkpoint_is_not_mixed_up(sequences, tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    trunk = trunk_of()
    run(sequences, loop.untrained(trunk, SETTINGS), checkpoint=path, stop_after=2)
    with pytest.raises(SpecbookError, match="earlier run"):
        run(sequences, loop.untrained(trunk, SETTINGS), checkpoint=path)
    options = {"checkpoint": path, "resume": True}
    for changes in (
        {"settings": settings_of(temperature=2.0)},
        {"settings": settings_of(boundary=2), "trunk": trunk_of(boundary=2)},
        {"data_key": "x"},
        {"trunk": trunk_of(vocabulary=CUT)},
    ):
        with pytest.raises(ArtifactError, match="other settings or other data"):
            run(sequences, loop.untrained(trunk, SETTINGS), **{**options, **changes})


def test_what_does_not_fit_is_not_trained(sequences):
    trunk = trunk_of()
    adapter = loop.untrained(trunk, SETTINGS)
    for changes, told in (
        ({"settings": settings_of(attention_heads=2)}, "is none of 2 heads"),
        ({"settings": settings_of(boundary=2)}, "at boundary 2"),
        ({"data_key": 3}, "data_key"),
        ({"stop_after": -1}, "stop_after"),
    ):
        with pytest.raises(SpecbookError, match=told):
            run(sequences, adapter, **changes)
    with pytest.raises(SpecbookError, match="of width 32"):
        run(sequences, Adapter(16, 4))
    for place, told in enumerate(("adapter must be", "trunk must", "settings must")):
        parts = [adapter, trunk, sequences, SETTINGS]
        parts[(0, 1, 3)[place]] = None
        with pytest.raises(SpecbookError, match=told):
            loop.batch_loss(*parts)
        with pytest.raises(SpecbookError, match=told):
            loop.train(*parts, data_key="k")
    for changes in ({"resume": "no"}, {"checkpoint": "x"}, {"validate": 3}):
        with pytest.raises(SpecbookError, match=next(iter(changes))):
            run(sequences, adapter, **changes)
    with pytest.raises(SpecbookError, match="trunk must be"):
        loop.untrained(None, SETTINGS)
    with pytest.raises(SpecbookError, match="adapter must be"):
        kangaroo_start.start(None, trunk, sequences)
    with pytest.raises(SpecbookError, match="depths must be at least 1"):
        agreement.kangaroo_agreement(adapter, trunk, sequences, 0)
    bare = TaughtSequence(np.array([3]), 0, 1, np.zeros((0, 4), int), np.zeros((0, 4)))
    with pytest.raises(SpecbookError, match="nothing to train on"):
        run([bare], adapter)
    for boundary in (0, LAYERS, True):
        with pytest.raises(SpecbookError, match="boundary"):
            trunk_of(boundary=boundary)
    with pytest.raises(UnsupportedTargetError, match="Mistral"):
        trunk_of(tiny_model("mistral"))


# ---- agreement ---------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_chains_are_those_of_the_runtime(family):
    """Drafted token by token, on caches, from every place of greedy answers."""
    model = model_of(family)
    target = SharedTrunkTarget(model, BOUNDARY, self_test=False)
    trunk = trunk_of(model)
    adapter = loop.untrained(trunk, SETTINGS)
    lessons = taught(model, 12, new_tokens=10, greedy=True)
    run(lessons, adapter, settings_of(steps=60, learning_rate=1e-2), trunk)
    answers = lessons[:4]
    wanted = [[0, 0] for _ in range(K)]
    for s in answers:
        tokens = s.tokens.tolist()
        for place in range(s.prompt_length, len(tokens) - 1):
            draft = KangarooDraft(target.start(tokens[: place + 1]), adapter)
            chain, _ = draft_greedily(draft, K, threshold=0.0)
            for depth, (said, true) in enumerate(
                zip(chain, tokens[place + 1 :], strict=False)
            ):
                wanted[depth][1] += 1
                wanted[depth][0] += said == true
                if said != true:
                    break
    found = agreement.kangaroo_agreement(adapter, trunk, answers, K)
    assert found["chain"] == wanted
    assert wanted[0][0] > 0 and wanted[1][1] > 0  # something was accepted
    assert found["top1"][0] == wanted[0][0] / wanted[0][1]


def plain_forced(adapter, trunk, sequences):
    """`forced` by loops over plain forwards."""
    found = [[0, 0] for _ in range(K)]
    for s in sequences:
        tokens = s.tokens.tolist()
        with torch.no_grad():
            seen = trunk.teacher.model(
                torch.from_numpy(s.tokens)[None], output_hidden_states=True
            )
            said = adapter(seen.hidden_states[trunk.boundary][0])
        best = (said @ trunk.teacher.head().T).argmax(-1).tolist()
        target = seen.logits[0].argmax(-1).tolist()
        alone = s.prompt_length == len(tokens)
        for place in range(s.first_row if alone else s.prompt_length, len(tokens) - 1):
            for depth in range(min(K, len(tokens) - 1 - place)):
                at = place + depth
                found[depth][1] += 1
                found[depth][0] += best[at] == target[at]
                if tokens[at + 1] != target[at]:
                    break
    return found


def test_a_text_of_another_hand_is_followed_as_the_target_would_write(monkeypatch):
    """Sampled answers, and texts that nobody continued. The planted fault: to follow
    the text wherever it goes."""
    trunk = trunk_of()
    adapter = shaken(trunk)
    warm = taught(trunk.teacher.model, 8, new_tokens=10)
    warm[:3] = [
        dataclasses.replace(s, prompt_length=len(s.tokens)) for s in warm[:3]
    ]  # fmt: skip
    found = agreement.kangaroo_agreement(adapter, trunk, warm, K)
    assert found["forced"] == plain_forced(adapter, trunk, warm)
    assert 0 < found["forced"][2][1] < found["forced"][1][1] < found["forced"][0][1]
    bins = found["calibration"][0]
    assert sum(n for n, _, _ in bins) == found["forced"][0][1]
    assert sum(n * share for n, _, share in bins) == pytest.approx(
        found["forced"][0][0]
    )
    real = torch.Tensor.cumprod
    monkeypatch.setattr(torch.Tensor, "cumprod", lambda x, dim: real(x | True, dim=dim))
    other = agreement.kangaroo_agreement(adapter, trunk, warm, K)
    assert other["forced"] != found["forced"]


def test_nothing_to_look_at_is_told_as_nothing():
    trunk = trunk_of()
    found = agreement.kangaroo_agreement(shaken(trunk), trunk, [], 2)
    assert found["top1"] == [None, None] and found["chain"] == [[0, 0], [0, 0]]


# ---- several processes -------------------------------------------------------------

SCRIPT = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from training import test_kangaroo_training as here
trunk = here.trunk_of()
adapter = here.loop.untrained(trunk, here.SETTINGS)
lessons = here.taught(trunk.teacher.model, 4)
curve = here.run(lessons, adapter, checkpoint=Path(sys.argv[2], "run"))
world = here.loop.processes()
told = {"curve": curve, "processes": world.num_processes,
    "output": adapter.output.weight.tolist(), "gradient": here.gradient(world)}
Path(sys.argv[2], f"{world.process_index}.json").write_text(json.dumps(told))
"""


def gradient(world):
    """Over one batch: AdamW hides a wrong scale of all gradients."""
    trunk = trunk_of()
    adapter, whole = shaken(trunk), taught(trunk.teacher.model, 4)
    loss, total = loop.loss_of(adapter, trunk, SETTINGS), loop.count_rows(whole)
    together.backward(adapter, loss, whole, total, SETTINGS.seed, 0, world)
    return adapter.output.weight.grad.tolist()


def test_two_processes_learn_what_one_learns(tmp_path):
    """Batches of three sequences and of one, which leaves a process without any. The
    tolerance is that of sums rounded in another order."""
    trunk = trunk_of()
    alone = loop.untrained(trunk, SETTINGS)
    curve = run(taught(trunk.teacher.model, 4), alone)
    found = in_two_processes(SCRIPT, tmp_path)
    assert found[0]["output"] == found[1]["output"]
    for mine, theirs in zip(curve, found[0]["curve"], strict=True):
        assert theirs == pytest.approx(mine, rel=1e-4)
    torch.testing.assert_close(
        torch.tensor(found[0]["output"]), alone.output.weight, rtol=1e-3, atol=1e-4
    )
    whole = torch.tensor(gradient(loop.processes()))
    torch.testing.assert_close(torch.tensor(found[1]["gradient"]), whole)


# ---- settings ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"boundary": 0},
        {"boundary": True},
        {"attention_heads": 0},
        {"start": "zero"},
        {"temperature": 0},
        {"temperature": float("inf")},
        {"vocabulary": 0},
        {"steps": 0},
        {"rows_per_step": 1.5},
        {"learning_rate": -1},
        {"clip": 0},
        {"warm_up": -1},
        {"seed": 2**64},
        {"dtype": "float16"},
        {"states": "kept"},
        {"stored": "float32"},
        {"others": 0},
        {"checkpoint_every": 0},
    ],
    ids=[f"case{i}" for i in range(18)],
)
def test_bad_settings_are_refused(changes):
    with pytest.raises(SpecbookError, match=next(iter(changes))):
        KangarooSettings(**{"boundary": 2, **changes})


def test_settings_are_plain_json():
    settings = KangarooSettings(np.int64(3), temperature=np.float32(2))
    told = json.dumps(settings.described())
    assert told == json.dumps(KangarooSettings(3, temperature=2.0).described())
    assert json.loads(told)["kind"] == "kangaroo"
