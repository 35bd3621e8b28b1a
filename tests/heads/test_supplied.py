"""Every architecture and every session supplies what its base leaves to it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import pytest

from specbook.drafts.neural import draft_model, heads
from specbook.drafts.neural.planned import PlannedSession
from specbook.models.heads.base import Heads
from specbook.models.heads.config import KINDS

SESSIONS = (draft_model.DraftModelSession, heads.HeadsSession)
LEFT = {
    Heads: ("start", "step", "features"),
    PlannedSession: ("_room", "_begin", "_rows", "_law"),
}


def below(kind: type) -> Iterator[type]:
    for child in kind.__subclasses__():
        yield child
        yield from below(child)


def gaps(base: type, child: type) -> list[str]:
    return [name for name in LEFT[base] if getattr(child, name) is getattr(base, name)]


@pytest.mark.parametrize("base", LEFT)
def test_nothing_is_left_open(base: type) -> None:
    for kind in KINDS:
        importlib.import_module(f"specbook.models.heads.{kind}")
    found = [child for child in below(base) if child.__module__.startswith("specbook")]
    assert len(found) >= (len(KINDS) if base is Heads else len(SESSIONS))
    assert {child: gaps(base, child) for child in found} == {c: [] for c in found}


def test_a_gap_would_be_seen() -> None:
    class Half(PlannedSession):
        def _room(self) -> int:
            return 0

    assert gaps(PlannedSession, Half) == ["_begin", "_rows", "_law"]
