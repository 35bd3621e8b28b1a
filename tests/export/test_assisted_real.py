"""Our sources inside `generate` of transformers, on the real target."""

from __future__ import annotations

import pytest
import torch

from specbook import prompts
from specbook.drafts.prompt_lookup import PromptLookup
from specbook.drafts.rest import Datastore, Rest
from specbook.drafts.suffix import Suffix
from specbook.export.assisted import generate
from specbook.models import load_target

pytestmark = [pytest.mark.real, pytest.mark.slow]

NEW_TOKENS = 24


@pytest.fixture(scope="module")
def target():
    return load_target(forward="transformers")


@pytest.fixture(scope="module")
def asked(target):
    """A prompt of each workload, and what plain greedy `generate` makes of it."""
    found = []
    for workload in prompts.WORKLOADS:
        prompt = next(p for p in prompts.load() if p.workload == workload)
        ids = (
            target.encode_chat(prompt.messages)
            if prompt.is_chat
            else target.encode(prompt.text)
        )
        ids = torch.tensor([ids])
        plain = target.model.generate(ids, do_sample=False, max_new_tokens=NEW_TOKENS)
        found.append((ids, plain))
    return found


@pytest.mark.parametrize("name", ["prompt_lookup", "suffix", "rest"])
def test_the_same_text_as_plain_greedy(target, asked, name):
    if name == "rest":
        # What the texts say, and more of it: a library that helps.
        told = [plain[0].tolist() for _, plain in asked]
        source = Rest(Datastore.build(told))
    else:
        source = {"prompt_lookup": PromptLookup, "suffix": Suffix}[name].tuned()
    forwards = []
    hook = target.model.register_forward_hook(lambda *one: forwards.append(1))
    try:
        for ids, plain in asked:
            ours = generate(
                target.model, ids, source, do_sample=False, max_new_tokens=NEW_TOKENS
            )
            assert ours.tolist() == plain.tolist()
    finally:
        hook.remove()
    # The edit repeats its prompt: some forwards were saved.
    new = sum(plain.shape[1] - ids.shape[1] for ids, plain in asked)
    assert len(forwards) < new
