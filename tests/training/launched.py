"""A script in two processes of `accelerate launch`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

LAUNCH = (
    "-m accelerate.commands.launch --multi_gpu --num_processes 2 --num_machines 1 "
    "--mixed_precision no --dynamo_backend no --num_cpu_threads_per_process 1 "
    "--main_process_port 0"
)
"""Without a GPU the launcher's "several GPUs" are several CPU processes."""


def in_two_processes(script: str, folder: Path) -> list[dict[str, Any]]:
    """Runs `script`, which is given the folder of all tests and `folder`. Each process
    writes there, as its number and ".json", what is returned of both."""
    path = folder / "script.py"
    path.write_text(script, encoding="utf-8")
    tests = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    done = subprocess.run(
        [sys.executable, *LAUNCH.split(), str(path), tests, str(folder)],
        capture_output=True,
        encoding="utf-8",
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = [
        json.loads((folder / f"{number}.json").read_text(encoding="utf-8"))
        for number in range(2)
    ]
    assert [told["processes"] for told in found] == [2, 2]
    return found
