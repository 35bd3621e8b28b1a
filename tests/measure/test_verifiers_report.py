"""The verifiers' report: aims, ratios, the size at which `optimal` is practical."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from specbook.errors import ArtifactError, SpecbookError
from specbook.measure import report as base
from specbook.measure.verifiers_report import (
    FlowTimes,
    ListTimes,
    NodeTimes,
    OptimumTimes,
    VerifiersReport,
)


def report(**changes: Any) -> VerifiersReport:
    values: dict[str, Any] = {
        "vocabulary": 49_152,
        "nodes": (
            NodeTimes("membership", "top_k", 4, False, (0.5e-3, 0.5e-3)),
            NodeTimes("single", "iid", 1, True, (1e-3, 1e-3, 1e-3)),
            NodeTimes("traversal", "iid", 4, True, (1e-3, 1e-3, 1e-3)),
            NodeTimes(
                "traversal", "without_replacement", 4, True, (3e-3, 2.5e-3, 2.5e-3)
            ),
            NodeTimes("kseq", "iid", 4, True, (4e-3, 4e-3, 1e-3)),
            NodeTimes("optimal", "iid", 4, True, refused="too many tokens"),
        ),
        "optima": (
            OptimumTimes("iid", 2, (5e-3, 6e-3)),
            OptimumTimes("without_replacement", 8, (1.5,)),
        ),
        "flows": (
            FlowTimes(
                5,
                4,
                "scipy",
                (2e-3, 2e-3),
                {"default": (30e-3, 30e-3), "fastest": (16e-3, 16e-3)},
                2,
            ),
        ),
        "lists": (
            ListTimes("iid", 2, (0.5e-3,)),
            ListTimes("iid", 3, (1.5e-3,)),
            ListTimes("iid", 4, (3e-3,)),
            ListTimes("iid", 5, (1e-3,)),
            ListTimes("without_replacement", 2, (5e-3,)),
        ),
        "settings": {"rows": "made by hand", "quick": False, "budget": 1.0},
        "machine": {"line": "a machine"},
    }
    return VerifiersReport(**(values | changes))


def test_a_rule_counts_with_the_sampling_that_costs_it_most() -> None:
    aims = {row["what"]: row for row in report().aims()}
    assert aims["traversal, a node"]["measured"] == 2.5e-3
    assert aims["traversal, a node"]["kept"] is False
    assert aims["kseq, a node"] == {
        "what": "kseq, a node",
        "measured": 4e-3,
        "aim": 5e-3,
        "kept": True,
    }
    assert "optimal, a node" not in aims
    assert aims["optimum, without replacement, 8 drafts"]["kept"] is True
    assert aims["optimum, iid, 2 drafts"]["aim"] == 20e-3
    assert aims["transport, 5 tokens, 4 drafts"]["kept"] is True
    assert aims["networkx over transport"]["measured"] == pytest.approx(15)
    assert report().strengths()[-1] == "Aims missed: traversal, a node."


def test_a_ratio_that_is_to_be_large_is_missed_when_it_is_small() -> None:
    slow = dataclasses.replace(report().flows[0], seconds=(4e-3, 4e-3))
    aims = {row["what"]: row for row in report(flows=(slow,)).aims()}
    assert aims["networkx over transport"]["kept"] is False


def test_a_rule_is_compared_with_the_simplest_of_its_kind() -> None:
    made = report()
    for item in made.nodes:
        ratio = made.ratio(item)
        if item.verifier == "optimal":
            assert ratio is None
        else:
            baseline = 3e-3 if item.reads_q else 1e-3
            assert ratio is not None
            assert ratio.value == pytest.approx(sum(item.seconds) / baseline)
    assert report(nodes=made.nodes[2:]).ratio(made.nodes[2]) is None


def test_the_practical_size_ends_where_it_first_is_not() -> None:
    made = report()
    assert made.practical("iid", 2e-3) == 3  # 5 tokens were fast again, by luck
    assert made.practical("iid", 1.0) == 5
    assert made.practical("without_replacement", 2e-3) is None
    told = made.strengths()
    assert (
        told[0] == "optimal, iid: up to 3 tokens in 2 ms; up to 5 tokens in 1,000 ms."
    )
    assert "at no size in 2 ms" in told[1]
    # A run that stopped at 50 ms says nothing about a second.
    quick = report(settings={"budget": 0.05})
    assert quick.strengths()[0] == "optimal, iid: up to 3 tokens in 2 ms."


def test_the_tables_name_everything_and_the_page_shows_them() -> None:
    made = report()
    text = made.markdown()
    for word in (
        "made by hand",
        "49,152 tokens",
        "refused",
        "too many tokens",
        "2,000",
    ):
        assert word in text
    assert "| traversal | without replacement | 4 | 2.5 | 2.5 to 2.95 | 2.67 " in text
    assert [len(rows) for _, _, rows in made.tables()] == [6, 2, 3, 5]
    page = made._repr_html_()
    assert page.count("<table") == page.count("<caption") == 4
    assert page.count("<tr>") == 4 + 6 + 2 + 3 + 5
    assert made.table(1).header[0] == "drafts"
    with pytest.raises(SpecbookError, match="number must be at most 3"):
        made.table(4)


def test_a_cell_cannot_write_into_the_page() -> None:
    odd = NodeTimes("<b>", "iid", 1, True, (1e-3,))
    assert "<b>" not in report(nodes=(odd,))._repr_html_()


def test_the_figure_can_be_read_without_seeing_it() -> None:
    framed = report().figure()
    assert "traversal 2.5 of 2" in framed.alt and "kseq 4 of 5" in framed.alt
    assert "optimal iid at 5 tokens" in framed.alt
    assert framed.caption.startswith("Above their aim: traversal, a node;")
    assert framed.caption.endswith("Measured on: a machine.")
    kept = report(nodes=report().nodes[:2], lists=()).figure()
    assert kept.caption.startswith("Every rule's own choice keeps its aim.")
    with pytest.raises(SpecbookError, match="no rule was timed"):
        report(nodes=()).figure()


def test_the_file_reads_back_and_what_was_changed_is_named(tmp_path: Path) -> None:
    made = report()
    path = made.save(tmp_path / "verifiers.json")
    assert VerifiersReport.load(path) == made
    whole = json.loads(path.read_text(encoding="utf-8"))

    def refused(change: Any) -> str:
        values = json.loads(json.dumps(whole))
        change(values)
        path.write_text(json.dumps(values), encoding="utf-8")
        with pytest.raises(ArtifactError) as caught:
            VerifiersReport.load(path)
        return str(caught.value).removeprefix(f"{path}: ")

    for change, told in (
        (lambda v: v.update(format=2), "format is 2, this version reads 1"),
        (lambda v: v.pop("nodes"), "nodes is missing"),
        (lambda v: v.pop("aims"), "aims is missing"),
        (lambda v: v.update(more=1), "more is no field of this version"),
        (lambda v: v["nodes"][1].pop("sampling"), r"nodes[1].sampling is missing"),
        (lambda v: v["nodes"][0].update(x=1), "nodes[0].x is no field"),
        (
            lambda v: v["nodes"][0].update(children="4"),
            "nodes[0].children must be int, not '4'",
        ),
        (
            lambda v: v["nodes"][0]["seconds"].__setitem__(1, None),
            "nodes[0].seconds[1] must be float, not None",
        ),
        (lambda v: v["nodes"][4]["seconds"].__setitem__(2, 3e-3), "ratios[4].ratio"),
        (lambda v: v["aims"][0].update(kept=False), "aims[0].kept is False"),
        (lambda v: v["flows"][0]["networkx"].pop("default"), "'default'"),
        (
            lambda v: v["optima"][0]["seconds"].__setitem__(0, float("nan")),
            "optima[0].seconds[0] is nan",
        ),
    ):
        assert told in refused(change), told
    for text in ("", "[]", "3", '{"format": true}'):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ArtifactError):
            VerifiersReport.load(path)
    with pytest.raises(ArtifactError, match="nowhere.json"):
        VerifiersReport.load(tmp_path / "nowhere.json")


def test_ratios_of_another_numpy_are_the_same_ratios() -> None:
    values = report().as_dict()
    values["ratios"][0]["ratio"]["low"] *= 1 + 1e-13
    assert VerifiersReport.from_dict(values) == report()
    values["ratios"][0]["ratio"]["low"] *= 1 + 1e-6
    with pytest.raises(ArtifactError, match=r"ratios\[0\].ratio.low"):
        VerifiersReport.from_dict(values)


def test_numbers_stand_on_the_right() -> None:
    rows = [["kseq", "1.5", ""], ["", "2", "4, 3"]]
    assert base.aligned(rows) == ["left", "right", "right"]
    assert base.markdown_table(["a", "b"], []) == "| a | b |\n| --- | --- |"
