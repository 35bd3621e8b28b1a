"""`specbook measure verify-time | acceptance | tree` and `specbook bench trees`."""

import json
from dataclasses import replace

import pytest

from specbook.cli import app
from specbook.drafts.rest import Datastore
from specbook.measure import bench_trees, setup, verify_time
from specbook.measure.acceptance import AcceptanceProfile, PromptCounts
from specbook.measure.verify_report import Cell, VerifyProfile
from specbook.topologies.artifact import TreeArtifact
from tests.cli.helpers import refused

SMALL = verify_time.Grid(
    nodes=(1, 2, 6), prefixes=(8,), shapes=("sequoia",), batches=(), turns=2
)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(verify_time, "QUICK", SMALL)
    monkeypatch.setattr(verify_time, "FULL", replace(SMALL, batches=(2,)))


def test_from_two_measurements_to_a_tree(runner, small, tiny, tmp_path):
    """What a reader types, on a tiny target that is its own draft model."""
    times, counts = tmp_path / "times.json", tmp_path / "counts.json"
    made = tmp_path / "tree.json"
    # Of the frozen prompts those of "chat" fit into the tiny context.
    for command in (
        ["verify-time", "--out", times, "--target", tiny],
        ["acceptance", "--out", counts, "--target", tiny, "--draft", tiny,
         "--width", 3, "--depth", 2, "--workload", "chat", "--prompts", 2,
         "--max-new-tokens", 12],
        ["tree", "--times", times, "--counts", counts, "--draft", tiny,
         "--out", made],
    ):  # fmt: skip
        done = runner.invoke(app, ["measure", *map(str, command)])
        assert done.exit_code == 0, done.output + done.stderr
    assert [cell.nodes for cell in VerifyProfile.load(times).cells] == [1, 2, 6]
    profile = AcceptanceProfile.load(counts)
    assert [prompt.workload for prompt in profile.prompts] == ["chat", "chat"]
    # A drafter that is the target is never refused.
    assert profile.observed().acceptance()[0][1] == 1
    tree = TreeArtifact.load(made)
    assert tree.target_checkpoint == profile.settings["target"]
    assert "rows with the root" in done.stdout and str(made) in done.stderr


@pytest.mark.parametrize(
    ("source", "verifier"),
    [
        ("prompt_lookup", "membership"),
        ("suffix", "membership"),
        ("rest", "membership"),
        ("staged", "sequoia"),
    ],
)
def test_acceptance_of_any_source(runner, tiny, tmp_path, source, verifier):
    """Those that copy by the rule that reads no q, those that draw by their own."""
    out, index = tmp_path / "counts.json", tmp_path / "small.rest"
    command = ["--out", out, "--target", tiny, "--source", source, "--workload", "chat",
               "--prompts", 2, "--max-new-tokens", 12, "--depth", 2]  # fmt: skip
    if source == "rest":
        Datastore.build([list(range(32, 127)) * 2]).save(index)
        command += ["--datastore", index]
    if source == "staged":
        command += ["--draft", tiny]
    done = runner.invoke(app, ["measure", "acceptance", *map(str, command)])
    assert done.exit_code == 0, done.output + done.stderr
    profile = AcceptanceProfile.load(out)
    assert profile.settings["verifier"] == verifier
    assert profile.settings["source"].startswith(source)
    assert profile.observed().tried[:, 0, 0].sum() > 0
    if source == "staged":  # its drafter is the target
        assert profile.observed().acceptance()[0][1] == 1


def test_a_full_profile_has_batches_and_goes_on(runner, small, tiny, tmp_path):
    out = tmp_path / "times.json"
    command = ["measure", "verify-time", "--full", "--target", str(tiny)]
    for _ in range(2):
        done = runner.invoke(app, [*command, "--out", str(out), "--json"])
        assert done.exit_code == 0, done.output + done.stderr
    assert {cell.batch for cell in VerifyProfile.load(out).cells} == {1, 2}
    assert "1 of 2" not in done.stderr


def test_a_part_of_the_grid_is_asked_for(runner, small, tiny, tmp_path):
    """A stated subset, batches too, without the hours of the full grid."""
    out = tmp_path / "times.json"
    command = ["measure", "verify-time", "--target", tiny, "--out", out]
    for name, values in (
        ("--nodes", (1, 3)),
        ("--prefix", (5, 7)),
        ("--shape", ("chain", "star")),
        ("--batch", (2,)),
    ):
        command += [part for value in values for part in (name, value)]
    done = runner.invoke(app, list(map(str, command)))
    assert done.exit_code == 0, done.output + done.stderr
    profile = VerifyProfile.load(out)
    assert profile.groups() == [
        (forward, batch, prefix, shape)
        for forward, batch in (("runtime", 1), ("batch", 2))
        for prefix in (5, 7)
        for shape in ("chain", "star")
    ]
    assert {cell.nodes for cell in profile.cells} == {1, 3}


