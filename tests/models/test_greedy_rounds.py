"""Case H20: greedy equality from a one-token prompt, whatever is drafted.

Here through verify and commit alone; tests of the engine repeat it with real sources.
"""

from __future__ import annotations

import numpy as np
import pytest

from specbook.drafts.prompt_lookup import prompt_lookup
from specbook.models import LeanTarget, TransformersTarget, tiny_llama
from specbook.tree import CandidateTree

from .drive import greedy

NEW = 40


def lookup(tokens, truth):
    found = prompt_lookup(tokens, 3, 4)
    return [found] if found else []


def wrong(tokens, truth):
    return [[(truth[0] + 1) % 64, 5, 6]]


def right(tokens, truth):
    return [list(truth[:4])]


def second_child(tokens, truth):
    other = (truth[0] + 7) % 64
    return [[other, 1], [*truth[:1], (truth[1] + 3) % 64], list(truth[:3])]


@pytest.mark.parametrize("kind", [TransformersTarget, LeanTarget])
@pytest.mark.parametrize("draft", [lookup, wrong, right, second_child])
def test_h20_the_output_is_that_of_plain_greedy(draft, kind):
    model = tiny_llama(11)
    plain = TransformersTarget(model).plain_logits
    target = kind(model)
    prompt = [9]
    truth = greedy(target, prompt, NEW + 8)
    by_forward = list(prompt)
    for _ in range(NEW):
        by_forward.append(int(plain(by_forward)[-1].argmax()))
    assert truth[:NEW] == by_forward[1:]

    session = target.start(prompt)
    rounds = 0
    while len(session.tokens) < 1 + NEW:
        done = len(session.tokens) - 1
        paths = draft(session.tokens, truth[done:])
        tree = CandidateTree.from_paths(paths, len(session.tokens))
        rows = session.verify(tree)
        fresh = plain(session.tokens)[-1]
        assert np.abs(rows.logits(-1) - fresh).max() < 1e-4
        path, row = [], -1
        while True:
            token = rows.argmax(row)
            child = next(
                (c for c in tree.children(row) if tree.token_ids[c] == token), None
            )
            if child is None:
                break
            path.append(child)
            row = child
        session.commit(path, token)
        assert session.cached == len(session.tokens) - 1
        rounds += 1
    assert session.tokens[1 : 1 + NEW] == truth[:NEW]
    if draft is wrong:
        assert rounds == NEW
    if draft is right:
        assert rounds == NEW // 5
    if draft is second_child:
        assert rounds == NEW // 4
