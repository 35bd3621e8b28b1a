"""Lessons from recorded answers: the laws are those of plain forwards."""

import numpy as np
import pytest
import torch

from specbook.errors import SpecbookError
from specbook.models.tiny import tiny_llama
from specbook.training import recorded
from specbook.training.heads import count_rows, pack

ANSWERS = [([5, 9, 11], [2, 40, 7, 33]), ([60, 2], [1, 4]), ([3, 3], [8])]


def model():
    return tiny_llama(0).requires_grad_(False)


def made(where, answers=ANSWERS, **options):
    return recorded.lessons(model(), answers, folder=where, key="tiny", **options)


def test_each_row_is_the_law_behind_a_token_of_the_answer(tmp_path):
    teacher, found = made(tmp_path, top_k=5)
    for (prompt, answer), s in zip(ANSWERS, found, strict=True):
        assert s.tokens.tolist() == [*prompt, *answer]
        assert s.prompt_length == len(prompt) and len(s.top_ids) == len(answer)
        for row in range(len(answer)):
            read = torch.tensor([[*prompt, *answer[:row]]])
            logits = teacher.model(input_ids=read).logits[0, -1]
            law = torch.log_softmax(logits, -1).topk(5)
            assert s.top_ids[row].tolist() == law.indices.tolist()
            np.testing.assert_allclose(s.top_logps[row], law.values, atol=1e-5)


def test_the_teacher_has_read_them(tmp_path):
    teacher, found = made(tmp_path)
    stream = pack(found)
    kept = teacher.states(stream)
    fresh = type(teacher)(teacher.model).states(stream)
    torch.testing.assert_close(kept, fresh, rtol=1e-4, atol=1e-5)
    assert count_rows(found, 1) == [sum(len(answer) for _, answer in ANSWERS)]


def test_rows_are_read_off_in_parts(tmp_path, monkeypatch):
    whole = made(tmp_path)[1]
    monkeypatch.setattr(recorded, "ROWS_AT_ONCE", 2)
    for one, other in zip(whole, made(tmp_path)[1], strict=True):
        assert np.array_equal(one.top_ids, other.top_ids)


@pytest.mark.parametrize(
    "answer",
    [([], [1]), ([1], []), 7, [[1]], ([1], [2], [3]), ([1], [64]), ([1], 2), "ab"],
)
def test_what_is_empty_is_refused(tmp_path, answer):
    with pytest.raises(SpecbookError, match=r"answers\[1\]"):
        made(tmp_path, [ANSWERS[0], answer])
    with pytest.raises(SpecbookError, match="answers must be"):
        made(tmp_path, None)
    with pytest.raises(SpecbookError, match="no answers"):
        made(tmp_path, [])


@pytest.mark.parametrize("top_k", [0, 65])
def test_more_tokens_than_there_are_are_refused(tmp_path, top_k):
    with pytest.raises(SpecbookError, match="top_k"):
        made(tmp_path, top_k=top_k)
