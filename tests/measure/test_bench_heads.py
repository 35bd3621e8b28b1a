"""The heads benchmark: its parts on made-up numbers, and a run on tiny artifacts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from specbook import drafts, prompts
from specbook.errors import ArtifactError, SpecbookError
from specbook.measure import bench_heads
from specbook.measure.head_ranks import plain_answers, play, rank_answers
from specbook.measure.head_stages import STAGES, Stage, StageCosts
from specbook.measure.heads_report import (
    OWN,
    PLAIN,
    SHARED,
    HeadsReport,
    Measured,
    system,
)
from specbook.measure.verify_report import Cell, VerifyProfile
from specbook.measure.verify_time import Grid
from specbook.models import load_target
from specbook.models.heads import build, config_of, storage
from specbook.models.lean import LeanTarget
from specbook.models.tiny import tiny_llama
from specbook.topologies import chain
from specbook.topologies.hardware import Times
from specbook.topologies.progress import expected_progress
from specbook.training import artifact
from tests.measure.test_bench_draft import checkpoint

KINDS = ("medusa", "hydra")
GRID = Grid(
    nodes=(1, 2, 8, 16), prefixes=(8,), shapes=("sequoia",), batches=(), turns=1
)


def publish(folder: Path, kind: str, target: Any, seed: int = 0) -> Path:
    """An artifact of untrained heads, shaken a little, for `target`."""
    heads = build(config_of(kind, target.hidden_width), seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in heads.parameters():
            parameter += 0.02 * torch.randn(parameter.shape, generator=generator)
    made = folder / f"making-{kind}"
    made.mkdir(parents=True)
    storage.write(made, heads, dtype="float32")
    about = target.identity()
    manifest = {
        "kind": storage.KIND,
        "name": kind,
        "parameters": sum(p.numel() for p in heads.parameters()),
        "target": {"checkpoint": about["checkpoint"], "tokenizer": about["tokenizer"]},
    }
    artifact.publish(made, folder / kind, manifest)
    return folder / kind


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A tiny checkpoint, and a folder of heads for it."""
    root = tmp_path_factory.mktemp("tiny")
    folder = checkpoint(root / "target", 0, 2)
    target = load_target(folder)
    for kind in KINDS:
        publish(root / "heads", kind, target)
    return folder, root / "heads"


def test_a_run_on_tiny_heads(tiny: tuple[Path, Path], tmp_path: Path) -> None:
    told: list[str] = []
    made = bench_heads.run(
        tiny[0],
        folder=tiny[1],
        workloads=("chat", "continue_code"),
        prompts_per_workload=1,
        max_new_tokens=14,
        dtypes=("float32", "bfloat16"),
        calibration=1,
        nodes=8,
        grid=GRID,
        out=tmp_path / "out",
        progress=told.append,
    )
    assert made.kinds == KINDS and made.dtypes == ("float32", "bfloat16")
    # Every tree that was planned has decoded every prompt.
    for dtype in made.dtypes:
        planned = [t for t in made.trees if t.dtype == dtype]
        names = {system(t.kind, t.use) for t in planned}
        ran = {s.system for s in made.samples if s.dtype == dtype}
        assert ran == {PLAIN, *names}
        shared = [t for t in planned if t.use == SHARED]
        assert [t.kind for t in shared] == (list(KINDS) if dtype == "float32" else [])
        assert {t.nodes for t in shared} <= {8}
        assert len({(t.parents, t.ranks) for t in shared}) <= 1
        for name in ran:
            found = made.select(dtype, "all", name)
            assert sorted(s.workload for s in found) == ["chat", "continue_code"]
            assert all(s.cost_terms and s.new_tokens == 14 for s in found)
    # One greedy text, whoever drafts; only a tie to rounding may differ.
    for found in made.differences:
        assert found.gap is not None
        assert found.gap < (1e-3 if found.dtype == "float32" else 0.1)
    # Rounds that were decoded are those that the ranks tell.
    target = load_target(tiny[0])
    asked = [
        (
            p.workload,
            p.id,
            target.encode_chat(p.messages) if p.is_chat else target.encode(p.text),
        )
        for w in ("chat", "continue_code")
        for p in prompts.load(w, "evaluation")[:1]
    ]
    answers = plain_answers(target, asked, 14)
    shape = next(t for t in made.trees if t.use == SHARED).shape()
    for kind in KINDS:
        source = drafts.get(kind)(tiny[1] / kind)
        ranked = rank_answers(target, source, answers)
        decoded = made.select("float32", "all", system(kind, SHARED))
        assert [s.rounds for s in decoded] == [
            play(one, shape).rounds for one in ranked
        ]
        tried = [
            (item.depth, item.forced[1])
            for item in made.agreements
            if (item.kind, item.workload) == (kind, "chat")
        ]
        assert tried == [(1, 13), (2, 12), (3, 11), (4, 10)]
    assert [(m.dtype, m.kind) for m in made.measured] == [
        (d, k) for d in made.dtypes for k in KINDS
    ]
    assert [n for n, _ in made.verify["bfloat16"]] == [1, 2, 8, 16]
    assert made.settings["tree_of"] in KINDS and made.settings["half"] == "evaluation"
    assert set(made.settings["heads"]) == set(KINDS)
    assert HeadsReport.load(tmp_path / "out" / "heads.json") == made
    written = json.loads((tmp_path / "out" / "heads.json").read_text(encoding="utf-8"))
    assert written == json.loads(json.dumps(made.as_dict()))
    assert any("agreement along the answers" in line for line in told)


