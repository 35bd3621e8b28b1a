"""What the tests of the rules share: exact laws of one position and of whole rounds.

A check raises `AssertionError`. Each is run on the real rule and on rules with a
planted fault.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import strategies as st

from specbook import checks
from specbook.chance import law
from specbook.contract import Selection, SourceContract, Verifier
from specbook.drafts import samplers
from specbook.drafts.samplers import SAMPLERS, position_tree
from specbook.engine import generate
from specbook.models.table import TableTarget
from specbook.policy import SamplingPolicy
from specbook.proposal import (
    ProbabilitySemantics,
    Proposal,
    ProposalNode,
    ProposalStateHandle,
    SamplingRelation,
    Topology,
)
from tests.core.helpers.laws import Table, fractions, plain_law

Draws = Callable[[Any], Sequence[samplers.Draw]]

P, Q = [5, 3, 2], [4, 4, 2]
"""The article's instance, in tenths."""


def exact(weights: Sequence[int]) -> np.ndarray:
    """The law with these weights, as Fractions."""
    return np.array(fractions(weights), dtype=object)


def drawing(relation: str, q: Any, k: int) -> Draws:
    """The program that draws k candidates from q; for `independent`, q is rows."""
    if relation == "independent":
        return lambda chance: samplers.independent(q, chance)
    sampler = SAMPLERS[SamplingRelation(relation)]
    return lambda chance: sampler(q, k, chance)


# ------------------------------------------------------------------ one position


def position_law(select: Any, p: np.ndarray, draws: Draws) -> dict[Any, Any]:
    """The law of (accepted, first token): what the rule emits at one position."""
    after = p * 0
    after[0] = after[0] + 1

    def program(chance: Any) -> tuple[bool, int]:
        tree = position_tree(draws(chance))
        found = select(tree, lambda row: p if row < 0 else after, chance)
        rows = tree.check_path(found.rows)
        assert len(rows) < 2
        return bool(rows), tree.token_ids[rows[0]] if rows else found.token

    return law(program)


def output(found: dict[Any, Any], size: int) -> list[Any]:
    """The law [size] of the first token."""
    return [sum(found.get((taken, t), 0) for taken in (0, 1)) for t in range(size)]


def accepted(found: dict[Any, Any]) -> Any:
    """The probability that the token is an accepted draft."""
    return sum(weight for (taken, _), weight in found.items() if taken)


def check_position(rule: Any, p: np.ndarray, draws: Draws) -> Any:
    """The first token has the law p, exactly. Returns the acceptance."""
    select = getattr(rule, "select", rule)
    found = position_law(select, p, draws)
    assert output(found, len(p)) == p.tolist()
    return accepted(found)


def variation(rule: Any, p: np.ndarray, draws: Draws) -> Any:
    """The total variation between p and what the rule emits."""
    found = output(position_law(getattr(rule, "select", rule), p, draws), len(p))
    return sum(abs(a - b) for a, b in zip(found, p, strict=True)) / 2


@st.composite
def weights(draw: Any, size: int) -> list[int]:
    """Weights of a law: zeros and ties among them, point masses, not all zero."""
    if draw(st.integers(0, 5)) == 0:
        at = draw(st.integers(0, size - 1))
        return [int(i == at) for i in range(size)]
    return draw(st.lists(st.integers(0, 3), min_size=size, max_size=size).filter(any))


@st.composite
def instances(draw: Any, most: int = 5, deepest: int = 4) -> tuple[Any, Any, int]:
    """(p, q, k) within reach of enumeration: V up to 5 and k up to 4, though not both.

    Among them p = q and disjoint supports.
    """
    k = draw(st.integers(1, deepest))
    size = draw(st.integers(2, min(most, {1: 5, 2: 5, 3: 4, 4: 3}[k])))
    p = draw(weights(size))
    kind = draw(st.integers(0, 7))
    if kind == 0:
        q = p
    elif kind == 1 and 0 in p:
        q = [int(weight == 0) for weight in p]
    else:
        q = draw(weights(size))
    return exact(p), exact(q), k


# ------------------------------------------------------------------- whole rounds


@dataclasses.dataclass
class TableDrafts:
    """A draft source whose conditional laws stand in a table: `widths` children a node,
    drawn as `relation` says from the law that the target's policy makes of them."""

    table: Table
    widths: tuple[int, ...] = (2, 2)
    relation: str = "iid"
    name: str = "drafts"

    def __post_init__(self) -> None:
        chain = max(self.widths) == 1
        drawn = self.relation != "beam"
        self.contract = SourceContract(
            self.name,
            ProbabilitySemantics("normalized_conditional" if drawn else "score_only"),
            SamplingRelation(self.relation),
            Topology.SEQUENCE if chain else Topology.TREE,
        )

    def identity(self) -> str:
        return f"{self.name}: a table"

    def start(self, prefix: Any, **about: Any) -> Any:
        policy = about.get("policy") or SamplingPolicy()
        return _Session(self, tuple(prefix), about["request"], policy)


