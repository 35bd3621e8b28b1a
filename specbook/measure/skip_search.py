"""The search for a skip vector, by Bayesian optimisation (section 0x05A).

2L binary choices: for 30 layers there are 2^60 vectors, of which a search tries a few
hundred. Optuna proposes, our objective disposes (`skip_objective`). The search begins
with vectors that a reader would try first, so that what it finds is never worse than
these: nothing skipped, every second layer, the middle layers.

A trial enters the journal when it is over, and what the sampler draws for trial n
follows from the seed, n and the trials before it. So an interrupted search goes on
where it stood, and ends as if it had not been interrupted. No vector is tried twice.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from .. import __version__, checks, prompts
from ..drafts.stop_threshold import MOST, ThresholdPolicy
from ..errors import ArtifactError, SpecbookError
from ..models import skip_storage
from ..models.skip_layers import SkipVector, layer_count
from ..training import artifact
from .setup import machine, set_up
from .skip_objective import SkipCosts, evaluate, measure_costs, predicted

SAMPLERS = ("tpe", "gp", "random")
"""Optuna's samplers that a search may use. "random" is there to compare with."""

OBJECTIVES = ("predicted", "measured")
"""See `skip_objective`."""

TRIALS = 200
_ASKED = 8
"""How often a sampler is asked again for a vector that was not tried yet."""

_STUDY = "skip"


