"""The frozen prompts: counts, hashes, and halves that do not leak into each other.

Every check here is also shown to catch a planted fault.
"""

from __future__ import annotations

import json
import re
import shutil
from itertools import product
from pathlib import Path

import pytest

from specbook import paths, prompts
from specbook.errors import ArtifactError, SpecbookError


def shared(first: str, second: str, n: int = 5) -> float:
    """Share of the shorter text's n-grams of words that the other text has too."""
    grams = []
    for text in (first, second):
        words = re.findall(r"\w+", text.lower())
        grams.append({tuple(words[i : i + n]) for i in range(len(words) - n + 1)})
    smaller = min(map(len, grams))
    return len(grams[0] & grams[1]) / smaller if smaller else 0.0


def near_duplicates(items: list[prompts.Prompt], limit: float = 0.2) -> list[str]:
    """Pairs across the halves that share more than `limit` of their 5-grams."""
    halves = [[p for p in items if p.half == half] for half in prompts.HALVES]
    return [
        f"{first.id} ~ {second.id}"
        for first, second in product(*halves)
        if shared(first.text, second.text) > limit
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the shipped prompts that a test may spoil."""
    return Path(shutil.copytree(paths.data_path("prompts"), tmp_path / "prompts"))


def refreeze(folder: Path) -> None:
    """Makes the manifest agree with the spoiled files, to reach the later checks."""
    path = folder / "manifest.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content["files"] = prompts.describe(folder)
    path.write_text(json.dumps(content), encoding="utf-8")


@pytest.mark.parametrize("workload", prompts.WORKLOADS)
def test_every_workload_has_both_halves(workload: str) -> None:
    items = prompts.load(workload)
    assert len(items) >= 24
    for half in prompts.HALVES:
        assert len(prompts.load(workload, half)) >= 12
    assert {item.workload for item in items} == {workload}


def test_ids_are_unique_and_no_prompt_is_in_both_halves() -> None:
    items = prompts.load()
    assert len({item.id for item in items}) == len(items) >= 96
    assert len({item.text for item in items}) == len(items)


def test_the_halves_do_not_leak_into_each_other() -> None:
    assert near_duplicates(list(prompts.load())) == []


def test_a_leak_between_the_halves_would_be_found() -> None:
    items = list(prompts.load("answer_from_text"))
    original = next(item for item in items if item.half == "development")
    words = original.text.split()
    words[::17] = ["other"] * len(words[::17])
    copy = prompts.Prompt(
        "copy", original.workload, "evaluation", " ".join(words), True
    )
    assert near_duplicates([*items, copy]) == [f"{original.id} ~ copy"]


def test_prompts_have_the_sizes_that_were_asked_for() -> None:
    for item in prompts.load("edit_code"):
        code = item.text.split("```python\n")[1].removesuffix("```")
        compile(code, item.id, "exec")
        assert 25 <= code.count("\n") <= 60, item.id
    for item in prompts.load("answer_from_text"):
        passage = item.text.split("\n\n", 1)[1]
        assert 120 <= len(passage.split()) <= 250, item.id


def test_a_bare_document_has_no_messages() -> None:
    bare = prompts.load("continue_code")[0]
    assert not bare.is_chat
    with pytest.raises(ArtifactError, match="continue-01"):
        _ = bare.messages
    chat = prompts.load("chat")[0]
    assert chat.messages == [{"role": "user", "content": chat.text}]


def test_an_altered_file_is_refused_by_name(folder: Path) -> None:
    path = folder / "chat.toml"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("sourdough", "rye"), encoding="utf-8", newline="\n")
    with pytest.raises(ArtifactError, match=r"chat\.toml was altered"):
        prompts.load(folder=folder)
    assert prompts.load("edit_code", folder=folder), "the other files are still good"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('half = "evaluation"', 'half = "test"', "half 'test'"),
        ('id = "chat-02"', 'id = "chat-01"', "more than once: .'chat-01'"),
        ('half = "evaluation"\nask =', 'half = "evaluation"\nquestion =', "exactly"),
        ('workload = "chat"', 'workload = "talk"', "not a file of workload"),
        ("[[prompt]]", "[[prompt", "not a prompt file"),
        ('id = "chat-02"', 'id = ""', "non-empty text"),
    ],
)
def test_a_malformed_file_is_refused_by_name(
    folder: Path, old: str, new: str, message: str
) -> None:
    path = folder / "chat.toml"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8", newline="\n")
    with pytest.raises(ArtifactError, match=message):
        refreeze(folder)
        prompts.load(folder=folder)


def test_missing_files_and_wrong_counts_are_refused(folder: Path) -> None:
    path = folder / "manifest.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content["files"]["chat.toml"]["prompts"]["evaluation"] = 13
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ArtifactError, match=r"chat\.toml holds"):
        prompts.load("chat", folder=folder)
    (folder / "chat.toml").unlink()
    with pytest.raises(ArtifactError, match=r"chat\.toml is missing"):
        prompts.load("chat", folder=folder)
    content["files"]["chat.toml"].pop("sha256")
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ArtifactError, match=r"chat\.toml needs its sha256"):
        prompts.load("chat", folder=folder)
    del content["files"]["chat.toml"]
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ArtifactError, match="expected exactly the files"):
        prompts.load("chat", folder=folder)
    path.unlink()
    with pytest.raises(ArtifactError, match=r"manifest\.json is missing"):
        prompts.load(folder=folder)


@pytest.mark.parametrize("change", [{"format": 2}, {"licence": "MIT"}, {"more": 1}])
def test_a_foreign_manifest_is_refused(folder: Path, change: dict) -> None:
    path = folder / "manifest.json"
    content = json.loads(path.read_text(encoding="utf-8")) | change
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ArtifactError, match=r"manifest\.json"):
        prompts.load(folder=folder)
    path.write_text("{", encoding="utf-8")
    with pytest.raises(ArtifactError, match="not a prompt manifest"):
        prompts.manifest(folder)


def test_unknown_workloads_and_halves_are_refused() -> None:
    with pytest.raises(SpecbookError, match="workload must be one of"):
        prompts.load("poems")
    with pytest.raises(SpecbookError, match="half must be one of"):
        prompts.load("chat", "test")


@pytest.mark.parametrize("read", [prompts.load, prompts.manifest, prompts.describe])
@pytest.mark.parametrize("folder", [5, "a\0b", "/dev/null", "no such folder"])
def test_a_folder_that_is_none_is_named(read, folder):
    with pytest.raises(ArtifactError, match="folder must be|null|missing|Not a dir"):
        read(folder=folder)


def test_a_folder_without_prompts_or_with_others_is_named(tmp_path):
    with pytest.raises(ArtifactError, match=r"continue_code.toml is missing"):
        prompts.describe(tmp_path)
    text = 'workload = "continue_code"\nprompt = 5\n'
    (tmp_path / "continue_code.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ArtifactError, match=r"prompts are \[\[prompt\]\] tables"):
        prompts.describe(tmp_path)
