"""Threads times workers: never more than the cores (public case H30)."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUNS = r"(?:OMP_NUM_THREADS=(\d+) )?\S+ -m pytest\b[^\n]* -n (\d+)"


def parallel_runs(makefile: str) -> list[tuple[str, str]]:
    """(threads, workers) of each test run with several workers; "" is one a core."""
    joined = re.sub(r"\\\n\s*", " ", makefile)
    return [(found[1] or "", found[2]) for found in re.finditer(RUNS, joined)]


def test_workers_of_a_test_run_have_one_thread_each():
    found = parallel_runs((ROOT / "Makefile").read_text(encoding="utf-8"))
    assert found and {threads for threads, _ in found} == {"1"}


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("@OMP_NUM_THREADS=1 $(PY) -m pytest -q -n 2 tests", [("1", "2")]),
        ("@$(PY) -m pytest -q -n 2 tests", [("", "2")]),
        ("@$(PY) -m pytest -q \\\n\t\t-n 4 tests", [("", "4")]),
        ("@$(PY) -m pytest -q tests", []),
    ],
)
def test_a_run_with_a_thread_for_each_core_would_be_seen(line, found):
    assert parallel_runs(line) == found
