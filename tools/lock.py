"""constraints.txt: the exact versions that the last green run used.

    python tools/lock.py --write     record this environment
    python tools/lock.py --check     compare it with the record

The record covers specbook[dev] and everything below it, as installed, without the
local label of a build (``+cpu``), so that the same file serves a machine with a GPU.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
PINS = ROOT / "constraints.txt"
HEADER = """\
# Exact versions of the last green run on Python 3.11, written by tools/lock.py.
# They also resolve on Python 3.12 and 3.13. Used by the Makefile as
#     pip install -e ".[dev]" -c constraints.txt
"""
# Needed by other Python versions or systems than the one that records; kept as they
# are. Each line says which.
EXTRA: dict[str, str] = {}


def project() -> dict:
    """Return the [project] table of pyproject.toml."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)["project"]


def requirements(extra: str | None = None) -> list[Requirement]:
    """Return what the core, or the core with one extra, asks for directly."""
    table = project()
    lines = list(table["dependencies"])
    todo = [extra] if extra else []
    while todo:
        for line in table["optional-dependencies"][todo.pop()]:
            wish = Requirement(line)
            if canonicalize_name(wish.name) == table["name"]:
                todo += sorted(wish.extras)
            else:
                lines.append(line)
    return [Requirement(line) for line in lines]


def closure(roots: list[Requirement]) -> dict[str, str]:
    """Return name -> installed version of everything below ``roots``.

    Raises ValueError, naming the package, when a requirement is not installed.
    """
    found: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    todo = [(str(canonicalize_name(r.name)), tuple(r.extras)) for r in roots]
    while todo:
        name, extras = todo.pop()
        try:
            package = distribution(name)
        except PackageNotFoundError as error:
            raise ValueError(f"{name} is not installed: run make setup") from error
        found[name] = Version(package.version).public
        for extra in ("", *extras):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            for line in package.requires or []:
                wish = Requirement(line)
                if wish.marker and not wish.marker.evaluate({"extra": extra}):
                    continue
                todo.append((str(canonicalize_name(wish.name)), tuple(wish.extras)))
    return found


def read_pins(text: str) -> dict[str, str]:
    """Return name -> version of a constraints text; ValueError names a bad line."""
    pins: dict[str, str] = {}
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.split("#")[0].strip()
        if not line:
            continue
        match = re.fullmatch(
            r"([A-Za-z0-9._-]+)==([A-Za-z0-9.!]+)(?:\s*;\s*(.+))?", line
        )
        if not match:
            raise ValueError(f"constraints.txt line {number}: not name==version: {raw}")
        pins[str(canonicalize_name(match[1]))] = match[2]
    return pins


def render(found: dict[str, str]) -> str:
    """Return the text of constraints.txt."""
    lines = [f"{name}=={version}" for name, version in found.items()]
    lines += [f"{name}=={rest}" for name, rest in EXTRA.items()]
    return HEADER + "\n".join(sorted(lines)) + "\n"


def range_faults(pins: dict[str, str], wishes: list[Requirement]) -> list[str]:
    """Name each direct requirement without a pin or with a pin outside its range."""
    faults = []
    for wish in wishes:
        pin = pins.get(str(canonicalize_name(wish.name)))
        if pin is None:
            faults.append(f"{wish.name}: no pin in constraints.txt")
        elif not wish.specifier.contains(pin):
            faults.append(f"{wish.name}=={pin} is outside {wish.specifier}")
    return faults


def drift(pins: dict[str, str], found: dict[str, str]) -> list[str]:
    """Name each installed package whose version is not the recorded one."""
    return [
        f"{name}: {version} is installed, constraints.txt says {pins.get(name)}"
        for name, version in sorted(found.items())
        if pins.get(name) != version
    ]


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--write", action="store_true")
    mode.add_argument("--check", action="store_true")
    parser.add_argument("--pins", default="constraints.txt")
    options = parser.parse_args(arguments)
    wishes = requirements("dev")
    try:
        found = closure(wishes)
        if options.write:
            part = PINS.with_suffix(".part")
            part.write_text(render(found), encoding="utf-8")
            part.replace(PINS)
            print(f"recorded {len(found)} versions in {PINS.name}")
        pins = read_pins(PINS.read_text(encoding="utf-8"))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    faults = range_faults(pins, wishes)
    if options.pins != "none":
        faults += drift(pins, found)
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