def test_heads_of_another_target_are_refused(
    tiny: tuple[Path, Path], tmp_path: Path
) -> None:
    other = checkpoint(tmp_path / "other", 5, 1)
    with pytest.raises(ArtifactError, match="was trained for the checkpoint"):
        bench_heads.run(
            other, folder=tiny[1], workloads=("chat",), prompts_per_workload=1
        )


# -------------------------------------------------------------------- parts, by hand


def measured(kind: str, slots: list[float], level: float) -> Measured:
    """Every stage but the reading takes no time; that takes `level` once a round."""
    stages = [
        Stage(name, depth, 1, (level if name == "read" else 0.0,))
        for name in STAGES
        for depth in (range(2) if name in ("step", "features") else (0,))
    ]
    costs = StageCosts(kind, 2, kind == "medusa", tuple(stages))
    rows = ((0.0, *slots), (0.0, *slots))
    return Measured("float32", kind, rows, costs)


def times(*seconds: float) -> Times:
    return Times((1, 2, 3, 8)[: len(seconds)], np.array([seconds] * 3), {})


def test_the_shared_tree_is_that_of_the_best_kind_and_exactly_as_large() -> None:
    rows = {
        "medusa": [[0.0, 0.5, 0.1], [0.0, 0.3, 0.0]],
        "hydra": [[0.0, 0.6, 0.1], [0.0, 0.6, 0.2]],
        "same": [[0.0, 0.6, 0.1], [0.0, 0.6, 0.2]],
    }
    best, shape = bench_heads.shared_tree(rows, 5)
    assert best == "hydra" and len(shape) == 4
    scores = {k: expected_progress(shape, r) for k, r in rows.items()}
    assert scores["hydra"] > scores["medusa"]
    named, other = bench_heads.shared_tree(rows, 5, "medusa")
    assert named == "medusa" and len(other) == 4
    # Slots that bring nothing fill the tree all the same: the size is what is asked.
    nothing = {"medusa": [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]}
    assert len(bench_heads.shared_tree(nothing, 5)[1]) == 4
    # Two slots and two depths make seven nodes with the root.
    assert len(bench_heads.shared_tree(nothing, 16)[1]) == 6


def test_a_shared_tree_is_of_a_kind_that_was_measured() -> None:
    slots = {"hydra": [[0.0, 0.5]]}
    for given, told in (
        (({}, 4), "acceptance must map"),
        ((None, 4), "acceptance must map"),
        ((slots, 1), "nodes"),
        ((slots, 4, "medusa"), "tree_of"),
    ):
        with pytest.raises(SpecbookError, match=told):
            bench_heads.shared_tree(*given)


def test_the_own_tree_weighs_rows_and_drafts() -> None:
    cheap = bench_heads.own_tree(measured("hydra", [0.5, 0.2], 0.0), times(1, 1, 1))
    assert cheap is not None and cheap.nodes == 3 and cheap.use == OWN
    assert cheap.shape().max_depth == 2 and cheap.tokens == 1.75
    assert cheap.speedup == pytest.approx(1.75)
    # A draft of half a step: 1.75 tokens in 1.5 steps.
    dear = bench_heads.own_tree(measured("hydra", [0.5, 0.2], 0.5), times(1, 1, 1))
    assert dear is not None and dear.drafting == 0.5
    assert dear.speedup == pytest.approx(1.75 / 1.5)
    rows = bench_heads.own_tree(measured("hydra", [0.5, 0.2], 0.0), times(1, 1, 9))
    assert rows is not None and rows.nodes == 2
    never = bench_heads.own_tree(measured("hydra", [0.1, 0.0], 2.0), times(1, 1, 1))
    assert never is None


def test_what_the_shared_tree_promises_each_kind() -> None:
    _, shape = bench_heads.shared_tree({"hydra": [[0.0, 0.5], [0.0, 0.5]]}, 3)
    found = bench_heads._shared(measured("medusa", [0.4], 0.25), shape, times(2, 3, 4))
    assert found.tokens == pytest.approx(1 + 0.4 + 0.16)
    assert (found.drafting, found.verifying, found.plain) == (0.25, 4.0, 2.0)
    # Four nodes were not timed: a fifth of the way from three to eight.
    wide = bench_heads.shared_tree({"a": [[0.0, 0.5, 0.3], [0.0, 0.1, 0.0]]}, 4)[1]
    one = measured("medusa", [0.4, 0.1], 0.0)
    found = bench_heads._shared(one, wide, times(2, 3, 4, 9))
    assert found.verifying == pytest.approx(5.0)


