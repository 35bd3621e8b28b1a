"""Decoding with everything written down that section 0x0D asks for.

A run is watched from outside: its rounds tell what was drafted and accepted, and the
rule is wrapped so that the laws which it asked for can be looked at afterwards. Looking
is not part of decoding, so its time is taken off the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import engine, verifiers
from ..chance import Chance
from ..contract import Selection, Verifier
from ..engine import Round
from ..ledger import COST_TERMS, RoundLedger
from ..proposal import ProbabilitySemantics
from ..tree import CandidateTree
from .frontier_data import BINS, Trace
from .held import held_bytes

DIGITS = 7
"""Of recorded seconds: tenths of a microsecond."""


@dataclass(frozen=True)
class Run:
    """One decoded prompt: its tokens, the seconds of decoding alone, its trace."""

    tokens: list[int]
    seconds: float
    trace: Trace


class _Kept:
    """A source that remembers the session that it started last."""

    def __init__(self, source: Any) -> None:
        self.source = source
        self.session: Any = None

    def __getattr__(self, name: str) -> Any:
        if "source" not in vars(self):
            raise AttributeError(name)
        return getattr(self.source, name)

    def start(self, *arguments: Any, **options: Any) -> Any:
        """As the source's."""
        self.session = self.source.start(*arguments, **options)
        return self.session


class _Watch:
    """Counts over the rounds of one run."""

    def __init__(self, rule: Verifier, greedy: bool, clock: Callable[[], float]):
        self.looking = 0.0
        self.places = np.zeros(BINS)
        self.likelihood = np.zeros(4)
        self.q_bins = np.zeros((BINS, 3))
        self._rule, self._greedy, self._clock = rule, greedy, clock
        self._asked: dict[int, np.ndarray] = {}
        self._tree: CandidateTree | None = None

    def verifier(self) -> Verifier:
        """The rule, with its questions remembered until the round is looked at."""

        def select(
            tree: CandidateTree, law: Callable[[int], np.ndarray], chance: Chance
        ) -> Selection:
            self._asked, self._tree = {}, tree

            def remembered(row: int) -> np.ndarray:
                answer = self._asked[row] = law(row)
                return answer

            return self._rule.select(tree, remembered, chance)

        return Verifier(self._rule.contract, select)

    def look(self, played: Round) -> None:
        """Reads one round; at temperature 0 laws are one-hot and say nothing."""
        began = self._clock()
        if not self._greedy:
            rows = (-1, *played.selection.rows)
            for row, token in zip(rows, played.committed, strict=False):
                if row in self._asked:
                    self._token(self._asked[row], token)
            assert self._tree is not None
            for row, law in self._asked.items():
                for child, mark in self._tree.draws(row):
                    if mark.q is not None:
                        place = min(int(mark.q * BINS), BINS - 1)
                        p = law[self._tree.token_ids[child]]
                        self.q_bins[place] += (1, mark.q, p)
        self.looking += self._clock() - began

    def _token(self, law: np.ndarray, token: int) -> None:
        p = float(law[token])
        if not p > 0:
            self.likelihood[3] += 1
            return
        some = law[law > 0]
        entropy = -float((some * np.log(some)).sum())
        self.likelihood[:3] += (1, np.log(p), entropy)
        before = float(law[law > p].sum() + law[:token][law[:token] == p].sum())
        self.places += spread_over(before, before + p)


def spread_over(low: float, high: float, bins: int = BINS) -> np.ndarray:
    """A token's place: the share of [low, high] in each of `bins` equal parts of
    [0, 1]. Tokens of the law itself fill all parts alike, whatever the law."""
    edges = np.linspace(0, 1, bins + 1)
    inside = np.minimum(high, edges[1:]) - np.maximum(low, edges[:-1])
    # Sums of floats may end a little above 1.
    inside[-1] = max(inside[-1], high - max(low, edges[-2]))
    shares: np.ndarray = np.maximum(inside, 0)
    total = float(shares.sum())
    if total > 0:
        return shares / total
    shares[min(int(low * bins), bins - 1)] = 1.0
    return shares


