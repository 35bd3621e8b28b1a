"""TableTarget: exact laws, the protocol's own rules, and no torch."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction as Fr

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specbook.errors import SpecbookError
from specbook.models import TableTarget, Target, TargetRows, TargetSession
from specbook.policy import SamplingPolicy
from specbook.tree import CandidateTree

HALF = (Fr(1, 2), Fr(1, 3), Fr(1, 6))
PLAIN = SamplingPolicy()


def empty(length):
    return CandidateTree.from_rows([], [], length)


def test_fractions_stay_fractions_and_floats_stay_floats():
    target = TableTarget({(0,): HALF, (0, 1): [0.25, 0.5, 0.25]})
    rows = target.start([0]).verify(CandidateTree.from_rows([1], [-1], 1))
    exact = rows.law(-1, PLAIN)
    assert exact.tolist() == list(HALF)
    assert all(isinstance(p, Fr) for p in exact)
    assert rows.law(0, PLAIN).tolist() == [0.25, 0.5, 0.25]
    assert rows.law(-1, SamplingPolicy(0)).tolist() == [1, 0, 0]


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=3),
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=3), max_size=4),
)
def test_the_law_of_a_row_is_that_of_prefix_and_path(prompt, paths):
    seen = []

    def table(prefix):
        seen.append(prefix)
        return HALF

    target = TableTarget(table, vocab_size=3)
    tree = CandidateTree.from_paths(paths, len(prompt))
    rows = target.start(prompt).verify(tree)
    assert not seen, "laws are looked up only when asked for"
    for row in range(-1, len(tree)):
        rows.law(row, PLAIN)
        path = tree.full_prefixes[row] if row >= 0 else ()
        assert seen[-1] == (*prompt, *path)


@pytest.mark.parametrize(
    ("law", "message"),
    [
        ([0.5, 0.4, 0.0], "sums to"),
        ([Fr(1, 2), Fr(1, 3), Fr(1, 7)], "sums to"),
        ([1.5, -0.5, 0.0], "negative"),
        ([Fr(3, 2), Fr(-1, 2), Fr(0)], "negative"),
        ([float("nan"), 0.5, 0.5], "NaN"),
        ([float("nan")] * 3, "NaN"),
        ([float("-inf")] * 3, "infinite"),
        ([0.5, 0.5], "2 entries"),
        ([], "one row|0 entries"),
    ],
)
def test_h18_a_broken_law_names_its_prefix(law, message):
    target = TableTarget({(2, 1): law, (2,): HALF}, vocab_size=3)
    rows = target.start([2]).verify(CandidateTree.from_rows([1], [-1], 1))
    with pytest.raises(ValueError, match=message) as caught:
        rows.law(0, PLAIN)
    assert "(2, 1)" in str(caught.value)
    assert rows.law(-1, PLAIN).tolist() == list(HALF)


def test_an_unknown_prefix_is_named():
    for table in ({(1,): HALF}, lambda prefix: None, lambda prefix: {}[prefix]):
        target = TableTarget(table, vocab_size=3)
        with pytest.raises(ValueError, match=r"no law for prefix \(0, 2\)"):
            target.start([0, 2]).verify(empty(2)).law(-1, PLAIN)


@pytest.mark.parametrize("prompt", [[], [3], [-1], ["a"], [1.0], 5, [True]])
def test_a_bad_prompt_is_refused(prompt):
    with pytest.raises(ValueError):
        TableTarget({(0,): HALF}).start(prompt)


@pytest.mark.parametrize("table", [None, 3, [(0,)], {}, lambda prefix: HALF])
def test_a_bad_table_is_refused(table):
    with pytest.raises(ValueError, match="table|vocab_size"):
        TableTarget(table)


def test_it_fits_the_protocol_and_says_who_it_is():
    target = TableTarget({(0,): HALF})
    session = target.start([0])
    assert isinstance(target, Target)
    assert isinstance(session, TargetSession)
    assert isinstance(session.verify(empty(1)), TargetRows)
    keys = {"checkpoint", "tokenizer", "output_head", "dtype", "backend"}
    assert set(target.identity()) == keys
    other = TableTarget({(0,): HALF[::-1]})
    assert target.identity() == TableTarget({(0,): HALF}).identity()
    assert target.identity()["checkpoint"] != other.identity()["checkpoint"]


def test_two_functions_never_have_one_identity():
    def make(law):
        def f(prefix):
            return law

        return f

    one, other = (TableTarget(make(law), vocab_size=3) for law in (HALF, HALF[::-1]))
    assert one.identity()["checkpoint"] != other.identity()["checkpoint"]
    assert one.identity() == one.identity()
    assert "make.<locals>.f" in one.identity()["checkpoint"]


def test_a_table_that_was_changed_has_another_identity():
    table = {(0,): HALF}
    target = TableTarget(table)
    before = target.identity()
    table[(0,)] = HALF[::-1]
    assert target.identity()["checkpoint"] != before["checkpoint"]
    table[5] = HALF
    with pytest.raises(SpecbookError, match="prefix"):
        target.identity()


@pytest.mark.parametrize("prefix", [5, None, "0", [0.5], [3], [-1], {0}])
def test_a_bad_prefix_is_refused(prefix):
    with pytest.raises(SpecbookError, match="prefix"):
        TableTarget({(0,): HALF}).lookup(prefix)


@pytest.mark.parametrize(
    "table",
    [
        {(0,): None},
        {(0,): HALF, (1,): None},
        {(0,): HALF, (1,): iter(HALF)},
        {(0,): HALF, (1,): "abc"},
        {(0,): 5},
        {5: HALF},
        {"0": HALF},
        {("0",): HALF},
        {(0, 3): HALF},
        {(0,): HALF, None: HALF},
    ],
)
def test_a_table_of_something_else_is_refused(table):
    with pytest.raises(SpecbookError, match="prefix"):
        TableTarget(table)


@pytest.mark.parametrize("eos", ["zz", 1.5, True, 3, -1, (0, 3), ("a",), {1}, {1: 2}])
def test_a_bad_end_token_is_refused(eos):
    with pytest.raises(SpecbookError, match="eos_token_id"):
        TableTarget({(0,): HALF}, eos_token_id=eos)


def test_end_tokens_are_ints():
    for eos, wanted in ((np.int64(1), 1), ([1, 2], (1, 2)), (None, None)):
        found = TableTarget({(0,): HALF}, eos_token_id=eos).eos_token_id
        assert found == wanted and type(found) is type(wanted)


def test_numpy_laws_work():
    target = TableTarget({(0,): np.array([0.5, 0.5])})
    law = target.start([0]).verify(empty(1)).law(-1, PLAIN)
    assert law.tolist() == [0.5, 0.5]


def test_the_table_never_imports_torch():
    code = (
        "import sys; sys.modules['torch'] = None; sys.modules['transformers'] = None\n"
        "from specbook.models import TableTarget\n"
        "from specbook.tree import CandidateTree\n"
        "from specbook.policy import SamplingPolicy\n"
        "target = TableTarget({(0,): [0.5, 0.5]})\n"
        "rows = target.start([0]).verify(CandidateTree.from_rows([], [], 1))\n"
        "print(rows.law(-1, SamplingPolicy()).tolist())\n"
        "import specbook.models as m\n"
        "assert 'load_target' in dir(m)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, encoding="utf-8"
    )
    assert done.stdout.strip() == "[0.5, 0.5]", done.stderr
