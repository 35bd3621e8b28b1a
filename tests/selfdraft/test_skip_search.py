"""The search: against every vector there is, interrupted, and from target to disk."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from fractions import Fraction as F
from pathlib import Path
from typing import Any

import pytest
import torch

from specbook.drafts.neural.draft_verify import DraftVerify
from specbook.drafts.stop_threshold import ThresholdPolicy
from specbook.engine import generate
from specbook.errors import ArtifactError, SpecbookError
from specbook.measure import skip_search as module
from specbook.measure.skip_objective import SkipCosts, evaluate, predicted
from specbook.measure.skip_search import (
    SAMPLERS,
    SkipTrial,
    best_of,
    search,
    start_points,
    train_skip,
)
from specbook.models import loading, skip_storage
from specbook.models.lean import LeanTarget
from specbook.models.skip_layers import SkipVector

from .models import model_of

EVERY = [SkipVector.from_bits(b) for b in itertools.product((False, True), repeat=4)]
COSTS = SkipCosts(
    base=F(1, 50),
    attention=F(2, 10),
    mlp=F(3, 10),
    verify=((1, F(11, 10)), (9, F(13, 10))),
    state=F(1, 50),
)
"""A step of the target costs what its four sublayers and its head do, and a little."""
PROMPTS = [[1, 2, 3], [9, 8, 7, 6], [20, 21]]


def weights_of(vector: SkipVector, weights: list[int]) -> int:
    return sum(w for w, bit in zip(weights, vector.bits, strict=True) if bit)


def toy(vector: SkipVector) -> tuple[float, Mapping[str, Any]]:
    """A value with one best vector, which is not an end of anything."""
    value = (weights_of(vector, [5, -3, 2, -7]) + 9) ** 2 + vector.skipped / 10
    return value, {"skipped": vector.skipped}


# ------------------------------------------------------------ against enumeration


@pytest.fixture(scope="module")
def values() -> dict[SkipVector, float]:
    """Of all sixteen vectors of a tiny model, by counts and a cost clock: no time is
    measured, so they are the same on every machine that counts the same. The model
    has one sublayer to spare: the last feed-forward network adds next to nothing."""
    model = model_of("llama", 3, layers=2)
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight *= 1e-3
    target = LeanTarget(model, self_test=False)
    found = {}
    for vector in EVERY:
        made = evaluate(
            target,
            PROMPTS,
            vector,
            max_new_tokens=12,
            most=3,
            policy=ThresholdPolicy(start=0),
            clock=lambda: 0,
        )
        found[vector] = float(predicted(vector, made.counts, COSTS))
    return found


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_a_full_search_finds_what_enumeration_finds(
    sampler: str, values: dict[SkipVector, float]
) -> None:
    found = search(lambda v: (values[v], {}), 2, trials=40, sampler=sampler)
    assert {trial.vector for trial in found} == set(EVERY) and len(found) == 16
    assert best_of(found).value == min(values.values())
    assert all(trial.value == values[trial.vector] for trial in found)


@pytest.mark.parametrize("seed", range(3))
def test_it_finds_the_best_before_it_has_seen_all(seed: int) -> None:
    found = search(toy, 2, trials=13, seed=seed)
    assert len({trial.vector for trial in found}) == 13
    assert best_of(found).value == min(toy(vector)[0] for vector in EVERY)


def test_skipping_nothing_is_no_choice_even_where_it_is_the_quickest() -> None:
    """It drafts at the target's price: what it shows is that no other vector pays."""
    values = {"--": 1.0, "-m": 1.2, "-a": 1.1, "xx": 3.0}
    trials = [
        SkipTrial(n, SkipVector.from_text(text), value, "start", {})
        for n, (text, value) in enumerate(values.items())
    ]
    assert str(best_of(trials).vector) == "-a"
    assert str(best_of(trials[:1]).vector) == "--"


def test_every_sampler_proposes() -> None:
    for sampler in SAMPLERS:
        found = search(toy, 2, trials=9, sampler=sampler)
        assert sampler in {trial.origin for trial in found}
        assert len({trial.vector for trial in found}) == 9


def test_neither_the_most_agreement_nor_the_fewest_layers_is_the_least_time(
    values: dict[SkipVector, float],
) -> None:
    """Nothing skipped is accepted whole and drafts at the target's price; everything
    skipped drafts for nothing and is refused; between them lies the best."""
    best = min(values, key=lambda vector: values[vector])
    assert str(best) == "-m"
    assert values[best] < values[SkipVector.nothing(2)]
    assert values[best] < float(COSTS.plain()) < values[SkipVector.from_text("xx")]
    # And vectors that skip as much differ.
    for count in (1, 2, 3):
        alike = [v for vector, v in values.items() if vector.skipped == count]
        assert len(set(alike)) > 1


def test_a_search_that_maximises_would_be_seen(monkeypatch: Any) -> None:
    """The planted fault: the best is the worst."""
    monkeypatch.setattr(module, "_rank", lambda trial: -trial.value)
    assert best_of(search(toy, 2, trials=16)).value > min(toy(v)[0] for v in EVERY)


