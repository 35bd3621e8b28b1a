"""Wrong rules beside the right ones: mistakes, each with the instance that shows it.

A test that has never failed proves nothing, and neither does a proof by example on an
instance where the mistake does not matter. Each `Control` is a rule, or a pair of a
sampler and a rule, as somebody wrote it, together with the right one, an instance on
which the two differ, and the check that tells them apart. The article's own instance
(p = .5 .3 .2, two drafts of q = .4 .4 .2) hides some of them: after one refusal only
one token is left there, and whatever is done next is right (section 0x09A).

The rules here are for looking at. None is in the registry, so no name decodes by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from . import checks
from .chance import Chance, law
from .contract import Selection, SourceContract
from .drafts import samplers
from .drafts.samplers import Draw
from .engine import generate
from .errors import SpecbookError
from .models.table import TableTarget
from .proposal import (
    PREFIX_FRONTIER,
    ProbabilitySemantics,
    Proposal,
    ProposalNode,
    SamplingRelation,
    Topology,
)
from .tree import CandidateTree
from .verifiers import apart
from .verifiers import get as _rule_named
from .verifiers.coupling import acceptance, residual
from .verifiers.walk import Choose, Draft, walk

ONE_POSITION = "one position: the law of the next token"
TWO_ROUNDS = "two rounds: the joint law of their tokens"

ARTICLE = ((5, 3, 2), (4, 4, 2))
"""p and q of the article's instance, in tenths."""


@dataclass(frozen=True)
class Control:
    """A mistake. `p` and the rows of `q` are weights of the instance that shows it.

    `caught_by` names the check: `ONE_POSITION` or `TWO_ROUNDS`. `refused` says which
    pair of sampling relation and rule `bind` keeps apart, where the mistake is one of
    pairing, so that no decoding run can make it.
    """

    name: str
    mistake: str
    section: str
    p: tuple[int, ...]
    q: tuple[tuple[int, ...], ...]
    wrong: Callable[[Chance, np.ndarray, list[np.ndarray]], tuple[int, ...]]
    right: Callable[[Chance, np.ndarray, list[np.ndarray]], tuple[int, ...]]
    caught_by: str = ONE_POSITION
    refused: tuple[str, str] | None = None

    @property
    def position(self) -> OnePosition | None:
        """The wrong rule and how its drafts are drawn; None if it takes more than one
        position. `oracles.measure` says what it accepts, `compare` sets it beside the
        right rules."""
        return self.wrong if isinstance(self.wrong, OnePosition) else None

    def laws(self) -> tuple[np.ndarray, list[np.ndarray]]:
        """p [V] and the drafts' laws [V] of the instance, as Fractions."""
        return exact(self.p), [exact(row) for row in self.q]

    def variation(self, p: Any = None, q: Any = None, *, right: bool = False) -> Any:
        """The total variation between the law that comes out and the one that should.

        `p` and `q`: weights of another instance (q one row for each draft). A Fraction
        unless the mistake itself is irrational.
        """
        p = exact(self.p if p is None else p)
        rows = [
            exact(row)
            for row in checks.entries(self.q if q is None else q, "q", "weights")
        ]
        if not rows or any(len(row) != len(p) for row in rows):
            raise SpecbookError(
                f"q needs a row of {len(p)} weights for each draft, got {len(rows)} "
                f"rows of {[len(row) for row in rows]}"
            )
        rule = self.right if right else self.wrong
        found = law(lambda chance: rule(chance, p, rows))
        length = len(next(iter(found)))
        wanted = law(lambda chance: tuple(chance.draw(p) for _ in range(length)))
        keys = {*found, *wanted}
        return sum(abs(found.get(k, 0) - wanted.get(k, 0)) for k in keys) / 2

    def hidden(self) -> bool:
        """Whether the article's instance cannot tell it from the right rule."""
        p, q = ARTICLE
        return self.variation(p, [q] * len(self.q)) == 0


def names() -> list[str]:
    """The names of all controls."""
    return [control.name for control in CONTROLS]


def get(name: str) -> Control:
    """The control called `name`; an unknown name raises and lists the known ones."""
    for control in CONTROLS:
        if isinstance(name, str) and control.name == name:
            return control
    raise SpecbookError(f"no control is called {name!r}; there are {names()}")


def exact(weights: Iterable[int]) -> np.ndarray:
    """The law with integer `weights`, as Fractions [V]."""
    counts = [
        checks.integer(weight, f"weights[{i}]", least=0)
        for i, weight in enumerate(checks.entries(weights, "weights", "integers"))
    ]
    total = sum(counts)
    if not total:
        raise SpecbookError(f"weights must not all be 0, got {counts}")
    return np.array([Fraction(count, total) for count in counts], dtype=object)


