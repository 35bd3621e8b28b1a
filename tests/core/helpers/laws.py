"""Laws that depend on the whole history, and the plain decoding that defines truth.

The references here share no code with the package: a law of outputs is a product of
table entries, summed by recursion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from specbook.chance import law
from specbook.contract import Selection
from specbook.tree import CandidateTree

Table = Callable[[tuple[int, ...]], list[Fraction]]


def fractions(counts: Sequence[int]) -> list[Fraction]:
    """The law with weights `counts`."""
    return [Fraction(count, sum(counts)) for count in counts]


def counts(vocab: int) -> st.SearchStrategy[list[int]]:
    """Weights of one law: small integers, zeros among them, not all zero."""
    return st.lists(st.integers(0, 4), min_size=vocab, max_size=vocab).filter(any)


@st.composite
def tables(draw: Any, vocab: int | None = None) -> tuple[int, Table]:
    """A vocabulary size and a law for every prefix, chosen by the whole prefix."""
    vocab = draw(st.integers(2, 4)) if vocab is None else vocab
    rows = draw(st.lists(counts(vocab), min_size=3, max_size=7))
    salt = draw(st.integers(1, 997))
    return vocab, table_of(rows, salt)


def table_of(rows: Sequence[Sequence[int]], salt: int = 1) -> Table:
    """A law for every prefix: which of `rows` it is depends on every token of it."""
    laws = [fractions(row) for row in rows]

    def table(prefix: tuple[int, ...]) -> list[Fraction]:
        mixed = salt
        for token in prefix:
            mixed = (mixed * 31 + token + 7) % 1009
        return laws[mixed % len(laws)]

    return table


@st.composite
def forests(
    draw: Any, vocab: int, max_depth: int = 3, max_paths: int = 5
) -> list[list[int]]:
    """Some candidate paths over the vocabulary; maybe none."""
    path = st.lists(st.integers(0, vocab - 1), min_size=1, max_size=max_depth)
    return draw(st.lists(path, max_size=max_paths))


def plain_law(
    table: Table,
    prompt: Sequence[int],
    length: int,
    ends: Sequence[int] = (),
) -> dict[tuple[int, ...], Fraction]:
    """The law of plain sampling: up to `length` tokens, or to the first end token."""
    found: dict[tuple[int, ...], Fraction] = {}

    def walk(new: tuple[int, ...], probability: Fraction) -> None:
        if len(new) == length or (new and new[-1] in ends):
            found[new] = probability
            return
        for token, weight in enumerate(table((*prompt, *new))):
            if weight:
                walk((*new, token), probability * weight)

    walk((), Fraction(1))
    return found


def check_selection(
    select: Callable[..., Selection],
    paths: Sequence[Sequence[int]],
    table: Table,
    prompt: tuple[int, ...] = (0,),
    order: str = "breadth",
) -> None:
    """Whatever block the rule emits, the output that begins with it and goes on by
    plain sampling has the plain law. Exact, and true of every lossless rule."""
    tree = CandidateTree.from_paths(paths, len(prompt), order)
    prefixes = {row: tree.full_prefixes[row] for row in range(len(tree))}
    prefixes[-1] = ()
    length = tree.max_depth + 1

    def block(chance: Any) -> tuple[int, ...]:
        selection = select(tree, lambda row: table((*prompt, *prefixes[row])), chance)
        rows = tree.check_path(selection.rows)
        return (*(tree.token_ids[row] for row in rows), selection.token)

    found: dict[tuple[int, ...], Fraction] = {}
    for begun, probability in law(block).items():
        rest = plain_law(table, (*prompt, *begun), length - len(begun))
        for more, weight in rest.items():
            output = (*begun, *more)
            found[output] = found.get(output, Fraction(0)) + probability * weight
    assert found == plain_law(table, prompt, length)
