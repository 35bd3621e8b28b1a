"""The report on draft heads: shares, ratios, aims and files, from numbers by hand."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from specbook.errors import ArtifactError, SpecbookError
from specbook.measure.decode_report import Difference, Sample
from specbook.measure.head_stages import STAGES, Stage, StageCosts
from specbook.measure.heads_report import (
    ALL,
    KINDS,
    OWN,
    PLAIN,
    SHARED,
    Agreement,
    HeadsReport,
    Measured,
    Planned,
    calibration_error,
    system,
)
from specbook.measure.report import save

WORKLOADS = ("continue_code", "edit_code", "chat")
RIGHT = {"medusa": (50, 30, 20, 10), "hydra": (60, 50, 40, 30), "hydra_plus": (70,) * 4}
SECONDS = {"float32": 4.0, "bfloat16": 2.0}


def costs(kind: str) -> StageCosts:
    independent = kind == "medusa"
    stages = [
        Stage(name, depth, rows, (0.001 * rows,) * 3)
        for name in STAGES
        for depth in (range(4) if name in ("step", "features") else (0,))
        for rows in (1, 4)
    ]
    return StageCosts(kind, 4, independent, tuple(stages))


def sample(name: str, prompt: int, dtype: str) -> Sample:
    """Plain decoding: 8 tokens in 8 rounds. Medusa: 4 rounds, and 2 thirds of the time.
    Hydra: 2 rounds and half of it; no kind has an own tree in float32 but Hydra."""
    kind = name.split(",")[0]
    rounds = {"plain": 8, "medusa": 4, "hydra": 2, "hydra_plus": 2}[kind]
    share = {"plain": 1.0, "medusa": 0.75, "hydra": 0.5, "hydra_plus": 0.625}[kind]
    terms = None
    if name != PLAIN:
        terms = {"proposal": 0.5, "target_verify": 1.0}
    return Sample(
        prompt_id=f"p{prompt}",
        workload=WORKLOADS[prompt % 3],
        dtype=dtype,
        system=name,
        seconds=SECONDS[dtype] * share,
        prompt_tokens=3,
        new_tokens=8,
        rounds=rounds,
        loop_tokens=0,
        cost_terms=terms,
    )


def report() -> HeadsReport:
    kinds = tuple(RIGHT)
    names = [PLAIN, *(system(kind, use) for kind in kinds for use in (SHARED, OWN))]
    samples = [
        sample(name, prompt, dtype)
        for dtype in SECONDS
        for prompt in range(6)
        for name in names
        if dtype == "float32" or SHARED not in name
    ]
    agreements = [
        Agreement(
            kind,
            workload,
            depth,
            (right, 100),
            (right // 2, 40),
            ((80.0, 0.25, 0.2), (20.0, 0.75, 0.7)),
        )
        for kind, shares in RIGHT.items()
        for workload in WORKLOADS
        for depth, right in enumerate(shares, start=1)
    ]
    rows = tuple((0.0, 0.5, 0.2) for _ in range(4))
    trees = [
        Planned(dtype, kind, use, (-1, -1, 0), (0, 1, 0), 1.95, 0.02, 0.03, 0.025)
        for dtype in SECONDS
        for kind in kinds
        for use in (SHARED, OWN)
        if dtype == "float32" or use == OWN
    ]
    return HeadsReport(
        samples=tuple(samples),
        differences=(
            Difference("p1", "bfloat16", system("hydra", OWN), 5, 1, 2, 0.01),
        ),
        agreements=tuple(agreements),
        trees=tuple(trees),
        measured=tuple(Measured(d, k, rows, costs(k)) for d in SECONDS for k in kinds),
        verify={d: [[1.0, 0.02], [4.0, 0.03], [16.0, 0.05]] for d in SECONDS},
        settings={
            "half": "evaluation",
            "max_new_tokens": 8,
            "calibration": 4,
            "nodes": 4,
            "tree_of": "hydra",
            "heads": {kind: f"{kind}, 1 parameter" for kind in kinds},
        },
        machine={"line": "a machine"},
    )


def test_the_names_of_kinds_are_those_of_the_package() -> None:
    from specbook.models import heads

    assert heads.KINDS == KINDS


def test_scopes_add_up_the_two_kinds_of_code() -> None:
    made = report()
    assert made.kinds == tuple(RIGHT)
    assert made.scopes == ("code", "chat", ALL)
    assert len(made.select("float32", "code", PLAIN)) == 4
    assert len(made.select("float32", "edit_code", PLAIN)) == 2
    assert len(made.select("float32", ALL, PLAIN)) == 6
    assert made.agreed("hydra", 2) == made.agreed("hydra", 2, "code") == 0.5
    assert made.agreed("hydra", 2, chain=True) == 25 / 40
    assert made.agreed("clover", 1) is None and made.depths("clover") == []
    for wrong in (("float32", "poems", PLAIN), ("float32", ALL, "greedy")):
        with pytest.raises(SpecbookError):
            made.select(*wrong)


def test_bins_of_several_workloads_are_added_up() -> None:
    made = report()
    assert made.bins("hydra", 1) == [
        [240.0, pytest.approx(0.25), pytest.approx(0.2)],
        [60.0, pytest.approx(0.75), pytest.approx(0.7)],
    ]
    assert made.bins("hydra", 1, "chat") == [[80.0, 0.25, 0.2], [20.0, 0.75, 0.7]]
    assert made.calibration_error("hydra", 1) == pytest.approx(0.05)
    assert made.calibration_error("clover", 1) is None


def test_the_calibration_error_weighs_rows() -> None:
    assert calibration_error([[3, 0.5, 0.25], [1, 0.9, 1.0]]) == pytest.approx(0.2125)
    assert calibration_error([]) is None
    for bad in (5, [5], [[1, 0.5]], [[1, "x", 0.5]], [[-1, 0.5, 0.5]]):
        with pytest.raises(SpecbookError, match="bins"):
            calibration_error(bad)  # type: ignore[arg-type]


def test_ratios_are_sums_over_sums() -> None:
    made = report()
    hydra, medusa = system("hydra", SHARED), system("medusa", SHARED)
    rounds = made.tokens_per_round("float32", "code", hydra)
    assert rounds is not None and (rounds.value, rounds.prompts) == (4.0, 4)
    over = made.rounds_ratio("float32", "code", hydra, medusa)
    assert over is not None and over.value == 2.0
    assert made.tokens_per_round("bfloat16", "code", hydra) is None
    own = system("hydra", OWN)
    same = made.speed("float32", ALL, own)
    assert same is not None and same.value == 2.0
    assert made.faster_dtype() == "bfloat16"
    other = made.speed("float32", ALL, own, over="bfloat16")
    assert other is not None and other.value == 1.0
    assert made.speed("float32", ALL, system("clover", OWN)) is None
    lost = dataclasses.replace(
        made, samples=tuple(s for s in made.samples if s.system != medusa or s.seconds)
    )
    assert lost == made
    fewer = [s for s in made.samples if (s.system, s.prompt_id) != (medusa, "p1")]
    with pytest.raises(SpecbookError, match="different prompts"):
        dataclasses.replace(made, samples=tuple(fewer)).rounds_ratio(
            "float32", "code", hydra, medusa
        )


def test_what_was_planned_and_the_tradeoff() -> None:
    made = report()
    tree = made.trees[0]
    assert (tree.nodes, tree.shape().max_depth) == (4, 2)
    assert tree.speedup == pytest.approx(1.95 * 0.025 / 0.05)
    found = made.tradeoff("float32")
    assert found.kinds == made.kinds and found.plain == 0.02
    # All slots alike: heads that do not wait for each other are the quickest.
    assert found.winner(16).kind == "medusa"
    with pytest.raises(SpecbookError, match="nothing was measured in"):
        made.tradeoff("float16")


def test_aims_are_judged_by_the_data() -> None:
    aims = {row["what"]: (row["measured"], row["kept"]) for row in report().aims()}
    assert aims == {
        "code: agreement at depth 3, hydra over medusa": (2.0, True),
        "chat: agreement at depth 3, hydra over medusa": (2.0, True),
        "code: agreement of hydra_plus less that of hydra, least of depths": (
            pytest.approx(0.1),
            True,
        ),
        "chat: agreement of hydra_plus less that of hydra, least of depths": (
            pytest.approx(0.1),
            True,
        ),
        "code: tokens a round with the shared tree, hydra over medusa": (2.0, True),
        "code: tokens a round with the shared tree, best kind": (4.0, True),
        "chat: tokens a round with the shared tree, best kind": (4.0, True),
        "code, float32: speed over plain decoding, best kind": (2.0, True),
        "code, bfloat16: speed over plain decoding, best kind": (2.0, True),
        "code: speed over plain decoding in bfloat16, the faster, best of all": (
            2.0,
            True,
        ),
    }
    made = report()
    equal = [
        dataclasses.replace(item, forced=(60, 100))
        for item in made.agreements
        if item.kind != "medusa"
    ]
    worse = dataclasses.replace(
        made,
        agreements=tuple(equal),
        samples=tuple(s for s in made.samples if "hydra" not in s.system),
    )
    kept = {row["what"]: row["kept"] for row in worse.aims()}
    # Not above is not reached; what was not measured is not judged.
    assert not kept["code: agreement of hydra_plus less that of hydra, least of depths"]
    assert not kept["code, float32: speed over plain decoding, best kind"]
    assert not any("hydra over medusa" in what for what in kept)


def test_equal_tokens_are_said_and_others_flagged() -> None:
    told = report().strengths()
    assert "float32: every answer equals plain greedy decoding." in told
    assert any(
        "bfloat16: answers unlike plain greedy decoding: 1" in line for line in told
    )
    assert not any("promised more" in line for line in told)
    fewer = [t for t in report().trees if (t.dtype, t.kind) != ("bfloat16", "medusa")]
    left = dataclasses.replace(report(), trees=tuple(fewer)).strengths()
    assert any("bfloat16: no tree of medusa promised" in line for line in left)
    alone = tuple(s for s in report().samples if s.system == PLAIN)
    none = dataclasses.replace(
        report(), trees=(), differences=(), samples=alone
    ).strengths()
    assert not any("equals plain" in line for line in none)
    wrong = dataclasses.replace(
        report(),
        differences=(Difference("p1", "float32", system("hydra", OWN), 5, 1, 2, 2.0),),
    )
    assert any("That is a fault" in line for line in wrong.strengths())
    table = dict(
        (row[1], row[3]) for row in wrong.agreement()[2] if row[0] == "float32"
    )
    assert table[system("hydra", OWN)] == "1" and table[system("medusa", OWN)] == "0"
    assert system("clover", OWN) not in table


def test_the_files_are_read_again_and_changed_ones_refused(tmp_path: Path) -> None:
    made = report()
    save(made, tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["heads.json", "heads.md", "heads.png"]
    assert HeadsReport.load(tmp_path / "heads.json") == made
    text = (tmp_path / "heads.md").read_text(encoding="utf-8")
    for told in (
        "| hydra | code | 60% | 50% | 40% | 30% | 75% |",
        "| float32 | hydra | code | 4.00 [4.00, 4.00] | 2.00 [2.00, 2.00] |",
        "| float32 | hydra | shared tree | 4 | 2 | 1.95 |",
        "| bfloat16 | hydra | code | 2.00 [2.00, 2.00] |",
        "milliseconds a token by the size of the tree",
        "| reached |",
        "hydra: hydra, 1 parameter.",
    ):
        assert told in text, told
    values = json.loads((tmp_path / "heads.json").read_text(encoding="utf-8"))
    values["samples"][3]["rounds"] += 1
    with pytest.raises(ArtifactError, match="damaged heads report"):
        HeadsReport.from_dict(values)


def test_time_is_told_by_the_round() -> None:
    rows = {row[1]: row[2:] for row in report().time_table()[2] if row[0] == "float32"}
    # Hydra: 0.5 s of proposals and 1 s of verification in 2 rounds; 2 s for 8 tokens.
    assert rows[system("hydra", OWN)] == [
        "250.00",
        "0.00",
        "0.00",
        "500.00",
        "0.00",
        "0.00",
        "750.00",
        "250.00",
    ]
    assert rows[PLAIN][-1] == "500.00"


def test_the_figure_says_what_it_draws() -> None:
    figure = report().figure()
    assert "float32, code: medusa 1.33, hydra 2.00, hydra_plus 1.60" in figure.alt
    assert "2.00 times" in figure.caption and "a machine" in figure.caption
    nothing = dataclasses.replace(
        report(), samples=tuple(s for s in report().samples if OWN not in s.system)
    )
    assert not nothing.drawable and report().drawable
    with pytest.raises(SpecbookError, match="no kind of heads decoded"):
        nothing.figure()


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (Agreement, {"depth": 0}),
        (Agreement, {"forced": (5, 4)}),
        (Agreement, {"chain": (1,)}),
        (Agreement, {"bins": ((0.0, 0.5, 0.5),)}),
        (Agreement, {"kind": 3}),
        (Agreement, {"workload": None}),
        (Agreement, {"forced": None}),
        (Agreement, {"forced": ("a", "b")}),
        (Agreement, {"forced": (0.5, 1)}),
        (Agreement, {"bins": None}),
        (Agreement, {"bins": ((1.0, 0.5),)}),
        (Agreement, {"bins": ((1.0, 5.0, 0.5),)}),
        (Agreement, {"bins": ((1.0, 0.5, -0.5),)}),
        (Agreement, {"bins": ((float("nan"), 0.5, 0.5),)}),
        (Planned, {"verifying": 0.0}),
        (Planned, {"use": "any"}),
        (Planned, {"tokens": -1.0}),
        (Planned, {"parents": (3,), "ranks": (0,)}),
    ],
)
def test_numbers_that_cannot_be_are_refused(kind: Any, fields: dict[str, Any]) -> None:
    made = report()
    one = made.agreements[0] if kind is Agreement else made.trees[0]
    with pytest.raises(SpecbookError):
        dataclasses.replace(one, **fields)


def test_reading_needs_no_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import specbook.measure.heads_report, specbook.measure.head_tradeoff"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
