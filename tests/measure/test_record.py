"""Recording: what was said is kept whole, and nothing else is taken for it."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest

from specbook import __version__, paths, prompts
from specbook.engine import generate
from specbook.errors import ArtifactError, SpecbookError
from specbook.measure import recording
from specbook.measure.record import record
from specbook.measure.recording import RecordedOutput, Recording
from specbook.models import TableTarget

ITEMS = prompts.load("chat")[:2] + prompts.load("continue_code")[:2]
VOCAB, END = 64, 3


class Bytes(TableTarget):
    """A table target with a tokenizer: bytes modulo 64."""

    def __init__(self, name="a"):
        def table(prefix):
            self.asked += 1
            law = np.full(VOCAB, 0.4 / VOCAB)
            law[(prefix[-1] * 7 + len(prefix) // 9) % VOCAB] += 0.6
            return law

        super().__init__(table, vocab_size=VOCAB, eos_token_id=END)
        self.name, self.asked = name, 0

    def identity(self):
        return {**super().identity(), "checkpoint": "table", "tokenizer": self.name}

    def encode(self, text):
        return [byte % VOCAB for byte in text.encode()][-60:]

    def encode_chat(self, messages):
        return [1, *self.encode(messages[0]["content"])]


def ids_of(target, item):
    if item.is_chat:
        return target.encode_chat(item.messages)
    return target.encode(item.text)


@pytest.fixture
def folder(tmp_path):
    """A folder with recordings of four prompts, greedy and sampled."""
    for temperature in (0.0, 0.7):
        record(
            Bytes(), tmp_path, temperature=temperature, items=ITEMS, max_new_tokens=24
        )
    return tmp_path


def files(folder):
    return sorted(path.name for path in folder.iterdir())


NAMES = ["greedy.json", "manifest.json", "temperature_0.7.json"]


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_it_holds_what_plain_decoding_says(folder, temperature):
    target = Bytes()
    found = recording.load(temperature, folder=folder, target=target)
    assert files(folder) == NAMES
    # In the frozen order, whatever the order that was asked for.
    order = [p.id for p in prompts.load() if p in ITEMS]
    assert [output.prompt_id for output in found.outputs] == order
    places = {p.id: place for place, p in enumerate(prompts.load())}
    items = {item.id: item for item in ITEMS}
    drawn = 0
    for output in found.outputs:
        item = items[output.prompt_id]
        plain = generate(
            target,
            ids_of(target, item),
            None,
            "membership",
            max_new_tokens=24,
            temperature=temperature,
            seed=places[item.id],
            eos_token_id=END,
        )
        assert output.tokens == tuple(plain.tokens)
        assert output.stop_reason == plain.stop_reason
        assert output.prompt_ids == tuple(ids_of(target, item))
        assert (output.workload, output.half) == (item.workload, item.half)
        assert output.seed == (places[item.id] if temperature else None)
        drawn += (
            plain.tokens
            != generate(
                target, ids_of(target, item), max_new_tokens=24, eos_token_id=END
            ).tokens
        )
    assert bool(drawn) == bool(temperature), "a sampled recording is not the greedy one"
    assert {o.stop_reason for o in found.outputs} <= {"length", "eos"}
    assert (found.max_new_tokens, found.eos_token_ids) == (24, (END,))
    about = found.about
    assert about["target"] == target.identity() and about["temperature"] == temperature
    assert about["verifier"] == ("membership" if temperature else "greedy")
    assert f"temperature={temperature}" in about["command"]
    assert {"torch", "numpy"} <= set(about["machine"]["versions"])
    assert about["specbook"] == __version__


def test_a_workload_and_a_half_can_be_picked(folder):
    chat = recording.load(folder=folder, workload="chat")
    assert {output.workload for output in chat.outputs} == {"chat"}
    halves = [
        recording.load(folder=folder, half=half).outputs
        for half in {item.half for item in ITEMS}
    ]
    assert sum(map(len, halves)) == len(ITEMS)
    with pytest.raises(SpecbookError, match="nothing was recorded for 'edit_code'"):
        recording.load(folder=folder, workload="edit_code")
    with pytest.raises(SpecbookError, match="workload must be one of"):
        recording.load(folder=folder, workload="poems")
    with pytest.raises(ArtifactError, match=r"temperature 0\.5; there is"):
        recording.load(0.5, folder=folder)


# --------------------------------------------------------------- broken off, resumed


class Stop(Exception):
    pass


def stop_after(count):
    lines = []

    def progress(line):
        lines.append(line)
        if len(lines) == count:
            raise Stop

    return progress


def test_a_run_that_was_broken_off_goes_on(tmp_path):
    options = {"temperature": 0.7, "items": ITEMS, "max_new_tokens": 24}
    whole = record(Bytes(), tmp_path / "whole", **options)
    target = Bytes()
    with pytest.raises(Stop):
        record(target, tmp_path / "cut", **options, progress=stop_after(3))
    assert files(tmp_path / "cut") == ["temperature_0.7.json.partial"]
    with pytest.raises(ArtifactError, match=r"manifest\.json is missing"):
        recording.load(0.7, folder=tmp_path / "cut")
    before, lines = target.asked, []
    found = record(target, tmp_path / "cut", **options, progress=lines.append)
    assert len(lines) == 1 and found.outputs == whole.outputs
    one = Bytes()
    generate(one, found.outputs[3].prompt_ids, max_new_tokens=24, eos_token_id=END)
    assert 0 < target.asked - before < 3 * one.asked, "only the last one was decoded"
    for name in ("temperature_0.7.json",):
        assert (tmp_path / "cut" / name).read_bytes() == (
            tmp_path / "whole" / name
        ).read_bytes()
    assert files(tmp_path / "cut") == ["manifest.json", "temperature_0.7.json"]


def test_what_is_finished_is_not_made_again(folder):
    target = Bytes()
    kept = record(target, folder, items=ITEMS, max_new_tokens=24)
    assert target.asked == 0 and kept == recording.load(folder=folder)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"max_new_tokens": 25}, "max_new_tokens: 24, asked for 25"),
        ({"items": ITEMS[:2]}, "prompts"),
        ({"target": Bytes("other")}, "target"),
    ],
    ids=["length", "prompts", "target"],
)
@pytest.mark.parametrize("state", ["finished", "begun"])
def test_another_recording_is_not_overwritten(tmp_path, changes, named, state):
    options = {"target": Bytes(), "items": ITEMS, "max_new_tokens": 24}
    if state == "finished":
        record(folder=tmp_path, **options)
    else:
        with pytest.raises(Stop):
            record(folder=tmp_path, **options, progress=stop_after(3))
    held = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ArtifactError, match=f"recorded with another {named}"):
        record(folder=tmp_path, **{**options, **changes})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == held


def test_a_damaged_partial_file_is_named(tmp_path):
    with pytest.raises(Stop):
        record(
            Bytes(), tmp_path, items=ITEMS, max_new_tokens=24, progress=stop_after(2)
        )
    path = tmp_path / "greedy.json.partial"
    good = json.loads(path.read_text(encoding="utf-8"))
    damages = [
        b"{",
        b"[]",
        json.dumps({**good, "settings": 5}).encode(),
        json.dumps({**good, "recorded": []}).encode(),
        json.dumps({k: v for k, v in good.items() if k != "prompts"}).encode(),
        path.read_bytes()[:-40],
    ]
    for damage in damages:
        path.write_bytes(damage)
        with pytest.raises(ArtifactError, match=r"greedy\.json\.partial"):
            record(Bytes(), tmp_path, items=ITEMS, max_new_tokens=24)
        assert path.read_bytes() == damage
    other = {**good, "prompts": {**good["prompts"], "chat.toml": {}}}
    path.write_text(json.dumps(other), encoding="utf-8")
    with pytest.raises(ArtifactError, match="recorded on another chat.toml"):
        record(Bytes(), tmp_path, items=ITEMS, max_new_tokens=24)


def test_every_changed_byte_of_a_partial_file_is_refused(tmp_path):
    """Whitespace aside, which says nothing."""
    with pytest.raises(Stop):
        record(
            Bytes(), tmp_path, items=ITEMS, max_new_tokens=24, progress=stop_after(1)
        )
    path = tmp_path / "greedy.json.partial"
    data = path.read_bytes()
    begin = data.index(b'"recorded"')
    target = Bytes()
    places = [*range(0, begin, 41), *range(begin, len(data), 3)]
    for place in places:
        changed = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        path.write_bytes(changed)
        with pytest.raises(ArtifactError, match=r"greedy\.json\.partial"):
            record(target, tmp_path, items=ITEMS, max_new_tokens=24)
        assert path.read_bytes() == changed
    assert target.asked == 0, "each was refused before any decoding"


def test_what_cannot_be_written_is_said_before_any_decoding(tmp_path, monkeypatch):
    def full(source, destination):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", full)
    target = Bytes()
    with pytest.raises(ArtifactError, match=r"greedy\.json\.partial cannot be written"):
        record(target, tmp_path, items=ITEMS, max_new_tokens=24)
    assert target.asked == 0 and files(tmp_path) == []


@pytest.mark.parametrize("broken", ["greedy.json", "manifest.json"])
def test_a_write_that_fails_leaves_nothing_half_done(tmp_path, monkeypatch, broken):
    options = {"items": ITEMS, "max_new_tokens": 24}
    plain = os.replace

    def replace(source, destination):
        if Path(destination).name == broken:
            raise OSError("disk full")
        plain(source, destination)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(ArtifactError, match=rf"{broken} cannot be written: disk full"):
        record(Bytes(), tmp_path, **options)
    assert not any(name.endswith(".tmp") for name in files(tmp_path))
    assert not (tmp_path / "manifest.json").exists()
    monkeypatch.undo()
    target = Bytes()
    found = record(target, tmp_path, **options)
    assert target.asked == 0, "all of it was kept"
    assert found == recording.load(folder=tmp_path)


# ------------------------------------------------------------------- damaged, foreign


def test_every_changed_byte_is_refused(folder):
    path = folder / "greedy.json"
    data = path.read_bytes()
    for place in range(0, len(data), 97):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(ArtifactError, match=r"greedy\.json was altered"):
            recording.load(folder=folder)
    for damaged in (data[:-1], data + b" ", b""):
        path.write_bytes(damaged)
        with pytest.raises(ArtifactError, match=r"greedy\.json was altered"):
            recording.load(folder=folder)
    path.unlink()
    with pytest.raises(ArtifactError, match=r"greedy\.json is missing"):
        recording.load(folder=folder)
    assert recording.load(0.7, folder=folder), "the other file is still good"


def test_another_target_is_refused_by_name(folder):
    with pytest.raises(ArtifactError, match="another tokenizer: 'a', .* is 'b'"):
        recording.load(folder=folder, target=Bytes("b"))
    other = Bytes()
    other.identity = lambda: {**Bytes().identity(), "checkpoint": "other weights"}
    with pytest.raises(ArtifactError, match="another checkpoint"):
        recording.load(folder=folder, target=other)
    with pytest.raises(SpecbookError, match="target must be"):
        recording.load(folder=folder, target="smollm")


def edit_manifest(folder, change):
    path = folder / "manifest.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")


def test_other_prompts_are_refused_by_name(folder):
    def change(content):
        content["prompts"]["chat.toml"]["sha256"] = "0" * 64

    edit_manifest(folder, change)
    with pytest.raises(ArtifactError, match=r"recorded on another chat\.toml"):
        recording.load(folder=folder)
    with pytest.raises(ArtifactError, match=r"recorded on another chat\.toml"):
        record(Bytes(), folder, items=ITEMS, max_new_tokens=24)


def rewrite(folder, change):
    """Spoils the outputs and makes the hash right again, to reach the later checks."""
    path = folder / "greedy.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    data = json.dumps(content).encode("utf-8")
    path.write_bytes(data)

    def enter(held):
        held["files"]["greedy.json"]["sha256"] = hashlib.sha256(data).hexdigest()

    edit_manifest(folder, enter)


def set_in(index, **values):
    def change(content):
        content["outputs"][index].update(values)

    return change


def set_in_long(**values):
    """The same for an output that its length ended; `cut` tokens of it go."""

    def change(content):
        found = next(o for o in content["outputs"] if o["stop_reason"] == "length")
        cut = values.pop("cut", 0)
        found.update(values, tokens=found["tokens"][: len(found["tokens"]) - cut])

    return change


SPOILT = [
    (set_in(0, tokens=[64] * 24), r"tokens\[0\] = 64 is outside 0 \.\. 63"),
    (set_in(0, prompt_ids=[1, 99]), r"prompt_ids\[1\] = 99 is outside"),
    (set_in(0, tokens=[True] * 24), r"tokens\[0\] must be an integer"),
    (set_in(0, tokens=[-1] * 24), r"tokens\[0\] = -1"),
    (set_in(0, tokens=[]), "tokens is empty"),
    (set_in(0, tokens="abc"), "tokens must be a sequence"),
    (set_in(0, tokens=[END, *[1] * 23]), "go on after the end token at 0"),
    (set_in(0, tokens=[1] * 25, stop_reason="length"), "25 new tokens"),
    (set_in(0, tokens=[1, 2], stop_reason="eos"), "is no end token"),
    (set_in(0, stop_reason="tired"), "stop_reason must be one of"),
    (set_in_long(stop_reason="context"), "context limit of None"),
    (set_in(0, seed=-1), "seed must be at least 0"),
    (set_in(0, prompt_id="poem-1"), "no prompt is called 'poem-1'"),
    (set_in(0, prompt_id=7), "no prompt is called 7"),
    (set_in(0, more=1), "needs exactly"),
    (lambda content: content["outputs"].reverse(), "out of order"),
    (
        lambda content: content["outputs"].insert(1, content["outputs"][0]),
        "outputs.1.: .* is out of order",
    ),
    (lambda content: content["outputs"].pop(), "holds 3 outputs, recorded as 4"),
    (lambda content: content["outputs"].append(5), "needs exactly"),
    (lambda content: content.update(outputs=5), "outputs must be a list"),
    (lambda content: content.update(format=2), "unknown format 2"),
    (lambda content: content.pop("format"), "not a file of recorded outputs"),
    (set_in_long(cut=1), "23 new tokens and stopped by 'length'"),
]


@pytest.mark.parametrize(
    ("change", "message"), SPOILT, ids=[message for _, message in SPOILT]
)
def test_a_file_that_contradicts_itself_is_refused(folder, change, message):
    rewrite(folder, change)
    with pytest.raises(ArtifactError, match=message) as caught:
        recording.load(folder=folder)
    assert "greedy.json" in str(caught.value)


def entry(**values):
    return lambda content: content["files"]["greedy.json"].update(values)


FOREIGN = [
    (lambda content: content.update(format=2), "unknown format 2"),
    (lambda content: content.pop("prompts"), "not a manifest"),
    (lambda content: content.update(files=[]), "files must be an object"),
    (lambda content: content.update(prompts=5), "prompts must be an object"),
    (entry(outputs=3), "holds 4 outputs, recorded as 3"),
    (entry(more=1), "greedy.json needs exactly"),
    (entry(target=None), "target must be an object"),
    (entry(temperature=0.7), "cannot be of temperature 0.7"),
    (entry(temperature="0"), "temperature must be a real number"),
    (entry(vocab_size=0), "vocab_size must be at least 1"),
    (entry(vocab_size=10), "is outside 0 .. 9"),
    (entry(eos_token_ids=7), "eos_token_ids must be a sequence"),
    (entry(max_new_tokens=9), "with a limit of 9"),
    (entry(context_limit=True), "context_limit must be an integer"),
    (entry(outputs=5), "holds 4 outputs, recorded as 5"),
    (entry(sha256=None), "was altered"),
]


@pytest.mark.parametrize(
    ("change", "message"), FOREIGN, ids=[message for _, message in FOREIGN]
)
def test_a_foreign_manifest_is_refused(folder, change, message):
    edit_manifest(folder, change)
    with pytest.raises(ArtifactError, match=message):
        recording.load(folder=folder)


def test_what_is_no_manifest_is_refused(folder):
    for text in ("{", "[]", "[" * 100_000, "null"):
        (folder / "manifest.json").write_text(text, encoding="utf-8")
        with pytest.raises(ArtifactError, match=r"manifest\.json"):
            recording.load(folder=folder)


# ------------------------------------------------------------------------ arguments


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": None}, "with a tokenizer"),
        ({"target": Bytes}, "with a tokenizer"),
        ({"target": TableTarget({(0,): [1]})}, "with a tokenizer"),
        ({"folder": 5}, "folder must be a path"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"max_new_tokens": 0}, "max_new_tokens must be at least 1"),
        ({"max_new_tokens": True}, "max_new_tokens must be an integer"),
        ({"items": []}, "one prompt or more"),
        ({"items": [ITEMS[0], ITEMS[0]]}, "none of them twice"),
        ({"items": ["chat-01"]}, r"items\[0\] is no frozen prompt"),
        (
            {"items": [prompts.Prompt("chat-01", "chat", "evaluation", "Hi", True)]},
            r"items\[0\] is no frozen prompt",
        ),
        ({"items": 5}, "items must be a sequence"),
        ({"progress": 5}, "progress must be a function"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_bad_arguments_are_refused_before_anything_is_written(
    tmp_path, changes, message
):
    arguments = {"target": Bytes(), "folder": tmp_path / "new", "items": ITEMS}
    with pytest.raises(SpecbookError, match=message):
        record(**{**arguments, **changes})
    assert files(tmp_path) == []


def test_a_folder_that_is_a_file_is_named(tmp_path):
    path = tmp_path / "file"
    path.write_text("x", encoding="utf-8")
    with pytest.raises(ArtifactError, match="file"):
        record(Bytes(), path, items=ITEMS)
    with pytest.raises(ArtifactError, match="cannot be read"):
        recording.load(folder=path)


def test_limits_and_ends_must_fit():
    def one(**values):
        return RecordedOutput((1, 2), (3, 4), **values)

    Recording((one(stop_reason="context"),), 5, context_limit=4)
    with pytest.raises(SpecbookError, match="4 tokens in all .* limit of 5"):
        Recording((one(stop_reason="context"),), 5, context_limit=5)
    with pytest.raises(SpecbookError, match="4 tokens in all"):
        Recording((one(),), 5, context_limit=3)
    Recording((one(stop_reason="eos"),), 5, (4,), max_new_tokens=9)
    with pytest.raises(SpecbookError, match="is an end token"):
        Recording((one(),), 5, (4,))
    for reason in ("eos", "length"):
        with pytest.raises(SpecbookError, match="go on after the end token at 0"):
            Recording((one(stop_reason=reason),), 5, (3,))
    with pytest.raises(SpecbookError, match=r"outputs\[0\] is no RecordedOutput"):
        Recording(((1, 2),), 5)
    with pytest.raises(SpecbookError, match="eos_token_ids"):
        Recording((one(),), 5, (5,))
    with pytest.raises(SpecbookError, match="about"):
        Recording((one(),), 5, about=7)


def test_numpy_numbers_become_plain_ones():
    output = RecordedOutput(np.array([1, 2]), np.array([3]), seed=np.int64(4))
    made = Recording([output], np.int64(5), np.array([4]), np.int32(1))
    assert type(output.tokens[0]) is type(output.seed) is int
    assert type(made.vocab_size) is type(made.max_new_tokens) is int
    assert made.eos_token_ids == (4,)


# --------------------------------------------------------------------- what is shipped


def test_the_shipped_recordings_are_whole():
    folder = paths.data_path("recordings")
    frozen = prompts.load()
    greedy, sampled = (recording.load(t) for t in (0.0, 0.7))
    for found in (greedy, sampled):
        assert [o.prompt_id for o in found.outputs] == [p.id for p in frozen]
        assert found.max_new_tokens == 128 and found.vocab_size == 49152
        for output in found.outputs:
            whole = len(output.tokens) == 128
            assert output.stop_reason == "eos" or whole
        tokens = sum(len(o.tokens) for o in found.outputs)
        assert tokens > 96 * 64, "mostly real answers, not empty ones"
    for a, b in zip(greedy.outputs, sampled.outputs, strict=True):
        assert a.prompt_ids == b.prompt_ids and a.seed is None
    assert [o.seed for o in sampled.outputs] == list(range(96))
    differ = sum(
        a.tokens != b.tokens
        for a, b in zip(greedy.outputs, sampled.outputs, strict=True)
    )
    assert differ > 90
    assert greedy.about["target"] == sampled.about["target"]
    assert greedy.about["target"]["dtype"] == "float32"
    assert sum(path.stat().st_size for path in folder.iterdir()) < 1_000_000
