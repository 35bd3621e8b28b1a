"""The report on self-speculation: shares, what decides, aims and files, by hand."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from specbook.errors import ArtifactError, SpecbookError
from specbook.measure.decode_report import Difference, Sample
from specbook.measure.plain_report import ALL, PLAIN
from specbook.measure.report import save
from specbook.measure.self_report import METHODS, Costs, Objective, SelfReport

WORKLOADS = ("continue_code", "edit_code", "chat")


def sample(name: str, prompt: int, dtype: str = "float32") -> Sample:
    """Plain: 8 tokens in 8 rounds and 4 s. Draft & Verify: 4 rounds, 8 drafted of which
    4 are accepted, 5 s. Kangaroo: 4 rounds, 6 drafted, 4 accepted, 2 s."""
    rounds, drafted, accepted, seconds, proposal = {
        PLAIN: (8, 0, 0, 4.0, 0.0),
        "draft_verify": (4, 8, 4, 5.0, 2.4),
        "kangaroo": (4, 6, 4, 2.0, 0.6),
    }[name]
    return Sample(
        prompt_id=f"p{prompt}",
        workload=WORKLOADS[prompt % 3],
        dtype=dtype,
        system=name,
        seconds=seconds,
        prompt_tokens=3,
        new_tokens=8,
        rounds=rounds,
        loop_tokens=0,
        drafted=drafted,
        accepted=accepted,
        cost_terms={"proposal": proposal, "target_verify": rounds * 0.4},
    )


def report() -> SelfReport:
    return SelfReport(
        samples=tuple(sample(n, p) for p in range(6) for n in (PLAIN, *METHODS)),
        costs=(
            Costs(
                "float32",
                0.040,
                0.010,
                30,
                {"draft_verify": 0.030, "kangaroo": 0.010},
                {"draft_verify": "half", "kangaroo": "3 layers"},
            ),
        ),
        objectives=(Objective("float32", 1.1, "a machine"),),
        settings={"half": "evaluation", "max_new_tokens": 8},
        machine={"line": "a machine"},
    )


def test_shares_are_sums_over_sums() -> None:
    made = report()
    assert made.methods == METHODS
    assert made.accepted("float32", ALL, "draft_verify") == 0.5
    assert made.accepted("float32", ALL, PLAIN) is None
    assert made.drafted_per_round("float32", "chat", "kangaroo") == 1.5
    # 0.3 and 0.1 s a drafted token, against 0.4 s a step.
    assert made.share_of_step("float32", "draft_verify") == pytest.approx(0.75)
    assert made.share_of_step("float32", "kangaroo") == pytest.approx(0.25)
    assert made.measured_objective("float32", "draft_verify") == pytest.approx(1.25)
    found = made.cost("float32")
    assert found is not None and found.layer == pytest.approx(0.001)
    assert made.cost("bfloat16") is None


def test_what_decides_is_told() -> None:
    told = "\n".join(report().strengths())
    assert "every answer equals plain greedy decoding" in told
    assert "draft_verify: 0.80" in told and "no more than it costs" in told
    assert "kangaroo: 2.00" in told and "67% are accepted, more than" in told


def test_the_aims_follow_from_the_data() -> None:
    made = report()
    assert [row["kept"] for row in made.aims()] == [True, True]
    left = Difference("p1", "float32", "kangaroo", 3, 1, 2, 0.5)
    wrong = dataclasses.replace(made, differences=(left,))
    assert [row["kept"] for row in wrong.aims()] == [False, True]
    slow = tuple(s for s in made.samples if s.system != "kangaroo")
    alone = dataclasses.replace(made, samples=slow)
    assert [row["kept"] for row in alone.aims()] == [True, False]
    assert alone.methods == ("draft_verify",)


def test_the_tables_hold_the_numbers(tmp_path: Path) -> None:
    made = report()
    save(made, tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "self.json",
        "self.md",
        "self.png",
    ]
    assert SelfReport.load(tmp_path / "self.json") == made
    text = (tmp_path / "self.md").read_text(encoding="utf-8")
    for told in (
        "| float32 | kangaroo | code | 2.00 [2.00, 2.00] | 2.00 [2.00, 2.00] | 1.50 |",
        "| float32 | draft_verify | half | 40.0 | 1.00 | 10.0 | 30.0 | 0.75 | 0.75 |",
        "| float32 | 1.10 | 1.25 | a machine |",
        "| float32 | kangaroo | 6 | 0 |",
    ):
        assert told in text, told


def test_a_changed_file_is_refused() -> None:
    values = json.loads(json.dumps(report().as_dict()))
    values["costs"][0]["step"] *= 2
    with pytest.raises(ArtifactError, match="damaged self-speculation report"):
        SelfReport.from_dict(values)


@pytest.mark.parametrize(
    "change",
    [
        {"layers": 0},
        {"step": -1.0},
        {"lm_head": float("nan")},
        {"draft": {"medusa": 0.1}},
        {"draft": {"kangaroo": -0.1}},
    ],
)
def test_costs_that_cannot_be_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(SpecbookError):
        dataclasses.replace(report().costs[0], **change)


def test_nothing_to_draw_without_a_method() -> None:
    made = report()
    alone = tuple(s for s in made.samples if s.system == PLAIN)
    none = dataclasses.replace(made, samples=alone)
    assert not none.drawable and not none.methods
    assert none.strengths() == []


def test_reading_needs_no_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None; "
        "import specbook.measure.self_report as r; print(r.METHODS)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
