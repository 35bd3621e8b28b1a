"""From two profiles to a tree artifact: what belongs together, and what is kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specbook.drafts.neural.draft_model import DraftModel
from specbook.engine import generate
from specbook.errors import SpecbookError
from specbook.measure.acceptance import (
    AcceptanceProfile,
    PromptCounts,
    calibration_shape,
    measure_acceptance,
)
from specbook.measure.choose_tree import choose_tree
from specbook.measure.verify_report import Cell, VerifyProfile
from specbook.models import TableTarget
from specbook.topologies.artifact import TreeArtifact
from specbook.topologies.progress import expected_progress
from tests.core.helpers.laws import table_of

ABOUT = {"target": "sha256:1", "dtype": "float32"}
MACHINE = {"line": "m", "processor": "p", "threads": 2, "date": "2026-11-30"}


def times(**changes: Any) -> VerifyProfile:
    cells = tuple(
        Cell("runtime", 1, 64, "sequoia", n, 0, (t, 1.1 * t, 0.9 * t), 0.0, 0.0, 0, 0)
        for n, t in ((1, 0.02), (2, 0.0202), (4, 0.021), (8, 0.024), (16, 0.05))
    )
    settings = {**ABOUT, "runtime": "torch", "prefixes": [64], "shapes": ["sequoia"]}
    return VerifyProfile({**settings, **changes}, MACHINE, cells)


def counts(**changes: Any) -> AcceptanceProfile:
    settings = {
        **ABOUT,
        "tokenizer": "sha256:2",
        "source": "draft_model shape=sha256:4 sha256:3",
        "proposal": "draft_model sha256:3",
        "verifier": "sequoia",
        "temperature": 0.7,
    }
    prompts = tuple(
        PromptCounts(
            workload, f"{workload}-{i}", 60, 30, ((30, 12), (18, 8)), ((18, 4), (9, 2))
        )
        for workload in ("code", "chat")
        for i in range(3)
    )
    return AcceptanceProfile({**settings, **changes}, MACHINE, prompts)


def test_a_tree_with_all_that_it_rests_on(tmp_path: Path) -> None:
    steps = {1: [0.001, 0.001], 4: [0.002]}
    found = choose_tree(times(), counts(), steps, worlds=50)
    best, kept = found.decision.choice.best, found.artifact
    assert kept.tree() == best.tree
    again = expected_progress(best.tree, list(kept.acceptance))
    assert again == pytest.approx(best.progress, rel=1e-12)
    assert kept.target_checkpoint == "sha256:1" and kept.temperatures == (0.7, 0.7)
    assert "code-0" in kept.calibration_data and kept.hardware == "p"
    curve = dict(kept.verify_curve)
    assert curve[8] == pytest.approx(1.2)
    paid = curve[best.nodes] + best.depth * kept.draft_step
    assert paid == pytest.approx(best.steps)
    path = kept.save(tmp_path / "tree.json")
    assert TreeArtifact.load(path) == kept
    told = " ".join(found.lines())
    assert f"{best.nodes} rows" in told and "resampled worlds" in told


@pytest.mark.parametrize("make", [times, counts])
def test_a_flipped_digit_of_a_measurement_is_refused(make: Any, tmp_path: Path) -> None:
    """Any digit that stands in what was measured, one at a time."""
    path = make().save(tmp_path / "profile.json")
    text = path.read_text(encoding="utf-8")
    begin = text.index("cells" if make is times else "prompts")
    digits = [i for i, c in enumerate(text) if c.isdigit() and i > begin]
    for place in digits[:: max(1, len(digits) // 25)]:
        other = "7" if text[place] != "7" else "3"
        changed = text[:place] + other + text[place + 1 :]
        if json.loads(changed) == json.loads(text):
            continue  # a last digit that float64 does not keep
        path.write_text(changed, encoding="utf-8")
        with pytest.raises(SpecbookError):
            type(make()).load(path)


def test_one_workload_and_pooled_depths() -> None:
    one = choose_tree(times(), counts(), {}, workload="chat", worlds=5)
    assert "chat-0" in one.artifact.calibration_data
    assert "code-0" not in one.artifact.calibration_data
    deep = choose_tree(times(), counts(), {}, pooled=True, worlds=5)
    assert len(deep.artifact.acceptance) == 1
    assert one.decision.choice.best.depth <= 2 < deep.decision.choice.best.depth


def test_a_batch_is_priced_by_its_own_curve() -> None:
    """Rows that are free alone and dear in company: the batch's tree is smaller. A
    level of its drafts is one step over the rows of all requests."""
    alone = times()
    curve = ((1, 0.02), (2, 0.0205), (4, 0.03), (8, 0.06), (16, 0.12))
    company = tuple(
        Cell("batch", 4, 64, "sequoia", n, 0, (t, t, t), 0.0, 0.0, 0, 0)
        for n, t in curve
    )
    both = replace(
        alone,
        settings={**alone.settings, "batch": "transformers"},
        cells=alone.cells + company,
    )
    steps = {1: [0.001], 4: [0.002], 16: [0.004]}
    one, four = (
        choose_tree(both, counts(), steps, batch=batch, worlds=5) for batch in (1, 4)
    )
    best = four.decision.choice.best
    assert 1 < best.nodes < one.decision.choice.best.nodes
    assert dict(four.artifact.verify_curve) == {
        n: pytest.approx(t / 0.02) for n, t in curve
    }
    below = {depth: 0 for depth in range(best.depth)}
    for parent in {p for p in best.tree.parents}:
        below[0 if parent < 0 else best.tree.depths[parent]] += 1
    assert below[0] == 1, "of the four requests together, four rows"
    price = dict(curve)[best.nodes] + sum(
        steps[min(n for n in steps if n >= 4 * rows)][0] for rows in below.values()
    )
    assert best.steps == pytest.approx(price / 0.02)
    assert four.artifact.batch_regime == "4 requests in one forward"
    assert four.artifact.kernel.startswith("transformers")
    assert one.artifact.batch_regime == "one request"
    with pytest.raises(SpecbookError, match="batch 2"):
        choose_tree(both, counts(), steps, batch=2)
    for bad in (0, True, 1.5):
        with pytest.raises(SpecbookError, match="batch"):
            choose_tree(both, counts(), steps, batch=bad)  # type: ignore[arg-type]


def test_profiles_that_do_not_belong_together_are_refused() -> None:
    for changes in ({"target": "sha256:9"}, {"dtype": "bfloat16"}):
        with pytest.raises(SpecbookError, match=next(iter(changes))):
            choose_tree(times(**changes), counts(), {})
    for arguments in ((counts(), counts()), (times(), times()), (None, counts())):
        with pytest.raises(SpecbookError, match="profile is needed"):
            choose_tree(*arguments, {})  # type: ignore[arg-type]
    with pytest.raises(SpecbookError, match="poetry"):
        choose_tree(times(), counts(), {}, workload="poetry")
    with pytest.raises(SpecbookError, match="prefix 9"):
        choose_tree(times(), counts(), {}, prefix=9)


def test_the_calibration_shape_shows_every_slot_at_every_depth() -> None:
    shape = calibration_shape(5, 4)
    spine = [0]
    while shape.children(spine[-1]):
        spine.append(shape.children(spine[-1])[0])
    assert len(spine) == 4
    for row in (-1, *spine[:-1]):
        assert [shape.token_ids[c] for c in shape.children(row)] == [0, 1, 2, 3, 4]
    others = set(range(len(shape))) - set(spine)
    deepest = shape.max_depth
    for row in others:
        assert len(shape.children(row)) == (shape.depths[row] < deepest)
    assert len(calibration_shape(1, 3)) == 3
    for bad in ((0, 1), (1, 0), (True, 1)):
        with pytest.raises(SpecbookError):
            calibration_shape(*bad)


def test_predicted_and_measured_progress_agree() -> None:
    """The whole way on a table: calibrate, choose a tree, decode with it. The tables'
    laws hardly depend on the depth, so that the prediction has to be right: within 10 %
    of tokens a round, over 1,200 tokens."""
    target = TableTarget(table_of([[4, 1, 1], [1, 3, 1]], salt=1), vocab_size=3)
    draft = TableTarget(table_of([[3, 2, 1], [2, 3, 1]], salt=1), vocab_size=3)
    source = DraftModel(draft, shape=calibration_shape(3, 3))
    measured = measure_acceptance(
        target,
        source,
        "sequoia",
        {"w": [(str(i), [i % 3]) for i in range(8)]},
        depths=3,
        slots=3,
        max_new_tokens=100,
        temperature=1.0,
        about_machine=MACHINE,
    )
    about = {name: measured.settings[name] for name in ABOUT}
    prices = replace(times(), settings={**times().settings, **about})
    best = choose_tree(prices, measured, {}, worlds=5).decision.choice.best
    kept = choose_tree(prices, measured, {}, worlds=5).artifact
    running = DraftModel(draft, shape=best.tree)
    # Counted with another plan, and not stale: who proposes is the same.
    assert running.identity() != measured.settings["source"]
    assert kept.stale(proposal_artifact=running.artifact_identity()) == {}
    alike = DraftModel(target, shape=best.tree)
    other = DraftModel(draft, shape=best.tree, children="iid")
    for foreign in (
        (other,) if draft.identity() == target.identity() else (other, alike)
    ):
        assert list(kept.stale(proposal_artifact=foreign.artifact_identity())) == [
            "proposal_artifact"
        ]
    decoded = generate(
        target,
        [0],
        DraftModel(draft, shape=best.tree),
        "sequoia",
        max_new_tokens=1200,
        temperature=1.0,
        seed=9,
    )
    assert decoded.tokens_per_round == pytest.approx(best.progress, rel=0.1)
    assert decoded.tokens_per_round != pytest.approx(best.progress - 0.4, rel=0.1)


def test_one_prompt_is_told() -> None:
    """Drawn again it is always the same, and the choice would look surer than it is."""
    many = counts()
    alone = replace(many, prompts=many.prompts[:1])
    for profile, told in ((many, False), (alone, True)):
        lines = choose_tree(times(), profile, {}, worlds=20).lines()
        assert any("one prompt was counted" in line for line in lines) == told
