"""Small frontier files for the tests, with numbers that a reader can check by hand."""

from __future__ import annotations

from typing import Any

from specbook.ledger import COST_TERMS
from specbook.measure.frontier_data import (
    BINS,
    PLAIN,
    Configuration,
    Cost,
    Decoded,
    FrontierFile,
    Screened,
    Skipped,
    Trace,
)

LOOKUP = Configuration("prompt_lookup", "copying", "greedy")
CHAIN = Configuration(
    "hydra", "heads", "greedy", True, "chain 2", "top_k", False, 0, (-1, 0), (0, 0)
)
TYPICAL = Configuration("prompt_lookup", "copying", "typical", False)
PEER = Configuration("transformers lookup", "peer", "greedy")
SETTINGS: dict[str, Any] = {"target": {"checkpoint": "t"}, "clock": "wall"}
MACHINE: dict[str, Any] = {
    "line": "a processor, 2 threads",
    "processor": "a processor",
    "threads": 2,
    "versions": {"torch": "2"},
}


def trace(tokens: int, rounds: int, seconds: float, **changes: Any) -> Trace:
    """One round that accepts all but `rounds` tokens, then plain ones."""
    accepted = tokens - rounds
    each = tuple([accepted + 1] + [1] * (rounds - 1))
    made = int(accepted > 0)
    lengths = [0] * (accepted + 1)
    lengths[accepted] += 1
    lengths[0] += rounds - 1
    values: dict[str, Any] = {
        "drafted_by_depth": (1,) * accepted,
        "accepted_by_depth": (1,) * accepted,
        "path_lengths": tuple(lengths),
        "rounds_by_nodes": tuple(lengths),
        "first_child": made,
        "covered": made,
        "distinct": made,
        "match_lengths": (accepted, 3 * accepted),
        "q_bins": ((0.0, 0.0, 0.0),) * BINS,
        "draft_seconds_by_depth": tuple((float(n), 0.001 * n) for n in lengths),
        "cost_terms": {
            term: seconds * (term == "target_verify") for term in COST_TERMS
        },
        "round_tokens": each,
        "round_seconds": (seconds / rounds,) * rounds,
        "likelihood": (float(tokens), -1.5 * tokens, 1.5 * tokens, 0.0),
        "places": (tokens / BINS,) * BINS,
        "weight_bytes": 0,
        "state_bytes": 0,
        "tree_bytes": 0,
    }
    return Trace(**{**values, **changes})


def row(
    configuration: Configuration,
    prompt: str,
    seconds: float,
    rounds: int,
    *,
    tokens: int = 8,
    dtype: str = "float32",
    temperature: float = 0.0,
    **changes: Any,
) -> Decoded:
    """One decoded prompt; its workload is what stands before the hyphen."""
    told = None
    if configuration.family != "peer":
        told = trace(tokens, rounds, seconds, **changes)
    return Decoded(
        configuration,
        dtype,
        temperature,
        prompt.split("-")[0],
        prompt,
        20,
        tokens,
        seconds,
        rounds,
        0,
        None if temperature else True,
        None,
        told,
    )


def frontier(**changes: Any) -> FrontierFile:
    """Two workloads, two prompts each. Lookup wins on edit, plain decoding on chat;
    heads commit the most tokens a round and take the longest."""
    made = FrontierFile({**SETTINGS, **changes}, dict(MACHINE))
    made.add([Skipped("markov", "nothing is shipped"), Cost("float32", 1, 1, 0.08)])
    made.add(
        [
            Screened(LOOKUP, "float32", 0.0, 4, 2.0, 0.0, 0.1, finalist=True),
            Screened(CHAIN, "float32", 0.0, 4, 1.5, 0.05, 0.2),
        ]
    )
    seconds = {
        PLAIN: (0.8, 0.8, 0.8, 0.8),
        LOOKUP: (0.4, 0.2, 0.9, 1.0),
        CHAIN: (0.9, 0.9, 1.0, 1.2),
        PEER: (0.8, 0.6, 1.0, 1.0),
    }
    rounds = {
        PLAIN: (8, 8, 8, 8),
        LOOKUP: (4, 2, 8, 8),
        CHAIN: (2, 2, 2, 2),
        PEER: (4, 4, 8, 8),
    }
    prompts = ("edit-1", "edit-2", "chat-1", "chat-2")
    weights = {CHAIN: {"weight_bytes": 5_000_000}}
    for one in seconds:
        made.add(
            row(one, name, spent, count, **weights.get(one, {}))
            for name, spent, count in zip(
                prompts, seconds[one], rounds[one], strict=True
            )
        )
    return made