# ------------------------------------------------------------------ how it goes on


def test_it_begins_where_a_reader_would() -> None:
    assert [str(vector) for vector in start_points(8)] == [
        "--------",
        "-x-x-x-x",
        "--xxxx--",
        "--x-x---",
    ]
    assert [str(vector) for vector in start_points(1)] == ["-", "x"]
    found = search(toy, 2, trials=3, start=[SkipVector.from_text("am")])
    assert str(found[0].vector) == "am" and found[0].origin == "start"
    assert found[1].origin != "start"


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_an_interrupted_search_ends_as_if_it_had_not_been(
    sampler: str, tmp_path: Path
) -> None:
    def value(vector: SkipVector) -> tuple[float, Mapping[str, Any]]:
        return float(weights_of(vector, [5, -3, 2, -7, 1, 4])), {"n": [1, 2]}

    whole = search(value, 3, trials=24, sampler=sampler)
    asked: list[SkipVector] = []

    def breaks(vector: SkipVector) -> tuple[float, Mapping[str, Any]]:
        asked.append(vector)
        if len(asked) in (6, 15):
            raise KeyboardInterrupt
        return value(vector)

    journal = tmp_path / "journal"
    options: Any = {"trials": 24, "sampler": sampler, "journal": journal}
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            search(breaks, 3, **options)
    assert search(breaks, 3, **options) == whole
    # Each vector once, but for the two that were interrupted.
    assert len(asked) == 24 + 2
    # All is there: nothing is asked again.
    assert search(breaks, 3, **options) == whole and len(asked) == 26


def test_a_journal_of_another_search_is_refused(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    search(toy, 2, trials=2, journal=journal, key="one")
    for change in ({"key": "other"}, {"seed": 1}, {"sampler": "gp"}):
        options = {"key": "one", **change}
        with pytest.raises(ArtifactError, match="belongs to a search with other"):
            search(toy, 2, trials=3, journal=journal, **options)  # type: ignore[arg-type]
    journal.write_text("no journal\n", encoding="utf-8")
    with pytest.raises(ArtifactError, match="cannot be gone on with"):
        search(toy, 2, trials=3, journal=journal, key="one")


def test_a_search_that_was_killed_while_it_wrote_goes_on(tmp_path: Path) -> None:
    """That leaves a part of the last line, at any of its bytes."""
    journal = tmp_path / "journal"
    whole = search(toy, 2, trials=5, sampler="random", journal=journal)
    content = journal.read_bytes()
    start = content[:-1].rindex(b"\n") + 1
    for left in (start + 1, (start + len(content)) // 2, len(content) - 1):
        journal.write_bytes(content[:left])
        asked: list[SkipVector] = []

        def notes(vector: SkipVector, seen: list[SkipVector] = asked) -> Any:
            seen.append(vector)
            return toy(vector)

        options: Any = {"trials": 5, "sampler": "random", "journal": journal}
        assert search(notes, 2, **options) == whole
        assert asked == [whole[-1].vector]
        assert search(toy, 2, **options) == whole


@pytest.mark.parametrize(
    "spoil",
    [
        lambda line: line.pop("user_attrs", None),
        lambda line: line.get("params", {}).clear(),
        lambda line: line.update(value=None) if "value" in line else None,
        lambda line: line.update(state=3) if "state" in line else None,
    ],
    ids=["notes", "vector", "value", "failed"],
)
def test_a_journal_with_a_trial_that_is_none_is_refused(
    spoil: Any, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    search(toy, 2, trials=3, journal=journal)
    lines = [json.loads(line) for line in journal.read_text("utf-8").splitlines()]
    spoil(lines[-1])
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    with pytest.raises(ArtifactError, match="holds a trial that is none"):
        search(toy, 2, trials=4, journal=journal)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"objective": None}, "objective must be a function"),
        ({"progress": 3}, "progress must be a function"),
        ({"journal": "a name"}, "journal must be a Path or None"),
        ({"start": 3}, "start must be a sequence"),
        ({"trials": 0}, "trials must be at least 1"),
        ({"sampler": "grid"}, "sampler must be one of"),
        ({"start": [SkipVector.nothing(3)]}, "no vector for 2 layers"),
        ({"seed": -1}, "seed must be at least 0"),
    ],
)
def test_bad_options_are_refused(options: Any, told: str) -> None:
    with pytest.raises(SpecbookError, match=told):
        search(options.pop("objective", toy), 2, **options)
    with pytest.raises(SpecbookError, match="no trial"):
        best_of([])
    with pytest.raises(SpecbookError, match="must be a SkipTrial"):
        best_of([None])  # type: ignore[list-item]


def test_a_value_that_is_no_number_is_refused() -> None:
    with pytest.raises(SpecbookError, match="the objective's value"):
        search(lambda v: (float("nan"), {}), 1, trials=1)


