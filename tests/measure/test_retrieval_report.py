"""The retrieval report: ratios, aims, its table, its figure and its file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specbook.errors import ArtifactError, SpecbookError
from specbook.measure.retrieval_growth import Grown
from specbook.measure.retrieval_report import (
    AIMS,
    OURS,
    PEER,
    Measured,
    RetrievalReport,
)


def report(**changes: object) -> RetrievalReport:
    measured = (
        Measured(
            OURS,
            better="large corpora",
            build=(1.0, 2.0, 4.0),
            held=6_000,
            peak=20_000,
            queries={0: 2e-6, 1: 4e-6, 2: 3e-6},
            checked=3,
        ),
        Measured(
            PEER,
            version="0.3.0",
            better="corpora that change",
            build=(8.0, 10.0, 9.0),
            held=300_000,
            peak=310_000,
            queries={0: 1e-6, 1: 1e-6, 2: 1e-6},
            checked=3,
        ),
        Measured("plain scan", build=(0.1,), held=9_000, peak=9_000, queries={1: 0.5}),
        Measured("gone", absent="it is not here; build it"),
    )
    grown = (
        Grown("suffix automaton", (2e-3, 4e-3), (1_000, 1_000), 700, 5_000),
        Grown(PEER, (4e-3, 8e-3), (1_000, 1_000), 650, 4_000),
        Grown("gone", absent="it is not here; build it"),
    )
    values = {
        "measured": measured,
        "grown": grown,
        "tokens": 1_000,
        "documents": 7,
        "settings": {"clock": "cpu"},
        "machine": {"line": "a machine, 2026-11-30"},
    }
    return RetrievalReport(**(values | changes))


def test_ratios() -> None:
    made = report()
    build = made.ratio("build", OURS, PEER)
    assert (build.value, build.low, build.high, build.prompts) == (2 / 9, 0.1, 0.5, 3)
    assert made.ratio("held", OURS, PEER).value == 0.02
    assert made.ratio("peak", OURS, PEER).value == pytest.approx(20 / 310)
    query = made.ratio("query", OURS, PEER)
    assert query.value == pytest.approx(3) and query.prompts == 3
    assert query.low >= 2 - 1e-9 and query.high <= 4 + 1e-9
    # Only what both were asked: 4 microseconds over half a second.
    both = made.ratio("query", OURS, "plain scan")
    assert both.value == pytest.approx(8e-6) and both.prompts == 1
    assert query == made.ratio("query", OURS, PEER), "the interval repeats"


def test_aims_are_kept_missed_or_not_measured() -> None:
    assert [(a["what"], a["kept"]) for a in report().aims()] == [
        ("build", True),
        ("held", True),
        ("query", False),
    ]
    first, peer, *rest = report().measured
    absent = report(measured=(first, Measured(PEER, absent="gone"), *rest))
    assert [aim["kept"] for aim in absent.aims()] == [None] * len(AIMS)
    assert "not measured" in absent.markdown()
    assert "peer did not run" in absent.figure().caption
    for what in ("build", "held", "query"):
        assert report().ratio(what, OURS, "gone") is None


def test_the_table_tells_everything_and_who_is_absent() -> None:
    text = report().markdown()
    assert "| suffix array | 2.00 | 6.0 | 20.0 | 3.0 | 3.9 | 3 | 0 |" in text
    assert "| gone | absent |" in text
    assert "*gone*: did not run: it is not here; build it." in text
    assert f"*{PEER}*: corpora that change." in text
    assert "| query | 3.00 [" in text and "missed" in text
    assert "| suffix automaton | 3.0 | 0.50 [0.50, 0.50] | 35% | 2.50 |" in text
    assert f"| {PEER} | 6.0 | 1.00 [1.00, 1.00] | 32% | 2.00 |" in text
    assert [len(rows) for _, _, rows in report().tables()] == [4, 3, 3]
    assert len(report(grown=()).tables()) == 2
    assert "1,000 tokens in 7 documents" in text


def test_the_figure_says_what_is_drawn_and_what_follows() -> None:
    figure = report().figure()
    assert "suffix array, build: 2,000,000 nanoseconds a token" in figure.alt
    assert "gone" not in figure.alt
    assert "keeps its aim for build and held, and misses it for query" in figure.caption
    assert "a machine, 2026-11-30, cpu time" in figure.caption


def test_the_file_comes_back(tmp_path: Path) -> None:
    made = report()
    path = made.save(tmp_path / "r.json")
    assert RetrievalReport.load(path) == made
    assert json.loads(path.read_text(encoding="utf-8"))["aims"][2]["kept"] is False
    assert [p.name for p in tmp_path.iterdir()] == ["r.json"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d.pop("format"),
        lambda d: d.update(format=2),
        lambda d: d.pop("tokens"),
        lambda d: d["measured"][0].pop("system"),
        lambda d: d["measured"][0].update(queries=3),
        lambda d: d["measured"][0].update(unknown=3),
        lambda d: d.update(measured=None),
        lambda d: d["grown"][0].update(seconds=4),
    ],
    ids=[
        "format",
        "version",
        "tokens",
        "system",
        "queries",
        "unknown",
        "measured",
        "grown",
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, damage: object) -> None:
    values = report().as_dict()
    damage(values)  # type: ignore[operator]
    path = tmp_path / "r.json"
    path.write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(ArtifactError, match="retrieval report"):
        RetrievalReport.load(path)


def test_what_is_no_file_of_ours_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="is not a retrieval report"):
        RetrievalReport.load(tmp_path / "absent.json")
    (tmp_path / "r.json").write_text("{", encoding="utf-8")
    with pytest.raises(ArtifactError, match="is not a retrieval report"):
        RetrievalReport.load(tmp_path / "r.json")


def test_unknown_names_are_refused() -> None:
    with pytest.raises(SpecbookError, match="no system is called 'trie'"):
        report().of("trie")
    with pytest.raises(SpecbookError, match="what must be build, held"):
        report().ratio("price", OURS, PEER)
