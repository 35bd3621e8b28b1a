"""The default target itself: the lean forward against transformers, and its text.

Decoding it is tested with the engine; here are the rows and the weights.
"""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest
import torch

from specbook.models import LeanTarget, load_target
from specbook.models.lean import _packed_kernel

from .drive import check_rows, greedy, random_path, random_tree

target_dir = import_module("specbook.models.fetch").target_dir

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def target():
    return load_target(target_dir())


@pytest.fixture(scope="module")
def reference(target):
    return target.transformers_model()


def test_the_default_target_gets_the_lean_forward(target):
    assert type(target) is LeanTarget
    assert target.eos_token_id == 2 and target.context_limit == 8192
    assert (target.vocab_size, str(target.dtype)) == (49152, "torch.float32")
    # 30 layers, keys and values, 3 heads of 64, 4 bytes.
    assert target.start([1]).bytes_per_row() == 30 * 2 * 3 * 64 * 4


def test_rows_equal_transformers_before_and_after_commits(target, reference):
    def plain(tokens):
        with torch.inference_mode():
            ids = torch.tensor([list(tokens)])
            return reference(ids, logits_to_keep=1).logits[0].numpy()

    random = np.random.default_rng(0)
    session = target.start(target.encode("def area(width, height):\n    return"))
    for _ in range(3):
        tree = random_tree(random, 49152, len(session.tokens), 5)
        check_rows(session.verify(tree), tree, session.tokens, plain, tolerance=2e-4)
        session.commit(random_path(random, tree), int(random.integers(49152)))
        assert session.cached == len(session.tokens) - 1


def test_greedy_tokens_equal_transformers_generate(target, reference):
    prompt = target.encode_chat("Name three colours.")
    with torch.inference_mode():
        found = reference.generate(
            torch.tensor([prompt]), max_new_tokens=16, do_sample=False
        )
    assert greedy(target, prompt, 16)[: len(found[0]) - len(prompt)] == (
        found[0, len(prompt) :].tolist()
    )


def test_text_goes_there_and_back(target):
    text = "naïve 😀 日本 café\n\tdef f(x): return x  # 12"
    assert target.decode(target.encode(text)) == text
    chat = target.decode(target.encode_chat([{"role": "user", "content": "Hi"}]))
    assert chat.startswith("<|im_start|>system\n")
    assert chat.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")


def test_identity_names_content(target):
    about = target.identity()
    assert "sha256:" in about["checkpoint"] and "sha256:" in about["tokenizer"]
    assert about["output_head"] == "49152 x 576, tied to the embeddings"
    assert "forward lean" in about["backend"]


def test_packed_matrices_are_in_use_where_torch_has_them(target):
    packed = {
        matrix.packed
        for layer in target._weights.layers
        for _, *matrices in layer
        for matrix in matrices
    }
    assert packed == {_packed_kernel() is not None}
