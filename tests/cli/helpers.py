"""What the tests of commands share: refusals, processes of their own, stand-ins."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

HEAVY = ("torch", "transformers", "matplotlib", "networkx")

_ALONE = """
import runpy, sys
sys.argv = ["specbook", *sys.argv[1:]]
try:
    runpy.run_module("specbook", run_name="__main__")
except SystemExit as end:
    print("\\nENDED", end.code or 0, *sys.modules)
"""


def refused(done: Any, told: str) -> None:
    """What was asked for is wrong: `done` has status 2, and one line that says `told`,
    on standard error."""
    assert done.exit_code == 2, done.output
    assert done.stdout == "", done.stdout
    assert done.stderr.startswith("specbook: "), done.stderr
    assert told in done.stderr and done.stderr.count("\n") == 1, done.stderr


def alone(*command: str) -> tuple[int, set[str]]:
    """Runs a command in a process of its own: its status, and the heavy packages that
    it imported."""
    done = subprocess.run(
        [sys.executable, "-c", _ALONE, *command],
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    status, *modules = done.stdout.rpartition("ENDED")[2].split()
    return int(status), set(HEAVY) & set(modules)


class Report:
    """What a benchmark returns, as far as the command line looks."""

    def options(self) -> list[str]:
        return ["measured so and so"]

    def tables(self) -> list[tuple[str, list[str], list[list[str]]]]:
        return [("Times", ["system", "ms"], [["ours", "1.5"], ["theirs", "3.0"]])]

    def strengths(self) -> list[str]:
        return ["ours is smaller"]

    def as_dict(self) -> dict[str, float]:
        return {"ms": 1.5}