def traced(
    target: Any,
    source: Any,
    verifier: str,
    ids: Sequence[int],
    *,
    max_new_tokens: int,
    temperature: float = 0.0,
    seed: int = 0,
    max_nodes: int | None = None,
    exact: bool = True,
    weight_bytes: int = 0,
    shares_state: bool = False,
    clock: Callable[[], float] = time.perf_counter,
) -> Run:
    """Decodes one prompt and keeps its trace.

    `source`: made already; None is plain decoding. `weight_bytes`: what it holds, as
    `held.held_bytes` counted it; `shares_state`: see there. The others as in
    `engine.generate`, `max_nodes` None being its default.
    """
    rule: Verifier = verifiers.get(verifier)
    watch = _Watch(rule, temperature == 0, clock)
    kept = None if source is None else _Kept(source)
    row_bytes = int(target.start(ids[:1]).bytes_per_row())
    began = clock()
    made = engine.generate(
        target,
        ids,
        kept,
        watch.verifier(),
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        seed=seed,
        eos_token_id=target.eos_token_id,
        exact=exact,
        max_nodes=engine.MAX_NODES if max_nodes is None else max_nodes,
        on_round=watch.look,
        clock=clock,
    )
    seconds = clock() - began - watch.looking
    state = 0
    if kept is not None and kept.session is not None:
        beside = (target, source)
        state = held_bytes(kept.session, beside=beside, shares_state=shares_state)
    trace = _trace(made.rounds, source, watch, weight_bytes, state, row_bytes)
    return Run(made.tokens, seconds, trace)


def _trace(
    rounds: Sequence[Round],
    source: Any,
    watch: _Watch,
    weight_bytes: int,
    state_bytes: int,
    row_bytes: int,
) -> Trace:
    deepest = max(one.tree.max_depth for one in rounds)
    drafted, accepted = [0] * deepest, [0] * deepest
    by_depth = [[0, 0.0] for _ in range(deepest + 1)]
    lengths = [0] * (1 + max(one.accepted for one in rounds))
    nodes = [0] * (1 + max(len(one.tree) for one in rounds))
    first = covered = distinct = matched = length = 0
    looks_up = (
        source is not None
        and source.contract.cost_term == "retrieval"
        and source.contract.probability_semantics is ProbabilitySemantics.ABSENT
    )
    for one in rounds:
        for depth in one.tree.depths:
            drafted[depth - 1] += 1
        for depth in range(one.accepted):
            accepted[depth] += 1
        spent = by_depth[one.tree.max_depth]
        spent[0] += 1
        spent[1] += float(one.ledger.proposal + one.ledger.retrieval)
        lengths[one.accepted] += 1
        nodes[len(one.tree)] += 1
        drawn = one.tree.draws(-1)
        if drawn:
            tokens = [one.tree.token_ids[child] for child, _ in drawn]
            first += tokens[0] == one.committed[0]
            covered += one.committed[0] in tokens
            distinct += len(set(tokens))
            if looks_up and drawn[0][1].score is not None:
                matched += 1
                length += int(drawn[0][1].score)
    ledger = RoundLedger.total(one.ledger for one in rounds)
    greedy = not watch.likelihood[0] and not watch.likelihood[3]
    return Trace(
        tuple(drafted),
        tuple(accepted),
        tuple(lengths),
        tuple(nodes),
        first,
        covered,
        distinct,
        (matched, length),
        tuple(tuple(map(_short, row)) for row in watch.q_bins),
        tuple((float(count), _short(spent)) for count, spent in by_depth),
        {term: _short(getattr(ledger, term)) for term in COST_TERMS},
        tuple(len(one.committed) for one in rounds),
        tuple(_short(one.ledger.round_cost) for one in rounds),
        () if greedy else tuple(map(_short, watch.likelihood)),
        () if greedy else tuple(map(_short, watch.places)),
        weight_bytes,
        state_bytes,
        row_bytes * (len(nodes) - 1),
    )


def _short(value: Any) -> float:
    return round(float(value), DIGITS)