class _Session:
    def __init__(
        self,
        source: TableDrafts,
        tokens: tuple[int, ...],
        request: str,
        policy: SamplingPolicy,
    ) -> None:
        self.source, self.tokens, self.request = source, tokens, request
        self.policy = policy
        self.generation = 0

    def nodes(self, widths: Any, max_nodes: int, chance: Any) -> Any:
        source = self.source
        relation = source.relation
        return samplers.expand(
            lambda path: self.policy.law_from_probabilities(
                source.table((*self.tokens, *path))
            ),
            widths,
            SAMPLERS[
                SamplingRelation("iid" if relation == "independent" else relation)
            ],
            chance,
            source=source.name,
            max_nodes=max_nodes,
        )

    def propose(
        self, *, max_depth: int, max_nodes: int, chance: Any, manifest_hash: str
    ) -> Proposal:
        contract = self.source.contract
        return Proposal(
            self.nodes(self.source.widths[:max_depth], max_nodes, chance),
            contract.probability_semantics,
            contract.sampling_relation,
            contract.topology,
            ProposalStateHandle(contract.name, self.request, self.generation),
            manifest_hash,
        )

    def commit(self, tokens: Any) -> None:
        self.tokens = (*self.tokens, *tokens)
        self.generation += 1


def generated(
    target: Table,
    source: Any,
    rule: Any,
    length: int,
    vocab: int,
    prompt: tuple[int, ...] = (0,),
    **options: Any,
) -> dict[Any, Any]:
    """The law of `engine.generate`: {(tokens of each round): probability}."""
    model = TableTarget(target, vocab_size=vocab)

    def program(chance: Any) -> tuple[tuple[int, ...], ...]:
        made = generate(
            model,
            prompt,
            source,
            rule,
            max_new_tokens=length,
            temperature=1,
            chance=chance,
            clock=lambda: 0.0,
            **options,
        )
        return tuple(item.committed for item in made.rounds)

    return law(program)


def check_rounds(
    target: Table,
    source: Any,
    rule: Any,
    length: int,
    vocab: int,
    prompt: tuple[int, ...] = (0,),
    **options: Any,
) -> int:
    """Through the engine, `length` tokens have the law of plain sampling, exactly.
    Returns the most rounds that a run took."""
    found = generated(target, source, rule, length, vocab, prompt, **options)
    check_outputs(found, target, length, prompt)
    return max(map(len, found))


def check_outputs(
    found: dict[Any, Any], target: Table, length: int, prompt: tuple[int, ...] = (0,)
) -> None:
    """What `generated` found has the law of plain sampling, exactly."""
    outputs: dict[Any, Fraction] = {}
    for blocks, probability in found.items():
        tokens = tuple(token for block in blocks for token in block)
        outputs[tokens] = outputs.get(tokens, Fraction(0)) + probability
    assert outputs == plain_law(target, prompt, length)


def expected_drafts(
    select: Callable[..., Selection],
    target: Table,
    draft: Table,
    widths: Sequence[int],
    relation: str = "iid",
    prompt: tuple[int, ...] = (0,),
) -> Fraction:
    """The expected number of accepted drafts in one round."""
    source = TableDrafts(draft, tuple(widths), relation)

    def program(chance: Any) -> int:
        tree = tree_of(source, prompt, chance)
        paths = dict(enumerate(tree.full_prefixes)) | {-1: ()}
        found = select(
            tree,
            lambda row: np.array(target((*prompt, *paths[row])), dtype=object),
            chance,
        )
        return len(tree.check_path(found.rows))

    return sum(count * mass for count, mass in law(program).items())


def tree_of(source: TableDrafts, prompt: tuple[int, ...], chance: Any) -> Any:
    """The tree that `source` proposes after `prompt`."""
    from specbook.tree import CandidateTree

    session = source.start(prompt, request="request-0")
    made = session.propose(max_depth=99, max_nodes=99, chance=chance, manifest_hash="")
    return CandidateTree.from_proposals(made, len(prompt))


def constant(weights: Sequence[int]) -> Table:
    """The table with one law after every prefix."""
    row = fractions(weights)
    return lambda prefix: row


def rule_named(rule: Any) -> str:
    """A test id."""
    return rule.contract.name if isinstance(rule, Verifier) else str(rule)


def node_of(token: int, row: Any, parent: int = -1, depth: int = 1) -> ProposalNode:
    """A node that says it was drawn from `row`."""
    row = checks.law(row)
    return ProposalNode(token, parent, depth, q=row[token], source="s", law=row)
