"""A round taken apart: the two lost tables, what a model gets, and planted faults."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from specbook import fixture, trace
from specbook.engine import generate
from specbook.errors import ProposalError, SpecbookError, TargetError, TreeError
from specbook.models import TableTarget, TransformersTarget, tiny_llama
from specbook.tree import CandidateTree

NAMES = dict(enumerate(fixture.NAMES))
DEEP = fixture.tree_of(fixture.DRAWN)
PROMPT = [3, 1, 4, 1, 5]


@pytest.fixture(scope="module")
def tiny():
    return TransformersTarget(tiny_llama())


@pytest.fixture(scope="module")
def letters(tiny):
    return trace.guesses(tiny, PROMPT)


@pytest.fixture(scope="module")
def graph(letters):
    words = ("ABC", "ABD", "ABE", "AF", "XB")
    paths = [[letters[letter] for letter in word] for word in words]
    return CandidateTree.from_paths(paths, len(PROMPT), "depth")


def test_the_lost_table_of_rows():
    rows = [" | ".join(line) for line in trace.flattened(DEEP, NAMES).rows]
    assert rows[0] == "0 | A | -1 | 1 | A | hydra: q 1/7, rest: score 2"
    assert rows[4] == "4 | E | 1 | 3 | A B E | rest: score 1"
    assert rows[7] == "7 | B | 6 | 2 | X B | hydra: q 1/7"
    plain = CandidateTree.from_paths([[9]], 0, sources=["s"])
    assert trace.flattened(plain, str).rows[0][-1] == "s: no number"


def test_the_lost_table_of_coordinates():
    rows = [" | ".join(line) for line in trace.coordinates(DEEP, NAMES).rows]
    assert rows[3] == "3 | D | 7 | 1 | 8 | 0 1 3"
    assert rows[7] == "7 | B | 6 | 6 | 12 | 6 7"
    level = fixture.tree_of(fixture.DRAWN, "breadth")
    rows = [" | ".join(line) for line in trace.coordinates(level, NAMES).rows]
    assert rows[4] == "4 | B | 6 | 1 | 9 | 1 4"


def test_what_is_handed_is_what_was_compiled(tiny, graph):
    got, should = trace.handed(tiny, PROMPT, graph), trace.wanted(PROMPT, graph)
    assert got.ids == should.ids and got.positions == should.positions
    assert np.array_equal(got.sees, should.sees)


@pytest.mark.parametrize("buffer", ["tree_mask", "position_ids"])
def test_a_mixture_is_handed_over_and_seen(tiny, graph, buffer):
    other = CandidateTree.from_paths(graph.paths(), len(PROMPT))
    wrong = trace.mixed(buffer, other).from_paths(graph.paths(), len(PROMPT), "depth")
    got, should = trace.handed(tiny, PROMPT, wrong), trace.wanted(PROMPT, graph)
    same = got.positions == should.positions, np.array_equal(got.sees, should.sees)
    assert same == (buffer == "tree_mask", buffer == "position_ids")
    with pytest.raises(TreeError, match="row 1"):
        wrong.validate()


def test_guesses_are_the_targets_own(tiny, letters):
    assert len(set(letters.values())) == 7
    text = list(PROMPT)
    for letter in "ABD":
        assert letters[letter] == int(tiny.plain_logits(text)[-1].argmax())
        text.append(letters[letter])


def test_rows_that_are_kept_under_their_own_name_change_nothing(tiny, letters, graph):
    row = graph.full_prefixes.index(tuple(letters[x] for x in "ABD"))
    path = [graph.token_ids[r] for r in graph.path_rows(row)]
    gap, tokens = trace.kept_as(tiny, PROMPT, graph, row, path, steps=3)
    assert gap < 1e-4
    assert tokens == generate(tiny, PROMPT, max_new_tokens=7).tokens


def test_rows_that_are_kept_under_a_wrong_name_are_told_by_logits(tiny, letters, graph):
    row = graph.full_prefixes.index(tuple(letters[x] for x in "ABE"))
    published = [letters[x] for x in "ABD"]
    gap, tokens = trace.kept_as(tiny, PROMPT, graph, row, published, steps=1)
    assert gap > 1e-2
    assert len(tokens) == 5 and tokens[:3] == published


def test_an_untrue_source_is_refused_and_an_honest_one_is_not():
    target = TableTarget(lambda prefix: [Fraction(1, 2)] * 2, vocab_size=2)

    def tokens(source):
        return generate(target, [0], source, "membership", max_new_tokens=3).tokens

    assert len(tokens(trace.Untrue([0, 1]))) == 3
    with pytest.raises(ProposalError, match="beam"):
        tokens(trace.Untrue([0, 1], sampling_relation="beam"))


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (lambda: trace.flattened(None, NAMES), TreeError, "not a CandidateTree"),
        (lambda: trace.coordinates(DEEP, None), SpecbookError, "names must be"),
        (lambda: trace.mixed("tokens", DEEP), SpecbookError, "buffer"),
        (lambda: trace.handed(None, [1], DEEP), TargetError, "hands nothing"),
        (lambda: trace.mixed("tree_mask", [1]), TreeError, "not a CandidateTree"),
        (
            lambda: trace.guesses(TableTarget({(0,): [Fraction(1)]}), [0]),
            TargetError,
            "seven tokens are asked for, the target has 1",
        ),
        (
            lambda: trace.kept_as(None, [1], None, 3, [1]),
            TreeError,
            "not a CandidateTree",
        ),
        (
            lambda: trace.kept_as(None, [1], DEEP, 3, "abc"),
            SpecbookError,
            "published",
        ),
        (
            lambda: trace.kept_as(None, [1], DEEP, 3, [1]),
            TreeError,
            "3 rows cannot be kept as 1 tokens",
        ),
    ],
    ids=["tree", "names", "buffer", "target", "other", "few", "none", "text", "path"],
)
def test_bad_input_is_refused(wrong, error, message):
    with pytest.raises(error, match=message):
        wrong()
