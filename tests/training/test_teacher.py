"""Teacher data: what is asked, what is left out, and what an interruption costs."""

import dataclasses
import re

import numpy as np
import pytest

from specbook import corpora, prompts
from specbook.errors import ArtifactError, SpecbookError
from specbook.training import asks, teacher
from specbook.training.settings import CYCLE, NEW_TOKENS, Recipe

RECIPE = Recipe(
    sequences=2, top_k=4, prompt_tokens=700, window_tokens=60, packages=("rich",)
)


@pytest.fixture(scope="module")
def files():
    kept, _ = corpora.split(corpora.package_sources(("rich", "networkx")))
    return asks.by_package(kept)


@pytest.fixture
def short_validation(monkeypatch):
    """One short development prompt a workload: the byte tokenizer makes long ones."""
    real = prompts.load

    def load(workload=None, half=None):
        found = sorted(real(workload, half), key=lambda prompt: len(prompt.text))
        return tuple(found if workload is None else found[:1])

    monkeypatch.setattr(teacher.prompts, "load", load)


def make(tiny_folder, where, rows=1, source_rows=0, **changes):
    recipe = dataclasses.replace(RECIPE, **changes)
    options = {"rows": rows, "source_rows": source_rows, "folder": where}
    return teacher.make(str(tiny_folder), recipe, **options)


# ---- asks ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", asks.KINDS)
def test_asks_are_drawn_from_the_generator_alone(files, kind):
    def drawn(seed):
        generator = np.random.default_rng(seed)
        return [asks.make(kind, files, generator) for _ in range(5)]

    assert drawn(0) == drawn(0) != drawn(1)
    for ask in drawn(0):
        assert ask.kind == kind and ask.text.strip()
        assert ask.is_chat is (kind not in ("continue_code", "source"))


def test_no_wording_of_ours_is_a_frozen_one():
    """Neither a template nor a topic occurs in a frozen prompt, or the reverse."""
    frozen = [" ".join(prompt.text.lower().split()) for prompt in prompts.load()]
    asked = [text.split("\n")[0] for text in frozen]
    for wording in (w for w in asks.wordings() if len(w.split()) > 3):
        plain = re.sub(r"`?\{\w+\}`?", "", wording.lower()).strip(" .?")
        assert not any(plain in text for text in frozen), wording
    generator = np.random.default_rng(0)
    for _ in range(300):
        text = asks.make("chat", {}, generator).text.lower()
        assert not any(text in line or line in text for line in asked)


def test_what_shares_a_run_with_a_frozen_prompt_is_thrown_away(monkeypatch, files):
    frozen = prompts.load("edit_code", "evaluation")[0].text
    words = re.findall(r"\w+", frozen)
    leak = " ".join(words[5 : 5 + asks.FROZEN_RUN])
    assert asks.overlaps_frozen(f"before that\n{leak.upper()}, after")
    assert not asks.overlaps_frozen(" ".join(words[5 : 4 + asks.FROZEN_RUN]))
    monkeypatch.setitem(asks._MAKERS, "chat", lambda files, generator: leak)
    with pytest.raises(SpecbookError, match="no usable chat text"):
        asks.make("chat", files, np.random.default_rng(0))


def test_tests_of_packages_are_left_out(files):
    paths = [file.path for package in files.values() for file in package]
    assert paths and not any("/tests/" in path for path in paths)


def test_bad_asks_are_refused(files):
    with pytest.raises(SpecbookError, match="kind"):
        asks.make("poem", files, np.random.default_rng(0))
    with pytest.raises(SpecbookError, match="no source files"):
        asks.make("source", {}, np.random.default_rng(0))


# ---- shards ----------------------------------------------------------------------


def test_data_are_made_once_and_used_again(
    tiny_folder, tmp_path, short_validation, monkeypatch
):
    first = make(tiny_folder, tmp_path, rows=2500)
    assert first.counts["rows"] >= 1500
    assert list(first.files) == [
        f"teacher-{i:04d}.safetensors" for i in range(len(first.files))
    ]
    assert len(first.files) >= 3
    sequences = first.sequences()
    assert sum(len(s.top_ids) for s in sequences) == first.counts["rows"]
    assert set(first.validation_sequences()) == {*prompts.WORKLOADS, "source"}

    def loads_nothing(*arguments, **options):
        raise AssertionError("the target was loaded")

    monkeypatch.setattr(teacher, "load_transformers_model", loads_nothing)
    assert make(tiny_folder, tmp_path, rows=2500) == first
    # Fewer rows are a beginning of the same data.
    less = make(tiny_folder, tmp_path, rows=1)
    assert list(less.files.items()) == list(first.files.items())[:1]
    monkeypatch.undo()


