"""The exercises of 0x05_self_speculation: a vector, a threshold, rows, ownership."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from ..drafts.stop_threshold import StopThreshold, ThresholdPolicy
from . import Exercise

# -------------------------------------------------------------- 0x05-best-vector

Request = tuple[int, int, int, int]
Trials = dict[str, list[Request]]


def _trials_cases(rng: np.random.Generator) -> Iterator[Trials]:
    # Each usual mistake chooses another vector here.
    yield {
        "----": [(170, 68, 2, 60), (170, 68, 2, 60)],
        "-xx-": [(30, 30, 4, 20), (36, 36, 4, 22)],
        "xxxx": [(8, 50, 6, 8), (8, 50, 6, 8)],
        "-x--": [(36, 24, 40, 21), (36, 24, 40, 21)],
        "mmmm": [(6, 190, 0, 20), (6, 190, 0, 20)],
        "m-m-": [(1, 10, 0, 10), (160, 190, 20, 90)],
    }
    count = 0
    while count < 8:
        size = int(rng.integers(2, 5))
        trials: Trials = {}
        for name in ("----", "-x--", "-xx-", "mam-", "xxxx")[: int(rng.integers(3, 6))]:
            trials[name] = [
                (
                    int(rng.integers(5, 90)),
                    int(rng.integers(20, 60)),
                    int(rng.integers(0, 30)),
                    int(rng.integers(3, 40)),
                )
                for _ in range(size)
            ]
        ranked = sorted(map(_objective, trials.values()))
        if ranked[0] < ranked[1]:
            count += 1
            yield trials


def _objective(requests: Sequence[Request], parts: int = 3) -> Fraction:
    spent = sum(sum(request[:parts]) for request in requests)
    return Fraction(spent, sum(request[3] for request in requests))


def _best_vector(trials: Trials) -> str:
    # Pair by pair, multiplied out: no quotient is formed.
    best, spent, verified = "", 0, 0
    for name, requests in trials.items():
        mine = sum(a + b + c for a, b, c, _ in requests)
        got = sum(n for *_, n in requests)
        if not best or mine * verified < spent * got:
            best, spent, verified = name, mine, got
    return best


def _best_vector_mistake(case: Trials, value: Any, truth: str) -> str | None:
    if value not in case:
        return "return the name of a vector."

    def least(key: Any) -> str:
        return min(case, key=lambda name: key(case[name]))

    if value == least(lambda rs: sum(Fraction(sum(r[:3]), r[3]) for r in rs) / len(rs)):
        return (
            "you averaged the requests' own quotients; the objective is one sum over "
            "another, so that long requests count as long as they are."
        )
    if value == least(lambda rs: _objective(rs, 2)):
        return "the time for state is part of a round, too."
    if value == least(lambda rs: -sum(r[3] for r in rs)):
        return "the most verified tokens are not the least time for each: divide."
    if value == least(lambda rs: sum(r[0] for r in rs)):
        return "the cheapest draft is not the cheapest token: verification costs, too."
    if value == least(lambda rs: sum(sum(r[:3]) for r in rs)):
        return "the least time in all may have verified little: divide by the tokens."
    return None


# ---------------------------------------------------------------- 0x05-threshold

Rounds = tuple[list[tuple[int, int]], int]

_OFFICIAL: dict[str, Any] = {
    "start": Fraction(4, 5),
    "target": Fraction(9, 10),
    "epsilon": Fraction(1, 100),
    "beta1": Fraction(1, 2),
    "beta2": Fraction(9, 10),
}


def _threshold_cases(rng: np.random.Generator) -> Iterator[Rounds]:
    # Each usual mistake ends somewhere else here.
    ends = [(3, 1), (2, 2), (2, 2)], [(2, 2)] * 6 + [(4, 4)] * 3 + [(0, 0)] * 2
    yield [*ends[0], *[(4, 4)] * 4, *ends[1], *[(2, 2)] * 3, *[(3, 1)] * 2], 4
    yield [(3, 1)], 4
    yield [(8, 8)] * 6, 8
    yield [(3, 3)] * 6, 8
    yield [(0, 0), (2, 2), (0, 0), (2, 2), (2, 2), (2, 2), (2, 2)], 8
    for _ in range(7):
        most, found = int(rng.integers(2, 9)), []
        for _ in range(int(rng.integers(6, 20))):
            drafted = int(rng.integers(0, most + 1))
            easy = rng.random() < 0.8
            accepted = drafted if easy else int(rng.integers(0, drafted + 1))
            found.append((drafted, accepted))
        yield found, most


def _moved(
    case: Rounds, *, rule: str = "original", times: int = 1, **changes: Any
) -> Any:
    rounds, most = case
    threshold = StopThreshold(ThresholdPolicy(rule, **{**_OFFICIAL, **changes}), most)
    number = 0
    for drafted, accepted in rounds:
        for _ in range(times):
            threshold.learn(number, accepted, drafted)
            number += 1
    return threshold.gamma


def _by_hand(case: Rounds, wrong: str) -> Fraction:
    """Gamma where the estimate is taken wrongly."""
    rounds, most = case
    gamma, rate, step = Fraction(4, 5), Fraction(0), Fraction(1, 1000)
    if wrong == "start":
        rate = Fraction(1)
    for drafted, accepted in rounds:
        if not drafted and wrong != "empty":
            continue
        now = Fraction(accepted, drafted) if drafted else Fraction(0)
        new = now if wrong == "memory" else (rate + now) / 2
        seen = rate if wrong == "late" else new
        rate = new
        if seen < Fraction(9, 10):
            gamma += step
        elif drafted < most:
            gamma -= step
    return gamma


def _threshold_mistake(case: Rounds, value: Any, truth: Fraction) -> str | None:
    if value == _moved(case, rule="article"):
        return (
            "that is the rule with two branches: a full draft at the target rate "
            "leaves the threshold where it is."
        )
    if value == _moved(case, times=2):
        return "you moved twice a round."
    if value == _moved(case, beta2=Fraction(0)):
        return "beta2 is missing: a step is (1 - beta2) epsilon."
    for wrong, told in (
        ("late", "compare the renewed estimate with the target, not the old one."),
        ("memory", "the estimate remembers half of what it was, each round."),
        ("start", "the estimate starts at 0."),
        ("empty", "a round without a draft says nothing, and nothing moves."),
    ):
        if value == _by_hand(case, wrong):
            return told
    return None


# --------------------------------------------------------------- 0x05-layer-rows

Work = tuple[int, int, int, list[tuple[int, int]]]


def _work_cases(rng: np.random.Generator) -> Iterator[Work]:
    yield 5, 4, 1, [(3, 3), (2, 0), (1, 1), (1, 1), (4, 2)]
    yield 5, 4, 1, [(3, 1)]
    yield 5, 4, 1, [(3, 3)]
    for _ in range(9):
        layers = int(rng.integers(2, 31))
        rounds = []
        for _ in range(int(rng.integers(1, 7))):
            drafted = int(rng.integers(1, 7))
            rounds.append((drafted, int(rng.integers(0, drafted + 1))))
        yield int(rng.integers(1, 40)), layers, int(rng.integers(1, layers)), rounds


def _work(case: Work) -> tuple[int, int, int]:
    # Token by token: what each part holds, and what it reads next.
    prompt, layers, boundary, rounds = case
    text = prompt  # tokens decided
    cached = adapter = 0  # tokens whose rows are held
    below = above = read = 0
    for drafted, accepted in rounds:
        shallow = cached
        for place in range(drafted + 1):
            known = text + place  # a token more each time
            while shallow < known:
                below += boundary
                shallow += 1
            if place < drafted:
                while adapter < known:
                    read += 1
                    adapter += 1
        above += (shallow - cached) * (layers - boundary)
        cached = text + accepted
        adapter = min(adapter, cached)
        text = cached + 1
    return below, above, read


def _work_mistake(case: Work, value: Any, truth: tuple[int, int, int]) -> str | None:
    value = tuple(value)
    prompt, layers, boundary, rounds = case
    drafted = sum(n for n, _ in rounds)
    full = sum(n == a for n, a in rounds[:-1])
    below, above, read = truth
    if value == (below + drafted * boundary, above, read):
        return (
            "the rows below the boundary are kept when the draft is verified: no "
            "shallow layer runs twice for a row."
        )
    if value[:2] == (below, above + drafted * boundary):
        return "above the boundary only the other layers run."
    if value[:2] == (below, above):
        if value[2] == read + len(rounds):
            return "the adapter does not read the last token of a draft."
        if value[2] == read - full:
            return (
                "behind a draft that was accepted whole the adapter is one row behind, "
                "and reads two."
            )
        if value[2] == read + len(rounds) - full:
            return (
                "the adapter does not read the last token of a draft, and makes up for "
                "it when all were accepted."
            )
    if value == (below // boundary, above // (layers - boundary), read):
        return "these are rows; a row runs through each layer of its part."
    if value[0] == below - (prompt - 1) * boundary:
        return "the first round reads the whole prompt."
    return None


# -------------------------------------------------------------- 0x05-publishable

Row = tuple[int, int, list[int], list[int]]
Offer = tuple[list[Row], list[int], int]


def _offer_cases(rng: np.random.Generator) -> Iterator[Offer]:
    text = [7, 7, 8, 7]

    def row(place: int, layers: int = 2, **other: Any) -> Row:
        made = {
            "token": text[place],
            "position": place,
            "before": text[:place],
            "ran": list(range(layers)),
            **other,
        }
        return made["token"], made["position"], made["before"], made["ran"]

    yield [row(0), row(1), row(2)], text, 2
    yield [row(0), row(1), row(2, token=9)], text, 2
    yield [row(0), row(1, position=2)], text, 2
    yield [row(0), row(1), row(3, before=[7, 7, 9])], text, 2
    yield [row(0), row(1, ran=[0]), row(2)], text, 2
    yield [row(0), row(1, ran=[0, 0]), row(2), row(3)], text, 2
    for _ in range(8):
        layers = int(rng.integers(2, 5))
        text = [int(t) for t in rng.integers(0, 3, size=int(rng.integers(3, 7)))]
        rows = [row(place, layers) for place in range(len(text))]
        place = int(rng.integers(len(text)))
        fault = int(rng.integers(5))
        if fault == 0:
            gone = int(rng.integers(layers))
            ran = [layer for layer in range(layers) if layer != gone]
            rows[place] = row(place, layers, ran=ran)
        elif fault == 1:
            rows[place] = row(place, layers, token=text[place] + 1)
        elif fault == 2 and place:
            before = [*text[: place - 1], text[place - 1] + 1]
            rows[place] = row(place, layers, before=before)
        elif fault == 3 and place:
            rows[place] = row(place, layers, position=place - 1)
        yield rows, text, layers


def _publishable(case: Offer) -> list[bool]:
    # By the package's own tags: each row through its layers, behind the rows before it.
    from ..models import state

    rows, tokens, layers = case

    def key(token: int, position: int, before: list[int]) -> Any:
        about = (token, position, state.ancestry(before), "float32", 0)
        return state.StateKey("a checkpoint", layers, *about)

    tags: list[Any] = []
    found = []
    for token, position, before, ran in rows:
        at = state.StateKey(
            "a checkpoint", 0, token, position, state.ancestry(before), "float32", 0
        )
        start = state.Tag(at, layers, "somebody", (state.EMBEDDING,))
        steps = [s for layer in ran for s in state.layer_steps(layer, layer + 1)]
        tags.append(start.through(steps, layers, "somebody", attended=tags))
        need = key(tokens[position], position, tokens[:position])
        try:
            state.publish([tags[-1]], [need])
        except state.StateError:
            found.append(False)
        else:
            found.append(True)
    return found


def _labels(case: Offer, *, ran: bool, before: bool, position: bool) -> list[bool]:
    rows, tokens, layers = case
    found = []
    for token, place, tail, steps in rows:
        right = token == tokens[place] if position else token in tokens
        right &= not before or tail == tokens[:place]
        found.append(right and (not ran or steps == list(range(layers))))
    return found


def _publishable_mistake(case: Offer, value: Any, truth: list[bool]) -> str | None:
    value = list(value)
    if value == _labels(case, ran=True, before=True, position=True):
        return (
            "a row that ran every layer is not the target's if a row that it attended "
            "to was not."
        )
    if value == _labels(case, ran=False, before=True, position=True):
        return "equal labels do not make equal tensors: look at the layers that ran."
    if value == _labels(case, ran=True, before=False, position=True):
        return "the tokens before it are part of what a row is: compare them."
    if value == _labels(case, ran=True, before=False, position=False):
        return "a token stands at many places: compare the position, too."
    rows, _, layers = case
    if value == [ran == list(range(layers)) for *_, ran in rows]:
        return "a full row of another token or place is not this place's row."
    return None


EXERCISES: dict[str, Exercise] = {
    exercise.id: exercise
    for exercise in (
        Exercise(
            id="0x05-best-vector",
            question=(
                "best_vector(trials): trials maps skip vectors to their requests, "
                "each (draft, verify, state, verified): three times and the tokens "
                "that were verified. Return the vector with the least time for each "
                "verified token over all requests together."
            ),
            cases=_trials_cases,
            oracle=_best_vector,
            diagnose=_best_vector_mistake,
        ),
        Exercise(
            id="0x05-threshold",
            question=(
                "threshold(rounds, most): rounds are (drafted, accepted), a full draft "
                "has `most` tokens. By the official rule with its hold branch, return "
                "gamma behind them as a Fraction: start 4/5, target 9/10, epsilon "
                "1/100, beta1 1/2, beta2 9/10, the estimate starts at 0."
            ),
            cases=_threshold_cases,
            oracle=_moved,
            diagnose=_threshold_mistake,
        ),
        Exercise(
            id="0x05-layer-rows",
            question=(
                "layer_rows(prompt, layers, boundary, rounds): Kangaroo decodes behind "
                "`prompt` tokens in rounds of (drafted, accepted), drafted at least 1. "
                "The first round reads the prompt. Return (layer-rows run below the "
                "boundary, above it, rows that the adapter reads)."
            ),
            cases=_work_cases,
            oracle=_work,
            diagnose=_work_mistake,
        ),
        Exercise(
            id="0x05-publishable",
            question=(
                "publishable(rows, tokens, layers): each row is (token, position, "
                "tokens before it, layers that it ran) and has attended to all rows "
                "before it in the list. For each, return whether it may be published "
                "as the target's row of its position in the text `tokens`."
            ),
            cases=_offer_cases,
            oracle=_publishable,
            diagnose=_publishable_mistake,
        ),
    )
}
