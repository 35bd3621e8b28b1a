"""Subgraphs verified apart: drawn candidates by their q, given ones without.

Contract: two parts, and every source must fit one. Drawn: candidates that carry the
normalised law of their own draw, from any number of sources, however siblings depend on
one another. Given: candidates whose numbers are no q (a lookup, a beam, REST's counts).
Any tree; exact. This is the third way out of a merge (section 0x02A).

The two answers must not be compared: of two answers that are each right, the longer one
is not (`controls`). They are joined one after the other. The residual update walks the
drawn subgraph as if nothing else were there, and ends with a token that has the
target's law after the accepted path. That token is looked up among the given candidates
there. If one carries it, the walk goes on below it by target-sample membership; no
token is drawn twice, so nothing is bent.

The residual update asks of a draft only that its law is that of its own draw, given the
draws before it: then a refused q is taken off the residual, whatever it depends on. So
the drawn part takes independent draws, draws without replacement, greedy drafts and hub
pairs alike.
"""

from __future__ import annotations

from collections.abc import Callable

from ..chance import Chance
from ..contract import NORMALISED, Law, Selection, Verifier, VerifierContract
from ..errors import TreeError
from ..proposal import PREFIX_FRONTIER, ProbabilitySemantics, SamplingRelation
from ..tree import CandidateTree, SourceMark
from .specinfer import choose
from .walk import walk

_CHOSEN = frozenset({SamplingRelation.BEAM, SamplingRelation.DETERMINISTIC_LOOKUP})

DRAWN = VerifierContract(
    name="drawn",
    reads_q=True,
    exact=True,
    merges_q=True,
    probability=NORMALISED,
    sampling=frozenset(SamplingRelation) - _CHOSEN,
)
"""A ranked or copied candidate with a q beside it fits neither part: it was not drawn
from that q."""

GIVEN = VerifierContract(
    name="given",
    reads_q=False,
    exact=True,
    probability=frozenset(ProbabilitySemantics) - NORMALISED,
    sampling=frozenset(SamplingRelation),
)


def select(tree: CandidateTree, law: Law, chance: Chance) -> Selection:
    """The residual update on the drawn subgraph, then membership on the given one."""
    drawn, rows = subgraph(tree, _is_drawn)
    found = walk(
        drawn,
        lambda row: law(row if row == PREFIX_FRONTIER else rows[row]),
        chance,
        choose,
        name="apart",
    )
    path = [rows[row] for row in found.rows]
    row = path[-1] if path else PREFIX_FRONTIER
    token = found.token
    while (child := tree.child_with_token(row, token)) is not None:
        if all(_is_drawn(mark) for mark in tree.sources[child]):
            break  # a drawn candidate has had its test
        path.append(child)
        row, token = child, chance.draw(law(child))
    return Selection(tuple(path), token)


def _is_drawn(mark: SourceMark) -> bool:
    return mark.law is not None


def subgraph(
    tree: CandidateTree, keep: Callable[[SourceMark], bool]
) -> tuple[CandidateTree, tuple[int, ...]]:
    """The rows with a claim that `keep` holds for, with these claims alone, as a tree;
    and their row numbers in `tree`. A source claims a row's parent with the row, so
    what is kept hangs together; anything else raises `TreeError`."""
    if not isinstance(tree, CandidateTree):
        raise TreeError(f"not a CandidateTree: {tree!r}")
    marks = [tuple(mark for mark in claims if keep(mark)) for claims in tree.sources]
    rows = tuple(row for row in range(len(tree)) if marks[row])
    place = {row: number for number, row in enumerate(rows)}
    place[PREFIX_FRONTIER] = PREFIX_FRONTIER
    part = CandidateTree(
        tuple(tree.token_ids[row] for row in rows),
        # A parent that is not kept has no place: no row, and no valid parent.
        tuple(place.get(tree.parents[row], len(tree)) for row in rows),
        tuple(tree.depths[row] for row in rows),
        tree.prefix_len,
        tuple(marks[row] for row in rows),
    )
    return part, rows


VERIFIER = Verifier(
    VerifierContract(
        name="apart",
        reads_q=False,
        exact=True,
        probability=frozenset(ProbabilitySemantics),
        sampling=frozenset(SamplingRelation),
        parts=(DRAWN, GIVEN),
    ),
    select,
)
"""Not in the registry: with one source it is `specinfer` or `membership`."""