def test_plans_of_one_artifact_share_its_heads_and_its_hash(
    tiny: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = storage.read(tiny[1] / "hydra")
    monkeypatch.setattr(storage, "digest", lambda heads: pytest.fail("hashed anew"))
    one = bench_heads.source_of("hydra", stored)
    other = bench_heads.source_of("hydra", stored, chain(2))
    assert one.heads is other.heads is stored.heads
    assert stored.sha256 in one.identity() and one.identity() != other.identity()
    assert one.artifact_identity() == other.artifact_identity()
    with pytest.raises(ArtifactError, match="these are hydra heads, not medusa"):
        bench_heads.source_of("medusa", stored)


def test_the_gap_is_that_of_the_two_best_logits() -> None:
    model = tiny_llama(3)
    ids = [4, 9, 2]
    logits = model(torch.tensor([ids])).logits[0, -1].detach()
    best = torch.topk(logits, 2).values
    found = bench_heads.top_two_gap(LeanTarget(model), ids)
    assert found == pytest.approx(float(best[0] - best[1]), abs=1e-4)


def test_artifacts_are_found_and_looked_at(
    tiny: tuple[Path, Path], tmp_path: Path
) -> None:
    assert list(bench_heads.artifacts(None, tiny[1])) == ["medusa", "hydra"]
    assert list(bench_heads.artifacts(["hydra"], tiny[1])) == ["hydra"]
    with pytest.raises(ArtifactError, match="no manifest.json"):
        bench_heads.artifacts(["clover"], tiny[1])
    with pytest.raises(ArtifactError, match="has no folder of medusa"):
        bench_heads.artifacts(None, tmp_path)
    copy = tmp_path / "heads"
    shutil.copytree(tiny[1], copy)
    path = copy / "hydra" / storage.WEIGHTS
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    with pytest.raises(ArtifactError, match="was changed"):
        bench_heads.artifacts(None, copy)


def profile(tmp_path: Path, **changes: Any) -> Path:
    where = bench_heads.machine()
    settings = {"dtype": "float32", "target": "a target", **changes}
    for name in ("processor", "instructions", "threads"):
        where[name] = settings.pop(name, where[name])
    cells = tuple(
        Cell("runtime", 1, 8, "sequoia", n, int(n > 1), (0.1 * n,), 0.0, 0.0, 0, 0)
        for n in (1, 4)
    )
    path = tmp_path / "times.json"
    VerifyProfile(settings, where, cells).save(path)
    return path


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"dtype": "bfloat16"}, "which is not asked for"),
        ({"processor": "another"}, "was measured with processor 'another'"),
        ({"instructions": "AVX1024"}, "was measured with instructions 'AVX1024'"),
        ({"instructions": None}, "was measured with instructions None"),
        ({"threads": 99}, "was measured with threads 99"),
        ({}, "is of a target, the target is"),
    ],
)
def test_a_profile_must_be_of_this_machine_and_target(
    tiny: tuple[Path, Path], tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(SpecbookError, match=told):
        bench_heads.run(
            tiny[0],
            folder=tiny[1],
            workloads=("chat",),
            dtypes=("float32",),
            times=[profile(tmp_path, **changes)],
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workloads": ["poems"]}, "workload must be one of"),
        ({"dtypes": ["int8"]}, "dtype must be one of"),
        ({"half": "both"}, "half must be one of"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"repeats": 0}, "repeats"),
        ({"clock": "sun"}, "clock must be one of"),
        ({"prompts_per_workload": 0}, "prompts_per_workload"),
        ({"target": 5}, "target must be a folder"),
        ({"heads": ["eagle"]}, "kind of heads must be one of"),
        ({"heads": []}, "heads is empty"),
        ({"heads": "hydra"}, "heads must be a sequence"),
        ({"heads": ["clover"]}, "no manifest.json"),
        ({"folder": 5}, "folder must be a folder"),
        ({"nodes": 1}, "nodes"),
        ({"nodes": 65}, "nodes"),
        ({"tree_of": "clover"}, "tree_of must be one of"),
        ({"calibration": 0}, "calibration"),
        ({"times": 5}, "times must be a sequence"),
        ({"times": [5]}, "times must be files"),
        ({"times": ["nowhere.json"]}, "nowhere.json is not a verification profile"),
        ({"grid": 5}, "grid must be a Grid"),
        ({"out": __file__}, "out: .* takes no files"),
    ],
    ids=str,
)
def test_bad_options_are_refused_before_a_model_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
    tiny: tuple[Path, Path],
    options: dict[str, Any],
    message: str,
) -> None:
    loaded: list[object] = []
    monkeypatch.setattr(bench_heads, "load", lambda *given: loaded.append(given))
    with pytest.raises(SpecbookError, match=message):
        bench_heads.run(**{"folder": tiny[1], **options})
    assert loaded == []
