"""One round on a drawn tree, exactly: the law of the path that a rule accepts.

`position_law` looks at one position. In a tree the laws below a candidate depend on the
path to it, and a rule that is exact at a node may be wrong in the tree, or accept less
than another one that looks further down (section 0x08C, one position is not a tree).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from math import prod
from typing import Any

from .. import checks
from ..chance import Chance
from ..chance import law as chance_law
from ..contract import Verifier
from ..drafts.samplers import SAMPLERS, expand
from ..errors import SpecbookError
from ..proposal import ProbabilitySemantics, Proposal, ProposalStateHandle, Topology
from ..tree import CandidateTree
from .drafted import RELATIONS, ask, check_reach, count_of_vectors
from .position import rule_of

Path = tuple[int, ...]

MAX_TREES = 1 << 14
"""Ways of drawing a tree; the rule is walked through on each of them."""

MAX_TEXTS = 1 << 15
"""More outputs than this are not listed."""


def round_law(
    verifier: str | Verifier,
    target: Any,
    draft: Any,
    widths: Iterable[int],
    sampling: str = "iid",
) -> dict[tuple[Path, int], Any]:
    """{(accepted tokens, the token after them): probability} of one round.

    `target`, `draft`: a law [V], the same after every path, or a function of the path
    (a tuple of tokens) that returns one. `widths[d]`: children below every candidate of
    depth d, drawn as `sampling` says (any of `RELATIONS` but `independent`). Exact on
    Fractions. Contracts are not asked: a mistake can be measured, too. Raises what the
    rule raises, `SpecbookError` for a tree out of reach and `LawError` for laws of
    different sizes.
    """
    checks.one_of(sampling, "sampling", [s for s in RELATIONS if s != "independent"])
    relation = RELATIONS[sampling]
    select = rule_of(verifier).select
    counts = [
        checks.integer(width, f"widths[{i}]", least=1)
        for i, width in enumerate(checks.entries(widths, "widths", "integers"))
    ]
    p = _after(target, "target")
    q = _after(draft, "draft", len(p(())))
    _check_reach(q, counts, sampling)
    drawn = sampling != "top_k"
    semantics = (
        ProbabilitySemantics.NORMALIZED_CONDITIONAL
        if drawn
        else ProbabilitySemantics.SCORE_ONLY
    )
    state = ProposalStateHandle("draft", "request-0", 0)

    def program(chance: Chance) -> tuple[Path, int]:
        nodes = expand(q, counts, SAMPLERS[relation], chance)
        made = Proposal(nodes, semantics, relation, Topology.TREE, state, "")
        tree = CandidateTree.from_proposals(made, 0)
        paths = {-1: (), **dict(enumerate(tree.full_prefixes))}
        found = select(tree, lambda row: p(paths[row]), chance)
        rows = tree.check_path(found.rows)
        return tuple(tree.token_ids[row] for row in rows), found.token

    return chance_law(program)  # type: ignore[return-value]


def _after(given: Any, name: str, size: int | None = None) -> Callable[[Path], Any]:
    """The law after each path, checked once; all are over `size` tokens, or over as
    many as the first."""
    # A class is callable, but calling one makes an object and says no law.
    varies = callable(given) and not isinstance(given, type)
    row = given(()) if varies else given
    first = checks.law(row, f"{name} after ()" if varies else name, size=size)

    @cache
    def law(path: Path) -> Any:
        return checks.law(given(path), f"{name} after {path}", size=len(first))

    return law if varies else lambda path: first


def _check_reach(q: Callable[[Path], Any], widths: list[int], sampling: str) -> None:
    """Raises `SpecbookError` for a tree that can be drawn in more than `MAX_TREES`
    ways."""

    @cache
    def ways(path: Path) -> int:
        if len(path) == len(widths):
            return 1
        asked = ask(q(path), q(path), widths[len(path)], sampling)
        check_reach(asked)
        if len(path) == len(widths) - 1:
            return count_of_vectors(asked)
        found = 0
        drawn: Any = chance_law(lambda c: tuple(draw.token for draw in asked.draw(c)))
        for tokens in drawn:
            found += prod(ways((*path, token)) for token in set(tokens))
            if found > MAX_TREES:
                raise SpecbookError(
                    f"a tree of widths {widths} can be drawn in more than {MAX_TREES} "
                    "ways"
                )
        return found

    ways(())


def continued(
    blocks: Mapping[tuple[Path, int], Any], target: Any, length: int
) -> dict[Path, Any]:
    """The law of the first `length` tokens of the output whose first round has the law
    `blocks` (as `round_law` gives it); what a round leaves open comes from `target`, a
    law [V] or a function of the path. This is what a lossless rule leaves as it is.

    Raises `SpecbookError` for more than `MAX_TEXTS` outputs, and for what is no block.
    """
    checks.integer(length, "length", least=1)
    p = _after(target, "target")
    size = len(p(()))
    found: dict[Path, Any] = {}
    for text, mass in _texts(blocks, size):
        level = {text[:length]: mass}
        for _ in range(len(text), length):
            level = {
                (*start, token): weight * step
                for start, weight in level.items()
                for token, step in enumerate(p(start))
                if step > 0
            }
            if len(found) + len(level) > MAX_TEXTS:
                raise SpecbookError(f"more than {MAX_TEXTS} outputs of {length} tokens")
        for key, weight in level.items():
            found[key] = found.get(key, 0) + weight
    return found


def _texts(blocks: Any, size: int) -> Iterator[tuple[Path, Any]]:
    """What each block writes, and its probability."""
    if not isinstance(blocks, Mapping):
        raise SpecbookError(f"blocks must be a mapping, got {blocks!r}")
    for block, mass in blocks.items():
        if not (isinstance(block, tuple) and len(block) == 2):
            raise SpecbookError(f"not a block (path, token): {block!r}")
        path = checks.entries(block[0], f"the path of {block!r}", "tokens")
        text = checks.token_ids((*path, block[1]), "a block", vocab_size=size)
        yield tuple(text), checks.real(mass, f"the mass of {block!r}", least=0)
