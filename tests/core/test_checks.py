"""The checks of outside input, and the floors that may not need torch."""

from __future__ import annotations

import math
import subprocess
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbook import checks, registry
from specbook.errors import LawError, SpecbookError, TreeError
from specbook.proposal import Topology

from .helpers import must_fail, named


@pytest.mark.parametrize(
    "tokens",
    [[1, 2], (1, 2), range(1, 3), iter([1, 2]), np.array([1, 2]), np.int32([1, 2])],
    ids=lambda value: type(value).__name__,  # the same in every worker
)
def test_token_ids_come_in_any_sequence(tokens: Any) -> None:
    found = checks.token_ids(tokens)
    assert found == [1, 2] and {type(t) for t in found} == {int}


def test_token_ids_of_a_tensor() -> None:
    torch = pytest.importorskip("torch")
    assert checks.token_ids(torch.tensor([1, 2])) == [1, 2]
    for bad in (torch.tensor(1), torch.tensor([[1]]), torch.tensor([1.0])):
        with pytest.raises(SpecbookError, match="tokens"):
            checks.token_ids(bad)


@pytest.mark.parametrize(
    "tokens, told",
    [
        (None, "sequence of token ids"),
        ("12", "sequence of token ids"),
        (b"12", "sequence of token ids"),
        ({1, 2}, "sequence of token ids"),
        ({1: 2}, "sequence of token ids"),
        (5, "sequence of token ids"),
        (np.array(5), "sequence of token ids"),
        (np.int64(5), "sequence of token ids"),
        ([1, -1], r"x\[1\] = -1 is outside 0"),
        ([1, 9], r"x\[1\] = 9 is outside 0 .. 8"),
        ([1, 2.0], r"x\[1\] must be an integer"),
        ([True], r"x\[0\] must be an integer"),
        ([np.True_], r"x\[0\] must be an integer"),
        ([[1]], r"x\[0\] must be an integer"),
        ([10**30], r"x\[0\]"),
        (np.array([[1]]), r"x\[0\] must be an integer"),
    ],
    ids=named,
)
def test_token_ids_that_are_none_say_where(tokens: Any, told: str) -> None:
    with pytest.raises(TreeError, match=told):
        checks.token_ids(tokens, "x", vocab_size=9, error=TreeError)


def test_a_negative_id_is_called_that_where_there_is_no_upper_bound() -> None:
    with pytest.raises(SpecbookError, match=r"x\[2\] = -7 is negative"):
        checks.token_ids([1, 2, -7], "x")


def check_law_is_kept(row: Any, read: Any) -> None:
    """A law comes back as it was given: nothing clipped, nothing renormalised."""
    found = read(row)
    assert list(found) == list(row) and len(found) == len(row)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=6).filter(any))
def test_laws_come_back_unchanged(row: Any) -> None:
    exact = [Fraction(x, sum(row)) for x in row]
    check_law_is_kept(exact, checks.law)
    assert checks.law(exact).dtype == object
    floats = [x / sum(row) for x in row]
    check_law_is_kept(floats, checks.law)
    assert checks.law(np.array(floats)).dtype == np.float64


def test_renormalising_fails_the_same_check() -> None:
    row = [0.3, 0.7 - 5e-10]
    check_law_is_kept(row, checks.law)
    must_fail(check_law_is_kept, row, lambda r: np.array(r) / sum(r))


def test_the_tolerance_is_for_floats_only() -> None:
    checks.law([0.5, 0.5 + 0.9e-9])
    for row in ([0.5, 0.5 + 1.1e-9], [0.5, 0.5 - 1.1e-9]):
        with pytest.raises(LawError, match="sums to"):
            checks.law(row)
    tiny = Fraction(1, 10**30)
    for row in ([1 - tiny], [1 + tiny], [Fraction(1, 2), Fraction(1, 2) + tiny]):
        with pytest.raises(LawError, match="sums to"):
            checks.law(row)
    for row in ([1.0, -1e-300], [1 + tiny, -tiny]):
        with pytest.raises(LawError, match="negative"):
            checks.law(row)


def test_a_law_says_what_is_wrong_and_where() -> None:
    cases: list[tuple[Any, str]] = [
        ([0.5, math.nan], r"row\[1\] is NaN"),
        ([math.inf, 0.0], r"row\[0\] is infinite"),
        ([1.5, -0.5], r"row\[1\] is negative: -0.5"),
        ([0.4, 0.5], "row sums to 0.9, not 1"),
        ([1.0], "row has 1 entries, expected 2"),
        ([], "one row of probabilities"),
        ([0.5, "x"], r"row\[1\] is not a number"),
        (np.full((2, 2), 0.25), "one row of probabilities"),
        (np.array([True, False]), "entries of type bool"),
    ]
    for row, told in cases:
        with pytest.raises(LawError, match=told):
            checks.law(row, "row", size=2)
    assert checks.law([1.0, 0.0], size=2).tolist() == [1, 0]


def test_float32_rows_are_read_as_they_are() -> None:
    assert checks.law(np.array([0.5, 0.5], np.float32)).dtype == np.float64
    with pytest.raises(LawError, match="sums to"):
        checks.law(np.array([0.1] * 10, np.float32))


