"""How a benchmark is set up: its options checked before anything is loaded, the clock,
the folder for its files, and what machine it ran on."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from .. import checks, prompts
from ..errors import SpecbookError

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
DTYPES = ("float32", "bfloat16", "float16", "float64")
MAX_NEW_TOKENS = 128
QUICK = {"prompts_per_workload": 2, "max_new_tokens": 32}

Clock = Callable[[], float]
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Setup:
    """A checked benchmark on the frozen prompts. `tell` takes a line of progress;
    `settings` is what the report records of the options."""

    chosen: tuple[prompts.Prompt, ...]
    dtypes: tuple[str, ...]
    max_new_tokens: int
    repeats: int
    now: Clock
    tell: Progress
    out: Path | None
    settings: dict[str, Any]

    def encoded(self, target: Any) -> list[tuple[prompts.Prompt, list[int]]]:
        """The prompts with their ids, chats through the target's own template."""
        return [
            (p, target.encode_chat(p.messages) if p.is_chat else target.encode(p.text))
            for p in self.chosen
        ]


def set_up(
    *,
    workloads: Any,
    half: Any,
    prompts_per_workload: Any,
    max_new_tokens: Any,
    dtypes: Any,
    repeats: Any,
    quick: Any,
    clock: Any,
    out: Any,
    progress: Any,
    **checkpoints: Any,
) -> Setup:
    """The options that benchmarks of decoding share, checked. `checkpoints`: folders or
    hub ids by name, or None. Raises `ValueError`, naming the option."""
    check_checkpoints(**checkpoints)
    tell = teller(progress)
    workloads = checks.entries(workloads, "workloads", "names")
    dtypes = checks.entries(dtypes, "dtypes", "names")
    if checks.boolean(quick, "quick"):
        prompts_per_workload = QUICK["prompts_per_workload"]
        max_new_tokens = QUICK["max_new_tokens"]
    for name in workloads:
        checks.one_of(name, "workload", prompts.WORKLOADS)
    for name in dtypes:
        checks.one_of(name, "dtype", DTYPES)
    if not workloads or not dtypes:
        raise SpecbookError("at least one workload and one dtype are needed")
    checks.integer(max_new_tokens, "max_new_tokens", least=1)
    checks.integer(repeats, "repeats", least=1)
    now = clock_of(clock)
    if prompts_per_workload is not None:
        checks.integer(prompts_per_workload, "prompts_per_workload", least=1)
    chosen = [
        prompt
        for name in workloads
        for prompt in prompts.load(name, half)[:prompts_per_workload]
    ]
    settings = {
        "workloads": workloads,
        "half": half,
        "prompts_frozen": prompts.manifest()["frozen"],
        "prompts_per_workload": prompts_per_workload,
        "max_new_tokens": max_new_tokens,
        "repeats": repeats,
        "quick": quick,
        "clock": clock,
    }
    return Setup(
        tuple(chosen),
        tuple(dtypes),
        max_new_tokens,
        repeats,
        now,
        tell,
        None if out is None else folder(out),
        settings,
    )


def check_checkpoints(**checkpoints: Any) -> None:
    """Raises `SpecbookError` unless each is None, or a folder or hub id."""
    for name, value in checkpoints.items():
        if value is not None and not isinstance(value, (str, os.PathLike)):
            raise SpecbookError(f"{name} must be a folder or a hub id, got {value!r}")


def teller(progress: Any) -> Progress:
    """`progress`, or what says nothing."""
    if progress is not None and not callable(progress):
        raise SpecbookError(f"progress must be a function, got {progress!r}")
    return progress or (lambda line: None)


def clock_of(name: Any) -> Clock:
    """The clock called "wall" or "cpu"."""
    return CLOCKS[checks.one_of(name, "clock", tuple(CLOCKS))]


def folder(out: Any) -> Path:
    """`out` as a folder that exists and takes files."""
    if not isinstance(out, (str, os.PathLike)):
        raise SpecbookError(f"out must be a folder, got {out!r}")
    made = Path(out)
    try:
        made.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=made):
            pass
    except (OSError, ValueError) as error:
        raise SpecbookError(f"out: {out} takes no files: {error}") from None
    return made


def file(out: Any) -> Path:
    """`out` as a file in a folder that exists and takes files; the file itself may be
    there."""
    if not isinstance(out, (str, os.PathLike)):
        raise SpecbookError(f"out must be a file, got {out!r}")
    made = Path(out)
    if made.is_dir():
        raise SpecbookError(f"out: {out} is a folder, not a file")
    folder(made.parent)
    return made


SAME = ("processor", "instructions", "threads")
"""What two machines must share for times of one to be read as times of the other. A
hypervisor may give unlike processors one name, so what torch's kernels may use counts,
too: on two processors of one name, with and without 512-bit registers, sixteen rows
cost a bfloat16 target 1.1 and 7 times one row."""


def check_same_machine(
    then: Mapping[str, Any],
    now: Mapping[str, Any],
    what: Any,
    error: type[SpecbookError] = SpecbookError,
) -> None:
    """Raises `error` where `what`, a file or a report that was measured on `then`, is
    not of the machine `now`. What a file does not tell is not taken for equal."""
    for name in SAME:
        if then.get(name) != now.get(name):
            raise error(
                f"{what} was measured with {name} {then.get(name)!r}, here it is "
                f"{now.get(name)!r}"
            )


def machine() -> dict[str, Any]:
    """What the numbers were measured on: processor, threads, versions, date."""
    import torch

    from .. import plotting

    return {
        "line": plotting.machine(),
        "processor": plotting.processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "versions": {
            name: metadata.version(name) for name in ("torch", "transformers", "numpy")
        },
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }
