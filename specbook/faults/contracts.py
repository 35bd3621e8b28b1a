"""Faults of the contract: a number or a draw that is taken for another (section 0x02).

None of them can be seen in a tensor. What differs is what the numbers mean, and the
only place where that is written down is the typed proposal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

from .. import controls
from ..chance import Chance
from ..chance import law as enumerate_law
from ..contract import bind
from ..controls import exact
from ..drafts import samplers
from ..drafts.samplers import Draw
from ..engine import round_manifest
from ..errors import SpecbookError
from ..lab import FixedPaths, FixedPathsSession, distance
from ..policy import SamplingPolicy
from ..proposal import (
    PREFIX_FRONTIER,
    ProbabilitySemantics,
    Proposal,
    ProposalNode,
    ProposalStateHandle,
    SamplingRelation,
    Topology,
)
from ..verifiers import get as rule_named
from . import exact as small
from .fault import TOKENS, VARIATION, Fault

BIND = "specbook.contract.bind"
_HANDLE = ProposalStateHandle("draft", "request-0", 0)
_Q = exact([4, 4, 2])


def proposal(
    relation: SamplingRelation,
    semantics: ProbabilitySemantics = ProbabilitySemantics.NORMALIZED_CONDITIONAL,
    sources: tuple[str, ...] = ("draft",),
    manifest_hash: str = "",
) -> Proposal:
    """One candidate a source, chosen as `relation` says, with a q or a score."""
    drawn = semantics is ProbabilitySemantics.NORMALIZED_CONDITIONAL
    nodes = tuple(
        replace(
            samplers.node(
                Draw(token, _Q if drawn else None, None if drawn else 2),
                PREFIX_FRONTIER,
                1,
                source,
            )
        )
        for token, source in enumerate(sources)
    )
    return Proposal(nodes, semantics, relation, Topology.SET, _HANDLE, manifest_hash)


def _pair(
    relation: str,
    wrong: str,
    right: str,
    semantics: ProbabilitySemantics = ProbabilitySemantics.NORMALIZED_CONDITIONAL,
    sources: tuple[str, ...] = ("draft",),
) -> Callable[[bool], Any]:
    """One proposal, bound to a rule that its drafts were not drawn for, or were."""
    made = proposal(SamplingRelation(relation), semantics, sources)
    return lambda planted: bind(made, wrong if planted else right)


def _off(name: str) -> Callable[[bool], Any]:
    return lambda planted: controls.get(name).variation(right=not planted)


# ------------------------------------------------------------------- score for q

_P = exact([1, 1, 2])
_COUNTS = exact([3, 1, 0])
"""How often a lookup saw each token: shares that sum to 1, and no law of a draw."""


def _score_as_q(planted: bool) -> Proposal:
    """The share of a count, put into the field of the probability."""
    share = {"q" if planted else "score": _COUNTS[0]}
    node = ProposalNode(0, source="lookup", **share)  # type: ignore[arg-type]
    return Proposal(
        (node,),
        ProbabilitySemantics.FREQUENCY,
        SamplingRelation.DETERMINISTIC_LOOKUP,
        Topology.SET,
        _HANDLE,
        "",
    )


def _score_harm(planted: bool) -> Fraction:
    """The commonest continuation, given and not drawn, with the shares for its q."""
    rule = rule_named("single" if planted else "one_hot")

    def program(chance: Chance) -> tuple[int]:
        draw = Draw(0, _COUNTS) if planted else Draw(0, None, _COUNTS[0])
        tree = samplers.position_tree([draw])
        found = rule.select(tree, lambda row: _P, chance)
        return (tree.token_ids[found.rows[0]] if found.rows else found.token,)

    return distance(enumerate_law(program), small.drawn(_P))


def _q_of_another(planted: bool) -> ProposalNode:
    """A candidate whose q and law do not belong together: the q was kept, the law
    recomputed at another temperature."""
    law = exact([16, 16, 4]) if planted else _Q
    return ProposalNode(0, q=_Q[0], law=law)


def _q_harm(planted: bool) -> Fraction:
    """The residual is taken with the law, the test with the q."""
    p, other = exact([2, 5, 3]), exact([16, 16, 4]) if planted else _Q

    def program(chance: Chance) -> tuple[int]:
        token = chance.draw(_Q)
        if chance.flip(min(Fraction(1), p[token] / _Q[token])):
            return (token,)
        left = [max(a - b, Fraction(0)) for a, b in zip(p, other, strict=True)]
        return (chance.draw([x / sum(left) for x in left]),)

    return distance(enumerate_law(program), small.drawn(p))


# ---------------------------------------------------------------- rounds, budgets


def _manifest_of(planted: bool) -> Any:
    """A proposal that was made under the manifest of the round before."""
    frozen = round_manifest(
        small.table(), small.paths(), "membership", SamplingPolicy(1.0)
    )
    current = frozen.replace(target_cache_generation=1, proposal_cache_generation=1)
    made = proposal(
        SamplingRelation.DETERMINISTIC_LOOKUP,
        ProbabilitySemantics.SCORE_ONLY,
        manifest_hash=frozen.hash if planted else current.hash,
    )
    return bind(made, "membership", manifest=current)


class _DeafPaths(FixedPaths):
    """A source that forgets to count its commits, or to keep to its budget."""

    def __init__(self, *paths: Any, counts: bool = True, keeps: bool = True) -> None:
        super().__init__(*paths)
        self.counts, self.keeps = counts, keeps

    def start(self, prefix: Any, **about: Any) -> FixedPathsSession:
        made = super().start(prefix, **about)
        made.__class__ = _DeafSession
        return made


class _DeafSession(FixedPathsSession):
    def propose(self, *, max_depth: int, max_nodes: int, **about: Any) -> Proposal:
        source: Any = self._source
        if not source.keeps:
            max_depth, max_nodes = 99, 99
        return super().propose(max_depth=max_depth, max_nodes=max_nodes, **about)

    def commit(self, tokens: Any) -> None:
        source: Any = self._source
        if source.counts:
            super().commit(tokens)


def overrun(keeps: bool) -> FixedPaths:
    """A source of one long path. Unless it `keeps` to its budget, all of it comes."""
    return _DeafPaths((1, 2, 1, 2, 1), keeps=keeps)


def _generation(planted: bool) -> Any:
    from ..engine import generate

    source = _DeafPaths(*small.PATHS, counts=not planted)
    return generate(small.table(), [0], source, "greedy", max_new_tokens=4)


def _budget(planted: bool) -> Any:
    from ..engine import generate

    source = overrun(keeps=not planted)
    return generate(small.table(), [0], source, "greedy", max_new_tokens=3)


def _budget_harm(planted: bool) -> int:
    """Tokens beyond those asked for, if nobody looks at budget or room."""
    from unittest import mock

    from .. import engine

    with mock.patch.multiple(
        engine,
        _check_budget=lambda *asked: None,
        _cut=lambda block, room, ends: block if planted else block[:room],
    ):
        target = small.table()
        made = engine.generate(
            target,
            [0],
            overrun(not planted),
            "membership",
            max_new_tokens=3,
            temperature=1.0,
            chance=_Agreeing(),
        )
    return abs(len(made.tokens) - 3)


class _Agreeing:
    """A chance that draws the tokens of one path: the target agrees with the source."""

    def __init__(self) -> None:
        self._turn = 0

    def flip(self, probability: Any) -> bool:
        raise SpecbookError("no flip was expected")

    def draw(self, weights: Any) -> int:
        self._turn += 1
        return 1 + (self._turn - 1) % 2


FAULTS: tuple[Fault, ...] = (
    Fault(
        "score-as-q",
        "contract",
        "0x02B",
        "the share of a count is put into the field of the probability",
        "common continuations come out too often, or are refused by chance",
        "both are numbers from 0 to 1, and the shares even sum to 1",
        "specbook.proposal.Proposal",
        _score_as_q,
        "a ranking number belongs in score",
        _score_harm,
        VARIATION,
        ("openvinotoolkit/openvino.genai #2331",),
        "a source that calls its shares a law: nothing but an enumeration tells",
    ),
    Fault(
        "q-and-law-of-two-temperatures",
        "contract",
        "0x02B",
        "q is kept from the draw, the law is computed again at another temperature",
        "corrections follow a law that nobody drew from",
        "a number from 0 to 1, and a row [V] that sums to 1",
        "specbook.proposal.ProposalNode",
        _q_of_another,
        "which is not its entry in the law",
        _q_harm,
        VARIATION,
    ),
    Fault(
        "ranked-as-drawn",
        "contract",
        "0x02A",
        "the k most probable tokens meet the rule for independent draws",
        "the draft's favourites come out too often",
        "k tokens and one q are k tokens and one q",
        BIND,
        _pair("beam", "specinfer", "one_hot"),
        "sampling 'beam'",
        _off("top-k set as independent draws"),
        VARIATION,
        ("apple/ml-recurrent-drafter #6",),
        "a source that says how its candidates were drawn, and is wrong",
    ),
    Fault(
        "argmax-with-a-soft-q",
        "contract",
        "0x02A",
        "a greedy draft is tested with the whole q of its model",
        "the draft's favourite comes out too often",
        "the argmax is a token that q could have drawn",
        BIND,
        _pair("beam", "single", "membership"),
        "sampling 'beam'",
        _off("argmax draft with the whole q"),
        VARIATION,
        ("huggingface/transformers #32867",),
    ),
    Fault(
        "count-as-q-at-the-door",
        "contract",
        "0x02A",
        "a lookup's proposal is handed to a rule that divides by q",
        "accepted by how common a text is, not by how the target likes it",
        "candidates with a number each",
        BIND,
        _pair(
            "deterministic_lookup",
            "single",
            "membership",
            ProbabilitySemantics.FREQUENCY,
        ),
        "probability 'frequency'",
        _score_harm,
        VARIATION,
        ("openvinotoolkit/openvino.genai #2331",),
    ),
    Fault(
        "without-replacement-as-independent",
        "contract",
        "0x0AB",
        "siblings that exclude each other meet the rule for independent drafts",
        "the second sibling is tested with a q that it was not drawn from",
        "tokens and a q each, in both cases",
        BIND,
        _pair("without_replacement", "specinfer", "sequoia"),
        "sampling 'without_replacement'",
        _off("draws without replacement to the rule for independent ones"),
        VARIATION,
    ),
    Fault(
        "independent-as-without-replacement",
        "contract",
        "0x0AB",
        "independent siblings meet the rule that takes each one out of q",
        "a token that comes twice is refused the second time",
        "tokens and a q each, in both cases",
        BIND,
        _pair("iid", "sequoia", "specinfer"),
        "sampling 'iid'",
        _off("independent draws to the rule for draws without replacement"),
        VARIATION,
    ),
    Fault(
        "one-q-for-two-drafters",
        "contract",
        "0x09",
        "two drafters are merged and the q of one of them is kept",
        "the second drafter's tokens are judged by what the first one says of them",
        "one q a node, as it was before",
        BIND,
        _pair("independent", "kseq", "specinfer", sources=("small", "large")),
        "are merged",
        _off("second draft scored with the first one's q"),
        VARIATION,
    ),
    Fault(
        "manifest-of-the-last-round",
        "contract",
        "0x02C",
        "a proposal that was made for one round is verified in the next",
        "candidates for a prefix that is no longer there",
        "a proposal is a proposal",
        BIND,
        _manifest_of,
        "made under manifest",
    ),
    Fault(
        "commit-not-counted",
        "contract",
        "0x02C",
        "a source is told what was committed and does not take it in",
        "exact text, and drafts that fit less and less",
        "its proposals have the form that they always had",
        "specbook.engine._checked",
        _generation,
        "state handle's generation is 0",
    ),
    Fault(
        "budget-not-kept",
        "contract",
        "0x02B",
        "a source proposes deeper than it was asked to",
        "more tokens than were asked for, in the last round",
        "a path of five is a path",
        "specbook.engine._check_budget",
        _budget,
        "depth 5, the limit is 2",
        _budget_harm,
        TOKENS,
        (
            "FasterDecoding/REST #28",
            "sgl-project/sglang #36506",
            "huggingface/transformers #46993",
        ),
    ),
)
