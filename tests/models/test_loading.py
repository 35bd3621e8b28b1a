"""Loading: safetensors only, nothing missing, nothing remote, no random state moved."""

from __future__ import annotations

import json
import random
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from specbook.engine import generate
from specbook.errors import ArtifactError, ManifestError, SpecbookError
from specbook.models import LeanTarget, TransformersTarget, load_target, tiny_llama
from specbook.models import loading as loading_module
from specbook.models.checkpoint import load_transformers_model
from specbook.models.selftest import SelfTestError
from specbook.models.target import UnsupportedTargetError
from specbook.models.tiny import families, tiny_model
from specbook.policy import SamplingPolicy
from specbook.tree import CandidateTree

from .drive import check_rounds, greedy


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A saved tiny Llama with tied embeddings; digests go to a cache of the test."""
    monkeypatch.setenv("SPECBOOK_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "tiny"
    tiny_llama(2, tied=True).save_pretrained(path)
    return path


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma"])
def test_h24_a_tied_model_comes_back_bit_for_bit(family, tmp_path):
    changes = {"tie_word_embeddings": True} if family != "gpt2" else {}
    model = tiny_model(family, 3, **changes)
    head = model.get_output_embeddings().weight
    assert head is model.get_input_embeddings().weight
    model.save_pretrained(tmp_path)
    again = load_transformers_model(tmp_path)
    assert again.get_output_embeddings().weight is again.get_input_embeddings().weight
    ids = torch.tensor([[1, 2, 3]])
    with torch.inference_mode():
        assert torch.equal(model(ids).logits, again(ids).logits)


def test_h24_plain_safetensors_refuses_shared_tensors(tmp_path):
    with pytest.raises(RuntimeError, match="share memory"):
        save_file(tiny_llama(tied=True).state_dict(), tmp_path / "model.safetensors")


@pytest.mark.parametrize("forward", ["auto", "lean", "transformers"])
def test_a_loaded_target_is_the_saved_one(folder, forward):
    target = load_target(folder, forward=forward)
    assert type(target) is (
        TransformersTarget if forward == "transformers" else LeanTarget
    )
    plain = TransformersTarget(tiny_llama(2, tied=True)).plain_logits
    check_rounds(target, plain)
    reference = target.transformers_model()
    ids = torch.tensor([[5, 6, 7]])
    with torch.inference_mode():
        found = reference(ids).logits[0].numpy()
    assert np.array_equal(found, plain([5, 6, 7]))


def test_the_lean_target_leaves_no_second_copy(folder):
    model = load_transformers_model(folder)
    LeanTarget(model, source=str(folder), take=True)
    assert sum(p.numel() for p in model.parameters()) == 0
    kept = load_transformers_model(folder)
    LeanTarget(kept, source=str(folder))
    assert sum(p.numel() for p in kept.parameters()) > 0


def test_sharded_weights_load(tmp_path):
    tiny_llama(2).save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    plain = TransformersTarget(tiny_llama(2)).plain_logits
    check_rounds(load_target(tmp_path, forward="lean"), plain, rounds=3)


@pytest.mark.parametrize("dtype", ["bfloat16", "float64", torch.bfloat16])
def test_other_dtypes_load(folder, dtype):
    target = load_target(folder, dtype=dtype)
    assert target.identity()["dtype"] == str(dtype).removeprefix("torch.")
    assert len(greedy(target, [1], 5)) == 5
    law = (
        target.start([1])
        .verify(CandidateTree.from_rows([], [], 1))
        .law(-1, SamplingPolicy(1.0))
    )
    assert law.dtype == np.float64 and law.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("family", families())
def test_every_family_loads_from_a_folder(family, tmp_path):
    tiny_model(family).save_pretrained(tmp_path)
    assert load_target(tmp_path).vocab_size == 64


# ------------------------------------------------------------------ what is refused


def edit(folder, change):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


@pytest.mark.parametrize("forward", ["auto", "transformers"])
def test_missing_left_over_and_mismatched_weights_are_errors(folder, forward):
    name = "model.layers.0.mlp.up_proj.weight"
    backup = folder.parent / "backup"
    shutil.copytree(folder, backup)

    def spoil(change, message):
        shutil.rmtree(folder)
        shutil.copytree(backup, folder)
        edit(folder, change)
        with pytest.raises(ArtifactError, match=message):
            load_target(folder, forward=forward)

    spoil(lambda t: t.pop(name), f"missing keys: {name}")
    spoil(lambda t: t.update({"stray.weight": torch.ones(2)}), "unexpected keys: stray")
    spoil(
        lambda t: t.update({name: torch.ones(3, 3)}),
        rf"1 mismatched keys: {name} is \[3, 3\], the config wants \[64, 32\]",
    )


def test_a_damaged_file_is_an_error(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ArtifactError, match="could not be loaded"):
        load_target(folder)


def test_pickled_weights_are_never_read(folder):
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin")
    with pytest.raises(ArtifactError, match="no .safetensors weights"):
        load_target(folder)


def test_remote_code_is_never_run(folder):
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["auto_map"] = {
        "AutoConfig": "evil.EvilConfig",
        "AutoModelForCausalLM": "evil.EvilModel",
    }
    config["model_type"] = "evil"
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    mark = folder.parent / "ran"
    (folder / "evil.py").write_text(
        f"open({str(mark)!r}, 'w').close()\nclass EvilConfig: pass\n", encoding="utf-8"
    )
    with pytest.raises(ArtifactError):
        load_target(folder)
    assert not mark.exists()


@pytest.mark.parametrize("name", ["", "  ", "./nowhere", "/nowhere/at/all", "a/b/c"])
def test_a_folder_that_is_not_there_is_an_error(name):
    with pytest.raises(ValueError):
        load_target(name)


def test_an_empty_folder_is_an_error(tmp_path):
    with pytest.raises(ArtifactError, match="config.json"):
        load_target(tmp_path)


@pytest.mark.parametrize(
    "options",
    [
        {"dtype": "int8"},
        {"dtype": None},
        {"attn_implementation": "flash"},
        {"forward": "fast"},
    ],
)
def test_a_bad_option_is_an_error(folder, options):
    with pytest.raises(ValueError, match=next(iter(options))):
        load_target(folder, **options)


def test_the_lean_forward_is_not_forced_on_another_family(tmp_path):
    tiny_model("gpt2").save_pretrained(tmp_path)
    with pytest.raises(UnsupportedTargetError, match="no lean forward"):
        load_target(tmp_path, forward="lean")
    assert type(load_target(tmp_path)) is TransformersTarget


def test_eager_attention_is_that_of_the_generic_forward(folder):
    target = load_target(folder, attn_implementation="eager")
    assert type(target) is TransformersTarget and target.attention == "eager"
    with pytest.raises(UnsupportedTargetError, match="eager was asked for"):
        load_target(folder, attn_implementation="eager", forward="lean")


def test_a_lean_forward_that_fails_its_test_gives_way(folder, monkeypatch):
    from specbook.models import lean

    turn = lean._Weights.rotation
    monkeypatch.setattr(
        lean._Weights, "rotation", lambda self, p: turn(self, p + p.max())
    )
    with pytest.raises(SelfTestError):
        load_target(folder, forward="lean")
    target = load_target(folder, forward="auto")
    assert type(target) is TransformersTarget
    check_rounds(target, target.plain_logits, rounds=3)


def test_the_environment_names_the_target(folder, monkeypatch):
    monkeypatch.setenv("SPECBOOK_TARGET", str(folder))
    assert load_target().source == str(folder)


# ------------------------------------------------------------- identity and text


def test_identity_is_bound_to_content(folder, tmp_path):
    copy = tmp_path / "elsewhere" / "tiny"
    shutil.copytree(folder, copy)
    first, second = load_target(folder).identity(), load_target(copy).identity()
    assert first == second, "the same content in two folders is the same checkpoint"
    edit(copy, lambda t: t["model.norm.weight"].mul_(1.001))
    third = load_target(copy).identity()
    assert third["checkpoint"] != first["checkpoint"]
    assert third["tokenizer"] == first["tokenizer"] == "none"
    generic = load_target(folder, forward="transformers").identity()
    assert generic["backend"] != first["backend"]
    assert generic["checkpoint"] == first["checkpoint"]


def test_identity_of_a_model_in_memory_is_its_tensors():
    one = TransformersTarget(tiny_llama(1)).identity()
    assert one == TransformersTarget(tiny_llama(1)).identity()
    assert one["checkpoint"] == LeanTarget(tiny_llama(1)).identity()["checkpoint"]
    assert one["checkpoint"] != LeanTarget(tiny_llama(2)).identity()["checkpoint"]


@pytest.mark.parametrize("forward", ["lean", "transformers"])
def test_identity_is_that_of_the_weights_that_were_loaded(folder, forward):
    target = load_target(folder, forward=forward)
    edit(folder, lambda t: t["model.norm.weight"].mul_(-1))
    found = target.identity()
    assert found != load_target(folder, forward=forward).identity()
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    assert target.identity() == found
    with pytest.raises(ArtifactError, match="have changed since"):
        target.encode("text")
    if forward == "lean":
        with pytest.raises(ArtifactError, match="have changed since"):
            target.transformers_model()


def test_files_that_change_during_the_load_are_noticed(folder, monkeypatch):
    load = loading_module.read_model

    def slow(*arguments):
        model = load(*arguments)
        edit(folder, lambda t: t["model.norm.weight"].mul_(-1))
        return model

    monkeypatch.setattr(loading_module, "read_model", slow)
    with pytest.raises(ArtifactError, match="changed while they were loaded"):
        load_target(folder, forward="transformers")


def scale(weight):
    with torch.no_grad():
        weight.mul_(-1)


def scale_under_the_counter(weight):
    weight.data.mul_(-1)


def replace(weight):
    weight.data = -weight.data


@pytest.mark.parametrize(
    ("loaded", "change"),
    [
        (False, scale),
        (False, scale_under_the_counter),
        (False, replace),
        (True, scale),
        (True, replace),
    ],
)
def test_a_frozen_manifest_notices_weights_changed_in_memory(folder, loaded, change):
    if loaded:
        target = load_target(folder, forward="transformers")
    else:
        target = TransformersTarget(tiny_llama(2))
    options = {"source": None, "verifier": "greedy", "max_new_tokens": 3}
    manifest = generate(target, [1, 2], **options).manifest
    generate(target, [1, 2], **options, manifest=manifest)
    change(target.model.lm_head.weight)
    with pytest.raises(ManifestError, match="checkpoint"):
        generate(target, [1, 2], **options, manifest=manifest)


def test_a_frozen_manifest_notices_another_attention(folder):
    target = load_target(folder, forward="transformers")
    before = target.identity()
    target.model.set_attn_implementation("eager")
    assert target.identity()["backend"] != before["backend"]


def test_a_lean_target_has_weights_of_its_own():
    model = tiny_llama(2)
    target = LeanTarget(model)
    before, tokens = target.identity(), greedy(target, [1, 2], 5)
    scale(model.lm_head.weight)
    assert target.identity() == before and greedy(target, [1, 2], 5) == tokens


def test_a_model_made_in_inference_mode_has_an_identity(folder):
    with torch.inference_mode():
        model = tiny_llama(2, tied=True)
        target = TransformersTarget(model, source=str(folder))
    assert target.identity() == TransformersTarget(model, source=folder).identity()


def test_text_needs_a_tokenizer(folder):
    for target in (load_target(folder), TransformersTarget(tiny_llama())):
        with pytest.raises(ValueError, match="tokenizer"):
            target.encode("text")
    with pytest.raises(ValueError, match="tokenizer|template"):
        load_target(folder).encode_chat("hello")
    for messages in ([], [{"role": "user"}], ["hello"]):
        with pytest.raises(ValueError, match="messages"):
            load_target(folder).encode_chat(messages)
    for content in (None, 3, "\ud800"):
        with pytest.raises(SpecbookError, match="messages"):
            target.encode_chat([{"role": "user", "content": content}])
    with pytest.raises(SpecbookError, match="UTF-8"):
        target.encode("\ud800")
    with pytest.raises(ValueError, match="ids"):
        load_target(folder).decode([64])


# ------------------------------------------------------------------ random state


def test_nothing_moves_the_global_generators(folder):
    random.seed(1)
    np.random.seed(2)
    torch.manual_seed(3)
    before = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()
    tiny_llama(5)
    for forward in ("lean", "transformers"):
        greedy(load_target(folder, forward=forward), [1], 3)
    assert random.getstate() == before[0]
    assert np.array_equal(np.random.get_state()[1], before[1])
    assert torch.equal(torch.get_rng_state(), before[2])


def test_a_seed_makes_the_model():
    def first(model):
        return next(model.parameters())

    assert torch.equal(first(tiny_llama(7)), first(tiny_llama(7)))
    assert not torch.equal(first(tiny_llama(7)), first(tiny_llama(8)))
    config = tiny_llama().config
    assert (config.vocab_size, config.hidden_size, config.num_hidden_layers) == (
        64,
        32,
        2,
    )
    assert (config.num_attention_heads, config.num_key_value_heads) == (4, 2)
    spread = float(first(tiny_llama()).detach().std())
    assert spread == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("seed", [-1, 1.5, "a", None])
def test_a_bad_seed_is_an_error(seed):
    with pytest.raises(ValueError, match="seed"):
        tiny_llama(seed)


def test_a_bad_shape_is_an_error():
    with pytest.raises(ValueError):
        tiny_llama(hidden_size=33)
    with pytest.raises(ValueError, match="family"):
        tiny_model("bert")
