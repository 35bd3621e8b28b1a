"""Every test has the same name in every process, so that workers can share them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def names(folder: Path, hash_seed: str) -> list[str]:
    """The node ids below `folder`, collected in a process of its own."""
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "--collect-only",
            "-q",
            "-p",
            "no:cacheprovider",
        ]
        + [str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return re.findall(r"^\S*::.*$", run.stdout, re.MULTILINE)


def check_names_are_stable(folder: Path) -> int:
    first, second = names(folder, "1"), names(folder, "2")
    assert first == second
    return len(first)


def test_the_names_of_the_tests_are_stable():
    assert check_names_are_stable(ROOT / "tests") > 1000


def test_an_address_or_a_sets_order_in_a_name_is_found(tmp_path):
    case = tmp_path / "test_unstable.py"
    for value in ("object()", "frozenset('abcdefgh')"):
        case.write_text(
            "import pytest\n"
            f"@pytest.mark.parametrize('x', [{value}], ids=repr)\n"
            "def test_it(x): pass\n",
            encoding="utf-8",
        )
        with pytest.raises(AssertionError):
            check_names_are_stable(case)
