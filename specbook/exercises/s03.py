"""The exercises of 0x03_draft_sources: count rounds, choose a source, share words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from ..lab import FixedPaths
from ..measure.recording import RecordedOutput, Recording
from ..measure.replay import decode_again
from . import Exercise

# ----------------------------------------------------------------- 0x03-rounds

Rounds = tuple[list[int], dict[int, list[int]]]


def _rounds_cases(rng: np.random.Generator) -> Iterator[Rounds]:
    yield [4, 4, 4, 4], {}
    yield [1, 2, 3, 4, 5], {0: [1, 2, 9, 4], 3: [4]}
    yield [7, 7, 7], {0: [7, 7, 7, 7, 7, 7]}
    yield [5], {0: [5, 6]}
    for _ in range(9):
        tokens = [int(t) for t in rng.integers(0, 3, size=int(rng.integers(4, 12)))]
        offered = {}
        for place in range(len(tokens)):
            copied = list(tokens[place : place + int(rng.integers(0, 4))])
            if copied and rng.random() < 0.4:
                copied[int(rng.integers(len(copied)))] += 1
            copied += [int(t) for t in rng.integers(0, 3, size=int(rng.integers(0, 3)))]
            if copied:
                offered[place] = copied
        yield tokens, offered


class _Offers(FixedPaths):
    """A source that offers one chain at each place of the output, or none."""

    def __init__(self, offered: Mapping[int, list[int]]) -> None:
        super().__init__()
        self.offered = offered
        self.place = 0

    def start(self, prefix: Any, **options: Any) -> Any:
        session = super().start(prefix, **options)
        self.place = 0
        propose, commit = session.propose, session.commit

        def offer(**round_options: Any) -> Any:
            chain = self.offered.get(self.place)
            self.paths = [chain] if chain else []
            return propose(**round_options)

        def follow(tokens: Any) -> None:
            self.place += len(tokens)
            commit(tokens)

        session.propose, session.commit = offer, follow  # type: ignore[method-assign]
        return session


def _rounds(case: Rounds) -> int:
    # Through the engine itself, with a target that says the recorded tokens.
    tokens, offered = case
    vocab = 1 + max([*tokens, *(t for chain in offered.values() for t in chain)])
    output = RecordedOutput((0,), tuple(tokens))
    recorded = Recording((output,), vocab_size=vocab)
    return len(decode_again(_Offers(offered), output, recorded).rounds)


def _walk(case: Rounds, own: int, resume: bool = False) -> int:
    """Rounds where each commits its agreements and `own` tokens more. `resume`: what
    agrees behind a mismatch counts as well, which is a mistake."""
    tokens, offered = case
    place = count = 0
    while place < len(tokens):
        pairs = list(zip(offered.get(place, []), tokens[place:], strict=False))
        agree = [one == other for one, other in pairs]
        length = sum(agree) if resume else (*agree, False).index(False)
        place += max(length + own, 1)
        count += 1
    return count


def _rounds_mistake(case: Rounds, value: Any, truth: int) -> str | None:
    tokens, offered = case
    if value == truth:
        return None
    if value == len(tokens):
        return "that is plain decoding, one token a round: nothing was accepted."
    if value == _walk(case, own=0):
        return (
            "you left out the target's own token: it stands behind the accepted ones, "
            "in every round, and needs no candidate."
        )
    if value == _walk(case, own=1, resume=True):
        return "you counted candidates behind a mismatch; the round ends there."
    if value == len(offered):
        return (
            "a round that has no offer is a round too, and offers inside an accepted "
            "chain are never asked for."
        )
    return "walk from place to place: what agrees from its start on, and one more."


# ----------------------------------------------------------------- 0x03-choose

Figures = tuple[Fraction, Fraction, Fraction]
Choice = tuple[dict[str, Figures], list[Fraction]]


def _choose_cases(rng: np.random.Generator) -> Iterator[Choice]:
    flat = [Fraction(1)] * 33
    steep = [Fraction(3 + n, 4) for n in range(33)]
    both = {
        "lookup": (Fraction(3, 2), Fraction(0), Fraction(2)),
        "draft model": (Fraction(2), Fraction(1, 2), Fraction(4)),
        "merged": (Fraction(5, 2), Fraction(1, 2), Fraction(16)),
    }
    yield both, flat
    yield both, steep
    yield {"wide": (Fraction(3), Fraction(0), Fraction(16))}, steep
    for _ in range(9):
        step = Fraction(int(rng.integers(1, 8)), 16)
        cost = [1 + step * max(0, n - 1) for n in range(33)]
        names = ["lookup", "datastore", "draft model", "merged"]
        offers = {}
        for name in names[: int(rng.integers(2, 5))]:
            rows = int(rng.integers(1, 17))
            worth = 1 + Fraction(int(rng.integers(1, 32)), 16)
            drafting = Fraction(int(rng.integers(0, 12)), 16)
            offers[name] = (worth, drafting, Fraction(rows))
        yield offers, cost


def _per_token(case: Choice, name: str | None) -> Fraction:
    offers, cost = case
    if name is None:
        return cost[1]
    tokens, drafting, rows = offers[name]
    return (drafting + cost[1 + int(rows)]) / tokens


def _choose(case: Choice) -> str | None:
    return min([None, *case[0]], key=lambda name: (_per_token(case, name), str(name)))


def _choose_right(case: Choice, value: Any, truth: str | None) -> bool:
    # Whatever gains on plain decoding is an answer, and its score is its time. Where
    # nothing gains, the answer is to draft nothing.
    if value is not None and value not in case[0]:
        return False
    plain = _per_token(case, None)
    return value is None if truth is None else _per_token(case, value) < plain


def _choose_cost(case: Choice, value: Any) -> float:
    return float(_per_token(case, value))


def _choose_mistake(case: Choice, value: Any, truth: str | None) -> str | None:
    offers, cost = case
    if value is not None and value not in offers:
        return f"return one of {sorted(offers)}, or None for plain decoding."
    if value is None:
        return "some source is faster here than plain decoding."
    if value == max(offers, key=lambda name: offers[name][0]):
        return (
            "you chose the most tokens a round. Divide the time of a round, drafting "
            "and the target's rows, by them, and compare with plain decoding."
        )
    if value == min(offers, key=lambda name: offers[name][1]):
        return "you chose the cheapest draft; its rows cost the target, too."
    slower = float(_per_token(case, value) / cost[1])
    return f"this source takes {slower:.2f} times as long as plain decoding."


# ----------------------------------------------------------------- 0x03-shared

Words = tuple[list[Fraction], list[str], list[str]]


def _shared_cases(rng: np.random.Generator) -> Iterator[Words]:
    third = Fraction(1, 3)
    yield [third, third, third], ["a", "b", "c"], ["a", "b", "c"]
    yield [Fraction(1, 2), third, Fraction(1, 6)], ["a", "x", "b"], ["b", "y", "a", "z"]
    yield [Fraction(1, 2), third, Fraction(1, 6)], ["a", "b", "c"], ["c", "a", "b"]
    words = list("abcdef")
    for _ in range(9):
        draft = [str(w) for w in rng.permutation(words)[: int(rng.integers(3, 6))]]
        rest = [w for w in words if w not in draft]
        kept = [str(w) for w in rng.permutation(draft)[: int(rng.integers(1, 4))]]
        target = [str(w) for w in rng.permutation([*kept, *rest[:2], "z"])]
        weights = [int(w) for w in rng.integers(1, 7, size=len(draft))]
        yield [Fraction(w, sum(weights)) for w in weights], draft, target


def _shared(case: Words) -> list[Fraction]:
    # Draw again whenever the target cannot say the word: x = known + lost x.
    q, draft, target = case
    known = {word: p for word, p in zip(draft, q, strict=True) if word in target}
    lost = sum(p for word, p in zip(draft, q, strict=True) if word not in target)
    return [known.get(word, Fraction(0)) / (1 - lost) for word in target]


def _shared_mistake(case: Words, value: Any, truth: list[Fraction]) -> str | None:
    q, draft, target = case
    if isinstance(value, Mapping):
        return "return a list: entry i belongs to the target's id i."
    value = list(value)
    known = {word: p for word, p in zip(draft, q, strict=True) if word in target}
    said = sum(known.values())
    if value == [known.get(word, 0) for word in target]:
        return (
            f"yours adds up to {said}: what only the draft model can say is left out "
            "and the rest no law any more. Divide by what is left."
        )
    by_id = [*q, *[Fraction(0)] * len(target)][: len(target)]
    if value == by_id or (sum(by_id) and value == [p / sum(by_id) for p in by_id]):
        return "you went by ids. Equal ids are different words here; go by the words."
    if value == [p / said if w in known else 0 for w, p in zip(draft, q, strict=True)]:
        return "the law is right and in the draft model's order; use the target's ids."
    if len(value) != len(target):
        return f"the target has {len(target)} words, yours {len(value)} entries."
    missing = (1 - said) / len(target)
    if value == [known.get(word, 0) + missing for word in target]:
        return "you gave words a chance with which the draft model never draws them."
    return None


EXERCISES: dict[str, Exercise] = {
    exercise.id: exercise
    for exercise in (
        Exercise(
            id="0x03-rounds",
            question=(
                "rounds_of(tokens, offered): how many rounds a recorded output takes. "
                "offered[i] is the chain that the source proposes when tokens[:i] is "
                "out; it proposes nothing where i is missing."
            ),
            cases=_rounds_cases,
            oracle=_rounds,
            diagnose=_rounds_mistake,
        ),
        Exercise(
            id="0x03-choose",
            question=(
                "choose(offers, cost): the name of a source that gains on plain "
                "decoding, or None where there is none. offers[name] is a triple: "
                "tokens a round, time of drafting a round, candidate rows; cost[n] is "
                "the target's time for n rows, and one row stands before the "
                "candidates. The score is the time for each token."
            ),
            cases=_choose_cases,
            oracle=_choose,
            diagnose=_choose_mistake,
            right=_choose_right,
            cost=_choose_cost,
            cost_unit="time units a token",
        ),
        Exercise(
            id="0x03-shared",
            question=(
                "shared(q, draft, target): the law, over the target's words, of a "
                "draft model that may only say words that both know. q[i] is the "
                "probability of the word draft[i]; entry j of the answer belongs to "
                "target[j]."
            ),
            cases=_shared_cases,
            oracle=_shared,
            diagnose=_shared_mistake,
        ),
    )
}