# ------------------------------------------------------------------ one position

Drawing = Callable[[list[np.ndarray], Chance], Sequence[Draw]]
Select = Callable[[CandidateTree, Any, Chance], Selection]


@dataclass(frozen=True)
class OnePosition:
    """A rule and the drafts that it meets: as a program, the first token.

    `draw(q, chance)` drafts from the rows of q; `select` is the rule.
    """

    draw: Drawing
    select: Select

    def __call__(
        self, chance: Chance, p: np.ndarray, q: list[np.ndarray]
    ) -> tuple[int, ...]:
        tree = samplers.position_tree(self.draw(q, chance))
        found = self.select(tree, lambda row: p, chance)
        return (tree.token_ids[found.rows[0]] if found.rows else found.token,)


_SPECINFER = _rule_named("specinfer").select
_SEQUOIA = _rule_named("sequoia").select
_MEMBERSHIP = _rule_named("membership").select
_ONE_HOT = _rule_named("one_hot").select


def _rule(choose: Choose) -> Select:
    def select(tree: CandidateTree, law: Any, chance: Chance) -> Selection:
        return walk(tree, law, chance, choose, name="control")

    return select


def _independent(q: list[np.ndarray], chance: Chance) -> list[Draw]:
    return samplers.independent(q, chance)


def _without(q: list[np.ndarray], chance: Chance) -> list[Draw]:
    return samplers.without_replacement(q[0], len(q), chance)


def _argmax(q: list[np.ndarray], chance: Chance) -> list[Draw]:
    """The most probable token, and the whole of q beside it."""
    return [Draw(int(np.argmax(q[0])), q[0])]


def _top_k(q: list[np.ndarray], chance: Chance) -> list[Draw]:
    """The most probable tokens, each with the whole of q beside it."""
    return [Draw(t, q[0]) for t in samplers.most_probable(q[0], len(q))]


def _fixed(q: list[np.ndarray], chance: Chance) -> list[Draw]:
    """The most probable tokens, as what they are: ranked."""
    return samplers.top_k(q[0], len(q))


def _drawn_and_given(q: list[np.ndarray], chance: Chance) -> list[Draw]:
    """A draw from the first law, and a token that a lookup gave: the others' best."""
    given = dict.fromkeys(int(np.argmax(row)) for row in q[1:])
    return [Draw(chance.draw(q[0]), q[0]), *(Draw(x, None, 1) for x in given)]


def repeats(p: np.ndarray, drafts: Sequence[Draft], chance: Chance) -> Draft | int:
    """The rule for one draft, once for each draft; its correction after the last."""
    for draft in drafts:
        if chance.flip(acceptance(p, draft.law, draft.token)):
            return draft
    return chance.draw(residual(p, drafts[-1].law))


def tests_against_p(
    p: np.ndarray, drafts: Sequence[Draft], chance: Chance
) -> Draft | int:
    """The residual is kept up to date and used for the correction, but not for the
    tests."""
    left = p
    for draft in drafts:
        if chance.flip(acceptance(p, draft.law, draft.token)):
            return draft
        left = residual(left, draft.law)
    return chance.draw(left)


def softens(p: np.ndarray, drafts: Sequence[Draft], chance: Chance) -> Draft | int:
    """The residual goes through a softmax, where e^0 = 1 revives what was spent."""
    left = p.astype(np.float64)
    for draft in drafts:
        q = draft.law.astype(np.float64)
        if chance.flip(acceptance(left, q, draft.token)):
            return draft
        powers = np.exp(np.maximum(left - q, 0))
        left = powers / powers.sum()
    return chance.draw(left)


def scores_with_the_first(
    p: np.ndarray, drafts: Sequence[Draft], chance: Chance
) -> Draft | int:
    """The residual update, with the first draft's law for every draft. A draft to which
    that law gives nothing is refused."""
    left, q = p, drafts[0].law
    for draft in drafts:
        if q[draft.token] > 0 and chance.flip(acceptance(left, q, draft.token)):
            return draft
        left = residual(left, q)
    return chance.draw(left)


def takes_out_the_drawn(
    p: np.ndarray, drafts: Sequence[Draft], chance: Chance
) -> Draft | int:
    """Sequoia's shrinking q, whatever the drafts were drawn from. A draft that comes
    again has nothing left and is refused."""
    left = p
    q: np.ndarray | None = drafts[0].law
    taken: list[int] = []
    for draft in drafts:
        if q is None:
            break
        if q[draft.token] > 0 and chance.flip(acceptance(left, q, draft.token)):
            return draft
        left = residual(left, q)
        taken.append(draft.token)
        q = samplers.rest(q, taken)
    return chance.draw(left)