@pytest.mark.parametrize(
    "value", [1.0, True, np.True_, "1", None, Fraction(1), 1j, [1]], ids=named
)
def test_integers_are_integers(value: Any) -> None:
    with pytest.raises(TreeError, match="n must be an integer"):
        checks.integer(value, "n", error=TreeError)


def test_bounds_are_inclusive() -> None:
    assert checks.integer(np.int8(3), "n", least=3, most=3) == 3
    assert type(checks.integer(np.int8(3), "n")) is int
    assert checks.real(Fraction(1, 3), "x", least=0, most=1) == Fraction(1, 3)
    assert checks.real(0, "x", least=0) == 0 and checks.real(1.0, "x", most=1) == 1
    for check in (checks.integer, checks.real):
        with pytest.raises(SpecbookError, match="at least 3, got 2"):
            check(2, "n", least=3)
        with pytest.raises(SpecbookError, match="at most 3, got 4"):
            check(4, "n", most=3)


def test_flags_texts_names_and_members() -> None:
    assert checks.boolean(np.True_, "b") is True and checks.boolean(False, "b") is False
    assert checks.text("x", "t") == "x"
    assert checks.one_of("x", "t", ("x", "y")) == "x"
    assert checks.member("tree", "t", Topology) is Topology.TREE
    for bad in (0, 1, None, "no", []):
        with pytest.raises(TreeError, match="b must be True or False"):
            checks.boolean(bad, "b", error=TreeError)
    for bad in (None, b"x", 3, ["x"]):
        with pytest.raises(TreeError, match="t must be text"):
            checks.text(bad, "t", error=TreeError)
    for bad in (None, "z", "", 3, ["x"], {}):
        with pytest.raises(SpecbookError, match=r"t must be one of \['x', 'y'\]"):
            checks.one_of(bad, "t", ("x", "y"))
        with pytest.raises(TreeError, match="t must be one of .*'tree'"):
            checks.member(bad, "t", Topology, error=TreeError)


def test_kinds_and_functions() -> None:
    assert checks.instance(3, "n", int) == 3
    assert checks.instance(None, "n", (int, type(None))) is None
    assert checks.function(len, "f") is len
    for call, told in (
        (lambda: checks.instance("3", "n", int), "n must be an? int, got '3'"),
        (lambda: checks.instance("3", "n", (int, type(None))), "int or None, got '3'"),
        (lambda: checks.instance(None, "n", Adaptor), "n must be an Adaptor, got None"),
        (lambda: checks.function(None, "f"), "f must be a function, got None"),
        (lambda: checks.function(dict, "f"), "f must be a function"),
    ):
        with pytest.raises(SpecbookError, match=told):
            call()


class Adaptor:
    """A kind whose name begins with a vowel."""


def test_vocab_size_is_a_count() -> None:
    assert checks.token_ids([0], vocab_size=1) == [0]
    for size in (0, -1, 1.5, True, "9"):
        with pytest.raises(SpecbookError, match="vocab_size"):
            checks.token_ids([], vocab_size=size)  # type: ignore[arg-type]


def test_float64_changes_nothing_silently() -> None:
    assert str(checks.float64(-0.0, "t")) == "0.0"
    assert checks.float64(Fraction(1, 4), "t") == 0.25
    for value in (10**400, Fraction(1, 10**400), -(10**400)):
        with pytest.raises(SpecbookError, match="float64"):
            checks.float64(value, "t")
    for value in (math.nan, math.inf, True, "1", None):
        with pytest.raises(SpecbookError, match="t must be"):
            checks.float64(value, "t")


# -------------------------------------------------------------------- registry


def test_every_line_of_the_registries_names_something() -> None:
    for table, kind in (
        (registry.VERIFIERS, "verifier"),
        (registry.DRAFTS, "draft source"),
    ):
        for name in table:
            assert registry.resolve(table, kind, name) is not None
    for name in ("nope", "", None, 3, ["greedy"]):
        with pytest.raises(SpecbookError, match="no verifier is called.*greedy"):
            registry.resolve(registry.VERIFIERS, "verifier", name)


CORE = (
    "chance policy proposal contract manifest ledger tree registry topologies "
    "verifiers verifiers.greedy verifiers.membership drafts drafts.prompt_lookup "
    "engine models.table"
)


def run_with_torch_hidden(line: str) -> subprocess.CompletedProcess[str]:
    code = (
        "import sys, importlib\n"
        "sys.modules.update(dict.fromkeys(['torch', 'transformers'], None))\n"
        f"for name in {CORE.split()!r}: importlib.import_module('specbook.' + name)\n"
        "from specbook import verifiers, engine\n"
        "from specbook.models.table import TableTarget\n"
        "target = TableTarget(lambda p: [0, 1], vocab_size=2)\n"
        "out = engine.generate(target, [1, 1], 'prompt_lookup', max_new_tokens=3)\n"
        f"assert out.tokens == [1, 1, 1]\n{line}\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8"
    )


def test_the_core_decodes_without_torch() -> None:
    done = run_with_torch_hidden("")
    assert done.returncode == 0, done.stderr
    assert run_with_torch_hidden("import torch").returncode != 0
