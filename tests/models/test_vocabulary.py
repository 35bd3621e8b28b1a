"""Vocabularies that only look alike (case H23): compared by content, not by size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specbook.drafts.neural.draft_model import DraftModel
from specbook.drafts.neural.staged import Staged
from specbook.engine import generate
from specbook.errors import ContractError
from specbook.models import TableTarget, TransformersTarget, load_target, tiny_llama
from specbook.models.vocabulary import first_difference, tokenizer_difference

SIZE = 64


def tokenizer(
    *,
    swap: tuple[int, int] | None = None,
    end: str = "w1",
    lower: bool = False,
    special: tuple[str, ...] = (),
    split: str = "whitespace",
    begins: bool = False,
    padding: str = "w0",
    unknown: str = "w2",
) -> Any:
    """A word-level tokenizer of 64 words, with one thing about it changed."""
    from tokenizers import (
        Tokenizer,
        models,
        normalizers,
        pre_tokenizers,
        processors,
    )
    from transformers import PreTrainedTokenizerFast

    words = [f"w{i}" for i in range(SIZE)]
    if swap:
        one, other = swap
        words[one], words[other] = words[other], words[one]
    backend = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(words)}, unk_token=unknown)
    )
    if lower:
        backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = (
        pre_tokenizers.Whitespace()
        if split == "whitespace"
        else pre_tokenizers.WhitespaceSplit()
    )
    if begins:
        backend.post_processor = processors.TemplateProcessing(
            single="w1 $A", special_tokens=[("w1", words.index("w1"))]
        )
    made = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token=end,
        pad_token=padding,
        unk_token=unknown,
    )
    if special:
        made.add_special_tokens({"additional_special_tokens": list(special)})
    return made


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"swap": (3, 4)}, "id 3 is 'w3' in the target and 'w4' in the draft"),
        ({"end": "w3"}, "id 1, 'w1', is an added token .* no added token in the draft"),
        ({"special": ("w9",)}, "id 9, 'w9', is no added token .* an added token"),
        ({"special": ("new",)}, "id 64 is None in the target and 'new' in the draft"),
        ({"lower": True}, "normalizer differ: .*Lowercase"),
        ({"split": "words"}, "pre_tokenizer differ: type: .*WhitespaceSplit"),
        ({"begins": True}, "post_processor differ: single: .*Sequence"),
    ],
    ids=lambda value: "".join(value) if isinstance(value, dict) else "",
)
def test_h23_the_first_difference_is_named(changes: dict[str, Any], told: str) -> None:
    import re

    assert tokenizer_difference(tokenizer(), tokenizer()) is None
    found = tokenizer_difference(tokenizer(), tokenizer(**changes))
    assert found is not None and re.search(told, found), found


def test_h23_only_another_end_token() -> None:
    """Both tokens are special in both; which one ends a text is all that differs."""
    both = ("w1", "w3")
    one, other = tokenizer(special=both), tokenizer(special=both, end="w3")
    assert one.get_vocab() == other.get_vocab()
    found = tokenizer_difference(one, other)
    assert found == "eos_token_id is 1 in the target and 3 in the draft"


def test_another_padding_token_is_no_difference_of_the_vocabulary() -> None:
    both = ("w0", "w3")
    one, other = tokenizer(special=both), tokenizer(special=both, padding="w3")
    assert tokenizer_difference(one, other) is None


def test_merges_are_compared_though_the_vocabularies_are_equal() -> None:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    vocab = {token: i for i, token in enumerate(["a", "b", "c", "ab", "bc", "abc"])}

    def made(merges: list[tuple[str, str]]) -> Any:
        backend = Tokenizer(models.BPE(vocab, merges))
        return PreTrainedTokenizerFast(tokenizer_object=backend)

    one = made([("a", "b"), ("b", "c"), ("ab", "c")])
    other = made([("b", "c"), ("a", "b"), ("ab", "c")])
    assert one("abc")["input_ids"] != other("abc")["input_ids"]
    found = tokenizer_difference(one, other)
    assert found is not None and "model differ: merges: [0]" in found


# ---------------------------------------------------------------------- as targets


def folder(path: Path, seed: int = 0, **changes: Any) -> Path:
    """A checkpoint with a tokenizer."""
    tiny_llama(seed).save_pretrained(path)
    tokenizer(**changes).save_pretrained(path)
    return path


def test_h23_as_a_draft_model(tmp_path: Path) -> None:
    target = load_target(folder(tmp_path / "target"))
    same = load_target(folder(tmp_path / "same", seed=1))
    assert first_difference(target, same) is None
    source = DraftModel(same, widths=(1, 1))
    result = generate(target, [5, 6, 7], source, max_new_tokens=6)
    plain = generate(target, [5, 6, 7], None, max_new_tokens=6)
    assert result.tokens == plain.tokens
    for number, (changes, told) in enumerate(
        (
            ({"swap": (3, 4)}, "id 3 is 'w3' in the target and 'w4' in the draft"),
            ({"end": "w3"}, "id 1, 'w1'"),
        )
    ):
        other = load_target(folder(tmp_path / f"other{number}", seed=1, **changes))
        assert other.vocab_size == target.vocab_size
        for kind in (DraftModel, Staged):
            with pytest.raises(ContractError, match=told):
                generate(target, [5], kind(other), max_new_tokens=4)


def test_the_same_content_from_files_that_differ_is_accepted(tmp_path: Path) -> None:
    target = load_target(folder(tmp_path / "one"))
    other = folder(tmp_path / "two", seed=1)
    config = other / "tokenizer_config.json"
    config.write_text(config.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    draft = load_target(other)
    assert draft.identity()["tokenizer"] != target.identity()["tokenizer"]
    DraftModel(draft).check_target(target)


def test_without_tokenizers_sizes_decide_and_one_alone_is_refused(
    tmp_path: Path,
) -> None:
    table = TableTarget(lambda prefix: [1] + [0] * (SIZE - 1), vocab_size=SIZE)
    memory = TransformersTarget(tiny_llama())
    assert first_difference(table, memory) is None
    small = TransformersTarget(tiny_llama(vocab_size=32))
    assert first_difference(table, small) == (
        "the target's head has 64 rows, the draft's 32"
    )
    named = load_target(folder(tmp_path / "named"))
    for one, other, who in ((named, memory, "target"), (memory, named, "draft")):
        found = first_difference(one, other)
        assert found is not None and f"only the {who} has a tokenizer" in found


def test_a_comparison_is_made_once_for_each_pair(
    tmp_path: Path, monkeypatch: Any
) -> None:
    import specbook.models.vocabulary as module

    target = load_target(folder(tmp_path / "one"))
    same_files = DraftModel(load_target(folder(tmp_path / "same", seed=1)))
    again = folder(tmp_path / "two", seed=1)
    path = Path(again) / "tokenizer.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(content, indent=3), encoding="utf-8")
    source = DraftModel(load_target(again))
    other = load_target(folder(tmp_path / "three", swap=(3, 4)))
    asked = []

    def counted(one: Any, two: Any) -> str | None:
        asked.append(one)
        return first_difference(one, two)

    monkeypatch.setattr(module, "first_difference", counted)
    same_files.check_target(target)
    assert asked == []  # the same files need not be loaded
    for _ in range(3):
        source.check_target(target)
    assert asked == [target]
    for _ in range(2):
        with pytest.raises(ContractError):
            source.check_target(other)
    # Models in memory have nothing that a comparison could be remembered by.
    drafter = DraftModel(TransformersTarget(tiny_llama()))
    drafter.check_target(TransformersTarget(tiny_llama(1)))
    with pytest.raises(ContractError):
        drafter.check_target(TransformersTarget(tiny_llama(vocab_size=32)))
