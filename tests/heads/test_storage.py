"""Heads on disk: what comes back, and everything that is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from specbook.drafts.neural.hydra import Hydra
from specbook.engine import generate
from specbook.errors import ArtifactError, SpecbookError
from specbook.models.heads import KINDS, build, config_of, storage
from specbook.models.lean import LeanTarget
from specbook.models.target import TransformersTarget
from specbook.models.tiny import tiny_llama
from specbook.training import artifact

from .making import WIDTH, shaken
from .test_sources import SOURCES


def tiny(seed: int = 0) -> Any:
    return tiny_llama(seed, hidden_size=WIDTH, num_heads=2, num_kv_heads=1)


def publish(
    folder: Path, heads: Any, identity: Any, *, kind: str = storage.KIND, **options: Any
) -> Path:
    """An artifact as a training command makes it."""
    made = folder / "making"
    made.mkdir()
    storage.write(made, heads, **options)
    about = {"kind": kind, "name": "tiny", "target": dict(identity)}
    artifact.publish(made, folder / "heads", about)
    return folder / "heads"


@pytest.fixture(scope="module")
def target() -> Any:
    return TransformersTarget(tiny())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_what_is_written_comes_back(
    kind: str, dtype: str, tmp_path: Path, target: Any
) -> None:
    heads = shaken(kind).float()
    folder = publish(tmp_path, heads, target.identity(), dtype=dtype)
    stored = storage.read(folder)
    assert stored.heads.config == heads.config and stored.vocabulary is None
    kept = load_file(folder / storage.WEIGHTS)
    assert {tensor.dtype for tensor in kept.values()} == {getattr(torch, dtype)}
    for name, tensor in stored.heads.state_dict().items():
        assert tensor.dtype == torch.float32
        wanted = heads.state_dict()[name].to(getattr(torch, dtype)).float()
        assert torch.equal(tensor, wanted)
    # Nothing of the target: the heads' own numbers, each once.
    assert sum(t.numel() for t in kept.values()) == sum(
        p.numel() for p in heads.parameters()
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_source_from_a_folder_drafts_as_the_heads_in_memory(
    kind: str, tmp_path: Path, target: Any
) -> None:
    heads = shaken(kind).float()
    folder = publish(
        tmp_path, heads, target.identity(), dtype="float32", vocabulary=[9, 3, 20, 4]
    )
    for one in (folder, str(folder)):
        stored = SOURCES[kind](one, widths=(2, 1), children="top_k")
        assert stored.vocabulary == (3, 4, 9, 20)
        memory = SOURCES[kind](
            heads, widths=(2, 1), children="top_k", vocabulary=[3, 4, 9, 20]
        )
        trees = [
            [
                r.tree.token_ids
                for r in generate(
                    target, [1, 2], source, "greedy", max_new_tokens=6
                ).rounds
            ]
            for source in (stored, memory)
        ]
        assert trees[0] == trees[1] and any(trees[0])
    assert SOURCES[kind](folder, vocabulary=[5]).vocabulary == (5,)
    assert stored.identity() != memory.identity()
    assert (
        stored.identity()
        == SOURCES[kind](folder, widths=(2, 1), children="top_k").identity()
    )


def test_another_checkpoint_or_tokenizer_is_refused(
    tmp_path: Path, target: Any
) -> None:
    folder = publish(tmp_path, shaken("hydra").float(), target.identity())
    source = Hydra(folder)
    source.check_target(target)
    source.check_target(LeanTarget(tiny()))  # the same weights, another forward
    with pytest.raises(ArtifactError, match="trained for the checkpoint"):
        generate(
            TransformersTarget(tiny(seed=1)), [1], source, "greedy", max_new_tokens=2
        )
    for name, told in (("tokenizer", "tokenizer"), ("checkpoint", "checkpoint")):
        other = {**target.identity(), name: "sha256:0"}
        with pytest.raises(ArtifactError, match=f"trained for the {told}"):
            storage.check_target(storage.read(folder).manifest, other)
    with pytest.raises(ArtifactError, match="what target"):
        storage.check_target({"name": "x"}, target.identity())


def test_what_was_changed_on_disk_is_refused(tmp_path: Path, target: Any) -> None:
    folder = publish(tmp_path, shaken("hydra").float(), target.identity())
    for name in (storage.WEIGHTS, storage.CONFIG):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[:-1] + b"?")
        with pytest.raises(ArtifactError, match=f"{name} was changed"):
            Hydra(folder)
        (folder / name).write_bytes(content)
    Hydra(folder)


def remade(folder: Path, target: Any, **changes: Any) -> Path:
    """The artifact with other contents, and a manifest that fits them."""
    about = {"kind": storage.KIND, "name": "tiny", "target": dict(target.identity())}
    (folder / artifact.MANIFEST).unlink()
    made = folder.with_name("remade")
    folder.rename(made)
    artifact.publish(made, folder, {**about, **changes})
    return folder


def test_contents_that_contradict_each_other_are_refused(
    tmp_path: Path, target: Any
) -> None:
    heads = shaken("hydra").float()

    def fresh(name: str) -> Path:
        (tmp_path / name).mkdir()
        return publish(tmp_path / name, heads, target.identity())

    folder = fresh("shape")
    told = json.loads((folder / storage.CONFIG).read_text(encoding="utf-8"))
    told["config"]["heads"] = 3
    (folder / storage.CONFIG).write_text(json.dumps(told), encoding="utf-8")
    with pytest.raises(ArtifactError, match="its config needs None"):
        storage.read(remade(folder, target))

    for name, width in (("vast", 10**9), ("endless", 10**18), ("lost", 10**25)):
        # No memory holds it, and none is asked for.
        folder = fresh(name)
        told["config"] = config_of("hydra", 2).to_json() | {"width": width, "bent": 0}
        (folder / storage.CONFIG).write_text(json.dumps(told), encoding="utf-8")
        with pytest.raises(ArtifactError, match="its config needs|is no config"):
            storage.read(remade(folder, target))

    folder = fresh("deep")
    (folder / storage.CONFIG).write_text("[" * 100_000, encoding="utf-8")
    with pytest.raises(ArtifactError, match="is no config"):
        storage.read(remade(folder, target))

    folder = fresh("missing")
    kept = load_file(folder / storage.WEIGHTS)
    kept.pop("networks.0.mix.linear.bias")
    save_file(kept, folder / storage.WEIGHTS)
    with pytest.raises(ArtifactError, match="mix.linear.bias is None"):
        storage.read(remade(folder, target))

    for number, content in enumerate(
        ("[]", "{}", '{"config": 1, "vocabulary": null}', "nonsense")
    ):
        folder = fresh(f"config{number}")
        (folder / storage.CONFIG).write_text(content, encoding="utf-8")
        with pytest.raises(ArtifactError, match="is no config"):
            storage.read(remade(folder, target))

    folder = fresh("vocabulary")
    told["config"]["heads"], told["vocabulary"] = 4, [1, 1]
    (folder / storage.CONFIG).write_text(json.dumps(told), encoding="utf-8")
    with pytest.raises(ArtifactError, match="token 1 twice"):
        storage.read(remade(folder, target))

    folder = fresh("kind")
    with pytest.raises(ArtifactError, match="holds a draft model"):
        storage.read(remade(folder, target, kind="draft model"))

    folder = fresh("files")
    (folder / "more.txt").write_text("x", encoding="utf-8")
    with pytest.raises(ArtifactError, match="more.txt"):
        storage.read(remade(folder, target))

    folder = fresh("weights")
    (folder / storage.WEIGHTS).write_bytes(b"no safetensors")
    with pytest.raises(ArtifactError, match="cannot be read"):
        storage.read(remade(folder, target))


def test_heads_of_another_kind_are_refused(tmp_path: Path, target: Any) -> None:
    folder = publish(tmp_path, shaken("medusa").float(), target.identity())
    with pytest.raises(ArtifactError, match="these are medusa heads, not hydra"):
        Hydra(folder)
    with pytest.raises(ArtifactError, match="no artifact"):
        Hydra(tmp_path / "nowhere")


def test_a_number_that_the_dtype_cannot_hold_is_refused(tmp_path: Path) -> None:
    heads = build(config_of("medusa", WIDTH))
    with torch.no_grad():
        heads.networks[0][0].linear.bias[0] = 1e6  # type: ignore[index,operator]
    with pytest.raises(SpecbookError, match="float16 cannot hold"):
        storage.write(tmp_path, heads, dtype="float16")
    storage.write(tmp_path, heads, dtype="bfloat16")
    with pytest.raises(SpecbookError, match="dtype"):
        storage.write(tmp_path, heads, dtype="int8")


def test_who_may_read_one_file_may_read_them_all(tmp_path: Path, target: Any) -> None:
    folder = publish(tmp_path, shaken("medusa").float(), target.identity())
    assert len({path.stat().st_mode for path in folder.iterdir()}) == 1


def test_the_digest_is_of_every_number_and_the_shape() -> None:
    one, same, other = (storage.digest(shaken("hydra", n)) for n in (1, 1, 2))
    assert one == same != other
    fewer = storage.digest(shaken("hydra", 1, heads=3))
    assert fewer != one


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    heads = build(config_of("hydra", np.int64(4), heads=1))
    storage.write(tmp_path, heads)  # a width of numpy's is as good as another
    with pytest.raises(ArtifactError, match="cannot be written to"):
        storage.write(tmp_path / "not there", heads)
    with pytest.raises(SpecbookError, match="not draft heads: NoneType"):
        storage.write(tmp_path, None)  # type: ignore[arg-type]
