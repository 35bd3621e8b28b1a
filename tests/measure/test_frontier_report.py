"""What is said of a frontier follows from its rows: small ones, checked by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from specbook.errors import SpecbookError
from specbook.measure import frontier_report as report
from specbook.measure.frontier_data import PLAIN
from tests.measure.frontiers import CHAIN, LOOKUP, PEER, TYPICAL, frontier, row


def test_speed_is_a_sum_over_a_sum_and_no_mean_of_ratios() -> None:
    one = report.standing(frontier(), LOOKUP, "edit")
    # 16 tokens in 0.6 s against 16 in 1.6 s; the ratios of the prompts are 2 and 4.
    assert one.speedup.value == pytest.approx(1.6 / 0.6)
    assert one.speedup.value != pytest.approx(3.0)
    assert one.per_token.value == pytest.approx(0.6 / 16)
    assert one.tokens_per_round.value == pytest.approx(16 / 6)
    assert one.prompts == 2 and one.speedup.low <= 2 and one.speedup.high == 4


def test_the_winner_differs_by_workload_and_is_not_the_longest() -> None:
    file = frontier()
    assert report.winner(file, "edit").standing.configuration == LOOKUP
    chat = report.winner(file, "chat")
    assert chat.standing.configuration == PLAIN and chat.runner_up is not None
    assert chat.runner_up.configuration == LOOKUP
    assert chat.lead is not None and chat.lead.value == pytest.approx(1.9 / 1.6)
    most = max(
        report.standings(file, "edit"), key=lambda one: one.tokens_per_round.value
    )
    assert most.configuration == CHAIN
    assert report.winner(file, "edit").wins == 1.0


def test_one_lucky_prompt_is_no_sure_win() -> None:
    file = frontier()
    file.add(
        row(LOOKUP, f"answer-{i}", seconds, 8)
        for i, seconds in enumerate((0.01, 0.9, 0.9))
    )
    file.add(row(PLAIN, f"answer-{i}", 0.8, 8) for i in range(3))
    found = report.winner(file, "answer")
    assert found.standing.configuration == LOOKUP and found.wins < 0.9
    assert found.standing.speedup.low < 1


def test_heuristics_and_other_libraries_do_not_win() -> None:
    file = frontier()
    file.add(row(TYPICAL, f"edit-{i}", 0.01, 2) for i in (1, 2))
    assert report.winner(file, "edit").standing.configuration == LOOKUP
    loose = report.winner(file, "edit", exact=False)
    assert loose.standing.configuration == TYPICAL
    names = [s.configuration for s in report.standings(file, "edit", peers=True)]
    assert PEER in names and TYPICAL not in names


def test_nothing_on_the_frontier_is_beaten_in_both() -> None:
    file = frontier()
    for workload, expected in (("edit", [LOOKUP]), ("chat", [PLAIN])):
        kept = [s.configuration for s in report.pareto(file, workload)]
        assert kept == expected
    # Heads that are faster than anything stand beside what needs no memory.
    quick = frontier()
    quick.rows = [r for r in quick.rows if getattr(r, "configuration", None) != CHAIN]
    quick.add(row(CHAIN, f"edit-{i}", 0.1, 2, weight_bytes=9) for i in (1, 2))
    quick.add(row(CHAIN, f"chat-{i}", 0.1, 2, weight_bytes=9) for i in (1, 2))
    kept = report.pareto(quick, "edit")
    assert [s.configuration for s in kept] == [CHAIN, LOOKUP]
    for one in report.standings(quick, "edit"):
        assert any(
            k.per_token.value <= one.per_token.value
            and k.extra_bytes <= one.extra_bytes
            for k in kept
        )


def test_of_two_that_are_as_fast_the_smaller_one_is_on_the_frontier() -> None:
    file = frontier()
    file.rows = [r for r in file.rows if getattr(r, "configuration", None) != CHAIN]
    for number, size in enumerate((9, 5, 7)):
        one = replace(CHAIN, source=f"heads {number}")
        file.add(row(one, f"edit-{i}", 0.1, 2, weight_bytes=size) for i in (1, 2))
    kept = [s.configuration for s in report.pareto(file, "edit")]
    assert [one.source for one in kept] == ["heads 1", "prompt_lookup"]


def test_rows_above_temperature_0_are_those_of_the_format_that_was_faster_there() -> (
    None
):
    """Greedy is faster in bfloat16 here, and sampling was measured in float32 alone."""
    file = frontier()
    for name in ("edit-1", "edit-2"):
        file.add([row(PLAIN, name, 0.1, 8, dtype="bfloat16")])
        file.add([row(PLAIN, name, 0.8, 8, temperature=0.7)])
    assert report.faster_dtype(file) == "bfloat16"
    found = report.decoded(file, PLAIN, "edit", temperature=0.7)
    assert {r.dtype for r in found} == {"float32"} and len(found) == 2


def test_winners_of_a_run_that_was_stopped_are_of_what_it_has() -> None:
    file = frontier()
    file.add([row(PLAIN, "edit-1", 0.4, 8, dtype="bfloat16")])
    file.add([row(LOOKUP, "edit-1", 0.5, 4, dtype="bfloat16")])
    by = {(line[0], line[1]): line[2] for line in report.winners(file).rows}
    assert ("chat", "bfloat16") not in by and ("chat", "float32") in by
    assert by["edit", "bfloat16"] == PLAIN.name


def test_each_side_has_its_faster_number_format() -> None:
    file = frontier()
    for name in ("edit-1", "edit-2"):
        file.add([row(PLAIN, name, 0.4, 8, dtype="bfloat16")])
        file.add([row(LOOKUP, name, 0.5, 4, dtype="bfloat16")])
        file.add([row(PEER, name, 2.0, 4, dtype="bfloat16")])
    ours, plain, ratio = report.against(file, "edit")
    assert (ours.configuration, ours.dtype) == (LOOKUP, "float32")
    assert (plain.configuration, plain.dtype) == (PLAIN, "bfloat16")
    assert ratio.value == pytest.approx(0.8 / 0.6)
    assert report.against(file, "edit", "peer")[1].dtype == "float32"
    with pytest.raises(SpecbookError, match="side"):
        report.against(file, "edit", "other")


def test_what_was_not_measured_on_the_same_prompts_is_not_compared() -> None:
    file = frontier()
    file.add([row(TYPICAL, "edit-1", 0.1, 2)])
    with pytest.raises(SpecbookError, match="different prompts"):
        report.standing(file, TYPICAL, "edit")
    with pytest.raises(SpecbookError, match="nothing and plain"):
        report.standing(frontier(), TYPICAL)
    with pytest.raises(SpecbookError, match="nothing was decoded"):
        report.winner(file, "another workload")
    with pytest.raises(SpecbookError, match="not measured at 1"):
        report.faster_dtype(file, 1.0)


def test_acceptance_by_depth_counts_rounds_that_offered_the_depth() -> None:
    file = frontier()
    shares = report.depths(report.decoded(file, LOOKUP, "edit"))
    # One prompt drafts 4 deep and the other 6; all was published.
    assert shares == [1.0] * 6
    refused = row(
        LOOKUP,
        "edit-3",
        0.4,
        8,
        drafted_by_depth=(1, 1),
        rounds_by_nodes=(7, 0, 1),
        accepted_by_depth=(0, 0),
        draft_seconds_by_depth=((7.0, 0.0), (0.0, 0.0), (1.0, 0.1)),
    )
    both = report.depths([*report.decoded(file, LOOKUP, "edit"), refused])
    assert both[:3] == [2 / 3, 2 / 3, 1.0]
    assert report.depths(report.decoded(file, PLAIN)) == []


def test_a_depth_that_hardly_a_round_offered_is_not_drawn() -> None:
    """Of the three drafting rounds two are deeper than 2 and one is deeper than 4."""
    file = frontier()
    refused = row(
        LOOKUP,
        "edit-3",
        0.4,
        8,
        drafted_by_depth=(1, 1),
        rounds_by_nodes=(7, 0, 1),
        accepted_by_depth=(0, 0),
        draft_seconds_by_depth=((7.0, 0.0), (0.0, 0.0), (1.0, 0.1)),
    )
    rows = [*report.decoded(file, LOOKUP, "edit"), refused]
    every = report.depths(rows)
    assert [len(report.depths(rows, rare)) for rare in (0.3, 0.5, 0.7)] == [6, 4, 2]
    assert report.depths(rows, 0.5) == every[:4]


def test_ledgers_keep_tokens_and_rounds() -> None:
    made = report.ledgers(report.decoded(frontier(), LOOKUP, "edit"))
    assert len(made) == 6 and sum(one.committed_tokens for one in made) == 16


@pytest.mark.parametrize("kind", ["tokens", "ledger", "depth", "frontier"])
def test_every_figure_names_what_it_shows(kind: str) -> None:
    made = report.figure(frontier(), kind, "edit")
    assert LOOKUP.name in made.alt + made.caption and "2 threads" in made.caption


def test_tables_are_for_people_and_name_the_winner() -> None:
    file = frontier()
    rows = report.table(file, "edit").rows
    assert rows[0][0] == LOOKUP.name and PEER.name in [r[0] for r in rows]
    by = {row[0]: row[2] for row in report.winners(file).rows}
    assert by == {
        "edit": LOOKUP.name,
        "chat": PLAIN.name,
        "all": LOOKUP.name,
    }


def test_sides_are_those_that_were_decoded() -> None:
    file = frontier()
    assert report.sides(file) == ["plain", "peer"]
    file.rows = [r for r in file.rows if getattr(r, "configuration", None) != PEER]
    assert report.sides(file) == ["plain"]


def test_what_ships_is_read_whole() -> None:
    for name, file in report.shipped().items():
        assert file.of("decoded") and report.winner(file).standing, name


def test_a_file_of_ones_own_is_loaded(tmp_path: Path) -> None:
    path = frontier().write(tmp_path / "f.jsonl")
    assert report.load(path).rows == frontier().rows
