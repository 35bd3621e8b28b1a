"""The report: loops, ratios as sums over sums, intervals, and its files."""

from __future__ import annotations

import json
import random

import pytest

from specbook.drafts.prompt_lookup import TUNED
from specbook.errors import ArtifactError, SpecbookError
from specbook.ledger import COST_TERMS
from specbook.measure.decode_report import (
    OURS,
    SYSTEMS,
    DecodeReport,
    Difference,
    Sample,
    loop_tokens,
)

SPEED = dict(zip(SYSTEMS, (10.0, 12.0, 11.0, 22.0), strict=True))
"""Tokens a second that the made-up systems reach on every prompt."""


def sample(system: str, number: int, **changes: object) -> Sample:
    tokens = 20 + 7 * number
    ours = system in OURS
    values = {
        "prompt_id": f"p{number}",
        "workload": "chat" if number % 2 else "edit_code",
        "dtype": "float32",
        "system": system,
        "seconds": tokens / SPEED[system],
        "prompt_tokens": 30,
        "new_tokens": tokens,
        "rounds": tokens // (2 if "lookup" in system else 1),
        "loop_tokens": tokens if number == 3 else 0,
        "drafted": 20 if ours else None,
        "accepted": 5 if ours else None,
        "cost_terms": dict.fromkeys(COST_TERMS, 0.5) if ours else None,
    }
    return Sample(**(values | changes))


def report(**changes: object) -> DecodeReport:
    values = {
        "samples": tuple(sample(name, n) for name in SYSTEMS for n in range(8)),
        "differences": (
            Difference("p1", "float32", "specbook plain", 3, 5, None, 1e-4),
        ),
        "row_cost": {"float32": [[1, 0.05], [16, 0.1]]},
        "settings": {"half": "evaluation"},
        "machine": {"line": "a machine, 2 threads, 2026-11-30"},
    }
    return DecodeReport(**(values | changes))


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([], 0),
        (list(range(100)), 0),
        ([1] * 15, 0),
        ([1] * 16, 16),
        (list(range(50)) + [1] * 20 + list(range(50, 60)), 20),
        # three periods of six; two and a half are not enough
        ([1, 2, 3, 4, 5, 6] * 3, 18),
        ([1, 2, 3, 4, 5, 6, 7] * 2 + [1, 2, 3], 0),
        # two loops, and a loop that starts in the middle of its period
        ([1] * 16 + [8, 9] + [2, 3] * 8, 32),
        ([9, 9, 4] + [1, 2, 3, 4] * 4, 17),
    ],
)
def test_loops(tokens: list[int], expected: int) -> None:
    assert loop_tokens(tokens) == expected


