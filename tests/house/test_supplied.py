"""Every class supplies what its base leaves to it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import pytest

from specbook.drafts.neural import draft_model, heads
from specbook.drafts.neural.planned import PlannedSession
from specbook.measure.decode_report import PromptReport
from specbook.measure.plain_report import PlainReport
from specbook.measure.report import Report
from specbook.models.heads.base import Heads
from specbook.models.heads.config import KINDS
from specbook.models.target import ModelTarget
from specbook.models.trunk import TrunkTarget

MODULES = [
    *(f"models.heads.{kind}" for kind in KINDS),
    *("models.lean", "models.lean_trunk", "models.shared_trunk", "models.target"),
    *("measure.acceptance", "measure.bench_trees", "measure.decode_report"),
    *("measure.draft_report", "measure.heads_report", "measure.retrieval_report"),
    *("measure.self_report", "measure.verifiers_report", "measure.verify_report"),
]
SESSIONS = (draft_model.DraftModelSession, heads.HeadsSession)
LEFT = {
    Heads: ("start", "step", "features"),
    PlannedSession: ("_room", "_begin", "_rows", "_law"),
    ModelTarget: (
        "_new_state", "_forward", "_grow", "embed_tokens", "read_out", "cut_head"
    ),
    Report: ("tables", "figure"),
    TrunkTarget: ("_embed",),
}  # fmt: skip
LEAST = {
    Heads: len(KINDS),
    PlannedSession: len(SESSIONS),
    ModelTarget: 4,
    Report: 7,
    TrunkTarget: 2,
}
BASES = (PromptReport, PlainReport, TrunkTarget)
"""Bases themselves, which leave open what theirs do."""


def below(kind: type) -> Iterator[type]:
    for child in kind.__subclasses__():
        yield child
        yield from below(child)


def gaps(base: type, child: type) -> list[str]:
    return [name for name in LEFT[base] if getattr(child, name) is getattr(base, name)]


@pytest.mark.parametrize("base", LEFT)
def test_nothing_is_left_open(base: type) -> None:
    for module in MODULES:
        importlib.import_module(f"specbook.{module}")
    found = [
        child
        for child in below(base)
        if child.__module__.startswith("specbook") and child not in BASES
    ]
    assert len(found) >= LEAST[base]
    assert {child: gaps(base, child) for child in found} == {c: [] for c in found}


def test_a_gap_would_be_seen() -> None:
    class Half(PlannedSession):
        def _room(self) -> int:
            return 0

    assert gaps(PlannedSession, Half) == ["_begin", "_rows", "_law"]
