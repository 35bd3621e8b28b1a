"""Draft models for the real target: the target itself, and a stranger to it.

What a trained draft model accepts is measured (`bench_draft`), not asserted.
"""

from __future__ import annotations

import pytest
import torch

from specbook import prompts
from specbook.drafts.neural.draft_model import DraftModel
from specbook.drafts.neural.staged import Staged
from specbook.engine import generate
from specbook.errors import ContractError
from specbook.models import load_target

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture(scope="module")
def target():
    return load_target()


@pytest.fixture(scope="module")
def stranger(target, tmp_path_factory):
    """An untrained Llama of width 64 with the target's tokenizer."""
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("stranger")
    config = LlamaConfig(
        vocab_size=target.vocab_size,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=True,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        LlamaForCausalLM(config).save_pretrained(folder)
    target.tokenizer.save_pretrained(folder)
    return load_target(folder)


def encoded(target):
    prompt = prompts.load("edit_code", "development")[0]
    return target.encode_chat(prompt.messages)


def test_the_target_as_its_own_draft_is_accepted_whole(target):
    source = DraftModel(target, widths=(1, 1, 1))
    ids = encoded(target)
    result = generate(target, ids, source, max_new_tokens=12)
    assert [r.accepted for r in result.rounds] == [3, 3, 3]
    assert result.tokens == generate(target, ids, None, max_new_tokens=12).tokens


def test_a_stranger_with_the_same_tokenizer_changes_nothing(target, stranger):
    """Other files, the same content; its drafts are all but never accepted."""
    ids = encoded(target)
    plain = generate(target, ids, None, max_new_tokens=16).tokens
    for source in (
        DraftModel(stranger, widths=(1, 1)),
        DraftModel(stranger, widths=(2, 1), children="top_k"),
        Staged(DraftModel(stranger, widths=(1, 1, 1))),
    ):
        result = generate(target, ids, source, max_new_tokens=16)
        assert result.tokens == plain
        assert any(len(r.tree) for r in result.rounds)


def test_a_stranger_with_a_tokenizer_of_its_own_is_refused(target, stranger, tmp_path):
    from transformers import AutoTokenizer

    stranger.transformers_model().save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(stranger.source)
    tokenizer.eos_token = tokenizer.bos_token
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ContractError, match="eos_token_id"):
        generate(target, [5], DraftModel(tmp_path), max_new_tokens=4)