def test_loops_against_brute_force() -> None:
    rng = random.Random(2)
    for _ in range(25):
        tokens = []
        while len(tokens) < 40:
            phrase = [rng.randrange(3) for _ in range(rng.randint(1, 8))]
            tokens += phrase * rng.randint(1, 6)
        inside = set()
        for start in range(len(tokens)):
            for end in range(start + 16, len(tokens) + 1):
                for period in range(1, (end - start) // 3 + 1):
                    part = tokens[start:end]
                    if part[period:] == part[:-period]:
                        inside |= set(range(start, end))
        assert loop_tokens(tokens) == len(inside)


def test_a_ratio_is_a_sum_over_a_sum() -> None:
    slow = sample("specbook plain", 0, seconds=100.0, new_tokens=10)
    fast = sample("specbook plain", 2, seconds=1.0, new_tokens=90)
    base = [
        sample("transformers greedy", n, seconds=10.0, new_tokens=10) for n in (0, 2)
    ]
    made = report(samples=(slow, fast, *base))
    ratio = made.ratio("specbook plain", "transformers greedy", "float32", "edit_code")
    # 100 tokens in 101 s against 20 in 20 s. The mean of the two ratios would be 45.
    assert ratio.value == pytest.approx(100 / 101)
    assert ratio.low == pytest.approx(0.1) and ratio.high == pytest.approx(90)


def test_intervals_hold_the_value_and_repeat() -> None:
    rng = random.Random(4)
    noisy = tuple(
        sample(name, n, seconds=rng.uniform(1, 3)) for name in SYSTEMS for n in range(8)
    )
    made = report(samples=noisy)
    for system in OURS:
        first = made.ratio(system, SYSTEMS[0], "float32", "chat")
        assert first.low < first.value < first.high
        assert first == made.ratio(system, SYSTEMS[0], "float32", "chat")
        other = made.ratio(system, SYSTEMS[0], "float32", "chat", seed=1)
        assert other.value == first.value


def test_constant_speeds_give_constant_ratios() -> None:
    for row in report().ratio_rows():
        expected = SPEED[row["system"]] / SPEED[row["baseline"]]
        for kind in ("all", "without_loops"):
            ratio = row[kind]
            assert ratio.value == pytest.approx(expected)
            assert ratio.low == pytest.approx(ratio.high)
        looping = row["workload"] == "chat"
        assert row["all"].prompts == 4
        assert row["without_loops"].prompts == (3 if looping else 4)


def test_a_workload_that_only_loops_leaves_no_ratio() -> None:
    made = report(samples=tuple(sample(name, 3) for name in SYSTEMS))
    row = made.ratio_rows()[0]
    assert row["all"] is not None and row["without_loops"] is None
    assert "none left" in made.markdown()


def test_different_prompts_are_not_compared() -> None:
    made = report(samples=report().samples[:-1])
    with pytest.raises(SpecbookError, match="different prompts"):
        made.ratio("specbook lookup", "specbook plain", "float32", "chat")
    with pytest.raises(SpecbookError, match="nothing was measured for 'poems'"):
        made.select("float32", "poems", SYSTEMS[0])
    with pytest.raises(SpecbookError, match="system must be one of"):
        made.select("float32", "chat", "vllm")


def test_the_cells_add_up() -> None:
    cell = next(
        c
        for c in report().cells()
        if (c["workload"], c["system"]) == ("chat", "specbook lookup")
    )
    tokens = 27 + 41 + 55 + 69
    assert cell["tokens_per_second"] == pytest.approx(22)
    assert cell["ms_per_token"] == pytest.approx(1000 / 22)
    assert cell["tokens_per_round"] == pytest.approx(tokens / (13 + 20 + 27 + 34))
    assert cell["accepted"] == pytest.approx(5 / 20)
    assert cell["loop_share"] == pytest.approx(41 / tokens)
    assert cell["cost_terms"]["packing"] == pytest.approx(4 * 500 / tokens)


def test_the_tables_name_everything() -> None:
    made = report()
    text = made.markdown()
    for word in (*SYSTEMS, "chat", "edit_code", "2.00 [2.00, 2.00]", "target verify"):
        assert word in text
    assert "| float32 | specbook plain | 8 | 1 | 0.0001 |" in text
    assert [len(rows) for _, _, rows in made.tables()] == [8, 8, 4, 3]


def test_the_figure_can_be_read_without_seeing_it() -> None:
    pytest.importorskip("matplotlib")
    framed = report().figure()
    assert "specbook lookup: edit_code 2.20, chat 2.20" in framed.alt
    assert "a machine, 2 threads" in framed.caption


def test_the_file_is_whole_and_read_back(tmp_path) -> None:  # noqa: ANN001
    made = report()
    path = made.save(tmp_path / "new" / "decode.json")
    assert DecodeReport.load(path) == made
    assert [p.name for p in path.parent.iterdir()] == ["decode.json"]
    assert len(json.loads(path.read_text(encoding="utf-8"))["ratios"]) == 8


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace('"format": 1', '"format": 2'),
        lambda text: text.replace('"seconds"', '"minutes"'),
        lambda text: text.replace('"samples"', '"others"'),
        lambda text: "[]",
    ],
)
def test_a_damaged_file_is_refused(tmp_path, spoil) -> None:  # noqa: ANN001
    path = report().save(tmp_path / "decode.json")
    path.write_text(spoil(path.read_text(encoding="utf-8")), encoding="utf-8")
    with pytest.raises(ArtifactError):
        DecodeReport.load(path)
    with pytest.raises(ArtifactError):
        DecodeReport.load(tmp_path / "missing.json")


@pytest.mark.parametrize("tokens", [5, "abc", None, [1.5], [-1], {1: 2}])
def test_what_is_no_token_sequence_has_no_loops(tokens: object) -> None:
    with pytest.raises(SpecbookError, match="tokens"):
        loop_tokens(tokens)


def test_both_lookups_settings_stand_beside_the_table() -> None:
    settings = {
        "half": "evaluation",
        "lookup": dict(TUNED),
        "transformers_lookup": {"prompt_lookup_num_tokens": 10},
    }
    told = report(settings=settings).markdown()
    assert "max_ngram 4, max_candidates 16, length adaptive; tuned on the" in told
    assert "cost table measured before the run" in told
    assert "prompt_lookup_num_tokens 10; not tuned" in told
    assert told.index("not tuned") < told.index("| dtype")
    assert "measured here" not in told
    settings["half"] = "development"
    assert "the half that was measured here" in report(settings=settings).markdown()
    settings["lookup"] = {**TUNED, "max_ngram": 2, "cost": [[1, 1.0], [2, 2.0]]}
    told = report(settings=settings).markdown()
    assert "the caller's choice, its cost table given" in told
    assert "tuned on" not in told
