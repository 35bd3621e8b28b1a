"""The work of `specbook advise`: evidence read or measured, checked, and answered.

There are two ways to know what configurations cost. A frontier that was measured on
this machine needs no model and no more time. Without one, profiles will do: the time of
rows, acceptance counted for each source that follows plans, and recorded answers for
those that copy; then the target is loaded only to time the drafts. Whatever the
evidence is, it must be of this machine, this target and this temperature, or it is
refused (sections 0x0AE, 0x10).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import checks, drafts, paths, prompts, reading
from ..errors import SpecbookError
from ..measure import frontier_report, recording
from ..measure.acceptance import AcceptanceProfile
from ..measure.calibrated import calibrated
from ..measure.held import held_bytes
from ..measure.setup import SAME, Progress, check_same_machine, machine, teller
from ..measure.verify_report import VerifyProfile
from ..topologies import chain
from . import answer, measured, predicted
from .choosing import Advice, advise
from .constraints import Constraints
from .estimate import Estimate
from .flips import Flip, nearest_flips
from .needs import family_of, needs_datastore

LEVELS = 3
"""Of the chain that is drafted to time a level."""

SEED = 0
"""Of the worlds that are drawn."""


@dataclass(frozen=True)
class Answer:
    """An advice, what would change it, and the manifest that keeps both. `notes`: what
    to know of the evidence, such as that it is of another machine."""

    advice: Advice
    flips: tuple[Flip, ...]
    estimates: tuple[Estimate, ...]
    manifest: dict[str, Any]
    notes: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """For people."""
        notes = [f"note: {note}" for note in self.notes]
        return [*answer.lines(self.advice, self.flips), *notes]


def from_frontier(
    path: str | os.PathLike[str] | None,
    constraints: Constraints,
    *,
    workload: str | None = None,
    dtype: str | None = None,
    batch: int = 1,
    any_machine: bool = False,
    about: Mapping[str, Any] | None = None,
) -> Answer:
    """The advice of a frontier that was measured. `path` None is the shipped one;
    `dtype` None the faster one for plain decoding; `any_machine`: also where the file
    is of another machine. `about`: the machine, by default this one. Raises
    `SpecbookError` for what was not measured, and for a file of another machine."""
    file = frontier_report.load(None if path is None else Path(path))
    now = machine() if about is None else about
    told = file.path if path is None else path
    _same_machine(file.machine, now, told, any_machine)
    temperature = constraints.temperature
    _known(temperature, frontier_report.temperatures(file), "frontier")
    chosen = frontier_report.faster_dtype(file, temperature) if dtype is None else dtype
    found = measured.from_frontier(
        file,
        workload,
        chosen,
        temperature,
        batch=batch,
        worlds=measured.WORLDS,
        seed=SEED,
    )
    settings = {
        "evidence": "frontier",
        "target": file.settings.get("target"),
        "workload": workload,
        "dtype": chosen,
        "batch": batch,
        "worlds": measured.WORLDS,
        "seed": SEED,
    }
    inputs = [] if file.path is None else [file.path]
    return _answer(found, constraints, settings, file.machine, now, inputs)


def from_profiles(
    times: str | os.PathLike[str],
    counts: Sequence[str | os.PathLike[str]],
    constraints: Constraints,
    *,
    target: Any = None,
    draft: str | os.PathLike[str] | None = None,
    workload: str | None = None,
    batch: int = 1,
    any_machine: bool = False,
    progress: Progress | None = None,
) -> Answer:
    """The advice of a profile of row times and of counted acceptance.

    `counts`: files of `measure acceptance`, one a source. Sources that copy are run on
    the shipped recordings of the development half, where those are of the profile's
    target; otherwise they are left out, and a note says so. `target`: a folder or hub
    id, and `draft` that of a draft model; both are loaded to time the drafts. Raises
    `SpecbookError` for profiles that do not belong together or to this machine, for
    counts at another temperature, of another tokenizer or of other workloads than the
    rest of the evidence, for counts of another artifact than the one that would draft,
    and for a target or a draft that nothing counted would use.
    """
    checks.instance(constraints, "constraints", Constraints)
    profile = VerifyProfile.load(times)  # type: ignore[arg-type]
    listed = checks.entries(counts, "counts", "files")
    counted = [(path, AcceptanceProfile.load(path)) for path in listed]
    now = machine()
    _same_machine(profile.machine, now, times, any_machine)
    if workload is not None:
        checks.one_of(workload, "workload", prompts.WORKLOADS)
    for path, one in counted:
        predicted.check_together(one, profile)
        known = float(one.settings["temperature"])
        _known(constraints.temperature, [known], str(path))
    _used(target, draft, [one for _, one in counted])
    say = teller(progress)
    rows = predicted.Rows(profile, batch=batch, seed=SEED)
    found = [predicted.plain(rows)]
    inputs = [Path(times), *(Path(path) for path, _ in counted)]
    notes = _left_out(constraints.temperature, profile)
    if not notes:
        found += copied(rows, constraints.temperature, workload, say)
        name = recording.file_name(constraints.temperature)
        inputs.append(paths.data_path("recordings") / name)
        for path, one in counted:
            _same_texts(path, one, workload)
    elif not counted:
        raise SpecbookError(f"{notes[0]}, and there are no counts: give --counts")
    if counted:
        from ..models.loading import load_target

        ours = load_target(target, dtype=str(profile.settings["dtype"]))
        checkpoint = ours.identity()["checkpoint"]
        if checkpoint != profile.settings["target"]:
            raise SpecbookError(
                f"{times} is of target {profile.settings['target']}, this is "
                f"{checkpoint}"
            )
        for path, one in counted:
            if one.settings["tokenizer"] != ours.identity()["tokenizer"]:
                raise SpecbookError(
                    f"{path} was counted with another tokenizer than this target's"
                )
            found += _counted(ours, path, one, rows, draft, workload, say)
    settings = {
        "evidence": "profiles",
        "target": profile.settings["target"],
        "workload": workload,
        "dtype": profile.settings["dtype"],
        "batch": batch,
        "prefix": rows.prefix,
        "shape": rows.shape,
        "proposals": [one.settings["proposal"] for _, one in counted],
        "worlds": rows.worlds,
        "seed": rows.seed,
    }
    return _answer(found, constraints, settings, profile.machine, now, inputs, notes)


def _used(target: Any, draft: Any, counted: Sequence[AcceptanceProfile]) -> None:
    """Raises for a model that would not be loaded: it says nothing of this answer."""
    if target is not None and not counted:
        raise SpecbookError("a target belongs to counts: without them none is loaded")
    families = {family_of(predicted.drawing_of(one)[0]) for one in counted}
    if draft is not None and "model" not in families:
        raise SpecbookError("a draft belongs to counts of a draft model")


def _left_out(temperature: float, profile: VerifyProfile) -> list[str]:
    """Why the recorded answers say nothing of this target at this temperature: [] if
    they do."""
    name = recording.file_name(temperature)
    files = recording.manifest()["files"]
    if name not in files:
        return [
            "sources that copy are left out: nothing is recorded at temperature "
            f"{temperature:g}"
        ]
    if files[name]["target"].get("checkpoint") != profile.settings.get("target"):
        return ["sources that copy are left out: the recordings are of another target"]
    return []


def _same_texts(path: Any, one: AcceptanceProfile, workload: str | None) -> None:
    """All workloads together are one mixture: what was counted on some of them is not
    compared with what was recorded on all."""
    if workload is None and set(one.workloads()) != set(prompts.WORKLOADS):
        raise SpecbookError(
            f"{path} was counted on {one.workloads()} alone, and copies are judged on "
            "all workloads: name one workload, or count all"
        )


def copied(
    rows: predicted.Rows,
    temperature: float,
    workload: str | None = None,
    say: Progress = lambda line: None,
) -> list[Estimate]:
    """Every source of the registry that copies and needs no datastore, on the shipped
    recordings of the development half. Raises `ArtifactError` for a temperature that
    was not recorded, and `SpecbookError` for times of another target."""
    recorded = recording.load(temperature, workload=workload, half="development")
    found = []
    for name in drafts.names():
        if family_of(name) != "copying":
            continue
        if needs_datastore(name):
            say(f"{name} is left out: it needs a datastore")
            continue
        found.append(predicted.replayed(name, drafts.make(name), recorded, rows))
    return found


def _counted(
    ours: Any,
    path: Any,
    one: AcceptanceProfile,
    rows: predicted.Rows,
    draft: Any,
    workload: str | None,
    say: Progress,
) -> list[Estimate]:
    name, children = predicted.drawing_of(one)
    options: dict[str, Any] = {"children": children}
    if draft is not None and family_of(name) == "model":
        options["draft"] = draft
    source = calibrated(name, chain(LEVELS), **options).make()
    identity = getattr(source, "artifact_identity", source.identity)()
    if identity != one.settings["proposal"]:
        raise SpecbookError(
            f"{path} counts {one.settings['proposal']}, here {identity} would draft"
        )
    say(f"timing the drafts of {name}")
    text = prompts.load(workload, "development")[0]
    ids = ours.encode_chat(text.messages) if text.is_chat else ours.encode(text.text)
    levels = predicted.draft_levels(
        ours,
        source,
        ids,
        temperature=float(one.settings["temperature"]),
        verifier=one.settings["verifier"],
    )
    return predicted.planned(
        one,
        rows,
        levels,
        workload=workload,
        extra_bytes=held_bytes(source, beside=(ours,)),
    )


def _same_machine(then: Any, now: Any, what: Any, any_machine: bool) -> None:
    if checks.boolean(any_machine, "any_machine"):
        return
    try:
        check_same_machine(then, now, what)
    except SpecbookError as error:
        # An advice for another machine is a guess, so it is asked for by name.
        raise type(error)(
            f"{error}. Measure this one (specbook measure frontier), run with the "
            "threads of the other (OMP_NUM_THREADS), or say --any-machine"
        ) from error


def _known(temperature: float, there: Sequence[float], what: str) -> None:
    if temperature not in there:
        raise SpecbookError(
            f"{what} was measured at temperature "
            f"{', '.join(f'{t:g}' for t in there)}, and {temperature:g} is asked for: "
            "acceptance changes with it, so measure it there"
        )


def _answer(
    found: Sequence[Estimate],
    constraints: Constraints,
    settings: Mapping[str, Any],
    there: Mapping[str, Any],
    here: Mapping[str, Any],
    inputs: Sequence[Path],
    notes: Sequence[str] = (),
) -> Answer:
    told = list(notes)
    if any(there.get(name) != here.get(name) for name in SAME):
        line = there.get("line", "a machine that is not told")
        told.append(f"times are of another machine than this one: {line}")
    made = advise(found, constraints)
    flips = nearest_flips(found, made)
    kept = answer.manifest(
        made,
        flips,
        settings={**settings, "notes": told},
        machine=there,
        here=here,
        inputs=reading.digests(inputs),
    )
    return Answer(made, tuple(flips), tuple(found), kept, tuple(told))
