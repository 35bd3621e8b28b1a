"""The whole command under `accelerate launch`: two processes without a GPU."""

import dataclasses
import json
import os
import subprocess
import sys

import pytest

from specbook.cli_train import LAUNCH
from specbook.models import kangaroo_storage
from specbook.models.heads import storage

from .test_heads_run import RECIPE

LAUNCHED = '''
"""specbook, with short data: what a byte tokenizer makes of prompts is long."""
import json, os, runpy, sys
from specbook import prompts
from specbook.training import settings

real, recipe = prompts.load, settings.Recipe
options = json.loads(os.environ["SHORT"])


def load(workload=None, half=None):
    found = sorted(real(workload, half), key=lambda prompt: len(prompt.text))
    return tuple(found if workload is None else found[:1])


prompts.load = load


class Short(recipe):
    def __init__(self, seed):
        super().__init__(seed=seed, **options)


settings.Recipe = Short
runpy.run_module("specbook", run_name="__main__", alter_sys=True)
'''


@pytest.mark.parametrize(
    ("command", "read"),
    [
        ("heads hydra --heads 2", storage.read),
        ("kangaroo --boundary 1 --attention-heads 4", kangaroo_storage.read),
    ],
    ids=["heads", "kangaroo"],
)
def test_the_command_of_the_help_trains_in_two_processes(
    command, read, tiny_folder, tmp_path
):
    (tmp_path / "launched.py").write_text(LAUNCHED, encoding="utf-8")
    short = dataclasses.asdict(RECIPE)
    for name in ("seed", "held_out"):
        del short[name]
    *launch, module = LAUNCH.split()[2:]
    assert module == "specbook" and launch[-1] == "-m"
    alone = "--num_cpu_threads_per_process 1 --main_process_port 0".split()
    out = tmp_path / "data" / "tiny"
    train = (
        f"launched train {command} --out {out} --target {tiny_folder} --rows 200 "
        "--steps 4 --start least_squares --rows-per-step 300 --others 64"
    )
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "accelerate.commands.launch",
            *alone,
            *launch,
            *train.split(),
        ],
        env={
            **os.environ,
            "PYTHONPATH": str(tmp_path),
            "SHORT": json.dumps(short),
            "SPECBOOK_CACHE": str(tmp_path / "cache"),
        },
        capture_output=True,
        encoding="utf-8",
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert read(out).manifest["machine"]["processes"] == 2
    # Only the first process speaks.
    assert done.stdout.count('"top1"') == 5
    assert done.stderr.count("written: ") == 1