def test_a_shard_does_not_depend_on_its_neighbours(
    tiny_folder, tmp_path, short_validation
):
    first = make(tiny_folder, tmp_path, rows=2500)
    lost = list(first.files)[1]
    (tmp_path / lost).unlink()
    told = []
    again = teacher.make(
        str(tiny_folder), RECIPE, rows=2500, folder=tmp_path, progress=told.append
    )
    assert again == first
    assert len(told) == 1 and told[0].startswith("teacher-0001 (continue_code)")


def test_more_source_comes_behind_and_changes_nothing_before(
    tiny_folder, tmp_path, short_validation
):
    plain = make(tiny_folder, tmp_path)
    more = make(tiny_folder, tmp_path, source_rows=400)
    extra = [name for name in more.files if name.startswith("source-")]
    assert list(more.files) == [*plain.files, *extra] and len(extra) > 1
    assert all(more.files[name] == plain.files[name] for name in plain.files)
    assert len({*more.files.values()}) == len(more.files)  # no shard twice
    found = more.counts["by_kind"]["source"]
    assert found["rows"] >= 400 and found["sequences"] == len(extra) * 2
    assert more.counts["rows"] == plain.counts["rows"] + found["rows"]
    (tmp_path / extra[0]).unlink()
    assert make(tiny_folder, tmp_path, source_rows=400) == more
    assert make(tiny_folder, tmp_path) == plain


def test_rows_of_another_teacher_or_recipe_are_refused(
    tiny_folder, tmp_path, short_validation
):
    make(tiny_folder, tmp_path / "a")
    with pytest.raises(ArtifactError, match="another teacher or recipe"):
        make(tiny_folder, tmp_path / "a", seed=1)
    from specbook.models.tiny import tiny_llama

    other = tmp_path / "other"
    tiny_llama(9, vocab_size=256).save_pretrained(other)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (other / name).write_bytes((tiny_folder / name).read_bytes())
    with pytest.raises(ArtifactError, match="another teacher or recipe"):
        make(other, tmp_path / "a")


def test_kinds_templates_and_held_out_files(tiny_folder, tmp_path, short_validation):
    data = make(tiny_folder, tmp_path, rows=2500)
    corpus = data.corpus
    assert corpus["taught"]["files"] > corpus["held_out"]["files"] > 0
    assert corpus["taught"]["snapshot"] != corpus["held_out"]["snapshot"]
    assert any("rich" in name for name in corpus["licences"])
    assert list(data.counts["by_kind"]) == sorted(set(CYCLE[: len(data.files)]))
    assert set(CYCLE) == set(NEW_TOKENS)
    edits = data.sequences()[:2]
    for sequence in edits:
        # The template's own beginning is not taught: "<user>" is six bytes.
        assert sequence.first_row == 6
        assert sequence.prompt_length < len(sequence.tokens)


def test_bad_input_is_refused(tiny_folder, tmp_path):
    for rows in (0, True, 1.5):
        with pytest.raises(SpecbookError, match="rows"):
            make(tiny_folder, tmp_path, rows=rows)
    with pytest.raises(SpecbookError, match="fits into 3 tokens"):
        maker = teacher._Maker(
            str(tiny_folder), dataclasses.replace(RECIPE, prompt_tokens=3), {}
        )
        sources = asks.by_package(corpora.package_sources(("rich",)))
        maker.shard("edit_code", 0, sources)
    with pytest.raises(SpecbookError, match="source_rows"):
        make(tiny_folder, tmp_path, source_rows=-1)
    for changes in (
        {"seed": -1},
        {"sequences": 0},
        {"top_k": True},
        {"dtype": "int8"},
        {"window_tokens": 1},
    ):
        with pytest.raises(SpecbookError, match=next(iter(changes))):
            Recipe(**changes)
