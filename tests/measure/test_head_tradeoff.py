"""Who wins at which size: by hand and exactly, and as the article writes it."""

from __future__ import annotations

from fractions import Fraction as F
from pathlib import Path
from typing import Any

import pytest

from specbook.errors import SpecbookError
from specbook.measure.head_tradeoff import Tradeoff, tradeoff
from specbook.plotting import tradeoff as draw
from specbook.plotting.frame import PlotError
from specbook.topologies.progress import expected_progress

# One that is right more often and drafts longer: four time units a level, against one
# for the whole draft.
ACCEPTANCE = {
    "medusa": [[F(0), F(1, 2), F(1, 4)], [F(0), F(1, 4), F(1, 8)]],
    "hydra": [[F(0), F(3, 4), F(1, 8)], [F(0), F(3, 4), F(1, 8)]],
}
TIMES = {1: F(10), 2: F(11), 3: F(12), 4: F(20)}
DRAFTS: dict[str, Any] = {"medusa": lambda shape: F(1), "hydra": F(4)}


def test_by_hand() -> None:
    found = tradeoff(ACCEPTANCE, TIMES, DRAFTS)
    assert found.kinds == ("medusa", "hydra") and found.sizes == (2, 3, 4)
    assert found.plain == 10
    # Two rows: one candidate. 12 / 1.5 against 15 / 1.75.
    assert found.at("medusa", 2).per_token == F(12) / F(3, 2) == 8
    assert found.at("hydra", 2).per_token == F(15) / F(7, 4)
    assert found.winner(2).kind == "medusa"
    # Three rows: Medusa takes both children of the root; Hydra the deeper chain, which
    # costs a level more: 20 / (1 + 3/4 + 9/16), or else 16 / (1 + 7/8).
    assert found.at("medusa", 3).per_token == F(13) / F(7, 4)
    assert found.at("medusa", 3).depth == 1
    wide, deep = F(16) / F(15, 8), F(20) / F(37, 16)
    assert found.at("hydra", 3).per_token == min(wide, deep)
    assert found.best("hydra").per_token == min(
        found.at("hydra", n).per_token for n in found.sizes
    )
    assert found.best().kind == "medusa"


def test_dependence_wins_where_a_row_is_dear_and_a_draft_cheap() -> None:
    free = tradeoff(ACCEPTANCE, TIMES, {"medusa": F(0), "hydra": F(0)})
    assert {free.winner(n).kind for n in free.sizes} == {"hydra"}
    slow = tradeoff(ACCEPTANCE, TIMES, {"medusa": F(0), "hydra": F(100)})
    assert {slow.winner(n).kind for n in slow.sizes} == {"medusa"}


def test_every_point_is_its_own_quotient() -> None:
    for point in tradeoff(ACCEPTANCE, TIMES, DRAFTS).points:
        progress = expected_progress(point.candidate.tree, ACCEPTANCE[point.kind])
        drafting = DRAFTS[point.kind]
        drafting = drafting(None) if callable(drafting) else drafting * point.depth
        assert point.verifying == TIMES[point.nodes]
        assert (point.tokens, point.drafting) == (progress, drafting)
        assert point.per_token == (drafting + point.verifying) / progress


def test_of_equal_ones_the_first_wins() -> None:
    same = tradeoff(
        {"b": ACCEPTANCE["hydra"], "a": ACCEPTANCE["hydra"]},
        TIMES,
        {"a": F(1), "b": F(1)},
    )
    assert {same.winner(n).kind for n in same.sizes} == {"b"}
    assert same.best().kind == "b"


def test_a_size_that_one_kind_cannot_fill_is_no_common_size() -> None:
    acceptance = {"medusa": ACCEPTANCE["medusa"], "short": [[F(0), F(1, 2)]]}
    found = tradeoff(acceptance, TIMES, {"medusa": F(0), "short": F(0)})
    assert found.sizes == (2,) and found.winner(4).kind == "medusa"
    with pytest.raises(SpecbookError, match="'short' has no tree of 3"):
        found.at("short", 3)
    with pytest.raises(SpecbookError, match="no kind has a tree of 9"):
        found.winner(9)
    with pytest.raises(SpecbookError, match="is none of"):
        found.best("clover")


def test_what_does_not_fit_is_refused() -> None:
    for given, told in (
        (({}, TIMES, {}), "acceptance must map"),
        ((ACCEPTANCE, TIMES, 5), "draft_time must map"),
        ((ACCEPTANCE, TIMES, {"medusa": 1}), "draft_time of"),
        ((ACCEPTANCE, 5, DRAFTS), "verify_time must map"),
        ((ACCEPTANCE, {1: F(1)}, DRAFTS), "verify_time"),
        ((ACCEPTANCE, {**TIMES, 1: "soon"}, DRAFTS), r"t\(1\) must be"),
        ((ACCEPTANCE, {**TIMES, 1: F(-1)}, DRAFTS), r"t\(1\) must be"),
        ((ACCEPTANCE, TIMES, {"medusa": 1, 2: 3}), "draft_time of"),
    ):
        with pytest.raises(SpecbookError, match=told):
            tradeoff(*given)


def test_table_and_figure_say_who_wins(tmp_path: Path) -> None:
    found = tradeoff(ACCEPTANCE, TIMES, DRAFTS)
    table = found.table(100, "ms")
    assert table.header == ["rows N", "medusa, ms", "hydra, ms", "winner"]
    assert table.rows[0] == ["2", "800", "857", "medusa"] and len(table.rows) == 3
    figure = found.figure(100.0, "ms", "a machine, today")
    best = found.best()
    assert f"{best.kind} at {best.nodes} rows" in figure.caption
    assert "a machine, today" in figure.caption and "medusa least at" in figure.alt
    path = figure.save(tmp_path / "tradeoff.png")
    assert path.read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    "lines",
    [
        {},
        {"a": ([2, 4],)},
        {"a": ([4, 2], [1.0, 1.0])},
        {"a": ([2, 4], [1.0])},
        {"a": ([2, 4], [1.0, -1.0])},
        {str(i): ([1, 2], [1.0, 1.0]) for i in range(7)},
    ],
)
def test_lines_that_cannot_be_drawn_are_refused(lines: Any) -> None:
    with pytest.raises((SpecbookError, PlotError)):
        draw(lines, "ms a token")


def test_kinds_without_a_common_size_have_a_table_and_no_figure() -> None:
    whole = tradeoff(ACCEPTANCE, TIMES, DRAFTS)
    one, other = whole.kinds[:2]
    least, most = whole.sizes[0], whole.sizes[-1]
    apart = Tradeoff((whole.at(one, least), whole.at(other, most)))
    for found in (apart, Tradeoff(())):
        assert found.sizes == () and not found.table().rows
        with pytest.raises(SpecbookError, match="no size at which|is none of"):
            found.figure(1.0, "s", "here")
