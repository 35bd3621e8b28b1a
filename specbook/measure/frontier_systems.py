"""What decodes in the last step of a frontier, and how they take turns.

A system is a function of a prompt's ids and a number of new tokens. Ours are the engine
with a source and a rule, each run with its trace; the peers are the three ways of
transformers on the same weights. On every prompt another one is the first, so that no
system has the warm caches to itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from .. import paths
from ..drafts.neural.draft_model import SHIPPED
from ..drafts.switch import Switch
from ..prompts import Prompt
from .bench_decode import UPSTREAM_CANDIDATES, first_difference
from .bench_decode import transformers_system as transformers_decode
from .bench_heads import top_two_gap
from .configurations import Available, source_of
from .decode_report import loop_tokens
from .frontier_data import PLAIN, Configuration, Decoded, Screened, Trace
from .held import held_bytes
from .setup import Clock
from .tracing import traced

PEERS = ("transformers greedy", "transformers lookup", "transformers assisted")


@dataclass(frozen=True)
class Outcome:
    """One prompt decoded once; `trace` is None for another library."""

    tokens: list[int]
    seconds: float
    rounds: int
    trace: Trace | None


System = Callable[[list[int], int], Outcome]


def ours(
    target: Any,
    chosen: Sequence[Screened],
    sources: Sequence[Available],
    verify: Sequence[tuple[int, float]],
    *,
    temperature: float,
    seed: int,
    clock: Clock,
) -> dict[Configuration, System]:
    """Plain decoding, the finalists `chosen` and the best of them behind a switch, by
    their configurations. `verify`: pairs (rows, seconds), for the switch."""

    def system(source: Any, one: Configuration) -> System:
        shares = one.family == "self"
        weights = 0
        if source is not None:
            weights = held_bytes(source, beside=(target,), shares_state=shares)
        rule = one.verifier
        if one == PLAIN and temperature:
            rule = "membership"  # which draws from the target, where nothing is drafted

        def decode(ids: list[int], max_new_tokens: int) -> Outcome:
            made = traced(
                target,
                source,
                rule,
                ids,
                max_new_tokens=max_new_tokens,
                temperature=temperature,
                seed=seed,
                max_nodes=one.most or None,
                exact=one.exact,
                weight_bytes=weights,
                shares_state=shares,
                clock=clock,
            )
            rounds = len(made.trace.round_tokens)
            return Outcome(made.tokens, made.seconds, rounds, made.trace)

        return decode

    found = {PLAIN: system(None, PLAIN)}
    for row in chosen:
        one = row.configuration
        found[one] = system(source_of(one, sources), one)
    # A source that copies adapts already, and looking up costs it nothing.
    exact = [
        row
        for row in chosen
        if row.configuration.exact and row.configuration.family != "copying"
    ]
    if exact:
        best = min(exact, key=lambda row: row.per_token)
        source = Switch(
            source_of(best.configuration, sources),
            cost=verify,
            drafting=best.draft_seconds / max(1.0, best.draft_depth),
        )
        switched = replace(best.configuration, switched=True)
        found[switched] = system(source, switched)
    return found


def peers(
    target: Any, draft: Any, *, dtype: str, clock: Clock
) -> dict[Configuration, System]:
    """The three ways of transformers on the weights of `target`, greedily. `draft`: the
    folder or hub id of the assistant, None for the shipped one."""
    from ..models.checkpoint import load_transformers_model

    model = load_transformers_model(target.source, dtype=dtype)
    folder = paths.data_path(*SHIPPED) if draft is None else draft
    assistant = load_transformers_model(folder, dtype=dtype)
    options: dict[str, dict[str, Any]] = {
        PEERS[0]: {},
        PEERS[1]: {"prompt_lookup_num_tokens": UPSTREAM_CANDIDATES},
        PEERS[2]: {"assistant_model": assistant},
    }
    found: dict[Configuration, System] = {}
    for name, chosen in options.items():
        decode = transformers_decode(model, **chosen)

        def timed(ids: list[int], max_new_tokens: int, decode: Any = decode) -> Outcome:
            began = clock()
            made = decode(ids, max_new_tokens)
            return Outcome(made.tokens, clock() - began, made.rounds, None)

        found[Configuration(name, "peer", "greedy")] = timed
    return found


def turns(
    systems: Mapping[Configuration, System],
    target: Any,
    prompt: Prompt,
    ids: list[int],
    *,
    number: int,
    dtype: str,
    temperature: float,
    max_new_tokens: int,
    repeats: int,
) -> list[Decoded]:
    """One prompt, by every system in turn, beginning with another one for each
    `number`. The time of a system is the median of its `repeats`."""
    names = list(systems)
    outcomes: dict[Configuration, Outcome] = {}
    seconds: dict[Configuration, list[float]] = {name: [] for name in names}
    for turn in range(repeats):
        first = (number + turn) % len(names)
        for name in names[first:] + names[:first]:
            outcomes[name] = systems[name](ids, max_new_tokens)
            seconds[name].append(outcomes[name].seconds)
    plain = outcomes[PLAIN].tokens
    rows = []
    for name in names:
        made = outcomes[name]
        found = first_difference(plain, made.tokens) if temperature == 0 else None
        gap = None
        if found is not None:
            gap = top_two_gap(target, [*ids, *plain[: found[0]]])
        rows.append(
            Decoded(
                name,
                dtype,
                temperature,
                prompt.workload,
                prompt.id,
                len(ids),
                len(made.tokens),
                round(median(seconds[name]), 6),
                made.rounds,
                loop_tokens(made.tokens),
                None if temperature else found is None,
                gap,
                made.trace,
            )
        )
    return rows
