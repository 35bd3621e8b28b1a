"""Hidden states on disk: the target's own, found by their tokens, damaged or not."""

import dataclasses
import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save

from specbook.errors import ArtifactError, SpecbookError
from specbook.models.heads import build
from specbook.models.tiny import tiny_llama
from specbook.training import heads as loop
from specbook.training import states
from specbook.training.packed import segment_causal_states

from .test_heads_training import SETTINGS, WIDTH, taught

DOCUMENTS = [[3, 1, 4, 1, 5], [9, 2, 6], [5, 3, 5, 8, 9, 7, 9], [9, 2, 6]]


@pytest.fixture(scope="module")
def model():
    return tiny_llama(0).requires_grad_(False)


def stored(model, folder, documents=DOCUMENTS, key="the key", **options):
    return states.store(model, documents, folder=folder, key=key, **options)


@pytest.fixture
def counted(monkeypatch):
    """The documents whose states are computed."""
    found = []

    def counting(model, ids, segments):
        found.append(list(ids))
        return segment_causal_states(model, ids, segments)

    monkeypatch.setattr(states, "segment_causal_states", counting)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_read_is_what_the_target_says(tmp_path, dtype, counted):
    model = tiny_llama(1).to(dtype).requires_grad_(False)
    kept = stored(model, tmp_path)
    assert counted == DOCUMENTS[:3]
    for ids in DOCUMENTS:
        found = kept.read(ids)
        assert found.dtype == dtype
        assert torch.equal(found, segment_causal_states(model, ids, [0] * len(ids)))
    assert kept.described() == {"documents": 3, "sha256": kept.sha256}


def test_a_document_that_is_not_stored_is_refused(model, tmp_path):
    kept = stored(model, tmp_path)
    for other in ([3, 1, 4, 1], [3, 1, 4, 1, 5, 9], [3, 1, 4, 1, 6], []):
        with pytest.raises(SpecbookError, match="not stored"):
            kept.read(other)


def test_only_what_is_missing_is_computed(model, tmp_path, counted, monkeypatch):
    monkeypatch.setattr(states, "DOCUMENTS", 1)
    told = []
    first = stored(model, tmp_path, progress=told.append)
    files = sorted(tmp_path.iterdir())
    assert len(files) == len(told) == 3 and "states of 3 of 3" in told[-1]
    assert stored(model, tmp_path).sha256 == first.sha256 and len(counted) == 3
    more = [*DOCUMENTS, [7, 7]]
    assert stored(model, tmp_path, more).sha256 != first.sha256
    assert counted[3:] == [[7, 7]]
    files[0].unlink()
    assert stored(model, tmp_path).sha256 == first.sha256 and len(counted) == 5


def test_files_of_several_targets_lie_side_by_side(model, tmp_path):
    first = stored(model, tmp_path)
    other = stored(tiny_llama(5).requires_grad_(False), tmp_path, key="another key")
    half = stored(tiny_llama(0).bfloat16().requires_grad_(False), tmp_path)
    assert len({first.sha256, other.sha256, half.sha256}) == 3
    assert len(list(tmp_path.iterdir())) == 3
    assert stored(model, tmp_path).sha256 == first.sha256


def test_every_flipped_byte_is_found(model, tmp_path):
    stored(model, tmp_path, [[1, 2], [3]])
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1
        file.write_bytes(changed)
        with pytest.raises(ArtifactError):
            stored(model, tmp_path, [[1, 2], [3]])
    for content in (b"", whole[:-1], whole + b"\0"):
        file.write_bytes(content)
        with pytest.raises(ArtifactError):
            stored(model, tmp_path, [[1, 2], [3]])


def test_a_file_of_another_key_is_refused(model, tmp_path):
    stored(model, tmp_path / "a")
    stored(model, tmp_path / "b", key="another key")
    (mine,), (other,) = (tmp_path / "a").iterdir(), (tmp_path / "b").iterdir()
    mine.write_bytes(other.read_bytes())
    with pytest.raises(ArtifactError, match="other documents or weights"):
        stored(model, tmp_path / "a")


@pytest.mark.parametrize("kind", ["medusa", "hydra_plus"])
def test_a_batch_teaches_the_same_from_a_store(model, tmp_path, kind):
    """Documents alone or packed: the same states but for rounding."""
    sequences = taught()
    kept = stored(model, tmp_path, [s.tokens.tolist() for s in sequences])
    settings = dataclasses.replace(SETTINGS, kind=kind)
    grads = []
    for teacher in (loop.Teacher(model), loop.Teacher(model, stored=kept)):
        heads = build(settings.config(WIDTH), 0)
        generator = torch.Generator().manual_seed(0)
        options = {"generator": generator}
        loop.batch_loss(heads, teacher, sequences, settings, **options).backward()
        grads.append([p.grad for p in heads.parameters()])
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-4)
    assert any(bool(grad.abs().max() > 1e-4) for grad in grads[0])


def test_a_store_lacking_a_document_teaches_nothing(model, tmp_path):
    sequences = taught()
    kept = stored(model, tmp_path, [s.tokens.tolist() for s in sequences[1:]])
    heads = build(SETTINGS.config(WIDTH), 0)
    with pytest.raises(SpecbookError, match="not stored"):
        loop.batch_loss(heads, loop.Teacher(model, stored=kept), sequences, SETTINGS)


@pytest.mark.parametrize(
    ("documents", "options", "told"),
    [
        ([[1.5, 2]], {}, "tokens"),
        ([[-1]], {}, "tokens"),
        ([[]], {}, "at least one"),
        ([[64]], {}, "64"),
        (DOCUMENTS, {"key": 3}, "key"),
        (DOCUMENTS, {"folder": 3}, "folder"),
    ],
)
def test_bad_input_is_refused(model, tmp_path, documents, options, told):
    with pytest.raises(SpecbookError, match=told):
        states.store(model, documents, **{"folder": tmp_path, "key": "k", **options})
    assert not list(tmp_path.iterdir())


def test_a_file_whose_words_and_rows_part_is_refused(model, tmp_path):
    """Each has the right key and a hash of its own that fits."""
    stored(model, tmp_path, [[1, 2], [3]])
    (path,) = tmp_path.iterdir()
    with safe_open(path, framework="pt") as file:
        noted = json.loads(file.metadata()["specbook"])
        whole = file.get_tensor("states")

    def forge(tensor, told=None):
        fitting = {**noted, "sha256": states._digest(tensor) if tensor.dim() else ""}
        words = json.dumps(fitting) if told is None else told
        path.write_bytes(save({"states": tensor}, metadata={"specbook": words}))

    forge(whole)
    stored(model, tmp_path, [[1, 2], [3]])
    for tensor, told in (
        (whole[:2], r"states \[2, \d+\] for documents of 3 tokens"),
        (whole[0, 0], r"states \[\] for documents of 3 tokens"),
    ):
        forge(tensor)
        with pytest.raises(ArtifactError, match=told):
            stored(model, tmp_path, [[1, 2], [3]])
    forge(whole, "[" * 100_000)
    with pytest.raises(ArtifactError, match="cannot be read"):
        stored(model, tmp_path, [[1, 2], [3]])


def test_what_is_no_model_and_no_list_is_refused(model, tmp_path):
    for given, told in (((None, [[1]]), "model"), ((model, None), "documents")):
        with pytest.raises(SpecbookError, match=told):
            states.store(*given, folder=tmp_path, key="k")