def draws_for_each_path(tree: CandidateTree, law: Any, chance: Chance) -> Selection:
    """Every leaf path gets target draws of its own; the longest match wins, the first
    of equals. A node that two paths share is drawn twice, and so is the token that
    matches nothing: the first path's is emitted."""
    best: Selection | None = None
    for leaf in range(len(tree)):
        if tree.children(leaf):
            continue
        rows: list[int] = []
        token = chance.draw(law(-1))
        for row in tree.path_rows(leaf):
            if token != tree.token_ids[row]:
                break
            rows.append(row)
            token = chance.draw(law(row))
        if best is None or len(rows) > len(best.rows):
            best = Selection(tuple(rows), token)
    return best or Selection((), chance.draw(law(-1)))


def draws_again(tree: CandidateTree, law: Any, chance: Chance) -> Selection:
    """Membership, but a draw that no child carries is thrown away for a new one."""
    rows: list[int] = []
    row = -1
    while True:
        child = tree.child_with_token(row, chance.draw(law(row)))
        if child is None:
            return Selection(tuple(rows), chance.draw(law(row)))
        rows.append(child)
        row = child


def keeps_the_longer(tree: CandidateTree, law: Any, chance: Chance) -> Selection:
    """Drawn candidates by the residual update, given ones by membership, and of the two
    answers the longer one, the first of equals."""

    def answer(select: Select, drawn: bool) -> Selection:
        part, rows = apart.subgraph(tree, lambda mark: (mark.law is not None) is drawn)
        at = {PREFIX_FRONTIER: PREFIX_FRONTIER, **dict(enumerate(rows))}
        found = select(part, lambda row: law(at[row]), chance)
        return Selection(tuple(at[row] for row in found.rows), found.token)

    answers = answer(_SPECINFER, True), answer(_MEMBERSHIP, False)
    return max(answers, key=lambda found: len(found.rows))


# --------------------------------------------------------------------- two rounds


class _Remembers:
    """A `Chance` that answers a question as it did when the same was asked in its
    place of an earlier round: noise that is drawn once and used again."""

    def __init__(self, chance: Chance) -> None:
        self._chance = chance
        self._kept: dict[Any, int] = {}
        self._place = 0

    def new_round(self) -> None:
        self._place = 0

    def flip(self, probability: Any) -> bool:
        return self.draw([1 - probability, probability]) == 1

    def draw(self, weights: Any) -> int:
        key = (self._place, tuple(weights))
        self._place += 1
        if key not in self._kept:
            self._kept[key] = self._chance.draw(weights)
        return self._kept[key]


class _Rounds:
    """A draft source of one candidate a round, drawn from one law after every prefix;
    with `reuses`, by noise that the first round drew."""

    def __init__(self, q: np.ndarray, reuses: bool) -> None:
        self.q, self.reuses = q, reuses
        self.contract = SourceContract(
            "one draft a round",
            ProbabilitySemantics.NORMALIZED_CONDITIONAL,
            SamplingRelation.IID,
            Topology.SEQUENCE,
        )

    def identity(self) -> str:
        return f"one draft a round, q {self.q.tolist()}, reuses {self.reuses}"

    def start(self, prefix: Any, **about: Any) -> _RoundsSession:
        return _RoundsSession(self, about["request"])


class _RoundsSession:
    def __init__(self, source: _Rounds, request: str) -> None:
        self.source, self.request = source, request
        self.generation = 0
        self.noise: _Remembers | None = None

    def propose(
        self, *, max_depth: int, max_nodes: int, chance: Chance, manifest_hash: str
    ) -> Proposal:
        if self.source.reuses:
            if self.noise is None:
                self.noise = _Remembers(chance)
            self.noise.new_round()
            chance = self.noise
        contract = self.source.contract
        nodes: tuple[ProposalNode, ...] = ()
        if max_depth and max_nodes:
            (draw,) = samplers.iid(self.source.q, 1, chance)
            nodes = (samplers.node(draw, -1, 1, contract.name),)
        about = contract.proposed(self.request, self.generation, manifest_hash)
        return Proposal(nodes, **about)

    def commit(self, tokens: Any) -> None:
        self.generation += 1