@dataclass(frozen=True)
class SkipTrial:
    """One vector and its value, the lower the better. `notes`: whatever else the
    objective said of it, plain JSON. `origin`: "start", the sampler's name, or, where
    the sampler had nothing new to say, "neighbour" (of the best vector so far, one bit
    away) or "random"."""

    number: int
    vector: SkipVector
    value: float
    origin: str
    notes: Mapping[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """The entry of the history."""
        return {
            "vector": str(self.vector),
            "value": self.value,
            "origin": self.origin,
            **self.notes,
        }


def start_points(layers: int) -> list[SkipVector]:
    """The vectors that are tried first, all different: nothing skipped, every second
    layer, the middle half of the layers, every second of these."""
    checks.integer(layers, "layers", least=1)
    middle = range(layers // 4, layers - layers // 4)
    points = [
        SkipVector.nothing(layers),
        SkipVector.whole_layers(layers, range(1, layers, 2)),
        SkipVector.whole_layers(layers, middle),
        SkipVector.whole_layers(layers, middle[::2]),
    ]
    return list(dict.fromkeys(points))


def search(
    objective: Callable[[SkipVector], tuple[float, Mapping[str, Any]]],
    layers: int,
    *,
    trials: int = TRIALS,
    sampler: str = "tpe",
    seed: int = 0,
    start: Sequence[SkipVector] | None = None,
    journal: Path | None = None,
    key: str = "",
    progress: Callable[[str], None] | None = None,
) -> list[SkipTrial]:
    """Up to `trials` different vectors for `layers` layers, with their values.

    `objective`: the value of a vector, to be minimised, and notes. `sampler`: one of
    `SAMPLERS`. `start`: tried first, by default `start_points`. `journal`: a file of
    optuna's that is gone on with if it is there; None keeps nothing. `key`: what the
    trials belong to. It ends early when there is no vector left. Raises
    `ArtifactError` for a journal that is damaged or of another key, and `SpecbookError`
    for bad arguments.
    """
    checks.integer(layers, "layers", least=1)
    checks.integer(trials, "trials", least=1)
    checks.one_of(sampler, "sampler", SAMPLERS)
    checks.integer(seed, "seed", least=0)
    checks.text(key, "key")
    checks.function(objective, "objective")
    if progress is not None:
        checks.function(progress, "progress")
    checks.instance(journal, "journal", (Path, type(None)))
    first = (
        start_points(layers)
        if start is None
        else checks.entries(start, "start", "vectors")
    )
    for place, vector in enumerate(first):
        if not isinstance(vector, SkipVector) or vector.layers != layers:
            raise SpecbookError(f"start[{place}] is no vector for {layers} layers")
    say = progress or (lambda line: None)
    with _quiet_optuna():
        study = _study(journal, f"{key} layers={layers} {sampler} seed={seed}")
        try:
            found = _trials(study, layers)
        except (KeyError, TypeError, ValueError) as problem:
            raise ArtifactError(
                f"{journal} holds a trial that is none: {problem}"
            ) from problem
        while len(found) < min(trials, 4**layers):
            number = len(found)
            tried = {trial.vector for trial in found}
            untried = [vector for vector in first if vector not in tried]
            if untried:
                vector, origin = untried[0], "start"
            else:
                vector, origin = _proposed(found, layers, sampler, seed)
            value, notes = objective(vector)
            value = checks.float64(value, "the objective's value")
            trial = SkipTrial(number, vector, value, origin, dict(notes))
            _add(study, trial)
            found.append(trial)
            best = best_of(found)
            say(
                f"trial {number + 1} of {trials}: {value:.6g} for {vector}, best "
                f"{best.value:.6g} for {best.vector}"
            )
    return found


def best_of(trials: Sequence[SkipTrial]) -> SkipTrial:
    """The trial of the lowest value among those that skip something; of equal ones that
    which skips most, then the first. Raises `SpecbookError` when there is no trial.

    A vector that skips nothing drafts at the target's own price. k tokens and their
    verification then cost more than k + 1 steps give, so it never pays, and where it is
    the quickest of all that were tried, none of them pays. It is chosen where nothing
    else was tried.
    """
    if not trials:
        raise SpecbookError("no trial, no best one")
    for place, trial in enumerate(trials):
        checks.instance(trial, f"trials[{place}]", SkipTrial)
    return min([t for t in trials if t.vector.skipped] or trials, key=_rank)


def _rank(trial: SkipTrial) -> tuple[float, int, int]:
    return trial.value, -trial.vector.skipped, trial.number


def _proposed(
    found: Sequence[SkipTrial], layers: int, sampler: str, seed: int
) -> tuple[SkipVector, str]:
    """A vector that was not tried yet, by the sampler if it has one to offer."""
    import optuna

    tried = {trial.vector for trial in found}
    study = optuna.create_study()
    study.add_trials([_frozen(trial) for trial in found])
    for again in range(_ASKED):
        study.sampler = _sampler(sampler, _mixed(seed, len(found), again))
        asked = study.ask(_space(layers))
        vector = _vector(asked.params, layers)
        if vector not in tried:
            return vector, sampler
        study.tell(asked, state=optuna.trial.TrialState.FAIL)
    # It has settled on vectors that are known. One bit of the best may be wrong, or,
    # where all of these are known too, any.
    chance = random.Random(_mixed(seed, len(found), _ASKED))
    best = best_of(found).vector
    near = [_flipped(best, place) for place in range(2 * layers)]
    near = [vector for vector in near if vector not in tried]
    if near:
        return chance.choice(near), "neighbour"
    while True:
        bits = [chance.random() < 0.5 for _ in range(2 * layers)]
        vector = SkipVector.from_bits(bits)
        if vector not in tried:
            return vector, "random"


def _flipped(vector: SkipVector, place: int) -> SkipVector:
    bits = list(vector.bits)
    bits[place] = not bits[place]
    return SkipVector.from_bits(bits)


def _mixed(seed: int, number: int, again: int) -> int:
    import numpy as np

    mixed = np.random.SeedSequence([seed, number, again])
    return int(mixed.generate_state(1)[0])


def _sampler(name: str, seed: int) -> Any:
    import optuna

    if name == "tpe":
        return optuna.samplers.TPESampler(seed=seed, n_startup_trials=8)
    if name == "gp":
        return optuna.samplers.GPSampler(seed=seed, n_startup_trials=8)
    return optuna.samplers.RandomSampler(seed=seed)


def _names(layers: int) -> list[str]:
    return [f"{layer}.{part}" for layer in range(layers) for part in ("attn", "mlp")]


def _space(layers: int) -> dict[str, Any]:
    import optuna

    kind = optuna.distributions.CategoricalDistribution
    return {name: kind((False, True)) for name in _names(layers)}


def _vector(params: Mapping[str, Any], layers: int) -> SkipVector:
    return SkipVector.from_bits([bool(params[name]) for name in _names(layers)])


def _frozen(trial: SkipTrial) -> Any:
    import optuna

    layers = trial.vector.layers
    return optuna.trial.create_trial(
        params=dict(zip(_names(layers), trial.vector.bits, strict=True)),
        distributions=_space(layers),
        value=trial.value,
        user_attrs={"origin": trial.origin, "notes": dict(trial.notes)},
    )


def _add(study: Any, trial: SkipTrial) -> None:
    study.add_trial(_frozen(trial))


def _trials(study: Any, layers: int) -> list[SkipTrial]:
    found = []
    for number, trial in enumerate(study.trials):
        if trial.state.name != "COMPLETE":
            raise SpecbookError(f"trial {number} is {trial.state.name.lower()}")
        found.append(
            SkipTrial(
                number,
                _vector(trial.params, layers),
                checks.float64(trial.value, f"the value of trial {number}"),
                trial.user_attrs["origin"],
                trial.user_attrs["notes"],
            )
        )
    return found


@contextlib.contextmanager
def _quiet_optuna() -> Iterator[None]:
    """Optuna tells of every study that it makes; within this it does not."""
    try:
        import optuna
    except ModuleNotFoundError as problem:
        raise SpecbookError(
            "the search needs optuna: pip install 'specbook[models]'"
        ) from problem
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)


def _study(journal: Path | None, key: str) -> Any:
    import optuna

    if journal is None:
        return optuna.create_study()
    from optuna.storages.journal import JournalFileBackend

    try:
        _drop_unfinished_line(journal)
        backend = JournalFileBackend(str(journal))
        storage = optuna.storages.JournalStorage(backend)
        study = optuna.create_study(
            storage=storage, study_name=_STUDY, load_if_exists=True
        )
        held = study.user_attrs.get("key")
        if held is None:
            study.set_user_attr("key", key)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise ArtifactError(f"{journal} cannot be gone on with: {problem}") from problem
    if held not in (None, key):
        raise ArtifactError(
            f"{journal} belongs to a search with other settings, another target or "
            "other prompts: go on with those, or remove it"
        )
    return study


def _drop_unfinished_line(journal: Path) -> None:
    """Whoever was killed while it wrote a trial has left a part of a line, behind which
    nothing could be appended. That trial is tried again."""
    if not journal.exists():
        return
    content = journal.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole != len(content):
        os.truncate(journal, whole)


# --------------------------------------------------------------- from target to disk


def train_skip(
    out: str | os.PathLike[str],
    target: str | os.PathLike[str] | None = None,
    *,
    trials: int = TRIALS,
    objective: str = "predicted",
    sampler: str = "tpe",
    prompts_per_workload: int = 2,
    max_new_tokens: int = 32,
    dtype: str = "float32",
    most: int = MOST,
    policy: str = "original",
    repeats: int = 1,
    clock: str = "wall",
    seed: int = 0,
    resume: bool = False,
    command: str = "",
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Search a skip vector for `target` and write it to the folder `out`; returns the
    manifest.

    `prompts_per_workload`: the first so many development prompts of each workload.
    `objective`: one of `OBJECTIVES`. `policy`: the rule of the threshold. `repeats`:
    runs of each prompt, and turns in which costs are measured (three times as many).
    The journal of an unfinished search lies beside `out` and is used with `resume`; it
    is removed when the artifact is written. Everything that can be refused is refused
    before the work.
    """
    if not isinstance(out, (str, os.PathLike)):
        raise SpecbookError(f"out must be a folder, got {out!r}")
    final = Path(out).expanduser().absolute()
    artifact.check_free(final)
    checks.integer(trials, "trials", least=1)
    checks.one_of(objective, "objective", OBJECTIVES)
    checks.one_of(sampler, "sampler", SAMPLERS)
    checks.integer(most, "most", least=1)
    checks.integer(max_new_tokens, "max_new_tokens", least=2)
    checks.integer(seed, "seed", least=0)
    checks.boolean(resume, "resume")
    checks.text(command, "command")
    rule = ThresholdPolicy(policy)
    setup = set_up(
        workloads=prompts.WORKLOADS,
        half="development",
        prompts_per_workload=prompts_per_workload,
        max_new_tokens=max_new_tokens,
        dtypes=(dtype,),
        repeats=repeats,
        quick=False,
        clock=clock,
        out=None,
        progress=progress,
        target=target,
    )
    journal = final.with_name(f".{final.name}.search.journal")
    if journal.exists() and not resume:
        raise ArtifactError(
            f"{journal} is there from an unfinished search: go on with it (--resume) "
            "or remove it"
        )
    artifact.check_writable(final.parent)

    from ..models.loading import load_target

    setup.tell("loading the target")
    ours = load_target(target, dtype=dtype)
    layers, identity = layer_count(ours), ours.identity()
    encoded = setup.encoded(ours)
    texts = [ids for _, ids in encoded]
    data = {
        "prompts": [prompt.id for prompt, _ in encoded],
        "files": prompts.manifest()["files"],
        "max_new_tokens": max_new_tokens,
    }
    settings = {
        "objective": objective,
        "sampler": sampler,
        "seed": seed,
        "most": most,
        "threshold": str(rule),
        "repeats": repeats,
        "clock": clock,
        "dtype": dtype,
    }
    key = json.dumps([identity["checkpoint"], data, settings], sort_keys=True)
    costs = _costs(
        journal,
        key,
        lambda: measure_costs(
            ours, most=most, repeats=1 + 2 * repeats, clock=setup.now
        ),
        setup.tell,
    )

    def value(vector: SkipVector) -> tuple[float, Mapping[str, Any]]:
        found = evaluate(
            ours,
            texts,
            vector,
            max_new_tokens=max_new_tokens,
            most=most,
            policy=rule,
            repeats=repeats,
            clock=setup.now,
        )
        notes = {
            "predicted": predicted(vector, found.counts, costs),
            "measured": found.measured,
            "counts": found.counts.as_dict(),
        }
        return notes[objective], notes

    history = search(
        value,
        layers,
        trials=trials,
        sampler=sampler,
        seed=seed,
        journal=journal,
        key=key,
        progress=setup.tell,
    )
    best = best_of(history)
    choice = {
        **best.as_dict(),
        "objective": objective,
        "plain": costs.plain(),
        "unit": "seconds a token",
    }
    del choice["vector"]
    facts = {
        "kind": skip_storage.KIND,
        "name": final.name,
        "command": command,
        "licence": "Apache-2.0",
        "target": identity,
        "settings": {**settings, "trials": trials},
        "data": data,
        "costs": costs.as_dict(),
        "measured": {"vector": str(best.vector), "trials": len(history), **choice},
        "versions": {
            "specbook": __version__,
            **{n: metadata.version(n) for n in ("optuna", "torch", "transformers")},
        },
        "machine": machine(),
    }
    work = Path(tempfile.mkdtemp(prefix=f".{final.name}-", dir=final.parent))
    try:
        made = work / final.name
        made.mkdir()
        entries = [trial.as_dict() for trial in history]
        skip_storage.write(made, best.vector, choice, entries)
        manifest = artifact.publish(made, final, facts, _check_reads)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    journal.unlink(missing_ok=True)
    _costs_file(journal).unlink(missing_ok=True)
    setup.tell(f"written: {final}")
    return manifest


def _check_reads(folder: Path) -> None:
    """Raise `ArtifactError` unless the folder reads back."""
    skip_storage.read(folder)


def _costs_file(journal: Path) -> Path:
    return journal.with_suffix(".costs.json")


def _costs(
    journal: Path,
    key: str,
    measure: Callable[[], SkipCosts],
    tell: Callable[[str], None],
) -> SkipCosts:
    """The costs that a search goes on with, measured once: values that rest on two
    measurements could not be compared."""
    path = _costs_file(journal)
    if journal.exists():
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            if told["key"] == key:
                return SkipCosts.from_dict(told["costs"])
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise ArtifactError(
                f"{path} cannot be read: {problem}; without the costs that its trials "
                f"were valued with, {journal} cannot be gone on with: remove both"
            ) from problem
        raise ArtifactError(
            f"{path} belongs to a search with other settings, another target or other "
            "prompts: go on with those, or remove it"
        )
    tell("measuring what steps cost")
    costs = measure()
    text = json.dumps({"key": key, "costs": costs.as_dict()})
    part = path.with_suffix(".part")
    part.write_text(text + "\n", encoding="utf-8")
    part.replace(path)
    return costs
