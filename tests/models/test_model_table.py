"""The table of a tiny model says what the model says, and computes a prefix once."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from specbook.engine import generate
from specbook.errors import TargetError
from specbook.models.model_table import ModelTable
from specbook.models.protocol import HiddenTarget, gives_hidden
from specbook.models.tiny import tiny_llama, tiny_model
from specbook.tree import CandidateTree


def made(**changes):
    sizes = {"hidden_size": 12, "num_heads": 2, "num_kv_heads": 1, **changes}
    return tiny_llama(vocab_size=5, **sizes).double()


def test_laws_and_states_are_those_of_a_plain_forward():
    for tied in (False, True):
        model = made(tied=tied)
        table = ModelTable(model)
        assert isinstance(table, HiddenTarget) and gives_hidden(table)
        with torch.no_grad():
            out = model(torch.tensor([[0, 3, 1]]), output_hidden_states=True)
        law = torch.softmax(out.logits[0, -1], -1).numpy()
        assert np.abs(table.lookup((0, 3, 1)) - law).max() <= 1e-12
        session = table.start([0, 3, 1])
        session.watch_hidden()
        session.verify(CandidateTree.from_rows([], [], 3))
        session.commit([], 2)
        states = session.committed_hidden()
        assert states.shape == (3, 12) and states.dtype == torch.float64
        assert (states - out.hidden_states[-1][0]).abs().max() <= 1e-12
        assert (table.read_out(states) - out.logits[0]).abs().max() <= 1e-12
        cut = table.cut_head(torch.tensor([4, 1]))(states)
        assert torch.equal(cut, table.read_out(states)[:, [4, 1]])
        ids = torch.tensor([2, 4])
        assert torch.equal(table.embed_tokens(ids), model.model.embed_tokens(ids))


def test_a_prefix_is_read_once():
    table = ModelTable(made())
    calls, right = [], table.model.model.forward

    def counted(*given, **named):
        calls.append(1)
        return right(*given, **named)

    table.model.model.forward = counted
    for _ in range(2):
        generate(table, [0, 1], None, "greedy", max_new_tokens=4)
    assert len(calls) == 4


def test_another_model_is_refused():
    for model in (None, tiny_model("gpt2")):
        with pytest.raises(TargetError, match="model is needed"):
            ModelTable(model)