def _two_rounds(reuses: bool) -> Any:
    """The tokens of two rounds and more, through the engine, with the right rule."""

    def run(chance: Chance, p: np.ndarray, q: list[np.ndarray]) -> tuple[int, ...]:
        row = p.tolist()
        made = generate(
            TableTarget(lambda prefix: row, vocab_size=len(row)),
            [0],
            _Rounds(q[0], reuses),
            "single",
            max_new_tokens=4,
            temperature=1,
            chance=chance,
            clock=lambda: 0.0,
        )
        return tuple(made.tokens)

    return run


# ----------------------------------------------------------------------- the list

CONTROLS: tuple[Control, ...] = (
    Control(
        "repeats the one-draft test",
        "every draft has the one-draft test, and the one-draft correction follows",
        "0x08B",
        (1, 1),
        ((1, 0), (1, 0)),
        OnePosition(_independent, _rule(repeats)),
        OnePosition(_independent, _SPECINFER),
    ),
    Control(
        "tests each draft against the original p",
        "the residual is updated for the correction alone",
        "0x09A",
        ARTICLE[0],
        (ARTICLE[1], ARTICLE[1]),
        OnePosition(_independent, _rule(tests_against_p)),
        OnePosition(_independent, _SPECINFER),
    ),
    Control(
        "residual through softmax",
        "tokens whose mass is spent get e^0 = 1 of it back",
        "0x09A",
        (5, 3, 2),
        ((1, 3, 1),),
        OnePosition(_independent, _rule(softens)),
        OnePosition(_independent, _SPECINFER),
    ),
    Control(
        "argmax draft with the whole q",
        "the draft was certain and is tested as if it had been drawn",
        "0x02A",
        (6, 10, 4),
        ((8, 7, 5),),
        OnePosition(_argmax, _SPECINFER),
        OnePosition(_fixed, _ONE_HOT),
        refused=("beam", "specinfer"),
    ),
    Control(
        "top-k set as independent draws",
        "a ranked set is tested as if it had been drawn from q",
        "0x02A",
        ARTICLE[0],
        (ARTICLE[1], ARTICLE[1]),
        OnePosition(_top_k, _SPECINFER),
        OnePosition(_fixed, _ONE_HOT),
        refused=("beam", "specinfer"),
    ),
    Control(
        "draws without replacement to the rule for independent ones",
        "the second draft is tested with the q that the first was drawn from",
        "0x0AB",
        (4, 2, 1),
        ((1, 0, 5), (1, 0, 5)),
        OnePosition(_without, _rule(scores_with_the_first)),
        OnePosition(_without, _SEQUOIA),
        refused=("without_replacement", "specinfer"),
    ),
    Control(
        "independent draws to the rule for draws without replacement",
        "the first draft is taken out of a q that still holds it",
        "0x0AB",
        (4, 2, 1),
        ((1, 0, 5), (1, 0, 5)),
        OnePosition(_independent, _rule(takes_out_the_drawn)),
        OnePosition(_independent, _SPECINFER),
        refused=("iid", "sequoia"),
    ),
    Control(
        "second draft scored with the first one's q",
        "two drafters are merged and one q is kept",
        "0x09",
        (1, 1, 1),
        ((8, 1, 1), (1, 7, 2)),
        OnePosition(_independent, _rule(scores_with_the_first)),
        OnePosition(_independent, _SPECINFER),
        refused=("independent", "kseq"),
    ),
    Control(
        "one target draw a path",
        "each path is compared with draws of its own, and the best match wins",
        "0x04B",
        ARTICLE[0],
        (ARTICLE[1], ARTICLE[1]),
        OnePosition(_fixed, draws_for_each_path),
        OnePosition(_fixed, _MEMBERSHIP),
    ),
    Control(
        "a fresh draw after a mismatch",
        "the draw that no child carries is thrown away",
        "0x04B",
        ARTICLE[0],
        (ARTICLE[1], ARTICLE[1]),
        OnePosition(_fixed, draws_again),
        OnePosition(_fixed, _MEMBERSHIP),
    ),
    Control(
        "the longer of two answers",
        "two subgraphs are verified apart, and the answer that accepts more wins",
        "0x02A",
        (2, 1, 1),
        ((1, 8, 1), (1, 0, 0)),
        OnePosition(_drawn_and_given, keeps_the_longer),
        OnePosition(_drawn_and_given, apart.select),
    ),
    Control(
        "noise reused across rounds",
        "the drafter's random numbers are drawn once a prompt",
        "0x0AB",
        (1, 1),
        ((1, 1),),
        _two_rounds(reuses=True),
        _two_rounds(reuses=False),
        caught_by=TWO_ROUNDS,
    ),
)
"""The mistakes, in the order of the sections. The last one needs two rounds to show."""
