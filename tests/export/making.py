"""Measurements that are written down, for the tests of exports."""

from __future__ import annotations

from collections.abc import Mapping

from specbook.measure.acceptance import AcceptanceProfile, PromptCounts
from specbook.measure.verify_report import Cell, VerifyProfile

TARGET = "some-target sha256:00"


def times(seconds: Mapping[int, Mapping[int, float]], *, prefix: int = 64):
    """A profile of {batch: {rows: seconds}}, one turn."""
    cells = [
        Cell(
            "runtime" if batch == 1 else "batch",
            batch,
            prefix,
            "chain",
            nodes,
            nodes - 1,
            (spent,),
            0.0,
            0.0,
            0,
            0,
        )
        for batch, sizes in seconds.items()
        for nodes, spent in sizes.items()
    ]
    return VerifyProfile({"target": TARGET, "dtype": "float32"}, {}, tuple(cells))


def counts(*chain: tuple[int, int], source: str = "prompt_lookup policy=latest"):
    """A profile of one prompt: (tried, selected) of the first slot, depth by depth."""
    tried = tuple((n,) for n, _ in chain)
    selected = tuple((s,) for _, s in chain)
    settings = {
        "target": TARGET,
        "tokenizer": "t",
        "dtype": "float32",
        "source": source,
        "proposal": source,
        "verifier": "membership",
        "temperature": 0.0,
    }
    prompt = PromptCounts("chat", "chat-01", 100, chain[0][0], tried, selected)
    return AcceptanceProfile(settings, {}, (prompt,))