def test_optuna_is_as_talkative_afterwards_as_before(capfd: Any) -> None:
    import optuna

    before = optuna.logging.get_verbosity()
    search(toy, 2, trials=5)
    assert optuna.logging.get_verbosity() == before
    assert capfd.readouterr().err == ""


# --------------------------------------------------------------- from target to disk


@pytest.fixture
def tiny(monkeypatch: Any) -> LeanTarget:
    """What `load_target` gives, with a tokenizer that knows eight words."""

    class Tiny(LeanTarget):
        def encode(self, text: str) -> list[int]:
            return [1 + len(text) % 7, 3]

        def encode_chat(self, messages: Any) -> list[int]:
            return [9, 1 + len(messages[0]["content"]) % 5]

    target = Tiny(model_of("llama", 3, layers=2), self_test=False)
    monkeypatch.setattr(loading, "load_target", lambda *_, **__: target)
    return target


QUICK: dict[str, Any] = {
    "trials": 5,
    "prompts_per_workload": 1,
    "max_new_tokens": 6,
    "most": 3,
}


@pytest.mark.parametrize("objective", ["predicted", "measured"])
def test_from_a_target_to_an_artifact_that_drafts(
    objective: str, tiny: LeanTarget, tmp_path: Path
) -> None:
    told: list[str] = []
    manifest = train_skip(
        tmp_path / "tiny",
        objective=objective,
        command="as typed",
        progress=told.append,
        **QUICK,
    )
    stored = skip_storage.read(tmp_path / "tiny")
    assert stored.manifest == manifest and len(stored.history) == 5
    assert stored.vector.skipped
    assert stored.choice["value"] == min(
        entry["value"] for entry in stored.history if set(entry["vector"]) != {"-"}
    )
    assert stored.choice["objective"] == objective
    for entry in stored.history:
        assert entry["value"] == entry[objective] > 0
        assert entry["counts"]["committed"] > 0
    assert manifest["target"]["checkpoint"] == tiny.identity()["checkpoint"]
    assert len(manifest["data"]["prompts"]) == 4
    assert set(manifest["versions"]) == {"specbook", "optuna", "torch", "transformers"}
    for field in ("command", "costs", "machine", "settings", "measured"):
        assert manifest[field]
    assert told[-1].startswith("written")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["tiny"]
    plain = generate(tiny, [3, 4], max_new_tokens=9)
    found = generate(tiny, [3, 4], DraftVerify(tmp_path / "tiny"), max_new_tokens=9)
    assert found.tokens == plain.tokens


def test_an_unfinished_search_is_resumed_with_the_costs_it_began_with(
    tiny: LeanTarget, tmp_path: Path, monkeypatch: Any
) -> None:
    right, calls = module.evaluate, 0

    def breaks(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        return right(*arguments, **options)

    monkeypatch.setattr(module, "evaluate", breaks)
    out = tmp_path / "tiny"
    with pytest.raises(KeyboardInterrupt):
        train_skip(out, **QUICK)
    kept = json.loads((tmp_path / ".tiny.search.costs.json").read_text("utf-8"))
    with pytest.raises(ArtifactError, match="go on with it"):
        train_skip(out, **QUICK)
    with pytest.raises(ArtifactError, match="other settings"):
        train_skip(out, resume=True, **{**QUICK, "most": 2})
    costs = tmp_path / ".tiny.search.costs.json"
    costs.unlink()  # others would be measured now, and the trials rest on these
    with pytest.raises(ArtifactError, match="without the costs"):
        train_skip(out, resume=True, **QUICK)
    costs.write_text(json.dumps(kept), encoding="utf-8")
    manifest = train_skip(out, resume=True, **QUICK)
    assert calls == 6  # five trials, and the one that was interrupted
    assert json.loads(json.dumps(manifest["costs"])) == kept["costs"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["tiny"]


def test_what_can_be_refused_is_refused_before_a_target_is_loaded(
    tmp_path: Path, monkeypatch: Any
) -> None:
    def loads(*_: Any, **__: Any) -> None:
        raise AssertionError("something was loaded")

    monkeypatch.setattr(loading, "load_target", loads)
    full = tmp_path / "full"
    full.mkdir()
    (full / "thesis.txt").write_text("mine", encoding="utf-8")
    for options, told in (
        ({"out": full}, "it is not replaced"),
        ({"out": 5}, "out must be a folder"),
        ({"objective": "agreement"}, "objective must be one of"),
        ({"sampler": "grid"}, "sampler must be one of"),
        ({"policy": "best"}, "rule must be one of"),
        ({"max_new_tokens": 1}, "at least 2"),
        ({"dtype": "int8"}, "dtype must be one of"),
        ({"clock": "sun"}, "clock must be one of"),
        ({"trials": 0}, "trials must be at least 1"),
    ):
        with pytest.raises(SpecbookError, match=told):
            train_skip(**{"out": tmp_path / "new", **options})  # type: ignore[arg-type]
