"""A whole run on tiny checkpoints: it finds, writes, goes on, and refuses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from specbook import prompts, registry
from specbook.drafts.rest.datastore import Datastore
from specbook.errors import ArtifactError, SpecbookError
from specbook.measure import bench_frontier, frontier_report, setup
from specbook.measure.frontier_data import PLAIN, FrontierFile, read
from specbook.models import load_target
from tests.measure.test_bench_draft import checkpoint

OPTIONS: dict[str, Any] = {
    "workloads": ("chat",),
    "prompts_per_workload": 2,
    "max_new_tokens": 10,
    "screen_tokens": 6,
    "turns": 1,
    "batches": (2,),
    "dtypes": ("float32", "bfloat16"),
}


@pytest.fixture(scope="module", autouse=True)
def small_grid() -> Any:
    patch = pytest.MonkeyPatch()
    patch.setattr(bench_frontier, "NODES", (1, 2, 4, 8, 16))
    patch.setattr(bench_frontier, "BATCH_NODES", (1, 2))
    patch.setattr(bench_frontier, "PREFIX", 8)
    # A source and a rule of a reader: each one file and one line.
    patch.setitem(registry.DRAFTS, "echo", "tests.measure.echo:Echo")  # type: ignore[arg-type]
    patch.setitem(  # type: ignore[arg-type]
        registry.VERIFIERS, "membership_too", "tests.measure.echo:RULE"
    )
    yield
    patch.undo()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("tiny")
    return checkpoint(root / "target", 0, 2), checkpoint(root / "draft", 1, 1)


def measure(tiny: tuple[Path, Path], out: Path, **changes: Any) -> FrontierFile:
    target, draft = tiny
    return bench_frontier.run(target, draft=draft, out=out, **{**OPTIONS, **changes})


@pytest.fixture(scope="module")
def whole(tiny: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("out") / "frontier.jsonl"
    told: list[str] = []
    return measure(tiny, path, progress=told.append), path, told


def test_a_run_measures_all_that_may_meet(whole: Any) -> None:
    file, path, told = whole
    assert read(path).rows == file.rows
    names = {row.configuration.source for row in file.of("screened")}
    assert names == {"prompt_lookup", "suffix", "echo", "draft_model", "staged"}
    rules = {row.configuration.verifier for row in file.of("screened")}
    assert {"membership_too", "sequoia", "spechub", "typical", "ensemble"} <= rules
    skipped = {row.source for row in file.of("skipped")}
    assert names | skipped == set(registry.DRAFTS) and not names & skipped
    assert {row.batch for row in file.of("cost")} == {1, 2}
    assert any("minutes" in line for line in told) and "s left" in told[-1]


def test_finalists_plain_the_switch_and_peers_take_turns(whole: Any) -> None:
    file, _, _ = whole
    greedy = frontier_report.configurations(file, "float32")
    assert greedy[0] == PLAIN and sum(one.switched for one in greedy) == 1
    families = {one.family for one in greedy}
    assert families == {"plain", "copying", "model", "peer"}
    assert sum(one.family == "peer" for one in greedy) == 3
    marked = {
        row.configuration
        for row in file.of("screened")
        if row.finalist and (row.dtype, row.temperature) == ("float32", 0.0)
    }
    assert marked <= set(greedy)
    (warm,) = frontier_report.dtypes(file, 0.7)  # the faster one alone
    sampled = frontier_report.configurations(file, warm, 0.7)
    assert {one.verifier for one in sampled if not one.exact} == {"typical", "ensemble"}
    assert not any(one.family == "peer" for one in sampled)
    prompts = {row.prompt for row in file.of("decoded")}
    assert len(prompts) == 2
    assert len(file.of("decoded")) == 2 * (2 * len(greedy) + len(sampled))


def test_greedy_tokens_are_those_of_plain_decoding(whole: Any) -> None:
    file, _, _ = whole
    for row in file.of("decoded"):
        if row.temperature:
            assert row.same is None and row.gap is None
        elif row.dtype == "float32":
            assert row.same is True
        else:
            assert (row.gap is None) == row.same
        assert (row.trace is None) == (row.configuration.family == "peer")
    for one in frontier_report.standings(file, "chat", "float32"):
        assert one.prompts == 2


def test_a_run_that_was_stopped_goes_on(
    tiny: tuple[Path, Path], whole: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    file, _, _ = whole
    path = tmp_path / "frontier.jsonl"
    half = FrontierFile(file.settings, file.machine, path)
    # One prompt at 0.7 is missing, and nothing else may be measured again.
    lost = {row.prompt for row in file.of("decoded") if row.temperature}
    one = sorted(lost)[0]
    kept = [
        row
        for row in file.rows
        if not (getattr(row, "prompt", "") == one and row.temperature)
    ]
    half.add(kept)
    for name in ("measure_verify_time", "counted", "replayed"):
        monkeypatch.setattr(bench_frontier, name, None)
    again = measure(tiny, path)
    assert again.rows[: len(kept)] == kept and len(again.rows) == len(file.rows)
    assert {row.prompt for row in again.rows[len(kept) :]} == {one}


def test_a_run_does_not_go_on_with_other_finalists(
    tiny: tuple[Path, Path], whole: Any, tmp_path: Path
) -> None:
    """A screened line was taken out: every line that is left is as it was written."""
    file, _, _ = whole
    path = tmp_path / "frontier.jsonl"
    last = file.of("decoded")[-1]
    lost = next(row for row in file.of("screened")[::-1] if row.finalist)
    assert (lost.dtype, lost.temperature) == (last.dtype, last.temperature)
    stopped = [
        row
        for row in file.of("decoded")
        if (row.dtype, row.temperature, row.prompt)
        == (last.dtype, last.temperature, last.prompt)
    ]
    FrontierFile(file.settings, file.machine, path).add(
        row for row in file.rows if row is not lost and row not in stopped
    )
    with pytest.raises(
        ArtifactError, match="chosen now.*" + re.escape(lost.configuration.name)
    ):
        measure(tiny, path)


@pytest.mark.parametrize("half", prompts.HALVES)
def test_what_chooses_has_not_seen_what_judges(
    tiny: tuple[Path, Path], tmp_path: Path, monkeypatch: Any, half: str
) -> None:
    seen: list[list[int]] = []
    real = bench_frontier.counted

    def counted(target: Any, drawing: Any, asked: Any, **options: Any) -> Any:
        assert options["clock"] is setup.CLOCKS["cpu"]
        seen.extend(asked)
        return real(target, drawing, asked, **options)

    monkeypatch.setattr(bench_frontier, "counted", counted)
    made = measure(
        tiny,
        tmp_path / "frontier.jsonl",
        half=half,
        clock="cpu",
        sources=("draft_model",),
        temperatures=(0.0,),
        dtypes=("float32",),
        batches=(),
        peers=False,
        prompts_per_workload=1,
    )
    target = load_target(tiny[0])
    judges = {prompt.id: prompt for prompt in prompts.load("chat", half)}
    assert {row.prompt for row in made.of("decoded")} <= set(judges)
    ids = [
        target.encode_chat(p.messages) if p.is_chat else target.encode(p.text)
        for p in judges.values()
    ]
    assert seen and not any(one in ids for one in seen)


def test_other_settings_do_not_go_on(tiny: tuple[Path, Path], whole: Any) -> None:
    _, path, _ = whole
    with pytest.raises(SpecbookError, match="max_new_tokens"):
        measure(tiny, path, max_new_tokens=11)


def test_a_file_tells_what_its_parts_hold_and_not_where_they_lay(
    tiny: tuple[Path, Path], tmp_path: Path
) -> None:
    """So it ships without a path of its maker, and goes on with a moved index."""
    from specbook.models import load_target

    about = load_target(tiny[0]).identity()
    index, moved = tmp_path / "one.rest", tmp_path / "moved.rest"
    Datastore.build_to(
        index,
        [[5, 6, 7, 8, 9] * 4],
        corpus="made here",
        licence="none",
        tokenizer=about["tokenizer"],
    )
    few: Any = {
        "sources": ("rest",),
        "temperatures": (0.0,),
        "dtypes": ("float32",),
        "peers": False,
    }
    out = tmp_path / "frontier.jsonl"
    one = measure(tiny, out, datastore=index, **few)
    assert one.settings["datastore"] == Datastore.load(index).hash
    draft = load_target(tiny[1]).identity()["checkpoint"]
    assert one.settings["draft"] == draft
    assert str(tmp_path) not in out.read_text(encoding="utf-8")
    assert {row.configuration.source for row in one.of("screened")} == {"rest"}

    index.rename(moved)
    kept = out.read_bytes()
    measure(tiny, out, datastore=moved, **few)
    assert out.read_bytes() == kept
    Datastore.build_to(
        index,
        [[5, 6, 7, 8, 10] * 4],
        corpus="made here",
        licence="none",
        tokenizer=about["tokenizer"],
    )
    with pytest.raises(SpecbookError, match="datastore"):
        measure(tiny, out, datastore=index, **few)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"datastore": "no such index"}, "no such index"),
        ({"temperatures": ()}, "temperatures"),
        ({"temperatures": (0.0, 0.0)}, "temperatures"),
        ({"temperatures": (-1.0,)}, "temperature"),
        ({"sources": ("none",)}, "source"),
        ({"sources": "suffix"}, "sources"),
        ({"screen_tokens": 1}, "screen_tokens"),
        ({"screen_prompts": True}, "screen_prompts"),
        ({"replay_prompts": 0}, "replay_prompts"),
        ({"batches": (1,)}, "batches"),
        ({"each": 0}, "each"),
        ({"peers": 1}, "peers"),
        ({"turns": 0}, "turns"),
        ({"seed": -1}, "seed"),
        ({"half": None}, "half"),
        ({"workloads": ()}, "workload"),
    ],
)
def test_bad_options_are_told_before_a_model_is_loaded(
    options: Any, named: str
) -> None:
    with pytest.raises(SpecbookError, match=named):
        bench_frontier.run("no such folder", **options)
