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

from .. import checks, drafts, prompts
from ..errors import SpecbookError
from ..measure import frontier_report, recording
from ..measure.acceptance import AcceptanceProfile
from ..measure.calibrated import calibrated
from ..measure.frontier_data import FrontierFile
from ..measure.held import held_bytes
from ..measure.setup import Progress, check_same_machine, machine
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


@dataclass(frozen=True)
class Answer:
    """An advice, what would change it, and the manifest that keeps both."""

    advice: Advice
    flips: tuple[Flip, ...]
    estimates: tuple[Estimate, ...]
    manifest: dict[str, Any]

    def lines(self) -> list[str]:
        """For people."""
        return answer.lines(self.advice, self.flips)


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
    found = measured.from_frontier(file, workload, chosen, temperature, batch=batch)
    settings = {
        "evidence": "frontier",
        "target": file.settings.get("target"),
        "workload": workload,
        "dtype": chosen,
        "batch": batch,
    }
    return _answer(found, constraints, settings, now, _paths(file))


def _paths(file: FrontierFile) -> list[Path]:
    return [] if file.path is None else [file.path]


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
    the shipped recordings of the development half. `target`: a folder or hub id, and
    `draft` that of a draft model; both are loaded to time the drafts. Raises
    `SpecbookError` for profiles that do not belong together or to this machine, for
    counts at another temperature, and for counts of another artifact than the one that
    would draft.
    """
    profile = VerifyProfile.load(Path(times))
    counted = [(path, AcceptanceProfile.load(Path(path))) for path in counts]
    now = machine()
    _same_machine(profile.machine, now, times, any_machine)
    if workload is not None:
        checks.one_of(workload, "workload", prompts.WORKLOADS)
    for path, one in counted:
        predicted.check_together(one, profile)
        known = float(one.settings["temperature"])
        _known(constraints.temperature, [known], str(path))
    say = progress if progress is not None else (lambda line: None)
    rows = predicted.Rows(profile, batch=batch)
    found = [predicted.plain(rows)]
    found += copied(rows, constraints.temperature, workload, say)
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
            found += _counted(ours, path, one, rows, draft, workload, say)
    settings = {
        "evidence": "profiles",
        "target": profile.settings["target"],
        "workload": workload,
        "dtype": profile.settings["dtype"],
        "batch": batch,
    }
    inputs = [Path(times), *(Path(path) for path, _ in counted)]
    return _answer(found, constraints, settings, now, inputs)


def copied(
    rows: predicted.Rows,
    temperature: float,
    workload: str | None = None,
    say: Progress = lambda line: None,
) -> list[Estimate]:
    """Every source of the registry that copies and needs no datastore, on the shipped
    recordings of the development half. Raises `ArtifactError` for a temperature that
    was not recorded."""
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
        ours, source, ids, temperature=float(one.settings["temperature"])
    )
    return predicted.planned(
        one,
        rows,
        levels,
        workload=workload,
        extra_bytes=held_bytes(source, beside=(ours,)),
    )


def _same_machine(then: Any, now: Any, what: Any, any_machine: bool) -> None:
    if not checks.boolean(any_machine, "any_machine"):
        check_same_machine(then, now, what)


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
    about: Mapping[str, Any],
    inputs: Sequence[Path],
) -> Answer:
    made = advise(found, constraints)
    flips = nearest_flips(found, made)
    told = answer.manifest(
        made, flips, settings=settings, machine=about, inputs=answer.hashed(inputs)
    )
    return Answer(made, tuple(flips), tuple(found), told)