@pytest.fixture
def profiles(tmp_path):
    """A profile of times of this machine and one of counts, of one target; `change`
    gives the command with one of them changed."""
    about = {"target": "T", "dtype": "float32", "runtime": "lean"}
    cells = tuple(
        Cell("runtime", 1, 8, "sequoia", n, 1 if n > 1 else 0, (t, t), 0.0, 0.0, 0, 0)
        for n, t in ((1, 0.1), (3, 0.12))
    )
    times = VerifyProfile(about, setup.machine(), cells)
    counts = AcceptanceProfile(
        {"tokenizer": "t", "source": "draft_model checkpoint=D ", "verifier": "sequoia",
         "proposal": "draft_model checkpoint=D", "temperature": 0.7, **about},
        setup.machine(),
        (PromptCounts("chat", "one", 9, 5, ((5, 2), (3, 1)), ((3, 1), (1, 0))),),
    )  # fmt: skip
    paths = {"times": tmp_path / "times.json", "counts": tmp_path / "counts.json"}

    def change(**changes):
        made = {"times": times, "counts": counts}
        for name, edit in changes.items():
            made[name] = edit(made[name])
        for name, profile in made.items():
            profile.save(paths[name])
        return ["measure", "tree", *(
            part for name, path in paths.items() for part in (f"--{name}", str(path))
        )]  # fmt: skip

    return change


@pytest.mark.parametrize(
    ("changes", "options", "told"),
    [
        ({}, ["--max-depth", "3"], "rows for 2 depths"),
        ({}, ["--max-depth", "-1"], "max_depth"),
        ({}, ["--out", "{counts}"], "no tree artifact"),
        ({}, ["--out", f"{__file__}/x.json"], "takes no files"),
        (
            {"times": lambda p: replace(p, machine={**p.machine, "threads": -1})},
            [],
            "threads -1",
        ),
        (
            {"times": lambda p: replace(p, machine={**p.machine, "processor": "Z80"})},
            [],
            "processor 'Z80'",
        ),
        (
            {"times": lambda p: replace(p, machine={**p.machine, "instructions": "X"})},
            [],
            "instructions 'X'",
        ),
        (
            {"counts": lambda p: replace(p, settings={**p.settings, "target": "U"})},
            [],
            "do not belong together",
        ),
        ({"times": lambda p: replace(p, cells=())}, [], "nothing was measured"),
    ],
)
def test_profiles_that_do_not_fit_load_no_model(
    runner, no_model, tmp_path, profiles, changes, options, told
):
    command = profiles(**changes)
    before = {p: p.read_bytes() for p in tmp_path.iterdir()}
    options = [o.format(counts=tmp_path / "counts.json") for o in options]
    refused(runner.invoke(app, [*command, *options]), told)
    assert {p: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_counts_of_another_draft_model_are_refused(runner, profiles, tiny):
    done = runner.invoke(app, [*profiles(), "--draft", str(tiny)])
    refused(done, "checkpoint=D")


def test_bench_trees_prints_its_table(runner, monkeypatch, tmp_path):
    monkeypatch.setattr(
        bench_trees,
        "QUICK",
        {"recurrence": (16,), "best-first": (16,), "plain loops": (16,)},
    )
    command = ["bench", "trees", "--quick", "--repeats", "1"]
    done = runner.invoke(app, [*command, "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output + done.stderr
    assert "best-first" in done.stdout
    assert json.loads((tmp_path / "trees.json").read_text(encoding="utf-8"))["solved"]


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["verify-time", "--dtype", "int8"], "dtype"),
        (["verify-time", "--device", "moon"], "device"),
        (["verify-time", "--temperature", "-1"], "temperature"),
        (["verify-time", "--nodes", "2"], "nodes"),
        (["verify-time", "--prefix", "0"], "prefixes"),
        (["verify-time", "--shape", "ring"], "shapes"),
        (["verify-time", "--batch", "0"], "batches"),
        (["verify-time", "--out", __file__], "not a verification profile"),
        (["acceptance", "--width", "0"], "width"),
        (["acceptance", "--depth", "0"], "depth"),
        (["acceptance", "--width", "100000"], "rows, more than"),
        (["acceptance", "--depth", "100000"], "rows, more than"),
        (["acceptance", "--out", __file__], "not a calibration profile"),
        (["acceptance", "--verifier", "specinfer"], "specinfer"),
        (["acceptance", "--verifier", "block"], "block"),
        (["acceptance", "--children", "top_k"], "sequoia"),
        (["acceptance", "--children", "hub"], "pairs"),
        (["acceptance", "--children", "adopted"], "children"),
        (["acceptance", "--source", "oracle"], "oracle"),
        (["acceptance", "--source", "suffix", "--children", "iid"], "it copies"),
        (["acceptance", "--source", "suffix", "--draft", "x"], "draft"),
        (["acceptance", "--source", "rest"], "needs a datastore"),
        (["acceptance", "--datastore", "x.rest"], "needs a datastore"),
        (["acceptance", "--source", "suffix", "--verifier", "sequoia"], "sequoia"),
        (["acceptance", "--source", "staged", "--verifier", "block"], "block"),
        (["acceptance", "--source", "hydra", "--verifier", "block"], "block"),
        (["acceptance", "--verifier", "judge"], "judge"),
        (["acceptance", "--verifier", "greedy"], "temperature 0"),
        (["acceptance", "--workload", "poems"], "workload"),
        (["acceptance", "--half", "third"], "half"),
        (["acceptance", "--prompts", "0"], "prompts_per_workload"),
        (["acceptance", "--max-new-tokens", "0"], "max_new_tokens"),
        (["acceptance", "--temperature", "nan"], "temperature"),
        (["acceptance", "--seed", "-1"], "seed"),
        (["acceptance", "--out", f"{__file__}/x.json"], "takes no files"),
        (["tree", "--times", "no.json", "--counts", "no.json"], "no.json"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_bad_options_load_no_model(runner, no_model, tmp_path, command, told):
    if "--out" not in command:
        command = [*command, "--out", str(tmp_path / "out.json")]
    refused(runner.invoke(app, ["measure", *command]), told)
    assert not (tmp_path / "out.json").exists()
