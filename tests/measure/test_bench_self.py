"""The benchmark of self-speculation: its artifacts, its costs, a run on tiny models."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from specbook.errors import ArtifactError, SpecbookError
from specbook.measure import bench_self
from specbook.measure.plain_report import PLAIN
from specbook.measure.self_report import METHODS, Objective, SelfReport
from specbook.measure.self_vectors import of_history
from specbook.models import kangaroo_storage, load_target, skip_storage
from specbook.models.kangaroo import Adapter
from specbook.models.skip_layers import SkipVector
from specbook.training import artifact
from tests.measure.test_bench_draft import checkpoint


def publish(folder: Path, kind: str, target: Any, write: Any) -> Path:
    """An artifact for `target` whose files `write(folder)` makes."""
    making = folder / f"making-{kind.replace(' ', '-')}"
    making.mkdir(parents=True)
    write(making)
    about = target.identity()
    manifest = {
        "kind": kind,
        "name": "tiny",
        "target": {"checkpoint": about["checkpoint"], "tokenizer": about["tokenizer"]},
        "settings": {"dtype": "float32"},
        "machine": {"line": "a machine"},
    }
    artifact.publish(making, folder / kind.split()[0], manifest)
    return folder / kind.split()[0]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A tiny checkpoint of two layers, a skip vector and an adapter for it."""
    root = tmp_path_factory.mktemp("tiny")
    folder = checkpoint(root / "target", 0, 2)
    target = load_target(folder)
    vector = SkipVector((False, True), (False, False))
    history = [{"vector": str(vector)}]
    skip = publish(
        root,
        skip_storage.KIND,
        target,
        lambda made: skip_storage.write(made, vector, CHOICE, history),
    )
    adapter = Adapter(target.hidden_width, 2)
    with torch.no_grad():
        adapter.output.weight.normal_(generator=torch.Generator().manual_seed(0))
    kangaroo = publish(
        root,
        kangaroo_storage.KIND,
        target,
        lambda made: kangaroo_storage.write(made, adapter, boundary=1, dtype="float32"),
    )
    return folder, skip, kangaroo


CHOICE = {"value": 0.03, "plain": 0.02}


def test_a_run_on_tiny_artifacts(tiny: tuple[Path, Path, Path], tmp_path: Path) -> None:
    told: list[str] = []
    folder, skip, adapter = tiny
    made = bench_self.run(
        folder,
        skip=skip,
        adapter=adapter,
        workloads=("chat", "continue_code"),
        prompts_per_workload=1,
        max_new_tokens=12,
        dtypes=("float32", "bfloat16"),
        out=tmp_path / "out",
        progress=told.append,
    )
    assert made.dtypes == ("float32", "bfloat16") and made.methods == METHODS
    for dtype in made.dtypes:
        for name in (PLAIN, *METHODS):
            found = made.select(dtype, "all", name)
            assert sorted(s.workload for s in found) == ["chat", "continue_code"]
            assert all(s.new_tokens == 12 and s.cost_terms for s in found)
        for name in METHODS:
            assert sum(s.drafted or 0 for s in made.select(dtype, "all", name)) > 0
        cost = made.cost(dtype)
        assert cost is not None and cost.layers == 2
        assert set(cost.draft) == set(METHODS) and cost.step > 0 < cost.lm_head
    # One greedy text, whoever drafts; only a tie to rounding may differ.
    for difference in made.differences:
        assert difference.gap is not None
        assert difference.gap < (1e-3 if difference.dtype == "float32" else 0.1)
    about = made.costs[0].about
    assert about["draft_verify"] == "1 of 2 attentions, 2 of 2 MLPs, the LM head"
    assert about["kangaroo"] == "1 layer, the adapter, the LM head"
    # The search was made in float32, and promises nothing in another dtype.
    assert made.objectives == (Objective("float32", 1.5, "a machine"),)
    assert SelfReport.load(tmp_path / "out" / "self.json") == made


def test_one_method_alone(tiny: tuple[Path, Path, Path]) -> None:
    found = bench_self.artifacts(["kangaroo"], adapter=tiny[2])
    assert list(found) == ["kangaroo"]
    assert bench_self.source_of("kangaroo", found["kangaroo"]).boundary == 1


def test_a_search_that_says_other_things_promises_nothing_or_is_refused(
    tiny: tuple[Path, Path, Path],
) -> None:
    stored = bench_self.artifacts(["draft_verify"], skip=tiny[1])["draft_verify"]
    for fields in ({"settings": []}, {"settings": None}, {"settings": {}}):
        other = replace(stored, manifest={**stored.manifest, **fields})
        assert bench_self.promised(other, "float32") == []
    nowhere = replace(stored, manifest={**stored.manifest, "machine": []})
    assert [one.machine for one in bench_self.promised(nowhere, "float32")] == [""]
    wrong = replace(stored, choice={"value": "1", "plain": 2})
    with pytest.raises(SpecbookError, match="value of the search must be a real"):
        bench_self.promised(wrong, "float32")


def test_a_history_without_costs_or_counts_is_refused(
    tiny: tuple[Path, Path, Path],
) -> None:
    stored = bench_self.artifacts(["draft_verify"], skip=tiny[1])["draft_verify"]
    costs = {"base": 1, "attention": 1, "mlp": 1, "verify": [[1, 4], [3, 5]]}
    bare = [{"vector": str(stored.vector)}]
    for manifest, why in (
        ({}, "SkipCosts has the fields"),
        ({"costs": []}, "SkipCosts has the fields"),
        ({"costs": costs}, "SkipCosts has the fields"),
        ({"costs": {**costs, "state": 1}}, "SkipCounts has the fields"),
    ):
        with pytest.raises(SpecbookError, match=why):
            of_history(replace(stored, manifest=manifest, history=bare))
    with pytest.raises(SpecbookError, match="stored must be a StoredSkip"):
        of_history(None)  # type: ignore[arg-type]


def test_a_timed_draft_never_stops_early(tiny: tuple[Path, Path, Path]) -> None:
    """Otherwise the difference of two lengths would be that of nothing."""
    folder, skip, adapter = tiny
    target = load_target(folder)
    stored = bench_self.artifacts(None, skip=skip, adapter=adapter)
    for name in METHODS:
        source = bench_self.source_of(name, stored[name], most=5)
        drafter = bench_self._joined(target, source, list(range(1, 9)))
        for length in (1, 5, 1, 5):
            proposal = drafter.propose(max_depth=length, max_nodes=length)
            assert len(proposal.nodes) == length, name


def test_what_is_missing_or_wrong_is_named(
    tiny: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    for wrong in ([], ["medusa"], "kangaroo"):
        with pytest.raises(SpecbookError):
            bench_self.artifacts(wrong, skip=tiny[1], adapter=tiny[2])
    with pytest.raises(SpecbookError, match="must be a folder"):
        bench_self.artifacts(None, skip=3, adapter=tiny[2])  # type: ignore[arg-type]
    with pytest.raises(ArtifactError):
        bench_self.artifacts(None, skip=tmp_path, adapter=tiny[2])
    # Each in the other's place.
    with pytest.raises(ArtifactError, match="holds a"):
        bench_self.artifacts(None, skip=tiny[2], adapter=tiny[1])
    copy = tmp_path / "changed"
    shutil.copytree(tiny[1], copy)
    text = (copy / "skip.json").read_text(encoding="utf-8")
    (copy / "skip.json").write_text(text + " ", encoding="utf-8")
    with pytest.raises(ArtifactError, match="changed"):
        bench_self.artifacts(["draft_verify"], skip=copy)
